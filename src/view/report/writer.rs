//! The page's text: a stream of records, each cut to a size that a browser can hold.
//!
//! Unaware of what the records say.

use super::{LATER_TEXT, LONGEST_TEXT, MOST_TEXT, Sink};
use crate::engine::observation::read_ends_below;
use crate::error::Result;
use crate::record::attachments::Attachment;
use crate::record::blobs::Blobs;
use crate::record::event::{Line, Recorded, decoded};
use crate::text::disguise::{printable, printable_in_json};
use crate::text::json::{self, Fields, Object};
use crate::text::shorten::{head, tail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// As much is gathered before it is given away.
const CHUNK: usize = 64 << 10;

/// The most bytes of pictures in a page.
const PICTURE_BYTES: u64 = 20_000_000;

/// Writes a page.
pub(in crate::view) struct Writer<'s> {
    sink: &'s mut Sink<'s>,
    buffer: Vec<u8>,
    /// How many bytes of text the page holds.
    texts: usize,
    /// How many bytes of pictures.
    pictures: u64,
    /// The reader is gone.
    pub(in crate::view) unread: bool,
}

/// True for the members of events that the page's script reads, but for those that each record has.
#[rustfmt::skip]
fn is_shown(name: &str) -> bool {
    matches!(
        name,
        "action_id" | "agent_home" | "arrived" | "attempt" | "cached" | "call_id" | "code" | "config" | "content"
            | "cpu_ms" | "duration_ms" | "edge" | "error" | "error_details" | "error_message" | "execution_ref"
            | "exit_code" | "exit_node" | "failed" | "finish_reason" | "forked_from" | "from" | "hook_name"
            | "hostname" | "input" | "io_path_ref" | "level" | "llm_invocation_ref" | "memory_bytes" | "merged_at"
            | "message" | "model" | "node_id" | "observation_content" | "output" | "parent_id" | "prompt"
            | "reasoning" | "reasoning_content" | "reasoning_details" | "resolved_command" | "response" | "resumed"
            | "run_id" | "set" | "status" | "stop_reason" | "summary" | "thinking" | "thinking_blocks" | "to"
            | "tool_args" | "tool_name" | "usage" | "what" | "why" | "work_dir"
    )
}

/// Members that stay objects and lists, which are small. Others are shown as indented JSON.
const OBJECTS: [&str; 4] = ["usage", "forked_from", "set", "to"];

/// Members whose JSON is shown as it is.
const PAYLOADS: [&str; 2] = ["input", "output"];

/// A line of the page's data.
pub(in crate::view) struct PageRecord<'r> {
    object: Object<'r>,
    texts: &'r mut usize,
    pictures: &'r mut u64,
}

/// A text that was too long: its beginning, how much is missing, its end, and where all of it is.
#[derive(Serialize)]
struct CutText<'t>(&'t str, usize, &'t str, &'t str);

impl<'s> Writer<'s> {
    pub(in crate::view) fn new(sink: &'s mut Sink<'s>) -> Self {
        Self {
            sink,
            buffer: Vec::new(),
            texts: 0,
            pictures: 0,
            unread: false,
        }
    }

    /// Writes a part of the page that is not data.
    pub(in crate::view) fn raw(&mut self, text: &str) -> Result<()> {
        self.buffer.extend_from_slice(text.as_bytes());
        self.write_buffer()
    }

    /// Writes one line of data.
    pub(in crate::view) fn record(
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
        record.put("type", kind);
        fill(&mut record);
        record.object.end();
        let line = printable_in_json(&String::from_utf8(line).unwrap_or_default()).into_bytes();
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

    pub(in crate::view) fn end(&mut self) -> Result<()> {
        self.write_buffer()
    }
}

impl PageRecord<'_> {
    /// A member; none if there is no value.
    pub(in crate::view) fn put(
        &mut self,
        key: &str,
        value: &(impl Serialize + ?Sized),
    ) -> &mut Self {
        self.object.put(key, value);
        self
    }

    /// A member that is there only if it has a value.
    pub(in crate::view) fn maybe(&mut self, key: &str, value: Option<impl Serialize>) -> &mut Self {
        if let Some(value) = value {
            self.object.put(key, &value);
        }
        self
    }

    /// The members of an event, but for one that is secret. Events that have no form of their own are shown as their
    /// lines.
    pub(in crate::view) fn members(&mut self, line: &Line<'_>, secret: Option<&str>, place: &str) {
        self.maybe("timestamp", line.timestamp.get())
            .maybe("iteration", line.iteration)
            .maybe("task_id", line.task_id.get());
        if matches!(
            line.event,
            Recorded::ActionCheck(_)
                | Recorded::FlowStart(_)
                | Recorded::Winner(_)
                | Recorded::Retry(_)
                | Recorded::Policy(_)
                | Recorded::Evaluation(_)
                | Recorded::Unknown
        ) {
            self.text("text", line.text, place);
            return;
        }
        let mut members: Fields<'_> = json::read_or_default(line.text);
        if let Some(payload) = members.raw("payload").filter(|_| line.is_old) {
            members = json::read_or_default(payload.get());
        }
        for (name, value) in &members.0 {
            let (name, json) = (&**name, value.get());
            let is_object = json.starts_with(['{', '[']);
            if !is_shown(name) || secret == Some(name) {
                continue;
            }
            if json == "null" && !PAYLOADS.contains(&name) {
                continue;
            }
            if PAYLOADS.contains(&name) {
                self.text(name, json, place);
            } else if json.starts_with('"') {
                self.text(name, &decoded(json), place);
            } else if is_object && !OBJECTS.contains(&name) {
                let value: Value = json::read_or_default(json);
                let indented = serde_json::to_string_pretty(&value).unwrap_or_default();
                self.text(name, &indented, place);
            } else {
                self.put(name, value);
            }
        }
    }

    /// The attachments of an event: for each its line, and the picture itself, or the address of its file.
    pub(in crate::view) fn attachments(&mut self, attachments: &[Attachment], run: &Path) {
        if attachments.is_empty() {
            return;
        }
        let blobs = Blobs::of(run);
        let shown: Vec<(String, String)> = attachments
            .iter()
            .map(|attachment| {
                let fits = *self.pictures + attachment.bytes <= PICTURE_BYTES;
                let picture = Some(attachment).filter(|it| fits && !it.is_document());
                let address = match picture.and_then(|it| it.read(&blobs)) {
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
            })
            .collect();
        self.put("attached", &shown);
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
    pub(in crate::view) fn file(&mut self, key: &str, dir: &Path, name: &str) -> &mut Self {
        /// Room for what says that a part is missing.
        const MARK: usize = 64;
        match read_ends_below(dir, Path::new(name), (self.longest() - MARK) as u64, &[]) {
            Ok(ends) => self.text(key, &ends.text(), &dir.join(name).to_string_lossy()),
            Err(_) => self,
        }
    }

    /// A text of any length; nothing if it is empty. All of it is at `place`.
    pub(in crate::view) fn text(&mut self, key: &str, text: &str, place: &str) -> &mut Self {
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
    use std::collections::BTreeSet;

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
    fn the_members_that_are_shown_are_those_that_the_scripts_read() {
        let scripts = [
            include_str!("flow_steps.js"),
            include_str!("overview.js"),
            include_str!("read.js"),
            include_str!("report.js"),
            include_str!("rows.js"),
        ]
        .concat();
        let own = [
            include_str!("changes.rs"),
            include_str!("events.rs"),
            include_str!("rows.rs"),
            include_str!("writer.rs"),
        ]
        .concat();
        let word = |text: &str| -> String {
            let is_in = |c: &char| c.is_ascii_lowercase() || *c == '_';
            text.chars().take_while(is_in).collect()
        };
        let mut read = BTreeSet::new();
        for object in ["rec.", "result.", "end."] {
            let is_whole = |at: &usize| !scripts[..*at].ends_with(char::is_alphanumeric);
            let at = scripts.match_indices(object).map(|(at, _)| at);
            let names = at
                .filter(is_whole)
                .map(|at| word(&scripts[at + object.len()..]));
            read.extend(names.filter(|name| !name.is_empty()));
        }
        // The script sets the one, and the other's name is put together.
        let set = ["t", "stdout_bytes"];
        for name in read.iter().filter(|name| !set.contains(&&***name)) {
            let is_put = own.contains(&format!("\"{name}\""));
            assert!(is_shown(name) || is_put, "{name} is read and never written");
        }
        let list = own.split_once("fn is_shown").unwrap().1;
        let list = list.split_once("\n}\n").unwrap().0;
        for name in list.split('"').skip(1).step_by(2) {
            let is_read = read.contains(name) || scripts.contains(&format!("\"{name}\""));
            assert!(is_read, "{name} is written and never read");
        }
    }

    #[test]
    fn a_page_has_only_what_its_script_reads() {
        let event = r#"{"seq":7,"type":"ENGINE_END","status":"COMPLETED","result":"all of the answer","exit_code":0}"#;
        let line = Line::parse(event).unwrap();
        let page = written(|writer| {
            let fill = |record: &mut PageRecord<'_>| record.members(&line, None, "there");
            writer.record("ENGINE_END", fill).unwrap();
        });
        let record = r#"{"type":"ENGINE_END","status":"COMPLETED","exit_code":0}"#;
        assert_eq!(page.trim_end(), record);
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
