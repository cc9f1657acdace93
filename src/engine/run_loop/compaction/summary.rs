//! The summary of a conversation. The question for it follows the unchanged conversation.

use super::super::Engine;
use super::super::conversation::ModelReply;
use super::super::fallback::change_model;
use super::super::hook_points::{after_response, before_request, see_compactions};
use super::super::outcome::{Step, halt_on};
use super::super::refused_attachments::after_refusal;
use super::super::written_call::called_in;
use super::learn_window;
use crate::error::Error;
use crate::model::response::Answer;
use crate::model::wire::Neutral;
use crate::record::event::{Terms, Tokens};
use crate::record::messages::{self, shortened};
use crate::record::state::{Run, Turn};
use crate::text::answers::after_thoughts;
use crate::text::json;
use crate::text::shorten::head;

/// A longer summary is cut.
const LONGEST: usize = 16 << 10;

const QUESTION: &str = "Write a summary of this conversation. It will take the place of everything but its newest steps, and \
the work must be able to continue from it. Give, under headings: the task, with every limit and wish that still counts; what \
has been done, with the names of files, commands and their results; what was decided, and why; what failed, and how; what \
remains to be done, and the next step. Quote names, paths, numbers and error messages exactly. Messages of people are kept \
beside it, word for word; do not repeat them. Answer with the summary alone, in plain text. No tool may be called.";

/// A summary that the model wrote, or its failure to do so.
#[derive(Debug, Default)]
pub(super) struct WrittenSummary {
    pub(super) text: Option<String>,
    /// It lacks its end.
    pub(super) is_cut: bool,
    /// Of all answers that it took.
    pub(super) usage: Option<Tokens>,
    pub(super) terms: Terms,
    /// The invocation's directory, from the run's directory.
    pub(super) reference: String,
}

impl WrittenSummary {
    fn count(&mut self, answer: &Answer) {
        if let Some(usage) = answer.usage {
            self.usage.get_or_insert_default().add(usage);
        }
        self.terms = answer.terms.clone();
    }
}

/// Asks for a summary of a conversation, which is that of `request`. None: the conversation
/// is sent in another form, or to another model, from now on.
pub(super) fn write(
    engine: &mut Engine<'_>,
    request: &Neutral,
    run: &Run<'_>,
) -> Step<Option<WrittenSummary>> {
    let mut written = WrittenSummary::default();
    let whole = engine.talk.transcript.messages().to_vec();
    let (mut left_out, mut most, mut bars_tools) = (0, u64::MAX, false);
    loop {
        let Some(conversation) = without_oldest(engine, run, left_out, &whole) else {
            return Ok(Some(written));
        };
        let aside = request
            .with_conversation(&whole, &conversation)
            .map(|aside| aside.asking(engine.talk.wire.api(), QUESTION, bars_tools));
        let Some(aside) = aside else {
            return Ok(Some(written));
        };
        let mut aside =
            aside.map_err(|why| Error::failure(format!("the request cannot be sent: {why}")))?;
        let bytes = engine.talk.measure(&aside)?;
        let sizes = &engine.talk.sizes;
        if sizes.tokens(bytes) > sizes.summary_limit().unwrap_or(u64::MAX).min(most) {
            left_out += 1;
            halt_on(engine.must_end())?;
            continue;
        }
        let sees = see_compactions(engine.ctx);
        if sees {
            aside = before_request(engine, aside)?;
            halt_on(engine.must_end())?;
        }
        let Engine { log, limits, .. } = engine;
        let about = [&conversation[..], QUESTION.as_bytes()].concat();
        let answered = match engine.talk.ask(log, limits, aside, Some(&about))? {
            ModelReply::Answered(answered) => {
                let mut answered = *answered;
                if sees {
                    let answer = after_response(engine, answered.answer, &answered.invocation)?;
                    answered.answer = answer;
                }
                answered
            }
            ModelReply::TooLong(rejected) => {
                most = engine.talk.sizes.tokens(rejected.request_bytes) / 4 * 3;
                learn_window(engine, &rejected)?;
                left_out += 1;
                halt_on(engine.must_end())?;
                continue;
            }
            ModelReply::AttachmentsRefused(why) => {
                after_refusal(engine, &why)?;
                return Ok(None);
            }
            ModelReply::Failed(failed) => {
                let Engine {
                    log, limits, talk, ..
                } = engine;
                change_model(talk, log, limits, failed)?;
                return Ok(None);
            }
        };
        written.count(&answered.answer);
        written.reference = answered.invocation;
        let text = after_thoughts(&answered.answer.text).trim();
        let tools = engine.ctx.agent.tools.iter();
        let has_call = !answered.answer.calls.is_empty() || called_in(text, tools).is_some();
        if !text.is_empty() && !has_call {
            let reason = answered.answer.finish_reason.as_ref();
            written.is_cut = text.len() > LONGEST || reason.is_some_and(|it| it.name() == "length");
            written.text = Some(head(text, LONGEST).to_owned());
            return Ok(Some(written));
        }
        if bars_tools || !has_call {
            return Ok(Some(written));
        }
        bars_tools = true;
        halt_on(engine.must_end())?;
        halt_on(engine.talk.limit_reached(&mut engine.limits))?;
    }
}

/// The conversation without its oldest iterations; none if it does not have as many. What people have said stays.
fn without_oldest(
    engine: &Engine<'_>,
    run: &Run<'_>,
    left_out: usize,
    whole: &[u8],
) -> Option<Vec<u8>> {
    if left_out == 0 {
        return Some(whole.to_vec());
    }
    let form = engine.talk.transcript.form();
    let (summarized, cleared) = (run.summarized_turns(), run.cleared_turns());
    let mut out = vec![b'['];
    if let Some(text) = shortened::summary(run, summarized).filter(|_| summarized > 0) {
        messages::message(&mut out, "user", json::text(&text).as_bytes());
    }
    let mut seen = 0;
    for (at, turn) in run.turns.iter().enumerate().skip(summarized) {
        seen += usize::from(matches!(turn, Turn::Thought(_)));
        if seen > left_out || matches!(turn, Turn::User(_)) {
            let compaction = Some(&run.compaction).filter(|_| at < cleared);
            messages::turn(&mut out, turn, form, compaction);
        }
    }
    (seen > left_out).then(|| out.split_off(1))
}
