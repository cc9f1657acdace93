//! Events of what happens beside the engine: calls that have begun something which ends without them, and messages to a
//! live run.

use serde::Serialize;

/// A call ends later, to be recorded. Times are RFC 3339.
#[derive(Serialize)]
pub(crate) struct DeferralEvent<'a> {
    pub action_id: &'a str,
    /// The name of what it has begun.
    pub handle: &'a str,
    /// When it is looked at.
    pub due_at: &'a str,
    /// When it is looked at for the last time.
    pub expires_at: &'a str,
    /// The directory of the execution that has begun it, from the run's directory.
    pub execution_ref: &'a str,
}

/// A look at a call that has not ended, to be recorded. Times are RFC 3339.
#[derive(Serialize)]
pub(crate) struct LookEvent<'a> {
    pub action_id: &'a str,
    /// 75 if it has not ended; anything else, or none: that is not known.
    pub exit_code: Option<i32>,
    /// When it is looked at again.
    pub due_at: &'a str,
    pub expires_at: &'a str,
}

/// A message that a person sent to a live run, to be recorded.
#[derive(Serialize)]
pub(crate) struct InboxEvent<'a> {
    pub content: &'a str,
    /// Always `inbox`.
    pub source: &'a str,
    /// The name of its file.
    pub id: &'a str,
}
