//! Pictures and documents that belong to messages: their facts in the journal, and the line for each in the text.
//!
//! Unaware of services. Nothing here decodes a picture.

pub(crate) mod head;

use crate::error::Result;
use crate::record::blobs::{self, Blobs, LARGEST, base64_len};
use crate::text::amounts::counted;
use crate::text::digest::is_sha256;
use crate::text::disguise::printable_line;
use crate::text::json::read_or_default;
use crate::text::names::named_enum;
use crate::text::shorten::head as first_bytes;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::path::Path;

/// The longest side of a picture.
pub(crate) const LONGEST_SIDE: u32 = 8000;

/// The most of one message or result.
pub(crate) const MOST: usize = 20;

/// Tokens of a picture, and of a page of a document, by estimate.
const PICTURE_TOKENS: u64 = 1600;
const PAGE_TOKENS: u64 = 2500;

/// Maximum length of a name in bytes, that of a file's name on Linux.
const NAME_MAX: usize = 255;

named_enum! {
    pub(crate) enum MediaType {
        Png = "image/png",
        Jpeg = "image/jpeg",
        Gif = "image/gif",
        Webp = "image/webp",
        Pdf = "application/pdf",
    }
}

/// What the first bytes of a file say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub media_type: MediaType,
    /// Pixels; none where the head lacks them.
    pub size: Option<(u32, u32)>,
    /// Of a document; none where the head lacks them.
    pub pages: Option<u32>,
}

/// A picture or document of a message or a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Of the bytes: 64 hexadecimal digits, which are the name of their file, too.
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
    /// The last part of the file's path.
    pub(crate) name: String,
    pub(crate) facts: Facts,
}

impl Attachment {
    pub(crate) fn is_document(&self) -> bool {
        self.facts.media_type == MediaType::Pdf
    }

    /// True if a side is longer than this.
    pub(crate) fn is_wider(&self, side: u32) -> bool {
        self.facts
            .size
            .is_some_and(|(width, height)| width.max(height) > side)
    }

    /// The characters of the bytes as base64.
    pub(crate) fn base64_len(&self) -> u64 {
        base64_len(self.bytes)
    }

    /// True if its bytes are there.
    pub(crate) fn is_in(&self, blobs: &mut Blobs) -> bool {
        blobs.len(&self.sha256) == Some(self.bytes)
    }

    /// Its bytes, if they are there.
    pub(crate) fn read(&self, blobs: &Blobs) -> Option<Vec<u8>> {
        let bytes = blobs.read(&self.sha256)?;
        (bytes.len() as u64 == self.bytes).then_some(bytes)
    }

    /// The tokens that it takes, by estimate.
    pub(crate) fn tokens(&self) -> u64 {
        if self.is_document() {
            PAGE_TOKENS * u64::from(self.facts.pages.unwrap_or(1))
        } else {
            PICTURE_TOKENS
        }
    }

    /// The line in the text.
    pub(crate) fn line(&self) -> String {
        let media_type = self.facts.media_type.name();
        let extent = match (self.facts.size, self.facts.pages) {
            (Some((width, height)), _) => format!("{width}x{height}, "),
            (None, Some(pages)) => format!("{}, ", counted(pages as usize, "page")),
            (None, None) => String::new(),
        };
        let kind = if self.is_document() {
            "document"
        } else {
            "picture"
        };
        format!("[{kind} {}, {extent}{media_type}]", self.name)
    }
}

/// Copies the bytes of these from one run to another. What is gone is left out.
pub(crate) fn copy<'a>(
    from: &Path,
    to: &Path,
    attachments: impl IntoIterator<Item = &'a Attachment>,
) -> Result<()> {
    let there = Blobs::of(from);
    for attachment in attachments {
        if let Some(bytes) = attachment.read(&there) {
            blobs::store(to, &bytes, true)?;
        }
    }
    Ok(())
}

/// A file's name as it is recorded and shown: on one line, and not too long.
pub(crate) fn shown_name(name: &str) -> String {
    let name = printable_line(name);
    first_bytes(&name, NAME_MAX).to_owned()
}

/// Reads the list of an event. What is no attachment is left out.
pub(crate) fn read_list(json: Option<&RawValue>) -> Vec<Attachment> {
    json.map(|json| read_or_default::<Vec<&RawValue>>(json.get()))
        .into_iter()
        .flatten()
        .take(MOST)
        .filter_map(|one| serde_json::from_str(one.get()).ok())
        .collect()
}

impl Serialize for Attachment {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("sha256", &self.sha256)?;
        map.serialize_entry("media_type", &self.facts.media_type)?;
        map.serialize_entry("bytes", &self.bytes)?;
        map.serialize_entry("name", &self.name)?;
        if self.is_document() {
            map.serialize_entry("pages", &self.facts.pages)?;
        } else {
            map.serialize_entry("width", &self.facts.size.map(|(width, _)| width))?;
            map.serialize_entry("height", &self.facts.size.map(|(_, height)| height))?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Attachment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct AttachmentFields {
            sha256: String,
            media_type: MediaType,
            bytes: u64,
            #[serde(default)]
            name: String,
            width: Option<u32>,
            height: Option<u32>,
            pages: Option<u32>,
        }
        let read = AttachmentFields::deserialize(from)?;
        if !is_sha256(&read.sha256) || read.bytes > LARGEST {
            return Err(serde::de::Error::custom("not an attachment"));
        }
        Ok(Self {
            facts: Facts {
                media_type: read.media_type,
                size: read.width.zip(read.height),
                pages: read.pages.map(|pages| pages.clamp(1, head::MOST_PAGES)),
            },
            sha256: read.sha256,
            bytes: read.bytes,
            name: shown_name(&read.name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_an_attachment_is_read() {
        let digest = "ab".repeat(32);
        let good = format!(
            "{{\"sha256\":\"{digest}\",\"media_type\":\"image/png\",\"bytes\":9,\"name\":\"a\\nb\",\"width\":2,\"height\":3}}"
        );
        let others = [
            good.replace("image/png", "text/html"),
            good.replace(&digest, "../../../etc/passwd"),
            good.replace(&digest, &"AB".repeat(32)),
            good.replace(":9,", ":3750001,"),
            good.replace(":9,", ":-9,"),
            "7".to_owned(),
        ];
        let all = format!("[{good},{}]", others.join(","));
        let raw: &RawValue = serde_json::from_str(&all).unwrap();
        let list = read_list(Some(raw));
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].line(), "[picture a\u{FFFD}b, 2x3, image/png]");
        let written = serde_json::to_string(&list[0]).unwrap();
        assert_eq!(
            serde_json::from_str::<Attachment>(&written).unwrap(),
            list[0]
        );
        assert!(read_list(Some(serde_json::from_str("{}").unwrap())).is_empty());
    }
}
