//! The events of a run as updates of a session.
//!
//! Unaware of how they reach the client, and of what the run does next.

use super::calls::{ShownCall, Tools};
use crate::record::event::{EventKind, Line};
use crate::record::reader::{read_event, split_lines};
use crate::record::state::decoded;
use crate::text::shorten::in_short;
use crate::view::shown_answers::{NOT_SHOWN, ShownAnswers};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;

/// The longest title, in columns.
const TITLE_WIDTH: usize = 120;

/// The updates that a client has declared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shows {
    pub compactions: bool,
    pub notices: bool,
}

/// Where the lines come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineOrigin {
    /// A start that works now; the client knows its own messages.
    Live,
    Record,
}

/// A run as far as the client has been shown it.
#[derive(Debug)]
pub(super) struct Updates {
    cwd: PathBuf,
    tools: Tools,
    /// By their ids.
    calls: HashMap<String, ShownCall>,
    answers: ShownAnswers,
    /// The event with which the current start began.
    start: u64,
    /// The pieces of the answer that is arriving: its iteration, its attempt and the text.
    arrived: (u64, u64, String),
    /// The last question, and the call that it is about.
    asked: (String, String),
    /// The tokens that the model takes.
    window: u64,
}

pub(super) fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// A piece of a message: `agent_message_chunk` and its like.
pub(super) fn chunk(kind: &str, text: &str, id: &str) -> Value {
    json!({"sessionUpdate": kind, "content": text_block(text), "messageId": id})
}

impl Updates {
    pub(super) fn new(cwd: PathBuf) -> Self {
        Self {
            cwd,
            tools: Tools::default(),
            calls: HashMap::new(),
            answers: ShownAnswers::default(),
            start: 0,
            arrived: (0, 0, String::new()),
            asked: (String::new(), String::new()),
            window: 0,
        }
    }

    /// All of a journal.
    pub(super) fn of_record(&mut self, journal: &[u8], shows: Shows) -> Vec<Value> {
        let mut all = Vec::new();
        for (_, line) in split_lines(journal) {
            all.extend(self.of_line(line, LineOrigin::Record, shows));
        }
        all
    }

    /// A piece of an answer that is arriving.
    pub(super) fn of_delta(&mut self, delta: &Value) -> Vec<Value> {
        let number = |name: &str| delta[name].as_u64().unwrap_or_default();
        let (iteration, attempt) = (number("iteration"), number("attempt"));
        let text = delta["text"].as_str().unwrap_or_default();
        if (self.arrived.0, self.arrived.1) != (iteration, attempt) {
            self.arrived = (iteration, attempt, String::new());
        }
        self.arrived.2.push_str(text);
        let id = self.message_id(iteration, attempt);
        vec![chunk("agent_message_chunk", text, &id)]
    }

    fn message_id(&self, iteration: u64, attempt: u64) -> String {
        format!("answer-{}-{iteration}-{attempt}", self.start)
    }

    /// A line of the journal.
    pub(super) fn of_line(&mut self, line: &[u8], source: LineOrigin, shows: Shows) -> Vec<Value> {
        let Ok(event) = read_event(line, 0) else {
            return Vec::new();
        };
        match event.kind {
            EventKind::EngineStart => {
                self.tools = Tools::of_start(&event);
                // An answer that a start has begun, no later one ends.
                self.start = event.seq.unwrap_or_default();
                self.arrived = (0, 0, String::new());
                let config = event
                    .config
                    .and_then(|it| serde_json::from_str(it.get()).ok());
                let window = config.unwrap_or(Value::Null)["llm"]["window"].as_u64();
                self.window = window.unwrap_or(self.window);
                Vec::new()
            }
            EventKind::UserMessage => self.user_message(&event, line, source),
            EventKind::Thought => self.thought(&event, source),
            EventKind::HumanInputRequest => self.question(&event),
            EventKind::ActionRequest => {
                let title = self.tools.title(&event);
                let id = event.action_id.as_deref().unwrap_or_default();
                let call = self.calls.entry(id.to_owned()).or_default();
                let tool = event.tool_name.as_deref().unwrap_or_default();
                tool.clone_into(&mut call.tool);
                call.arguments = event.tool_args.map(parsed).unwrap_or_default();
                vec![self.announce(id, "in_progress", &title, None)]
            }
            EventKind::ActionResult => self.result(&event),
            EventKind::Compaction if shows.compactions => {
                let summary = event.summary.as_deref();
                let summary = summary.map_or_else(|| event.compaction(), str::to_owned);
                vec![json!({
                    "sessionUpdate": "compaction_update",
                    "compactionId": format!("compaction-{}", event.seq.unwrap_or_default()),
                    "status": "completed",
                    "summary": [text_block(&summary)],
                })]
            }
            EventKind::SystemMessage => {
                self.window = event.window.unwrap_or(self.window);
                let text = content_of(&event);
                if !shows.notices || event.level.as_deref() != Some("WARN") || text.is_empty() {
                    return Vec::new();
                }
                vec![json!({
                    "sessionUpdate": "notice",
                    "severity": "warning",
                    "title": in_short(&text, TITLE_WIDTH),
                    "description": text,
                })]
            }
            EventKind::ActionDeferred => {
                let id = event.action_id.as_deref().unwrap_or_default();
                vec![
                    json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress"}),
                ]
            }
            _ => Vec::new(),
        }
    }

    fn user_message(&self, event: &Line<'_>, line: &[u8], source: LineOrigin) -> Vec<Value> {
        let of_inbox = || {
            let line: Value = serde_json::from_slice(line).unwrap_or_default();
            line["source"] == "inbox"
        };
        if source == LineOrigin::Live && !of_inbox() {
            return Vec::new();
        }
        let text = content_of(event);
        let id = format!("user-{}", event.seq.unwrap_or_default());
        vec![chunk("user_message_chunk", &text, &id)]
    }

    fn thought(&mut self, event: &Line<'_>, source: LineOrigin) -> Vec<Value> {
        let iteration = event.iteration.unwrap_or_default();
        let mut all = Vec::new();
        let reasoning = event.reasoning_fields().into_iter();
        let mut reasoning =
            reasoning.filter_map(|(_, value)| serde_json::from_str::<String>(value.get()).ok());
        if let Some(text) = reasoning.find(|text| !text.is_empty()) {
            let id = format!("thought-{iteration}");
            all.push(chunk("agent_thought_chunk", &text, &id));
        }
        let text = content_of(event);
        let (arrived_in, attempt, arrived) = std::mem::take(&mut self.arrived);
        let (attempt, rest) = match arrived_in == iteration && !arrived.is_empty() {
            // What a client has been shown is not shown again.
            true => (attempt, text.strip_prefix(&*arrived).unwrap_or_default()),
            false => (1, &*text),
        };
        if !rest.is_empty() {
            let id = self.message_id(iteration, attempt);
            all.push(chunk("agent_message_chunk", rest, &id));
        }
        for call in event.calls() {
            let arguments = call.function.arguments.map(|it| decoded(it.get()));
            let arguments = serde_json::from_str(&arguments.unwrap_or_default());
            let mut shown = ShownCall {
                tool: call.function.name.into_owned(),
                arguments: arguments.unwrap_or_default(),
                ..ShownCall::default()
            };
            // As early as possible: the file is still what it was.
            shown.diff = self
                .tools
                .diff(&shown, &self.cwd, source == LineOrigin::Live);
            self.calls.insert(call.id.into_owned(), shown);
        }
        let usage = event.usage.unwrap_or_default().tokens();
        let used = usage.prompt_tokens.saturating_add(usage.completion_tokens);
        if self.window > 0 && used > 0 {
            all.push(json!({"sessionUpdate": "usage_update", "used": used, "size": self.window}));
        }
        all
    }

    /// A call before which a person is asked, or one that asks a person.
    fn question(&mut self, event: &Line<'_>) -> Vec<Value> {
        self.answers.note_question(event);
        let prompt = event.prompt.as_deref().unwrap_or_default();
        let id = event.action_id.as_deref().unwrap_or_default();
        let title = title_of(prompt);
        let request_id = event.request_id.as_deref().unwrap_or_default();
        self.asked = (request_id.to_owned(), id.to_owned());
        self.calls.entry(id.to_owned()).or_default();
        vec![self.announce(id, "pending", &title, Some(prompt))]
    }

    fn result(&mut self, event: &Line<'_>) -> Vec<Value> {
        let id = event.action_id.as_deref().unwrap_or_default();
        let mut all = Vec::new();
        if !self.calls.get(id).is_some_and(|call| call.is_announced) {
            // Nothing was run.
            let tool = event.tool_name.as_deref().unwrap_or_default();
            self.calls
                .entry(id.to_owned())
                .or_insert_with(|| ShownCall {
                    tool: tool.to_owned(),
                    ..ShownCall::default()
                });
            all.push(self.announce(id, "pending", tool, None));
        }
        let said = event
            .observation_content
            .map_or("".into(), |it| decoded(it.get()));
        let said = if self.answers.has_result(event) {
            &*said
        } else {
            NOT_SHOWN
        };
        let mut content = vec![json!({"type": "content", "content": text_block(said)})];
        let call = self.calls.remove(id).unwrap_or_default();
        content.extend(call.diff.filter(|_| event.is_success()));
        let status = if event.is_success() {
            "completed"
        } else {
            "failed"
        };
        all.push(json!({
            "sessionUpdate": "tool_call_update",
            "toolCallId": id,
            "status": status,
            "content": content,
            "rawOutput": {"status": event.status, "exit_code": event.exit_code},
        }));
        all
    }

    /// A call, or the next state of one that the client has.
    fn announce(&mut self, id: &str, status: &str, title: &str, said: Option<&str>) -> Value {
        let members = self.described(id, title, said);
        let was_announced = self
            .calls
            .get_mut(id)
            .is_some_and(|call| std::mem::replace(&mut call.is_announced, true));
        let kind = if was_announced {
            "tool_call_update"
        } else {
            "tool_call"
        };
        let mut update = json!({"sessionUpdate": kind, "toolCallId": id, "status": status});
        if let Value::Object(update) = &mut update {
            update.extend(members);
        }
        update
    }

    /// Title, kind, places and input of a call, and what it changes.
    fn described(&self, id: &str, title: &str, said: Option<&str>) -> Map<String, Value> {
        let mut members = Map::new();
        members.insert("title".to_owned(), title.into());
        if let Some(call) = self.calls.get(id) {
            let place = self.tools.path(call, &self.cwd);
            let places: Vec<Value> = place
                .map(|path| json!({"path": path}))
                .into_iter()
                .collect();
            let text = said.map(|it| json!({"type": "content", "content": text_block(it)}));
            let content: Vec<Value> = text.into_iter().chain(call.diff.clone()).collect();
            members.insert("kind".to_owned(), self.tools.kind(&call.tool).into());
            members.insert("locations".to_owned(), places.into());
            members.insert("rawInput".to_owned(), call.arguments.clone());
            members.insert("content".to_owned(), content.into());
        }
        members
    }

    /// The call that a question is about, for the request that asks it.
    pub(super) fn asking_call(&self, request_id: &str, prompt: &str) -> Map<String, Value> {
        let (asked, call) = &self.asked;
        let id = if asked == request_id {
            call
        } else {
            request_id
        };
        let mut members = self.described(id, &title_of(prompt), Some(prompt));
        members.insert("toolCallId".to_owned(), id.into());
        members
    }
}

/// The first line of a question: the command, if it is about one.
fn title_of(prompt: &str) -> String {
    let first = prompt.lines().next().unwrap_or_default();
    in_short(first.strip_prefix("$ ").unwrap_or(first), TITLE_WIDTH)
}

fn content_of<'a>(event: &Line<'a>) -> Cow<'a, str> {
    event
        .content
        .map_or(Cow::Borrowed(""), |it| decoded(it.get()))
}

fn parsed(json: &RawValue) -> Value {
    serde_json::from_str(json.get()).unwrap_or_default()
}
