//! Messages of JSON-RPC 2.0, one a line.
//!
//! Pure. Unaware of the methods.

use serde_json::{Map, Value, json};

pub(super) const PARSE_ERROR: i64 = -32700;
pub(super) const INVALID_REQUEST: i64 = -32600;
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
pub(super) const INVALID_PARAMS: i64 = -32602;
pub(super) const INTERNAL_ERROR: i64 = -32603;
/// Of the Agent Client Protocol: there is no such thing.
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

/// Reads one message.
///
/// # Errors
/// The answer that the client gets instead.
pub(super) fn read_message(line: &[u8]) -> Result<ClientMessage, Value> {
    let refused = |id, code, text: &str| failure(&id, &Rejection::new(code, text));
    let mut message = match serde_json::from_slice(line) {
        Ok(Value::Object(message)) => message,
        Ok(_) => Map::new(),
        Err(error) => {
            let text = format!("not JSON: {error}");
            return Err(refused(Value::Null, PARSE_ERROR, &text));
        }
    };
    let mut take = |name| message.shift_remove(name);
    let (id, method, params) = (take("id"), take("method"), take("params"));
    let (result, error) = (take("result"), take("error"));
    let is_id = |id: &Value| id.is_string() || id.is_number();
    match (method, id, params) {
        (Some(Value::String(method)), id, params) if id.as_ref().is_none_or(is_id) => {
            let params = match params {
                None | Some(Value::Null) => Map::new(),
                Some(Value::Object(params)) => params,
                Some(_) => {
                    let id = id.unwrap_or_default();
                    return Err(refused(id, INVALID_PARAMS, "params: expected an object"));
                }
            };
            Ok(ClientMessage::Call { id, method, params })
        }
        (None, Some(id), _) if result.is_some() || error.is_some() => {
            Ok(ClientMessage::Answer { id, result })
        }
        _ => {
            let text = "neither a request nor an answer";
            Err(refused(Value::Null, INVALID_REQUEST, text))
        }
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

/// What a client shows of a session.
pub(super) fn update(session: &str, update: &Value) -> Value {
    let params = json!({"sessionId": session, "update": update});
    json!({"jsonrpc": "2.0", "method": "session/update", "params": params})
}
