//! The graph of a workflow and the pure state machine that walks it.
//!
//! Unaware of files and processes.

pub mod topology;
pub(crate) mod plan;
pub(crate) mod choice;
pub(crate) mod router;

pub(crate) use choice::{
    Failure, FailureCode, Payload, Route, choose_route, edge_names, edge_words,
};
pub(crate) use plan::RoutePlan;
pub(crate) use router::{
    Effect, FlowStatus, Note, Router, StepKey, StepOutcome, StepRef, TaskKind, TaskStatus, TaskView,
};
pub(crate) use topology::{
    EdgeIx, Graph, MergeFailureMode, Node, NodeIx, PayloadRule, Role, WinnerRule,
};
