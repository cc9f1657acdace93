//! Writes JSON in pieces, so that recorded JSON can be spliced in without decoding it, and repairs it as text.
//!
//! Unaware of what the objects are.

mod surrogates;
mod members;

pub(crate) use members::{Fields, Key, Members};
pub(crate) use surrogates::{marked, split_half, unmarked, unmarked_text, without_lone_surrogates};

use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use surrogates::{ESCAPE, lone_surrogates};

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

    /// A member that is an object with the members that `write` gives it.
    pub(crate) fn object(&mut self, key: &str, write: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        let mut inner = Object::begin(self.key(key));
        write(&mut inner);
        inner.end();
        self
    }

    /// Ends the object.
    pub(crate) fn end(&mut self) {
        self.out.push(b'}');
    }
}

/// An object with the members that `write` gives it.
pub(crate) fn object(write: impl FnOnce(&mut Object<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    write(&mut object);
    object.end();
    out
}

/// An object with the members that `write` gives it, and the end of a line.
pub(crate) fn line(write: impl FnOnce(&mut Object<'_>)) -> Vec<u8> {
    let mut out = object(write);
    out.push(b'\n');
    out
}

/// The members of an object that are not null.
pub(crate) fn without_nulls(object: Value) -> Map<String, Value> {
    let Value::Object(mut members) = object else {
        return Map::new();
    };
    members.retain(|_, value| !value.is_null());
    members
}

/// A list of JSON values.
pub(crate) fn list(items: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let items: Vec<Vec<u8>> = items.into_iter().collect();
    [b"[", &items.join(&b',')[..], b"]"].concat()
}

/// The value that these bytes are; none if they are of another type, or no JSON. All of them are checked at once whether
/// they are UTF-8, which `from_slice` does for each string.
pub(crate) fn read<'j, T: Deserialize<'j>>(json: &'j [u8]) -> Option<T> {
    serde_json::from_str(str::from_utf8(json).ok()?).ok()
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
    let text = after_mark(answer.trim());
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
    let text = after_mark(answer.trim());
    let Some(fenced) = text.strip_prefix("```") else {
        return Some(text);
    };
    let (_, body) = fenced.strip_suffix("```")?.split_once('\n')?;
    (!body.contains("```")).then(|| body.trim())
}

/// A JSON text without its white space, on one line; nothing else of it is changed.
pub(crate) fn minified(json: &str) -> String {
    let kept = |piece: &str| -> String {
        if piece.starts_with('"') {
            return piece.to_owned();
        }
        piece.split_ascii_whitespace().collect()
    };
    pieces(json).map(kept).collect()
}

/// How many values JSON has, or a few more.
pub(crate) fn count_values(json: &str) -> usize {
    let outside = pieces(json).filter(|piece| !piece.starts_with('"'));
    1 + outside
        .map(|piece| piece.matches([',', '[', '{']).count())
        .sum::<usize>()
}

/// The strings of JSON, with their quotes, and what is between them.
fn pieces(json: &str) -> impl Iterator<Item = &str> {
    let mut rest = json;
    std::iter::from_fn(move || {
        let length = if rest.starts_with('"') {
            string_length(rest)
        } else {
            rest.find('"').unwrap_or(rest.len())
        };
        let (piece, after) = rest.split_at(length);
        rest = after;
        (length > 0).then_some(piece)
    })
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
    let significant = counting.trim_start_matches('0').to_owned();
    Some((number.starts_with('-'), significant, power))
}

/// The largest whole number that is exact in every reader of JSON: 2^53 - 1.
pub(crate) const LARGEST_INTEGER: u64 = (1 << 53) - 1;

/// Bytes of a JSON Schema document, at most.
pub(crate) const LARGEST_SCHEMA: usize = 1 << 20;

/// How much is looked at of what should be small: an error or an id of a service, the words of a program, the head of a
/// file.
pub(crate) const LONGEST_EXCERPT: usize = 64 << 10;

/// A small value; null in place of a larger one, which may take thirty times its size in memory.
pub(crate) fn small(json: Option<&RawValue>) -> Value {
    let small = json.filter(|json| json.get().len() <= LONGEST_EXCERPT);
    small.map_or(Value::Null, |json| read_or_default(json.get()))
}

/// JSON that another program or a record brought; an empty value in place of what has another form.
pub(crate) fn read_or_default<'de, T: Deserialize<'de> + Default>(
    json: &'de (impl AsRef<[u8]> + ?Sized),
) -> T {
    read(json.as_ref()).unwrap_or_default()
}

/// The text of a member; empty if there is none.
pub(crate) fn member_text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
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
pub(crate) fn one_line(raw: &str) -> String {
    if memchr::memchr2(b'\n', b'\r', raw.as_bytes()).is_none() {
        return raw.to_owned();
    }
    // Inside strings line breaks are escaped, so that these are only white space between tokens.
    raw.replace(['\n', '\r'], " ")
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
    const WORDS: [&str; 4] = ["-NaN", "NaN", "-Infinity", "Infinity"];
    let mut is_any = false;
    let mut out = String::new();
    for piece in pieces(json) {
        if piece.starts_with('"') || !piece.contains(['N', 'I']) {
            out += piece;
            continue;
        }
        is_any = true;
        out += &WORDS
            .iter()
            .fold(piece.to_owned(), |text, word| text.replace(word, "null"));
    }
    is_any.then_some(out)
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
        assert_eq!(unfenced("\u{feff}[1]\n"), "[1]");
        assert_eq!(unwrapped("\u{feff}[1]\n"), Some("[1]"));
    }

    #[test]
    fn white_space_outside_strings_is_left_out() {
        let json = "{ \"a b\" : [ 1.0 , 1e400 ,\n\t\"\\\" \\\\\" , \" \" ] }";
        assert_eq!(minified(json), "{\"a b\":[1.0,1e400,\"\\\" \\\\\",\" \"]}");
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
    fn white_space_in_strings_stays_where_json_is_minified() {
        let short = minified("{ \"a\" :\t\"x\\\" y\\\\\" , \"b c\" : [ 1 ,\n2 ] }");
        assert_eq!(short, "{\"a\":\"x\\\" y\\\\\",\"b c\":[1,2]}");
    }
}
