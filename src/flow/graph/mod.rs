//! The graph of a workflow and the pure state machine that walks it.
//!
//! Unaware of files and processes.

pub mod topology;
pub mod plan;
pub mod choice;
pub mod router;
