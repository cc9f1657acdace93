//! Calls of one message that run at once.
//!
//! Architecture invariant: guards have agreed to all of them before the first starts, those that start together are on
//! disk together before, and nothing follows from any of them before all that were started have ended.

use super::hook_points::has_hook;
use super::open_call::{OpenCall, Planned};
use super::outcome::{Ending, Step, halt_on};
use super::points::{after_call, before_calls};
use super::recovery::{recover_call, suspended_by};
use super::results::{past_guard, record_observation, record_refusal};
use super::sandbox_note::{note_length, print_notes};
use super::{Engine, tool_named};
use crate::config::agent::HookEvent;
use crate::config::tool::bind::BoundCall;
use crate::config::tool::definition::{Confirm, Tool};
use crate::engine::run_context::RunContext;
use crate::engine::tool_call::{self, Done, StartedProgram};
use crate::error::{Error, reason};
use crate::record::event::{ActionRequestEvent, RawJson};
use crate::record::stop_reason::Suspension;
use crate::text::amounts::format_duration;
use crate::text::call_line::{asked_for, call_line};
use crate::text::json;
use crate::text::order::sort_by;
use crate::text::shell::shell_quoted;
use crate::unix::process::{Children, Command, Outcome, SpawnError, Token, Woken};
use crate::unix::signals::Stop;
use crate::unix::terminal::Tone;
use std::collections::VecDeque;
use std::time::Duration;

/// A call that is recorded as started.
struct UnderWay<'c> {
    planned: Planned<'c>,
    program: StartedProgram,
    token: Token,
    place: Place,
}

/// A call that has ended.
struct EndedCall<'c> {
    planned: Planned<'c>,
    done: Done,
    place: Place,
}

/// Place of a call's record.
struct Place {
    /// The directory, from the run's.
    reference: String,
    /// The command on one line.
    command: String,
}

/// The number of calls that have their results, and the next call if a guard wants a person to confirm it.
pub(super) struct GroupDone<'c> {
    pub(super) taken: usize,
    pub(super) asks: Option<Planned<'c>>,
}

/// True for a call that may run at once with its neighbours.
pub(super) fn is_parallel(engine: &Engine<'_>, call: &OpenCall) -> bool {
    let tool = tool_named(engine.ctx.agent, &call.name);
    let may = tool.is_some_and(|tool| most_of(tool) > 0 && tool.confirm == Confirm::No);
    let is_open = call.barred.is_none() && !call.is_set_aside() && call.asked.is_none();
    may && is_open && engine.known(call).is_none_or(|it| it.is_repeated)
}

/// Limit of the calls that run at once beside those of a tool; 0: none may.
fn most_of(tool: &Tool) -> u64 {
    tool.parallel.unwrap_or_default()
}

/// Runs the first of these calls together with the following ones that may run in parallel.
pub(super) fn run_group<'c, 'a: 'c>(
    engine: &mut Engine<'a>,
    calls: &'c [OpenCall],
) -> Step<GroupDone<'c>> {
    let mut planned: VecDeque<Planned<'c>> = VecDeque::new();
    let (mut taken, mut asks) = (0, None);
    for call in calls {
        if !is_parallel(engine, call) || engine.must_end().is_some() {
            break;
        }
        let next = plan(engine, call)?;
        if next.is_none() && engine.ctx.signals.stop().is_some() {
            break;
        }
        taken += 1;
        match next {
            Some(next) if !next.questions.is_empty() => {
                asks = Some(next);
                break;
            }
            next => planned.extend(next),
        }
    }
    let most = planned.iter().map(|it| most_of(it.tool)).min().unwrap_or(1);
    run_all(engine, planned, most as usize, false)?;
    Ok(GroupDone { taken, asks })
}

/// The call as it will run, after its guards. None: it has its result, or must wait.
pub(super) fn plan<'c, 'a: 'c>(
    engine: &mut Engine<'a>,
    call: &'c OpenCall,
) -> Step<Option<Planned<'c>>> {
    let agent = engine.ctx.agent;
    let ready = match (&call.started, tool_named(agent, &call.name)) {
        (Some(started), _) => recover_call(engine, call, started)?,
        (None, Some(tool)) => match call.bind(engine.ctx, tool) {
            Ok(bound) => Some(((tool, bound), RunContext::new_call_id())),
            Err(text) => {
                record_refusal(engine, call, &text)?;
                None
            }
        },
        (None, None) => None,
    };
    let Some(((tool, bound), call_id)) = ready else {
        return Ok(None);
    };
    let passed = past_guard(engine, call, Some(tool), bound)?;
    Ok(passed.map(|(bound, questions)| Planned {
        call,
        tool,
        bound,
        call_id,
        questions,
    }))
}

/// Calls on their way to their results.
struct Group<'c, 's> {
    planned: VecDeque<Planned<'c>>,
    /// Limit of calls that run at once.
    most: usize,
    children: Children<'s>,
    under_way: Vec<UnderWay<'c>>,
    /// The ids of those that were started, in order.
    order: Vec<String>,
    /// Ended calls that get their results when all have ended, with their places in the order.
    open: Vec<(usize, EndedCall<'c>)>,
    /// Length of the sandbox's notes that have been printed.
    noted: u64,
}

/// Runs calls, at most `most` at once, and waits until all that started have ended. Each gets its result when it ends;
/// calls whose result a hook sees first, and calls of suspended sub-agents, when all have. The first is started without a
/// look at what may end the run if `is_checked`: a guard of a lone call may want the run to end after it.
pub(super) fn run_all(
    engine: &mut Engine<'_>,
    planned: VecDeque<Planned<'_>>,
    most: usize,
    is_checked: bool,
) -> Step<()> {
    let ctx = engine.ctx;
    let mut group = Group {
        planned,
        most,
        children: Children::new(&ctx.signals),
        under_way: Vec::new(),
        order: Vec::new(),
        open: Vec::new(),
        noted: note_length(engine),
    };
    let worked = work_off(engine, &mut group, is_checked);
    if worked.is_err() {
        // Nothing more can be recorded.
        interrupt_all(&mut group, ctx.grace());
        while !group.children.is_empty() && group.children.wait(None).is_ok() {}
    }
    let halt = worked?;
    sort_by(&mut group.open, |(a, _), (b, _)| a.cmp(b));
    let ended = group.open.into_iter().map(|(_, ended)| ended);
    conclude(engine, ended)?;
    if halt.is_some() {
        engine.log.journal.flush()?;
    }
    halt_on(halt)
}

/// Brings the calls of a group to their ends. Returns why some were not started, if that is so.
fn work_off(
    engine: &mut Engine<'_>,
    group: &mut Group<'_, '_>,
    mut is_checked: bool,
) -> Step<Option<Ending>> {
    let mut halt: Option<Ending> = None;
    loop {
        if !group.planned.is_empty() && halt.is_none() && !is_checked {
            halt = engine.must_end().or_else(|| engine.limits.time_is_over());
        }
        is_checked = false;
        let free = group.most.saturating_sub(group.under_way.len());
        if halt.is_none() && free > 0 && !group.planned.is_empty() {
            start_together(engine, group, free)?;
            continue;
        }
        if group.under_way.is_empty() {
            return Ok(halt);
        }
        let each = group.under_way.iter();
        let names: Vec<&str> = each.map(|it| &*it.planned.call.name).collect();
        let mut awaited = names.join(", ");
        if engine.ctx.signals.stop() == Some(Stop::Interrupt) {
            awaited.push_str(" to end (Ctrl-C kills it)");
        }
        let line = engine.log.wait_for_outputs(&awaited, || {
            let dirs = group.under_way.iter().map(|it| &it.place.reference);
            let dirs = dirs.map(|reference| engine.ctx.run.path.join(reference));
            dirs.flat_map(|dir| ["stdout.log", "stderr.log"].map(|name| dir.join(name)))
                .collect()
        });
        let woken = group.children.wait(None);
        drop(line);
        match woken.map_err(|e| Error::failure(format!("cannot wait for tools: {}", reason(&e))))? {
            Woken::Ended(token, outcome) => {
                let mut each = group.under_way.iter();
                if let Some(at) = each.position(|it| it.token == token) {
                    let call = group.under_way.remove(at);
                    let UnderWay {
                        planned,
                        program,
                        place,
                        ..
                    } = call;
                    settle(engine, group, planned, program, place, Ok(outcome))?;
                }
            }
            Woken::Stopped(_) => interrupt_all(group, engine.ctx.grace()),
            Woken::Suspended | Woken::Deadline => {}
        }
    }
}

fn interrupt_all(group: &mut Group<'_, '_>, grace: Duration) {
    let tokens: Vec<Token> = group.under_way.iter().map(|it| it.token).collect();
    group.children.interrupt_all(&tokens, grace);
}

/// Records the start of at most `most` calls, makes that durable, and starts them. A call that cannot be started has
/// ended.
fn start_together(engine: &mut Engine<'_>, group: &mut Group<'_, '_>, most: usize) -> Step<()> {
    let most = most.min(group.planned.len());
    before_calls(engine, group.planned.range(..most).map(|it| it.tool))?;
    let mut prepared = Vec::new();
    for mut planned in group.planned.drain(..most) {
        tool_call::name_subagent(planned.tool, &mut planned.bound, &planned.call_id);
        let record = tool_call::prepare_call(engine.ctx, planned.tool, &planned.bound)?;
        print_command(engine, &planned.bound);
        engine.log.add(&ActionRequestEvent {
            action_id: &planned.call.id,
            tool_name: &planned.call.name,
            tool_args: RawJson(json::text(&planned.bound.arguments).as_bytes()),
            resolved_command: &record.record.command,
            call_id: &planned.call_id,
            execution_ref: Some(&record.reference),
        });
        group.order.push(planned.call.id.clone());
        prepared.push((planned, record));
    }
    engine.log.make_durable()?;
    for (planned, record) in prepared {
        let place = Place {
            reference: record.reference.clone(),
            command: record.record.command.clone(),
        };
        let (tool, id) = (planned.tool, &planned.call_id);
        let spawn = |command: Command<'_>| group.children.spawn(command);
        let (program, token) = tool_call::start(engine.ctx, tool, record, id, spawn)?;
        match token {
            Ok(token) => group.under_way.push(UnderWay {
                planned,
                program,
                token,
                place,
            }),
            Err(error) => settle(engine, group, planned, program, place, Err(error))?,
        }
    }
    Ok(())
}

/// Gives a call that has ended its result, unless that must wait until all have.
fn settle<'c>(
    engine: &mut Engine<'_>,
    group: &mut Group<'c, '_>,
    planned: Planned<'c>,
    program: StartedProgram,
    place: Place,
    how: std::result::Result<Outcome, SpawnError>,
) -> Step<()> {
    let done = tool_call::end(engine.ctx, planned.tool, program, how)?;
    group.noted = print_notes(engine, group.noted);
    let (tool, call_id) = (planned.tool, &planned.call_id);
    let Some(done) = after_call(engine, planned.call, tool, call_id, done, &place.reference)?
    else {
        return Ok(());
    };
    let ended = EndedCall {
        planned,
        done,
        place,
    };
    let waits = has_hook(engine.ctx, HookEvent::PostToolExecution) || suspension(&ended).is_some();
    if !waits {
        return record_run(engine, ended);
    }
    let mut order = group.order.iter();
    let at = order.position(|id| *id == ended.planned.call.id);
    group.open.push((at.unwrap_or_default(), ended));
    Ok(())
}

fn suspension(ended: &EndedCall<'_>) -> Option<Suspension> {
    ended.planned.tool.subagent?;
    Suspension::of_code(ended.done.exit_code?)
}

/// Gives calls that have all ended their results, in their order. Stops if sub-agents are suspended, as the one that asks
/// most of a person.
fn conclude<'c>(engine: &mut Engine<'_>, ended: impl Iterator<Item = EndedCall<'c>>) -> Step<()> {
    let mut suspended: Vec<(Suspension, Ending)> = Vec::new();
    for ended in ended {
        let Some(suspension) = suspension(&ended) else {
            record_run(engine, ended)?;
            continue;
        };
        let EndedCall {
            planned,
            done,
            place,
        } = &ended;
        let (id, command) = (&planned.call_id, &place.command);
        let ending = suspended_by(engine, planned.call, suspension, id, command, done);
        suspended.push((suspension, ending));
    }
    if suspended.is_empty() {
        return Ok(());
    }
    engine.go_on()?;
    let texts: Vec<&str> = suspended.iter().map(|(_, ending)| &*ending.text).collect();
    let text = texts.join("; ");
    // Of those that ask equally much, the first.
    suspended.reverse();
    let most = suspended.into_iter().max_by_key(|(it, _)| it.demand());
    halt_on(most.map(|(_, ending)| Ending { text, ..ending }))
}

/// Gives a call that has run its result.
fn record_run(engine: &mut Engine<'_>, ended: EndedCall<'_>) -> Step<()> {
    let EndedCall {
        planned,
        done,
        place: Place { reference, .. },
    } = ended;
    let outcome = match done.exit_code {
        Some(0) => format!("ok, {}", format_duration(done.duration)),
        Some(code) => format!("exit code {code}, {}", format_duration(done.duration)),
        None => "not run".to_owned(),
    };
    record_observation(engine, planned.call, done, &outcome, &reference)
}

/// The columns that a command may take in a line of progress.
const COMMAND_WIDTH: usize = 160;

/// Prints what is about to run, with the head of its stdin; if more is wanted, all of both.
fn print_command(engine: &Engine<'_>, bound: &BoundCall) {
    if engine.log.screen.quiet {
        return;
    }
    let stdin = bound.stdin.as_deref().map(String::from_utf8_lossy);
    if !engine.log.screen.verbose {
        let shown = call_line(&bound.argv, stdin.as_deref(), COMMAND_WIDTH);
        let line = [(Tone::Dim, "$ "), (Tone::Command, &*shown)];
        return engine.log.print_progress(&line);
    }
    let command = shell_quoted(&asked_for(&bound.argv).words);
    let sign = if stdin.is_some() { " <<<" } else { "" };
    engine.log.print_progress(&[
        (Tone::Dim, "$ "),
        (Tone::Command, &command),
        (Tone::Dim, sign),
    ]);
    for line in stdin.iter().flat_map(|text| text.lines()) {
        engine.log.print_below(Tone::Command, line);
    }
}
