//! The operating system: files, processes, signals, the terminal, the sandbox.
//!
//! Unaware of runs, agents and models.

pub mod files;
pub mod procfs;
pub mod process;
pub mod landlock;
pub mod terminal;
pub mod pager;
