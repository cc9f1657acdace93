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
mod sizes;
mod hook_points;
mod chain;
mod attachments;
mod conversation;
mod refused_attachments;
mod fallback;
mod executed;
mod open_call;
mod results;
mod deferred;
mod on_question;
mod questions;
mod confirmations;
mod recovery;
mod sandbox_note;
mod group;
mod calls;
mod written_call;
mod judge;
mod inbox;
mod compaction;
mod think;

pub(crate) use attachments::foresee;
pub(crate) use chain::{Chain, FallbackModel};
pub(crate) use outcome::{EndedRun, Ending};

use crate::VERSION;
use crate::config::agent::{Agent, HookEvent};
use crate::config::tool::bind::BoundCall;
use crate::config::tool::definition::Tool;
use crate::engine::account::SpendingRules;
use crate::engine::question::{self, HumanAnswer};
use crate::engine::request::Builder;
use crate::engine::run_context::RunContext;
use crate::engine::streamed::StreamedText;
use crate::error::{Error, Result, may_fail};
use crate::model::ask::Model;
use crate::record::due::Registration;
use crate::record::engine_log::Level;
use crate::record::event::Event;
use crate::record::feed::Feed;
use crate::record::journal::Journal;
use crate::record::metadata::{Metadata, Status};
use crate::record::state::{self, Reading, Run, Turn, Unreadable};
use crate::record::stop_reason::StopReason;
use crate::text::answers::after_thoughts;
use crate::text::shorten::in_short;
use crate::unix::terminal::Screen;
use calls::run_calls;
use conversation::Conversation;
use executed::report_executed_files;
use fallback::recall_models;
use hook_points::{Hooks, has_hook, on_error, on_run_end};
use inbox::{take_last_messages, take_messages};
use judge::{judge, refused_for_good};
use limits::Limits;
use open_call::OpenCall;
use outcome::{Halt, Step, halt_on};
use run_log::RunLog;
use std::fs::File;
use std::rc::Rc;
use think::{ThoughtOutcome, think};

/// What a start does about calls that end later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeferralMode {
    /// It ends, and another start looks at them.
    #[default]
    End,
    /// It waits for them.
    Wait,
    /// They have failed.
    GiveUp,
}

/// How one start of the engine is to behave.
pub(crate) struct Options {
    /// Ask people at the terminal.
    pub interactive: bool,
    /// The limit of iterations of this start.
    pub max_iterations: u64,
    /// Where progress is printed.
    pub screen: Screen,
    /// Pass over damaged lines of the journal.
    pub lenient: bool,
    /// The answer to a question that is open.
    pub answer: Option<HumanAnswer>,
    /// True if processes that carry this run's calls are this run's, and not those of a directory that
    /// it is a copy of.
    pub is_ours: bool,
    /// A final answer counts only once it has been checked. False where a person reads each answer.
    pub checks_answers: bool,
    /// None: nothing is spent, as in a replay.
    pub spending: Option<SpendingRules>,
    /// Shorten the conversation before the next request, however long it is.
    pub compacts: bool,
    pub patience: DeferralMode,
    /// Words that the command which answers its questions needs.
    pub resume_words: Vec<String>,
    /// The run's place in the registry of those that wait; none: it is not registered.
    pub registration: Option<Registration>,
    /// Print the text of answers on the terminal as it arrives, where it is streamed and no hook may change it.
    pub shows_text: bool,
    /// A program that follows the run.
    pub feed: Option<Rc<Feed>>,
}

/// One start of the engine on one run.
pub(crate) struct Engine<'a> {
    /// Where everything runs.
    ctx: &'a RunContext<'a>,
    options: Options,
    log: RunLog<'a>,
    limits: Limits<'a>,
    hooks: Hooks,
    talk: Conversation<'a>,
    /// What the journal held when the engine was made, until the run's state has been read from it.
    record: Vec<u8>,
    ask_human: Option<Tool>,
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
        (journal, record): (Journal, Vec<u8>),
        metadata: Metadata,
        mut options: Options,
        (model, chain): (Model<'a>, Chain<'a>),
    ) -> Result<Self> {
        let (rules, screen) = (options.spending.take(), options.screen);
        let is_final = !has_hook(ctx, HookEvent::PostLlmResponse);
        let heard = options.feed.take();
        let heard = heard.filter(|feed| feed.has_deltas && is_final);
        let streamed = StreamedText::new(options.shows_text && is_final, screen, heard);
        let reading = (options.lenient, options.compacts);
        let talk = Conversation::new(ctx, (model, chain), reading, streamed)?;
        let hooks = Hooks::new(ctx)?;
        let log = RunLog::new(ctx, journal, metadata, screen);
        Ok(Self {
            limits: Limits::new(ctx, (&log, &record), options.max_iterations, rules),
            ctx,
            options,
            log,
            hooks,
            talk,
            record,
            ask_human: ctx.agent.ask_human.then(question::ask_human_tool),
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
        may_fail(report_executed_files(&mut self));
        self.finish(&ending);
        let level = match ending.is_error() {
            true => Level::Error,
            false => Level::Info,
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
            is_shown: ending.status == Status::Completed
                && self.talk.streamed.is_shown(&ending.text),
            ending,
            registration: self.options.registration,
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
            halt_on(self.must_end())?;
            halt_on(self.limits.no_progress())?;
            halt_on(self.talk.limit_reached(&mut self.limits))?;
            take_messages(self)?;
            next = think(self)?;
        }
    }

    /// What an earlier process left to do: the calls that it left open, an answer that it did not report,
    /// or the end that it could not record.
    fn recover(&mut self) -> Step<ThoughtOutcome> {
        let mut journal = std::mem::take(&mut self.record);
        self.log.journal.read_gained(&mut journal)?;
        self.limits.restore_ledger(&mut self.log, &journal)?;
        let reading = Reading {
            lenient: self.options.lenient,
            window: None,
        };
        let run = state::read(&journal, reading).map_err(|e| unreadable(&e, &self.log.journal))?;
        self.limits.recall_calls(&run);
        recall_models(&mut self.talk, &run);
        self.talk.wire.recall(&run.remedies, &run.pauses);
        self.talk.sizes.recall(&run, self.ctx.agent);
        self.talk.transcript.start(&run, &journal);
        let ending = match run.turns.last() {
            Some(Turn::Thought(thought)) if run.has_final_answer() => {
                let content = state::decoded(thought.content);
                let text = after_thoughts(&content).to_owned();
                return Ok(ThoughtOutcome::Answer(text));
            }
            Some(Turn::Thought(thought)) => thought
                .cut_off()
                .map(|reason| think::cut_off(reason, None, self.talk.wire.api())),
            _ => refused_for_good(self, &run),
        };
        let thought = run.last_thought();
        let cut_off = thought.is_some_and(|thought| thought.cut_off().is_some());
        let calls = thought.map_or(&[][..], |thought| &thought.calls);
        let open = calls.iter().enumerate();
        let open = open.filter(|(_, call)| call.result.is_none());
        let open = open.map(|(before, call)| OpenCall::from_journal(call, cut_off, before));
        let open = open.collect();
        if let Some(thought) = thought {
            self.talk.note_other_api(&mut self.log, &thought.api())?;
        }
        let Some(ending) = ending else {
            return Ok(ThoughtOutcome::Calls(open));
        };
        // None of its calls may ever run; say so in the journal.
        run_calls(self, open)?;
        Err(ending.into())
    }

    /// The end that a signal, a hook or a changed journal demands.
    fn must_end(&self) -> Option<Ending> {
        self.log.must_end().or_else(|| self.hooks.stop())
    }

    /// How a run ends whose next step has failed.
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

    /// Records how this start ended. Hooks come first.
    fn finish(&mut self, ending: &Ending) {
        if ending.is_error() {
            may_fail(self.record_error(&ending.text));
        }
        if ending.status != Status::WaitingForInput {
            may_fail(on_run_end(self, ending));
        }
        self.log.record_end(ending, self.limits.worked_ms());
    }

    fn record_error(&mut self, message: &str) -> Result<()> {
        self.log.add(&Event::Error {
            error_message: message,
            error_details: b"{}",
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
    let mut bytes = Vec::new();
    let journal = &mut engine.log.journal;
    journal.flush()?;
    journal.read_into(&mut bytes)?;
    let reading = Reading {
        lenient: engine.options.lenient,
        window: None,
    };
    let run = state::read(&bytes, reading).map_err(|e| unreadable(&e, journal))?;
    Ok(read(&run))
}

/// Why a journal cannot be read, for a person.
pub(crate) fn unreadable(error: &Unreadable, journal: &Journal) -> Error {
    unreadable_at(error, journal.path())
}

/// Why the journal at a path cannot be read, for a person.
pub(crate) fn unreadable_at(error: &Unreadable, path: &std::path::Path) -> Error {
    match error {
        Unreadable::Rewritten(form) => form.error(path),
        Unreadable::Damaged(damage) => {
            let path = path.display();
            let place = match damage.column {
                0 => format!("{path}:{}", damage.line),
                column => format!("{path}:{}:{column}", damage.line),
            };
            Error::failure(format!(
                "{place}: damaged: {}; nothing has been changed; mend the line, or pass over it with \
                 `delta continue --force`",
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
