//! Runs as conversations: one object for each run of an agent.

use super::content::PartForm;
use super::conversation::messages;
use super::recorded::RecordedRun;
use serde_json::{Value, json};

/// The conversation of a run, and those of the runs that it has started. A workflow has none of its own.
pub(crate) fn conversations(run: &RecordedRun) -> Vec<Value> {
    let own = (!run.is_flow).then(|| {
        json!({
            "run_id": run.id,
            "model": run.agent.model,
            "messages": messages(run, PartForm::Bytes),
            "tools": run.head.tools,
        })
    });
    let below = run.children.iter().flat_map(conversations);
    own.into_iter().chain(below).collect()
}
