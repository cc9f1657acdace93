//! A suite of an evaluation, understood: its target, its cases, its settings, and what must hold.
//!
//! Data only. Unaware of files and of processes.

use super::assertion::Assertion;
use crate::config::keys::count;
use crate::config::tool::definition::Word;
use crate::flow::manifest::command::NodeCommand;
use crate::flow::manifest::fields::{fields, row};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::Duration;

/// The file in a flow's directory.
pub(crate) const FILE: &str = "evaluations.yaml";

/// The setting of a suite that names none.
pub(crate) const ONLY_SETTING: &str = "default";

/// The most trials of a case that a suite may plan.
pub(crate) const MOST_TRIALS: u32 = 100_000;

/// An agent, as it is named.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentWord {
    /// A directory, absolute; one with `@` and a revision; or `@NAME`.
    pub word: String,
    /// As it was written.
    pub name: String,
}

/// Tried at each case.
#[derive(Debug, Default)]
pub(crate) enum Target {
    /// The flow in the directory of `evaluations.yaml`.
    #[default]
    Flow,
    Agent(AgentWord),
    /// A program that gets the input on stdin and prints its output.
    Command(NodeCommand),
}

impl Target {
    /// In a few words, for tables.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Flow => "flow".to_owned(),
            Self::Agent(agent) => format!("agent {}", agent.name),
            Self::Command(command) => format!("command {}", command.template),
        }
    }
}

/// A variant of the target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub name: String,
    /// In place of the target's.
    pub agent: Option<AgentWord>,
    /// Keys of agent.yaml for an agent; variables of the environment, as texts, for a flow or a command.
    pub set: Map<String, Value>,
}

fields! {
    /// A thing to try, with what must come of it.
    struct Case {
        /// The start node of a flow; none: the default one.
        start: Option<String>,
        tags: Vec<String>,
    }
    beside {
        /// Unique in its suite.
        id: String,
        /// A text as it is, anything else as JSON.
        input: Value,
        /// Shown to graders.
        expected: Option<Value>,
        assertions: Vec<Assertion>,
        /// A directory of which each trial gets a copy, absolute; none: an empty one.
        template: Option<PathBuf>,
    }
    by hand { "id", "input", "expected", "assert", "enabled", "workspace", "target", "expected_output" }
}

fields! {
    /// Cases, each tried several times under each setting.
    struct Suite {
        tags: Vec<String>,
        /// The time limit of a trial.
        timeout: Option<Duration> = row(count("timeout_ms", 0, 0, "")),
        /// The rate that is wanted, above 0 and at most 1.
        threshold: Option<f64>,
        /// Trials may ask other models than the first.
        fallback: bool,
    }
    beside {
        /// Unique, and fit for the name of a directory.
        name: String,
        target: Target,
        /// Trials of each case under each setting, from 1.
        trials: u32,
        /// Those that are enabled.
        cases: Vec<Case>,
        /// The file that they are from, if it is not the suite itself.
        case_file: Option<PathBuf>,
        /// Not empty.
        settings: Vec<Setting>,
        /// Put before every program that grades.
        wrapper: Vec<Word>,
    }
    for people { "description" }
    by hand { "name", "target", "trials", "workspace", "cases", "assert", "settings", "wrapper" }
}

/// All suites of a file.
#[derive(Debug)]
pub(crate) struct Evaluations {
    /// The directory of the file, absolute.
    pub home: PathBuf,
    pub suites: Vec<Suite>,
}
