//! The commands, each from its arguments to its exit code.

pub(crate) mod run;
pub(crate) mod continue_run;
pub(crate) mod models;
pub(crate) mod setup;
pub(crate) mod init;
pub(crate) mod check;
pub(crate) mod list_runs;
pub(crate) mod prune;
pub(crate) mod log;
pub(crate) mod chat;
pub(crate) mod request;
pub(crate) mod report;
pub(crate) mod export;
pub(crate) mod migrate;
pub(crate) mod model;
pub(crate) mod replay;
pub(crate) mod flow;
pub(crate) mod fork;
pub(crate) mod diff;
pub(crate) mod expand;
pub(crate) mod skills;
pub(crate) mod sandbox;
pub(crate) mod mcp;
pub(crate) mod acp;
pub(crate) mod complete;
