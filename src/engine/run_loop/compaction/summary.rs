//! The summary of a conversation. The question for it follows the unchanged conversation.

use super::super::Engine;
use super::super::attachments::refused::after_refusal;
use super::super::conversation::ModelReply;
use super::super::fallback::change_model;
use super::super::hook_points::{after_response, before_request};
use super::super::outcome::Step;
use super::super::written_call::called_in;
use super::learn_window;
use crate::error::Error;
use crate::model::response::Answer;
use crate::model::wire::Neutral;
use crate::record::event::{Terms, Tokens};
use crate::record::messages;
use crate::record::state::{Run, Turn};
use crate::text::answers::after_thoughts;
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
    /// True if its end is missing.
    pub(super) is_cut: bool,
    /// Tokens of all answers that it took.
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

    fn take(&mut self, text: &str, answer: &Answer) {
        let reason = answer.finish_reason.as_ref();
        self.is_cut = text.len() > LONGEST || reason.is_some_and(|it| it.name() == "length");
        self.text = Some(head(text, LONGEST).to_owned());
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
    let whole = engine.transcript.messages().to_vec();
    let (mut left_out, mut most, mut bars_tools) = (0, u64::MAX, false);
    loop {
        let shorter = without_oldest(engine, run, left_out, &whole).and_then(|shorter| {
            let aside = request.with_conversation(&whole, &shorter)?;
            Some((aside, shorter))
        });
        let Some((aside, conversation)) = shorter else {
            return Ok(Some(written));
        };
        let mut aside = aside
            .asking(engine.wire.api(), QUESTION, bars_tools)
            .map_err(|why| Error::failure(format!("the request cannot be sent: {why}")))?;
        let bytes = engine.measure(&aside)?;
        let sizes = &engine.sizes;
        if sizes.tokens(bytes) > sizes.summary_limit().unwrap_or(u64::MAX).min(most) {
            left_out += 1;
            engine.go_on()?;
            continue;
        }
        let mut hooks = engine.ctx.agent.hooks.iter();
        let sees = hooks.any(|hook| hook.sees_compactions);
        if sees {
            aside = before_request(engine, aside)?;
            engine.go_on()?;
        }
        let about = [&conversation[..], QUESTION.as_bytes()].concat();
        let mut answered = match engine.ask(&aside, Some(&about))? {
            ModelReply::Answered(answered) => *answered,
            ModelReply::TooLong(rejected) => {
                most = engine.sizes.tokens(rejected.request_bytes) / 4 * 3;
                learn_window(engine, &rejected)?;
                left_out += 1;
                engine.go_on()?;
                continue;
            }
            ModelReply::AttachmentsRefused(why) => {
                after_refusal(engine, &why)?;
                return Ok(None);
            }
            ModelReply::Failed(failed) => {
                change_model(engine, failed)?;
                return Ok(None);
            }
        };
        if sees {
            answered.answer = after_response(engine, answered.answer, &answered.invocation)?;
        }
        written.count(&answered.answer);
        written.reference = answered.invocation;
        let text = after_thoughts(&answered.answer.text).trim();
        let tools = engine.ctx.agent.tools.iter();
        let has_call = !answered.answer.calls.is_empty() || called_in(text, tools).is_some();
        if !text.is_empty() && !has_call {
            written.take(text, &answered.answer);
            return Ok(Some(written));
        }
        if bars_tools || !has_call {
            return Ok(Some(written));
        }
        bars_tools = true;
        engine.may_ask()?;
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
    let (mut out, mut seen) = (vec![b'['], 0);
    messages::write_some(&mut out, run, engine.transcript.form(), |turn| {
        seen += usize::from(matches!(turn, Turn::Thought(_)));
        seen > left_out || matches!(turn, Turn::User(_))
    });
    (seen > left_out).then(|| out.split_off(1))
}
