//! Attachments of messages and results, and the event from which on requests lack some.

use super::{Event, EventKind, Line, Raw, Recorded, Text};
use crate::record::attachments::{Attachment, read_list};
use crate::text::amounts::counted;
use crate::text::names::named_enum;

named_enum! {
    /// Reason why requests have lines in place of attachments.
    pub(crate) enum LeftOutReason {
        /// There are too many.
        Limit = "limit",
        /// The service refused them.
        Refused = "refused",
    }
}

events! {
    AttachmentsLeftOut, LeftOutEvent {
        /// The numbers of the events that they are of.
        seqs: (&'a [u64] => Raw<'a>),
        why: (LeftOutReason => Text<'a>),
        /// How many of the last of these events are left out, the first ones; none: all.
        of_last: opt_count,
        /// The service's words.
        message: opt_text,
    }
}

impl AttachmentsLeftOut<'_> {
    pub(super) fn note(&self) -> String {
        let of = counted(self.seqs.read_or_default::<Vec<u64>>().len(), "message");
        let why = match self.message.get() {
            Some(words) => format!("the service refuses them: {words}"),
            None => "there are too many".to_owned(),
        };
        format!("attachments of {of} are lines from now on: {why}")
    }
}

impl<'a> Line<'a> {
    /// The attachments of a message or a result.
    pub(crate) fn attachments(&self) -> Vec<Attachment> {
        read_list(self.raw_attachments().0)
    }

    pub(crate) fn raw_attachments(&self) -> Raw<'a> {
        match &self.event {
            Recorded::UserMessage(message) => message.attachments,
            Recorded::ActionResult(result) => result.attachments,
            _ => Raw(None),
        }
    }
}
