//! Calls of one message that run at once.
//!
//! Architecture invariant: guards have agreed to all of them before the first starts, those that start together are on
//! disk together before, and nothing follows from any of them before all that were started have ended.

use super::deferred::{defer, is_deferral};
use super::executed::remember_executed_files;
use super::hook_points::has_hook;
use super::open_call::OpenCall;
use super::outcome::{Ending, Halt, Step};
use super::recovery::{Recovered, recover_call, suspended_by};
use super::results::{past_guard, record_observation, record_refusal};
use super::sandbox_note::{note_length, print_note};
use super::{Engine, tool_named};
use crate::config::agent::HookEvent;
use crate::config::tool::bind::BoundCall;
use crate::config::tool::definition::{Confirm, Tool};
use crate::config::tool::shown::{asked_for, call_line};
use crate::engine::run_context::RunContext;
use crate::engine::tool_call::{self, Done, StartedProgram};
use crate::error::{Error, reason};
use crate::record::event::Event;
use crate::record::stop_reason::Suspension;
use crate::text::amounts::format_duration;
use crate::text::json;
use crate::text::order::sort_by;
use crate::text::shell::shell_quoted;
use crate::unix::process::{Children, Outcome, SpawnError, Token, Woken};
use crate::unix::terminal::Tone;
use std::collections::VecDeque;
use std::time::Duration;

/// A call that may start.
pub(super) struct Planned<'c> {
    pub(super) call: &'c OpenCall,
    pub(super) tool: &'c Tool,
    pub(super) bound: BoundCall,
    pub(super) call_id: String,
    /// The words of guards that want a person to be asked first.
    pub(super) questions: Vec<String>,
}

/// A call that is recorded as started.
struct UnderWay<'c> {
    planned: Planned<'c>,
    program: StartedProgram,
    token: Token,
    /// The directory of its records, from the run's, and its command on one line.
    places: (String, String),
}

/// A call that has ended.
pub(super) struct EndedCall<'c> {
    pub(super) planned: Planned<'c>,
    pub(super) done: Done,
    pub(super) places: (String, String),
}

/// The number of calls that have their results, and the next call if a guard wants a person to confirm it.
pub(super) struct GroupDone<'c> {
    pub(super) taken: usize,
    pub(super) asks: Option<Planned<'c>>,
}

/// True for a call that may run at once with its neighbours.
pub(super) fn is_parallel(engine: &mut Engine<'_>, call: &OpenCall) -> bool {
    let tool = tool_named(engine.ctx.agent, &call.name);
    let may = tool.is_some_and(|tool| most_of(tool) > 0 && tool.confirm == Confirm::No);
    let is_open = call.barred.is_none() && call.deferred.is_none();
    may && is_open && call.asked.is_none() && engine.talk.model.playback().is_none()
}

/// How many calls run at once beside those of a tool; 0: none.
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
    let ended = run_all(engine, planned, most as usize)?;
    conclude(engine, ended)?;
    Ok(GroupDone { taken, asks })
}

/// The call as it will run, after its guards. None: it has its result, or must wait.
pub(super) fn plan<'c, 'a: 'c>(
    engine: &mut Engine<'a>,
    call: &'c OpenCall,
) -> Step<Option<Planned<'c>>> {
    let agent = engine.ctx.agent;
    let ready = match (&call.started, tool_named(agent, &call.name)) {
        (Some(started), _) => match recover_call(engine, call, started)? {
            Recovered::Done => return Ok(None),
            Recovered::RunAgain(ready, call_id) => Some((ready, call_id)),
        },
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
}

/// Runs calls, at most `most` at once, and waits until all that started have ended. Each gets its result when it ends.
/// Calls whose result a hook sees first, and calls of suspended sub-agents, are returned in the order of the calls.
fn run_all<'c>(
    engine: &mut Engine<'_>,
    planned: VecDeque<Planned<'c>>,
    most: usize,
) -> Step<Vec<EndedCall<'c>>> {
    let ctx = engine.ctx;
    let mut group = Group {
        planned,
        most,
        children: Children::new(&ctx.signals),
        under_way: Vec::new(),
        order: Vec::new(),
        open: Vec::new(),
    };
    let note = note_length(engine);
    let worked = work_off(engine, &mut group);
    if worked.is_err() {
        // Nothing more can be recorded.
        interrupt_all(&mut group, ctx.grace());
        while !group.children.is_empty() && group.children.wait(None).is_ok() {}
    }
    print_note(engine, note);
    let halt = worked?;
    sort_by(&mut group.open, |(a, _), (b, _)| a.cmp(b));
    let ended = group.open.into_iter().map(|(_, ended)| ended).collect();
    let Some(ending) = halt else { return Ok(ended) };
    conclude(engine, ended)?;
    engine.log.journal.flush()?;
    Err(ending.into())
}

/// Brings the calls of a group to their ends. Returns why some were not started, if that is so.
fn work_off(engine: &mut Engine<'_>, group: &mut Group<'_, '_>) -> Step<Option<Ending>> {
    let mut halt: Option<Ending> = None;
    loop {
        if !group.planned.is_empty() && halt.is_none() {
            halt = engine.must_end().or_else(|| engine.limits.time_is_over());
        }
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
        let line = engine.log.wait_for(&names.join(", "));
        let woken = group.children.wait(None);
        drop(line);
        match woken.map_err(|e| Error::failure(format!("cannot wait for tools: {}", reason(&e))))? {
            Woken::Ended(token, outcome) => {
                let mut each = group.under_way.iter();
                if let Some(at) = each.position(|it| it.token == token) {
                    let call = group.under_way.remove(at);
                    let (planned, program, places) = (call.planned, call.program, call.places);
                    settle(engine, group, planned, program, places, Ok(outcome))?;
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
    remember_executed_files(engine)?;
    let mut prepared = Vec::new();
    for mut planned in group.planned.drain(..most.min(group.planned.len())) {
        tool_call::name_subagent(planned.tool, &mut planned.bound, &planned.call_id);
        let record = tool_call::prepare_call(engine.ctx, planned.tool, &planned.bound)?;
        print_command(engine, &planned.bound, &record.record.command);
        engine.log.add(&Event::ActionRequest {
            action_id: &planned.call.id,
            tool_name: &planned.call.name,
            tool_args: json::text(&planned.bound.arguments).as_bytes(),
            resolved_command: &record.record.command,
            call_id: &planned.call_id,
            execution_ref: Some(&record.reference),
        });
        group.order.push(planned.call.id.clone());
        prepared.push((planned, record));
    }
    engine.log.make_durable()?;
    for (planned, record) in prepared {
        let places = (record.reference.clone(), record.record.command.clone());
        let (tool, id) = (planned.tool, &planned.call_id);
        let children = &mut group.children;
        let (program, token) = tool_call::start_tool(engine.ctx, tool, record, id, children)?;
        match token {
            Ok(token) => group.under_way.push(UnderWay {
                planned,
                program,
                token,
                places,
            }),
            Err(error) => settle(engine, group, planned, program, places, Err(error))?,
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
    places: (String, String),
    how: std::result::Result<Outcome, SpawnError>,
) -> Step<()> {
    let call = (program, &planned.bound);
    let done = tool_call::end_tool(engine.ctx, planned.tool, call, how)?;
    let ended = EndedCall {
        planned,
        done,
        places,
    };
    let waits = has_hook(engine.ctx, HookEvent::PostToolExecution) || suspension(&ended).is_some();
    let waits = waits && !is_deferral(ended.planned.tool, &ended.done);
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
fn conclude(engine: &mut Engine<'_>, ended: Vec<EndedCall<'_>>) -> Step<()> {
    let mut suspended: Vec<(Suspension, Ending)> = Vec::new();
    for ended in ended {
        let Some(suspension) = suspension(&ended) else {
            record_run(engine, ended)?;
            continue;
        };
        let EndedCall {
            planned,
            done,
            places: (_, command),
        } = &ended;
        let places = (planned.call_id.as_str(), command.as_str());
        let ending = suspended_by(engine, planned.call, suspension, places, done);
        suspended.push((suspension, ending));
    }
    let Some(most) = suspended
        .iter()
        .map(|(suspension, _)| *suspension)
        .max_by_key(|it| it.demand())
    else {
        return Ok(());
    };
    if let Some(ending) = engine.must_end() {
        return Err(ending.into());
    }
    let texts: Vec<&str> = suspended.iter().map(|(_, ending)| &*ending.text).collect();
    let text = texts.join("; ");
    let ending = suspended.iter().find(|(suspension, _)| *suspension == most);
    let ending = ending.map(|(_, ending)| Ending {
        text,
        ..ending.clone()
    });
    ending.map_or(Ok(()), |ending| Err(Halt::Ended(ending)))
}

/// Gives a call that has run its result.
pub(super) fn record_run(engine: &mut Engine<'_>, ended: EndedCall<'_>) -> Step<()> {
    let EndedCall {
        planned,
        done,
        places: (reference, _),
    } = ended;
    if is_deferral(planned.tool, &done) {
        let called = (planned.tool, planned.call_id.as_str());
        return Ok(defer(engine, planned.call, called, done, &reference)?);
    }
    let outcome = match done.exit_code {
        Some(0) => format!("ok, {}", format_duration(done.duration)),
        Some(code) => format!("exit code {code}, {}", format_duration(done.duration)),
        None => "not run".to_owned(),
    };
    Ok(record_observation(
        engine,
        planned.call,
        done,
        &outcome,
        &reference,
    )?)
}

/// The columns that a command may take in a line of progress.
const COMMAND_WIDTH: usize = 160;

/// Prints what is about to run, with the head of its stdin; if more is wanted, all of both.
pub(super) fn print_command(engine: &Engine<'_>, bound: &BoundCall, resolved: &str) {
    if engine.log.screen.quiet {
        return;
    }
    let stdin = bound.stdin.as_deref().map(String::from_utf8_lossy);
    if !engine.log.screen.verbose {
        let shown = call_line(&bound.argv, stdin.as_deref(), COMMAND_WIDTH);
        return engine
            .log
            .print_progress(&[(Tone::Dim, "$ "), (Tone::Command, &shown)]);
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
    if command != resolved {
        engine
            .log
            .print_below(Tone::Dim, &format!("in full: {resolved}"));
    }
}
