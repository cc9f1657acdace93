//! Sessions in a directory of their own, run by the real binary.

use super::system::Fifo;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

pub const BIN: &str = env!("CARGO_BIN_EXE_delta-sessions");
pub const ALL_SHELLS: [&str; 3] = ["bash", "dash", "sh"];

/// A directory with sessions in it, removed with the value.
pub struct Place {
    pub dir: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let name = format!(
            "delta-sessions-{}-{}",
            std::process::id(),
            fastrand::u64(..)
        );
        let dir = super::system::base().join(name);
        fs::create_dir(&dir).unwrap();
        // PWD must name the same path that the kernel does.
        Self {
            dir: dir.canonicalize().unwrap(),
        }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_delta"));
        command
            .arg("sessions")
            .args(args)
            .current_dir(&self.dir)
            .env_remove("DELTA_CALL_ID")
            .env("PWD", &self.dir)
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub fn start(&self, argv: &[&str]) -> Session<'_> {
        self.start_with(argv, &[])
    }

    pub fn start_with(&self, argv: &[&str], env: &[(&str, &str)]) -> Session<'_> {
        let words: Vec<&str> = ["start"].iter().chain(argv).copied().collect();
        let output = self
            .command(&words)
            .envs(env.iter().copied())
            .output()
            .unwrap();
        let started = json(&output);
        let id = started["session_id"]
            .as_str()
            .unwrap_or_else(|| panic!("{output:?}"));
        Session {
            place: self,
            id: id.to_owned(),
            started,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A FIFO, by whose lines tests wait for a command.
    pub fn fifo(&self, name: &str) -> Fifo {
        Fifo::new(self.path(name))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.dir));
    }
}

pub struct Session<'p> {
    pub place: &'p Place,
    pub id: String,
    pub started: Value,
}

impl Session<'_> {
    pub fn dir(&self) -> PathBuf {
        self.place.path(".sessions").join(&self.id)
    }

    pub fn exec(&self, text: &str) -> Value {
        self.exec_with(&[], text)
    }

    pub fn exec_with(&self, options: &[&str], text: &str) -> Value {
        let output = self.command(options, text).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        json(&output)
    }

    pub fn command(&self, options: &[&str], text: &str) -> Command {
        let args: Vec<&str> = ["exec"]
            .into_iter()
            .chain(options.iter().copied())
            .chain([&*self.id, text])
            .collect();
        self.place.command(&args)
    }

    /// Starts a command, whose result can be read when it has ended.
    pub fn spawn(&self, text: &str) -> Child {
        let mut command = self.command(&[], text);
        command.stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Runs a command that comes on standard input.
    pub fn reads(&self, text: &[u8]) -> Output {
        let mut command = self.place.command(&["exec", &self.id]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text).unwrap();
        child.wait_with_output().unwrap()
    }

    /// The standard output of a command that must go well and say nothing on standard error.
    pub fn says(&self, text: &str) -> String {
        let result = self.exec(text);
        assert_eq!(result["stderr"], "", "{text}: {result}");
        assert_eq!(result["exit_code"], 0, "{text}: {result}");
        assert!(result.get("notes").is_none(), "{text}: {result}");
        result["stdout"].as_str().unwrap().to_owned()
    }
}

pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

pub fn is_installed(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", "command -v \"$1\"", "sh", program])
        .output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

pub fn alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap()
            .trim_start()
            .starts_with(['Z', 'X'])
    })
}

pub fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(
        Command::new("sh")
            .args(["-c", "kill \"$0\" \"$1\"", name, &pid])
            .status()
            .unwrap()
            .success()
    );
}

/// One word of a shell's language.
pub fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
