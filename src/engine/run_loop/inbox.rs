//! Messages that people send to a live run: each is in the journal once, and then is taken out of the inbox.

use super::{Engine, from_journal};
use crate::engine::inbox::{self, ArrivedMessage};
use crate::error::Result;
use crate::record::event::MessageEvent;
use crate::text::shorten::in_short;
use crate::unix::terminal::Tone;

/// Takes what lies in the inbox. Returns whether there was a new message.
pub(super) fn take_messages(engine: &mut Engine<'_>) -> Result<bool> {
    let arrived = inbox::arrived(&engine.ctx.run)?;
    if arrived.is_empty() {
        return Ok(false);
    }
    let known: Vec<String> =
        from_journal(engine, |run| run.inbox_ids().map(str::to_owned).collect())?;
    let is_new = |message: &&ArrivedMessage| !known.contains(&message.id);
    let mut is_any = false;
    for message in arrived.iter().filter(is_new) {
        engine.log.add(&MessageEvent {
            content: &message.text,
            source: Some("inbox"),
            id: Some(&message.id),
            ..MessageEvent::default()
        });
        let shown = in_short(&message.text, 160);
        engine
            .log
            .print_progress(&[(Tone::Dim, "> "), (Tone::Said, &shown)]);
        is_any = true;
    }
    // Nothing is taken out before it is on disk.
    engine.log.make_durable()?;
    arrived.iter().try_for_each(ArrivedMessage::remove)?;
    Ok(is_any)
}

/// Takes messages for the last time before the run is complete: from then on none can arrive any more, unless this has
/// found one.
pub(super) fn take_last_messages(engine: &mut Engine<'_>) -> Result<bool> {
    engine.log.inbox = inbox::hold(&engine.ctx.run)?;
    let is_any = take_messages(engine)?;
    if is_any {
        engine.log.inbox = None;
    }
    Ok(is_any)
}
