//! Spans of one run, gathered into requests that are not too long.

use super::attributes::Attributes;
use crate::VERSION;
use crate::error::Result;
use crate::export::recorded::RecordedRun;
use crate::text::json;
use crate::text::shorten::head;
use serde_json::{Value, json};

/// The general conventions that 0.1.0 of those for generative AI extends, which has no schema of its own.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.45.0";

/// Spans in one request, at most.
const BATCH_SPANS: usize = 512;

/// Bytes of one request, at most.
const BATCH_BYTES: usize = 4_000_000;

/// Takes one request. False if no more are wanted.
pub(super) type Emit<'e> = dyn FnMut(&str) -> Result<bool> + 'e;

/// Attributes that are left out of a span that is too long for a request.
const CONTENT: [&str; 5] = [
    "gen_ai.system_instructions",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
];

/// Spans of one run that have not been handed over yet.
pub(super) struct Batch {
    head: String,
    tail: String,
    spans: Vec<String>,
    bytes: usize,
}

impl Batch {
    pub(super) fn new(run: &RecordedRun) -> Self {
        let mut resource = Attributes::default();
        resource.text("service.name", &run.agent.name);
        resource.maybe_text("service.version", run.agent.version.as_deref());
        resource.maybe_text("host.name", run.hostname.as_deref());
        let resource = json::text(&json!({"attributes": resource.0}));
        let version = run.delta_version.as_deref().unwrap_or(VERSION);
        let scope = json::text(&json!({"name": "delta", "version": version}));
        Self {
            head: format!(
                "{{\"resourceSpans\":[{{\"resource\":{resource},\"scopeSpans\":[{{\"scope\":{scope},\"spans\":["
            ),
            tail: format!("],\"schemaUrl\":\"{SCHEMA}\"}}],\"schemaUrl\":\"{SCHEMA}\"}}]}}"),
            spans: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a span. False if no more are wanted.
    pub(super) fn add(&mut self, span: Value, emit: &mut Emit<'_>) -> Result<bool> {
        let around = self.head.len() + self.tail.len();
        let mut text = json::text(&span);
        if text.len() + around > BATCH_BYTES {
            text = json::text(&shortened(span));
        }
        let is_full = self.bytes + text.len() + around + self.spans.len() > BATCH_BYTES;
        if (is_full || self.spans.len() == BATCH_SPANS) && !self.flush(emit)? {
            return Ok(false);
        }
        self.bytes += text.len();
        self.spans.push(text);
        Ok(true)
    }

    pub(super) fn flush(&mut self, emit: &mut Emit<'_>) -> Result<bool> {
        if self.spans.is_empty() {
            return Ok(true);
        }
        let line = format!("{}{}{}", self.head, self.spans.join(","), self.tail);
        self.spans.clear();
        self.bytes = 0;
        emit(&line)
    }
}

/// A span without its content, and with other texts cut.
fn shortened(mut span: Value) -> Value {
    if let Some(attributes) = span["attributes"].as_array_mut() {
        attributes.retain(|it| !CONTENT.iter().any(|key| it["key"] == *key));
    }
    let is_long = |span: &Value| json::text(span).len() > BATCH_BYTES / 2;
    if is_long(&span) {
        if let Some(map) = span.as_object_mut() {
            map.shift_remove("events");
        }
        cut_texts(&mut span);
    }
    span
}

/// Cuts all texts in a value to a length that no honest one of them has.
fn cut_texts(value: &mut Value) {
    const LONGEST: usize = 4096;
    match value {
        Value::String(text) if text.len() > LONGEST => {
            text.truncate(head(text, LONGEST).len());
        }
        Value::Array(list) => list.iter_mut().for_each(cut_texts),
        Value::Object(map) => map.values_mut().for_each(cut_texts),
        _ => {}
    }
}
