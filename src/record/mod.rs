//! The record of a run: its journal, the state in it, and the files beside it.
//!
//! Unaware of processes and models.

pub(crate) mod engine_log;
pub(crate) mod blobs;
pub(crate) mod request_body;
pub mod attachments;
pub(crate) mod event;
pub(crate) mod legacy;
pub(crate) mod reader;
pub(crate) mod call_ids;
pub(crate) mod history;
pub(crate) mod feed;
pub(crate) mod journal;
pub(crate) mod spending;
pub mod state;
pub mod metadata;
pub mod stop_reason;
pub mod messages;
pub(crate) mod message_cache;
pub(crate) mod same_calls;
pub(crate) mod workspace;
pub(crate) mod own_workspaces;
pub(crate) mod run_dir;
pub(crate) mod subruns;
pub(crate) mod invocations;
pub(crate) mod execution;
pub(crate) mod network;
pub(crate) mod recording;
