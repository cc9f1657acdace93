//! One thought: build the request, ask, record the answer.

use super::calls::OpenCall;
use super::written_call::called_in;
use super::{Ending, Engine};
use crate::config::agent::HookEvent;
use crate::config::api::Api;
use crate::error::{At, Error, Result};
use crate::model::ask::{self, Asked, Invocation, Patience};
use crate::model::attempt::Remedy;
use crate::model::calls::{calls_json, make_ids_unique};
use crate::model::response::{Answer, parse};
use crate::model::wire::{Heard, Neutral, Sent, Wire};
use crate::record::engine_log::Level;
use crate::record::event::{Event, Fact, FinishReason, Tokens};
use crate::record::invocations::Begun;
use crate::record::run_dir::reference;
use crate::record::stop_reason::StopReason;
use crate::text::shorten::in_short;
use crate::unix::terminal::{Tone, time};
use std::path::Path;
use std::time::Instant;

/// A service that pauses more often than this within one answer is not asked to go on.
const MOST_PAUSES: u32 = 30;

/// An answer of the model that is not in the journal yet.
struct Answered {
    answer: Answer,
    /// The invocation's directory, from the run's directory.
    invocation: String,
    /// When the request was sent.
    began: Instant,
    /// The digest of what the model read before it answered.
    prefix: String,
}

/// The step that follows a thought.
pub(super) enum ThoughtOutcome {
    /// Calls to be run.
    Calls(Vec<OpenCall>),
    /// A final answer, which is still to be judged.
    Answer(String),
    /// The end of this start.
    End(Ending),
}

/// The end of a text on one line.
fn last_words(text: &str) -> String {
    const CHARACTERS: usize = 60;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let skipped = line.chars().count().saturating_sub(CHARACTERS);
    let end = if text.ends_with(char::is_whitespace) {
        " "
    } else {
        ""
    };
    line.chars().skip(skipped).chain(end.chars()).collect()
}

/// The end of a run whose last answer was cut off. `detail` is the service's own word on why.
pub(super) fn cut_off(reason: &FinishReason<'_>, detail: Option<&str>, api: Api) -> Ending {
    match (reason, detail) {
        (FinishReason::Length, Some(detail)) => Ending::new(
            StopReason::Length,
            format!("the model's answer was cut off (finish_reason: length): {detail}"),
        ),
        (FinishReason::Length, None) => {
            let text = format!(
                "the model's answer was cut off at its limit of tokens (finish_reason: length); \
                 raise {}, or ask for less",
                api.limit_key()
            );
            Ending::new(StopReason::Length, text)
        }
        (_, detail) => {
            let detail = detail.map_or_else(String::new, |detail| format!(": {detail}"));
            let text = "the model's answer was filtered (finish_reason: content_filter)";
            Ending::new(StopReason::ContentFilter, format!("{text}{detail}"))
        }
    }
}

fn tokens_of(answer: &Answer) -> u64 {
    answer.usage.unwrap_or_default().total_tokens
}

impl Engine<'_> {
    pub(super) fn think(&mut self) -> Result<ThoughtOutcome> {
        self.log.iteration += 1;
        match self.ask_model()? {
            Ok(answered) => self.record_answer(answered),
            Err(ending) => {
                // Only an iteration with an answer counts.
                self.log.iteration -= 1;
                Ok(ThoughtOutcome::End(ending))
            }
        }
    }

    /// Gets the model's next answer, or the end that came instead.
    fn ask_model(&mut self) -> Result<std::result::Result<Answered, Ending>> {
        self.run_hooks(HookEvent::OnIterationStart, b"{}")?;
        if let Some(ending) = self.must_end() {
            return Ok(Err(ending));
        }
        let request = match self.build_request()? {
            Ok(request) => request,
            Err(unavailable) => {
                let ending = self.must_end();
                return Ok(Err(
                    ending.unwrap_or_else(|| Ending::new(StopReason::Context, unavailable))
                ));
            }
        };
        let mut request = self.before_request(request)?;
        if let Some(ending) = self.must_end() {
            return Ok(Err(ending));
        }
        let mut sent = self.render(&mut request)?;
        self.streamed.begin();
        loop {
            let began = Instant::now();
            let invoked = match self.invocations.resume(self.transcript.messages()) {
                Some(resumed) => {
                    if sent.bytes != self.invocations.last_request() {
                        // What the model reads now is not what it was asked with.
                        sent.prefix.clear();
                    }
                    resumed
                }
                None => self.invocations.begin(self.log.iteration, sent.bytes)?,
            };
            let asked = self.send_request(&invoked)?;
            self.log_invocation(&invoked.name, &asked, began);
            let ending = match asked {
                Asked::Answered(answer) if answer.is_paused => {
                    if let Some(ending) = self.take_pause(*answer, &sent.prefix)? {
                        return Ok(Err(ending));
                    }
                    sent = self.render(&mut request)?;
                    continue;
                }
                Asked::Answered(answer) => {
                    let response = invoked.dir.join("response.json");
                    let answer = self.complete_answer(*answer, &response)?;
                    match self.ctx.signals.stop() {
                        // A hook that was to look at the answer may have been kept from it.
                        Some(stop) => Ending::stopped(stop),
                        None => {
                            return Ok(Ok(Answered {
                                answer,
                                invocation: reference("invocations", &invoked.name),
                                began,
                                prefix: sent.prefix,
                            }));
                        }
                    }
                }
                Asked::Stopped(stop) => Ending::stopped(stop),
                Asked::OutOfTime => self.limits.out_of_time(),
                Asked::Denied(denial) => Ending::denied(denial),
                Asked::Refused(why, remedy) => {
                    if let Some(remedy) = remedy.filter(|remedy| self.wire.apply(*remedy)) {
                        self.note_remedy(remedy)?;
                        if let Some(ending) = self.must_end() {
                            return Ok(Err(ending));
                        }
                        sent = self.render(&mut request)?;
                        continue;
                    }
                    Ending::new(StopReason::ModelRefused, why)
                }
                Asked::ContextFull(why) => Ending::new(StopReason::ContextFull, why),
                Asked::Unavailable(why) => Ending::new(StopReason::ModelUnavailable, why),
            };
            return Ok(Err(ending));
        }
    }

    /// The answer with the parts that came before it, as hooks leave it. `response` is the file that has it.
    fn complete_answer(&mut self, last_part: Answer, response: &Path) -> Result<Answer> {
        self.limits.count_tokens(tokens_of(&last_part));
        let mut answer = self.wire.whole(last_part);
        self.model.redact_joined(&mut answer);
        let mut answer = self.after_response(answer, response)?;
        self.name_as_recorded(&mut answer);
        Ok(answer)
    }

    /// Records a part of an answer, after which the service has paused, so that no start asks for it again.
    /// Returns the end that comes before the next part, if one does.
    fn take_pause(&mut self, mut part: Answer, prefix: &str) -> Result<Option<Ending>> {
        self.limits.count_tokens(tokens_of(&part));
        self.model.redact_joined(&mut part);
        let record = self.wire.record_pause(&part, prefix);
        self.wire.go_on_from(part, prefix);
        let pauses = self.wire.pauses();
        let note =
            format!("the service paused within its answer ({pauses}), and is asked to go on");
        self.log
            .record_fact("INFO", &note, Some(Fact::Pause(&record)))?;
        // It has been paid for.
        self.log.make_durable()?;
        if pauses > MOST_PAUSES {
            let why = format!("the service paused one answer more than {MOST_PAUSES} times");
            return Ok(Some(Ending::new(StopReason::ModelRefused, why)));
        }
        Ok(self.must_end().or_else(|| self.limit_reached()))
    }

    /// The request as the service reads it. One that is played back is sent as it was recorded, if that
    /// differs only by what was done about a refusal.
    fn render(&mut self, request: &mut Neutral) -> Result<Sent> {
        let broken = |why: String| Error::failure(format!("the request cannot be sent: {why}"));
        if let Some(playback) = self.model.playback()
            && let Some(recorded) = playback.next_request()?
        {
            self.wire.adopt(recorded);
            if self.wire.api() == Api::Chat {
                return self.wire.render(request).map_err(broken);
            }
            let mut render = |wire: &mut Wire| {
                let sent = wire.render(request)?;
                match wire.adopt_pause(&sent.bytes, recorded) {
                    true => wire.render(request),
                    false => Ok(sent),
                }
            };
            let sent = render(&mut self.wire).map_err(broken)?;
            if sent.bytes != recorded && self.wire.apply(Remedy::WithoutReasoning) {
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

    fn note_remedy(&mut self, remedy: Remedy) -> Result<()> {
        let level = match remedy {
            Remedy::WithoutReasoning => "WARN",
            Remedy::WithoutInclude | Remedy::WithoutStreamOptions | Remedy::MaxTokens(_) => "INFO",
        };
        let record = self.wire.record_remedy(remedy);
        let fact = Some(Fact::Remedy(&record));
        self.log.record_fact(level, &remedy.description(), fact)
    }

    fn send_request(&mut self, invoked: &Begun) -> Result<Asked> {
        let screen = self.log.screen;
        let name = self.ctx.agent.llm.model.as_deref().unwrap_or("the model");
        let line = self.log.wait_for(name);
        let extends = invoked
            .extends
            .as_ref()
            .map(|extends| (extends.invocation.as_str(), extends.bytes));
        let invocation = Invocation {
            dir: &invoked.dir,
            request: self.invocations.last_request(),
            wire: &self.wire,
            extends,
            conversation: self.transcript.messages(),
            is_open: invoked.is_open,
        };
        let patience = Patience {
            max_retries: self.ctx.agent.llm.max_retries,
            deadline: self.limits.time_limit(),
        };
        let signals = &self.ctx.signals;
        let sent = (invoked.name.as_str(), invocation.request.len());
        let limits = &mut self.limits;
        let mut purse = |attempt, expense| limits.book(sent, attempt, &expense);
        let (log, mut attempts) = (&self.ctx.log, 1);
        let notify = |text: &str| {
            log.line(Level::Warn, text);
            screen.progress(&[(Tone::Bad, text)]);
            attempts += 1;
            line.set_last_words(&format!("attempt {attempts}"));
        };
        let model = &mut self.model;
        let mut said = String::new();
        let streamed = &mut self.streamed;
        let mut listener = |heard: Heard<'_>| {
            streamed.hear(&heard);
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
        self.limits.mention_uncounted(&mut self.log)?;
        Ok(asked)
    }

    fn log_invocation(&self, name: &str, asked: &Asked, began: Instant) {
        let (level, how) = match asked {
            Asked::Answered(_) => (Level::Debug, "answered".to_owned()),
            Asked::Stopped(stop) => (Level::Info, format!("ended by {}", stop.name())),
            Asked::OutOfTime => (Level::Warn, "no time left for another attempt".to_owned()),
            Asked::Denied(_) => (Level::Warn, "denied before an attempt".to_owned()),
            Asked::Refused(why, _) | Asked::ContextFull(why) | Asked::Unavailable(why) => {
                (Level::Warn, why.clone())
            }
        };
        let took = began.elapsed().as_millis();
        let text = format!("invocation {name}: {how}, after {took} ms");
        self.ctx.log.line(level, &text);
    }

    /// The next request, from the journal as it is now.
    fn build_request(&mut self) -> Result<std::result::Result<Neutral, String>> {
        self.catch_up()?;
        let _line = self.log.wait_for("the context");
        let recorded = match self.model.playback() {
            Some(playback) => playback.upcoming()?,
            None => None,
        };
        let messages = self.transcript.messages();
        let built = self.builder.request(
            self.ctx,
            messages,
            self.log.iteration,
            recorded,
            self.invocations.buffer(),
        )?;
        Ok(built.map_err(|unavailable| unavailable.0))
    }

    /// Gives calls that came without ids those under which they were recorded.
    fn name_as_recorded(&mut self, answer: &mut Answer) {
        if let Some(playback) = self.model.playback() {
            for (call, id) in answer.calls.iter_mut().zip(playback.ids()) {
                if call.id.is_empty() {
                    call.id.clone_from(id);
                }
            }
        }
    }

    fn after_response(&mut self, answer: Answer, response: &Path) -> Result<Answer> {
        if !self.has_hook(HookEvent::PostLlmResponse) {
            return Ok(answer);
        }
        let raw = match self.wire.api() {
            Api::Chat => crate::unix::files::read_regular(response).at("read", response)?,
            // Hooks know one form.
            Api::Responses | Api::Messages => answer.as_completion(),
        };
        let Some(changed) =
            self.transform_payload(HookEvent::PostLlmResponse, &["payload.json"], raw)?
        else {
            return Ok(answer);
        };
        match parse(&changed) {
            // What was spent has been spent, whatever the hook leaves of it.
            Ok(mut changed) => {
                self.model.redact_joined(&mut changed);
                if self.wire.api() != Api::Chat {
                    changed.items = answer.items;
                    changed.view = answer.view;
                }
                Ok(Answer {
                    usage: answer.usage.or(changed.usage),
                    terms: answer.terms,
                    ..changed
                })
            }
            Err(no_answer) => {
                self.warn_of(HookEvent::PostLlmResponse, &no_answer.why)?;
                Ok(answer)
            }
        }
    }

    /// Records an answer, and says what follows.
    fn record_answer(&mut self, answered: Answered) -> Result<ThoughtOutcome> {
        let Answered {
            mut answer, began, ..
        } = answered;
        make_ids_unique(&mut answer.calls, |id| self.transcript.has_id(id));
        self.add_thought(&answer, &answered.invocation, &answered.prefix);
        self.limits.count_iteration();
        let usage = answer.usage.unwrap_or_default();
        self.log.metadata.usage.tokens.add(usage);
        self.log.metadata.usage.llm_calls += 1;
        self.print_thought(&answer, usage, began);
        let cut_off_at = answer.finish_reason.as_ref().filter(|it| it.is_cut_off());
        let cut = cut_off_at.is_some();
        let open: Vec<OpenCall> = answer
            .calls
            .iter()
            .enumerate()
            .map(|(before, call)| OpenCall::new(call, cut, before))
            .collect();
        if let Some(reason) = cut_off_at {
            let ending = cut_off(reason, answer.finish_detail.as_deref(), self.wire.api());
            if open.is_empty() {
                self.run_hooks(HookEvent::OnIterationEnd, b"{}")?;
            } else {
                self.run_calls(open)?;
            }
            return Ok(ThoughtOutcome::End(ending));
        }
        if open.is_empty() {
            self.log.journal.flush()?;
            self.note_written_call(&answer.text)?;
            self.run_hooks(HookEvent::OnIterationEnd, b"{}")?;
            // A hook that ends the run has not agreed with the answer.
            let ending = self.stopped_by_hook();
            return Ok(match ending {
                Some(ending) => ThoughtOutcome::End(ending),
                None => ThoughtOutcome::Answer(answer.text),
            });
        }
        self.log.update_metadata()?;
        Ok(ThoughtOutcome::Calls(open))
    }

    /// Puts an answer into the journal. It is durable before its first action is.
    fn add_thought(&mut self, answer: &Answer, invocation: &str, prefix: &str) {
        let calls = (!answer.calls.is_empty()).then(|| calls_json(&answer.calls));
        let wire = self
            .wire
            .record(answer, calls.as_deref().unwrap_or_default(), prefix);
        let invalid: Vec<(String, String)> = answer
            .calls
            .iter()
            .filter_map(|call| Some((call.id.clone(), call.invalid.clone()?)))
            .collect();
        let reasoning: Vec<(&'static str, &[u8])> = answer
            .reasoning
            .iter()
            .map(|(name, json)| (*name, json.as_slice()))
            .collect();
        self.log.add(&Event::Thought {
            content_json: &answer.content_json,
            tool_calls_json: calls.as_deref(),
            invalid_arguments: &invalid,
            reasoning: &reasoning,
            finish_reason: answer.finish_reason.as_ref(),
            model: answer.model.as_deref(),
            usage: answer.usage,
            terms: &answer.terms,
            llm_invocation_ref: invocation,
            wire_json: wire.as_deref(),
        });
    }

    /// Notes that an answer is a call that the service has not recognized.
    fn note_written_call(&mut self, text: &str) -> Result<()> {
        let agent = self.ctx.agent;
        let names = agent.tools.iter().map(|tool| tool.name.as_str());
        let Some(name) = called_in(text, names) else {
            return Ok(());
        };
        let note = format!(
            "the answer is a call of the tool {name} written as text, and nothing was run: the model server has not \
             recognized it; look whether its chat template supports tools"
        );
        self.log.record_note("WARN", &note)
    }

    fn print_thought(&self, answer: &Answer, usage: Tokens, began: Instant) {
        let took = time(began.elapsed());
        let figures = match usage.total_tokens {
            0 => format!(" ({took})"),
            tokens => format!(" ({took}, {tokens} tokens)"),
        };
        let is_told = answer.text.trim().is_empty() || self.streamed.is_shown(&answer.text);
        let text = if is_told && !answer.calls.is_empty() {
            let names: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
            format!("calls {}", names.join(", "))
        } else if answer.calls.is_empty() {
            "answers".to_owned()
        } else if self.log.screen.verbose {
            answer.text.clone()
        } else {
            in_short(&answer.text, 100)
        };
        self.log
            .print_progress(&[(Tone::Said, &text), (Tone::Dim, &figures)]);
    }
}
