//! The event of a conversation that requests have in a shorter form.

use super::{Event, EventKind, ReadUsage, RecordedUsage, Reference, Text};
use crate::text::amounts::grouped;
use crate::text::names::named_enum;

named_enum! {
    /// The way a conversation is shortened in requests.
    pub(crate) enum CompactionKind {
        /// Observations are given in a short form.
        Clear = "clear",
        /// A summary replaces its beginning.
        Summary = "summary",
    }
}

named_enum! {
    /// Reason why a conversation is shortened.
    pub(crate) enum CompactionReason {
        /// By the estimate, the request was too long.
        Size = "size",
        /// The service refused the request, or cut off its answer.
        Refused = "refused",
        /// A person asked for it.
        Asked = "asked",
    }
}

events! {
    Compaction, CompactionEvent {
        by: (CompactionKind => Text<'a>),
        reason: (CompactionReason => Text<'a>),
        /// The number of the last line that it concerns, and the iteration that it is of.
        through_seq: count,
        through_iteration: count,
        summary: opt_text,
        /// Limit of the bytes of people's messages beside the summary, except the first; none: no limit.
        message_bytes: opt_count,
        /// In a replay: when the messages of people were recorded.
        message_times: [&'a [String] => Option<Vec<String>>],
        /// The run whose files the model is referred to.
        run_id: text,
        /// Estimates of the request.
        tokens_before: count,
        tokens_after: count,
        /// The directory of the invocation that wrote the summary, from the run's directory.
        llm_invocation_ref: [Option<&'a str> => Reference<'a>],
        usage: [Option<RecordedUsage<'a>> => Option<ReadUsage>],
    }
}

impl Compaction<'_> {
    pub(super) fn note(&self) -> String {
        compaction_line(
            self.tokens_before.unwrap_or(0),
            self.tokens_after.unwrap_or(0),
            self.through_iteration.unwrap_or(0),
        )
    }
}

/// A compaction on one line: estimates of the request before and after it, and the last iteration that it concerns.
pub(crate) fn compaction_line(before: u64, after: u64, iteration: u64) -> String {
    let (before, after) = (grouped(before), grouped(after));
    format!("compacted: {before} -> {after} tokens, iterations 1 to {iteration}")
}
