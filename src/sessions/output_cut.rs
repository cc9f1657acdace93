//! The output of a command as a JSON string, without its middle if it is long.
//!
//! Unaware of sessions. Files are read and written in pieces, so that memory does not grow with them.

use crate::text::json;
use crate::unix::files;
use std::fs::File;
use std::io::{self, Write};

/// Bytes of a file in memory at a time.
const PIECE: usize = 64 * 1024;

/// The part of a file that is printed: the bytes before `head` and those from `tail` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputCut {
    /// Length of the setup that is shown.
    pub head: u64,
    /// The place where the end that is shown begins.
    pub tail: u64,
    /// Length of the whole file.
    pub len: u64,
}

impl OutputCut {
    /// At most `max` bytes of a file, 60 % of them from its setup, cut between characters;
    /// 0 is all of it.
    ///
    /// # Errors
    /// The system's, when the file cannot be read.
    pub(crate) fn measure(file: &mut File, max: u64) -> io::Result<Self> {
        let len = file.metadata()?.len();
        if max == 0 || len <= max {
            return Ok(Self {
                head: len,
                tail: len,
                len,
            });
        }
        let head = max / 5 * 3 + max % 5 * 3 / 5;
        let tail = len - (max - head);
        // A character has at most three bytes behind its first; more of them are no character.
        let start = head.saturating_sub(3);
        let around = files::read_part(file, start, (head - start) as usize + 1)?;
        let back = around
            .iter()
            .rev()
            .take_while(|byte| is_continuation(**byte))
            .count() as u64;
        let ahead = files::read_part(file, tail, 4)?;
        let on = ahead
            .iter()
            .take_while(|byte| is_continuation(**byte))
            .count() as u64;
        Ok(Self {
            head: if back > 3 {
                head
            } else {
                head - back.min(head)
            },
            tail: if on > 3 { tail } else { tail + on },
            len,
        })
    }

    pub(crate) fn leaves_out(&self) -> bool {
        self.head < self.tail
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Writes a file as a JSON string.
///
/// # Errors
/// The system's, when reading or writing fails.
pub(crate) fn write_text(out: &mut impl Write, file: &mut File, cut: OutputCut) -> io::Result<()> {
    out.write_all(b"\"")?;
    write_range(out, file, 0, cut.head)?;
    if cut.leaves_out() {
        let ends_line = cut.head == 0 || files::read_part(file, cut.head - 1, 1)? == b"\n";
        let newline = if ends_line { "" } else { "\n" };
        let omitted = cut.tail - cut.head;
        write_escaped(out, &format!("{newline}[… {omitted} bytes omitted …]\n"))?;
        write_range(out, file, cut.tail, cut.len)?;
    }
    out.write_all(b"\"")
}

fn write_range(out: &mut impl Write, file: &mut File, start: u64, end: u64) -> io::Result<()> {
    let mut held: Vec<u8> = Vec::new();
    let mut at = start;
    while at < end {
        let wanted = (end - at).min(PIECE as u64) as usize;
        let piece = files::read_part(file, at, wanted)?;
        if piece.is_empty() {
            // The file has become shorter.
            break;
        }
        at += piece.len() as u64;
        held.extend_from_slice(&piece);
        let keep = if at < end { unfinished_len(&held) } else { 0 };
        let rest = held.split_off(held.len() - keep);
        write_escaped(out, &String::from_utf8_lossy(&held))?;
        held = rest;
    }
    Ok(())
}

/// The number of bytes at the end that may be the setup of a character whose rest has not been read.
fn unfinished_len(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    let Some(last) = tail.utf8_chunks().last() else {
        return 0;
    };
    // An incomplete sequence is what the decoder calls invalid without needing a byte more.
    match str::from_utf8(last.invalid()) {
        Err(error) if error.error_len().is_none() => last.invalid().len(),
        _ => 0,
    }
}

fn write_escaped(out: &mut impl Write, text: &str) -> io::Result<()> {
    let mut quoted = Vec::with_capacity(text.len() + 2);
    json::string(&mut quoted, text);
    out.write_all(&quoted[1..quoted.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(content: &[u8], max: u64) -> (String, OutputCut) {
        let path = std::env::temp_dir().join(format!("delta-report-{}", crate::text::ids::hex(12)));
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(content).unwrap();
        let cut = OutputCut::measure(&mut file, max).unwrap();
        let mut out = Vec::new();
        write_text(&mut out, &mut file, cut).unwrap();
        (serde_json::from_slice(&out).unwrap(), cut)
    }

    #[test]
    fn what_fits_is_shown_whole() {
        assert_eq!(shown(b"", 10).0, "");
        assert_eq!(shown(b"0123456789", 10).0, "0123456789");
        assert_eq!(shown(b"0123456789", 0).0, "0123456789");
    }

    #[test]
    fn what_is_too_long_loses_its_middle() {
        let (text, cut) = shown(b"0123456789abcdefghij", 10);
        assert_eq!(text, "012345\n[… 10 bytes omitted …]\nghij");
        assert!(cut.leaves_out());
    }

    #[test]
    fn no_character_is_cut_at_any_place() {
        let content = "aé€😀".repeat(20);
        for max in 1..content.len() as u64 {
            let (text, cut) = shown(content.as_bytes(), max);
            assert!(!text.contains('\u{fffd}'), "{max}: {text}");
            assert!(cut.head + (cut.len - cut.tail) <= max);
            assert!(text.contains(&format!("{} bytes", cut.tail - cut.head)));
        }
    }

    #[test]
    fn pieces_join_to_what_one_decoding_of_the_whole_gives() {
        let mut random = fastrand::Rng::with_seed(7);
        for shift in 0..8 {
            let mut content = vec![b'x'; PIECE - 4 + shift];
            content.extend("😀€é".bytes());
            content.extend((0..200).map(|_| random.u8(..)));
            content.extend(vec![0xF0; PIECE]);
            content.extend([0xE2, 0x82]);
            assert_eq!(shown(&content, 0).0, String::from_utf8_lossy(&content));
        }
    }

    #[test]
    fn every_byte_alone_is_shown_or_replaced() {
        for byte in 0..=255u8 {
            assert_eq!(shown(&[byte], 0).0, String::from_utf8_lossy(&[byte]));
            let many = [byte; 40];
            assert!(shown(&many, 10).0.contains("omitted"));
        }
    }
}
