//! The templates of `delta-flow init`.
//!
//! Data only: they are examples of flows, which run offline as they are.

use crate::unix::new_files::NewFile;

/// A flow to begin with.
#[derive(Debug)]
pub(crate) struct FlowTemplate {
    /// The argument of `-t`.
    pub name: &'static str,
    /// Words behind the command that runs it, as a person types them.
    pub arguments: &'static str,
    /// Each file's path and text. What begins with `#!` is a program.
    files: &'static [(&'static str, &'static str)],
}

macro_rules! files_of {
    ($dir:literal: $($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../../examples/", $dir, "/", $path)))),*]
    };
}

pub(crate) const ALL: [FlowTemplate; 3] = [
    FlowTemplate {
        name: "triage",
        arguments: " -w /tmp/triage -m 'It crashes.'",
        files: files_of!("flow-triage": "workflow.yaml" "agents.yaml" "providers.yaml" "model.sh" "tickets.jsonl"),
    },
    FlowTemplate {
        name: "map-reduce",
        arguments: " -w /tmp/map-reduce",
        files: files_of!("flow-map-reduce": "workflow.yaml" "schemas/paths.json" "schemas/count.json" "bin/list"
            "bin/count" "bin/add" "texts/one.txt" "texts/two.txt" "texts/three.txt"),
    },
    FlowTemplate {
        name: "review",
        arguments: " -w /tmp/review -m \"$(git diff)\"",
        files: files_of!("flow-review": "workflow.yaml" "agents.yaml" "providers.yaml" "prompts/bugs.md"
            "prompts/clarity.md" "schemas/change.json" "schemas/review.json" "bin/count" "model.sh"),
    },
];

/// Their names.
pub(crate) const NAMES: [&str; 3] = [ALL[0].name, ALL[1].name, ALL[2].name];

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
