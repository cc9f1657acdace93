//! The state of a run: a pure function from the journal's bytes to the messages, the actions that
//! were started and have ended, and the open questions.
//!
//! Unaware of files, processes and models. Reading is one pass over the bytes; texts stay where
//! they are and are borrowed.

mod attached;
mod calls;
mod compaction;
mod deferred;
mod files;
mod people;
mod reduce;

pub use attached::Attached;
pub use compaction::{Compaction, RequestCounts};
pub(crate) use compaction::{CountedAnswer, MessageRules, OldPart};
pub use deferred::Deferred;
pub(crate) use deferred::{Wait, is_set_back};
pub(crate) use files::{FileState, FileStates};

use crate::record::event::recorded::EngineStart;
use crate::record::event::{
    EventKind, EventTrait, FinishReason, InputType, Line, RunUsage, quick_kind,
};
use crate::record::reader::{Damage, Rewritten, rewritten, split_lines};
use serde::Deserialize;
use std::borrow::Cow;

/// The state of a run according to its journal.
#[derive(Debug, Default)]
pub struct Run<'j> {
    /// The newest start, with what earlier ones say of the run where it says nothing.
    pub(crate) start: EngineStart<'j>,
    /// How many starts there are.
    pub starts: u64,
    /// The text with which the run began.
    pub first_message: Option<Cow<'j, str>>,
    /// The time of the first event.
    pub created_at: Option<Cow<'j, str>>,
    /// The time of the newest start.
    pub started_at: Option<Cow<'j, str>>,
    /// The time of the last event.
    pub updated_at: Option<Cow<'j, str>>,
    /// The number of the last event, by its place if it has none.
    pub seq: u64,
    /// The last number that was given.
    numbered: u64,
    /// The number of the last iteration, 0 before the first.
    pub iterations: u64,
    /// `max_iterations` of the newest start.
    pub max_iterations: Option<u64>,
    /// All answers that were read.
    pub usage: RunUsage,
    /// How requests are changed because the service refused one, in order: JSON objects.
    pub remedies: Vec<&'j str>,
    /// The parts of an answer that is not whole, in order: JSON objects.
    pub pauses: Vec<&'j str>,
    /// How requests have the conversation in a shorter form.
    pub compaction: Compaction<'j>,
    /// Requests that services have counted or refused.
    pub counts: RequestCounts,
    /// Which attachments requests lack.
    pub(crate) left_out: Vec<attached::LeftOut>,
    /// The conversation, in order.
    pub turns: Vec<Turn<'j>>,
    /// The number of the last thought.
    thought_seq: Option<u64>,
    /// The calls that a person has let run for the rest of the run, by their fingerprints.
    pub always: Vec<Cow<'j, str>>,
    /// The way the engine ended, if nothing has happened since.
    pub end: Option<End<'j>>,
    /// The states of the files.
    pub(crate) file_states: FileStates,
    /// Lines that were skipped, if that was allowed.
    pub damaged: Vec<Damage>,
    /// The task of an old start without a message yet.
    unsaid: Option<UserMessage<'j>>,
    /// The model that is asked, as JSON: as the configuration of the newest start names it, or as
    /// [`fallback_model`] does.
    asked_model: Option<Cow<'j, str>>,
    /// The model in the configuration of the newest start, as JSON.
    first_model: Option<Cow<'j, str>>,
    /// Since the last answer a model was asked in place of the first.
    pub fallback_asked: bool,
    /// A start had its first model chosen by something else than the agent's file.
    pub fallback_left_out: bool,
    /// `same_call` of the newest start.
    same_call: u64,
    /// `same_call` of the start that ended with no progress, if nothing has been said or answered since.
    pub no_progress_at: Option<u64>,
    /// Models whose services named a time before which they are not to be asked.
    pub not_before: Vec<NotBefore<'j>>,
    /// An old engine recorded some of it.
    is_old: bool,
    /// It has events or attachments that engines of the first layout misread.
    pub is_of_later_layout: bool,
    pub is_flow: bool,
    /// True if reading began at the start of the journal.
    is_whole: bool,
}

/// The base for the rest of a journal, once its beginning has been read: no later line
/// changes anything in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    lines: usize,
    seq: u64,
    numbered: u64,
    iterations: u64,
    thought_seq: Option<u64>,
    asked_model: Option<String>,
}

impl Turn<'_> {
    /// A person has said how to go on: what is counted begins again. A message to a live run changes no count.
    pub(crate) fn begins_anew(&self) -> bool {
        matches!(self, Turn::User(message) if message.inbox_id.is_none())
    }
}

/// A message of a person.
#[derive(Debug, Default)]
pub struct UserMessage<'j> {
    /// A JSON string.
    pub content: &'j str,
    /// Time when it was recorded.
    pub at: Option<Cow<'j, str>>,
    /// The event's number.
    pub seq: u64,
    /// The name of the file in the inbox that it was sent in.
    pub inbox_id: Option<String>,
    pub(crate) attached: Attached,
}

/// The check that refuses calls written as text.
pub(crate) const CALL_AS_TEXT: &str = "call_as_text";

/// One step of the conversation.
#[derive(Debug)]
pub enum Turn<'j> {
    User(UserMessage<'j>),
    /// The model answered.
    Thought(Thought<'j>),
    /// A check refused the answer before it.
    Refusal(RefusedAnswer<'j>),
}

/// The verdict of a check that refused a final answer.
#[derive(Debug)]
pub struct RefusedAnswer<'j> {
    /// The event's number.
    pub seq: u64,
    /// The message to the model: a JSON string.
    pub content: &'j str,
    /// The check.
    pub what: Cow<'j, str>,
    pub exit_code: Option<i64>,
    /// The execution's directory, from the run's directory.
    pub execution_ref: Option<Cow<'j, str>>,
}

/// An answer of the model and what became of its calls.
#[derive(Debug, Default)]
pub struct Thought<'j> {
    /// The event's number.
    pub seq: u64,
    /// That of the last result of its calls.
    pub last_seq: u64,
    pub iteration: u64,
    /// The text: a JSON string, or null.
    pub content: &'j str,
    /// The calls as they are sent back: a JSON array.
    pub tool_calls: Option<Cow<'j, str>>,
    /// Members with the model's reasoning: names and JSON values.
    pub reasoning: Vec<(&'static str, &'j str)>,
    /// The model that was asked, as the configuration of that start names it: JSON.
    pub asked_model: Option<Cow<'j, str>>,
    /// The answer as it came over another API than chat completions: a JSON object.
    pub wire: Option<&'j str>,
    /// Reason why the model stopped.
    pub finish_reason: Option<FinishReason<'j>>,
    /// The calls one by one.
    pub calls: Vec<Call<'j>>,
    /// The checks that have accepted it as the final answer.
    pub accepted_by: Vec<Cow<'j, str>>,
    /// The value that its schema has accepted: JSON; none if that is the whole text.
    pub value: Option<&'j str>,
    /// An old engine recorded it: it may have asked for calls that were never started.
    is_old: bool,
}

impl<'j> Thought<'j> {
    /// Reason why the answer is not whole, if it is not.
    pub(crate) fn cut_off(&self) -> Option<&FinishReason<'j>> {
        self.finish_reason.as_ref().filter(|it| it.is_cut_off())
    }
}

/// A call of a tool, from the wish to the result.
#[derive(Debug, Default)]
pub struct Call<'j> {
    /// Unique in its message.
    pub id: Cow<'j, str>,
    /// Which tool.
    pub name: Cow<'j, str>,
    /// The arguments, a JSON object in a text, as they are sent back.
    pub arguments: Cow<'j, str>,
    /// The model's text in place of a JSON object, if it sent one.
    pub invalid_arguments: Option<String>,
    /// Set when the action was started.
    pub request: Option<Request<'j>>,
    /// Set when it has begun something that ends without it.
    pub deferred: Option<Deferred>,
    /// Set when a person was asked.
    pub question: Option<RecordedQuestion<'j>>,
    /// The observation as a JSON string, once there is a result.
    pub result: Option<&'j str>,
    /// The result is that of a call that failed, or that was never run.
    pub has_failed: bool,
    /// The directory, from the run's directory, where the whole output is, if the result is what a program printed.
    pub output_ref: Option<Cow<'j, str>>,
    pub(crate) attached: Attached,
}

/// An action that was started.
#[derive(Debug, Default)]
pub struct Request<'j> {
    /// `DELTA_CALL_ID` of its processes; older journals have none.
    pub call_id: Option<Cow<'j, str>>,
    /// The execution's directory, from the run's directory.
    pub execution_ref: Option<Cow<'j, str>>,
    /// The arguments that it was started with: a JSON object.
    pub arguments: Option<&'j str>,
    /// The command, on one line.
    pub command: Option<Cow<'j, str>>,
    /// The engine has ended since, and left it to the next start: it is no process's any more.
    pub is_suspended: bool,
}

/// A model that is not to be asked before a time.
#[derive(Debug)]
pub struct NotBefore<'j> {
    pub model: Cow<'j, str>,
    /// The way it failed.
    pub why: Cow<'j, str>,
    pub until: Cow<'j, str>,
}

/// A question to a person.
#[derive(Debug, Default)]
pub struct RecordedQuestion<'j> {
    pub request_id: Cow<'j, str>,
    /// The question.
    pub prompt: Cow<'j, str>,
    pub input_type: InputType<'j>,
    /// True if the answer must not be shown.
    pub sensitive: bool,
    /// The call that would run, if a person must confirm it; none: the call is the question.
    pub fingerprint: Option<Cow<'j, str>>,
    /// How many hooks have been run for it.
    pub announced: usize,
    /// The answer, once it has been recorded.
    pub response: Option<Cow<'j, str>>,
}

impl RecordedQuestion<'_> {
    /// True if the answer is hidden from readers of the run.
    pub(crate) fn is_secret(&self) -> bool {
        self.sensitive || self.input_type == InputType::Password
    }
}

/// The way an engine ended.
#[derive(Debug)]
pub struct End<'j> {
    /// The run's status.
    pub status: Cow<'j, str>,
    /// The reason.
    pub stop_reason: Option<Cow<'j, str>>,
    /// The engine's exit code.
    pub exit_code: Option<i64>,
    /// The result, or what went wrong.
    pub text: Option<Cow<'j, str>>,
    /// The time.
    pub at: Option<Cow<'j, str>>,
}

/// Reason why a journal cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The file has another form altogether.
    Rewritten(Rewritten),
    /// One of its lines is damaged.
    Damaged(Damage),
}

/// How to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Pass over damaged lines instead of failing.
    pub lenient: bool,
    /// Keep only this many of the newest thoughts; every word of the user is kept. Lines that are not
    /// kept are not parsed.
    pub window: Option<usize>,
}

impl Reading {
    /// All of a journal; damaged lines are passed over if it is lenient.
    pub(crate) fn all(lenient: bool) -> Self {
        Self {
            lenient,
            window: None,
        }
    }
}

/// Reads a journal.
///
/// # Errors
/// The first place that cannot be read.
pub fn read(bytes: &[u8], reading: Reading) -> Result<Run<'_>, Unreadable> {
    read_after(bytes, reading, &Before::default())
}

/// Reads the rest of a journal; what is returned knows only of that.
///
/// # Errors
/// The first place that cannot be read.
pub(crate) fn read_after<'j>(
    bytes: &'j [u8],
    reading: Reading,
    before: &Before,
) -> Result<Run<'j>, Unreadable> {
    if let Some(form) = rewritten(bytes) {
        return Err(Unreadable::Rewritten(form));
    }
    let is_windowed = reading.window.is_some();
    let keep_from = reading
        .window
        .map_or(0, |window| window_start(bytes, window));
    let mut run = Run {
        is_whole: before.lines == 0,
        seq: before.seq,
        numbered: before.numbered,
        iterations: before.iterations,
        thought_seq: before.thought_seq,
        asked_model: before.asked_model.clone().map(Cow::Owned),
        ..Run::default()
    };
    for (index, (start, line)) in split_lines(bytes).enumerate() {
        if start == keep_from {
            // What was written in another form than ours has been read, for its numbers.
            run.turns.retain(|turn| matches!(turn, Turn::User(_)));
        }
        if line.trim_ascii().is_empty() || (start < keep_from && is_only_history(line)) {
            continue;
        }
        if let Err((column, message)) = run.add_line(line) {
            let damage = Damage {
                line: before.lines + index + 1,
                column,
                message,
            };
            if !reading.lenient {
                return Err(Unreadable::Damaged(damage));
            }
            run.damaged.push(damage);
        }
    }
    if is_windowed {
        // The window is another way to shorten the same conversation.
        run.compaction = Compaction::default();
    }
    run.leave_out();
    Ok(run)
}

impl<'j> Run<'j> {
    /// The model's name in the configuration of the newest start.
    pub(crate) fn asked_model(&self) -> Option<String> {
        serde_json::from_str(self.first_model.as_deref()?).ok()
    }

    /// The model's last answer, if nothing has been said since that it has not seen.
    pub(crate) fn last_thought(&self) -> Option<&Thought<'j>> {
        self.turns.iter().rev().find_map(|turn| match turn {
            Turn::Thought(thought) => Some(thought),
            Turn::User(_) | Turn::Refusal(_) => None,
        })
    }

    /// How many final answers have been refused since a person spoke, without calls written as text.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals_since_a_person()
            .filter(|it| it.what != CALL_AS_TEXT)
            .count() as u64
    }

    /// True if the model was told since a person spoke that it wrote a call as text.
    pub(crate) fn has_written_call(&self) -> bool {
        self.refusals_since_a_person()
            .any(|it| it.what == CALL_AS_TEXT)
    }

    fn refusals_since_a_person(&self) -> impl Iterator<Item = &RefusedAnswer<'j>> {
        self.turns
            .iter()
            .rev()
            .take_while(|turn| !turn.begins_anew())
            .filter_map(|turn| match turn {
                Turn::Refusal(refusal) => Some(refusal),
                Turn::User(_) | Turn::Thought(_) => None,
            })
    }

    /// True if the conversation ends with an answer that asks for nothing more: the run is complete,
    /// even if the engine died before it could record that.
    pub(crate) fn has_final_answer(&self) -> bool {
        matches!(self.turns.last(), Some(Turn::Thought(thought))
            if thought.calls.is_empty() && !thought.is_old && thought.cut_off().is_none())
    }

    /// The base for the rest of the journal. None if an old engine recorded some of it: its later
    /// lines may belong to earlier messages.
    pub(crate) fn before(&self, lines: &[u8], before: &Before) -> Option<Before> {
        (!self.is_old).then(|| Before {
            lines: before.lines + memchr::memchr_iter(b'\n', lines).count(),
            seq: self.seq,
            numbered: self.numbered,
            iterations: self.iterations,
            thought_seq: self.thought_seq,
            asked_model: self.asked_model.as_deref().map(str::to_owned),
        })
    }
}

impl Thought<'_> {
    /// The API over which it came, as agent.yaml names it.
    pub(crate) fn api(&self) -> Cow<'static, str> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct OfApi {
            api: String,
        }
        let wire = self
            .wire
            .and_then(|raw| serde_json::from_str::<OfApi>(raw).ok());
        wire.map_or(Cow::Borrowed("chat"), |wire| wire.api.into())
    }
}

/// A model that is asked in place of the first, as JSON. No model's own name is written so: what one service has
/// said for itself alone is never sent to another that has a model of the same name.
pub(crate) fn fallback_model(name: &str) -> String {
    crate::text::json::text(&[name])
}

/// Place where the `window`-th thought from the end begins; 0 if there are fewer.
fn window_start(bytes: &[u8], window: usize) -> usize {
    let mut left = window;
    let mut end = bytes.len();
    while end > 0 && left > 0 {
        let start = memchr::memrchr(b'\n', &bytes[..end - 1]).map_or(0, |at| at + 1);
        if kind_of(&bytes[start..end]) == Some(EventKind::Thought) {
            left -= 1;
        }
        end = start;
    }
    end
}

/// True if a line can be skipped outside the window.
fn is_only_history(line: &[u8]) -> bool {
    kind_of(line).is_some_and(|kind| kind.is(EventTrait::Past) || kind.is(EventTrait::OfAnswer))
}

fn kind_of(line: &[u8]) -> Option<EventKind<'_>> {
    // Older engines, and people's tools, write their lines differently.
    let parsed = || Some(Line::parse(std::str::from_utf8(line).ok()?).ok()?.kind);
    quick_kind(line).or_else(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOURNAL: &str = r#"{"seq":1,"timestamp":"2025-10-13T14:35:22.123Z","type":"ENGINE_START","iteration":0,"run_id":"r","task":"go","config":{"llm":{"model":"m"}}}
{"seq":2,"timestamp":"2025-10-13T14:35:22.123Z","type":"USER_MESSAGE","iteration":0,"content":"go"}
{"seq":3,"timestamp":"2025-10-13T14:35:22.123Z","type":"THOUGHT","iteration":1,"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"y","arguments":"{}"}}]}
{"seq":4,"timestamp":"2025-10-13T14:35:22.123Z","type":"ACTION_REQUEST","iteration":1,"action_id":"a","tool_name":"x","call_id":"c1"}
{"seq":5,"timestamp":"2025-10-13T14:35:22.123Z","type":"ACTION_RESULT","iteration":1,"action_id":"a","observation_content":"out"}
{"seq":6,"timestamp":"2025-10-13T14:35:22.123Z","type":"ACTION_REQUEST","iteration":1,"action_id":"b","tool_name":"y","call_id":"c2"}
"#;

    fn all(text: &str) -> Run<'_> {
        read(text.as_bytes(), Reading::default()).unwrap()
    }

    #[test]
    fn started_and_unfinished_is_told_from_done() {
        let run = all(JOURNAL);
        let thought = run.last_thought().unwrap();
        assert_eq!(thought.calls[0].result, Some("\"out\""));
        assert!(thought.calls[1].request.is_some() && thought.calls[1].result.is_none());
        assert_eq!((run.seq, run.iterations), (6, 1));
        assert_eq!(run.first_message.as_deref(), Some("go"));
        assert_eq!(thought.asked_model.as_deref(), Some("\"m\""));
    }

    #[test]
    fn a_null_that_somebody_made_a_text_is_that_text() {
        for (content, read) in [("\"\"", "null"), ("\"said\"", "\"said\"")] {
            let line =
                format!("{{\"type\":\"THOUGHT\",\"content\":{content},\"content_null\":true}}");
            assert_eq!(all(&line).last_thought().unwrap().content, read);
        }
    }

    #[test]
    fn every_prefix_of_lines_is_a_state() {
        let lines: Vec<&str> = JOURNAL.split_inclusive('\n').collect();
        for n in 0..=lines.len() {
            let text = lines[..n].concat();
            assert_eq!(all(&text).seq, n as u64);
        }
    }

    #[test]
    fn damage_has_a_line_and_a_column() {
        let text = JOURNAL.replacen("\"USER_MESSAGE\"", "USER_MESSAGE", 1);
        let Err(Unreadable::Damaged(damage)) = read(text.as_bytes(), Reading::default()) else {
            panic!("read")
        };
        assert_eq!((damage.line, damage.column), (2, 56));
        let run = read(text.as_bytes(), Reading::all(true)).unwrap();
        assert_eq!(run.damaged.len(), 1);
        // The first message is the task of ENGINE_START then.
        assert_eq!(run.turns.len(), 2);
    }

    #[test]
    fn numbers_must_rise_and_may_be_missing() {
        assert_eq!(
            all("{\"type\":\"X\"}\n{\"type\":\"X\",\"seq\":1}\n{\"type\":\"X\"}\n{\"type\":\"X\",\"seq\":2}\n").seq,
            2
        );
        let falling = b"{\"type\":\"X\",\"seq\":2}\n{\"type\":\"X\",\"seq\":2}\n";
        assert!(read(falling, Reading::default()).is_err());
    }

    #[test]
    fn a_window_keeps_the_newest_thoughts_and_every_word_of_the_user() {
        let mut text = String::new();
        for i in 0..10 {
            let at = "2025-10-13T14:35:22.123Z";
            text += &format!(
                "{{\"seq\":{},\"timestamp\":\"{at}\",\"type\":\"USER_MESSAGE\",\"content\":\"u{i}\"}}\n",
                2 * i + 1
            );
            text += &format!(
                "{{\"seq\":{},\"timestamp\":\"{at}\",\"type\":\"THOUGHT\",\"content\":\"t{i}\"}}\n",
                2 * i + 2
            );
        }
        let window = Reading {
            lenient: false,
            window: Some(3),
        };
        let run = read(text.as_bytes(), window).unwrap();
        let users = run
            .turns
            .iter()
            .filter(|t| matches!(t, Turn::User(_)))
            .count();
        assert_eq!((users, run.turns.len() - users), (10, 3));
    }
}
