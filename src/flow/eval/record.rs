//! The record of an evaluation: the events of its trials and of the verdicts that were printed, written
//! into its journal, and what they add up to.
//!
//! Architecture invariant: a trial's result is recorded here, in the evaluation's own run, and not in
//! the trial's workspace, which the trial can write to. `TRIAL_END` is durable before a trial is judged,
//! and `LOOK` before a verdict is printed.

use super::trial::{Activity, TrialOutcome};
use crate::error::Result;
use crate::record::event::Line;
pub(crate) use crate::record::event::evaluation::{Grade, RESULT, RecordedLook, TrialEnd};
use crate::record::event::evaluation::{TrialEvent, TrialLine};
use crate::record::reader::events;
use crate::record::recording::unreadable;
use crate::record::state::Unreadable;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The status of an end that is judged.
pub(crate) const ANSWERED: &str = "answered";

/// The record of a trial.
#[derive(Debug, Default)]
pub(crate) struct TrialRecord {
    /// The number of its starts.
    pub starts: u32,
    /// `DELTA_CALL_ID` of the last attempt; those of its graders begin with it.
    pub last_call: Option<String>,
    pub end: Option<TrialEnd>,
    pub grade: Option<Grade>,
    pub activity: Activity,
}

/// All trials of a suite by their names, and its looks in order.
#[derive(Debug, Default)]
pub(crate) struct SuiteRecord {
    pub trials: HashMap<String, TrialRecord>,
    pub looks: Vec<RecordedLook>,
}

/// The record of an evaluation, by the names of suites.
#[derive(Debug, Default)]
pub(crate) struct EvaluationRecord(HashMap<String, SuiteRecord>);

impl EvaluationRecord {
    pub(crate) fn suite(&mut self, name: &str) -> &mut SuiteRecord {
        self.0.entry(name.to_owned()).or_default()
    }

    pub(crate) fn trial(&mut self, suite: &str, name: &str) -> &mut TrialRecord {
        self.suite(suite).trials.entry(name.to_owned()).or_default()
    }

    /// The calls by which processes that the last engine may have left are found.
    pub(crate) fn last_calls(&self) -> Vec<&str> {
        self.0
            .values()
            .flat_map(|suite| suite.trials.values())
            .filter_map(|it| it.last_call.as_deref())
            .collect()
    }

    /// Reads the record in a journal.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is damaged.
    pub(crate) fn read(journal: &[u8], path: &Path) -> Result<Self> {
        let mut record = Self::default();
        for event in events(journal) {
            match event {
                Ok(line) => record.add(&line),
                Err(damage) => return Err(unreadable(&Unreadable::Damaged(damage), path)),
            }
        }
        let suites = record.0.values_mut();
        for trial in suites.flat_map(|suite| suite.trials.values_mut()) {
            trial.activity = Activity::None;
        }
        Ok(record)
    }

    fn add(&mut self, line: &Line<'_>) {
        let Some(TrialLine {
            suite,
            trial,
            event,
        }) = TrialLine::read(line)
        else {
            return;
        };
        let suite = self.suite(&suite);
        if let TrialEvent::Look(look) = event {
            suite.looks.push(look);
            return;
        }
        let trial = suite.trials.entry(trial).or_default();
        match event {
            TrialEvent::Start(start) => trial.begin(start.call_id.into_owned()),
            TrialEvent::End(end) => trial.end = Some(end),
            TrialEvent::Grade(grade) => trial.grade = grade,
            TrialEvent::Look(_) => {}
        }
    }
}

impl TrialRecord {
    pub(crate) fn begin(&mut self, call_id: String) {
        self.starts += 1;
        self.last_call = Some(call_id);
        (self.end, self.grade) = (None, None);
        self.activity = Activity::Run;
    }

    /// The trial needs nothing but perhaps a grade.
    pub(crate) fn is_measured(&self) -> bool {
        let status = self.end.as_ref().map(|end| &*end.status);
        status.is_some_and(|status| status != TrialOutcome::NotMeasured.name())
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.status == ANSWERED)
    }

    /// The end has an answer that the present assertions have not judged.
    pub(crate) fn needs_grade(&self, grading: &str) -> bool {
        let is_judged = self.grade.as_ref().is_some_and(|grade| {
            grade.grading == grading && grade.outcome != TrialOutcome::NotMeasured
        });
        self.is_answered() && !is_judged
    }

    /// The result, with its reason and its score. `missing` is the reason of a trial that has not ended.
    pub(crate) fn outcome<'r>(&'r self, missing: &'r str) -> (TrialOutcome, &'r str, Option<f64>) {
        let not_measured = |why| (TrialOutcome::NotMeasured, why, None);
        let Some(end) = &self.end else {
            return not_measured(missing);
        };
        match (&*end.status, &self.grade) {
            ("failed", _) => (TrialOutcome::Failed, &end.stop_reason, Some(0.0)),
            ("not_measured", _) => not_measured(&end.stop_reason),
            (_, Some(grade)) => (grade.outcome, &grade.stop_reason, grade.score),
            (_, None) => not_measured("grader"),
        }
    }
}

/// The number of the next look at a suite: the last one's if the same trials were looked at and judged by
/// the same, 1 if what judges one of its cases has changed since. Agents of one name at the same cases are one search,
/// whatever their content; looks of others do not count. `trials` is the digest of the names of those that were measured.
pub(crate) fn number_look(
    looks: &[RecordedLook],
    trials: &str,
    gradings: &BTreeMap<String, String>,
    agents: &[String],
) -> NumberedLook {
    let is_of_search = |look: &&RecordedLook| {
        let is_known = !agents.is_empty() && !look.agents.is_empty();
        let has_case = || look.gradings.keys().any(|id| gradings.contains_key(id));
        !is_known || has_case() && look.agents.iter().any(|name| agents.contains(name))
    };
    let looks: Vec<&RecordedLook> = looks.iter().filter(is_of_search).collect();
    let is_changed = |look: &&RecordedLook| {
        let of_case =
            |(id, grading): (&String, &String)| gradings.get(id).is_some_and(|it| it != grading);
        look.gradings.iter().any(of_case)
    };
    let changed_at = looks.iter().rposition(is_changed);
    let since = &looks[changed_at.map_or(0, |at| at + 1)..];
    if let Some(same) = since
        .iter()
        .find(|look| look.trials == trials && look.gradings == *gradings)
    {
        return NumberedLook {
            number: same.number,
            is_new: false,
            assertions_changed: false,
        };
    }
    NumberedLook {
        number: since
            .iter()
            .map(|look| look.number)
            .max()
            .unwrap_or(0)
            .saturating_add(1),
        is_new: true,
        assertions_changed: changed_at.is_some() && since.is_empty(),
    }
}

/// A look, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberedLook {
    pub number: u32,
    /// No look was at the same trials.
    pub is_new: bool,
    /// The first one after a change of what judges.
    pub assertions_changed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(number: u32, trials: &str, grading: &str) -> RecordedLook {
        RecordedLook {
            number,
            trials: trials.to_owned(),
            gradings: gradings(grading),
            ..RecordedLook::default()
        }
    }

    fn gradings(grading: &str) -> BTreeMap<String, String> {
        [("a".to_owned(), grading.to_owned())].into()
    }

    fn numbered(looks: &[RecordedLook], trials: &str, grading: &str) -> (u32, bool, bool) {
        let found = number_look(looks, trials, &gradings(grading), &[]);
        (found.number, found.is_new, found.assertions_changed)
    }

    #[test]
    fn the_same_trials_are_no_new_look_and_other_graders_begin_anew() {
        let looks = [look(1, "t1", "g"), look(2, "t2", "g")];
        assert_eq!(numbered(&[], "t1", "g"), (1, true, false));
        assert_eq!(numbered(&looks, "t2", "g"), (2, false, false));
        assert_eq!(numbered(&looks, "t1", "g"), (1, false, false));
        assert_eq!(numbered(&looks, "t3", "g"), (3, true, false));
        assert_eq!(numbered(&looks, "t2", "other"), (1, true, true));
        let changed = [look(1, "t1", "g"), look(1, "t1", "other")];
        assert_eq!(numbered(&changed, "t3", "other"), (2, true, false));
    }

    #[test]
    fn only_agents_of_one_name_at_shared_cases_are_one_search() {
        let by = |agent: &str| [agent.to_owned()];
        let looks = [RecordedLook {
            agents: by("sorter").to_vec(),
            ..look(3, "t1", "g")
        }];
        let number = |case: &str, agents: &[String]| {
            let gradings = [(case.to_owned(), "g".to_owned())].into();
            number_look(&looks, "t2", &gradings, agents).number
        };
        assert_eq!(number("a", &by("sorter")), 4);
        assert_eq!(number("a", &by("other")), 1);
        assert_eq!(number("b", &by("sorter")), 1);
        // Of a flow, and of an earlier version, nothing is known.
        assert_eq!(number("b", &[]), 4);
    }
}
