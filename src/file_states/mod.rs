//! The files of each step: what a workspace held after each iteration of a run, in a git repository of delta's own.
//!
//! Unaware of models, of what a tool is for and of when a state is taken.

pub(crate) mod git;
pub(crate) mod store;
mod left_out;
pub(crate) mod changes;
pub(crate) mod snapshot;
pub(crate) mod step;
pub(crate) mod put_back;
