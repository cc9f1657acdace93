//! `evaluations.yaml`: from the file, and the files of cases that it names, to suites.
//!
//! Reports everything that is wrong at once, and runs nothing.

mod assertions;
mod csv;
mod cases;
mod checks;

use super::suite::{
    AgentWord, Evaluations, FILE, MOST_TRIALS, ONLY_SETTING, Setting, Suite, Target,
};
use crate::config::section::{Section, describe_value};
use crate::error::reason;
use crate::flow::manifest::command::{FORMS, parse_word, read_command};
use crate::flow::manifest::problem::{Manifest, shown_in};
use crate::flow::manifest::{Code, Flow, FlowProblem};
use crate::text::ids::RunId;
use assertions::read_assertions;
use cases::read_cases;
pub(crate) use checks::grader_files;
use checks::{check_agent, check_graders, check_names, warn_of_threshold};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Suites, and what is wrong with the file.
#[derive(Debug)]
pub(crate) struct LoadedEvaluations {
    /// There if none of the problems is an error.
    pub evaluations: Option<Evaluations>,
    pub problems: Vec<FlowProblem>,
}

/// True if a directory has evaluations.
pub(crate) fn has_evaluations(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// True if a suite of the file is about the flow beside it, as far as it can be read.
pub(crate) fn needs_flow(dir: &Path) -> bool {
    let manifest = Manifest::read(dir, FILE.to_owned(), FILE);
    let suites = manifest.root.get("suites").and_then(Value::as_array);
    let is_flow = |suite: &Value| match suite.get("target") {
        Some(target) => target == "flow",
        None => !suite.as_object().is_some_and(names_agents),
    };
    suites.is_some_and(|suites| suites.iter().any(is_flow))
}

/// True if every setting of a suite names an agent.
fn names_agents(suite: &Map<String, Value>) -> bool {
    let settings = suite.get("settings").and_then(Value::as_array);
    settings.is_some_and(|all| !all.is_empty() && all.iter().all(|it| it.get("agent").is_some()))
}

/// Reads suites that a command line describes, as a file in the current directory would.
pub(crate) fn load_words(root: Map<String, Value>) -> LoadedEvaluations {
    load_manifest(Path::new("."), None, Manifest::of_words(root))
}

/// Reads the evaluations of a directory. `flow` is the flow there, if it can be loaded: names of its nodes
/// are looked up in it.
pub(crate) fn load_evaluations(dir: &Path, flow: Option<&Flow>) -> LoadedEvaluations {
    let mut manifest = Manifest::read(dir, shown_in(dir, FILE), FILE);
    if !manifest.exists() && manifest.problems.is_empty() {
        let message = "there is no such file; it lists the suites of an evaluation";
        manifest.push(Some(Code::ManifestMissing), &[], &[], message);
    }
    load_manifest(dir, flow, manifest)
}

fn load_manifest(dir: &Path, flow: Option<&Flow>, manifest: Manifest) -> LoadedEvaluations {
    let home = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let mut reader = SuiteReader {
        dir,
        home: &home,
        flow,
        manifest,
        of_files: Vec::new(),
    };
    let suites = reader.suites();
    let mut problems = reader.manifest.problems;
    problems.extend(reader.of_files);
    let is_well = problems.iter().all(|problem| problem.code.is_none());
    LoadedEvaluations {
        evaluations: is_well.then_some(Evaluations { home, suites }),
        problems,
    }
}

/// Reads the file, and collects what is wrong with it.
struct SuiteReader<'r> {
    /// The directory as it was named, and in full.
    dir: &'r Path,
    home: &'r Path,
    flow: Option<&'r Flow>,
    manifest: Manifest,
    /// About files of cases.
    of_files: Vec<FlowProblem>,
}

impl SuiteReader<'_> {
    fn suites(&mut self) -> Vec<Suite> {
        let root = std::mem::take(&mut self.manifest.root);
        let exists = self.manifest.exists();
        let top = Section::new(&root, vec![]);
        let sections = self.manifest.visit("", &[], &top, |node| {
            node.warn_of_unknown_keys(&["suites"]);
            let sections = node.mappings("suites");
            if sections.is_empty() && !node.has_errors() && exists {
                node.error("suites", "suites: there are none; write one");
            }
            sections
        });
        let mut names: Vec<String> = Vec::new();
        let mut suites = Vec::new();
        for section in &sections {
            let Some(name) = self.manifest.visit("", &[], section, read_name) else {
                continue;
            };
            if names.contains(&name) {
                let message = format!("suite \"{name}\" is defined twice; rename one");
                let (code, at) = (Code::DuplicateSuite, section.path_to("name"));
                self.manifest.push(Some(code), &[&name], &at, message);
                continue;
            }
            suites.extend(self.suite(&name, section));
            names.push(name);
        }
        suites
    }

    fn suite(&mut self, name: &str, section: &Section) -> Option<Suite> {
        let home = self.home;
        let subject = format!("suite \"{name}\"");
        let (suite, template) = self.manifest.visit(&subject, &[name], section, |node| {
            let suite = read_suite(node);
            (suite, read_directory(home, node, "workspace"))
        });
        let read = |node: &Section| read_target(home, node);
        let (code, manifest) = (Code::BadTarget, &mut self.manifest);
        let target = manifest.visit_for(code, &subject, &[name], section, read);
        let mut target = target?;
        let settings = self.settings(name, section, &target)?;
        if !section.has("target")
            && let Some(agent) = settings.first().and_then(|first| first.agent.clone())
        {
            target = Target::Agent(agent);
        }
        let read = |node: &Section| {
            read_assertions(home, node);
            node.has_errors()
        };
        let code = Code::BadAssertion;
        if self
            .manifest
            .visit_for(code, &subject, &[name], section, read)
        {
            return None;
        }
        let cases = read_cases(self, name, section, template.as_deref());
        let case_file = section.map.get("cases").and_then(Value::as_str);
        let suite = Suite {
            name: name.to_owned(),
            target,
            cases: cases?,
            case_file: case_file.map(|file| home.join(file)),
            settings,
            ..suite
        };
        check_names(self, &suite, section);
        check_graders(self, &suite, section);
        warn_of_threshold(&mut self.manifest, &suite, section);
        Some(suite)
    }

    fn settings(
        &mut self,
        suite: &str,
        section: &Section,
        target: &Target,
    ) -> Option<Vec<Setting>> {
        let subject = format!("suite \"{suite}\"");
        let (sections, is_wrong) = self.manifest.visit(&subject, &[suite], section, |node| {
            let sections = node.mappings("settings");
            (sections, node.has_errors())
        });
        let mut settings: Vec<Setting> = Vec::new();
        let is_left_out = !section.has("target") && names_agents(section.map);
        let is_of_agents = is_left_out || matches!(target, Target::Agent(_));
        let home = self.home;
        for plain in sections {
            let section = plain.within("settings");
            let read = |node: &Section| read_setting(home, node, is_of_agents);
            let setting = self.manifest.visit("", &[suite], &section, read)?;
            let name = &setting.name;
            if settings.iter().any(|other| other.name == *name) {
                let message = format!("{subject}: setting \"{name}\" is defined twice; rename one");
                let code = Some(Code::DuplicateSetting);
                let at = section.path_to("");
                self.manifest.push(code, &[suite, name], &at, message);
            }
            settings.push(setting);
        }
        if settings.is_empty() {
            settings.push(Setting {
                name: ONLY_SETTING.to_owned(),
                agent: None,
                set: Map::new(),
            });
        }
        (!is_wrong).then_some(settings)
    }
}

/// The name of a suite, which is that of a directory, too.
fn read_name(node: &Section) -> Option<String> {
    if !node.has("name") {
        node.error("name", "this suite has no name; give it one");
    }
    let name = node.read_text("name")?;
    if RunId::parse(name).is_err() {
        let message = format!(
            "invalid name {name:?}: 1 to 64 letters, digits, '_', '.' and '-', no '.' at the \
             beginning, make the name of a suite"
        );
        return node.refuse("name", message);
    }
    Some(name.to_owned())
}

/// Reads the keys that need no other file.
fn read_suite(node: &Section) -> Suite {
    let suite = Suite::read_keys(node);
    let given: Option<u64> = node.get("trials");
    let trials = given.unwrap_or(1);
    if !(1..=MOST_TRIALS.into()).contains(&trials) {
        let message = format!("trials: {trials} is not a number from 1 to {MOST_TRIALS}");
        node.error("trials", message);
    }
    if let Some(threshold) = suite.threshold.filter(|it| *it <= 0.0 || *it > 1.0) {
        let message = format!("threshold: {threshold} is not a rate above 0 and up to 1");
        node.error("threshold", message);
    }
    Suite {
        trials: trials as u32,
        wrapper: node.texts("wrapper").into_iter().map(parse_word).collect(),
        ..suite
    }
}

fn read_target(home: &Path, node: &Section) -> Option<Target> {
    let target = match node.map.get("target") {
        None => Target::Flow,
        Some(Value::String(word)) if word == "flow" => Target::Flow,
        Some(Value::Object(map)) => {
            let section = node.inner(map, node.path_to("target")).within("target");
            read_program_target(home, &section)?
        }
        Some(_) => {
            let expected = "flow, {agent: DIR} or {command: [PROGRAM]}";
            return node.refuse_value("target", expected);
        }
    };
    Some(target)
}

fn read_program_target(home: &Path, node: &Section) -> Option<Target> {
    let known: Vec<&str> = FORMS.into_iter().chain(["agent"]).collect();
    node.warn_of_unknown_keys(&known);
    let has_command = FORMS.iter().any(|form| node.has(form));
    match (node.has("agent"), has_command) {
        (true, false) => read_agent(home, node).map(Target::Agent),
        (false, true) => read_command(node).map(Target::Command),
        (true, true) => node.refuse("", "target: has an agent and a command; remove one"),
        (false, false) => node.refuse("", "target: has neither an agent nor a command"),
    }
}

fn read_agent(home: &Path, node: &Section) -> Option<AgentWord> {
    let name = node.read_text("agent")?.to_owned();
    let word = if name.starts_with('@') {
        name.clone()
    } else {
        home.join(&name).to_string_lossy().into_owned()
    };
    check_agent(&word, node);
    Some(AgentWord { word, name })
}

fn read_setting(home: &Path, node: &Section, is_of_agents: bool) -> Option<Setting> {
    node.warn_of_unknown_keys(&["name", "agent", "set"]);
    let Some(name) = node.read_text("name").filter(|name| is_plain(name)) else {
        return node.refuse("name", "settings: this setting needs a name of one line");
    };
    let given = node.read_mapping("set");
    let mut set = given.cloned().unwrap_or_default();
    let agent = match (node.has("agent"), is_of_agents) {
        (true, true) => Some(read_agent(home, node)?),
        (true, false) => {
            let message =
                "settings: agent: the target is no agent; name an agent there, or in every setting";
            return node.refuse("agent", message);
        }
        (false, _) => None,
    };
    if !is_of_agents {
        for (key, value) in &mut set {
            match variable_text(key, value) {
                Ok(text) => *value = Value::String(text),
                Err(why) => node.error("set", format!("settings: set: {why}")),
            }
        }
    }
    Some(Setting {
        name: name.to_owned(),
        agent,
        set,
    })
}

/// A value for a variable of the environment, which is what a setting changes for a program.
fn variable_text(name: &str, value: &Value) -> Result<String, String> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !begins_well || !name.chars().all(is_letter) {
        return Err(format!(
            "'{name}' is not a variable; for a flow and a command each key is a variable of the environment"
        ));
    }
    let is_ours = name.starts_with("FLOW_") || name.starts_with("DELTA_") && name != "DELTA_MODEL";
    if is_ours || name == "CWD" {
        return Err(format!("{name} is set by delta itself"));
    }
    match value {
        Value::String(text) if text.contains('\0') => Err(format!("{name} has a NUL byte")),
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        other => Err(format!(
            "{name}: expected a text, found {}",
            describe_value(other)
        )),
    }
}

/// A name of one line that can be shown as it is.
fn is_plain(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= 200 && !name.chars().any(char::is_control)
}

/// A directory that a key names, from the flow's.
fn read_directory(home: &Path, node: &Section, key: &str) -> Option<PathBuf> {
    let name = node.read_text(key)?;
    match home.join(name).canonicalize() {
        Ok(dir) if dir.is_dir() => Some(dir),
        Ok(_) => node.refuse(key, format!("{key}: {name} is not a directory")),
        Err(error) => {
            let why = reason(&error);
            node.refuse(key, format!("{key}: cannot read {name}: {why}"))
        }
    }
}
