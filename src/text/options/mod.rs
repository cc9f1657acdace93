//! Command lines from tables: one row for each option, used for parsing, `-h` and completion.
//!
//! Unaware of files, and of what the values are used for.

pub(crate) mod format;
pub(crate) mod table;
pub(crate) mod short_help;
pub(crate) mod values;
pub(crate) mod parse;
pub(crate) mod shell_words;
pub(crate) mod completion;
