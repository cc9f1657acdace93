//! The run that a suspended run waits for: that of a sub-agent, or of a sub-agent's sub-agent.
//!
//! Only reads. What it finds is for people, and how a run goes on is not decided by it, but for one thing: while a person
//! has not answered what a run below asks, a run that waits for it is not begun again.

use super::decide::Standing;
use super::inspect::{RunSnapshot, inspect_run};
use super::origin::require_own_run;
use crate::engine::tool_call::subagent_run;
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading};
use crate::record::stop_reason::{StopReason, Suspension};
use crate::record::subruns::find_started;
use crate::unix::files;

/// Runs are not looked for further down.
const DEEPEST: usize = 64;

/// The run at the bottom, for which all above it wait. None if it cannot be found.
pub(crate) fn awaited_run(suspended: &RunDir) -> Option<RunSnapshot> {
    let mut found: Option<RunSnapshot> = None;
    for _ in 0..DEEPEST {
        let above = found.as_ref().map_or(suspended, |found| &found.run);
        let below = inspect_run(&child_of(above)?).ok()?;
        let waits = is_suspended(below.metadata.stop_reason.as_deref());
        found = Some(below);
        if !waits {
            break;
        }
    }
    found
}

/// The facts that a command decides by. A run that waits for the answer to a question of a run below it counts as if it
/// asked itself: to begin it again would only record that nothing has changed.
pub(crate) fn standing_of(found: &RunSnapshot, is_same: bool) -> Standing {
    let standing = found.standing(is_same);
    let waits = standing.status == Status::Interrupted
        && is_suspended(found.metadata.stop_reason.as_deref())
        && awaited_run(&found.run).is_some_and(|below| asks(&below));
    match waits {
        true => Standing {
            status: Status::WaitingForInput,
            is_unanswered: true,
            ..standing
        },
        false => standing,
    }
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
    stop_reason == Some(StopReason::Subagent(Suspension::Later).name())
}

/// The run of the call that a run was left with.
fn child_of(run: &RunDir) -> Option<RunDir> {
    let journal = files::read_regular(&run.journal()).ok()?;
    let lenient = Reading {
        lenient: true,
        window: None,
    };
    let state = state::read(&journal, lenient).ok()?;
    let calls = &state.last_thought()?.calls;
    let open = calls.iter().find(|call| {
        let request = call.request.as_ref();
        call.result.is_none() && request.is_some_and(|request| request.is_suspended)
    })?;
    let request = open.request.as_ref()?;
    let call_id = request.call_id.as_deref()?;
    let command = request.command.as_deref().unwrap_or_default();
    find_started(run, (call_id, command), &subagent_run(&open.name, call_id)?)
}
