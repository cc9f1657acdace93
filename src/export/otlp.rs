//! A run as a trace of OpenTelemetry: requests of OTLP in JSON, by the conventions for generative AI.
//!
//! Ids are hexadecimal, enumerations are numbers, and integers of 64 bits are texts, as the encoding of OTLP has
//! it. Posting is left to other programs.

mod attributes;
mod batch;

use super::content::PartForm;
use super::conversation::messages_of;
use super::ids::{span_id, span_outside, trace_id};
use super::recorded::{ExportedAnswer, ExportedCall, ExportedStep, RecordedRun, What};
use super::records::RecordedInvocation;
use crate::error::Result;
use crate::record::invocations::InvocationStatus;
use crate::text::json;
use crate::text::timestamp::Timestamp;
use attributes::{Attributes, provider, request_attributes};
use batch::{Batch, Emit};
use serde_json::{Value, json};

/// Most bytes of a conversation in one span; the oldest messages are left out.
const SPAN_BYTES: usize = 1_000_000;

/// Kinds of spans.
const INTERNAL: u8 = 1;
const CLIENT: u8 = 3;

/// The requests that carry a run, one a line, each handed to `emit` until that wants no more: with what was
/// said, and with the names of earlier conventions beside the present ones, if they are wanted.
///
/// # Errors
/// Those of `emit`.
pub(crate) fn write(
    run: &RecordedRun,
    has_content: bool,
    has_old_names: bool,
    emit: &mut Emit<'_>,
) -> Result<()> {
    let parent = match &run.parent {
        Some((id, call)) => call.as_ref().map(|call| span_id(id, "execute_tool", call)),
        None => run
            .traceparent
            .as_deref()
            .and_then(span_outside)
            .map(|(_, span)| span),
    };
    let trace = Trace {
        id: trace_id(run),
        has_content,
        has_old_names,
    };
    trace.write(run, parent, emit).map(|_| ())
}

struct Trace {
    id: String,
    has_content: bool,
    has_old_names: bool,
}

impl Trace {
    fn write(
        &self,
        run: &RecordedRun,
        parent: Option<String>,
        emit: &mut Emit<'_>,
    ) -> Result<bool> {
        let own = span_id(&run.id, "invoke_agent", "0");
        let mut batch = Batch::new(run);
        let texts = if self.has_content {
            message_texts(run)
        } else {
            vec![String::new(); run.steps.len()]
        };
        let unanswered = run.unanswered.iter();
        let steps = run.steps.iter().enumerate();
        let spans = [self.run_span(run, &own, parent)]
            .into_iter()
            .chain(unanswered.map(|it| self.failed_span(run, &own, it)))
            .chain(
                steps
                    .filter(|(_, step)| !step.is_copied)
                    .flat_map(|(at, _)| self.step_spans(run, &own, at, &texts[..at])),
            );
        for span in spans {
            if !batch.add(span, emit)? {
                return Ok(false);
            }
        }
        if !batch.flush(emit)? {
            return Ok(false);
        }
        for (place, child) in run.children.iter().enumerate() {
            let parent = call_that_started(run, place)
                .map_or_else(|| own.clone(), |call| call_span_id(run, call));
            if !self.write(child, Some(parent), emit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The spans of a step: of an answer, and of each call.
    fn step_spans(
        &self,
        run: &RecordedRun,
        own: &str,
        at: usize,
        said_before: &[String],
    ) -> Vec<Value> {
        let step = &run.steps[at];
        let answer = match &step.what {
            What::Answer(answer) => {
                let before = at.checked_sub(1).and_then(|at| run.steps[at].at);
                Some(self.answer_span(run, own, answer, [before, step.at], said_before))
            }
            _ => None,
        };
        let calls = step
            .calls()
            .iter()
            .filter_map(|call| self.call_span(run, own, call));
        answer.into_iter().chain(calls).collect()
    }

    fn span(
        &self,
        id: String,
        parent: Option<&str>,
        name: String,
        kind: u8,
        times: [Option<Timestamp>; 2],
        attributes: Attributes,
    ) -> Value {
        let [first, last] = times;
        let began = first.or(last).unwrap_or(Timestamp::from_millis(0));
        let ended = last.unwrap_or(began).max(began);
        let span = json!({
            "traceId": self.id,
            "spanId": id,
            "parentSpanId": parent,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": nanos(began),
            "endTimeUnixNano": nanos(ended),
            "attributes": attributes.0,
        });
        json::without_nulls(span).into()
    }

    fn run_span(&self, run: &RecordedRun, own: &str, parent: Option<String>) -> Value {
        let name = &run.agent.name;
        let mut attributes = Attributes::default();
        let operation = if run.is_flow {
            "invoke_workflow"
        } else {
            "invoke_agent"
        };
        attributes.text("gen_ai.operation.name", operation);
        attributes.text("gen_ai.agent.name", name);
        if run.is_flow {
            let old_name = self.has_old_names.then_some(name.as_str());
            attributes.maybe_text("gen_ai.workflow.name", old_name);
        } else {
            attributes.text("gen_ai.provider.name", provider(&run.agent.llm));
            attributes.maybe_text("gen_ai.agent.version", run.agent.version.as_deref());
            attributes.maybe_text("gen_ai.request.model", run.agent.model.as_deref());
            let spent = run.spent(false);
            attributes.number("gen_ai.usage.input_tokens", Some(spent.prompt));
            attributes.number("gen_ai.usage.output_tokens", Some(spent.completion));
        }
        attributes.text("gen_ai.conversation.id", &run.id);
        let status = match &run.end {
            Some(end) if end.status == "COMPLETED" => Some(status(None)),
            Some(end) => {
                let reason = end.stop_reason.as_deref().unwrap_or(&end.status);
                attributes.text("error.type", reason);
                Some(status(Some(end.error.as_deref().unwrap_or(reason))))
            }
            None => None,
        };
        if self.has_content && !run.head.system.is_empty() {
            attributes.json("gen_ai.system_instructions", &system_parts(run));
        }
        let (id, parent) = (own.to_owned(), parent.as_deref());
        let name = format!("{operation} {name}");
        let times = [run.began, run.ended];
        let mut span = self.span(id, parent, name, INTERNAL, times, attributes);
        if let Some(status) = status {
            span["status"] = status;
        }
        span
    }

    fn answer_span(
        &self,
        run: &RecordedRun,
        parent: &str,
        answer: &ExportedAnswer,
        [before, at]: [Option<Timestamp>; 2],
        said_before: &[String],
    ) -> Value {
        let none = RecordedInvocation::default();
        let record = answer.invocation.as_ref().unwrap_or(&none);
        let mut attributes = request_attributes(&answer.llm);
        let model = record.metadata.model_id.as_deref();
        attributes.maybe_text("gen_ai.response.model", model);
        attributes.maybe_text("gen_ai.response.id", record.response_id.as_deref());
        if let Some(reason) = &answer.finish_reason {
            attributes.texts("gen_ai.response.finish_reasons", &[reason]);
        }
        if let Some(spent) = answer.spent() {
            attributes.number("gen_ai.usage.input_tokens", Some(spent.prompt));
            attributes.number("gen_ai.usage.output_tokens", Some(spent.completion));
            let cached = record.cached().map(|_| spent.cached);
            attributes.number("gen_ai.usage.cache_read.input_tokens", cached);
        }
        let written = record.cache_written;
        attributes.number("gen_ai.usage.cache_write.input_tokens", written);
        let written = written.filter(|_| self.has_old_names);
        attributes.number("gen_ai.usage.cache_creation.input_tokens", written);
        attributes.number(
            "gen_ai.usage.reasoning.output_tokens",
            record.reasoning_tokens,
        );
        if self.has_content {
            self.put_messages(&mut attributes, run, answer, said_before);
        }
        let times = match record.ended() {
            Some(ended) if record.metadata.duration_ms > 0 => [record.began, Some(ended)],
            _ => [record.began.or(before), at],
        };
        let number = match record.name.as_str() {
            "" => format!("thought {}", answer.seq),
            name => name.to_owned(),
        };
        let id = span_id(&run.id, "chat", &number);
        let name = chat_name(&answer.llm);
        let mut span = self.span(id, Some(parent), name, CLIENT, times, attributes);
        let failed = record.metadata.attempts.len().saturating_sub(1);
        put_attempts(&mut span, record, failed);
        span["status"] = status(None);
        span
    }

    /// A request that was never answered.
    fn failed_span(&self, run: &RecordedRun, parent: &str, record: &RecordedInvocation) -> Value {
        let llm = &run.agent.llm;
        let mut attributes = request_attributes(llm);
        let code = record.metadata.http_status.map(|code| code.to_string());
        // The engine may have died before it was answered, or before the answer was in the journal.
        let kind = if record.metadata.has(InvocationStatus::Success) {
            "not_recorded"
        } else {
            "no_answer"
        };
        attributes.text("error.type", code.as_deref().unwrap_or(kind));
        let id = span_id(&run.id, "chat", &record.name);
        let times = [record.began, record.ended()];
        let mut span = self.span(id, Some(parent), chat_name(llm), CLIENT, times, attributes);
        let attempts = &record.metadata.attempts;
        put_attempts(&mut span, record, attempts.len());
        let last = attempts
            .last()
            .and_then(|attempt| attempt.outcome.as_deref());
        span["status"] = status(Some(last.unwrap_or(kind)));
        span
    }

    /// None if nothing was run.
    fn call_span(&self, run: &RecordedRun, parent: &str, call: &ExportedCall) -> Option<Value> {
        let result = call.result.as_ref();
        let ended = result.and_then(|it| it.at);
        let began = call.began?;
        let mut attributes = Attributes::default();
        attributes.text("gen_ai.operation.name", "execute_tool");
        attributes.text("gen_ai.tool.name", &call.name);
        attributes.text("gen_ai.tool.call.id", &call.id);
        attributes.text("gen_ai.tool.type", "function");
        let failure = result
            .filter(|it| !it.is_success)
            .map(|it| match it.exit_code {
                Some(code) => code.to_string(),
                None if it.content.text.contains("[timed out") => "timeout".to_owned(),
                None => it.status.clone().unwrap_or_else(|| "ERROR".to_owned()),
            });
        attributes.maybe_text("error.type", failure.as_deref());
        if self.has_content {
            let arguments = Value::from(call.arguments.clone());
            attributes.json("gen_ai.tool.call.arguments", &arguments);
            attributes.maybe_text(
                "gen_ai.tool.call.result",
                result.map(|it| it.content.text.as_str()),
            );
        }
        let id = call_span_id(run, call);
        let name = format!("execute_tool {}", call.name);
        let times = [Some(began), ended.or(run.ended)];
        let mut span = self.span(id, Some(parent), name, INTERNAL, times, attributes);
        if result.is_some() {
            span["status"] = status(failure.as_deref());
        }
        Some(span)
    }

    fn put_messages(
        &self,
        attributes: &mut Attributes,
        run: &RecordedRun,
        answer: &ExportedAnswer,
        said_before: &[String],
    ) {
        let mut length = 0;
        let mut kept: Vec<&str> = said_before
            .iter()
            .rev()
            .filter(|texts| !texts.is_empty())
            .map(String::as_str)
            .take_while(|texts| {
                length += texts.len();
                length <= SPAN_BYTES
            })
            .collect();
        kept.reverse();
        if !run.head.system.is_empty() {
            attributes.json("gen_ai.system_instructions", &system_parts(run));
        }
        attributes.text("gen_ai.input.messages", &format!("[{}]", kept.join(",")));
        let said = messages_of_answer(answer);
        attributes.json("gen_ai.output.messages", &Value::from(said));
    }
}

/// The messages of each step in the form of the conventions, as JSON with commas between them.
fn message_texts(run: &RecordedRun) -> Vec<String> {
    run.steps
        .iter()
        .map(|step| {
            let texts: Vec<String> = messages_of(step, PartForm::Digest)
                .into_iter()
                .map(|it| json::text(&in_parts(&it)))
                .collect();
            texts.join(",")
        })
        .collect()
}

fn messages_of_answer(answer: &ExportedAnswer) -> Vec<Value> {
    let reason = match answer.finish_reason.as_deref() {
        Some("length" | "max_tokens") => "length",
        Some("content_filter" | "refusal") => "content_filter",
        Some("error") => "error",
        _ if !answer.calls.is_empty() => "tool_call",
        _ => "stop",
    };
    let mut parts = Vec::new();
    for (kind, text) in [("reasoning", &answer.reasoning), ("text", &answer.text)] {
        parts.extend(
            text.as_ref()
                .map(|text| json!({"type": kind, "content": text})),
        );
    }
    let calls = answer.calls.iter();
    parts.extend(calls.map(|call| {
        json!({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
    }));
    vec![json!({"role": "assistant", "parts": parts, "finish_reason": reason})]
}

/// A message of chat completions in the form of the conventions.
fn in_parts(message: &Value) -> Value {
    let mut parts = Vec::new();
    let content = &message["content"];
    if message["role"] == "tool" {
        let id = &message["tool_call_id"];
        parts.push(json!({"type": "tool_call_response", "id": id, "response": content}));
    } else {
        if message["reasoning_content"].is_string() {
            parts.push(json!({"type": "reasoning", "content": message["reasoning_content"]}));
        }
        if content.is_string() {
            parts.push(json!({"type": "text", "content": content}));
        }
        for part in content.as_array().into_iter().flatten() {
            parts.push(match &part["text"] {
                Value::String(text) => json!({"type": "text", "content": text}),
                _ => part.clone(),
            });
        }
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let arguments = function["arguments"].as_str().unwrap_or("{}");
        let arguments: Value = json::read_or_default(arguments);
        let (id, name) = (&call["id"], &function["name"]);
        parts.push(json!({"type": "tool_call", "id": id, "name": name, "arguments": arguments}));
    }
    json!({"role": message["role"], "parts": parts})
}

fn system_parts(run: &RecordedRun) -> Value {
    run.head
        .system
        .iter()
        .map(|text| json!({"type": "text", "content": text}))
        .collect()
}

/// The call that has started a child.
fn call_that_started(run: &RecordedRun, child: usize) -> Option<&ExportedCall> {
    run.steps
        .iter()
        .flat_map(ExportedStep::calls)
        .filter(|call| call.began.is_some())
        .find(|call| call.started.contains(&child))
}

/// A child finds it by its own record, too, if the call has an id of its own.
fn call_span_id(run: &RecordedRun, call: &ExportedCall) -> String {
    let began = call.began.map_or(0, Timestamp::millis);
    let number = match &call.call_id {
        Some(id) => id.clone(),
        None => format!("{}@{began}", call.id),
    };
    span_id(&run.id, "execute_tool", &number)
}

fn chat_name(llm: &serde_json::Map<String, Value>) -> String {
    match llm.get("model").and_then(Value::as_str) {
        Some(model) => format!("chat {model}"),
        None => "chat".to_owned(),
    }
}

fn put_attempts(span: &mut Value, record: &RecordedInvocation, count: usize) {
    let events: Vec<Value> = record
        .metadata
        .attempts
        .iter()
        .take(count)
        .map(|attempt| {
            let mut attributes = Attributes::default();
            attributes.maybe_text("error.message", attempt.outcome.as_deref());
            let began = attempt.began().or(record.began);
            let at = began.unwrap_or(Timestamp::from_millis(0));
            json!({"timeUnixNano": nanos(at), "name": "attempt_failed", "attributes": attributes.0})
        })
        .collect();
    if !events.is_empty() {
        span["events"] = events.into();
    }
}

/// 1 is OK, 2 is ERROR.
fn status(error: Option<&str>) -> Value {
    match error {
        None => json!({"code": 1}),
        Some(message) => json!({"code": 2, "message": message}),
    }
}

fn nanos(at: Timestamp) -> String {
    at.millis().saturating_mul(1_000_000).to_string()
}
