//! A tool, from its definition to the argv of one call.
//!
//! Unaware of processes and files.

pub(crate) mod definition;
pub(crate) mod argv_template;
pub(crate) mod shell_lexer;
pub(crate) mod shell_template;
pub(crate) mod parameters;
pub(crate) mod command;
pub(crate) mod effect;
pub(crate) mod later;
pub(crate) mod load;
pub(crate) mod bind;
