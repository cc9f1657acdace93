//! The page's text: a stream of records, each cut to a size that a browser can hold.
//!
//! Unaware of what the records say.

use super::{LATER_TEXT, LONGEST_TEXT, MOST_TEXT, Sink};
use crate::engine::observation::read_ends_below;
use crate::error::Result;
use crate::record::attachments::Attachment;
use crate::record::attachments::blobs::Blobs;
use crate::text::disguise::{printable, printable_in_json};
use crate::text::json::Object;
use crate::text::shorten::{head, tail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use std::path::Path;

/// As much is gathered before it is given away.
const CHUNK: usize = 64 << 10;

/// The most bytes of pictures in a page.
const PICTURE_BYTES: u64 = 20_000_000;

/// Writes a page.
pub(super) struct Writer<'s> {
    sink: &'s mut Sink<'s>,
    buffer: Vec<u8>,
    /// How many bytes of text the page holds.
    texts: usize,
    /// How many bytes of pictures.
    pictures: u64,
    /// The reader is gone.
    pub(super) unread: bool,
}

/// A line of the page's data.
pub(super) struct PageRecord<'r> {
    object: Object<'r>,
    texts: &'r mut usize,
    pictures: &'r mut u64,
}

/// A text that was too long: its beginning, how much is missing, its end, and where all of it is.
#[derive(Serialize)]
struct CutText<'t>(&'t str, usize, &'t str, &'t str);

impl<'s> Writer<'s> {
    pub(super) fn new(sink: &'s mut Sink<'s>) -> Self {
        Self {
            sink,
            buffer: Vec::new(),
            texts: 0,
            pictures: 0,
            unread: false,
        }
    }

    /// Writes a part of the page that is not data.
    pub(super) fn raw(&mut self, text: &str) -> Result<()> {
        self.buffer.extend_from_slice(text.as_bytes());
        self.write_buffer()
    }

    /// Writes one line of data.
    pub(super) fn record(
        &mut self,
        kind: &str,
        fill: impl FnOnce(&mut PageRecord<'_>),
    ) -> Result<()> {
        let mut line = Vec::new();
        let mut record = PageRecord {
            object: Object::begin(&mut line),
            texts: &mut self.texts,
            pictures: &mut self.pictures,
        };
        record.put("k", kind);
        fill(&mut record);
        record.object.end();
        let line = printable_in_json(&String::from_utf8_lossy(&line)).into_bytes();
        // In JSON it occurs only in strings; escaped, it cannot begin a tag.
        let mut written = 0;
        for at in memchr::memchr_iter(b'<', &line) {
            self.buffer.extend_from_slice(&line[written..at]);
            self.buffer.extend_from_slice(b"\\u003c");
            written = at + 1;
        }
        self.buffer.extend_from_slice(&line[written..]);
        self.buffer.push(b'\n');
        if self.buffer.len() < CHUNK {
            return Ok(());
        }
        self.write_buffer()
    }

    fn write_buffer(&mut self) -> Result<()> {
        if !self.unread {
            self.unread = !(self.sink)(&self.buffer)?;
        }
        self.buffer.clear();
        Ok(())
    }

    pub(super) fn end(&mut self) -> Result<()> {
        self.write_buffer()
    }
}

impl PageRecord<'_> {
    /// A member; none if there is no value.
    pub(super) fn put(&mut self, key: &str, value: &(impl Serialize + ?Sized)) -> &mut Self {
        self.object.put(key, value);
        self
    }

    /// A member that is there only if it has a value.
    pub(super) fn maybe(&mut self, key: &str, value: Option<impl Serialize>) -> &mut Self {
        if let Some(value) = value {
            self.object.put(key, &value);
        }
        self
    }

    /// The attachments of an event: for each its line, and the picture itself, or the address of its file.
    pub(super) fn attachments(&mut self, attachments: &[Attachment], run: &Path) -> &mut Self {
        if attachments.is_empty() {
            return self;
        }
        let blobs = Blobs::of(run);
        let shown = attachments.iter().map(|attachment| {
            let fits = *self.pictures + attachment.bytes <= PICTURE_BYTES;
            let picture = Some(attachment).filter(|it| fits && !it.is_document());
            let address = match picture.and_then(|it| blobs.read(it)) {
                Some(bytes) => {
                    *self.pictures += attachment.bytes;
                    let media_type = attachment.facts.media_type.name();
                    format!("data:{media_type};base64,{}", BASE64_STANDARD.encode(bytes))
                }
                None => blobs
                    .path(&attachment.sha256)
                    .to_string_lossy()
                    .into_owned(),
            };
            (attachment.line(), address)
        });
        let shown: Vec<(String, String)> = shown.collect();
        self.put("attached", &shown)
    }

    /// How long a text may be that is not cut.
    fn longest(&self) -> usize {
        if *self.texts < MOST_TEXT {
            LONGEST_TEXT
        } else {
            LATER_TEXT
        }
    }

    /// A file of any length in a directory, as text that marks where a part is missing; nothing if the file is
    /// empty, a link or does not exist.
    pub(super) fn file(&mut self, key: &str, dir: &Path, name: &str) -> &mut Self {
        /// Room for what says that a part is missing.
        const MARK: usize = 64;
        match read_ends_below(dir, Path::new(name), (self.longest() - MARK) as u64, &[]) {
            Ok(ends) => self.text(key, &ends.text(), &dir.join(name).to_string_lossy()),
            Err(_) => self,
        }
    }

    /// A text of any length; nothing if it is empty. All of it is at `place`.
    pub(super) fn text(&mut self, key: &str, text: &str, place: &str) -> &mut Self {
        if text.is_empty() {
            return self;
        }
        let text = &*printable(text);
        let longest = self.longest();
        if text.len() <= longest {
            *self.texts += text.len();
            return self.put(key, text);
        }
        let (head, tail) = (head(text, longest / 4 * 3), tail(text, longest / 4));
        *self.texts += head.len() + tail.len();
        let missing = text.len() - head.len() - tail.len();
        self.put(key, &CutText(head, missing, tail, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(fill: impl Fn(&mut Writer<'_>)) -> String {
        let mut out = Vec::new();
        let mut sink = |piece: &[u8]| {
            out.extend_from_slice(piece);
            Ok(true)
        };
        let mut writer = Writer::new(&mut sink);
        fill(&mut writer);
        writer.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_tag_can_begin_in_a_record() {
        let line = written(|writer| {
            let fill = |record: &mut PageRecord<'_>| {
                record.text("text", "</script><!--<script>", "nowhere");
            };
            writer.record("x", fill).unwrap();
        });
        assert!(!line.contains('<'), "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["text"], "</script><!--<script>");
    }

    #[test]
    fn a_long_text_keeps_its_ends_and_says_what_is_missing() {
        let long = "é".repeat(LONGEST_TEXT);
        let line = written(|writer| {
            let fill = |record: &mut PageRecord<'_>| {
                record.text("text", &long, "journal.jsonl");
            };
            writer.record("x", fill).unwrap();
        });
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        let part = |at: usize| read["text"][at].as_str().unwrap().len();
        let missing = read["text"][1].as_u64().unwrap() as usize;
        assert_eq!(part(0) + missing + part(2), long.len());
        assert!(part(0) + part(2) <= LONGEST_TEXT);
        assert_eq!(read["text"][3], "journal.jsonl");
    }

    #[test]
    fn texts_are_short_when_a_page_is_full() {
        let long = "x".repeat(LONGEST_TEXT);
        let lines = written(|writer| {
            writer.texts = MOST_TEXT - LONGEST_TEXT;
            for _ in 0..2 {
                let fill = |record: &mut PageRecord<'_>| {
                    record.text("text", &long, "there");
                };
                writer.record("x", fill).unwrap();
            }
        });
        let lengths: Vec<usize> = lines.lines().map(str::len).collect();
        assert!(lengths[0] > LONGEST_TEXT, "{lengths:?}");
        assert!(lengths[1] < LATER_TEXT + 100, "{lengths:?}");
    }
}
