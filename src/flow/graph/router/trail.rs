//! What has ended before a step, whatever the timing was.
//!
//! Whoever tells of an end may leave a *note* there. A step is behind the notes of its own way: of its
//! task, of the tasks that this one came from, up to where it came from them, and, behind a merge, of
//! those that arrived there. A sibling's notes are never among them, however early it ended.
//!
//! A past is a list that shares its beginning with others. Nothing is kept of ends without notes.

use super::{Router, StepIx};

/// A number that means something to whoever left it.
pub(crate) type Note = usize;

/// A past by its index, from 1; 0: nothing has been noted.
pub(super) type TrailIx = usize;

/// Nothing has been noted.
pub(super) const NOTHING: TrailIx = 0;

/// The newest part of a past.
#[derive(Debug)]
pub(super) enum Trail {
    /// A note, behind what was before it.
    Note(TrailIx, Note),
    /// What was before the ways parted, and the ways in order of place, each from there on.
    Joined(TrailIx, Box<[TrailIx]>),
}

impl Router<'_> {
    /// A past with one more note.
    pub(super) fn noted(&mut self, before: TrailIx, note: Option<Note>) -> TrailIx {
        match note {
            Some(note) => self.past(Trail::Note(before, note)),
            None => before,
        }
    }

    /// What is behind those who come together, who all had the same past once.
    pub(super) fn joined(
        &mut self,
        before: TrailIx,
        ways: impl Iterator<Item = TrailIx>,
    ) -> TrailIx {
        let ways: Box<[TrailIx]> = ways.filter(|way| *way != before).collect();
        match &*ways {
            [] => before,
            [only] => *only,
            _ => self.past(Trail::Joined(before, ways)),
        }
    }

    fn past(&mut self, past: Trail) -> TrailIx {
        self.pasts.push(past);
        self.pasts.len()
    }

    /// The notes that a step is behind, the last one first.
    pub(crate) fn notes(&self, ix: StepIx) -> Vec<Note> {
        let mut notes = Vec::new();
        let Some(step) = self.steps.get(&ix) else {
            return notes;
        };
        // Each from where to where.
        let mut ways = vec![(step.past, NOTHING)];
        while let Some((mut at, end)) = ways.pop() {
            while at != end {
                match &self.pasts[at - 1] {
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
