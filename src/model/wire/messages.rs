//! Anthropic's Messages: from the neutral form, and back to it.

use super::ids::usable_call_id;
use super::neutral::{Message, Recorded};
use super::parts::{MessagePart, is_blank, text_last};
use super::rendering::{CacheMark, MessageRole, Rendering};
use super::{Head, Rules, Said, write_tools};
use crate::config::api::CacheTime;
use crate::config::llm::MESSAGES_MAX_TOKENS;
use crate::model::calls::{NewCall, usable_name};
use crate::model::response::{Answer, WINDOW_IS_FULL};
use crate::text::json::{self, Fields, Members, Object};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;

/// After more new blocks than this, the earlier cache mark is sent, too: the service looks back over twenty blocks.
const FAR: usize = 15;

/// Sent if there is no user message and the service requires one.
const NOTHING_SAID: &[u8] = br#"{"type":"text","text":"(no message)"}"#;

/// True for reasoning, which only the service can read.
fn is_thinking(block: &Fields<'_>) -> bool {
    matches!(
        block.word("type").as_deref(),
        Some("thinking" | "redacted_thinking")
    )
}

/// True for a block that the service takes back: thinking that it can verify, or no text of white space alone.
fn can_go_back(block: &Fields<'_>) -> bool {
    if is_thinking(block) {
        let is_signed = block.raw("signature").is_some_and(|it| it.get() != "\"\"");
        return is_signed || block.raw("data").is_some();
    }
    block.word("type").as_deref() != Some("text")
        || !is_blank(block.raw("text").map_or("", RawValue::get))
}

/// The members of a request before its messages, and its tools.
pub(super) fn head(given: &Members, rules: &Rules) -> Head {
    let mut members = Vec::new();
    let mut object = Object::begin(&mut members);
    let usual = MESSAGES_MAX_TOKENS.to_string();
    let mut limit = Some(usual.as_str()).filter(|_| given.get("max_tokens").is_none());
    for (key, value) in &given.0 {
        match key.as_str() {
            "messages" | "tools" => {}
            "max_tokens" => write_limit(&mut object, rules, value.get()),
            "thinking" if rules.is_manual && rules.without_reasoning => {}
            _ => {
                object.raw(key, value.get().as_bytes());
                if let Some(limit) = limit.take_if(|_| key == "model") {
                    write_limit(&mut object, rules, limit);
                }
            }
        }
    }
    if let Some(limit) = limit {
        write_limit(&mut object, rules, limit);
    }
    if rules.stream {
        object.put("stream", &true);
    }
    let mut wrapped = Vec::new();
    let tools = write_tools(given.get("tools"), |object, function| {
        object.put("name", &function["name"]);
        object.put_some("description", function.get("description"));
        match function.get("parameters") {
            Some(schema) if is_plain_object(schema) => object.put("input_schema", schema),
            Some(schema) => {
                wrapped.extend(function["name"].as_str().map(str::to_owned));
                object.put("input_schema", &wrapped_schema(schema))
            }
            None => object.put("input_schema", &json!({"type": "object"})),
        };
    });
    Head {
        members,
        tools,
        wrapped,
        ..Head::default()
    }
}

/// A whole request. The marks are the earlier one and the last one of the part that later requests repeat.
pub(super) fn request(
    head: &Head,
    body: &Rendering,
    [before, last]: [CacheMark; 2],
    cache: CacheTime,
) -> Vec<u8> {
    let mark: &[u8] = match cache {
        CacheTime::Off => b"",
        CacheTime::FiveMinutes => br#","cache_control":{"type":"ephemeral"}"#,
        CacheTime::Hour => br#","cache_control":{"type":"ephemeral","ttl":"1h"}"#,
    };
    let system = &body.at.system;
    let room = head.members.len() + head.tools.len() + body.out.len() + 512;
    let mut out = Vec::with_capacity(room + system.iter().map(String::len).sum::<usize>());
    out.extend_from_slice(&head.members);
    if !head.tools.is_empty() {
        out.extend_from_slice(b",\"tools\":");
        out.extend_from_slice(&head.tools);
        if system.is_empty() {
            out.truncate(out.len() - 2);
            out.extend_from_slice(mark);
            out.extend_from_slice(b"}]");
        }
    }
    for (at, text) in system.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b",\"system\":[" } else { b"," });
        out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
        out.extend_from_slice(text.as_bytes());
        if at + 1 == system.len() {
            out.extend_from_slice(mark);
            out.extend_from_slice(b"}]");
        } else {
            out.push(b'}');
        }
    }
    out.extend_from_slice(b",\"messages\":[");
    let is_far = last.count.saturating_sub(before.count) > FAR;
    let insertions = [before.end.filter(|_| is_far), last.end]
        .into_iter()
        .flatten()
        .map(|end| (end, mark));
    body.write(&mut out, insertions);
    out.extend_from_slice(b"]}");
    out
}

fn write_limit(object: &mut Object<'_>, rules: &Rules, given: &str) {
    match (rules.max_tokens, given.parse::<u64>()) {
        (Some(most), Ok(given)) if given > most => object.put("max_tokens", &most),
        _ => object.raw("max_tokens", given.as_bytes()),
    };
}

/// True for a schema that the service takes as it is.
fn is_plain_object(schema: &Value) -> bool {
    let choices = ["oneOf", "anyOf", "allOf"];
    schema["type"] == "object" && choices.into_iter().all(|key| schema.get(key).is_none())
}

/// The schema of an object whose only member, `arguments`, has the given schema.
fn wrapped_schema(schema: &Value) -> Value {
    let mut inner = schema.clone();
    // With an id of its own it is what its references begin at.
    if inner.get("$id").is_none() {
        move_references(&mut inner);
    }
    json!({"type": "object", "properties": {"arguments": inner}, "required": ["arguments"]})
}

/// Lets references to the root of a schema find it where it is now.
fn move_references(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (key, value) in members {
                let is_reference = matches!(key.as_str(), "$ref" | "$dynamicRef");
                match value {
                    Value::String(to) if is_reference && (to == "#" || to.starts_with("#/")) => {
                        to.insert_str(1, "/properties/arguments");
                    }
                    _ if matches!(key.as_str(), "const" | "enum" | "default" | "examples") => {}
                    inner => move_references(inner),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(move_references),
        _ => {}
    }
}

/// Adds a message to the conversation.
pub(super) fn add(body: &mut Rendering, message: &Message<'_>, rules: &Rules, wrapped: &[String]) {
    if message.role != "tool" {
        body.put_aside_blocks();
    }
    match &*message.role {
        "assistant" => {
            let prefix = body.prefix();
            body.answer_follows();
            let blocks = match rules.recorded(message, wrapped) {
                Some(recorded) => verbatim(&recorded, rules, &prefix),
                None => rebuild(message, wrapped),
            };
            if blocks.iter().all(|(_, can_end)| !can_end) {
                return;
            }
            if body.is_empty() {
                body.block(MessageRole::User, NOTHING_SAID, true);
            }
            for (block, can_end) in blocks {
                body.at.reasoning += usize::from(!can_end);
                body.block(MessageRole::Assistant, &block, can_end);
            }
        }
        "tool" => {
            let mut parts = message.parts();
            let mut aside = Vec::new();
            if message.is_error {
                // A failed result has texts alone.
                (parts, aside) = parts.into_iter().partition(MessagePart::is_text);
            }
            let block = json::object(|object| {
                object
                    .put("type", "tool_result")
                    .put("tool_use_id", &*usable_call_id(&message.tool_call_id));
                match parts.as_slice() {
                    [] => object.put("content", "(no output)"),
                    [MessagePart::Text(text)] => object.raw("content", text.as_bytes()),
                    parts => {
                        let parts: Vec<Vec<u8>> = parts.iter().map(MessagePart::block).collect();
                        object.raw("content", &[b"[", &parts.join(&b',')[..], b"]"].concat())
                    }
                };
                if message.is_error {
                    object.put("is_error", &true);
                }
            });
            body.block(MessageRole::User, &block, true);
            body.at.aside.extend(aside.iter().map(MessagePart::block));
        }
        role => {
            for part in text_last(message.parts()) {
                if let MessagePart::Text(text) = &part
                    && matches!(role, "system" | "developer")
                    && body.system(text)
                {
                    continue;
                }
                body.block(MessageRole::User, &part.block(), true);
            }
        }
    }
}

/// Lets a person have the last word, which the service insists on.
pub(super) fn close(body: &mut Rendering) {
    body.put_aside_blocks();
    if body.role() != Some(MessageRole::User) {
        body.block(MessageRole::User, NOTHING_SAID, false);
    }
}

/// The recorded blocks; thinking only if the same bytes precede it as when it was made.
fn verbatim<'m>(
    recorded: &Recorded<'m>,
    rules: &Rules,
    prefix: &str,
) -> Vec<(Cow<'m, [u8]>, bool)> {
    let may_think = !rules.without_reasoning && (rules.is_manual || recorded.prefix == prefix);
    recorded
        .items
        .iter()
        .filter_map(|item| {
            let block: Fields<'_> = serde_json::from_str(item.get()).ok()?;
            let is_thinking = is_thinking(&block);
            let is_sent = can_go_back(&block) && (may_think || !is_thinking);
            is_sent.then(|| (item.get().as_bytes().into(), !is_thinking))
        })
        .collect()
}

/// The blocks of a part of an answer with which a service goes on that has paused; `None` if none can go back.
pub(super) fn sent_back(items: &[u8]) -> Option<Vec<u8>> {
    kept(items, can_go_back)
}

/// The blocks of an answer without its thinking; `None` if nothing else is left.
pub(super) fn without_thinking(items: &[u8]) -> Option<Vec<u8>> {
    kept(items, |block| !is_thinking(block))
}

fn kept(items: &[u8], is_kept: impl Fn(&Fields<'_>) -> bool) -> Option<Vec<u8>> {
    let mut items: Vec<&RawValue> = json::read_or_default(items);
    items.retain(|item| serde_json::from_str(item.get()).is_ok_and(|block| is_kept(&block)));
    super::array(&items)
}

fn rebuild<'m>(message: &Message<'m>, wrapped: &[String]) -> Vec<(Cow<'m, [u8]>, bool)> {
    let texts = message
        .texts()
        .into_iter()
        .map(|text| MessagePart::Text(text).block());
    let calls = message.calls().into_iter().map(|call| {
        let name = usable_name(&call.function.name);
        let given = call.function.arguments.get();
        let text = serde_json::from_str::<String>(given);
        let input = text.as_deref().unwrap_or(given);
        let is_object = serde_json::from_str::<Members>(input).is_ok();
        let input = if is_object { input.trim() } else { "{}" };
        json::object(|object| {
            object
                .put("type", "tool_use")
                .put("id", &*usable_call_id(&call.id))
                .put("name", &*name);
            if wrapped.iter().any(|it| *it == *name) {
                object.object("input", |inner| {
                    inner.raw("arguments", input.as_bytes());
                });
            } else {
                object.raw("input", input.as_bytes());
            }
        })
    });
    texts
        .chain(calls)
        .map(|block| (block.into(), true))
        .collect()
}

/// Reads a response.
///
/// # Errors
/// The reason to ask again.
pub(super) fn parse(body: &[u8], wrapped: &[String]) -> Result<Answer, String> {
    let (response, items) = super::items(body, "content", "a message of this API")?;
    let mut said = Said::default();
    super::each(&items, "a block", |block| {
        match &*block.read::<String>("type")? {
            "text" => said.text += &block.read::<String>("text")?,
            "thinking" => said.thinking += &block.read::<String>("thinking")?,
            "tool_use" => {
                let name: String = block.read("name")?;
                let input = block.raw("input").map_or("{}", RawValue::get);
                let arguments = json::minified(unwrapped(input, wrapped.contains(&name)));
                said.calls
                    .push(NewCall::understand(block.read("id")?, &name, arguments));
            }
            _ => {}
        }
        Ok(())
    })?;
    let reason = response.word("stop_reason").unwrap_or_default();
    let (finish, detail) = match &*reason {
        "end_turn" | "stop_sequence" => ("stop", None),
        "tool_use" => ("tool_calls", None),
        "max_tokens" => ("length", None),
        "model_context_window_exceeded" => ("length", Some(WINDOW_IS_FULL.to_owned())),
        "refusal" => ("content_filter", refusal(&response.small("stop_details"))),
        other => (other, None),
    };
    // With a call of ours it cannot go on before that has a result.
    let is_paused = reason == "pause_turn" && said.calls.is_empty();
    let mut answer = said.into_answer(&response, &items, finish);
    answer.is_paused = is_paused;
    answer.finish_detail = detail;
    Ok(answer)
}

fn refusal(details: &Value) -> Option<String> {
    let words = ["category", "explanation"].map(|key| details[key].as_str());
    let words: Vec<&str> = words.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(": "))
}

fn unwrapped(input: &str, is_wrapped: bool) -> &str {
    let around: Fields<'_> = json::read_or_default(input);
    let arguments = around
        .0
        .iter()
        .find(|(name, _)| is_wrapped && **name == *"arguments");
    arguments.map_or(input, |(_, arguments)| arguments.get())
}
