//! The choice of suites, cases and settings that a command line makes.
//!
//! Unaware of what a trial is.

use super::suite::{Case, Setting, Suite};
use crate::error::{Error, Result};
use crate::text::digest::sha256;
use crate::text::json;
use crate::text::order;
use crate::text::suggestion::nearest;

/// The choice of a command line; empty lists choose all.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanSelection {
    pub suites: Vec<String>,
    pub tags: Vec<String>,
    pub cases: Vec<String>,
    pub settings: Vec<String>,
    /// In place of the suites' own numbers.
    pub trials: Option<u32>,
    /// Only one side of the cases.
    pub split: Option<Split>,
    /// The most cases of each suite.
    pub sample: Option<usize>,
}

impl PlanSelection {
    /// Refuses names that are nowhere.
    pub(super) fn check(&self, suites: &[Suite]) -> Result<()> {
        let cases = || suites.iter().flat_map(|suite| &suite.cases);
        let settings = suites.iter().flat_map(|suite| &suite.settings);
        let of_suites = suites.iter().flat_map(|suite| &suite.tags);
        let tags = of_suites.chain(cases().flat_map(|case| &case.tags));
        let names = suites.iter().map(|suite| &suite.name);
        check_names("--suite", &self.suites, names)?;
        check_names("--case", &self.cases, cases().map(|case| &case.id))?;
        check_names("--setting", &self.settings, settings.map(|it| &it.name))?;
        check_names("--tag", &self.tags, tags)
    }

    pub(crate) fn has_suite(&self, suite: &Suite) -> bool {
        is_chosen(&self.suites, &suite.name)
    }

    pub(super) fn has_setting(&self, setting: &Setting) -> bool {
        is_chosen(&self.settings, &setting.name)
    }

    /// The cases of a suite that are chosen.
    pub(super) fn cases_of<'s>(&self, suite: &'s Suite) -> Vec<&'s Case> {
        let is_meant = |case: &&Case| {
            let mut tags = suite.tags.iter().chain(&case.tags);
            let has_tag = self.tags.is_empty() || tags.any(|it| self.tags.contains(it));
            let is_on_side = self.split.is_none_or(|split| split.has(case));
            has_tag && is_on_side && is_chosen(&self.cases, &case.id)
        };
        let meant = suite.cases.iter().filter(is_meant).collect();
        match self.sample {
            Some(count) => sampled(meant, count),
            None => meant,
        }
    }
}

/// A side of the cases, which are divided by the digests of their inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    is_held: bool,
    /// The share that is held back, 0..1.
    share: f64,
}

impl Split {
    /// Reads `train` or `held`, perhaps with `:` and the share that is held back.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let (side, share) = word.split_once(':').unwrap_or((word, "0.3"));
        let share: f64 = share.parse().ok()?;
        let is_held = side == "held";
        let is_good = (is_held || side == "train") && share > 0.0 && share < 1.0;
        is_good.then_some(Self { is_held, share })
    }

    fn has(&self, case: &Case) -> bool {
        let digits = sha256(json::text(&("split", &case.input)).as_bytes());
        let place = u32::from_str_radix(&digits[..8], 16).unwrap_or(0);
        (f64::from(place) / 2_f64.powi(32) < self.share) == self.is_held
    }
}

/// As many of these cases, the same ones each time, in their order.
fn sampled(cases: Vec<&Case>, count: usize) -> Vec<&Case> {
    let key = |case: &Case| sha256(json::text(&("sample", &case.input, &case.id)).as_bytes());
    let mut keyed: Vec<_> = (0..)
        .zip(&cases)
        .map(|(at, case)| (key(case), at))
        .collect();
    order::sort(&mut keyed);
    keyed.truncate(count);
    let mut places: Vec<usize> = keyed.into_iter().map(|(_, at)| at).collect();
    order::sort(&mut places);
    places.into_iter().map(|at| cases[at]).collect()
}

/// True if a list of a command line names something, or nothing at all.
fn is_chosen(wanted: &[String], name: &String) -> bool {
    wanted.is_empty() || wanted.contains(name)
}

fn check_names<'n>(
    option: &str,
    wanted: &[String],
    known: impl Iterator<Item = &'n String>,
) -> Result<()> {
    let known: Vec<&String> = known.collect();
    let Some(name) = wanted.iter().find(|name| !known.contains(name)) else {
        return Ok(());
    };
    let near = nearest(name, known.into_iter().map(String::as_str));
    let hint = near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
    Err(Error::usage(format!(
        "{option}: there is no '{name}'{hint}"
    )))
}
