//! `delta due`: the runs that wait for a time that has come, and another start of each.
//!
//! Architecture invariant: what it starts, it takes from the registry alone, and only for a run that was made here and
//! is the one that was registered. Nothing in a workspace is obeyed.

use crate::cli::agent_names::built_in_of;
use crate::engine::due::{self, DueEntry};
use crate::error::{At, Error, Exit, Result, ignore, reason};
use crate::record::run_dir::RunDir;
use crate::record::state::is_set_back;
use crate::record::workspace::Workspace;
use crate::runs::inspect::inspect_run;
use crate::runs::origin::foreign_reason;
use crate::runs::preflight::install_signals;
use crate::runs::waiting::obstacle;
use crate::text::ids::RunId;
use crate::text::json;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::ParsedCommand;
use crate::text::order::sort_by;
use crate::text::table::{Column, Table};
use crate::text::timestamp::{Timestamp, date_and_time};
use crate::unix::files;
use crate::unix::own_program::own_program;
use crate::unix::signals::{Signals, Stop};
use crate::unix::terminal::{Screen, Tone, painted_table, print, print_json, warn};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// An entry and its file.
struct DueRun {
    path: PathBuf,
    entry: DueEntry,
    due_at: Timestamp,
}

pub(crate) fn due_runs(given: &ParsedCommand) -> Result<Exit> {
    let (all, run) = (given.has("--all"), given.has("--run"));
    let wrong = if all && run {
        "--all and --run contradict each other: what is not due is not started"
    } else if given.has("--format") && run {
        "--format and --run contradict each other: runs print their results"
    } else if given.has("--jobs") && !run {
        "-j needs --run"
    } else {
        ""
    };
    if !wrong.is_empty() {
        return Err(Error::usage(wrong));
    }
    let now = Timestamp::now();
    let mut found = read_all()?;
    if !all {
        found.retain(|found| found.due_at <= now || is_from_the_future(&found.entry, now));
        found.retain(|found| !found.entry.held);
        found.retain(|found| !is_dropped(found));
    }
    match (run, given.format()) {
        (true, _) => run_all(found, given.number("--jobs").unwrap_or(1)),
        (false, OutputFormat::Json) => {
            let values: Vec<Value> = found.iter().map(object).collect();
            print_json(format!("{}\n", json::text(&values)))?;
            Ok(Exit::Success)
        }
        (false, OutputFormat::Text) => {
            if !found.is_empty() {
                print(table(&found))?;
            }
            Ok(Exit::Success)
        }
    }
}

/// True for an entry that was written before the clock was set back. Its run decides what to look at.
fn is_from_the_future(entry: &DueEntry, now: Timestamp) -> bool {
    Timestamp::parse(&entry.registered_at).is_some_and(|time| is_set_back(now, time))
}

/// All entries, the earliest first. What is no entry is warned of.
fn read_all() -> Result<Vec<DueRun>> {
    let mut all = Vec::new();
    for path in due::paths()? {
        match due::read(&path).if_there() {
            Ok(Some(entry)) => {
                // A time that cannot be read has come.
                let due_at = Timestamp::parse(&entry.due_at).unwrap_or(Timestamp::from_millis(0));
                all.push(DueRun {
                    path,
                    entry,
                    due_at,
                });
            }
            Ok(None) => {}
            Err(e) => {
                let (path, why) = (path.display(), reason(&e));
                warn(&format!("warning: {path} is skipped: {why}"));
            }
        }
    }
    sort_by(&mut all, |a, b| {
        (a.due_at, &a.path).cmp(&(b.due_at, &b.path))
    });
    Ok(all)
}

/// Removes an entry whose run is not there to be started any more. Returns whether it has.
fn is_dropped(found: &DueRun) -> bool {
    let DueRun { path, entry, .. } = found;
    match reason_to_drop(entry) {
        Ok(None) => false,
        Ok(Some(why)) => {
            warn(&format!("dropped run {}: {why}", entry.run_id));
            ignore(files::remove(path));
            true
        }
        Err(error) => {
            warn(&format!(
                "warning: run {} is skipped: {error}",
                entry.run_id
            ));
            true
        }
    }
}

/// The reason why a run is not started any more; absent if it is started, or live.
fn reason_to_drop(entry: &DueEntry) -> Result<Option<String>> {
    let drops = |why: &str| Ok(Some(why.to_owned()));
    let Ok(id) = RunId::parse(&entry.run_id) else {
        return drops("it has no valid run id");
    };
    let place = entry.workspace.join(".delta").join(id.as_str());
    match place.symlink_metadata() {
        Err(e) if is_absent(&e) => return drops("it is gone"),
        found => found.at("look at", &place)?,
    };
    let workspace = Workspace::at(&entry.workspace)?;
    if workspace.root != entry.workspace {
        return drops("a symbolic link leads to another workspace");
    }
    let run = RunDir::of(&workspace, &id);
    for dir in [&workspace.control, &run.path] {
        if let Some(reason) = foreign_reason(dir)? {
            return Ok(Some(format!("{} {reason}", dir.display())));
        }
    }
    let metadata = inspect_run(&run)?.metadata;
    let agent = Path::new(&metadata.agent_home);
    if metadata.has_ended() {
        drops("it has ended")
    } else if metadata.flow.is_some() != entry.is_flow || agent != entry.agent {
        drops("it is a run of another agent")
    } else {
        let is_built_in = built_in_of(&entry.agent).is_some();
        Ok(obstacle(&entry.agent, &workspace, is_built_in))
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// A run that was started.
struct Started {
    child: Child,
    path: PathBuf,
    entry: DueEntry,
    /// Keeps other processes from starting it, too.
    _claim: File,
}

impl Started {
    /// Puts the next look off after a start that has registered nothing. A signal to this command changes no entry.
    fn note_end(&self, code: Option<i32>, is_stopped: bool) -> Result<()> {
        let Ok(now) = due::read(&self.path) else {
            return Ok(());
        };
        if is_stopped && (now.held || now.tries > self.entry.tries) {
            return self.entry.write(&self.path);
        }
        if is_stopped || now != self.entry || code == Some(0) {
            return Ok(());
        }
        let status = code.and_then(|code| u8::try_from(code).ok());
        now.after(status).write(&self.path)
    }
}

/// Starts runs, at most so many at once, and waits for them.
fn run_all(found: Vec<DueRun>, jobs: usize) -> Result<Exit> {
    let signals = install_signals()?;
    let mut waiting = found.into_iter();
    let mut started: Vec<Started> = Vec::new();
    let mut is_good = true;
    let mut stop: Option<Stop> = None;
    loop {
        if stop.is_none() {
            stop = signals.stop();
            if let Some(stop) = stop {
                pass_on(&started, stop);
            }
        }
        while stop.is_none() && started.len() < jobs {
            let Some(next) = waiting.next() else { break };
            match start(&next) {
                Ok(child) => started.extend(child),
                Err(error) => {
                    warn(&format!("run {}: {error}", next.entry.run_id));
                    is_good = false;
                }
            }
        }
        let ended = take_ended(&mut started)?;
        let is_idle = ended.is_empty();
        for (run, status) in ended {
            let code = status.code();
            if let Err(error) = run.note_end(code, stop.is_some()) {
                warn(&format!("warning: run {}: {error}", run.entry.run_id));
            }
            let is_expected = matches!(code, Some(0 | 75 | 101 | 4));
            is_good &= is_expected;
            let how = code.map_or_else(|| status.to_string(), |code| format!("exit code {code}"));
            let tone = if is_expected { Tone::Good } else { Tone::Bad };
            let pieces = [
                (Tone::Dim, "run "),
                (Tone::Said, &*run.entry.run_id),
                (tone, &*format!("  {how}")),
            ];
            Screen::new(false, false).progress(&pieces);
        }
        if started.is_empty() && (stop.is_some() || waiting.len() == 0) {
            break;
        }
        if is_idle {
            await_change(&signals)?;
        }
    }
    match (stop, is_good) {
        (Some(stop), _) => Err(Error::from(stop)),
        (None, true) => Ok(Exit::Success),
        (None, false) => Ok(Exit::Failure),
    }
}

/// Waits for the end of a child, or for a signal.
fn await_change(signals: &Signals) -> Result<()> {
    let waited = signals.wait(None, None);
    waited.map(drop).at("wait for", "the runs".as_ref())
}

fn take_ended(started: &mut Vec<Started>) -> Result<Vec<(Started, ExitStatus)>> {
    let mut ended = Vec::new();
    let mut at = 0;
    while at < started.len() {
        match started[at]
            .child
            .try_wait()
            .at("wait for", "a run".as_ref())?
        {
            Some(status) => ended.push((started.swap_remove(at), status)),
            None => at += 1,
        }
    }
    Ok(ended)
}

fn pass_on(started: &[Started], stop: Stop) {
    let signal = match stop {
        Stop::Interrupt => Signal::INT,
        Stop::Hangup => Signal::HUP,
        Stop::Terminate | Stop::Deadline => Signal::TERM,
    };
    for run in started {
        if let Some(group) = Pid::from_raw(run.child.id().cast_signed()) {
            ignore(kill_process_group(group, signal));
        }
    }
}

/// Starts a run, unless another process has done so or it has left the registry.
fn start(found: &DueRun) -> Result<Option<Started>> {
    let Some(claim) = claim(&found.path) else {
        return Ok(None);
    };
    let entry =
        due::read_from(claim.try_clone().at("open", &found.path)?).at("read", &found.path)?;
    if entry != found.entry || reason_to_drop(&entry)?.is_some() {
        return Ok(None);
    }
    let child = Command::new(own_program())
        .args(words(&entry))
        .env_remove("DELTA_ADOPT")
        .current_dir(&entry.workspace)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .at("start", "delta".as_ref())?;
    Ok(Some(Started {
        child,
        path: found.path.clone(),
        entry,
        _claim: claim,
    }))
}

/// Locks the file of an entry. None if it is locked, gone, or another file by now.
fn claim(path: &Path) -> Option<File> {
    let file = files::open_unlinked(path).ok()?;
    let identity = |meta: &std::fs::Metadata| (meta.dev(), meta.ino());
    let is_there = || {
        let now = path.symlink_metadata().ok()?;
        Some(identity(&now) == identity(&file.metadata().ok()?))
    };
    let is_ours = file.try_lock().is_ok() && is_there() == Some(true);
    is_ours.then_some(file)
}

/// The command line of another start.
fn words(entry: &DueEntry) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (workspace, agent) = (text(&entry.workspace), text(&entry.agent));
    let mut words: Vec<String> = match entry.is_flow {
        true => ["flow", "run", &agent].map(str::to_owned).to_vec(),
        false => {
            // Its files are compared with the program's own bytes.
            let built_in = built_in_of(&entry.agent).map(|it| format!("@{}", it.name));
            let agent = built_in.unwrap_or(agent);
            ["continue", "-a", &agent].map(str::to_owned).to_vec()
        }
    };
    words.extend(["-w", &workspace, "--run-id", &entry.run_id, "-q"].map(str::to_owned));
    words.extend(entry.options.iter().cloned());
    words
}

fn object(found: &DueRun) -> Value {
    let DueEntry {
        run_id,
        workspace,
        agent,
        is_flow,
        due_at,
        registered_at,
        options,
        held,
        tries: _,
    } = &found.entry;
    let mut object = json!({
        "run_id": run_id,
        "workspace": workspace,
        "agent": agent,
        "flow": is_flow,
        "due_at": due_at,
        "registered_at": registered_at,
        "options": options,
    });
    if *held {
        object["held"] = true.into();
    }
    object
}

fn table(found: &[DueRun]) -> String {
    const HEAD: [(&str, Column); 4] = [
        ("DUE (UTC)", Column::Name),
        ("RUN", Column::Name),
        ("WORKSPACE", Column::Name),
        ("AGENT", Column::Text),
    ];
    let mut table = Table::with_head(&HEAD);
    table.rows.extend(found.iter().map(|found| {
        let entry = &found.entry;
        vec![
            if entry.held {
                "held".to_owned()
            } else {
                date_and_time(&entry.due_at)
            },
            entry.run_id.clone(),
            entry.workspace.display().to_string(),
            entry.agent.display().to_string(),
        ]
    }));
    painted_table(&table, |_, column| match column {
        1 | 2 => Tone::Said,
        _ => Tone::Dim,
    })
}
