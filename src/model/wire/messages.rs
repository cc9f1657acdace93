//! Anthropic's Messages: from the neutral form, and back to it.

use super::Rules;
use super::attached::{MessagePart, is_blank, text_last};
use super::ids::usable_call_id;
use super::neutral::{Message, Recorded};
use super::rendering::{CacheMark, MessageRole, Rendering};
use crate::config::api::CacheTime;
use crate::config::llm::MESSAGES_MAX_TOKENS;
use crate::model::calls::{NewCall, usable_name};
use crate::model::response::{Answer, WINDOW_IS_FULL};
use crate::record::event::FinishReason;
use crate::text::json::{self as json_text, Members, Object};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;

/// After more new blocks than this, the earlier cache mark is sent, too: the service looks back over twenty blocks.
const FAR: usize = 15;

/// Sent if there is no user message and the service requires one.
const NOTHING_SAID: &[u8] = br#"{"type":"text","text":"(no message)"}"#;

/// A block of an answer.
#[derive(Deserialize)]
struct Block<'b> {
    #[serde(borrow, default)]
    r#type: Cow<'b, str>,
    #[serde(borrow, default)]
    text: Option<&'b RawValue>,
    #[serde(borrow, default)]
    thinking: Option<Cow<'b, str>>,
    #[serde(borrow, default)]
    signature: Option<Cow<'b, str>>,
    #[serde(borrow, default)]
    data: Option<&'b RawValue>,
    #[serde(borrow, default)]
    id: Option<Cow<'b, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'b, str>>,
    #[serde(borrow, default)]
    input: Option<&'b RawValue>,
}

impl Block<'_> {
    fn is_thinking(&self) -> bool {
        matches!(&*self.r#type, "thinking" | "redacted_thinking")
    }

    /// True unless it is a text of white space alone.
    fn says_something(&self) -> bool {
        self.r#type != "text" || !is_blank(self.text.map_or("", RawValue::get))
    }

    /// True for thinking that the service can verify.
    fn is_signed(&self) -> bool {
        self.data.is_some() || self.signature.as_ref().is_some_and(|it| !it.is_empty())
    }
}

/// The members of a request before its messages, and its tools.
pub(super) struct MessagesHead {
    members: Vec<u8>,
    /// A JSON array, or nothing.
    pub tools: Vec<u8>,
    /// Tools whose arguments had to be put into an object of one member.
    pub wrapped: Vec<String>,
}

impl MessagesHead {
    pub(super) fn of(head: &Members, rules: &Rules) -> Self {
        let mut members = Vec::new();
        let mut object = Object::begin(&mut members);
        let given = head.get("max_tokens");
        for (key, value) in &head.0 {
            match key.as_str() {
                "messages" | "tools" => {}
                "max_tokens" => {
                    write_limit(&mut object, rules, value.get());
                }
                "thinking" if rules.is_manual && rules.without_reasoning => {}
                "model" => {
                    object.raw(key, value.get().as_bytes());
                    if given.is_none() {
                        write_limit(&mut object, rules, &MESSAGES_MAX_TOKENS.to_string());
                    }
                }
                _ => {
                    object.raw(key, value.get().as_bytes());
                }
            }
        }
        if given.is_none() && head.get("model").is_none() {
            write_limit(&mut object, rules, &MESSAGES_MAX_TOKENS.to_string());
        }
        if rules.stream {
            object.put("stream", &true);
        }
        let (tools, wrapped) = tools(head.get("tools"));
        Self {
            members,
            tools,
            wrapped,
        }
    }

    /// A whole request. `stable` is where the part ends that later requests repeat.
    pub(super) fn request(
        &self,
        body: &Rendering,
        stable: (CacheMark, CacheMark),
        cache: CacheTime,
    ) -> Vec<u8> {
        let mark: &[u8] = match cache {
            CacheTime::Off => b"",
            CacheTime::FiveMinutes => br#","cache_control":{"type":"ephemeral"}"#,
            CacheTime::Hour => br#","cache_control":{"type":"ephemeral","ttl":"1h"}"#,
        };
        let system = &body.at.system;
        let room = self.members.len() + self.tools.len() + body.out.len() + 512;
        let mut out = Vec::with_capacity(room + system.iter().map(String::len).sum::<usize>());
        out.extend_from_slice(&self.members);
        if !self.tools.is_empty() {
            out.extend_from_slice(b",\"tools\":");
            out.extend_from_slice(&self.tools);
            if system.is_empty() {
                out.truncate(out.len() - 2);
                out.extend_from_slice(mark);
                out.extend_from_slice(b"}]");
            }
        }
        for (number, text) in system.iter().enumerate() {
            out.extend_from_slice(if number == 0 { b",\"system\":[" } else { b"," });
            out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
            out.extend_from_slice(text.as_bytes());
            if number + 1 == system.len() {
                out.extend_from_slice(mark);
                out.extend_from_slice(b"}]");
            } else {
                out.push(b'}');
            }
        }
        out.extend_from_slice(b",\"messages\":[");
        let (last, before) = stable;
        let is_far = last.count - before.count.min(last.count) > FAR;
        let earlier = before.end.filter(|_| is_far);
        let ends = [earlier, last.end].into_iter().flatten();
        let insertions: Vec<(usize, &[u8])> = ends.map(|end| (end, mark)).collect();
        body.write(&mut out, &insertions);
        out.extend_from_slice(b"]}");
        out
    }
}

fn write_limit(object: &mut Object<'_>, rules: &Rules, given: &str) {
    match (rules.max_tokens, given.parse::<u64>()) {
        (Some(most), Ok(given)) if given > most => object.put("max_tokens", &most),
        _ => object.raw("max_tokens", given.as_bytes()),
    };
}

fn tools(tools: Option<&str>) -> (Vec<u8>, Vec<String>) {
    let tools: Vec<Value> = serde_json::from_str(tools.unwrap_or("[]")).unwrap_or_default();
    let (mut out, mut wrapped) = (Vec::new(), Vec::new());
    for tool in &tools {
        out.push(if out.is_empty() { b'[' } else { b',' });
        let Some(function) = tool.get("function") else {
            // One of the service's own.
            json_text::push(&mut out, tool);
            continue;
        };
        let mut object = Object::begin(&mut out);
        object.put("name", &function["name"]);
        if let Some(description) = function.get("description") {
            object.put("description", description);
        }
        match function.get("parameters") {
            Some(schema) if is_plain_object(schema) => {
                object.put("input_schema", schema);
            }
            Some(schema) => {
                wrapped.extend(function["name"].as_str().map(str::to_owned));
                object.put("input_schema", &wrapped_schema(schema));
            }
            None => {
                object.put("input_schema", &json!({"type": "object"}));
            }
        }
        object.end();
    }
    if !out.is_empty() {
        out.push(b']');
    }
    (out, wrapped)
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
            let recorded = rules.recorded(message);
            let recorded = recorded.filter(|it| is_as_read(it, wrapped));
            let mut blocks = match &recorded {
                Some(recorded) => verbatim(recorded, rules, &prefix),
                None => Vec::new(),
            };
            if recorded.is_none() {
                rebuild(message, wrapped, &mut blocks);
            }
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
            let mut block = Vec::new();
            let mut object = Object::begin(&mut block);
            object
                .put("type", "tool_result")
                .put("tool_use_id", &*usable_call_id(&message.tool_call_id));
            let mut parts = message.parts();
            let mut aside = Vec::new();
            if message.is_error {
                // A failed result has texts alone.
                (parts, aside) = parts.into_iter().partition(MessagePart::is_text);
            }
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
            object.end();
            body.block(MessageRole::User, &block, true);
            let aside = aside.iter().map(MessagePart::block);
            body.at.aside.extend(aside);
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

fn text_block(text: &str) -> Vec<u8> {
    let mut block = Vec::with_capacity(text.len() + 24);
    let mut object = Object::begin(&mut block);
    object.put("type", "text").raw("text", text.as_bytes());
    object.end();
    block
}

/// The recorded blocks; thinking only if the same bytes precede it as when it was made.
fn verbatim<'m>(
    recorded: &Recorded<'m>,
    rules: &Rules,
    prefix: &str,
) -> Vec<(Cow<'m, [u8]>, bool)> {
    let may_think = !rules.without_reasoning && (rules.is_manual || recorded.prefix == prefix);
    let mut blocks = Vec::with_capacity(recorded.items.len());
    for item in &recorded.items {
        let Ok(block) = serde_json::from_str::<Block<'_>>(item.get()) else {
            continue;
        };
        let is_sent = if block.is_thinking() {
            may_think && block.is_signed()
        } else {
            block.says_something()
        };
        if is_sent {
            blocks.push((Cow::Borrowed(item.get().as_bytes()), !block.is_thinking()));
        }
    }
    blocks
}

/// True if the text and the calls that the journal has of an answer are still those of its blocks.
fn is_as_read(recorded: &Recorded<'_>, wrapped: &[String]) -> bool {
    let body = format!("{{\"content\":[{}]}}", recorded.joined_items());
    let answer = parse(body.as_bytes(), wrapped);
    answer.is_ok_and(|answer| super::view_of(&answer) == recorded.view)
}

/// The blocks of a part of an answer with which a service goes on that has paused; none if none can go back.
pub(super) fn sent_back(items: &[u8]) -> Option<Vec<u8>> {
    kept(items, |block| {
        if block.is_thinking() {
            block.is_signed()
        } else {
            block.says_something()
        }
    })
}

/// The blocks of an answer without its thinking; none if nothing else is left.
pub(super) fn without_thinking(items: &[u8]) -> Option<Vec<u8>> {
    kept(items, |block| !block.is_thinking())
}

fn kept(items: &[u8], is_kept: impl Fn(&Block<'_>) -> bool) -> Option<Vec<u8>> {
    let items: Vec<&RawValue> = serde_json::from_slice(items).unwrap_or_default();
    let blocks = items.iter().filter(|item| {
        let block = serde_json::from_str::<Block<'_>>(item.get());
        block.is_ok_and(|block| is_kept(&block))
    });
    let blocks: Vec<&[u8]> = blocks.map(|item| item.get().as_bytes()).collect();
    (!blocks.is_empty()).then(|| [b"[", &blocks.join(&b',')[..], b"]"].concat())
}

fn rebuild(message: &Message<'_>, wrapped: &[String], blocks: &mut Vec<(Cow<'_, [u8]>, bool)>) {
    for text in message.texts() {
        blocks.push((text_block(&text).into(), true));
    }
    for call in message.calls() {
        let name = usable_name(&call.function.name);
        let input = call.function.arguments.get();
        let input: Cow<'_, str> = match serde_json::from_str::<String>(input) {
            Ok(text) => text.into(),
            Err(_) => input.into(),
        };
        let is_object = serde_json::from_str::<Members>(&input).is_ok();
        let input = if is_object { input.trim() } else { "{}" };
        let mut block = Vec::new();
        let mut object = Object::begin(&mut block);
        object
            .put("type", "tool_use")
            .put("id", &*usable_call_id(&call.id))
            .put("name", &*name);
        if wrapped.iter().any(|it| *it == *name) {
            let mut inner = Object::begin(object.nest("input"));
            inner.raw("arguments", input.as_bytes());
            inner.end();
        } else {
            object.raw("input", input.as_bytes());
        }
        object.end();
        blocks.push((block.into(), true));
    }
}

#[derive(Deserialize)]
struct ReceivedMessage<'r> {
    #[serde(borrow, default)]
    content: Option<&'r RawValue>,
    #[serde(borrow, default)]
    stop_reason: Option<&'r RawValue>,
    #[serde(borrow, default)]
    stop_details: Option<&'r RawValue>,
    #[serde(borrow, default)]
    model: Option<&'r RawValue>,
}

/// Reads a response.
///
/// # Errors
/// The reason to ask again.
pub(super) fn parse(body: &[u8], wrapped: &[String]) -> Result<Answer, String> {
    let response: ReceivedMessage<'_> =
        serde_json::from_slice(body).map_err(|_| super::not_of(body, "a message"))?;
    let items = super::items(response.content, || super::not_of(body, "a message"))?;
    let (mut text, mut thinking) = (String::new(), String::new());
    let mut calls = Vec::new();
    let odd = |e| format!("a block of the answer: {}", json_text::parser_message(&e));
    for item in &items {
        let block: Block<'_> = serde_json::from_str(item.get()).map_err(odd)?;
        match &*block.r#type {
            "text" => {
                let part = block
                    .text
                    .map(|raw| serde_json::from_str::<Cow<'_, str>>(raw.get()));
                text.push_str(&part.transpose().map_err(odd)?.unwrap_or_default());
            }
            "thinking" => thinking.push_str(block.thinking.as_deref().unwrap_or_default()),
            "tool_use" => {
                let name = block.name.unwrap_or_default();
                let input = block.input.map_or("{}", RawValue::get);
                let input = unwrapped(input, wrapped.iter().any(|it| *it == *name));
                let id = block.id.unwrap_or_default().into_owned();
                calls.push(NewCall::understand(id, &name, json_text::compact(input)));
            }
            _ => {}
        }
    }
    let reason = json_text::small(response.stop_reason);
    let reason = reason.as_str().unwrap_or_default();
    let (finish, detail) = match reason {
        "end_turn" | "stop_sequence" => ("stop", None),
        "tool_use" => ("tool_calls", None),
        "max_tokens" => ("length", None),
        "model_context_window_exceeded" => ("length", Some(WINDOW_IS_FULL.to_owned())),
        "refusal" => (
            "content_filter",
            refusal(&json_text::small(response.stop_details)),
        ),
        other => (other, None),
    };
    // With a call of ours it cannot go on before that has a result.
    let is_paused = reason == "pause_turn" && calls.is_empty();
    let model = json_text::small(response.model).as_str().map(str::to_owned);
    let mut answer = Answer::of_parts(text, thinking, calls, model);
    answer.is_paused = is_paused;
    answer.finish_reason = Some(FinishReason::of(finish.to_owned()));
    answer.finish_detail = detail;
    answer.items = super::array(&items);
    Ok(answer)
}

fn refusal(details: &Value) -> Option<String> {
    let words = ["category", "explanation"].map(|key| details.get(key)?.as_str());
    let words: Vec<&str> = words.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(": "))
}

fn unwrapped(input: &str, is_wrapped: bool) -> &str {
    #[derive(Deserialize)]
    struct Around<'a> {
        #[serde(borrow)]
        arguments: &'a RawValue,
    }
    match serde_json::from_str::<Around<'_>>(input) {
        Ok(around) if is_wrapped => around.arguments.get(),
        _ => input,
    }
}
