//! The suite that the options of `delta eval` describe in place of a file, as the file would say it.
//!
//! Looks only whether there are files and directories of these names.

use crate::error::{Error, Result};
use crate::flow::eval::revision::split_revision;
use crate::text::options::parse::ParsedCommand;
use crate::unix::files;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The suite's name.
const SUITE: &str = "eval";

/// A word for an agent, of a file in any directory.
fn absolute(word: &str) -> Result<String> {
    if word.starts_with('@') {
        return Ok(word.to_owned());
    }
    Ok(files::absolute(Path::new(word))?
        .to_string_lossy()
        .into_owned())
}

/// What `--against` names.
#[derive(Clone, Debug)]
pub(crate) enum Against {
    /// A file or a pipe with a result.
    Result(PathBuf),
    /// An agent: in an absolute directory, or else the one that is measured, at this revision.
    Agent { word: String, dir: Option<String> },
}

impl Against {
    pub(super) fn read(word: String) -> Result<Self> {
        let path = Path::new(&word);
        if path.exists() && !path.is_dir() {
            return Ok(Self::Result(path.into()));
        }
        let dir = path.is_dir().then(|| absolute(&word)).transpose()?;
        Ok(Self::Agent { word, dir })
    }

    /// The word for the agent that is compared with `agent`; none for a result.
    pub(super) fn agent_beside(&self, agent: &str) -> Option<String> {
        let Self::Agent { word, dir } = self else {
            return None;
        };
        // An agent of a revision is compared with another one of the same agent.
        let today = match split_revision(agent) {
            Some((today, _)) if !Path::new(agent).exists() => today,
            _ => agent,
        };
        Some(dir.clone().unwrap_or_else(|| format!("{today}@{word}")))
    }
}

/// The file that says the same as `-a` and `--cases`, with absolute paths; none without them.
///
/// # Errors
/// One of them is missing.
pub(super) fn suite_of(
    given: &ParsedCommand,
    against: Option<&Against>,
) -> Result<Option<Map<String, Value>>> {
    let (agents, cases) = (given.texts("--agent"), given.text("--cases"));
    let (Some(first), Some(cases)) = (agents.first(), &cases) else {
        let is_odd = !agents.is_empty() || cases.is_some() || given.has("--grade");
        let message = "-a, --cases and --grade stand in place of a file: an agent (-a) and its cases (--cases) are needed";
        return if is_odd {
            Err(Error::usage(message))
        } else {
            Ok(None)
        };
    };
    if !given.operands.is_empty() {
        return Err(Error::usage(
            "-a and --cases stand in place of a file; remove the directory",
        ));
    }
    let mut settings = Vec::new();
    if let Some(against @ Against::Agent { word, .. }) = against {
        let agent = against.agent_beside(&absolute(first)?);
        settings.push(json!({"name": word, "agent": agent}));
    }
    for agent in &agents {
        settings.push(json!({"name": agent, "agent": absolute(agent)?}));
    }
    let mut suite = json!({
        "name": SUITE,
        "settings": settings,
        "cases": absolute(cases)?,
    });
    if let Some(trials) = given.number::<u64>("--trials") {
        suite["trials"] = trials.into();
    }
    if let Some(command) = given.text("--grade") {
        let words = shlex::split(&command).filter(|words| !words.is_empty());
        let words =
            words.ok_or_else(|| Error::usage(format!("--grade: '{command}' is not a command")))?;
        // A trial works elsewhere, and a grader is never a file of its own.
        let found = |word: String| {
            if Path::new(&word).is_file() {
                absolute(&word)
            } else {
                Ok(word)
            }
        };
        let words = words
            .into_iter()
            .map(found)
            .collect::<Result<Vec<String>>>()?;
        suite["assert"] = json!([{"type": "exec", "value": words}]);
    }
    Ok(Some(Map::from_iter([(
        "suites".to_owned(),
        json!([suite]),
    )])))
}
