//! The program `delta`: its command line, from arguments to exit code.

pub mod manual;
pub(crate) mod help;
pub(crate) mod completion;
pub(crate) mod templates;
pub(crate) mod schemas;
pub mod args;
pub(crate) mod result;
pub(crate) mod commands;
pub mod main;
