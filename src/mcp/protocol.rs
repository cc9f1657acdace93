//! The messages: JSON-RPC 2.0, in the revisions of the protocol that are spoken here.
//!
//! Pure. Source: the specification of 2026-07-28, which has no state between requests, and of 2025-11-25,
//! whose connections begin with `initialize`.

use crate::VERSION;
use crate::error::Error;
use crate::text::json::{self, Members};
use crate::text::shorten::head;
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
const MISSING_CAPABILITY: i64 = -32021;
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
        LEGACY
            .into_iter()
            .find(|known| *known == name)
            .map(Self::Legacy)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Modern => MODERN,
            Self::Legacy(name) => name,
        }
    }
}

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Members as they were written.
    Result(Members),
    Error(RpcError),
    /// The head of an answer that has neither.
    Unreadable(String),
    /// Nothing came in time.
    Silence,
    /// The connection, or the program, has ended.
    Lost(Error),
    /// A status instead of a message, and the beginning of its text.
    Status(u16, String),
}

/// An error that a server answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RpcError {
    /// 0 if there is none.
    pub code: i64,
    pub message: String,
    /// JSON.
    pub data: String,
}

/// The most bytes of an error's data that are shown.
const SHOWN_DATA: usize = 2000;

impl RpcError {
    /// True for the errors that only a server of the modern revision knows.
    pub(crate) fn is_modern(&self) -> bool {
        (-32029..=-32020).contains(&self.code)
    }

    /// The error in words for a person.
    pub(crate) fn words(&self) -> String {
        let Self { code, message, .. } = self;
        let data = parsed(&self.data);
        match *code {
            MISSING_CAPABILITY => {
                let missing = names_in(data.get("requiredCapabilities").unwrap_or(&data));
                let names = if missing.is_empty() {
                    "unnamed"
                } else {
                    &missing
                };
                format!(
                    "the server needs a capability that delta does not offer ({names}): {message}"
                )
            }
            UNSUPPORTED_VERSION if data["supported"].is_array() => {
                let names = names_in(&data["supported"]);
                format!("the server speaks no revision that delta does, only {names}: {message}")
            }
            code => {
                let code = if code == 0 {
                    String::new()
                } else {
                    format!(" (code {code})")
                };
                let data = match &*self.data {
                    "" | "null" => String::new(),
                    data => format!(": {}", text_or_json(data)),
                };
                format!("{message}{code}{}", head(&data, SHOWN_DATA))
            }
        }
    }

    /// True if the server says that it speaks the modern revision.
    pub(crate) fn offers_modern(&self) -> bool {
        lists_modern(&parsed(&self.data)["supported"])
    }
}

/// The names in a list, or of the members of an object.
fn names_in(value: &Value) -> String {
    let members = value.as_object().into_iter().flat_map(Map::keys);
    let items = value.as_array().into_iter().flatten();
    members
        .map(String::as_str)
        .chain(items.filter_map(Value::as_str))
        .collect::<Vec<&str>>()
        .join(", ")
}

/// A value of a server's; null where this program cannot hold it.
pub(crate) fn parsed(json: &str) -> Value {
    json::read_or_default(json)
}

/// The text that JSON is, or the JSON itself.
pub(super) fn text_or_json(json: &str) -> String {
    serde_json::from_str(json).unwrap_or_else(|_| json::minified(json))
}

/// A message for a server.
#[derive(Default)]
pub(crate) struct Outgoing {
    pub method: String,
    /// The tool or the task that it is about.
    pub subject: Option<String>,
    pub text: String,
    /// Headers of its own, where it is sent over HTTP.
    pub headers: Vec<(String, String)>,
}

/// The method that calls a tool.
pub(crate) const CALL: &str = "tools/call";

/// A warning about a request whose answer is lost.
pub(crate) fn effect_of(method: &str) -> &'static str {
    if method == CALL {
        "; the call may have had an effect"
    } else {
        ""
    }
}

impl From<Value> for Outgoing {
    fn from(message: Value) -> Self {
        Self {
            method: message["method"].as_str().unwrap_or("").to_owned(),
            text: message.to_string(),
            ..Self::default()
        }
    }
}

/// A request, whose parameters are JSON.
pub(crate) fn request(
    id: u64,
    method: &str,
    params: &[(&str, &str)],
    meta: Option<&Value>,
) -> Outgoing {
    let members = params
        .iter()
        .map(|(name, json)| format!("\"{name}\":{json}"))
        .chain(meta.map(|meta| format!("\"_meta\":{meta}")))
        .collect::<Vec<String>>()
        .join(",");
    let mut names = params
        .iter()
        .filter(|(name, _)| ["name", "taskId"].contains(name));
    Outgoing {
        method: method.to_owned(),
        subject: names.find_map(|(_, json)| serde_json::from_str(json).ok()),
        text: format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{members}}}}}"#
        ),
        headers: Vec::new(),
    }
}

/// Who asks and what it can, as each request of the modern revision says.
pub(crate) fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": client_info(),
    })
}

/// The request that a legacy connection begins with.
pub(crate) fn initialize(id: u64, version: &str) -> Value {
    let params = json!({
        "protocolVersion": version,
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
pub(super) fn refusal(id: &str, method: &str) -> String {
    let error = json!({"code": METHOD_NOT_FOUND, "message": format!("{method} is not offered")});
    let (member, value) = if method == "ping" {
        ("result", json!({}))
    } else {
        ("error", error)
    };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{value}}}"#)
}

fn client_info() -> Value {
    json!({"name": "delta", "version": VERSION})
}

/// A member of an answer; null if it is not there.
pub(crate) fn member(answer: &Members, key: &str) -> Value {
    answer.get(key).map_or(Value::Null, parsed)
}

fn lists_modern(versions: &Value) -> bool {
    versions
        .as_array()
        .is_some_and(|list| list.contains(&MODERN.into()))
}

/// True if an answer to `server/discover` names the modern revision.
pub(crate) fn speaks_modern(result: &Members) -> bool {
    lists_modern(&member(result, "supportedVersions"))
}

/// The revision that a server chose in its answer to `initialize`.
pub(crate) fn chosen_revision(result: &Members) -> Result<Revision, Error> {
    let chosen = member(result, "protocolVersion");
    let version = chosen.as_str().ok_or_else(|| {
        Error::failure("the server's answer to initialize has no protocolVersion")
    })?;
    match Revision::parse(version) {
        Some(legacy @ Revision::Legacy(_)) => Ok(legacy),
        _ => Err(Error::failure(format!(
            "the server speaks revision {version:?} only; known are {MODERN}, {}",
            LEGACY.join(", ")
        ))),
    }
}

/// The offers of a server beside tools that may keep state between calls.
pub(crate) fn other_offers(result: &Members) -> Vec<String> {
    let capabilities = member(result, "capabilities");
    let names = capabilities.as_object().into_iter().flat_map(Map::keys);
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
            data: r#"{"supported": ["2027-01-01", "2027-06-01"]}"#.to_owned(),
        };
        let words = error.words();
        assert!(words.contains("only 2027-01-01, 2027-06-01"), "{words}");
    }

    #[test]
    fn a_modern_request_says_who_asks() {
        let params = [("name", r#""a""#), ("arguments", "{\"n\":1e999}")];
        let modern = request(7, "tools/call", &params, Some(&meta()));
        assert_eq!(modern.subject.as_deref(), Some("a"));
        let begin = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":{"n":1e999},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"#;
        assert!(modern.text.starts_with(begin), "{}", modern.text);
        let legacy = request(7, "tools/list", &[], None);
        assert!(legacy.text.ends_with("\"params\":{}}"), "{}", legacy.text);
    }
}
