//! The hook `on_question`: reports a question that waits for a person, before it is left.
//!
//! Architecture invariant: nothing that the hook has started is alive when the question can be answered.

use super::Engine;
use super::hook_points::run_with;
use super::outcome::Step;
use crate::config::agent::HookEvent;
use crate::engine::question::Question;
use crate::engine::run_context::RunContext;
use crate::text::shell::shell_quoted;
use crate::unix::process;
use serde_json::json;

/// Reports a question, unless that has been done before.
pub(super) fn announce(engine: &mut Engine<'_>, question: &Question) -> Step<()> {
    const EVENT: HookEvent = HookEvent::OnQuestion;
    let hooks = engine
        .ctx
        .agent
        .hooks
        .iter()
        .filter(|hook| hook.event == EVENT)
        .count();
    if question.announced >= hooks {
        return Ok(());
    }
    let mut payload = json!({
        "request_id": question.request_id,
        "input_type": question.input_type.name(),
        "command": answer_command(engine, question),
    });
    if !question.is_secret() {
        payload["prompt"] = question.prompt.as_str().into();
    }
    engine.hooks.request_id = Some(question.request_id.clone());
    let ran = run_with(engine, EVENT, &payload, Vec::new());
    engine.hooks.request_id = None;
    process::end_leftovers(RunContext::engine_call());
    ran?;
    engine.go_on()
}

/// The command that answers a question.
fn answer_command(engine: &Engine<'_>, question: &Question) -> String {
    let run_id = engine.ctx.run.id.as_str();
    let mut words = [
        "delta",
        "continue",
        "-w",
        engine.ctx.cwd(),
        "--run-id",
        run_id,
    ]
    .map(str::to_owned)
    .to_vec();
    words.extend(engine.start.resume_words.iter().cloned());
    words.extend(["--question", &question.request_id, "-m"].map(str::to_owned));
    words.extend(question.fingerprint.as_ref().map(|_| "yes".to_owned()));
    let answer = if question.fingerprint.is_some() {
        ""
    } else {
        " ANSWER"
    };
    shell_quoted(&words) + answer
}
