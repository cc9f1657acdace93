//! A state taken now: what git finds changed is added to the run's index, and a tree that differs becomes a commit.
//!
//! It is a process of its own, so that a model can be asked meanwhile and a kill leaves whole states only.

use super::changes::Changes;
use super::git::EMPTY_TREE;
use super::left_out::LeftOut;
use super::store::{RunStore, Store};
use crate::config::lint::{is_sandbox, values_of};
use crate::config::person;
use crate::error::{At, Error, Exit, Result, ignore};
use crate::record::event::ChangedFile;
use crate::record::workspace::Workspace;
use crate::text::ids::{RunId, hex, is_hash};
use crate::text::json;
use crate::text::shorten::in_short;
use crate::unix::files;
use crate::unix::namespaces::can_hide;
use crate::unix::own_program::own_program;
use crate::unix::process::{self, Command, Ended, Outcome, SpawnError};
use crate::unix::signals::Signals;
use crate::unix::terminal::print;
use crate::unix::trees::{remove_all, room_of};
use rustix::fs::{Mode, syncfs};
use rustix::process::umask;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The command of `delta` that takes a state: it reads an [`Order`] and prints a [`Taken`] or the reason why not.
pub(crate) const COMMAND: &str = "take-files";

/// The word that tries whether a sandbox can hide paths.
const TRY: &str = "try-to-hide";

/// The time that a state may take.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);

/// The most room of a store to which states are added, in bytes.
const LARGEST_STORE: u64 = 1 << 30;

/// The most bytes that the process prints.
const MOST_PRINTED: usize = 1 << 20;

/// A state to be taken.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The workspace.
    pub root: PathBuf,
    pub run_id: String,
    /// The commit of the run's last state.
    pub last: Option<String>,
    /// The commit of the state since which differences are summed up.
    pub since: Option<String>,
    pub subject: String,
    /// Those of the agent and its tools.
    pub wrappers: Vec<Vec<String>>,
    /// The first of a start, for which the size of the store is looked at.
    pub is_first: bool,
    /// The state need not be on the disk.
    pub is_unsynced: bool,
}

/// A state that was taken.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// None: the files are as in the run's last state.
    pub commit: Option<String>,
    pub changes: Changes,
    /// The differences of the same files since an earlier state.
    pub summed_up: Vec<ChangedFile>,
    /// What was left out, in words; empty: nothing.
    pub left_out: String,
    /// Where something was put that had the store's name.
    pub put_aside: Option<PathBuf>,
}

/// A state that is being taken by a process, which prints it into a file.
pub(crate) struct Taking(File);

impl Taking {
    /// Starts the process.
    pub(crate) fn begin<T>(
        order: &Order,
        call_id: &str,
        spawn: impl FnOnce(Command<'_>) -> std::result::Result<T, SpawnError>,
    ) -> Result<(Self, T)> {
        let argv = [own_program(), COMMAND.to_owned()];
        let program = Path::new(&argv[0]);
        let output = files::in_memory(b"").at("start", program)?;
        let started = spawn(Command {
            argv: &argv,
            dir: Path::new("/"),
            env: &[],
            call_id,
            stdin: Some(files::in_memory(json::text(order).as_bytes()).at("start", program)?),
            stdout: output.try_clone().at("start", program)?,
            stderr: output.try_clone().at("start", program)?,
            timeout: Some(LONGEST),
        });
        let token = started.map_err(|error| Error::failure(error.message(&argv[0])))?;
        Ok((Self(output), token))
    }

    /// What the process has printed at its end; none if it was interrupted.
    ///
    /// # Errors
    /// The reason why there is no state.
    pub(crate) fn end(&self, outcome: &Outcome) -> Result<Option<Taken>> {
        match outcome.how {
            Ended::Interrupted(_) => return Ok(None),
            Ended::TimedOut => {
                return Err(Error::failure(
                    "it takes longer than 10 s; what was read makes the next attempt shorter",
                ));
            }
            Ended::Exited(_) => {}
        }
        let printed = files::read_head(&self.0, MOST_PRINTED).unwrap_or_default();
        let read = serde_json::from_str::<std::result::Result<Taken, String>>(&printed);
        let taken = read.unwrap_or_else(|_| match &*in_short(&printed, 200) {
            "" => Err("the process that takes them was killed".to_owned()),
            said => Err(said.to_owned()),
        });
        taken.map(Some).map_err(Error::failure)
    }
}

/// Takes a state and waits for it; none if a signal came.
pub(crate) fn take(signals: &Signals, order: &Order) -> Result<Option<Taken>> {
    let run = |command: Command<'_>| process::run(signals, command, Duration::ZERO);
    let (taking, outcome) = Taking::begin(order, &hex(12), run)?;
    taking.end(&outcome)
}

/// The process that takes a state, or, with a word, that tries whether it could be hidden.
pub(crate) fn take_files(words: &[OsString]) -> Result<Exit> {
    if words.iter().any(|word| word == TRY) {
        return Ok(if can_hide() {
            Exit::Success
        } else {
            Exit::Failure
        });
    }
    let mut order = String::new();
    let read = io::stdin().lock().read_to_string(&mut order);
    read.at("read", Path::new("/dev/stdin"))?;
    let order: Order = serde_json::from_str(&order)
        .map_err(|_| Error::usage(format!("{COMMAND} is a part of delta")))?;
    umask(Mode::RWXG | Mode::RWXO);
    let taken = take_in(&order).map_err(|error| error.message);
    print(json::text(&taken))?;
    Ok(Exit::Success)
}

fn take_in(order: &Order) -> Result<Taken> {
    std::env::set_current_dir(&order.root).at("enter", &order.root)?;
    check_place(&order.root)?;
    // It must hide the store from tools.
    if order.is_first && order.wrappers.iter().any(|it| is_sandbox(it)) {
        check_sandbox()?;
    }
    let run = RunId::parse(&order.run_id).map_err(Error::usage)?;
    let (store, put_aside) = Store::make(&Workspace::at(&order.root)?, order.is_first)?;
    if order.is_first && room_of(&store.path) > LARGEST_STORE {
        let path = store.path.display();
        return Err(Error::failure(format!(
            "{path} takes more than 1 GiB; remove old runs with delta prune"
        )));
    }
    let mut run = store.run(&run)?;
    // What is new at once would be nothing after a kill: a large workspace is first read in several attempts.
    let heads = store.path.join("refs/heads");
    let is_new = heads.read_dir().at("read", &heads)?.next().is_none();
    run.git.syncs = !order.is_unsynced && !is_new;
    let hidden = order.wrappers.iter().flat_map(|it| values_of(it, "--hide"));
    let mut left_out = LeftOut::find(&order.root, hidden)?;
    let mut take = || commit(&run, order, &mut left_out);
    // Something may have been at work on the files; or the index or the branch names what is gone.
    let taken = take().or_else(|_| take()).or_else(|error| {
        repair(&store, &run, order.last.as_deref()).map_err(|_| error)?;
        take()
    });
    let (commit, changes) = taken?.unzip();
    let changes = changes.unwrap_or_default();
    let summed_up = match (order.since.as_deref(), &commit) {
        (Some(since), Some(commit)) if is_hash(since) && Some(since) != order.last.as_deref() => {
            // A store that was made anew does not have it.
            Changes::of_files(&run.git, [since, commit], &changes.paths)
                .map_or_else(|_| changes.paths.clone(), |found| found.paths)
        }
        _ => changes.paths.clone(),
    };
    if is_new && !order.is_unsynced {
        let synced = File::open(&store.path).and_then(|dir| Ok(syncfs(&dir)?));
        synced.at("sync", &store.path)?;
    }
    Ok(Taken {
        commit,
        changes,
        summed_up,
        left_out: left_out.in_words(),
        put_aside,
    })
}

/// Makes the index anew, and sets a branch that git cannot read to the last state, which the journal knows. Where git cannot
/// read that either, the branch becomes another ref, so that prune removes nothing that could be read again.
///
/// # Errors
/// git itself fails, which says nothing of either.
fn repair(store: &Store, run: &RunStore, last: Option<&str>) -> Result<()> {
    run.git.line(&["cat-file", "-e", EMPTY_TREE])?;
    remove_all(&run.path.join("index"))?;
    if is_commit(run, &run.branch) {
        return Ok(());
    }
    let branch = store.path.join(&run.branch);
    if let Some(last) = last.filter(|last| is_commit(run, last)) {
        return files::replace(&branch, format!("{last}\n").as_bytes());
    }
    let aside = run.branch.replace("heads", "damaged");
    let aside = files::make_dirs_below(&store.path, Path::new(&aside))?;
    let moved = fs::rename(&branch, aside.join(hex(12))).if_there();
    moved.at("put aside", &branch).map(drop)
}

/// Fails where the sandbox cannot hide the store. What is tried leaves its process in namespaces of its own.
fn check_sandbox() -> Result<()> {
    let program = own_program();
    let mut command = std::process::Command::new(&program);
    let tried = command.args([COMMAND, TRY]).status();
    if tried.at("start", Path::new(&program))?.success() {
        return Ok(());
    }
    let why = "the kernel provides no user namespace, so that tools could read them";
    Err(Error::failure(why))
}

/// Refuses a workspace that holds more than work.
fn check_place(root: &Path) -> Result<()> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let is_above = |home: &PathBuf| home.is_absolute() && person::is_within(home, root);
    if root == Path::new("/") || home.is_some_and(|home| is_above(&home)) {
        return Err(Error::failure("the workspace is / or a home directory"));
    }
    Ok(())
}

/// What git finds in the workspace.
#[derive(Default)]
struct Found {
    /// The commit of the branch.
    tip: Option<String>,
    /// The index is as the branch.
    is_clean: bool,
    added: Vec<u8>,
    removed: Vec<u8>,
}

/// Commits the files if they are not as in the last state.
fn commit(
    run: &RunStore,
    order: &Order,
    left_out: &mut LeftOut,
) -> Result<Option<(String, Changes)>> {
    let index = run.path.join("index");
    let last = order.last.as_deref().filter(|last| is_hash(last));
    if let Some(last) = last.filter(|_| !index.exists()) {
        // What is ignored by now stays recorded. A store that was made anew does not have it.
        ignore(run.git.line(&["read-tree", last]));
    }
    let once_recorded = left_out.once_recorded();
    let mut unrecorded = Vec::new();
    if !once_recorded.is_empty() && index.exists() {
        let words = ["rm", "-r", "--cached", "--ignore-unmatch"];
        let more = ["--pathspec-from-file=-", "--pathspec-file-nul"];
        unrecorded = run.git.run(&[&words[..], &more].concat(), &once_recorded)?;
    }
    let mut found = find(run, left_out)?;
    // git does not look there.
    found.is_clean &= unrecorded.is_empty();
    if found.is_clean && found.tip.is_some() && found.tip == order.last {
        return Ok(None);
    }
    add(run, &mut found, left_out)?;
    if !found.removed.is_empty() {
        let words = ["update-index", "-z", "--force-remove", "--stdin"];
        run.git.run(&words, &found.removed)?;
    }
    let line = |words: &[&str]| run.git.line(words);
    let tree = line(&["write-tree"])?;
    // A store that was made anew or is damaged does not have the last one. What the branch has stays its own all the same.
    let tip = found.tip.as_deref();
    let known = last.filter(|last| tip == Some(*last) || is_commit(run, last));
    let trees = [known.unwrap_or(EMPTY_TREE), &tree];
    let mut changes = Changes::between(&run.git, trees)?;
    if let Some(last) = known.filter(|_| changes.is_empty()) {
        line(&["update-ref", &run.branch, last])?;
        return Ok(None);
    }
    match known {
        Some(_) => changes.count_lines(&run.git, trees)?,
        None => changes.paths.clear(),
    }
    let mut words = vec!["commit-tree", "-m", &order.subject, &tree];
    words.extend(known.or(tip).iter().flat_map(|parent| ["-p", parent]));
    let commit = line(&words)?;
    line(&["update-ref", &run.branch, &commit])?;
    Ok(Some((commit, changes)))
}

/// True if the store has a commit, or that of a branch.
fn is_commit(run: &RunStore, name: &str) -> bool {
    let name = format!("{name}^{{commit}}");
    run.git.line(&["cat-file", "-e", &name]).is_ok()
}

/// Adds to the index what git has found. What it fails to read is left out, and removed.
fn add(run: &RunStore, found: &mut Found, left_out: &mut LeftOut) -> Result<()> {
    let words = [
        "update-index",
        "-z",
        "--add",
        "--remove",
        "--replace",
        "--stdin",
    ];
    let mut pending = vec![&*found.added];
    while let Some(paths) = pending.pop().filter(|paths| !paths.is_empty()) {
        let Err(error) = run.git.run(&words, paths) else {
            continue;
        };
        let ends = paths.iter().enumerate().filter(|(_, byte)| **byte == 0);
        let ends: Vec<usize> = ends.map(|(at, _)| at + 1).collect();
        if let [end] = ends[..] {
            let path = Path::new(OsStr::from_bytes(&paths[..end - 1]));
            left_out.leave_unread(path, error)?;
            found.removed.extend(paths);
        } else {
            let (first, second) = paths.split_at(ends[ends.len() / 2 - 1]);
            pending.extend([second, first]);
        }
    }
    Ok(())
}

/// Looks for what differs from the index, and for what the index differs in from the branch.
fn find(run: &RunStore, left_out: &mut LeftOut) -> Result<Found> {
    let words = ["status", "--porcelain=v2", "--branch", "-z", "--no-renames"];
    let new = if left_out.has_no_new { "no" } else { "all" };
    let new = format!("--untracked-files={new}");
    let more = [&*new, "--ignore-submodules=all", "--"];
    let words = words.into_iter().chain(more).map(OsString::from);
    let words: Vec<OsString> = words.chain(left_out.pathspecs()).collect();
    let mut found = Found {
        is_clean: true,
        ..Found::default()
    };
    for entry in run.git.run(&words, b"")?.split(|byte| *byte == 0) {
        if let Some(tip) = entry.strip_prefix(b"# branch.oid ") {
            found.tip = String::from_utf8(tip.to_vec())
                .ok()
                .filter(|tip| is_hash(tip));
            continue;
        }
        let is_tracked = entry.starts_with(b"1 ");
        // XY, submodule, three modes, two hashes.
        let path = if is_tracked {
            entry.splitn(9, |byte| *byte == b' ').nth(8)
        } else {
            entry.strip_prefix(b"? ")
        };
        let Some(path) = path else { continue };
        let paths = match entry.get(3) {
            Some(b'.') if is_tracked => None,
            Some(b'D') if is_tracked => Some(&mut found.removed),
            _ if left_out.takes(Path::new(OsStr::from_bytes(path))) => Some(&mut found.added),
            _ => is_tracked.then_some(&mut found.removed),
        };
        found.is_clean &= !is_tracked && paths.is_none();
        if let Some(paths) = paths {
            paths.extend(path);
            paths.push(0);
        }
    }
    Ok(found)
}
