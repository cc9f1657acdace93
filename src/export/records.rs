//! The records beside a journal: the head of the first request, and what is known of each request.
//!
//! A file is read only if it lies in the run's directory, and no link leads to it. Any part of a record
//! may be missing or anything else than it should be.

use crate::record::invocations::{self, AttemptRecord, InvocationMetadata};
use crate::record::run_dir::RunDir;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

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
#[derive(Debug, Default)]
pub(crate) struct RecordedInvocation {
    /// The directory's name.
    pub name: String,
    pub began: Option<Timestamp>,
    pub metadata: InvocationMetadata,
    /// Tokens of the request that were put into a cache.
    pub cache_written: Option<u64>,
    /// Tokens of the answer.
    pub reasoning_tokens: Option<u64>,
    pub response_id: Option<String>,
}

impl RecordedInvocation {
    pub(super) fn ended(&self) -> Option<Timestamp> {
        let took = Duration::from_millis(self.metadata.duration_ms);
        self.began.map(|at| at.plus(took))
    }

    /// Tokens of the request that came from a cache.
    pub(super) fn cached(&self) -> Option<u64> {
        self.metadata.token_usage.as_ref()?.cached
    }
}

/// A file of a run that a record names.
pub(super) fn read_file(run: &RunDir, reference: &str) -> Option<Vec<u8>> {
    let below = Path::new(reference);
    let is_record = below.starts_with("io");
    files::read_below(&run.path, below, LARGEST)
        .ok()
        .filter(|_| is_record)
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
    messages
        .filter(of_system)
        .map(|it| &it["content"])
        .chain([&request["instructions"], &request["system"]])
        .filter_map(text_of)
        .collect()
}

/// A text, or a list of parts with texts.
fn text_of(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts: Vec<_> = parts
                .iter()
                .filter_map(|part| part["text"].as_str())
                .collect();
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
    let schemas = [&tool["parameters"], &tool["input_schema"]];
    let parameters = schemas.into_iter().find(|it| it.is_object())?;
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
    let metadata = invocations::metadata(&run.path.join(&dir)).unwrap_or_default();
    let answer = read_json(run, &format!("{dir}/response.json")).unwrap_or_default();
    let in_name = || Timestamp::parse_basic(name.split('_').next()?);
    let first = metadata.attempts.first();
    let began = first.and_then(AttemptRecord::began).or_else(in_name);
    let usage = &answer["usage"];
    RecordedInvocation {
        name: name.to_owned(),
        began,
        metadata,
        cache_written: CACHE_WRITTEN
            .iter()
            .find_map(|it| usage.pointer(it)?.as_u64()),
        reasoning_tokens: REASONING.iter().find_map(|it| usage.pointer(it)?.as_u64()),
        response_id: answer["id"].as_str().map(str::to_owned),
    }
}
