//! `read`: lines of a file as they are, a directory as a list, of anything else its type and size.

use super::change::{CR_NOTE, shortened};
use super::folded::MARK;
use super::listing::list_directory;
use super::target::{ToolRefusal, missing, refused};
use crate::error::At;
use crate::unix::files;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// Bytes of lines on one page.
const PAGE_BYTES: usize = 50_000;

/// Lines on one page.
pub(super) const PAGE_LINES: usize = 2_000;

/// Bytes examined to distinguish text from other data.
const HEAD: usize = 8_192;

/// The first bytes of some types of files.
const TYPES: [(&[u8], &str); 12] = [
    (b"\x89PNG", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x7fELF", "ELF program or library"),
    (b"SQLite format 3", "SQLite database"),
    (b"\0asm", "WebAssembly module"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O program"),
];

/// The lines of a file from `first`, counted from 1 (0 is the same), or what else the path leads to.
pub(super) fn read_path(path: &str, first: usize, limit: usize) -> Result<String, ToolRefusal> {
    if limit == 0 {
        return Err(ToolRefusal("limit is 0; give 1 or more".to_owned()));
    }
    // Many programs count from 0, and there is nothing before the first line.
    let offset = first.max(1);
    let place = Path::new(path);
    if place.is_dir() {
        return list_directory(place, path).map_err(|e| refused("list", path, &e));
    }
    let failed = |e: io::Error| refused("read", path, &e);
    let opened = files::open_readable(place).if_there().map_err(failed)?;
    let file = opened.ok_or_else(|| missing(path, ""))?;
    let len = file.metadata().map_err(failed)?.len();
    let head = files::read_part(&file, 0, HEAD).map_err(failed)?;
    if memchr::memchr(0, &head).is_some() {
        let kind = TYPES.iter().find(|(magic, _)| head.starts_with(magic));
        let kind_name = kind.map_or("binary data", |(_, name)| name);
        return Ok(format!("{path}: {kind_name}, {len} bytes\n"));
    }
    if len == 0 {
        return Ok(format!("{path} is empty\n"));
    }
    let part = Excerpt::read(BufReader::new(file), offset, limit.min(PAGE_LINES));
    shown(&part.map_err(failed)?, path, offset, &head)
}

fn shown(part: &Excerpt, path: &str, offset: usize, head: &[u8]) -> Result<String, ToolRefusal> {
    if part.count == 0 {
        return Err(ToolRefusal(format!(
            "{path} has {} lines; offset {offset} is behind the last one",
            part.total
        )));
    }
    let last = offset + part.count - 1;
    let mut notes = String::new();
    if part.crlf == part.total {
        notes += ", line ends CRLF";
    } else if part.crlf > 0 {
        notes += &format!(", line ends mixed: {} CRLF", part.crlf);
    }
    if head.starts_with("\u{feff}".as_bytes()) {
        notes += ", begins with a byte order mark";
    }
    if !part.has_last_newline {
        notes += ", no newline at the end";
    }
    if part.has_lone_cr {
        notes += &format!(", {CR_NOTE}");
    }
    if part.text.contains(char::REPLACEMENT_CHARACTER) {
        notes += ", not all of it UTF-8";
    }
    let more = if last < part.total {
        format!("[go on with offset {}]\n", last + 1)
    } else {
        String::new()
    };
    Ok(format!(
        "lines {offset}–{last} of {}{notes}\n{}{more}",
        part.total, part.text
    ))
}

/// Some lines of a file, and what the whole of it is like.
#[derive(Debug, Default)]
struct Excerpt {
    /// The lines without line ends but newlines; long ones are cut.
    text: String,
    count: usize,
    total: usize,
    crlf: usize,
    /// True if a line of the text has a carriage return.
    has_lone_cr: bool,
    has_last_newline: bool,
}

impl Excerpt {
    /// Reads the whole file, and keeps the lines that are wanted. A line without an end takes no memory.
    fn read(mut reader: impl BufRead, offset: usize, limit: usize) -> io::Result<Self> {
        let mut part = Self::default();
        let mut is_full = false;
        let mut line = Vec::new();
        let mut passed = 0;
        let mut previous = 0;
        loop {
            let chunk = reader.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            let end = memchr::memchr(b'\n', chunk);
            let of_line = &chunk[..end.unwrap_or(chunk.len())];
            let number = part.total + 1;
            let is_wanted = number >= offset && number - offset < limit && !is_full;
            if is_wanted && line.len() < PAGE_BYTES {
                line.extend_from_slice(of_line);
            } else if is_wanted {
                passed += of_line.len();
            }
            previous = of_line.last().copied().unwrap_or(previous);
            let used = of_line.len() + usize::from(end.is_some());
            reader.consume(used);
            part.has_last_newline = end.is_some();
            if end.is_none() {
                continue;
            }
            part.crlf += usize::from(previous == b'\r');
            previous = 0;
            part.total += 1;
            if is_wanted {
                is_full = !part.add(&line, passed);
            }
            line.clear();
            passed = 0;
        }
        if !part.has_last_newline {
            part.total += 1;
            if !is_full && part.total >= offset && part.total - offset < limit {
                part.add(&line, passed);
            }
        }
        Ok(part)
    }

    /// Adds a line, of which `passed` bytes were not kept. False if there is no room for it.
    fn add(&mut self, line: &[u8], passed: usize) -> bool {
        let is_whole = self.has_last_newline && passed == 0;
        let ended = line.strip_suffix(b"\r").filter(|_| is_whole);
        let text = String::from_utf8_lossy(ended.unwrap_or(line));
        let unmarked = text.strip_prefix(MARK).filter(|_| self.total <= 1);
        let content = unmarked.unwrap_or(&text);
        let has_cr = content.contains('\r');
        let mut line = shortened(content);
        if passed > 0 {
            line += &format!("[… and {passed} more]");
        }
        if self.count > 0 && self.text.len() + line.len() > PAGE_BYTES {
            return false;
        }
        self.has_lone_cr |= has_cr;
        self.text += &line;
        self.text.push('\n');
        self.count += 1;
        true
    }
}
