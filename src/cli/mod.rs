//! The program `delta`: its command line, from arguments to exit code.

pub mod manual;
pub mod help;
pub mod completion;
pub mod templates;
pub mod schemas;
pub mod args;
pub mod result;
pub mod commands;
pub mod main;
