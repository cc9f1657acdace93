//! Old forms of the journal's lines.
//!
//! Engines up to 1.3 nest an event's fields under `payload`, call the first and the last event
//! `RUN_START` and `RUN_END`, and record the task only in the first. Engines up to 1.9 do not record
//! which calls a thought asked for: the actions follow it, with ids of their own or with none.
//! Nothing else in the crate knows that.

use crate::record::event::{EventKind, Line};
use crate::text::json::{self, Object};
use crate::unix::files;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::path::Path;

/// The fields that only old starts have.
#[derive(Deserialize)]
struct Start<'a> {
    #[serde(borrow)]
    agent_ref: Option<Cow<'a, str>>,
}

/// A line in today's form; `is_old` marks that it was in another.
///
/// # Errors
/// The parser's, if a nested payload cannot be read.
pub(crate) fn flat(mut line: Box<Line<'_>>) -> Result<Box<Line<'_>>, serde_json::Error> {
    if let Some(payload) = line.payload {
        let mut inner = Line::parse(payload.get())?;
        inner.kind = line.kind;
        inner.seq = line.seq;
        inner.timestamp = line.timestamp.or(inner.timestamp);
        inner.iteration = line.iteration.or(inner.iteration);
        inner.is_old = true;
        if inner.agent_home.is_none() {
            inner.agent_home = serde_json::from_str::<Start<'_>>(payload.get())?.agent_ref;
        }
        line = inner;
    }
    line.kind = match line.kind.name() {
        "RUN_START" => EventKind::EngineStart,
        "RUN_END" => EventKind::EngineEnd,
        _ => return Ok(line),
    };
    line.is_old = true;
    Ok(line)
}

/// A call that an old thought must have asked for, since its action was started.
pub(crate) struct LegacyCall<'a> {
    /// The action's id, or one made of the event's number.
    pub id: Cow<'a, str>,
    /// Which tool.
    pub name: Cow<'a, str>,
    /// A JSON object in a text.
    pub arguments: Cow<'a, str>,
    /// Where engines up to 1.3 record an execution, once it has been brought into today's layout.
    pub execution_ref: Option<String>,
}

/// The call behind an `ACTION_REQUEST` or `HUMAN_INPUT_REQUEST`; none if this engine wrote it, and
/// the call it belongs to has been taken out of the journal.
pub(crate) fn call<'a>(line: &Line<'a>, seq: u64) -> Option<LegacyCall<'a>> {
    let is_question = line.kind == EventKind::HumanInputRequest;
    let is_todays = line.call_id.is_some() || is_question && line.action_id.is_some();
    if is_todays {
        return None;
    }
    let id = line.action_id.clone().filter(|id| !id.is_empty());
    let arguments = if is_question {
        let mut arguments = Vec::new();
        let mut object = Object::begin(&mut arguments);
        object.put("prompt", line.prompt.as_deref().unwrap_or_default());
        object.end();
        Cow::Owned(String::from_utf8(arguments).unwrap_or_default())
    } else {
        let given = line.tool_args.map(RawValue::get);
        Cow::Borrowed(given.filter(|json| json.starts_with('{')).unwrap_or("{}"))
    };
    Some(LegacyCall {
        execution_ref: id
            .as_ref()
            .filter(|id| !id.contains('/') && !is_question)
            .map(|id| format!("io/tool_executions/{id}"))
            .filter(|path| files::is_below(Path::new(path))),
        id: id.unwrap_or_else(|| Cow::Owned(format!("action_{seq}"))),
        name: match &line.tool_name {
            Some(name) => name.clone(),
            None if is_question => Cow::Borrowed("ask_human"),
            None => return None,
        },
        arguments,
    })
}

/// The question of an `ask_human` call that was started as any other, without an event for the question.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct LegacyQuestion {
    pub prompt: String,
    pub input_type: Option<String>,
    pub sensitive: bool,
}

/// The question that a started call of this tool asks; none if that is another tool.
pub(crate) fn question(tool: &str, arguments: &str) -> Option<LegacyQuestion> {
    (tool == "ask_human").then(|| serde_json::from_str(arguments).unwrap_or_default())
}

/// The `tool_calls` of a thought with one call more.
pub(crate) fn with_call(tool_calls: Option<&str>, call: &LegacyCall<'_>) -> String {
    let mut function = Vec::new();
    let mut object = Object::begin(&mut function);
    object
        .put("name", &*call.name)
        .put("arguments", &*call.arguments);
    object.end();
    let mut out = match tool_calls.and_then(|calls| calls.strip_suffix(']')) {
        Some(before) => [before.as_bytes(), b","].concat(),
        None => b"[".to_vec(),
    };
    let mut object = Object::begin(&mut out);
    object
        .put("id", &*call.id)
        .put("type", "function")
        .raw("function", &function);
    object.end();
    out.push(b']');
    String::from_utf8(out).unwrap_or_else(|_| json::text(&[(); 0]))
}
