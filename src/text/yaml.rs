//! YAML in, JSON values out: the one file that knows the YAML library.
//!
//! Unaware of what the documents mean. Keys keep the order in which they were written.

use crate::text::json::{after_mark, is_same_number};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::fmt;

/// The limit of bytes of a file.
pub(crate) const LARGEST: u64 = 16 << 20;

/// How many bytes of a file are read again to find lines: for each problem all of it. The problems
/// of a large file that come then have no line.
pub(crate) const REREAD_BYTES: usize = 4 << 20;

/// One step from a node of a document to a node below it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The value of a key in a mapping.
    Key(String),
    /// An item of a sequence, from 0.
    Item(usize),
}

/// Why a text is no document we can use.
#[derive(Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Line and column from 1, as far as they are known.
    pub place: Option<(usize, Option<usize>)>,
    /// The error without its place.
    pub message: String,
}

/// Reads one YAML document. An empty one is null. Merge keys (`<<`) are resolved.
///
/// # Errors
/// Text that is not YAML, duplicate keys, and what JSON cannot hold: keys that are not strings,
/// numbers that are not finite or have more digits than are kept, tags.
pub fn parse(text: &str) -> Result<Value, SyntaxError> {
    // The library would take what follows it for a second document.
    let text = after_mark(text);
    if open_at_once(text) > MOST_OPEN {
        let message = format!("more than {MOST_OPEN} brackets are open at once; close them");
        return Err(SyntaxError {
            place: None,
            message,
        });
    }
    let mut document: serde_yaml::Value = serde_yaml::from_str(text).map_err(|e| syntax(&e))?;
    if has_decimal(&document) {
        let again = serde_yaml::Deserializer::from_str(text);
        Digits(&document)
            .deserialize(again)
            .map_err(|e| syntax(&e))?;
    }
    document.apply_merge().map_err(|e| syntax(&e))?;
    let mut path = Vec::new();
    convert(document, &mut path).map_err(|message| SyntaxError {
        place: locate(text, &path).map(|line| (line, None)),
        message,
    })
}

/// The library takes time in proportion to the square of the brackets that are open, before it says
/// that they are too many. These are far more than any document has, also in the text of a script.
const MOST_OPEN: usize = 5_000;

fn open_at_once(text: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => continue,
        }
        most = most.max(open);
    }
    most
}

/// The line, from 1, of the node at `path`, which is that of its key if it has one; of the deepest node on the way to it if it is not there.
pub(crate) fn locate(text: &str, path: &[Step]) -> Option<usize> {
    let text = after_mark(text);
    (0..=path.len()).rev().find_map(|depth| {
        let walk = Walk {
            path: &path[..depth],
        };
        let error = walk
            .deserialize(serde_yaml::Deserializer::from_str(text))
            .err()?;
        error
            .to_string()
            .contains(FOUND)
            .then(|| error.location().map(|place| place.line()))?
    })
}

/// A value as a YAML document.
///
/// # Panics
/// Never: every JSON value is a YAML value.
pub fn render(value: &Value) -> String {
    serde_yaml::to_string(&Rendered(value)).unwrap_or_default()
}

/// A value for serialisers that do not know the numbers of `serde_json`.
struct Rendered<'v>(&'v Value);

impl Serialize for Rendered<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Array(items) => to.collect_seq(items.iter().map(Rendered)),
            Value::Object(map) => to.collect_map(map.iter().map(|(key, it)| (key, Rendered(it)))),
            Value::Number(number) => match (number.as_i128(), number.as_f64()) {
                (Some(whole), _) => to.serialize_i128(whole),
                (None, Some(real)) => to.serialize_f64(real),
                (None, None) => to.serialize_str(number.as_str()),
            },
            other => other.serialize(to),
        }
    }
}

fn syntax(error: &serde_yaml::Error) -> SyntaxError {
    let place = error.location().map(|at| (at.line(), Some(at.column())));
    let text = error.to_string();
    if text.contains("more than one document") {
        return SyntaxError {
            place,
            message: "more than one document in a file; remove the line --- and what follows it"
                .to_owned(),
        };
    }
    let text = match error.location() {
        Some(at) => {
            let place = format!(" at line {} column {}", at.line(), at.column());
            text.replacen(&place, "", 1)
        }
        None => text,
    };
    // The parser's words for a number of more than 64 bits.
    let number = text
        .split_once("invalid type: integer `")
        .and_then(|(key, rest)| Some((key, rest.split_once("` as ")?.0)));
    let message = match number {
        Some((key, number)) => format!("{key}the integer {number} has more than 64 bits"),
        None if text.ends_with(TOO_MANY_DIGITS) => text,
        None => format!("not valid YAML: {text}"),
    };
    SyntaxError { place, message }
}

/// If that fails, `path` leads to the node at fault.
fn convert(node: serde_yaml::Value, path: &mut Vec<Step>) -> Result<Value, String> {
    use serde_yaml::Value as Yaml;
    Ok(match node {
        Yaml::Null => Value::Null,
        Yaml::Bool(b) => Value::Bool(b),
        Yaml::Number(n) => number(&n)?,
        Yaml::String(s) => Value::String(s),
        Yaml::Sequence(items) => {
            let mut array = Vec::with_capacity(items.len());
            for (index, item) in items.into_iter().enumerate() {
                path.push(Step::Item(index));
                array.push(convert(item, path)?);
                path.pop();
            }
            Value::Array(array)
        }
        Yaml::Mapping(entries) => {
            let mut object = serde_json::Map::with_capacity(entries.len());
            for (key, value) in entries {
                let Yaml::String(key) = key else {
                    let shown = serde_yaml::to_string(&key).unwrap_or_default();
                    return Err(format!(
                        "key {} is not a string; quote it",
                        shown.trim_end()
                    ));
                };
                path.push(Step::Key(key));
                let value = convert(value, path)?;
                if let Some(Step::Key(key)) = path.pop() {
                    object.insert(key, value);
                }
            }
            Value::Object(object)
        }
        Yaml::Tagged(tagged) => return Err(format!("tag {} has no meaning here", tagged.tag)),
    })
}

fn number(n: &serde_yaml::Number) -> Result<Value, String> {
    if let Some(i) = n.as_i64() {
        return Ok(i.into());
    }
    if let Some(u) = n.as_u64() {
        return Ok(u.into());
    }
    n.as_f64()
        .and_then(serde_json::Number::from_f64)
        .map(Value::Number)
        .ok_or_else(|| format!("number {n} is not finite"))
}

fn has_decimal(node: &serde_yaml::Value) -> bool {
    use serde_yaml::Value as Yaml;
    match node {
        Yaml::Number(n) => n.is_f64(),
        Yaml::Sequence(items) => items.iter().any(has_decimal),
        Yaml::Mapping(entries) => entries.values().any(has_decimal),
        _ => false,
    }
}

/// Reads a node again, beside its value, and fails at a decimal that the value is not.
struct Digits<'v>(&'v serde_yaml::Value);

/// The end of that error.
const TOO_MANY_DIGITS: &str = "has more digits than are kept; quote it";

impl<'de> DeserializeSeed<'de> for Digits<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        use serde_yaml::Value as Yaml;
        match self.0 {
            // As a text it comes as it is written.
            Yaml::Number(n) if n.is_finite() && n.is_f64() => deserializer.deserialize_str(self),
            Yaml::Sequence(_) => deserializer.deserialize_seq(self),
            Yaml::Mapping(_) => deserializer.deserialize_map(self),
            _ => deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ()),
        }
    }
}

impl<'de> Visitor<'de> for Digits<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the same as before")
    }

    fn visit_str<E: de::Error>(self, written: &str) -> Result<(), E> {
        let serde_yaml::Value::Number(kept) = self.0 else {
            return Ok(());
        };
        let unsigned = written.strip_prefix('+').unwrap_or(written);
        if is_same_number(unsigned, &kept.to_string()) {
            return Ok(());
        }
        Err(E::custom(format!(
            "the number {written:.64} {TOO_MANY_DIGITS}"
        )))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        for item in self.0.as_sequence().into_iter().flatten() {
            seq.next_element_seed(Digits(item))?;
        }
        seq.next_element::<IgnoredAny>().map(|_| ())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        for (_, value) in self.0.as_mapping().into_iter().flatten() {
            map.next_key::<IgnoredAny>()?;
            map.next_value_seed(Digits(value))?;
        }
        map.next_key::<IgnoredAny>().map(|_| ())
    }
}

/// The text of the error by which [`Walk`] says that it has arrived.
const FOUND: &str = "\u{1}found";

/// Walks down to a node and fails there, because the library reports places only with errors.
struct Walk<'p> {
    path: &'p [Step],
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! arrive_at_scalar {
    ($($name:ident: $type:ty),*) => {
        $(fn $name<E: de::Error>(self, _: $type) -> Result<(), E> { self.arrive() })*
    };
}

impl Walk<'_> {
    fn arrive<E: de::Error>(&self) -> Result<(), E> {
        if self.path.is_empty() {
            Err(E::custom(FOUND))
        } else {
            Ok(())
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    arrive_at_scalar!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.arrive()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.arrive()?;
        let mut index = 0;
        loop {
            let more = if self.path[0] == Step::Item(index) {
                let next = Walk {
                    path: &self.path[1..],
                };
                seq.next_element_seed(next)?
            } else {
                seq.next_element::<IgnoredAny>()?.map(|_| ())
            };
            if more.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.arrive()?;
        let Step::Key(wanted) = &self.path[0] else {
            return IgnoredAny.visit_map(map).map(|_| ());
        };
        let key = || KeySeed {
            wanted,
            is_last: self.path.len() == 1,
        };
        while let Some(is_wanted) = map.next_key_seed(key())? {
            if is_wanted {
                map.next_value_seed(Walk {
                    path: &self.path[1..],
                })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Returns whether a key is the wanted one, or fails at it: a value in block style begins on
/// another line.
struct KeySeed<'p> {
    wanted: &'p str,
    is_last: bool,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<bool, E> {
        if self.is_last && key == self.wanted {
            return Err(E::custom(FOUND));
        }
        Ok(key == self.wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: a\ntools:\n  - name: x\n    exec: ls\n  - {name: y,\n     exec: 3}\n";

    fn path(steps: &[&str]) -> Vec<Step> {
        steps
            .iter()
            .map(|s| {
                s.parse()
                    .map_or_else(|_| Step::Key((*s).to_owned()), Step::Item)
            })
            .collect()
    }

    #[test]
    fn a_node_is_located_by_its_path() {
        assert_eq!(locate(TEXT, &path(&["tools", "0", "exec"])), Some(4));
        assert_eq!(locate(TEXT, &path(&["tools", "1", "exec"])), Some(6));
        assert_eq!(locate(TEXT, &path(&["tools", "1", "name"])), Some(5));
        assert_eq!(locate(TEXT, &path(&["tools"])), Some(2));
        assert_eq!(locate(TEXT, &path(&["tools", "1"])), Some(5));
    }

    #[test]
    fn a_missing_node_is_located_at_the_nearest_above_it() {
        assert_eq!(locate(TEXT, &path(&["tools", "0", "shell"])), Some(3));
    }

    #[test]
    fn order_and_numbers_survive() {
        let value = parse("b: 1\na: 0.2\nc: 18446744073709551615\n").unwrap();
        assert_eq!(
            value.to_string(),
            r#"{"b":1,"a":0.2,"c":18446744073709551615}"#
        );
    }

    #[test]
    fn a_syntax_error_has_its_place() {
        let error = parse("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
        assert!(error.place.is_some());
        assert!(!error.message.contains("line 3"), "{}", error.message);
    }

    #[test]
    fn brackets_without_end_are_refused_at_once() {
        for open in ["{a: ", "["] {
            let error = parse(&open.repeat(1 << 18)).unwrap_err();
            assert!(error.message.contains("brackets"), "{}", error.message);
        }
        let list = format!("[{}]", "[], ".repeat(1 << 13));
        assert!(parse(&list).is_ok());
    }

    #[test]
    fn duplicate_keys_are_refused() {
        assert!(
            parse("a: 1\na: 2\n")
                .unwrap_err()
                .message
                .contains("duplicate")
        );
    }

    #[test]
    fn what_json_cannot_hold_is_refused() {
        assert!(parse("1: x").is_err());
        assert!(parse("x: .nan").is_err());
        assert!(parse("x: !t 1").is_err());
    }

    #[test]
    fn a_decimal_is_kept_as_it_is_written_or_refused() {
        for written in [
            "12345678901234567.89",
            "-0.12345678901234567891",
            "+0.10000000000000000001",
            "1e-400",
            "&n 0.10000000000000000001",
            "!!float 0.10000000000000000001",
        ] {
            for text in ["a: {b: [1, N]}", "x: [0.1]\na:\n  b:\n  - 1\n  - N\n"] {
                let text = text.replace('N', written);
                let error = parse(&text).unwrap_err();
                let number = written.split(' ').next_back().unwrap();
                let message = format!("a.b[1]: the number {number} {TOO_MANY_DIGITS}");
                assert_eq!(error.message, message, "{text}");
                let line = if text.starts_with('x') { 5 } else { 1 };
                assert_eq!(error.place.map(|place| place.0), Some(line), "{text}");
            }
        }
        assert!(parse("a: 0.1\n<<: {b: 0.10000000000000000001}\n").is_err());
        assert!(parse("0.10000000000000000001").is_err());
        let usual = "[0.1, 1e3, 1.50, .5, +1.5, -2., 1E+3, 2.5e-7, 0.30000000000000004, 0.000, -0.0, 1e300, 5e-324, \
                     1_000.5, '0.10000000000000000001', x0.10000000000000000001, 1e23]";
        for text in [
            format!("a: {usual} # 0.10000000000000000001"),
            "a: &a {b: 0.1}\nd: *a\ne: {<<: *a, f: 1.25}\n".to_owned(),
            "a: 0.1\nb: |\n  0.10000000000000000001\n".to_owned(),
            "0.5".to_owned(),
        ] {
            parse(&text).unwrap();
        }
    }

    #[test]
    fn what_is_rendered_parses_to_the_same() {
        let value = parse("a: \"x\\ny\"\nb: ['1', true, ~]\n").unwrap();
        assert_eq!(parse(&render(&value)).unwrap(), value);
    }
}
