//! The record of a flow's run: its events, its cache and what its tools were asked.

pub(crate) mod made_files;
pub(crate) mod tool_calls;
pub(crate) mod events;
pub(crate) mod retry;
pub(crate) mod basis;
pub(crate) mod ends;
pub(crate) mod lineage;
pub(crate) mod replay;
pub(crate) mod attempt;
pub(crate) mod cache;
pub(crate) mod spool;
pub(crate) mod tally;

pub(crate) use attempt::{ProgramInput, check_schema, dir_name, not_started, one_value, task_path};
pub(crate) use basis::RecordedBasis;
pub(crate) use ends::{RecordedEnd, RecordedEnds, RecordedRoot, StepId};
pub(crate) use events::{AttemptEnd, NodeStart, Output, OwnRun, each_line, edge_told};
pub(crate) use lineage::{
    BegunBefore, Lineage, StepRecord, TaskRecord, check_beginnings, denial_name,
};
pub(crate) use replay::{Replay, Replayed, Roots};
pub(crate) use retry::{RetriedStep, Retries, add_retry};
pub(crate) use tool_calls::{CallCode, CallRecord, NodeToolCall, denied_tools, tools_option};
