//! Runs in the forms that other programs read.
//!
//! Reading only: no file of a run is written, and no lock is taken. What a record names lies in the run's
//! directory, or is not read.

mod records;
mod content;
mod recorded;
mod gather;
mod ids;
mod conversation;
pub(crate) mod atif;
pub(crate) mod otlp;
pub(crate) mod chat;
pub(crate) mod cases;

pub(crate) use gather::read_run;
pub(crate) use recorded::RecordedRun;
