//! `bash`: a command in a fresh shell, with a time limit of its own.

use super::target::ToolRefusal;
use crate::error::{At, may_fail};
use crate::text::ids::hex;
use crate::unix::process::{self, Command, Ended, SpawnError};
use crate::unix::procfs::CALL_ID;
use crate::unix::signals::Signals;
use crate::unix::terminal::print;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// The longest time that a command may take.
const MOST_SECONDS: usize = 600;

/// The time that a command may take unless the model says otherwise.
pub(super) const USUAL_SECONDS: usize = 120;

/// How much of a stream the model is shown, as agent.yaml has it by default.
const SHOWN_BYTES: u64 = 30_000;

/// Runs a command, whose output goes where this program's does, and returns its exit code.
pub(super) fn run_command(seconds: usize, script: &[u8]) -> Result<u8, ToolRefusal> {
    let refuse = |text: String| Err(ToolRefusal(text));
    if !(1..=MOST_SECONDS).contains(&seconds) {
        return refuse(format!(
            "timeout_s is {seconds}, and may be 1 to {MOST_SECONDS}; nothing was run. What takes longer \
             runs in the background, with its output in a file"
        ));
    }
    let script = match std::str::from_utf8(script) {
        Ok(script) if !script.contains('\0') => script,
        _ => {
            return refuse("the command holds bytes that are not text; nothing was run".to_owned());
        }
    };
    let here = Path::new(".");
    let signals = Signals::install().at("watch signals in", here)?;
    let call_id = match std::env::var(CALL_ID) {
        Ok(outer) => format!("{outer}.{}", hex(12)),
        Err(_) => hex(12),
    };
    let output =
        |stream: BorrowedFd<'_>| stream.try_clone_to_owned().map(File::from).at("use", here);
    let ran = process::run(
        &signals,
        Command {
            argv: &["bash", "-c", script].map(str::to_owned),
            dir: here,
            env: &[],
            call_id: &call_id,
            stdin: None,
            stdout: output(std::io::stdout().as_fd())?,
            stderr: output(std::io::stderr().as_fd())?,
            timeout: Some(Duration::from_secs(seconds as u64)),
        },
        process::GRACE,
    );
    match ran {
        Ok(outcome) => {
            name_long_output();
            Ok(match outcome.how {
                Ended::Exited(code) | Ended::Interrupted(code) => u8::try_from(code).unwrap_or(1),
                Ended::TimedOut => {
                    let text = format!(
                        "[timed out after {seconds} s; for what takes longer give timeout_s, at most \
                     {MOST_SECONDS}, or run it in the background with its output in a file]\n"
                    );
                    may_fail(print(text.as_bytes()));
                    124
                }
            })
        }
        Err(SpawnError::TooLong) => refuse(format!(
            "the command has {} bytes, more than the system takes; nothing was run. Put it into a \
             file with write, and run that",
            script.len()
        )),
        Err(error) => refuse(error.message("bash")),
    }
}

/// Names the files that the output went into, if it is so long that the model is shown only its ends.
fn name_long_output() {
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    if let Some(note) = long_file(1, stdout.as_fd()) {
        may_fail(print(note.as_bytes()));
    }
    if let Some(note) = long_file(2, stderr.as_fd()) {
        may_fail(stderr.lock().write_all(note.as_bytes()));
    }
}

/// The note about a stream that goes into a file.
fn long_file(number: u8, stream: BorrowedFd<'_>) -> Option<String> {
    let meta = File::from(stream.try_clone_to_owned().ok()?)
        .metadata()
        .ok()?;
    if !meta.is_file() || meta.len() <= SHOWN_BYTES {
        return None;
    }
    let path = std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    let here = std::env::current_dir().ok();
    let short = here.and_then(|here| Some(path.strip_prefix(here).ok()?.to_owned()));
    let path = short.unwrap_or(path);
    Some(format!(
        "\n[all {} bytes are in {}: search there instead of running the command again]\n",
        meta.len(),
        path.display()
    ))
}
