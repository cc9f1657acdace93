//! What a help text says: its commands, options, values and operands.
//!
//! Unaware of what has been typed.

use super::Choice;

/// An option as the help has it.
#[derive(Debug)]
pub(super) struct Opt<'h> {
    /// `-w`.
    pub short: Option<&'h str>,
    /// `--work-dir`.
    pub long: Option<&'h str>,
    /// What its value is called; none if it has none.
    pub value: Option<&'h str>,
    /// What it is for.
    pub about: &'h str,
}

impl Opt<'_> {
    /// Whether this is one of its names.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.short == Some(name) || self.long == Some(name)
    }

    /// The name that is used for it.
    pub(crate) fn name(&self) -> String {
        self.long.or(self.short).unwrap_or_default().to_owned()
    }
}

/// The options of a help text: of `  -w, --work-dir DIR  work in DIR` both names, the value, the rest.
/// Where the rest begins on the next line, it is that line.
pub(super) fn options(help: &str) -> Vec<Opt<'_>> {
    let mut lines = help.lines().map(str::trim_start).peekable();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if !line.starts_with('-') {
            continue;
        }
        let (head, mut about) = line.split_once("  ").unwrap_or((line, ""));
        if about.is_empty()
            && let Some(next) = lines.peek().filter(|next| !next.starts_with('-'))
        {
            about = next;
        }
        let words = || head.split([',', ' ']).filter(|word| !word.is_empty());
        found.push(Opt {
            short: words().find(|word| word.starts_with('-') && word.len() == 2),
            long: words().find(|word| word.starts_with("--")),
            value: words().find(|word| !word.starts_with('-')),
            about: about.trim_start(),
        });
    }
    found
}

/// The commands of an overview: its lines that begin with a word between two margins.
pub(super) fn commands(overview: &str) -> Vec<Choice> {
    let lines = overview.lines().filter_map(|line| line.strip_prefix("  "));
    lines
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
        .filter_map(|line| {
            let (head, about) = line.split_once("  ")?;
            Some(Choice::new(head.split(' ').next()?, about.trim_start()))
        })
        .collect()
}

/// The operands of a usage, in order: what is no option, no option's value and no punctuation.
pub(super) fn operands<'h>(usage: &'h str, options: &[Opt<'_>]) -> Vec<&'h str> {
    let mut found = Vec::new();
    let mut words = usage.split_whitespace().skip(1);
    while let Some(word) = words.next() {
        // What follows is the shell's.
        if word == ">" {
            break;
        }
        let word = word.trim_matches(['[', ']', '…']).trim_end_matches("...");
        let word = word.trim_end_matches([']', '…']);
        if word.starts_with('-') {
            if options.iter().any(|o| o.has(word) && o.value.is_some()) {
                words.next();
            }
        } else if !matches!(word, "" | "|" | "OPTIONS" | "OPTION") {
            found.push(word);
        }
    }
    found
}

/// Whether the last operand of a usage may be repeated.
pub(super) fn repeats(usage: &str) -> bool {
    let last = usage.split_whitespace().rfind(|word| {
        let bare = word.trim_start_matches('[');
        !bare.starts_with('-') && !bare.contains('|')
    });
    last.is_some_and(|word| word.contains("...") || word.contains('…'))
}

/// Whether another program's command line begins at an operand: arguments follow it.
pub(super) fn begins_command(operands: &[&str], at: usize) -> bool {
    let next = operands.get(at + 1);
    next.is_some_and(|next| next.trim_start_matches('[').starts_with("ARGUMENT"))
}
