//! Directories, named pipes and processes, seen from outside.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, CWD, Mode, OFlags, StatVfsMountFlags};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{FORBIDDEN, SIGPIPE};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take that a test waits for. A hang is a failure, slowness is none.
pub const PATIENCE: Duration = Duration::from_secs(150);

/// Where the directories of tests are: `TMPDIR` if it is set, else in memory if there is room for all of them and
/// programs may run there, which takes half of the suite's time away, else on the disk.
pub fn base() -> PathBuf {
    const ROOM: u64 = 4 << 30;
    let memory = Path::new("/dev/shm");
    let has_room = rustix::fs::statvfs(memory).is_ok_and(|it| {
        !it.f_flag.contains(StatVfsMountFlags::NOEXEC) && it.f_bavail * it.f_frsize >= ROOM
    });
    let is_ours = rustix::fs::access(memory, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    match std::env::var_os("TMPDIR") {
        None if has_room && is_ours => memory.to_owned(),
        _ => std::env::temp_dir(),
    }
}

/// Handles each signal that is ignored, as under `nohup` and after `&`: a child would inherit that, and has the default
/// of what is handled.
fn take_ignored_signals() {
    let status = fs::read_to_string("/proc/self/status").expect("this process");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let is_ignored = |signal: &i32| mask.unwrap_or(0) >> (signal - 1) & 1 == 1;
    // The standard library ignores SIGPIPE itself, and resets it in children.
    let others = (1..32).filter(|it| *it != SIGPIPE && !FORBIDDEN.contains(it));
    for signal in others.filter(is_ignored) {
        signal_hook::flag::register(signal, Arc::default()).expect("a handler");
    }
}

/// Kills children that have been there for much longer than anything takes, with their own: who waits for them fails.
fn end_what_hangs() {
    let mut seen: HashMap<u32, Instant> = HashMap::new();
    loop {
        thread::sleep(PATIENCE / 10);
        let there = children(std::process::id());
        seen.retain(|pid, _| there.contains(pid));
        for pid in there {
            if seen.entry(pid).or_insert_with(Instant::now).elapsed() > 4 * PATIENCE {
                kill_tree(pid);
            }
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")));
    let all: Vec<String> = lists.map(Result::unwrap_or_default).collect();
    let pids = all.iter().flat_map(|list| list.split_whitespace());
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

fn kill_tree(pid: u32) {
    children(pid).into_iter().for_each(kill_tree);
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        kill_process(pid, Signal::KILL).ok();
    }
}

/// A directory that disappears with the test, unless the test failed.
pub struct TempDir(PathBuf);

impl TempDir {
    /// Outside the project, so that no `.env` or `.git` of the developer is found from within.
    pub fn below(base: &Path) -> Self {
        static BEGUN: Once = Once::new();
        BEGUN.call_once(|| {
            take_ignored_signals();
            thread::spawn(end_what_hangs);
        });
        let base = fs::canonicalize(base).expect("the temp directory");
        let mut random = fastrand::Rng::new();
        loop {
            let name: String = (0..8).map(|_| random.alphanumeric()).collect();
            let dir = base.join(format!("delta-it-{name}"));
            if fs::create_dir(&dir).is_ok() {
                return Self(dir);
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the files are in {}", self.0.display());
        } else {
            // A directory made read-only by a test is its own to make writable again.
            fs::remove_dir_all(&self.0).expect("the temp directory goes");
        }
    }
}

/// Another process writes it: a descriptor that is open for writing here would be inherited by what
/// another thread starts just then, and the kernel executes no file that somebody has open for writing.
pub fn write_program(content: &[u8], to: &Path) {
    let mut installing = install(Path::new("/dev/stdin"), to)
        .stdin(Stdio::piped())
        .spawn()
        .expect("install");
    let mut input = installing.stdin.take().expect("a pipe");
    input.write_all(content).expect("what install reads");
    drop(input);
    assert!(installing.wait().expect("install").success());
}

/// See `write_program`.
pub fn copy_program(from: impl AsRef<Path>, to: &Path) {
    let status = install(from.as_ref(), to).status().expect("install");
    assert!(status.success());
}

fn install(from: &Path, to: &Path) -> Command {
    let mut command = Command::new("install");
    command.args(["-m", "755"]).arg(from).arg(to);
    command
}

/// Every file below a directory; none if there is no directory.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            let list = if path.is_dir() {
                &mut pending
            } else {
                &mut found
            };
            list.push(path);
        }
    }
    found
}

/// Waits for what has no event to wait for. The only place where a test polls.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE / 2;
    let mut pause = Duration::from_millis(2);
    while !holds() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(pause);
        // Some look at all processes of the machine each time.
        pause = (pause * 9 / 8).min(Duration::from_millis(20));
    }
}

/// Tries with this time limit in milliseconds, then with more and more: none is the outcome where a slow machine did
/// not come as far in that time as it must before the limit ends it.
#[track_caller]
pub fn with_time<T>(ms: u64, attempt: impl FnMut(u64) -> Option<T>) -> T {
    let limits = (0..4).map(|n| ms << (2 * n));
    let mut outcomes = limits.map(attempt);
    outcomes.find_map(|it| it).expect("it comes so far in time")
}

/// A named pipe between the test and a tool. The test holds both ends, so neither side blocks in `open`.
pub struct Fifo {
    path: PathBuf,
    file: File,
}

impl Fifo {
    pub fn new(path: PathBuf) -> Self {
        rustix::fs::mkfifoat(CWD, &path, Mode::from(0o600)).expect("mkfifo");
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::empty()).expect("the pipe opens");
        Self {
            path,
            file: file.into(),
        }
    }

    /// The next line that a tool writes.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        let deadline = Instant::now() + PATIENCE / 2;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).expect("a timeout");
            let mut set = [PollFd::new(&self.file, PollFlags::IN)];
            let ready = poll(&mut set, Some(&timeout)).expect("poll");
            let name = self.path.display();
            assert!(ready > 0, "nobody wrote to {name}");
            let mut byte = [0];
            self.file.read_exact(&mut byte).expect("a byte");
            if byte[0] == b'\n' {
                return String::from_utf8(line).expect("a line of text");
            }
            line.push(byte[0]);
        }
    }

    /// The next line, a process id.
    #[track_caller]
    pub fn pid(&mut self) -> u32 {
        let line = self.line();
        line.trim()
            .parse()
            .unwrap_or_else(|_| panic!("{line:?} is no process id"))
    }

    /// Lets one `read` of a tool go on.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.file, "{line}").expect("the pipe takes a line");
    }
}

/// Whether a process exists and is more than a zombie.
pub fn alive(pid: u32) -> bool {
    // The state follows the name, which is in parentheses and may hold anything.
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit_once(") ")?.1.chars().next())
        .is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The processes whose environment says `HOME=home`: whatever a test has started, however it left its group.
pub fn processes_of(home: &Path) -> Vec<u32> {
    let mark = format!("HOME={}", home.display()).into_bytes();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let mut environ = Vec::new();
            let file = File::open(format!("/proc/{pid}/environ"));
            // Another program's process can say that gigabytes are its variables.
            let read = file.and_then(|file| file.take(6 << 20).read_to_end(&mut environ));
            read.is_ok() && environ.split(|byte| *byte == 0).any(|var| var == mark) && alive(*pid)
        })
        .collect()
}

/// A number from the environment, with which a test can be made longer, or this one.
pub fn given_or(variable: &str, usual: usize) -> usize {
    let given = std::env::var(variable).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// So many places, evenly spread, at which to kill a program whose system calls strace has logged: words for strace.
pub fn kills(log: &[String], count: usize) -> Vec<String> {
    let mut seen = HashMap::new();
    let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let names = log.iter().filter_map(|line| Some(line.split_once('(')?.0));
    let place = |name| {
        let n = seen.entry(name).or_insert(0);
        *n += 1;
        format!("inject={name}:signal=KILL:when={n}")
    };
    let all: Vec<String> = names.filter(is_name).map(place).collect();
    let step = (all.len() / (count + 1)).max(1);
    let spread = all.into_iter().skip(step).step_by(step);
    spread.take(count).collect()
}

/// The seed in `DELTA_TEST_SEED`, or another one each time; messages name it.
pub fn seed() -> u64 {
    let seed = std::env::var("DELTA_TEST_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    seed.unwrap_or_else(|| fastrand::u64(..))
}

/// Does what puts new files in the place of these, and writes to none of the old ones: they may be running.
#[track_caller]
pub fn replaces<T>(files: &[PathBuf], change: impl FnOnce() -> T) -> T {
    let old: Vec<File> = files
        .iter()
        .map(|file| File::open(file).expect("a file"))
        .collect();
    let changed = change();
    let inode = |file: &File| file.metadata().expect("metadata").ino();
    for (file, old) in files.iter().zip(&old) {
        let new = File::open(file).expect("a file");
        assert_ne!(
            inode(&new),
            inode(old),
            "{} was overwritten",
            file.display()
        );
    }
    changed
}
