//! The event of a state of the workspace's files.
//!
//! Architecture invariant: a state is placed by its iteration, after which and before the next request it was taken, and not
//! by its place in the journal.

use super::{Event, EventKind, Raw, Text};
use crate::text::amounts::counted;
use crate::text::disguise::printable_line;
use crate::text::names::named_enum;
use serde::{Deserialize, Serialize};

named_enum! {
    /// What the difference from the last state comes from.
    pub(crate) enum FilesReason {
        /// It is the run's first state.
        Start = "start",
        /// The tools of an iteration.
        Iteration = "iteration",
        /// Anything else, such as a person or another run.
        Outside = "outside",
        Undo = "undo",
    }
}

named_enum! {
    /// A change that leaves a file in one of two states only.
    pub(crate) enum FileChange {
        New = "new",
        Removed = "removed",
    }
}

/// A file that differs from the last state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangedFile {
    /// From the workspace.
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<FileChange>,
    /// Lines; none of a file that is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
}

events! {
    Files, FilesEvent {
        /// Number of the state, from 1.
        n: count,
        why: (FilesReason => Text<'a>),
        /// The commit in the store of states.
        commit: text,
        /// Numbers of files.
        changed: count,
        added: count,
        removed: count,
        /// The first of them; of the first state, none.
        paths: (&'a [ChangedFile] => Raw<'a>),
    }
}

impl Files<'_> {
    /// The files that changed.
    pub(crate) fn changed_files(&self) -> Vec<ChangedFile> {
        self.paths.read_or_default()
    }

    /// In words: the number of the state, what the difference comes from unless tools made it, and the difference.
    pub(super) fn note(&self) -> String {
        let number = self.n.map_or_else(String::new, |n| format!("s{n}"));
        let (what, differs) = (FilesReason::parse(&self.why), self.difference());
        match what {
            Some(FilesReason::Start) => format!("{number}, at the start: {differs}"),
            Some(FilesReason::Outside) => format!("{number}, from outside: {differs}"),
            Some(FilesReason::Undo) => format!("{number}, put back: {differs}"),
            Some(FilesReason::Iteration) | None => format!("{number}: {differs}"),
        }
    }

    fn difference(&self) -> String {
        let paths = self.changed_files();
        let words = paths.iter().map(ChangedFile::in_words);
        let mut all: Vec<String> = words.collect();
        let numbers = [self.changed, self.added, self.removed];
        let total: u64 = numbers.into_iter().flatten().fold(0, u64::saturating_add);
        match total.saturating_sub(paths.len() as u64) {
            0 if all.is_empty() => all.push("none".to_owned()),
            0 => {}
            more if all.is_empty() => all.push(counted(more as usize, "file")),
            more => all.push(format!("and {more} more")),
        }
        all.join(", ")
    }
}

impl ChangedFile {
    fn in_words(&self) -> String {
        let lines = [('+', self.added), ('-', self.removed)];
        let figures = lines.map(|(sign, lines)| lines.map(|lines| format!(" {sign}{lines}")));
        let what = match self.change {
            Some(change) => format!(" {}", change.name()),
            None if self.added.is_none() => " changed".to_owned(),
            None => figures.into_iter().flatten().collect(),
        };
        format!("{}{what}", printable_line(&self.path))
    }
}
