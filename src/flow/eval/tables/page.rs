//! The result of a suite as lines of JSON, from which its page is made: the suite, its cases, its trials.

use super::words::CaseNames;
use super::{answer, conclusions, line, text};
use crate::flow::eval::suite::Case;
use crate::flow::eval::summary::Summary;
use crate::flow::eval::trial::{Trial, TrialOutcome};

/// The lines. Texts that are the same for all trials of a case are in it once.
pub(crate) fn lines<'c>(
    summary: &Summary,
    trials: &[Trial],
    names: &CaseNames,
    cases: impl Iterator<Item = &'c Case>,
) -> String {
    let settings: Vec<&String> = summary.settings.iter().map(|it| &it.name).collect();
    let mut out = line(|object| {
        object
            .put("type", "suite")
            .put("suite", &summary.suite)
            .put("target", &summary.target)
            .put("about", &text::about(summary))
            .put("settings", &settings)
            .put("verdict", &summary.verdict)
            .put("warnings", &summary.warnings)
            .put("answer", &answer::lines(summary, names))
            .put("words", &conclusions::lines(summary))
            .put("figures", &text::rows(summary));
    });
    for case in cases {
        out += &line(|object| {
            object
                .put("type", "case")
                .put("id", &case.id)
                .put_some("name", names.beginning(&case.id));
            object
                .put("input", &case.input)
                .put("expected", &case.expected);
        });
    }
    // A page has room for so much text: those to look at come first.
    let (passed, others): (Vec<&Trial>, Vec<&Trial>) = trials
        .iter()
        .partition(|it| it.outcome == TrialOutcome::Passed);
    for trial in others.into_iter().chain(passed) {
        out += &line(|object| {
            object.put("type", "trial").members(trial);
            object.put_some("execution_ref", trial.execution_ref.as_ref());
        });
    }
    out
}
