//! The text of a message or a result with its pictures and documents, in the form of each format.

use crate::record::attachments::Attachment;
use crate::record::blobs::Blobs;
use crate::record::event::Line;
use crate::record::messages::attached::push_part;
use crate::record::run_dir::RunDir;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, Default)]
pub(crate) struct Content {
    pub text: String,
    attachments: Vec<Attachment>,
    /// The directory of the run that has their bytes.
    run: PathBuf,
}

/// The form of an attachment as a part of a message.
#[derive(Clone, Copy)]
pub(super) enum PartForm {
    /// That of chat completions, with the bytes; left out if these are gone or changed.
    Bytes,
    /// The path of a picture. Documents have only their lines in the text.
    Path,
    Digest,
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

impl Content {
    /// A text with the attachments of its line.
    pub(super) fn of(text: String, line: &Line<'_>, run: &RunDir) -> Self {
        Self {
            text,
            attachments: line.attachments(),
            run: run.path.clone(),
        }
    }

    /// The text followed by the attachments as parts.
    pub(super) fn json(&self, form: PartForm) -> Value {
        match self.parts(&self.text, form) {
            parts if parts.is_empty() => self.text.as_str().into(),
            parts => parts.into(),
        }
    }

    /// The attachments as parts behind a text; nothing without any.
    pub(super) fn parts(&self, text: &str, form: PartForm) -> Vec<Value> {
        let part = |it| form.part(it, &Blobs::of(&self.run));
        let mut parts: Vec<Value> = self.attachments.iter().filter_map(part).collect();
        if !parts.is_empty() {
            parts.insert(0, json!({"type": "text", "text": text}));
        }
        parts
    }
}

impl PartForm {
    fn part(self, attachment: &Attachment, blobs: &Blobs) -> Option<Value> {
        let (media_type, digest) = (attachment.facts.media_type, &attachment.sha256);
        Some(match self {
            Self::Bytes => {
                let mut part = Vec::new();
                let data = BASE64_STANDARD.encode(attachment.read(blobs)?);
                push_part(&mut part, attachment, &data);
                serde_json::from_slice(&part).ok()?
            }
            Self::Path if attachment.is_document() => return None,
            Self::Path => json!({
                "type": "image",
                "source": {"media_type": media_type, "path": blobs.path(digest)},
            }),
            Self::Digest => json!({
                "type": "file",
                "mime_type": media_type,
                "name": attachment.name,
                "file_id": format!("sha256:{digest}"),
            }),
        })
    }
}
