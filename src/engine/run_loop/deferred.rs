//! Calls that have begun something which ends without them: they are recorded, looked at when it is time, and get
//! their results when it has ended.
//!
//! What is waited for is read from the journal each time, so that a look that a kill has cut short is made again, and
//! none is made twice.

use super::open_call::OpenCall;
use super::outcome::{Ending, Step};
use super::results::{record_observation, record_refusal, record_result};
use super::{Engine, from_journal, tool_named};
use crate::config::tool::definition::{LaterRule, Tool};
use crate::engine::due::not_registered;
use crate::engine::later::{self, ChosenTimes, ENDED_BADLY, LookInput, NOT_YET};
use crate::engine::start_options::WaitMode;
use crate::engine::tool_call::{self, Done};
use crate::error::Result;
use crate::record::engine_log::Level;
use crate::record::event::{ActionStatus, DeferralEvent, LookEvent};
use crate::record::state::{Deferred, Wait};
use crate::record::stop_reason::StopReason;
use crate::text::amounts::format_duration;
use crate::text::shorten::in_short;
use crate::text::shorten::last_line;
use crate::text::timestamp::{Timestamp, date_and_time};
use crate::unix::process;
use crate::unix::terminal::Tone;
use std::time::{Duration, Instant};

/// The wall clock may be set forward while the engine waits; one that is set back does not make it wait longer.
const NAP: Duration = Duration::from_secs(20);

/// Records that a call ends later, if the execution of a reference has said so; else returns its end. Without a handle it
/// has failed.
pub(super) fn defer(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    tool: &Tool,
    call_id: &str,
    mut done: Done,
    reference: &str,
) -> Step<Option<Done>> {
    let says_so = done.exit_code == Some(NOT_YET) && !done.is_interrupted;
    let Some(later) = tool.later.as_ref().filter(|_| says_so) else {
        return Ok(Some(done));
    };
    let dir = engine.ctx.run.path.join(reference);
    let handle = match later::handle_in(&engine.ctx.environment.secrets(), &dir) {
        Ok(handle) => handle,
        Err(why) => {
            done.observation = tool_call::show_output(
                engine.ctx,
                tool,
                reference,
                &["[exit code: 75]".to_owned(), format!("[{why}]")],
            )?;
            record_observation(engine, call, done, "exit code 75, no handle", reference)?;
            return Ok(None);
        }
    };
    let chosen = chosen_times(engine, &call.name, &dir)?;
    let (due_at, expires_at) = later::first_times(later, chosen);
    engine.log.add_durably(&DeferralEvent {
        action_id: &call.id,
        handle: &handle,
        due_at: &due_at.to_string(),
        expires_at: &expires_at.to_string(),
        execution_ref: reference,
    })?;
    register(engine, due_at);
    // It goes on without the processes of the call.
    process::end_leftovers(call_id);
    let line = format!("  ends later: {}", in_short(&handle, 100));
    engine.log.print_progress(&[(Tone::Dim, &line)]);
    Ok(None)
}

/// Puts the run into the registry of those that wait.
fn register(engine: &mut Engine<'_>, due_at: Timestamp) {
    let Some(registration) = &engine.start.registration else {
        return;
    };
    if let Err(why) = registration.put(due_at) {
        engine.log.warn(&not_registered(&why));
        engine.start.registration = None;
    }
}

/// Looks at the calls that end later, until none is left. Stops if the run must wait for them.
pub(super) fn settle(engine: &mut Engine<'_>, calls: &[OpenCall]) -> Step<()> {
    let may_wait = |call: &OpenCall| {
        let tool = tool_named(engine.ctx.agent, &call.name);
        call.deferred.is_some() || tool.is_some_and(|tool| tool.later.is_some())
    };
    if !calls.iter().any(may_wait) {
        return Ok(());
    }
    let mut reached = Timestamp::from_millis(0);
    loop {
        for call in &waiting(engine)? {
            engine.may_run()?;
            if engine.options.patience == WaitMode::GiveUp {
                give_up(engine, call)?;
            } else if let Some(deferred) = &call.deferred
                && deferred.is_due(Timestamp::now().max(reached))
            {
                look(engine, call, deferred)?;
            }
        }
        let left = waiting(engine)?;
        let each = left
            .iter()
            .filter_map(|call| Some((&*call.name, call.deferred.as_ref()?)));
        let wait = Wait::of(each);
        engine.log.metadata.due_at = wait.as_ref().map(|wait| wait.due_at.to_string());
        let Some(wait) = wait else {
            return Ok(());
        };
        register(engine, wait.due_at);
        match engine.options.patience {
            WaitMode::Wait => {
                wait_for(engine, &wait)?;
                reached = wait.due_at;
            }
            WaitMode::End | WaitMode::GiveUp => {
                return Err(Ending::new(StopReason::Deferred, wait.text).into());
            }
        }
    }
}

/// The calls that are waited for, as the journal has them.
fn waiting(engine: &mut Engine<'_>) -> Result<Vec<OpenCall>> {
    from_journal(engine, |run| {
        let calls = run.deferred_calls();
        calls
            .map(|(call, _)| OpenCall::from_journal(call, false, 0))
            .collect()
    })
}

/// Waits in this process until it is time for the next look.
fn wait_for(engine: &mut Engine<'_>, wait: &Wait) -> Step<()> {
    let until = date_and_time(&wait.due_at.to_string());
    let line = format!("{}; waiting until {until}", wait.text);
    engine.log.print_progress(&[(Tone::Dim, &line)]);
    engine.log.update_metadata()?;
    let began = Instant::now();
    let line = engine.log.wait_for(&format!("a look at {until}"));
    let longest = wait.due_at.since(Timestamp::now());
    loop {
        let left = wait
            .due_at
            .since(Timestamp::now())
            .min(longest.saturating_sub(began.elapsed()));
        let is_over = left.is_zero() || engine.must_end().is_some();
        if is_over || engine.ctx.signals.sleep(left.min(NAP)).is_err() {
            break;
        }
    }
    drop(line);
    engine.limits.leave_out(began.elapsed());
    engine.go_on()
}

fn give_up(engine: &mut Engine<'_>, call: &OpenCall) -> Step<()> {
    engine
        .log
        .print_progress(&[(Tone::Command, &call.name), (Tone::Bad, " is given up")]);
    let done = Done {
        status: ActionStatus::Failed,
        ..Done::not_run("[given up by a person]".to_owned())
    };
    record_result(engine, call, done, None, false)
}

/// Looks at a call for which it is time.
fn look(engine: &mut Engine<'_>, call: &OpenCall, deferred: &Deferred) -> Step<()> {
    let tool = tool_named(engine.ctx.agent, &call.name);
    let later = tool.and_then(|tool| Some((tool, tool.later.as_ref()?)));
    let (Some((tool, later)), Some(started)) = (later, &call.started) else {
        let text = format!(
            "what became of {} is not known: the agent has no tool {} with later: any more",
            deferred.handle, call.name
        );
        return record_refusal(engine, call, &text);
    };
    let is_last = Timestamp::now() >= deferred.expires_at;
    let look = LookInput {
        handle: &deferred.handle,
        is_last,
    };
    let call_id = started.call_id.as_deref().unwrap_or_default();
    let arguments = started.arguments.as_deref().unwrap_or("{}");
    let prepared =
        tool_call::prepare_look(engine.ctx, tool, &later.check, look, arguments.as_bytes())?;
    let handle = in_short(&deferred.handle, 100);
    engine.log.print_progress(&[
        (Tone::Dim, "? "),
        (Tone::Command, &call.name),
        (Tone::Dim, &format!(" ({handle})")),
    ]);
    let reference = prepared.reference.clone();
    let line = engine.log.wait_for(&format!("a look at {}", call.name));
    let mut done = tool_call::run_look(engine.ctx, tool, prepared, call_id)?;
    drop(line);
    if engine.start.is_ours {
        process::end_leftovers(call_id);
    }
    // A look that was cut short is made again.
    engine.go_on()?;
    let took = format_duration(done.duration);
    let outcome = match done.exit_code {
        Some(0) => format!("ended, {took}"),
        Some(ENDED_BADLY) => format!("ended badly, {took}"),
        _ if is_last => {
            let seconds = Timestamp::now().since(deferred.since).as_secs();
            done = Done {
                status: ActionStatus::Failed,
                ..Done::not_run(format!("[nothing known after {seconds} s]"))
            };
            "nothing known, and its time is over".to_owned()
        }
        _ => return not_yet(engine, call, deferred, later, &done, &reference),
    };
    record_observation(engine, call, done, &outcome, &reference)
}

/// Records a look at a call that has not ended.
fn not_yet(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    deferred: &Deferred,
    later: &LaterRule,
    done: &Done,
    reference: &str,
) -> Step<()> {
    let name = &call.name;
    let is_known = done.exit_code == Some(NOT_YET);
    if !is_known && !deferred.has_failed_look {
        let said = last_line(&done.observation);
        let said = in_short(said.trim_matches(['[', ']']), 200);
        let check = later
            .check
            .first()
            .map(|word| word.written(|_| ""))
            .unwrap_or_default();
        let text = format!("{name}: {check} could not say whether it has ended: {said}");
        engine.log.record_note(Level::Warn, &text)?;
    }
    let dir = engine.ctx.run.path.join(reference);
    let chosen = if is_known {
        chosen_times(engine, name, &dir)?
    } else {
        ChosenTimes::default()
    };
    let (due_at, expires_at) = later::next_times(deferred, chosen);
    engine.log.add_durably(&LookEvent {
        action_id: &call.id,
        exit_code: done.exit_code,
        due_at: &due_at.to_string(),
        expires_at: &expires_at.to_string(),
    })?;
    let line = format!("  {name}: not yet");
    engine.log.print_progress(&[(Tone::Dim, &line)]);
    Ok(())
}

/// The times that the program of an execution has chosen; with a warning, none.
fn chosen_times(engine: &mut Engine<'_>, name: &str, dir: &std::path::Path) -> Step<ChosenTimes> {
    match later::times_in(dir) {
        Ok(times) => Ok(times),
        Err(why) => {
            engine
                .log
                .record_note(Level::Warn, &format!("{name}: {why}"))?;
            Ok(ChosenTimes::default())
        }
    }
}
