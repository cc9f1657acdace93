//! `delta-flow observe`: gives the events of a run to a program, as its engine records them.
//!
//! A process of its own, which only reads the journal: however slow the program is, no engine waits for it. The offset
//! after what the program has read is kept, so that each event is given at least once, and in order.
//!
//! Also starts the observers of `plugins.yaml`. Unaware of what they do with the events.

use crate::engine::run_context::{ENGINE_PID, RunContext};
use crate::error::{At, Error, Exit, Result};
use crate::flow::PROGRAM;
use crate::flow::engine::credentials::Credentials;
use crate::flow::manifest::glob::Glob;
use crate::flow::manifest::plugin::Plugin;
use crate::flow::manifest::{Flow, is_id};
use crate::record::event::Recorded;
use crate::record::reader::{read_event, split_lines};
use crate::record::run_dir::{FLOW_RUN, RunDir};
use crate::runs::find;
use crate::runs::inspect::is_live;
use crate::runs::origin::require_own_run;
use crate::runs::preflight::install_signals;
use crate::text::digest::sha256;
use crate::text::options::parse::ParsedCommand;
use crate::unix::files;
use crate::unix::own_program::own_program;
use crate::unix::process::{self, Children, Command, GRACE, Token, Variable, Woken};
use crate::unix::signals::Signals;
use crate::unix::terminal::Screen;
use rustix::fd::{AsFd, OwnedFd};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time after the end of a run in which more of it is waited for.
const AFTERLIFE: Duration = Duration::from_secs(10);

/// The time between two looks at the journal, and at what the program has read.
const PERIOD: Duration = Duration::from_millis(200);

/// Bytes that the program is given at once: no more than a pipe holds.
const BATCH: usize = 32 << 10;

/// The file with the offset after the last event that was taken, in the observer's directory.
const OFFSET: &str = "offset";

/// Starts the observers of a flow for a run whose engine is about to work. None is waited for, and one that cannot be
/// started is only reported.
pub(crate) fn start_observers(flow: &Flow, run: &RunDir, workspace: &Path, screen: Screen) {
    let mut env = Credentials::new(flow).hidden;
    let text = |path: &Path| Some(path.to_string_lossy().into_owned());
    env.extend([
        ("FLOW_HOME".to_owned(), text(&flow.home)),
        ("CWD".to_owned(), text(workspace)),
        // It goes on when this engine has ended.
        (ENGINE_PID.to_owned(), None),
    ]);
    for plugin in &flow.plugins {
        let argv = plugin.command.argv(&flow.home, workspace);
        if let Err(error) = start_observer(plugin, &argv, run, workspace, &env) {
            let (id, why) = (&plugin.id, error.message);
            screen.warn_as(PROGRAM, &format!("warning: observer {id}: {why}"));
        }
    }
}

fn start_observer(
    plugin: &Plugin,
    command: &[String],
    run: &RunDir,
    workspace: &Path,
    env: &[Variable],
) -> Result<()> {
    let dir = observer_dir(run, &plugin.id)?;
    let path = run.path.to_string_lossy();
    let mut argv = vec![own_program()];
    argv.extend(["flow", "observe", &path, "--id", &plugin.id].map(str::to_owned));
    for glob in &plugin.events {
        argv.extend(["--events".to_owned(), glob.text.clone()]);
    }
    argv.push("--".to_owned());
    argv.extend_from_slice(command);
    let output = |name: &str| files::append(&dir.join(name));
    let (stdout, stderr) = (output("stdout.log")?, output("stderr.log")?);
    process::start_apart(&argv, workspace, env, stdout, stderr)
        .map_err(|error| Error::failure(error.message(&argv[0])))
}

/// The directory of an observer's records, made if it is not there. It may not be a link.
fn observer_dir(run: &RunDir, id: &str) -> Result<PathBuf> {
    files::make_dirs_below(&run.path, &Path::new("io/observers").join(id))
}

/// Runs the command, until the run has ended or the program has.
pub(crate) fn observe_run(given: &ParsedCommand) -> Result<Exit> {
    let run = given.first_before_dashes().map(OsStr::to_string_lossy);
    let argv = given.operand_texts().split_off(usize::from(run.is_some()));
    if argv.is_empty() || given.count_before_dashes() > 1 {
        let message = "observe: give the program behind --: observe RUN -- PROGRAM";
        return Err(Error::usage(message));
    }
    let patterns = given.texts("--events");
    let id = match given.text("--id") {
        Some(id) if !is_id(&id) => {
            return Err(Error::usage(format!(
                "--id: {id:?}: 1 to 64 letters, digits, '_', '.' and '-' make an id"
            )));
        }
        Some(id) => id,
        // The same for the same command and patterns.
        None => {
            let words = [argv.join("\0"), patterns.join("\0")].join("\n");
            format!("by-hand-{}", &sha256(words.as_bytes())[..10])
        }
    };
    let run = find::find_run_or_newest(&given.work_dir(), run.as_deref())?;
    require_own_run(&run, false)?;
    let parse = |text: &String| {
        Glob::parse(text)
            .map_err(|why| Error::usage(format!("--events: the pattern {text:?} {why}")))
    };
    let events: Vec<Glob> = patterns.iter().map(parse).collect::<Result<_>>()?;
    let dir = observer_dir(&run, &id)?;
    let lock = files::append(&dir.join("lock"))?;
    let signals = install_signals()?;
    while lock.try_lock().is_ok() {
        let mut observer = Observer::begin(&run, &events, &dir, &argv, &signals)?;
        let followed = observer.follow();
        let over = observer.end()?;
        followed?;
        let seen = observer.seen;
        lock.unlock().at("unlock", &dir)?;
        // An engine that went on in this moment has started an observer that found the lock taken.
        match over {
            Some(exit) => return Ok(exit),
            None if journal_len(&run) <= seen => break,
            None => {}
        }
    }
    Ok(Exit::Success)
}

fn journal_len(run: &RunDir) -> u64 {
    run.journal().metadata().map_or(0, |meta| meta.len())
}

/// A program and what it has been given.
struct Observer<'o> {
    run: &'o RunDir,
    events: &'o [Glob],
    dir: &'o Path,
    children: Children<'o>,
    program: Token,
    stdin: Option<PipeWriter>,
    /// The end of the last line that was taken or passed over.
    offset: u64,
    /// The length of the journal when no more of it was waited for.
    seen: u64,
    /// The last line that was read is an end of the engine.
    at_end: bool,
    /// Since when the run has had no more.
    quiet_since: Option<Instant>,
    /// The end of the program, or the signal that asks to end.
    over: Option<Exit>,
}

impl<'o> Observer<'o> {
    /// Starts the program, to be given what comes after the offset that is kept.
    fn begin(
        run: &'o RunDir,
        events: &'o [Glob],
        dir: &'o Path,
        argv: &[String],
        signals: &'o Signals,
    ) -> Result<Self> {
        let (stdin, ours) = io::pipe().at("create", dir)?;
        rustix::io::ioctl_fionbio(&ours, true)
            .map_err(io::Error::from)
            .at("create", dir)?;
        let root = run.workspace().unwrap_or(&run.path);
        let [root_text, path] = [root, &run.path].map(|it| it.to_string_lossy().into_owned());
        let id = run.id.to_string();
        let env = [
            (FLOW_RUN, id.clone()),
            ("FLOW_WORKSPACE", root_text),
            ("DELTA_RUN_ID", id),
            ("DELTA_RUN_DIR", path),
        ];
        let [stdout, stderr] = process::own_output().at("open", dir)?;
        let mut children = Children::new(signals);
        let program = children
            .spawn(Command {
                argv,
                dir: root,
                env: &env.map(|(name, value)| (name.to_owned(), Some(value))),
                call_id: &RunContext::new_call_id(),
                stdin: Some(File::from(OwnedFd::from(stdin))),
                stdout,
                stderr,
                timeout: None,
            })
            .map_err(|error| Error::new(exit_of(error.code()), error.message(&argv[0])))?;
        let kept = files::read_line(&dir.join(OFFSET));
        let offset = kept.and_then(|line| line.parse().ok()).unwrap_or(0);
        Ok(Self {
            run,
            events,
            dir,
            children,
            program,
            stdin: Some(ours),
            offset,
            seen: offset,
            at_end: false,
            quiet_since: None,
            over: None,
        })
    }

    /// Gives the program one batch after the other, until it has ended or the run has no more.
    fn follow(&mut self) -> Result<()> {
        let journal = self.run.journal();
        while self.over.is_none() {
            let taken = self.offset;
            if self.stdin.is_some() {
                let (start, lines) = read_tail(&journal, self.offset)?;
                self.give_lines(start, &lines)?;
            }
            if self.offset != taken {
                self.quiet_since = None;
            } else if self.over.is_some() || self.is_over() {
                break;
            } else {
                self.rest(PERIOD)?;
            }
        }
        Ok(())
    }

    /// Gives the program whole lines of the journal that begin at an offset.
    fn give_lines(&mut self, start: u64, lines: &[u8]) -> Result<()> {
        let mut batch = Vec::new();
        for (at, line) in split_lines(lines) {
            let end = at + line.len() + 1;
            if let Ok(event) = read_event(line.trim_ascii(), 0) {
                self.at_end = matches!(event.event, Recorded::EngineEnd(_));
                let kind = event.kind.name();
                if self.events.is_empty() || self.events.iter().any(|glob| glob.fits(kind)) {
                    batch.extend_from_slice(line.trim_ascii());
                    batch.push(b'\n');
                }
            }
            if batch.len() >= BATCH || end == lines.len() {
                if !self.give_batch(&batch, start + end as u64)? {
                    break;
                }
                batch.clear();
            }
        }
        Ok(())
    }

    /// Gives the program events and waits until it has read them. Returns whether it has.
    fn give_batch(&mut self, batch: &[u8], end: u64) -> Result<bool> {
        let mut pending = batch;
        let mut pause = Duration::from_millis(1);
        while let Some(stdin) = &mut self.stdin {
            let unread = match stdin.write(pending) {
                Ok(written) => {
                    pending = &pending[written..];
                    // Where the system cannot say it, what is in the pipe counts as read.
                    pending.len() as u64 + rustix::io::ioctl_fionread(stdin.as_fd()).unwrap_or(0)
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => u64::MAX,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                // It reads no more; how it ends is waited for.
                Err(_) => {
                    self.stdin = None;
                    break;
                }
            };
            if unread == 0 {
                self.offset = end;
                files::replace(&self.dir.join(OFFSET), format!("{end}\n").as_bytes())?;
                return Ok(true);
            }
            if self.over.is_some() || self.is_over() {
                // A part of it may have been read: it is given again, to the next program.
                self.stdin = None;
                break;
            }
            self.rest(pause)?;
            pause = (2 * pause).min(PERIOD);
        }
        Ok(false)
    }

    /// True if the run has ended, or has had no engine, for so long that the observer stops waiting.
    fn is_over(&mut self) -> bool {
        // Before the lock: what an engine that takes it writes is not yet part of this.
        self.seen = journal_len(self.run);
        let is_ended = self.at_end && self.seen == self.offset;
        if !is_ended && is_live(self.run) {
            self.quiet_since = None;
            return false;
        }
        self.quiet_since.get_or_insert_with(Instant::now).elapsed() >= AFTERLIFE
    }

    /// Waits a moment, or until the program has ended or a signal has come.
    fn rest(&mut self, pause: Duration) -> Result<()> {
        let until = Instant::now() + pause;
        let woken = self.children.wait(Some(until)).at("wait for", self.dir)?;
        match woken {
            Woken::Ended(_, outcome) => self.over = Some(exit_of(outcome.how.code())),
            Woken::Stopped(stop) => self.over = Some(stop.into()),
            Woken::Suspended | Woken::Deadline => {}
        }
        Ok(())
    }

    /// Closes the program's standard input, and ends it if that does not. Returns how it ended, if not because the
    /// run is over.
    fn end(&mut self) -> Result<Option<Exit>> {
        self.stdin = None;
        let mut until = Instant::now() + GRACE;
        if self.over.is_some() {
            self.children.interrupt(self.program, GRACE);
        }
        while !self.children.is_empty() {
            match self.children.wait(Some(until)).at("wait for", self.dir)? {
                Woken::Ended(..) => break,
                Woken::Suspended => {}
                Woken::Stopped(_) | Woken::Deadline => {
                    self.children.interrupt(self.program, GRACE);
                    until = Instant::now() + 2 * GRACE;
                }
            }
        }
        Ok(self.over)
    }
}

/// Bytes of the journal that are read at once.
const CHUNK: usize = 256 << 10;

/// Reads the next whole lines from an offset on, with their place. A journal that has become shorter than that is read
/// from its beginning.
fn read_tail(journal: &Path, offset: u64) -> Result<(u64, Vec<u8>)> {
    let file = files::open_unlinked(journal).at("read", journal)?;
    let len = file.metadata().at("read", journal)?.len();
    let start = if len < offset { 0 } else { offset };
    let mut size = CHUNK;
    loop {
        let mut bytes = files::read_part(&file, start, size).at("read", journal)?;
        let end = memchr::memrchr(b'\n', &bytes).map_or(0, |last| last + 1);
        if end > 0 || bytes.len() < size {
            bytes.truncate(end);
            return Ok((start, bytes));
        }
        size *= 4;
    }
}

/// The exit code of a program as one of ours: what it is beside 0 does not matter.
fn exit_of(code: i32) -> Exit {
    match code {
        0 => Exit::Success,
        126 => Exit::NotExecutable,
        127 => Exit::NotFound,
        _ => Exit::Failure,
    }
}
