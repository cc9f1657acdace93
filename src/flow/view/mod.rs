//! A flow, shown to people: its graph and the progress of a run.

pub mod progress_table;
pub mod draw;
