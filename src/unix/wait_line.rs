//! The line that says at a terminal what is waited for, and how long.
//!
//! Drawn by the waits themselves, once a second from the second second on. Unaware of what the words mean.

use super::files;
use super::secret::Secret;
use super::signals::{Signals, Ticker};
use super::terminal::{
    Screen, Tone, can_redraw, erase_line, is_in_foreground, redraw_line, stderr_size,
};
use crate::text::amounts::whole_seconds;
use crate::text::disguise::printable_line;
use crate::text::shorten::cut_to_columns;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes at the end of an output that are looked at.
const TAIL: u64 = 4 << 10;

const EVERY: Duration = Duration::from_secs(1);

/// Files that programs write to, and what is not shown of them.
#[derive(Default)]
pub(crate) struct Outputs {
    pub files: Vec<PathBuf>,
    pub secrets: Vec<Secret>,
}

/// The words of a line after the time: the end of a text that is arriving.
type LastWords = Arc<Mutex<String>>;

/// A wait that is shown until this is dropped.
pub(crate) struct WaitLine {
    /// None where nothing can be redrawn.
    signals: Option<Arc<Signals>>,
    words: LastWords,
}

impl WaitLine {
    /// Begins to wait for something, as in `waiting for gpt-4o`. After the time come the last words that are set, or
    /// the last line of the outputs, which are asked for only where the line is shown.
    pub(crate) fn begin(
        signals: &Arc<Signals>,
        screen: Screen,
        what: String,
        outputs: impl FnOnce() -> Outputs,
    ) -> Self {
        let words = LastWords::default();
        let is_shown = !screen.quiet && can_redraw();
        if is_shown {
            let (began, words) = (Instant::now(), Arc::clone(&words));
            let outputs = outputs();
            let draw = move || {
                if is_in_foreground() {
                    let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
                    if !outputs.files.is_empty() {
                        *words = outputs.last_line();
                    }
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

impl Outputs {
    /// The last line with words in it of the file that was written to last, without secrets and control characters; empty if
    /// there is none.
    fn last_line(&self) -> String {
        let opened = self.files.iter().filter_map(|path| {
            let file = files::open_regular(path).ok()?;
            let meta = file.metadata().ok()?;
            (meta.len() > 0).then_some((meta.modified().ok()?, meta.len(), file))
        });
        let Some((_, len, file)) = opened.max_by_key(|(time, ..)| *time) else {
            return String::new();
        };
        let from = len.saturating_sub(TAIL);
        let Ok(mut bytes) = files::read_part(&file, from, TAIL as usize) else {
            return String::new();
        };
        for secret in &self.secrets {
            secret.redact(&mut bytes);
        }
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        // The rest may follow.
        let begun = self.secrets.iter().filter_map(|it| it.unended(&text));
        text.truncate(begun.min().unwrap_or(text.len()));
        // The first word may be the rest of a secret.
        let whole = match text.split_once(char::is_whitespace) {
            Some((_, rest)) if from > 0 => rest,
            None if from > 0 => "",
            _ => &text,
        };
        let mut lines = whole.rsplit(['\n', '\r']).map(|line| {
            let shown: String = line.chars().filter(|c| !c.is_control()).collect();
            shown.trim().to_owned()
        });
        lines.find(|line| !line.is_empty()).unwrap_or_default()
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
    fn the_last_line_is_that_of_the_newest_output_and_controls_no_terminal() {
        let dir = std::env::temp_dir().join(format!("delta-wait-line-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let [out, err, link] = ["out", "err", "link"].map(|name| dir.join(name));
        let outputs = Outputs {
            files: vec![out.clone(), err.clone(), link.clone()],
            secrets: Secret::new("sk-0123456789abcdef").into_iter().collect(),
        };
        assert_eq!(outputs.last_line(), "");
        let long = format!("{} end", "x".repeat(5_000));
        for (text, shown) in [
            ("one\ntwo\n\n", "two"),
            ("10 %\r20 %\r", "20 %"),
            ("a\n\u{1b}[2Jb\u{9b}c\u{7}", "[2Jbc"),
            (
                "the key sk-0123456789abcdef is bad\n",
                "the key [redacted] is bad",
            ),
            ("all\nthe key is sk-0123456", "the key is"),
            (&long, "end"),
            (&long[..5_000], ""),
        ] {
            std::fs::write(&out, text).unwrap();
            assert_eq!(outputs.last_line(), shown);
        }
        std::fs::write(&err, "warning\n").unwrap();
        let later = std::time::SystemTime::now() + Duration::from_secs(9);
        std::fs::File::open(&err)
            .unwrap()
            .set_modified(later)
            .unwrap();
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        assert_eq!(outputs.last_line(), "warning");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_line_has_what_how_long_and_the_last_words() {
        let shown = |seconds, words| line("waiting for m", Duration::from_millis(seconds), words);
        assert_eq!(shown(12_900, ""), "waiting for m, 12 s");
        assert_eq!(shown(125_000, "and so"), "waiting for m, 2 min 5 s: and so");
    }
}
