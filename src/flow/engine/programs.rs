//! The programs of a start of the engine: those that are prepared, those that run, and what they leave.
//!
//! Unaware of routing and of the journal.

use super::credentials::Credentials;
use super::spent::SpentRecords;
use super::{FlowOptions, RunPlace};
use crate::flow::context::helper::HelperQuestion;
use crate::flow::graph::{Failure, FailureCode, NodeIx, StepKey, StepRef};
use crate::flow::record::attempt::{PreparedAttempt, too_much};
use crate::record::execution::LinkedFiles;
use crate::unix::files::LARGEST_INPUT;
use crate::unix::process::{Children, Token, Woken};
use crate::unix::signals::{Signals, Stop};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A program that runs.
pub(super) struct ActiveProgram {
    pub step: StepRef,
    /// The directory of records.
    pub io: PathBuf,
    pub since: Instant,
    /// Why it is being ended.
    pub failure: Option<Failure>,
    /// Its step was cancelled.
    pub cancelled: bool,
    /// Of its processes.
    pub call_id: String,
    pub role: ProgramRole,
}

/// The part of a program in a step.
pub(super) enum ProgramRole {
    Attempt,
    /// It answers a question about the node's context.
    Helper(HelperQuestion),
    Look(StepLook),
}

/// A look at what a step has begun.
#[derive(Clone, Debug)]
pub(super) struct StepLook {
    pub handle: String,
    pub is_last: bool,
}

impl ActiveProgram {
    pub(super) fn asks(&self) -> Option<&HelperQuestion> {
        match &self.role {
            ProgramRole::Helper(ask) => Some(ask),
            ProgramRole::Attempt | ProgramRole::Look(_) => None,
        }
    }
}

/// A program that starts when its beginning is on disk.
pub(super) struct WaitingProgram {
    pub active: ActiveProgram,
    pub prepared: PreparedAttempt,
    pub attempt: u32,
    /// The beginning is on disk.
    pub is_recorded: bool,
}

pub(super) struct Programs<'e> {
    pub signals: &'e Signals,
    /// The signal that ends this start.
    pub stop: Option<Stop>,
    pub children: Children<'e>,
    pub prepared: VecDeque<WaitingProgram>,
    pub active: HashMap<Token, ActiveProgram>,
    pub linked: LinkedFiles,
    pub credentials: Credentials,
    /// Directories of records that do not stay.
    pub spent: SpentRecords,
    /// The time of the last look at how much programs have printed.
    pub looked: Instant,
    grace: Duration,
}

impl<'e> Programs<'e> {
    pub(super) fn new(place: &RunPlace<'_>, options: &FlowOptions, signals: &'e Signals) -> Self {
        let mut children = Children::with_pidfds(signals);
        children.set_grace(options.grace);
        Self {
            signals,
            stop: None,
            children,
            prepared: VecDeque::new(),
            active: HashMap::new(),
            linked: LinkedFiles::default(),
            credentials: Credentials::new(place.flow),
            spent: SpentRecords::new(options),
            looked: Instant::now(),
            grace: options.grace,
        }
    }

    pub(super) fn at_work(&self) -> usize {
        self.active.len() + self.prepared.len()
    }

    /// The node of each program that runs or is about to.
    pub(super) fn nodes_at_work(&self) -> impl Iterator<Item = NodeIx> {
        let active = self.active.values();
        let prepared = self.prepared.iter().map(|waiting| &waiting.active);
        active.chain(prepared).map(|active| active.step.node)
    }

    /// Takes in a signal that has come. Returns whether one has.
    pub(super) fn take_stop(&mut self) -> bool {
        self.stop = self.signals.stop();
        self.stop.is_some()
    }

    pub(super) fn cancel(&mut self, key: StepKey) {
        self.spent.forget(key);
        self.prepared.retain(|it| it.active.step.key != key);
        let found = self.active.iter_mut().find(|(_, it)| it.step.key == key);
        if let Some((token, active)) = found {
            active.cancelled = true;
            self.children.interrupt(*token, self.grace);
        }
    }

    /// Ends programs that print more than the limit.
    pub(super) fn end_oversized(&mut self) {
        for (token, active) in &mut self.active {
            let printed = active.io.join("stdout.log").metadata();
            let printed = printed.map_or(0, |meta| meta.len());
            if printed > LARGEST_INPUT && active.failure.is_none() {
                let failure = Failure::new(FailureCode::Operation, too_much(printed));
                active.failure = Some(failure);
                self.children.interrupt(*token, self.grace);
            }
        }
    }

    pub(super) fn interrupt_all(&mut self) {
        let tokens: Vec<Token> = self.active.keys().copied().collect();
        self.children.interrupt_all(&tokens, self.grace);
    }

    /// Ends all programs, and waits for their ends.
    pub(super) fn end_all(&mut self) {
        self.interrupt_all();
        while !self.children.is_empty() {
            match self.children.wait(None) {
                Ok(Woken::Ended(token, _)) => {
                    self.active.remove(&token);
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}
