//! `DELTA_API_KEY_COMMAND`: a command that prints the key, so that no file needs to hold it.
//!
//! Unaware of where the key goes. The command runs once per start, in `/`, so that no file of a workspace takes part.

use crate::config::person;
use crate::error::{Error, Result, ignore, reason};
use crate::text::disguise::visible;
use crate::text::redaction::KEY_COMMAND;
use crate::unix::files;
use crate::unix::procfs::descendants;
use crate::unix::signals::asked_to_end;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::iter;
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest output.
const OUTPUT_BYTES: usize = 64 * 1024;

/// The part of an error's text that is shown.
const SHOWN_BYTES: usize = 500;

static LOOKS_ONLY: AtomicBool = AtomicBool::new(false);

static PRINTED: OnceLock<std::result::Result<String, String>> = OnceLock::new();

/// Keeps this process from running the command: it only shows what a run would do.
pub(crate) fn run_no_key_command() {
    LOOKS_ONLY.store(true, Ordering::Relaxed);
}

/// The command and its place, unless it is in a file that tools can write.
pub(super) fn key_command(own_is_inside: bool) -> Option<person::Placed> {
    let in_process = std::env::var(KEY_COMMAND).is_ok_and(|it| !it.trim().is_empty());
    let found = person::variable(KEY_COMMAND).ok().flatten();
    found.filter(|_| in_process || !own_is_inside)
}

/// The key that the command has printed in this process.
pub(super) fn printed_key() -> Option<&'static str> {
    PRINTED.get()?.as_deref().ok()
}

/// The key that the command prints, and the command's place; None without a command.
///
/// # Errors
/// It fails, prints no key, or takes too long; or a signal asks to end.
pub(super) fn key_of_command(own_is_inside: bool) -> Result<Option<person::Placed>> {
    let Some((command, place)) = key_command(own_is_inside) else {
        return Ok(None);
    };
    if LOOKS_ONLY.load(Ordering::Relaxed) {
        return Ok(Some(("key".to_owned(), place)));
    }
    match PRINTED.get_or_init(|| print_key(&command)) {
        Ok(key) => Ok(Some((key.clone(), place))),
        Err(why) => {
            Err(asked_to_end()
                .map_or_else(|| Error::config(format!("{place}: {why}")), Error::from))
        }
    }
}

fn print_key(command: &str) -> std::result::Result<String, String> {
    let seconds = if io::stdin().is_terminal() { 120 } else { 30 };
    let failed = |error: io::Error| format!("the command cannot be run: {}", reason(&error));
    // Files without a name, so that no secret stays.
    let printed = files::in_memory(b"").map_err(failed)?;
    let errors = files::in_memory(b"").map_err(failed)?;
    let ended = run(command, seconds, [&printed, &errors]).map_err(failed)?;
    let text = files::read_head(&printed, OUTPUT_BYTES).map_err(failed)?;
    let first = text.lines().next().unwrap_or("");
    let why = match ended {
        Err(why) => format!("the command {why}"),
        Ok(status) if !status.success() => format!("the command fails ({status})"),
        Ok(_) if first.trim().is_empty() => {
            "the first line that the command prints is empty".to_owned()
        }
        Ok(_) => return Ok(first.to_owned()),
    };
    let said = visible(
        files::read_head(&errors, SHOWN_BYTES)
            .map_err(failed)?
            .trim(),
    );
    let colon = if said.is_empty() { "" } else { ": " };
    Err(format!("{why}{colon}{said}"))
}

/// Runs the command with the terminal that this process has. If it does not end in time or before a signal asks to end, or
/// prints too much, it is ended with what it has started, and this is why.
fn run(
    command: &str,
    seconds: u64,
    [printed, errors]: [&File; 2],
) -> io::Result<std::result::Result<ExitStatus, String>> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir("/")
        .stdout(printed.try_clone()?)
        .stderr(errors.try_clone()?)
        .spawn()?;
    let until = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ok(status));
        }
        let is_too_long =
            printed.metadata()?.len() + errors.metadata()?.len() > OUTPUT_BYTES as u64;
        if is_too_long || asked_to_end().is_some() || Instant::now() >= until {
            let started = Pid::from_child(&child);
            for pid in iter::once(started).chain(descendants(started)) {
                ignore(kill_process(pid, Signal::KILL));
            }
            child.wait()?;
            return Ok(Err(if is_too_long {
                "prints more than a key".to_owned()
            } else {
                format!("has not ended within {seconds} s")
            }));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
