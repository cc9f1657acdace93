//! A server that is a program: one JSON object a line on its standard streams.
//!
//! Unaware of what the messages say. The program leads a session of its own, and dies with this process.

use super::protocol::{Outgoing, Reply, Revision, cancelled, effect_of};
use super::reading::Reader;
use super::servers::{Launch, Secrets, Transport};
use crate::config::environment::Environment;
use crate::error::{Error, Exit, Result, ignore, reason};
use crate::model::http::LONGEST_STREAM;
use crate::text::disguise::{indented, printable};
use crate::text::shorten::in_short;
use crate::unix::own_program::own_program;
use crate::unix::process::{Children, Command, Ended, GRACE, Token, Woken, end_leftovers};
use crate::unix::procfs::new_call_id;
use crate::unix::signals::Signals;
use crate::unix::supervisor::{await_keeper, run_in_session};
use crate::unix::terminal::Screen;
use memchr::memchr;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

/// The hidden command that a server is started through.
pub(crate) const SERVER_COMMAND: &str = "mcp-server";

/// The time that a server has to end once its standard input is closed.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time that a server has to take a notification.
const NOTIFIED: Duration = Duration::from_secs(60);

/// The most bytes that are kept of a server's messages on stderr.
const LAST_WORDS: usize = 4096;

/// A running server.
pub(super) struct StdioServer<'s> {
    signals: &'s Signals,
    children: Children<'s>,
    token: Token,
    call_id: String,
    program: String,
    /// None once it is closed.
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// Output that has not been looked at.
    unread: Vec<u8>,
    /// The length of the part of `unread` that holds no end of a line.
    searched: usize,
    /// The end of what came on stderr.
    last_words: Vec<u8>,
    reader: Reader,
    /// A warning about the request that is waited for.
    effect: &'static str,
    has_warned: bool,
}

/// Becomes the server's supervisor: `arguments` are the process id of the client and the server's argv.
pub(crate) fn run_server(arguments: Vec<OsString>) -> Result<u8> {
    let mut words = arguments.into_iter();
    let client = words.next().and_then(|pid| pid.to_str()?.parse().ok());
    let Some((client, program)) = client.zip(words.next()) else {
        return Err(Error::usage(format!("{SERVER_COMMAND}: for delta itself")));
    };
    ignore(set_parent_process_death_signal(Some(Signal::KILL)));
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(client) {
        return Err(Error::new(Exit::Terminate, "the client is gone"));
    }
    run_in_session(
        |_, _| None,
        |keeper| {
            await_keeper(keeper);
            let error = std::process::Command::new(&program).args(words).exec();
            let exit = match error.kind() {
                std::io::ErrorKind::NotFound => Exit::NotFound,
                _ => Exit::NotExecutable,
            };
            Error::new(exit, format!("{}: {}", program.display(), reason(&error)))
        },
        None::<fn(usize) -> bool>,
    )
}

impl<'s> StdioServer<'s> {
    pub(super) fn start(argv: &[String], launch: &Launch<'s>) -> Result<Self> {
        let signals = &**launch.signals;
        let argv = launch.argv(argv);
        let program = argv[0].clone();
        let client = std::process::id().to_string();
        let mut words = vec![own_program(), SERVER_COMMAND.to_owned(), client];
        words.extend(argv);
        let given = launch.server.program_variables()?;
        let mut env = Environment::default().for_child(false);
        env.retain(|(name, _)| given.iter().all(|(other, _)| other != name));
        env.extend(given);
        let cwd = launch.server.cwd.as_ref().map(|cwd| launch.home.join(cwd));
        if let Some(dir) = cwd.as_ref().filter(|dir| !dir.is_dir()) {
            let dir = dir.display();
            return Err(Error::config(format!("{program}: cwd: no directory {dir}")));
        }
        let (stdin, ours_in) = pipe()?;
        let (ours_out, stdout) = pipe()?;
        let (ours_err, stderr) = pipe()?;
        for end in [&ours_in, &ours_out, &ours_err] {
            rustix::io::ioctl_fionbio(end, true).map_err(|e| no_pipe(&e.into()))?;
        }
        let call_id = new_call_id();
        let mut children = Children::new(signals);
        let command = Command {
            argv: &words,
            dir: cwd.as_ref().unwrap_or(&launch.dir),
            env: &env,
            call_id: &call_id,
            stdin: Some(File::from(stdin)),
            stdout: File::from(stdout),
            stderr: File::from(stderr),
            timeout: None,
        };
        let token = children.spawn(command);
        Ok(Self {
            signals,
            children,
            token: token.map_err(|error| Error::failure(error.message(&program)))?,
            call_id,
            program,
            stdin: Some(ours_in),
            stdout: Some(ours_out),
            stderr: Some(ours_err),
            unread: Vec::new(),
            searched: 0,
            last_words: Vec::new(),
            reader: Reader::of(&launch.server),
            effect: "",
            has_warned: false,
        })
    }

    fn converse(&mut self, id: u64, message: &Outgoing, until: Option<Instant>) -> Result<Reply> {
        let is_over = || until.is_some_and(|until| Instant::now() >= until);
        self.effect = effect_of(&message.method);
        self.send(&message.text, until)?;
        while !is_over() {
            while let Some(mut line) = self.take_line() {
                let mut reading = self.reader.read(&mut line);
                for refusal in reading.refusals() {
                    self.send(&refusal, until)?;
                }
                let is_junk = reading.messages.is_empty();
                // Others came too late.
                if let Some(answer) = reading.answer_to(id, &line) {
                    return Ok(answer);
                }
                if is_junk {
                    self.warn_of_junk(&line);
                }
            }
            self.step(&mut &[][..], until)?;
        }
        ignore(self.send(&cancelled(id).to_string(), Some(Instant::now() + PATIENCE)));
        Ok(Reply::Silence)
    }

    /// Sends a message. One that the server does not take in time is left.
    fn send(&mut self, message: &str, until: Option<Instant>) -> Result<()> {
        let line = format!("{message}\n");
        let mut pending = line.as_bytes();
        while !pending.is_empty() && until.is_none_or(|until| Instant::now() < until) {
            self.step(&mut pending, until)?;
        }
        Ok(())
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = match memchr(b'\n', &self.unread[self.searched..]) {
            Some(at) => self.searched + at + 1,
            // The last line may lack its end.
            None if self.stdout.is_none() && !self.unread.is_empty() => self.unread.len(),
            None => {
                self.searched = self.unread.len();
                return None;
            }
        };
        let rest = self.unread.split_off(end);
        self.searched = 0;
        Some(std::mem::replace(&mut self.unread, rest))
    }

    fn warn_of_junk(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line.trim_ascii());
        if !text.is_empty() && !std::mem::replace(&mut self.has_warned, true) {
            let shown = printable(&in_short(&text, 80));
            let message =
                format!("the server printed something other than a message on stdout: {shown}");
            Screen::new(false, false).warn(&message);
        }
    }

    /// Waits until something can be read or written, and does it.
    fn step(&mut self, pending: &mut &[u8], until: Option<Instant>) -> Result<()> {
        if let Some(stop) = self.signals.stop() {
            return Err(stop.into());
        }
        if self.stdout.is_none() && self.unread.is_empty() {
            return Err(self.report_end());
        }
        let mut fds = Vec::with_capacity(3);
        fds.extend(self.stdout.iter().map(|fd| (fd.as_fd(), PollFlags::IN)));
        fds.extend(self.stderr.iter().map(|fd| (fd.as_fd(), PollFlags::IN)));
        if !pending.is_empty() {
            fds.extend(self.stdin.iter().map(|fd| (fd.as_fd(), PollFlags::OUT)));
        }
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        self.signals
            .wait_for_any(&fds, timeout)
            .map_err(|e| lost(&e))?;
        drain(&mut self.stderr, &mut self.last_words)?;
        let excess = self.last_words.len().saturating_sub(LAST_WORDS);
        self.last_words.drain(..excess);
        drain(&mut self.stdout, &mut self.unread)?;
        if self.unread.len() > LONGEST_STREAM && memchr(b'\n', &self.unread).is_none() {
            let size = LONGEST_STREAM >> 20;
            return Err(Error::failure(format!(
                "the server sent a line of more than {size} MiB"
            )));
        }
        let Some(stdin) = self.stdin.as_ref().filter(|_| !pending.is_empty()) else {
            return Ok(());
        };
        match rustix::io::write(stdin, pending) {
            Ok(written) => *pending = &pending[written..],
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Why it ended is known once its stdout has ended, too.
            Err(Errno::PIPE) => *pending = &[],
            Err(errno) => return Err(lost(&errno.into())),
        }
        Ok(())
    }

    /// The error of a server that has closed its stdout before its answer.
    fn report_end(&mut self) -> Error {
        let until = Instant::now() + PATIENCE;
        let how = match self.children.wait(Some(until)) {
            Ok(Woken::Ended(_, outcome)) => match outcome.how {
                Ended::Exited(code) => format!("ended with exit code {code}"),
                Ended::TimedOut | Ended::Interrupted(_) => "was ended".to_owned(),
            },
            Ok(Woken::Stopped(stop)) => return stop.into(),
            _ => "closed its output".to_owned(),
        };
        ignore(drain(&mut self.stderr, &mut self.last_words));
        self.reader.secrets.redact(&mut self.last_words);
        let start = self.last_words.len().saturating_sub(LAST_WORDS);
        let words = String::from_utf8_lossy(&self.last_words[start..]);
        let said = match words.trim() {
            "" => String::new(),
            words => format!("; its last words were:\n  {}", indented(words)),
        };
        let (program, effect) = (&self.program, self.effect);
        Error::failure(format!("the server {program} {how}{effect}{said}"))
    }
}

impl Transport for StdioServer<'_> {
    fn exchange(
        &mut self,
        id: u64,
        message: &Outgoing,
        _: Revision,
        patience: Option<Duration>,
    ) -> Result<Reply> {
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        self.converse(id, message, until)
            .or_else(|error| Ok(Reply::Lost(error)))
    }

    fn notify(&mut self, message: &Outgoing, _: Revision) -> Result<()> {
        self.send(&message.text, Some(Instant::now() + NOTIFIED))
    }

    fn status(&self) -> Option<u16> {
        None
    }

    fn secrets(&self) -> &Secrets {
        &self.reader.secrets
    }

    /// Closes its stdin and waits for its end, which comes at the latest after SIGKILL. Nothing is left of it.
    fn end(mut self: Box<Self>) {
        self.stdin = None;
        let mut until = Instant::now() + PATIENCE;
        while !self.children.is_empty() {
            if self.signals.stop().is_some() {
                self.children.interrupt(self.token, GRACE);
            }
            // What it prints must not keep it.
            self.stdout = None;
            self.stderr = None;
            match self.children.wait(Some(until)) {
                Ok(Woken::Ended(..)) | Err(_) => break,
                Ok(Woken::Stopped(_) | Woken::Deadline) => {
                    self.children.interrupt(self.token, GRACE);
                    until = Instant::now() + GRACE + PATIENCE;
                }
                Ok(Woken::Suspended) => {}
            }
        }
        end_leftovers(&self.call_id);
    }
}

/// Reads what there is, and closes what has ended.
fn drain(fd: &mut Option<OwnedFd>, into: &mut Vec<u8>) -> Result<()> {
    let Some(open) = fd else { return Ok(()) };
    let mut buffer = [0; 1 << 14];
    match rustix::io::read(&*open, &mut buffer) {
        Ok(0) => *fd = None,
        Ok(read) => into.extend_from_slice(&buffer[..read]),
        Err(Errno::AGAIN | Errno::INTR) => {}
        Err(errno) => return Err(lost(&errno.into())),
    }
    Ok(())
}

/// The end to read from, and the end to write to.
fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = std::io::pipe().map_err(|e| no_pipe(&e))?;
    Ok((reader.into(), writer.into()))
}

fn no_pipe(cause: &std::io::Error) -> Error {
    Error::failure(format!("cannot make a pipe: {}", reason(cause)))
}

fn lost(cause: &std::io::Error) -> Error {
    Error::failure(format!("the server's streams: {}", reason(cause)))
}
