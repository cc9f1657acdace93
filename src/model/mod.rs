//! The model: one request in, one response out.
//!
//! Unaware of runs.

mod reasons;
pub(crate) mod too_long;
pub(crate) mod attempt;
mod refused_attachments;
pub(crate) mod calls;
pub(crate) mod usage;
pub(crate) mod response;
mod asked;
pub(crate) mod wire;
pub(crate) mod replay;
pub(crate) mod rate;
pub(crate) mod http;
pub(crate) mod listing;
pub(crate) mod program;
pub(crate) mod ask;
