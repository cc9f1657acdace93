//! The engine: one start on one run, from its journal to its end.
//!
//! Unaware of command lines and of which run it is.

pub(crate) mod due;
pub(crate) mod observation;
pub(crate) mod outbox;
pub(crate) mod run_context;
pub(crate) mod start_options;
pub(crate) mod former_content;
pub(crate) mod account;
pub(crate) mod hooks;
pub(crate) mod question;
pub(crate) mod line_reader;
pub(crate) mod upward;
pub(crate) mod request;
pub(crate) mod streamed;
pub(crate) mod inbox;
pub(crate) mod later;
pub(crate) mod tool_call;
pub(crate) mod confirmation;
pub(crate) mod acceptance;
pub(crate) mod run_loop;
