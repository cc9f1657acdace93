//! A run, shown to people.

pub mod request_diff;
pub mod stats;
pub mod timeline;
pub mod report;
