//! `delta sessions` as a whole: from the command line to the exit code.
//!
//! Results are JSON on standard output, errors included; usage errors are one line on standard error.

use crate::VERSION;
use crate::error::{At, Error, Exit, Result, ignore};
use crate::sessions::complete;
use crate::sessions::end::{end_session, remove_sessions};
use crate::sessions::exec::{ExecReport, exec_text};
use crate::sessions::output_cut::{OutputCut, write_text};
use crate::sessions::session::{Session, SessionMetadata};
use crate::sessions::shell::ShellKind;
use crate::sessions::start::start_session;
use crate::sessions::store::SessionStore;
use crate::sessions::tables::SESSIONS;
use crate::text::json::{self, Object};
use crate::text::options::completion;
use crate::text::options::parse::{CommandLine, ParsedCommand, parse_line};
use crate::text::options::short_help::help_text;
use crate::text::order;
use crate::unix::defect::exit_at_panic;
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::signals::Signals;
use crate::unix::terminal::{print, print_error, print_json};
use std::ffi::OsString;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

const PROGRAM: &str = "delta-sessions";

/// `--max-bytes`, when it is not given: how much of each stream is printed; 0: all.
const MAX_BYTES: u64 = 30_000;

/// The form in which an error is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ErrorStyle {
    Json,
    Text,
}

pub(crate) fn main(words: Vec<OsString>) -> u8 {
    exit_at_panic(|| {
        let message = "this is a defect in delta-sessions; the session keeps its last state";
        print_failure(&Error::new(Exit::Software, message), ErrorStyle::Json);
    });
    execute(words).unwrap_or_else(|(error, style)| {
        print_failure(&error, style);
        error.exit.code()
    })
}

fn print_failure(error: &Error, style: ErrorStyle) {
    match style {
        ErrorStyle::Json => ignore(print_object(|o| {
            o.put("error", &error.message);
        })),
        ErrorStyle::Text => print_error(PROGRAM, error),
    }
}

fn execute(words: Vec<OsString>) -> std::result::Result<u8, (Error, ErrorStyle)> {
    let line = parse(words).map_err(|error| (error, ErrorStyle::Text))?;
    let style = match &line {
        CommandLine::Command(given) if is_raw(given) => ErrorStyle::Text,
        _ => ErrorStyle::Json,
    };
    run(line).map_err(|error| (error, style))
}

/// Reads a command line, without the program's name.
///
/// # Errors
/// Wrong usage: exit code 2, with the nearest right word.
fn parse(words: Vec<OsString>) -> Result<CommandLine> {
    let line = parse_line(&SESSIONS, words)?;
    match &line {
        CommandLine::Raw(name, _) if *name != completion::COMMAND => Err(Error::usage(format!(
            "there is no command '{name}': sessions have no terminal; run commands with 'exec', \
             and programs that need a terminal as examples/terminal does, in tmux"
        ))),
        CommandLine::Command(given) if is_raw(given) && given.has("--max-bytes") => Err(
            Error::usage("--raw prints everything; leave --max-bytes out"),
        ),
        CommandLine::Command(given) if given.command.name == "start" => {
            let mut words = given.operands.iter();
            match words.find(|word| word.to_str().is_none()) {
                Some(word) => Err(Error::usage(format!("'{}' is not UTF-8", word.display()))),
                None => Ok(line),
            }
        }
        _ => Ok(line),
    }
}

fn is_raw(given: &ParsedCommand) -> bool {
    given.command.name == "exec" && given.has("--raw")
}

fn run(line: CommandLine) -> Result<u8> {
    match line {
        // The page is one for all commands.
        CommandLine::Help { command, full } => {
            print(help_text(&SESSIONS, command, full.then_some(PROGRAM)))?;
        }
        CommandLine::Version => print(format!("{PROGRAM} {VERSION}\n"))?,
        CommandLine::Raw(_, words) => complete::print_candidates(&words)?,
        CommandLine::Command(given) => return run_command(&given),
    }
    Ok(Exit::Success.code())
}

fn run_command(given: &ParsedCommand) -> Result<u8> {
    let dir = given
        .path("--sessions-dir")
        .unwrap_or_else(|| ".sessions".into());
    let mut store = SessionStore::open(&dir, given.has("--adopt"))?;
    let id = given.required_text(0);
    match given.command.name {
        "start" => {
            let mut words = given.operand_texts();
            if words.is_empty() {
                words.push("bash".to_owned());
            }
            let (session, metadata) = start_session(&mut store, &words, &catch_signals()?)?;
            print_started(&session, &metadata)?;
        }
        "exec" => {
            let session = store.open_session(&id)?;
            let text = match given.operands.get(1) {
                Some(text) => text.as_bytes().to_vec(),
                // Before signals are caught: reading from a terminal must end with Ctrl-C.
                None => read_stdin()?,
            };
            let millis = given.number("--timeout-ms").filter(|millis| *millis > 0);
            let timeout = millis.map(Duration::from_millis);
            let report = exec_text(&session, &text, timeout, &catch_signals()?)?;
            if is_raw(given) {
                return pass_through(&report);
            }
            return print_report(&report, given.number("--max-bytes").unwrap_or(MAX_BYTES));
        }
        "end" => {
            let session = store.open_session(&id)?;
            end_session(&session, &catch_signals()?)?;
            print_object(|o| {
                o.put("status", "terminated").put("session_id", &session.id);
            })?;
        }
        "list" => print_list(&store)?,
        _ => {
            let removed = remove_sessions(&store, &catch_signals()?)?;
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
    if text.len() as u64 > LARGEST_INPUT {
        return Err(Error::usage("standard input is longer than 256 MiB"));
    }
    Ok(text)
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
    order::sort_by_key(&mut sessions, |(metadata, _)| age(metadata));
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
    print_json(json::line(fill))
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
    let rest = json::object(|object| {
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
    });
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
        ignore(writeln!(io::stderr(), "{PROGRAM}: {note}"));
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
