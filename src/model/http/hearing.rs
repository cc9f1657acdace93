//! The parts of an answer that a listener hears: never a secret, and no beginning of what may become one.

use crate::config::environment::Secret;
use crate::model::wire::{Heard, Listener};

/// Passes the pieces of a stream on to its listener.
pub(super) struct Hearing<'s> {
    secrets: &'s [Secret],
    /// Words that may be the beginning of a secret.
    held: String,
    is_reasoning: bool,
}

impl<'s> Hearing<'s> {
    pub(super) fn new(secrets: &'s [Secret]) -> Self {
        Self {
            secrets,
            held: String::new(),
            is_reasoning: false,
        }
    }

    /// Passes on what is safe to be heard.
    pub(super) fn hear(&mut self, heard: Heard<'_>, listener: &mut Listener<'_>) {
        match heard {
            Heard::Text("") | Heard::Reasoning("") => {}
            Heard::Text(words) => self.add(words, false, listener),
            Heard::Reasoning(words) => self.add(words, true, listener),
            Heard::Call(tool) => {
                self.end(listener);
                let mut name = tool.to_owned();
                self.redact(&mut name);
                listener(Heard::Call(&name));
            }
            Heard::Anew => {
                self.held.clear();
                listener(heard);
            }
        }
    }

    /// Passes on what is left: nothing follows that it could be the beginning of.
    pub(super) fn end(&mut self, listener: &mut Listener<'_>) {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            self.say(&held, listener);
        }
    }

    fn add(&mut self, words: &str, is_reasoning: bool, listener: &mut Listener<'_>) {
        if is_reasoning != self.is_reasoning {
            self.end(listener);
            self.is_reasoning = is_reasoning;
        }
        let mut known = std::mem::take(&mut self.held) + words;
        self.redact(&mut known);
        let begins = self.secrets.iter().filter_map(|it| it.unended(&known));
        self.held = known.split_off(begins.min().unwrap_or(known.len()));
        if !known.is_empty() {
            self.say(&known, listener);
        }
    }

    fn redact(&self, text: &mut String) {
        for secret in self.secrets {
            secret.redact_text(text);
        }
    }

    fn say(&self, words: &str, listener: &mut Listener<'_>) {
        listener(if self.is_reasoning {
            Heard::Reasoning(words)
        } else {
            Heard::Text(words)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_pieces_is_not_heard_and_other_words_are_not_lost() {
        let secrets = [Secret::new("sk-0123456789abcdef").unwrap()];
        let text =
            "the keys: sk-0123456789abcdef, \\u0073k-0123456789abcdef, sk-0123, \\u0073 and s";
        for size in 1..=text.len() {
            let (mut hearing, mut heard) = (Hearing::new(&secrets), String::new());
            let mut listener = |it: Heard<'_>| {
                if let Heard::Text(words) = it {
                    heard.push_str(words);
                    assert!(words != "s" || heard.ends_with(" and s"), "{heard}");
                }
            };
            for piece in text.as_bytes().chunks(size) {
                let piece = std::str::from_utf8(piece).unwrap();
                hearing.hear(Heard::Text(piece), &mut listener);
            }
            hearing.end(&mut listener);
            let expected = "the keys: [redacted], [redacted], sk-0123, \\u0073 and s";
            assert_eq!(heard, expected, "in pieces of {size}");
        }
    }
}
