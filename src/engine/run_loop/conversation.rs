//! The conversation with the model: the request, its way to the service, the answer.
//!
//! Unaware of hooks, and of what an answer leads to.

use super::fallback::chain::FailedModel;
use super::outcome::{Ending, Step};
use super::{Engine, unreadable};
use crate::config::agent::ModelFailure;
use crate::config::api::Api;
use crate::engine::request::Unbuilt;
use crate::error::Result;
use crate::model::ask::{self, Asked, Invocation, Patience};
use crate::model::attempt::Remedy;
use crate::model::response::Answer;
use crate::model::wire::{Heard, Neutral, Sent};
use crate::record::engine_log::Level;
use crate::record::event::{NoteEvent, RawJson};
use crate::record::invocations::Begun;
use crate::record::run_dir::reference;
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
    /// Time of the request.
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

impl Engine<'_> {
    /// Length of a request as the service reads it.
    pub(super) fn measure(&mut self, request: &Neutral) -> Result<u64> {
        if self.wire.api() == Api::Chat {
            return Ok(request.bytes.len() as u64);
        }
        Ok(self.render(request)?.bytes.len() as u64)
    }

    /// The request as the service reads it.
    fn render(&mut self, request: &Neutral) -> Result<Sent> {
        self.model.render(&mut self.wire, request)
    }

    /// The length of the newest request.
    fn request_bytes(&self) -> u64 {
        self.invocations.last_request().len() as u64
    }

    /// Sends a request until there is an answer, of which hooks have seen nothing yet, or the model fails. One that is made `aside` has
    /// these messages in place of the conversation, and its answer is not shown.
    pub(super) fn ask(&mut self, request: &Neutral, aside: Option<&[u8]>) -> Step<ModelReply> {
        let mut sent = self.render(request)?;
        self.streamed.begin(self.log.iteration);
        let mut usual_limit = None;
        let reply = loop {
            let began = Instant::now();
            let invoked = self.begin_invocation(&mut sent, aside)?;
            let asked = self.send_request(&invoked, aside)?;
            self.log_invocation(&invoked.name, &asked, began);
            let (how, why, until) = match self.believed(asked, aside.is_some()) {
                Asked::Answered(answer) if answer.is_paused && aside.is_none() => {
                    self.take_pause(*answer, &sent.prefix)?;
                    self.may_ask()?;
                    sent = self.render(request)?;
                    continue;
                }
                Asked::Answered(last_part) => {
                    let mut answer = self.wire.whole(*last_part);
                    self.model.finish(&mut answer);
                    break ModelReply::Answered(Box::new(Answered {
                        answer,
                        invocation: reference("invocations", &invoked.name),
                        began,
                        prefix: sent.prefix,
                        request_bytes: self.request_bytes(),
                    }));
                }
                Asked::Stopped(stop) => return Err(Ending::stopped(stop).into()),
                Asked::OutOfTime => return Err(self.limits.out_of_time().into()),
                Asked::Open(why) => return Err(self.limits.left_open(why).into()),
                Asked::Denied(denial) => return Err(Ending::denied(denial).into()),
                Asked::Refused(why, remedy) => {
                    let remedy = remedy.filter(|it| self.wire.apply_to(request, *it));
                    if let Some(remedy) = remedy {
                        self.note_remedy(remedy)?;
                        self.go_on()?;
                        sent = self.render(request)?;
                        continue;
                    }
                    (ModelFailure::Refused, why, None)
                }
                Asked::AttachmentsRefused(why) => break ModelReply::AttachmentsRefused(why),
                Asked::TooLong(why, too_long) => {
                    // With a shorter answer it may fit.
                    if let Some(most) = too_long.max_tokens.filter(|_| usual_limit.is_none()) {
                        usual_limit = Some(self.wire.limit_answers(Some(most)));
                        let note = format!(
                            "the request leaves room for {most} tokens; asking for no more"
                        );
                        self.log.record_note(Level::Info, &note)?;
                        self.go_on()?;
                        sent = self.render(request)?;
                        continue;
                    }
                    break ModelReply::TooLong(Rejected {
                        why,
                        window: too_long.window,
                        is_guess: too_long.is_guess,
                        request_bytes: self.request_bytes(),
                    });
                }
                Asked::Quota(why, until) => (ModelFailure::Quota, why, until),
                Asked::Unavailable(why, until) => (ModelFailure::Unavailable, why, until),
            };
            break ModelReply::Failed(FailedModel { how, why, until });
        };
        if let Some(usual) = usual_limit {
            self.wire.limit_answers(usual);
        }
        Ok(reply)
    }

    /// A reply of the service, or a refusal of the request if what it says cannot be the reason.
    fn believed(&self, asked: Asked, is_aside: bool) -> Asked {
        match asked {
            // All of the conversation are lines already; those of a hook are not.
            Asked::AttachmentsRefused(why) if self.transcript.form().shown.not_from == Some(0) => {
                Asked::Refused(why, None)
            }
            Asked::TooLong(why, too_long)
                if too_long.is_guess
                    && (is_aside || !self.sizes.may_be_too_long(self.request_bytes())) =>
            {
                Asked::Refused(why, None)
            }
            asked => asked,
        }
    }

    /// Records a request that is about to be sent, or goes on with one whose answer an earlier start has left open.
    fn begin_invocation(&mut self, sent: &mut Sent, aside: Option<&[u8]>) -> Result<Begun> {
        let conversation = aside.unwrap_or(self.transcript.messages());
        let resumed = self.invocations.resume(conversation);
        let bytes = std::mem::take(&mut sent.bytes);
        let (text, gaps) = self.attachments.cut_marks(bytes);
        if let Some(resumed) = resumed {
            if text != self.invocations.last_request() {
                // What the model reads now is not what it was asked with.
                sent.prefix.clear();
            }
            return Ok(resumed);
        }
        let purpose = aside.map_or("", |_| "_compaction");
        self.attachments.gaps = gaps;
        let request = (text, &self.attachments.gaps[..]);
        self.invocations.begin(self.log.iteration, purpose, request)
    }

    /// Records a part of an answer, after which the service has paused, so that no start asks for it again.
    fn take_pause(&mut self, mut part: Answer, prefix: &str) -> Step<()> {
        self.model.finish(&mut part);
        let record = self.wire.record_pause(&part, prefix);
        self.wire.go_on_from(part, prefix);
        let pauses = self.wire.pauses();
        let note =
            format!("the service paused within its answer ({pauses}), and is asked to go on");
        self.log.record(NoteEvent {
            pause: Some(RawJson(&record)),
            ..NoteEvent::new(Level::Info, &note)
        })?;
        // It has been paid for.
        self.log.make_durable()?;
        if pauses > MOST_PAUSES {
            let why = format!("the service paused one answer more than {MOST_PAUSES} times");
            return Err(Ending::new(StopReason::ModelRefused, why).into());
        }
        Ok(())
    }

    fn note_remedy(&mut self, remedy: Remedy) -> Result<()> {
        let level = match remedy {
            Remedy::WithoutReasoning => Level::Warn,
            Remedy::WithoutInclude
            | Remedy::WithoutStreamOptions
            | Remedy::WithoutStream
            | Remedy::MaxTokens(_) => Level::Info,
        };
        self.sizes.was_taken = false;
        let record = self.wire.record_remedy(remedy);
        self.log.record(NoteEvent {
            remedy: Some(RawJson(&record)),
            ..NoteEvent::new(level, &remedy.description())
        })
    }

    fn send_request(&mut self, invoked: &Begun, aside: Option<&[u8]>) -> Result<Asked> {
        let screen = self.log.screen;
        let name = self.asked.llm.model.as_deref().unwrap_or("the model");
        let line = self.log.wait_for(aside.map_or(name, |_| "a summary"));
        let extends = invoked.extends.as_ref();
        let text = self.invocations.last_request();
        let (body, marked) = self.attachments.body(text)?;
        let invocation = Invocation {
            dir: &invoked.dir,
            request: &body,
            marked: &marked,
            wire: &self.wire,
            extends: extends.map(|it| (it.invocation.as_str(), it.bytes)),
            context: self.builder.new_files(),
            conversation: aside.unwrap_or(self.transcript.messages()),
            is_open: invoked.is_open,
            may_be_silent: aside.is_some(),
        };
        let limits = &mut self.limits;
        let patience = Patience {
            max_retries: self.asked.llm.max_retries as u32,
            deadline: limits.time_limit(),
        };
        let (name, bytes) = (&invoked.name, self.sizes.booked_bytes(text));
        let mut book = |attempt, expense| limits.book(name, bytes, attempt, &expense);
        let (engine_log, mut attempts) = (&self.ctx.log, 1);
        let notify = |text: &str| {
            engine_log.line(Level::Warn, text);
            screen.progress(&[(Tone::Bad, text)]);
            attempts += 1;
            line.set_last_words(&format!("attempt {attempts}"));
        };
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
            &mut self.model,
            &invocation,
            patience,
            &self.ctx.signals,
            &mut book,
            notify,
            &mut listener,
        );
        drop(line);
        self.streamed.end();
        let asked = asked?;
        if let Asked::Answered(answer) = &asked {
            limits.count_tokens(answer.usage.unwrap_or_default().total_tokens);
        }
        limits.mention_uncounted(&mut self.log)?;
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
    pub(super) fn catch_up(&mut self) -> Result<()> {
        self.read_gained()?;
        while self.settle_attachments()? {
            self.read_gained()?;
        }
        Ok(())
    }

    fn read_gained(&mut self) -> Result<()> {
        let mut lines = Vec::new();
        let read_to = self.transcript.read_to();
        if self.log.journal.read_new(read_to, &mut lines)? == 0 {
            self.transcript.forget();
        }
        loop {
            let added = self.transcript.add(&lines);
            if added.map_err(|e| unreadable(&e, &self.log.journal))? {
                return Ok(());
            }
            lines.clear();
            self.log.journal.read_new(0, &mut lines)?;
        }
    }

    /// The next request, from the journal as it is now.
    pub(super) fn build_request(&mut self) -> Step<Neutral> {
        self.catch_up()?;
        let _line = self.log.wait_for("the context");
        let messages = self.transcript.messages();
        let buffer = self.invocations.buffer();
        let built = self
            .builder
            .request(self.ctx, messages, self.log.iteration, buffer);
        for text in self.builder.lacking() {
            self.log.warn(text);
        }
        built.map_err(|unbuilt| match unbuilt {
            Unbuilt::Unavailable(why) => {
                let ending = self
                    .log
                    .must_end()
                    .unwrap_or_else(|| Ending::new(StopReason::Context, why));
                ending.into()
            }
            Unbuilt::Failed(error) => error.into(),
        })
    }

    /// Notes that the conversation goes on over another API than that of the last answer.
    pub(super) fn note_other_api(&mut self, from: &str) -> Result<()> {
        let api = self.wire.api().name();
        if from == api {
            return Ok(());
        }
        let note = format!(
            "the last answer came over the API {from}, and {api} is asked now: what was said goes on, \
             without the model's reasoning"
        );
        self.log.record_note(Level::Info, &note)
    }
}
