//! Starting a session, running a command in it, ending it.
//!
//! Unaware of the command line and of how results are printed.

use crate::error::{At, Error, Result, may_fail};
use crate::sessions::secrets::ApiKeys;
use crate::sessions::shell::{self, Beginning, Kind, WholeState};
use crate::sessions::store::{Busy, Lock, Metadata, Session, Status, Store, now};
use crate::text::ids;
use crate::text::json::Object;
use crate::unix::files;
use crate::unix::process::{self, Command, Ended, GRACE, Outcome, SpawnError};
use crate::unix::procfs::{self, Signals, Stop};
use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process};
use std::borrow::Cow;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Report {
    /// Its exit code; 128+n for signal n, 124 if its time was over.
    pub(crate) exit_code: i32,
    /// From its start to its end.
    pub(crate) duration: Duration,
    /// Its time was over.
    pub(crate) timed_out: bool,
    /// A signal to this process ended it.
    pub(crate) stopped: Option<Stop>,
    /// Where its whole output is.
    pub(crate) stdout: PathBuf,
    /// Where all its messages are.
    pub(crate) stderr: PathBuf,
    /// What a reader must know to understand the result.
    pub(crate) notes: Vec<String>,
}

/// Either a result, or the signal that came before there was one.
pub(crate) type OrStop<T> = std::result::Result<T, Stop>;

/// Starts a session for an interpreter and runs it once, so that its first state is known.
pub(crate) fn start(
    store: &mut Store,
    argv: &[String],
    signals: &Signals,
) -> Result<OrStop<(Session, Metadata)>> {
    let here = env::current_dir().at("find", Path::new("."))?;
    let typed = argv.first().map_or("", String::as_str);
    let program = find_program(typed, &here).ok_or_else(|| {
        Error::failure(format!(
            "cannot start '{}': there is no such program",
            typed.escape_debug()
        ))
    })?;
    let session = store.create_session()?;
    let made = first_state(&session, argv, &program, &here, signals);
    if !matches!(made, Ok(Ok(_))) {
        may_fail(session.remove());
    }
    Ok(made?.map(|metadata| (session, metadata)))
}

fn first_state(
    session: &Session,
    argv: &[String],
    program: &str,
    here: &Path,
    signals: &Signals,
) -> Result<OrStop<Metadata>> {
    let dir = text_of(session.dir());
    files::make_dir(&session.path("output"))?;
    files::write(&session.path("lock"), b"")?;
    session.make_next(&shell::ANY_STATE)?;
    for (name, script) in shell::first_scripts(dir) {
        files::write(&session.path(name), script.as_bytes())?;
    }
    let is_shell = shell::is_shell(program);
    let words = if is_shell {
        let rest = argv[1..].iter().cloned().chain(shell::first_arguments(dir));
        [program.to_owned()].into_iter().chain(rest).collect()
    } else {
        shell::first_of_other(dir, program)
    };
    let (stdout, stderr) = output(session, 0);
    let command = Command {
        argv: &words,
        dir: here,
        env: &shell::first_environment(session.id.as_str()),
        call_id: &call_id(session, 0),
        stdin: None,
        stdout: files::create(&stdout)?,
        stderr: files::create(&stderr)?,
        timeout: None,
    };
    let outcome = run(signals, command, program)?;
    if let (Ended::Interrupted(_), Some(stop)) = (outcome.how, signals.stop()) {
        return Ok(Err(stop));
    }
    let found = whole_state(session, "next");
    let kind = match found {
        Some(_) if !is_shell => Kind::Other,
        Some(state) => state.kind,
        None => return Err(no_state(argv, &stderr)),
    };
    for name in ["start.sh", "save.bash", "save.sh"] {
        files::remove(&session.path(name))?;
    }
    let work_dir = session
        .work_dir("next/work_dir.txt")
        .unwrap_or_else(|| here.to_owned());
    let unused = |name: &&&str| !kind.state().contains(name);
    for name in shell::ANY_STATE.iter().filter(unused) {
        files::remove(&session.path("next").join(name))?;
    }
    let metadata = Metadata {
        session_id: session.id.as_str().to_owned(),
        command: shlex::try_join(argv.iter().map(String::as_str)).unwrap_or_default(),
        argv: argv.to_vec(),
        program: program.to_owned(),
        kind,
        created_at: now(),
        last_executed_at: None,
        status: Status::Active,
        work_dir: work_dir.to_string_lossy().into_owned(),
        execution_count: 0,
    };
    session.commit(&metadata)?;
    Ok(Ok(metadata))
}

fn no_state(argv: &[String], stderr: &Path) -> Error {
    let said = fs::read(stderr).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    Error::failure(format!(
        "cannot start '{}': it ended before it told its state{}",
        argv.join(" "),
        last.map(|line| format!(": {line}")).unwrap_or_default()
    ))
}

/// Runs a text in a session, after all that were asked for before.
pub(crate) fn exec(
    session: &Session,
    text: &[u8],
    timeout: Option<Duration>,
    signals: &Signals,
) -> Result<OrStop<Report>> {
    let mut lock = match session.lock(signals, Busy::Wait)? {
        Ok(lock) => lock,
        Err(stop) => return Ok(Err(stop)),
    };
    let mut metadata = session.metadata()?;
    if metadata.status == Status::Terminated {
        let id = &session.id;
        return Err(Error::failure(format!(
            "the session {id} has been ended; `start` makes another"
        )));
    }
    if metadata.kind != Kind::Other && text.contains(&0) {
        return Err(Error::failure(
            "the command holds a NUL byte, which no shell can read",
        ));
    }
    let found_leftovers = lock.end_leftovers()?;
    session.settle()?;
    let mut report = run_text(session, &mut metadata, &mut lock, text, timeout, signals)?;
    if found_leftovers {
        report.notes.push(LEFTOVERS.to_owned());
    }
    lock.write("")?;
    match whole_state(session, "next") {
        _ if metadata.kind == Kind::Other => {}
        Some(state) if state.is_before_trap => report.notes.push(TRAP_UNFINISHED.to_owned()),
        Some(_) => {}
        None => {
            session.drop_next()?;
            report.notes.push(NO_STATE.to_owned());
        }
    }
    let text = hide_keys(session, text)?;
    finish(session, &mut metadata, &text, &report)?;
    Ok(Ok(report))
}

fn run_text(
    session: &Session,
    metadata: &mut Metadata,
    lock: &mut Lock,
    text: &[u8],
    timeout: Option<Duration>,
    signals: &Signals,
) -> Result<Report> {
    let dir = text_of(session.dir());
    let mut notes = Vec::new();
    let wanted = session.work_dir("work_dir.txt");
    let wanted = wanted.unwrap_or_else(|| PathBuf::from(&metadata.work_dir));
    let work_dir = nearest_dir(&wanted);
    if work_dir != wanted {
        notes.push(format!(
            "the working directory {} is gone or closed; this command ran in {}",
            wanted.display(),
            work_dir.display()
        ));
    }
    let is_file = |name: &&str| files::open_regular(&session.path(name)).is_ok();
    let afresh = whole_state(session, "").is_none() || !metadata.kind.state().iter().all(is_file);
    if afresh {
        notes.push(DAMAGED.to_owned());
    }
    let functions = session.read("functions.sh").unwrap_or_default();
    let beginning = Beginning {
        dir,
        afresh,
        hide_trap: shell::needs_trap(&[text, &functions]),
        aliases: &session.read("aliases.txt").unwrap_or_default(),
    };
    write_scripts(session, metadata.kind, text, beginning)?;
    let (stdout, stderr, out, err) = loop {
        metadata.execution_count += 1;
        let (stdout, stderr) = output(session, metadata.execution_count);
        // The number of a command whose `delta-sessions` was killed is taken.
        if !stdout.exists() {
            let (out, err) = (files::create(&stdout)?, files::create(&stderr)?);
            break (stdout, stderr, out, err);
        }
    };
    let call_id = call_id(session, metadata.execution_count);
    lock.write(&call_id)?;
    let stdin = match metadata.kind {
        Kind::Other => Some(files::open_regular(&session.path("command"))?),
        _ => None,
    };
    let argv = shell::command_line(metadata.kind, &metadata.program, &metadata.argv, beginning);
    let command = Command {
        argv: &argv,
        dir: &work_dir,
        env: &shell::environment(metadata.kind, session.id.as_str(), &work_dir, beginning),
        call_id: &call_id,
        stdin,
        stdout: out,
        stderr: err,
        timeout,
    };
    let outcome = run(signals, command, &metadata.program)?;
    let (exit_code, timed_out, stopped) = match outcome.how {
        Ended::Exited(code) => (code, false, None),
        Ended::TimedOut => (124, true, None),
        Ended::Interrupted(code) => (code, false, signals.stop()),
    };
    Ok(Report {
        exit_code,
        duration: outcome.duration,
        timed_out,
        stopped,
        stdout,
        stderr,
        notes,
    })
}

fn write_scripts(
    session: &Session,
    kind: Kind,
    text: &[u8],
    beginning: Beginning<'_>,
) -> Result<()> {
    session.write_anew("command", text)?;
    if kind == Kind::Other {
        return Ok(());
    }
    session.make_next(kind.state())?;
    for (name, script) in shell::scripts(kind, beginning) {
        session.write_anew(name, script.as_bytes())?;
    }
    Ok(())
}

const DAMAGED: &str = "the files of the session's state are damaged: this command began with the \
    environment of its exec and without functions";

const LEFTOVERS: &str = "a command before this one still ran, its delta-sessions had been killed; it has \
    been ended, and its state is lost";

const NO_STATE: &str = "the shell ended without saving its state (it was killed, replaced by exec, \
    or its EXIT trap was replaced): directory, variables and functions are those from before";

const TRAP_UNFINISHED: &str = "the EXIT trap was ended before its last command, or set with \\trap or \
    command trap: what it changed is not saved";

/// The state in a directory of the session.
fn whole_state(session: &Session, dir: &str) -> Option<WholeState> {
    let tail = |name: &str| {
        let file = files::open_regular(&session.path(dir).join(name)).ok()?;
        let len = file.metadata().ok()?.len();
        let part = len.min(shell::TRAILER_LEN);
        files::read_part(&file, len - part, part as usize).ok()
    };
    let state = WholeState::from_tail(&tail("env.sh")?)?;
    let whole = state.kind != Kind::Bash || tail("functions.sh")?.ends_with(shell::FUNCTIONS_END);
    (whole && tail("work_dir.txt")?.ends_with(b"\n")).then_some(state)
}

/// Takes the keys of this process out of what is kept of a command: its state, and the text itself,
/// which is returned as it is kept.
fn hide_keys<'t>(session: &Session, text: &'t [u8]) -> Result<Cow<'t, [u8]>> {
    let keys = ApiKeys::from_environment();
    for name in shell::ANY_STATE.map(|name| format!("next/{name}")) {
        let printed = session.read(&name).unwrap_or_default();
        let kept = if name.ends_with("env.sh") {
            keys.redact_variables(&printed)
        } else {
            keys.redact(&printed)
        };
        if let Some(kept) = kept {
            files::replace(&session.path(&name), &kept)?;
        }
    }
    Ok(match keys.redact(text) {
        Some(kept) => {
            session.write_anew("command", &kept)?;
            Cow::Owned(kept)
        }
        None => Cow::Borrowed(text),
    })
}

fn finish(session: &Session, metadata: &mut Metadata, text: &[u8], report: &Report) -> Result<()> {
    let ended = now();
    let mut line = Vec::new();
    Object::begin(&mut line)
        .put("n", &metadata.execution_count)
        .put("ended_at", &ended)
        .put("exit_code", &report.exit_code)
        .put("duration_ms", &(report.duration.as_millis() as u64))
        .put("command", &String::from_utf8_lossy(text))
        .end();
    line.push(b'\n');
    session.add_history(&line)?;
    metadata.last_executed_at = Some(ended);
    if let Some(dir) = session.work_dir("next/work_dir.txt") {
        metadata.work_dir = dir.to_string_lossy().into_owned();
    }
    session.commit(metadata)
}

/// Ends a session: what runs in it is ended, what it left in the background gets SIGHUP, as when a
/// terminal is closed.
pub(crate) fn end(session: &Session, signals: &Signals) -> Result<OrStop<()>> {
    let mut lock = match session.lock(signals, Busy::End)? {
        Ok(lock) => lock,
        Err(stop) => return Ok(Err(stop)),
    };
    lock.end_leftovers()?;
    session.settle()?;
    hang_up(session);
    let mut metadata = session.metadata()?;
    if metadata.status == Status::Active {
        metadata.status = Status::Terminated;
        session.commit(&metadata)?;
    }
    Ok(Ok(()))
}

/// Ends and removes all sessions of a directory but foreign ones. Returns their names.
pub(crate) fn cleanup(store: &Store, signals: &Signals) -> Result<OrStop<Vec<String>>> {
    store.refuse_foreign()?;
    let mut removed = Vec::new();
    for session in store.all()? {
        if session.is_begun() && store.is_foreign(&session)? {
            continue;
        }
        // One whose start was cut short has no lock, and nothing runs in it.
        let lock = if session.path("lock").exists() {
            match session.lock(signals, Busy::End)? {
                Ok(mut lock) => {
                    lock.end_leftovers()?;
                    Some(lock)
                }
                Err(stop) => return Ok(Err(stop)),
            }
        } else {
            None
        };
        hang_up(&session);
        session.remove()?;
        drop(lock);
        removed.push(session.id.as_str().to_owned());
    }
    Ok(Ok(removed))
}

/// Sends SIGHUP to all processes that were started in a session.
fn hang_up(session: &Session) {
    let wanted = format!("{}={}", shell::SESSION_ID, session.id);
    let own = std::process::id();
    for name in files::names(Path::new("/proc")).unwrap_or_default() {
        let Some(pid) = name.parse::<u32>().ok().filter(|pid| *pid != own) else {
            continue;
        };
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environ
            .split(|byte| *byte == 0)
            .any(|variable| variable == wanted.as_bytes())
            && let Some(pid) = Pid::from_raw(pid.cast_signed())
        {
            may_fail(kill_process(pid, Signal::HUP));
        }
    }
}

fn run(signals: &Signals, command: Command<'_>, program: &str) -> Result<Outcome> {
    process::run(signals, command, GRACE).map_err(|error| {
        let why = match error {
            SpawnError::NotFound => "it is not there".to_owned(),
            SpawnError::TooLong => "the environment is too long".to_owned(),
            SpawnError::NotExecutable(e) | SpawnError::Other(e) => crate::error::reason(&e),
        };
        Error::failure(format!("cannot run {program}: {why}"))
    })
}

/// Where a command's output goes.
fn output(session: &Session, number: u64) -> (PathBuf, PathBuf) {
    let file = |stream: &str| session.path(&format!("output/{number:06}.{stream}"));
    (file("stdout"), file("stderr"))
}

/// Marks the processes of one command; begins with that of the call around us.
fn call_id(session: &Session, number: u64) -> String {
    let own = format!("{}-{number}-{}", session.id, ids::hex(4));
    match env::var(procfs::CALL_ID) {
        Ok(outer) if !outer.is_empty() => format!("{outer}.{own}"),
        _ => own,
    }
}

/// The directory itself or the nearest above it that can be entered.
fn nearest_dir(path: &Path) -> PathBuf {
    let enterable = |dir: &&Path| dir.is_dir() && access(*dir, Access::EXEC_OK).is_ok();
    path.ancestors()
        .find(enterable)
        .unwrap_or(Path::new("/"))
        .to_owned()
}

/// The absolute path of a program, found as a shell finds it.
fn find_program(name: &str, here: &Path) -> Option<String> {
    let runs = |path: &PathBuf| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    let found = if name.contains('/') {
        Some(here.join(name)).filter(runs)
    } else if name.is_empty() {
        None
    } else {
        let path = env::var_os("PATH")?;
        env::split_paths(&path)
            .map(|dir| here.join(dir).join(name))
            .find(runs)
    };
    found?.into_os_string().into_string().ok()
}

/// A path that is known to be UTF-8.
fn text_of(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
