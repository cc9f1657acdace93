//! Changes of what requests have that a record has between two answers, and that no repetition brings about by itself.

use crate::record::event::{
    CompactionEvent, CompactionKind, CompactionReason, LeftOutEvent, LeftOutReason, Recorded,
    recorded,
};
use crate::record::journal::Journal;
use crate::record::reader::readable_lines;
use crate::record::state::{Run, Turn};

/// True for an event that is such a change, and can be repeated.
pub(super) fn is_change(event: &Recorded<'_>) -> bool {
    match event {
        Recorded::Compaction(event) => {
            CompactionKind::parse(&event.by).is_some()
                && CompactionReason::parse(&event.reason).is_some()
                && event.through_iteration.is_some()
        }
        Recorded::AttachmentsLeftOut(event) => {
            let seqs = event.seqs.read::<Vec<u64>>();
            &*event.why == LeftOutReason::Refused.name() && seqs.is_some()
        }
        _ => false,
    }
}

/// Adds the changes at these places of a record to the journal of a repetition, whose state is `run`.
pub(crate) fn repeat(
    record: &[u8],
    changes: &[usize],
    run: &Run<'_>,
    journal: &mut Journal,
    iteration: u64,
) {
    let (mut said_at, mut attached) = (Vec::new(), Vec::new());
    let last = changes.last().copied();
    for (at, line) in readable_lines(record).take_while(|(at, _)| Some(*at) <= last) {
        attached.extend(line.raw_attachments().0.and(line.seq));
        match &line.event {
            Recorded::UserMessage(_) => said_at.push(line.timestamp.to_string()),
            Recorded::Compaction(event) if changes.contains(&at) => {
                if let Some(event) = compaction(event, &said_at, run) {
                    journal.add(iteration, &event);
                }
            }
            Recorded::AttachmentsLeftOut(event) if changes.contains(&at) => {
                let seqs: Vec<u64> = event.seqs.read_or_default();
                let turns = run.turns.iter().flat_map(Turn::attached);
                let all: Vec<u64> = turns
                    .filter(|it| !it.all().is_empty())
                    .map(|it| it.seq)
                    .collect();
                let place = |seq: &u64| attached.iter().position(|it| it == seq);
                let seqs: Vec<u64> = seqs
                    .iter()
                    .filter_map(|seq| all.get(place(seq)?).copied())
                    .collect();
                journal.add(
                    iteration,
                    &LeftOutEvent {
                        seqs: &seqs,
                        why: LeftOutReason::Refused,
                        of_last: None,
                        message: Some(&event.message),
                    },
                );
            }
            _ => {}
        }
    }
}

/// A compaction of the same part of the repetition; none if that has no such part.
fn compaction<'e>(
    event: &'e recorded::Compaction<'_>,
    said_at: &'e [String],
    run: &Run<'_>,
) -> Option<CompactionEvent<'e>> {
    let part = run.part_through(event.through_iteration?)?;
    Some(CompactionEvent {
        by: CompactionKind::parse(&event.by)?,
        reason: CompactionReason::parse(&event.reason)?,
        through_seq: part.seq,
        through_iteration: part.iteration,
        summary: event.summary.get(),
        message_bytes: event.message_bytes,
        message_times: event.message_times.as_deref().unwrap_or(said_at),
        run_id: &event.run_id,
        tokens_before: event.tokens_before.unwrap_or(0),
        tokens_after: event.tokens_after.unwrap_or(0),
        llm_invocation_ref: None,
        usage: None,
    })
}
