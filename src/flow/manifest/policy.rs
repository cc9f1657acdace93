//! `policy.yaml`: what nodes may do, by rules of which the first that fits decides.
//!
//! Unaware of what it denies: the caller asks before it acts.

use super::Flow;
use super::fields::{fields, needed};
use super::glob::Glob;
use super::items::each_item;
use super::problem::Manifest;
use crate::config::section::Section;
use crate::text::names::named_enum;
use serde::{Deserialize, Serialize};

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

named_enum! {
    pub(crate) enum RuleAction {
        Allow = "allow",
        Deny = "deny",
    }
}

fields! {
    /// A rule of a policy.
    struct Rule {
        target: Option<PolicyTarget> = needed("target", "tool, context or node"),
        target_id: Option<Glob> = needed("target_id", "an id, or * for all"),
        action: Option<RuleAction> = needed("action", "allow or deny"),
        /// None: every node.
        nodes: Option<Glob>,
        reason: Option<String>,
    }
    beside {
        policy: String,
        /// In the policy, from 1.
        number: usize,
    }
}

impl Rule {
    /// True for a node that the rule is about.
    fn is_about(&self, node: &str) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.fits(node))
    }
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
    /// The rule's own words.
    pub reason: Option<String>,
}

impl Denied {
    /// The denial in a line.
    pub(crate) fn message(&self) -> String {
        let Self { policy, rule, .. } = self;
        let (what, id) = (self.target.name(), &self.target_id);
        let mut message = format!("policy \"{policy}\", rule {rule}, denies {what} {id}");
        if let Some(reason) = &self.reason {
            message += &format!(": {reason}");
        }
        message
    }
}

/// All rules, in the order in which they are asked.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    rules: Vec<Rule>,
}

impl Policies {
    /// The denial of a thing that a node asks for, if a rule denies it.
    pub(crate) fn denial(&self, target: PolicyTarget, id: &str, node: &str) -> Option<Denied> {
        let fits = |rule: &&Rule| {
            let is_meant = rule.target_id.as_ref().is_some_and(|glob| glob.fits(id));
            rule.target == Some(target) && is_meant && rule.is_about(node)
        };
        let denies = |rule: &&Rule| rule.action == Some(RuleAction::Deny);
        let rule = self.rules.iter().find(fits).filter(denies)?;
        Some(Denied {
            policy: rule.policy.clone(),
            rule: rule.number,
            target,
            target_id: id.to_owned(),
            reason: rule.reason.clone(),
        })
    }
}

/// Reads the file.
pub(super) fn read_policies(manifest: &mut Manifest, flow: &Flow) -> Policies {
    let mut rules = Vec::new();
    let mut names: Vec<String> = Vec::new();
    each_item(manifest, "policies", |manifest, section| {
        let name = manifest.visit("", &[], section, |node| read_name(node, &names));
        let ids: &[&str] = if name.is_empty() { &[] } else { &[&name] };
        let subject = format!("policy \"{name}\"");
        let read = |node: &Section| read_policy(node, &name, flow);
        rules.extend(manifest.visit(&subject, ids, section, read));
        names.push(name);
    });
    Policies { rules }
}

fn read_name(node: &Section, known: &[String]) -> String {
    let name = node.read_text("name").unwrap_or("").to_owned();
    if !node.has("name") {
        node.error("name", "this policy has no name; give it one");
    } else if node.map["name"] == "" {
        node.error("name", "name: is empty; give the policy a name");
    } else if !name.is_empty() && known.contains(&name) {
        let message = format!("policy \"{name}\" is defined twice; rename one");
        node.error("name", message);
    }
    name
}

/// The rules of one policy: none if it is not enabled.
fn read_policy(node: &Section, name: &str, flow: &Flow) -> Vec<Rule> {
    node.warn_of_unknown_keys(&["name", "description", "enabled", "rules"]);
    node.read_text("description");
    let enabled: Option<bool> = node.get("enabled");
    let mut rules = Vec::new();
    for (index, section) in node.mappings("rules").into_iter().enumerate() {
        let item = section.about(&format!("rule {}", index + 1));
        let rule = Rule::read_keys(&item);
        warn_of_idle_rule(&rule, &item, flow);
        rules.push(Rule {
            policy: name.to_owned(),
            number: index + 1,
            ..rule
        });
    }
    if !node.has("rules") {
        node.warn("rules", "has no rules, and changes nothing");
    }
    rules.retain(|_| enabled != Some(false));
    rules
}

/// Warns of a rule that can never decide anything.
fn warn_of_idle_rule(rule: &Rule, node: &Section, flow: &Flow) {
    let (Some(target), Some(target_id), Some(_)) = (rule.target, &rule.target_id, rule.action)
    else {
        return;
    };
    let ids = flow.nodes.iter().map(|node| &node.id);
    let mut nodes = ids.filter(|id| rule.is_about(id)).peekable();
    if nodes.peek().is_none() {
        return node.warn("nodes", "nodes: fits no node of workflow.yaml");
    }
    let fits = |id: &String| target_id.fits(id);
    let (any, what) = match target {
        PolicyTarget::Tool => {
            let mut tools = flow.tools.iter();
            (tools.any(|it| fits(&it.tool.name)), "tool of tools.yaml")
        }
        PolicyTarget::Context => {
            let mut profiles = flow.memory.profiles.iter();
            let any = target_id.fits("global") || profiles.any(|it| fits(&it.id));
            (any, "context profile of memory.yaml")
        }
        PolicyTarget::Node => (nodes.any(fits), "node of workflow.yaml"),
    };
    if !any {
        node.warn("target_id", format!("target_id: fits no {what}"));
    }
}
