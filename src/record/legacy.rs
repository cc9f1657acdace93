//! Old forms of the journal's lines.
//!
//! Engines up to 1.3 nest an event's fields under `payload`, call the first and the last event
//! `RUN_START` and `RUN_END`, and record the task only in the first. Engines up to 1.9 do not record
//! which calls a thought asked for: the actions follow it, with ids of their own or with none.
//! Nothing else in the crate knows that.

use crate::record::event::{EventKind, Line, Recorded, Text};
use crate::text::json::{self, Object};
use crate::unix::files;
use serde::Deserialize;
use std::borrow::Cow;
use std::path::Path;

/// The fields that only old starts have.
#[derive(Deserialize)]
struct Start<'a> {
    #[serde(borrow)]
    agent_ref: Option<Cow<'a, str>>,
}

/// Reads a line in today's form; `is_old` marks that it was in another.
///
/// # Errors
/// The parser's, also if a nested payload cannot be read.
pub(crate) fn read_line(text: &str) -> Result<Box<Line<'_>>, serde_json::Error> {
    let mut outer = Line::parse(text)?;
    let kind = match outer.kind.name() {
        "RUN_START" => EventKind::EngineStart,
        "RUN_END" => EventKind::EngineEnd,
        _ if outer.payload.is_some() => std::mem::take(&mut outer.kind),
        _ => return Ok(outer),
    };
    let payload = outer.payload.get();
    let mut line = Line::parse_as(payload.unwrap_or(text), kind.clone())?;
    (line.text, line.kind, line.is_old) = (text, kind, true);
    if let Some(payload) = payload {
        line.place.seq = outer.seq;
        line.place.iteration = outer.iteration.or(line.iteration);
        if outer.timestamp.is_some() {
            line.place.timestamp = outer.place.timestamp;
        }
        if let Recorded::EngineStart(start) = &mut line.event
            && !start.agent_home.is_some()
        {
            start.agent_home = Text(serde_json::from_str::<Start<'_>>(payload)?.agent_ref);
        }
    }
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
    /// Place where engines up to 1.3 record an execution, once it has been brought into today's layout.
    pub execution_ref: Option<String>,
}

/// The call of an `ACTION_REQUEST` or `HUMAN_INPUT_REQUEST`; none if this engine wrote it, and
/// the call it belongs to has been taken out of the journal.
pub(crate) fn call<'a>(line: &Line<'a>, seq: u64) -> Option<LegacyCall<'a>> {
    let id = line.action_id.0.clone().filter(|id| !id.is_empty());
    let (name, arguments, execution_ref) = match &line.event {
        Recorded::ActionRequest(request) if !request.call_id.is_some() => {
            let given = request.tool_args.get().filter(|json| json.starts_with('{'));
            let id = id.as_ref().filter(|id| !id.contains('/'));
            let path = id
                .map(|id| format!("io/tool_executions/{id}"))
                .filter(|path| files::is_below(Path::new(path)));
            (
                request.tool_name.0.clone()?,
                given.unwrap_or("{}").into(),
                path,
            )
        }
        Recorded::HumanInputRequest(asked) if !line.action_id.is_some() => {
            let arguments = json::object(|object| {
                object.put("prompt", &*asked.prompt);
            });
            let name = asked.tool_name.0.clone().unwrap_or("ask_human".into());
            let arguments = String::from_utf8(arguments).unwrap_or_default();
            (name, arguments.into(), None)
        }
        _ => return None,
    };
    Some(LegacyCall {
        execution_ref,
        id: id.unwrap_or_else(|| Cow::Owned(format!("action_{seq}"))),
        name,
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
    (tool == "ask_human").then(|| json::read_or_default(arguments))
}

/// The `tool_calls` of a thought with one call more.
pub(crate) fn with_call(tool_calls: Option<&str>, call: &LegacyCall<'_>) -> String {
    let function = json::object(|object| {
        object
            .put("name", &*call.name)
            .put("arguments", &*call.arguments);
    });
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
