mod attachments;
mod diff;
mod effects;
pub mod log_and_lists;
pub mod report;
mod report_in_browser;
mod stats;
