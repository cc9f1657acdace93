//! Text and data that know nothing else: JSON, YAML, times, ids, suggestions.

pub mod json;
pub mod timestamp;
pub mod ids;
pub mod yaml;
pub mod suggestion;
