//! The text of an answer on the terminal, as it arrives.
//!
//! Unaware of what the answer is for. A text that is whole is compared before anybody prints it once more.

use crate::model::wire::Heard;
use crate::record::feed::Feed;
use crate::text::answers::after_thoughts;
use crate::text::disguise::printable;
use crate::text::markdown::Scanner;
use crate::unix::terminal::{Screen, end_text, print_piece};
use std::rc::Rc;

/// The part of the current answer that is on the terminal.
pub(crate) struct StreamedText {
    /// Off: nothing is printed.
    is_on: bool,
    screen: Screen,
    text: String,
    /// Finds the roles of its parts.
    scanner: Scanner,
    /// A program that gets the text, too.
    feed: Option<Rc<Feed>>,
    iteration: u64,
    /// From 1, of this iteration.
    attempt: u64,
    /// The attempt has brought text.
    has_text: bool,
}

impl StreamedText {
    pub(crate) fn new(is_on: bool, screen: Screen, feed: Option<Rc<Feed>>) -> Self {
        Self {
            is_on,
            screen,
            text: String::new(),
            scanner: Scanner::default(),
            feed,
            iteration: 0,
            attempt: 1,
            has_text: false,
        }
    }

    /// Makes ready for another answer.
    pub(crate) fn begin(&mut self, iteration: u64) {
        self.text.clear();
        if self.iteration == iteration {
            self.begin_attempt();
        } else {
            (self.iteration, self.attempt, self.has_text) = (iteration, 1, false);
        }
    }

    /// Begins another attempt at the iteration's answer.
    fn begin_attempt(&mut self) {
        self.attempt += u64::from(std::mem::take(&mut self.has_text));
    }

    /// Prints a piece of text. Until the first one, messages about the wait may use the terminal.
    pub(crate) fn hear(&mut self, heard: &Heard<'_>) {
        match heard {
            Heard::Text(words) => {
                if let Some(feed) = &self.feed {
                    feed.add_text(self.iteration, self.attempt, words);
                    self.has_text = true;
                }
                if self.is_on {
                    self.print(words);
                }
            }
            Heard::Reasoning(_) | Heard::Call(_) => self.end(),
            Heard::Anew => {
                self.begin_attempt();
                self.end();
                if !std::mem::take(&mut self.text).is_empty() {
                    self.screen
                        .warn("the answer broke off; it begins once more:");
                }
            }
        }
    }

    /// Prints what is left of the text, and ends its line.
    pub(crate) fn end(&mut self) {
        print_piece(&std::mem::take(&mut self.scanner).end());
        end_text();
    }

    fn print(&mut self, words: &str) {
        // A text begins with its first line.
        let words = if self.text.is_empty() {
            words.trim_start_matches(['\n', '\r'])
        } else {
            words
        };
        if !words.is_empty() {
            print_piece(&self.scanner.read(words));
            self.text.push_str(words);
        }
    }

    /// True if this text, and nothing else but thoughts, has been printed.
    pub(crate) fn is_shown(&self, text: &str) -> bool {
        let is_it = |shown: &str| printable(shown).trim() == printable(text).trim();
        !self.text.is_empty() && (is_it(&self.text) || is_it(after_thoughts(&self.text)))
    }
}
