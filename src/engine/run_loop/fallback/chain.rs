//! The models of one start, in the order in which they are asked.
//!
//! Unaware of how they are asked.

use crate::config::agent::{Agent, ModelFailure};
use crate::engine::account::SpendingRules;
use crate::engine::run_loop::Ending;
use crate::model::ask::Model;
use crate::record::stop_reason::StopReason;
use crate::text::timestamp::Timestamp;
use std::collections::VecDeque;

/// A model that is asked when those before it have failed.
pub(crate) struct FallbackModel<'a> {
    /// The agent with this model.
    pub agent: &'a Agent,
    /// Name of the model and its service.
    pub name: String,
    /// The failures after which it is asked.
    pub after: &'a [ModelFailure],
    /// Reason why it cannot be asked.
    pub obstacle: Option<String>,
    pub model: Option<Model<'a>>,
    /// None: nothing is spent.
    pub spending: Option<SpendingRules>,
}

/// The models of one start.
pub(crate) struct Chain<'a> {
    /// The one that is asked.
    pub name: String,
    /// Models that have not been asked, in order.
    pub others: VecDeque<FallbackModel<'a>>,
    pub(in crate::engine::run_loop) failed: Vec<FailedModel>,
    /// The first is not asked, because of what it said in an earlier start.
    pub(in crate::engine::run_loop) skipped: Option<FailedModel>,
    /// Models and the times before which they are not asked.
    pub(in crate::engine::run_loop) not_before: Vec<(String, Timestamp)>,
}

/// A model that has not answered.
pub(in crate::engine::run_loop) struct FailedModel {
    pub(in crate::engine::run_loop) how: ModelFailure,
    pub(in crate::engine::run_loop) why: String,
    /// Time from which it can be asked again, if its service named one.
    pub(in crate::engine::run_loop) until: Option<Timestamp>,
}

impl<'a> Chain<'a> {
    pub(crate) fn new(name: String, others: VecDeque<FallbackModel<'a>>) -> Self {
        Self {
            name,
            others,
            failed: Vec::new(),
            skipped: None,
            not_before: Vec::new(),
        }
    }

    /// The models of a start that begins with another than the first, because of how that failed.
    pub(crate) fn after_failure(next: FallbackModel<'a>, failure: &str) -> Self {
        let (how, why) = failure.split_once(": ").unwrap_or_default();
        let skipped = FailedModel {
            how: ModelFailure::parse(how).unwrap_or(ModelFailure::Unavailable),
            why: why.to_owned(),
            until: None,
        };
        Self {
            skipped: Some(skipped),
            ..Self::new(String::new(), VecDeque::from([next]))
        }
    }

    /// The end of the run if none has answered: a temporary one, if one of them may answer later.
    pub(in crate::engine::run_loop) fn ending(&self) -> Ending {
        let is_unavailable = |failed: &FailedModel| failed.how == ModelFailure::Unavailable;
        let reason = if self.failed.iter().any(is_unavailable) {
            StopReason::ModelUnavailable
        } else {
            StopReason::ModelRefused
        };
        let whys: Vec<&str> = self.failed.iter().map(|failed| &*failed.why).collect();
        Ending::new(reason, whys.join("; "))
    }
}
