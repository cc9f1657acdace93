//! A program as the model: the request on its stdin, a chat-completions response on its stdout.
//!
//! Exit code 0 is an answer, 75 asks to be tried again, as does an end by a signal that asks to end;
//! anything else is a refusal whose reason is on stderr.

use super::attempt::{Attempt, Failure, LARGEST_MESSAGE};
use super::reasons::their_words;
use super::too_long::TooLong;
use crate::config::environment::Secret;
use crate::error::{At, Error, Result};
use crate::record::request_body::Body;
use crate::text::ids::hex;
use crate::unix::files;
use crate::unix::process::{self, Command, Ended, SpawnError, Variable};
use crate::unix::signals::Signals;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The exit code that asks to be tried again (`EX_TEMPFAIL`).
const TEMPFAIL: i32 = 75;

/// The exit codes of SIGHUP, SIGINT and SIGTERM. A signal to a tree of processes may reach the program before the
/// engine, which then receives it while it waits to try again.
const ENDED_BY_A_SIGNAL: [i32; 3] = [129, 130, 143];

/// A program that is the model.
pub(crate) struct Program<'a> {
    pub argv: Vec<String>,
    /// The working directory: the workspace.
    pub dir: &'a Path,
    pub env: Vec<Variable>,
    /// The longest time that it may take.
    pub timeout: Duration,
    /// The id that the program's call ids begin with.
    pub engine_call: &'a str,
    /// The file of its messages.
    pub log: PathBuf,
    /// Secrets that are replaced in all that it prints before anything of that is kept.
    pub secrets: Vec<Secret>,
    /// The time that it has after SIGTERM when the engine is asked to end.
    pub grace: Duration,
}

impl Program<'_> {
    /// Runs the program once, its stdout going into the response of the invocation.
    pub(super) fn attempt(
        &mut self,
        invocation: &Path,
        body: &Body<'_>,
        signals: &Signals,
        left: Option<Duration>,
    ) -> Result<Attempt> {
        let response = &invocation.join("response.json");
        let timeout = left.map_or(self.timeout, |left| left.min(self.timeout));
        let (stdout, stderr) = (
            // What is in it may have to be changed before it is kept.
            files::create_without_name(invocation)?,
            files::create_without_name(invocation)?,
        );
        let call_id = format!("{}.{}", self.engine_call, hex(12));
        let command = Command {
            argv: &self.argv,
            dir: self.dir,
            env: &self.env,
            call_id: &call_id,
            stdin: Some(stdin_of(invocation, body)?),
            stdout: stdout.try_clone().at("open", response)?,
            stderr: stderr.try_clone().at("open", response)?,
            timeout: Some(timeout),
        };
        let outcome = match process::run(signals, command, self.grace) {
            Ok(outcome) => outcome,
            Err(error) => return self.judge_failed_start(&error),
        };
        let said = self.printed(&stderr).at("read", response)?;
        files::append(&self.log)?
            .write_all(&said)
            .at("write", &self.log)?;
        let body = self.printed(&stdout).at("read", response)?;
        files::write(response, &body)?;
        Ok(self.judge_end(outcome.how, body, &said, signals, timeout.as_millis()))
    }

    /// Reads what it has printed into a file, without the secrets.
    fn printed(&self, file: &File) -> io::Result<Vec<u8>> {
        let length = file.metadata()?.len().min(LARGEST_MESSAGE as u64);
        let mut bytes = files::read_part(file, 0, length as usize)?;
        for secret in &self.secrets {
            secret.redact(&mut bytes);
        }
        Ok(bytes)
    }

    fn judge_failed_start(&self, error: &SpawnError) -> Result<Attempt> {
        let why = format!("llm.command: {}", error.message(&self.argv[0]));
        match error {
            SpawnError::Other(_) => Err(Error::failure(why)),
            _ => Ok(Attempt::Failed(Failure::refusal(why))),
        }
    }

    /// The outcome that the program's end means. `timeout` is in milliseconds.
    fn judge_end(
        &self,
        how: Ended,
        body: Vec<u8>,
        said: &[u8],
        signals: &Signals,
        timeout: u128,
    ) -> Attempt {
        let program = &self.argv[0];
        let may_count = true;
        Attempt::Failed(match how {
            Ended::Exited(0) => {
                return Attempt::Body {
                    body,
                    http_status: None,
                };
            }
            Ended::Interrupted(_) => {
                if let Some(stop) = signals.stop() {
                    return Attempt::Stopped { stop, may_count };
                }
                Failure {
                    why: "interrupted".to_owned(),
                    may_count,
                    ..Failure::default()
                }
            }
            Ended::TimedOut => Failure {
                why: format!("{program} gave no answer within {timeout} ms"),
                timed_out: true,
                may_count,
                ..Failure::default()
            },
            Ended::Exited(code) => {
                let words = their_words(&said[..said.len().min(4096)]);
                let colon = if words.is_empty() { "" } else { ": " };
                let why = format!("{program} ended with exit code {code}{colon}{words}");
                if code == TEMPFAIL || ENDED_BY_A_SIGNAL.contains(&code) {
                    Failure {
                        why,
                        may_count: code != TEMPFAIL,
                        ..Failure::default()
                    }
                } else {
                    Failure {
                        too_long: TooLong::of(said),
                        ..Failure::refusal(why)
                    }
                }
            }
        })
    }
}

/// The request as a file.
fn stdin_of(invocation: &Path, body: &Body<'_>) -> Result<File> {
    let path = invocation.join("request.json");
    if !body.has_blobs() {
        return File::open(&path).at("open", &path);
    }
    let mut file = files::create_without_name(invocation)?;
    io::copy(&mut body.reader(), &mut file).at("write", &path)?;
    file.rewind().at("read", &path)?;
    Ok(file)
}
