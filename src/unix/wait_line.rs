//! The line that says at a terminal what is waited for, and how long.
//!
//! Drawn by the waits themselves, once a second from the second second on. Unaware of what the words mean.

use super::signals::{Signals, Ticker};
use super::terminal::{
    Screen, Tone, can_redraw, erase_line, is_in_foreground, redraw_line, stderr_size,
};
use crate::text::amounts::whole_seconds;
use crate::text::disguise::printable_line;
use crate::text::shorten::cut_to_columns;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);

/// What a line says behind the time: the end of a text that is arriving.
type LastWords = Arc<Mutex<String>>;

/// A wait that is shown until this is dropped.
pub(crate) struct WaitLine {
    /// None where nothing can be redrawn.
    signals: Option<Arc<Signals>>,
    words: LastWords,
}

impl WaitLine {
    /// Begins to wait for something, as in `waiting for gpt-4o`.
    pub(crate) fn begin(signals: &Arc<Signals>, screen: Screen, what: String) -> Self {
        let words = LastWords::default();
        let is_shown = !screen.quiet && can_redraw();
        if is_shown {
            let (began, words) = (Instant::now(), Arc::clone(&words));
            let draw = move || {
                if is_in_foreground() {
                    let words = words.lock().unwrap_or_else(PoisonError::into_inner);
                    let text = line(&what, began.elapsed(), &words);
                    let columns = stderr_size().1.saturating_sub(1);
                    let text = cut_to_columns(&printable_line(&text), columns);
                    redraw_line(&screen.painted(&[(Tone::Dim, &text)]));
                }
            };
            signals.set_ticker(Some(Ticker::new(EVERY, draw)));
        }
        Self {
            signals: is_shown.then(|| Arc::clone(signals)),
            words,
        }
    }

    /// Replaces the last words of a text that is arriving.
    pub(crate) fn set_last_words(&self, words: &str) {
        let mut known = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.clone_into(&mut known);
    }
}

impl Drop for WaitLine {
    fn drop(&mut self) {
        if let Some(signals) = &self.signals {
            signals.set_ticker(None);
            erase_line();
        }
    }
}

fn line(what: &str, time: Duration, words: &str) -> String {
    let time = whole_seconds(time);
    match words {
        "" => format!("{what}, {time}"),
        words => format!("{what}, {time}: {words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_how_long_and_the_last_words() {
        let shown = |seconds, words| line("waiting for m", Duration::from_millis(seconds), words);
        assert_eq!(shown(12_900, ""), "waiting for m, 12 s");
        assert_eq!(shown(125_000, "and so"), "waiting for m, 2 min 5 s: and so");
    }
}
