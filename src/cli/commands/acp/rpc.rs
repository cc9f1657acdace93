//! Messages of JSON-RPC 2.0, one a line.
//!
//! Pure. Unaware of the methods.

use crate::text::json;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

pub(super) const PARSE_ERROR: i64 = -32700;
pub(super) const INVALID_REQUEST: i64 = -32600;
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
pub(super) const INVALID_PARAMS: i64 = -32602;
pub(super) const INTERNAL_ERROR: i64 = -32603;
/// Code of the Agent Client Protocol for something that does not exist.
pub(super) const NOT_FOUND: i64 = -32002;

/// An error for the client.
#[derive(Debug)]
pub(super) struct Rejection {
    pub code: i64,
    pub message: String,
}

impl Rejection {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }
}

impl From<crate::error::Error> for Rejection {
    fn from(error: crate::error::Error) -> Self {
        Self::new(INTERNAL_ERROR, error.message)
    }
}

/// A message of the client.
#[derive(Debug)]
pub(super) enum ClientMessage {
    /// A request; without an id, a notification.
    Call {
        id: Option<Value>,
        method: String,
        params: Map<String, Value>,
    },
    /// The answer to a request; an error has no result.
    Answer { id: Value, result: Option<Value> },
}

/// Reads a line: a message, or several in an array.
///
/// # Errors
/// The answers that the client gets instead.
pub(super) fn read_messages(line: &[u8]) -> Vec<Result<ClientMessage, Value>> {
    let text = json::readable(line);
    let text = text.trim_start_matches('\u{feff}');
    let text = json::without_nan(text).map_or(text.into(), Cow::from);
    match serde_json::from_str(&text) {
        Ok(Value::Array(batch)) if !batch.is_empty() => {
            batch.into_iter().map(read_message).collect()
        }
        Ok(message) => vec![read_message(message)],
        Err(error) => {
            let error = Rejection::new(PARSE_ERROR, format!("not JSON: {error}"));
            vec![Err(failure(&id_in(&text), &error))]
        }
    }
}

/// The id of a message that cannot be read; null if it has none.
pub(super) fn id_in(text: &str) -> Value {
    let (mut depth, mut at) = (0, 0);
    while let Some(found) = text[at..].find(['"', '{', '[', '}', ']']) {
        at += found;
        let rest = &text[at..];
        let length = if rest.starts_with('"') {
            json::string_length(rest)
        } else {
            1
        };
        match rest.as_bytes()[0] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ if depth == 1 && &rest[..length] == "\"id\"" => {
                let after = rest[length..].trim_start().strip_prefix(':');
                let value = after.and_then(|value| {
                    let mut values = serde_json::Deserializer::from_str(value).into_iter();
                    values.next()?.ok()
                });
                return value.unwrap_or(Value::Null);
            }
            _ => {}
        }
        at += length;
    }
    Value::Null
}

fn read_message(message: Value) -> Result<ClientMessage, Value> {
    let mut message = match message {
        Value::Object(message) => message,
        _ => Map::new(),
    };
    let mut take = |name| message.shift_remove(name);
    let (id, method, params) = (take("id"), take("method"), take("params"));
    let (result, error) = (take("result"), take("error"));
    let refused = |id: Option<Value>, code, text: &str| {
        Err(failure(
            &id.unwrap_or_default(),
            &Rejection::new(code, text),
        ))
    };
    let is_id = |id: &Value| id.is_string() || id.is_number();
    match (method, id, params.unwrap_or_default()) {
        (Some(_), id @ Some(_), _) if !id.as_ref().is_some_and(is_id) => {
            refused(id, INVALID_REQUEST, "the id is neither a text nor a number")
        }
        (Some(Value::String(method)), id, Value::Null) => {
            let params = Map::new();
            Ok(ClientMessage::Call { id, method, params })
        }
        (Some(Value::String(method)), id, Value::Object(params)) => {
            Ok(ClientMessage::Call { id, method, params })
        }
        (Some(Value::String(_)), id, _) => {
            refused(id, INVALID_PARAMS, "params: expected an object")
        }
        (None, Some(id), _) if result.is_some() || error.is_some() => {
            Ok(ClientMessage::Answer { id, result })
        }
        (_, id, _) => refused(id, INVALID_REQUEST, "neither a request nor an answer"),
    }
}

pub(super) fn success(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

pub(super) fn failure(id: &Value, error: &Rejection) -> Value {
    let error = json!({"code": error.code, "message": error.message});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A notification of something that a client shows of a session.
pub(super) fn update(session: &str, update: &Value) -> Value {
    let params = json!({"sessionId": session, "update": update});
    json!({"jsonrpc": "2.0", "method": "session/update", "params": params})
}
