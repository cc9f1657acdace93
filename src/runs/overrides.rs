//! `--set`: an agent with some keys of agent.yaml overridden for one run.

use super::preflight::load_agent;
use crate::config::agent::{Agent, Severity};
use crate::config::load;
use crate::error::{Error, Result};
use crate::text::yaml;
use crate::unix::terminal::Screen;
use serde_json::{Map, Value};
use std::path::Path;

/// The agent with the settings that a run has and those that are given now, and all of them together.
/// Whatever a given one gives rise to is wrong usage, also what would be a warning in the file: a
/// mistyped key must not stay in force unnoticed.
pub(crate) fn load_with_overrides(
    home: &Path,
    mut set: Map<String, Value>,
    given: &[(String, String)],
    screen: Screen,
) -> Result<(Agent, Map<String, Value>)> {
    let mut agent = load_agent(home, &set, screen)?;
    for (key, text) in given {
        let wrong = |why: &str| Error::usage(format!("--set {key}: {why}"));
        let value =
            yaml::parse(text).map_err(|e| wrong(&format!("not valid YAML: {}", e.message)))?;
        let (_, before) = load::load_with(home, &set);
        set.insert(key.clone(), value);
        let (loaded, problems) = load::load_with(home, &set);
        let new = problems.iter().find(|problem| {
            let counts = matches!(problem.severity, Severity::Error | Severity::Warning);
            counts && !before.contains(problem)
        });
        if let Some(problem) = new {
            return Err(wrong(&problem.message));
        }
        agent = loaded.ok_or_else(|| wrong("the agent cannot be loaded with it"))?;
    }
    Ok((agent, set))
}
