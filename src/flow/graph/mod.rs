//! The graph of a workflow and the pure state machine that walks it.
//!
//! Unaware of files and processes.

pub mod topology;
pub(crate) mod plan;
pub(crate) mod choice;
pub(crate) mod router;
