//! The program `delta`: its command line, from arguments to exit code.

pub(crate) mod templates;
pub(crate) mod schemas;
pub(crate) mod tables;
pub mod args;
pub(crate) mod result;
pub(crate) mod commands;
pub mod main;
