//! The program `delta`: its command line, from arguments to exit code.

pub(crate) mod templates;
pub(crate) mod schemas;
pub(crate) mod tables;
pub(crate) mod message;
pub mod args;
pub(crate) mod agent_file;
mod agent_names;
pub(crate) mod result;
pub(crate) mod commands;
pub mod main;
