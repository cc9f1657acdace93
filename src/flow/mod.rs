//! `delta-flow`: runs a workflow, a directed acyclic graph of commands and agents over JSON payloads.
//!
//! A program of its own, in the Cargo feature `flow`. The modules are listed from the bottom up;
//! each uses only those above it.

/// An enum whose variants have names in files.
macro_rules! named_enum {
    ($(#[$about:meta])* $vis:vis enum $Enum:ident {
        $($(#[$note:meta])* $Variant:ident = $name:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $Enum { $($(#[$note])* $Variant,)* }

        impl $Enum {
            /// All variants with their names, in the order of the manual.
            pub const ALL: [(&'static str, Self); [$($name),*].len()] =
                [$(($name, Self::$Variant),)*];

            /// The name in files.
            #[allow(dead_code, reason = "some are only read")]
            pub fn name(self) -> &'static str {
                Self::ALL[self as usize].0
            }
        }
    };
}

pub mod graph;
pub(crate) mod schema;
pub mod manifest;
pub(crate) mod record;
pub(crate) mod context;
pub(crate) mod view;
pub(crate) mod engine;
pub mod eval;
pub mod cli;

/// The program's name in its messages.
pub(crate) const PROGRAM: &str = "delta-flow";
