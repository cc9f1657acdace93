//! Attachments in the form of each service, and the places of their bytes in a request.
//!
//! Unaware of which attachments a request has.

use crate::record::attachments::body::{Gap, MARK};
use crate::record::attachments::is_digest;
use crate::text::json::{self, Object};
use memchr::memmem;
use serde::Deserialize;
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
                let text = part.as_str().or_else(|| text_at("/text"));
                let text = text.map_or_else(|| part.to_string(), str::to_owned);
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

    /// As a block of Messages.
    pub(super) fn block(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut block = Object::begin(&mut out);
        match self {
            Self::Text(text) => drop(block.put("type", "text").raw("text", text.as_bytes())),
            Self::Picture(url) => {
                block.put("type", "image");
                source(&mut block, url);
            }
            Self::Document { name, data } => {
                block.put("type", "document");
                source(&mut block, data);
                block.put("title", name);
            }
        }
        block.end();
        out
    }

    /// As a part of an item of Responses.
    pub(super) fn input(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut part = Object::begin(&mut out);
        match self {
            Self::Text(text) => drop(part.put("type", "input_text").raw("text", text.as_bytes())),
            Self::Picture(url) => {
                part.put("type", "input_image").put("detail", "auto");
                part.put("image_url", url);
            }
            Self::Document { name, data } => {
                part.put("type", "input_file").put("filename", name);
                part.put("file_data", data);
            }
        }
        part.end();
        out
    }
}

/// Parts of which the only text is the last, as Messages wants it.
pub(super) fn text_last(mut parts: Vec<MessagePart<'_>>) -> Vec<MessagePart<'_>> {
    if parts.iter().filter(|part| part.is_text()).count() == 1 {
        parts.sort_by_key(MessagePart::is_text);
    }
    parts
}

fn source(block: &mut Object<'_>, url: &str) {
    let mut source = Object::begin(block.nest("source"));
    match url
        .strip_prefix("data:")
        .and_then(|it| it.split_once(";base64,"))
    {
        Some((media_type, data)) => {
            source.put("type", "base64").put("media_type", media_type);
            source.put("data", data);
        }
        None => drop(source.put("type", "url").put("url", url)),
    }
    source.end();
}

/// The members of a message or an item that can hold attachments.
#[derive(Deserialize)]
struct Holder<'r> {
    #[serde(borrow, default)]
    role: Cow<'r, str>,
    #[serde(borrow, default)]
    content: Option<&'r RawValue>,
    #[serde(borrow, default)]
    output: Option<&'r RawValue>,
}

/// A part of one, in the form of any service.
#[derive(Deserialize)]
struct HolderPart<'r> {
    #[serde(borrow, default)]
    r#type: Cow<'r, str>,
    #[serde(borrow, default)]
    content: Option<&'r RawValue>,
    #[serde(borrow, default)]
    image_url: Option<&'r RawValue>,
    #[serde(borrow, default)]
    file: Option<&'r RawValue>,
    #[serde(borrow, default)]
    file_data: Option<&'r RawValue>,
    #[serde(borrow, default)]
    source: Option<&'r RawValue>,
}

/// An object that holds the bytes of one.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Data<'r> {
    #[serde(borrow)]
    url: Option<&'r RawValue>,
    #[serde(borrow)]
    file_data: Option<&'r RawValue>,
    #[serde(borrow)]
    data: Option<&'r RawValue>,
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
            let len = (is_data && is_digest(digest)).then(|| len_of(digest))??;
            let at = value.as_ptr() as usize - start + 1 + before.len();
            Some((at, digest.to_owned(), len))
        })
        .collect();
    marks.sort_unstable();
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
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct RequestLists<'r> {
        #[serde(borrow)]
        messages: Option<&'r RawValue>,
        #[serde(borrow)]
        input: Option<&'r RawValue>,
    }
    let request: RequestLists<'_> = serde_json::from_slice(request).unwrap_or_default();
    let mut found = Vec::new();
    for item in [request.messages, request.input].into_iter().flat_map(list) {
        if let Ok(holder) = serde_json::from_str::<Holder<'_>>(item.get())
            && holder.role != "assistant"
        {
            for part in [holder.content, holder.output].into_iter().flat_map(list) {
                add_values(part, &mut found, true);
            }
        }
    }
    found
}

/// The values in a part; in those of a result, too.
fn add_values<'r>(part: &'r RawValue, found: &mut Vec<&'r str>, may_nest: bool) {
    let Ok(part) = serde_json::from_str::<HolderPart<'r>>(part.get()) else {
        return;
    };
    if part.r#type == "tool_result" && may_nest {
        return list(part.content)
            .into_iter()
            .for_each(|inner| add_values(inner, found, false));
    }
    if !matches!(
        &*part.r#type,
        "image_url" | "file" | "input_image" | "input_file" | "image" | "document"
    ) {
        return;
    }
    for value in [part.image_url, part.file, part.source]
        .into_iter()
        .flatten()
    {
        let data: Data<'r> = serde_json::from_str(value.get()).unwrap_or_default();
        let held = [data.url, data.file_data, data.data].into_iter().flatten();
        found.extend(held.map(RawValue::get));
    }
    found.extend(
        [part.image_url, part.file_data]
            .into_iter()
            .flatten()
            .map(RawValue::get),
    );
}

/// The elements of a list that have a mark in them.
fn list(value: Option<&RawValue>) -> Vec<&RawValue> {
    let has_mark =
        |value: &&RawValue| memmem::find(value.get().as_bytes(), MARK.as_bytes()).is_some();
    let list = value.filter(|value| value.get().starts_with('[') && has_mark(value));
    let list = list.map(|value| serde_json::from_str::<Vec<&RawValue>>(value.get()));
    let list = list.and_then(Result::ok).unwrap_or_default();
    list.into_iter().filter(has_mark).collect()
}

/// True for JSON that is no string, or one of white space alone.
pub(super) fn is_blank(json: &str) -> bool {
    let Some(text) = json.strip_prefix('"') else {
        return true;
    };
    if text.starts_with(|first: char| first.is_ascii_graphic() && first != '"' && first != '\\') {
        return false;
    }
    let text: String = serde_json::from_str(json).unwrap_or_default();
    text.trim().is_empty()
}
