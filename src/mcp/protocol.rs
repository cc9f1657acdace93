//! The messages: JSON-RPC 2.0, in the revisions of the protocol that are spoken here.
//!
//! Pure. Source: the specification of 2026-07-28, which has no state between requests, and of 2025-11-25,
//! whose connections begin with `initialize`.

use crate::VERSION;
use serde_json::{Map, Value, json};

/// The revision without sessions.
pub(crate) const MODERN: &str = "2026-07-28";

/// The revisions that begin with `initialize`, the newest first.
pub(crate) const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// JSON-RPC: no valid request.
pub(super) const INVALID_REQUEST: i64 = -32600;
/// JSON-RPC: no such method.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: parameters that the method does not take.
pub(super) const INVALID_PARAMS: i64 = -32602;
/// MCP: the server needs what this client has not declared.
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
/// MCP: the server does not speak this revision; `data.supported` lists those that it does.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

/// The extension by which a server may answer a call with a task.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A revision of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revision {
    Modern,
    /// One of [`LEGACY`].
    Legacy(&'static str),
}

impl Revision {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if name == MODERN {
            return Some(Self::Modern);
        }
        let legacy = LEGACY.into_iter().find(|known| *known == name);
        legacy.map(Self::Legacy)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Modern => MODERN,
            Self::Legacy(name) => name,
        }
    }
}

/// A server's answer to a request.
#[derive(Debug)]
pub(crate) enum RpcResponse {
    Result(Map<String, Value>),
    Error(RpcError),
}

/// What came back for a request.
#[derive(Debug)]
pub(super) enum RpcOutcome {
    Answer(RpcResponse),
    /// Nothing came in time.
    Silence,
    /// A status instead of a message, and the beginning of its text.
    Status(u16, String),
}

/// An error that a server answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Value,
}

impl RpcError {
    /// True for the errors that only a server of the modern revision knows.
    pub(crate) fn is_modern(&self) -> bool {
        (-32029..=-32020).contains(&self.code)
    }

    /// What a person reads.
    pub(crate) fn words(&self) -> String {
        if self.code == MISSING_CAPABILITY {
            let missing = self.data.get("requiredCapabilities").unwrap_or(&self.data);
            let names: Vec<&str> = match missing {
                Value::Object(map) => map.keys().map(String::as_str).collect(),
                Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
                _ => Vec::new(),
            };
            return format!(
                "the server needs a capability that delta does not offer ({}): {}",
                if names.is_empty() {
                    "unnamed".to_owned()
                } else {
                    names.join(", ")
                },
                self.message
            );
        }
        let supported = self.data.get("supported").and_then(Value::as_array);
        if self.code == UNSUPPORTED_VERSION
            && let Some(supported) = supported
        {
            let names: Vec<&str> = supported.iter().filter_map(Value::as_str).collect();
            return format!(
                "the server speaks no revision that delta does, only {}: {}",
                names.join(", "),
                self.message
            );
        }
        format!("{} (code {})", self.message, self.code)
    }
}

/// A message from a server.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// The answer to the request with this id.
    Answer(u64, RpcResponse),
    /// A request, with its id as it is.
    Request { id: Value, method: String },
    /// Something that needs no answer.
    Notification,
    /// No message at all.
    Junk,
}

/// Reads one message.
pub(crate) fn read_message(text: &[u8]) -> Incoming {
    match serde_json::from_slice::<Value>(text) {
        Ok(Value::Object(map)) => read_object(map),
        _ => Incoming::Junk,
    }
}

fn read_object(mut map: Map<String, Value>) -> Incoming {
    if map.get("jsonrpc") != Some(&"2.0".into()) {
        return Incoming::Junk;
    }
    let id = map.shift_remove("id").filter(|id| !id.is_null());
    if let Some(Value::String(method)) = map.shift_remove("method") {
        return id.map_or(Incoming::Notification, |id| Incoming::Request {
            id,
            method,
        });
    }
    let answer = match (map.shift_remove("result"), map.shift_remove("error")) {
        (Some(Value::Object(result)), None) => RpcResponse::Result(result),
        (_, Some(Value::Object(error))) => RpcResponse::Error(read_error(&error)),
        _ => return Incoming::Junk,
    };
    match id.as_ref().and_then(Value::as_u64) {
        Some(id) => Incoming::Answer(id, answer),
        // An error about a message that the server could not read has no id: it is about the only one.
        None if matches!(answer, RpcResponse::Error(_)) => Incoming::Answer(0, answer),
        None => Incoming::Junk,
    }
}

fn read_error(error: &Map<String, Value>) -> RpcError {
    let message = error.get("message").and_then(Value::as_str);
    RpcError {
        code: error
            .get("code")
            .and_then(Value::as_i64)
            .unwrap_or_default(),
        message: message.unwrap_or("no message").to_owned(),
        data: error.get("data").cloned().unwrap_or_default(),
    }
}

/// A request. In the modern revision each says who asks and what it can.
pub(crate) fn request(
    id: u64,
    method: &str,
    mut params: Map<String, Value>,
    of: Revision,
) -> Value {
    if of == Revision::Modern {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": client_info(),
        });
        params.insert("_meta".to_owned(), meta);
    }
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// The request that a legacy connection begins with.
pub(crate) fn initialize(id: u64) -> Value {
    let params = json!({
        "protocolVersion": LEGACY[0],
        "capabilities": {},
        "clientInfo": client_info(),
    });
    json!({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params})
}

/// The notification that ends the beginning of a legacy connection.
pub(crate) fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

/// The notification that a request is cancelled.
pub(crate) fn cancelled(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

/// The answer to a server's request: nothing is offered to servers.
pub(crate) fn refusal(id: Value, method: &str) -> Value {
    if method == "ping" {
        return json!({"jsonrpc": "2.0", "id": id, "result": {}});
    }
    let message = format!("{method} is not offered");
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": METHOD_NOT_FOUND, "message": message}})
}

fn client_info() -> Value {
    json!({"name": "delta", "version": VERSION})
}

/// The modern revision, if an answer to `server/discover` says that the server speaks it.
pub(crate) fn speaks_modern(result: &Map<String, Value>) -> bool {
    let versions = result.get("supportedVersions").and_then(Value::as_array);
    versions.is_some_and(|list| list.iter().any(|version| version == MODERN))
}

/// The revision that a server chose in its answer to `initialize`.
pub(crate) fn chosen_revision(result: &Map<String, Value>) -> Result<Revision, String> {
    let version = result.get("protocolVersion").and_then(Value::as_str);
    let Some(version) = version else {
        return Err("the server's answer to initialize has no protocolVersion".to_owned());
    };
    let known = LEGACY.into_iter().find(|known| *known == version);
    known.map(Revision::Legacy).ok_or_else(|| {
        format!(
            "the server speaks revision {version:?} only; known are {MODERN}, {}",
            LEGACY.join(", ")
        )
    })
}

/// What a server offers beside tools, as far as it may keep state between calls.
pub(crate) fn other_offers(result: &Map<String, Value>) -> Vec<String> {
    let capabilities = result.get("capabilities").and_then(Value::as_object);
    let names = capabilities.into_iter().flat_map(Map::keys);
    let is_other = |name: &&String| !["tools", "extensions"].contains(&name.as_str());
    names.filter(is_other).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_other_revisions_names_them() {
        let error = RpcError {
            code: UNSUPPORTED_VERSION,
            message: "unsupported".to_owned(),
            data: json!({"supported": ["2027-01-01", "2027-06-01"]}),
        };
        let words = error.words();
        assert!(words.contains("only 2027-01-01, 2027-06-01"), "{words}");
    }

    #[test]
    fn messages_are_told_apart() {
        let kind = |text: &str| match read_message(text.as_bytes()) {
            Incoming::Answer(id, RpcResponse::Result(_)) => format!("result {id}"),
            Incoming::Answer(id, RpcResponse::Error(error)) => format!("error {id} {}", error.code),
            Incoming::Request { id, method } => format!("request {id} {method}"),
            Incoming::Notification => "notification".to_owned(),
            Incoming::Junk => "junk".to_owned(),
        };
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":3,"result":{}}"#, "result 3"),
            (
                r#"{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"m"}}"#,
                "error 3 -1",
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#,
                "error 0 -32700",
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"roots/list"}"#,
                "request \"a\" roots/list",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
                "notification",
            ),
            (r#"{"jsonrpc":"2.0","id":3,"result":[]}"#, "junk"),
            (r#"{"id":3,"result":{}}"#, "junk"),
            ("Server started", "junk"),
            ("[1]", "junk"),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }

    #[test]
    fn a_modern_request_says_who_asks() {
        let request = request(7, "tools/list", Map::new(), Revision::Modern);
        let meta = &request["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], MODERN);
        assert_eq!(
            meta["io.modelcontextprotocol/clientCapabilities"],
            json!({})
        );
        let legacy = super::request(7, "tools/list", Map::new(), Revision::Legacy(LEGACY[0]));
        assert_eq!(legacy["params"], json!({}));
    }
}
