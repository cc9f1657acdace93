//! Requests that have not been sent, built by the engine's own code from the run as recorded. Nothing is
//! written, and no program is run.

use super::inspect::RunSnapshot;
use super::open::start_event;
use super::task::{GivenAttachment, GivenMessage};
use crate::config::agent::{Agent, HookEvent};
use crate::config::environment::Environment;
use crate::config::resolved;
use crate::engine::request::form;
use crate::engine::run_context::{RunContext, depth};
use crate::engine::run_loop::{builder, foresee, unreadable_at};
use crate::error::{At, Error, Result};
use crate::model::wire::{Wire, cut_marks};
use crate::record::blobs::Blobs;
use crate::record::engine_log::{Level, Log};
use crate::record::event::{Event, MessageEvent};
use crate::record::messages;
use crate::record::metadata::{Metadata, Status};
use crate::record::reader::{JournalSource, Tail, tail};
use crate::record::request_body::{Body, with_bytes};
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading, Run};
use crate::record::workspace::Workspace;
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, Tone};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// The process's signals, and the screen for remarks.
type Around = (Arc<Signals>, Screen);

/// The first request that a new run would send.
pub(crate) fn first_request(
    agent: &Agent,
    workspace: &Workspace,
    message: &GivenMessage,
    ctx: Around,
) -> Result<Vec<u8>> {
    let id = RunId::generate(Timestamp::now());
    let config = resolved::render_resolved(agent, agent.max_iterations, &agent.budget, None);
    let metadata = Metadata {
        run_id: id.to_string(),
        ..Metadata::default()
    };
    let mut journal = Vec::new();
    let start = start_event(&metadata, &message.text, &config, false);
    start.write(&mut journal, 1, Timestamp::now(), 0);
    let attached = message.attached.iter();
    let attachments: Vec<_> = attached.map(|given| given.attachment.clone()).collect();
    let said = MessageEvent {
        content: &message.text,
        attachments: &attachments,
        ..MessageEvent::default()
    };
    said.write(&mut journal, 2, Timestamp::now(), 0);
    let run = RunDir::of(workspace, &id);
    let state = read(agent, &journal, &run.journal())?;
    build(agent, workspace, run, &message.attached, state, ctx)
}

/// The tokens that the model takes, as far as known, and from where. None if nothing depends on it.
pub(crate) fn window_in_words(
    agent: &Agent,
    environment: Option<&Environment>,
    found: Option<&RunSnapshot>,
) -> Option<String> {
    let llm = &agent.llm;
    let learnt = || {
        let journal = found?.source();
        let bytes = journal.bytes().ok()?;
        let run = state::read(&bytes, Reading::all(true)).ok()?;
        run.counts
            .window_of(llm.model_json().as_deref(), llm.window)
    };
    if llm.window.is_none() && agent.compact.is_none() {
        return None;
    }
    let words = match (learnt(), llm.window) {
        (Some(window), _) => format!("{window} tokens (a refusal of this run)"),
        (None, Some(0)) => "unknown (llm.window is 0)".to_owned(),
        (None, Some(window)) => format!("{window} tokens (llm.window)"),
        (None, None) if llm.command.is_some() => "unknown (llm.window is not set)".to_owned(),
        (None, None) if environment.is_some_and(|it| it.is_openai(llm)) => {
            "unknown (OpenAI does not give it; llm.window is not set)".to_owned()
        }
        (None, None) => "asked of the server".to_owned(),
    };
    Some(words)
}

/// The request that resuming a run would send.
pub(crate) fn next_request(
    agent: &Agent,
    workspace: &Workspace,
    found: &RunSnapshot,
    journal: JournalSource<'_>,
    state: Option<Run<'_>>,
    ctx: Around,
) -> Result<Vec<u8>> {
    let bytes = journal.bytes().at("read", &journal.path)?;
    if matches!(found.metadata.status, Status::Completed | Status::Failed) && !ctx.1.quiet {
        ctx.1.warn(&format!(
            "run {} is {}: it needs a message to continue, which would come last",
            found.run.id,
            found.metadata.status.name()
        ));
    }
    let is_whole = |state: &Run<'_>| state.damaged.is_empty();
    if let Some(state) = state.filter(is_whole)
        && agent.context.window().is_none()
        && tail(&bytes) == Tail::Whole
    {
        return build(agent, workspace, found.run.clone(), &[], state, ctx);
    }
    // A resuming engine would cut off a torn line first.
    let torn = match tail(&bytes) {
        Tail::Torn(torn) => torn as usize,
        Tail::Whole | Tail::Unended => 0,
    };
    let state = read(agent, &bytes[..bytes.len() - torn], &journal.path)?;
    build(agent, workspace, found.run.clone(), &[], state, ctx)
}

/// The state of which the agent's next request is made.
fn read<'j>(agent: &Agent, journal: &'j [u8], path: &Path) -> Result<Run<'j>> {
    let reading = Reading {
        lenient: false,
        window: agent.context.window(),
    };
    state::read(journal, reading).map_err(|e| unreadable_at(&e, path))
}

/// The next request of a run in this state. Attachments in `given` are not in its directory.
fn build(
    agent: &Agent,
    workspace: &Workspace,
    run: RunDir,
    given: &[GivenAttachment],
    mut state: Run<'_>,
    ctx: Around,
) -> Result<Vec<u8>> {
    let (signals, screen) = ctx;
    let (environment, _) = Environment::of_agent(agent, Some(&workspace.root))?;
    let ctx = RunContext {
        signals,
        agent,
        workspace,
        run,
        environment: &environment,
        depth: depth().0,
        // Nothing is written, so there is nothing to report.
        log: Rc::new(Log::new("/dev/null".into(), Level::Error, Vec::new())),
        ledgers: RefCell::default(),
    };
    let mut messages = Vec::new();
    let mut form = form(&agent.llm, &environment, None);
    let mut blobs = Blobs::of(&ctx.run.path);
    let given: HashMap<&str, &[u8]> = given
        .iter()
        .map(|it| (it.attachment.sha256.as_str(), it.bytes.as_slice()))
        .collect();
    foresee(&mut state, &mut form.shown, |it| {
        given.contains_key(it.sha256.as_str()) || it.is_in(&mut blobs)
    });
    messages::write(&mut messages, &state, &form);
    let mut builder = builder(agent).only_looking();
    let request = builder.request(&ctx, &messages, state.iterations + 1, Vec::new())?;
    let mut wire = Wire::of_agent(agent, &environment);
    wire.recall(&state.remedies, &state.pauses);
    let sent = wire.render(&request);
    let request = sent.map_err(Error::failure)?.bytes;
    let (text, gaps) = cut_marks(request, |digest| match given.get(digest) {
        Some(bytes) => Some(bytes.len() as u64),
        None => blobs.len(digest),
    });
    let request = if given.is_empty() {
        let body = Body::open(&text, &gaps, &mut blobs)?;
        body.bytes().at("read", &ctx.run.path)?
    } else {
        with_bytes(&text, &gaps, &given)
    };
    for file in builder.new_files().unwrap_or_default() {
        let words = [(Tone::Dim, "context    "), (Tone::Said, &*file.in_words())];
        screen.progress(&words);
    }
    if !screen.quiet {
        for note in builder.lacking() {
            screen.warn(note);
        }
        for note in what_may_change(agent, &state) {
            screen.warn(&note);
        }
    }
    Ok(request)
}

/// Steps before the request is sent that may still change it.
fn what_may_change(agent: &Agent, state: &Run<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let calls = state
        .last_thought()
        .map_or(&[][..], |thought| &thought.calls);
    let open: Vec<&str> = calls
        .iter()
        .filter(|call| call.result.is_none())
        .map(|call| &*call.name)
        .collect();
    if !open.is_empty() {
        notes.push(format!(
            "calls without a result, which would get one first: {}",
            open.join(", ")
        ));
    }
    let hooks = [HookEvent::OnIterationStart, HookEvent::PreLlmRequest];
    let names: Vec<&str> = hooks
        .into_iter()
        .filter(|event| agent.hooks.iter().any(|hook| hook.event == *event))
        .map(HookEvent::name)
        .collect();
    if !names.is_empty() {
        notes.push(format!(
            "hooks that are not run and might change the request: {}",
            names.join(", ")
        ));
    }
    notes
}
