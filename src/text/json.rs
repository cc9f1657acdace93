//! Writes JSON in pieces, so that recorded JSON can be spliced in without decoding it, and repairs it as text.
//!
//! Unaware of what the objects are.

use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// Writes the members of an object one after another.
///
/// Raw values must be JSON.
pub(crate) struct Object<'b> {
    out: &'b mut Vec<u8>,
    empty: bool,
}

impl<'b> Object<'b> {
    /// Begins an object; [`Self::end`] ends it.
    pub(crate) fn begin(out: &'b mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
        string(self.out, key);
        self.out.push(b':');
        self.out
    }

    /// A member of any type that can be serialised.
    pub(crate) fn put(&mut self, key: &str, value: &(impl Serialize + ?Sized)) -> &mut Self {
        let out = self.key(key);
        push(out, value);
        self
    }

    /// A member that is left out if there is no value.
    pub(crate) fn put_some(
        &mut self,
        key: &str,
        value: Option<&(impl Serialize + ?Sized)>,
    ) -> &mut Self {
        if let Some(value) = value {
            self.put(key, value);
        }
        self
    }

    /// A member whose value is JSON already.
    pub(crate) fn raw(&mut self, key: &str, json: &[u8]) -> &mut Self {
        self.key(key).extend_from_slice(json);
        self
    }

    /// The members of a value that is an object itself.
    pub(crate) fn members(&mut self, value: &impl Serialize) -> &mut Self {
        let start = self.out.len();
        push(self.out, value);
        let is_some = self.out[start..].starts_with(b"{\"");
        if !is_some {
            self.out.truncate(start);
            return self;
        }
        self.out.pop();
        if self.empty {
            self.out.remove(start);
        } else {
            self.out[start] = b',';
        }
        self.empty = false;
        self
    }

    /// A member whose value the caller writes behind this.
    pub(crate) fn nest(&mut self, key: &str) -> &mut Vec<u8> {
        self.key(key)
    }

    /// A member that is a list of objects, each with the members that `write` gives it.
    pub(crate) fn objects<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Object<'_>, T),
    ) -> &mut Self {
        let out = self.key(key);
        out.push(b'[');
        for (number, item) in items.into_iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            let mut object = Object::begin(out);
            write(&mut object, item);
            object.end();
        }
        out.push(b']');
        self
    }

    /// Ends the object.
    pub(crate) fn end(&mut self) {
        self.out.push(b'}');
    }
}

/// The members of an object in their order, with values verbatim.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members(pub Vec<(String, Box<RawValue>)>);

impl Members {
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.get())
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Each)
    }
}

/// Writes a value.
pub(crate) fn push(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        // Only maps whose keys are not strings fail, and delta has no such maps.
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}

/// Writes a string.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    push(out, text);
}

/// A value as one line of text.
pub(crate) fn text(value: &(impl Serialize + ?Sized)) -> String {
    let mut out = Vec::new();
    push(&mut out, value);
    String::from_utf8(out).unwrap_or_default()
}

/// True if a text is one JSON value that every program can read: half of a character outside the basic
/// plane, as in `"\ud800"`, is let pass by the grammar alone (RFC 8259 section 8.2).
///
/// # Errors
/// The error and its place.
pub(crate) fn check(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<IgnoredAny>(text)?;
    match lone_surrogates(text.as_bytes()).next() {
        Some((at, _)) => Err(serde_json::Error::custom(format!(
            "{} is half of a surrogate pair",
            &text[at..at + ESCAPE]
        ))),
        None => Ok(()),
    }
}

/// The text in the first fenced block of an answer, or all of it. An answer that is JSON is taken as it is.
pub(crate) fn unfenced(answer: &str) -> &str {
    let text = answer.trim();
    if check(text).is_ok() {
        return text;
    }
    let Some((_, rest)) = text.split_once("```") else {
        return text;
    };
    let body = rest.split_once('\n').map_or(rest, |(_, body)| body);
    body.split("```").next().unwrap_or(body).trim()
}

/// An answer that is JSON, or the content of the fenced block that it is; none if there are words around the block.
pub(crate) fn unwrapped(answer: &str) -> Option<&str> {
    let text = answer.trim();
    let Some(fenced) = text.strip_prefix("```") else {
        return Some(text);
    };
    let (_, body) = fenced.strip_suffix("```")?.split_once('\n')?;
    (!body.contains("```")).then(|| body.trim())
}

/// A JSON text without its white space, on one line; nothing else of it is changed.
pub(crate) fn compact(json: &str) -> String {
    let (mut in_string, mut is_escaped) = (false, false);
    let mut is_kept = |c: char| {
        if in_string {
            in_string = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
            return true;
        }
        in_string = c == '"';
        !c.is_ascii_whitespace()
    };
    json.chars().filter(|c| is_kept(*c)).collect()
}

/// How many values JSON has, or a few more.
pub(crate) fn count_values(json: &str) -> usize {
    let (mut in_string, mut is_escaped) = (false, false);
    let mut count = 1;
    for byte in json.as_bytes() {
        if in_string {
            in_string = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
            continue;
        }
        in_string = *byte == b'"';
        count += usize::from(matches!(byte, b',' | b'[' | b'{'));
    }
    count
}

/// Two numbers are the same, exactly: `1.0` and `1`, `100` and `1e2`.
pub(crate) fn is_same_number(one: &str, other: &str) -> bool {
    one == other || decimal(one).is_some_and(|one| Some(one) == decimal(other))
}

/// A number as its sign, the digits that count, and the power of ten of the last one. None: it is none, or its power is too large.
fn decimal(number: &str) -> Option<(bool, String, i128)> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let unsigned = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let (whole, part) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = format!("{whole}{part}");
    if digits.is_empty() || digits.bytes().any(|byte| !byte.is_ascii_digit()) {
        return None;
    }
    let counting = digits.trim_end_matches('0');
    if counting.is_empty() {
        return Some((false, String::new(), 0));
    }
    let shift = digits.len() as i128 - counting.len() as i128 - part.len() as i128;
    let power = exponent.parse::<i128>().ok()?.checked_add(shift)?;
    let counting = counting.trim_start_matches('0').to_owned();
    Some((number.starts_with('-'), counting, power))
}

/// The largest whole number that is exact in every reader of JSON: 2^53 - 1.
pub(crate) const LARGEST_INTEGER: u64 = (1 << 53) - 1;

/// How much is looked at of what should be small: an error or an id of a service, the words of a program, the head of a
/// file.
pub(crate) const LONGEST_EXCERPT: usize = 64 << 10;

/// A small value; null in place of a larger one, which may take thirty times its size in memory.
pub(crate) fn small(json: Option<&RawValue>) -> Value {
    let small = json.filter(|json| json.get().len() <= LONGEST_EXCERPT);
    let value = small.and_then(|json| serde_json::from_str(json.get()).ok());
    value.unwrap_or_default()
}

/// About how many bytes of memory an object takes.
pub(crate) fn weight(members: &Map<String, Value>) -> usize {
    fn of(value: &Value) -> usize {
        100 + match value {
            Value::String(text) => text.len(),
            Value::Array(list) => list.iter().map(of).sum(),
            Value::Object(members) => weight(members),
            _ => 0,
        }
    }
    members
        .iter()
        .map(|(key, value)| 50 + key.len() + of(value))
        .sum()
}

/// JSON that came over several lines, without the line breaks.
pub(crate) fn one_line(raw: &str) -> Vec<u8> {
    if memchr::memchr2(b'\n', b'\r', raw.as_bytes()).is_none() {
        return raw.as_bytes().to_vec();
    }
    // Inside strings line breaks are escaped, so that these are only white space between tokens.
    raw.replace(['\n', '\r'], " ").into_bytes()
}

/// JSON in which every `\uD800` that is not half of a pair has become U+FFFD; none if it has no such escapes.
/// Some servers cut a text in the middle of a character; the rest of it is worth having.
pub(crate) fn without_lone_surrogates(json: &[u8]) -> Option<Vec<u8>> {
    let has = |mark: &[u8]| memchr::memmem::find(json, mark).is_some();
    if !has(b"\\ud") && !has(b"\\uD") {
        return None;
    }
    let mut paired = json.to_vec();
    for (at, _) in lone_surrogates(json) {
        paired[at..at + ESCAPE].copy_from_slice(b"\\uFFFD");
    }
    Some(paired)
}

/// JSON without the byte order mark that some programs begin it with.
pub(crate) fn without_mark(json: &[u8]) -> &[u8] {
    json.strip_prefix("\u{feff}".as_bytes()).unwrap_or(json)
}

/// JSON, or another text, without the byte order mark.
pub(crate) fn after_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// JSON as text: invalid UTF-8 and lone surrogates become U+FFFD.
pub(crate) fn readable(json: &[u8]) -> Cow<'_, str> {
    let json = without_mark(json);
    let text = match std::str::from_utf8(json) {
        Ok(text) => text.into(),
        Err(_) => String::from_utf8_lossy(json),
    };
    match without_lone_surrogates(text.as_bytes()) {
        Some(paired) => String::from_utf8(paired).unwrap_or_default().into(),
        None => text,
    }
}

/// JSON in which NaN and the infinities, which some programs write, are null; `None` if it has none.
pub(crate) fn without_nan(json: &str) -> Option<String> {
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = json[at..].find(['"', 'N', 'I']) {
        at += found;
        let rest = &json[at..];
        if rest.starts_with('"') {
            at += string_length(rest);
        } else if let Some(word) = ["NaN", "Infinity"].iter().find(|it| rest.starts_with(**it)) {
            out += json[copied..at].trim_end_matches('-');
            out += "null";
            at += word.len();
            copied = at;
        } else {
            at += 1;
        }
    }
    (copied > 0).then(|| out + &json[copied..])
}

/// The length of the string that JSON begins with, its quotes included; of all of it if the string does not end.
pub(crate) fn string_length(json: &str) -> usize {
    let mut at = 1;
    while let Some(found) = json.get(at..).and_then(|rest| rest.find(['"', '\\'])) {
        at += found;
        if json[at..].starts_with('"') {
            return at + 1;
        }
        at += 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8);
    }
    json.len()
}

/// In texts that are still to be joined, this precedes the four digits of a lone surrogate, and of itself.
const MARK: char = '\u{FFFF}';

/// JSON as text with marks in place of lone surrogates, which no Rust string can hold: joined texts may pair them.
pub(crate) fn marked(json: &[u8]) -> Cow<'_, str> {
    let mut text = String::from_utf8_lossy(json);
    if text.contains(MARK) {
        text = text.replace(MARK, "\\uffff").into();
    }
    let (mut out, mut copied) = (String::new(), 0);
    for (at, _) in odd_escapes(text.as_bytes()) {
        out += &text[copied..at];
        out.push(MARK);
        copied = at + "\\u".len();
    }
    if copied == 0 {
        return text;
    }
    (out + &text[copied..]).into()
}

/// JSON without marks: the surrogates that meet are pairs, the others U+FFFD.
pub(crate) fn unmarked(json: Vec<u8>) -> Vec<u8> {
    match std::str::from_utf8(&json) {
        Ok(text) if text.contains(MARK) => {
            let text = text.replace(MARK, "\\u");
            readable(text.as_bytes()).into_owned().into_bytes()
        }
        _ => json,
    }
}

/// A text without marks.
pub(crate) fn unmarked_text(marked: &str) -> Cow<'_, str> {
    if !marked.contains(MARK) {
        return marked.into();
    }
    serde_json::from_slice(&unmarked(text(marked).into_bytes())).unwrap_or_default()
}

/// Splits off the mark of a high surrogate at the end of a text, which the next piece may complete.
pub(crate) fn split_half(text: &mut String) -> String {
    let at = text.len().saturating_sub(MARK.len_utf8() + 4);
    let is_half = text.get(at..).is_some_and(|end| {
        let unit = end.strip_prefix(MARK).map(|it| u16::from_str_radix(it, 16));
        matches!(unit, Some(Ok(0xD800..=0xDBFF)))
    });
    text.split_off(if is_half { at } else { text.len() })
}

/// The length of an escape such as `\uD800`.
const ESCAPE: usize = 6;

/// Where escapes begin that are one half of a surrogate pair without the other, and which.
fn lone_surrogates(json: &[u8]) -> impl Iterator<Item = (usize, u16)> {
    odd_escapes(json).filter(|(_, unit)| *unit != MARK as u16)
}

/// Lone surrogates and escaped marks.
fn odd_escapes(json: &[u8]) -> impl Iterator<Item = (usize, u16)> {
    let unit = |at: usize| {
        let digits = json.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut next = 0;
    std::iter::from_fn(move || {
        while let Some(found) = memchr::memchr(b'\\', json.get(next..)?) {
            let at = next + found;
            let is_low = |unit: Option<u16>| matches!(unit, Some(0xDC00..=0xDFFF));
            let (length, odd) = match unit(at) {
                Some(0xD800..=0xDBFF) if is_low(unit(at + ESCAPE)) => (2 * ESCAPE, None),
                Some(unit @ (0xD800..=0xDFFF | 0xFFFF)) => (ESCAPE, Some((at, unit))),
                Some(_) => (ESCAPE, None),
                None => (2, None),
            };
            next = at + length;
            if odd.is_some() {
                return odd;
            }
        }
        None
    })
}

/// Why a text cannot be read, in plain words and with the place: `expected a value, at column 2`.
pub(crate) fn parser_message(error: &serde_json::Error) -> String {
    let words = parser_words(error);
    match (error.line(), error.column()) {
        (0, _) | (1, 0) => words,
        (1, column) => format!("{words}, at column {column}"),
        (line, 0) => format!("{words}, at the end of line {}", line - 1),
        (line, column) => format!("{words}, at line {line}, column {column}"),
    }
}

/// The parser's words about a value of another type, or about a member, in plain ones: `seq is the text "a", not a
/// number`.
fn mismatch(words: &str) -> Option<String> {
    for (begin, fault) in [("duplicate", "is there twice"), ("missing", "is missing")] {
        if let Some(name) = words.strip_prefix(begin) {
            return Some(format!("{} {fault}", name.split('`').nth(1)?));
        }
    }
    let (member, rest) = words.split_once("invalid ")?;
    let (found, expected) = rest.split_once(": ")?.1.rsplit_once(", expected ")?;
    let (kind, value) = found.split_once(' ').unwrap_or((found, ""));
    let value = value.trim_start_matches("point ").trim_matches('`');
    let is_number = matches!(kind, "integer" | "floating");
    let found = match kind {
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        "boolean" => value.to_owned(),
        "string" => format!("the text {}", value.chars().take(60).collect::<String>()),
        _ if is_number => format!("the number {value}"),
        other => other.to_owned(),
    };
    let expected = match expected {
        "u64" | "usize" if is_number => "a whole number from 0",
        "i64" if is_number => "a whole number",
        "u64" | "usize" | "i64" => "a number",
        "a string" => "a text",
        "a boolean" => "true or false",
        "a map" => "an object",
        name if name.starts_with("struct ") => "an object",
        other => other,
    };
    Some(match member.strip_suffix(": ") {
        Some(member) => format!("{member} is {found}, not {expected}"),
        None => format!("{found} where {expected} belongs"),
    })
}

/// Why a text cannot be read, in plain words, without the place.
pub(crate) fn parser_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = text.rsplit_once(" at line ").filter(|_| error.line() > 0);
    let words = place.map_or(&*text, |(words, _)| words);
    if let Some(mismatch) = mismatch(words) {
        return mismatch;
    }
    if let Some(inside) = words.strip_prefix("EOF while parsing a") {
        return match inside {
            " value" => "it ends where a value is expected".to_owned(),
            inside => format!("it ends inside a{inside}"),
        };
    }
    match words {
        "expected ident" => "expected true, false or null",
        "expected value" => "expected a value",
        "expected `:`" => "expected ':'",
        "expected `,` or `]`" => "expected ',' or ']'",
        "expected `,` or `}`" => "expected ',' or '}'",
        "key must be a string" => "expected a key in double quotes",
        "trailing characters" => "unexpected text behind the value",
        "trailing comma" => "unexpected comma behind the last value",
        "invalid escape" => "unknown escape in a string",
        "lone leading surrogate in hex escape" | "unexpected end of hex escape" => {
            "half of a surrogate pair"
        }
        "recursion limit exceeded" => "it is nested too deep",
        words if words.starts_with("control character") => {
            "a control character in a string must be escaped, as in \\n"
        }
        words => words,
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_in_a_fenced_block_is_what_is_inside() {
        assert_eq!(unfenced(" {\"a\": \"```\"} "), "{\"a\": \"```\"}");
        assert_eq!(unfenced("Here:\n```json\n[1]\n```\nbye"), "[1]");
        assert_eq!(unfenced("```\n7\n```"), "7");
        assert_eq!(unfenced("no"), "no");
    }

    #[test]
    fn white_space_outside_strings_is_left_out() {
        let json = "{ \"a b\" : [ 1.0 , 1e400 ,\n\t\"\\\" \\\\\" , \" \" ] }";
        assert_eq!(compact(json), "{\"a b\":[1.0,1e400,\"\\\" \\\\\",\" \"]}");
    }

    #[test]
    fn half_a_character_is_none() {
        for good in [r#""\ud83d\ude00""#, r#"["\\ud800", 1e999]"#, "null"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in [r#""\ud800""#, r#"{"a": "\uDE00"}"#, "[1", "1 2"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn halves_of_characters_in_several_pieces_are_joined() {
        let long = "\\uFFFF";
        for (pieces, whole) in [
            (vec![r"a \ud83e", r"\uDD80 b"], "a 🦀 b"),
            (vec![r"\ud83e", "", r"\udd80"], "🦀"),
            (vec![r"\ud83e", "x", r"\udd80"], "\u{FFFD}x\u{FFFD}"),
            (vec![r"\udd80", r"\ud83e"], "\u{FFFD}\u{FFFD}"),
            (vec![r"\ud83e\ud83e", r"\udd80"], "\u{FFFD}🦀"),
            (vec![r"\ud83e\udd80 \\ud83e"], "🦀 \\ud83e"),
            (
                vec!["\u{FFFF}", "d83e", long, "dd80"],
                "\u{FFFF}d83e\u{FFFF}dd80",
            ),
        ] {
            let mut joined = String::new();
            for piece in &pieces {
                let literal = format!("\"{piece}\"");
                let marked = marked(literal.as_bytes());
                joined += &serde_json::from_str::<String>(&marked).unwrap();
            }
            assert_eq!(unmarked_text(&joined), whole, "{pieces:?}");
        }
        assert_eq!(readable(b"\"\xff \\ud800\""), "\"\u{FFFD} \\uFFFD\"");
    }

    #[test]
    fn what_is_no_json_is_said_in_plain_words_and_with_its_place() {
        for (text, message) in [
            ("", "it ends where a value is expected"),
            ("[1", "it ends inside a list, at column 2"),
            ("{\"a\": 1", "it ends inside an object, at column 7"),
            ("\"a", "it ends inside a string, at column 2"),
            ("no", "expected true, false or null, at column 2"),
            ("yes", "expected a value, at column 1"),
            ("{\"a\" 1}", "expected ':', at column 6"),
            ("[1 2]", "expected ',' or ']', at column 4"),
            (
                "{\n  \"a\": 1\n  b",
                "expected ',' or '}', at line 3, column 3",
            ),
            ("{a: 1}", "expected a key in double quotes, at column 2"),
            ("1 2", "unexpected text behind the value, at column 3"),
            (
                "[1,]",
                "unexpected comma behind the last value, at column 4",
            ),
            ("\"\\x\"", "unknown escape in a string, at column 3"),
            ("\"\\ud800\"", "half of a surrogate pair, at column 8"),
            (
                "\"a\n\"",
                "a control character in a string must be escaped, as in \\n, at the end of line 1",
            ),
        ] {
            let error = serde_json::from_str::<Value>(text).unwrap_err();
            assert_eq!(parser_message(&error), message, "{text}");
        }
        let long = format!("\"{}\"", "x".repeat(1_000));
        let long = serde_json::from_str::<u64>(&long).unwrap_err();
        assert!(parser_message(&long).len() < 150);
        let deep = serde_json::from_str::<Value>(&"[".repeat(200)).unwrap_err();
        assert!(parser_message(&deep).starts_with("it is nested too deep, at column "));
    }

    #[test]
    fn members_are_written_in_order_and_raw_ones_as_they_are() {
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        object
            .put("a", "x\"\n")
            .raw("b", b"[1, 2]")
            .put("c", &None::<u8>);
        Object::begin(object.nest("d")).end();
        object.objects("e", [1, 2], |entry, number| {
            entry.members(&serde_json::json!({ "n": number }));
        });
        object.members(&serde_json::json!({}));
        object.members(&serde_json::json!({ "f": 1 }));
        object.end();
        let expected = br#"{"a":"x\"\n","b":[1, 2],"c":null,"d":{},"e":[{"n":1},{"n":2}],"f":1}"#;
        assert_eq!(out, expected);
    }

    #[test]
    fn white_space_in_strings_stays_where_json_is_made_compact() {
        let compacted = compact("{ \"a\" :\t\"x\\\" y\\\\\" , \"b c\" : [ 1 ,\n2 ] }");
        assert_eq!(compacted, "{\"a\":\"x\\\" y\\\\\",\"b c\":[1,2]}");
    }
}
