//! delta runs LLM agents: an agent is a directory, a tool is a command, the memory is a file.
//!
//! The modules are listed from the bottom up, in the order in which they are best read; each uses
//! only those above it.

pub mod error;
pub mod text;
pub mod unix;
pub mod config;
pub mod record;
pub mod model;
pub mod engine;
pub mod view;
pub mod cli;
pub mod sessions;
#[cfg(feature = "flow")]
pub mod flow;
