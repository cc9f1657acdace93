//! The command line of `delta-flow eval`.

use super::processors;
use crate::config::pricing::{GivenBudget, read_budget, read_deadline};
use crate::error::{Error, Result};
use crate::flow::eval::format::EvalFormat;
use crate::flow::eval::suite::MOST_TRIALS;
use crate::text::options::parse::ParsedCommand;
use crate::text::timestamp::Timestamp;
use std::path::PathBuf;

/// `eval`.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Each is a switch of the command line.
pub(crate) struct FlowEvalArgs {
    pub dir: PathBuf,
    pub work_dir: PathBuf,
    // Names that are chosen; empty: all.
    pub suites: Vec<String>,
    pub tags: Vec<String>,
    pub cases: Vec<String>,
    pub settings: Vec<String>,
    /// In place of the suites' own number.
    pub trials: Option<u32>,
    /// The number of trials at once; None: one per processor.
    pub jobs: Option<usize>,
    pub format: EvalFormat,
    /// A result to compare with.
    pub against: Option<PathBuf>,
    /// Judge what is recorded again, and run nothing.
    pub regrade: bool,
    pub dry_run: bool,
    /// Of the whole tree, for this start.
    pub budget: Option<GivenBudget>,
    pub deadline: Option<Timestamp>,
    pub adopt: bool,
    pub quiet: bool,
}

impl FlowEvalArgs {
    /// The number of trials at once.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.unwrap_or_else(processors)
    }
}

pub(super) fn eval_args(given: &ParsedCommand) -> Result<FlowEvalArgs> {
    let format = given.text("--format");
    let trials = given.text("--trials").map(|text| {
        let most = text.parse().ok().filter(|trials| *trials <= MOST_TRIALS);
        most.ok_or_else(|| Error::usage(format!("--trials: {text} is more than {MOST_TRIALS}")))
    });
    Ok(FlowEvalArgs {
        dir: given.operand_dir(0),
        work_dir: given.work_dir(),
        suites: given.texts("--suite"),
        tags: given.texts("--tag"),
        cases: given.texts("--case"),
        settings: given.texts("--setting"),
        trials: trials.transpose()?,
        jobs: given.number("--jobs"),
        format: format
            .and_then(|word| EvalFormat::parse(&word))
            .unwrap_or_default(),
        against: given.path("--against"),
        regrade: given.has("--regrade"),
        dry_run: given.has("--dry-run"),
        budget: read_budget(given.text("--budget"))?,
        deadline: read_deadline(given.text("--deadline"))?,
        adopt: given.has("--adopt"),
        quiet: given.has("--quiet"),
    })
}
