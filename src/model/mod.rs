//! The model: one request in, one response out, whatever is asked.
//!
//! Unaware of runs.

pub mod replay;
pub mod attempt;
pub mod response;
pub mod http;
pub mod program;
pub mod ask;
