//! Reads the keys of a YAML mapping and collects all errors in them.
//!
//! Unaware of what the keys mean, and of files and lines: a diagnostic names its place by a path.

use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::{Map, Value};

/// Something wrong, or doubtful, in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    /// Where: the path below the section that was read.
    pub at: Vec<Step>,
    /// The fault and the way out; lower case, no full stop.
    pub message: String,
    /// Usable all the same.
    pub warning: bool,
}

/// All diagnostics about one thing, each message beginning with that thing's name.
#[derive(Debug)]
pub(crate) struct Diagnostics {
    subject: String,
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// About `subject`, which is how every message begins: `tool "x"`.
    pub(crate) fn about(subject: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            list: Vec::new(),
        }
    }

    /// A fault that makes the value unusable.
    pub(crate) fn error(&mut self, at: Vec<Step>, message: impl AsRef<str>) {
        self.push(at, message.as_ref(), false);
    }

    /// A value that can be used, and was probably not meant.
    pub(crate) fn warn(&mut self, at: Vec<Step>, message: impl AsRef<str>) {
        self.push(at, message.as_ref(), true);
    }

    /// The diagnostics about a part of the thing.
    pub(crate) fn absorb(&mut self, part: Self) {
        for it in part.list {
            self.push(it.at, &it.message, it.warning);
        }
    }

    fn push(&mut self, at: Vec<Step>, message: &str, warning: bool) {
        let message = if self.subject.is_empty() {
            message.to_owned()
        } else {
            format!("{}: {message}", self.subject)
        };
        self.list.push(Diagnostic {
            at,
            message,
            warning,
        });
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.list.iter().any(|diagnostic| !diagnostic.warning)
    }

    /// The diagnostics in the order in which they were made.
    pub(crate) fn into_list(self) -> Vec<Diagnostic> {
        self.list
    }
}

/// A mapping and its place in the file.
#[derive(Debug)]
pub(crate) struct Section<'n> {
    pub map: &'n Map<String, Value>,
    at: Vec<Step>,
    /// Whose keys they are, where the subject of the diagnostics does not say it.
    of: String,
    /// The key of the mapping, as messages begin with it.
    within: String,
}

impl<'n> Section<'n> {
    /// The mapping at the path `at`.
    pub(crate) fn new(map: &'n Map<String, Value>, at: Vec<Step>) -> Self {
        let (of, within) = (String::new(), String::new());
        Self {
            map,
            at,
            of,
            within,
        }
    }

    /// The same mapping, messages about its keys beginning with the key that it is the value of.
    pub(crate) fn within(mut self, key: &str) -> Self {
        self.within = format!("{key}: ");
        self
    }

    /// How messages call a key.
    pub(crate) fn name(&self, key: &str) -> String {
        format!("{}{key}{}", self.within, self.of)
    }

    /// The same mapping, messages about its keys saying that they belong to `owner`.
    pub(crate) fn of(mut self, owner: &str) -> Self {
        self.of = format!(" of {owner}");
        self
    }

    /// The path of the value of `key`; of the mapping itself if it has no such key.
    pub(crate) fn path_to(&self, key: &str) -> Vec<Step> {
        let mut at = self.at.clone();
        if self.map.contains_key(key) {
            at.push(Step::Key(key.to_owned()));
        }
        at
    }

    /// A string.
    pub(crate) fn read_text(&self, key: &str, out: &mut Diagnostics) -> Option<&'n str> {
        self.read(key, "a string", Value::as_str, out)
    }

    /// A whole number, 0 or more.
    pub(crate) fn read_count(&self, key: &str, out: &mut Diagnostics) -> Option<u64> {
        self.read(key, "a whole number, 0 or more", Value::as_u64, out)
    }

    /// A whole number that is not 0.
    pub(crate) fn at_least_one(&self, key: &str, out: &mut Diagnostics) -> Option<u64> {
        let count = self.read_count(key, out);
        if count == Some(0) {
            let message = format!("{}: expected at least 1, found 0", self.name(key));
            out.error(self.path_to(key), message);
        }
        count
    }

    /// A program's exit code that is not 0.
    pub(crate) fn read_exit_code(&self, key: &str, out: &mut Diagnostics) -> Option<i32> {
        let pick = |value: &Value| i32::try_from(value.as_i64()?).ok();
        let pick = |value: &Value| pick(value).filter(|code| (1..=255).contains(code));
        self.read(key, "an exit code from 1 to 255", pick, out)
    }

    /// A number, 0 or more.
    pub(crate) fn read_amount(&self, key: &str, out: &mut Diagnostics) -> Option<f64> {
        let pick = |value: &Value| value.as_f64().filter(|n| *n >= 0.0 && n.is_finite());
        self.read(key, "a number, 0 or more", pick, out)
    }

    /// True or false.
    pub(crate) fn read_flag(&self, key: &str, out: &mut Diagnostics) -> Option<bool> {
        self.read(key, "true or false", Value::as_bool, out)
    }

    /// A list of anything.
    pub(crate) fn read_list(&self, key: &str, out: &mut Diagnostics) -> Option<&'n Vec<Value>> {
        self.read(key, "a list", Value::as_array, out)
    }

    /// A mapping.
    pub(crate) fn read_mapping(
        &self,
        key: &str,
        out: &mut Diagnostics,
    ) -> Option<&'n Map<String, Value>> {
        self.read(key, "a mapping", Value::as_object, out)
    }

    /// A mapping to read in its turn; messages name its key.
    pub(crate) fn read_section(&self, key: &str, out: &mut Diagnostics) -> Option<Self> {
        let map = self.read_mapping(key, out)?;
        Some(Self::new(map, self.path_to(key)).within(key))
    }

    /// One of a few words, as its value.
    pub(crate) fn read_choice<T: Copy>(
        &self,
        key: &str,
        choices: &[(&str, T)],
        out: &mut Diagnostics,
    ) -> Option<T> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let expected = match words.as_slice() {
            [only] => (*only).to_owned(),
            words => format!("one of {}", words.join(", ")),
        };
        let pick = |value: &Value| {
            let text = value.as_str()?;
            choices.iter().find(|(word, _)| *word == text).map(|c| c.1)
        };
        self.read(key, &expected, pick, out)
    }

    /// A list of strings without NUL bytes; none if one of them is not.
    pub(crate) fn read_texts(&self, key: &str, out: &mut Diagnostics) -> Option<Vec<&'n str>> {
        if let Some(Value::String(_)) = self.map.get(key) {
            let found = describe_value(&self.map[key]);
            let name = self.name(key);
            let message = format!(
                "{name}: expected a list of strings, found {found}; make each word an item: [a, b]"
            );
            out.error(self.path_to(key), message);
            return None;
        }
        let items = self.read(key, "a list of strings", Value::as_array, out)?;
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let mut at = self.path_to(key);
            at.push(Step::Item(index));
            match item.as_str() {
                Some(text) if text.contains('\0') => {
                    out.error(
                        at,
                        format!(
                            "{}: no program argument can hold a NUL byte",
                            self.name(key)
                        ),
                    );
                }
                Some(text) => texts.push(text),
                None => out.error(
                    at,
                    format!(
                        "{}: expected a list of strings, found {} in it; quote it",
                        self.name(key),
                        describe_value(item)
                    ),
                ),
            }
        }
        (texts.len() == items.len()).then_some(texts)
    }

    /// Warns of keys that are not among `known`.
    pub(crate) fn warn_of_unknown_keys(&self, known: &[&str], out: &mut Diagnostics) {
        for (at, message) in self.find_unknown(known) {
            out.warn(at, message);
        }
    }

    /// The same as errors.
    pub(crate) fn refuse_unknown_keys(&self, known: &[&str], out: &mut Diagnostics) {
        for (at, message) in self.find_unknown(known) {
            out.error(at, message);
        }
    }

    fn find_unknown(&self, known: &[&str]) -> impl Iterator<Item = (Vec<Step>, String)> {
        let keys = self.map.keys();
        keys.filter(|key| !known.contains(&key.as_str()))
            .map(move |key| {
                let meant = nearest(key, known.iter().copied());
                let hint = match (meant, known) {
                    (Some(near), _) => format!("; did you mean '{near}'?"),
                    (None, [only]) => format!("; the only key here is '{only}'"),
                    (None, _) => String::new(),
                };
                let message = format!("{}unknown key '{key}'{hint}", self.within);
                (self.path_to(key), message)
            })
    }

    pub(crate) fn read<T>(
        &self,
        key: &str,
        expected: &str,
        pick: impl Fn(&'n Value) -> Option<T>,
        out: &mut Diagnostics,
    ) -> Option<T> {
        let value = self.map.get(key)?;
        let picked = pick(value);
        if picked.is_none() {
            let message = format!(
                "{}: expected {expected}, found {}",
                self.name(key),
                describe_value(value)
            );
            out.error(self.path_to(key), message);
        }
        picked
    }
}

/// Words for a value in messages.
pub(crate) fn describe_value(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => format!("the number {n}"),
        Value::String(s) if s.chars().count() <= 40 => format!("the string {value}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::yaml;

    #[test]
    fn a_wrong_type_says_what_was_expected_and_what_was_found() {
        let value = yaml::parse("t: 3\nc: -1\nb: yes\nl: {}\nw: c\ns: [a, 2]\n").unwrap();
        let section = Section::new(value.as_object().unwrap(), vec![]);
        let mut out = Diagnostics::about("it");
        assert_eq!(section.read_text("t", &mut out), None);
        assert_eq!(section.read_count("c", &mut out), None);
        assert_eq!(section.read_flag("b", &mut out), None);
        assert_eq!(section.read_list("l", &mut out), None);
        assert_eq!(
            section.read_choice("w", &[("a", 1), ("b", 2)], &mut out),
            None
        );
        assert_eq!(section.read_texts("s", &mut out), None);
        assert_eq!(section.read_text("absent", &mut out), None);
        let section = section.of("c");
        assert_eq!(section.read_text("t", &mut out), None);
        let section = Section::new(section.map, vec![]).within("k");
        assert_eq!(section.read_texts("w", &mut out), None);
        let said: Vec<String> = out.into_list().into_iter().map(|c| c.message).collect();
        assert_eq!(
            said,
            [
                "it: t: expected a string, found the number 3",
                "it: c: expected a whole number, 0 or more, found the number -1",
                "it: b: expected true or false, found the string \"yes\"",
                "it: l: expected a list, found a mapping",
                "it: w: expected one of a, b, found the string \"c\"",
                "it: s: expected a list of strings, found the number 2 in it; quote it",
                "it: t of c: expected a string, found the number 3",
                "it: k: w: expected a list of strings, found the string \"c\"; make each word an item: [a, b]",
            ]
        );
    }

    #[test]
    fn an_unknown_key_is_a_warning_with_the_nearest_known_one() {
        let value = yaml::parse("nane: 3\nzzz: 1\n").unwrap();
        let section = Section::new(value.as_object().unwrap(), vec![]);
        let mut out = Diagnostics::about("it");
        section.warn_of_unknown_keys(&["name", "exec"], &mut out);
        assert!(!out.has_errors());
        let list = out.into_list();
        assert_eq!(
            list[0].message,
            "it: unknown key 'nane'; did you mean 'name'?"
        );
        assert_eq!(list[0].at, [Step::Key("nane".to_owned())]);
        assert_eq!(list[1].message, "it: unknown key 'zzz'");
    }
}
