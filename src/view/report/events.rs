//! The page's record of one event: the members of its line in the journal, and facts from the records beside that.
//!
//! Unaware of other events, but for the questions that came before an answer. The input of an attempt at a node is
//! shown at its beginning, the output at its end, from the records in the attempt's directory.

use super::changes::{self, PayloadChange};
use super::writer::PageRecord;
use crate::engine::observation::read_ends_below;
use crate::engine::run_loop::diff_lines;
use crate::record::event::recorded::{HookAudit, Thought};
use crate::record::event::{Line, Recorded, Text};
use crate::record::history::{History, NOT_SHOWN};
use crate::record::invocations::{self, began};
use crate::record::network::traffic_in_words;
use crate::record::run_dir::RunDir;
use crate::text::names::last_part;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// As much is shown of what a hook printed, on each stream.
const HOOK_OUTPUT: u64 = 4 << 10;

/// Attempts that have not ended, by task and node: their directories, from the run's directory.
pub(super) type Attempts = BTreeMap<(String, String), String>;

/// An event and the run that it is of.
pub(super) struct SourceEvent<'e> {
    pub run: &'e RunDir,
    pub line: &'e Line<'e>,
    pub history: &'e History,
}

impl SourceEvent<'_> {
    /// Fills a record.
    pub(super) fn fill(&self, record: &mut PageRecord<'_>, attempts: &mut Attempts) {
        let (run, line) = (self.run, self.line);
        let place = match line.seq {
            Some(seq) => format!("journal.jsonl, seq {seq}"),
            None => "journal.jsonl".to_owned(),
        };
        let place = place.as_str();
        let secret = self.secret();
        record.members(line, secret.map(|(name, _)| name), place);
        if let Some((name, shown)) = secret {
            record.put("secret", &true).maybe(name, shown);
        }
        let reference = line.execution_ref.get();
        match &line.event {
            Recorded::EngineStart(start) => {
                let config = start.config();
                record
                    .maybe("agent", config.get("name").read::<String>())
                    .maybe("model", config.model());
            }
            Recorded::UserMessage(_) => record.attachments(&line.attachments(), &run.path),
            Recorded::Thought(event) => self.fill_thought(event, record, place),
            Recorded::ActionRequest(request) => {
                record.text("asked", &self.history.asked(request), place);
            }
            Recorded::ActionResult(result) => {
                let tool = self.history.tool(&result.tool_name);
                let is_edit = tool.is_some_and(|tool| tool.kind.as_deref() == Some("edit"));
                if is_edit && result.is_success() {
                    let text = result.observation_content.text();
                    let lines: Vec<&str> = diff_lines(&text).collect();
                    record.text("diff", &lines.join("\n"), place);
                }
                self.sizes(record, reference, &["stdout", "stderr"]);
                record.text("network", &traffic_in_words(&run.path, reference), place);
                if secret.is_none() {
                    record.attachments(&line.attachments(), &run.path);
                }
            }
            Recorded::Acceptance(_) => self.sizes(record, reference, &["stdout", "stderr"]),
            Recorded::HookAudit(event) => self.fill_hook(event, record),
            Recorded::TaskCreated(task) => self.payload(record, "input", &task.input_ref),
            Recorded::NodeStart(_) => {
                if let (Some(key), Some(reference)) = (line.step(), line.execution_ref.owned()) {
                    attempts.insert(key, reference);
                }
                self.file(record, "input", reference, "input.json");
                self.file(record, "context", reference, "context.json");
            }
            Recorded::NodeEnd(end) => {
                self.payload(record, "output", &end.output_ref);
                self.fill_attempt_end(record, attempts);
            }
            Recorded::Error(_) => self.fill_attempt_end(record, attempts),
            Recorded::Tool(_) => {
                record.text("network", &traffic_in_words(&run.path, reference), place);
                self.file(record, "args", reference, "input.json");
                self.file(record, "stdout", reference, "stdout.log");
                self.file(record, "stderr", reference, "stderr.log");
            }
            _ => {
                record.text("words", &line.note().unwrap_or_default(), place);
            }
        }
    }

    /// The member with an answer of a person that is not shown, and what is shown in its place.
    fn secret(&self) -> Option<(&'static str, Option<&'static str>)> {
        match &self.line.event {
            Recorded::ActionResult(result) if !self.history.is_shown(self.line, result) => {
                Some(("observation_content", Some(NOT_SHOWN)))
            }
            Recorded::HumanInputReceived(answer) if self.history.answer(answer).is_none() => {
                Some(("response", None))
            }
            _ => None,
        }
    }

    fn fill_thought(&self, event: &Thought<'_>, record: &mut PageRecord<'_>, place: &str) {
        let reference = event.llm_invocation_ref.get();
        let known = reference.filter(|it| is_record(it)).and_then(|reference| {
            // Reading follows no link.
            invocations::metadata(&self.run.path.join(reference))
        });
        if let Some(known) = known {
            let usage = known.token_usage.as_ref();
            record
                .put("took", &known.duration_ms)
                .put("attempts", &known.attempts.len())
                .maybe("cached", usage.and_then(|usage| usage.cached));
        }
        let began = reference.map(name_of).and_then(began);
        record.maybe("began", began.map(Timestamp::millis));
        let calls = event.calls();
        if calls.is_empty() {
            return;
        }
        let invalid: BTreeMap<String, String> = event.invalid_arguments.read_or_default();
        let sent: Vec<String> = calls
            .iter()
            .map(|call| {
                let unread = invalid.get(&*call.id).map(|text| text.as_str().into());
                let sent = unread.unwrap_or_else(|| call.function.sent());
                format!("{} {sent}", call.function.name)
            })
            .collect();
        let names: Vec<&str> = calls.iter().map(|call| &*call.function.name).collect();
        record
            .put("calls", &names)
            .text("sent", sent.join("\n").trim_end(), place);
    }

    fn fill_hook(&self, event: &HookAudit<'_>, record: &mut PageRecord<'_>) {
        let reference = event.io_path_ref.trim_end_matches('/');
        let Some(dir) = record_dir(self.run, Some(reference)) else {
            return;
        };
        let line_of =
            |name: &str| files::read_line_below(&dir, &Path::new("execution_meta").join(name));
        let number = |name: &str| line_of(name)?.trim().parse::<u64>().ok();
        record
            .maybe("took", number("duration_ms.txt"))
            .maybe("exit_code", number("exit_code.txt"))
            .maybe("command", line_of("command.txt"));
        let text_of = |name: &str| {
            let ends = read_ends_below(&dir, Path::new(name), HOOK_OUTPUT, &[]);
            ends.map_or_else(|_| String::new(), |ends| ends.text())
        };
        for stream in ["stdout", "stderr"] {
            let path = format!("execution_meta/{stream}.log");
            record.text(stream, &text_of(&path), reference);
        }
        record.text("control", &text_of("output/control.json"), reference);
        match changes::of(&dir, event.hook_name.get().unwrap_or("?")) {
            PayloadChange::None => {}
            PayloadChange::Lines(lines) => {
                record.text("diff", &lines, reference);
            }
            PayloadChange::TooLarge => {
                record.put("large", &true);
            }
        }
    }

    /// The output of an attempt at a node, whether another one follows or not.
    fn fill_attempt_end(&self, record: &mut PageRecord<'_>, attempts: &mut Attempts) {
        if let Some(reference) = self.line.step().and_then(|key| attempts.remove(&key)) {
            self.fill_output(record, &reference);
        }
    }

    /// The output of an attempt's program.
    pub(super) fn fill_output(&self, record: &mut PageRecord<'_>, reference: &str) {
        self.file(record, "stderr", Some(reference), "stderr.log");
        self.sizes(record, Some(reference), &["stdout"]);
    }

    fn sizes(&self, record: &mut PageRecord<'_>, reference: Option<&str>, streams: &[&str]) {
        let Some(dir) = record_dir(self.run, reference) else {
            return;
        };
        for stream in streams {
            let file = files::open_below(&dir, Path::new(&format!("{stream}.log")));
            let size = file.and_then(|file| Ok(file.metadata()?.len())).ok();
            record.maybe(&format!("{stream}_bytes"), size);
        }
    }

    fn file(&self, record: &mut PageRecord<'_>, key: &str, reference: Option<&str>, name: &str) {
        if let Some(dir) = record_dir(self.run, reference) {
            record.file(key, &dir, name);
        }
    }

    /// A JSON value in a file that the line names.
    fn payload(&self, record: &mut PageRecord<'_>, key: &str, file: &Text<'_>) {
        if let Some((dir, name)) = file.rsplit_once('/') {
            self.file(record, key, Some(dir), name);
        }
    }
}

/// A directory of records that the journal names, if it lies where records do and no link leads to it.
fn record_dir(run: &RunDir, reference: Option<&str>) -> Option<PathBuf> {
    let reference = Path::new(reference?);
    let is_there = reference.starts_with("io") && files::is_dir_below(&run.path, reference);
    is_there.then(|| run.path.join(reference))
}

/// True for the path of an invocation from the run's directory.
fn is_record(reference: &str) -> bool {
    let path = Path::new(reference);
    let is_name = |part| matches!(part, Component::Normal(_));
    path.starts_with("io") && path.components().count() == 3 && path.components().all(is_name)
}

pub(super) fn name_of(reference: &str) -> &str {
    last_part(reference.trim_end_matches('/'), '/')
}
