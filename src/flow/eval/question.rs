//! A program that is asked something before any trial.
//!
//! Architecture invariant: neither what it says nor what it waits for is without a limit, and a signal ends it.

use crate::engine::run_context::RunContext;
use crate::error::{At, Error, Result, reason};
use crate::text::disguise::printable_line;
use crate::text::shorten::first_line;
use crate::unix::files;
use crate::unix::process::{Children, Command, Ended, GRACE, Variable, Woken};
use crate::unix::signals::Signals;
use std::fs::File;
use std::io::Seek;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time limit of an answer.
const TIME: Duration = Duration::from_secs(120);

/// The time between two looks at how much has been said.
const PERIOD: Duration = Duration::from_millis(100);

/// A program, and what it is asked.
pub(crate) struct Question<'q> {
    pub signals: &'q Signals,
    /// The program in messages.
    pub name: &'q str,
    pub argv: &'q [String],
    pub dir: &'q Path,
    pub env: &'q [Variable],
    pub stdin: &'q [u8],
    /// The most bytes of the answer.
    pub limit: u64,
}

/// What a program has said.
pub(crate) struct Reply {
    /// Its standard output, at the beginning.
    pub answer: File,
    /// The first line of its standard error.
    pub said: String,
    pub succeeded: bool,
}

impl Question<'_> {
    /// # Errors
    /// The program cannot be run, or a signal, its size or the time has ended it.
    pub(crate) fn ask(&self) -> Result<Reply> {
        let scratch = std::env::temp_dir();
        let mut answer = files::create_without_name(&scratch)?;
        let mut said = files::create_without_name(&scratch)?;
        let command = Command {
            argv: self.argv,
            dir: self.dir,
            env: self.env,
            call_id: &RunContext::new_call_id(),
            stdin: Some(files::in_memory(self.stdin).at("create", &scratch)?),
            stdout: answer.try_clone().at("open", &scratch)?,
            stderr: said.try_clone().at("open", &scratch)?,
            timeout: Some(TIME),
        };
        let how = self.run(command, &answer)?;
        answer.rewind().at("read", &scratch)?;
        said.rewind().at("read", &scratch)?;
        let said = files::read_head(&said, 4096).at("read", &scratch)?;
        Ok(Reply {
            answer,
            said: printable_line(first_line(said.trim())),
            succeeded: matches!(how, Ended::Exited(0)),
        })
    }

    fn run(&self, command: Command<'_>, answer: &File) -> Result<Ended> {
        let cannot = |why: &str| Error::config(format!("{}: {why}", self.name));
        let mut children = Children::new(self.signals);
        let spawned = children.spawn(command);
        let token = spawned.map_err(|_| cannot("it cannot be run"))?;
        let mut fault = None;
        loop {
            let woken = children.wait(Some(Instant::now() + PERIOD));
            match woken.map_err(|e| cannot(&reason(&e)))? {
                Woken::Ended(_, outcome) => {
                    return match (fault, outcome.how) {
                        (Some(fault), _) => Err(fault),
                        (None, Ended::TimedOut) => Err(cannot("it has not answered in time")),
                        (None, how) => Ok(how),
                    };
                }
                Woken::Stopped(stop) => {
                    fault = Some(stop.into());
                    children.interrupt(token, GRACE);
                }
                Woken::Deadline if answer.metadata().map_or(0, |it| it.len()) > self.limit => {
                    fault.get_or_insert_with(|| cannot("its answer is too long"));
                    children.interrupt(token, GRACE);
                }
                Woken::Suspended | Woken::Deadline => {}
            }
        }
    }
}
