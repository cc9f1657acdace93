//! Text and data that know nothing else: JSON, YAML, times, ids, suggestions, tables of options.

pub(crate) mod order;
pub(crate) mod names;
pub(crate) mod json;
pub(crate) mod answers;
pub(crate) mod timestamp;
pub(crate) mod ids;
pub mod yaml;
pub(crate) mod suggestion;
pub(crate) mod shorten;
#[cfg(feature = "flow")]
pub(crate) mod schema;
#[cfg(not(feature = "flow"))]
pub(crate) mod no_schema;
#[cfg(not(feature = "flow"))]
pub(crate) use no_schema as schema;
pub(crate) mod disguise;
pub(crate) mod markdown;
pub(crate) mod amounts;
pub(crate) mod shell;
pub(crate) mod call_line;
pub(crate) mod table;
pub(crate) mod packed;
pub mod manual;
pub(crate) mod options;
pub(crate) mod redaction;
pub(crate) mod digest;
