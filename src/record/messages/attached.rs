//! Attachments in messages: which of them requests have, and their form there.
//!
//! Each has its line in the text in any case. Pure; the bytes are put in when a request is sent.

use super::{Form, FormKind, comma, message};
use crate::record::attachments::{Attachment, MediaType};
use crate::record::event::decoded;
use crate::record::request_body::MARK;
use crate::record::state::{Attached, Call};
use crate::text::json::{self, Object};
use std::collections::BTreeSet;

/// With more attachments in a request, pictures with a longer side than [`LONG_SIDE`] go as lines.
pub(crate) const FEW: usize = 20;
const LONG_SIDE: u32 = 2000;

/// Which attachments requests have, beside what the journal says of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownAttachments {
    pub(crate) pictures: bool,
    pub(crate) webp: bool,
    pub(crate) documents: bool,
    /// Pictures with a long side go as lines.
    pub(crate) is_crowded: bool,
    /// The ones of this event and of later ones go as lines.
    pub(crate) not_from: Option<u64>,
    /// The digests of those whose files are gone.
    pub(crate) gone: BTreeSet<String>,
    /// An answer separates results from what they attached.
    pub(crate) has_answer_between: bool,
}

impl Default for ShownAttachments {
    fn default() -> Self {
        Self {
            pictures: true,
            webp: true,
            documents: true,
            is_crowded: false,
            not_from: None,
            gone: BTreeSet::new(),
            has_answer_between: false,
        }
    }
}

impl ShownAttachments {
    /// True if the service takes such an attachment.
    fn takes(&self, attachment: &Attachment) -> bool {
        match attachment.facts.media_type {
            MediaType::Pdf => self.documents,
            MediaType::Webp => self.pictures && self.webp,
            MediaType::Png | MediaType::Jpeg | MediaType::Gif => self.pictures,
        }
    }

    /// True if requests may have this attachment of an event, with its bytes or as one that is gone.
    fn may_have(&self, seq: u64, attachment: &Attachment) -> bool {
        let is_crowded_out = self.is_crowded && attachment.is_wider(LONG_SIDE);
        let is_on_trial = self.not_from.is_some_and(|from| seq >= from);
        self.takes(attachment) && !is_crowded_out && !is_on_trial
    }

    /// True if requests have the bytes of this attachment of an event.
    pub(crate) fn has(&self, seq: u64, attachment: &Attachment) -> bool {
        self.may_have(seq, attachment) && !self.gone.contains(&attachment.sha256)
    }

    /// The ones of an event that its message has: with their bytes, or because these are gone.
    fn of<'a>(&self, attached: &'a Attached) -> Vec<&'a Attachment> {
        attached
            .sent()
            .map(|(_, attachment)| attachment)
            .filter(|it| self.may_have(attached.seq, it))
            .collect()
    }

    /// The tokens that the attachments of an event take in a request, by estimate.
    pub(crate) fn tokens(&self, attached: &Attached) -> u64 {
        self.of(attached)
            .into_iter()
            .filter(|it| !self.gone.contains(&it.sha256))
            .map(Attachment::tokens)
            .sum()
    }

    /// Appends the content of a message: its text, which is JSON, and the attachments.
    fn content(&self, out: &mut Vec<u8>, text: &str, attached: &Attached) {
        let (gone, sent): (Vec<&Attachment>, _) = self
            .of(attached)
            .into_iter()
            .partition(|it| self.gone.contains(&it.sha256));
        let mut text = text.to_owned();
        if !gone.is_empty() {
            let lines = gone
                .iter()
                .map(|it| format!("\n[attachment {}: its file is gone]", it.name));
            text = json::text(&(decoded(&text) + &*lines.collect::<String>()));
        }
        if sent.is_empty() {
            return out.extend_from_slice(text.as_bytes());
        }
        out.push(b'[');
        if !decoded(&text).trim().is_empty() {
            push_text(out, &text);
        }
        for attachment in sent {
            push_part(out, attachment, &format!("{MARK}{}", attachment.sha256));
        }
        out.push(b']');
    }
}

/// Appends a message of a person.
pub(super) fn said(out: &mut Vec<u8>, text: &str, attached: &Attached, form: &Form) {
    let mut content = Vec::new();
    form.shown.content(&mut content, text, attached);
    message(out, "user", &content);
}

/// Appends the content of a result.
pub(super) fn result(out: &mut Vec<u8>, text: &str, attached: &Attached, form: &Form) {
    match form.kind {
        FormKind::Neutral => form.shown.content(out, text, attached),
        FormKind::Chat(_) => out.extend_from_slice(text.as_bytes()),
    }
}

/// Appends what the results of an answer's calls have beside their texts, where results are texts alone: one message of
/// a user.
pub(super) fn behind_results(out: &mut Vec<u8>, calls: &[Call<'_>], ids: &[&str], form: &Form) {
    if form.kind == FormKind::Neutral {
        return;
    }
    let mut content = vec![b'['];
    for (call, id) in calls.iter().zip(ids) {
        if form.shown.of(&call.attached).is_empty() {
            continue;
        }
        let head = json::text(&format!("Attachments of call {id} ({}):", call.name));
        let mut group = Vec::new();
        form.shown.content(&mut group, &head, &call.attached);
        match group
            .strip_prefix(b"[")
            .and_then(|it| it.strip_suffix(b"]"))
        {
            Some(parts) => {
                comma(&mut content);
                content.extend_from_slice(parts);
            }
            None => push_text(&mut content, &String::from_utf8_lossy(&group)),
        }
    }
    content.push(b']');
    if content.len() == 2 {
        return;
    }
    if form.shown.has_answer_between {
        message(out, "assistant", br#""(see the attachments)""#);
    }
    message(out, "user", &content);
}

/// Appends a part with a text, which is JSON.
fn push_text(out: &mut Vec<u8>, text: &str) {
    comma(out);
    let mut part = Object::begin(out);
    part.put("type", "text").raw("text", text.as_bytes());
    part.end();
}

/// Appends a part with an attachment, whose bytes are `data` as base64, or a mark in place of it.
pub(crate) fn push_part(out: &mut Vec<u8>, attachment: &Attachment, data: &str) {
    comma(out);
    let media_type = attachment.facts.media_type.name();
    let url = format!("data:{media_type};base64,{data}");
    let mut part = Object::begin(out);
    if attachment.is_document() {
        part.put("type", "file");
        let mut file = Object::begin(part.nest("file"));
        file.put("filename", &attachment.name)
            .put("file_data", &url);
        file.end();
    } else {
        part.put("type", "image_url");
        let mut image = Object::begin(part.nest("image_url"));
        image.put("url", &url);
        image.end();
    }
    part.end();
}
