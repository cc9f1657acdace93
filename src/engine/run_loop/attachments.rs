//! Which attachments a request has: no more than it may have, and none whose file is gone.

pub(super) mod refused;

use super::Engine;
use crate::error::Result;
use crate::model::wire::cut_marks;
use crate::record::attachments::Attachment;
use crate::record::blobs::Blobs;
use crate::record::engine_log::Level;
use crate::record::event::{LeftOutEvent, LeftOutReason};
use crate::record::message_cache::AttachedTo;
use crate::record::messages::attached::{FEW, ShownAttachments};
use crate::record::request_body::{Body, Gap, with_marks};
use crate::record::run_dir::RunDir;
use crate::record::state::Run;
use crate::text::amounts::counted;
use std::borrow::Cow;

/// Above either of these, the oldest are left out down to the lower ones: bytes of base64, and attachments.
const MOST_BYTES: u64 = 24_000_000;
const MOST: usize = 40;
const FEWER_BYTES: u64 = 12_000_000;

/// State of the attachments of requests.
pub(super) struct Attachments {
    blobs: Blobs,
    /// Their places in the newest request.
    pub(super) gaps: Vec<Gap>,
    /// The service's words for a refusal, in place of which a request without some of them is made.
    pub(super) refusal: Option<String>,
}

/// The attachments of a conversation that requests have.
pub(super) fn taken<'a>(
    all: &'a [AttachedTo],
    shown: &'a ShownAttachments,
) -> impl Iterator<Item = &'a AttachedTo> {
    all.iter().filter(|it| shown.has(it.seq, &it.attachment))
}

/// Which attachments the next request has, of all that its conversation has. `has` is false for those that are gone.
pub(crate) fn settled(
    all: &[AttachedTo],
    before: &ShownAttachments,
    mut has: impl FnMut(&Attachment) -> bool,
) -> ShownAttachments {
    let mut shown = ShownAttachments {
        is_crowded: false,
        ..before.clone()
    };
    let gone: Vec<String> = taken(all, &shown)
        .filter(|it| !has(&it.attachment))
        .map(|it| it.attachment.sha256.clone())
        .collect();
    shown.gone.extend(gone);
    shown.is_crowded = is_crowded(taken(all, &shown).count(), before);
    shown
}

/// True if pictures with a long side go as lines, of this number of attachments. At the edge it stays as it was, so that
/// requests begin as those before them.
fn is_crowded(all: usize, before: &ShownAttachments) -> bool {
    all > FEW || all == FEW && before.is_crowded
}

/// If a request would have too many: how many of the oldest are left out, the events that these are of, and how many of
/// the last event; none: all.
fn surplus(sent: &[&AttachedTo]) -> Option<(usize, Vec<u64>, Option<u64>)> {
    let size = |it: &AttachedTo| it.attachment.base64_len();
    let mut bytes: u64 = sent.iter().copied().map(size).sum();
    if bytes <= MOST_BYTES && sent.len() <= MOST {
        return None;
    }
    let mut count = 0;
    while bytes > FEWER_BYTES || sent.len() - count > FEW {
        bytes -= size(sent[count]);
        count += 1;
    }
    let (left_out, kept) = sent.split_at(count);
    let mut seqs: Vec<u64> = left_out.iter().map(|it| it.seq).collect();
    seqs.dedup();
    // Of the last event, some may stay.
    let next = kept.first().filter(|it| Some(&it.seq) == seqs.last());
    let of_last = next.map(|it| it.before as u64);
    Some((count, seqs, of_last))
}

/// Decides which attachments the next request of a run in this state has, but records nothing. `has` is false for those
/// that are gone.
pub(crate) fn foresee(
    state: &mut Run<'_>,
    shown: &mut ShownAttachments,
    mut has: impl FnMut(&Attachment) -> bool,
) {
    loop {
        let turns = state.turns[state.first_with_attachments()..].iter();
        let all: Vec<AttachedTo> = turns.flat_map(AttachedTo::of).collect();
        *shown = settled(&all, shown, &mut has);
        match surplus(&taken(&all, shown).collect::<Vec<_>>()) {
            Some((_, seqs, of_last)) => state.leave_out_also(seqs, of_last),
            None => break,
        }
    }
}

impl Attachments {
    pub(super) fn of(run: &RunDir) -> Self {
        Self {
            blobs: Blobs::of(&run.path),
            gaps: Vec::new(),
            refusal: None,
        }
    }

    /// A request without its marks, and their places.
    pub(super) fn cut_marks(&mut self, request: Vec<u8>) -> (Vec<u8>, Vec<Gap>) {
        cut_marks(request, |digest| self.blobs.len(digest))
    }

    /// The newest request, and the same with a mark in place of the bytes of each attachment.
    pub(super) fn body<'t>(&mut self, text: &'t [u8]) -> Result<(Body<'t>, Cow<'t, [u8]>)> {
        let body = Body::open(text, &self.gaps, &mut self.blobs)?;
        let marked = if self.gaps.is_empty() {
            text.into()
        } else {
            with_marks(text, &self.gaps).into()
        };
        Ok((body, marked))
    }
}

impl Engine<'_> {
    /// Decides which attachments the next request has. True if the transcript must be brought up to date, and this be
    /// called again.
    pub(super) fn settle_attachments(&mut self) -> Result<bool> {
        let before = &self.transcript.form().shown;
        let all = self.transcript.attached();
        let blobs = &mut self.attachments.blobs;
        let shown = settled(all, before, |it| it.is_in(blobs));
        for AttachedTo { attachment, .. } in all {
            let digest = &attachment.sha256;
            if shown.gone.contains(digest) && !before.gone.contains(digest) {
                let note = format!(
                    "attachment {} is left out: {} is gone or changed",
                    attachment.name,
                    blobs.path(digest).display()
                );
                self.log.record_note(Level::Warn, &note)?;
            }
        }
        let sent: Vec<&AttachedTo> = taken(all, &shown).collect();
        self.sizes.attachment_tokens = sent.iter().map(|it| it.attachment.tokens()).sum();
        if shown != *before {
            self.transcript.change_shown(shown);
            return Ok(true);
        }
        let Some((count, seqs, of_last)) = surplus(&sent) else {
            return Ok(false);
        };
        self.record_left_out(&seqs, of_last, LeftOutReason::Limit, None)?;
        let left_out = counted(count, "attachment");
        let text = format!("{left_out} left out of requests from now on: there are too many");
        self.ctx.log.line(Level::Info, &text);
        Ok(true)
    }

    /// Records that requests lack attachments of these events; of the last one, perhaps only the first ones.
    pub(super) fn record_left_out(
        &mut self,
        seqs: &[u64],
        of_last: Option<u64>,
        why: LeftOutReason,
        message: Option<&str>,
    ) -> Result<()> {
        self.log.add_durably(&LeftOutEvent {
            seqs,
            why,
            of_last,
            message,
        })
    }
}
