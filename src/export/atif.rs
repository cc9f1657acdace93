//! A run as a trajectory of ATIF 1.8, the Agent Trajectory Interchange Format of Harbor.
//!
//! All objects of it forbid keys that they do not know: delta's own members are in `extra`.

use super::content::PartForm;
use super::recorded::{ExportedAnswer, ExportedCall, ExportedStep, RecordedRun, What};
use super::records::RecordedInvocation;
use crate::VERSION;
use crate::text::json::without_nulls;
use serde_json::{Map, Value, json};

/// The trajectory of a run that has at least one step. Runs that it has started are in it.
pub(crate) fn trajectory(run: &RecordedRun) -> Map<String, Value> {
    let steps = steps(run);
    without_nulls(json!({
        "schema_version": "ATIF-v1.8",
        "session_id": run.root,
        "trajectory_id": run.id,
        "agent": agent(run),
        "steps": steps,
        "final_metrics": final_metrics(run, steps.len()),
        "subagent_trajectories": unless_empty(run.children.iter().map(trajectory).collect()),
        "extra": extra(json!({
            "parent_run_id": run.parent.as_ref().map(|(run, _)| run),
            "forked_from": run.forked_from,
            "hostname": run.hostname,
            "workflow": run.is_flow.then_some(true),
        })),
    }))
}

fn agent(run: &RecordedRun) -> Map<String, Value> {
    let agent = &run.agent;
    let version = agent.version.as_deref().or(run.delta_version.as_deref());
    without_nulls(json!({
        "name": agent.name,
        "version": version.unwrap_or(VERSION),
        "model_name": agent.model,
        "tool_definitions": unless_empty(run.head.tools.iter().collect()),
        "extra": extra(json!({"delta_version": run.delta_version, "agent_home": agent.home})),
    }))
}

fn steps(run: &RecordedRun) -> Vec<Map<String, Value>> {
    let system = &run.head.system;
    let first = || without_nulls(json!({"source": "system", "message": system.join("\n\n")}));
    let first = (!system.is_empty()).then(first).into_iter();
    first
        .chain(run.steps.iter().map(|it| step(run, it)))
        .zip(1..)
        .map(|(fields, number)| {
            let mut step = without_nulls(json!({"step_id": number}));
            step.extend(fields);
            step
        })
        .collect()
}

fn step(run: &RecordedRun, step: &ExportedStep) -> Map<String, Value> {
    let at = step.at.map(|at| at.to_string());
    let (source, fields) = match &step.what {
        What::User(content) => ("user", json!({"message": content.json(PartForm::Path)})),
        What::System { text, extra, .. } => ("system", json!({"message": text, "extra": extra})),
        What::Answer(answer) => ("agent", answer_fields(run, answer)),
        // No model was asked: a program was started.
        What::Node(calls) => (
            "agent",
            json!({
                "message": "",
                "llm_call_count": 0,
                "tool_calls": unless_empty(calls.iter().map(call).collect()),
                "observation": observation(run, calls),
            }),
        ),
    };
    let mut out = without_nulls(json!({"source": source, "timestamp": at}));
    out.extend(without_nulls(fields));
    let is_copied = step.is_copied.then_some(true);
    out.extend(without_nulls(json!({"is_copied_context": is_copied})));
    out
}

fn answer_fields(run: &RecordedRun, answer: &ExportedAnswer) -> Value {
    let record = answer.invocation.as_ref();
    let model = record
        .and_then(|it| it.metadata.model_id.as_ref())
        .filter(|model| run.agent.model.as_ref() != Some(model));
    let metrics = answer.spent().map(|spent| {
        without_nulls(json!({
            "prompt_tokens": spent.prompt,
            "completion_tokens": spent.completion,
            "cached_tokens": record.and_then(RecordedInvocation::cached).map(|_| spent.cached),
            "cost_usd": spent.cost,
            "extra": extra(json!({"reasoning_tokens": record.and_then(|it| it.reasoning_tokens)})),
        }))
    });
    let purpose = answer.is_summary.then_some("compaction");
    json!({
        "message": answer.text.as_deref().unwrap_or_default(),
        "model_name": model,
        "reasoning_content": answer.reasoning,
        "llm_call_count": 1,
        "tool_calls": unless_empty(answer.calls.iter().map(call).collect()),
        "observation": observation(run, &answer.calls),
        "metrics": metrics,
        "extra": extra(json!({"finish_reason": answer.finish_reason, "purpose": purpose})),
    })
}

fn call(call: &ExportedCall) -> Map<String, Value> {
    without_nulls(json!({
        "tool_call_id": call.id,
        "function_name": call.name,
        "arguments": call.arguments,
        "extra": extra(json!({"invalid_arguments": call.invalid_arguments})),
    }))
}

/// The results of calls.
fn observation(run: &RecordedRun, calls: &[ExportedCall]) -> Option<Value> {
    let results = unless_empty(calls.iter().filter_map(|it| result(run, it)).collect());
    results.map(|results| json!({"results": results}))
}

/// None if there is neither a result nor a run that the call has started.
fn result(run: &RecordedRun, call: &ExportedCall) -> Option<Map<String, Value>> {
    if call.result.is_none() && call.started.is_empty() {
        return None;
    }
    let result = call.result.as_ref();
    let started = call.started.iter().map(|place| &run.children[*place].id);
    let refs = started.map(|id| json!({"trajectory_id": id})).collect();
    Some(without_nulls(json!({
        "source_call_id": call.id,
        "content": result.map(|it| it.content.json(PartForm::Path)),
        "subagent_trajectory_ref": unless_empty(refs),
        "extra": result.and_then(|it| {
            extra(json!({"status": it.status, "exit_code": it.exit_code, "duration_ms": it.duration_ms}))
        }),
    })))
}

fn final_metrics(run: &RecordedRun, steps: usize) -> Map<String, Value> {
    let spent = run.spent(true);
    let end = run.end.as_ref();
    without_nulls(json!({
        "total_prompt_tokens": spent.prompt,
        "total_completion_tokens": spent.completion,
        "total_cached_tokens": spent.cached,
        "total_cost_usd": spent.cost,
        "total_steps": steps,
        "extra": extra(json!({
            "status": end.map(|it| &it.status),
            "stop_reason": end.and_then(|it| it.stop_reason.as_ref()),
            "exit_code": end.and_then(|it| it.exit_code),
            "error": end.and_then(|it| it.error.as_ref()),
        })),
    }))
}

/// The members of delta's own.
fn extra(members: Value) -> Option<Map<String, Value>> {
    Some(without_nulls(members)).filter(|members| !members.is_empty())
}

fn unless_empty<T>(items: Vec<T>) -> Option<Vec<T>> {
    Some(items).filter(|items| !items.is_empty())
}
