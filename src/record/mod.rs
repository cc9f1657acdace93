//! The record of a run: its journal, what it says, and the files beside it.
//!
//! Unaware of processes and models.

pub mod engine_log;
pub mod event;
pub mod journal;
pub mod legacy;
pub mod state;
pub mod reader;
pub mod metadata;
pub mod messages;
pub mod message_cache;
pub mod workspace;
pub mod run_dir;
pub mod migrate;
pub mod subruns;
pub mod invocations;
pub mod recording;
