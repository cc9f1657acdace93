//! `exec`: runs a text in a session, after all earlier ones.
//!
//! Unaware of the command line and of how results are printed.

use crate::error::{Error, Result};
use crate::sessions::interpreter::{nearest_dir, new_call_id, output_paths, run_program};
use crate::sessions::lock::{SessionLock, WhenBusy};
use crate::sessions::saved_state::{read_saved_state, remove_keys};
use crate::sessions::scripts;
use crate::sessions::session::{Session, SessionMetadata, SessionStatus};
use crate::sessions::shell::{CommandSetup, ShellKind, exec_environment};
use crate::text::json;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::files::LARGEST_INPUT;
use crate::unix::process::{Command, Ended};
use crate::unix::signals::{Signals, Stop};
use std::path::PathBuf;
use std::time::Duration;

/// The result of a text.
#[derive(Debug)]
pub(crate) struct ExecReport {
    /// 128+n for signal n, 124 after a timeout.
    pub(crate) exit_code: i32,
    pub(crate) duration: Duration,
    pub(crate) timed_out: bool,
    /// The signal to this process that ended it.
    pub(crate) stopped: Option<Stop>,
    /// The file with all of its output.
    pub(crate) stdout: PathBuf,
    pub(crate) stderr: PathBuf,
    /// Sentences for the reader of the result.
    pub(crate) notes: Vec<String>,
}

pub(crate) fn exec_text(
    session: &Session,
    text: &[u8],
    timeout: Option<Duration>,
    signals: &Signals,
) -> Result<ExecReport> {
    let mut lock = SessionLock::acquire(session, signals, WhenBusy::Wait)?;
    let mut metadata = session.read_metadata()?;
    if metadata.status == SessionStatus::Terminated {
        let id = &session.id;
        return Err(Error::failure(format!(
            "the session {id} has been ended; 'start' begins another"
        )));
    }
    if metadata.kind != ShellKind::Other && text.contains(&0) {
        return Err(Error::failure(
            "the text contains a NUL byte, which no shell can read",
        ));
    }
    // One that cannot be written is refused before the text runs.
    session.open_history()?;
    let found_leftovers = lock.end_leftovers()?;
    session.finish_commit()?;
    let mut report = run_text(session, &mut metadata, &mut lock, text, timeout, signals)?;
    if found_leftovers {
        report.notes.push(LEFTOVERS.to_owned());
    }
    lock.write_call_id("")?;
    match read_saved_state(session, "next") {
        _ if metadata.kind == ShellKind::Other => {}
        Some(state) if state.is_before_trap => report.notes.push(TRAP_UNFINISHED.to_owned()),
        Some(_) => {}
        None => {
            session.drop_next()?;
            report.notes.push(NO_STATE.to_owned());
        }
    }
    let text = remove_keys(session, text)?;
    record_exec(session, &mut metadata, &text, &report)?;
    Ok(report)
}

fn run_text(
    session: &Session,
    metadata: &mut SessionMetadata,
    lock: &mut SessionLock,
    text: &[u8],
    timeout: Option<Duration>,
    signals: &Signals,
) -> Result<ExecReport> {
    let dir = session.dir_text();
    let mut notes = Vec::new();
    let work_dir = find_work_dir(session, metadata, &mut notes);
    let is_file = |name: &&str| files::open_regular(&session.path(name)).is_ok();
    let afresh =
        read_saved_state(session, "").is_none() || !metadata.kind.state_files().iter().all(is_file);
    if afresh {
        notes.push(DAMAGED.to_owned());
    }
    let state = |name| session.read_file(name, LARGEST_INPUT).unwrap_or_default();
    let functions = state("functions.sh");
    let setup = CommandSetup {
        dir,
        afresh,
        hide_trap: scripts::needs_trap(metadata.kind, &[text, &functions]),
        aliases: &state("aliases.txt"),
    };
    write_scripts(session, metadata.kind, text, setup)?;
    let (stdout, stderr) = next_output_paths(session, metadata);
    let (out, err) = (files::create(&stdout)?, files::create(&stderr)?);
    let call_id = new_call_id(session, metadata.execution_count);
    lock.write_call_id(&call_id)?;
    let stdin = match metadata.kind {
        ShellKind::Other => Some(files::open_regular(&session.path("command"))?),
        _ => None,
    };
    let argv = scripts::command_line(metadata.kind, &metadata.program, &metadata.argv, setup);
    let command = Command {
        argv: &argv,
        dir: &work_dir,
        env: &exec_environment(metadata.kind, session.id.as_str(), &work_dir, setup),
        call_id: &call_id,
        stdin,
        stdout: out,
        stderr: err,
        timeout,
    };
    let outcome = run_program(signals, command, &metadata.program)?;
    let (exit_code, timed_out, stopped) = match outcome.how {
        Ended::Exited(code) => (code, false, None),
        Ended::TimedOut => (124, true, None),
        Ended::Interrupted(code) => (code, false, signals.stop()),
    };
    Ok(ExecReport {
        exit_code,
        duration: outcome.duration,
        timed_out,
        stopped,
        stdout,
        stderr,
        notes,
    })
}

/// The directory of the command before, or the nearest one above that is still there.
fn find_work_dir(
    session: &Session,
    metadata: &SessionMetadata,
    notes: &mut Vec<String>,
) -> PathBuf {
    let wanted = session
        .read_work_dir("work_dir.txt")
        .unwrap_or_else(|| PathBuf::from(&metadata.work_dir));
    let work_dir = nearest_dir(&wanted);
    if work_dir != wanted {
        notes.push(format!(
            "the working directory {} is gone or closed; this command ran in {}",
            wanted.display(),
            work_dir.display()
        ));
    }
    work_dir
}

/// Counts the command. Its number is taken if the `delta-sessions` of that command was killed.
fn next_output_paths(session: &Session, metadata: &mut SessionMetadata) -> (PathBuf, PathBuf) {
    loop {
        metadata.execution_count = metadata.execution_count.checked_add(1).unwrap_or(1);
        let (stdout, stderr) = output_paths(session, metadata.execution_count);
        if !stdout.exists() {
            return (stdout, stderr);
        }
    }
}

fn write_scripts(
    session: &Session,
    kind: ShellKind,
    text: &[u8],
    setup: CommandSetup<'_>,
) -> Result<()> {
    session.rewrite_file("command", text)?;
    if kind == ShellKind::Other {
        return Ok(());
    }
    session.create_next(kind.state_files())?;
    for (name, script) in scripts::exec_scripts(kind, setup) {
        session.rewrite_file(name, script.as_bytes())?;
    }
    Ok(())
}

const DAMAGED: &str = "the state files are damaged: this command began with the environment of its \
    exec and without functions";

const LEFTOVERS: &str = "an earlier command was still running, because its delta-sessions had been killed; \
    it has been terminated, and its state is lost";

const NO_STATE: &str = "the shell ended without saving its state (it was killed, replaced by exec, \
    its EXIT trap was replaced, or a part of the state is larger than 256 MiB): directory, variables and \
    functions are those from before";

const TRAP_UNFINISHED: &str = "the EXIT trap was ended before its last command, or was set by a sourced file, \
    by \\trap or by command trap: its changes are not saved";

fn record_exec(
    session: &Session,
    metadata: &mut SessionMetadata,
    text: &[u8],
    report: &ExecReport,
) -> Result<()> {
    let ended = Timestamp::now().to_string();
    let line = json::line(|line| {
        line.put("n", &metadata.execution_count)
            .put("ended_at", &ended)
            .put("exit_code", &report.exit_code)
            .put("duration_ms", &(report.duration.as_millis() as u64))
            .put("command", &String::from_utf8_lossy(text));
    });
    session.append_history(&line)?;
    metadata.last_executed_at = Some(ended);
    if let Some(dir) = session.read_work_dir("next/work_dir.txt") {
        metadata.work_dir = dir.to_string_lossy().into_owned();
    }
    session.commit(metadata)
}
