//! The part of a tool's output that the model is shown: the head and the tail of each stream, as text.
//!
//! Unaware of processes. Files of any size are read only at their two ends. Secrets are replaced in what is read.

use crate::config::environment::Secret;
use crate::error::{At, Result};
use crate::unix::files::{open_below, read_part};
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::path::Path;

/// The two ends of a stream. If it is short enough, the head is all of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
    total: u64,
}

/// Reads the ends of a file below a directory, together at most `max` bytes: 60 % from the head, 40 % from the tail.
/// No link is followed on the way.
pub(crate) fn read_ends_below(
    dir: &Path,
    path: &Path,
    max: u64,
    secrets: &[Secret],
) -> Result<Ends> {
    let opened = open_below(dir, path);
    let ends = opened.and_then(|file| ends_of(&file, max, secrets));
    ends.at("read", &dir.join(path))
}

/// Reads the ends of a file that is open.
pub(crate) fn ends_of(file: &File, max: u64, secrets: &[Secret]) -> io::Result<Ends> {
    let total = file.metadata()?.len();
    // How many bytes are shorter without secrets is the second value.
    let read_clean = |start: u64, end: u64| -> io::Result<(Vec<u8>, usize)> {
        let mut bytes = read_part(file, start, (end - start) as usize)?;
        let before = bytes.len();
        for secret in secrets {
            secret.redact(&mut bytes);
        }
        let lost = before.saturating_sub(bytes.len());
        Ok((bytes, lost))
    };
    if total <= max {
        let (head, _) = read_clean(0, total)?;
        return Ok(Ends {
            total: head.len() as u64,
            head,
            tail: Vec::new(),
        });
    }
    // A secret that the cut goes through is found with the bytes beyond the cut, which are then left out.
    let margin = secrets.iter().map(Secret::longest).max().unwrap_or(0) as u64;
    let head_len = max * 6 / 10;
    let tail_len = max - head_len;
    let (mut head, lost) = read_clean(0, total.min(head_len + margin))?;
    head.truncate((head_len as usize).saturating_sub(lost));
    let (mut tail, lost) = read_clean((total - tail_len).saturating_sub(margin), total)?;
    let kept = (tail_len as usize).saturating_sub(lost);
    tail.drain(..tail.len().saturating_sub(kept));
    Ok(Ends { head, tail, total })
}

impl Ends {
    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The stream as text: cut at character boundaries, what is not UTF-8 as U+FFFD, redrawn lines as they were last.
    pub(crate) fn text(&self) -> String {
        let has_nul = |bytes: &[u8]| memchr::memchr(0, bytes).is_some();
        if has_nul(&self.head) || has_nul(&self.tail) {
            return format!("[binary output: {} bytes]", self.total);
        }
        if self.tail.is_empty() && self.head.len() as u64 == self.total {
            return redrawn(&String::from_utf8_lossy(&self.head));
        }
        let head = &self.head[..self.head.len() - cut_character(&self.head)];
        // A character begins where a byte does not continue one.
        let skip = self
            .tail
            .iter()
            .take(3)
            .take_while(|byte| *byte & 0xC0 == 0x80)
            .count();
        let tail = &self.tail[skip..];
        let omitted = self.total - (head.len() + tail.len()) as u64;
        let mut text = redrawn(&String::from_utf8_lossy(head));
        on_new_line(&mut text);
        text.push_str(&format!("[… {omitted} bytes omitted …]\n"));
        text.push_str(&redrawn(&String::from_utf8_lossy(tail)));
        text
    }
}

/// A text without what carriage returns overwrote, as a terminal shows it. Those before the end of a line stay.
fn redrawn(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    let shown = lines.map(|line| {
        let body = line.trim_end_matches(['\r', '\n']);
        if body.contains('\r') {
            Cow::Owned(last_drawn(body) + &line[body.len()..])
        } else {
            Cow::Borrowed(line)
        }
    });
    shown.collect()
}

/// A line after all its carriage returns. Of the other controls only those that erase in the line count (ECMA-48, EL).
fn last_drawn(line: &str) -> String {
    // One for each column, with the sequences before it, which take none.
    let mut cells: Vec<String> = Vec::new();
    let mut end = String::new();
    for part in line.split('\r') {
        let (mut at, mut rest, mut sequences) = (0, part, String::new());
        while let Some(first) = rest.chars().next() {
            let sequence = escape_length(rest);
            let (taken, after) = rest.split_at(sequence.max(first.len_utf8()));
            rest = after;
            match taken {
                "\x1b[K" | "\x1b[0K" => cells.truncate(at),
                "\x1b[2K" => cells.iter_mut().for_each(|cell| " ".clone_into(cell)),
                _ if sequence > 0 => sequences.push_str(taken),
                _ => {
                    cells.resize(cells.len().max(at + 1), " ".to_owned());
                    cells[at] = std::mem::take(&mut sequences) + taken;
                    at += 1;
                }
            }
        }
        end = sequences;
    }
    cells.concat().trim_end_matches(' ').to_owned() + &end
}

/// The length of the control sequence (CSI) at the beginning of a text, or 0.
fn escape_length(text: &str) -> usize {
    let parameters = text.strip_prefix("\x1b[").unwrap_or_default();
    let last = parameters.find(|c: char| ('\x40'..='\x7e').contains(&c));
    last.map_or(0, |at| at + 3)
}

/// The end of a program's output as one line after a colon, without the secrets; empty if there is no output. Programs
/// name the cause of a failure last.
pub(crate) fn last_words(file: &File, secrets: &[Secret]) -> io::Result<String> {
    const LONGEST: u64 = 8000;
    let from = file.metadata()?.len().saturating_sub(LONGEST);
    let mut bytes = read_part(file, from, LONGEST as usize)?;
    for secret in secrets {
        secret.redact(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    // The first word may be the rest of a secret.
    let words = text.split_whitespace().skip(usize::from(from > 0));
    let mut line = words.collect::<Vec<_>>().join(" ");
    let excess = line.chars().count().saturating_sub(500);
    if excess > 0 {
        line = format!("…{}", line.chars().skip(excess).collect::<String>());
    }
    Ok(if line.is_empty() {
        line
    } else {
        format!(": {line}")
    })
}

/// Number of bytes at the end that begin a character without ending it.
fn cut_character(bytes: &[u8]) -> usize {
    for back in 1..=3.min(bytes.len()) {
        let byte = bytes[bytes.len() - back];
        let len = match byte {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            0x80..=0xBF => continue,
            _ => return 0,
        };
        return if len > back { back } else { 0 };
    }
    0
}

/// The observation of a tool that has run.
pub(crate) fn observation(stdout: &Ends, stderr: &Ends, notes: &[String]) -> String {
    let mut text = stdout.text();
    if !stderr.is_empty() {
        on_new_line(&mut text);
        text.push_str("[stderr]\n");
        text.push_str(&stderr.text());
    }
    if stdout.is_empty() && stderr.is_empty() {
        text.push_str("(no output)");
    }
    for note in notes {
        on_new_line(&mut text);
        text.push_str(note);
    }
    text
}

pub(crate) fn on_new_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(bytes: &[u8], max: u64) -> Ends {
        let dir = std::env::temp_dir();
        let name = format!("delta-ends-{}-{}", std::process::id(), fastrand::u64(..));
        let path = dir.join(&name);
        std::fs::write(&path, bytes).unwrap();
        let key = Secret::new("sk-0123456789").unwrap();
        let ends = read_ends_below(&dir, Path::new(&name), max, &[key]).unwrap();
        std::fs::remove_file(&path).unwrap();
        ends
    }

    fn whole(bytes: &[u8]) -> Ends {
        ends(bytes, 1000)
    }

    #[test]
    fn streams_and_notes_stand_below_each_other() {
        let notes = ["[exit code: 3]".to_owned()];
        assert_eq!(observation(&whole(b"a\n"), &whole(b""), &[]), "a\n");
        assert_eq!(
            observation(&whole(b"a"), &whole(b"b\n"), &notes),
            "a\n[stderr]\nb\n[exit code: 3]"
        );
        assert_eq!(observation(&whole(b""), &whole(b""), &[]), "(no output)");
        assert_eq!(
            observation(&whole(b""), &whole(b""), &notes),
            "(no output)\n[exit code: 3]"
        );
    }

    #[test]
    fn what_is_too_long_is_cut_in_the_middle() {
        let text = ends(&[b'x'; 1000], 100).text();
        assert_eq!(
            text,
            format!(
                "{}\n[… 900 bytes omitted …]\n{}",
                "x".repeat(60),
                "x".repeat(40)
            )
        );
        assert_eq!(ends(&[b'x'; 100], 100).text().len(), 100);
    }

    #[test]
    fn no_piece_of_a_secret_stays_wherever_the_cuts_go_through() {
        for key in ["sk-0123456789", "%73k-01234567%38%39", "c2stMDEyMzQ1Njc4OQ"] {
            assert_eq!(
                whole(format!("a {key} b").as_bytes()).text(),
                "a [redacted] b"
            );
            for lead in 0..240 {
                let text = format!("{}{key}{}", "x".repeat(lead), "x".repeat(240 - lead));
                let text = ends(text.as_bytes(), 100).text();
                let (head, tail) = text.split_once("[… ").unwrap();
                let tail = tail.split_once("]\n").unwrap().1;
                for part in [head, tail] {
                    let rest = part.trim_matches(['x', '\n']);
                    let mark = "[redacted]";
                    assert!(
                        mark.starts_with(rest) || mark.ends_with(rest),
                        "{lead} {text}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_a_carriage_return_overwrote_is_left_out() {
        for (printed, shown) in [
            (" 10 %\r 50 %\r100 %\ndone\n", "100 %\ndone\n"),
            ("abcdef\rXY\n", "XYcdef\n"),
            ("a long line\r\x1b[Kshort", "short"),
            ("a long line\r\x1b[2Kshort", "short"),
            ("a long line\r           \rok\n", "ok\n"),
            ("dos\r\nends\r\n", "dos\r\nends\r\n"),
            ("1\r2\r\n", "2\r\n"),
            (
                "\x1b[31mab\x1b[0m\r\x1b[32mc\x1b[0m\n",
                "\x1b[32mcb\x1b[0m\n",
            ),
            ("é\rü\r", "ü\r"),
            ("no return   \n", "no return   \n"),
            ("x\r\x1b[", "\x1b["),
        ] {
            assert_eq!(whole(printed.as_bytes()).text(), shown, "{printed:?}");
        }
        let many: Vec<String> = (0..10_000).map(|n| format!("\r{n}")).collect();
        let many = many.concat();
        let text = ends(many.as_bytes(), 1000).text();
        assert!(text.len() < 100 && text.ends_with("]\n9999"), "{text}");
    }

    #[test]
    fn cuts_never_split_a_character() {
        for lead in 0..4 {
            let bytes = [vec![b'a'; lead], "🦀é".repeat(200).into_bytes()].concat();
            for max in 20..40 {
                let text = ends(&bytes, max).text();
                assert!(!text.contains('\u{FFFD}'), "{lead} {max} {text}");
                let omitted: u64 = text
                    .split_once("[… ")
                    .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
                    .unwrap();
                let marks = format!("\n[… {omitted} bytes omitted …]\n").len();
                assert_eq!(text.len() - marks + omitted as usize, bytes.len());
            }
        }
    }

    #[test]
    fn what_is_no_text_is_named_or_replaced() {
        assert_eq!(whole(b"a\0b").text(), "[binary output: 3 bytes]");
        assert_eq!(whole(b"a\xFFb").text(), "a\u{FFFD}b");
    }
}
