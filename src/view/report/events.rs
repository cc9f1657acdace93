//! What the page tells of one event: the fields of its record, from the journal's line and the records
//! beside it.
//!
//! Unaware of other events, but for the questions that came before an answer.

use super::changes::{self, Change};
use super::steps::{self, Attempts};
use super::writer::Record;
use crate::engine::observation::read_ends;
use crate::record::event::Line;
use crate::record::invocations;
use crate::record::run_dir::RunDir;
use crate::record::state::decoded;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// As much is shown of what a hook printed, on each stream.
const HOOK_OUTPUT: u64 = 4 << 10;

/// An event, and the run that it is of.
pub(super) struct About<'e> {
    pub(super) run: &'e RunDir,
    pub(super) line: &'e Line<'e>,
    /// The line as it stands in the journal.
    pub(super) text: &'e str,
}

#[derive(Deserialize)]
struct Call {
    #[serde(default)]
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    arguments: Value,
}

impl About<'_> {
    /// Fills a record. `harmless` are the questions whose answers may be shown, by id.
    pub(super) fn fill(
        &self,
        record: &mut Record<'_>,
        harmless: &mut HashSet<String>,
        attempts: &mut Attempts,
    ) {
        let (run, line) = (self.run, self.line);
        let place = match line.seq {
            Some(seq) => format!("journal.jsonl, seq {seq}"),
            None => "journal.jsonl".to_owned(),
        };
        let place = place.as_str();
        record
            .maybe("i", line.iteration)
            .maybe("t", at(line).map(Timestamp::millis))
            .maybe("task", line.task_id.as_deref());
        if steps::kind(line).is_some() {
            return self.fill_step(record, attempts, place);
        }
        match &*line.kind {
            "ENGINE_START" => start(record, line, place),
            "USER_MESSAGE" => {
                record.text("text", &content(line.content), place);
            }
            "THOUGHT" => thought(record, line, run, place),
            "ACTION_REQUEST" => {
                let args = line.tool_args.map_or_else(String::new, pretty);
                let command = line.resolved_command.as_deref().unwrap_or_default();
                record
                    .maybe("id", line.action_id.as_deref())
                    .maybe("tool", line.tool_name.as_deref())
                    .maybe("ref", line.execution_ref.as_deref())
                    .text("command", command, place)
                    .text("args", &args, place);
            }
            "ACTION_RESULT" => result(record, line, run, place),
            "HOOK_EXECUTION_AUDIT" => hook(record, line, run),
            _ => self.fill_rare(record, harmless, place),
        }
    }

    fn fill_rare(&self, record: &mut Record<'_>, harmless: &mut HashSet<String>, place: &str) {
        let line = self.line;
        match &*line.kind {
            "HUMAN_INPUT_REQUEST" => {
                let secret =
                    line.sensitive != Some(false) || line.input_type.as_deref() == Some("password");
                let id = line.request_id.as_deref().unwrap_or_default();
                if !secret {
                    harmless.insert(id.to_owned());
                }
                let asked = line.prompt.as_deref().unwrap_or_default();
                record
                    .maybe("id", line.action_id.as_deref())
                    .text("text", asked, place);
            }
            "HUMAN_INPUT_RECEIVED" => {
                let id = line.request_id.as_deref().unwrap_or_default();
                if harmless.contains(id) {
                    let answer = line.response.as_deref().unwrap_or_default();
                    record.text("text", answer, place);
                } else {
                    record.put("secret", &true);
                }
            }
            "SYSTEM_MESSAGE" => {
                record.maybe("level", line.level.as_deref()).text(
                    "text",
                    &content(line.content),
                    place,
                );
            }
            "ERROR" => {
                let whole: Value = serde_json::from_str(self.text).unwrap_or_default();
                let details = whole.get("error_details").filter(|value| !value.is_null());
                let message = line.error_message.as_deref().unwrap_or_default();
                record.text("text", message, place);
                if let Some(details) = details {
                    record.text("details", &indented(details), place);
                }
            }
            "ENGINE_END" => {
                record
                    .maybe("status", line.status.as_deref())
                    .maybe("reason", line.stop_reason.as_deref())
                    .maybe("code", line.exit_code)
                    .text("text", line.error.as_deref().unwrap_or_default(), place);
            }
            other => {
                record.put("type", other).text("text", self.text, place);
            }
        }
    }
}

/// What a record is called.
pub(super) fn kind(line: &Line<'_>) -> &'static str {
    if let Some(kind) = steps::kind(line) {
        return kind;
    }
    match &*line.kind {
        "ENGINE_START" => "start",
        "USER_MESSAGE" => "user",
        "THOUGHT" => "thought",
        "ACTION_REQUEST" => "action",
        "ACTION_RESULT" => "result",
        "HUMAN_INPUT_REQUEST" => "question",
        "HUMAN_INPUT_RECEIVED" => "answer",
        "SYSTEM_MESSAGE" => "note",
        "HOOK_EXECUTION_AUDIT" => "hook",
        "ERROR" => "error",
        "ENGINE_END" => "end",
        _ => "other",
    }
}

pub(super) fn at(line: &Line<'_>) -> Option<Timestamp> {
    line.timestamp.as_deref().and_then(Timestamp::parse)
}

fn content(raw: Option<&RawValue>) -> String {
    raw.map_or_else(String::new, |raw| match raw.get() {
        "null" => String::new(),
        json => decoded(json).into_owned(),
    })
}

/// JSON on several lines.
fn pretty(raw: &RawValue) -> String {
    let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    indented(&value)
}

fn indented(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

pub(super) fn name_of(reference: &str) -> &str {
    let reference = reference.trim_end_matches('/');
    reference.rsplit('/').next().unwrap_or_default()
}

/// When an invocation began, as its name says.
pub(super) fn began(name: &str) -> Option<Timestamp> {
    Timestamp::parse_compact(name.split('_').next()?)
}

/// A directory of records that the journal names, if it lies where records do.
pub(super) fn record_dir(run: &RunDir, reference: Option<&str>) -> Option<PathBuf> {
    let reference = Path::new(reference?);
    let is_below =
        reference.starts_with("io") && reference.components().all(|part| part.as_os_str() != "..");
    is_below.then(|| run.path.join(reference))
}

fn start(record: &mut Record<'_>, line: &Line<'_>, place: &str) {
    let config: Value = line
        .config
        .and_then(|config| serde_json::from_str(config.get()).ok())
        .unwrap_or_default();
    let model = config["llm"]["model"]
        .as_str()
        .or_else(|| config["llm"]["command"][0].as_str());
    record
        .maybe("run", line.run_id.as_deref())
        .maybe("agent", config["name"].as_str())
        .maybe("model", model)
        .maybe("home", line.agent_home.as_deref())
        .maybe("place", line.work_dir.as_deref())
        .maybe("host", line.hostname.as_deref())
        .maybe("resumed", line.resumed)
        .maybe("forked_from", line.forked_from.as_ref())
        .maybe("set", line.set.as_ref());
    if !config.is_null() {
        record.text("config", &indented(&config), place);
    }
}

fn thought(record: &mut Record<'_>, line: &Line<'_>, run: &RunDir, place: &str) {
    let dir = record_dir(run, line.llm_invocation_ref.as_deref());
    let known = dir.as_deref().and_then(invocations::metadata);
    let cached = known
        .as_ref()
        .and_then(|known| known.token_usage.as_ref()?.cached);
    let name = line.llm_invocation_ref.as_deref().map(name_of);
    record
        .maybe("s", name.and_then(began).map(Timestamp::millis))
        .maybe("d", known.as_ref().map(|known| known.duration_ms))
        .maybe("attempts", known.as_ref().map(|known| known.attempts.len()))
        .maybe("in", line.usage.map(|usage| usage.prompt_tokens))
        .maybe("out", line.usage.map(|usage| usage.completion_tokens))
        .maybe("cached", cached)
        .maybe("finish", line.finish_reason.as_deref())
        .maybe("ref", line.llm_invocation_ref.as_deref())
        .text("text", &content(line.content), place);
    let reasoning: Vec<String> = line
        .reasoning_fields()
        .into_iter()
        .map(|(_, value)| match value.get() {
            text if text.starts_with('"') => decoded(text).into_owned(),
            _ => pretty(value),
        })
        .collect();
    record.text("reasoning", &reasoning.join("\n\n"), place);
    let calls: Vec<Call> = line
        .tool_calls
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    let invalid: Value = line
        .invalid_arguments
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    if calls.is_empty() {
        return;
    }
    let mut told = String::new();
    for call in &calls {
        let sent = invalid[&call.id]
            .as_str()
            .or(call.function.arguments.as_str());
        let sent = sent.map_or_else(|| call.function.arguments.to_string(), str::to_owned);
        told.push_str(&format!("{} {sent}\n", call.function.name));
    }
    let names: Vec<&str> = calls.iter().map(|call| &*call.function.name).collect();
    record
        .put("calls", &names)
        .text("sent", told.trim_end(), place);
}

fn result(record: &mut Record<'_>, line: &Line<'_>, run: &RunDir, place: &str) {
    let dir = record_dir(run, line.execution_ref.as_deref());
    let size = |name: &str| Some(dir.as_ref()?.join(name).metadata().ok()?.len());
    record
        .maybe("id", line.action_id.as_deref())
        .maybe("tool", line.tool_name.as_deref())
        .maybe("status", line.status.as_deref())
        .maybe("code", line.exit_code)
        .maybe("d", line.duration_ms)
        .maybe("ref", line.execution_ref.as_deref())
        .maybe("stdout", size("stdout.log"))
        .maybe("stderr", size("stderr.log"))
        .text("text", &content(line.observation_content), place);
}

fn hook(record: &mut Record<'_>, line: &Line<'_>, run: &RunDir) {
    let name = line.hook_name.as_deref().unwrap_or("?");
    let reference = line.io_path_ref.as_deref().filter(|name| !name.is_empty());
    record
        .put("name", name)
        .maybe("status", line.status.as_deref())
        .maybe("ref", reference);
    let (Some(dir), Some(reference)) = (record_dir(run, reference), reference) else {
        return;
    };
    let reference = reference.trim_end_matches('/');
    let line_of = |name: &str| files::read_line(&dir.join("execution_meta").join(name));
    let number = |name: &str| line_of(name)?.trim().parse::<u64>().ok();
    record
        .maybe("d", number("duration_ms.txt"))
        .maybe("code", number("exit_code.txt"))
        .maybe("command", line_of("command.txt"));
    for stream in ["stdout", "stderr"] {
        let path = dir.join(format!("execution_meta/{stream}.log"));
        let text = read_ends(&path, HOOK_OUTPUT).map_or_else(|_| String::new(), |ends| ends.text());
        record.text(stream, &text, reference);
    }
    let control = read_ends(&dir.join("output/control.json"), HOOK_OUTPUT);
    record.text(
        "control",
        &control.map_or_else(|_| String::new(), |ends| ends.text()),
        reference,
    );
    match changes::of(&dir, name) {
        Change::None => {}
        Change::Lines(lines) => {
            record.text("diff", &lines, reference);
        }
        Change::TooLarge => {
            record.put("large", &true);
        }
    }
}
