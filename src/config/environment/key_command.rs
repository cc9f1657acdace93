//! `DELTA_API_KEY_COMMAND`: a command that prints the key, so that no file needs to hold it.
//!
//! Unaware of where the key goes. The command runs once per start, in `/`, so that no file of a workspace takes part.

use crate::config::person;
use crate::error::{Error, Result, may_fail, reason};
use crate::text::disguise::visible;
use crate::text::redaction::KEY_COMMAND;
use crate::unix::procfs::descendants;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek};
use std::iter;
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest output, and the part of an error's text that is shown.
const LIMITS: [u64; 2] = [64 * 1024, 500];

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
/// It fails, prints no key, or takes too long.
pub(super) fn key_of_command(own_is_inside: bool) -> Result<Option<person::Placed>> {
    let Some((command, place)) = key_command(own_is_inside) else {
        return Ok(None);
    };
    if LOOKS_ONLY.load(Ordering::Relaxed) {
        return Ok(Some(("key".to_owned(), place)));
    }
    match PRINTED.get_or_init(|| print_key(&command)) {
        Ok(key) => Ok(Some((key.clone(), place))),
        Err(why) => Err(Error::config(format!("{place}: {why}"))),
    }
}

fn print_key(command: &str) -> std::result::Result<String, String> {
    let seconds = if io::stdin().is_terminal() { 120 } else { 30 };
    let outputs = ["key", "errors"].map(|name| {
        let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC);
        file.map(File::from).map_err(io::Error::from)
    });
    let [printed, errors] = outputs;
    let failed = |error: io::Error| format!("the command cannot be run: {}", reason(&error));
    let (mut printed, mut errors) = (printed.map_err(failed)?, errors.map_err(failed)?);
    let ended = run(command, seconds, [&printed, &errors]).map_err(failed)?;
    let said = read_from_start(&mut errors, LIMITS[1]).map_err(failed)?;
    let said = visible(said.trim());
    let said = if said.is_empty() {
        said
    } else {
        format!(": {said}")
    };
    let text = read_from_start(&mut printed, LIMITS[0]).map_err(failed)?;
    let first = text.lines().next().unwrap_or_default();
    match ended {
        Err(why) => Err(format!("the command {why}{said}")),
        Ok(status) if !status.success() => Err(format!("the command fails ({status}){said}")),
        Ok(_) if first.trim().is_empty() => Err(format!(
            "the first line that the command prints is empty{said}"
        )),
        Ok(_) => Ok(first.to_owned()),
    }
}

/// Runs the command with the terminal that this process has. If it does not end in time, or prints too much, it is ended
/// with what it has started, and this is why.
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
        let is_too_long = printed.metadata()?.len() + errors.metadata()?.len() > LIMITS[0];
        if is_too_long || Instant::now() >= until {
            let started = Pid::from_child(&child);
            for pid in iter::once(started).chain(descendants(started)) {
                may_fail(kill_process(pid, Signal::KILL));
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

fn read_from_start(file: &mut File, most: u64) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
