//! `delta check`: reads an agent and reports all its errors and warnings.

use crate::cli::agent_names;
use crate::config::agent::{self, Agent, Problem, Severity};
use crate::config::environment::Environment;
use crate::config::lint;
use crate::config::load;
use crate::config::person::visible_home;
use crate::config::prices::{lacks_price, read_own_prices};
use crate::config::sources::AgentSources;
use crate::config::tool::definition::written_words;
use crate::error::{Exit, Result};
use crate::runs::preview;
use crate::text::amounts::counted;
use crate::text::disguise::printable_line;
use crate::text::json;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::ParsedCommand;
use crate::text::yaml;
use crate::unix::programs;
use crate::unix::terminal::{print, print_json, warn};
use serde_json::{Value, json};
use std::ffi::OsString;

pub(crate) fn check_agent(given: &ParsedCommand) -> Result<Exit> {
    let found_word = agent_names::find_word(&given.operand_dir(0))?;
    let dir = &found_word.home;
    let format = given.format();
    let (agent, mut problems, found) = load::survey(dir);
    if found.home.is_dir() {
        let path = search_path(&found, &mut problems);
        problems.extend(lint::about(&found, &path));
    }
    if visible_home(&found.home) != found.home {
        // The person wrote one file; the others are made from it.
        for problem in &mut problems {
            problem.file.clone_from(&found_word.source);
            (problem.line, problem.column) = (None, None);
        }
    }
    if (agent.as_ref()).is_some_and(|agent| lacks_price(&agent.prices, &agent.llm)) {
        problems.extend(read_own_prices().err().unwrap_or_default());
    }
    agent::sort_problems(&mut problems);
    let agent = agent.filter(|_| problems.iter().all(|p| p.severity != Severity::Error));
    let text = match format {
        OutputFormat::Text => {
            for problem in &problems {
                warn(&problem.to_string());
            }
            agent.as_ref().map_or_else(String::new, |agent| {
                let tools = counted(agent.tools.len(), "tool");
                let sources = counted(agent.context.sources.len(), "context source");
                let found = Environment::of_agent(agent, None).ok();
                let environment = found.as_ref().map(|(environment, _)| environment);
                let window = preview::window_in_words(agent, environment, None)
                    .map_or_else(String::new, |it| format!(", window {it}"));
                let name = printable_line(&agent.name);
                let becomes = becomes(agent).map_or_else(String::new, |it| yaml::render(&it));
                format!("{name}: ok, {tools}, {sources}{window}\n{becomes}")
            })
        }
        OutputFormat::Json => {
            let list: Vec<Value> = problems.iter().map(object).collect();
            let becomes = agent.as_ref().and_then(becomes);
            let all = json!({"ok": agent.is_some(), "home": found.home, "problems": list, "becomes": becomes});
            format!("{}\n", json::text(&all))
        }
    };
    match format {
        OutputFormat::Text => print(text)?,
        OutputFormat::Json => print_json(text)?,
    }
    Ok(if agent.is_some() {
        Exit::Success
    } else {
        Exit::Config
    })
}

/// What an agent that is one file becomes.
fn becomes(agent: &Agent) -> Option<Value> {
    let tools: Vec<&str> = agent.tools.iter().map(|tool| &*tool.name).collect();
    (agent.visible_home != agent.home).then(|| {
        json!({
            "tools": tools,
            "writes": written_words(&agent.wrapper).contains(&"--rw".to_owned()),
            "model": agent.llm.model,
            "max_iterations": agent.max_iterations,
        })
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
            programs::search_path()
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
