//! Reads an earlier result, as `--format json` printed it, to compare with: counts only, all of them checked.

use super::Plan;
use super::figures::CaseFigures;
use crate::error::{Error, Result};
use crate::record::event::evaluation::is_score;
use crate::text::json;
use crate::text::shorten::list_names;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};

/// The ways in which cases differ, in the order in which they are listed.
const DIFFERENCES: [&str; 4] = [
    "that are only here",
    "that are only there",
    "with another input, start or workspace",
    "with other assertions or graders",
];

/// A suite of an earlier result.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Baseline {
    suite: String,
    graders: Option<String>,
    pub(super) settings: Vec<BaselineSetting>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct BaselineSetting {
    pub name: String,
    pub cases: Vec<CaseFigures>,
}

/// The whole file.
#[derive(Deserialize)]
struct BaselineFile {
    suites: Vec<Baseline>,
}

impl Baseline {
    /// A suite of the file.
    ///
    /// # Errors
    /// The file is no such result, or does not have the suite. The message does not name the file.
    pub(crate) fn parse(bytes: &[u8], suite: &str) -> Result<Self> {
        let no_result =
            |why: String| Error::usage(format!("not a result of eval --format json: {why}"));
        let file: BaselineFile = serde_json::from_slice(json::without_mark(bytes))
            .map_err(|error| no_result(json::parser_message(&error)))?;
        let (mut found, others): (Vec<_>, Vec<_>) = file
            .suites
            .into_iter()
            .partition(|found| found.suite == suite);
        if found.is_empty() {
            let names = listed(others.iter().map(|other| &other.suite));
            return Err(Error::usage(format!(
                "has no suite {suite:?}; it has: {names}"
            )));
        }
        let found = found.swap_remove(0);
        found.check().map_err(no_result)?;
        Ok(found)
    }

    /// Checks the counts.
    fn check(&self) -> std::result::Result<(), String> {
        if self.settings.is_empty() {
            return Err("no settings".to_owned());
        }
        for setting in &self.settings {
            let mut ids = HashSet::new();
            for case in &setting.cases {
                let measured = case.passed.checked_add(case.failed);
                if measured.is_none_or(|sum| sum.checked_add(case.not_measured).is_none()) {
                    return Err(format!("case {:?} has too many trials", case.id));
                }
                if let Some((name, _)) = case.scores.iter().find(|(_, it)| !is_score(it.mean)) {
                    return Err(format!(
                        "case {:?}: the score {name:?} is too great",
                        case.id
                    ));
                }
                if !ids.insert(&case.id) {
                    return Err(format!("two cases have the id {:?}", case.id));
                }
            }
        }
        Ok(())
    }

    /// The reason why the plan cannot be compared with it, naming what differs. None if it can.
    pub(crate) fn refusal(&self, plan: &Plan) -> Option<String> {
        let what = self.difference(plan)?;
        Some(format!("suite {:?} cannot be compared: {what}", plan.suite))
    }

    fn difference(&self, plan: &Plan) -> Option<String> {
        for setting in plan.settings {
            let Some(before) = self.setting_for(setting) else {
                let names = listed(self.settings.iter().map(|before| &before.name));
                return Some(format!("no setting {setting:?} there, only {names}"));
            };
            let cases = before.cases.iter().map(|case| (&case.id, case));
            let mut there: HashMap<&String, &CaseFigures> = cases.collect();
            let mut different: [Vec<&String>; 4] = Default::default();
            for case in plan.cases {
                let at = match there.remove(&case.id) {
                    None => 0,
                    Some(it) if it.hash != case.hash => 2,
                    // Earlier versions recorded what judges all cases only.
                    Some(it) if it.graders.is_some() && it.graders != case.graders => 3,
                    Some(_) => continue,
                };
                different[at].push(&case.id);
            }
            let ids = before.cases.iter().map(|case| &case.id);
            different[1].extend(ids.filter(|id| there.contains_key(id)));
            let named: Vec<String> = DIFFERENCES
                .into_iter()
                .zip(different)
                .filter(|(_, ids)| !ids.is_empty())
                .map(|(what, ids)| format!("cases {what}: {}", listed(ids.into_iter())))
                .collect();
            if !named.is_empty() {
                return Some(named.join("; "));
            }
        }
        let is_other = self.graders.as_deref() != plan.graders;
        is_other.then(|| "it was graded by other assertions or graders".to_owned())
    }

    /// The setting that one of the same name is compared with, or the only one.
    pub(super) fn setting_for(&self, name: &str) -> Option<&BaselineSetting> {
        self.settings
            .iter()
            .find(|setting| setting.name == name)
            .or(match self.settings.as_slice() {
                [only] => Some(only),
                _ => None,
            })
    }
}

/// Names, the first of them.
fn listed<'n>(names: impl ExactSizeIterator<Item = &'n String>) -> String {
    list_names(names.map(|name| format!("{name:?}")))
}
