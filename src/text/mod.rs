//! Text and data that know nothing else: JSON, YAML, times, ids, suggestions.

pub(crate) mod json;
pub(crate) mod timestamp;
pub(crate) mod ids;
pub mod yaml;
pub(crate) mod suggestion;
