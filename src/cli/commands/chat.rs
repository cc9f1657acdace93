//! `delta chat`: a run, message by message. Each line is what `run` or `continue` would be given; the run is an
//! ordinary one, and any other command can go on with it.

mod earlier;
mod words;

use super::run::{choose_site, warn_of_own_files};
use crate::cli::agent_names::{agent_of_run, find_agent};
use crate::cli::args::{ChatArgs, Common, chat_args};
use crate::cli::message::GivenAgent;
use crate::cli::result::print_answer;
use crate::config::agent::Agent;
use crate::config::person;
use crate::engine::account::SpendingRules;
use crate::engine::line_reader::{LineReader, Typed};
use crate::engine::start_options::StartOptions;
use crate::error::{Error, Exit, Result};
use crate::record::metadata::{Metadata, Status};
use crate::record::reader::JournalSource;
use crate::record::run_dir::RunDir;
use crate::record::workspace::{Workspace, command_in, place_of};
use crate::runs::allowed_hosts::open_hosts;
use crate::runs::decide::{Decision, Naming, Wanted, decide};
use crate::runs::find::newest_where;
use crate::runs::inspect::{RunSnapshot, inspect_run, is_run_of, of_other_agent};
use crate::runs::launch::Launch;
use crate::runs::origin::{require_own, require_own_run};
use crate::runs::overrides::{load_recorded, load_with_overrides};
use crate::runs::preflight::{check_budget, check_depth, install_signals, read_environment};
use crate::runs::result::RunResult;
use crate::runs::run_request::RunRequest;
use crate::runs::task::{GivenMessage, GivenPart, Task};
use crate::text::ids::RunId;
use crate::text::options::parse::ParsedCommand;
use crate::text::shell::shell_quoted;
use crate::unix::line_editor::RECALLED;
use crate::unix::line_history::LineHistory;
use crate::unix::signals::{Signals, Stop};
use crate::unix::terminal::{Screen, Tone};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use words::Said;

/// A conversation, between two messages.
struct Chat<'a> {
    wanted: &'a ChatArgs,
    agent: Agent,
    set: Map<String, Value>,
    /// Options of the command line, with the models that were chosen since.
    options: StartOptions,
    /// Files that go with the next message.
    parts: Vec<GivenPart>,
    /// The directory that is given, or the one that the agent works in.
    work_dir: Option<PathBuf>,
    signals: Arc<Signals>,
    reader: LineReader,
    /// Lines that were typed, in this conversation and others. None without a home.
    history: Option<LineHistory>,
    /// None before the first message of a new run.
    run: Option<RunDir>,
    /// The command line names the agent.
    is_named: bool,
    /// The conversations as they were listed last.
    listed: Vec<RunDir>,
}

pub(crate) fn chat(given: &ParsedCommand) -> Result<Exit> {
    let wanted = &chat_args(given)?;
    check_depth()?;
    let common = &wanted.common;
    let signals = install_signals()?;
    let options = &common.options;
    let is_named = matches!(wanted.agent, GivenAgent::Word(_));
    let named = is_named.then(|| find_agent(&wanted.agent)).transpose()?;
    let works_here = named.as_ref().is_none_or(|named| named.works_here);
    let here = works_here.then(|| PathBuf::from("."));
    let work_dir = common.work_dir.clone().or(here);
    let load = |home: &Path| load_with_overrides(home, Map::new(), &options.set, options.screen);
    let chosen = named.map(|named| load(&named.home)).transpose()?;
    let agent = chosen.as_ref().map(|(agent, _)| agent);
    let found = find_run(wanted, agent, work_dir.as_deref())?;
    let (agent, set) = match (&found, chosen) {
        (None, Some(chosen)) => chosen,
        (None, None) => load(&find_agent(&wanted.agent)?.home)?,
        (Some(found), chosen) => load_for(found, chosen.map(|it| it.0.home), common, &options.set)?,
    };
    check_budget(&agent, options.budget)?;
    check_files(&common.message, &signals)?;
    warn_of_own_files(&agent, work_dir.as_deref(), options.screen);
    let history = person::state_dir().map(|dir| LineHistory {
        path: dir.join("chat_history"),
    });
    let recalled = history
        .as_ref()
        .and_then(|it| it.newest(RECALLED).ok())
        .unwrap_or_default();
    let mut chat = Chat {
        wanted,
        agent,
        set,
        options: options.clone(),
        parts: common.message.clone(),
        work_dir,
        signals,
        reader: LineReader::new(words::completion(), recalled),
        history,
        run: found.map(|found| found.run),
        is_named,
        listed: Vec::new(),
    };
    chat.greet()?;
    let ended = chat.talk();
    chat.say_goodbye();
    ended
}

/// Reads files, so that what is wrong with them is reported before the message that they go with.
fn check_files(parts: &[GivenPart], signals: &Signals) -> Result<()> {
    let task = Task::read(parts, signals)?;
    task.map_or(Ok(()), |task| task.text().map(drop))
}

/// The run to go on with: the one that is named, or the newest one where `-w` points: of the agent that is named, or of
/// any, but not the parts of another run.
fn find_run(
    wanted: &ChatArgs,
    agent: Option<&Agent>,
    work_dir: Option<&Path>,
) -> Result<Option<RunSnapshot>> {
    let common = &wanted.common;
    let id = common
        .run_id
        .as_deref()
        .map(RunId::parse)
        .transpose()
        .map_err(Error::usage)?;
    if wanted.new || id.is_none() && common.work_dir.is_none() {
        return Ok(None);
    }
    let workspace = Workspace::at(work_dir.unwrap_or(Path::new(".")))?;
    workspace.check_layout()?;
    require_own(&workspace, common.adopt)?;
    let is_meant = |_: &RunDir, _: JournalSource<'_>, metadata: &Metadata| {
        Ok(agent.map_or(metadata.is_conversation(), |agent| {
            is_run_of(metadata, agent, None)
        }))
    };
    let Some(id) = id else {
        return newest_where(&workspace, is_meant);
    };
    let run = RunDir::of(&workspace, &id);
    if !run.path.is_dir() {
        let list = command_in(&workspace.root, &["delta", "list-runs"]);
        let root = workspace.root.display();
        return Err(Error::failure(format!(
            "there is no run {id} in {root}; `{}` lists those that are there",
            shell_quoted(&list)
        )));
    }
    require_own_run(&run, common.adopt)?;
    let found = inspect_run(&run)?;
    match agent {
        _ if found.is_flow => Err(of_flow(&found)),
        Some(agent) if !is_run_of(&found.metadata, agent, None) => {
            Err(of_other_agent(&found, agent))
        }
        _ => Ok(Some(found)),
    }
}

/// The agent of a run and its settings, as `continue` has them.
fn load_for(
    found: &RunSnapshot,
    named: Option<PathBuf>,
    common: &Common,
    set: &[(String, String)],
) -> Result<(Agent, Map<String, Value>)> {
    let run = &found.run;
    require_own_run(run, common.adopt)?;
    let workspace = Workspace::at(run.workspace().unwrap_or(&run.path))?;
    let recorded = (run.id.as_str(), found.metadata.agent_home.as_str());
    let home = agent_of_run(named.as_deref(), recorded, &workspace)?;
    // The warnings about an agent that was named have been printed.
    let screen = match named {
        Some(_) => Screen::new(true, false),
        None => common.options.screen,
    };
    load_recorded(&home, found.recorded(), set, screen)
}

/// The error for a run that takes no messages.
fn of_flow(found: &RunSnapshot) -> Error {
    let id = &found.run.id;
    Error::usage(format!("run {id} cannot be talked to: it is a flow's"))
}

impl Chat<'_> {
    /// Says to whom the person talks, and what is missing, before the first message is typed.
    fn greet(&self) -> Result<()> {
        let place = self
            .run
            .as_ref()
            .and_then(RunDir::workspace)
            .map(Path::to_owned)
            .or_else(|| self.work_dir.clone());
        let workspace = place.as_deref().map(Workspace::at).transpose()?;
        if let Some(workspace) = &workspace {
            workspace.check_layout()?;
            require_own(workspace, self.wanted.common.adopt)?;
        }
        let mut agent = self.agent.clone();
        let mut environment =
            read_environment(&mut agent, workspace.as_ref(), self.options.screen)?;
        if self.run.is_some() {
            let StartOptions { doors, screen, .. } = &self.options;
            open_hosts(&self.agent, &mut environment, doors, *screen)?;
        }
        if self.reader.is_typed {
            let model = self.agent.llm.model.as_deref().unwrap_or("its own program");
            let run = self
                .run
                .as_ref()
                .map_or_else(String::new, |run| format!(", run {}", run.id));
            let place = workspace.map_or_else(String::new, |it| place_of(&it.root));
            let text = format!(
                "{}, {model}{place}{run}; /help lists commands, Ctrl-D ends",
                self.agent.name
            );
            self.options.screen.progress(&[(Tone::Dim, &text)]);
        }
        Ok(())
    }

    fn talk(&mut self) -> Result<Exit> {
        if let Some(exit) = self.take_up()? {
            return Ok(exit);
        }
        loop {
            let line = match self.reader.next_message(&self.signals)? {
                Typed::Message(line) => line,
                Typed::End => return Ok(Exit::Success),
                Typed::Stopped(stop) => return Ok(stop.into()),
            };
            let task = match self.understand(line) {
                Ok(Said::Message(message)) => self.with_files(message),
                Ok(Said::Done) => continue,
                Ok(Said::Resumed) => match self.take_up()? {
                    Some(exit) => return Ok(exit),
                    None => continue,
                },
                Ok(Said::Quit) => return Ok(Exit::Success),
                Err(error) => Err(error),
            };
            let answered = match task {
                Ok(task) => self.say(&task),
                Err(error) if self.reader.is_typed => {
                    self.options.screen.warn(&error.message);
                    continue;
                }
                Err(error) => Err(error),
            };
            if let Some(exit) = self.show(answered)? {
                return Ok(exit);
            }
        }
    }

    /// Shows where the run that goes on has ended, and asks the question that it waits with.
    fn take_up(&mut self) -> Result<Option<Exit>> {
        self.show_last_exchange();
        let run = self.run.clone();
        let open = run.filter(|run| inspect_run(run).is_ok_and(|it| has_open_question(&it)));
        match open {
            Some(run) => self.show(self.resume(&run, None)),
            None => Ok(None),
        }
    }

    /// Reads what a line says. From a pipe, every line is a message.
    fn understand(&mut self, line: String) -> Result<Said> {
        if !self.reader.is_typed {
            return Ok(Said::Message(line));
        }
        if let Some(history) = &self.history {
            history.add(&line);
        }
        let done = self.obey(line);
        self.signals.forget_interrupt();
        done
    }

    /// The message, behind the files that go with it.
    fn with_files(&mut self, message: String) -> Result<Task> {
        let parts = [&self.parts[..], &[GivenPart::Text(message)]].concat();
        let task = Task::read(&parts, &self.signals)?
            .ok_or_else(|| Error::usage("the message is empty"))?;
        task.text()?;
        self.parts.clear();
        Ok(task)
    }

    /// Sends a message. A question that is still open comes first, and its answer is not the message.
    fn say(&mut self, task: &Task) -> Result<RunResult> {
        let Some(run) = self.run.clone() else {
            return self.begin(task);
        };
        if has_open_question(&inspect_run(&run)?) {
            let answered = self.resume(&run, None)?;
            if answered.ending.status != Status::Completed {
                return Ok(answered);
            }
            print_answer(answered, self.options.screen)?;
        }
        let answered = self.resume(&run, Some(task.message()?));
        self.options.compacts = false;
        answered
    }

    fn begin(&mut self, task: &Task) -> Result<RunResult> {
        let request = RunRequest {
            agent: &self.agent,
            set: &self.set,
            task: Some(task),
            work_dir: self.work_dir.as_deref(),
            run_id: None,
            new: true,
            retry_failed: false,
            adopt: self.wanted.common.adopt,
            yes: false,
            options: &self.options,
            signals: Arc::clone(&self.signals),
        };
        let result = request.execute(&|| choose_site(request.agent, &request.signals))?;
        self.run = Some(result.run.clone());
        Ok(result)
    }

    /// Goes on with the run. Without a message, its question is asked.
    fn resume(&self, run: &RunDir, message: Option<GivenMessage>) -> Result<RunResult> {
        let Some(root) = run.workspace() else {
            return Err(Error::failure(format!(
                "{} is in no workspace",
                run.path.display()
            )));
        };
        let workspace = Workspace::at(root)?;
        require_own_run(run, self.wanted.common.adopt)?;
        let lock = workspace.lock(&self.signals, None)?;
        let found = inspect_run(run)?;
        let asked = Wanted {
            naming: Naming::Continue,
            has_text: message.is_some(),
            new: false,
            retry_failed: false,
            interactive: true,
            attends_calls: true,
        };
        match decide(asked, Some(found.state(true))) {
            Decision::Resume => {}
            Decision::Busy => return Err(found.busy()),
            Decision::Begin | Decision::BeginInPlace | Decision::Reprint | Decision::Refuse(_) => {
                return Err(of_flow(&found));
            }
        }
        let StartOptions { set, screen, .. } = &self.options;
        let (mut agent, set) = load_recorded(&self.agent.home, found.recorded(), set, *screen)?;
        let mut environment = read_environment(&mut agent, Some(&workspace), *screen)?;
        environment.allow_hosts(&self.options.doors);
        let launch = Launch {
            spending: Some(SpendingRules::of(&agent, self.options.budget)?),
            agent: &agent,
            workspace: &workspace,
            environment: &environment,
            signals: Arc::clone(&self.signals),
            set: &set,
            options: &self.options,
        };
        launch.resume(found, message, None, lock)
    }

    /// Prints the result of a message. Returns how the conversation ends, if it does: without a terminal, at
    /// a missing answer.
    fn show(&self, done: Result<RunResult>) -> Result<Option<Exit>> {
        let exit = match done {
            Ok(result) => print_answer(result, self.options.screen)?,
            Err(error) if self.reader.is_typed && self.run.is_some() => {
                self.options.screen.warn(&error.message);
                error.exit
            }
            Err(error) => return Err(error),
        };
        Ok(match (exit, self.signals.stop()) {
            (_, Some(Stop::Interrupt)) if self.reader.is_typed => {
                self.signals.forget_interrupt();
                let open = self.run.as_ref().and_then(|run| inspect_run(run).ok());
                if open.is_some_and(|open| has_open_question(&open)) {
                    let text =
                        "its question is asked again before the next message; /new leaves it";
                    self.options.screen.warn(text);
                }
                None
            }
            (_, Some(stop)) => Some(stop.into()),
            (Exit::Success, None) => None,
            // At a question the input has ended.
            (Exit::Waiting, None) => Some(exit),
            (_, None) => (!self.reader.is_typed).then_some(exit),
        })
    }
}

/// True if a run cannot go on before its question is answered.
fn has_open_question(found: &RunSnapshot) -> bool {
    found.question.is_some() && !found.has_ended()
}
