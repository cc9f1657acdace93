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
pub mod nearest;
pub mod node;
pub mod tool;
pub mod words;
pub mod quoting;
pub mod script;
pub mod declared;
pub mod usage;
pub mod forms;
pub mod expand;
pub mod bind;
pub mod dotenv;
pub mod event;
pub mod journal;
pub mod legacy;
pub mod state;
