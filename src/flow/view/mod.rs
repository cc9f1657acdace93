//! A flow, shown to people: its graph and the progress of a run.

pub(crate) mod progress_table;
pub(crate) mod draw;
