//! The engine: one start on one run, from its journal to its end.
//!
//! Unaware of command lines and of which run it is.

pub mod observation;
pub mod run_context;
pub mod hooks;
pub mod question;
pub mod request;
pub mod tool_call;
pub mod run_loop;
