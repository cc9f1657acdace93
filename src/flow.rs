//! `delta-flow`: runs a workflow, a directed acyclic graph of commands and agents over JSON payloads.
//!
//! A program of its own, in the Cargo feature `flow`. The modules are listed from the bottom up;
//! each uses only those above it.

pub mod graph;
pub mod plan;
pub mod choice;
pub mod router;
