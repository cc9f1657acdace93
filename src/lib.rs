//! delta runs LLM agents: an agent is a directory, a tool is a command, the memory is a file.
//!
//! The modules are listed from the bottom up, in the order in which they are best read; each uses
//! only those above it.

// Some of what workflows need lies on lower floors.
#![cfg_attr(not(feature = "flow"), allow(dead_code))]

pub(crate) mod error;
pub mod text;
pub(crate) mod unix;
pub mod config;
pub mod record;
pub(crate) mod file_states;
pub(crate) mod model;
pub(crate) mod mcp;
pub(crate) mod engine;
pub(crate) mod runs;
pub(crate) mod view;
pub(crate) mod export;
pub(crate) mod coder;
pub(crate) mod sessions;
#[cfg(feature = "flow")]
pub mod flow;
pub mod cli;

#[cfg(fuzzing)]
include!("../fuzz/entry.rs");

/// True in debug builds, whose programs check their own tables. They are without `debug_assertions`, which check each
/// slice twice over in code that has no `unsafe`, and make the tests a fifth slower.
pub(crate) const IS_CHECKED: bool = cfg!(checked);

/// The version of all programs, as recorded in journals.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
