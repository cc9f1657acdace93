//! `delta-flow`: runs a workflow, a directed acyclic graph of commands and agents over JSON payloads.
//!
//! A program of its own, in the Cargo feature `flow`. The modules are listed from the bottom up;
//! each uses only those above it.

pub mod graph;
pub mod schema;
pub mod manifest;
pub mod record;
pub mod context;
pub mod view;
pub mod engine;
pub mod cli;

/// The program's name in its messages.
pub const PROGRAM: &str = "delta-flow";
