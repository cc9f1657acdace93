//! Two services that are as strict as the real ones: Responses and Messages. Their reasoning is bound to what it was
//! made behind, and they refuse whatever those refuse.

use super::server::{Received, Reply, completion, raw};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The form in which a service is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Chat,
    Responses,
    Messages,
}

pub const APIS: [Api; 3] = [Api::Chat, Api::Responses, Api::Messages];

impl Api {
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }

    /// The key of a request's conversation.
    pub fn conversation(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "messages",
            Self::Responses => "input",
        }
    }
}

/// What the model answers, whatever the service.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub thinking: String,
    pub text: String,
    /// Id, tool, arguments.
    pub calls: Vec<(String, String, Value)>,
}

/// The answer to a request.
pub fn answer_of(api: Api, request: &Value, said: &Said) -> Value {
    let calls = said.calls.iter();
    let has_calls = !said.calls.is_empty();
    match api {
        Api::Chat => {
            let calls: Vec<Value> = calls
                .map(|(id, name, arguments)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}}))
                .collect();
            let mut message = json!({"role": "assistant", "reasoning_content": said.thinking, "content": said.text});
            if has_calls {
                message["tool_calls"] = json!(calls);
            }
            json!({
                "id": "c", "object": "chat.completion", "model": "scripted-1",
                "choices": [{"index": 0, "message": message, "finish_reason": if has_calls { "tool_calls" } else { "stop" }}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110, "prompt_tokens_details": {"cached_tokens": 60}},
            })
        }
        Api::Messages => {
            let messages = request["messages"].as_array().expect("messages");
            // It goes on with an answer in which it has paused.
            let begun = messages.last().filter(|last| last["role"] == "assistant");
            let begun = begun.and_then(|last| last["content"].as_array());
            let places = begun.into_iter().flatten();
            let first = places.filter(|block| block["type"] != "text").count();
            let behind = behind(request, messages.len() - usize::from(begun.is_some()));
            let signature = |place: usize, thinking: &str| {
                let place = first + place;
                seal(thinking, &format!("{place} {behind}"))
            };
            let mut content = vec![
                json!({"type": "thinking", "thinking": said.thinking, "signature": signature(0, &said.thinking)}),
                json!({"type": "text", "text": said.text}),
                json!({"type": "redacted_thinking", "data": signature(1, "")}),
            ];
            content.extend(calls.map(|(id, name, arguments)| json!({"type": "tool_use", "id": id, "name": name, "input": arguments})));
            json!({
                "id": "m", "type": "message", "role": "assistant", "model": "scripted-1", "content": content,
                "stop_reason": if has_calls { "tool_use" } else { "end_turn" }, "stop_sequence": null,
                "usage": {"input_tokens": 30, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 60, "output_tokens": 10},
            })
        }
        Api::Responses => {
            let follower = if said.text.is_empty() {
                said.calls[0].0.as_str()
            } else {
                "message"
            };
            let mut output = vec![json!({
                "type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": said.thinking}],
                "encrypted_content": seal(&said.thinking, follower),
            })];
            if !said.text.is_empty() {
                output.push(json!({
                    "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary",
                    "content": [{"type": "output_text", "text": said.text, "annotations": []}],
                }));
            }
            output.extend(calls.map(|(id, name, arguments)| json!({"type": "function_call", "id": "fc_1", "call_id": id, "name": name, "arguments": arguments.to_string(), "status": "completed"})));
            json!({
                "id": "r", "object": "response", "status": "completed", "model": "scripted-1", "error": null,
                "output": output, "incomplete_details": null,
                "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10}, "output_tokens": 10, "total_tokens": 110},
            })
        }
    }
}

/// The reply with an answer: whole, or as a stream if the request asks for one.
pub fn reply(api: Api, received: &Received, said: &Said) -> Reply {
    let request = received.json();
    let answer = answer_of(api, &request, said);
    if request["stream"] == true {
        streamed(&stream(api, &answer))
    } else {
        completion(&answer)
    }
}

/// A stream as a reply.
pub fn streamed(stream: &str) -> Reply {
    raw(stream)
        .chunked()
        .header_instead("Content-Type", "text/event-stream")
}

/// An answer as a stream of small pieces, between comments, pings and events that nobody knows.
pub fn stream(api: Api, answer: &Value) -> String {
    let mut out = String::from(": hello\n\n");
    let mut event = |value: Value| match value["type"].as_str().filter(|_| api != Api::Chat) {
        Some(name) => out.push_str(&format!(
            "event: {name}\nid: 7\ndata: {value}\n\n: still here\n\n"
        )),
        None => out.push_str(&format!("data: {value}\n\n")),
    };
    match api {
        Api::Chat => chat_events(answer, &mut event),
        Api::Messages => messages_events(answer, &mut event),
        Api::Responses => responses_events(answer, &mut event),
    }
    if api == Api::Chat {
        out.push_str("data: [DONE]\n\n");
    }
    out
}

/// A stream of chat completions with these pieces of text, and then a call of `read` if a path is given.
/// [`HERE`] stands behind the first piece.
pub fn text_stream(pieces: &[&str], path: Option<&str>) -> String {
    let event = |delta: Value, reason: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        format!("data: {}\n\n", json!({"model": "m", "choices": [choice]}))
    };
    let mut out = String::new();
    for (at, piece) in pieces.iter().enumerate() {
        out += &event(json!({"content": piece}), None);
        if at == 0 {
            out += HERE;
        }
    }
    if let Some(path) = path {
        let function = json!({"name": "read", "arguments": json!({"path": path}).to_string()});
        let call = json!({"index": 0, "id": "c", "type": "function", "function": function});
        out += &event(json!({"tool_calls": [call]}), None);
    }
    let reason = if path.is_some() { "tool_calls" } else { "stop" };
    out + &event(json!({}), Some(reason)) + "data: [DONE]\n\n"
}

/// A comment in [`text_stream`].
pub const HERE: &str = ": here\n\n";

/// A stream of text as a reply, not in chunks.
pub fn streaming(stream: &str) -> Reply {
    raw(stream).header_instead("Content-Type", "text/event-stream")
}

/// Pieces of a text, between characters.
fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(3)
        .map(|piece| piece.iter().collect())
        .collect()
}

fn chat_events(answer: &Value, event: &mut dyn FnMut(Value)) {
    let mut delta = |delta: Value, reason: Value| {
        event(
            json!({"id": "c", "object": "chat.completion.chunk", "model": answer["model"], "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}),
        );
    };
    let message = &answer["choices"][0]["message"];
    for key in ["reasoning_content", "content"] {
        for piece in pieces(message[key].as_str().unwrap_or_default()) {
            delta(json!({key: piece}), Value::Null);
        }
    }
    for (index, call) in message["tool_calls"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let mut first = call.clone();
        first["index"] = json!(index);
        first["function"]["arguments"] = json!("");
        delta(json!({"tool_calls": [first]}), Value::Null);
        for piece in pieces(call["function"]["arguments"].as_str().expect("arguments")) {
            delta(
                json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}),
                Value::Null,
            );
        }
    }
    delta(json!({}), answer["choices"][0]["finish_reason"].clone());
    event(json!({"choices": [], "usage": answer["usage"]}));
}

fn messages_events(answer: &Value, event: &mut dyn FnMut(Value)) {
    let mut start = answer.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    start["usage"]["output_tokens"] = json!(1);
    event(json!({"type": "message_start", "message": start}));
    for (index, block) in answer["content"]
        .as_array()
        .expect("content")
        .iter()
        .enumerate()
    {
        let mut first = block.clone();
        let mut deltas = Vec::new();
        for (key, kind) in [("thinking", "thinking_delta"), ("text", "text_delta")] {
            if let Some(text) = block[key].as_str() {
                first[key] = json!("");
                deltas.extend(
                    pieces(text)
                        .into_iter()
                        .map(|piece| json!({"type": kind, key: piece})),
                );
            }
        }
        if block["signature"].is_string() {
            first["signature"] = json!("");
            deltas.push(json!({"type": "signature_delta", "signature": block["signature"]}));
        }
        if block["type"] == "tool_use" {
            first["input"] = json!({});
            let parts = pieces(&block["input"].to_string()).into_iter();
            deltas.extend(
                parts.map(|piece| json!({"type": "input_json_delta", "partial_json": piece})),
            );
        }
        event(json!({"type": "content_block_start", "index": index, "content_block": first}));
        event(json!({"type": "ping"}));
        for delta in deltas {
            event(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        event(json!({"type": "content_block_stop", "index": index}));
    }
    event(json!({"type": "novelty", "index": 99}));
    event(
        json!({"type": "message_delta", "delta": {"stop_reason": answer["stop_reason"], "stop_sequence": null}, "usage": {"output_tokens": answer["usage"]["output_tokens"]}}),
    );
    event(json!({"type": "message_stop"}));
}

fn responses_events(answer: &Value, event: &mut dyn FnMut(Value)) {
    event(
        json!({"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}}),
    );
    for (index, item) in answer["output"]
        .as_array()
        .expect("output")
        .iter()
        .enumerate()
    {
        let mut added = item.clone();
        added["encrypted_content"] = json!("half");
        event(json!({"type": "response.output_item.added", "output_index": index, "item": added}));
        for piece in pieces(item["content"][0]["text"].as_str().unwrap_or_default()) {
            event(
                json!({"type": "response.output_text.delta", "output_index": index, "delta": piece}),
            );
        }
        event(json!({"type": "response.novelty"}));
        event(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    let status = answer["status"].as_str().expect("a status");
    event(json!({"type": format!("response.{status}"), "response": answer}));
}

/// What a service signs: nobody else can, as far as a test goes.
fn seal(thinking: &str, bound_to: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (thinking, bound_to).hash(&mut hasher);
    format!("sealed-{:x}", hasher.finish())
}

/// Everything that stands before a message, without marks of caches.
fn behind(request: &Value, message: usize) -> String {
    let messages = request["messages"].as_array().expect("messages");
    let beginning = behind_first(request);
    messages[..message].iter().fold(beginning, behind_next)
}

fn behind_first(request: &Value) -> String {
    without_marks(json!([request["system"], request["tools"]])).to_string()
}

/// The same for the message after this one.
fn behind_next(behind: String, message: &Value) -> String {
    behind + &without_marks(message.clone()).to_string()
}

/// JSON without the marks of caches.
pub fn without_marks(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.remove("cache_control");
            for inner in map.values_mut() {
                *inner = without_marks(inner.take());
            }
        }
        Value::Array(list) => {
            for inner in list {
                *inner = without_marks(inner.take());
            }
        }
        _ => {}
    }
    value
}

/// The API of a request, by the path that it is sent to.
pub fn api_of(line: &str) -> Api {
    match line.split(' ').nth(1).unwrap_or_default() {
        path if path.ends_with("/messages") => Api::Messages,
        path if path.ends_with("/responses") => Api::Responses,
        _ => Api::Chat,
    }
}

/// Everything that the service has against a request.
pub fn objections(api: Api, body: &[u8]) -> Vec<String> {
    let request: Value = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(error) => return vec![format!("not JSON: {error}")],
    };
    let mut found = match api {
        Api::Messages => messages_objections(&request),
        Api::Responses => responses_objections(&request),
        Api::Chat => return super::check::objections(body),
    };
    let key = api.conversation();
    let tail = String::from_utf8_lossy(body);
    let keys = request.as_object().expect("an object");
    if keys.keys().next_back().is_none_or(|last| last != key) {
        found.push(format!("{key} is not the last field: {tail}"));
    }
    found
}

fn is_id(id: &Value) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    id.as_str()
        .is_some_and(|id| (1..=64).contains(&id.len()) && id.chars().all(allowed))
}

/// True for what Messages takes as a result: text, also parts of it, and unless it is an error pictures.
fn is_result(block: &Value) -> bool {
    let is_error = block["is_error"] == true;
    let Some(parts) = block["content"].as_array() else {
        return !is_blank(&block["content"]);
    };
    let mut parts = parts.iter();
    parts.all(|part| match part["type"].as_str() {
        Some("text") => !is_blank(&part["text"]),
        Some("image" | "document") => !is_error && is_source(part),
        _ => false,
    })
}

fn is_source(block: &Value) -> bool {
    let source = &block["source"];
    let media_type = source["media_type"].as_str().unwrap_or_default();
    let fits = match block["type"] == "image" {
        true => media_type.starts_with("image/"),
        false => media_type == "application/pdf",
    };
    let data = source["data"].as_str().unwrap_or_default();
    fits && source["type"] == "base64" && super::check::is_base64(data)
}

fn is_blank(text: &Value) -> bool {
    text.as_str().is_none_or(|text| text.trim().is_empty())
}

/// The most tokens that an answer of the model can have.
const LARGEST_ANSWER: u64 = 64_000;

/// Keys that a model which reasons does not take.
const OF_SAMPLING: [&str; 3] = ["temperature", "top_p", "top_k"];

const MESSAGES_KEYS: [&str; 13] = [
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "stream",
    "thinking",
    "output_config",
    "metadata",
    "stop_sequences",
    "service_tier",
    "context_management",
];

const RESPONSES_KEYS: [&str; 19] = [
    "background",
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "store",
    "include",
    "stream",
    "reasoning",
    "text",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "truncation",
];

/// Keys at the top of a request that the service does not know, or that its model does not take.
fn unknown_keys(request: &Value, known: &[&str]) -> Vec<String> {
    let keys = request.as_object().expect("an object").keys();
    let unknown = keys.filter(|key| !known.contains(&key.as_str()));
    unknown
        .map(|key| match OF_SAMPLING.contains(&key.as_str()) {
            true => format!("`{key}` is not supported with this model"),
            false => format!("Unknown parameter: '{key}'"),
        })
        .collect()
}

/// How many places of a request a cache may end at.
fn breakpoints(request: &Value) -> usize {
    let messages = request["messages"].as_array().into_iter().flatten();
    let blocks = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
    let lists = ["system", "tools"].map(|key| request[key].as_array().into_iter().flatten());
    let all = lists.into_iter().flatten().chain(blocks);
    all.filter(|block| block.get("cache_control").is_some())
        .count()
}

fn messages_objections(request: &Value) -> Vec<String> {
    let mut found = unknown_keys(request, &MESSAGES_KEYS);
    let mut no = |why: String| found.push(why);
    match request["max_tokens"].as_u64() {
        None => no("max_tokens: Field required".into()),
        Some(asked) if asked > LARGEST_ANSWER => no(format!(
            "max_tokens: {asked} > {LARGEST_ANSWER}, which is the maximum allowed number of output tokens for scripted"
        )),
        Some(_) => {}
    }
    if breakpoints(request) > 4 {
        no("A maximum of 4 blocks with cache_control may be provided".into());
    }
    if ["any", "tool"]
        .iter()
        .any(|it| request["tool_choice"]["type"] == *it)
    {
        no("Thinking may not be enabled when tool_choice forces tool use".into());
    }
    for block in request["system"].as_array().into_iter().flatten() {
        if is_blank(&block["text"]) {
            no("system: text content blocks must be non-empty".into());
        }
    }
    for tool in request["tools"].as_array().into_iter().flatten() {
        let schema = &tool["input_schema"];
        let has_choice = ["oneOf", "anyOf", "allOf"]
            .iter()
            .any(|key| schema.get(key).is_some());
        if has_choice {
            no(format!(
                "input_schema does not support oneOf, allOf, or anyOf at the top level: {tool}"
            ));
        }
        if schema["type"] != "object" || !is_id(&tool["name"]) {
            no(format!("tools: input_schema: {tool}"));
        }
    }
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    if messages.first().is_none_or(|first| first["role"] != "user") {
        no("the first message is not the user's".into());
    }
    let goes_on = |message: &Value| message.to_string().contains("\"server_tool_use\"");
    if messages
        .last()
        .is_some_and(|last| last["role"] == "assistant" && !goes_on(last))
    {
        no("This model does not support assistant message prefill".into());
    }
    let mut open: Vec<Value> = Vec::new();
    let mut behind = behind_first(request);
    for (at, message) in messages.iter().enumerate() {
        let blocks = message["content"].as_array().cloned().unwrap_or_default();
        if blocks.is_empty() {
            no(format!("messages.{at}: content is empty"));
        }
        if at > 0 && messages[at - 1]["role"] == message["role"] {
            no(format!("messages.{at}: two of one role"));
        }
        let results: Vec<Value> = blocks
            .iter()
            .filter(|block| block["type"] == "tool_result")
            .map(|block| block["tool_use_id"].clone())
            .collect();
        if results != open {
            no(format!(
                "messages.{at}: tool_use ids {open:?} need tool_result blocks immediately after, and these are {results:?}"
            ));
        }
        if blocks
            .iter()
            .take(results.len())
            .any(|block| block["type"] != "tool_result")
        {
            no(format!("messages.{at}: tool_result blocks must come first"));
        }
        let mut place = 0;
        for block in &blocks {
            let kind = block["type"].as_str().unwrap_or_default();
            let is_thinking = kind.ends_with("thinking");
            if is_thinking && block.get("cache_control").is_some() {
                no(format!("messages.{at}: cache_control on {kind}"));
            }
            let signature = &block[if kind == "thinking" {
                "signature"
            } else {
                "data"
            }];
            let thinking = block["thinking"].as_str().unwrap_or_default();
            match kind {
                "text" if is_blank(&block["text"]) => no(format!(
                    "messages.{at}: text content blocks must contain non-whitespace text"
                )),
                "tool_use" if !is_id(&block["id"]) || !block["input"].is_object() => {
                    no(format!("messages.{at}: {block}"));
                }
                "tool_result" if !is_result(block) => {
                    no(format!("messages.{at}: no result: {block}"));
                }
                "image" | "document" if !is_source(block) => {
                    no(format!("messages.{at}: {block}"));
                }
                _ if is_thinking => {
                    let bound_to = format!("{place} {behind}");
                    if *signature != seal(thinking, &bound_to) {
                        no(format!(
                            "messages.{at}: The block is bound to a different conversation: {block}"
                        ));
                    }
                }
                _ => {}
            }
            place += usize::from(kind != "text");
        }
        open = blocks
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .map(|block| block["id"].clone())
            .collect();
        behind = behind_next(behind, message);
    }
    found
}

fn responses_objections(request: &Value) -> Vec<String> {
    let mut found = unknown_keys(request, &RESPONSES_KEYS);
    let mut no = |why: String| found.push(why);
    // What is not in the background need not be kept.
    if request["store"] != json!(request["background"] == true) {
        no("store is not as it should be".into());
    }
    if request["max_output_tokens"]
        .as_u64()
        .is_some_and(|it| it < 16)
    {
        no("max_output_tokens: integer below minimum value".into());
    }
    if request.get("instructions").is_some_and(is_blank) {
        no("instructions are blank".into());
    }
    for tool in request["tools"].as_array().into_iter().flatten() {
        if tool["strict"] != false || !is_id(&tool["name"]) {
            no(format!("a strict tool, or none: {tool}"));
        }
    }
    let items = request["input"].as_array().cloned().unwrap_or_default();
    if items.is_empty() {
        no("input is empty".into());
    }
    let (mut calls, mut results) = (HashSet::new(), HashSet::new());
    let mut has_reasoned = false;
    for (at, item) in items.iter().enumerate() {
        let id = item["call_id"].to_string();
        let is_of_model = item["role"] == "assistant" || item["type"] == "function_call";
        has_reasoned = item["type"] == "reasoning" || has_reasoned && is_of_model;
        match item["id"].as_str() {
            Some(own) if own.len() > 64 => no(format!("input.{at}: {own} is too long")),
            Some(own) if is_of_model && !has_reasoned => no(format!(
                "Item '{own}' was provided without its required 'reasoning' item"
            )),
            _ => {}
        }
        match item["type"].as_str().unwrap_or_default() {
            "message" if is_blank(&item["content"][0]["text"]) => no(format!("input.{at}: blank")),
            "function_call" if !is_id(&item["call_id"]) => no(format!("input.{at}: {id}")),
            "function_call" if !calls.insert(id.clone()) => no(format!("input.{at}: {id} twice")),
            "function_call_output" if !calls.contains(&id) || !results.insert(id.clone()) => {
                no(format!(
                    "No tool call found for function call output with call_id {id}"
                ));
            }
            "message" | "function_call" | "function_call_output" => {}
            "reasoning" => {
                let next = items.get(at + 1).cloned().unwrap_or_default();
                let follower = match next["type"].as_str() {
                    Some("message") => "message",
                    _ => next["call_id"].as_str().unwrap_or_default(),
                };
                let summary = item["summary"][0]["text"].as_str().unwrap_or_default();
                if !item["encrypted_content"].is_string() {
                    no(format!("Item with id {} not found", item["id"]));
                } else if item["encrypted_content"] != seal(summary, follower) {
                    no(format!(
                        "input.{at}: reasoning without its required following item: {item}"
                    ));
                }
            }
            other => no(format!("input.{at}: {other}")),
        }
    }
    if calls != results {
        no(format!(
            "No tool output found for function calls {:?}",
            calls.difference(&results)
        ));
    }
    found
}
