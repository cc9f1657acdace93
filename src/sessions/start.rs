//! `start`: creates a session and runs its interpreter once, for the first state.

use crate::error::{At, Error, Result, ignore};
use crate::sessions::interpreter::{find_program, new_call_id, output_paths, run_program};
use crate::sessions::saved_state::read_saved_state;
use crate::sessions::scripts;
use crate::sessions::session::{Session, SessionMetadata, SessionStatus};
use crate::sessions::shell::{self, ShellKind};
use crate::sessions::store::SessionStore;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::process::{Command, Ended};
use crate::unix::signals::Signals;
use std::env;
use std::fs;
use std::path::Path;

pub(crate) fn start_session(
    store: &mut SessionStore,
    argv: &[String],
    signals: &Signals,
) -> Result<(Session, SessionMetadata)> {
    let here = env::current_dir().at("find", Path::new("."))?;
    let typed = argv.first().map_or("", String::as_str);
    let program = find_program(typed, &here).ok_or_else(|| {
        Error::failure(format!(
            "cannot start '{}': no such program",
            typed.escape_debug()
        ))
    })?;
    let session = store.create_session()?;
    let made = save_first_state(&session, argv, &program, &here, signals);
    if made.is_err() {
        ignore(session.remove_dir());
    }
    Ok((session, made?))
}

fn save_first_state(
    session: &Session,
    argv: &[String],
    program: &str,
    here: &Path,
    signals: &Signals,
) -> Result<SessionMetadata> {
    let dir = session.dir_text();
    files::make_dir(&session.path("output"))?;
    files::write(&session.path("lock"), b"")?;
    session.create_next(&shell::ANY_STATE)?;
    for (name, script) in scripts::first_scripts(dir) {
        files::write(&session.path(name), script.as_bytes())?;
    }
    let is_shell = shell::is_shell(program);
    let words = if is_shell {
        let rest = argv[1..]
            .iter()
            .cloned()
            .chain(scripts::first_arguments(dir));
        [program.to_owned()].into_iter().chain(rest).collect()
    } else {
        scripts::first_of_other(dir, program)
    };
    let (stdout, stderr) = output_paths(session, 0);
    let command = Command {
        argv: &words,
        dir: here,
        env: &shell::first_environment(session.id.as_str()),
        call_id: &new_call_id(session, 0),
        stdin: None,
        stdout: files::create(&stdout)?,
        stderr: files::create(&stderr)?,
        timeout: None,
    };
    let outcome = run_program(signals, command, program)?;
    if let (Ended::Interrupted(_), Some(stop)) = (outcome.how, signals.stop()) {
        return Err(stop.into());
    }
    let found = read_saved_state(session, "next");
    let kind = match found {
        Some(_) if !is_shell => ShellKind::Other,
        Some(state) => state.kind,
        None => return Err(no_state_error(argv, &stderr)),
    };
    for name in ["start.sh", "save.bash", "save.sh"] {
        files::remove(&session.path(name))?;
    }
    let work_dir = session
        .read_work_dir("next/work_dir.txt")
        .unwrap_or_else(|| here.to_owned());
    let unused = |name: &&&str| !kind.state_files().contains(name);
    for name in shell::ANY_STATE.iter().filter(unused) {
        files::remove(&session.path("next").join(name))?;
    }
    let metadata = SessionMetadata {
        session_id: session.id.as_str().to_owned(),
        command: shlex::try_join(argv.iter().map(String::as_str)).unwrap_or_default(),
        argv: argv.to_vec(),
        program: program.to_owned(),
        kind,
        created_at: Timestamp::now().to_string(),
        last_executed_at: None,
        status: SessionStatus::Active,
        work_dir: work_dir.to_string_lossy().into_owned(),
        execution_count: 0,
    };
    session.commit(&metadata)?;
    Ok(metadata)
}

fn no_state_error(argv: &[String], stderr: &Path) -> Error {
    let said = fs::read(stderr).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    Error::failure(format!(
        "cannot start '{}': it ended before it saved its state{}",
        argv.join(" "),
        last.map_or_else(String::new, |line| format!(": {line}"))
    ))
}
