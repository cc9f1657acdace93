//! Checks of a suite as a whole: names of the flow, where its graders lie, what its threshold takes.

use super::SuiteReader;
use crate::config::agent::Severity;
use crate::config::load;
use crate::config::section::Section;
use crate::flow::eval::assertion::AssertionKind;
use crate::flow::eval::naming::named_files;
use crate::flow::eval::revision::split_revision;
use crate::flow::eval::suite::{FILE, Suite, Target};
use crate::flow::eval::summary::decision::threshold_warning;
use crate::flow::graph::Role;
use crate::flow::manifest::problem::Manifest;
use crate::flow::manifest::{Code, Flow};
use crate::text::order;
use std::path::{Path, PathBuf};

/// Reads an agent that is a directory. One with a name, of a file, or of a revision, is found when the suite is run.
pub(super) fn check_agent(word: &str, node: &Section) {
    let path = Path::new(word);
    let is_file = path.extension().is_some_and(|it| it == "md") && path.is_file();
    let is_named = word.starts_with('@') || is_file;
    if is_named || !path.exists() && split_revision(word).is_some() {
        return;
    }
    let (_, problems) = load::load(path);
    let errors = problems.iter().filter(|it| it.severity == Severity::Error);
    for problem in errors {
        let name = node.name("agent");
        node.error("agent", format!("{name}: {problem}"));
    }
}

/// Checks the names of nodes.
pub(super) fn check_names(reader: &mut SuiteReader<'_>, suite: &Suite, section: &Section) {
    for case in &suite.cases {
        let named = case.start.iter().map(|start| (start, Role::Start));
        let exits = case.assertions.iter().filter_map(|it| match &it.check {
            AssertionKind::ExitNode(exit) => Some((exit, Role::Exit)),
            _ => None,
        });
        for (name, role) in named.chain(exits) {
            let word = role.name();
            let is_there = |flow: &Flow| {
                let found = flow.graph.find(name);
                found.is_some_and(|ix| flow.graph.nodes[ix].role == role)
            };
            let why = if !matches!(suite.target, Target::Flow) {
                format!("has a {word}, and only a flow has one")
            } else if reader.flow.is_none_or(is_there) {
                continue;
            } else {
                format!("the flow has no {word} \"{name}\"")
            };
            let message = format!("suite \"{}\", case \"{}\": {why}", suite.name, case.id);
            let (code, at) = (Some(Code::UnknownNode), section.path_to("cases"));
            let ids: [&str; 2] = [&suite.name, &case.id];
            reader.manifest.push(code, &ids, &at, message);
        }
    }
}

/// The files that grade a suite: none of them belongs to its target.
pub(crate) fn grader_files(home: &Path, suite: &Suite) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = vec![home.join(FILE)];
    files.extend(suite.case_file.clone());
    for assertion in suite.cases.iter().flat_map(|case| &case.assertions) {
        if let AssertionKind::Exec { command, .. } = &assertion.check {
            files.extend(named_files(command, home));
        }
    }
    order::sort(&mut files);
    files.dedup();
    let real = files.iter().filter_map(|file| file.canonicalize().ok());
    real.filter(|file| file.is_file()).collect()
}

/// A target must not find what it is graded by in its workspace.
pub(super) fn check_graders(reader: &mut SuiteReader<'_>, suite: &Suite, section: &Section) {
    let home = reader.home;
    let files = grader_files(home, suite);
    let mut templates: Vec<&PathBuf> = suite
        .cases
        .iter()
        .filter_map(|it| it.template.as_ref())
        .collect();
    order::sort(&mut templates);
    templates.dedup();
    for template in templates {
        if let Some(file) = files.iter().find(|file| file.starts_with(template)) {
            let message = format!(
                "suite \"{}\": {} is in {}, of which each trial gets a copy, and a trial must not see what \
                 it is graded by; move one of them",
                suite.name,
                file.display(),
                template.display()
            );
            let (code, at) = (Some(Code::GraderInWorkspace), section.path_to("workspace"));
            reader.manifest.push(code, &[&suite.name], &at, message);
        }
    }
}

/// Warns of a threshold that cannot be reached even if every trial passes.
pub(super) fn warn_of_threshold(manifest: &mut Manifest, suite: &Suite, section: &Section) {
    let warning = |threshold| threshold_warning(threshold, suite.cases.len(), suite.trials);
    if let Some(warning) = suite.threshold.and_then(warning) {
        let at = section.path_to("threshold");
        let message = format!("suite \"{}\": {warning}", suite.name);
        manifest.push(None, &[&suite.name], &at, message);
    }
}
