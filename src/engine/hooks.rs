//! Running hooks: programs that look at, change or forbid what the engine is about to do.
//!
//! Knows the form of what a hook may write, and not what it means; the loop knows that. Each execution
//! has a directory of its own, so that no output is ever read twice.

use crate::config::agent::{Hook, HookEvent};
use crate::config::environment::Secret;
use crate::engine::observation::last_words;
use crate::engine::outbox;
use crate::engine::run_context::RunContext;
use crate::error::{At, Result};
use crate::model::response;
use crate::record::engine_log::Level;
use crate::record::execution::{self, ExecutionRecord, Stdin};
use crate::record::run_dir::reference;
use crate::text::json::{self, parser_message};
use crate::text::shorten::head;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::{self, Command, Ended, Outcome, SpawnError};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The most bytes of a tool's result or of one of its streams that a hook gets: the environment is limited.
pub(super) const LONGEST_RESULT: usize = 32 << 10;

/// One execution of a hook.
#[derive(Debug)]
pub(crate) struct Execution {
    /// The reason of a failure. Its output counts for nothing then.
    pub failure: Option<String>,
    /// The replacement that the hook wants, in the form that belongs to its event.
    pub payload: Option<Vec<u8>>,
    /// The hook's instruction.
    pub control: Control,
    /// The directory, relative to the run's.
    pub reference: String,
}

/// `output/control.json`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Control {
    /// The hook forbids what is about to happen.
    pub denies: bool,
    /// The hook wants a person to decide.
    pub asks: bool,
    /// The hook ends the run.
    pub stops: bool,
    message: Option<String>,
}

impl Control {
    /// The hook's reason.
    pub(crate) fn message(&self) -> &str {
        self.message.as_deref().unwrap_or("no reason given")
    }

    /// The question for a person; empty if the hook has no message.
    pub(crate) fn question(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    /// Reads it. A word that is not known may be a guard's misspelt "deny", and a key a misspelt "action":
    /// it is an error.
    fn parse(bytes: &[u8], event: HookEvent) -> std::result::Result<Self, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|e| parser_message(&e))?;
        let Value::Object(map) = value else {
            return Err("it is not an object".to_owned());
        };
        let mut control = Self::default();
        match map.get("skip") {
            None | Some(Value::Null) => {}
            Some(Value::Bool(skip)) => control.denies = *skip,
            Some(_) => return Err("skip is neither true nor false".to_owned()),
        }
        match map.get("action") {
            None | Some(Value::Null) => {}
            Some(Value::String(action)) => match action.to_ascii_lowercase().as_str() {
                "deny" | "abort" => control.denies = true,
                "ask" => control.asks = true,
                "stop" => control.stops = true,
                "allow" | "continue" => {}
                _ => {
                    return Err(format!(
                        "there is no action \"{action}\"; the actions are deny, ask, stop and allow"
                    ));
                }
            },
            Some(_) => return Err("action is not a string".to_owned()),
        }
        let says = |key: &str| map.contains_key(key);
        if !map.is_empty() && !says("action") && !says("skip") {
            return Err("it has neither action nor skip".to_owned());
        }
        if (control.denies || control.asks) && event != HookEvent::PreToolExecution {
            return Err("only pre_tool_execution can deny or ask".to_owned());
        }
        control.message = map
            .get("message")
            .and_then(Value::as_str)
            .map(str::to_owned);
        Ok(control)
    }
}

/// A hook's input.
pub(crate) struct Input<'a> {
    /// The payload: its file names in `input/`, the first of which is also the hook's stdin.
    pub names: &'a [&'a str],
    pub payload: &'a [u8],
    /// Variables beside those of every hook.
    pub variables: &'a [(&'a str, String)],
    /// The iteration.
    pub iteration: u64,
}

/// The number of the next execution: they go on when a run is resumed. Names that no run makes do not count.
pub(crate) fn next_number(dir: &Path) -> Result<u64> {
    const MOST: u64 = 1_000_000_000;
    let names = files::names(dir)?;
    let number = |name: &String| name.split('_').next()?.parse::<u64>().ok();
    let known = names.iter().filter_map(number).filter(|it| *it < MOST);
    Ok(known.max().unwrap_or(0) + 1)
}

/// Runs one hook.
///
/// # Errors
/// Disk errors. A hook that fails is no error here.
pub(crate) fn run_hook(
    ctx: &RunContext<'_>,
    hook: &Hook,
    number: u64,
    input: &Input<'_>,
) -> Result<Execution> {
    let event = hook.event.name();
    let name = files::make_unique_dir(&ctx.run.io("hooks"), &format!("{number:03}_{event}"))?;
    let dir = ctx.run.io("hooks").join(&name);
    for part in ["input", "output", "execution_meta"] {
        files::make_dir(&dir.join(part))?;
    }
    if hook.event == HookEvent::PostToolExecution {
        files::make_dir(&dir.join(outbox::DIR))?;
    }
    for name in input.names {
        files::write(&dir.join("input").join(name), input.payload)?;
    }
    files::write(
        &dir.join("input/context.json"),
        &context_json(ctx, event, number, input.iteration),
    )?;
    let argv = ctx.argv(&hook.command);
    let meta = dir.join("execution_meta");
    let stdin = Stdin::Recorded(dir.join("input").join(input.names[0]));
    let record = execution::begin_record(&meta, &argv, stdin, None)?;
    let how = execute_hook(ctx, hook, &argv, &dir, record, input);
    let (code, took) = match &how {
        Ok(outcome) => (outcome.how.code(), outcome.duration),
        Err(error) => (error.code(), Duration::ZERO),
    };
    execution::end_record(&meta, code, took, None)?;
    let secrets = ctx.environment.secrets();
    let said = || {
        let path = meta.join("stderr.log");
        let file = files::open_regular(&path)?;
        last_words(&file, &secrets).at("read", &path)
    };
    let mut failure = match how.map(|outcome| outcome.how) {
        Ok(Ended::Exited(0)) => None,
        Ok(Ended::Exited(code)) => Some(format!("exit code {code}{}", said()?)),
        Ok(Ended::TimedOut) => Some(format!(
            "timed out after {} ms{}",
            took.as_millis(),
            said()?
        )),
        Ok(Ended::Interrupted(_)) => Some("interrupted".to_owned()),
        Err(error) => Some(error.message(&argv[0])),
    };
    let (mut payload, mut control) = (None, Control::default());
    if failure.is_none() {
        match read_output(&dir.join("output"), hook.event, &secrets) {
            Ok((new, said)) => (payload, control) = (new, said),
            Err(why) => failure = Some(why),
        }
    }
    if let Some(why) = &failure {
        ctx.log
            .line(Level::Warn, &format!("hook {name} failed: {why}"));
    }
    Ok(Execution {
        failure,
        payload,
        control,
        reference: format!("{}/", reference("hooks", &name)),
    })
}

/// The outcome of a hook in a recorded run, read from its directory.
pub(crate) fn read_recorded(dir: &Path, event: HookEvent, secrets: &[Secret]) -> Execution {
    let code = files::read_line(&dir.join("execution_meta/exit_code.txt"));
    let output = match code.as_deref() {
        Some("0") => read_output(&dir.join("output"), event, secrets),
        Some(code) => Err(format!("exit code {code} in the recorded run")),
        None => Err(format!("no record of it in {}", dir.display())),
    };
    let (failure, (payload, control)) = match output {
        Ok(output) => (None, output),
        Err(why) => (Some(why), (None, Control::default())),
    };
    Execution {
        failure,
        payload,
        control,
        reference: String::new(),
    }
}

fn execute_hook(
    ctx: &RunContext<'_>,
    hook: &Hook,
    argv: &[String],
    dir: &Path,
    record: ExecutionRecord,
    input: &Input<'_>,
) -> std::result::Result<Outcome, SpawnError> {
    let mut env = ctx.run_variables(input.iteration);
    let path = dir.to_string_lossy().into_owned();
    env.push(("DELTA_HOOK_IO_PATH".to_owned(), Some(path)));
    if hook.event == HookEvent::PostToolExecution {
        let path = dir.join(outbox::DIR).to_string_lossy().into_owned();
        env.push((outbox::VARIABLE.to_owned(), Some(path)));
    }
    for (name, value) in input.variables {
        env.push(((*name).to_owned(), Some(shorten_variable(value))));
    }
    // What is left is shared: the hooks that are still to come have their part, too.
    let part = ctx.time_left().map(|left| left / 2);
    let command = Command {
        argv,
        dir: &ctx.workspace.root,
        env: &env,
        call_id: &RunContext::own_call_id(),
        stdin: record.stdin,
        stdout: record.stdout,
        stderr: record.stderr,
        timeout: Some(part.map_or(hook.timeout, |part| hook.timeout.min(part))),
    };
    let ran = match part {
        Some(part) => process::run_to_the_end(&ctx.signals, command, part / 4),
        None => process::run(&ctx.signals, command, ctx.grace()),
    };
    if let Ok(outcome) = &ran {
        ctx.log
            .ended(&format!("hook {}", hook.event.name()), outcome);
    }
    ran
}

fn context_json(ctx: &RunContext<'_>, event: &str, number: u64, iteration: u64) -> Vec<u8> {
    let context = json!({
        "hook_name": event,
        "step": number,
        "step_index": number,
        "run_id": ctx.run.id.as_str(),
        "iteration": iteration,
        "timestamp": Timestamp::now().to_string(),
        "work_dir": ctx.cwd(),
        "agent_home": ctx.home(),
    });
    format!("{}\n", json::text(&context)).into_bytes()
}

/// A hook's output, without the secrets. A file that cannot be understood makes the hook a failure.
fn read_output(
    dir: &Path,
    event: HookEvent,
    secrets: &[Secret],
) -> std::result::Result<(Option<Vec<u8>>, Control), String> {
    let read = |name: &str| match files::read_regular(&dir.join(name)) {
        Ok(mut bytes) => {
            for secret in secrets {
                secret.redact(&mut bytes);
            }
            let marked = bytes.len() - json::without_mark(&bytes).len();
            bytes.drain(..marked);
            Ok(Some(bytes))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound && !dir.join(name).is_symlink() => Ok(None),
        Err(e) => Err(format!("output/{name}: {}", crate::error::reason(&e))),
    };
    let control = match read("control.json")? {
        Some(bytes) => {
            Control::parse(&bytes, event).map_err(|why| format!("output/control.json: {why}"))?
        }
        None => Control::default(),
    };
    let mut name = "final_payload.json";
    let mut payload = read(name)?;
    if payload.is_none() && event == HookEvent::PreLlmRequest {
        name = "payload_override.dat";
        payload = read(name)?;
    }
    if let Some(bytes) = &payload {
        check(bytes, event).map_err(|why| format!("output/{name}: {why}"))?;
    }
    Ok((payload, control))
}

/// Checks that a payload has the form that belongs to its event.
fn check(payload: &[u8], event: HookEvent) -> std::result::Result<(), String> {
    let value: Value = serde_json::from_slice(payload).map_err(|e| parser_message(&e))?;
    match event {
        HookEvent::PreLlmRequest if !value.is_object() => Err("it is not an object".to_owned()),
        HookEvent::PostLlmResponse => response::parse(payload).map(drop).map_err(|it| it.why),
        HookEvent::PreToolExecution if !value["tool_args"].is_object() => {
            Err("tool_args is not an object".to_owned())
        }
        HookEvent::PostToolExecution => {
            let (observation, attachments) = (value.get("observation"), value.get("attachments"));
            match (observation, attachments) {
                (Some(text), _) if !text.is_string() => {
                    Err("observation is not a string".to_owned())
                }
                (None, None) => Err("it has neither observation nor attachments".to_owned()),
                (_, Some(list)) if !list.is_array() => Err("attachments is not a list".to_owned()),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// A value as the environment can hold it: without NUL, and not too long.
fn shorten_variable(value: &str) -> String {
    let without_nul = value.replace('\0', "\u{FFFD}");
    head(&without_nul, LONGEST_RESULT).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_clear_word_of_a_guard_is_an_error() {
        let parse = |text: &str| Control::parse(text.as_bytes(), HookEvent::PreToolExecution);
        for word in ["deny", "Deny", "ABORT", "abort"] {
            let control = parse(&format!("{{\"action\":\"{word}\"}}")).unwrap();
            assert!(control.denies && !control.stops, "{word}");
        }
        assert!(parse("{\"skip\":true}").unwrap().denies);
        assert!(parse("{\"skip\":true,\"action\":\"stop\"}").unwrap().stops);
        let asking = parse("{\"action\":\"Ask\",\"message\":\"sure?\"}").unwrap();
        assert!(asking.asks && !asking.denies && asking.question() == "sure?");
        assert!(parse("{\"skip\":true,\"action\":\"ask\"}").unwrap().denies);
        assert_eq!(parse("{\"action\":\"allow\"}"), Ok(Control::default()));
        assert_eq!(parse("{}"), Ok(Control::default()));
        for text in [
            "",
            "deny",
            "\"deny\"",
            "[\"deny\"]",
            "{\"action\":\"denny\"}",
            "{\"action\":true}",
            "{\"skip\":\"yes\"}",
            "{\"Action\":\"deny\"}",
            "{\"deny\":true}",
            "{\"message\":\"no\"}",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        for action in ["deny", "ask"] {
            let text = format!("{{\"action\":\"{action}\"}}");
            assert!(Control::parse(text.as_bytes(), HookEvent::PreLlmRequest).is_err());
        }
    }

    #[test]
    fn a_long_value_is_cut_between_two_characters() {
        let long = "é".repeat(LONGEST_RESULT);
        assert_eq!(shorten_variable(&long).len(), LONGEST_RESULT);
        let odd = format!("a{long}");
        assert_eq!(shorten_variable(&odd).len(), LONGEST_RESULT - 1);
        assert_eq!(shorten_variable("a\0b"), "a\u{FFFD}b");
        assert!(shorten_variable(&"\0".repeat(LONGEST_RESULT)).len() <= LONGEST_RESULT);
    }
}
