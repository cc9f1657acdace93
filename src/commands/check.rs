//! `delta check`: reads an agent and tells everything that is wrong or doubtful with it.

use crate::args::Format;
use crate::config::{Problem, Severity, load};
use crate::error::{Exit, Result};
use crate::json;
use crate::screen::{Screen, print};
use serde_json::{Value, json};
use std::path::Path;

/// Runs the command.
pub fn run(dir: &Path, format: Format) -> Result<Exit> {
    let (agent, problems) = load::load(dir);
    let text = match format {
        Format::Text => {
            for problem in &problems {
                Screen::new(false, false).warn(&problem.to_string());
            }
            agent.as_ref().map_or_else(String::new, |agent| {
                let (tools, sources) = (agent.tools.len(), agent.context.sources.len());
                format!(
                    "{}: ok, {tools} tools, {sources} context sources\n",
                    agent.name
                )
            })
        }
        Format::Json => {
            let list: Vec<Value> = problems.iter().map(object).collect();
            format!(
                "{}\n",
                json::text(&json!({"ok": agent.is_some(), "problems": list}))
            )
        }
    };
    print(text.as_bytes())?;
    Ok(if agent.is_some() {
        Exit::Success
    } else {
        Exit::Config
    })
}

fn object(problem: &Problem) -> Value {
    let severity = match problem.severity {
        Severity::Error => "error",
        Severity::Warning | Severity::Advice => "warning",
        Severity::Deprecation => "deprecation",
    };
    json!({
        "severity": severity,
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "message": problem.message,
    })
}
