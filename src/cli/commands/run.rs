//! `delta run`: begins a run, or resumes the one that the same command began before.

use crate::cli::args::RunArgs;
use crate::cli::result;
use crate::config::agent::Agent;
use crate::engine::account::SpendingRules;
use crate::engine::question::{Reply, read_line};
use crate::error::{Error, Exit, Result, may_fail};
use crate::record::own_workspaces::{self, workspaces_dir};
use crate::record::workspace::Workspace;
use crate::runs::decide::Decision;
use crate::runs::overrides::load_with_overrides;
use crate::runs::preflight::{
    check_depth, heed_deadline, install_signals, read_environment, read_message,
};
use crate::runs::preview;
use crate::runs::run_request::{RunRequest, Site};
use crate::text::ids::RunId;
use crate::unix::procfs::Signals;
use crate::unix::terminal::{Screen, print};
use serde_json::Map;
use std::io::{IsTerminal, Write};
use std::sync::Arc;

pub(crate) fn run_agent(wanted: &RunArgs) -> Result<Exit> {
    let common = &wanted.common;
    if wanted.dry {
        return with_request(wanted, |request| print_preview(&request));
    }
    let done = with_request(wanted, |request| {
        request.execute(&|| choose_site(request.agent, &request.signals))
    });
    result::print_outcome(done, common)
}

/// Reads what the request needs, before anything is created.
fn with_request<T>(wanted: &RunArgs, act: impl FnOnce(RunRequest<'_>) -> Result<T>) -> Result<T> {
    let common = &wanted.common;
    check_depth()?;
    let signals = install_signals()?;
    heed_deadline(&signals, common.deadline)?;
    let screen = Screen::new(common.quiet, common.verbose);
    let text = read_message(common.message.as_deref(), &signals)?;
    let (agent, set) = load_with_overrides(&wanted.agent, Map::new(), &wanted.set, screen)?;
    // What is missing is reported before anything is created.
    SpendingRules::of(&agent, common.budget)?;
    let run_id = common.run_id.as_deref().map(RunId::parse);
    act(RunRequest {
        agent: &agent,
        set: &set,
        given: &wanted.set,
        text: text.as_deref(),
        work_dir: common.work_dir.as_deref(),
        run_id: run_id.transpose().map_err(Error::usage)?,
        new: wanted.new,
        retry_failed: wanted.retry_failed,
        adopt: wanted.adopt,
        yes: wanted.yes,
        interactive: common.interactive,
        max_iterations: common.max_iterations,
        budget: common.budget,
        signals,
        screen,
    })
}

/// Prints the request that the command would send first.
fn print_preview(request: &RunRequest<'_>) -> Result<Exit> {
    let (workspace, found, decision) = request.decide_only()?;
    let (screen, about) = (
        request.screen,
        (Arc::clone(&request.signals), request.screen),
    );
    if let Err(error) = read_environment(request.agent, Some(&workspace), screen) {
        screen.warn(&format!("warning: {error}"));
    }
    let bytes = match (decision, found) {
        (Decision::Resume, Some(found)) => {
            if !screen.quiet {
                screen.warn(&format!("run {} would be resumed", found.run.id));
            }
            let (agent, _) = request.agent_of(&found)?;
            preview::next_request(&agent, &workspace, found, about)?
        }
        (Decision::Busy, Some(found)) => return Err(found.busy()),
        (Decision::Retell, Some(found)) => {
            return Err(Error::failure(format!(
                "run {} is {}: nothing would be sent",
                found.run.id,
                found.metadata.status.name()
            )));
        }
        (_, found) => {
            let recorded = found.and_then(|found| found.metadata.initial_message);
            let text = request.text.map(str::to_owned).or(recorded);
            preview::first_request(request.agent, &workspace, &text.unwrap_or_default(), about)?
        }
    };
    print(&bytes)?;
    Ok(Exit::Success)
}

/// Lets a person at the terminal choose one of the agent's workspaces; without one, the next is taken.
fn choose_site(agent: &Agent, signals: &Signals) -> Result<Site> {
    let names = own_workspaces::numbered(&agent.home)?;
    let has_person = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if names.is_empty() || !has_person {
        return Ok(Site::Next);
    }
    let last = own_workspaces::last_used(&agent.home);
    let default = last.clone().unwrap_or_else(|| "new".to_owned());
    let mut text = String::from("workspaces:\n");
    for name in &names {
        let mark = if last.as_ref() == Some(name) {
            " (used last)"
        } else {
            ""
        };
        text.push_str(&format!("  {name}{mark}\n"));
    }
    text.push_str("  new\n");
    let mut stderr = std::io::stderr();
    loop {
        may_fail(stderr.write_all(format!("{text}which one? [{default}] ").as_bytes()));
        let line = match read_line(signals) {
            Ok(Reply::Answer(line)) => line,
            Ok(Reply::Stopped(stop)) => {
                return Err(Error::new(
                    stop.into(),
                    format!("{} in the menu", stop.name()),
                ));
            }
            Ok(Reply::NobodyThere) | Err(_) => {
                return Err(Error::usage(
                    "no workspace chosen; give one with -w DIR, or -y for a new one",
                ));
            }
        };
        let choice = match line.trim() {
            "" => default.as_str(),
            other => other,
        };
        let number = choice.parse::<usize>().ok().map(|n| format!("W{n:03}"));
        if choice.eq_ignore_ascii_case("new") {
            return Ok(Site::Next);
        }
        let wanted = number.as_deref().unwrap_or(choice);
        if let Some(name) = names.iter().find(|name| name.eq_ignore_ascii_case(wanted)) {
            return Workspace::at(&workspaces_dir(&agent.home).join(name)).map(Site::At);
        }
        text = format!("there is no {choice}; ");
    }
}
