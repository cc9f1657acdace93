//! `delta coder-tool`: the programs of the tools of the agent `coder`, which read, write and edit files
//! and run commands for a model.
//!
//! Unaware of agents and runs. What they print is made for a model to read: it names the place and the
//! way out.

pub(crate) mod folded;
pub(crate) mod matching;
pub(crate) mod change;
pub(crate) mod not_found;
pub(crate) mod listing;
pub(crate) mod put;
pub(crate) mod target;
pub(crate) mod edit;
pub(crate) mod read;
pub(crate) mod shell;
pub(crate) mod tool;
