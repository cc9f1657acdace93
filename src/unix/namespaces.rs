//! A user namespace with namespaces of its own for System V IPC and for mounts, in which some paths cannot be changed
//! and others are empty, and an empty network namespace.
//!
//! Unaware of what the paths mean. A path that does not exist cannot be covered.

use crate::error::{At, ignore, reason};
use rustix::fs::{AtFlags, CWD, StatVfsMountFlags, StatxAttributes, StatxFlags, statvfs, statx};
use rustix::mount::{
    MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_remount, unmount,
};
use rustix::process::{Pid, getegid, geteuid};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities};
use std::collections::BTreeMap;
use std::env::{current_dir, set_current_dir};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};

/// A plan of what to cover, made before anything is restricted.
#[derive(Debug)]
pub(crate) struct View {
    /// Paths, parents first, and whether they become read-only. Those that do not can only not be renamed or replaced.
    covers: BTreeMap<PathBuf, bool>,
    /// Paths that appear empty, and whether the command could read them otherwise.
    hidden: BTreeMap<PathBuf, bool>,
    /// A directory that stays writable below those that become read-only.
    opened: Option<PathBuf>,
    /// The directory of shared memory, which becomes a private one.
    shared_memory: Option<PathBuf>,
    /// Symbolic links, on which nothing can be mounted, so that they can be replaced.
    pub links: Vec<PathBuf>,
    has_network: bool,
}

/// The extent to which the plan has become true.
#[derive(Debug)]
pub(crate) struct Entered {
    /// Things that the command can still do, and why.
    pub open: Vec<String>,
    /// True if the process still has the network interfaces it had.
    pub has_network: bool,
    /// The private directory of shared memory.
    pub shared_memory: Option<PathBuf>,
    /// The reason why there is no user namespace, if one was needed.
    pub obstacle: Option<String>,
}

impl View {
    /// A plan that covers nothing.
    pub(crate) fn new(has_network: bool) -> Self {
        Self {
            covers: BTreeMap::new(),
            hidden: BTreeMap::new(),
            opened: None,
            shared_memory: None,
            links: Vec::new(),
            has_network,
        }
    }

    /// Adds a path that exists at or below one of the writable directories, which are canonical. A directory above it
    /// that could be renamed, and the path with it, is kept in place, too.
    pub(crate) fn cover(&mut self, path: &Path, read_only: bool, writable: &[PathBuf]) {
        let Some(found) = self.follow(path, false, writable) else {
            return;
        };
        let path = found.path();
        let is_writable = writable.iter().any(|dir| path.starts_with(dir));
        let Ok(meta) = path.symlink_metadata() else {
            return;
        };
        if is_writable && !meta.is_symlink() {
            let is_barred = matches!(found, Reached::Barred(_));
            self.keep_above(path, writable);
            self.put_cover(path, read_only || is_barred || !meta.is_dir());
        }
    }

    /// Leaves a directory writable even below one that becomes read-only.
    pub(crate) fn open(&mut self, dir: PathBuf) {
        self.opened = Some(dir);
    }

    pub(crate) fn opened(&self) -> Option<PathBuf> {
        self.opened.clone()
    }

    /// Gives the command shared memory of its own, unless one of these paths lies in that of the system.
    pub(crate) fn replace_shared_memory(&mut self, used: &[PathBuf]) {
        let dir = Path::new("/dev/shm").canonicalize().ok();
        self.shared_memory = dir.filter(|dir| !used.iter().any(|path| path.starts_with(dir)));
    }

    /// Adds a path, if it exists, that is to appear empty. A link is followed. If the command could not read it anyway,
    /// it is no gap that it cannot be hidden. What the command could rename the path with is kept in place.
    pub(crate) fn hide(&mut self, path: &Path, is_readable: bool, writable: &[PathBuf]) {
        let known_links = self.links.len();
        let Some(found) = self.follow(path, true, writable) else {
            return;
        };
        let path = found.path();
        if is_hidden(path) {
            self.links.truncate(known_links);
            return;
        }
        self.keep_above(path, writable);
        *self.hidden.entry(path.to_owned()).or_default() |= is_readable;
    }

    /// Keeps in place the directories above a path that could be renamed, and the path with them.
    fn keep_above(&mut self, path: &Path, writable: &[PathBuf]) {
        for dir in path.ancestors().skip(1) {
            if lies_below(dir, writable) {
                self.put_cover(dir, false);
            }
        }
    }

    fn put_cover(&mut self, path: &Path, read_only: bool) {
        if !is_covered(path, read_only) {
            *self.covers.entry(path.to_owned()).or_default() |= read_only;
        }
    }

    /// Follows a path, and takes note of the links on the way that could be replaced. None if it leads nowhere.
    fn follow(&mut self, path: &Path, follows_last: bool, writable: &[PathBuf]) -> Option<Reached> {
        let path = std::path::absolute(path).ok()?;
        let mut rest: Vec<OsString> = components_reversed(&path);
        let mut at = PathBuf::from("/");
        let mut followed = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            match next.symlink_metadata() {
                Ok(meta) if meta.is_symlink() => {
                    if lies_below(&next, writable) && !self.links.contains(&next) {
                        self.links.push(next.clone());
                    }
                    if rest.is_empty() && !follows_last {
                        return Some(Reached::Path(next));
                    }
                    followed += 1;
                    let target = next.read_link().ok().filter(|_| followed <= MAXSYMLINKS)?;
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    rest.extend(components_reversed(&target));
                }
                Ok(_) => at = next,
                // It is looked into all the same once its owner has changed its mode.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    return Some(Reached::Barred(at));
                }
                Err(_) => return None,
            }
        }
        Some(Reached::Path(at))
    }

    /// Moves this process into the namespaces of the plan. The keeper at the other end of the stream maps the ids.
    ///
    /// # Errors
    /// A user namespace without ids, in which the command could create no files.
    pub(crate) fn enter(&self, keeper: &UnixStream) -> io::Result<Entered> {
        let mut wanted = UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
        wanted.set(UnshareFlags::NEWNET, !self.has_network);
        let mut entered = Entered {
            open: Vec::new(),
            has_network: self.has_network,
            shared_memory: None,
            obstacle: None,
        };
        let dir = current_dir();
        if let Err(e) = check_ids().and_then(|()| unshare(wanted)) {
            request_ids(keeper, false)?;
            let others = [
                (!has_private_ipc(), "System V IPC"),
                (!self.has_network, "sockets other than TCP, such as UDP"),
            ]
            .into_iter()
            .filter(|(is_open, _)| *is_open)
            .map(|(_, what)| what.to_owned());
            let rule = find_obstacle().map(|rule| format!(" ({rule})"));
            let rule = rule.unwrap_or_default();
            let why = format!(
                "the kernel provides no user namespace: {}{rule}",
                reason(&e)
            );
            entered.open.extend(self.all_open(others, &why));
            entered.has_network = true;
            entered.obstacle = Some(why);
            return Ok(entered);
        }
        request_ids(keeper, true)?;
        // Without it the command has none.
        let shared_memory = self.shared_memory.as_ref();
        entered.shared_memory = shared_memory
            .filter(|dir| mount("none", *dir, "tmpfs", UNPRIVILEGED, c"mode=1777").is_ok())
            .cloned();
        entered.open = self.mount(dir);
        Ok(entered)
    }

    /// Things that stay possible without any of the mounts, and perhaps something else.
    fn all_open(&self, others: impl IntoIterator<Item = String>, why: &str) -> Option<String> {
        let list = |paths: Vec<&PathBuf>| {
            let paths: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
            (!paths.is_empty()).then(|| paths.join(", "))
        };
        let changes = list(self.covers.keys().collect()).map(|it| format!("changes to {it}"));
        let readable = self.hidden.iter().filter(|(_, is_readable)| **is_readable);
        let reading =
            list(readable.map(|(path, _)| path).collect()).map(|it| format!("reading {it}"));
        let what: Vec<String> = changes.into_iter().chain(reading).chain(others).collect();
        (!what.is_empty()).then(|| format!("{} ({why})", what.join(" and ")))
    }

    /// Mounts the covers, each by itself: what a running command could do to one of them must not open the others.
    /// Returns what stays open, and why.
    fn mount(&self, dir: io::Result<PathBuf>) -> Vec<String> {
        let mut open = Vec::new();
        for (path, read_only) in &self.covers {
            // One that is gone needs no cover.
            if let Err(e) = cover(path, *read_only).if_there() {
                let why = reason(&e);
                open.push(format!(
                    "changes to {} (cannot mount: {why})",
                    path.display()
                ));
            }
        }
        if let Some(dir) = &self.opened {
            // Without it the command cannot attach anything, and can do nothing more either.
            ignore(uncover(dir));
        }
        if !self.hidden.is_empty()
            && let Err(e) = self.mount_empty()
        {
            let why = format!("cannot mount an empty file: {}", reason(&e));
            open.extend(self.all_open(None, &why));
        }
        for path in self.hidden.keys() {
            if path.exists() && !is_hidden(path) {
                let path = path.display();
                open.push(format!("reading {path} (nothing can be mounted over it)"));
            }
        }
        // The current directory is still the one below the mounts.
        if let Err(e) = dir.and_then(set_current_dir) {
            let why = format!("the current directory has no path: {}", reason(&e));
            open.extend(self.all_open(None, &why));
        }
        if let Some(number) = open_directory() {
            let why = format!("descriptor {number} is a directory that was opened outside");
            open.extend(self.all_open(None, &why));
        }
        open
    }

    /// Mounts an empty file or directory over each hidden path. It is the user's own and private, because programs
    /// check that of what holds keys.
    fn mount_empty(&self) -> io::Result<()> {
        // For a moment in place of /proc, which is there and hides nothing. This process alone is in the namespace.
        let place = Path::new("/proc");
        let (file, dir) = (place.join("file"), place.join("dir"));
        mount("none", place, "tmpfs", SAFE, c"mode=0700")?;
        let hide = || {
            fs::File::options()
                .write(true)
                .create_new(true)
                .mode(0o400)
                .open(&file)?;
            fs::DirBuilder::new().mode(0o500).create(&dir)?;
            for path in self.hidden.keys() {
                let mut above = path.ancestors().skip(1);
                if above.any(|dir| self.hidden.contains_key(dir)) {
                    continue;
                }
                // Whether it has worked is looked at afterwards.
                let empty = if path.is_dir() { &dir } else { &file };
                if mount_bind(empty, path).is_ok() {
                    let flags = MountFlags::BIND | MountFlags::RDONLY | SAFE;
                    ignore(mount_remount(path, flags, ""));
                }
            }
            Ok(())
        };
        let hidden = hide();
        unmount(place, UnmountFlags::DETACH)?;
        hidden
    }
}

/// What keeps this user from getting namespaces, as far as the kernel shows it.
pub(crate) fn find_obstacle() -> Option<&'static str> {
    const SWITCHES: [(&str, &str, &str); 4] = [
        (
            "user/max_user_namespaces",
            "0",
            "the sysctl user.max_user_namespaces is 0",
        ),
        (
            "user/max_net_namespaces",
            "0",
            "the sysctl user.max_net_namespaces is 0",
        ),
        (
            "kernel/unprivileged_userns_clone",
            "0",
            "the sysctl kernel.unprivileged_userns_clone is 0",
        ),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "the sysctl kernel.apparmor_restrict_unprivileged_userns is 1: delta needs the AppArmor profile \
             packaging/apparmor/delta, which the Debian package installs",
        ),
    ];
    let is_set = |(file, value, _): &&(&str, &str, &str)| {
        let text = fs::read_to_string(format!("/proc/sys/{file}"));
        text.is_ok_and(|text| text.trim() == *value)
    };
    SWITCHES.iter().find(is_set).map(|(.., words)| *words)
}

const UNPRIVILEGED: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

const SAFE: MountFlags = UNPRIVILEGED.union(MountFlags::NOEXEC);

/// The kernel follows as many symbolic links in one path.
const MAXSYMLINKS: u32 = 40;

/// The target of a path, without links.
enum Reached {
    Path(PathBuf),
    /// A directory on the way that cannot be searched.
    Barred(PathBuf),
}

impl Reached {
    fn path(&self) -> &Path {
        match self {
            Self::Path(path) | Self::Barred(path) => path,
        }
    }
}

/// The names in a path and its `..`, the last one first.
fn components_reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

/// True if a path can be renamed in one of the directories.
fn lies_below(path: &Path, dirs: &[PathBuf]) -> bool {
    let parent = path.parent();
    parent.is_some_and(|parent| dirs.iter().any(|dir| parent.starts_with(dir)))
}

/// True if the path is empty already, as in a nested sandbox.
fn is_hidden(path: &Path) -> bool {
    let is_empty = match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => path
            .metadata()
            .is_ok_and(|it| it.is_file() && it.len() == 0),
    };
    is_empty && is_covered(path, true)
}

/// True if the path is already a mount point, as in a nested sandbox.
fn is_covered(path: &Path, read_only: bool) -> bool {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    let is_mount = found.is_ok_and(|it| it.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    let flags = statvfs(path).map_or(StatVfsMountFlags::empty(), |it| it.f_flag);
    is_mount && (!read_only || flags.contains(StatVfsMountFlags::RDONLY))
}

/// Mounts a path onto itself. A read-only one fails if something is mounted below it, which would stay writable.
fn cover(path: &Path, read_only: bool) -> io::Result<()> {
    if !read_only {
        return Ok(mount_bind_recursive(path, path)?);
    }
    let flags = held_flags(path)? | MountFlags::RDONLY;
    mount_bind(path, path)?;
    Ok(mount_remount(path, flags, "")?)
}

/// Mounts a path onto itself writably, below one that [`cover`] has made read-only.
fn uncover(path: &Path) -> io::Result<()> {
    mount_bind(path, path)?;
    Ok(mount_remount(path, held_flags(path)?, "")?)
}

/// The flags of a mount that cannot be cleared in a user namespace.
fn held_flags(path: &Path) -> io::Result<MountFlags> {
    let held = statvfs(path)?.f_flag;
    let mut flags = MountFlags::BIND;
    flags.set(MountFlags::NOSUID, held.contains(StatVfsMountFlags::NOSUID));
    flags.set(MountFlags::NODEV, held.contains(StatVfsMountFlags::NODEV));
    flags.set(MountFlags::NOEXEC, held.contains(StatVfsMountFlags::NOEXEC));
    Ok(flags)
}

/// The number of a descriptor of this process that is a directory.
fn open_directory() -> Option<String> {
    let entries = fs::read_dir("/proc/self/fd").ok()?.flatten();
    let mut found = entries.filter(|entry| {
        let is_ours = fs::read_link(entry.path()).is_ok_and(|to| to.starts_with("/proc"));
        !is_ours && entry.path().is_dir()
    });
    let entry = found.next()?;
    Some(entry.file_name().to_string_lossy().into_owned())
}

#[allow(
    deprecated,
    reason = "what makes it unsafe is UnshareFlags::FILES, which is not used"
)]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

/// True in a nested sandbox, whose `/proc` is read-only, if the outer one has left the first namespace of IPC.
fn has_private_ipc() -> bool {
    /// `PROC_IPC_INIT_INO` of `linux/proc_ns.h`.
    const FIRST: u64 = 0xEFFF_FFFF;
    let map = fs::File::options().write(true).open("/proc/self/uid_map");
    let is_barred = map.is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
    is_barred && fs::metadata("/proc/self/ns/ipc").is_ok_and(|it| it.ino() != FIRST)
}

/// Checks that the ids of a new user namespace can be mapped, because it cannot be left again. In a nested sandbox
/// they cannot: `/proc` is read-only there.
fn check_ids() -> io::Result<()> {
    fs::File::options().write(true).open("/proc/self/uid_map")?;
    let held = capabilities(None)?.effective;
    // user_namespaces(7): mapping root takes this capability.
    if geteuid().is_root() && !held.contains(CapabilitySet::SETFCAP) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

/// True if a process can hide paths from what it executes. This one is left in namespaces of its own.
pub(crate) fn can_hide() -> bool {
    let wanted = UnshareFlags::NEWUSER | UnshareFlags::NEWNS;
    let made = check_ids().and_then(|()| unshare(wanted));
    made.is_ok() && mount_bind("/proc", "/proc").is_ok()
}

/// Reports to the keeper whether this process has a new user namespace, and if so waits until its ids are mapped.
fn request_ids(mut keeper: &UnixStream, is_made: bool) -> io::Result<()> {
    let mut byte = [is_made.into()];
    keeper.write_all(&byte)?;
    if is_made {
        keeper.read_exact(&mut byte)?;
    }
    match byte {
        [0] => Ok(()),
        [code] => Err(io::Error::from_raw_os_error(code.into())),
    }
}

/// The keeper's part of [`View::enter`]: maps the ids in the command's user namespace, if any, to themselves.
pub(crate) fn map_ids(command: Pid, mut peer: &UnixStream) {
    let mut is_made = [0];
    if peer.read_exact(&mut is_made).is_ok() && is_made == [1] {
        let code = write_maps(command).map_or_else(|e| e.raw_os_error().unwrap_or(1), |()| 0);
        ignore(peer.write_all(&[code as u8]));
    }
}

fn write_maps(command: Pid) -> io::Result<()> {
    let write = |file: &str, text: &str| {
        let path = format!("/proc/{}/{file}", command.as_raw_pid());
        fs::write(path, text)
    };
    let held = capabilities(None)?.effective;
    if held.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        // Every id that exists here, so that root can still work with other users' files.
        write("uid_map", &identity_map("/proc/self/uid_map")?)?;
        return write("gid_map", &identity_map("/proc/self/gid_map")?);
    }
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    write("setgroups", "deny")?;
    write("uid_map", &format!("{uid} {uid} 1\n"))?;
    write("gid_map", &format!("{gid} {gid} 1\n"))
}

/// A map of every id in this process's namespace to itself.
fn identity_map(map: &str) -> io::Result<String> {
    let text = fs::read_to_string(map)?;
    let ranges = text.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (first, count) = (fields.next()?, fields.nth(1)?);
        Some(format!("{first} {first} {count}\n"))
    });
    Ok(ranges.collect())
}
