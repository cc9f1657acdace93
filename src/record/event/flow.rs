//! The events that only runs of flows have, as they are read; see `flow::record`.

use super::members::is_success;
use super::{Present, Raw, Text};

members! {
    FlowStart {
        flow: Raw<'a>,
        input: Present<'a>,
        input_ref: Text<'a>,
    }

    TaskCreated {
        parent_id: Text<'a>,
        input: Present<'a>,
        input_ref: Text<'a>,
        input_error: Text<'a>,
    }

    NodeStart {
        attempt: Option<u64>,
        call_id: Text<'a>,
        resolved_command: Text<'a>,
        /// The run that a node is, where its name does not follow from the step.
        own_run: Text<'a>,
        own_retry: Option<u64>,
        due_at: Text<'a>,
    }

    NodeEnd {
        status: Text<'a>,
        exit_code: Option<i64>,
        duration_ms: Option<u64>,
        cpu_ms: Option<u64>,
        memory_bytes: Option<u64>,
        context_bytes: Option<u64>,
        records_removed: Option<bool>,
        cached: Option<bool>,
        /// Files that the node made.
        outputs: Raw<'a>,
        output: Present<'a>,
        output_ref: Text<'a>,
        code: Text<'a>,
        message: Text<'a>,
    }

    Route {
        to: Raw<'a>,
    }

    Merge {
        arrived: Raw<'a>,
        failed: Raw<'a>,
    }

    Winner {
        winner: Text<'a>,
    }

    Retry {
        steps: Raw<'a>,
    }

    TaskEnd {
        status: Text<'a>,
        code: Text<'a>,
        message: Text<'a>,
        exit_node: Text<'a>,
        merged_at: Text<'a>,
    }

    Tool {
        tool_name: Text<'a>,
        status: Text<'a>,
        code: Text<'a>,
        message: Text<'a>,
        exit_code: Option<i64>,
        duration_ms: Option<u64>,
        resolved_command: Text<'a>,
    }

    Policy {
        target: Text<'a>,
        target_id: Text<'a>,
    }

    Memory {
        item_id: Text<'a>,
    }
}

impl NodeEnd<'_> {
    pub(crate) fn is_success(&self) -> bool {
        is_success(&self.status, self.exit_code)
    }

    pub(crate) fn has_failed(&self) -> bool {
        &*self.status == "failure"
    }
}

impl TaskEnd<'_> {
    pub(crate) fn has_failed(&self) -> bool {
        &*self.status == "failure"
    }
}

impl Tool<'_> {
    /// True if the call succeeded.
    pub(crate) fn is_success(&self) -> bool {
        is_success(&self.status, self.exit_code)
    }
}
