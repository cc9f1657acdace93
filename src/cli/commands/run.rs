//! `delta run`: starts a run, or takes up the one that the same command started before.

use super::dry_run;
use crate::cli::args::{Common, RunArgs};
use crate::cli::result;
use crate::config::agent::Agent;
use crate::config::environment::Environment;
use crate::engine::question::{Reply, read_line};
use crate::error::{Error, Exit, Result, may_fail};
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::workspace::{self, DecisionLock, Workspace};
use crate::runs::inspect::{RunSnapshot, inspect_run};
use crate::runs::launch::Launch;
use crate::runs::overrides::load_with_overrides;
use crate::runs::preflight;
use crate::runs::result::RunResult;
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use crate::unix::procfs::Signals;
use crate::unix::terminal::Screen;
use serde_json::{Map, Value};
use std::io::{IsTerminal, Write};
use std::sync::Arc;

/// Where to work.
enum Place {
    /// Here.
    At(Workspace),
    /// In the next free workspace of the agent.
    Next,
}

/// Runs the command.
pub(crate) fn run(wanted: &RunArgs) -> Result<Exit> {
    if wanted.dry {
        return dry_run::run(wanted);
    }
    result::print_outcome(try_run(wanted), &wanted.common)
}

fn try_run(wanted: &RunArgs) -> Result<RunResult> {
    let common = &wanted.common;
    preflight::check_depth()?;
    let signals = preflight::install_signals()?;
    let screen = Screen::new(common.quiet, common.verbose);
    let message = preflight::read_message(common.message.as_deref(), &signals)?;
    let (agent, set) = load_with_overrides(&wanted.agent, Map::new(), &wanted.set, screen)?;
    let (place, claim) = place(&agent, wanted.yes, common, message.is_some(), &signals)?;
    let there = match &place {
        Place::At(workspace) => Some(workspace),
        Place::Next => None,
    };
    if let Some(workspace) = there {
        workspace.check_layout()?;
        workspace.check_writable()?;
    } else {
        let parent = agent.home.join("workspaces");
        Workspace::at(&parent)?.check_writable()?;
    }
    let environment = preflight::read_environment(&agent, there, screen)?;
    let workspace = match place {
        Place::At(workspace) => workspace,
        Place::Next => Workspace::at(&workspace::claim_next(&agent.home)?)?,
    };
    let chosen = Chosen {
        agent: &agent,
        workspace: &workspace,
        environment: &environment,
        signals,
        screen,
        common,
        message: message.as_deref(),
        set: &set,
        given: &wanted.set,
        claim,
    };
    chosen.decide()
}

fn place(
    agent: &Agent,
    yes: bool,
    common: &Common,
    has_message: bool,
    signals: &Signals,
) -> Result<(Place, Option<DecisionLock>)> {
    if let Some(dir) = &common.work_dir {
        return Ok((Place::At(Workspace::at(dir)?), None));
    }
    let Some(id) = &common.run_id else {
        return Ok((own_place(agent, yes, has_message, signals)?, None));
    };
    // The name makes the command idempotent: the workspace that has the run is meant, and nobody else
    // may look for it until it is there.
    let claim = workspace::lock_all(&agent.home, signals)?;
    let parent = agent.home.join("workspaces");
    for name in workspace::numbered(&agent.home)? {
        if parent.join(&name).join(".delta").join(id).is_dir() {
            return Ok((Place::At(Workspace::at(&parent.join(name))?), claim));
        }
    }
    Ok((
        own_place(agent, yes || has_message, has_message, signals)?,
        claim,
    ))
}

/// One of the agent's own workspaces.
fn own_place(agent: &Agent, yes: bool, has_message: bool, signals: &Signals) -> Result<Place> {
    let parent = agent.home.join("workspaces");
    if !has_message {
        return match workspace::last_used(&agent.home) {
            Some(name) => Workspace::at(&parent.join(name)).map(Place::At),
            None => Err(Error::usage(
                "nothing to resume: no workspace has been used yet; say what to do with -m MESSAGE",
            )),
        };
    }
    if yes || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(Place::Next);
    }
    menu(agent, signals)
}

/// Lets a person at the terminal choose a workspace.
fn menu(agent: &Agent, signals: &Signals) -> Result<Place> {
    let names = workspace::numbered(&agent.home)?;
    if names.is_empty() {
        return Ok(Place::Next);
    }
    let last = workspace::last_used(&agent.home);
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
            return Ok(Place::Next);
        }
        let wanted = number.as_deref().unwrap_or(choice);
        if let Some(name) = names.iter().find(|name| name.eq_ignore_ascii_case(wanted)) {
            return Workspace::at(&agent.home.join("workspaces").join(name)).map(Place::At);
        }
        text = format!("there is no {choice}; ");
    }
}

/// Everything is known but the run.
struct Chosen<'a> {
    agent: &'a Agent,
    workspace: &'a Workspace,
    environment: &'a Environment,
    signals: Arc<Signals>,
    screen: Screen,
    common: &'a Common,
    message: Option<&'a str>,
    /// What a new run sets otherwise in agent.yaml; the agent has it already.
    set: &'a Map<String, Value>,
    /// The same as it was given.
    given: &'a [(String, String)],
    /// Held while it is decided which workspace a named run has.
    claim: Option<DecisionLock>,
}

impl Chosen<'_> {
    fn launch(&self) -> Launch<'_> {
        Launch {
            agent: self.agent,
            workspace: self.workspace,
            environment: self.environment,
            signals: Arc::clone(&self.signals),
            screen: self.screen,
            set: self.set,
            interactive: self.common.interactive,
            max_iterations: self.common.max_iterations,
            force: false,
        }
    }

    /// Finds out, under the workspace's lock, which run to start or take up.
    fn decide(mut self) -> Result<RunResult> {
        if self.message.is_none() && !self.workspace.control.exists() {
            return Err(match &self.common.run_id {
                Some(id) => no_such_run(id),
                None => nothing_to_resume(self.workspace),
            });
        }
        self.workspace.create()?;
        if self.common.work_dir.is_none() {
            workspace::remember(&self.agent.home, self.workspace)?;
        }
        // Whoever else starts a run of this name may look for it only when it is there.
        let claim = self.claim.take();
        let lock = self.workspace.lock(&self.signals)?.and(claim);
        self.workspace.clear_unborn()?;
        if let Some(name) = &self.common.run_id {
            let id = RunId::parse(name).map_err(Error::usage)?;
            return self.by_name(&id, lock);
        }
        let found = match self.workspace.newest()? {
            Some(id) => {
                self.workspace.mend_latest(&id)?;
                Some(inspect_run(&RunDir::of(self.workspace, &id))?)
            }
            None => None,
        };
        let Some(found) = found else {
            return self.new_run(None, lock);
        };
        let is_same = self.is_same(&found);
        let is_own = found.is_of(self.agent);
        match found.metadata.status {
            Status::Running if is_same && is_own => Err(found.busy()),
            Status::Interrupted | Status::WaitingForInput if is_same && is_own => {
                self.resume(found, lock)
            }
            Status::Running | Status::Interrupted | Status::WaitingForInput => {
                let id = &found.run.id;
                let status = found.metadata.status.name();
                let first = quoted_start(
                    found
                        .metadata
                        .initial_message
                        .as_deref()
                        .unwrap_or_default(),
                );
                if self.message.is_some() && !self.screen.quiet {
                    self.screen.warn(&format!(
                        "starting a new run; run {id} ({first}) is {status}"
                    ));
                }
                self.new_run(Some(&found), lock)
            }
            Status::Completed | Status::Failed => self.new_run(Some(&found), lock),
        }
    }

    fn is_same(&self, found: &RunSnapshot) -> bool {
        self.message.is_none() || found.metadata.initial_message.as_deref() == self.message
    }

    fn new_run(&self, newest: Option<&RunSnapshot>, lock: DecisionLock) -> Result<RunResult> {
        let Some(message) = self.message else {
            return Err(match newest {
                Some(found)
                    if found.metadata.agent_name != self.agent.name && found.is_resumable() =>
                {
                    Error::usage(format!(
                        "the newest run here, {}, is of another agent; say what to do with -m MESSAGE",
                        found.run.id
                    ))
                }
                Some(found) => Error::usage(format!(
                    "nothing to resume: run {} is {}; say what to do with -m MESSAGE",
                    found.run.id,
                    found.metadata.status.name()
                )),
                None => nothing_to_resume(self.workspace),
            });
        };
        let id = RunId::generate(Timestamp::now());
        self.launch().begin(&id, message, lock)
    }

    fn by_name(&self, id: &RunId, lock: DecisionLock) -> Result<RunResult> {
        if !self.workspace.run_path(id).is_dir() {
            let Some(message) = self.message else {
                return Err(no_such_run(id.as_str()));
            };
            return self.launch().begin(id, message, lock);
        }
        let found = inspect_run(&RunDir::of(self.workspace, id))?;
        if !self.is_same(&found) {
            let first = quoted_start(
                found
                    .metadata
                    .initial_message
                    .as_deref()
                    .unwrap_or_default(),
            );
            return Err(Error::failure(format!(
                "run {id} is there with another message ({first}); choose another --run-id, or use `delta continue`"
            )));
        }
        match found.metadata.status {
            Status::Running => Err(found.busy()),
            Status::Interrupted | Status::WaitingForInput => self.resume(found, lock),
            Status::Completed => {
                found.mend_metadata()?;
                drop(lock);
                Ok(RunResult::recorded(found))
            }
            Status::Failed => {
                drop(lock);
                let mut result = RunResult::recorded(found);
                result.ending.text = format!(
                    "run {id} has failed before, and its name is taken: {}",
                    result.ending.text
                );
                Ok(result)
            }
        }
    }

    fn resume(&self, found: RunSnapshot, lock: DecisionLock) -> Result<RunResult> {
        let waits = found.question.is_some() && !found.is_answered && !self.common.interactive;
        if waits && found.metadata.status == Status::WaitingForInput {
            drop(lock);
            return Ok(RunResult::recorded(found));
        }
        if found.metadata.set == *self.set {
            return self.launch().resume(found, None, None, lock);
        }
        // A run keeps the settings that it was made with; those that are given now come on top.
        let before = found.metadata.set.clone();
        let (agent, set) = load_with_overrides(&self.agent.home, before, self.given, self.screen)?;
        preflight::check_reach(&agent, self.environment, Some(self.workspace))?;
        let launch = Launch {
            agent: &agent,
            set: &set,
            ..self.launch()
        };
        launch.resume(found, None, None, lock)
    }
}

fn no_such_run(id: &str) -> Error {
    Error::usage(format!(
        "there is no run {id} here; say what to do with -m MESSAGE"
    ))
}

fn nothing_to_resume(workspace: &Workspace) -> Error {
    let root = workspace.root.display();
    Error::usage(format!(
        "nothing to resume in {root}; say what to do with -m MESSAGE"
    ))
}

/// The first words of a text, for messages.
fn quoted_start(text: &str) -> String {
    format!("'{}'", crate::text::shorten::in_short(text, 60))
}
