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
mod executed;
mod calls;
mod recovery;
mod questions;
mod confirmations;
mod judge;
mod written_call;
mod think;

pub(crate) use outcome::{EndedRun, Ending};

use crate::VERSION;
use crate::config::agent::{Agent, Hook, HookEvent};
use crate::config::tool::bind::{BaseDirs, BoundCall};
use crate::config::tool::definition::Tool;
use crate::engine::account::SpendingRules;
use crate::engine::question::{self, HumanAnswer};
use crate::engine::request::{Builder, form};
use crate::engine::run_context::RunContext;
use crate::engine::streamed::StreamedText;
use crate::error::{Error, Result, may_fail};
use crate::model::ask::Model;
use crate::model::wire::Wire;
use crate::record::engine_log::Level;
use crate::record::event::Event;
use crate::record::invocations::Invocations;
use crate::record::journal::Journal;
use crate::record::message_cache::MessageCache;
use crate::record::metadata::{Metadata, Status};
use crate::record::state::{self, Reading, Turn, Unreadable};
use crate::record::stop_reason::StopReason;
use crate::text::shorten::in_short;
use crate::unix::terminal::Screen;
use calls::OpenCall;
use limits::Limits;
use run_log::RunLog;
use think::ThoughtOutcome;

/// How one start of the engine is to behave.
pub(crate) struct Options {
    /// Ask people at the terminal.
    pub interactive: bool,
    /// The limit of iterations of this start.
    pub max_iterations: u64,
    /// Where progress is told.
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
    /// Print the text of answers on the terminal as it arrives, where it is streamed and no hook may change it.
    pub shows_text: bool,
}

/// One start of the engine on one run.
pub(crate) struct Engine<'a> {
    /// Where everything runs.
    pub ctx: &'a RunContext<'a>,
    log: RunLog<'a>,
    /// How to behave.
    pub options: Options,
    /// The model.
    pub model: Model<'a>,
    /// The form in which the model is asked.
    pub wire: Wire,
    builder: Builder,
    invocations: Invocations,
    ask_human: Option<Tool>,
    next_hook: u64,
    transcript: MessageCache,
    stop_wanted: Option<String>,
    limits: Limits<'a>,
    streamed: StreamedText,
    /// The files that other programs execute are remembered.
    executed_known: bool,
}

impl<'a> Engine<'a> {
    /// Makes ready. The run's directory is there, its journal says that an engine has started.
    pub(crate) fn new(
        ctx: &'a RunContext<'a>,
        journal: Journal,
        metadata: Metadata,
        mut options: Options,
        model: Model<'a>,
    ) -> Result<Self> {
        let agent = ctx.agent;
        let ask_human = agent.ask_human.then(question::ask_human_tool);
        let builder = builder(agent);
        let invocations = Invocations::open(&ctx.run.io("invocations"), agent.keep_requests)?;
        let next_hook = crate::engine::hooks::next_number(&ctx.run.io("hooks"))?;
        let reading = Reading {
            lenient: options.lenient,
            window: Builder::window(&agent.context),
        };
        let transcript = MessageCache::new(form(&agent.llm), reading);
        ctx.run.reserve();
        let rules = options.spending.take();
        let may_change = |hook: &Hook| hook.event == HookEvent::PostLlmResponse;
        let has_hook = agent.hooks.iter().any(may_change);
        let (shows_text, screen) = (options.shows_text && !has_hook, options.screen);
        let log = RunLog::new(ctx, journal, metadata, screen);
        let limits = Limits::new(ctx, &log, options.max_iterations, rules);
        let wire = Wire::of_agent(agent, ctx.environment);
        Ok(Self {
            ctx,
            log,
            limits,
            options,
            model,
            wire,
            builder,
            invocations,
            ask_human,
            next_hook,
            transcript,
            stop_wanted: None,
            streamed: StreamedText::new(shows_text, screen),
            executed_known: false,
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
        let ending = self.run_loop().unwrap_or_else(|error| {
            self.ctx.run.release_reserve();
            let reason = if !self.log.journal.is_in_place() {
                StopReason::JournalChanged
            } else if error.disk_full {
                StopReason::DiskFull
            } else {
                StopReason::IoError
            };
            Ending::new(reason, error.message)
        });
        may_fail(self.report_executed_files());
        self.finish(&ending);
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
            is_shown: ending.status == Status::Completed && self.streamed.is_shown(&ending.text),
            ending,
            metadata: self.log.metadata,
            run: self.ctx.run.clone(),
            journal: self.log.journal,
        }
    }

    fn run_loop(&mut self) -> Result<Ending> {
        let mut next = self.recover()?;
        loop {
            let ending = match next {
                ThoughtOutcome::Calls(calls) => self.run_calls(calls)?,
                ThoughtOutcome::Answer(text) => self.judge(text)?,
                ThoughtOutcome::End(ending) => Some(ending),
            };
            let ending = ending.or_else(|| self.must_end());
            if let Some(ending) = ending.or_else(|| self.limit_reached()) {
                return Ok(ending);
            }
            next = self.think()?;
        }
    }

    /// What an earlier process left to do: the calls that it left open, an answer that it did not report,
    /// or the end that it could not record.
    fn recover(&mut self) -> Result<ThoughtOutcome> {
        let mut journal = Vec::new();
        self.log.journal.read_into(&mut journal)?;
        let reading = Reading {
            lenient: self.options.lenient,
            window: None,
        };
        let run = state::read(&journal, reading).map_err(|e| unreadable(&e, &self.log.journal))?;
        let ending = match run.turns.last() {
            Some(Turn::Thought(thought)) if run.has_final_answer() => {
                let text = state::decoded(thought.content).into_owned();
                return Ok(ThoughtOutcome::Answer(text));
            }
            Some(Turn::Thought(thought)) => thought
                .cut_off()
                .map(|reason| think::cut_off(reason, None, self.wire.api())),
            _ => self.refused_for_good(&run),
        };
        self.wire.recall(&run.remedies, &run.pauses);
        let thought = run.last_thought();
        let cut_off = thought.is_some_and(|thought| thought.cut_off().is_some());
        let calls = thought.map_or(&[][..], |thought| &thought.calls);
        let open = calls.iter().enumerate();
        let open = open.filter(|(_, call)| call.result.is_none());
        let open = open.map(|(before, call)| OpenCall::from_journal(call, cut_off, before));
        let open = open.collect();
        if let Some(thought) = thought {
            self.note_other_api(&thought.api())?;
        }
        let Some(ending) = ending else {
            return Ok(ThoughtOutcome::Calls(open));
        };
        // None of its calls may ever run; say so in the journal.
        self.run_calls(open)?;
        Ok(ThoughtOutcome::End(ending))
    }

    /// Notes that the conversation goes on over another API than that of the last answer.
    fn note_other_api(&mut self, from: &str) -> Result<()> {
        let api = self.wire.api().name();
        if from == api {
            return Ok(());
        }
        let note = format!(
            "the last answer came over the API {from}, and {api} is asked now: what was said goes on, \
             without the model's reasoning"
        );
        self.log.record_note("INFO", &note)
    }

    /// Brings the transcript up to the journal as it is now.
    fn catch_up(&mut self) -> Result<()> {
        let mut lines = Vec::new();
        let read_to = self.transcript.read_to();
        if self.log.journal.read_new(read_to, &mut lines)? == 0 {
            self.transcript.forget();
        }
        let added = self.transcript.add(&lines);
        added.map_err(|e| unreadable(&e, &self.log.journal))
    }

    /// The end that a signal, a hook or a changed journal demands.
    fn must_end(&self) -> Option<Ending> {
        self.log.must_end().or_else(|| self.stopped_by_hook())
    }

    /// The limit that has been reached, if one has.
    fn limit_reached(&mut self) -> Option<Ending> {
        self.limits.reached(self.invocations.has_open())
    }

    fn stopped_by_hook(&self) -> Option<Ending> {
        self.stop_wanted
            .as_ref()
            .map(|message| Ending::new(StopReason::Hook, message.clone()))
    }

    /// Records an error, and tells the hook.
    fn record_error(&mut self, message: &str, details: &[u8]) -> Result<()> {
        self.log.add(&Event::Error {
            error_message: message,
            error_details_json: details,
        });
        self.log.journal.flush()?;
        self.on_error(message)
    }

    fn places(&self) -> BaseDirs<'_> {
        BaseDirs {
            home: self.ctx.home(),
            cwd: self.ctx.cwd(),
        }
    }

    /// Records how this start ended. Hooks come first.
    fn finish(&mut self, ending: &Ending) {
        if ending.is_error() {
            may_fail(self.record_error(&ending.text, b"{}"));
        }
        if ending.status != Status::WaitingForInput {
            may_fail(self.on_run_end(ending));
        }
        self.log.record_end(ending, self.limits.worked_ms());
    }
}

/// The builder of an agent's requests.
pub(crate) fn builder(agent: &Agent) -> Builder {
    let ask_human = agent.ask_human.then(question::ask_human_tool);
    Builder::new(agent, agent.tools.iter().chain(&ask_human))
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
