//! The record of a flow's run: its events, its cache and what its tools were asked.

pub mod tool_calls;
pub mod events;
pub mod attempt;
pub mod cache;
pub mod tally;
