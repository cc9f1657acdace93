//! The record of a flow's run: its events, its cache and what its tools were asked.

pub(crate) mod tool_calls;
pub(crate) mod events;
pub(crate) mod lineage;
pub(crate) mod replay;
pub(crate) mod attempt;
pub(crate) mod cache;
pub(crate) mod tally;
