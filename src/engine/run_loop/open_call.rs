//! A call without a result: what the model asked for, and how far earlier starts brought it.
//!
//! Unaware of what follows.

use crate::config::tool::bind::{BoundCall, bind_arguments};
use crate::config::tool::definition::Tool;
use crate::engine::question::Question;
use crate::engine::run_context::RunContext;
use crate::model::calls::NewCall;
use crate::record::state::{Call, Deferred};

/// The most calls of one message that are run.
pub(super) const MOST_CALLS: usize = 512;

/// A call without a result.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) id: String,
    pub(super) name: String,
    arguments: String,
    pub(super) invalid: Option<String>,
    /// Reason why it must never run, with any tool.
    pub(super) barred: Option<Barred>,
    /// An earlier process started it.
    pub(super) started: Option<StartedCall>,
    /// State of what it has begun and ends without it.
    pub(super) deferred: Option<Deferred>,
    /// A person has been asked, and has perhaps answered.
    pub(super) asked: Option<(Question, Option<String>)>,
}

/// Reason why a call is not run, with any tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barred {
    /// The message that it is in was cut off.
    CutOff,
    /// The message has more calls than one message may have.
    TooMany,
}

impl Barred {
    /// The bar on a call whose message was `cut_off` or has this many calls before it.
    fn by_message(cut_off: bool, before: usize) -> Option<Self> {
        match (cut_off, before) {
            (true, _) => Some(Self::CutOff),
            (false, MOST_CALLS..) => Some(Self::TooMany),
            (false, _) => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct StartedCall {
    pub(super) call_id: Option<String>,
    pub(super) execution_ref: Option<String>,
    /// The arguments that it was started with: a JSON object.
    pub(super) arguments: Option<String>,
    /// An engine has left it to the next start, and nothing of it runs.
    pub(super) is_suspended: bool,
}

/// A call that may start.
pub(super) struct Planned<'c> {
    pub(super) call: &'c OpenCall,
    pub(super) tool: &'c Tool,
    pub(super) bound: BoundCall,
    pub(super) call_id: String,
    /// The words of guards that want a person to be asked first.
    pub(super) questions: Vec<String>,
}

impl OpenCall {
    /// The arguments as the model sent them.
    pub(super) fn arguments(&self) -> &str {
        &self.arguments
    }

    pub(super) fn new(call: &NewCall, cut_off: bool, before: usize) -> Self {
        Self {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            invalid: call.invalid.clone(),
            barred: Barred::by_message(cut_off, before),
            started: None,
            deferred: None,
            asked: None,
        }
    }

    pub(super) fn from_journal(call: &Call<'_>, cut_off: bool, before: usize) -> Self {
        let text =
            |from: &Option<std::borrow::Cow<'_, str>>| from.as_ref().map(ToString::to_string);
        Self {
            id: call.id.to_string(),
            name: call.name.to_string(),
            arguments: call.arguments.to_string(),
            invalid: call.invalid_arguments.clone(),
            barred: Barred::by_message(cut_off, before)
                .filter(|barred| *barred == Barred::CutOff || call.request.is_none()),
            started: call.request.as_ref().map(|request| StartedCall {
                call_id: text(&request.call_id).filter(|id| !id.is_empty()),
                execution_ref: text(&request.execution_ref),
                arguments: request.arguments.map(str::to_owned),
                is_suspended: request.is_suspended,
            }),
            deferred: call.deferred.clone(),
            asked: call.question.as_ref().map(|question| {
                let asked = Question::recorded(question);
                (asked, text(&question.response))
            }),
        }
    }

    /// True if it has begun something that ends without it: it is looked at after the others.
    pub(super) fn is_set_aside(&self) -> bool {
        self.deferred.is_some()
    }

    /// The call with its arguments in place; else why they do not fit, for the model.
    pub(super) fn bind(
        &self,
        ctx: &RunContext<'_>,
        tool: &Tool,
    ) -> std::result::Result<BoundCall, String> {
        let arguments = self.invalid.as_ref().unwrap_or(&self.arguments);
        bind_arguments(tool, arguments, &ctx.places())
    }
}
