//! The records beside a journal: the head of the first request, and what is known of each request.
//!
//! A file is read only if it lies in the run's directory once all links are followed. Any part of a record
//! may be missing or anything else than it should be.

use crate::record::invocations::InvocationStatus;
use crate::record::run_dir::RunDir;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use serde_json::{Value, json};
use std::path::{Component, Path};

/// A larger record is not read.
const LARGEST: u64 = 64 << 20;

/// Where services say how many of a request's tokens were put into a cache.
const CACHE_WRITTEN: [&str; 3] = [
    "/cache_creation_input_tokens",
    "/input_tokens_details/cache_write_tokens",
    "/prompt_tokens_details/cache_write_tokens",
];

/// Where services say how many of an answer's tokens are of reasoning.
const REASONING: [&str; 3] = [
    "/completion_tokens_details/reasoning_tokens",
    "/output_tokens_details/reasoning_tokens",
    "/output_tokens_details/thinking_tokens",
];

/// The part of a request before the conversation.
#[derive(Debug, Default)]
pub(crate) struct RequestHead {
    /// The texts of the system's messages.
    pub system: Vec<String>,
    /// In the form of chat completions.
    pub tools: Vec<Value>,
}

/// A request to the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedInvocation {
    /// The directory's name.
    pub name: String,
    pub began: Option<Timestamp>,
    pub duration_ms: u64,
    pub is_success: bool,
    pub http_status: Option<u64>,
    /// When each began, and how it ended.
    pub attempts: Vec<(Option<Timestamp>, String)>,
    /// As the answer names it.
    pub model: Option<String>,
    /// Of the request's tokens, from a cache.
    pub cached: Option<u64>,
    /// Of the request's tokens, put into a cache.
    pub cache_written: Option<u64>,
    /// Of the answer's tokens.
    pub reasoning_tokens: Option<u64>,
    pub response_id: Option<String>,
}

/// A file of a run that a record names.
pub(super) fn read_file(run: &RunDir, reference: &str) -> Option<Vec<u8>> {
    let below = Path::new(reference);
    let is_below = |part| matches!(part, Component::Normal(_));
    if !below.starts_with("io") || !below.components().all(is_below) {
        return None;
    }
    let path = run.path.join(below).canonicalize().ok()?;
    if !path.starts_with(run.path.canonicalize().ok()?) {
        return None;
    }
    let file = files::open_unlinked(&path).ok()?;
    files::read_limited(file, LARGEST).ok()
}

fn read_json(run: &RunDir, reference: &str) -> Option<Value> {
    serde_json::from_slice(&read_file(run, reference)?).ok()
}

/// The head of a request that was kept whole.
pub(super) fn read_head(run: &RunDir, invocation: &str) -> Option<RequestHead> {
    let request = read_json(run, &format!("io/invocations/{invocation}/request.json"))?;
    let tools = request["tools"].as_array().into_iter().flatten();
    Some(RequestHead {
        system: system_texts(&request),
        tools: tools.filter_map(in_chat_form).collect(),
    })
}

/// Chat completions have them among the messages, Responses under `instructions`, Messages under `system`.
fn system_texts(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().into_iter().flatten();
    let of_system =
        |message: &&Value| matches!(message["role"].as_str(), Some("system" | "developer"));
    let said = messages.filter(of_system).map(|it| &it["content"]);
    let texts = said.chain([&request["instructions"], &request["system"]]);
    texts.filter_map(text_of).collect()
}

/// A text, or a list of parts with texts.
fn text_of(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            let texts: Vec<_> = texts.collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        }
        _ => None,
    }
}

/// A tool's definition, from that of any API.
fn in_chat_form(tool: &Value) -> Option<Value> {
    if tool["function"].is_object() {
        return Some(tool.clone());
    }
    let name = tool["name"].as_str()?;
    let parameters = [&tool["parameters"], &tool["input_schema"]];
    let parameters = parameters.into_iter().find(|it| it.is_object())?;
    let mut function = json!({"name": name});
    if let Some(description) = tool["description"].as_str() {
        function["description"] = description.into();
    }
    function["parameters"] = parameters.clone();
    Some(json!({"type": "function", "function": function}))
}

/// What is known of a request.
pub(super) fn read_invocation(run: &RunDir, name: &str) -> RecordedInvocation {
    let dir = format!("io/invocations/{name}");
    let record = read_json(run, &format!("{dir}/metadata.json")).unwrap_or_default();
    let answer = read_json(run, &format!("{dir}/response.json")).unwrap_or_default();
    let attempts = record["attempts"].as_array().into_iter().flatten();
    let attempts = attempts.map(|attempt| {
        let outcome = attempt["outcome"].as_str().unwrap_or_default();
        (time_of(&attempt["started_at"]), outcome.to_owned())
    });
    let attempts: Vec<_> = attempts.collect();
    let in_name = || Timestamp::parse_compact(name.split('_').next()?);
    let began = attempts.first().and_then(|(at, _)| *at).or_else(in_name);
    let usage = &answer["usage"];
    RecordedInvocation {
        name: name.to_owned(),
        began,
        duration_ms: record["duration_ms"].as_u64().unwrap_or(0),
        is_success: record["status"] == InvocationStatus::Success.name(),
        http_status: record["http_status"].as_u64(),
        attempts,
        model: record["model_id"].as_str().map(str::to_owned),
        cached: record["token_usage"]["cached"].as_u64(),
        cache_written: CACHE_WRITTEN
            .iter()
            .find_map(|it| usage.pointer(it)?.as_u64()),
        reasoning_tokens: REASONING.iter().find_map(|it| usage.pointer(it)?.as_u64()),
        response_id: answer["id"].as_str().map(str::to_owned),
    }
}

fn time_of(value: &Value) -> Option<Timestamp> {
    value.as_str().and_then(Timestamp::parse)
}
