//! `OpenAI`'s Responses: from the neutral form, and back to it. Nothing is stored at the service.

use super::Rules;
use super::attached::{MessagePart, is_blank};
use super::cache_key::PromptCacheKey;
use super::ids::usable_call_id;
use super::neutral::{Message, Recorded};
use super::rendering::{MessageRole, Rendering};
use crate::model::calls::{NewCall, usable_name};
use crate::model::response::Answer;
use crate::record::event::FinishReason;
use crate::text::json::{self, Members, Object};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// What makes reasoning come back in a form that can be sent again.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// The longest id of an item.
const ID_LENGTH: usize = 64;

#[derive(Deserialize)]
struct Item<'i> {
    #[serde(borrow, default)]
    r#type: Cow<'i, str>,
    #[serde(borrow, default)]
    id: Option<Cow<'i, str>>,
    #[serde(borrow, default)]
    call_id: Option<Cow<'i, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'i, str>>,
    #[serde(borrow, default)]
    arguments: Option<&'i RawValue>,
    #[serde(borrow, default)]
    encrypted_content: Option<&'i RawValue>,
    #[serde(borrow, default)]
    content: Option<&'i RawValue>,
    #[serde(borrow, default)]
    summary: Option<&'i RawValue>,
}

#[derive(Deserialize)]
struct ContentPart<'p> {
    #[serde(borrow, default)]
    r#type: Cow<'p, str>,
    #[serde(borrow, default)]
    text: Option<&'p RawValue>,
    #[serde(default)]
    refusal: Option<String>,
}

impl<'i> Item<'i> {
    fn parts(raw: Option<&'i RawValue>) -> serde_json::Result<Vec<ContentPart<'i>>> {
        raw.map_or(Ok(Vec::new()), |raw| serde_json::from_str(raw.get()))
    }

    fn says_something(&self) -> bool {
        let mut parts = Self::parts(self.content).unwrap_or_default().into_iter();
        parts.any(|part| part.refusal.is_some() || !is_blank(part.text.map_or("", RawValue::get)))
    }

    fn is_encrypted(&self) -> bool {
        self.encrypted_content
            .is_some_and(|raw| !is_blank(raw.get()))
    }
}

/// The members of a request before its input, and its tools.
pub(super) struct ResponsesHead {
    members: Vec<u8>,
    pub tools: Vec<u8>,
    cache_key: PromptCacheKey,
}

impl ResponsesHead {
    pub(super) fn of(head: &Members, rules: &Rules) -> Self {
        let mut members = Vec::new();
        let mut object = Object::begin(&mut members);
        for (key, value) in &head.0 {
            if !matches!(key.as_str(), "messages" | "tools" | "include") {
                object.raw(key, value.get().as_bytes());
            }
        }
        if head.get("store").is_none() {
            object.put("store", &false);
        }
        let mut include: Vec<Value> =
            serde_json::from_str(head.get("include").unwrap_or("[]")).unwrap_or_default();
        if rules.without_include {
            include.retain(|it| it != ENCRYPTED);
        } else if !include.iter().any(|it| it == ENCRYPTED) {
            include.push(ENCRYPTED.into());
        }
        if !include.is_empty() {
            object.put("include", &include);
        }
        if rules.stream {
            object.put("stream", &true);
        }
        let has_own = head.get("prompt_cache_key").is_some();
        Self {
            members,
            tools: tools(head.get("tools")),
            cache_key: match has_own {
                true => PromptCacheKey::Absent,
                false => rules.cache_key.clone(),
            },
        }
    }

    pub(super) fn request(&self, body: &Rendering) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.members.len() + body.out.len() + 4096);
        out.extend_from_slice(&self.members);
        let system = body.at.system.iter().map(String::as_bytes);
        if let Some(key) = self.cache_key.of(&self.tools, system) {
            out.extend_from_slice(b",\"prompt_cache_key\":");
            json::push(&mut out, &key);
        }
        if !self.tools.is_empty() {
            out.extend_from_slice(b",\"tools\":");
            out.extend_from_slice(&self.tools);
        }
        match body.at.system.as_slice() {
            [] => {}
            [text] => {
                out.extend_from_slice(b",\"instructions\":");
                out.extend_from_slice(text.as_bytes());
            }
            texts => {
                let texts = texts.iter().map(|text| {
                    let text: String = serde_json::from_str(text).unwrap_or_default();
                    text.trim_end().to_owned()
                });
                let texts: Vec<String> = texts.collect();
                out.extend_from_slice(b",\"instructions\":");
                json::push(&mut out, &texts.join("\n\n"));
            }
        }
        out.extend_from_slice(b",\"input\":[");
        body.write(&mut out, &[]);
        out.extend_from_slice(b"]}");
        out
    }
}

fn tools(tools: Option<&str>) -> Vec<u8> {
    let tools: Vec<Value> = serde_json::from_str(tools.unwrap_or("[]")).unwrap_or_default();
    let mut out = Vec::new();
    for tool in &tools {
        out.push(if out.is_empty() { b'[' } else { b',' });
        let Some(function) = tool.get("function") else {
            json::push(&mut out, tool);
            continue;
        };
        let mut object = Object::begin(&mut out);
        object.put("type", "function");
        for key in ["name", "description", "parameters"] {
            if let Some(value) = function.get(key) {
                object.put(key, value);
            }
        }
        // Left out, it may mean true, and then optional parameters are required ones.
        object.put("strict", &false);
        object.end();
    }
    if !out.is_empty() {
        out.push(b']');
    }
    out
}

/// Adds a message to the conversation.
pub(super) fn add(body: &mut Rendering, message: &Message<'_>, rules: &Rules) {
    match &*message.role {
        "assistant" => {
            let prefix = body.prefix();
            body.answer_follows();
            let mut items = Vec::new();
            match rules.recorded(message).filter(is_as_read) {
                Some(recorded) => {
                    body.at.reasoning += verbatim(&recorded, rules, &prefix, &mut items);
                }
                None => rebuild(message, &mut items),
            }
            for item in items {
                body.block(MessageRole::Assistant, &item, true);
            }
        }
        "tool" => {
            let mut item = Vec::new();
            let mut object = Object::begin(&mut item);
            object
                .put("type", "function_call_output")
                .put("call_id", &*usable_call_id(&message.tool_call_id));
            match message.parts().as_slice() {
                [] => object.put("output", "(no output)"),
                [MessagePart::Text(text)] => object.raw("output", text.as_bytes()),
                parts => object.raw("output", &input_parts(parts)),
            };
            object.end();
            body.block(MessageRole::User, &item, true);
        }
        role => {
            let parts = message.parts();
            if !parts.iter().all(MessagePart::is_text) {
                let mut item = Vec::new();
                let mut object = Object::begin(&mut item);
                object.put("type", "message").put("role", "user");
                object.raw("content", &input_parts(&parts));
                object.end();
                return body.block(MessageRole::User, &item, true);
            }
            for text in message.texts() {
                if matches!(role, "system" | "developer") && body.system(&text) {
                    continue;
                }
                body.block(MessageRole::User, &said("user", "input_text", &text), true);
            }
        }
    }
}

fn input_parts(parts: &[MessagePart<'_>]) -> Vec<u8> {
    let parts: Vec<Vec<u8>> = parts.iter().map(MessagePart::input).collect();
    [b"[", &parts.join(&b',')[..], b"]"].concat()
}

/// Adds an item to an empty body: the service rejects empty input.
pub(super) fn close(body: &mut Rendering) {
    if body.is_empty() {
        let item = said("user", "input_text", "\"(no message)\"");
        body.block(MessageRole::User, &item, true);
    }
}

fn said(role: &str, part: &str, text: &str) -> Vec<u8> {
    let mut item = Vec::with_capacity(text.len() + 80);
    let mut object = Object::begin(&mut item);
    object.put("type", "message").put("role", role);
    object.objects("content", [text], |content, text| {
        content.put("type", part).raw("text", text.as_bytes());
    });
    object.end();
    item
}

/// Adds the recorded items and returns the number of reasoning items. Reasoning goes back only encrypted, together with
/// what followed it, and only if the same bytes precede it as when it was made. Without it, items lose the ids that tie
/// them to it.
fn verbatim<'m>(
    recorded: &Recorded<'m>,
    rules: &Rules,
    prefix: &str,
    out: &mut Vec<Cow<'m, [u8]>>,
) -> usize {
    let may_think = !rules.without_reasoning && recorded.prefix == prefix;
    let items: Vec<(&'m RawValue, Item<'m>)> = recorded
        .items
        .iter()
        .filter_map(|raw| Some((*raw, serde_json::from_str(raw.get()).ok()?)))
        .collect();
    let mut is_sent = vec![false; items.len()];
    for (at, (_, item)) in items.iter().enumerate().rev() {
        is_sent[at] = match &*item.r#type {
            "reasoning" => may_think && item.is_encrypted() && is_sent.get(at + 1) == Some(&true),
            "message" => item.says_something(),
            _ => true,
        };
    }
    let is_reasoning = |item: &Item<'_>| item.r#type == "reasoning";
    let has_lost = items
        .iter()
        .zip(&is_sent)
        .any(|((_, item), is_sent)| is_reasoning(item) && !is_sent);
    for ((raw, item), _) in items.iter().zip(&is_sent).filter(|(_, is_sent)| **is_sent) {
        let id = item.id.as_deref().unwrap_or_default();
        let is_tied = has_lost && matches!(&*item.r#type, "message" | "function_call");
        if !id.is_empty() && !is_reasoning(item) && (is_tied || id.len() > ID_LENGTH) {
            out.push(without_id(raw).into());
        } else {
            out.push(raw.get().as_bytes().into());
        }
    }
    let sent = items.iter().zip(&is_sent);
    sent.filter(|((_, item), is_sent)| is_reasoning(item) && **is_sent)
        .count()
}

/// True if the text and the calls that the journal has of an answer are still those of its items.
fn is_as_read(recorded: &Recorded<'_>) -> bool {
    let body = format!("{{\"output\":[{}]}}", recorded.joined_items());
    parse(body.as_bytes()).is_ok_and(|answer| super::view_of(&answer) == recorded.view)
}

fn without_id(item: &RawValue) -> Vec<u8> {
    let members: Members = serde_json::from_str(item.get()).unwrap_or_default();
    let mut out = Vec::with_capacity(item.get().len());
    let mut object = Object::begin(&mut out);
    for (key, value) in members.0.iter().filter(|(key, _)| key != "id") {
        object.raw(key, value.get().as_bytes());
    }
    object.end();
    out
}

fn rebuild(message: &Message<'_>, out: &mut Vec<Cow<'_, [u8]>>) {
    for text in message.texts() {
        out.push(said("assistant", "output_text", &text).into());
    }
    for call in message.calls() {
        let mut item = Vec::new();
        let mut object = Object::begin(&mut item);
        object
            .put("type", "function_call")
            .put("call_id", &*usable_call_id(&call.id))
            .put("name", &*usable_name(&call.function.name));
        let arguments = call.function.arguments.get();
        if arguments.starts_with('"') {
            object.raw("arguments", arguments.as_bytes());
        } else {
            object.put("arguments", arguments);
        }
        object.end();
        out.push(item.into());
    }
}

#[derive(Deserialize)]
struct Response<'r> {
    #[serde(borrow, default)]
    output: Option<&'r RawValue>,
    #[serde(borrow, default)]
    status: Option<&'r RawValue>,
    #[serde(borrow, default)]
    incomplete_details: Option<&'r RawValue>,
    #[serde(borrow, default)]
    model: Option<&'r RawValue>,
}

/// Reads a response.
///
/// # Errors
/// The reason to ask again.
pub(super) fn parse(body: &[u8]) -> Result<Answer, String> {
    let response: Response<'_> =
        serde_json::from_slice(body).map_err(|_| super::not_of(body, "a response"))?;
    let items = super::items(response.output, || super::not_of(body, "a response"))?;
    let (mut text, mut thinking) = (String::new(), String::new());
    let (mut calls, mut refusal) = (Vec::new(), None);
    let odd = |e| format!("an item of the answer: {}", json::parser_message(&e));
    for item in &items {
        let item: Item<'_> = serde_json::from_str(item.get()).map_err(odd)?;
        match &*item.r#type {
            "message" => {
                for part in Item::parts(item.content).map_err(odd)? {
                    match part.refusal {
                        Some(words) => refusal = Some(words),
                        None => text.push_str(&part.decoded().map_err(odd)?),
                    }
                }
            }
            "reasoning" => {
                let mut parts = Item::parts(item.summary).map_err(odd)?;
                if parts.is_empty() {
                    parts = Item::parts(item.content).map_err(odd)?;
                }
                let parts = parts.iter().map(ContentPart::decoded);
                let parts: Vec<String> = parts.collect::<Result<_, _>>().map_err(odd)?;
                thinking.push_str(&parts.join("\n\n"));
            }
            "function_call" => {
                let arguments = item.arguments.map_or("\"\"", RawValue::get);
                let arguments = serde_json::from_str::<String>(arguments)
                    .unwrap_or_else(|_| arguments.to_owned());
                let id = item.call_id.unwrap_or_default().into_owned();
                let name = item.name.unwrap_or_default();
                calls.push(NewCall::understand(id, &name, arguments));
            }
            _ => {}
        }
    }
    let why = json::small(response.incomplete_details);
    let why = why.get("reason").and_then(Value::as_str);
    let status = json::small(response.status);
    let status = status.as_str().unwrap_or("completed");
    let finish = match (status, why) {
        _ if refusal.is_some() => "content_filter",
        ("completed", _) if calls.is_empty() => "stop",
        ("completed", _) => "tool_calls",
        ("incomplete", Some("max_output_tokens") | None) => "length",
        ("incomplete", Some(why)) => why,
        (other, _) => other,
    };
    if text.is_empty() {
        text = refusal.clone().unwrap_or_default();
    }
    let model = json::small(response.model).as_str().map(str::to_owned);
    let mut answer = Answer::of_parts(text, thinking, calls, model);
    answer.finish_reason = Some(FinishReason::of(finish.to_owned()));
    answer.finish_detail = refusal;
    answer.items = super::array(&items);
    Ok(answer)
}

impl ContentPart<'_> {
    fn decoded(&self) -> serde_json::Result<String> {
        let text = self.text.filter(|_| self.r#type != "refusal");
        match text.map_or(Ok(None), |raw| serde_json::from_str(raw.get())) {
            Err(odd) if self.r#type.ends_with("_text") => Err(odd),
            text => Ok(text.unwrap_or_default().unwrap_or_default()),
        }
    }
}
