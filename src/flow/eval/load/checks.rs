//! Checks of a suite as a whole: names of the flow, where its graders lie, what its threshold takes.

use super::SuiteReader;
use crate::config::agent::Severity;
use crate::config::load;
use crate::config::section::{Diagnostics, Section};
use crate::flow::eval::assertion::AssertionKind;
use crate::flow::eval::naming::named_files;
use crate::flow::eval::suite::{FILE, Suite, Target};
use crate::flow::eval::summary::decision::threshold_warning;
use crate::flow::graph::Role;
use crate::flow::manifest::Code;
use crate::text::yaml::Step;
use std::path::{Path, PathBuf};

/// Reads an agent that is a directory. One with a name is found when the suite is run.
pub(super) fn check_agent(word: &str, at: &[Step], out: &mut Diagnostics) {
    if word.starts_with('@') {
        return;
    }
    let (_, problems) = load::load(Path::new(word));
    let errors = problems.iter().filter(|it| it.severity == Severity::Error);
    for problem in errors {
        out.error(at.to_vec(), format!("target: {problem}"));
    }
}

/// Checks the names of nodes.
pub(super) fn check_names(reader: &mut SuiteReader<'_>, suite: &Suite, node: &Section) {
    let is_flow = matches!(suite.target, Target::Flow);
    let mut wrong = Vec::new();
    for case in &suite.cases {
        let named = case.start.iter().map(|start| (start, Role::Start));
        let exits = case.assertions.iter().filter_map(|it| match &it.check {
            AssertionKind::ExitNode(exit) => Some((exit, Role::Exit)),
            _ => None,
        });
        for (name, role) in named.chain(exits) {
            let word = role.name();
            if !is_flow {
                wrong.push((&case.id, format!("has a {word}, and only a flow has one")));
            } else if let Some(flow) = reader.flow {
                let found = flow.graph.find(name);
                if found.is_none_or(|ix| flow.graph.nodes[ix].role != role) {
                    wrong.push((&case.id, format!("the flow has no {word} \"{name}\"")));
                }
            }
        }
    }
    for (id, why) in wrong {
        let message = format!("suite \"{}\", case \"{id}\": {why}", suite.name);
        let ids = vec![suite.name.clone(), id.clone()];
        let code = Code::UnknownNode;
        reader
            .manifest
            .add(code, ids, &node.path_to("cases"), message);
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
    files.sort();
    files.dedup();
    let files = files
        .into_iter()
        .filter_map(|file| file.canonicalize().ok());
    files.filter(|file| file.is_file()).collect()
}

/// A target must not find what it is graded by in its workspace.
pub(super) fn check_graders(reader: &mut SuiteReader<'_>, suite: &Suite, node: &Section) {
    let home = reader.home;
    let files = grader_files(home, suite);
    let mut templates: Vec<&PathBuf> = suite
        .cases
        .iter()
        .filter_map(|it| it.template.as_ref())
        .collect();
    templates.sort();
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
            let ids = vec![suite.name.clone()];
            let at = node.path_to("workspace");
            reader
                .manifest
                .add(Code::GraderInWorkspace, ids, &at, message);
        }
    }
}

/// Warns of a threshold that cannot be reached even if every trial passes.
pub(super) fn warn_of_threshold(reader: &mut SuiteReader<'_>, suite: &Suite, node: &Section) {
    let Some(threshold) = suite.threshold else {
        return;
    };
    if let Some(warning) = threshold_warning(threshold, suite.cases.len(), suite.trials) {
        let mut out = Diagnostics::about(format!("suite \"{}\"", suite.name));
        out.warn(node.path_to("threshold"), warning);
        reader
            .manifest
            .report(std::slice::from_ref(&suite.name), out);
    }
}
