//! Runs as conversations: one object for each run of an agent.

use super::conversation::messages;
use super::recorded::{ExportedAttachment, RecordedRun};
use crate::record::attachments::LARGEST;
use crate::text::digest::sha256;
use crate::unix::files;
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
    let ExportedAttachment { attachment, path } = exported;
    let file = files::open_unlinked(path).ok()?;
    let bytes = files::read_limited(file, LARGEST).ok()?;
    if sha256(&bytes) != attachment.sha256 {
        return None;
    }
    let media_type = attachment.facts.media_type.name();
    let url = format!(
        "data:{media_type};base64,{}",
        BASE64_STANDARD.encode(&bytes)
    );
    Some(match attachment.is_document() {
        true => json!({"type": "file", "file": {"filename": attachment.name, "file_data": url}}),
        false => json!({"type": "image_url", "image_url": {"url": url}}),
    })
}
