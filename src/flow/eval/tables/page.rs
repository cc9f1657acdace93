//! The result of a suite as lines of JSON, from which its page is made: the suite, its cases, its trials.

use super::{conclusions, line, text};
use crate::flow::eval::suite::Case;
use crate::flow::eval::summary::Summary;
use crate::flow::eval::trial::{Trial, TrialOutcome};
use std::collections::HashSet;

/// The lines. Texts that are the same for all trials of a case are in it once.
pub(crate) fn lines<'c>(
    summary: &Summary,
    trials: &[Trial],
    cases: impl Iterator<Item = &'c Case>,
) -> String {
    let mut out = line(|object| {
        object.put("type", "suite").members(summary);
        object
            .put("figures", &text::rows(summary))
            .put("words", &conclusions::lines(summary));
    });
    let mut differing = HashSet::new();
    for (at, case) in cases.enumerate() {
        let mut rates = summary.settings.iter().map(|it| it.cases[at].rate);
        let first = rates.next();
        if rates.any(|rate| Some(rate) != first) {
            differing.insert(&case.id);
        }
        out += &line(|object| {
            object.put("type", "case").put("id", &case.id);
            object
                .put("input", &case.input)
                .put("expected", &case.expected);
        });
    }
    for trial in trials {
        let is_shown = trial.outcome != TrialOutcome::Passed || differing.contains(&trial.case);
        out += &line(|object| {
            object.put("type", "trial").members(trial);
            object.put_some(
                "execution_ref",
                trial.execution_ref.as_ref().filter(|_| is_shown),
            );
        });
    }
    out
}
