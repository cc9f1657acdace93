//! The templates of `delta-flow init`.
//!
//! Data only: they are examples, which run offline as they are.

use crate::unix::new_files::NewFile;

/// A flow to begin with.
#[derive(Debug)]
pub(crate) struct FlowTemplate {
    /// The argument of `-t`.
    pub name: &'static str,
    /// The words before its directory that run it.
    pub command: &'static str,
    /// Words after the command and the directory, as a person types them.
    pub arguments: &'static str,
    /// The file that makes a directory one of these, and what such a directory is.
    pub main: (&'static str, &'static str),
    /// Each file's path and text. What begins with `#!` is a program.
    files: &'static [(&'static str, &'static str)],
}

macro_rules! files_of {
    ($dir:literal: $($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../../examples/", $dir, "/", $path)))),*]
    };
}

const FLOW: (&str, &str) = ("workflow.yaml", "a flow");

pub(crate) const ALL: [FlowTemplate; 4] = [
    FlowTemplate {
        name: "triage",
        command: "delta flow run ",
        main: FLOW,
        arguments: " -w /tmp/triage -m 'It crashes.'",
        files: files_of!("flow-triage": "workflow.yaml" "agents.yaml" "providers.yaml" "model.sh" "tickets.jsonl"),
    },
    FlowTemplate {
        name: "map-reduce",
        command: "delta flow run ",
        main: FLOW,
        arguments: " -w /tmp/map-reduce",
        files: files_of!("flow-map-reduce": "workflow.yaml" "schemas/paths.json" "schemas/count.json" "bin/list"
            "bin/count" "bin/add" "texts/one.txt" "texts/two.txt" "texts/three.txt"),
    },
    FlowTemplate {
        name: "review",
        command: "delta flow run ",
        main: FLOW,
        arguments: " -w /tmp/review -m \"$(git diff)\"",
        files: files_of!("flow-review": "workflow.yaml" "agents.yaml" "providers.yaml" "prompts/bugs.md"
            "prompts/clarity.md" "schemas/change.json" "schemas/review.json" "bin/count" "model.sh"),
    },
    FlowTemplate {
        name: "eval",
        command: "delta eval ",
        main: ("evaluations.yaml", "an evaluation"),
        arguments: " -w /tmp/evaluation",
        files: files_of!("evaluation": "evaluations.yaml" "cases.jsonl" "graders/one-word" "agent/agent.yaml"
            "agent/context.yaml" "agent/system_prompt.md" "agent/model.sh"),
    },
];

/// Their names.
pub(crate) const NAMES: [&str; 4] = [ALL[0].name, ALL[1].name, ALL[2].name, ALL[3].name];

impl FlowTemplate {
    /// The files to write.
    pub(crate) fn new_files(&self) -> impl Iterator<Item = NewFile> {
        self.files.iter().map(|(path, text)| NewFile {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
            is_program: text.starts_with("#!"),
        })
    }
}
