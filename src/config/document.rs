//! A YAML file with its text, so that a diagnostic can name its line.

use super::agent::{Problem, Severity};
use crate::config::section::{Diagnostic, describe_value};
use crate::error::{is_passing, reason};
use crate::text::yaml::{self, REREAD_BYTES, Step};
use crate::unix::files::read_text_limited;
use serde_json::{Map, Value};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// A file that has been read and parsed.
#[derive(Debug)]
pub(crate) struct Document {
    /// The file.
    pub path: PathBuf,
    /// Its name in messages.
    pub shown: String,
    text: String,
    /// Bytes that were read again to find lines.
    read_again: Cell<usize>,
    pub root: Map<String, Value>,
}

impl Document {
    /// Reads a file. What is wrong with it is added to `problems`.
    pub(crate) fn read(path: &Path, shown: String, problems: &mut Vec<Problem>) -> Option<Self> {
        let text = match read_text_limited(path, yaml::LARGEST) {
            Ok(text) => text,
            Err(e) => {
                let reason = match e.kind() {
                    std::io::ErrorKind::InvalidData => "it is not UTF-8".to_owned(),
                    _ => reason(&e),
                };
                let message = format!("cannot read it: {reason}");
                problems.push(Problem {
                    is_passing: is_passing(&e),
                    ..error_in(&shown, message)
                });
                return None;
            }
        };
        let root = match yaml::parse(&text) {
            // Nothing but comments: there are no keys yet.
            Ok(Value::Null) => Map::new(),
            Ok(Value::Object(root)) => root,
            Ok(other) => {
                let found = describe_value(&other);
                let message = format!("expected keys and values at the top, found {found}");
                problems.push(error_in(&shown, message));
                return None;
            }
            Err(error) => {
                problems.push(Problem {
                    line: error.place.map(|place| place.0),
                    column: error.place.and_then(|place| place.1),
                    ..error_in(&shown, error.message)
                });
                return None;
            }
        };
        Some(Self {
            path: path.to_owned(),
            shown,
            text,
            read_again: Cell::new(0),
            root,
        })
    }

    /// Sets keys otherwise than the file does. A key is dotted: `llm.temperature`; null takes it away.
    pub(crate) fn apply_settings(&mut self, set: &Map<String, Value>, problems: &mut Vec<Problem>) {
        for (key, value) in set {
            if let Err(message) = set_key(&mut self.root, key, value) {
                problems.push(error_in(&self.shown, message));
            }
        }
    }

    /// Gives diagnostics about a section of this document their lines.
    pub(crate) fn report_all(
        &self,
        below: &[Step],
        diagnostics: Vec<Diagnostic>,
        problems: &mut Vec<Problem>,
    ) {
        for diagnostic in diagnostics {
            let path = [below, &diagnostic.at].concat();
            let severity = if diagnostic.warning {
                Severity::Warning
            } else {
                Severity::Error
            };
            problems.push(self.problem_at(severity, &path, diagnostic.message));
        }
    }

    /// A line that is looked for; of many, only the first are found.
    fn line(&self, path: &[Step]) -> Option<usize> {
        let before = self.read_again.get();
        self.read_again.set(before + self.text.len());
        (before < REREAD_BYTES)
            .then(|| yaml::locate(&self.text, path))
            .flatten()
    }

    /// A problem at a section of this document.
    pub(crate) fn problem_at(
        &self,
        severity: Severity,
        path: &[Step],
        message: impl Into<String>,
    ) -> Problem {
        Problem {
            severity,
            line: self.line(path),
            ..error_in(&self.shown, message)
        }
    }
}

fn set_key(map: &mut Map<String, Value>, key: &str, value: &Value) -> Result<(), String> {
    let Some((first, rest)) = key.split_once('.') else {
        match value {
            Value::Null => map.shift_remove(key),
            value => map.insert(key.to_owned(), value.clone()),
        };
        return Ok(());
    };
    let below = map
        .entry(first)
        .or_insert_with(|| Value::Object(Map::new()));
    match below {
        Value::Object(below) => set_key(below, rest, value),
        other => Err(format!(
            "{first}: {} cannot have the key '{rest}'",
            describe_value(other)
        )),
    }
}

/// An error about a file as a whole.
pub(crate) fn error_in(shown: &str, message: impl Into<String>) -> Problem {
    Problem {
        severity: Severity::Error,
        file: shown.to_owned(),
        line: None,
        column: None,
        message: message.into(),
        is_passing: false,
    }
}
