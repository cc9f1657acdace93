//! Attachments in the state: those of each message and result, and which of them requests lack.
//!
//! Architecture invariant: an event concerns only those before it.

use super::{Run, Turn};
use crate::record::attachments::{Attachment, read_list};
use crate::record::event::Raw;
use crate::record::event::recorded::AttachmentsLeftOut;
use std::collections::HashMap;

/// The attachments of an event.
#[derive(Debug, Default)]
pub struct Attached {
    /// The event's number.
    pub(crate) seq: u64,
    list: Vec<Attachment>,
    /// How many of the first ones requests lack.
    left_out: usize,
}

impl Attached {
    pub(super) fn read(list: Raw<'_>, seq: u64) -> Self {
        Self {
            seq,
            list: read_list(list.0),
            left_out: 0,
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Attachment] {
        &self.list
    }

    /// Those that requests may have, with how many come before each.
    pub(crate) fn sent(&self) -> impl Iterator<Item = (usize, &Attachment)> {
        self.list.iter().enumerate().skip(self.left_out)
    }
}

/// Attachments that requests lack from an event on.
#[derive(Debug)]
pub(crate) struct LeftOut {
    /// Numbers of events.
    seqs: Vec<u64>,
    /// How many of the last of these; none: all.
    of_last: Option<u64>,
}

impl LeftOut {
    /// Reads the event, whose number is `own`.
    pub(super) fn read(event: &AttachmentsLeftOut<'_>, own: u64) -> Option<Self> {
        let mut seqs: Vec<u64> = event.seqs.read()?;
        seqs.retain(|seq| *seq < own);
        Some(Self {
            seqs,
            of_last: event.of_last,
        })
    }

    /// The events that it concerns, and how many of the first attachments of each.
    fn counts(&self) -> impl Iterator<Item = (u64, usize)> {
        let of_last = self.of_last.map_or(usize::MAX, |count| count as usize);
        let before_last = self.seqs.len().saturating_sub(1);
        self.seqs.iter().enumerate().map(move |(at, seq)| {
            (
                *seq,
                if at < before_last {
                    usize::MAX
                } else {
                    of_last
                },
            )
        })
    }
}

impl Turn<'_> {
    /// The attachments of the message, or of the results of its calls.
    pub(crate) fn attached(&self) -> Vec<&Attached> {
        match self {
            Turn::User(message) => vec![&message.attached],
            Turn::Thought(thought) => thought.calls.iter().map(|call| &call.attached).collect(),
            Turn::Refusal(_) => Vec::new(),
        }
    }

    fn attached_mut(&mut self) -> Vec<&mut Attached> {
        match self {
            Turn::User(message) => vec![&mut message.attached],
            Turn::Thought(thought) => thought
                .calls
                .iter_mut()
                .map(|call| &mut call.attached)
                .collect(),
            Turn::Refusal(_) => Vec::new(),
        }
    }
}

impl Run<'_> {
    /// How many turns come before those whose attachments requests have: in a shorter form, these are lines.
    pub(crate) fn first_with_attachments(&self) -> usize {
        self.summarized_turns().max(self.cleared_turns())
    }

    /// Marks what requests lack.
    pub(super) fn leave_out(&mut self) {
        let mut counts = HashMap::<u64, usize>::new();
        for (seq, count) in self.left_out.iter().flat_map(LeftOut::counts) {
            let known = counts.entry(seq).or_default();
            *known = count.max(*known);
        }
        if counts.is_empty() {
            return;
        }
        for attached in self.turns.iter_mut().flat_map(Turn::attached_mut) {
            attached.left_out = counts.get(&attached.seq).copied().unwrap_or(0);
        }
    }

    /// Marks more that requests lack: attachments of these events, of the last one perhaps only the first ones.
    pub(crate) fn leave_out_also(&mut self, seqs: Vec<u64>, of_last: Option<u64>) {
        self.left_out.push(LeftOut { seqs, of_last });
        self.leave_out();
    }
}
