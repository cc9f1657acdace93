//! The page's record of one event: its fields, from the journal's line and the records beside it.
//!
//! Unaware of other events, but for the questions that came before an answer.

use super::changes::{self, PayloadChange};
use super::flow_steps::Attempts;
use super::source::{SourceEvent, record_dir, size_in};
use super::writer::PageRecord;
use crate::engine::observation::read_ends_below;
use crate::record::attachments::read_list;
use crate::record::event::{ActionStatus, EventKind, FinishReason, FlowEvent, Line};
use crate::record::invocations;
use crate::record::network::traffic_in_words;
use crate::record::run_dir::RunDir;
use crate::record::state::decoded;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::view::shown_answers::{NOT_SHOWN, ShownAnswers};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::path::Path;

/// As much is shown of what a hook printed, on each stream.
const HOOK_OUTPUT: u64 = 4 << 10;

impl SourceEvent<'_> {
    /// Fills a record.
    pub(super) fn fill(
        &self,
        record: &mut PageRecord<'_>,
        answers: &mut ShownAnswers,
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
            .maybe("t", line.time().map(Timestamp::millis))
            .maybe("task", line.task_id.as_deref());
        match line.kind {
            EventKind::EngineStart => start(record, line, place),
            EventKind::UserMessage => {
                let attached = read_list(line.attachments);
                record
                    .text("text", &content(line.content), place)
                    .attachments(&attached, &run.path);
            }
            EventKind::Thought => thought(record, line, run, place),
            EventKind::ActionRequest => self.fill_request(record, place),
            EventKind::ActionResult => result(record, line, run, answers, place),
            EventKind::Acceptance => acceptance(record, line, run, place),
            EventKind::HumanInputRequest => question(record, line, answers, place),
            EventKind::HumanInputReceived => answer(record, line, answers, place),
            EventKind::SystemMessage => {
                record.maybe("level", line.level.as_deref()).text(
                    "text",
                    &content(line.content),
                    place,
                );
            }
            EventKind::ModelChanged => {
                let from = line.from.as_deref().unwrap_or_default();
                let why = line.why.as_deref().unwrap_or_default();
                let text = format!("{from} -> {}: {why}", line.changed_to());
                record.text("text", &text, place);
            }
            EventKind::ActionDeferred | EventKind::DeferredLook => {
                record.text("text", &line.deferral(), place);
            }
            EventKind::HookAudit => hook(record, line, run),
            EventKind::Compaction => {
                record.text("text", &line.compaction(), place);
                if let Some(summary) = &line.summary {
                    record.text("details", summary, place);
                }
            }
            EventKind::AttachmentsLeftOut => {
                record.text("text", &line.attachments_left_out(), place);
            }
            EventKind::Error if line.node_id.is_some() => {
                self.fill_node_end(record, attempts, place);
            }
            EventKind::Error => self.fill_error(record, place),
            EventKind::EngineEnd => end(record, line, place),
            EventKind::Flow(event) => self.fill_flow_event(event, record, attempts, place),
            EventKind::ActionCheck | EventKind::Evaluation(_) | EventKind::Unknown(_) => {
                self.fill_other(record, place);
            }
        }
    }

    fn fill_request(&self, record: &mut PageRecord<'_>, place: &str) {
        let line = self.line;
        let args = line.tool_args.map_or_else(String::new, pretty);
        let command = line.resolved_command.as_deref().unwrap_or_default();
        record
            .maybe("id", line.action_id.as_deref())
            .maybe("tool", line.tool_name.as_deref())
            .maybe("ref", line.execution_ref.as_deref())
            .text("asked", &self.tools.shown(line), place)
            .text("command", command, place)
            .text("args", &args, place);
    }

    fn fill_flow_event(
        &self,
        event: FlowEvent,
        record: &mut PageRecord<'_>,
        attempts: &mut Attempts,
        place: &str,
    ) {
        let line = self.line;
        match event {
            FlowEvent::FlowStart => {
                record.text("text", self.text, place);
            }
            FlowEvent::TaskCreated => self.fill_task(record, place),
            FlowEvent::NodeStart => self.fill_node_start(record, attempts, place),
            FlowEvent::NodeEnd => self.fill_node_end(record, attempts, place),
            FlowEvent::Route => {
                record
                    .maybe("node", line.node_id.as_deref())
                    .maybe("to", line.to);
            }
            FlowEvent::Merge => {
                record
                    .maybe("node", line.node_id.as_deref())
                    .maybe("arrived", line.arrived)
                    .maybe("failed", line.failed);
            }
            FlowEvent::Winner => {
                record
                    .maybe("node", line.node_id.as_deref())
                    .maybe("winner", line.winner.as_deref());
            }
            FlowEvent::Retry => {
                record.maybe("steps", line.steps);
            }
            FlowEvent::TaskEnd => self.fill_task_end(record, place),
            FlowEvent::Tool => self.fill_tool(record, place),
            FlowEvent::Policy | FlowEvent::Memory => self.fill_other(record, place),
        }
    }

    /// The line as it is.
    fn fill_other(&self, record: &mut PageRecord<'_>, place: &str) {
        record
            .put("type", self.line.kind.name())
            .text("text", self.text, place);
    }

    fn fill_error(&self, record: &mut PageRecord<'_>, place: &str) {
        let whole: Value = serde_json::from_str(self.text).unwrap_or_default();
        let details = whole.get("error_details").filter(|value| !value.is_null());
        let message = self.line.error_message.as_deref().unwrap_or_default();
        record.text("text", message, place);
        if let Some(details) = details {
            record.text("details", &indented(details), place);
        }
    }
}

fn question(record: &mut PageRecord<'_>, line: &Line<'_>, answers: &mut ShownAnswers, place: &str) {
    answers.note_question(line);
    let asked = line.prompt.as_deref().unwrap_or_default();
    record
        .maybe("id", line.action_id.as_deref())
        .text("text", asked, place);
}

fn answer(record: &mut PageRecord<'_>, line: &Line<'_>, answers: &ShownAnswers, place: &str) {
    if answers.has_answer(line) {
        record.text("text", line.response.as_deref().unwrap_or_default(), place);
    } else {
        record.put("secret", &true);
    }
}

/// The name of an event's record; none if it follows from another event.
pub(super) fn record_name(line: &Line<'_>) -> Option<&'static str> {
    Some(match line.kind {
        EventKind::EngineStart => "start",
        EventKind::UserMessage => "user",
        EventKind::Thought => "thought",
        EventKind::ActionRequest => "action",
        EventKind::ActionResult | EventKind::Acceptance => "result",
        EventKind::HumanInputRequest => "question",
        EventKind::HumanInputReceived => "answer",
        EventKind::SystemMessage
        | EventKind::Compaction
        | EventKind::ModelChanged
        | EventKind::ActionDeferred
        | EventKind::DeferredLook
        | EventKind::AttachmentsLeftOut => "note",
        EventKind::HookAudit => "hook",
        EventKind::Error if line.node_id.is_some() => "retry",
        EventKind::Error => "error",
        EventKind::EngineEnd => "end",
        EventKind::Flow(event) => match event {
            FlowEvent::FlowStart => "flow",
            FlowEvent::TaskCreated => "task",
            FlowEvent::NodeStart => "node",
            FlowEvent::NodeEnd => "node end",
            FlowEvent::Route => "route",
            FlowEvent::Merge => "merge",
            FlowEvent::Winner => "winner",
            FlowEvent::Retry => "retry of",
            FlowEvent::TaskEnd => "task end",
            FlowEvent::Tool => "tool",
            FlowEvent::Memory => return None,
            FlowEvent::Policy => "other",
        },
        EventKind::ActionCheck | EventKind::Evaluation(_) | EventKind::Unknown(_) => "other",
    })
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

fn start(record: &mut PageRecord<'_>, line: &Line<'_>, place: &str) {
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

fn thought(record: &mut PageRecord<'_>, line: &Line<'_>, run: &RunDir, place: &str) {
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
        .maybe(
            "finish",
            line.finish_reason.as_ref().map(FinishReason::name),
        )
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
    let calls = line.calls();
    let invalid: Value = line
        .invalid_arguments
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    if calls.is_empty() {
        return;
    }
    let mut sent_calls = String::new();
    for call in &calls {
        let arguments = || decoded(call.function.arguments.map_or("null", RawValue::get));
        let sent = invalid[&*call.id].as_str().map(Cow::Borrowed);
        let sent = sent.unwrap_or_else(arguments);
        sent_calls.push_str(&format!("{} {sent}\n", call.function.name));
    }
    let names: Vec<&str> = calls.iter().map(|call| &*call.function.name).collect();
    record
        .put("calls", &names)
        .text("sent", sent_calls.trim_end(), place);
}

fn end(record: &mut PageRecord<'_>, line: &Line<'_>, place: &str) {
    record
        .maybe("status", line.status.as_deref())
        .maybe("reason", line.stop_reason.as_deref())
        .maybe("code", line.exit_code)
        .text("text", line.error.as_deref().unwrap_or_default(), place);
}

fn result(
    record: &mut PageRecord<'_>,
    line: &Line<'_>,
    run: &RunDir,
    answers: &ShownAnswers,
    place: &str,
) {
    let dir = record_dir(run, line.execution_ref.as_deref());
    let size = |name: &str| size_in(dir.as_ref()?, name);
    record
        .maybe("id", line.action_id.as_deref())
        .maybe("tool", line.tool_name.as_deref())
        .maybe("status", line.status.as_deref())
        .maybe("code", line.exit_code)
        .maybe("d", line.duration_ms)
        .maybe("ref", line.execution_ref.as_deref())
        .maybe("stdout", size("stdout.log"))
        .maybe("stderr", size("stderr.log"));
    let hosts = traffic_in_words(&run.path, line.execution_ref.as_deref());
    record.text("network", &hosts, place);
    if answers.has_result(line) {
        record
            .text("text", &content(line.observation_content), place)
            .attachments(&read_list(line.attachments), &run.path);
    } else {
        record.put("secret", &true).put("text", NOT_SHOWN);
    }
}

/// A check of a final answer, as the result of a tool without arguments.
fn acceptance(record: &mut PageRecord<'_>, line: &Line<'_>, run: &RunDir, place: &str) {
    let dir = record_dir(run, line.execution_ref.as_deref());
    let size = |name: &str| size_in(dir.as_ref()?, name);
    let is_good = line.exit_code == Some(0);
    let what = line.what.as_deref().unwrap_or("?");
    let said = content(line.content);
    record
        .put("tool", "accept")
        .put("status", ActionStatus::of(is_good).name())
        .maybe("code", line.exit_code)
        .maybe("d", line.duration_ms)
        .maybe("ref", line.execution_ref.as_deref())
        .maybe("stdout", size("stdout.log"))
        .maybe("stderr", size("stderr.log"))
        .text("text", format!("{what}\n\n{said}").trim_end(), place);
}

fn hook(record: &mut PageRecord<'_>, line: &Line<'_>, run: &RunDir) {
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
    let line_of =
        |name: &str| files::read_line_below(&dir, &Path::new("execution_meta").join(name));
    let number = |name: &str| line_of(name)?.trim().parse::<u64>().ok();
    record
        .maybe("d", number("duration_ms.txt"))
        .maybe("code", number("exit_code.txt"))
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
    match changes::of(&dir, name) {
        PayloadChange::None => {}
        PayloadChange::Lines(lines) => {
            record.text("diff", &lines, reference);
        }
        PayloadChange::TooLarge => {
            record.put("large", &true);
        }
    }
}
