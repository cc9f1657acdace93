//! Processes and the host, as `/proc` and the kernel show them.
//!
//! Unaware of runs and tools. Where `/proc` is not mounted, less is found.

use crate::text::ids::hex;
use rustix::process::Pid;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// A bit for each signal that this process ignores, from the lowest for signal 1; none without `/proc`.
pub(crate) fn ignored_signals() -> u64 {
    let mut status = [0; 4096];
    let read = fs::File::open("/proc/self/status").and_then(|mut file| file.read(&mut status));
    let mut lines = status[..read.unwrap_or(0)].split(|byte| *byte == b'\n');
    let mask = lines.find_map(|line| line.strip_prefix(b"SigIgn:\t"));
    mask.and_then(|hex| u64::from_str_radix(str::from_utf8(hex).ok()?, 16).ok())
        .unwrap_or(0)
}

/// The variable by which the processes of one tool call are found wherever they have gone. The
/// value of a nested call begins with that of the call around it and a dot.
pub(crate) const CALL_ID: &str = "DELTA_CALL_ID";

/// An id for the processes of another call, within that of the call around this process.
pub(crate) fn new_call_id() -> String {
    let around = std::env::var(CALL_ID).ok().filter(|id| !id.is_empty());
    around.map_or_else(|| hex(12), |around| format!("{around}.{}", hex(12)))
}

/// The living processes of each process group, those that carry its call's id in their environment, and the
/// descendants of both, such as a session of `delta sandbox`. All processes are examined at once. Each comes
/// after its parent, so that an engine among them is signalled before what it waits for. Without `/proc`, only
/// whether a group still has any, as its leader.
pub(crate) fn find_processes<C: AsRef<str>>(wanted: &[(Option<Pid>, C)]) -> Vec<Vec<Pid>> {
    let Ok(entries) = fs::read_dir("/proc") else {
        let is_there = |group: &Pid| rustix::process::test_kill_process_group(*group).is_ok();
        let leader = |(group, _): &(Option<Pid>, C)| group.filter(is_there).into_iter().collect();
        return wanted.iter().map(leader).collect();
    };
    let mut by_group: HashMap<i32, usize> = HashMap::new();
    let mut by_call: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (at, (group, call_id)) in wanted.iter().enumerate() {
        if let Some(group) = group {
            by_group.insert(group.as_raw_pid(), at);
        }
        let call_id = call_id.as_ref().as_bytes();
        by_call.entry(call_id).or_default().push(at);
    }
    let own = std::process::id().cast_signed();
    let mut found = vec![Vec::new(); wanted.len()];
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    let mut looks = EXEC_LOOKS;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let stat = ProcessStat::read(number).filter(|it| number != own && !it.has_ended);
        let Some(stat) = stat else {
            continue;
        };
        let pid = Pid::from_raw(number);
        if let Some(parent) = Pid::from_raw(stat.parent) {
            children.entry(parent).or_default().extend(pid);
        }
        let in_group = by_group.get(&stat.group).copied();
        if let Some(at) = in_group {
            found[at].extend(pid);
            if wanted.len() == 1 {
                continue;
            }
        }
        let environ = environment(&entry.path(), &mut looks);
        let mut carried: Vec<usize> = environ
            .split(|byte| *byte == 0)
            .find_map(|variable| {
                variable
                    .strip_prefix(CALL_ID.as_bytes())?
                    .strip_prefix(b"=")
            })
            .into_iter()
            .flat_map(calls_around)
            .flat_map(|call_id| by_call.get(call_id).into_iter().flatten().copied())
            .filter(|at| Some(*at) != in_group)
            .collect();
        carried.sort_unstable();
        carried.dedup();
        for at in carried {
            found[at].extend(pid);
        }
    }
    for members in &mut found {
        *members = with_descendants(members, &children);
    }
    found
}

/// The variables with which a process was started, by its directory in `/proc`, each followed by a zero byte; empty if they
/// cannot be read. A process can declare any memory of its own to be its variables: what is beyond [`MOST_VARIABLES`] is
/// not read. While a process executes a program, the kernel shows none: it is looked at again, `looks` times
/// at most, of which one search for processes has [`EXEC_LOOKS`]: a process can hide its variables for ever.
pub(crate) fn environment(process: &Path, looks: &mut u32) -> Vec<u8> {
    loop {
        let mut environ = Vec::new();
        let file = fs::File::open(process.join("environ"));
        let read = file.and_then(|file| file.take(MOST_VARIABLES).read_to_end(&mut environ));
        if read.is_err() {
            environ.clear();
        }
        if !environ.is_empty() || *looks == 0 || !is_executing(process) {
            return environ;
        }
        *looks -= 1;
        std::thread::sleep(EXEC_TICK);
    }
}

/// In bytes; Linux starts no program with more.
const MOST_VARIABLES: u64 = 6 << 20;

/// Repeated looks of one search, for all processes together.
pub(crate) const EXEC_LOOKS: u32 = 100;
const EXEC_TICK: Duration = Duration::from_millis(1);

/// True if a process has a program, which a kernel thread has not, but no arguments yet.
fn is_executing(process: &Path) -> bool {
    fs::read_link(process.join("exe")).is_ok()
        && fs::File::open(process.join("cmdline"))
            .and_then(|mut words| words.read(&mut [0]))
            .is_ok_and(|read| read == 0)
}

/// Processes and their descendants, each after its parent.
fn with_descendants(found: &[Pid], children: &HashMap<Pid, Vec<Pid>>) -> Vec<Pid> {
    let all = descend(found.to_vec(), children);
    let of = |parent| children.get(parent).into_iter().flatten();
    let below: HashSet<Pid> = all.iter().flat_map(of).copied().collect();
    let tops = all.into_iter().filter(|pid| !below.contains(pid));
    descend(tops.collect(), children)
}

/// Adds the descendants of processes after them, a generation at a time.
fn descend(mut pids: Vec<Pid>, children: &HashMap<Pid, Vec<Pid>>) -> Vec<Pid> {
    let mut known: HashSet<Pid> = pids.iter().copied().collect();
    let mut at = 0;
    while let Some(parent) = pids.get(at) {
        let new: Vec<Pid> = children
            .get(parent)
            .into_iter()
            .flatten()
            .copied()
            .filter(|pid| known.insert(*pid))
            .collect();
        pids.extend(new);
        at += 1;
    }
    pids
}

/// A process as its `stat` in `/proc` shows it. Numbers are 0 where they are of another container.
pub(crate) struct ProcessStat {
    pub has_ended: bool,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// The time at which it began, in clock ticks since the machine was started.
    began: String,
}

impl ProcessStat {
    /// None for a process that is gone, and without `/proc`.
    pub(crate) fn read(pid: impl Display) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command's name, in parentheses, may hold anything; the fields follow the last one (proc(5)).
        let mut fields = stat.rsplit(')').next()?.split_ascii_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let mut number = || fields.next()?.parse().ok();
        Some(Self {
            has_ended,
            parent: number()?,
            group: number()?,
            session: number()?,
            began: fields.nth(15)?.to_owned(),
        })
    }
}

/// The living descendants of a process, each after its parent.
pub(crate) fn descendants(of: Pid) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for number in numbers_in("/proc") {
        let stat = ProcessStat::read(number).filter(|it| !it.has_ended);
        if let Some(parent) = stat.and_then(|it| Pid::from_raw(it.parent)) {
            let known = children.entry(parent).or_default();
            known.extend(Pid::from_raw(number));
        }
    }
    let mut all = with_descendants(&[of], &children);
    all.retain(|pid| *pid != of);
    all
}

/// The number of a process that lives, and when it began: no later process has the same. None without `/proc`.
pub(crate) fn process_name(pid: u32) -> Option<String> {
    let stat = ProcessStat::read(pid)?;
    (!stat.has_ended).then(|| format!("{pid}.{}", stat.began))
}

/// A call's id, and those of the calls around it. Any process can carry a text with 100,000 dots for an id: what is longer
/// than [`LONGEST_ID`] is no id.
pub(crate) fn calls_around(id: &[u8]) -> impl Iterator<Item = &[u8]> {
    let dots = memchr::memchr_iter(b'.', id);
    let ends = dots.chain([id.len()]);
    ends.take_while(|end| *end <= LONGEST_ID)
        .map(|end| &id[..end])
}

/// In bytes: a hundred calls within each other.
const LONGEST_ID: usize = 4096;

/// The names in a directory that are numbers: processes, or a process's descriptors.
pub(crate) fn numbers_in(dir: &str) -> Vec<i32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// True if a process of this number has not ended. One that cannot be seen from here,
/// in another pid namespace, counts as ended.
pub(crate) fn is_alive(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else {
        return false;
    };
    let is_gone = rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
    !is_gone && ProcessStat::read(pid.as_raw_pid()).is_none_or(|stat| !stat.has_ended)
}

/// The name of this machine's monotonic clock, and its milliseconds. None if `/proc` does not name it.
pub(crate) fn monotonic_clock() -> Option<(String, u64)> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/time").unwrap_or_default();
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let ms = now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000;
    Some((format!("{} {}", boot.trim(), namespace.display()), ms))
}

/// This host's name.
pub(crate) fn hostname() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, OFlags, mknodat};
    use std::io::Write;
    use std::os::unix::fs::{OpenOptionsExt, symlink};

    /// In place of a directory in `/proc`: `environ` is a pipe without an answer first.
    #[test]
    fn the_variables_of_a_process_that_executes_a_program_are_waited_for() {
        let dir = std::env::temp_dir().join(format!("delta-exec-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let pipe = dir.join("environ");
        mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
        let answers = move |all: [&'static [u8]; 2]| {
            let pipe = pipe.clone();
            std::thread::spawn(move || {
                let mut open = fs::OpenOptions::new();
                open.write(true);
                for answer in all {
                    open.open(&pipe).unwrap().write_all(answer).unwrap();
                    // Until the reader has closed it.
                    let mut again = open.clone();
                    again.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
                    while again.open(&pipe).is_ok() {}
                }
            })
        };
        fs::write(dir.join("cmdline"), "").unwrap();
        symlink("/bin/true", dir.join("exe")).unwrap();
        let writer = answers([b"", b"A=1\0"]);
        let mut looks = 1000;
        assert_eq!(environment(&dir, &mut looks), b"A=1\0");
        assert!(looks < 1000);
        writer.join().unwrap();
        answers([b"", b"A=1\0"]);
        assert_eq!(environment(&dir, &mut 0), b"");
        // One that was started without variables.
        fs::write(dir.join("cmdline"), "true\0").unwrap();
        assert!(!is_executing(&dir));
        fs::write(dir.join("cmdline"), "").unwrap();
        assert!(is_executing(&dir));
        fs::remove_file(dir.join("exe")).unwrap();
        assert!(!is_executing(&dir));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn of_variables_without_an_end_and_of_an_id_full_of_dots_little_is_looked_at() {
        let dir = std::env::temp_dir().join(format!("delta-large-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let large = fs::File::create(dir.join("environ")).unwrap();
        large.set_len(1 << 40).unwrap();
        let read = environment(&dir, &mut 0);
        assert_eq!(read.len() as u64, MOST_VARIABLES);
        fs::remove_dir_all(&dir).unwrap();
        let dots = ".".repeat(100_000);
        let looked_at: usize = calls_around(dots.as_bytes()).map(<[u8]>::len).sum();
        assert!(looked_at < LONGEST_ID * LONGEST_ID, "{looked_at} bytes");
        let nested: Vec<&[u8]> = calls_around(b"a.b").collect();
        assert_eq!(nested, [b"a".as_slice(), b"a.b"]);
    }

    #[test]
    fn a_process_is_found_by_the_call_it_belongs_to() {
        let id = format!("test{}", std::process::id());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env(CALL_ID, format!("{id}.nested"))
            .spawn()
            .unwrap();
        // The kernel lets the parent go on a moment before the child's environment can be read.
        let found = find_processes(&[(None, &id)]).remove(0);
        let none = find_processes(&[(None, &id[..id.len() - 1])]).remove(0);
        child.kill().unwrap();
        child.wait().unwrap();
        let pids: Vec<_> = found
            .iter()
            .map(|pid| pid.as_raw_pid().cast_unsigned())
            .collect();
        assert_eq!(pids, [child.id()]);
        assert!(none.is_empty());
    }

    #[test]
    fn a_process_stands_behind_its_parent_whatever_their_numbers() {
        let pid = |number| Pid::from_raw(number).unwrap();
        let pids = |numbers: &[i32]| numbers.iter().copied().map(pid).collect::<Vec<_>>();
        // 9 has started 2 and 7, 2 has started 8 and 1, 1 has started 3; 5 belongs to no one of them.
        let children = [(9, vec![2, 7]), (2, vec![8, 1]), (1, vec![3]), (4, vec![5])];
        let children = children.map(|(parent, of)| (pid(parent), pids(&of)));
        let children = HashMap::from(children);
        let ordered = pids(&[5, 9, 2, 7, 8, 1, 3]);
        for found in [&[1, 2, 5, 9][..], &[3, 5, 9], &[5, 8, 9, 7, 3]] {
            assert_eq!(with_descendants(&pids(found), &children), ordered);
        }
    }

    #[test]
    fn the_host_has_a_name() {
        assert!(!hostname().is_empty());
    }
}
