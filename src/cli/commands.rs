//! The commands, each from its arguments to its exit code.

pub mod select;
pub mod wrapper;
pub mod start;
pub mod take_up;
pub mod settings;
pub mod preview;
pub mod dry_run;
pub mod run;
pub mod resume;
pub mod init;
pub mod check;
pub mod list_runs;
pub mod log;
pub mod request;
pub mod stats;
pub mod report;
pub mod migrate;
pub mod model;
pub mod fresh;
pub mod replay;
pub mod flow;
pub mod fork;
pub mod diff;
pub mod expand;
pub mod sandbox;
pub mod complete;
