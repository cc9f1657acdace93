//! `delta-flow`: runs a workflow, a directed acyclic graph of commands and agents over JSON payloads.
//!
//! A program of its own, in the Cargo feature `flow`. The modules are listed from the bottom up;
//! each uses only those above it.

pub mod graph;
pub mod manifest;
pub(crate) mod record;
pub(crate) mod context;
pub(crate) mod view;
pub(crate) mod engine;
pub mod eval;
pub mod cli;

/// The program's name in its messages.
pub(crate) const PROGRAM: &str = "delta-flow";
