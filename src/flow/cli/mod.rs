//! The program `delta-flow`: its command line, from arguments to exit code.

pub mod args;
pub mod check;
pub mod basis;
pub mod graph;
pub mod result;
pub mod run;
pub mod tool;
pub mod memory;
pub mod show;
pub mod complete;
pub mod main;
