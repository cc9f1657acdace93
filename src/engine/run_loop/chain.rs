//! The models of one start, in the order in which they are asked.
//!
//! Unaware of how they are asked.

use super::outcome::Ending;
use crate::config::agent::{Agent, ModelFailure};
use crate::engine::account::SpendingRules;
use crate::model::ask::Model;
use crate::record::stop_reason::StopReason;
use crate::text::timestamp::Timestamp;
use std::collections::VecDeque;

/// A model that is asked when those before it have failed.
pub(crate) struct FallbackModel<'a> {
    /// The agent with this model.
    pub agent: &'a Agent,
    /// Of the model and its service.
    pub name: String,
    /// The failures after which it is asked.
    pub after: &'a [ModelFailure],
    /// Why it cannot be asked.
    pub obstacle: Option<String>,
    pub model: Option<Model<'a>>,
    /// None: nothing is spent.
    pub spending: Option<SpendingRules>,
}

/// The models of one start.
pub(crate) struct Chain<'a> {
    /// The one that is asked.
    pub name: String,
    /// Those that have not been asked, in order.
    pub others: VecDeque<FallbackModel<'a>>,
    pub(super) failed: Vec<FailedModel>,
    /// The first is not asked, because of what it said in an earlier start.
    pub(super) skipped: Option<FailedModel>,
    /// Models and the times before which they are not asked.
    pub(super) not_before: Vec<(String, Timestamp)>,
}

/// A model that has not answered.
pub(super) struct FailedModel {
    pub(super) how: ModelFailure,
    pub(super) why: String,
    /// When it can be asked again, if its service named a time.
    pub(super) until: Option<Timestamp>,
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

    /// How the run ends if none has answered: later, if one of them may then.
    pub(super) fn ending(&self) -> Ending {
        let is_unavailable = |failed: &FailedModel| failed.how == ModelFailure::Unavailable;
        let reason = match self.failed.iter().any(is_unavailable) {
            true => StopReason::ModelUnavailable,
            false => StopReason::ModelRefused,
        };
        let whys: Vec<&str> = self.failed.iter().map(|failed| &*failed.why).collect();
        Ending::new(reason, whys.join("; "))
    }
}
