//! Starting the real binary and looking at how it ended.

use super::system::{PATIENCE, alive};
use super::terminal::Terminal;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

enum Input {
    Null,
    Bytes(Vec<u8>),
    Open,
    Terminal(File),
    /// Also for what it prints.
    All(File),
}

/// `PATH` with the system's programs before all others: what a version manager puts in place of `python3`
/// starts ten processes at each call.
pub fn system_path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    format!("/usr/local/bin:/usr/bin:/bin:{own}")
}

/// A command line of `delta` to be run in a clean environment: `PATH` and `HOME`, no key.
pub struct Delta {
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    input: Input,
    output: PathBuf,
}

impl Delta {
    /// `home` is the working directory too; what the program prints goes into files there.
    pub fn new(home: &Path) -> Self {
        Self::of(env!("CARGO_BIN_EXE_delta"), home)
    }

    /// The same for `delta flow`.
    pub fn flow(home: &Path) -> Self {
        Self::new(home).arg("flow")
    }

    /// The same for a program that lies elsewhere.
    pub fn of(program: impl AsRef<OsStr>, home: &Path) -> Self {
        let path = system_path();
        let name = |n: u32| home.join(format!(".output-{n}"));
        let output = (1..u32::MAX)
            .map(name)
            .find(|dir| fs::create_dir(dir).is_ok());
        Self {
            argv: vec![program.as_ref().into()],
            env: vec![("PATH".into(), path.into()), ("HOME".into(), home.into())],
            cwd: home.into(),
            input: Input::Null,
            output: output.expect("a directory for the output"),
        }
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.argv.push(arg.as_ref().into());
        self
    }

    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.argv
            .extend(args.into_iter().map(|arg| arg.as_ref().into()));
        self
    }

    pub fn json(self) -> Self {
        self.args(["--format", "json"])
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.retain(|(key, _)| key != name);
        self.env.push((name.into(), value.as_ref().into()));
        self
    }

    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = dir.into();
        self
    }

    /// Input that ends.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Input::Bytes(bytes.into());
        self
    }

    /// A pipe that stays open; see [`Running::type_in`].
    pub fn open_stdin(mut self) -> Self {
        self.input = Input::Open;
        self
    }

    /// With stdin and stderr at a terminal.
    pub fn at(mut self, terminal: &Terminal) -> Self {
        self.input = Input::Terminal(terminal.user());
        self
    }

    /// With stdin, stdout and stderr at a terminal.
    pub fn all_at(mut self, terminal: &Terminal) -> Self {
        self.input = Input::All(terminal.user());
        self
    }

    /// Runs after a line of shell in the same process, such as `ulimit -f 16`.
    pub fn after(self, shell: &str) -> Self {
        self.under(&["sh", "-c", &format!("{shell}; exec \"$0\" \"$@\"")])
    }

    /// Runs under another program: `strace -o log`.
    pub fn under(mut self, program: &[&str]) -> Self {
        self.argv.splice(0..0, program.iter().map(OsString::from));
        self
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn end(self) -> Outcome {
        self.spawn().wait()
    }

    /// Runs it to its end, which is this exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Outcome {
        self.end().exits(code)
    }

    /// Runs it to its end: this exit code, nothing on stdout, and these words on stderr.
    #[track_caller]
    pub fn refuses(self, code: i32, words: &str) -> Outcome {
        self.end().refuses(code, words)
    }

    /// The program's path: for a name alone, this process would fork, and it is large.
    fn program(&self) -> PathBuf {
        let name = Path::new(&self.argv[0]);
        let path = self.env.iter().find(|(key, _)| key == "PATH");
        let dirs = path.map_or(OsStr::new(""), |(_, value)| value);
        let all = std::env::split_paths(dirs).map(|dir| dir.join(name));
        let mut all = all.filter(|file| name.components().count() == 1 && file.is_file());
        all.next().unwrap_or_else(|| name.to_owned())
    }

    #[track_caller]
    pub fn spawn(self) -> Running {
        let file = |name| File::create(self.output.join(name)).expect("a file for the output");
        let clone = |file: &File| Stdio::from(file.try_clone().expect("a second handle"));
        file("stderr");
        let stdout = file("stdout");
        let mut child = Command::new(self.program())
            .arg0(&self.argv[0])
            .args(&self.argv[1..])
            .env_clear()
            .envs(self.env)
            .current_dir(&self.cwd)
            .stdin(match &self.input {
                Input::Null => Stdio::null(),
                Input::Terminal(terminal) | Input::All(terminal) => clone(terminal),
                _ => Stdio::piped(),
            })
            .stdout(match &self.input {
                Input::All(terminal) => clone(terminal),
                _ => stdout.into(),
            })
            .stderr(match &self.input {
                Input::Terminal(terminal) | Input::All(terminal) => clone(terminal),
                _ => file("stderr").into(),
            })
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.argv[0].display()));
        let mut stdin = child.stdin.take();
        if let Input::Bytes(bytes) = self.input {
            let mut pipe = stdin.take().expect("a pipe");
            // Whether the program wants to read it is its own affair.
            thread::spawn(move || pipe.write_all(&bytes).ok());
        }
        let pid = child.id();
        let (sender, ended) = channel();
        thread::spawn(move || sender.send(child.wait().expect("wait")).ok());
        let words = self.argv[1..].iter().map(|arg| arg.to_string_lossy());
        Running {
            pid,
            ended,
            stdin,
            label: words.collect::<Vec<_>>().join(" "),
            output: self.output,
            status: None,
        }
    }
}

/// A `delta` at work. It is killed when it goes out of scope.
pub struct Running {
    pid: u32,
    ended: Receiver<ExitStatus>,
    stdin: Option<ChildStdin>,
    label: String,
    output: PathBuf,
    status: Option<ExitStatus>,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid.cast_signed()).expect("a process id");
        // It may have ended by itself.
        kill_process(pid, signal).ok();
    }

    /// SIGKILL, and waits until it is gone.
    #[track_caller]
    pub fn kill(self) -> Outcome {
        self.signal(Signal::KILL);
        self.wait()
    }

    /// Writes to the pipe of [`Delta::open_stdin`].
    pub fn type_in(&mut self, text: &str) {
        let pipe = self.stdin.as_mut().expect("an open stdin");
        pipe.write_all(text.as_bytes()).expect("it reads");
    }

    /// Ends the input of [`Delta::open_stdin`].
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// What it has printed on stderr so far.
    pub fn stderr(&self) -> String {
        let bytes = fs::read(self.output.join("stderr")).expect("stderr");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What it has printed on stdout so far.
    pub fn stdout(&self) -> String {
        let bytes = fs::read(self.output.join("stdout")).expect("stdout");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sends a signal after this time, unless it ends before.
    #[track_caller]
    pub fn signal_after(mut self, time: Duration, signal: Signal) -> Outcome {
        self.status = self.ended.recv_timeout(time).ok();
        if self.status.is_none() {
            self.signal(signal);
        }
        self.wait()
    }

    #[track_caller]
    pub fn wait(mut self) -> Outcome {
        self.status = self
            .status
            .or_else(|| self.ended.recv_timeout(PATIENCE).ok());
        let outcome = Outcome {
            status: self.status.unwrap_or_default(),
            stdout: fs::read(self.output.join("stdout")).expect("stdout"),
            stderr: self.stderr(),
            label: std::mem::take(&mut self.label),
        };
        assert!(self.status.is_some(), "delta hangs\n{}", outcome.describe());
        outcome
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_none() && alive(self.pid) {
            self.signal(Signal::KILL);
        }
    }
}

/// How it ended and what it printed.
pub struct Outcome {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
    label: String,
}

impl Outcome {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub fn killed_by(&self) -> Option<i32> {
        self.status.signal()
    }

    /// The exit code is this one.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code(), Some(code), "{}", self.describe());
        self
    }

    /// stdout is exactly this.
    #[track_caller]
    pub fn prints(self, stdout: &str) -> Self {
        let printed = String::from_utf8_lossy(&self.stdout);
        assert_eq!(printed, stdout, "{}", self.describe());
        self
    }

    /// The exit code is this one, stdout is empty, and stderr has these words.
    #[track_caller]
    pub fn refuses(self, code: i32, words: &str) -> Self {
        self.exits(code).prints("").says(words)
    }

    /// Whether stdout is exactly this.
    pub fn printed(&self, stdout: &str) -> bool {
        self.stdout == stdout.as_bytes()
    }

    /// stderr has these words, not regarding case.
    #[track_caller]
    pub fn says(self, words: &str) -> Self {
        assert!(
            self.mentions(words),
            "stderr lacks {words:?}\n{}",
            self.describe()
        );
        self
    }

    #[track_caller]
    pub fn does_not_say(self, words: &str) -> Self {
        assert!(
            !self.mentions(words),
            "stderr has {words:?}\n{}",
            self.describe()
        );
        self
    }

    /// stderr is one line and names the program.
    #[track_caller]
    pub fn says_one_line(self) -> Self {
        let one = self.stderr.starts_with("delta: ") && self.stderr.trim_end().lines().count() == 1;
        assert!(one, "stderr is not one line\n{}", self.describe());
        self
    }

    fn mentions(&self, words: &str) -> bool {
        self.stderr.to_lowercase().contains(&words.to_lowercase())
    }

    /// The one object on stdout.
    #[track_caller]
    pub fn object(&self) -> Value {
        match serde_json::from_slice(&self.stdout) {
            Ok(object @ Value::Object(_)) => object,
            _ => panic!("stdout is not one object\n{}", self.describe()),
        }
    }

    pub fn describe(&self) -> String {
        format!(
            "delta {}\n{}\n--- stdout\n{}\n--- stderr\n{}",
            self.label,
            self.status,
            String::from_utf8_lossy(&self.stdout),
            self.stderr
        )
    }
}
