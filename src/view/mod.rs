//! A run, shown to people.

pub(crate) mod request_diff;
pub(crate) mod stats;
pub(crate) mod stats_survey;
pub(crate) mod stats_table;
pub(crate) mod timeline;
pub(crate) mod effects;
pub(crate) mod report;
pub(crate) mod evaluation_page;
pub(crate) mod run_candidates;
