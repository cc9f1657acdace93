//! Server-sent events, as the WHATWG's standard has them: bytes in, events out.
//!
//! Pure; unaware of what the events mean.

use crate::model::reasons::error_json;

/// Reads events from bytes as they arrive.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The line that is not at its end yet.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// A line feed that comes next belongs to the carriage return before it.
    after_return: bool,
    /// The first line has been read: no byte order mark can come.
    is_begun: bool,
}

impl Events {
    /// Takes more bytes; `event` gets the name and the data of each event that they end.
    pub(crate) fn push(&mut self, bytes: &[u8], event: &mut dyn FnMut(&[u8], &[u8])) {
        let mut rest = bytes;
        if !rest.is_empty() && std::mem::take(&mut self.after_return) {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
            self.line.extend_from_slice(&rest[..at]);
            let is_return = rest[at] == b'\r';
            rest = &rest[at + 1..];
            if is_return {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.after_return = true,
                }
            }
            self.end_line(event);
        }
        self.line.extend_from_slice(rest);
    }

    /// The length of the event so far.
    pub(super) fn held(&self) -> usize {
        self.line.len() + self.name.len() + self.data.len()
    }

    /// The name and the data of an event that no blank line ends. The standard drops it.
    pub(super) fn unended(mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut ended = None;
        self.end_line(&mut |name, data| ended = Some((name.to_vec(), data.to_vec())));
        ended.or_else(|| self.has_data.then_some((self.name, self.data)))
    }

    fn end_line(&mut self, event: &mut dyn FnMut(&[u8], &[u8])) {
        let line = std::mem::take(&mut self.line);
        let mut text = line.as_slice();
        if !std::mem::replace(&mut self.is_begun, true) {
            text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        }
        if text.is_empty() {
            if self.has_data {
                event(&self.name, &self.data);
            }
            self.name.clear();
            self.data.clear();
            self.has_data = false;
        } else {
            let colon = memchr::memchr(b':', text);
            let (field, value) = match colon {
                Some(at) => (&text[..at], &text[at + 1..]),
                None => (text, &b""[..]),
            };
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match field {
                b"data" => {
                    if std::mem::replace(&mut self.has_data, true) {
                        self.data.push(b'\n');
                    }
                    self.data.extend_from_slice(value);
                }
                b"event" => value.clone_into(&mut self.name),
                // The field of older llama.cpp.
                b"error" if is_error(value) => event(b"error", value),
                // Some servers fall back to plain JSON.
                _ if is_error(text) => event(b"error", text),
                // Comments have an empty name; ids, times to reconnect and unknown fields mean nothing here.
                _ => {}
            }
        }
        self.line = line;
        self.line.clear();
    }
}

/// True for an object with an error, or a list that begins with one.
fn is_error(line: &[u8]) -> bool {
    let is_json = matches!(line.trim_ascii_start(), [b'{' | b'[', ..]);
    is_json && error_json(line).is_some_and(|line| !line["error"].is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = Vec<(String, String)>;

    fn read(chunks: &[&[u8]]) -> (Read, Option<String>) {
        let (mut events, mut found) = (Events::default(), Vec::new());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for chunk in chunks {
            events.push(chunk, &mut |name, data| {
                found.push((text(name), text(data)));
            });
        }
        (found, events.unended().map(|(_, data)| text(&data)))
    }

    #[test]
    fn lines_end_in_any_way_and_are_cut_anywhere() {
        let lines = [
            "\u{FEFF}: a comment",
            "event: one",
            "data: a",
            "data:b",
            "data:  c",
            "id: 7",
            "retry",
            "",
            "",
            "data",
            "",
            "event: none",
            "",
            "nonsense: x",
            "data: é",
            "",
            "data: unended",
        ];
        let expected: Read = [("one", "a\nb\n c"), ("", ""), ("", "é")]
            .map(|(name, data)| (name.to_owned(), data.to_owned()))
            .into();
        for end in ["\n", "\r", "\r\n"] {
            let text = lines.join(end);
            let bytes = text.as_bytes();
            for cut in 0..=bytes.len() {
                let (events, unended) = read(&[&bytes[..cut], b"", &bytes[cut..]]);
                assert_eq!(events, expected, "{end:?} cut at {cut}");
                assert_eq!(unended.as_deref(), Some("unended"));
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(read(&single).0, expected);
        }
    }
}
