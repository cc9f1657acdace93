//! `evaluations.yaml`: from the file, and the files of cases that it names, to suites.
//!
//! Reports everything that is wrong at once, and runs nothing.

mod assertions;
mod cases;
mod checks;

use super::suite::{Evaluations, FILE, MOST_TRIALS, ONLY_SETTING, Setting, Suite, Target};
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::config::tool::definition::Word;
use crate::error::reason;
use crate::flow::manifest::command::{FORMS, parse_word, read_command};
use crate::flow::manifest::problem::Manifest;
use crate::flow::manifest::{Code, Flow, FlowProblem, read_mappings};
use crate::text::yaml::Step;
use cases::read_cases;
pub(crate) use checks::grader_files;
use checks::{check_agent, check_graders, check_names, warn_of_threshold};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Suites, and what is wrong with the file.
#[derive(Debug)]
pub(crate) struct LoadedEvaluations {
    /// There if none of the problems is an error.
    pub evaluations: Option<Evaluations>,
    pub problems: Vec<FlowProblem>,
}

const SUITE_KEYS: [&str; 12] = [
    "name",
    "description",
    "tags",
    "target",
    "trials",
    "workspace",
    "cases",
    "settings",
    "wrapper",
    "timeout_ms",
    "threshold",
    "fallback",
];

/// True if a directory has evaluations.
pub(crate) fn has_evaluations(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// True if a suite of the file is about the flow beside it, as far as it can be read.
pub(crate) fn needs_flow(dir: &Path) -> bool {
    let manifest = Manifest::read(dir, FILE.to_owned(), FILE);
    let suites = manifest.root.get("suites").and_then(Value::as_array);
    let is_flow = |suite: &Value| suite.get("target").is_none_or(|target| target == "flow");
    suites.is_some_and(|suites| suites.iter().any(is_flow))
}

/// Reads the evaluations of a directory. `flow` is the flow there, if it can be loaded: names of its nodes
/// are looked up in it.
pub(crate) fn load_evaluations(dir: &Path, flow: Option<&Flow>) -> LoadedEvaluations {
    let shown = |file: &str| match dir == Path::new(".") {
        true => file.to_owned(),
        false => dir.join(file).display().to_string(),
    };
    let home = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let mut manifest = Manifest::read(&home, shown(FILE), FILE);
    if !manifest.exists() && manifest.problems.is_empty() {
        let message = "there is no such file; it lists the suites of an evaluation";
        manifest.add(Code::ManifestMissing, vec![], &[], message);
    }
    let mut reader = SuiteReader {
        home: &home,
        flow,
        shown: &shown,
        manifest,
        of_files: Vec::new(),
    };
    let suites = reader.suites();
    let mut problems = reader.manifest.problems;
    problems.extend(reader.of_files);
    let is_fatal = problems.iter().any(|problem| problem.code.is_some());
    LoadedEvaluations {
        evaluations: (!is_fatal).then_some(Evaluations { home, suites }),
        problems,
    }
}

/// Reads the file, and collects what is wrong with it.
struct SuiteReader<'r> {
    home: &'r Path,
    flow: Option<&'r Flow>,
    /// How messages call a file of the directory.
    shown: &'r dyn Fn(&str) -> String,
    manifest: Manifest,
    /// About files of cases.
    of_files: Vec<FlowProblem>,
}

impl SuiteReader<'_> {
    fn suites(&mut self) -> Vec<Suite> {
        let root = std::mem::take(&mut self.manifest.root);
        let mut out = Diagnostics::about("");
        let node = Section::new(&root, vec![]);
        node.warn_of_unknown_keys(&["suites"], &mut out);
        let maps = read_mappings(&node, "suites", &mut out);
        if maps.is_empty() && !out.has_errors() && self.manifest.exists() {
            out.error(node.path_to("suites"), "suites: there are none; write one");
        }
        self.manifest.report(&[], out);
        let mut names: Vec<String> = Vec::new();
        let mut suites = Vec::new();
        for (map, at) in maps {
            let Some(name) = self.suite_name(map, &at, &mut names) else {
                continue;
            };
            suites.extend(self.suite(name, map, at));
        }
        suites
    }

    /// The name of a suite, which is that of a directory, too.
    fn suite_name(
        &mut self,
        map: &Map<String, Value>,
        at: &[Step],
        names: &mut Vec<String>,
    ) -> Option<String> {
        let mut out = Diagnostics::about("");
        let node = Section::new(map, at.to_vec());
        let name = node.read_text("name", &mut out).map(str::to_owned);
        if !map.contains_key("name") {
            out.error(node.path_to("name"), "this suite has no name; give it one");
        }
        let name = name.filter(|name| {
            let is_good = crate::text::ids::RunId::parse(name).is_ok();
            if !is_good {
                let message = format!(
                    "invalid name {name:?}: 1 to 64 letters, digits, '_', '.' and '-', no '.' at the \
                     beginning, make the name of a suite"
                );
                out.error(node.path_to("name"), message);
            }
            is_good
        });
        let place = node.path_to("name");
        self.manifest.report(&[], out);
        let name = name?;
        if names.contains(&name) {
            let message = format!("suite \"{name}\" is defined twice; rename one");
            self.manifest
                .add(Code::DuplicateSuite, vec![name], &place, message);
            return None;
        }
        names.push(name.clone());
        Some(name)
    }

    fn suite(&mut self, name: String, map: &Map<String, Value>, at: Vec<Step>) -> Option<Suite> {
        let node = Section::new(map, at);
        let mut out = Diagnostics::about(format!("suite \"{name}\""));
        node.warn_of_unknown_keys(&SUITE_KEYS, &mut out);
        node.read_text("description", &mut out);
        let trials = self.trials(&node, &mut out);
        let timeout = node.read_count("timeout_ms", &mut out);
        let threshold = read_threshold(&node, &mut out);
        let wrapper = read_words(&node, "wrapper", &mut out);
        let fallback = node.read_flag("fallback", &mut out).unwrap_or(false);
        let tags = read_tags(&node, &mut out);
        let template = read_directory(self.home, &node, "workspace", &mut out);
        let ids = [name.clone()];
        self.manifest.report(&ids, out);
        let target = self.target(&name, &node);
        let settings = self.settings(&name, &node, target.as_ref());
        let cases = read_cases(self, &name, &node, template.as_deref());
        let case_file = map.get("cases").and_then(Value::as_str);
        let case_file = case_file.map(|file| self.home.join(file));
        let suite = Suite {
            name,
            tags,
            target: target?,
            trials,
            cases: cases?,
            case_file,
            settings: settings?,
            wrapper,
            fallback,
            timeout: timeout.filter(|ms| *ms > 0).map(Duration::from_millis),
            threshold,
        };
        check_names(self, &suite, &node);
        check_graders(self, &suite, &node);
        warn_of_threshold(self, &suite, &node);
        Some(suite)
    }

    fn trials(&self, node: &Section, out: &mut Diagnostics) -> u32 {
        let given = node.read_count("trials", out).unwrap_or(1);
        match u32::try_from(given)
            .ok()
            .filter(|n| (1..=MOST_TRIALS).contains(n))
        {
            Some(trials) => trials,
            None => {
                let message = format!("trials: {given} is not a number from 1 to {MOST_TRIALS}");
                out.error(node.path_to("trials"), message);
                1
            }
        }
    }

    fn target(&mut self, name: &str, node: &Section) -> Option<Target> {
        let mut out = Diagnostics::about(format!("suite \"{name}\""));
        let place = node.path_to("target");
        let target = match node.map.get("target") {
            None => Some(Target::Flow),
            Some(Value::String(word)) if word == "flow" => Some(Target::Flow),
            Some(Value::Object(map)) => self.target_of(map, place.clone(), &mut out),
            Some(other) => {
                let found = describe_value(other);
                let message = format!(
                    "target: expected flow, {{agent: DIR}} or {{command: [PROGRAM]}}, found {found}"
                );
                out.error(place.clone(), message);
                None
            }
        };
        if let Some(Target::Agent { word, .. }) = &target {
            check_agent(word, &place, &mut out);
        }
        self.manifest
            .report_as(Code::BadTarget, &[name.to_owned()], out);
        target
    }

    fn target_of(
        &self,
        map: &Map<String, Value>,
        at: Vec<Step>,
        out: &mut Diagnostics,
    ) -> Option<Target> {
        let node = Section::new(map, at.clone()).within("target");
        let known: Vec<&str> = FORMS.into_iter().chain(["agent"]).collect();
        node.warn_of_unknown_keys(&known, out);
        let has_command = FORMS.iter().any(|form| map.contains_key(*form));
        match (map.contains_key("agent"), has_command) {
            (true, false) => {
                let name = node.read_text("agent", out)?.to_owned();
                let word = match name.starts_with('@') {
                    true => name.clone(),
                    false => self.home.join(&name).to_string_lossy().into_owned(),
                };
                Some(Target::Agent { word, name })
            }
            (false, true) => read_command(map, &at, out).map(Target::Command),
            (true, true) => {
                out.error(at, "target: has an agent and a command; remove one");
                None
            }
            (false, false) => {
                out.error(at, "target: has neither an agent nor a command");
                None
            }
        }
    }

    fn settings(
        &mut self,
        suite: &str,
        node: &Section,
        target: Option<&Target>,
    ) -> Option<Vec<Setting>> {
        let mut out = Diagnostics::about(format!("suite \"{suite}\""));
        let maps = read_mappings(node, "settings", &mut out);
        let ids = [suite.to_owned()];
        let has_errors = out.has_errors();
        self.manifest.report(&ids, out);
        let mut settings: Vec<Setting> = Vec::new();
        for (map, at) in maps {
            let mut out = Diagnostics::about(format!("suite \"{suite}\""));
            let setting = read_setting(map, at.clone(), target, &mut out);
            self.manifest.report(&ids, out);
            let setting = setting?;
            if settings.iter().any(|other| other.name == setting.name) {
                let message = format!(
                    "suite \"{suite}\": setting \"{}\" is defined twice; rename one",
                    setting.name
                );
                let ids = vec![suite.to_owned(), setting.name.clone()];
                self.manifest.add(Code::DuplicateSetting, ids, &at, message);
            }
            settings.push(setting);
        }
        if settings.is_empty() {
            settings.push(Setting {
                name: ONLY_SETTING.to_owned(),
                set: Map::new(),
            });
        }
        (!has_errors).then_some(settings)
    }

    /// Adds a problem of a file that is not the manifest.
    fn add_to_file(
        &mut self,
        file: &str,
        line: Option<usize>,
        problem: (Option<Code>, Vec<String>, String),
    ) {
        let (code, ids, message) = problem;
        self.of_files.push(FlowProblem {
            code,
            ids,
            file: file.to_owned(),
            shown: (self.shown)(file),
            line,
            column: None,
            message,
        });
    }
}

fn read_setting(
    map: &Map<String, Value>,
    at: Vec<Step>,
    target: Option<&Target>,
    out: &mut Diagnostics,
) -> Option<Setting> {
    let node = Section::new(map, at).within("settings");
    node.warn_of_unknown_keys(&["name", "set"], out);
    let name = node.read_text("name", out);
    let Some(name) = name.filter(|name| is_plain(name)) else {
        let message = "settings: this setting needs a name of one line";
        out.error(node.path_to("name"), message);
        return None;
    };
    let mut set = node.read_mapping("set", out).cloned().unwrap_or_default();
    if !matches!(target, Some(Target::Agent { .. })) {
        for (key, value) in &mut set {
            match variable_text(key, value) {
                Ok(text) => *value = Value::String(text),
                Err(why) => out.error(node.path_to("set"), format!("settings: set: {why}")),
            }
        }
    }
    let name = name.to_owned();
    Some(Setting { name, set })
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

fn read_threshold(node: &Section, out: &mut Diagnostics) -> Option<f64> {
    let threshold = node.read_amount("threshold", out)?;
    if threshold > 0.0 && threshold <= 1.0 {
        return Some(threshold);
    }
    let message = format!("threshold: {threshold} is not a rate above 0 and up to 1");
    out.error(node.path_to("threshold"), message);
    None
}

fn read_words(node: &Section, key: &str, out: &mut Diagnostics) -> Vec<Word> {
    let words = node.read_texts(key, out).unwrap_or_default();
    words.into_iter().map(parse_word).collect()
}

fn read_tags(node: &Section, out: &mut Diagnostics) -> Vec<String> {
    let tags = node.read_texts("tags", out).unwrap_or_default();
    tags.into_iter().map(str::to_owned).collect()
}

/// A directory that a key names, from the flow's.
fn read_directory(
    home: &Path,
    node: &Section,
    key: &str,
    out: &mut Diagnostics,
) -> Option<PathBuf> {
    let name = node.read_text(key, out)?;
    match home.join(name).canonicalize() {
        Ok(dir) if dir.is_dir() => Some(dir),
        Ok(_) => {
            out.error(
                node.path_to(key),
                format!("{key}: {name} is not a directory"),
            );
            None
        }
        Err(error) => {
            let why = reason(&error);
            out.error(
                node.path_to(key),
                format!("{key}: cannot read {name}: {why}"),
            );
            None
        }
    }
}
