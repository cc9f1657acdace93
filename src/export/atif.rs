//! A run as a trajectory of ATIF 1.8, the Agent Trajectory Interchange Format of Harbor.
//!
//! All objects of it forbid keys that they do not know: delta's own members are in `extra`.

use super::conversation::content;
use super::recorded::{
    ExportedAnswer, ExportedAttachment, ExportedCall, ExportedStep, RecordedRun, Spent, What,
};
use crate::VERSION;
use crate::record::attachments::blobs::Blobs;
use serde_json::{Map, Value, json};

/// The trajectory of a run that has at least one step. Runs that it has started are in it.
pub(crate) fn trajectory(run: &RecordedRun) -> Value {
    let steps = steps(run);
    let mut out = object(json!({
        "schema_version": "ATIF-v1.8",
        "session_id": run.root,
        "trajectory_id": run.id,
        "agent": agent(run),
    }));
    let metrics = final_metrics(run, steps.len());
    out.insert("steps".to_owned(), steps.into());
    out.insert("final_metrics".to_owned(), metrics);
    let children: Vec<Value> = run.children.iter().map(trajectory).collect();
    if !children.is_empty() {
        out.insert("subagent_trajectories".to_owned(), children.into());
    }
    let extra = json!({
        "parent_run_id": run.parent.as_ref().map(|(run, _)| run),
        "forked_from": run.forked_from,
        "hostname": run.hostname,
        "workflow": run.is_flow.then_some(true),
    });
    put_extra(&mut out, extra);
    Value::Object(out)
}

fn agent(run: &RecordedRun) -> Value {
    let agent = &run.agent;
    let version = agent.version.as_deref().or(run.delta_version.as_deref());
    let mut out = object(json!({
        "name": agent.name,
        "version": version.unwrap_or(VERSION),
        "model_name": agent.model,
    }));
    if !run.head.tools.is_empty() {
        out.insert("tool_definitions".to_owned(), run.head.tools.clone().into());
    }
    let extra = json!({"delta_version": run.delta_version, "agent_home": agent.home});
    put_extra(&mut out, extra);
    Value::Object(out)
}

fn steps(run: &RecordedRun) -> Vec<Value> {
    let system = &run.head.system;
    let first = (!system.is_empty()).then(|| object(json!({"message": system.join("\n\n")})));
    let first = first.map(|step| ("system", step));
    let steps = first
        .into_iter()
        .chain(run.steps.iter().map(|it| step(run, it)));
    let numbered = steps.zip(1..).map(|((source, fields), number)| {
        let mut step = object(json!({"step_id": number, "source": source}));
        step.extend(fields);
        Value::Object(step)
    });
    numbered.collect()
}

/// Who a step is of, and its other fields.
fn step(run: &RecordedRun, step: &ExportedStep) -> (&'static str, Map<String, Value>) {
    let mut out = Map::new();
    if let Some(at) = step.at {
        out.insert("timestamp".to_owned(), at.to_string().into());
    }
    let source = match &step.what {
        What::User(text) => {
            out.insert(
                "message".to_owned(),
                content(text, &step.attachments, &picture),
            );
            "user"
        }
        What::System { text, extra, .. } => {
            out.insert("message".to_owned(), text.as_str().into());
            out.insert("extra".to_owned(), extra.clone().into());
            "system"
        }
        What::Answer(answer) => {
            out.extend(answer_fields(run, answer));
            "agent"
        }
        What::Node(calls) => {
            // No model was asked: a program was started.
            out.insert("message".to_owned(), "".into());
            out.insert("llm_call_count".to_owned(), 0.into());
            out.extend(call_fields(run, calls));
            "agent"
        }
    };
    if step.is_copied {
        out.insert("is_copied_context".to_owned(), true.into());
    }
    (source, out)
}

fn answer_fields(run: &RecordedRun, answer: &ExportedAnswer) -> Map<String, Value> {
    let model = answer.model.as_ref();
    let model = model.filter(|model| run.agent.model.as_ref() != Some(model));
    let mut out = object(json!({
        "message": answer.text.as_deref().unwrap_or_default(),
        "model_name": model,
        "reasoning_content": answer.reasoning,
        "llm_call_count": 1,
    }));
    out.extend(call_fields(run, &answer.calls));
    if let Some(spent) = answer.spent() {
        let record = answer.invocation.as_ref();
        let mut metrics = object(json!({
            "prompt_tokens": spent.prompt,
            "completion_tokens": spent.completion,
            "cached_tokens": record.and_then(|it| it.cached).map(|_| spent.cached),
            "cost_usd": spent.cost,
        }));
        let reasoning = record.and_then(|it| it.reasoning_tokens);
        put_extra(&mut metrics, json!({"reasoning_tokens": reasoning}));
        out.insert("metrics".to_owned(), metrics.into());
    }
    let purpose = answer.is_compaction.then_some("compaction");
    put_extra(
        &mut out,
        json!({"finish_reason": answer.finish_reason, "purpose": purpose}),
    );
    out
}

/// Calls, and in the same step their results.
fn call_fields(run: &RecordedRun, calls: &[ExportedCall]) -> Map<String, Value> {
    let mut out = Map::new();
    if calls.is_empty() {
        return out;
    }
    let list: Vec<Value> = calls.iter().map(call).collect();
    out.insert("tool_calls".to_owned(), list.into());
    let results: Vec<Value> = calls.iter().filter_map(|it| result(run, it)).collect();
    if !results.is_empty() {
        out.insert("observation".to_owned(), json!({"results": results}));
    }
    out
}

fn call(call: &ExportedCall) -> Value {
    let mut out = object(json!({
        "tool_call_id": call.id,
        "function_name": call.name,
        "arguments": call.arguments,
    }));
    put_extra(
        &mut out,
        json!({"invalid_arguments": call.invalid_arguments}),
    );
    Value::Object(out)
}

/// None if there is neither a result nor a run that the call has started.
fn result(run: &RecordedRun, call: &ExportedCall) -> Option<Value> {
    if call.result.is_none() && call.started.is_empty() {
        return None;
    }
    let result = call.result.as_ref();
    let mut out = object(json!({
        "source_call_id": call.id,
        "content": result.map(|it| content(&it.text, &it.attachments, &picture)),
    }));
    if !call.started.is_empty() {
        let ids = call.started.iter().map(|place| &run.children[*place].id);
        let refs: Vec<Value> = ids.map(|id| json!({"trajectory_id": id})).collect();
        out.insert("subagent_trajectory_ref".to_owned(), refs.into());
    }
    let extra = result.map(
        |it| json!({"status": it.status, "exit_code": it.exit_code, "duration_ms": it.duration_ms}),
    );
    put_extra(&mut out, extra.unwrap_or_default());
    Some(Value::Object(out))
}

/// A picture as a part. The format has none for documents, whose lines are in the text.
fn picture(exported: &ExportedAttachment) -> Option<Value> {
    let ExportedAttachment { attachment, run } = exported;
    let path = Blobs::of(run).path(&attachment.sha256);
    let source = json!({"media_type": attachment.facts.media_type, "path": path});
    (!attachment.is_document()).then(|| json!({"type": "image", "source": source}))
}

fn final_metrics(run: &RecordedRun, steps: usize) -> Value {
    let Spent {
        prompt,
        completion,
        cached,
        cost,
    } = run.spent(true);
    let mut out = object(json!({
        "total_prompt_tokens": prompt,
        "total_completion_tokens": completion,
        "total_cached_tokens": cached,
        "total_cost_usd": cost,
        "total_steps": steps,
    }));
    let end = run.end.as_ref();
    let extra = json!({
        "status": end.map(|it| &it.status),
        "stop_reason": end.and_then(|it| it.stop_reason.as_ref()),
        "exit_code": end.and_then(|it| it.exit_code),
        "error": end.and_then(|it| it.error.as_ref()),
    });
    put_extra(&mut out, extra);
    Value::Object(out)
}

/// The members of an object that are not null.
fn object(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else {
        return Map::new();
    };
    map.into_iter()
        .filter(|(_, value)| !value.is_null())
        .collect()
}

/// Puts `extra` into an object, unless it is empty.
fn put_extra(out: &mut Map<String, Value>, extra: Value) {
    let extra = object(extra);
    if !extra.is_empty() {
        out.insert("extra".to_owned(), extra.into());
    }
}
