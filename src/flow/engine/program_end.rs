//! The end of a step's program: what it was, and who judges it.

use super::agents::{self, ChildRunEnd};
use super::deferred::{defer, end_look, is_deferral};
use super::finish::{add_tool_calls, fail_helper, judge, with_misuse};
use super::nested;
use super::prepare::{BeginningStep, prepare};
use super::programs::{ActiveProgram, ProgramRole};
use super::{FlowEngine, remember};
use crate::error::Result;
use crate::flow::record::attempt::PrintedOutput;
use crate::flow::record::{AttemptEnd, ProgramInput, attempt};
use crate::unix::process::{Ended, Outcome};

/// A program has ended.
pub(super) fn end_program(
    engine: &mut FlowEngine<'_>,
    active: ActiveProgram,
    outcome: &Outcome,
) -> Result<()> {
    let (flow, node) = (engine.place.flow, active.step.node);
    let code = outcome.how.code();
    let figures = (outcome.duration, outcome.used);
    attempt::record_end(&active.io, code, figures, &mut engine.programs.linked)?;
    if active.cancelled || engine.roots.router(active.step.key).is_none() {
        return Ok(());
    }
    if matches!(outcome.how, Ended::Interrupted(_)) && active.failure.is_none() {
        // The engine was asked to end. The next start begins the step again.
        return Ok(());
    }
    if let Some(ask) = active.asks() {
        match remember::learn(&engine.place, &active, (ask, outcome))? {
            None => engine.queue.ready.push_front(active.step),
            Some(why) => return fail_helper(engine, active, &why),
        }
        return Ok(());
    }
    let mut ended = AttemptEnd {
        duration: outcome.duration,
        used: outcome.used,
        io: Some(active.io.clone()),
        ..AttemptEnd::default()
    };
    if let ProgramRole::Look(look) = &active.role {
        let look = look.clone();
        return end_look(engine, active, (&look, outcome), ended);
    }
    if is_deferral(engine, &active, outcome.how) {
        return defer(engine, active, ended);
    }
    if flow.is_conversation(node) {
        let end = agents::end_agent(&engine.place, &engine.attempts, &active, outcome)?;
        if !matches!(end, ChildRunEnd::Suspended(_)) {
            let (events, records) = (&mut engine.events, (&*active.io, &[][..]));
            add_tool_calls(events, &engine.place, &active.step, records)?;
        }
        return end_run(engine, active, end, ended);
    }
    if flow.nodes[node].flow.is_some() {
        let (end, is_partial) =
            nested::end_nested((&engine.place, &engine.attempts), &active, outcome)?;
        ended.partial = is_partial;
        return end_run(engine, active, end, ended);
    }
    let records = (&*active.io, &[][..]);
    let misuse = add_tool_calls(&mut engine.events, &engine.place, &active.step, records)?;
    let settings = &flow.nodes[node];
    let failure = match active.failure {
        Some(failure) => Some(failure),
        None if attempt::is_partial(outcome, settings.partial_exit) => {
            ended.partial = true;
            None
        }
        None => attempt::find_failure(&active.io, outcome, settings.timeout)?,
    };
    let result = match failure {
        Some(failure) => Err(with_misuse(failure, misuse)),
        None => PrintedOutput::read(&active.io)?.payload(settings.output, attempt::TEXT_HINT),
    };
    judge(engine, &active.step, result, ended)
}

/// The run of a node's own has stopped.
fn end_run(
    engine: &mut FlowEngine<'_>,
    active: ActiveProgram,
    end: ChildRunEnd,
    ended: AttemptEnd,
) -> Result<()> {
    let step = active.step;
    let failure = match end {
        ChildRunEnd::Suspended(why) => {
            engine.suspend(step, why);
            return Ok(());
        }
        ChildRunEnd::Ended(result) => return judge(engine, &step, result, ended),
        ChildRunEnd::Unfit(failure) => failure,
    };
    let again = agents::send_back(
        &engine.place,
        &engine.attempts,
        &step,
        (&failure, &active.io),
    )?;
    let Some(message) = again else {
        return judge(engine, &step, Err(failure), ended);
    };
    engine.report_step(&step, Err(&failure.message), "sent back");
    let router = engine.roots.router(step.key);
    let input = router.and_then(|it| it.input(step.key.step));
    let beginning = BeginningStep {
        input: input.unwrap_or_else(|| "null".into()),
        attempt: engine.attempts.of(step.key).last,
        step,
    };
    let given = ProgramInput {
        argv: [engine.options.launch.clone(), message.argv].concat(),
        dir: engine.place.task_dir(&beginning.step)?,
        input: &beginning.input,
        context: Some(&message.context),
        stdin: Some(message.text.as_bytes()),
    };
    prepare(engine, &beginning, given, None)
}
