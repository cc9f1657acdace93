//! `delta check`: reads an agent and reports all its errors and warnings.

use crate::cli::agent_names;
use crate::config::agent::{self, Problem, Severity};
use crate::config::environment::Environment;
use crate::config::lint;
use crate::config::load;
use crate::config::sources::AgentSources;
use crate::error::{Exit, Result};
use crate::runs::preflight::{install_signals, schema_problem};
use crate::runs::preview;
use crate::text::amounts::counted;
use crate::text::disguise::printable_line;
use crate::text::json;
use crate::text::options::format::OutputFormat;
use crate::unix::terminal::{Screen, print, print_json};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;

pub(crate) fn check_agent(dir: &Path, format: OutputFormat) -> Result<Exit> {
    let dir = &agent_names::find_word(dir)?.home;
    let (agent, mut problems, found) = load::survey(dir);
    if found.home.is_dir() {
        let path = search_path(&found, &mut problems);
        problems.extend(lint::about(&found, &path));
        agent::sort_problems(&mut problems);
    }
    if let Some(schema) = &found.schema {
        problems.extend(schema_problem(schema, &*install_signals()?)?);
        agent::sort_problems(&mut problems);
    }
    let agent = agent.filter(|_| problems.iter().all(|p| p.severity != Severity::Error));
    let text = match format {
        OutputFormat::Text => {
            for problem in &problems {
                Screen::new(false, false).warn(&problem.to_string());
            }
            agent.as_ref().map_or_else(String::new, |agent| {
                let tools = counted(agent.tools.len(), "tool");
                let sources = counted(agent.context.sources.len(), "context source");
                let environment = Environment::of_agent(agent, None).ok();
                let environment = environment.as_ref().map(|(environment, _)| environment);
                let window = preview::window_in_words(agent, environment, None);
                let window = window.map_or_else(String::new, |it| format!(", window {it}"));
                let name = printable_line(&agent.name);
                format!("{name}: ok, {tools}, {sources}{window}\n")
            })
        }
        OutputFormat::Json => {
            let list: Vec<Value> = problems.iter().map(object).collect();
            format!(
                "{}\n",
                json::text(&json!({"ok": agent.is_some(), "home": found.home, "problems": list}))
            )
        }
    };
    match format {
        OutputFormat::Text => print(text.as_bytes())?,
        OutputFormat::Json => print_json(text.as_bytes())?,
    }
    Ok(if agent.is_some() {
        Exit::Success
    } else {
        Exit::Config
    })
}

/// The PATH for the agent's programs, which its `.env` may set. Errors in that file are reported.
fn search_path(found: &AgentSources, problems: &mut Vec<Problem>) -> OsString {
    let problem = |severity, file: &str, message: &str| {
        let (file, line) = match file.rsplit_once(':') {
            Some((file, line)) => (file, line.parse().ok()),
            None => (file, None),
        };
        Problem {
            severity,
            file: file.to_owned(),
            line,
            column: None,
            message: message.to_owned(),
            is_passing: false,
        }
    };
    match Environment::read(&found.home, None, None) {
        Ok((environment, warnings)) => {
            for warning in warnings {
                let (file, message) = warning.split_once(": ").unwrap_or((".env", &warning));
                problems.push(problem(Severity::Warning, file, message));
            }
            environment.search_path().into()
        }
        Err(error) => {
            let file = found.shown_path(".env");
            problems.push(problem(Severity::Error, &file, &error.message));
            std::env::var_os("PATH").unwrap_or_default()
        }
    }
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
