//! What programs say of texts: vectors (`embedder`) and counts of tokens (`tokenizer`).
//!
//! A program gets a JSON list of strings on its standard input, and prints a JSON list of as many answers.
//! Each answer is kept under the SHA-256 of the program, the files that it names and the text, so that
//! what has been asked once is known. Unaware of processes: a caller that lacks an answer gets the question to ask.

use crate::error::Result;
use crate::flow::manifest::Flow;
use crate::flow::manifest::{HelperProgram, sha256};
use crate::flow::record::cache;
use crate::record::workspace::Workspace;
use crate::text::json;
use crate::text::names::named_enum;
use serde_json::value::RawValue;
use std::path::Path;

named_enum! {
    /// Which program.
    pub(crate) enum HelperKind {
        /// Makes vectors of texts.
        Embedder = "embedder",
        /// Counts their tokens.
        Tokenizer = "tokenizer",
    }
}

impl HelperKind {
    /// The program, if the flow has one.
    pub(crate) fn of(self, flow: &Flow) -> Option<&HelperProgram> {
        match self {
            Self::Embedder => flow.memory.embedder.as_ref(),
            Self::Tokenizer => flow.memory.tokenizer.as_ref(),
        }
    }

    /// An answer, if it is one.
    fn read(self, json: &str) -> Option<Vec<f64>> {
        let numbers: Vec<f64> = match self {
            Self::Embedder => serde_json::from_str(json).ok()?,
            Self::Tokenizer => vec![serde_json::from_str::<u32>(json).ok()?.into()],
        };
        let is_good = !numbers.is_empty() && numbers.iter().all(|number| number.is_finite());
        is_good.then_some(numbers)
    }
}

/// A question to a program about texts.
#[derive(Debug)]
pub(crate) struct HelperQuestion {
    /// Which program.
    pub kind: HelperKind,
    /// About these texts.
    pub texts: Vec<String>,
}

impl HelperQuestion {
    pub(crate) fn input(&self) -> String {
        json::text(&self.texts)
    }

    /// The answers in the output of a program, or why it has none.
    pub(crate) fn answers<'p>(
        &self,
        printed: &'p str,
    ) -> std::result::Result<Vec<&'p RawValue>, String> {
        let answers: Vec<&RawValue> = serde_json::from_str(json::after_mark(printed))
            .map_err(|_| "its output is not one JSON list")?;
        let (wanted, came) = (self.texts.len(), answers.len());
        if wanted != came {
            return Err(format!(
                "it was asked about {wanted} texts and answered {came}"
            ));
        }
        let mut lengths = None;
        for (at, answer) in answers.iter().enumerate() {
            let at = at + 1;
            let Some(numbers) = self.kind.read(answer.get()) else {
                let what = match self.kind {
                    HelperKind::Embedder => "a list of numbers",
                    HelperKind::Tokenizer => "a whole number",
                };
                return Err(format!("its answer {at} is not {what}"));
            };
            let (first, this) = (*lengths.get_or_insert(numbers.len()), numbers.len());
            if first != this {
                return Err(format!(
                    "its answers have {first} and {this} numbers, and all must have as many"
                ));
            }
        }
        Ok(answers)
    }
}

/// Answers about texts that are known in a workspace.
pub(crate) struct HelperAnswers<'k> {
    flow: &'k Flow,
    workspace: &'k Workspace,
}

impl<'k> HelperAnswers<'k> {
    pub(crate) fn new(flow: &'k Flow, workspace: &'k Workspace) -> Self {
        Self { flow, workspace }
    }

    pub(crate) fn has(&self, kind: HelperKind) -> bool {
        kind.of(self.flow).is_some()
    }

    /// The answer about a text.
    pub(crate) fn answer(&self, kind: HelperKind, text: &str) -> Option<Vec<f64>> {
        kind.read(&cache::read_entry(self.workspace, &self.entry(kind, text))?)
    }

    /// Keeps the answers that a program printed.
    pub(crate) fn learn(&self, ask: &HelperQuestion, answers: &[&RawValue]) -> Result<()> {
        for (text, answer) in ask.texts.iter().zip(answers) {
            cache::write_entry(self.workspace, &self.entry(ask.kind, text), answer.get())?;
        }
        Ok(())
    }

    /// The name of an answer.
    fn entry(&self, kind: HelperKind, text: &str) -> String {
        let mut all = format!("{} {}\n", kind.name(), sha256(text.as_bytes()));
        if let Some(program) = kind.of(self.flow) {
            let home = &self.flow.home;
            for word in program.command.argv(home, Path::new("")) {
                all.push_str(&format!("word {}\n", sha256(word.as_bytes())));
            }
            for path in program.command.files(home) {
                let name = path.strip_prefix(home).unwrap_or(&path).to_string_lossy();
                let file = self.flow.files.iter().find(|file| file.path == name);
                let sum = file.map_or("", |file| file.sha256.as_str());
                all.push_str(&format!("file {sum}\n"));
            }
        }
        sha256(all.as_bytes())
    }
}
