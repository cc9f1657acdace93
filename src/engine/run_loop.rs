//! The loop: ask the model, run what it asks for, record everything, until it answers.
//!
//! What an earlier process left open is read from the journal and finished first, by the same code
//! that finishes what this one opens.
//!
//! Architecture invariant: nothing that matters is only in this process. An action starts after its
//! request is on disk, a result counts from the moment it is in the journal, and after any crash the
//! journal alone says what to do next.

mod outcome;
mod run_log;
mod limits;
mod hook_points;
mod fallback;
mod attachments;
mod conversation;
mod executed;
mod open_call;
mod changed_files;
mod file_states;
mod results;
mod deferred;
mod on_question;
mod sandbox_note;
mod written_call;
mod compaction;
mod points;
mod questions;
mod confirmations;
mod recovery;
mod group;
mod calls;
mod judge;
mod inbox;
mod think;

pub(crate) use attachments::{foresee, settled};
pub(crate) use changed_files::diff_lines;
pub(crate) use fallback::chain::{Chain, FallbackModel};
pub(crate) use outcome::{EndedRun, Ending};

use crate::VERSION;
use crate::config::agent::{Agent, HookEvent};
use crate::config::tool::bind::BoundCall;
use crate::config::tool::definition::Tool;
use crate::engine::account::SpendingRules;
use crate::engine::due::Registration;
use crate::engine::question::{self, HumanAnswer};
use crate::engine::request::{Builder, form};
use crate::engine::run_context::RunContext;
use crate::engine::start_options::StartOptions;
use crate::engine::streamed::StreamedText;
use crate::engine::tool_call::Done;
use crate::error::{Error, Result};
use crate::model::ask::Model;
use crate::model::wire::Wire;
use crate::record::engine_log::Level;
use crate::record::event::{ErrorEvent, RawJson, decoded};
use crate::record::invocations::Invocations;
use crate::record::journal::Journal;
use crate::record::message_cache::MessageCache;
use crate::record::metadata::{Metadata, Status};
use crate::record::state::{self, Reading, Run, Turn, Unreadable};
use crate::record::stop_reason::StopReason;
use crate::text::answers::after_thoughts;
use crate::text::shorten::in_short;
use crate::unix::terminal::stderr_is_terminal;
use attachments::Attachments;
use calls::run_calls;
use changed_files::ChangedFiles;
use compaction::sizes::Sizes;
use file_states::FileStates;
use hook_points::{Hooks, has_hook, on_error};
use inbox::{take_last_messages, take_messages};
use judge::{judge, refused_for_good};
use limits::Limits;
use open_call::OpenCall;
use outcome::{Halt, Step, halt_on};
use points::{at_end, at_start};
use run_log::RunLog;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::rc::Rc;
use think::{ThoughtOutcome, think};

/// All that an engine works on, beside the run's files.
pub(crate) struct EngineStart<'a> {
    pub options: &'a StartOptions,
    /// The answer to a question that is open.
    pub answer: Option<HumanAnswer>,
    /// True if processes that carry this run's calls are this run's, and not those of a directory that
    /// it is a copy of.
    pub is_ours: bool,
    /// None: nothing is spent, as in a replay.
    pub spending: Option<SpendingRules>,
    /// Words that the command which answers its questions needs.
    pub resume_words: Vec<String>,
    /// The run's place in the registry of those that wait, if it is registered.
    pub registration: Option<Registration>,
    pub known_calls: Rc<KnownCalls>,
}

/// Calls of which something is known beforehand, by iteration and id.
pub(crate) type KnownCalls = HashMap<(u64, String), KnownCall>;

/// Knowledge of a call before the model asks for it.
pub(crate) struct KnownCall {
    /// Result of the call if it is not run.
    pub result: Done,
    /// True if it is run, unless a person would have to confirm it.
    pub is_repeated: bool,
    /// Directory of the whole output, from that of the run that it is known from.
    pub output_ref: Option<String>,
}

/// One start of the engine on one run.
pub(crate) struct Engine<'a> {
    /// The surroundings.
    ctx: &'a RunContext<'a>,
    options: &'a StartOptions,
    start: EngineStart<'a>,
    log: RunLog<'a>,
    limits: Limits<'a>,
    hooks: Hooks,
    /// The agent with the model that is asked.
    asked: &'a Agent,
    model: Model<'a>,
    /// The models that are asked in its place.
    chain: Chain<'a>,
    /// The form in which the model is asked.
    wire: Wire,
    builder: Builder,
    invocations: Invocations,
    /// The messages, as far as the journal has been read.
    transcript: MessageCache,
    /// The text that the terminal shows already.
    streamed: StreamedText,
    /// Sizes of requests, counted and estimated.
    sizes: Sizes,
    attachments: Attachments,
    files: FileStates<'a>,
    /// The journal when the engine was made, until the run's state has been read from it.
    record: Vec<u8>,
    ask_human: Option<Tool>,
    /// Calls that a person has let run for the rest of the run, by their fingerprints.
    always: HashSet<String>,
    /// The files that tools have reported as changed.
    changed: ChangedFiles,
    /// The files that other programs execute are remembered.
    executed_known: bool,
    /// Room to record the end on a full disk.
    reserve: Option<File>,
}

impl<'a> Engine<'a> {
    /// Makes ready. The run's directory is there, its journal says that an engine has started. `record` is what
    /// the journal holds.
    pub(crate) fn new(
        ctx: &'a RunContext<'a>,
        journal: Journal,
        record: Vec<u8>,
        metadata: Metadata,
        mut start: EngineStart<'a>,
        model: Model<'a>,
        chain: Chain<'a>,
    ) -> Result<Self> {
        let options = start.options;
        let (rules, screen) = (start.spending.take(), options.screen);
        let is_final = !has_hook(ctx, HookEvent::PostLlmResponse);
        let heard = options
            .feed
            .clone()
            .filter(|feed| feed.has_deltas && is_final);
        let is_shown = options.shows_text && is_final && stderr_is_terminal();
        let streamed = StreamedText::new(is_shown, screen, heard);
        let agent = ctx.agent;
        let reading = Reading {
            lenient: options.force,
            window: agent.context.window(),
        };
        let form = form(&agent.llm, ctx.environment, None);
        let invocations = ctx.run.io("invocations");
        let most = options.max_iterations.unwrap_or(agent.max_iterations);
        let log = RunLog::new(ctx, journal, metadata, screen);
        Ok(Self {
            files: FileStates::new(ctx, rules.is_none()),
            limits: Limits::new(ctx, &log, &record, most, rules),
            hooks: Hooks::new(ctx)?,
            asked: agent,
            model,
            chain,
            wire: Wire::of_agent(agent, ctx.environment),
            builder: builder(agent),
            invocations: Invocations::open(&invocations, agent.keep_requests as usize)?,
            transcript: MessageCache::new(form, reading),
            streamed,
            sizes: Sizes::new(agent, options.compacts),
            attachments: Attachments::of(&ctx.run),
            ctx,
            options,
            start,
            log,
            record,
            ask_human: ctx.agent.ask_human.then(question::ask_human_tool),
            always: HashSet::new(),
            changed: ChangedFiles::default(),
            executed_known: false,
            reserve: ctx.run.reserve(),
        })
    }

    /// Works until the run ends in one way or another, and records how. The metadata is still to be
    /// written, by [`EndedRun::seal`].
    pub(crate) fn run(mut self) -> EndedRun {
        let (pid, depth) = (std::process::id(), self.ctx.depth);
        let text = format!(
            "engine started: delta {VERSION}, pid {pid}, run {}, depth {depth}",
            self.ctx.run.id
        );
        self.ctx.log.line(Level::Info, &text);
        let ending = match self.run_loop() {
            Ok(result) => Ending::completed(result),
            Err(Halt::Ended(ending)) => ending,
            Err(Halt::Failed(error)) => self.after_failure(error),
        };
        at_end(&mut self, &ending);
        self.log.record_end(&ending, self.limits.worked_ms());
        let level = if ending.is_error() {
            Level::Error
        } else {
            Level::Info
        };
        let text = format!(
            "engine ended: pid {pid}, {} ({}), exit code {}: {}",
            ending.status.name(),
            ending.stop_reason,
            ending.exit.code(),
            in_short(&ending.text, 200)
        );
        self.ctx.log.line(level, &text);
        EndedRun {
            spent: self.limits.spent(),
            window_share: self.sizes.window_share(),
            changed: self.files.changed().unwrap_or(&self.changed).listed(),
            is_shown: ending.status == Status::Completed && self.streamed.is_shown(&ending.text),
            ending,
            registration: self.start.registration,
            metadata: self.log.metadata,
            run: self.ctx.run.clone(),
            journal: self.log.journal,
        }
    }

    /// Works until there is a result that counts.
    fn run_loop(&mut self) -> Step<String> {
        let mut next = self.recover()?;
        loop {
            match next {
                ThoughtOutcome::Calls(calls) => run_calls(self, calls)?,
                ThoughtOutcome::Answer(text) => {
                    if let Some(result) = judge(self, text)?
                        && !take_last_messages(self)?
                    {
                        return Ok(result);
                    }
                }
            }
            self.go_on()?;
            halt_on(self.limits.no_progress())?;
            self.may_ask()?;
            take_messages(self)?;
            next = think(self)?;
        }
    }

    /// Finishes the work of an earlier process: the calls that it left open, an answer that it did not report,
    /// or the end that it could not record.
    fn recover(&mut self) -> Step<ThoughtOutcome> {
        let mut journal = std::mem::take(&mut self.record);
        self.log.journal.read_gained(&mut journal)?;
        self.limits.restore_ledger(&mut self.log, &journal)?;
        let run = self.read_run(&journal)?;
        at_start(self, &run);
        self.transcript.start(&run, &journal);
        let ending = match run.turns.last() {
            Some(Turn::Thought(thought)) if run.has_final_answer() => {
                let content = decoded(thought.content);
                let text = after_thoughts(&content).to_owned();
                return Ok(ThoughtOutcome::Answer(text));
            }
            Some(Turn::Thought(thought)) => thought
                .cut_off()
                .map(|reason| think::cut_off(reason, None, self.wire.api())),
            _ => refused_for_good(self, &run),
        };
        let thought = run.last_thought();
        let cut_off = thought.is_some_and(|thought| thought.cut_off().is_some());
        let calls = thought.map_or(&[][..], |thought| &thought.calls);
        let open = calls
            .iter()
            .enumerate()
            .filter(|(_, call)| call.result.is_none())
            .map(|(before, call)| OpenCall::from_journal(call, cut_off, before))
            .collect();
        if let Some(thought) = thought {
            self.note_other_api(&thought.api())?;
        }
        let Some(ending) = ending else {
            return Ok(ThoughtOutcome::Calls(open));
        };
        // None of its calls may ever run; say so in the journal.
        run_calls(self, open)?;
        Err(ending.into())
    }

    /// The state that a journal adds up to.
    fn read_run<'j>(&self, journal: &'j [u8]) -> Result<Run<'j>> {
        state::read(journal, Reading::all(self.options.force))
            .map_err(|e| unreadable(&e, &self.log.journal))
    }

    /// Knowledge of a call of this iteration.
    fn known(&self, call: &OpenCall) -> Option<&KnownCall> {
        let calls = &self.start.known_calls;
        calls.get(&(self.log.iteration, call.id.clone()))
    }

    /// The end that a signal, a hook or a changed journal demands.
    fn must_end(&self) -> Option<Ending> {
        self.log.must_end().or_else(|| self.hooks.stop())
    }

    /// Stops the work if something demands its end.
    fn go_on(&self) -> Step<()> {
        halt_on(self.must_end())
    }

    /// Stops the work before a request, also if a limit has been reached.
    fn may_ask(&mut self) -> Step<()> {
        self.go_on()?;
        halt_on(self.limits.reached(self.invocations.has_open()))
    }

    /// Stops the work before a program is run, also if the time is over. Events that wait reach the file.
    fn may_run(&mut self) -> Step<()> {
        let ending = self.must_end().or_else(|| self.limits.time_is_over());
        if ending.is_some() {
            self.log.journal.flush()?;
        }
        halt_on(ending)
    }

    /// The end of a run whose next step has failed.
    fn after_failure(&mut self, error: Error) -> Ending {
        drop(self.reserve.take());
        let reason = if !self.log.journal.is_in_place() {
            StopReason::JournalChanged
        } else if error.disk_full {
            StopReason::DiskFull
        } else {
            StopReason::IoError
        };
        Ending::new(reason, error.message)
    }

    fn record_error(&mut self, message: &str) -> Result<()> {
        self.log.add(&ErrorEvent {
            error_message: message,
            error_details: RawJson(b"{}"),
        });
        self.log.journal.flush()?;
        on_error(self, message)
    }
}

/// The builder of an agent's requests.
pub(crate) fn builder(agent: &Agent) -> Builder {
    let ask_human = agent.ask_human.then(question::ask_human_tool);
    Builder::new(agent, agent.tools.iter().chain(&ask_human))
}

/// Reads something from the state that the journal adds up to.
fn from_journal<T>(engine: &mut Engine<'_>, read: impl FnOnce(&Run<'_>) -> T) -> Result<T> {
    let journal = engine.log.whole_journal()?;
    Ok(read(&engine.read_run(&journal)?))
}

/// The error of a journal that cannot be read, for a person.
pub(crate) fn unreadable(error: &Unreadable, journal: &Journal) -> Error {
    unreadable_at(error, journal.path())
}

/// The error of the journal at a path that cannot be read, for a person.
pub(crate) fn unreadable_at(error: &Unreadable, path: &std::path::Path) -> Error {
    match error {
        Unreadable::Rewritten(form) => form.error(path),
        Unreadable::Damaged(damage) => {
            let column = match damage.column {
                0 => String::new(),
                column => format!(":{column}"),
            };
            Error::failure(format!(
                "{}:{}{column}: damaged: {}; nothing has been changed; mend the line, or pass over it with \
                 `delta continue --force`",
                path.display(),
                damage.line,
                damage.message
            ))
        }
    }
}

/// A tool and its arguments, ready to run.
type Ready<'t> = (&'t Tool, BoundCall);

/// The agent's tool of a name.
fn tool_named<'t>(agent: &'t Agent, name: &str) -> Option<&'t Tool> {
    agent.tools.iter().find(|tool| tool.name == name)
}
