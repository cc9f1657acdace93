//! Changes of files in this start: those that tools of kind `edit` report are shown with their results; listed at the end are
//! they, or the differences of states.

use super::open_call::OpenCall;
use super::{Engine, tool_named};
use crate::config::tool::bind::BoundCall;
use crate::config::tool::definition::Tool;
use crate::record::event::{ChangedFile, FileChange};
use crate::text::disguise::printable_line;
use crate::text::json;
use crate::text::shorten::{cut_to_columns, list_names};
use crate::unix::terminal::Tone;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Lines of a diff that are shown without `-v`, and the columns of each.
const SHOWN: usize = 40;
const COLUMNS: usize = 200;

/// The changes by path.
#[derive(Debug, Default)]
pub(super) struct ChangedFiles(BTreeMap<String, Change>);

#[derive(Clone, Copy, Debug, Default)]
struct Change {
    is_new: bool,
    is_gone: bool,
    added: usize,
    removed: usize,
    /// The diff was not whole.
    is_cut: bool,
}

impl Change {
    fn add(&mut self, result: &str) {
        self.is_new |= result.starts_with("created ");
        for line in diff_lines(result) {
            match line.as_bytes().first() {
                Some(b'+') => self.added += 1,
                Some(b'-') => self.removed += 1,
                Some(b'[') => self.is_cut = true,
                _ => {}
            }
        }
    }

    fn described(self, path: &str) -> String {
        let path = printable_line(path);
        if self.is_gone {
            format!("{path} removed")
        } else if self.is_new {
            format!("{path} new")
        } else if self.is_cut || self.added + self.removed == 0 {
            path
        } else {
            format!("{path} +{} -{}", self.added, self.removed)
        }
    }
}

impl ChangedFiles {
    /// Replaces what is known of files that tools have changed by their differences in all.
    pub(super) fn set(&mut self, files: &[ChangedFile], in_all: &[ChangedFile]) {
        for file in files {
            self.0.remove(&file.path);
        }
        for file in in_all {
            let change = Change {
                is_new: file.change == Some(FileChange::New),
                is_gone: file.change == Some(FileChange::Removed),
                added: file.added.unwrap_or_default() as usize,
                removed: file.removed.unwrap_or_default() as usize,
                is_cut: file.added.is_none(),
            };
            self.0.insert(file.path.clone(), change);
        }
    }

    /// `calc.py +3 -1, test_calc.py new`; empty if nothing has changed.
    pub(super) fn listed(&self) -> String {
        list_names(self.0.iter().map(|(path, change)| change.described(path)))
    }
}

/// The lines of the unified diff in a result.
pub(crate) fn diff_lines(result: &str) -> impl Iterator<Item = &str> {
    result.lines().skip_while(|line| !line.starts_with("@@ "))
}

/// The tool of a call that changes files.
fn editing_tool<'e>(engine: &Engine<'e>, call: &OpenCall) -> Option<&'e Tool> {
    let tool = tool_named(engine.ctx.agent, &call.name);
    tool.filter(|tool| tool.kind.as_deref() == Some("edit"))
}

/// What a result says before the diff that `note_change` shows.
pub(super) fn before_diff<'r>(engine: &Engine<'_>, call: &OpenCall, result: &'r str) -> &'r str {
    match result.split_once("\n@@ ") {
        Some((before, _)) if editing_tool(engine, call).is_some() => before,
        _ => result,
    }
}

/// Shows the line of a result that says why the call has failed: the last one, but of an edit the first. Those in brackets
/// are the engine's.
pub(super) fn print_reason(engine: &Engine<'_>, call: &OpenCall, result: &str) {
    let mut lines = result
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('['));
    let line = match editing_tool(engine, call) {
        Some(_) => lines.next(),
        None => lines.next_back(),
    };
    if let Some(line) = line.filter(|_| !engine.log.screen.verbose) {
        engine
            .log
            .print_below(Tone::Dim, &cut_to_columns(line, COLUMNS));
    }
}

/// Takes note of the result of a call that has succeeded, and shows its diff.
pub(super) fn note_change(engine: &mut Engine<'_>, call: &OpenCall, result: &str) {
    let Some(tool) = editing_tool(engine, call) else {
        return;
    };
    let says_so = ["created ", "edited ", "replaced "];
    let arguments: Map<String, Value> = json::read_or_default(call.arguments().as_bytes());
    let path = tool
        .path
        .as_ref()
        .and_then(|name| arguments.get(name)?.as_str());
    if let Some(path) = path.filter(|_| says_so.iter().any(|word| result.starts_with(word))) {
        engine
            .changed
            .0
            .entry(plain_path(&engine.ctx.workspace.root, path))
            .or_default()
            .add(result);
    }
    print_diff(engine, result);
}

/// A path of a file as it is listed, however the model has written it.
fn plain_path(root: &Path, path: &str) -> String {
    let below = Path::new(path).strip_prefix(root);
    let parts = below.unwrap_or(Path::new(path)).components();
    let plain: PathBuf = parts.filter(|it| *it != Component::CurDir).collect();
    plain.to_string_lossy().into_owned()
}

/// Shows a person who is asked about a call the diff that it would make, without secrets.
pub(super) fn preview_change(engine: &Engine<'_>, tool: &Tool, bound: &BoundCall) {
    let is_edit = tool.kind.as_deref() == Some("edit") && !engine.log.screen.quiet;
    let Some(preview) = engine.options.preview.filter(|_| is_edit) else {
        return;
    };
    let stdin = bound.stdin.as_deref().unwrap_or_default();
    if let Some(mut diff) = preview(&bound.argv, stdin, &engine.ctx.workspace.root) {
        for secret in engine.ctx.environment.secrets() {
            secret.redact_text(&mut diff);
        }
        print_diff(engine, &diff);
    }
}

fn print_diff(engine: &Engine<'_>, text: &str) {
    let log = &engine.log;
    let (shown, columns) = if log.screen.verbose {
        (usize::MAX, usize::MAX)
    } else {
        (SHOWN, COLUMNS)
    };
    let lines: Vec<&str> = diff_lines(text).collect();
    for line in lines.iter().take(shown) {
        let tone = match line.as_bytes().first() {
            Some(b'+') => Tone::Good,
            Some(b'-') => Tone::Removed,
            _ => Tone::Dim,
        };
        log.print_below(tone, &cut_to_columns(line, columns));
    }
    if lines.len() > shown {
        let more = match lines.last().and_then(|line| lines_left_out(line)) {
            Some(left_out) => (lines.len() - 1 - shown).saturating_add(left_out),
            None => lines.len() - shown,
        };
        log.print_below(Tone::Dim, &format!("… {more} more lines"));
    }
}

/// The number of lines that the tool itself left out, by the last line of its diff.
fn lines_left_out(line: &str) -> Option<usize> {
    let number = line.strip_prefix("[… ")?;
    number
        .strip_suffix(" more lines of the diff …]")?
        .parse()
        .ok()
}
