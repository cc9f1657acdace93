//! The messages in what a server writes, which is not always what the specification asks for.
//!
//! Unaware of what is asked of a server.

use super::protocol::{Reply, RpcError, parsed, refusal, text_or_json};
use super::servers::{Secrets, Server};
use crate::text::json::{self, Members};
use crate::text::shorten::head;
use crate::unix::terminal::Screen;
use serde_json::Value;
use serde_json::value::RawValue;

/// A message from a server.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// The answer to the request with this id.
    Answer(u64, Reply),
    /// A request, with its id as it was written.
    Request { id: String, method: String },
    /// Something that needs no answer.
    Notification,
}

/// The messages in a line of a program, or in a body.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub messages: Vec<Incoming>,
    /// Text that is not JSON.
    pub noise: String,
    /// NaN or an infinity has been read as null.
    pub has_nan: bool,
}

/// The reader of all that one server writes.
pub(super) struct Reader {
    /// Secrets that are taken out of it.
    pub secrets: Secrets,
    has_warned_of_nan: bool,
}

impl Reader {
    pub(super) fn of(server: &Server) -> Self {
        Self {
            secrets: server.secrets(),
            has_warned_of_nan: false,
        }
    }

    pub(super) fn read(&mut self, bytes: &mut Vec<u8>) -> Reading {
        self.secrets.redact(bytes);
        let reading = read_messages(bytes);
        if reading.has_nan && !std::mem::replace(&mut self.has_warned_of_nan, true) {
            Screen::new(false, false)
                .warn("the server wrote NaN or an infinity, which JSON lacks; it is read as null");
        }
        reading
    }
}

impl Reading {
    /// The answer to the request with this id. It has the id 0 if it is about a request that the server could not read;
    /// what cannot be read may be the answer, too.
    pub(super) fn answer_to(&mut self, id: u64, bytes: &[u8]) -> Option<Reply> {
        let is_it = |it: &Incoming| matches!(it, Incoming::Answer(of, _) if *of == id || *of == 0);
        let at = self.messages.iter().position(is_it);
        match at.map(|at| self.messages.swap_remove(at)) {
            Some(Incoming::Answer(_, answer)) => Some(answer),
            _ => self.lacks_answer(id).then(|| unreadable(bytes)),
        }
    }

    /// The answers to the server's own requests.
    pub(super) fn refusals(&self) -> impl Iterator<Item = String> {
        self.messages.iter().filter_map(|message| match message {
            Incoming::Request { id, method } => Some(refusal(id, method)),
            _ => None,
        })
    }

    fn lacks_answer(&self, id: u64) -> bool {
        self.noise.split("\"id\"").skip(1).any(|rest| {
            let number = rest
                .trim_start()
                .strip_prefix(':')
                .unwrap_or("")
                .trim_start()
                .trim_start_matches('"');
            let end = number
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(number.len());
            number[..end].parse() == Ok(id)
        })
    }

    fn take(&mut self, json: &str) {
        if json.starts_with('{') {
            let message = serde_json::from_str::<Members>(json)
                .ok()
                .and_then(|map| read_object(&map, json));
            self.messages.extend(message);
        } else {
            json::read_or_default::<Vec<&RawValue>>(json)
                .into_iter()
                .filter(|one| one.get().starts_with('{'))
                .for_each(|one| self.take(one.get()));
        }
    }
}

/// Reads what a server wrote. Some print other text before a message, or cut a text within a character: each `{` and
/// `[` may begin a message.
pub(crate) fn read_messages(bytes: &[u8]) -> Reading {
    let mut reading = Reading::default();
    let mut text = json::one_line(&json::readable(bytes));
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
                let fault = rest.get(error.column().saturating_sub(1)..);
                if !reading.has_nan
                    && fault.is_some_and(|fault| fault.starts_with(['N', 'I']))
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
    ["jsonrpc", "result", "error"]
        .iter()
        .find(|key| map.get(key).is_some())?;
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
        (_, Some(error)) => Reply::Error(read_error(error)),
        (Some(result), None) => Reply::Result(serde_json::from_str(result).ok()?),
        (None, None) => unreadable(json.as_bytes()),
    };
    match id.and_then(read_id) {
        Some(id) => Some(Incoming::Answer(id, answer)),
        // An error about a message that the server could not read has no id: it is about the only one.
        None if matches!(answer, Reply::Error(_)) && map.get("jsonrpc").is_some() => {
            Some(Incoming::Answer(0, answer))
        }
        None => None,
    }
}

/// The most bytes that are shown of an answer that cannot be read.
const SHOWN_HEAD: usize = 500;

/// The head of what a server wrote.
pub(super) fn shown_head(bytes: &[u8]) -> String {
    head(String::from_utf8_lossy(bytes).trim(), SHOWN_HEAD).to_owned()
}

pub(super) fn unreadable(bytes: &[u8]) -> Reply {
    Reply::Unreadable(shown_head(bytes))
}

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
    let error: Members = json::read_or_default(json);
    let code = error.get("code").map(text_or_json);
    let words = error.get("message").map(text_or_json);
    RpcError {
        code: code
            .and_then(|code| code.parse::<f64>().ok())
            .map_or(0, |code| code as i64),
        message: words.unwrap_or_else(|| {
            if error.0.is_empty() {
                text_or_json(json)
            } else {
                "no message".to_owned()
            }
        }),
        data: error.get("data").unwrap_or("null").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::member;
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        fn kind(incoming: &Incoming) -> String {
            match incoming {
                Incoming::Answer(id, Reply::Result(_)) => format!("result {id}"),
                Incoming::Answer(id, Reply::Error(error)) => {
                    format!("error {id} {}", error.words())
                }
                Incoming::Answer(id, Reply::Unreadable(head)) => format!("no {id} {head}"),
                Incoming::Answer(..) => "no message".to_owned(),
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
        // What the server could not read was the request that it answers.
        let refusal = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#;
        assert!(read_messages(refusal).answer_to(3, refusal).is_some());
        let other = br#"{"jsonrpc":"2.0","id":4,"result":{}}"#;
        assert!(read_messages(other).answer_to(3, other).is_none());
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
        let [Incoming::Answer(1, Reply::Result(result))] = &reading.messages[..] else {
            panic!("{reading:?}");
        };
        let numbers = ["a", "b", "c"].map(|key| result.get(key).unwrap());
        assert_eq!(numbers, ["25000000000000000000001", "1e999", "1.10"]);
        let reading =
            read_messages(b"{\"id\":1,\"result\":{\"a\":\"x\\ud83d\",\"b\":\"caf\xe9\"}}");
        let [Incoming::Answer(1, Reply::Result(result))] = &reading.messages[..] else {
            panic!("{reading:?}");
        };
        assert_eq!(member(result, "a"), "x\u{fffd}");
        assert_eq!(member(result, "b"), "caf\u{fffd}");
    }
}
