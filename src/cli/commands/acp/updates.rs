//! The events of a run as updates of a session.
//!
//! Unaware of how they reach the client, and of what the run does next.

use super::calls::{ShownCall, Tools};
use crate::record::event::recorded::{ActionResult, HumanInputRequest, Thought};
use crate::record::event::{Line, Recorded};
use crate::record::history::History;
use crate::record::reader::{read_event, split_lines};
use crate::text::json;
use crate::text::shorten::{first_line, in_short};
use serde_json::{Map, Value, json};
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
    /// By their ids.
    calls: HashMap<String, ShownCall>,
    history: History,
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
            calls: HashMap::new(),
            history: History::default(),
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
        let text = json::member_text(delta, "text");
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
        self.history.add(&event);
        let id = &*event.action_id;
        match &event.event {
            Recorded::EngineStart(start) => {
                // An answer that a start has begun, no later one ends.
                self.start = event.seq.unwrap_or_default();
                self.arrived = (0, 0, String::new());
                let window = start.config().llm().get("window").read();
                self.window = window.unwrap_or(self.window);
                Vec::new()
            }
            Recorded::UserMessage(message) => {
                if source == LineOrigin::Live && message.inbox_id().is_none() {
                    return Vec::new();
                }
                let id = format!("user-{}", event.seq.unwrap_or_default());
                vec![chunk("user_message_chunk", &message.content.text(), &id)]
            }
            Recorded::Thought(thought) => {
                self.thought(thought, event.iteration.unwrap_or_default(), source)
            }
            Recorded::HumanInputRequest(question) => self.question(id, question),
            Recorded::ActionRequest(request) => {
                let title = self.history.asked(request);
                let call = self.calls.entry(id.to_owned()).or_default();
                call.tool = request.tool_name.to_string();
                call.arguments = request.tool_args.read_or_default();
                vec![self.announce(id, "in_progress", &title, None)]
            }
            Recorded::ActionResult(result) => self.result(&event, result),
            Recorded::Compaction(compaction) if shows.compactions => {
                let summary = compaction.summary.owned().or_else(|| event.note());
                vec![json!({
                    "sessionUpdate": "compaction_update",
                    "compactionId": format!("compaction-{}", event.seq.unwrap_or_default()),
                    "status": "completed",
                    "summary": [text_block(&summary.unwrap_or_default())],
                })]
            }
            Recorded::SystemMessage(note) => {
                self.window = note.window.unwrap_or(self.window);
                let text = note.content.text();
                if !shows.notices || &*note.level != "WARN" || text.is_empty() {
                    return Vec::new();
                }
                vec![json!({
                    "sessionUpdate": "notice",
                    "severity": "warning",
                    "title": in_short(&text, TITLE_WIDTH),
                    "description": text,
                })]
            }
            Recorded::ActionDeferred(_) => {
                vec![
                    json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress"}),
                ]
            }
            _ => Vec::new(),
        }
    }

    fn thought(&mut self, thought: &Thought<'_>, iteration: u64, source: LineOrigin) -> Vec<Value> {
        let mut all = Vec::new();
        let reasoning = thought.reasoning_fields().into_iter();
        let mut reasoning =
            reasoning.filter_map(|(_, value)| serde_json::from_str::<String>(value.get()).ok());
        if let Some(text) = reasoning.find(|text| !text.is_empty()) {
            let id = format!("thought-{iteration}");
            all.push(chunk("agent_thought_chunk", &text, &id));
        }
        let text = thought.content.text();
        let (arrived_in, attempt, arrived) = std::mem::take(&mut self.arrived);
        // What a client has been shown is not shown again.
        let (attempt, rest) = if arrived_in == iteration && !arrived.is_empty() {
            (attempt, text.strip_prefix(&*arrived).unwrap_or_default())
        } else {
            (1, &*text)
        };
        if !rest.is_empty() {
            let id = self.message_id(iteration, attempt);
            all.push(chunk("agent_message_chunk", rest, &id));
        }
        for call in thought.calls() {
            let mut shown = ShownCall {
                arguments: json::read_or_default(&*call.function.sent()),
                tool: call.function.name.into_owned(),
                ..ShownCall::default()
            };
            // As early as possible: the file is still what it was.
            let is_live = source == LineOrigin::Live;
            shown.diff = Tools(&self.history).diff(&shown, &self.cwd, is_live);
            self.calls.insert(call.id.into_owned(), shown);
        }
        let usage = thought.usage.unwrap_or_default().tokens();
        let used = usage.prompt_tokens.saturating_add(usage.completion_tokens);
        if self.window > 0 && used > 0 {
            all.push(json!({"sessionUpdate": "usage_update", "used": used, "size": self.window}));
        }
        all
    }

    /// A call before which a person is asked, or one that asks a person.
    fn question(&mut self, id: &str, question: &HumanInputRequest<'_>) -> Vec<Value> {
        let prompt = &*question.prompt;
        self.asked = (question.request_id.to_string(), id.to_owned());
        self.calls.entry(id.to_owned()).or_default();
        vec![self.announce(id, "pending", &title_of(prompt), Some(prompt))]
    }

    fn result(&mut self, line: &Line<'_>, result: &ActionResult<'_>) -> Vec<Value> {
        let id = &*line.action_id;
        let mut all = Vec::new();
        if !self.calls.get(id).is_some_and(|call| call.is_announced) {
            // Nothing was run.
            let tool = &*result.tool_name;
            self.calls
                .entry(id.to_owned())
                .or_insert_with(|| ShownCall {
                    tool: tool.to_owned(),
                    ..ShownCall::default()
                });
            all.push(self.announce(id, "pending", tool, None));
        }
        let said = self.history.observation(line, result);
        let mut content = vec![json!({"type": "content", "content": text_block(&said)})];
        let call = self.calls.remove(id).unwrap_or_default();
        content.extend(call.diff.filter(|_| result.is_success()));
        let status = if result.is_success() {
            "completed"
        } else {
            "failed"
        };
        all.push(json!({
            "sessionUpdate": "tool_call_update",
            "toolCallId": id,
            "status": status,
            "content": content,
            "rawOutput": {"status": result.status.get(), "exit_code": result.exit_code},
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
            let tools = Tools(&self.history);
            let places: Vec<Value> = tools
                .path(call, &self.cwd)
                .map(|path| json!({"path": path}))
                .into_iter()
                .collect();
            let content: Vec<Value> = said
                .map(|it| json!({"type": "content", "content": text_block(it)}))
                .into_iter()
                .chain(call.diff.clone())
                .collect();
            members.insert("kind".to_owned(), tools.kind(&call.tool).into());
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
    let first = first_line(prompt);
    in_short(first.strip_prefix("$ ").unwrap_or(first), TITLE_WIDTH)
}
