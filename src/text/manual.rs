//! The pages of the manual, as text that is part of the program, where they are compressed as one.
//!
//! Unaware of how they are written; `man/render.sh` makes the text, and `man/check.sh` reports when it
//! is stale. A new page is one line here.

mod paragraphs;
mod search;

pub(crate) use search::{index_words, page_for, search};

use super::packed::{packed, unpacked};
use std::sync::LazyLock;

/// The name of each file and its text, each ended by a zero byte.
static TEXTS: LazyLock<String> = LazyLock::new(|| unpacked(packed!("manual")));

/// The text of a file, whose name is given without the suffix.
fn text_of(file: &str) -> &'static str {
    let mut parts = TEXTS.split('\0');
    parts.find(|part| *part == file);
    parts.next().unwrap_or_default()
}

/// A page.
#[derive(Debug)]
pub struct Page {
    /// Without `delta-` before it.
    pub name: &'static str,
    pub section: u8,
    /// Of its text, without the suffix.
    file: &'static str,
}

macro_rules! pages {
    ($($name:literal $section:literal $file:literal,)*) => {
        &[$(Page {
            name: $name,
            section: $section,
            file: $file,
        }),*]
    };
}

/// All pages, in the order in which they are listed.
pub const PAGES: &[Page] = pages![
    "delta" 1 "delta",
    "run" 1 "delta-run",
    "chat" 1 "delta-chat",
    "continue" 1 "delta-continue",
    "setup" 1 "delta-setup",
    "models" 1 "delta-models",
    "init" 1 "delta-init",
    "tell" 1 "delta-tell",
    "due" 1 "delta-due",
    "later" 1 "delta-later",
    "list-runs" 1 "delta-list-runs",
    "prune" 1 "delta-prune",
    "log" 1 "delta-log",
    "stats" 1 "delta-stats",
    "report" 1 "delta-report",
    "export" 1 "delta-export",
    "request" 1 "delta-request",
    "fork" 1 "delta-fork",
    "undo" 1 "delta-undo",
    "git" 1 "delta-git",
    "replay" 1 "delta-replay",
    "diff" 1 "delta-diff",
    "eval" 1 "delta-eval",
    "check" 1 "delta-check",
    "schema" 1 "delta-schema",
    "tool" 1 "delta-tool",
    "skills" 1 "delta-skills",
    "sandbox" 1 "delta-sandbox",
    "model" 1 "delta-model",
    "mcp" 1 "delta-mcp",
    "acp" 1 "delta-acp",
    "flow" 1 "delta-flow",
    "help" 1 "delta-help",
    "sessions" 1 "delta-sessions",
    "agent" 5 "delta-agent",
    "context" 5 "delta-context",
    "hooks" 5 "delta-hooks",
    "journal" 5 "delta-journal",
    "flow" 5 "delta-flow.5",
    "eval" 5 "delta-eval.5",
    "coder" 7 "delta-coder",
    "tutorial" 7 "delta-tutorial",
    "files" 7 "delta-files",
    "security" 7 "delta-security",
];

/// The page that a person names: `agent`, `delta-agent`, `delta-agent.5` or `delta-agent(5)`. Of two
/// with one name, the name alone means the first.
pub(crate) fn find(topic: &str) -> Option<&'static Page> {
    let short = topic.strip_prefix("delta-").unwrap_or(topic);
    PAGES.iter().find(|page| {
        let Page { name, section, .. } = page;
        [
            (*name).to_owned(),
            format!("{name}.{section}"),
            format!("{name}({section})"),
        ]
        .contains(&short.to_owned())
    })
}

impl Page {
    /// The page, as a terminal of 80 columns shows it.
    pub fn text(&self) -> &'static str {
        text_of(self.file)
    }

    /// The name that [`man`](https://man.openbsd.org/man.1) knows it by.
    pub fn full_name(&self) -> String {
        match self.name {
            "delta" => "delta".to_owned(),
            name => format!("delta-{name}"),
        }
    }

    /// The shortest name by which [`find`] finds it: `agent`, or `flow.5`, since `flow` is the command.
    pub(crate) fn topic(&self) -> String {
        match find(self.name) {
            Some(first) if first.section != self.section => {
                format!("{}.{}", self.name, self.section)
            }
            _ => self.name.to_owned(),
        }
    }

    /// The line under NAME, after the dash.
    pub(crate) fn about(&self) -> String {
        let name = self
            .text()
            .split("\nNAME\n")
            .nth(1)
            .unwrap_or_default()
            .split("\n\n")
            .next()
            .unwrap_or_default();
        let about = name.split_once(" – ").map_or("", |(_, about)| about);
        about.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// The list of all pages, one a line.
pub(crate) fn list() -> String {
    let lines = PAGES.iter().map(|page| {
        let name = format!("{}({})", page.full_name(), page.section);
        format!("{name:<20}{}\n", page.about())
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_found_by_every_form_of_its_name() {
        for topic in [
            "agent",
            "delta-agent",
            "delta-agent.5",
            "agent.5",
            "delta-agent(5)",
        ] {
            assert_eq!(find(topic).map(|page| page.name), Some("agent"), "{topic}");
        }
        for topic in ["delta", "delta.1"] {
            assert_eq!(find(topic).map(|page| page.name), Some("delta"), "{topic}");
        }
        for topic in ["", "delta-", "agent.1", "agents"] {
            assert!(find(topic).is_none(), "{topic}");
        }
    }

    #[test]
    fn every_page_says_what_it_is_about() {
        for page in PAGES {
            assert!(!page.about().is_empty(), "{}", page.name);
        }
    }
}
