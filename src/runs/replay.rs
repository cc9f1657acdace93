//! A recorded run again: with its tools, hooks and generators and the model's recorded answers, or its requests alone.
//! Each request is compared with the recorded one.
//!
//! Unaware of how a comparison is printed.

use super::launch::{Launch, with_fallbacks};
use super::open::{Inherited, OpenRun};
use crate::config::agent::{Agent, HookEvent, ModelFailure};
use crate::config::tool::definition::Confirm;
use crate::engine::hooks::read_recorded;
use crate::engine::outbox::Collected;
use crate::engine::request::{Builder, Unbuilt, form};
use crate::engine::run_context::RunContext;
use crate::engine::run_loop::{
    Chain, Ending, Engine, EngineStart, FallbackModel, KnownCall, KnownCalls, builder, settled,
};
use crate::engine::start_options::StartOptions;
use crate::engine::tool_call::Done;
use crate::error::{Error, Result};
use crate::model::ask::Model;
use crate::model::replay::{Divergence, Playback};
use crate::model::wire::{Neutral, Wire};
use crate::record::attachments;
use crate::record::blobs::Blobs;
use crate::record::event::MessageEvent;
use crate::record::message_cache::MessageCache;
use crate::record::metadata::Metadata;
use crate::record::recording::{
    Beginning, RecordedMessage, RecordedResult, RecordedStep, Recording, changes, unreadable,
};
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading};
use crate::record::stop_reason::StopReason;
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// The extent to which a recorded run could be repeated.
pub(crate) struct Repetition {
    /// Number of requests that were the recorded ones.
    pub given: usize,
    pub divergence: Option<Divergence>,
    /// End of the repetition before the last of them.
    pub ending: Option<Ending>,
}

/// Compares the requests that an agent would make with the recorded ones, until one differs. Nothing is executed.
pub(crate) fn compare(launch: &Launch<'_>, recording: &Rc<Recording>) -> Result<Repetition> {
    let id = name_of(recording)?;
    let ctx = launch.context(&RunDir::of(launch.workspace, &id));
    let agents = with_fallbacks(launch.agent);
    let mut requests = Requests::new(&ctx, launch.candidates(&ctx, &agents));
    let mut playback = Playback::new(Rc::clone(recording));
    let mut end = recording.journal.len();
    let mut ending = None;
    for step in &recording.steps {
        ending = launch.signals.stop().map(Ending::stopped);
        ending = match ending {
            Some(ending) => Some(ending),
            None => requests.compare(step, recording, &mut playback)?,
        };
        if ending.is_some() || playback.divergence.is_some() {
            end = step.at;
            break;
        }
    }
    for text in requests.builder.lacking() {
        launch.options.screen.warn(text);
    }
    begin(launch, recording, end, &[])?;
    Ok(Repetition {
        given: playback.given,
        divergence: playback.divergence,
        ending,
    })
}

/// The requests of a run, made from its record.
struct Requests<'a> {
    ctx: &'a RunContext<'a>,
    /// The models that are asked in place of the first.
    others: VecDeque<FallbackModel<'a>>,
    /// The one of them that is asked.
    fallback: Option<String>,
    wire: Wire,
    builder: Builder,
    transcript: MessageCache,
}

impl<'a> Requests<'a> {
    fn new(ctx: &'a RunContext<'a>, others: VecDeque<FallbackModel<'a>>) -> Self {
        let (agent, environment) = (ctx.agent, ctx.environment);
        let reading = Reading {
            lenient: false,
            window: agent.context.window(),
        };
        Self {
            ctx,
            others,
            fallback: None,
            wire: Wire::of_agent(agent, environment),
            builder: builder(agent),
            transcript: MessageCache::new(form(&agent.llm, environment, None), reading),
        }
    }

    /// Makes the request that an answer was given to, and compares it. Returns the run's end if it cannot be made.
    fn compare(
        &mut self,
        step: &RecordedStep,
        recording: &Recording,
        playback: &mut Playback,
    ) -> Result<Option<Ending>> {
        self.ask(step.fallback.as_ref().map(|it| it.name.as_str()));
        let before = &recording.journal[..step.at];
        self.read(before, recording)?;
        let mut blobs = Blobs::of(&recording.run.path);
        let shown = settled(
            self.transcript.attached(),
            &self.transcript.form().shown,
            |it| it.is_in(&mut blobs),
        );
        if shown != self.transcript.form().shown {
            self.transcript.change_shown(shown);
            self.read(before, recording)?;
        }
        if let Some(recorded) = playback.next_request()? {
            self.builder.take_blocks_of(recorded);
        }
        let messages = self.transcript.messages();
        let built = self
            .builder
            .request(self.ctx, messages, step.iteration, Vec::new());
        let request = match built {
            Ok(request) => self.after_hooks(request, step, recording),
            Err(Unbuilt::Unavailable(why)) => {
                return Ok(Some(Ending::new(StopReason::Context, why)));
            }
            Err(Unbuilt::Failed(error)) => return Err(error),
        };
        let sent = playback
            .render(&mut self.wire, &request)?
            .map_err(Error::failure)?;
        let compared = playback.compare(&sent.bytes)?;
        playback.given += usize::from(compared.is_ok());
        let why = compared.err().filter(|_| playback.divergence.is_none());
        Ok(why.map(|why| Ending::new(StopReason::ModelRefused, why)))
    }

    /// Makes requests for a model from now on; none: the first.
    fn ask(&mut self, name: Option<&str>) {
        if self.fallback.as_deref() == name {
            return;
        }
        let environment = self.ctx.environment;
        let next = self.others.iter().find(|it| Some(&*it.name) == name);
        let agent = next.map_or(self.ctx.agent, |next| next.agent);
        self.wire = match next {
            Some(next) => Wire::of_fallback(agent, environment, &next.name),
            None => Wire::of_agent(agent, environment),
        };
        self.builder.change_model(builder(agent));
        let form = form(&agent.llm, environment, next.map(|it| &*it.name));
        self.transcript.change_form(form);
        self.fallback = name.map(str::to_owned);
    }

    /// Brings the transcript up to the end of this part of the journal.
    fn read(&mut self, before: &[u8], recording: &Recording) -> Result<()> {
        loop {
            let from = self.transcript.read_to() as usize;
            if from == 0 {
                self.transcript.forget();
            }
            let added = self.transcript.add(&before[from..]);
            if added.map_err(|e| unreadable(&e, &recording.run.journal()))? {
                return Ok(());
            }
        }
    }

    /// A request as the hooks of the recorded run left it.
    fn after_hooks(&self, request: Neutral, step: &RecordedStep, recording: &Recording) -> Neutral {
        const EVENT: HookEvent = HookEvent::PreLlmRequest;
        let secrets = self.ctx.environment.secrets();
        let hooks = self.ctx.agent.hooks.iter();
        // Those before have seen requests that were not answered.
        let number = hooks.filter(|hook| hook.event == EVENT).count();
        let ran = step
            .hooks
            .iter()
            .rev()
            .filter(|(name, _)| name == EVENT.name())
            .take(number);
        let mut payloads = ran.filter_map(|(_, reference)| {
            read_recorded(&recording.run.path.join(reference), EVENT, &secrets).payload
        });
        let changed = payloads
            .next()
            .and_then(|it| Neutral::changed(self.wire.api(), it).ok());
        changed.unwrap_or(request)
    }
}

/// Lets an agent work with the recorded answers until none is left, or a request differs.
pub(crate) fn repeat(launch: &Launch<'_>, recording: &Rc<Recording>) -> Result<Repetition> {
    let playback = Rc::new(RefCell::new(Playback::new(Rc::clone(recording))));
    let ending = play(launch, recording, &playback)?;
    let mut played = playback.borrow_mut();
    Ok(Repetition {
        given: played.given,
        divergence: played.divergence.take(),
        ending,
    })
}

/// Returns how the repetition ended, if it did before the last answer.
fn play(
    launch: &Launch<'_>,
    recording: &Recording,
    playback: &Rc<RefCell<Playback>>,
) -> Result<Option<Ending>> {
    let first = recording
        .parts
        .first()
        .map_or(&[][..], |part| part.messages.as_slice());
    let mut open = begin(launch, recording, recording.inherited, first)?;
    let known = Rc::new(known_calls(recording, launch.agent));
    for it in known.values() {
        attachments::copy(
            &recording.run.path,
            &open.run.path,
            &it.result.handed.attachments,
        )?;
    }
    let mut target = 0;
    for (index, part) in recording.parts.iter().enumerate() {
        let said = if index > 0 { &part.messages[..] } else { &[] };
        for message in said {
            attachments::copy(&recording.run.path, &open.run.path, &message.attachments)?;
            open.journal
                .add(open.metadata.iterations, &event_of(message));
        }
        target += part.answers;
        loop {
            let given = playback.borrow().given;
            let rest = &recording.steps[given..target];
            let Some(step) = rest.first() else { break };
            let next = (1..rest.len()).find(|at| is_apart(&rest[at - 1], &rest[*at]));
            prepare(launch, recording, given, &mut open)?;
            let left = next.unwrap_or(rest.len()) as u64;
            let ending;
            (ending, open) = engine(launch, open, left, playback, step, &known)?;
            // The engine may have been ended by a hook, as in the recorded run, which went on.
            let played = playback.borrow();
            if played.divergence.is_some() || played.given == given {
                return Ok(Some(ending));
            }
        }
    }
    Ok(None)
}

/// True if the record has something between two answers that no repetition brings about by itself.
fn is_apart(before: &RecordedStep, step: &RecordedStep) -> bool {
    !step.changes.is_empty() || before.fallback != step.fallback
}

/// Adds what the record has before an answer and no repetition brings about by itself.
fn prepare(
    launch: &Launch<'_>,
    recording: &Recording,
    given: usize,
    open: &mut OpenRun,
) -> Result<()> {
    let step = &recording.steps[given];
    let before = given.checked_sub(1).map(|at| &recording.steps[at]);
    if step.fallback.is_none() && before.is_some_and(|it| it.fallback.is_some()) {
        launch.start().begin_again(open);
    }
    open.journal.flush()?;
    if step.changes.is_empty() {
        return Ok(());
    }
    launch.workspace.raise_layout()?;
    let mut journal = Vec::new();
    open.journal.read_into(&mut journal)?;
    let run = state::read(&journal, Reading::default())
        .map_err(|e| unreadable(&e, &open.run.journal()))?;
    let iteration = open.metadata.iterations;
    let record = &recording.journal;
    changes::repeat(record, &step.changes, &run, &mut open.journal, iteration);
    open.journal.flush()
}

/// Knowledge of the calls of a recorded run: their results, where their outputs are, and which are made again.
fn known_calls(recording: &Recording, agent: &Agent) -> KnownCalls {
    let asks = |name: &str| {
        let mut tools = agent.tools.iter().filter(|tool| tool.name == name);
        name == "ask_human" && agent.ask_human || tools.any(|tool| tool.confirm != Confirm::No)
    };
    let missing = || Done::not_run("(the recorded run has no result of this call)".to_owned());
    let of_step = |step: &RecordedStep| {
        let known = step.calls.iter().map(|(id, name)| {
            let recorded = step.results.get(id);
            let known = KnownCall {
                result: recorded.map_or_else(missing, done),
                is_repeated: !step.not_repeated.contains(id) && !asks(name),
                output_ref: recorded.and_then(|it| it.execution_ref.clone()),
            };
            ((step.iteration, id.clone()), known)
        });
        known.collect::<Vec<_>>()
    };
    recording.steps.iter().flat_map(of_step).collect()
}

fn done(recorded: &RecordedResult) -> Done {
    Done {
        status: recorded.status,
        exit_code: recorded.exit_code,
        observation: recorded.observation.clone(),
        handed: Collected {
            attachments: recorded.attachments.clone(),
            ..Collected::default()
        },
        duration: Duration::from_millis(recorded.duration_ms),
        is_interrupted: false,
    }
}

/// The name that a recorded run has in its journal, else that of its directory.
fn name_of(recording: &Recording) -> Result<RunId> {
    let own = RunId::parse(&recording.state()?.start.run_id);
    Ok(own.unwrap_or_else(|_| recording.run.id.clone()))
}

/// Creates the repetition: it begins with the record up to a place, and with what was said then.
fn begin(
    launch: &Launch<'_>,
    recording: &Recording,
    end: usize,
    said: &[RecordedMessage],
) -> Result<OpenRun> {
    let id = name_of(recording)?;
    let recorded = recording.state()?;
    let inherited = &recording.journal[..end];
    let before = state::read(inherited, Reading::default())
        .map_err(|e| unreadable(&e, &recording.run.journal()))?;
    let mut metadata = Metadata {
        run_id: id.to_string(),
        workspace_id: launch.workspace.id(),
        ..Metadata::default()
    };
    metadata.correct(&before);
    metadata.created_at = Timestamp::now().to_string();
    metadata.initial_message = recorded.first_message.as_deref().map(str::to_owned);
    metadata.forked_from.clone_from(&recorded.start.forked_from);
    launch.workspace.create()?;
    let beginning = Beginning {
        journal: inherited,
        iterations: before.iterations,
    };
    let inherited = Inherited {
        beginning: &beginning,
        state: &before,
        run: &recording.run.path,
    };
    let _lock = launch.workspace.lock(&launch.signals, None)?;
    let start = launch.start();
    start.begin(&id, metadata, Some(inherited), |journal| {
        said.iter().try_for_each(|message| {
            let to = launch.workspace.staging_dir();
            attachments::copy(&recording.run.path, &to, &message.attachments)?;
            journal.add(before.iterations, &event_of(message));
            Ok(())
        })
    })
}

fn event_of(message: &RecordedMessage) -> MessageEvent<'_> {
    MessageEvent {
        content: &message.content,
        attachments: &message.attachments,
        ..MessageEvent::default()
    }
}

/// Lets an engine give some answers, of which this is the first. Returns how it ended, and the run, which stays open.
fn engine(
    launch: &Launch<'_>,
    open: OpenRun,
    max_iterations: u64,
    playback: &Rc<RefCell<Playback>>,
    step: &RecordedStep,
    known_calls: &Rc<KnownCalls>,
) -> Result<(Ending, OpenRun)> {
    let options = StartOptions {
        max_iterations: Some(max_iterations),
        ..launch.options.clone()
    };
    let start = EngineStart {
        options: &options,
        answer: None,
        is_ours: open.is_ours,
        spending: None,
        resume_words: Vec::new(),
        registration: None,
        known_calls: Rc::clone(known_calls),
    };
    let ctx = launch.context(&open.run);
    let agents = with_fallbacks(launch.agent);
    let model = || Model::Recorded(Rc::clone(playback));
    let chain = step
        .fallback
        .as_ref()
        .and_then(|recorded| {
            let mut others = launch.candidates(&ctx, &agents).into_iter();
            let next = FallbackModel {
                model: Some(model()),
                after: &[
                    ModelFailure::Quota,
                    ModelFailure::Refused,
                    ModelFailure::Unavailable,
                ],
                obstacle: None,
                ..others.find(|it| it.name == recorded.name)?
            };
            Some(Chain::after_failure(next, &recorded.why))
        })
        .unwrap_or_else(|| Chain::new(String::new(), VecDeque::new()));
    let (journal, record) = (open.journal, open.record);
    let engine = Engine::new(&ctx, journal, record, open.metadata, start, model(), chain);
    let ended = engine?.run();
    let ending = ended.ending.clone();
    let (metadata, journal) = ended.seal();
    let open = OpenRun {
        run: open.run,
        journal,
        metadata,
        record: Vec::new(),
        is_ours: open.is_ours,
    };
    Ok((ending, open))
}
