//! `engine.log`, for debugging the engine.
//!
//! Unaware of what the lines mean. A line is appended with one write. A failed write is ignored,
//! because nothing depends on this file.

use crate::error::ignore;
use crate::text::disguise::printable;
use crate::text::names::named_enum;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::{Ended, Outcome};
use crate::unix::secret::Secret;
use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

named_enum! {
    /// How grave a line is; `DELTA_LOG` says from which on they are written.
    #[derive(Default, PartialOrd, Ord)]
    pub(crate) enum Level {
        /// Each program and each request.
        Debug = "DEBUG",
        /// Starts and ends.
        #[default]
        Info = "INFO",
        /// A failure that was retried or done without.
        Warn = "WARN",
        /// The cause of the run's end.
        Error = "ERROR",
    }
}

impl Level {
    /// The level of a name in `DELTA_LOG`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::parse(&name.to_ascii_uppercase())
    }
}

/// A run's engine.log.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    level: Level,
    secrets: Vec<Secret>,
    /// Opened with the first line; `None` if that failed.
    file: OnceCell<Option<File>>,
}

impl Log {
    /// A log in a file that need not exist. What is written holds none of the secrets.
    pub(crate) fn new(path: PathBuf, level: Level, secrets: Vec<Secret>) -> Self {
        Self {
            path,
            level,
            secrets,
            file: OnceCell::new(),
        }
    }

    /// Appends a line: time, level, text.
    pub(crate) fn line(&self, level: Level, text: &str) {
        if level < self.level {
            return;
        }
        let text = printable(&text.replace(char::is_control, " "));
        let line = format!("{} {} {text}\n", Timestamp::now(), level.name());
        self.append(line.into_bytes());
    }

    /// Appends what a program wrote to its standard error: its end, if it is long.
    pub(crate) fn take(&self, file: &File) -> io::Result<()> {
        const LONGEST: u64 = 1 << 20;
        let from = file.metadata()?.len().saturating_sub(LONGEST);
        let mut said = files::read_part(file, from, LONGEST as usize)?;
        if from > 0 {
            // The first line may begin within a secret.
            let end = said.iter().position(|byte| *byte == b'\n');
            said.drain(..end.unwrap_or(said.len()));
        }
        self.append(said);
        Ok(())
    }

    fn append(&self, mut bytes: Vec<u8>) {
        for secret in &self.secrets {
            secret.redact(&mut bytes);
        }
        let file = self.file.get_or_init(|| files::append(&self.path).ok());
        if let Some(mut file) = file.as_ref() {
            ignore(file.write_all(&bytes));
        }
    }

    /// The way a program that the engine started has ended.
    pub(crate) fn ended(&self, what: &str, outcome: &Outcome) {
        let took = outcome.duration.as_millis();
        match outcome.how {
            Ended::Exited(code) => {
                self.line(
                    Level::Debug,
                    &format!("{what}: exit code {code} after {took} ms"),
                );
            }
            Ended::TimedOut => {
                self.line(
                    Level::Warn,
                    &format!("{what}: timed out and killed after {took} ms"),
                );
            }
            Ended::Interrupted(code) => {
                let text = format!(
                    "{what}: killed after {took} ms, because the engine is stopping; exit code {code}"
                );
                self.line(Level::Warn, &text);
            }
        }
    }
}
