//! The steps of a workflow's run, each with the calls of tools by its program.

use super::Gathering;
use super::line_parts::unique_id;
use crate::export::recorded::{CallResult, ExportedCall, What};
use crate::export::records::read_file;
use crate::record::event::flow::{NodeEnd, NodeStart, Tool};
use crate::record::event::{Line, Raw, Recorded, Text, decoded};
use std::time::Duration;

impl Gathering<'_> {
    pub(super) fn flow_event(&mut self, line: &Line<'_>) {
        match &line.event {
            Recorded::FlowStart(start) => {
                self.out.is_flow = true;
                let input = self.payload(start.input.0, &start.input_ref);
                if let Some(input) = input.or(self.unsaid.take()) {
                    self.push(line.time(), What::User(input.into()));
                }
            }
            Recorded::NodeStart(start) => self.node_start(line, start),
            Recorded::NodeEnd(end) => self.node_end(line, end),
            Recorded::Tool(call) => self.node_call(line, call),
            _ => {}
        }
    }

    fn node_start(&mut self, line: &Line<'_>, start: &NodeStart<'_>) {
        let (task, node) = (&*line.task_id, &*line.node_id);
        let call = ExportedCall {
            id: format!("{task}/{node}/{}", start.attempt.unwrap_or(1)),
            action_id: format!("{task}/{node}"),
            name: node.to_owned(),
            arguments: [("task_id".to_owned(), task.into())].into_iter().collect(),
            call_id: start.call_id.owned(),
            began: line.time(),
            ..ExportedCall::default()
        };
        self.push(line.time(), What::Node(vec![call]));
    }

    /// The calls of the newest attempt at a step of a workflow, its own first.
    fn node_calls(&mut self, line: &Line<'_>) -> Option<&mut Vec<ExportedCall>> {
        let (task, node) = line.step()?;
        let id = format!("{task}/{node}");
        self.out
            .steps
            .iter_mut()
            .rev()
            .find_map(|step| match &mut step.what {
                What::Node(calls) if calls.first().is_some_and(|it| it.action_id == id) => {
                    Some(calls)
                }
                _ => None,
            })
    }

    fn node_end(&mut self, line: &Line<'_>, end: &NodeEnd<'_>) {
        let text = self
            .payload(end.output.0, &end.output_ref)
            .or_else(|| end.message.owned());
        if let Some(call) = self.node_calls(line).and_then(|calls| calls.first_mut()) {
            call.result = Some(CallResult {
                at: line.time(),
                content: text.unwrap_or_default().into(),
                is_success: end.is_success(),
                status: end.status.owned(),
                exit_code: end.exit_code,
                duration_ms: end.duration_ms,
            });
        }
    }

    /// A call of a tool by the program of a node.
    fn node_call(&mut self, line: &Line<'_>, call: &Tool<'_>) {
        let took = Duration::from_millis(call.duration_ms.unwrap_or(0));
        let text = line
            .execution_ref
            .get()
            .and_then(|dir| read_file(self.run, &format!("{dir}/stdout.log")))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let name = call.tool_name.get().unwrap_or("?").to_owned();
        if let Some(calls) = self.node_calls(line) {
            let id = unique_id(calls, &format!("{}/{name}", calls[0].id));
            calls.push(ExportedCall {
                action_id: id.clone(),
                id,
                name,
                began: line.time().map(|at| at.minus(took)),
                result: Some(CallResult {
                    at: line.time(),
                    content: text.unwrap_or_default().into(),
                    is_success: call.is_success(),
                    status: call.status.owned(),
                    exit_code: call.exit_code,
                    duration_ms: call.duration_ms,
                }),
                ..ExportedCall::default()
            });
        }
    }

    /// JSON from the line, or from a file of the run.
    fn payload(&self, json: Raw<'_>, file: &Text<'_>) -> Option<String> {
        if json.is_some() {
            return Some(json.text().into_owned());
        }
        let in_file = String::from_utf8(read_file(self.run, file.get()?)?).ok()?;
        // A text is decoded.
        Some(decoded(&in_file).into_owned())
    }
}
