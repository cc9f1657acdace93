//! Evaluations: cases, each tried several times under each setting, and what can be said of them.

#![allow(dead_code, reason = "the command that evaluates is not there yet")]

pub mod numbers;
pub(crate) mod trial;
pub(crate) mod summary;
pub(crate) mod tables;
