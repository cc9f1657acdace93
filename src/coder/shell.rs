//! `bash`: a command in a fresh shell, with a time limit of its own.

use super::target::ToolRefusal;
use crate::error::{At, ignore};
use crate::unix::process::{self, Command, Ended, SpawnError};
use crate::unix::procfs::new_call_id;
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

/// The most bytes of a stream that the model is shown, as agent.yaml has it by default.
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
    let script = std::str::from_utf8(script)
        .ok()
        .filter(|it| !it.contains('\0'));
    let Some(script) = script else {
        return refuse("the command holds bytes that are not text; nothing was run".to_owned());
    };
    let here = Path::new(".");
    let signals = Signals::install().at("watch signals in", here)?;
    let call_id = new_call_id();
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
    let ended = match ran {
        Ok(outcome) => outcome.how,
        Err(SpawnError::TooLong) => {
            return refuse(format!(
                "the command has {} bytes, more than the system takes; nothing was run. Put it into a \
                 file with write, and run that",
                script.len()
            ));
        }
        Err(error) => return refuse(error.message("bash")),
    };
    name_long_output();
    if ended == Ended::TimedOut {
        let text = format!(
            "[timed out after {seconds} s; for what takes longer give timeout_s, at most \
             {MOST_SECONDS}, or run it in the background with its output in a file]\n"
        );
        ignore(print(text.as_bytes()));
    }
    Ok(u8::try_from(ended.code()).unwrap_or(1))
}

/// Names the files that the output went into, if it is so long that the model is shown only its ends.
fn name_long_output() {
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    if let Some(note) = long_file(1, stdout.as_fd()) {
        ignore(print(note.as_bytes()));
    }
    if let Some(note) = long_file(2, stderr.as_fd()) {
        ignore(stderr.lock().write_all(note.as_bytes()));
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
    let path = here
        .and_then(|here| Some(path.strip_prefix(here).ok()?.to_owned()))
        .unwrap_or(path);
    Some(format!(
        "\n[all {} bytes are in {}: search there instead of running the command again]\n",
        meta.len(),
        path.display()
    ))
}
