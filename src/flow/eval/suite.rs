//! A suite of an evaluation, understood: its target, its cases, its settings, and what must hold.
//!
//! Data only. Unaware of files and of processes.

use super::assertion::Assertion;
use crate::config::tool::definition::Word;
use crate::flow::manifest::command::NodeCommand;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::Duration;

/// The file in a flow's directory.
pub(crate) const FILE: &str = "evaluations.yaml";

/// The setting of a suite that names none.
pub(crate) const ONLY_SETTING: &str = "default";

/// The most trials of a case that a suite may plan.
pub(crate) const MOST_TRIALS: u32 = 100_000;

/// Tried at each case.
#[derive(Debug)]
pub(crate) enum Target {
    /// The flow in the directory of `evaluations.yaml`.
    Flow,
    /// An agent.
    Agent {
        /// As `delta run -a` takes it: a directory, absolute, or `@NAME`.
        word: String,
        /// As it was written.
        name: String,
    },
    /// A program that gets the input on stdin and prints its output.
    Command(NodeCommand),
}

impl Target {
    /// In a few words, for tables.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Flow => "flow".to_owned(),
            Self::Agent { name, .. } => format!("agent {name}"),
            Self::Command(command) => format!("command {}", command.template),
        }
    }
}

/// A variant of the target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub name: String,
    /// Keys of agent.yaml for an agent; variables of the environment, as texts, for a flow or a command.
    pub set: Map<String, Value>,
}

/// A thing to try, with what must come of it.
#[derive(Debug)]
pub(crate) struct Case {
    /// Unique in its suite.
    pub id: String,
    /// A text as it is, anything else as JSON.
    pub input: Value,
    /// Shown to graders.
    pub expected: Option<Value>,
    pub assertions: Vec<Assertion>,
    /// The start node of a flow; none: the default one.
    pub start: Option<String>,
    pub tags: Vec<String>,
    /// A directory of which each trial gets a copy, absolute; none: an empty one.
    pub template: Option<PathBuf>,
}

/// Cases, each tried several times under each setting.
#[derive(Debug)]
pub(crate) struct Suite {
    /// Unique, and fit for the name of a directory.
    pub name: String,
    pub tags: Vec<String>,
    pub target: Target,
    /// Trials of each case under each setting, from 1.
    pub trials: u32,
    /// Those that are enabled.
    pub cases: Vec<Case>,
    /// The file that they are from, if it is not the suite itself.
    pub case_file: Option<PathBuf>,
    /// Not empty.
    pub settings: Vec<Setting>,
    /// Put before every program that grades.
    pub wrapper: Vec<Word>,
    /// Trials may ask other models than the first.
    pub fallback: bool,
    /// How long a trial may take.
    pub timeout: Option<Duration>,
    /// The rate that is wanted, above 0 and at most 1.
    pub threshold: Option<f64>,
}

/// All suites of a file.
#[derive(Debug)]
pub(crate) struct Evaluations {
    /// The directory of the file, absolute.
    pub home: PathBuf,
    pub suites: Vec<Suite>,
}
