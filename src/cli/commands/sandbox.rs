//! `delta sandbox`: restricts a child process, which then executes the command.

mod doors;

use crate::cli::agent_names::AGENTS;
use crate::cli::args::SandboxArgs;
use crate::config::person;
use crate::engine::due;
use crate::engine::outbox;
use crate::error::{At, Error, Exit, Result, ignore, reason};
use crate::file_states::store::{STORE, TAKEN_OUT};
use crate::record::run_dir::{NOTE, NOTE_BYTES, OPEN_HERE};
use crate::record::workspace::Workspace;
use crate::runs::overrides::workspace_around;
use crate::text::amounts::counted;
use crate::text::order;
use crate::unix::doors::{Proxy, proxy_variables};
use crate::unix::git_dir::{AbsentFile, GitPaths};
use crate::unix::landlock::{Grants, is_system_path, restrict};
use crate::unix::namespaces::{View, map_ids};
use crate::unix::process::interpreter_fault;
use crate::unix::supervisor::Serve;
use crate::unix::terminal::{Screen, warn};
use crate::unix::{files, programs, seccomp, supervisor};
use rustix::fd::BorrowedFd;
use rustix::fs::OFlags;
use rustix::process::Pid;
use std::collections::{BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// The place for temporary files in the first directory that may be written.
const TEMPORARY: &str = ".tmp";

/// Paths to protect in each writable directory, and whether they become read-only. Those that do not can neither be
/// renamed nor replaced.
const PROTECTED: [(&str, bool); 3] = [(".delta", true), (".git", false), (".git/modules", false)];

/// The most entries of directories that are looked at for stores of other workspaces.
const MOST_SEARCHED: usize = 1000;

/// Actions that no kernel can restrict without privileges.
const NEVER_RESTRICTED: &str = "mode, owner, times and extended attributes of the user's own files";

/// Runs the command and returns its exit code.
pub(crate) fn run_sandboxed(wanted: &SandboxArgs) -> Result<u8> {
    let open = doors::wanted_doors(wanted)?;
    let is_closed = wanted.no_network || wanted.doors_from_env;
    let network = match (open.is_empty(), is_closed) {
        (false, _) => Network::Doors,
        (true, true) => Network::None,
        (true, false) => Network::All,
    };
    let plan = doors::plan(wanted, open)?;
    let (view, absent) = plan_view(wanted, network);
    let inspect = (!absent.is_empty() || io::stderr().is_terminal()).then_some(|left| {
        if left > 0 {
            let many = counted(left, "process");
            let text =
                format!("sandbox: ended {many} that the command left and that held the terminal");
            warn(&text);
        }
        put_aside_new(&absent)
    });
    let attend = |command: Pid, peer: &UnixStream| {
        map_ids(command, peer);
        let mut proxy = Proxy::start(plan?, peer)?;
        let serve: Serve = Box::new(move |other: BorrowedFd<'_>| proxy.serve_until(other));
        Some(serve)
    };
    let execute = |keeper| match prepare(wanted, network, &view, &keeper) {
        Ok(command) => {
            supervisor::await_keeper(keeper);
            execute(command)
        }
        Err(error) => error,
    };
    supervisor::run_in_session(attend, execute, inspect)
}

/// The network that the command can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    All,
    None,
    /// Open hosts, from a network namespace that has a loopback interface.
    Doors,
}

/// The plan of what to protect, and the files that would belong to it but do not exist, so that they cannot be protected.
fn plan_view(wanted: &SandboxArgs, network: Network) -> (View, Vec<AbsentFile>) {
    let canonical = |paths: &[PathBuf]| -> Vec<PathBuf> {
        let real = paths.iter().filter_map(|path| path.canonicalize().ok());
        real.collect()
    };
    let writable = canonical(&wanted.rw);
    mark_workspaces(&writable);
    let mut view = View::new(network == Network::All);
    let mut all_absent = Vec::new();
    for dir in &writable {
        for (name, read_only) in PROTECTED {
            view.cover(&dir.join(name), read_only, &writable);
        }
        let git = GitPaths::find(dir);
        for path in &git.dirs {
            view.cover(path, false, &writable);
        }
        for path in &git.present {
            view.cover(path, true, &writable);
        }
        // Others make files where the command cannot.
        all_absent.extend(
            git.absent
                .into_iter()
                .filter(|file| file.lies_in(&writable)),
        );
    }
    let own = [person::config_dir(), due::dir()].into_iter().flatten();
    for own in own.filter_map(|dir| own_dir(dir, &writable)) {
        view.cover(&own, true, &writable);
    }
    for path in wanted.protect.iter().chain(&wanted.log) {
        view.cover(path, true, &writable);
    }
    if let Some(dir) = attach_dir() {
        view.open(dir);
    }
    let readable = [&*writable, &*canonical(&wanted.ro)].concat();
    let here = std::env::current_dir();
    view.replace_shared_memory(&[&*readable, &*here.into_iter().collect::<Vec<_>>()].concat());
    for file in person::env_files() {
        let real = file.canonicalize().unwrap_or_else(|_| file.clone());
        let is_readable = is_system_path(&real) || readable.iter().any(|dir| real.starts_with(dir));
        view.hide(&file, is_readable, &writable);
    }
    for store in stores(&readable) {
        let is_readable = readable.iter().any(|dir| store.starts_with(dir));
        view.hide(&store, is_readable, &writable);
    }
    for path in &wanted.hide {
        view.hide(&person::at_home(path), true, &writable);
    }
    (view, all_absent)
}

/// The files of steps of workspaces around the current directory, and of others: the nearest that few entries show.
fn stores(dirs: &[PathBuf]) -> Vec<PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    let around = here.ancestors().chain(dirs.iter().map(PathBuf::as_path));
    let mut controls: BTreeSet<PathBuf> = around.map(|dir| dir.join(".delta")).collect();
    let is_searched = |dir: &&PathBuf| dir.parent().is_some() && !is_system_path(dir);
    let mut pending: VecDeque<PathBuf> = dirs.iter().filter(is_searched).cloned().collect();
    let (mut seen, mut left) = (BTreeSet::new(), MOST_SEARCHED);
    while let Some(dir) = pending.pop_front().filter(|_| left > 0) {
        if !seen.insert(dir.clone()) {
            continue;
        }
        for entry in dir.read_dir().into_iter().flatten().flatten().take(left) {
            left -= 1;
            if entry.file_name() == ".delta" {
                controls.insert(entry.path());
            } else if entry.file_name() != ".git"
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
            {
                pending.push_back(entry.path());
            }
        }
    }
    let parts = controls
        .iter()
        .flat_map(|it| [STORE, TAKEN_OUT].map(|name| it.join(name)));
    parts.collect()
}

/// The directory in which the command attaches pictures: a real, empty one of an execution, and no other.
fn attach_dir() -> Option<PathBuf> {
    let dir = PathBuf::from(std::env::var_os(outbox::VARIABLE)?);
    let mut names = dir.components().rev().map(Component::as_os_str);
    let is_execution =
        names.next()? == outbox::DIR && names.nth(2)? == "io" && names.nth(1)? == ".delta";
    let is_real = dir.canonicalize().is_ok_and(|real| real == dir);
    let is_empty = || std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_none());
    (is_execution && is_real && is_empty()).then_some(dir)
}

/// Makes a workspace of each writable directory that is the current one or lies below it, unless it is one or lies in one.
/// Otherwise the command could make one, there or below, whose records name an agent of the command's own. A run already has
/// a workspace, and no directory that holds a home, a person's settings or agents becomes one by accident.
fn mark_workspaces(writable: &[PathBuf]) {
    let here = std::env::current_dir().and_then(|dir| dir.canonicalize());
    let Some(here) = here
        .ok()
        .filter(|_| std::env::var_os("DELTA_RUN_DIR").is_none())
    else {
        return;
    };
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let found = person::search_dirs(AGENTS, "agents").into_iter().flatten();
    let agents = found.map(|(dir, _)| dir);
    let kept: Vec<PathBuf> = (agents.chain(home).chain(person::config_dir()))
        .filter(|dir| dir.is_absolute())
        .collect();
    let mut dirs: Vec<&PathBuf> = writable
        .iter()
        .filter(|dir| dir.starts_with(&here))
        .collect();
    order::sort(&mut dirs);
    for dir in dirs {
        let is_kept = kept.iter().any(|own| person::is_within(own, dir));
        if let Some(workspace) = Workspace::at(dir).ok().filter(|_| dir.is_dir() && !is_kept)
            && workspace.control.symlink_metadata().is_err()
            && workspace_around(&workspace).is_none()
        {
            ignore(workspace.create());
        }
    }
}

/// A directory of the person's that decides what runs, if it lies in one that may be written. It is made, because nothing
/// else could keep the command from making it.
fn own_dir(own: PathBuf, writable: &[PathBuf]) -> Option<PathBuf> {
    let is_inside = writable.iter().any(|dir| person::is_within(&own, dir));
    if is_inside && !own.exists() {
        ignore(files::make_dirs(&own));
    }
    is_inside.then_some(own)
}

/// Renames those of the files that exist now, and reports them. Returns whether there are any.
fn put_aside_new(absent: &[AbsentFile]) -> bool {
    let mut is_any = false;
    for file in absent {
        let outcome = match file.put_aside() {
            Ok(None) => continue,
            Ok(Some(aside)) => format!("renamed to {}", aside.display()),
            Err(e) => format!("it could not be renamed: {}", reason(&e)),
        };
        is_any = true;
        warn(&format!(
            "sandbox: {} was created, which can make git outside the sandbox execute programs; {outcome}",
            file.path().display()
        ));
    }
    is_any
}

/// Restricts this process irrevocably.
fn prepare(
    wanted: &SandboxArgs,
    network: Network,
    view: &View,
    keeper: &UnixStream,
) -> Result<Command> {
    let note = Note::new();
    let links = view.links.iter();
    let mut open: Vec<String> = links
        .map(|link| format!("replacing {} (a symbolic link)", link.display()))
        .collect();
    let hidden = wanted.hide.iter();
    let homeless = hidden.filter(|path| person::at_home(path).starts_with("~"));
    open.extend(homeless.map(|path| format!("reading {} (HOME is not set)", path.display())));
    let entered = view.enter(keeper).map_err(|e| {
        let message = format!("sandbox: user namespace without ids: {}", reason(&e));
        Error::new(Exit::NotSetUp, message)
    })?;
    let port = match network {
        Network::Doors => Some(doors::open_doors(keeper, entered.obstacle.as_deref())?),
        Network::All | Network::None => None,
    };
    open.extend(entered.open);
    let has_network = network == Network::All;
    let unix = has_network || wanted.allow_unix;
    let own = view.opened().into_iter().chain(entered.shared_memory);
    let rw: Vec<PathBuf> = wanted.rw.iter().cloned().chain(own).collect();
    // Where devices lie further down, only what is there by now can be written.
    let temporary = temporary(wanted).map_err(|error| Error {
        exit: Exit::NotSetUp,
        ..error
    })?;
    let enforced = restrict(&Grants {
        rw: &rw,
        ro: &wanted.ro,
        network: has_network,
        loopback: network == Network::Doors,
        unix,
        has_interfaces: entered.has_network,
        strict: wanted.strict,
    })?;
    open.extend(enforced.missing.into_iter().map(str::to_owned));
    let has_unix = unix || enforced.unix;
    if !seccomp::apply(has_network, has_unix) {
        let sockets = if has_unix { "" } else { ", Unix sockets" };
        open.push(format!(
            "terminal input and limits of other processes{sockets} (the kernel has no seccomp)"
        ));
    }
    if wanted.strict && !open.is_empty() {
        let open = open.join(", ");
        let message =
            format!("sandbox: cannot restrict {open}; without --strict, the command runs anyway");
        return Err(Error::new(Exit::NotSetUp, message));
    }
    note.report(&open, unix);
    let (program, arguments) = wanted
        .command
        .split_first()
        .ok_or_else(|| Error::usage("sandbox needs a command"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    command.envs(port.into_iter().flat_map(proxy_variables));
    if let Some(dir) = temporary {
        command.env("TMPDIR", dir);
    }
    Ok(command)
}

/// Replaces this process with the command. Returns only an error.
fn execute(mut command: Command) -> Error {
    let error = command.exec();
    let program = Path::new(command.get_program());
    let name = program.display();
    let path = programs::search_path();
    if error.kind() == ErrorKind::NotFound
        && let Some(why) = interpreter_fault(program, &path)
    {
        return Error::new(Exit::NotFound, format!("sandbox: {name}: {why}"));
    }
    let (exit, hint) = match error.kind() {
        ErrorKind::NotFound => (Exit::NotFound, ""),
        ErrorKind::PermissionDenied => (
            Exit::NotExecutable,
            "; a program outside the system's directories needs --ro",
        ),
        _ => (Exit::NotExecutable, ""),
    };
    Error::new(exit, format!("sandbox: {name}: {}{hint}", reason(&error)))
}

/// The directory that TMPDIR is to name: it stays if it can be written, else it is in the first directory that can.
fn temporary(wanted: &SandboxArgs) -> Result<Option<PathBuf>> {
    let Some(first) = wanted.rw.iter().find(|path| path.is_dir()) else {
        return Ok(None);
    };
    let now = std::env::var_os("TMPDIR").and_then(|dir| PathBuf::from(dir).canonicalize().ok());
    let mut writable = wanted.rw.iter().filter_map(|path| path.canonicalize().ok());
    if now.is_some_and(|now| writable.any(|path| now.starts_with(path))) {
        return Ok(None);
    }
    let first = first.canonicalize().at("resolve", first)?;
    let dir = first.join(TEMPORARY);
    if !dir.is_dir() {
        // Another tool may be making it at this moment.
        let gitignore = Path::new(TEMPORARY).join(".gitignore");
        files::make_dirs_below(&first, TEMPORARY.as_ref())?;
        ignore(files::replace_below(&first, &gitignore, b"*\n"));
    }
    Ok(Some(dir))
}

/// A report of what stays unrestricted, kept out of observations: in a run it goes to a file in the run's directory, and
/// what this kernel lacks is also printed once, by the first program whose sandbox lacks it.
struct Note {
    /// None outside of a run, and where this process cannot write to it.
    file: Option<File>,
    /// Lines that it already has.
    written: String,
}

impl Note {
    /// Opens the file while this process still can.
    fn new() -> Self {
        let dir = std::env::var_os("DELTA_RUN_DIR");
        let open = |dir| {
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let mut options = OpenOptions::new();
            options.read(true).append(true).create(true).mode(0o600);
            let path = PathBuf::from(dir).join(NOTE);
            let file = options
                .custom_flags(flags.bits().cast_signed())
                .open(path)
                .ok()?;
            Some(file).filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()))
        };
        let file = dir.and_then(open);
        let written = file.as_ref().map(|file| {
            let bytes = files::read_part(file, 0, NOTE_BYTES);
            String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
        });
        Self {
            file,
            written: written.unwrap_or_default(),
        }
    }

    fn report(self, open: &[String], unix: bool) {
        let sockets = if unix {
            "; Unix sockets with a path"
        } else {
            ""
        };
        let never = format!("{NEVER_RESTRICTED}{sockets}");
        let screen = Screen::new(false, false);
        let here = (!open.is_empty())
            .then(|| format!("{OPEN_HERE}{}\n", open.join(", ")))
            .filter(|line| !self.written.contains(line));
        let is_in_run = std::env::var_os("DELTA_RUN_DIR").is_some();
        if here.is_some() && (self.file.is_some() || !is_in_run) {
            let open = open.join(", ");
            screen.warn(&format!("sandbox: not restricted here: {open}"));
        }
        if let Some(mut file) = self.file {
            let lines = [format!("on any kernel: {never}\n")]
                .into_iter()
                .chain(here);
            let new: String = lines.filter(|line| !self.written.contains(line)).collect();
            let title = if self.written.is_empty() {
                "Not restricted by delta sandbox:\n"
            } else {
                ""
            };
            if !new.is_empty() {
                ignore(file.write_all(format!("{title}{new}").as_bytes()));
            }
        } else if io::stderr().is_terminal() {
            screen.warn(&format!("sandbox: not restricted by any kernel: {never}"));
        }
    }
}
