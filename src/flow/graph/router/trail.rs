//! The steps that ended before another, independent of timing.
//!
//! The end of a step may carry a *note*. A step comes after the notes of its own way: of its task, of the
//! tasks that this one came from, up to where it came from them, and, after a merge, of those that
//! arrived there. A sibling's notes are never among them, however early it ended.
//!
//! A trail is a list that shares its beginning with others. Ends without notes leave nothing.

use super::{Router, StepIx};

/// A number that means something to the caller.
pub(crate) type Note = usize;

/// A trail by its index, from 1; 0: nothing has been noted.
pub(super) type TrailIx = usize;

/// Nothing has been noted.
pub(super) const NOTHING: TrailIx = 0;

/// The newest part of a trail.
#[derive(Debug)]
pub(super) enum Trail {
    /// A note, after what was before it.
    Note(TrailIx, Note),
    /// The trail before the ways parted, and the ways in order, each from there on.
    Joined(TrailIx, Box<[TrailIx]>),
}

impl Router<'_> {
    /// A trail with one more note.
    pub(super) fn noted(&mut self, before: TrailIx, note: Option<Note>) -> TrailIx {
        match note {
            Some(note) => self.add_trail(Trail::Note(before, note)),
            None => before,
        }
    }

    /// The trail after a merge of ways that all had the same trail once.
    pub(super) fn joined(
        &mut self,
        before: TrailIx,
        ways: impl Iterator<Item = TrailIx>,
    ) -> TrailIx {
        let ways: Box<[TrailIx]> = ways.filter(|way| *way != before).collect();
        match &*ways {
            [] => before,
            [only] => *only,
            _ => self.add_trail(Trail::Joined(before, ways)),
        }
    }

    fn add_trail(&mut self, trail: Trail) -> TrailIx {
        self.trails.push(trail);
        self.trails.len()
    }

    /// The notes before a step, the last one first.
    pub(crate) fn notes(&self, ix: StepIx) -> Vec<Note> {
        let mut notes = Vec::new();
        let Some(step) = self.steps.get(&ix) else {
            return notes;
        };
        // Each from where to where.
        let mut ways = vec![(step.so_far.trail, NOTHING)];
        while let Some((mut at, end)) = ways.pop() {
            while at != end {
                match &self.trails[at - 1] {
                    Trail::Note(before, note) => {
                        notes.push(*note);
                        at = *before;
                    }
                    Trail::Joined(before, joined) => {
                        ways.push((*before, end));
                        ways.extend(joined.iter().map(|way| (*way, *before)));
                        break;
                    }
                }
            }
        }
        notes
    }
}
