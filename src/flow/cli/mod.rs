//! `delta flow`: its command line, from arguments to exit code.

pub(crate) mod templates;
pub(crate) mod words;
pub(crate) mod args;
pub mod tables;
pub(crate) mod check;
pub(crate) mod init;
pub(crate) mod basis;
pub(crate) mod graph;
pub(crate) mod result;
pub(crate) mod observe;
pub(crate) mod replay;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod verdict;
pub(crate) mod eval;
pub(crate) mod tool;
pub(crate) mod memory;
pub(crate) mod show;
pub(crate) mod repl;
pub(crate) mod artifacts;
pub(crate) mod inventory;
pub(crate) mod answer;
pub(crate) mod complete;
pub mod main;
