//! The Model Context Protocol, as a client: one process, one server, one call.
//!
//! Unaware of runs and of command lines. What a server says is data: it is shown, pinned in a file and
//! passed on, and decides nothing.

pub(crate) mod protocol;
pub(crate) mod servers;
pub(crate) mod reading;
pub(crate) mod task;
pub(crate) mod stdio;
pub(crate) mod headers;
pub(crate) mod http;
pub(crate) mod client;
pub(crate) mod module;
pub(crate) mod content;
pub(crate) mod foreign;
