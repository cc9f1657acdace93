//! The states of a run's files, by iteration.
//!
//! Architecture invariant: what a state is called is decided here and in the event alone.

use crate::record::event::FilesReason;
use crate::record::event::recorded::Files;
use crate::text::ids::is_hash;
use crate::text::timestamp::Timestamp;

/// A state of the files, as the journal has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    pub n: u64,
    pub why: FilesReason,
    /// It was taken after this iteration, and before the request of the next one.
    pub iteration: u64,
    pub commit: String,
    /// When the event was recorded.
    pub at: Option<Timestamp>,
}

/// The states of a run, as they were taken, and what is not in one yet.
#[derive(Debug, Default)]
pub(crate) struct FileStates {
    pub all: Vec<FileState>,
    /// The iteration of a call that was started, if neither a state nor an end of a start has followed.
    pub unstated: Option<u64>,
    /// The iterations after which starts began that keep no files.
    off: Vec<u64>,
    /// A person has been told what the states lack.
    pub is_lack_known: bool,
}

impl FilesReason {
    /// True for the run's beginning, and what its iterations have left.
    pub(crate) fn is_own(self) -> bool {
        matches!(self, Self::Start | Self::Iteration)
    }
}

impl FileStates {
    /// Adds an event of an iteration. One that another program has written in another form counts for nothing.
    pub(super) fn add(&mut self, event: &Files<'_>, iteration: u64, at: Option<Timestamp>) {
        let state = || {
            Some(FileState {
                n: event.n?,
                why: FilesReason::parse(&event.why)?,
                iteration,
                commit: event.commit.get().filter(|it| is_hash(it))?.to_owned(),
                at,
            })
        };
        self.all.extend(state());
        self.unstated = None;
    }

    /// A start begins after an iteration.
    pub(super) fn begin(&mut self, is_kept: bool, iteration: u64) {
        // One that has done nothing does not count.
        self.off.retain(|before| *before < iteration);
        self.off.extend((!is_kept).then_some(iteration));
    }

    /// The first iteration whose files were not kept, of those between a state and the end of another one.
    pub(crate) fn first_unkept(&self, since: &FileState, iteration: u64) -> Option<u64> {
        let between = since.iteration..iteration;
        let first = self.off.iter().find(|it| between.contains(it));
        first.map(|before| before + 1)
    }

    /// The state after an iteration, in which later states of the same iteration replace earlier ones; 0: the one before
    /// the first request. None: the run has none that is as old.
    pub(crate) fn after(&self, iteration: u64) -> Option<&FileState> {
        let is_meant = |state: &&FileState| state.why.is_own() && state.iteration <= iteration;
        self.all.iter().rfind(is_meant)
    }

    /// The last state of any kind before the request that follows an iteration.
    pub(crate) fn before_request_after(&self, iteration: u64) -> Option<&FileState> {
        self.all.iter().rfind(|state| state.iteration <= iteration)
    }

    /// The commits that [`Self::after`] returns for some iteration, the last first.
    pub(crate) fn own(&self) -> impl Iterator<Item = &str> {
        let own = self.all.iter().rev().filter(|state| state.why.is_own());
        own.map(|state| &*state.commit)
    }

    /// True if an iteration has changed files, or may have before its engine died.
    pub(crate) fn has_changes(&self) -> bool {
        let mut all = self.all.iter();
        all.any(|state| state.why == FilesReason::Iteration)
            || self.unstated.is_some() && !self.all.is_empty()
    }

    /// The number of the state before the last one, if files were put back for the last one.
    pub(crate) fn before_undo(&self) -> Option<u64> {
        match &self.all[..] {
            [.., before, last] if last.why == FilesReason::Undo => Some(before.n),
            _ => None,
        }
    }
}
