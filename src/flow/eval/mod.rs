//! Evaluations: cases, each tried several times under each setting, and what can be said of them.

pub mod numbers;
pub(crate) mod trial;
pub(crate) mod summary;
pub(crate) mod format;
pub(crate) mod assertion;
pub(crate) mod suite;
pub(crate) mod tables;
pub(crate) mod selection;
pub(crate) mod question;
pub(crate) mod repository;
pub(crate) mod naming;
pub(crate) mod revision;
pub(crate) mod load;
pub(crate) mod record;
pub(crate) mod verdict;
pub(crate) mod answer;
pub(crate) mod target;
pub(crate) mod plan;
pub(crate) mod grader;
pub(crate) mod runner;

/// The keys of suites and cases, a list for each.
pub const KEYS: [&[&str]; 2] = [suite::Suite::KEYS, suite::Case::KEYS];
