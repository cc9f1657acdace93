//! The event of a denial.

use super::{About, about};
use crate::flow::graph::topology::Graph;
use crate::flow::manifest::policy::Denied;
use crate::record::event::EventKind;
use crate::record::journal::Journal;

/// A rule has denied a step something; of a call, with the directory of its records.
pub(crate) fn policy(
    journal: &mut Journal,
    graph: &Graph,
    step: About<'_>,
    denied: &Denied,
    execution_ref: Option<&str>,
) {
    journal.add_line(&EventKind::Policy, |line| {
        about(line, graph, step);
        line.put("policy", &denied.policy)
            .put("rule", &denied.rule)
            .put("target", &denied.target)
            .put("target_id", &denied.target_id)
            .put("action", "deny")
            .put("reason", &denied.reason);
        if let Some(path) = execution_ref {
            line.put("execution_ref", path);
        }
    });
}
