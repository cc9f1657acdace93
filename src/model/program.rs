//! A program as the model: the request on its stdin, a chat-completions response on its stdout.
//!
//! Exit code 0 is an answer, 75 asks to be tried again, as does an end by a signal that asks to end;
//! anything else is a refusal whose reason is on stderr.

use super::attempt::{Attempt, broken, their_words};
use crate::error::{At, Result};
use crate::text::ids::hex;
use crate::unix::files;
use crate::unix::process::{self, Command, Ended, SpawnError, Variable};
use crate::unix::procfs::Signals;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The exit code that asks to be tried again (`EX_TEMPFAIL`).
const TEMPFAIL: i32 = 75;

/// Those of SIGHUP, SIGINT and SIGTERM. Whoever ends a tree of processes may come to the program before
/// the engine, which then learns of it while it waits to try again.
const ENDED_BY_A_SIGNAL: [i32; 3] = [129, 130, 143];

/// A program that is the model.
pub(crate) struct Program<'a> {
    /// Its argv.
    pub argv: Vec<String>,
    /// Its working directory: the workspace.
    pub dir: &'a Path,
    /// Its environment.
    pub env: Vec<Variable>,
    /// How long it may take.
    pub timeout: Duration,
    /// What the ids of its processes are part of.
    pub engine_call: &'a str,
    /// Where it writes its messages.
    pub log: PathBuf,
    /// How long it has after SIGTERM when the engine is asked to end.
    pub grace: Duration,
}

impl Program<'_> {
    /// Runs the program once, its stdout going into `response`.
    pub(super) fn attempt(
        &mut self,
        invocation: &Path,
        response: &Path,
        signals: &Signals,
        left: Option<Duration>,
    ) -> Result<Attempt> {
        let timeout = left.map_or(self.timeout, |left| left.min(self.timeout));
        let request = invocation.join("request.json");
        let log = files::append(&self.log)?;
        let said_before = log.metadata().at("read", &self.log)?.len();
        let call_id = format!("{}.{}", self.engine_call, hex(12));
        let command = Command {
            argv: &self.argv,
            dir: self.dir,
            env: &self.env,
            call_id: &call_id,
            stdin: Some(File::open(&request).at("open", &request)?),
            stdout: files::create(response)?,
            stderr: log,
            timeout: Some(timeout),
        };
        let program = &self.argv[0];
        let refused = |why: String| Attempt::Refused {
            why,
            is_too_long: false,
            http_status: None,
        };
        let again = |why: String, timed_out| Attempt::Again {
            why,
            after: None,
            timed_out,
            is_last: false,
            http_status: None,
        };
        let outcome = match process::run(signals, command, self.grace) {
            Ok(outcome) => outcome,
            Err(SpawnError::NotFound) => {
                return Ok(refused(format!("llm.command: {program} is not there")));
            }
            Err(SpawnError::NotExecutable(e)) => {
                let reason = crate::error::reason(&e);
                return Ok(refused(format!(
                    "llm.command: {program} cannot be executed: {reason}"
                )));
            }
            Err(SpawnError::TooLong) => {
                return Ok(refused(format!(
                    "llm.command: the arguments of {program} are too long"
                )));
            }
            Err(SpawnError::Other(e)) => {
                return Err(broken(&format!("llm.command: cannot run {program}"), &e));
            }
        };
        Ok(match outcome.how {
            Ended::Exited(0) => Attempt::Body {
                body: files::read_regular(response).at("read", response)?,
                http_status: None,
            },
            Ended::Interrupted(_) => match signals.stop() {
                Some(stop) => Attempt::Stopped(stop),
                None => again("interrupted".to_owned(), false),
            },
            Ended::TimedOut => {
                let ms = timeout.as_millis();
                again(format!("{program} gave no answer within {ms} ms"), true)
            }
            Ended::Exited(code) => {
                let said = self.said_since(said_before)?;
                let why = format!("{program} ended with exit code {code}{said}");
                if code == TEMPFAIL || ENDED_BY_A_SIGNAL.contains(&code) {
                    again(why, false)
                } else {
                    refused(why)
                }
            }
        })
    }

    /// What the program wrote to stderr, from a place in the log on.
    fn said_since(&self, start: u64) -> Result<String> {
        let log = File::open(&self.log).at("open", &self.log)?;
        let bytes = files::read_part(&log, start, 4096).at("read", &self.log)?;
        let said = their_words(&bytes);
        Ok(if said.is_empty() {
            String::new()
        } else {
            format!(": {said}")
        })
    }
}
