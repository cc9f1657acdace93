//! The cases of a suite: a list in the file, or a file with one on each line, as other tools have them.

use super::assertions::read_assertions;
use super::{SuiteReader, is_plain, read_directory, read_tags};
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::error::reason;
use crate::flow::eval::assertion::{Assertion, AssertionKind};
use crate::flow::eval::suite::Case;
use crate::flow::manifest::Code;
use crate::text::yaml::Step;
use crate::unix::files;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

const KEYS: [&str; 8] = [
    "id",
    "input",
    "expected",
    "assert",
    "start",
    "tags",
    "enabled",
    "workspace",
];

/// Other tools' words for `expected`.
const EXPECTED: [&str; 3] = ["expected", "target", "expected_output"];

/// The place of a case.
#[derive(Clone)]
enum CasePlace {
    /// In the manifest.
    Item(Vec<Step>),
    /// On a line of a file, from 1.
    Line(String, usize),
}

/// Reads the cases of a suite; none if something is wrong with them.
pub(super) fn read_cases(
    reader: &mut SuiteReader<'_>,
    suite: &str,
    node: &Section,
    template: Option<&Path>,
) -> Option<Vec<Case>> {
    let mut of_suite = CaseReader {
        reader,
        suite,
        template,
        seen: HashMap::new(),
        unread: BTreeSet::new(),
        is_wrong: false,
    };
    match node.map.get("cases") {
        Some(Value::Array(items)) => {
            let at = node.path_to("cases");
            let cases = of_suite.inline(items, &at);
            of_suite.finish(cases, at)
        }
        Some(Value::String(file)) => {
            let cases = of_suite.of_file(file, &node.path_to("cases"));
            of_suite.finish(cases, node.path_to("cases"))
        }
        other => {
            let found = describe_value(other.unwrap_or(&Value::Null));
            let message = format!(
                "suite \"{suite}\": cases: expected a list, or a file with a case on each line, found {found}"
            );
            let ids = vec![suite.to_owned()];
            let at = node.path_to("cases");
            reader
                .manifest
                .add(Code::ManifestInvalid, ids, &at, message);
            None
        }
    }
}

struct CaseReader<'c, 'r> {
    reader: &'c mut SuiteReader<'r>,
    suite: &'c str,
    template: Option<&'c Path>,
    /// The number of each id's case.
    seen: HashMap<String, usize>,
    /// Keys of a file that nothing reads.
    unread: BTreeSet<String>,
    is_wrong: bool,
}

impl CaseReader<'_, '_> {
    fn inline(&mut self, items: &[Value], at: &[Step]) -> Vec<Case> {
        let mut cases = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let mut at = at.to_vec();
            at.push(Step::Item(index));
            cases.extend(self.case(item, index + 1, &CasePlace::Item(at)));
        }
        cases
    }

    fn of_file(&mut self, file: &str, at: &[Step]) -> Vec<Case> {
        let path = self.reader.home.join(file);
        let text = match files::read_text(&path) {
            Ok(text) => text,
            Err(error) => {
                let why = reason(&error);
                self.add(
                    Code::ManifestInvalid,
                    vec![],
                    &CasePlace::Item(at.to_vec()),
                    format!("cases: cannot read {file}: {why}"),
                );
                return Vec::new();
            }
        };
        let mut cases = Vec::new();
        for (index, line) in crate::text::json::after_mark(&text).lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let place = CasePlace::Line(file.to_owned(), index + 1);
            match serde_json::from_str::<Value>(line) {
                Ok(item) => cases.extend(self.case(&item, index + 1, &place)),
                Err(error) => {
                    let why = crate::text::json::parser_message(&error);
                    self.add(
                        Code::ManifestInvalid,
                        vec![],
                        &place,
                        format!("not valid JSON: {why}"),
                    );
                }
            }
        }
        if !self.unread.is_empty() {
            let keys: Vec<&str> = self.unread.iter().map(String::as_str).take(20).collect();
            let message = format!("keys that are not read: {}", keys.join(", "));
            let problem = (None, vec![self.suite.to_owned()], message);
            self.reader.add_to_file(file, None, problem);
        }
        cases
    }

    fn finish(mut self, cases: Vec<Case>, at: Vec<Step>) -> Option<Vec<Case>> {
        if cases.is_empty() && !self.is_wrong {
            let message = "cases: there are none, or none that is enabled".to_owned();
            self.add(Code::ManifestInvalid, vec![], &CasePlace::Item(at), message);
        }
        (!self.is_wrong).then_some(cases)
    }

    fn case(&mut self, item: &Value, number: usize, place: &CasePlace) -> Option<Case> {
        let Some(map) = item.as_object() else {
            let found = describe_value(item);
            let message = format!("cases: expected a mapping, found {found}");
            self.add(Code::ManifestInvalid, vec![], place, message);
            return None;
        };
        let id = self.id(map, number, place)?;
        let at = match place {
            CasePlace::Item(at) => at.clone(),
            CasePlace::Line(..) => Vec::new(),
        };
        let node = Section::new(map, at);
        let mut out = self.about(&id);
        self.look_for_unknown(&node, place, &mut out);
        let is_enabled = node.read_flag("enabled", &mut out) != Some(false);
        if !map.contains_key("input") {
            out.error(node.path_to("input"), "has no input; give it one, or null");
        }
        let expected = read_expected(&node, &mut out);
        let start = node.read_text("start", &mut out).map(str::to_owned);
        let tags = read_tags(&node, &mut out);
        let own = read_directory(self.reader.home, &node, "workspace", &mut out);
        self.report(Code::ManifestInvalid, &id, place, out);
        let mut out = self.about(&id);
        let written = read_assertions(self.reader.home, &node, &mut out);
        self.report(Code::BadAssertion, &id, place, out);
        let mut assertions = match (written, &expected) {
            (Some(written), _) => written,
            (None, Some(expected)) => vec![Assertion::equals(expected)],
            (None, None) => Vec::new(),
        };
        let says_end = |it: &Assertion| {
            matches!(
                it.check,
                AssertionKind::Status(_) | AssertionKind::ExitNode(_)
            )
        };
        if !assertions.iter().any(says_end) {
            assertions.insert(0, Assertion::succeeds());
        }
        let case = Case {
            assertions,
            input: map.get("input").cloned().unwrap_or_default(),
            id,
            expected,
            start,
            tags,
            template: own.or_else(|| self.template.map(Path::to_owned)),
        };
        is_enabled.then_some(case)
    }

    /// The id of a case: its own, or else its number, as Inspect counts.
    fn id(&mut self, map: &Map<String, Value>, number: usize, place: &CasePlace) -> Option<String> {
        let id = match map.get("id") {
            None | Some(Value::Null) => number.to_string(),
            Some(Value::String(id)) if is_plain(id) => id.clone(),
            Some(Value::Number(id)) => id.to_string(),
            Some(other) => {
                let found = describe_value(other);
                let message = format!("id: expected a text of one line, found {found}");
                self.add(Code::ManifestInvalid, vec![], place, message);
                return None;
            }
        };
        if let Some(first) = self.seen.insert(id.clone(), number) {
            let message = format!(
                "case \"{id}\" is defined twice: as number {first} and as number {number}; rename one"
            );
            self.add(Code::DuplicateCase, vec![id], place, message);
            return None;
        }
        Some(id)
    }

    fn look_for_unknown(&mut self, node: &Section, place: &CasePlace, out: &mut Diagnostics) {
        let known: Vec<&str> = KEYS.into_iter().chain(EXPECTED).collect();
        match place {
            CasePlace::Item(_) => node.warn_of_unknown_keys(&known, out),
            CasePlace::Line(..) => {
                let unknown = node.map.keys().filter(|key| !known.contains(&key.as_str()));
                // A file may have any number of them.
                let room = 100_usize.saturating_sub(self.unread.len());
                self.unread.extend(unknown.take(room).cloned());
            }
        }
    }

    fn about(&self, id: &str) -> Diagnostics {
        Diagnostics::about(format!("suite \"{}\", case \"{id}\"", self.suite))
    }

    fn add(&mut self, code: Code, ids: Vec<String>, place: &CasePlace, message: String) {
        self.is_wrong = true;
        let suite = self.suite.to_owned();
        let message = format!("suite \"{suite}\": {message}");
        let ids: Vec<String> = [suite].into_iter().chain(ids).collect();
        match place {
            CasePlace::Item(at) => self.reader.manifest.add(code, ids, at, message),
            CasePlace::Line(file, line) => {
                self.reader
                    .add_to_file(file, Some(*line), (Some(code), ids, message));
            }
        }
    }

    fn report(&mut self, code: Code, id: &str, place: &CasePlace, out: Diagnostics) {
        self.is_wrong |= out.has_errors();
        let ids = vec![self.suite.to_owned(), id.to_owned()];
        match place {
            CasePlace::Item(_) => self.reader.manifest.report_as(code, &ids, out),
            CasePlace::Line(file, line) => {
                for complaint in out.into_list() {
                    let code = (!complaint.warning).then_some(code);
                    let problem = (code, ids.clone(), complaint.message);
                    self.reader.add_to_file(file, Some(*line), problem);
                }
            }
        }
    }
}

/// The expected output, under whichever of its names.
fn read_expected(node: &Section, out: &mut Diagnostics) -> Option<Value> {
    let given = |key: &&str| node.map.get(*key).is_some_and(|value| !value.is_null());
    let keys: Vec<&str> = EXPECTED.into_iter().filter(given).collect();
    let Some(key) = keys.first().copied() else {
        let is_null = EXPECTED.iter().any(|key| node.map.contains_key(*key));
        return is_null.then_some(Value::Null);
    };
    if let [_, other, ..] = keys.as_slice() {
        let message = format!("has both {key} and {other}; remove one");
        out.error(node.path_to(other), message);
    }
    let value = &node.map[key];
    if key == "target" && value.is_array() {
        let message = "target: a list means any of several answers, which `expected` does not; write \
                       an assertion of type regex, or expected for a list as the answer";
        out.error(node.path_to(key), message);
        return None;
    }
    Some(value.clone())
}
