//! What a journal adds up to: a pure function from its bytes to what was said, what was started,
//! what ended and what is open.
//!
//! Unaware of files, processes and models. Reading is one pass over the bytes; texts stay where
//! they are and are borrowed.

use crate::event::{ForkedFrom, Line, Tokens, quick_kind};
use crate::journal::{Rewritten, rewritten};
use crate::legacy;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The state of a run, as its journal tells it.
#[derive(Debug, Default)]
pub struct Run<'j> {
    /// What the journal calls the run.
    pub run_id: Option<Cow<'j, str>>,
    /// The agent's directory, of the newest start.
    pub agent_home: Option<Cow<'j, str>>,
    /// The workspace, of the newest start.
    pub work_dir: Option<Cow<'j, str>>,
    /// The run whose tool this run is, if it is one.
    pub parent_run_id: Option<Cow<'j, str>>,
    /// What `DELTA_CALL_ID` of the programs begins with that the newest start ran for itself.
    pub engine_call: Option<Cow<'j, str>>,
    /// The host of the newest start.
    pub hostname: Option<Cow<'j, str>>,
    /// The run of which this one is a fork.
    pub forked_from: Option<ForkedFrom>,
    /// Keys of agent.yaml that the run sets otherwise.
    pub set: Map<String, Value>,
    /// The text with which the run began.
    pub first_message: Option<Cow<'j, str>>,
    /// The time of the first event.
    pub created_at: Option<Cow<'j, str>>,
    /// The time of the newest start.
    pub started_at: Option<Cow<'j, str>>,
    /// The time of the last event.
    pub updated_at: Option<Cow<'j, str>>,
    /// The number of the last event.
    pub seq: u64,
    /// The number of the last iteration, 0 before the first.
    pub iterations: u64,
    /// `max_iterations` of the newest start.
    pub max_iterations: Option<u64>,
    /// Tokens of all answers that were read.
    pub tokens: Tokens,
    /// How many answers the model gave.
    pub llm_calls: u64,
    /// The conversation, in order.
    pub turns: Vec<Turn<'j>>,
    /// How the engine ended, if nothing has happened since.
    pub end: Option<End<'j>>,
    /// Lines that were passed over, if that was allowed.
    pub damaged: Vec<Damage>,
    /// The task of an old start, which nobody has said yet.
    unsaid: Option<&'j str>,
    /// The model that is asked, as the configuration of the newest start names it: JSON.
    asked_model: Option<Cow<'j, str>>,
    /// An old engine recorded some of it.
    is_old: bool,
    /// It is a flow's.
    pub is_flow: bool,
}

/// What the rest of a journal builds on when its beginning has been read: nothing that is said later
/// changes what was said there.
#[derive(Clone, Debug, Default)]
pub struct Before {
    lines: usize,
    seq: u64,
    iterations: u64,
    asked_model: Option<String>,
}

/// One step of the conversation.
#[derive(Debug)]
pub enum Turn<'j> {
    /// Somebody spoke: a JSON string.
    User(&'j str),
    /// The model answered.
    Thought(Thought<'j>),
}

/// An answer of the model and what became of its calls.
#[derive(Debug, Default)]
pub struct Thought<'j> {
    /// Its iteration.
    pub iteration: u64,
    /// The text: a JSON string, or null.
    pub content: &'j str,
    /// The calls as they are sent back: a JSON array.
    pub tool_calls: Option<Cow<'j, str>>,
    /// Members with the model's reasoning: names and JSON values.
    pub reasoning: Vec<(&'static str, &'j str)>,
    /// The model that was asked, as the configuration of that start names it: JSON.
    pub asked_model: Option<Cow<'j, str>>,
    /// Why the model stopped.
    pub finish_reason: Option<Cow<'j, str>>,
    /// The calls one by one.
    pub calls: Vec<Call<'j>>,
    /// An old engine recorded it: it may have asked for calls that were never started.
    is_old: bool,
}

/// A call of a tool, from the wish to the result.
#[derive(Debug)]
pub struct Call<'j> {
    /// Unique in its message.
    pub id: Cow<'j, str>,
    /// Which tool.
    pub name: Cow<'j, str>,
    /// The arguments, a JSON object in a text, as they are sent back.
    pub arguments: Cow<'j, str>,
    /// What the model sent instead of a JSON object, if it did.
    pub invalid_arguments: Option<String>,
    /// Set when the action was started.
    pub request: Option<Request<'j>>,
    /// Set when a person was asked.
    pub question: Option<Question<'j>>,
    /// The observation as a JSON string, once there is a result.
    pub result: Option<&'j str>,
}

/// An action that was started.
#[derive(Debug)]
pub struct Request<'j> {
    /// `DELTA_CALL_ID` of its processes; older journals have none.
    pub call_id: Option<Cow<'j, str>>,
    /// The execution's directory, from the run's directory.
    pub execution_ref: Option<Cow<'j, str>>,
}

/// A question to a person.
#[derive(Debug)]
pub struct Question<'j> {
    /// Its id.
    pub request_id: Cow<'j, str>,
    /// The question.
    pub prompt: Cow<'j, str>,
    /// `text`, `password` or `confirmation`.
    pub input_type: Cow<'j, str>,
    /// Whether the answer is not to be shown.
    pub sensitive: bool,
    /// The answer, once it has been recorded.
    pub response: Option<Cow<'j, str>>,
}

/// How an engine ended.
#[derive(Debug)]
pub struct End<'j> {
    /// The run's status.
    pub status: Cow<'j, str>,
    /// Why.
    pub stop_reason: Option<Cow<'j, str>>,
    /// The engine's exit code.
    pub exit_code: Option<i64>,
    /// The result, or what went wrong.
    pub text: Option<Cow<'j, str>>,
    /// When.
    pub at: Option<Cow<'j, str>>,
}

/// A place in a journal that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// From 1.
    pub line: usize,
    /// From 1; 0 if the whole line is meant.
    pub column: usize,
    /// What is wrong there.
    pub message: String,
}

/// Why a journal cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is in another form altogether.
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
pub fn read_after<'j>(
    bytes: &'j [u8],
    reading: Reading,
    before: &Before,
) -> Result<Run<'j>, Unreadable> {
    if let Some(form) = rewritten(bytes) {
        return Err(Unreadable::Rewritten(form));
    }
    let keep_from = reading
        .window
        .map_or(0, |window| window_start(bytes, window));
    let mut run = Run {
        seq: before.seq,
        iterations: before.iterations,
        asked_model: before.asked_model.clone().map(Cow::Owned),
        ..Run::default()
    };
    let mut start = 0;
    let mut number = before.lines;
    while start < bytes.len() {
        let end = memchr::memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |at| start + at);
        let line = &bytes[start..end];
        number += 1;
        if start == keep_from {
            // What was written in another form than ours has been read, for its numbers.
            run.turns.retain(|turn| matches!(turn, Turn::User(_)));
        }
        let read = if line.trim_ascii().is_empty() || (start < keep_from && is_only_history(line)) {
            Ok(())
        } else {
            run.line(line)
        };
        if let Err((column, message)) = read {
            let damage = Damage {
                line: number,
                column,
                message,
            };
            if !reading.lenient {
                return Err(Unreadable::Damaged(damage));
            }
            run.damaged.push(damage);
        }
        start = end + 1;
    }
    Ok(run)
}

/// Where the `window`-th thought from the end begins; 0 if there are fewer.
fn window_start(bytes: &[u8], window: usize) -> usize {
    let mut left = window;
    let mut end = bytes.len();
    while end > 0 && left > 0 {
        let start = memchr::memrchr(b'\n', &bytes[..end - 1]).map_or(0, |at| at + 1);
        if kind_is(&bytes[start..end], b"THOUGHT") {
            left -= 1;
        }
        end = start;
    }
    end
}

/// Whether a line can be passed over outside the window.
fn is_only_history(line: &[u8]) -> bool {
    const HISTORY: [&[u8]; 7] = [
        b"THOUGHT",
        b"ACTION_REQUEST",
        b"ACTION_RESULT",
        b"HUMAN_INPUT_REQUEST",
        b"HUMAN_INPUT_RECEIVED",
        b"SYSTEM_MESSAGE",
        b"HOOK_EXECUTION_AUDIT",
    ];
    match quick_kind(line) {
        Some(kind) => HISTORY.contains(&kind),
        None => std::str::from_utf8(line)
            .ok()
            .and_then(|text| Line::parse(text).ok())
            .is_some_and(|line| HISTORY.contains(&line.kind.as_bytes())),
    }
}

fn kind_is(line: &[u8], wanted: &[u8]) -> bool {
    match quick_kind(line) {
        Some(kind) => kind == wanted,
        // Older engines, and people's tools, write their lines differently.
        None => std::str::from_utf8(line)
            .ok()
            .and_then(|text| Line::parse(text).ok())
            .is_some_and(|line| line.kind.as_bytes() == wanted),
    }
}

/// What of a configuration matters to reading.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Config<'j> {
    #[serde(borrow)]
    llm: Option<Llm<'j>>,
    max_iterations: Option<u64>,
}

#[derive(Deserialize)]
struct Llm<'j> {
    #[serde(borrow)]
    model: Option<&'j RawValue>,
}

#[derive(Deserialize)]
struct RawCall<'j> {
    #[serde(borrow)]
    id: Cow<'j, str>,
    #[serde(borrow)]
    function: RawFunction<'j>,
}

#[derive(Deserialize)]
struct RawFunction<'j> {
    #[serde(borrow)]
    name: Cow<'j, str>,
    #[serde(borrow)]
    arguments: &'j RawValue,
}

/// Numbers beyond it are not whole in every reader of JSON.
pub const LARGEST_NUMBER: u64 = 1 << 53;

type Fault = (usize, String);

impl<'j> Run<'j> {
    /// The model's last answer, if nothing has been said since that it has not seen.
    #[must_use]
    pub fn last_thought(&self) -> Option<&Thought<'j>> {
        self.turns.iter().rev().find_map(|turn| match turn {
            Turn::Thought(thought) => Some(thought),
            Turn::User(_) => None,
        })
    }

    /// Whether the conversation ends with an answer that asks for nothing more: the run is complete,
    /// even if the engine died before it could say so.
    #[must_use]
    pub fn has_final_answer(&self) -> bool {
        matches!(self.turns.last(), Some(Turn::Thought(thought))
            if thought.calls.is_empty() && !thought.is_old && !matches!(thought.finish_reason.as_deref(), Some("length" | "content_filter")))
    }

    /// What the rest of the journal builds on. None if an old engine recorded some of it: its later
    /// lines may belong to what was said earlier.
    #[must_use]
    pub fn before(&self, lines: &[u8], before: &Before) -> Option<Before> {
        (!self.is_old).then(|| Before {
            lines: before.lines + memchr::memchr_iter(b'\n', lines).count(),
            seq: self.seq,
            iterations: self.iterations,
            asked_model: self.asked_model.as_deref().map(str::to_owned),
        })
    }

    fn line(&mut self, bytes: &'j [u8]) -> Result<(), Fault> {
        let text = std::str::from_utf8(bytes)
            .map_err(|e| (e.valid_up_to() + 1, "not UTF-8".to_owned()))?;
        let line = Line::parse(text).map_err(|e| (e.column(), parser_words(&e)))?;
        let line = legacy::flat(line).map_err(|e| (e.column(), parser_words(&e)))?;
        let seq = line.seq.unwrap_or(self.seq + 1);
        if seq <= self.seq || seq > LARGEST_NUMBER {
            return Err((0, format!("seq {seq} does not follow {}", self.seq)));
        }
        if line
            .iteration
            .is_some_and(|iteration| iteration > LARGEST_NUMBER)
        {
            return Err((0, "iteration is out of range".to_owned()));
        }
        self.seq = seq;
        if line.timestamp.is_some() {
            self.updated_at.clone_from(&line.timestamp);
            if self.created_at.is_none() {
                self.created_at.clone_from(&line.timestamp);
            }
        }
        self.is_old |= line.is_old;
        self.event(line).map_err(|message| (0, message))
    }

    fn event(&mut self, line: Line<'j>) -> Result<(), String> {
        match &*line.kind {
            "ENGINE_START" => {
                self.end = None;
                self.asked_model = self.start(line);
            }
            "USER_MESSAGE" => {
                let content = line.content.ok_or("USER_MESSAGE without content")?.get();
                if self.first_message.is_none() {
                    self.first_message = Some(decoded(content));
                }
                self.unsaid = None;
                self.turns.push(Turn::User(content));
                self.end = None;
            }
            "THOUGHT" => {
                self.end = None;
                self.turns.extend(self.unsaid.take().map(Turn::User));
                let thought = self.thought(&line)?;
                self.turns.push(Turn::Thought(thought));
            }
            "ACTION_REQUEST" => self.action_request(line),
            "ACTION_RESULT" => {
                let content = line.observation_content.map_or("\"\"", RawValue::get);
                if let Some(call) = self.finished(&line) {
                    call.result = Some(content);
                }
            }
            "HUMAN_INPUT_REQUEST" => self.question(line),
            "HUMAN_INPUT_RECEIVED" => {
                let wanted = line.request_id;
                let asked = self
                    .calls_of_last_thought()
                    .filter_map(|call| call.question.as_mut());
                let mut open = asked.filter(|q| q.response.is_none());
                if let Some(question) =
                    open.find(|q| wanted.is_none() || wanted.as_ref() == Some(&q.request_id))
                {
                    question.response = Some(line.response.unwrap_or_default());
                }
            }
            "ENGINE_END" => {
                self.end = Some(End {
                    status: line.status.unwrap_or(Cow::Borrowed("FAILED")),
                    stop_reason: line.stop_reason,
                    exit_code: line.exit_code,
                    text: line.result.or(line.error),
                    at: line.timestamp,
                });
            }
            "FLOW_START" => self.is_flow = true,
            "" => return Err("no event: it has no type".to_owned()),
            _ => {}
        }
        Ok(())
    }

    /// Returns the model that is asked from now on.
    fn start(&mut self, line: Line<'j>) -> Option<Cow<'j, str>> {
        if self.first_message.is_none() && self.turns.is_empty() {
            let task = line.task.map(RawValue::get);
            let task = task.filter(|json| json.starts_with('"'));
            self.first_message = task.map(decoded);
            self.unsaid = task.filter(|_| line.is_old);
        }
        let is_fork = line.forked_from.is_some() && line.forked_from != self.forked_from;
        if is_fork {
            // What comes before was another run.
            self.created_at.clone_from(&line.timestamp);
        }
        self.forked_from = line.forked_from.or(self.forked_from.take());
        self.set = line.set.unwrap_or_default();
        self.run_id = line.run_id.or(self.run_id.take());
        self.agent_home = line.agent_home.or(self.agent_home.take());
        self.work_dir = line.work_dir.or(self.work_dir.take());
        self.parent_run_id = line.parent_run_id.or(self.parent_run_id.take());
        self.engine_call = line.call_id;
        self.hostname = line.hostname;
        self.started_at = line.timestamp;
        let config: Config<'j> = line
            .config
            .and_then(|config| serde_json::from_str(config.get()).ok())
            .unwrap_or_default();
        self.max_iterations = config.max_iterations.or(self.max_iterations);
        config.llm?.model.map(|model| Cow::Borrowed(model.get()))
    }

    fn thought(&mut self, line: &Line<'j>) -> Result<Thought<'j>, String> {
        self.iterations = line
            .iteration
            .unwrap_or(self.iterations + 1)
            .max(self.iterations);
        self.llm_calls += 1;
        self.tokens.add(line.usage.unwrap_or_default());
        let tool_calls = line
            .tool_calls
            .map(RawValue::get)
            .filter(|raw| *raw != "null");
        let mut invalid: BTreeMap<String, String> = line
            .invalid_arguments
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let raw_calls: Vec<RawCall<'j>> = match tool_calls {
            Some(raw) => serde_json::from_str(raw)
                .map_err(|e| format!("tool_calls: {}", parser_words(&e)))?,
            None => Vec::new(),
        };
        let calls: Vec<Call<'j>> = raw_calls
            .into_iter()
            .map(|call| Call {
                invalid_arguments: invalid.remove(&*call.id),
                id: call.id,
                name: call.function.name,
                arguments: decoded(call.function.arguments.get()),
                request: None,
                question: None,
                result: None,
            })
            .collect();
        Ok(Thought {
            iteration: self.iterations,
            content: match line.content {
                // Who edits the text leaves the mark of a null beside it.
                Some(content) if content.get() != "\"\"" || line.content_null != Some(true) => {
                    content.get()
                }
                _ => "null",
            },
            tool_calls: tool_calls.filter(|_| !calls.is_empty()).map(Cow::Borrowed),
            reasoning: line
                .reasoning_fields()
                .into_iter()
                .map(|(name, value)| (name, value.get()))
                .collect(),
            asked_model: self.asked_model.clone(),
            finish_reason: line.finish_reason.clone(),
            calls,
            is_old: line.is_old,
        })
    }

    fn action_request(&mut self, line: Line<'j>) {
        let id = line.action_id.as_deref();
        if self.call(id, |_| true).is_none() {
            self.adopt(&line);
            return;
        }
        let is_new = self.call(id, |call| call.request.is_none()).is_some();
        let request = Request {
            call_id: line.call_id,
            execution_ref: line.execution_ref,
        };
        if let Some(call) = self.call(id, |call| !is_new || call.request.is_none()) {
            call.request = Some(request);
        }
    }

    /// Adds a call that an old thought did not record. Returns it unless it is none.
    fn adopt(&mut self, line: &Line<'j>) -> Option<&mut Call<'j>> {
        let mut call = legacy::call(line, self.seq)?;
        self.is_old = true;
        self.turns.extend(self.unsaid.take().map(Turn::User));
        if !matches!(self.turns.last(), Some(Turn::Thought(_))) {
            self.iterations += 1;
            let thought = Thought {
                iteration: self.iterations,
                content: "null",
                ..Thought::default()
            };
            self.turns.push(Turn::Thought(thought));
        }
        let Some(Turn::Thought(thought)) = self.turns.last_mut() else {
            return None;
        };
        if matches!(thought.tool_calls, Some(Cow::Borrowed(_))) {
            // It recorded its calls, and this is none of them.
            return None;
        }
        let tool_calls = legacy::with_call(thought.tool_calls.as_deref(), &call);
        thought.tool_calls = Some(Cow::Owned(tool_calls));
        thought.calls.push(Call {
            request: Some(Request {
                call_id: None,
                execution_ref: call.execution_ref.take().map(Cow::Owned),
            }),
            id: call.id,
            name: call.name,
            arguments: call.arguments,
            invalid_arguments: None,
            question: None,
            result: None,
        });
        thought.calls.last_mut()
    }

    fn question(&mut self, line: Line<'j>) {
        if self.asked(&line).is_none() {
            self.adopt(&line);
        }
        let question = Question {
            request_id: line.request_id.clone().unwrap_or_default(),
            prompt: line.prompt.clone().unwrap_or_default(),
            input_type: line.input_type.clone().unwrap_or(Cow::Borrowed("text")),
            sensitive: line.sensitive.unwrap_or(false),
            response: None,
        };
        if let Some(call) = self.asked(&line) {
            call.question = Some(question);
        }
    }

    /// The call that a question belongs to.
    fn asked(&mut self, line: &Line<'j>) -> Option<&mut Call<'j>> {
        match &line.action_id {
            Some(id) => self.call(Some(id), |_| true),
            None => self
                .calls_of_last_thought()
                .find(|call| call.name == "ask_human" && call.result.is_none()),
        }
    }

    fn calls_of_last_thought(&mut self) -> impl Iterator<Item = &mut Call<'j>> {
        let last = self.turns.iter_mut().rev().find_map(|turn| match turn {
            Turn::Thought(thought) => Some(thought),
            Turn::User(_) => None,
        });
        last.into_iter()
            .flat_map(|thought| thought.calls.iter_mut())
    }

    /// The call that a result belongs to. Old results have no id, and belong to the first call of
    /// their tool.
    fn finished(&mut self, line: &Line<'j>) -> Option<&mut Call<'j>> {
        match &line.action_id {
            Some(id) => self.call(Some(id), |call| call.result.is_none()),
            None => self
                .calls_of_last_thought()
                .find(|call| call.result.is_none() && line.tool_name.as_ref() == Some(&call.name)),
        }
    }

    fn call(
        &mut self,
        id: Option<&str>,
        suits: impl Fn(&Call<'j>) -> bool,
    ) -> Option<&mut Call<'j>> {
        self.calls_of_last_thought()
            .find(|call| Some(&*call.id) == id && suits(call))
    }
}

/// A JSON string as text. What is no string stands for itself.
#[must_use]
pub fn decoded(json: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Text<'t>(#[serde(borrow)] Cow<'t, str>);
    serde_json::from_str::<Text<'_>>(json).map_or(Cow::Borrowed(json), |text| text.0)
}

/// The parser's message without its place.
#[must_use]
pub fn parser_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
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
        let lenient = Reading {
            lenient: true,
            window: None,
        };
        let run = read(text.as_bytes(), lenient).unwrap();
        assert_eq!(run.damaged.len(), 1);
        assert_eq!(run.turns.len(), 1);
    }

    #[test]
    fn numbers_must_rise_and_may_be_missing() {
        assert_eq!(
            all("{\"type\":\"X\"}\n{\"type\":\"X\",\"seq\":9}\n{\"type\":\"X\"}\n").seq,
            10
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
