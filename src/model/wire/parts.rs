//! Parts of messages in the form of each service, and the places of their bytes in a request.
//!
//! Unaware of which pictures and documents a request has.

use crate::record::request_body::{Gap, MARK};
use crate::text::digest::is_sha256;
use crate::text::json::{self, Fields, Object};
use crate::text::order;
use memchr::memmem;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// A part of a message.
#[derive(Debug)]
pub(super) enum MessagePart<'m> {
    /// A JSON string.
    Text(Cow<'m, str>),
    /// The address of a picture, which may hold its bytes.
    Picture(String),
    Document {
        name: String,
        data: String,
    },
}

impl MessagePart<'_> {
    /// Reads a part of a list. What is neither a picture nor a document is a text, if need be its own JSON.
    pub(super) fn read(part: &Value) -> Self {
        let text_at = |pointer: &str| part.pointer(pointer).and_then(Value::as_str);
        let kind = text_at("/type").unwrap_or_default();
        match (kind, text_at("/image_url/url"), text_at("/file/file_data")) {
            ("image_url", Some(url), _) => Self::Picture(url.to_owned()),
            ("file", _, Some(data)) => Self::Document {
                name: text_at("/file/filename").unwrap_or_default().to_owned(),
                data: data.to_owned(),
            },
            _ => {
                let text = part
                    .as_str()
                    .or_else(|| text_at("/text"))
                    .map_or_else(|| part.to_string(), str::to_owned);
                Self::Text(json::text(&text).into())
            }
        }
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    pub(super) fn is_blank(&self) -> bool {
        matches!(self, Self::Text(text) if is_blank(text))
    }

    /// The part as a block of Messages.
    pub(super) fn block(&self) -> Vec<u8> {
        json::object(|block| match self {
            Self::Text(text) => drop(block.put("type", "text").raw("text", text.as_bytes())),
            Self::Picture(url) => {
                block.put("type", "image");
                source(block, url);
            }
            Self::Document { name, data } => {
                block.put("type", "document");
                source(block, data);
                block.put("title", name);
            }
        })
    }

    /// The part in an item of Responses.
    pub(super) fn input(&self) -> Vec<u8> {
        json::object(|part| match self {
            Self::Text(text) => drop(part.put("type", "input_text").raw("text", text.as_bytes())),
            Self::Picture(url) => {
                part.put("type", "input_image").put("detail", "auto");
                part.put("image_url", url);
            }
            Self::Document { name, data } => {
                part.put("type", "input_file").put("filename", name);
                part.put("file_data", data);
            }
        })
    }
}

/// Parts of which the only text is the last, as Messages wants it.
pub(super) fn text_last(mut parts: Vec<MessagePart<'_>>) -> Vec<MessagePart<'_>> {
    if parts.iter().filter(|part| part.is_text()).count() == 1 {
        order::sort_by_key(&mut parts, MessagePart::is_text);
    }
    parts
}

fn source(block: &mut Object<'_>, url: &str) {
    let inline = url
        .strip_prefix("data:")
        .and_then(|it| it.split_once(";base64,"));
    block.object("source", |source| match inline {
        Some((media_type, data)) => {
            source.put("type", "base64").put("media_type", media_type);
            source.put("data", data);
        }
        None => drop(source.put("type", "url").put("url", url)),
    });
}

/// A request without the marks of blobs, and where they were. A mark counts only in a member that holds the bytes of an
/// attachment, and only if the run has such a blob, whose length is `len_of` its digest: no text of a model or a tool is
/// one.
pub(crate) fn cut_marks(
    request: Vec<u8>,
    mut len_of: impl FnMut(&str) -> Option<u64>,
) -> (Vec<u8>, Vec<Gap>) {
    if memmem::find(&request, MARK.as_bytes()).is_none() {
        return (request, Vec::new());
    }
    let start = request.as_ptr() as usize;
    let mut marks: Vec<(usize, String, u64)> = values(&request)
        .into_iter()
        .filter_map(|value| {
            let inner = value.strip_prefix('"')?.strip_suffix('"')?;
            let (before, digest) = inner.rsplit_once(MARK)?;
            let is_data =
                before.is_empty() || before.starts_with("data:") && before.ends_with(";base64,");
            let len = (is_data && is_sha256(digest)).then(|| len_of(digest))??;
            let at = value.as_ptr() as usize - start + 1 + before.len();
            Some((at, digest.to_owned(), len))
        })
        .collect();
    order::sort(&mut marks);
    let (mut text, mut gaps, mut from) = (Vec::with_capacity(request.len()), Vec::new(), 0);
    for (at, sha256, len) in marks {
        text.extend_from_slice(&request[from..at]);
        from = at + MARK.len() + sha256.len();
        gaps.push(Gap {
            at: text.len(),
            sha256,
            len,
        });
    }
    text.extend_from_slice(&request[from..]);
    (text, gaps)
}

/// The values in a request that hold the bytes of attachments.
fn values(request: &[u8]) -> Vec<&str> {
    let request: Fields<'_> = json::read_or_default(request);
    let mut found = Vec::new();
    for item in lists(&request, &["messages", "input"]) {
        if let Ok(holder) = serde_json::from_str::<Fields<'_>>(item.get())
            && holder.word("role").as_deref() != Some("assistant")
        {
            for part in lists(&holder, &["content", "output"]) {
                add_values(part, &mut found, true);
            }
        }
    }
    found
}

/// The values in a part, in the form of any service; in those of a result, too.
fn add_values<'r>(part: &'r RawValue, found: &mut Vec<&'r str>, may_nest: bool) {
    let part: Fields<'r> = json::read_or_default(part.get());
    match part.word("type").as_deref() {
        Some("tool_result") if may_nest => {
            let inner = lists(&part, &["content"]).into_iter();
            inner.for_each(|inner| add_values(inner, found, false));
        }
        Some("image_url" | "file" | "input_image" | "input_file" | "image" | "document") => {
            for value in ["image_url", "file", "source"]
                .map(|key| part.raw(key))
                .into_iter()
                .flatten()
            {
                let data: Fields<'r> = json::read_or_default(value.get());
                let held = ["url", "file_data", "data"].map(|key| data.raw(key));
                found.extend(held.into_iter().flatten().map(RawValue::get));
            }
            let own = ["image_url", "file_data"].map(|key| part.raw(key));
            found.extend(own.into_iter().flatten().map(RawValue::get));
        }
        _ => {}
    }
}

/// The elements with a mark of lists in these members.
fn lists<'r>(holder: &Fields<'r>, keys: &[&str]) -> Vec<&'r RawValue> {
    let has_mark = |json: &str| memmem::find(json.as_bytes(), MARK.as_bytes()).is_some();
    let lists = keys
        .iter()
        .filter_map(|key| holder.raw(key).map(RawValue::get));
    lists
        .filter(|list| list.starts_with('[') && has_mark(list))
        .filter_map(|list| serde_json::from_str::<Vec<&RawValue>>(list).ok())
        .flatten()
        .filter(|item| has_mark(item.get()))
        .collect()
}

/// True for JSON that is no string, or one of white space alone.
pub(super) fn is_blank(json: &str) -> bool {
    let Some(text) = json.strip_prefix('"') else {
        return true;
    };
    if text.starts_with(|first: char| first.is_ascii_graphic() && first != '"' && first != '\\') {
        return false;
    }
    let text: String = json::read_or_default(json);
    text.trim().is_empty()
}
