//! Runs as conversations: one object for each run of an agent.

use super::conversation::messages;
use super::recorded::{ExportedAttachment, RecordedRun};
use crate::record::attachments::blobs::Blobs;
use crate::record::messages::attached::push_part;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// The conversation of a run, and those of the runs that it has started. A workflow has none of its own.
pub(crate) fn conversations(run: &RecordedRun) -> Vec<Value> {
    let own = (!run.is_flow).then(|| {
        json!({
            "run_id": run.id,
            "model": run.agent.model,
            "messages": messages(run, &part),
            "tools": run.head.tools,
        })
    });
    let below = run.children.iter().flat_map(conversations);
    own.into_iter().chain(below).collect()
}

/// An attachment as a part of a message; none if its file is gone or changed.
fn part(exported: &ExportedAttachment) -> Option<Value> {
    let ExportedAttachment { attachment, run } = exported;
    let bytes = Blobs::of(run).read(attachment)?;
    let mut part = Vec::new();
    push_part(&mut part, attachment, &BASE64_STANDARD.encode(bytes));
    serde_json::from_slice(&part).ok()
}
