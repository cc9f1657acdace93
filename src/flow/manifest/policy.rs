//! `policy.yaml`: what nodes may do, by rules of which the first that fits decides.
//!
//! Unaware of what it denies: the caller asks before it acts.

use super::items::{read_items, read_mappings};
use super::problem::Manifest;
use crate::config::section::{Diagnostics, Section};
use crate::flow::manifest::glob::Glob;
use crate::text::names::named_enum;
use crate::text::yaml::Step;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

named_enum! {
    pub(crate) enum PolicyTarget {
        /// A call of a tool, by the tool's id.
        Tool = "tool",
        /// A context, by the profile's id, or `global`. A node without a context asks for none.
        Context = "context",
        /// Running a node at all, by its id.
        Node = "node",
    }
}

/// A rule of a policy that is enabled.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    policy: String,
    /// In the policy, from 1.
    number: usize,
    reason: Option<String>,
    target: PolicyTarget,
    target_id: Glob,
    /// None: every node.
    nodes: Option<Glob>,
    denies: bool,
}

/// A thing that a node must not have, and the rule that says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Denied {
    /// The policy's name.
    pub policy: String,
    /// The rule's place in the policy, from 1.
    pub rule: usize,
    pub target: PolicyTarget,
    pub target_id: String,
    /// Why, in the rule's own words.
    pub reason: Option<String>,
}

impl Denied {
    /// The same in a line.
    pub(crate) fn message(&self) -> String {
        let Self { policy, rule, .. } = self;
        let (what, id) = (self.target.name(), &self.target_id);
        let reason = self.reason.as_ref();
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        format!("policy \"{policy}\", rule {rule}, denies {what} {id}{reason}")
    }
}

/// All rules, in the order in which they are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policies {
    rules: Vec<Rule>,
}

impl Policies {
    /// The denial of a thing that a node asks for, if a rule denies it.
    pub(crate) fn denial(&self, target: PolicyTarget, id: &str, node: &str) -> Option<Denied> {
        let fits = |rule: &&Rule| {
            rule.target == target
                && rule.target_id.fits(id)
                && rule.nodes.as_ref().is_none_or(|nodes| nodes.fits(node))
        };
        let rule = self.rules.iter().find(fits).filter(|rule| rule.denies)?;
        Some(Denied {
            policy: rule.policy.clone(),
            rule: rule.number,
            target,
            target_id: id.to_owned(),
            reason: rule.reason.clone(),
        })
    }
}

/// The ids that rules can mean.
pub(super) struct KnownIds<'k> {
    pub nodes: Vec<&'k str>,
    pub tools: Vec<&'k str>,
    pub profiles: Vec<&'k str>,
}

/// Reads the file.
pub(super) fn read_policies(manifest: &mut Manifest, known: &KnownIds<'_>) -> Policies {
    let mut rules = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (map, at) in read_items(manifest, "policies") {
        let mut out = Diagnostics::about("");
        let node = Section::new(&map, at);
        let name = node
            .read_text("name", &mut out)
            .unwrap_or_default()
            .to_owned();
        if !map.contains_key("name") {
            out.error(node.path_to("name"), "this policy has no name; give it one");
        } else if map["name"] == "" {
            out.error(
                node.path_to("name"),
                "name: is empty; give the policy a name",
            );
        } else if !name.is_empty() && names.contains(&name) {
            let message = format!("policy \"{name}\" is defined twice; rename one");
            out.error(node.path_to("name"), message);
        }
        manifest.report(&[], out);
        let mut out = Diagnostics::about(format!("policy \"{name}\""));
        rules.extend(read_policy(&node, &name, known, &mut out));
        let ids = (!name.is_empty()).then(|| name.clone());
        manifest.report(ids.as_slice(), out);
        names.push(name);
    }
    Policies { rules }
}

/// The rules of one policy: none if it is not enabled.
fn read_policy(
    node: &Section,
    name: &str,
    known: &KnownIds<'_>,
    out: &mut Diagnostics,
) -> Vec<Rule> {
    node.warn_of_unknown_keys(&["name", "description", "enabled", "rules"], out);
    node.read_text("description", out);
    let enabled = node.read_flag("enabled", out).unwrap_or(true);
    let mut rules = Vec::new();
    for (index, (map, at)) in read_mappings(node, "rules", out).into_iter().enumerate() {
        let mut of_rule = Diagnostics::about(format!("rule {}", index + 1));
        let rule = read_rule(map, at, (name, index + 1), known, &mut of_rule);
        out.absorb(of_rule);
        rules.extend(rule.filter(|_| enabled));
    }
    if !node.map.contains_key("rules") {
        out.warn(node.path_to("rules"), "has no rules, and changes nothing");
    }
    rules
}

const KEYS: [&str; 5] = ["target", "target_id", "action", "nodes", "reason"];

fn read_rule(
    map: &Map<String, Value>,
    at: Vec<Step>,
    (policy, number): (&str, usize),
    known: &KnownIds<'_>,
    out: &mut Diagnostics,
) -> Option<Rule> {
    let node = Section::new(map, at);
    node.warn_of_unknown_keys(&KEYS, out);
    for (key, wanted) in [
        ("target", "tool, context or node"),
        ("target_id", "an id, or * for all"),
        ("action", "allow or deny"),
    ] {
        if !map.contains_key(key) {
            out.error(node.path_to(key), format!("has no {key}; needs {wanted}"));
        }
    }
    let target = node.read_choice("target", &PolicyTarget::ALL, out);
    let denies = node.read_choice("action", &[("allow", false), ("deny", true)], out);
    let target_id = read_glob(&node, "target_id", out);
    let nodes = read_glob(&node, "nodes", out);
    let reason = node.read_text("reason", out).map(str::to_owned);
    let (target, target_id) = (target?, target_id?);
    let is_wrong = nodes.is_none() && map.contains_key("nodes");
    let rule = Rule {
        policy: policy.to_owned(),
        number,
        reason,
        target,
        target_id,
        nodes,
        denies: denies?,
    };
    warn_of_idle_rule(&rule, &node, known, out);
    (!is_wrong).then_some(rule)
}

fn read_glob(node: &Section, key: &str, out: &mut Diagnostics) -> Option<Glob> {
    let text = node.read_text(key, out)?;
    let read = Glob::parse(text);
    if let Err(why) = &read {
        out.error(
            node.path_to(key),
            format!("{key}: the pattern {text:?} {why}"),
        );
    }
    read.ok()
}

/// Warns of a rule that can never decide anything.
fn warn_of_idle_rule(rule: &Rule, node: &Section, known: &KnownIds<'_>, out: &mut Diagnostics) {
    let fits_node = |id: &str| rule.nodes.as_ref().is_none_or(|nodes| nodes.fits(id));
    let mut nodes = known.nodes.iter().filter(|id| fits_node(id)).peekable();
    if nodes.peek().is_none() {
        out.warn(
            node.path_to("nodes"),
            "nodes: fits no node of workflow.yaml",
        );
        return;
    }
    let fits = |id: &&str| rule.target_id.fits(id);
    let (any, what) = match rule.target {
        PolicyTarget::Tool => (known.tools.iter().any(fits), "tool of tools.yaml"),
        PolicyTarget::Context => {
            let any = rule.target_id.fits("global") || known.profiles.iter().any(fits);
            (any, "context profile of memory.yaml")
        }
        PolicyTarget::Node => (nodes.any(fits), "node of workflow.yaml"),
    };
    if !any {
        let message = format!("target_id: fits no {what}");
        out.warn(node.path_to("target_id"), message);
    }
}
