//! The steps of a workflow's run, each with the calls of tools by its program.

use super::Gathering;
use super::line_parts::{result_of, unique_id};
use crate::export::recorded::{ExportedCall, What};
use crate::export::records::read_file;
use crate::record::event::{FlowEvent, Line};
use crate::record::state::decoded;
use serde_json::value::RawValue;
use std::time::Duration;

impl Gathering<'_> {
    pub(super) fn flow_event(&mut self, event: FlowEvent, line: &Line<'_>) {
        match event {
            FlowEvent::FlowStart => self.flow_start(line),
            FlowEvent::NodeStart => self.node_start(line),
            FlowEvent::NodeEnd => self.node_end(line),
            FlowEvent::Tool => self.node_call(line),
            FlowEvent::TaskCreated
            | FlowEvent::Route
            | FlowEvent::Merge
            | FlowEvent::TaskEnd
            | FlowEvent::Winner
            | FlowEvent::Retry
            | FlowEvent::Policy
            | FlowEvent::Memory => {}
        }
    }

    fn flow_start(&mut self, line: &Line<'_>) {
        self.out.is_flow = true;
        let input = self.payload(line.input, line.input_ref.as_deref());
        if let Some(input) = input.or(self.unsaid.take()) {
            self.push(line.time(), What::User(input));
        }
    }

    fn node_start(&mut self, line: &Line<'_>) {
        let (task, node) = line.step().unwrap_or_default();
        let attempt = line.attempt.unwrap_or(1);
        let call = ExportedCall {
            id: format!("{task}/{node}/{attempt}"),
            action_id: format!("{task}/{node}"),
            name: node,
            arguments: [("task_id".to_owned(), task.into())].into_iter().collect(),
            call_id: line.call_id.as_deref().map(str::to_owned),
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

    fn node_end(&mut self, line: &Line<'_>) {
        let output = self.payload(line.output, line.output_ref.as_deref());
        let text = output.or_else(|| line.message.as_deref().map(str::to_owned));
        let result = result_of(line, text.unwrap_or_default());
        if let Some(call) = self.node_calls(line).and_then(|calls| calls.first_mut()) {
            call.result = Some(result);
        }
    }

    /// A call of a tool by the program of a node.
    fn node_call(&mut self, line: &Line<'_>) {
        let took = Duration::from_millis(line.duration_ms.unwrap_or(0));
        let began = line.time().map(|at| at.minus(took));
        let reference = line.execution_ref.as_deref();
        let output = reference.and_then(|dir| read_file(self.run, &format!("{dir}/stdout.log")));
        let text = output.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let name = line.tool_name.as_deref().unwrap_or("?").to_owned();
        let result = result_of(line, text.unwrap_or_default());
        if let Some(calls) = self.node_calls(line) {
            let id = unique_id(calls, &format!("{}/{name}", calls[0].id));
            calls.push(ExportedCall {
                action_id: id.clone(),
                id,
                name,
                began,
                result: Some(result),
                ..ExportedCall::default()
            });
        }
    }

    /// JSON from the line, or from a file of the run.
    fn payload(&self, text: Option<&RawValue>, file: Option<&str>) -> Option<String> {
        let in_file = || String::from_utf8(read_file(self.run, file?)?).ok();
        let json = text.map(|it| it.get().to_owned()).or_else(in_file)?;
        // A text is decoded.
        Some(decoded(&json).into_owned())
    }
}
