//! A run's life, for agents and flows alike: found, inspected, begun, resumed, brought to its end.
//!
//! Unaware of command lines and of how results are printed: what happened is returned.

pub(crate) mod origin;
pub(crate) mod decide;
pub(crate) mod inspect;
pub(crate) mod find;
pub(crate) mod own_search;
pub(crate) mod wrapper_check;
pub(crate) mod preflight;
pub(crate) mod overrides;
pub(crate) mod result;
pub(crate) mod launch;
pub(crate) mod resume;
pub(crate) mod run_request;
pub(crate) mod preview;
pub(crate) mod workspace_copy;
