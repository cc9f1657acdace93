//! A tool, from its definition to the argv of one call.
//!
//! Unaware of processes and files.

pub mod definition;
pub mod argv_template;
pub mod shell_lexer;
pub mod shell_template;
pub mod parameters;
pub mod usage;
pub mod command;
pub mod load;
pub mod bind;
