//! Black-box tests of the real binary: what it prints, sends, writes and leaves behind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::wildcard_imports,
    reason = "the harness is the vocabulary of the tests"
)]
#![allow(
    clippy::format_push_string,
    clippy::format_collect,
    reason = "short strings"
)]
#![allow(
    clippy::print_stderr,
    reason = "a test that is skipped or fails says so"
)]

mod harness;

mod unix;
mod config;
mod record;
mod file_states;
mod model;
mod mcp;
mod engine;
mod runs;
mod view;
mod export;
mod coder;
mod cli;
mod sessions;
#[cfg(feature = "flow")]
mod flow;
mod project;
