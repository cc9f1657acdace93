//! The life of a run, for agents and flows alike: find, inspect, begin, resume and end it.
//!
//! Unaware of command lines and of how results are printed: outcomes are returned.

pub(crate) mod origin;
pub(crate) mod task;
pub(crate) mod decide;
pub(crate) mod inspect;
pub(crate) mod suspended;
pub(crate) mod find;
pub(crate) mod survey;
pub(crate) mod prune;
pub(crate) mod own_search;
pub(crate) mod wrapper_check;
pub(crate) mod allowed_hosts;
pub(crate) mod preflight;
pub(crate) mod overrides;
pub(crate) mod waiting;
pub(crate) mod left_behind;
pub(crate) mod result;
pub(crate) mod launcher;
pub(crate) mod ownership;
pub(crate) mod open;
pub(crate) mod undo;
pub(crate) mod state_copy;
pub(crate) mod launch;
pub(crate) mod run_request;
pub(crate) mod preview;
pub(crate) mod replay;
pub(crate) mod workspace_copy;
