//! The page's records of the events that only a flow's run has: tasks, nodes, ways, merges, calls of tools.
//!
//! Unaware of how a task continues. The input of an attempt at a node is shown at its beginning, the output
//! at its end, from the records in the attempt's directory.

use super::source::{SourceEvent, record_dir, size_in};
use super::writer::PageRecord;
use crate::record::network::traffic_in_words;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Attempts that have not ended, by task and node: their directories, from the run's directory.
pub(super) type Attempts = BTreeMap<(String, String), String>;

impl SourceEvent<'_> {
    pub(super) fn fill_task(&self, record: &mut PageRecord<'_>, place: &str) {
        let line = self.line;
        record
            .maybe("parent", line.parent_id.as_deref())
            .maybe("edge", line.edge.as_deref());
        self.value(record, "input", line.input, line.input_ref.as_ref(), place);
    }

    pub(super) fn fill_task_end(&self, record: &mut PageRecord<'_>, place: &str) {
        let line = self.line;
        record
            .maybe("node", line.node_id.as_deref())
            .maybe("status", line.status.as_deref())
            .maybe("exit", line.exit_node.as_deref())
            .maybe("merged", line.merged_at.as_deref());
        self.put_reason(record, place);
    }

    /// The output so far of an attempt that has not ended.
    pub(super) fn fill_so_far(
        &self,
        record: &mut PageRecord<'_>,
        key: &(String, String),
        reference: &str,
    ) {
        record.put("task", &key.0).put("node", &key.1);
        self.put_output(record, Some(reference));
    }

    pub(super) fn fill_node_start(
        &self,
        record: &mut PageRecord<'_>,
        attempts: &mut Attempts,
        place: &str,
    ) {
        let line = self.line;
        let reference = line.execution_ref.as_deref();
        let command = line.resolved_command.as_deref().unwrap_or_default();
        if let (Some(key), Some(reference)) = (line.step(), reference) {
            attempts.insert(key, reference.to_owned());
        }
        record
            .maybe("node", line.node_id.as_deref())
            .maybe("attempt", line.attempt)
            .maybe("call", line.call_id.as_deref())
            .maybe("ref", reference)
            .text("command", command, place);
        self.file(record, "input", reference, "input.json");
        self.file(record, "context", reference, "context.json");
    }

    /// The end of an attempt at a node, whether another one follows or not.
    pub(super) fn fill_node_end(
        &self,
        record: &mut PageRecord<'_>,
        attempts: &mut Attempts,
        place: &str,
    ) {
        let line = self.line;
        let reference = line.step().and_then(|key| attempts.remove(&key));
        record
            .maybe("node", line.node_id.as_deref())
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
        self.put_reason(record, place);
        self.put_output(record, reference.as_deref());
    }

    pub(super) fn fill_tool(&self, record: &mut PageRecord<'_>, place: &str) {
        let line = self.line;
        let reference = line.execution_ref.as_deref();
        let command = line.resolved_command.as_deref().unwrap_or_default();
        record
            .maybe("node", line.node_id.as_deref())
            .maybe("tool", line.tool_name.as_deref())
            .maybe("status", line.status.as_deref())
            .maybe("exit", line.exit_code)
            .maybe("d", line.duration_ms)
            .maybe("ref", reference)
            .text("command", command, place);
        self.put_reason(record, place);
        let network = traffic_in_words(&self.run.path, reference);
        record.text("network", &network, place);
        self.file(record, "args", reference, "input.json");
        self.file(record, "stdout", reference, "stdout.log");
        self.file(record, "stderr", reference, "stderr.log");
    }

    /// Why something is no success.
    fn put_reason(&self, record: &mut PageRecord<'_>, place: &str) {
        let message = self.line.message.as_deref().unwrap_or_default();
        record
            .maybe("why", self.line.code.as_deref())
            .text("text", message, place);
    }

    /// The output of an attempt's program.
    fn put_output(&self, record: &mut PageRecord<'_>, reference: Option<&str>) {
        self.file(record, "stderr", reference, "stderr.log");
        let dir = record_dir(self.run, reference);
        record.maybe("stdout", dir.and_then(|dir| size_in(&dir, "stdout.log")));
    }

    fn file(&self, record: &mut PageRecord<'_>, key: &str, reference: Option<&str>, name: &str) {
        if let Some(dir) = record_dir(self.run, reference) {
            record.file(key, &dir, name);
        }
    }

    /// A JSON value from the journal, or from a file that it names.
    fn value(
        &self,
        record: &mut PageRecord<'_>,
        key: &str,
        json: Option<&RawValue>,
        file: Option<&Cow<'_, str>>,
        place: &str,
    ) {
        if let Some(json) = json {
            record.text(key, json.get(), place);
        } else if let Some((dir, name)) = file.and_then(|file| file.rsplit_once('/')) {
            self.file(record, key, Some(dir), name);
        }
    }
}
