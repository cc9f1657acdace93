//! Running hooks: programs that look at, change or forbid what the engine is about to do.
//!
//! Unaware of what a hook's answer means; the loop knows that. Each execution has a directory of its
//! own, so that no output is ever read twice.

use crate::bind::shell_quoted;
use crate::clock::Timestamp;
use crate::config::{Hook, HookEvent};
use crate::error::{At, Result};
use crate::exec::{self, Command, Ended, SpawnError};
use crate::files;
use crate::json::Object;
use crate::rundir::reference;
use crate::surroundings::Surroundings;
use serde::Deserialize;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer values of `TOOL_RESULT` are cut: the environment is limited.
const LONGEST_VARIABLE: usize = 32 << 10;

/// Less than this is not enough to start a program.
const SHORTEST_TIME: Duration = Duration::from_millis(60);

/// Within this time since the signal all hooks must be done when the engine has been asked to end.
const TIME_TO_END: Duration = Duration::from_millis(2600);

/// One execution of a hook.
#[derive(Debug)]
pub struct Execution {
    /// Why it failed, if it did. Its output counts for nothing then.
    pub failure: Option<String>,
    /// What it wants to be used instead.
    pub payload: Option<Vec<u8>>,
    /// What it says should happen.
    pub control: Control,
    /// Its directory, from the run's directory.
    pub reference: String,
}

/// `output/control.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Control {
    action: Option<String>,
    skip: Option<bool>,
    message: Option<String>,
}

impl Control {
    /// Whether the hook forbids what is about to happen.
    #[must_use]
    pub fn denies(&self) -> bool {
        let denied = |action: &str| {
            action.eq_ignore_ascii_case("deny") || action.eq_ignore_ascii_case("abort")
        };
        self.skip == Some(true) || self.action.as_deref().is_some_and(denied)
    }

    /// Whether the hook ends the run.
    #[must_use]
    pub fn stops(&self) -> bool {
        self.action
            .as_deref()
            .is_some_and(|action| action.eq_ignore_ascii_case("stop"))
    }

    /// The hook's reason.
    #[must_use]
    pub fn message(&self) -> &str {
        self.message.as_deref().unwrap_or("no reason given")
    }
}

/// What a hook is given.
pub struct Input<'a> {
    /// The payload: its file names in `input/`, the first of which is also the hook's stdin.
    pub names: &'a [&'a str],
    /// Its bytes.
    pub payload: &'a [u8],
    /// Variables beside those of every hook.
    pub variables: &'a [(&'a str, &'a str)],
    /// The iteration.
    pub iteration: u64,
}

/// The number of the next execution: they go on when a run is resumed.
pub fn next_number(dir: &Path) -> Result<u64> {
    let names = files::names(dir)?;
    let number = |name: &String| name.split('_').next()?.parse::<u64>().ok();
    Ok(names.iter().filter_map(number).max().unwrap_or(0) + 1)
}

/// Runs one hook.
///
/// # Errors
/// Those of the disk. A hook that fails is no error here.
pub fn run(
    around: &Surroundings<'_>,
    hook: &Hook,
    number: u64,
    input: &Input<'_>,
) -> Result<Execution> {
    let event = hook.event.name();
    let name = files::make_unique_dir(&around.run.io("hooks"), &format!("{number:03}_{event}"))?;
    let dir = around.run.io("hooks").join(&name);
    for part in ["input", "output", "execution_meta"] {
        files::make_dir(&dir.join(part))?;
    }
    for name in input.names {
        files::write(&dir.join("input").join(name), input.payload)?;
    }
    files::write(
        &dir.join("input/context.json"),
        &context(around, event, number, input.iteration),
    )?;
    let argv = around.argv(&hook.command);
    let meta = dir.join("execution_meta");
    let (how, took) = execute(around, hook, &argv, &dir, input)?;
    let code = match &how {
        Ok(Ended::Exited(code) | Ended::Interrupted(code)) => *code,
        Ok(Ended::TimedOut) => 124,
        Err(why) if why.starts_with("timed out") => 124,
        Err(_) => 127,
    };
    files::write(&meta.join("exit_code.txt"), format!("{code}\n").as_bytes())?;
    files::write(
        &meta.join("duration_ms.txt"),
        format!("{}\n", took.as_millis()).as_bytes(),
    )?;
    let mut failure = match how {
        Ok(Ended::Exited(0)) => None,
        Ok(Ended::Exited(code)) => {
            let said = std::fs::read(meta.join("stderr.log")).unwrap_or_default();
            let said = crate::llm::their_words(&said[..said.len().min(4096)]);
            let said = if said.is_empty() {
                said
            } else {
                format!(": {said}")
            };
            Some(format!("exit code {code}{said}"))
        }
        Ok(Ended::TimedOut) => Some(format!("timed out after {} ms", hook.timeout.as_millis())),
        Ok(Ended::Interrupted(_)) => Some("interrupted".to_owned()),
        Err(why) => Some(why),
    };
    let (mut payload, mut control) = (None, Control::default());
    if failure.is_none() {
        match output(&dir.join("output"), hook.event) {
            Ok((new, said)) => (payload, control) = (new, said),
            Err(why) => failure = Some(why),
        }
    }
    Ok(Execution {
        failure,
        payload,
        control,
        reference: format!("{}/", reference("hooks", &name)),
    })
}

/// What came of a hook in a recorded run, read from its directory.
#[must_use]
pub fn recorded(dir: &Path, event: HookEvent) -> Execution {
    let code = files::read_line(&dir.join("execution_meta/exit_code.txt"));
    let told = match code.as_deref() {
        Some("0") => output(&dir.join("output"), event),
        Some(code) => Err(format!("exit code {code} in the recorded run")),
        None => Err(format!("no record of it in {}", dir.display())),
    };
    let (failure, (payload, control)) = match told {
        Ok(told) => (None, told),
        Err(why) => (Some(why), (None, Control::default())),
    };
    Execution {
        failure,
        payload,
        control,
        reference: String::new(),
    }
}

fn execute(
    around: &Surroundings<'_>,
    hook: &Hook,
    argv: &[String],
    dir: &Path,
    input: &Input<'_>,
) -> Result<(std::result::Result<Ended, String>, Duration)> {
    let meta = dir.join("execution_meta");
    files::write(
        &meta.join("command.txt"),
        format!("{}\n", shell_quoted(argv)).as_bytes(),
    )?;
    let mut env = around.run_variables(input.iteration);
    let path = dir.to_string_lossy().into_owned();
    env.push(("DELTA_HOOK_IO_PATH".to_owned(), Some(path)));
    for (name, value) in input.variables {
        env.push(((*name).to_owned(), Some(shortened(value))));
    }
    let stdin: PathBuf = dir.join("input").join(input.names[0]);
    let left = around.signals.left_to_end(TIME_TO_END);
    // Of what is left, a part is for those hooks that will not end.
    let timeout = left.map_or(hook.timeout, |left| hook.timeout.min(left * 6 / 10));
    if left.is_some_and(|left| left < SHORTEST_TIME) {
        return Ok((Err("no time was left for it".to_owned()), Duration::ZERO));
    }
    let command = Command {
        argv,
        dir: &around.workspace.root,
        env: &env,
        call_id: &Surroundings::new_call_id(),
        stdin: Some(File::open(&stdin).at("open", &stdin)?),
        stdout: files::create(&meta.join("stdout.log"))?,
        stderr: files::create(&meta.join("stderr.log"))?,
        timeout: Some(timeout),
    };
    let ran = match left {
        Some(left) => exec::run_to_the_end(&around.signals, command, left * 3 / 10),
        None => exec::run(&around.signals, command, around.grace()),
    };
    Ok(match ran {
        Ok(outcome) if outcome.how == Ended::TimedOut => {
            let ms = timeout.as_millis();
            (Err(format!("timed out after {ms} ms")), outcome.duration)
        }
        Ok(outcome) => (Ok(outcome.how), outcome.duration),
        Err(error) => (Err(spawn_failure(&argv[0], &error)), Duration::ZERO),
    })
}

/// Why a program could not be started.
#[must_use]
pub fn spawn_failure(program: &str, error: &SpawnError) -> String {
    match error {
        SpawnError::NotFound => format!("{program}: not found"),
        SpawnError::NotExecutable(e) => {
            format!("{program}: cannot be executed: {}", crate::error::reason(e))
        }
        SpawnError::TooLong => format!("{program}: the arguments are too long for the system"),
        SpawnError::Other(e) => {
            format!("{program}: cannot be started: {}", crate::error::reason(e))
        }
    }
}

fn context(around: &Surroundings<'_>, event: &str, number: u64, iteration: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    object
        .put("hook_name", event)
        .put("step", &number)
        .put("run_id", around.run.id.as_str())
        .put("iteration", &iteration)
        .put("timestamp", &Timestamp::now().to_string())
        .put("work_dir", around.cwd())
        .put("agent_home", around.home());
    object.end();
    out.push(b'\n');
    out
}

/// What a hook wrote. A file that cannot be understood makes it a failure.
fn output(dir: &Path, event: HookEvent) -> std::result::Result<(Option<Vec<u8>>, Control), String> {
    let read = |name: &str| match std::fs::read(dir.join(name)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("output/{name}: {}", crate::error::reason(&e))),
    };
    let control = match read("control.json")? {
        Some(bytes) => {
            serde_json::from_slice(&bytes).map_err(|e| format!("output/control.json: {e}"))?
        }
        None => Control::default(),
    };
    let mut payload = read("final_payload.json")?;
    if payload.is_none() && event == HookEvent::PreLlmRequest {
        payload = read("payload_override.dat")?;
    }
    if let Some(bytes) = &payload
        && let Err(why) = std::str::from_utf8(bytes)
            .map_err(|e| e.to_string())
            .and_then(|text| serde_json::from_str(text).map_err(|e| e.to_string()))
            .map(|_: serde::de::IgnoredAny| ())
    {
        return Err(format!("output/final_payload.json: {why}"));
    }
    Ok((payload, control))
}

fn shortened(value: &str) -> String {
    let mut end = value.len().min(LONGEST_VARIABLE);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    value[..end].replace('\0', "\u{FFFD}")
}
