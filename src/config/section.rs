//! Reads the keys of a YAML mapping and collects all errors in them.
//!
//! Unaware of what the keys mean, and of files and lines: a diagnostic names its place by a path.

use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// Something wrong, or doubtful, in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    /// The path below the section that was read.
    pub at: Vec<Step>,
    /// The fault and the way out; lower case, no full stop.
    pub message: String,
    /// Usable all the same.
    pub warning: bool,
}

/// A mapping and its place in the file, and what has been found wrong with it and its parts.
#[derive(Clone, Debug)]
pub(crate) struct Section<'n> {
    pub map: &'n Map<String, Value>,
    at: Vec<Step>,
    /// The beginning of each message.
    about: String,
    /// Whose keys they are, where the subject of the diagnostics does not say it.
    of: String,
    /// The key of the mapping, as messages begin with it.
    within: String,
    /// In the order in which they were made; its parts add theirs.
    diagnostics: Rc<RefCell<Vec<Diagnostic>>>,
}

impl<'n> Section<'n> {
    /// The mapping at the path `at`.
    pub(crate) fn new(map: &'n Map<String, Value>, at: Vec<Step>) -> Self {
        Self {
            map,
            at,
            about: String::new(),
            of: String::new(),
            within: String::new(),
            diagnostics: Rc::default(),
        }
    }

    /// Another mapping, whose faults are reported with those of this one.
    pub(crate) fn inner<'m>(&self, map: &'m Map<String, Value>, at: Vec<Step>) -> Section<'m> {
        Section {
            about: self.about.clone(),
            diagnostics: Rc::clone(&self.diagnostics),
            ..Section::new(map, at)
        }
    }

    /// This mapping, each message beginning with `subject`, too: `tool "x"`.
    pub(crate) fn about(mut self, subject: &str) -> Self {
        if !subject.is_empty() {
            self.about += &format!("{subject}: ");
        }
        self
    }

    /// This mapping, messages about its keys beginning with the key that it is the value of.
    pub(crate) fn within(mut self, key: &str) -> Self {
        self.within = format!("{key}: ");
        self
    }

    /// A key's name in messages.
    pub(crate) fn name(&self, key: &str) -> String {
        format!("{}{key}{}", self.within, self.of)
    }

    /// This mapping, messages about its keys saying that they belong to `owner`.
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

    /// The path of an item of a list.
    pub(crate) fn path_to_item(&self, key: &str, index: usize) -> Vec<Step> {
        let mut at = self.path_to(key);
        at.push(Step::Item(index));
        at
    }

    /// There is such a key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// Reports what is wrong with a key, or with the mapping if it has no such key.
    pub(crate) fn error(&self, key: &str, message: impl AsRef<str>) {
        self.error_at(self.path_to(key), message);
    }

    /// Warns of a key whose value can be used, and was probably not meant.
    pub(crate) fn warn(&self, key: &str, message: impl AsRef<str>) {
        let (at, message) = (self.path_to(key), message.as_ref().to_owned());
        self.push(Diagnostic {
            at,
            message,
            warning: true,
        });
    }

    /// Reports what is wrong at a path.
    pub(crate) fn error_at(&self, at: Vec<Step>, message: impl AsRef<str>) {
        let message = message.as_ref().to_owned();
        self.push(Diagnostic {
            at,
            message,
            warning: false,
        });
    }

    /// Reports what was found wrong elsewhere.
    pub(crate) fn push(&self, mut diagnostic: Diagnostic) {
        diagnostic.message.insert_str(0, &self.about);
        self.diagnostics.borrow_mut().push(diagnostic);
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.diagnostics.borrow().iter().any(|it| !it.warning)
    }

    /// What has been found wrong since these were last taken.
    pub(crate) fn take_diagnostics(&self) -> Vec<Diagnostic> {
        self.diagnostics.take()
    }

    /// Reports what is wrong with a key, of which nothing can be read.
    pub(crate) fn refuse<T>(&self, key: &str, message: impl AsRef<str>) -> Option<T> {
        self.error(key, message);
        None
    }

    /// Reports that the value of a key is something else.
    pub(crate) fn mismatch(&self, key: &str, expected: &str) {
        let found = self.map.get(key).map_or_else(String::new, describe_value);
        let message = format!("{}: expected {expected}, found {found}", self.name(key));
        self.error(key, message);
    }

    /// A string.
    pub(crate) fn read_text(&self, key: &str) -> Option<&'n str> {
        self.read(key, "a string", Value::as_str)
    }

    /// A whole number, 0 or more.
    pub(crate) fn read_count(&self, key: &str) -> Option<u64> {
        self.read(key, "a whole number, 0 or more", Value::as_u64)
    }

    /// A whole number that is not 0.
    pub(crate) fn at_least_one(&self, key: &str) -> Option<u64> {
        let count = self.read_count(key);
        if count == Some(0) {
            let message = format!("{}: expected at least 1, found 0", self.name(key));
            self.error(key, message);
        }
        count
    }

    /// A program's exit code that is not 0.
    pub(crate) fn read_exit_code(&self, key: &str) -> Option<i32> {
        let pick = |value: &Value| i32::try_from(value.as_i64()?).ok();
        let pick = |value: &Value| pick(value).filter(|code| (1..=255).contains(code));
        self.read(key, "an exit code from 1 to 255", pick)
    }

    /// A number, 0 or more.
    pub(crate) fn read_amount(&self, key: &str) -> Option<f64> {
        let pick = |value: &Value| value.as_f64().filter(|n| *n >= 0.0 && n.is_finite());
        self.read(key, "a number, 0 or more", pick)
    }

    /// True or false.
    pub(crate) fn read_flag(&self, key: &str) -> Option<bool> {
        self.read(key, "true or false", Value::as_bool)
    }

    /// A list of anything.
    pub(crate) fn read_list(&self, key: &str) -> Option<&'n Vec<Value>> {
        self.read(key, "a list", Value::as_array)
    }

    /// A mapping.
    pub(crate) fn read_mapping(&self, key: &str) -> Option<&'n Map<String, Value>> {
        self.read(key, "a mapping", Value::as_object)
    }

    /// A mapping to read in its turn; messages name its key.
    pub(crate) fn read_section(&self, key: &str) -> Option<Self> {
        let map = self.read_mapping(key)?;
        Some(self.inner(map, self.path_to(key)).within(key))
    }

    /// The mappings in a list, each with its number.
    pub(crate) fn read_sections(&self, key: &str) -> Vec<(usize, Self)> {
        let mut sections = Vec::new();
        let items = self.read_list(key).into_iter().flatten();
        for (index, item) in items.enumerate() {
            let at = self.path_to_item(key, index);
            if let Some(map) = item.as_object() {
                sections.push((index, self.inner(map, at)));
            } else {
                let (name, found) = (self.name(key), describe_value(item));
                self.error_at(at, format!("{name}: expected a mapping, found {found}"));
            }
        }
        sections
    }

    /// One of a few words, as its value.
    pub(crate) fn read_choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let expected = match words.as_slice() {
            [only] => (*only).to_owned(),
            words => format!("one of {}", words.join(", ")),
        };
        let pick = |value: &Value| {
            let text = value.as_str()?;
            choices.iter().find(|(word, _)| *word == text).map(|c| c.1)
        };
        self.read(key, &expected, pick)
    }

    /// A list of strings without NUL bytes; none if one of them is not.
    pub(crate) fn read_texts(&self, key: &str) -> Option<Vec<&'n str>> {
        let name = self.name(key);
        if let Some(text @ Value::String(_)) = self.map.get(key) {
            let found = describe_value(text);
            let message = format!(
                "{name}: expected a list of strings, found {found}; make each word an item: [a, b]"
            );
            return self.refuse(key, message);
        }
        let items = self.read(key, "a list of strings", Value::as_array)?;
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let message = match item.as_str() {
                Some(text) if text.contains('\0') => {
                    format!("{name}: no program argument can hold a NUL byte")
                }
                Some(text) => {
                    texts.push(text);
                    continue;
                }
                None => format!(
                    "{name}: expected a list of strings, found {} in it; quote it",
                    describe_value(item)
                ),
            };
            self.error_at(self.path_to_item(key, index), message);
        }
        (texts.len() == items.len()).then_some(texts)
    }

    /// Warns of keys that are not among `known`.
    pub(crate) fn warn_of_unknown_keys(&self, known: &[&str]) {
        for (key, message) in self.find_unknown(known) {
            self.warn(key, message);
        }
    }

    /// Reports these keys as errors.
    pub(crate) fn refuse_unknown_keys(&self, known: &[&str]) {
        for (key, message) in self.find_unknown(known) {
            self.error(key, message);
        }
    }

    fn find_unknown(&self, known: &[&str]) -> impl Iterator<Item = (&'n String, String)> {
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
                (key, message)
            })
    }

    pub(crate) fn read<T>(
        &self,
        key: &str,
        expected: &str,
        pick: impl Fn(&'n Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.map.get(key)?;
        let picked = pick(value);
        if picked.is_none() {
            self.mismatch(key, expected);
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
        let section = Section::new(value.as_object().unwrap(), vec![]).about("it");
        assert_eq!(section.read_text("t"), None);
        assert_eq!(section.read_count("c"), None);
        assert_eq!(section.read_flag("b"), None);
        assert_eq!(section.read_list("l"), None);
        assert_eq!(section.read_choice("w", &[("a", 1), ("b", 2)]), None);
        assert_eq!(section.read_texts("s"), None);
        assert_eq!(section.read_text("absent"), None);
        let section = section.of("c");
        assert_eq!(section.read_text("t"), None);
        let section = section.inner(section.map, vec![]).within("k");
        assert_eq!(section.read_texts("w"), None);
        let said: Vec<String> = section
            .take_diagnostics()
            .into_iter()
            .map(|c| c.message)
            .collect();
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
        let section = Section::new(value.as_object().unwrap(), vec![]).about("it");
        section.warn_of_unknown_keys(&["name", "exec"]);
        assert!(!section.has_errors());
        let list = section.take_diagnostics();
        assert_eq!(
            list[0].message,
            "it: unknown key 'nane'; did you mean 'name'?"
        );
        assert_eq!(list[0].at, [Step::Key("nane".to_owned())]);
        assert_eq!(list[1].message, "it: unknown key 'zzz'");
    }
}
