//! The messages: JSON-RPC 2.0, in the revisions of the protocol that are spoken here.
//!
//! Pure. Source: the specification of 2026-07-28, which has no state between requests, and of 2025-11-25,
//! whose connections begin with `initialize`.

use crate::VERSION;
use crate::error::Error;
use crate::text::json::{self, Members, Object};
use crate::text::shorten::head;
use serde_json::value::RawValue;
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
    /// Members as they were written.
    Result(Members),
    Error(RpcError),
    /// The head of an answer that has neither.
    Unreadable(String),
}

/// What came back for a request.
#[derive(Debug)]
pub(super) enum RpcOutcome {
    Answer(RpcResponse),
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

    /// What a person reads.
    pub(crate) fn words(&self) -> String {
        let data = parsed(&self.data);
        if self.code == MISSING_CAPABILITY {
            let missing = data.get("requiredCapabilities").unwrap_or(&data);
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
        let supported = data.get("supported").and_then(Value::as_array);
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
        let code = match self.code {
            0 => String::new(),
            code => format!(" (code {code})"),
        };
        let shown = match data {
            Value::Null if self.data.len() < 5 => String::new(),
            Value::String(text) => format!(": {text}"),
            _ => format!(": {}", json::compact(&self.data)),
        };
        format!("{}{code}{}", self.message, head(&shown, SHOWN_DATA))
    }

    /// True if the server says that it speaks the modern revision.
    pub(crate) fn offers_modern(&self) -> bool {
        lists_modern(parsed(&self.data).get("supported"))
    }
}

/// A message from a server.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// The answer to the request with this id.
    Answer(u64, RpcResponse),
    /// A request, with its id as it was written.
    Request { id: String, method: String },
    /// Something that needs no answer.
    Notification,
}

/// The messages in a line of a program, or in a body.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub messages: Vec<Incoming>,
    /// What is not JSON.
    pub noise: String,
    /// NaN or an infinity has been read as null.
    pub has_nan: bool,
}

impl Reading {
    /// True if what cannot be read may be the answer to the request with this id.
    pub(crate) fn lacks_answer(&self, id: u64) -> bool {
        let mut places = self.noise.split("\"id\"").skip(1);
        places.any(|rest| {
            let value = rest.trim_start().strip_prefix(':').unwrap_or_default();
            let value = value.trim_start().trim_start_matches('"');
            let digits = value.bytes().take_while(u8::is_ascii_digit).count();
            value[..digits].parse() == Ok(id)
        })
    }

    fn take(&mut self, json: &str) {
        if json.starts_with('{') {
            let members = serde_json::from_str::<Members>(json);
            let message = members.ok().and_then(|map| read_object(&map, json));
            self.messages.extend(message);
        } else {
            let batch = serde_json::from_str::<Vec<&RawValue>>(json).unwrap_or_default();
            let objects = batch.into_iter().filter(|one| one.get().starts_with('{'));
            objects.for_each(|one| self.take(one.get()));
        }
    }
}

/// Reads what a server wrote. Some print other text before a message, or cut a text within a character: each `{` and
/// `[` may begin a message.
pub(crate) fn read_messages(bytes: &[u8]) -> Reading {
    let mut reading = Reading::default();
    let mut text = String::from_utf8(json::one_line(&json::readable(bytes))).unwrap_or_default();
    // So that a hostile text costs no more than a few readings of it.
    let mut budget = 8 * text.len();
    let mut at = 0;
    while let Some(found) = text[at..].find(['{', '[']).filter(|_| budget > 0) {
        reading.noise += &text[at..at + found];
        at += found;
        let rest = &text[at..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        match values.next() {
            Some(Ok(json)) => {
                reading.take(json.get());
                at += values.byte_offset();
            }
            Some(Err(error)) => {
                let fault = rest
                    .get(error.column().saturating_sub(1)..)
                    .unwrap_or_default();
                if !reading.has_nan
                    && fault.starts_with(['N', 'I'])
                    && let Some(finite) = json::without_nan(rest)
                {
                    reading.has_nan = true;
                    (text, at) = (finite, 0);
                    continue;
                }
                let cost = if error.is_eof() {
                    rest.len()
                } else {
                    error.column()
                };
                budget = budget.saturating_sub(cost);
                reading.noise += &rest[..1];
                at += 1;
            }
            None => break,
        }
    }
    reading.noise += &text[at..];
    reading
}

/// The message that an object is; `None` if it is noise.
fn read_object(map: &Members, json: &str) -> Option<Incoming> {
    let some = |key| map.get(key).filter(|json| *json != "null");
    let names = ["jsonrpc", "result", "error"];
    names.iter().find(|key| map.get(key).is_some())?;
    let id = some("id");
    if let Some(Value::String(method)) = some("method").map(parsed) {
        return Some(id.map_or(Incoming::Notification, |id| Incoming::Request {
            id: id.to_owned(),
            method,
        }));
    }
    let result = some("result").filter(|json| json.starts_with('{'));
    let is_empty = |error: &&str| ["\"\"", "{}", "false"].contains(error);
    let error = some("error").filter(|error| result.is_none() || !is_empty(error));
    let answer = match (result, error) {
        (_, Some(error)) => RpcResponse::Error(read_error(error)),
        (Some(result), None) => RpcResponse::Result(serde_json::from_str(result).ok()?),
        (None, None) => RpcResponse::Unreadable(head(json, SHOWN_HEAD).to_owned()),
    };
    match id.and_then(read_id) {
        Some(id) => Some(Incoming::Answer(id, answer)),
        // An error about a message that the server could not read has no id: it is about the only one.
        None if matches!(answer, RpcResponse::Error(_)) && map.get("jsonrpc").is_some() => {
            Some(Incoming::Answer(0, answer))
        }
        None => None,
    }
}

/// How much is shown of an answer that cannot be read, in bytes.
pub(super) const SHOWN_HEAD: usize = 500;

/// An id of ours, which comes back as a number, however it is written, or as its text.
fn read_id(json: &str) -> Option<u64> {
    let text = json.trim_matches('"');
    let number = || {
        text.parse()
            .ok()
            .filter(|n: &f64| n.fract() == 0.0 && *n >= 0.0)
    };
    text.parse().ok().or_else(|| number().map(|n| n as u64))
}

fn read_error(json: &str) -> RpcError {
    let error: Members = serde_json::from_str(json).unwrap_or_default();
    let text = |json: &str| match parsed(json) {
        Value::String(text) => text,
        _ => json::compact(json),
    };
    let code = error.get("code").map(text);
    let message = match error.0.is_empty() {
        true => text(json),
        false => error
            .get("message")
            .map_or_else(|| "no message".to_owned(), text),
    };
    RpcError {
        code: code
            .and_then(|code| code.parse::<f64>().ok())
            .unwrap_or_default() as i64,
        message,
        data: error.get("data").unwrap_or("null").to_owned(),
    }
}

/// A value of a server's; null where this program cannot hold it.
pub(crate) fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_default()
}

/// A message for a server.
pub(crate) struct Outgoing {
    pub method: String,
    /// The tool or the task that it is about.
    pub subject: Option<String>,
    pub text: String,
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
            method: message["method"].as_str().unwrap_or_default().to_owned(),
            subject: None,
            text: message.to_string(),
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
    let mut text = Vec::new();
    let mut message = Object::begin(&mut text);
    message
        .put("jsonrpc", "2.0")
        .put("id", &id)
        .put("method", method);
    let mut inner = Object::begin(message.nest("params"));
    for (name, json) in params {
        inner.raw(name, json.as_bytes());
    }
    inner.put_some("_meta", meta).end();
    message.end();
    let subject = params
        .iter()
        .find(|(name, _)| ["name", "taskId"].contains(name));
    Outgoing {
        method: method.to_owned(),
        subject: subject.and_then(|(_, json)| serde_json::from_str(json).ok()),
        text: String::from_utf8(text).unwrap_or_default(),
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
pub(crate) fn refusal(id: &str, method: &str) -> String {
    let mut text = Vec::new();
    let mut answer = Object::begin(&mut text);
    answer.put("jsonrpc", "2.0").raw("id", id.as_bytes());
    if method == "ping" {
        answer.put("result", &json!({}));
    } else {
        let message = format!("{method} is not offered");
        answer.put(
            "error",
            &json!({"code": METHOD_NOT_FOUND, "message": message}),
        );
    }
    answer.end();
    String::from_utf8(text).unwrap_or_default()
}

fn client_info() -> Value {
    json!({"name": "delta", "version": VERSION})
}

/// A member of an answer; null if it is not there.
pub(crate) fn member(answer: &Members, key: &str) -> Value {
    answer.get(key).map_or(Value::Null, parsed)
}

fn lists_modern(versions: Option<&Value>) -> bool {
    let versions = versions.and_then(Value::as_array);
    versions.is_some_and(|list| list.iter().any(|version| version == MODERN))
}

/// True if an answer to `server/discover` names the modern revision.
pub(crate) fn speaks_modern(result: &Members) -> bool {
    lists_modern(Some(&member(result, "supportedVersions")))
}

/// The revision that a server chose in its answer to `initialize`.
pub(crate) fn chosen_revision(result: &Members) -> Result<Revision, String> {
    let chosen = member(result, "protocolVersion");
    let Some(version) = chosen.as_str() else {
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
    fn messages_are_told_apart() {
        fn kind(incoming: &Incoming) -> String {
            match incoming {
                Incoming::Answer(id, RpcResponse::Result(_)) => format!("result {id}"),
                Incoming::Answer(id, RpcResponse::Error(error)) => {
                    format!("error {id} {}", error.words())
                }
                Incoming::Answer(id, RpcResponse::Unreadable(head)) => format!("no {id} {head}"),
                Incoming::Request { id, method } => format!("request {id} {method}"),
                Incoming::Notification => "notification".to_owned(),
            }
        }
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":3,"result":{}}"#, "result 3"),
            (
                r#"{"id":"3","result":{},"error":null,"method":null}"#,
                "result 3",
            ),
            (r#"{"id":3.0,"result":{},"error":{}}"#, "result 3"),
            ("\u{feff}1/2 [x] {\"id\":3,\"result\":{}} ok", "result 3"),
            (
                r#"[{"id":3,"result":{}},1,{"id":4,"result":{}}]"#,
                "result 3, result 4",
            ),
            (
                r#"{"id":3,"result":{}}{"id":4,"result":{}}"#,
                "result 3, result 4",
            ),
            (
                r#"{"id":3,"result":{"a":[NaN,-Infinity,"NaN"]}}"#,
                "result 3",
            ),
            (
                r#"{"id":3,"error":{"code":-1,"message":"m","data":{"n":1e999}}}"#,
                r#"error 3 m (code -1): {"n":1e999}"#,
            ),
            (
                r#"{"id":3,"error":{"code":"-2","message":"m","data":"d"}}"#,
                "error 3 m (code -2): d",
            ),
            (r#"{"id":3,"error":"disk full"}"#, "error 3 disk full"),
            (
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#,
                "error 0 no message (code -32700)",
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"roots/list"}"#,
                "request \"a\" roots/list",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
                "notification",
            ),
            (
                r#"{"jsonrpc":"2.0","id":3,"result":[]}"#,
                r#"no 3 {"jsonrpc":"2.0","id":3,"result":[]}"#,
            ),
            (r#"{"level":"warn","error":"slow"}"#, ""),
            (
                r#"{"level":"warn","id":3,"nested":{"id":3,"result":{}}}"#,
                "",
            ),
            ("Server started", ""),
            ("[1]", ""),
        ] {
            let reading = read_messages(text.as_bytes());
            let kinds: Vec<String> = reading.messages.iter().map(kind).collect();
            assert_eq!(kinds.join(", "), expected, "{text}");
            assert_eq!(reading.has_nan, text.contains("[NaN"), "{text}");
            assert!(!reading.lacks_answer(3), "{text}");
        }
        for (text, lacks) in [
            (r#"{"jsonrpc":"2.0","id": 3,"result":{"#, true),
            (r#"{"jsonrpc":"2.0","id" : "3","result":{"#, true),
            (r#"  "id": 3,"#, true),
            (r#"{"jsonrpc":"2.0","id":31,"result":{"#, false),
            ("id 3", false),
        ] {
            assert_eq!(
                read_messages(text.as_bytes()).lacks_answer(3),
                lacks,
                "{text}"
            );
        }
    }

    #[test]
    fn a_text_that_may_begin_anywhere_is_read_a_few_times_only() {
        for text in ["[", "{\"a\":", "[NaN,", "[\"", "{", "[1,"] {
            let reading = read_messages(text.repeat(200_000).as_bytes());
            assert!(reading.messages.is_empty());
        }
    }

    #[test]
    fn what_a_server_writes_stays_as_it_is() {
        let text = br#"{"id":1,"result":{"a":25000000000000000000001,"b":1e999,"c":1.10}}"#;
        let reading = read_messages(text);
        let [Incoming::Answer(1, RpcResponse::Result(result))] = &reading.messages[..] else {
            panic!("{reading:?}");
        };
        let numbers = ["a", "b", "c"].map(|key| result.get(key).unwrap());
        assert_eq!(numbers, ["25000000000000000000001", "1e999", "1.10"]);
        let reading =
            read_messages(b"{\"id\":1,\"result\":{\"a\":\"x\\ud83d\",\"b\":\"caf\xe9\"}}");
        let [Incoming::Answer(1, RpcResponse::Result(result))] = &reading.messages[..] else {
            panic!("{reading:?}");
        };
        assert_eq!(member(result, "a"), "x\u{fffd}");
        assert_eq!(member(result, "b"), "caf\u{fffd}");
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
