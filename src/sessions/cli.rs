//! The program `delta-sessions` as a whole: from the command line to the exit code.
//!
//! Results are JSON on standard output, errors included; usage errors are one line on standard error.

use crate::VERSION;
use crate::error::{At, Error, Exit, Result, may_fail};
use crate::sessions::args::{SessionsArgs, SessionsCommand as Request, parse_args};
use crate::sessions::complete;
use crate::sessions::end::{end_session, remove_sessions};
use crate::sessions::exec::{ExecReport, exec_text};
use crate::sessions::output_cut::{OutputCut, write_text};
use crate::sessions::session::{Session, SessionMetadata};
use crate::sessions::shell::ShellKind;
use crate::sessions::start::start_session;
use crate::sessions::store::SessionStore;
use crate::sessions::tables::SESSIONS;
use crate::text::json::Object;
use crate::text::options::short_help::help_text;
use crate::unix::defect::exit_at_panic;
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::signals::Signals;
use crate::unix::terminal::{print, print_error, print_json};
use std::ffi::OsString;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

const PROGRAM: &str = "delta-sessions";

/// The form in which an error is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ErrorStyle {
    Json,
    Text,
}

pub fn main(args: Vec<OsString>) -> u8 {
    exit_at_panic(|| {
        let message = "this is a defect in delta-sessions; the session keeps its last state";
        print_failure(&Error::new(Exit::Software, message), ErrorStyle::Json);
    });
    execute(args).unwrap_or_else(|(error, style)| {
        print_failure(&error, style);
        error.exit.code()
    })
}

fn print_failure(error: &Error, style: ErrorStyle) {
    match style {
        ErrorStyle::Json => may_fail(print_object(|o| {
            o.put("error", &error.message);
        })),
        ErrorStyle::Text => print_error(PROGRAM, error),
    }
}

fn execute(args: Vec<OsString>) -> std::result::Result<u8, (Error, ErrorStyle)> {
    let args = parse_args(args).map_err(|error| (error, ErrorStyle::Text))?;
    let style = match &args.request {
        Request::Exec(exec) if exec.raw => ErrorStyle::Text,
        _ => ErrorStyle::Json,
    };
    run_request(args).map_err(|error| (error, style))
}

fn run_request(args: SessionsArgs) -> Result<u8> {
    let store = || SessionStore::open(&args.dir, args.adopt);
    match args.request {
        // The page is one for all commands.
        Request::Help { command, full } => {
            print(help_text(&SESSIONS, command, full.then_some(PROGRAM)).as_bytes())?;
        }
        Request::Version => print(format!("{PROGRAM} {VERSION}\n").as_bytes())?,
        Request::Complete(words) => complete::print_candidates(&words)?,
        Request::List => print_list(&store()?)?,
        Request::Start(words) => {
            let started = start_session(&mut store()?, &words, &catch_signals()?)?;
            print_started(&started.0, &started.1)?;
        }
        Request::Exec(exec) => {
            let session = store()?.open_session(&exec.id)?;
            let text = match exec.text {
                Some(text) => text,
                // Before signals are caught: reading from a terminal must end with Ctrl-C.
                None => read_stdin()?,
            };
            let report = exec_text(&session, &text, exec.timeout, &catch_signals()?)?;
            return match exec.raw {
                true => pass_through(&report),
                false => print_report(&report, exec.max_bytes),
            };
        }
        Request::End(id) => {
            let session = store()?.open_session(&id)?;
            end_session(&session, &catch_signals()?)?;
            print_object(|o| {
                o.put("status", "terminated").put("session_id", &session.id);
            })?;
        }
        Request::Cleanup => {
            let removed = remove_sessions(&store()?, &catch_signals()?)?;
            print_object(|o| {
                o.put("removed", &removed);
            })?;
        }
    }
    Ok(Exit::Success.code())
}

fn catch_signals() -> Result<Signals> {
    Signals::install().at("catch signals for", Path::new(PROGRAM))
}

fn read_stdin() -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = io::stdin()
        .lock()
        .take(LARGEST_INPUT + 1)
        .read_to_end(&mut text);
    read.at("read", Path::new("standard input"))?;
    match text.len() as u64 > LARGEST_INPUT {
        true => Err(Error::usage("standard input is longer than 256 MiB")),
        false => Ok(text),
    }
}

fn print_started(session: &Session, metadata: &SessionMetadata) -> Result<()> {
    print_object(|o| {
        o.put("session_id", &session.id)
            .put("command", &metadata.command)
            .put("work_dir", &metadata.work_dir)
            .put("status", &metadata.status)
            .put("persists", metadata.kind.kept_state());
        if metadata.kind == ShellKind::Other {
            let note = format!(
                "each exec starts {} again in work_dir with the environment of this start and passes \
                 it the text on standard input; nothing in memory persists, such as variables and \
                 imports: write files instead",
                metadata.command
            );
            o.put("note", &note);
        }
    })
}

fn print_list(store: &SessionStore) -> Result<()> {
    let mut sessions: Vec<_> = store
        .list_sessions()?
        .into_iter()
        // Without those that are being started.
        .filter(Session::is_begun)
        .map(|session| (session.read_metadata(), session))
        .collect();
    let age =
        |metadata: &Result<SessionMetadata>| metadata.as_ref().ok().map(|m| m.created_at.clone());
    sessions.sort_by_key(|(metadata, _)| age(metadata));
    let mut out = vec![b'['];
    for (metadata, session) in sessions {
        if out.len() > 1 {
            out.push(b',');
        }
        let mut object = Object::begin(&mut out);
        object.put("session_id", &session.id);
        if store.is_foreign(&session)? {
            object.put("foreign", &true);
        }
        match metadata {
            Ok(m) => object
                .put("command", &m.command)
                .put("status", &m.status)
                .put("created_at", &m.created_at)
                .put("last_executed_at", &m.last_executed_at)
                .put("work_dir", &m.work_dir)
                .put("execution_count", &m.execution_count),
            Err(error) => object.put("status", "damaged").put("error", &error.message),
        }
        .end();
    }
    out.extend_from_slice(b"]\n");
    print_json(&out)
}

fn print_object(fill: impl FnOnce(&mut Object<'_>)) -> Result<()> {
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    fill(&mut object);
    object.end();
    out.push(b'\n');
    print_json(&out)
}

fn print_report(report: &ExecReport, max_bytes: u64) -> Result<u8> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut cuts = Vec::new();
    for (name, path) in [("stdout", &report.stdout), ("stderr", &report.stderr)] {
        let mut file = files::open_regular(path)?;
        let cut = OutputCut::measure(&mut file, max_bytes).at("read", path)?;
        let opening = if cuts.is_empty() { '{' } else { ',' };
        let begun = write!(out, "{opening}\"{name}\":");
        ignore_closed_pipe(begun.and_then(|()| write_text(&mut out, &mut file, cut)))?;
        cuts.push((name, path, cut));
    }
    let mut rest = Vec::new();
    let mut object = Object::begin(&mut rest);
    object
        .put("exit_code", &report.exit_code)
        .put("execution_time_ms", &(report.duration.as_millis() as u64));
    if report.timed_out {
        object.put("timed_out", &true);
    }
    if let Some(stop) = report.stopped {
        object.put("interrupted", stop.name());
    }
    for (name, path, cut) in cuts.into_iter().filter(|(_, _, cut)| cut.leaves_out()) {
        object
            .put(&format!("{name}_truncated"), &true)
            .put(&format!("{name}_bytes"), &cut.len)
            .put(&format!("{name}_file"), &path.to_string_lossy());
    }
    if !report.notes.is_empty() {
        object.put("notes", &report.notes);
    }
    object.end();
    // The object continues after the two streams.
    let members = &rest[1..];
    let written = out.write_all(b",").and_then(|()| out.write_all(members));
    ignore_closed_pipe(
        written
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.flush()),
    )?;
    let exit = report.stopped.map_or(Exit::Success, Exit::from);
    Ok(exit.code())
}

fn pass_through(report: &ExecReport) -> Result<u8> {
    let copy = |path: &Path, to: &mut dyn Write| -> Result<()> {
        let mut file = files::open_regular(path)?;
        ignore_closed_pipe(io::copy(&mut file, to).and_then(|_| to.flush()))
    };
    copy(&report.stdout, &mut io::stdout().lock())?;
    copy(&report.stderr, &mut io::stderr().lock())?;
    for note in &report.notes {
        may_fail(writeln!(io::stderr(), "{PROGRAM}: {note}"));
    }
    // An exit code is at most 255, a signal's at most 128+64.
    let code = u8::try_from(report.exit_code).unwrap_or(Exit::Failure.code());
    Ok(report.stopped.map_or(code, |stop| Exit::from(stop).code()))
}

/// A closed pipe is not an error.
fn ignore_closed_pipe(written: io::Result<()>) -> Result<()> {
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.at("write", Path::new("standard output")),
    }
}
