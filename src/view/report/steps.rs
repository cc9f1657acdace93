//! What the page tells of the events that only a flow's run has: tasks, nodes, ways, merges, calls of tools.
//!
//! Unaware of how a task goes on. What an attempt at a node was given is told at its beginning, what it
//! made of it at its end, from the records that the attempt's directory has.

use super::events::{About, record_dir};
use super::writer::Record;
use crate::record::event::Line;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Attempts that have not ended, by task and node: their directories, from the run's directory.
pub(super) type Attempts = BTreeMap<(String, String), String>;

/// What a record of such an event is called; none of another event.
pub(super) fn kind(line: &Line<'_>) -> Option<&'static str> {
    Some(match &*line.kind {
        "FLOW_START" => "flow",
        "TASK_CREATED" => "task",
        "NODE_START" => "node",
        "NODE_END" => "node end",
        "ERROR" if line.node_id.is_some() => "retry",
        "ROUTE" => "route",
        "MERGE" => "merge",
        "TOOL" => "tool",
        "TASK_END" => "task end",
        _ => return None,
    })
}

impl About<'_> {
    /// Fills the record of such an event.
    pub(super) fn fill_step(&self, record: &mut Record<'_>, attempts: &mut Attempts, place: &str) {
        let line = self.line;
        record.maybe("node", line.node_id.as_deref());
        match &*line.kind {
            "FLOW_START" => {
                record.text("text", self.text, place);
            }
            "TASK_CREATED" => {
                record
                    .maybe("parent", line.parent_id.as_deref())
                    .maybe("edge", line.edge.as_deref());
                self.value(record, "input", line.input, line.input_ref.as_ref(), place);
            }
            "NODE_START" => self.node_start(record, attempts, place),
            "NODE_END" | "ERROR" => {
                let key = line.step();
                let reference = key.and_then(|key| attempts.remove(&key));
                self.node_end(record, reference.as_deref(), place);
            }
            "ROUTE" => {
                record.maybe("to", line.to);
            }
            "MERGE" => {
                record
                    .maybe("arrived", line.arrived)
                    .maybe("failed", line.failed);
            }
            "TOOL" => self.tool(record, place),
            _ => {
                record
                    .maybe("status", line.status.as_deref())
                    .maybe("exit", line.exit_node.as_deref())
                    .maybe("merged", line.merged_at.as_deref());
                self.why(record, place);
            }
        }
    }

    /// What an attempt without an end has said so far.
    pub(super) fn fill_so_far(
        &self,
        record: &mut Record<'_>,
        key: &(String, String),
        reference: &str,
    ) {
        record.put("task", &key.0).put("node", &key.1);
        self.said(record, Some(reference));
    }

    fn node_start(&self, record: &mut Record<'_>, attempts: &mut Attempts, place: &str) {
        let line = self.line;
        let reference = line.execution_ref.as_deref();
        if let (Some(key), Some(reference)) = (line.step(), reference) {
            attempts.insert(key, reference.to_owned());
        }
        record
            .maybe("attempt", line.attempt)
            .maybe("call", line.call_id.as_deref())
            .maybe("ref", reference)
            .text(
                "command",
                line.resolved_command.as_deref().unwrap_or_default(),
                place,
            );
        self.file(record, "input", reference, "input.json");
        self.file(record, "context", reference, "context.json");
    }

    fn node_end(&self, record: &mut Record<'_>, reference: Option<&str>, place: &str) {
        let line = self.line;
        record
            .maybe("status", line.status.as_deref())
            .maybe("d", line.duration_ms)
            .maybe("cpu", line.cpu_ms)
            .maybe("memory", line.memory_bytes)
            .maybe("cached", line.cached);
        self.value(
            record,
            "output",
            line.output,
            line.output_ref.as_ref(),
            place,
        );
        self.why(record, place);
        self.said(record, reference);
    }

    fn tool(&self, record: &mut Record<'_>, place: &str) {
        let line = self.line;
        let reference = line.execution_ref.as_deref();
        record
            .maybe("tool", line.tool_name.as_deref())
            .maybe("status", line.status.as_deref())
            .maybe("exit", line.exit_code)
            .maybe("d", line.duration_ms)
            .maybe("ref", reference)
            .text(
                "command",
                line.resolved_command.as_deref().unwrap_or_default(),
                place,
            );
        self.why(record, place);
        self.file(record, "args", reference, "input.json");
        self.file(record, "stdout", reference, "stdout.log");
        self.file(record, "stderr", reference, "stderr.log");
    }

    /// Why something is no success.
    fn why(&self, record: &mut Record<'_>, place: &str) {
        let message = self.line.message.as_deref().unwrap_or_default();
        record
            .maybe("why", self.line.code.as_deref())
            .text("text", message, place);
    }

    /// What the program of an attempt has said.
    fn said(&self, record: &mut Record<'_>, reference: Option<&str>) {
        self.file(record, "stderr", reference, "stderr.log");
        let printed = record_dir(self.run, reference).map(|dir| dir.join("stdout.log"));
        let printed = printed.and_then(|path| Some(path.metadata().ok()?.len()));
        record.maybe("stdout", printed);
    }

    fn file(&self, record: &mut Record<'_>, key: &str, reference: Option<&str>, name: &str) {
        if let Some(dir) = record_dir(self.run, reference) {
            record.file(key, &dir.join(name));
        }
    }

    /// A JSON value that stands in the journal, or in a file that it names.
    fn value(
        &self,
        record: &mut Record<'_>,
        key: &str,
        json: Option<&RawValue>,
        file: Option<&Cow<'_, str>>,
        place: &str,
    ) {
        if let Some(json) = json {
            record.text(key, json.get(), place);
        } else if let Some(path) = record_dir(self.run, file.map(|name| &**name)) {
            record.file(key, &path);
        }
    }
}
