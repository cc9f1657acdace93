//! `delta-sessions`: a shell that remembers, without a process that waits.
//!
//! A session is a directory. Each command runs in a shell of its own, which reads the state that
//! the shell before it wrote, and writes its own when it ends. Nothing runs in between, so nothing
//! can die.
//!
//! Unaware of agents, runs and models.

pub(crate) mod secrets;
pub(crate) mod shell;
pub(crate) mod store;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod tables;
pub(crate) mod complete;
pub(crate) mod args;
pub mod cli;
