//! `delta-flow`: runs a workflow, a directed acyclic graph of commands and agents over JSON payloads.
//!
//! A program of its own, in the Cargo feature `flow`. The modules are listed from the bottom up;
//! each uses only those above it.

pub mod glob;
pub mod graph;
pub mod plan;
pub mod choice;
pub mod router;
pub mod schema;
pub mod manifest;
pub mod tools;
pub mod record;
pub mod attempt;
pub mod cache;
pub mod keys;
pub mod memory;
pub mod inputs;
pub mod outcome;
pub mod table;
pub mod engine;
pub mod draw;
pub mod args;
pub mod check;
pub mod start;
pub mod picture;
pub mod ending;
pub mod run;
pub mod call;
pub mod stores;
pub mod show;
pub mod complete;
pub mod cli;

/// The program's name in its messages.
pub const PROGRAM: &str = "delta-flow";
