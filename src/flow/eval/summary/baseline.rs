//! Reads an earlier result, as `--format json` printed it, to compare with: counts only, all of them checked.

use super::Plan;
use crate::error::{Error, Result};
use crate::flow::eval::numbers::Counts;
use crate::text::shorten::list_names;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};

/// How cases differ, in the order in which it is said.
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
    pub cases: Vec<BaselineCase>,
}

/// A case of an earlier result under a setting.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct BaselineCase {
    pub id: String,
    hash: Option<String>,
    graders: Option<String>,
    passed: u32,
    failed: u32,
    not_measured: u32,
}

impl BaselineCase {
    pub(super) fn counts(&self) -> Counts {
        Counts {
            passed: self.passed,
            measured: self.passed + self.failed,
        }
    }

    pub(super) fn planned(&self) -> u32 {
        self.passed + self.failed + self.not_measured
    }
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
        let read: std::result::Result<BaselineFile, _> =
            serde_json::from_slice(crate::text::json::without_mark(bytes));
        let no_result =
            |why: String| Error::usage(format!("not a result of eval --format json: {why}"));
        let file = read.map_err(|error| no_result(crate::text::json::parser_message(&error)))?;
        let names: Vec<String> = file
            .suites
            .iter()
            .map(|suite| suite.suite.clone())
            .collect();
        let Some(found) = file.suites.into_iter().find(|found| found.suite == suite) else {
            let names = listed(names.into_iter());
            return Err(Error::usage(format!(
                "has no suite {suite:?}; it has: {names}"
            )));
        };
        found.check().map_err(no_result)?;
        Ok(found)
    }

    /// What must hold of counts.
    fn check(&self) -> std::result::Result<(), String> {
        if self.settings.is_empty() {
            return Err("no settings".to_owned());
        }
        for setting in &self.settings {
            let mut ids = HashSet::new();
            for case in &setting.cases {
                let sum = case.passed.checked_add(case.failed);
                if sum
                    .and_then(|sum| sum.checked_add(case.not_measured))
                    .is_none()
                {
                    return Err(format!("case {:?} has too many trials", case.id));
                }
                if !ids.insert(&case.id) {
                    return Err(format!("two cases have the id {:?}", case.id));
                }
            }
        }
        Ok(())
    }

    /// Why the plan cannot be compared with it, naming what differs. None if it can.
    pub(crate) fn refusal(&self, plan: &Plan) -> Option<String> {
        let refused =
            |what: String| Some(format!("suite {:?} cannot be compared: {what}", plan.suite));
        for setting in plan.settings {
            let Some(before) = self.setting_for(setting) else {
                let names = listed(self.settings.iter().map(|before| before.name.clone()));
                return refused(format!("no setting {setting:?} there, only {names}"));
            };
            let cases = before.cases.iter().map(|case| (case.id.as_str(), case));
            let there: HashMap<&str, &BaselineCase> = cases.collect();
            let here: HashSet<&str> = plan.cases.iter().map(|case| case.id.as_str()).collect();
            let mut different: [Vec<&str>; 4] = Default::default();
            for case in plan.cases {
                let id = case.id.as_str();
                match there.get(id) {
                    None => different[0].push(id),
                    Some(it) if it.hash != case.hash => different[2].push(id),
                    // Earlier versions recorded what judges all cases only.
                    Some(it) if it.graders.is_some() && it.graders != case.graders => {
                        different[3].push(id);
                    }
                    Some(_) => {}
                }
            }
            let ids = before.cases.iter().map(|case| case.id.as_str());
            different[1].extend(ids.filter(|id| !here.contains(id)));
            let named = DIFFERENCES.iter().zip(&different);
            let named = named.filter(|(_, ids)| !ids.is_empty());
            let named: Vec<String> = named
                .map(|(what, ids)| format!("cases {what}: {}", quoted(ids)))
                .collect();
            if !named.is_empty() {
                return refused(named.join("; "));
            }
        }
        if self.graders.as_deref() != plan.graders {
            return refused("it was graded by other assertions or graders".to_owned());
        }
        None
    }

    /// The setting that one of the same name is compared with, or the only one.
    pub(super) fn setting_for(&self, name: &str) -> Option<&BaselineSetting> {
        let same = self.settings.iter().find(|setting| setting.name == name);
        same.or(match self.settings.as_slice() {
            [only] => Some(only),
            _ => None,
        })
    }
}

fn quoted(names: &[&str]) -> String {
    listed(names.iter().map(|name| (*name).to_owned()))
}

/// Names, the first of them.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    list_names(names.map(|name| format!("{name:?}")))
}
