//! delta runs LLM agents: an agent is a directory, a tool is a command, the memory is a file.
//!
//! The modules are listed from the bottom up, in the order in which they are best read; each uses
//! only those above it.

pub mod error;
pub mod clock;
pub mod ids;
pub mod files;
pub mod sys;
pub mod exec;
pub mod json;
pub mod yaml;
pub mod dotenv;
pub mod event;
pub mod journal;
pub mod legacy;
pub mod state;
pub mod tool;
pub mod expand;
pub mod bind;
