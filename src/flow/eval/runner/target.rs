//! The program of a trial: its words, its input and its environment.
//!
//! What decides what is executed comes from `evaluations.yaml` and from nowhere else.

use super::EvaluationPlace;
use crate::engine::run_context::{DEADLINE, ENGINE_PID, LASTING_LIMITS, LEDGERS, NO_FALLBACK};
use crate::flow::eval::answer::TargetOutcome;
use crate::flow::eval::assertion::{TargetResult, text_of};
use crate::flow::eval::plan::PlannedSuite;
use crate::flow::eval::suite::{Case, Setting, Target};
use crate::flow::eval::verdict::TargetEnd;
use crate::flow::record::program_beside;
use crate::runs::overrides::option_words;
use crate::text::json;
use crate::unix::process::Variable;
use std::path::Path;

/// The variable that has a trial's seed.
const SEED: &str = "DELTA_SEED";

/// A program to start for a trial.
pub(super) struct TrialProgram {
    pub argv: Vec<String>,
    pub stdin: String,
    pub env: Vec<Variable>,
}

/// True if the same command goes on with what an earlier process began.
pub(super) fn is_resumable(target: &Target) -> bool {
    match target {
        Target::Flow | Target::Agent { .. } => true,
        Target::Command(_) => false,
    }
}

/// The program of a trial. `name` is that of its run, `home` the directory of the suite's file.
pub(super) fn command(
    suite: &PlannedSuite<'_>,
    (case, setting): (&Case, &Setting),
    (home, dir): (&Path, &Path),
    (name, seed): (&str, u32),
) -> TrialProgram {
    let work_dir = dir.to_string_lossy().into_owned();
    let alone = (!suite.suite.fallback).then(|| "1".to_owned());
    let mut env = vec![
        (SEED.to_owned(), Some(seed.to_string())),
        (NO_FALLBACK.to_owned(), alone),
    ];
    let mut stdin = text_of(&case.input);
    let argv = match &suite.suite.target {
        Target::Command(command) => command.argv(home, dir),
        Target::Flow => {
            stdin = json::text(&case.input);
            let home = home.to_string_lossy();
            let mut words = vec![
                program_beside("delta-flow"),
                "run".to_owned(),
                home.into_owned(),
            ];
            if let Some(start) = &case.start {
                words.extend(["--start".to_owned(), start.clone()]);
            }
            words.extend(run_words("-i", &work_dir, name));
            words
        }
        Target::Agent { .. } => {
            let agent = suite.agent.clone().unwrap_or_default();
            let mut words = vec![
                program_beside("delta"),
                "run".to_owned(),
                "-a".to_owned(),
                agent,
            ];
            words.extend(run_words("-m", &work_dir, name));
            for (key, value) in &setting.set {
                words.extend(option_words(key, value));
            }
            if suite.is_seeded || setting.set.contains_key("llm.seed") {
                words.extend(option_words("llm.seed", &seed.into()));
            }
            words
        }
    };
    if !matches!(suite.suite.target, Target::Agent { .. }) {
        let given = setting.set.iter();
        env.extend(given.map(|(key, value)| (key.clone(), Some(text_of(value)))));
    }
    TrialProgram { argv, stdin, env }
}

/// The options that all runs have. `input` is the option that reads stdin.
fn run_words(input: &str, work_dir: &str, name: &str) -> Vec<String> {
    let words = [
        input, "-", "-w", work_dir, "--run-id", name, "--format", "json", "-q",
    ];
    words.map(str::to_owned).to_vec()
}

/// The variables of the programs of a trial: of its target, and of what grades it.
pub(super) fn environment(place: &EvaluationPlace<'_>, dir: &Path) -> Vec<Variable> {
    let variables = [
        ("FLOW_HOME", place.home.to_string_lossy()),
        ("CWD", dir.to_string_lossy()),
        ("DELTA_RUN_ID", place.run.id.as_str().into()),
        ("DELTA_RUN_DIR", place.run.path.to_string_lossy()),
        ("DELTA_DEPTH", (place.depth + 1).to_string().into()),
        (ENGINE_PID, std::process::id().to_string().into()),
        (LEDGERS, place.ledgers.as_str().into()),
        (LASTING_LIMITS, "1".into()),
    ];
    let deadline = place
        .deadline
        .map(|deadline| (DEADLINE, deadline.to_string().into()));
    let variables = variables.into_iter().chain(deadline);
    variables
        .map(|(name, value)| (name.to_owned(), Some(value.into_owned())))
        .collect()
}

/// The end of a trial whose program could not be started.
pub(super) fn not_started(message: String) -> TargetOutcome {
    without_answer(TargetEnd::Misconfigured, "configuration", message)
}

/// The end of a trial whose program printed more than can be read.
pub(super) fn oversized() -> TargetOutcome {
    let message = "it printed more than 256 MiB".to_owned();
    without_answer(TargetEnd::Failed, "output", message)
}

fn without_answer(
    end: impl Fn(String) -> TargetEnd,
    reason: &str,
    message: String,
) -> TargetOutcome {
    TargetOutcome {
        end: end(reason.to_owned()),
        stop_reason: reason.to_owned(),
        result: TargetResult::default(),
        message: Some(message),
    }
}
