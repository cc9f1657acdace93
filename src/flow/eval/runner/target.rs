//! The program of a trial: its words, its input and its environment.
//!
//! What decides what is executed comes from `evaluations.yaml` and from nowhere else.

use super::{EvaluationStart, TrialRef};
use crate::config::tool::definition::text_of;
use crate::engine::run_context::{LASTING_LIMITS, NO_FALLBACK};
use crate::flow::engine::programs::run_variables;
use crate::flow::eval::answer::TargetOutcome;
use crate::flow::eval::assertion::TargetResult;
use crate::flow::eval::suite::Target;
use crate::flow::eval::verdict::{AGENT_CHANGED, TargetEnd};
use crate::runs::overrides::option_words;
use crate::text::json;
use crate::unix::own_program::own_program;
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

/// The program of a trial. `home` is the directory of the suite's file, `dir` the trial's workspace.
pub(super) fn command(trial: TrialRef<'_>, home: &Path, dir: &Path) -> TrialProgram {
    let (of, plan) = (trial.of, trial.plan);
    let (case, set) = (plan.chosen.case, &plan.setting.set);
    let alone = (!of.suite.fallback).then(|| "1".to_owned());
    let mut env = vec![
        (SEED.to_owned(), Some(plan.seed.to_string())),
        (NO_FALLBACK.to_owned(), alone),
    ];
    let mut stdin = text_of(&case.input);
    let work_dir = &*dir.to_string_lossy();
    let run = |input| {
        let words = [input, "-", "-w", work_dir, "--run-id", &plan.name];
        words
            .into_iter()
            .chain(["--format", "json", "-q"])
            .map(str::to_owned)
    };
    let mut argv = Vec::new();
    match &of.suite.target {
        Target::Command(command) => argv = command.argv(home, dir),
        Target::Flow => {
            stdin = json::text(&case.input);
            argv.push(own_program());
            argv.extend(["flow", "run"].map(str::to_owned));
            argv.push(home.to_string_lossy().into_owned());
            let start = case.start.iter();
            argv.extend(start.flat_map(|start| ["--start".to_owned(), start.clone()]));
            argv.extend(run("-i"));
        }
        Target::Agent { .. } => {
            argv.push(own_program());
            argv.extend(["run", "-a"].map(str::to_owned));
            argv.extend(
                plan.target
                    .agent
                    .iter()
                    .map(|agent| agent.to_string_lossy().into_owned()),
            );
            argv.extend(run("-m"));
            argv.extend(set.iter().flat_map(|(key, value)| option_words(key, value)));
            if plan.target.is_seeded || set.contains_key("llm.seed") {
                argv.extend(option_words("llm.seed", &plan.seed.into()));
            }
            return TrialProgram { argv, stdin, env };
        }
    }
    env.extend(
        set.iter()
            .map(|(key, value)| (key.clone(), Some(text_of(value)))),
    );
    TrialProgram { argv, stdin, env }
}

/// The variables of the programs of a trial: of its target, and of what grades it.
pub(super) fn environment(start: &EvaluationStart<'_>, dir: &Path) -> Vec<Variable> {
    let mut variables = run_variables(
        start.home,
        dir,
        &start.run,
        start.depth,
        &start.ledgers,
        start.deadline,
    );
    variables.push((LASTING_LIMITS.to_owned(), Some("1".to_owned())));
    variables
}

/// The end of a trial whose program could not be started.
pub(super) fn not_started(message: String) -> TargetOutcome {
    let end = TargetEnd::Misconfigured("configuration".to_owned());
    TargetOutcome::of(end, "", TargetResult::default(), Some(message))
}

/// The end of a trial during which its agent was edited.
pub(super) fn agent_changed() -> TargetOutcome {
    let message = "the agent's files were changed meanwhile, so it is not known what was measured; the same command \
                   measures it as it is now";
    let end = TargetEnd::NotMeasured(AGENT_CHANGED.to_owned());
    TargetOutcome::of(end, "", TargetResult::default(), Some(message.to_owned()))
}

/// The end of a trial whose program printed more than can be read.
pub(super) fn oversized() -> TargetOutcome {
    let message = "it printed more than 256 MiB".to_owned();
    let end = TargetEnd::Failed("output".to_owned());
    TargetOutcome::of(end, "", TargetResult::default(), Some(message))
}
