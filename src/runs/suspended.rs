//! The run that a suspended run waits for: that of a sub-agent, or of a sub-agent's sub-agent.
//!
//! Only reads. What it finds is for people, and how a run goes on is not decided by it, but for one thing: while a person
//! has not answered what a run below asks, a run that waits for it is not begun again.

use super::decide::RunState;
use super::inspect::{RunSnapshot, inspect_run};
use super::origin::require_own_run;
use crate::engine::tool_call::subagent_run;
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading, Run};
use crate::record::stop_reason::{StopReason, Suspension};
use crate::record::subruns::find_started;
use crate::unix::files;

/// Runs are not looked for further down.
const DEEPEST: usize = 64;

/// The run at the bottom, for which all above it wait: of several, one that asks a person. None if none can be found.
pub(crate) fn awaited_run(suspended: &RunDir) -> Option<RunSnapshot> {
    let mut all = awaited_runs(suspended);
    let at = all.iter().position(asks).unwrap_or_default();
    (at < all.len()).then(|| all.swap_remove(at))
}

/// The runs at the bottom for which a run waits.
pub(super) fn awaited_runs(suspended: &RunDir) -> Vec<RunSnapshot> {
    let mut found = Vec::new();
    let mut above: Vec<RunDir> = children_of(suspended);
    for _ in 0..DEEPEST {
        let below = above.iter().filter_map(|run| inspect_run(run).ok());
        let (waiting, bottom): (Vec<_>, Vec<_>) =
            below.partition(|run| is_suspended(run.metadata.stop_reason.as_deref()));
        found.extend(bottom);
        above.clear();
        for run in waiting {
            let children = children_of(&run.run);
            if children.is_empty() {
                found.push(run);
            }
            above.extend(children);
        }
        if above.is_empty() {
            break;
        }
    }
    found
}

/// The facts that a command decides by. A run that waits for the answer to a question of a run below it, or for a time,
/// counts as if it asked or waited itself: to begin it again would only record that nothing has changed.
pub(crate) fn run_state_of(found: &RunSnapshot, is_same: bool) -> RunState {
    let state = found.state(is_same);
    if state.status != Status::Interrupted || !is_suspended(found.metadata.stop_reason.as_deref()) {
        return state;
    }
    let below = awaited_runs(&found.run);
    let waits = |run: &RunSnapshot| asks(run) || is_early(run);
    if below.is_empty() || !below.iter().all(waits) {
        return state;
    }
    if below.iter().any(asks) {
        RunState {
            status: Status::WaitingForInput,
            is_unanswered: true,
            ..state
        }
    } else {
        RunState {
            is_early: true,
            ..state
        }
    }
}

/// True for a run of one's own that waits for a time.
fn is_early(run: &RunSnapshot) -> bool {
    run.wait.is_some() && require_own_run(&run.run, false).is_ok()
}

/// True for a run of one's own that has asked a person and has no answer.
pub(super) fn asks(run: &RunSnapshot) -> bool {
    run.metadata.status == Status::WaitingForInput
        && run.question.is_some()
        && !run.is_answered
        && require_own_run(&run.run, false).is_ok()
}

/// True for the reason of a run that waits for a sub-agent's.
pub(crate) fn is_suspended(stop_reason: Option<&str>) -> bool {
    stop_reason == Some(StopReason::Subagent(Suspension::Resumable).name())
}

/// The runs of the calls that a run was left with.
fn children_of(run: &RunDir) -> Vec<RunDir> {
    let Ok(journal) = files::read_regular(&run.journal()) else {
        return Vec::new();
    };
    let state = state::read(&journal, Reading::all(true)).ok();
    let calls = state
        .as_ref()
        .and_then(Run::last_thought)
        .map_or(&[][..], |thought| &thought.calls)
        .iter();
    let open = calls.filter(|call| call.result.is_none());
    open.filter_map(|call| {
        let request = call
            .request
            .as_ref()
            .filter(|request| request.is_suspended)?;
        let call_id = request.call_id.as_deref()?;
        let command = request.command.as_deref().unwrap_or_default();
        find_started(run, call_id, command, &subagent_run(&call.name, call_id)?)
    })
    .collect()
}
