//! Which attachments a request has: no more than it may have, and none whose file is gone.

use super::run_log::RunLog;
use super::sizes::Sizes;
use crate::engine::run_context::RunContext;
use crate::error::Result;
use crate::model::wire::cut_marks;
use crate::record::attachments::Attachment;
use crate::record::attachments::blobs::Blobs;
use crate::record::attachments::body::{Body, Gap, with_marks};
use crate::record::engine_log::Level;
use crate::record::event::{Event, LeftOutReason};
use crate::record::message_cache::{AttachedTo, MessageCache};
use crate::record::messages::attached::{FEW, ShownAttachments};
use crate::record::state::Run;
use crate::text::amounts::counted;
use std::borrow::Cow;

/// Above either of these, the oldest are left out down to the lower ones: bytes of base64, and attachments.
const MOST_BYTES: u64 = 24_000_000;
const MOST: usize = 40;
const FEWER_BYTES: u64 = 12_000_000;

/// What is known of the attachments of requests.
pub(super) struct Attachments<'a> {
    ctx: &'a RunContext<'a>,
    pub(super) blobs: Blobs,
    /// Their places in the newest request.
    pub(super) gaps: Vec<Gap>,
    /// Why the service refused the request in place of which one without some of them is made.
    pub(super) refusal: Option<String>,
}

/// The attachments that the next request would have.
pub(super) fn taken(transcript: &MessageCache, shown: &ShownAttachments) -> Vec<AttachedTo> {
    let each = transcript.attached().iter();
    let each = each.filter(|it| shown.has(it.seq, &it.attachment));
    each.cloned().collect()
}

/// True if pictures with a long side go as lines, of this number of attachments. At the edge it stays as it was, so that
/// requests begin as those before them.
fn is_crowded(all: usize, before: &ShownAttachments) -> bool {
    all > FEW || all == FEW && before.is_crowded
}

/// If a request would have too many: how many of the oldest are left out, the events that these are of, and how many of
/// the last event; none: all.
fn surplus(sent: &[AttachedTo]) -> Option<(usize, Vec<u64>, Option<u64>)> {
    let size = |it: &AttachedTo| it.attachment.base64_len();
    let mut bytes: u64 = sent.iter().map(size).sum();
    if bytes <= MOST_BYTES && sent.len() <= MOST {
        return None;
    }
    let mut count = 0;
    while bytes > FEWER_BYTES || sent.len() - count > FEW {
        bytes -= size(&sent[count]);
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
    let taken = |state: &Run<'_>, shown: &ShownAttachments| -> Vec<AttachedTo> {
        let each = state.turns[state.first_with_attachments()..].iter();
        let each = each.flat_map(AttachedTo::of);
        each.filter(|it| shown.has(it.seq, &it.attachment))
            .collect()
    };
    let all = taken(state, shown).into_iter();
    let gone = all.filter(|it| !has(&it.attachment));
    shown.gone = gone.map(|it| it.attachment.sha256).collect();
    loop {
        let before = shown.clone();
        shown.is_crowded = false;
        shown.is_crowded = is_crowded(taken(state, shown).len(), &before);
        match surplus(&taken(state, shown)) {
            Some((_, seqs, of_last)) => state.leave_out_also(seqs, of_last),
            None => break,
        }
    }
}

impl<'a> Attachments<'a> {
    pub(super) fn new(ctx: &'a RunContext<'a>) -> Self {
        Self {
            ctx,
            blobs: Blobs::of(&ctx.run.path),
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
        let marked = match self.gaps.is_empty() {
            true => text.into(),
            false => with_marks(text, &self.gaps).into(),
        };
        Ok((body, marked))
    }

    /// Decides which attachments the next request has. True if the transcript must be brought up to date, and this be
    /// called again.
    pub(super) fn settle(
        &mut self,
        log: &mut RunLog<'_>,
        transcript: &mut MessageCache,
        sizes: &mut Sizes,
    ) -> Result<bool> {
        let before = transcript.form().shown.clone();
        let mut shown = before.clone();
        shown.is_crowded = false;
        for it in taken(transcript, &shown) {
            if !self.blobs.has(&it.attachment) {
                let name = &it.attachment.name;
                let path = self.blobs.path(&it.attachment.sha256);
                let note = format!(
                    "attachment {name} is left out: {} is gone or changed",
                    path.display()
                );
                log.record_note(Level::Warn, &note)?;
                shown.gone.insert(it.attachment.sha256);
            }
        }
        shown.is_crowded = is_crowded(taken(transcript, &shown).len(), &before);
        let sent = taken(transcript, &shown);
        sizes.attachment_tokens = sent.iter().map(|it| it.attachment.tokens()).sum();
        if shown == before {
            return self.leave_out_oldest(log, &sent);
        }
        transcript.change_shown(shown);
        Ok(true)
    }

    /// Leaves out the oldest attachments if a request would have too many. True if it did.
    fn leave_out_oldest(&self, log: &mut RunLog<'_>, sent: &[AttachedTo]) -> Result<bool> {
        let Some((count, seqs, of_last)) = surplus(sent) else {
            return Ok(false);
        };
        self.record(log, (&seqs, of_last), (LeftOutReason::Limit, None))?;
        let text = format!(
            "{} left out of requests from now on: there are too many",
            counted(count, "attachment")
        );
        self.ctx.log.line(Level::Info, &text);
        Ok(true)
    }

    /// Records that requests lack attachments of these events; of the last one, perhaps only the first ones.
    pub(super) fn record(
        &self,
        log: &mut RunLog<'_>,
        (seqs, of_last): (&[u64], Option<u64>),
        (why, message): (LeftOutReason, Option<&str>),
    ) -> Result<()> {
        self.ctx.workspace.raise_layout()?;
        log.add(&Event::AttachmentsLeftOut {
            seqs,
            why,
            of_last,
            message,
        });
        log.make_durable()
    }
}
