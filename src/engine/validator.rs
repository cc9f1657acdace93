//! The validator of JSON Schema: `delta-flow`, so that this program does not carry one.
//!
//! It reads one request from its standard input and prints a line for each fault. Exit code 0: the answer fits,
//! or the schema is valid; [`MISFIT`]: the answer does not fit; [`NO_SCHEMA`]: the schema is not valid.

use crate::error::{At, Error, Result, reason};
use crate::text::ids::hex;
use crate::text::json::{LONGEST_EXCERPT, Object};
use crate::unix::files;
use crate::unix::process::{self, Command, Ended, SpawnError};
use crate::unix::siblings::find_sibling;
use crate::unix::signals::Signals;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

const PROGRAM: &str = "delta-flow";

/// The hidden command of that program.
pub(crate) const COMMAND: &str = "validate-json";

pub(crate) const MISFIT: i32 = 1;

pub(crate) const NO_SCHEMA: i32 = 78;

/// How long a schema or an answer may keep it busy.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// The standard input.
#[derive(Deserialize)]
pub(crate) struct ValidationRequest<'r> {
    #[serde(borrow)]
    pub schema: &'r RawValue,
    /// The model's words; none: only the schema is looked at.
    #[serde(borrow)]
    pub answer: Option<Cow<'r, str>>,
}

/// A request as it is written. `schema` is JSON.
pub(crate) fn request(schema: &str, answer: Option<&str>) -> Vec<u8> {
    let mut out = Vec::new();
    Object::begin(&mut out)
        .raw("schema", schema.as_bytes())
        .put_some("answer", answer)
        .end();
    out
}

/// The program and its command.
pub(crate) fn argv() -> Vec<String> {
    let program = find_sibling(PROGRAM);
    let program = program.map_or_else(
        || PROGRAM.to_owned(),
        |path| path.to_string_lossy().into_owned(),
    );
    vec![program, COMMAND.to_owned()]
}

/// Lets the validator look at a schema. Returns why answers cannot be checked against it, and what to do; nothing if
/// they can.
///
/// # Errors
/// The system's, and a signal.
pub(crate) fn look_at_schema(schema: &str, signals: &Signals) -> Result<Option<String>> {
    let unnamed = |bytes: &[u8]| files::unnamed(bytes).at("create", Path::new("an unnamed file"));
    let (said, errors) = (unnamed(b"")?, unnamed(b"")?);
    let copy = |file: &File| file.try_clone().at("open", Path::new("an unnamed file"));
    let argv = argv();
    let command = Command {
        argv: &argv,
        dir: Path::new("/"),
        env: &[],
        call_id: &hex(12),
        stdin: Some(unnamed(&request(schema, None))?),
        stdout: copy(&said)?,
        stderr: copy(&errors)?,
        timeout: Some(TIMEOUT),
    };
    let words = |file: &File| {
        let bytes = files::read_part(file, 0, LONGEST_EXCERPT).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    };
    let how = match process::run(signals, command, Duration::ZERO) {
        Ok(outcome) => outcome.how,
        Err(SpawnError::NotFound | SpawnError::NoInterpreter(_)) => {
            return Ok(Some(format!(
                "needs {PROGRAM}, which is neither beside this program nor in PATH; install it, or \
                 check the answer with a command: accept"
            )));
        }
        Err(SpawnError::NotExecutable(error) | SpawnError::Other(error)) => {
            let (program, why) = (&argv[0], reason(&error));
            return Ok(Some(format!("needs {program}, which cannot be run: {why}")));
        }
        Err(SpawnError::TooLong) => {
            return Ok(Some(
                "the environment is too long to start a program".to_owned(),
            ));
        }
    };
    Ok(match how {
        Ended::Exited(0) => None,
        Ended::Exited(NO_SCHEMA) => Some(words(&said)),
        Ended::TimedOut => {
            let seconds = TIMEOUT.as_secs();
            Some(format!(
                "the schema could not be compiled in {seconds} s; make it simpler"
            ))
        }
        Ended::Interrupted(_) if signals.stop().is_some() => {
            let stop = signals
                .stop()
                .map_or(crate::error::Exit::Failure, Into::into);
            return Err(Error::new(stop, "ended while the schema was looked at"));
        }
        Ended::Exited(code) | Ended::Interrupted(code) => Some(format!(
            "{} cannot look at the schema (exit code {code}): {}; install the one that belongs to this delta",
            argv[0],
            words(&errors)
        )),
    })
}
