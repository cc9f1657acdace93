//! Calls whose end no engine has recorded: the model gets a report, the call is repeated, a check is asked
//! whether it has happened, or a sub-agent's run goes on.

use super::open_call::{OpenCall, StartedCall};
use super::outcome::{Ending, Step};
use super::points::after_call;
use super::results::{record_observation, record_refusal, record_result};
use super::{Engine, Ready, tool_named};
use crate::config::tool::definition::{OnResume, TimedCommand, Tool};
use crate::engine::former_content;
use crate::engine::run_context::RunContext;
use crate::engine::tool_call::{self, Done};
use crate::error::Result;
use crate::record::engine_log::Level;
use crate::record::event::{ActionCheckEvent, CheckFinding};
use crate::record::metadata::{self, Metadata};
use crate::record::stop_reason::{StopReason, Suspension};
use crate::record::subruns;
use crate::text::amounts::{counted, format_duration};
use crate::text::shorten::in_short;
use crate::text::shorten::last_line;
use crate::unix::files;
use crate::unix::process;
use crate::unix::terminal::Tone;
use std::path::Path;

/// Brings a call that an earlier process started to its result, unless it is to run again: then returns it, and the id
/// under which it runs.
pub(super) fn recover_call<'a>(
    engine: &mut Engine<'a>,
    call: &OpenCall,
    started: &StartedCall,
) -> Step<Option<(Ready<'a>, String)>> {
    let tool = tool_named(engine.ctx.agent, &call.name);
    let is_nested = tool.is_some_and(|tool| tool.subagent.is_some());
    // What the tools of a suspended sub-agent have left running is not ours to end.
    if !(is_nested && started.is_suspended) {
        end_leftovers(engine, call, started)?;
    }
    if let (Some(tool), Some(reference)) = (tool, &started.execution_ref)
        && engine.start.is_ours
        && let Ok(bound) = call.bind(engine.ctx, tool)
    {
        let argv = tool_call::full_argv(engine.ctx, tool, &bound);
        let dir = engine.ctx.run.path.join(reference);
        if let Some(restored) = former_content::restore(engine.ctx, tool, &argv, &dir) {
            engine.log.record_note(Level::Info, &restored)?;
        }
    }
    let (Some(tool), Some(call_id)) = (tool, &started.call_id) else {
        return report_interruption(engine, call, tool, started, None);
    };
    let check = match &tool.on_resume {
        _ if is_nested => None,
        OnResume::Report => return report_interruption(engine, call, Some(tool), started, None),
        OnResume::Retry => None,
        OnResume::Check(check) => Some(check),
    };
    if let Some(check) = check {
        match ask_check(engine, call, started, tool, check, call_id)? {
            Some((CheckFinding::Absent, _)) => {}
            Some((CheckFinding::Happened, _)) => return Ok(None),
            Some((CheckFinding::Unknown, why)) => {
                return report_interruption(engine, call, Some(tool), started, Some(why));
            }
            // The check has given no answer: the next start asks it again.
            None => {
                engine.go_on()?;
                return Ok(None);
            }
        }
    }
    match call.bind(engine.ctx, tool) {
        Ok(bound) => {
            // The processes of a directory that this is a copy of have the recorded id.
            let call_id = if engine.start.is_ours {
                call_id.clone()
            } else {
                RunContext::new_call_id()
            };
            Ok(Some(((tool, bound), call_id)))
        }
        Err(text) if check.is_some() => {
            record_refusal(engine, call, &text)?;
            Ok(None)
        }
        Err(_) => report_interruption(engine, call, Some(tool), started, None),
    }
}

/// Ends what is left of a call whose engine died.
fn end_leftovers(engine: &mut Engine<'_>, call: &OpenCall, started: &StartedCall) -> Result<()> {
    let Some(call_id) = started.call_id.as_ref().filter(|_| engine.start.is_ours) else {
        return Ok(());
    };
    let left = process::end_leftovers(call_id);
    if left == 0 {
        return Ok(());
    }
    let of_it = counted(left, "process");
    let name = &call.name;
    let text = format!("{name}: killed {of_it} left of it");
    engine.ctx.log.line(Level::Warn, &text);
    engine
        .log
        .record_note(Level::Info, &format!("{name}: ended {of_it} left of it"))
}

/// Asks whether a call has happened. If it has, that is its result. None if the engine was asked to end
/// before the check had answered.
fn ask_check(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    started: &StartedCall,
    tool: &Tool,
    check: &TimedCommand,
    call_id: &str,
) -> Step<Option<(CheckFinding, String)>> {
    let arguments = started.arguments.as_deref().unwrap_or("{}");
    let prepared = tool_call::prepare_check(engine.ctx, tool, check, arguments.as_bytes())?;
    engine.log.print_progress(&[
        (Tone::Dim, "? "),
        (Tone::Command, &in_short(&prepared.record.command, 160)),
    ]);
    let reference = prepared.reference.clone();
    let (finding, done) = tool_call::run_check(engine.ctx, tool, prepared, call_id)?;
    if engine.ctx.signals.stop().is_some() {
        return Ok(None);
    }
    engine.log.add(&ActionCheckEvent {
        action_id: &call.id,
        tool_name: &call.name,
        status: finding,
        exit_code: done.exit_code,
        duration_ms: done.duration.as_millis() as u64,
        execution_ref: &reference,
    });
    engine.log.journal.flush()?;
    let Some(done) = after_call(engine, call, tool, call_id, done, &reference)? else {
        return Ok(Some((CheckFinding::Happened, String::new())));
    };
    match finding {
        CheckFinding::Happened => {
            let outcome = format!("had happened, {}", format_duration(done.duration));
            record_observation(engine, call, done, &outcome, &reference)?;
            return Ok(Some((finding, String::new())));
        }
        CheckFinding::Absent => engine
            .log
            .print_progress(&[(Tone::Dim, "  had not happened")]),
        CheckFinding::Unknown => {}
    }
    let said = match done.exit_code {
        Some(_) => last_line(&done.observation),
        None => done.observation.as_str(),
    };
    let why = format!(
        "[a check whether this call has happened could not say: {}]",
        in_short(said.trim_matches(['[', ']']), 200)
    );
    Ok(Some((finding, why)))
}

/// Reports to the model that a call was interrupted.
fn report_interruption<'a>(
    engine: &mut Engine<'_>,
    call: &OpenCall,
    tool: Option<&Tool>,
    started: &StartedCall,
    checked: Option<String>,
) -> Step<Option<(Ready<'a>, String)>> {
    let reference = started.execution_ref.as_deref();
    let note = interruption(&engine.ctx.run.path, reference);
    let notes: Vec<String> = [note.clone()].into_iter().chain(checked).collect();
    let shown = match (tool, reference) {
        (Some(tool), Some(reference)) => {
            tool_call::show_output(engine.ctx, tool, reference, &notes)
        }
        _ => Ok(notes.join("\n")),
    };
    let observation = shown.unwrap_or_else(|error| format!("{note}\n({error})"));
    engine.log.print_progress(&[
        (Tone::Command, &call.name),
        (Tone::Bad, " was interrupted; reporting that to the model"),
    ]);
    let done = Done::not_run(observation);
    match reference {
        // What it had printed is for the hook's eyes, too.
        Some(reference) => record_observation(engine, call, done, "not run again", reference)?,
        None => record_result(engine, call, done, None, false)?,
    }
    Ok(None)
}

/// The end of this run when the run of a sub-agent is suspended. The call has no result yet; the next start
/// makes it again, which resumes that run.
pub(super) fn suspended_by(
    engine: &Engine<'_>,
    call: &OpenCall,
    suspension: Suspension,
    call_id: &str,
    command: &str,
    done: &Done,
) -> Ending {
    if let Some(ending) = engine.must_end() {
        return ending;
    }
    let name = &call.name;
    let id = tool_call::subagent_run(name, call_id);
    let found = id.and_then(|id| {
        let run = subruns::find_started(&engine.ctx.run, call_id, command, &id)?;
        Some((id, metadata::read(&run.path)?))
    });
    let text = match found {
        Some((
            id,
            Metadata {
                error: Some(error),
                stop_reason,
                ..
            },
        )) => {
            // What it waits for itself.
            let is_its_own =
                stop_reason.as_deref() == Some(StopReason::Subagent(suspension).name());
            if is_its_own {
                error
            } else {
                format!("sub-agent {name}, run {id}: {error}")
            }
        }
        _ => {
            let code = done.exit_code.unwrap_or_default();
            let first = done.observation.lines().find(|line| *line != "[stderr]");
            let said = in_short(first.unwrap_or_default(), 300);
            format!("sub-agent {name} ended with exit code {code}: {said}")
        }
    };
    Ending::new(StopReason::Subagent(suspension), text)
}

/// The observation of a call that was running when the engine died.
fn interruption(run: &Path, reference: Option<&str>) -> String {
    let end = match reference.and_then(|reference| recorded_code(run, reference)) {
        Some(code) => format!("it had ended with exit code {code}"),
        None => "whether it finished is unknown".to_owned(),
    };
    format!(
        "[the engine stopped before it recorded the result of this call: {end}; it has not been run again]"
    )
}

/// The exit code in a call's directory. Whatever else is there is not for the model.
fn recorded_code(run: &Path, reference: &str) -> Option<i32> {
    const LONGEST: u64 = "-2147483648\n".len() as u64;
    let path = Path::new(reference).join("exit_code.txt");
    let text = String::from_utf8(files::read_below(run, &path, LONGEST).ok()?).ok()?;
    text.strip_suffix('\n')?.parse().ok()
}
