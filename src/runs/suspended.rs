//! The run that a suspended run waits for: that of a sub-agent, or of a sub-agent's sub-agent.
//!
//! Only reads. What it finds is for people: how a run goes on is not decided by it.

use super::inspect::{RunSnapshot, inspect_run};
use crate::engine::tool_call::subagent_run;
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
