//! The cases of a suite: a list in the file, or a file of cases, as other tools have them.

use super::assertions::read_assertions;
use super::{SuiteReader, csv, is_plain, read_directory};
use crate::config::section::{Section, describe_value};
use crate::error::reason;
use crate::flow::eval::assertion::{Assertion, AssertionKind};
use crate::flow::eval::suite::Case;
use crate::flow::manifest::Code;
use crate::flow::manifest::problem::{Manifest, shown_in};
use crate::text::json::{after_mark, parser_message};
use crate::text::yaml::Step;
use crate::unix::files;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Other tools' words for `expected`.
const EXPECTED: [&str; 3] = ["expected", "target", "expected_output"];

/// Reads the cases of a suite; none if something is wrong with them.
pub(super) fn read_cases(
    reader: &mut SuiteReader<'_>,
    suite: &str,
    section: &Section,
    template: Option<&Path>,
) -> Option<Vec<Case>> {
    let at = section.path_to("cases");
    let manifest = &mut reader.manifest;
    let mut all = CaseReader {
        home: reader.home,
        suite,
        template,
        assertions: section.map.get("assert").filter(|it| !it.is_null()),
        seen: HashMap::new(),
        unread: BTreeSet::new(),
        cases: Vec::new(),
        is_wrong: false,
    };
    match section.map.get("cases") {
        Some(Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                let at = [&*at, &[Step::Item(index)]].concat();
                all.add(manifest, item, index + 1, at);
            }
        }
        Some(Value::String(file)) => match files::read_regular(&all.home.join(file)) {
            Ok(bytes) => {
                let mut lines = Manifest::of_lines(shown_in(reader.dir, file), file);
                all.add_file(&mut lines, file, &bytes);
                reader.of_files.extend(lines.problems);
            }
            Err(error) => {
                let message = format!("cases: cannot read {file}: {}", reason(&error));
                all.fail(manifest, &at, &message);
            }
        },
        other => {
            let found = describe_value(other.unwrap_or(&Value::Null));
            let message =
                format!("cases: expected a list, or the name of a file of cases, found {found}");
            all.fail(manifest, &at, &message);
        }
    }
    if all.cases.is_empty() && !all.is_wrong {
        let message = "cases: there are none, or none that is enabled";
        all.fail(manifest, &at, message);
    }
    (!all.is_wrong).then_some(all.cases)
}

/// A case in a file.
struct Item {
    /// From 1.
    line: usize,
    /// Its id if it has none.
    number: usize,
    value: Result<Value, String>,
}

/// The cases in the text of a file: comma-separated values, a list in JSON, or an object on each line.
fn items(file: &str, text: &str) -> Vec<Item> {
    let item = |line: usize, number: usize, value: Result<Value, String>| Item {
        line,
        number,
        value,
    };
    let not_json = |error: serde_json::Error| format!("not valid JSON: {}", parser_message(&error));
    let extension = Path::new(file).extension().unwrap_or_default();
    if ["yaml", "yml"]
        .iter()
        .any(|it| extension.eq_ignore_ascii_case(it))
    {
        let message = "a file of cases has comma-separated values or JSON, not YAML; a list of cases in YAML is written \
                       into evaluations.yaml";
        return vec![item(1, 1, Err(message.to_owned()))];
    }
    let is_json = text.trim_start().starts_with(['{', '[']) || file.contains(".json");
    if extension.eq_ignore_ascii_case("csv") || !is_json {
        return match csv::cases(text) {
            Ok(cases) => (1..)
                .zip(cases)
                .map(|(number, (line, case))| item(line, number, Ok(case.into())))
                .collect(),
            Err((line, message)) => vec![item(line, 1, Err(message))],
        };
    }
    if text.trim_start().starts_with('[') {
        return match serde_json::from_str::<Vec<&RawValue>>(text) {
            Ok(all) => {
                let (mut line, mut at) = (1, 0);
                let mut list = Vec::new();
                for (number, raw) in (1..).zip(all) {
                    let begin = raw.get().as_ptr() as usize - text.as_ptr() as usize;
                    line += memchr::memchr_iter(b'\n', &text.as_bytes()[at..begin]).count();
                    at = begin;
                    let value = serde_json::from_str(raw.get()).map_err(not_json);
                    list.push(item(line, number, value));
                }
                list
            }
            Err(error) => vec![item(error.line().max(1), 1, Err(not_json(error)))],
        };
    }
    let lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(line, text)| item(line, line, serde_json::from_str(text).map_err(not_json)))
        .collect()
}

struct CaseReader<'c> {
    home: &'c Path,
    suite: &'c str,
    template: Option<&'c Path>,
    /// Of cases that have none of their own.
    assertions: Option<&'c Value>,
    /// The number of each id's case.
    seen: HashMap<String, usize>,
    /// Keys of a file that nothing reads.
    unread: BTreeSet<String>,
    /// Only cases that are enabled.
    cases: Vec<Case>,
    is_wrong: bool,
}

impl CaseReader<'_> {
    fn add_file(&mut self, lines: &mut Manifest, file: &str, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                for Item {
                    line,
                    number,
                    value,
                } in items(file, after_mark(text))
                {
                    let at = vec![Step::Item(line - 1)];
                    match value {
                        Ok(value) => self.add(lines, &value, number, at),
                        Err(message) => self.fail(lines, &at, &message),
                    }
                }
            }
            Err(error) => {
                let before = memchr::memchr_iter(b'\n', &bytes[..error.valid_up_to()]);
                self.fail(lines, &[Step::Item(before.count())], "it is not UTF-8");
            }
        }
        if !self.unread.is_empty() {
            let keys: Vec<&str> = self.unread.iter().map(String::as_str).take(20).collect();
            let message = format!("keys that are not read: {}", keys.join(", "));
            lines.push(None, &[self.suite], &[], message);
        }
    }

    fn add(&mut self, manifest: &mut Manifest, item: &Value, number: usize, at: Vec<Step>) {
        let Some(mut map) = item.as_object().cloned() else {
            let message = format!("cases: expected a mapping, found {}", describe_value(item));
            return self.fail(manifest, &at, &message);
        };
        if let Some(assertions) = self.assertions {
            map.entry("assert").or_insert_with(|| assertions.clone());
        }
        let Some(id) = self.id(manifest, &map, number, &at) else {
            return;
        };
        if manifest.has_items_on_lines {
            // A file may have any number of them.
            let room = 100_usize.saturating_sub(self.unread.len());
            let unknown = map.keys().filter(|key| !Case::KEYS.contains(&key.as_str()));
            self.unread.extend(unknown.take(room).cloned());
            map.retain(|key, _| Case::KEYS.contains(&key.as_str()));
        }
        let section = Section::new(&map, at);
        let subject = format!("suite \"{}\", case \"{id}\"", self.suite);
        let ids = [self.suite, &id];
        let mut is_enabled = true;
        let mut case = manifest.visit(&subject, &ids, &section, |node| {
            let case = Case::read_keys(node);
            is_enabled = node.get::<Option<bool>>("enabled") != Some(false);
            if !node.has("input") {
                node.error("input", "has no input; give it one, or null");
            }
            let expected = read_expected(node);
            let own = read_directory(self.home, node, "workspace");
            self.is_wrong |= node.has_errors();
            Case {
                expected,
                template: own.or_else(|| self.template.map(Path::to_owned)),
                ..case
            }
        });
        let read = |node: &Section| {
            let given = read_assertions(self.home, node);
            self.is_wrong |= node.has_errors();
            given
        };
        let given = manifest.visit_for(Code::BadAssertion, &subject, &ids, &section, read);
        case.assertions = given.unwrap_or_else(|| {
            let expected = case.expected.iter();
            expected.map(Assertion::equals).collect()
        });
        let is_about_end = |it: &Assertion| {
            matches!(
                it.check,
                AssertionKind::Status(_) | AssertionKind::ExitNode(_)
            )
        };
        if !case.assertions.iter().any(is_about_end) {
            case.assertions.insert(0, Assertion::succeeds());
        }
        if is_enabled {
            self.cases.push(Case {
                id,
                input: map.shift_remove("input").unwrap_or_default(),
                ..case
            });
        }
    }

    /// The id of a case: its own, or else its number, as Inspect counts.
    fn id(
        &mut self,
        manifest: &mut Manifest,
        map: &Map<String, Value>,
        number: usize,
        at: &[Step],
    ) -> Option<String> {
        let id = match map.get("id") {
            None | Some(Value::Null) => number.to_string(),
            Some(Value::String(id)) if is_plain(id) => id.clone(),
            Some(Value::Number(id)) => id.to_string(),
            Some(other) => {
                let found = describe_value(other);
                let message = format!("id: expected a text of one line, found {found}");
                self.fail(manifest, at, &message);
                return None;
            }
        };
        if let Some(first) = self.seen.insert(id.clone(), number) {
            let suite = self.suite;
            let message = format!(
                "suite \"{suite}\": case \"{id}\" is defined twice: as number {first} and as number {number}; \
                 rename one"
            );
            self.is_wrong = true;
            manifest.push(Some(Code::DuplicateCase), &[suite, &id], at, message);
            return None;
        }
        Some(id)
    }

    fn fail(&mut self, manifest: &mut Manifest, at: &[Step], message: &str) {
        self.is_wrong = true;
        let suite = self.suite;
        let message = format!("suite \"{suite}\": {message}");
        manifest.push(Some(Code::ManifestInvalid), &[suite], at, message);
    }
}

/// The expected output, under whichever of its names.
fn read_expected(node: &Section) -> Option<Value> {
    let mut keys = EXPECTED.into_iter().filter(|key| node.value(key).is_some());
    let Some(key) = keys.next() else {
        let is_null = EXPECTED.iter().any(|key| node.has(key));
        return is_null.then_some(Value::Null);
    };
    let other = keys.next();
    if let Some(other) = other {
        node.error(other, format!("has both {key} and {other}; remove one"));
    }
    let value = &node.map[key];
    if key == "target" && value.is_array() {
        let message = "target: a list means any of several answers, which `expected` does not; write \
                       an assertion with value_in, or expected for a list as the answer";
        return node.refuse(key, message);
    }
    Some(value.clone())
}
