//! The text of an answer on the terminal, as it arrives.
//!
//! Unaware of what the answer is for. A text that is whole is compared before anybody prints it once more.

use crate::model::wire::Heard;
use crate::text::disguise::printable;
use crate::unix::terminal::{Screen, end_text, print_piece};

/// The part of the current answer that is on the terminal.
pub(crate) struct StreamedText {
    /// Off: nothing is printed.
    is_on: bool,
    screen: Screen,
    text: String,
}

impl StreamedText {
    pub(crate) fn new(is_on: bool, screen: Screen) -> Self {
        Self {
            is_on,
            screen,
            text: String::new(),
        }
    }

    /// Makes ready for another answer.
    pub(crate) fn begin(&mut self) {
        self.text.clear();
    }

    /// Prints a piece of text. Until the first one, messages about the wait may use the terminal.
    pub(crate) fn hear(&mut self, heard: &Heard<'_>) {
        match heard {
            Heard::Text(words) if self.is_on => self.print(words),
            Heard::Text(_) => {}
            Heard::Reasoning(_) | Heard::Call(_) => end_text(),
            Heard::Anew => {
                end_text();
                if !std::mem::take(&mut self.text).is_empty() {
                    self.screen
                        .warn("the answer broke off; it begins once more:");
                }
            }
        }
    }

    fn print(&mut self, words: &str) {
        // A text begins with its first line.
        let words = match self.text.is_empty() {
            true => words.trim_start_matches(['\n', '\r']),
            false => words,
        };
        if !words.is_empty() {
            print_piece(words);
            self.text.push_str(words);
        }
    }

    /// True if this text, and nothing else, has been printed.
    pub(crate) fn is_shown(&self, text: &str) -> bool {
        !self.text.is_empty() && printable(&self.text).trim() == printable(text).trim()
    }
}
