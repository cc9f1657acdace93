//! `delta-sessions`: a shell that keeps its state without a waiting process.
//!
//! A session is a directory. Each command runs in a shell of its own, which reads the state that the last
//! one wrote, and writes its own when it ends. Nothing runs in between, so nothing can die.
//!
//! Unaware of agents, runs and models.

pub(crate) mod secrets;
pub(crate) mod shell;
pub(crate) mod scripts;
pub(crate) mod session;
pub(crate) mod interpreter;
pub(crate) mod lock;
pub(crate) mod store;
pub(crate) mod saved_state;
pub(crate) mod start;
pub(crate) mod exec;
pub(crate) mod end;
pub(crate) mod output_cut;
pub(crate) mod tables;
pub(crate) mod complete;
pub mod cli;
