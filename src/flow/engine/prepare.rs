//! Prepares programs: their files are there, and the beginnings of attempts are in the journal.

use super::FlowEngine;
use super::attempt_runs::KeptRun;
use super::programs::{ActiveProgram, ProgramRole, WaitingProgram};
use crate::error::Result;
use crate::flow::context::helper::HelperQuestion;
use crate::flow::graph::{Payload, StepRef};
use crate::flow::manifest::PayloadForm;
use crate::flow::record::attempt::{self, PreparedAttempt};
use crate::flow::record::{NodeStart, OwnRun, ProgramInput};
use crate::text::ids::hex;
use std::time::Instant;

/// A step while it begins.
pub(super) struct BeginningStep {
    pub step: StepRef,
    pub input: Payload,
    pub attempt: u32,
}

/// Makes the files of an attempt and puts its beginning into the journal, with the run of an earlier step that it goes
/// on with.
pub(super) fn prepare(
    engine: &mut FlowEngine<'_>,
    beginning: &BeginningStep,
    given: ProgramInput<'_>,
    own_run: Option<OwnRun>,
) -> Result<()> {
    let (place, programs, step) = (&engine.place, &mut engine.programs, &beginning.step);
    let name = (&*step.task, place.node_id(step));
    let prepared = attempt::prepare_attempt(&place.run.path, name, given, &mut programs.linked)?;
    let call_id = format!("{}{}", place.call_prefix, hex(12));
    let start = NodeStart {
        attempt: beginning.attempt,
        call_id: Some(&call_id),
        execution_ref: Some(&prepared.reference),
        command: Some(&prepared.record.command),
        own_run: own_run.as_ref(),
        due_at: None,
    };
    engine.events.add_node_start(step, start);
    engine.attempts.own_runs.remove(&step.key);
    if let Some(run) = own_run {
        let is_open = false;
        let kept = KeptRun { run, is_open };
        engine.attempts.own_runs.insert(step.key, kept);
    }
    let counts = engine.attempts.counts.entry(step.key).or_default();
    counts.last = beginning.attempt;
    await_launch(engine, beginning, (prepared, call_id), ProgramRole::Attempt);
    Ok(())
}

/// Prepares a program that knows what a context needs.
pub(super) fn prepare_helper(
    engine: &mut FlowEngine<'_>,
    beginning: &BeginningStep,
    ask: HelperQuestion,
) -> Result<()> {
    let (place, programs, step) = (&engine.place, &mut engine.programs, &beginning.step);
    let Some(program) = ask.kind.of(place.flow) else {
        return Ok(());
    };
    let dir = place.workspace.root.clone();
    let name = format!("{}.{}", place.node_id(step), ask.kind.name());
    let given = ProgramInput {
        argv: program.command.argv(&place.flow.home, &dir),
        dir,
        input: &ask.input(),
        context: None,
        stdin: None,
    };
    let name = (&*step.task, name.as_str());
    let prepared = attempt::prepare_attempt(&place.run.path, name, given, &mut programs.linked)?;
    let call_id = format!("{}.{}", engine.calls_of_helpers(), hex(12));
    let role = ProgramRole::Helper(ask);
    await_launch(engine, beginning, (prepared, call_id), role);
    Ok(())
}

/// Queues a program that is to be started.
pub(super) fn await_launch(
    engine: &mut FlowEngine<'_>,
    beginning: &BeginningStep,
    (prepared, call_id): (PreparedAttempt, String),
    role: ProgramRole,
) {
    let (programs, step) = (&mut engine.programs, &beginning.step);
    programs.spent.note(step.key, &prepared.reference);
    programs.prepared.push_back(WaitingProgram {
        active: ActiveProgram {
            step: step.clone(),
            io: prepared.io.clone(),
            since: Instant::now(),
            failure: None,
            cancelled: false,
            call_id,
            role,
        },
        prepared,
        attempt: beginning.attempt,
        is_recorded: false,
    });
}

/// The string that a payload is, if the form asks for a text and it is one.
pub(super) fn text_of(payload: &Payload, form: PayloadForm) -> Option<String> {
    let is_text = form == PayloadForm::Text;
    is_text
        .then(|| serde_json::from_str(payload).ok())
        .flatten()
}
