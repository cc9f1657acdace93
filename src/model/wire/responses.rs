//! `OpenAI`'s Responses: from the neutral form, and back to it. Nothing is stored at the service.

use super::cache_key::PromptCacheKey;
use super::ids::usable_call_id;
use super::neutral::{Message, Recorded};
use super::parts::{MessagePart, is_blank};
use super::rendering::{MessageRole, Rendering};
use super::{Head, Rules, Said, write_tools};
use crate::model::calls::{NewCall, usable_name};
use crate::model::response::Answer;
use crate::text::json::{self, Fields, Members, Object};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The member that makes reasoning come back in a form that can be sent again.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// The longest id of an item.
const ID_LENGTH: usize = 64;

fn says_something(item: &Fields<'_>) -> bool {
    let parts: Vec<Fields<'_>> = item.read("content").unwrap_or_default();
    parts.iter().any(|part| {
        let is_blank = is_blank(part.raw("text").map_or("", RawValue::get));
        part.raw("refusal").is_some() || !is_blank
    })
}

/// The members of a request before its input, and its tools.
pub(super) fn head(given: &Members, rules: &Rules) -> Head {
    let mut members = Vec::new();
    let mut object = Object::begin(&mut members);
    for (key, value) in &given.0 {
        if !matches!(key.as_str(), "messages" | "tools" | "include") {
            object.raw(key, value.get().as_bytes());
        }
    }
    if given.get("store").is_none() {
        object.put("store", &false);
    }
    let mut include: Vec<Value> = json::read_or_default(given.get("include").unwrap_or("[]"));
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
    let tools = write_tools(given.get("tools"), |object, function| {
        object.put("type", "function");
        for key in ["name", "description", "parameters"] {
            object.put_some(key, function.get(key));
        }
        // Left out, it may mean true, and then optional parameters are required ones.
        object.put("strict", &false);
    });
    Head {
        members,
        tools,
        cache_key: match given.get("prompt_cache_key") {
            Some(_) => PromptCacheKey::Absent,
            None => rules.cache_key.clone(),
        },
        ..Head::default()
    }
}

pub(super) fn request(head: &Head, body: &Rendering) -> Vec<u8> {
    let mut out = Vec::with_capacity(head.members.len() + body.out.len() + 4096);
    out.extend_from_slice(&head.members);
    let system = body.at.system.iter().map(String::as_bytes);
    if let Some(key) = head.cache_key.of(&head.tools, system) {
        out.extend_from_slice(b",\"prompt_cache_key\":");
        json::push(&mut out, &key);
    }
    if !head.tools.is_empty() {
        out.extend_from_slice(b",\"tools\":");
        out.extend_from_slice(&head.tools);
    }
    if !body.at.system.is_empty() {
        out.extend_from_slice(b",\"instructions\":");
    }
    match body.at.system.as_slice() {
        [] => {}
        [text] => out.extend_from_slice(text.as_bytes()),
        texts => {
            let trimmed = texts.iter().map(|text| {
                let text: String = json::read_or_default(text);
                text.trim_end().to_owned()
            });
            json::push(&mut out, &trimmed.collect::<Vec<String>>().join("\n\n"));
        }
    }
    out.extend_from_slice(b",\"input\":[");
    body.write(&mut out, []);
    out.extend_from_slice(b"]}");
    out
}

/// Adds a message to the conversation.
pub(super) fn add(body: &mut Rendering, message: &Message<'_>, rules: &Rules) {
    match &*message.role {
        "assistant" => {
            let prefix = body.prefix();
            body.answer_follows();
            let items = match rules.recorded(message, &[]) {
                Some(recorded) => verbatim(&recorded, rules, &prefix),
                None => rebuild(message),
            };
            for (item, is_reasoning) in items {
                body.at.reasoning += usize::from(is_reasoning);
                body.block(MessageRole::Assistant, &item, true);
            }
        }
        "tool" => {
            let item = json::object(|object| {
                object
                    .put("type", "function_call_output")
                    .put("call_id", &*usable_call_id(&message.tool_call_id));
                match message.parts().as_slice() {
                    [] => object.put("output", "(no output)"),
                    [MessagePart::Text(text)] => object.raw("output", text.as_bytes()),
                    parts => object.raw("output", &input_parts(parts)),
                };
            });
            body.block(MessageRole::User, &item, true);
        }
        role => {
            let parts = message.parts();
            if !parts.iter().all(MessagePart::is_text) {
                let item = json::object(|object| {
                    object.put("type", "message").put("role", "user");
                    object.raw("content", &input_parts(&parts));
                });
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
    json::list(parts.iter().map(MessagePart::input))
}

/// Adds an item to an empty body: the service rejects empty input.
pub(super) fn close(body: &mut Rendering) {
    if body.is_empty() {
        let item = said("user", "input_text", "\"(no message)\"");
        body.block(MessageRole::User, &item, true);
    }
}

fn said(role: &str, part: &str, text: &str) -> Vec<u8> {
    json::object(|object| {
        object.put("type", "message").put("role", role);
        object.objects("content", [text], |content, text| {
            content.put("type", part).raw("text", text.as_bytes());
        });
    })
}

/// The recorded items, and which of them are reasoning. That goes back only encrypted, together with what followed it, and
/// only if the same bytes precede it as when it was made. Without it, items lose the ids that tie them to it.
fn verbatim<'m>(
    recorded: &Recorded<'m>,
    rules: &Rules,
    prefix: &str,
) -> Vec<(Cow<'m, [u8]>, bool)> {
    let may_think = !rules.without_reasoning && recorded.prefix == prefix;
    let (mut kept, mut has_lost, mut is_followed) = (Vec::new(), false, false);
    for raw in recorded.items.iter().rev() {
        let Ok(item) = serde_json::from_str::<Fields<'_>>(raw.get()) else {
            continue;
        };
        let kind = item.word("type").unwrap_or_default();
        let is_encrypted = || !is_blank(item.raw("encrypted_content").map_or("", RawValue::get));
        is_followed = match &*kind {
            "reasoning" => may_think && is_followed && is_encrypted(),
            "message" => says_something(&item),
            _ => true,
        };
        has_lost |= kind == "reasoning" && !is_followed;
        if is_followed {
            kept.push((raw.get().as_bytes(), item, kind));
        }
    }
    let items = kept.into_iter().rev().map(|(bytes, item, kind)| {
        let is_reasoning = kind == "reasoning";
        let id = item.word("id").unwrap_or_default();
        let is_tied = has_lost && matches!(&*kind, "message" | "function_call");
        let loses_id = !id.is_empty() && !is_reasoning && (is_tied || id.len() > ID_LENGTH);
        let sent = if loses_id {
            item.only(|key| key != "id").into()
        } else {
            bytes.into()
        };
        (sent, is_reasoning)
    });
    items.collect()
}

fn rebuild<'m>(message: &Message<'m>) -> Vec<(Cow<'m, [u8]>, bool)> {
    let texts = message
        .texts()
        .into_iter()
        .map(|text| said("assistant", "output_text", &text));
    let calls = message.calls().into_iter().map(|call| {
        json::object(|object| {
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
        })
    });
    texts
        .chain(calls)
        .map(|item| (item.into(), false))
        .collect()
}

/// Reads a response.
///
/// # Errors
/// The reason to ask again.
pub(super) fn parse(body: &[u8]) -> Result<Answer, String> {
    let (response, items) = super::items(body, "output", "a response of this API")?;
    let mut said = Said::default();
    let mut refusal: Option<String> = None;
    super::each(&items, "an item", |item| {
        match &*item.read::<String>("type")? {
            "message" => {
                for part in item.read::<Vec<Fields<'_>>>("content")? {
                    match part.read("refusal")? {
                        None => said.text += &decoded(&part)?,
                        words => refusal = words,
                    }
                }
            }
            "reasoning" => {
                let mut parts: Vec<Fields<'_>> = item.read("summary")?;
                if parts.is_empty() {
                    parts = item.read("content")?;
                }
                let texts: Vec<String> = parts.iter().map(decoded).collect::<Result<_, _>>()?;
                said.thinking += &texts.join("\n\n");
            }
            "function_call" => {
                let given = item.raw("arguments").map_or("\"\"", RawValue::get);
                let arguments =
                    serde_json::from_str::<String>(given).unwrap_or_else(|_| given.to_owned());
                let name: String = item.read("name")?;
                said.calls
                    .push(NewCall::understand(item.read("call_id")?, &name, arguments));
            }
            _ => {}
        }
        Ok(())
    })?;
    let why = response.small("incomplete_details");
    let status = response.word("status");
    let finish = match (
        status.as_deref().unwrap_or("completed"),
        why["reason"].as_str(),
    ) {
        _ if refusal.is_some() => "content_filter",
        ("completed", _) if said.calls.is_empty() => "stop",
        ("completed", _) => "tool_calls",
        ("incomplete", Some("max_output_tokens") | None) => "length",
        ("incomplete", Some(why)) => why,
        (other, _) => other,
    };
    if let Some(words) = refusal.as_ref().filter(|_| said.text.is_empty()) {
        said.text.clone_from(words);
    }
    let mut answer = said.into_answer(&response, &items, finish);
    answer.finish_detail = refusal;
    Ok(answer)
}

/// The text of a part.
fn decoded(part: &Fields<'_>) -> serde_json::Result<String> {
    let kind: String = part.read("type")?;
    if kind == "refusal" {
        return Ok(String::new());
    }
    match part.read("text") {
        Err(_) if !kind.ends_with("_text") => Ok(String::new()),
        text => text,
    }
}
