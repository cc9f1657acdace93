//! The conversation with the model: the request, its way to the service, the answer.
//!
//! Unaware of hooks, and of what an answer leads to.

use super::attachments::Attachments;
use super::chain::{Chain, FailedModel};
use super::limits::Limits;
use super::outcome::{Ending, Step, halt_on};
use super::run_log::RunLog;
use super::sizes::Sizes;
use super::{builder, unreadable};
use crate::config::agent::{Agent, ModelFailure};
use crate::config::api::Api;
use crate::engine::request::{Builder, Unbuilt, form};
use crate::engine::run_context::RunContext;
use crate::engine::streamed::StreamedText;
use crate::error::{Error, Result};
use crate::model::ask::{self, Asked, Invocation, Model, Patience};
use crate::model::attempt::Remedy;
use crate::model::response::Answer;
use crate::model::too_long::TooLong;
use crate::model::wire::{Heard, Neutral, Sent, Wire};
use crate::record::engine_log::Level;
use crate::record::event::Fact;
use crate::record::invocations::{Begun, Invocations};
use crate::record::message_cache::MessageCache;
use crate::record::run_dir::reference;
use crate::record::state::Reading;
use crate::record::stop_reason::StopReason;
use crate::text::shorten::tail;
use crate::unix::terminal::Tone;
use std::time::Instant;

/// A service that pauses more often than this within one answer is not asked to go on.
const MOST_PAUSES: u32 = 30;

/// An answer of the model that is not in the journal yet.
pub(super) struct Answered {
    pub(super) answer: Answer,
    /// The invocation's directory, from the run's directory.
    pub(super) invocation: String,
    /// When the request was sent.
    pub(super) began: Instant,
    /// The digest of what the model read before it answered.
    pub(super) prefix: String,
    pub(super) request_bytes: u64,
}

/// The outcome of a request.
pub(super) enum ModelReply {
    Answered(Box<Answered>),
    TooLong(Rejected),
    /// The service refuses the attachments, in these words.
    AttachmentsRefused(String),
    /// The model has failed; another may be asked.
    Failed(FailedModel),
}

/// A request that is longer than the model takes.
pub(super) struct Rejected {
    /// In the service's words.
    pub(super) why: String,
    /// The tokens that the model takes, if the service says so.
    pub(super) window: Option<u64>,
    /// The service gives another reason, or none.
    pub(super) is_guess: bool,
    pub(super) request_bytes: u64,
}

/// The end of a text on one line.
fn last_words(text: &str) -> String {
    const CHARACTERS: usize = 60;
    let words: Vec<&str> = tail(text, 20 * CHARACTERS).split_whitespace().collect();
    let line = words.join(" ");
    let skipped = line.chars().count().saturating_sub(CHARACTERS);
    let end = if text.ends_with(char::is_whitespace) {
        " "
    } else {
        ""
    };
    line.chars().skip(skipped).chain(end.chars()).collect()
}

/// The model, what it has been asked and what it reads next.
pub(super) struct Conversation<'a> {
    pub(super) ctx: &'a RunContext<'a>,
    /// The agent with the model that is asked.
    pub(super) agent: &'a Agent,
    pub(super) model: Model<'a>,
    /// The models that are asked in its place.
    pub(super) chain: Chain<'a>,
    /// The form in which the model is asked.
    pub(super) wire: Wire,
    pub(super) builder: Builder,
    pub(super) invocations: Invocations,
    /// The messages, as far as the journal has been read.
    pub(super) transcript: MessageCache,
    /// The text that the terminal shows already.
    pub(super) streamed: StreamedText,
    /// Sizes of requests, counted and estimated.
    pub(super) sizes: Sizes,
    pub(super) attachments: Attachments<'a>,
}

impl<'a> Conversation<'a> {
    pub(super) fn new(
        ctx: &'a RunContext<'a>,
        (model, chain): (Model<'a>, Chain<'a>),
        (lenient, is_asked): (bool, bool),
        streamed: StreamedText,
    ) -> Result<Self> {
        let agent = ctx.agent;
        let reading = Reading {
            lenient,
            window: agent.context.window(),
        };
        Ok(Self {
            ctx,
            agent,
            model,
            chain,
            wire: Wire::of_agent(agent, ctx.environment),
            builder: builder(agent),
            invocations: Invocations::open(
                &ctx.run.io("invocations"),
                agent.keep_requests as usize,
            )?,
            transcript: MessageCache::new(form(&agent.llm, ctx.environment), reading),
            attachments: Attachments::new(ctx),
            sizes: Sizes::new(agent, is_asked),
            streamed,
        })
    }

    /// The limit that has been reached, if one has.
    pub(super) fn limit_reached(&self, limits: &mut Limits<'_>) -> Option<Ending> {
        limits.reached(self.invocations.has_open())
    }

    /// How many bytes a request has as the service reads it.
    pub(super) fn measure(&mut self, request: &Neutral) -> Result<u64> {
        if self.wire.api() == Api::Chat {
            return Ok(request.bytes.len() as u64);
        }
        Ok(self.render(request)?.bytes.len() as u64)
    }

    /// Sends a request until there is an answer, of which hooks have seen nothing yet, or the model fails. One that is made `aside` has
    /// these messages in place of the conversation, and its answer is not shown.
    pub(super) fn ask(
        &mut self,
        log: &mut RunLog<'_>,
        limits: &mut Limits<'_>,
        request: Neutral,
        aside: Option<&[u8]>,
    ) -> Step<ModelReply> {
        let mut sent = self.render(&request)?;
        self.streamed.begin(log.iteration);
        let mut usual_limit = None;
        loop {
            let began = Instant::now();
            let invoked = self.begin_invocation(log.iteration, &mut sent, aside)?;
            let asked = self.send_request(log, limits, &invoked, aside)?;
            self.log_invocation(&invoked.name, &asked, began);
            let (how, why, until) = match asked {
                Asked::Answered(answer) if answer.is_paused && aside.is_none() => {
                    self.take_pause(log, *answer, &sent.prefix)?;
                    halt_on(log.must_end())?;
                    halt_on(self.limit_reached(limits))?;
                    sent = self.render(&request)?;
                    continue;
                }
                Asked::Answered(last_part) => {
                    self.end_limit(usual_limit);
                    let invocation = reference("invocations", &invoked.name);
                    return Ok(self.answered(*last_part, invocation, (began, sent.prefix)));
                }
                Asked::Stopped(stop) => return Err(Ending::stopped(stop).into()),
                Asked::OutOfTime => return Err(limits.out_of_time().into()),
                Asked::Open(why) => return Err(limits.left_open(why).into()),
                Asked::Denied(denial) => return Err(Ending::denied(denial).into()),
                Asked::Refused(why, remedy) => {
                    if let Some(remedy) =
                        remedy.filter(|remedy| self.wire.apply_to(&request, *remedy))
                    {
                        self.note_remedy(log, remedy)?;
                        halt_on(log.must_end())?;
                        sent = self.render(&request)?;
                        continue;
                    }
                    (ModelFailure::Refused, why, None)
                }
                Asked::AttachmentsRefused(why) if self.lacks_attachments() => {
                    (ModelFailure::Refused, why, None)
                }
                Asked::AttachmentsRefused(why) => {
                    self.end_limit(usual_limit);
                    return Ok(ModelReply::AttachmentsRefused(why));
                }
                Asked::TooLong(why, too_long)
                    if too_long.is_guess && (aside.is_some() || !self.may_be_too_long()) =>
                {
                    (ModelFailure::Refused, why, None)
                }
                Asked::TooLong(why, too_long) => {
                    if usual_limit.is_none()
                        && let Some(usual) = self.limit_answer(log, too_long)?
                    {
                        usual_limit = Some(usual);
                        sent = self.render(&request)?;
                        continue;
                    }
                    self.end_limit(usual_limit);
                    return Ok(ModelReply::TooLong(Rejected {
                        why,
                        window: too_long.window,
                        is_guess: too_long.is_guess,
                        request_bytes: self.invocations.last_request().len() as u64,
                    }));
                }
                Asked::Quota(why, until) => (ModelFailure::Quota, why, until),
                Asked::Unavailable(why, until) => (ModelFailure::Unavailable, why, until),
            };
            self.end_limit(usual_limit);
            return Ok(ModelReply::Failed(FailedModel { how, why, until }));
        }
    }

    fn answered(
        &mut self,
        last_part: Answer,
        invocation: String,
        (began, prefix): (Instant, String),
    ) -> ModelReply {
        let mut answer = self.wire.whole(last_part);
        self.model.redact_joined(&mut answer);
        ModelReply::Answered(Box::new(Answered {
            answer,
            invocation,
            began,
            prefix,
            request_bytes: self.invocations.last_request().len() as u64,
        }))
    }

    fn may_be_too_long(&self) -> bool {
        let bytes = self.invocations.last_request().len() as u64;
        self.sizes.may_be_too_long(bytes)
    }

    /// True if all attachments of the conversation are lines already; those of a hook are not.
    fn lacks_attachments(&self) -> bool {
        self.transcript.form().shown.not_from == Some(0)
    }

    /// Records a request that is about to be sent, or goes on with one whose answer an earlier start has left open.
    fn begin_invocation(
        &mut self,
        iteration: u64,
        sent: &mut Sent,
        aside: Option<&[u8]>,
    ) -> Result<Begun> {
        let conversation = aside.unwrap_or(self.transcript.messages());
        if let Some(resumed) = self.invocations.resume(conversation) {
            let (text, _) = self.attachments.cut_marks(std::mem::take(&mut sent.bytes));
            if text != self.invocations.last_request() {
                // What the model reads now is not what it was asked with.
                sent.prefix.clear();
            }
            return Ok(resumed);
        }
        let purpose = aside.map_or("", |_| "_compaction");
        let bytes = std::mem::take(&mut sent.bytes);
        let (text, gaps) = self.attachments.cut_marks(bytes);
        self.attachments.gaps = gaps;
        let request = (text, &self.attachments.gaps[..]);
        self.invocations.begin(iteration, purpose, request)
    }

    /// Asks for a shorter answer, with which a request that was too long fits, if there is room for one. Returns the limit
    /// that was in force.
    fn limit_answer(
        &mut self,
        log: &mut RunLog<'_>,
        too_long: TooLong,
    ) -> Step<Option<Option<u64>>> {
        let Some(most) = too_long.max_tokens else {
            return Ok(None);
        };
        let usual = self.wire.limit_answers(Some(most));
        let note = format!("the request leaves room for {most} tokens; asking for no more");
        log.record_note(Level::Info, &note)?;
        halt_on(log.must_end())?;
        Ok(Some(usual))
    }

    fn end_limit(&mut self, usual: Option<Option<u64>>) {
        if let Some(usual) = usual {
            self.wire.limit_answers(usual);
        }
    }

    /// Records a part of an answer, after which the service has paused, so that no start asks for it again.
    fn take_pause(&mut self, log: &mut RunLog<'_>, mut part: Answer, prefix: &str) -> Step<()> {
        self.model.redact_joined(&mut part);
        let record = self.wire.record_pause(&part, prefix);
        self.wire.go_on_from(part, prefix);
        let pauses = self.wire.pauses();
        let note =
            format!("the service paused within its answer ({pauses}), and is asked to go on");
        log.record_fact(Level::Info, &note, Some(Fact::Pause(&record)))?;
        // It has been paid for.
        log.make_durable()?;
        if pauses > MOST_PAUSES {
            let why = format!("the service paused one answer more than {MOST_PAUSES} times");
            return Err(Ending::new(StopReason::ModelRefused, why).into());
        }
        Ok(())
    }

    /// The request as the service reads it. One that is played back is sent as it was recorded, if that
    /// differs only by what was done about a refusal.
    fn render(&mut self, request: &Neutral) -> Result<Sent> {
        let broken = |why: String| Error::failure(format!("the request cannot be sent: {why}"));
        if let Some(playback) = self.model.playback()
            && let Some(recorded) = playback.next_request()?
        {
            self.wire.adopt(recorded);
            let render = |wire: &mut Wire| {
                let sent = wire.render(request)?;
                let is_paused = wire.api() != Api::Chat && wire.adopt_pause(&sent.bytes, recorded);
                match is_paused {
                    true => wire.render(request),
                    false => Ok(sent),
                }
            };
            let sent = render(&mut self.wire).map_err(broken)?;
            let without = Remedy::WithoutReasoning;
            if sent.bytes != recorded && self.wire.apply_to(request, without) {
                let other = render(&mut self.wire).map_err(broken)?;
                if other.bytes == recorded {
                    return Ok(other);
                }
                self.wire.undo_without_reasoning();
            }
            return Ok(sent);
        }
        self.wire.render(request).map_err(broken)
    }

    fn note_remedy(&mut self, log: &mut RunLog<'_>, remedy: Remedy) -> Result<()> {
        let level = match remedy {
            Remedy::WithoutReasoning => Level::Warn,
            Remedy::WithoutInclude
            | Remedy::WithoutStreamOptions
            | Remedy::WithoutStream
            | Remedy::MaxTokens(_) => Level::Info,
        };
        self.sizes.was_taken = false;
        let record = self.wire.record_remedy(remedy);
        let fact = Some(Fact::Remedy(&record));
        log.record_fact(level, &remedy.description(), fact)
    }

    fn send_request(
        &mut self,
        log: &mut RunLog<'_>,
        limits: &mut Limits<'_>,
        invoked: &Begun,
        aside: Option<&[u8]>,
    ) -> Result<Asked> {
        let screen = log.screen;
        let name = self.agent.llm.model.as_deref().unwrap_or("the model");
        let line = log.wait_for(aside.map_or(name, |_| "a summary"));
        let extends = invoked
            .extends
            .as_ref()
            .map(|extends| (extends.invocation.as_str(), extends.bytes));
        let text = self.invocations.last_request();
        let (body, marked) = self.attachments.body(text)?;
        let invocation = Invocation {
            dir: &invoked.dir,
            request: &body,
            marked: &marked,
            wire: &self.wire,
            extends,
            context: self.builder.new_files(),
            conversation: aside.unwrap_or(self.transcript.messages()),
            is_open: invoked.is_open,
            may_be_silent: aside.is_some(),
        };
        let patience = Patience {
            max_retries: self.agent.llm.max_retries as u32,
            deadline: limits.time_limit(),
        };
        let signals = &self.ctx.signals;
        let sent = (invoked.name.as_str(), self.sizes.booked_bytes(text));
        let mut purse = |attempt, expense| limits.book(sent, attempt, &expense);
        let (engine_log, mut attempts) = (&self.ctx.log, 1);
        let notify = |text: &str| {
            engine_log.line(Level::Warn, text);
            screen.progress(&[(Tone::Bad, text)]);
            attempts += 1;
            line.set_last_words(&format!("attempt {attempts}"));
        };
        let model = &mut self.model;
        let mut said = String::new();
        let streamed = &mut self.streamed;
        let mut listener = |heard: Heard<'_>| {
            if aside.is_none() {
                streamed.hear(&heard);
            }
            match heard {
                Heard::Text(words) | Heard::Reasoning(words) | Heard::Call(words) => {
                    said.push_str(words);
                }
                Heard::Anew => said.clear(),
            }
            said = last_words(&said);
            line.set_last_words(&said);
        };
        let asked = ask::ask_model(
            model,
            &invocation,
            patience,
            signals,
            &mut purse,
            notify,
            &mut listener,
        )?;
        drop(line);
        if let Asked::Answered(answer) = &asked {
            limits.count_tokens(answer.usage.unwrap_or_default().total_tokens);
        }
        limits.mention_uncounted(log)?;
        Ok(asked)
    }

    fn log_invocation(&self, name: &str, asked: &Asked, began: Instant) {
        let (level, how) = match asked {
            Asked::Answered(_) => (Level::Debug, "answered".to_owned()),
            Asked::Stopped(stop) => (Level::Info, format!("ended by {}", stop.name())),
            Asked::Open(why) => (Level::Info, why.clone()),
            Asked::OutOfTime => (Level::Warn, "no time left for another attempt".to_owned()),
            Asked::Denied(_) => (Level::Warn, "denied before an attempt".to_owned()),
            Asked::Refused(why, _)
            | Asked::AttachmentsRefused(why)
            | Asked::TooLong(why, _)
            | Asked::Quota(why, _)
            | Asked::Unavailable(why, _) => (Level::Warn, why.clone()),
        };
        let took = began.elapsed().as_millis();
        let text = format!("invocation {name}: {how}, after {took} ms");
        self.ctx.log.line(level, &text);
    }

    /// Brings the transcript up to the journal as it is now.
    pub(super) fn catch_up(&mut self, log: &mut RunLog<'_>) -> Result<()> {
        self.read_gained(log)?;
        while self
            .attachments
            .settle(log, &mut self.transcript, &mut self.sizes)?
        {
            self.read_gained(log)?;
        }
        Ok(())
    }

    fn read_gained(&mut self, log: &mut RunLog<'_>) -> Result<()> {
        let mut lines = Vec::new();
        let read_to = self.transcript.read_to();
        if log.journal.read_new(read_to, &mut lines)? == 0 {
            self.transcript.forget();
        }
        loop {
            let added = self.transcript.add(&lines);
            if added.map_err(|e| unreadable(&e, &log.journal))? {
                return Ok(());
            }
            lines.clear();
            log.journal.read_new(0, &mut lines)?;
        }
    }

    /// The next request, from the journal as it is now.
    pub(super) fn build_request(&mut self, log: &mut RunLog<'_>) -> Step<Neutral> {
        self.catch_up(log)?;
        let _line = log.wait_for("the context");
        let recorded = match self.model.playback() {
            Some(playback) => playback.upcoming()?,
            None => None,
        };
        let messages = self.transcript.messages();
        let iteration = log.iteration;
        let buffer = self.invocations.buffer();
        let built = self
            .builder
            .request(self.ctx, messages, iteration, recorded, buffer);
        for text in self.builder.lacking() {
            log.warn(text);
        }
        built.map_err(|unbuilt| match unbuilt {
            Unbuilt::Unavailable(why) => {
                let ending = log.must_end();
                let ending = ending.unwrap_or_else(|| Ending::new(StopReason::Context, why));
                ending.into()
            }
            Unbuilt::Failed(error) => error.into(),
        })
    }

    /// Gives calls that came without ids those under which they were recorded.
    pub(super) fn name_as_recorded(&mut self, answer: &mut Answer) {
        if let Some(playback) = self.model.playback() {
            for (call, id) in answer.calls.iter_mut().zip(playback.ids()) {
                if call.id.is_empty() {
                    call.id.clone_from(id);
                }
            }
        }
    }

    /// Notes that the conversation goes on over another API than that of the last answer.
    pub(super) fn note_other_api(&self, log: &mut RunLog<'_>, from: &str) -> Result<()> {
        let api = self.wire.api().name();
        if from == api {
            return Ok(());
        }
        let note = format!(
            "the last answer came over the API {from}, and {api} is asked now: what was said goes on, \
             without the model's reasoning"
        );
        log.record_note(Level::Info, &note)
    }
}
