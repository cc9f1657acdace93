//! Directories with all that is in them: removed and copied.
//!
//! Programs may change them meanwhile. Each name is opened in the directory that it was read from, and no link is
//! followed.

use super::files::make_dirs;
use crate::error::{At, Result};
use crate::text::ids::hex;
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags, Timespec,
    Timestamps, fchmod, fstat, futimens, mkdirat, openat, readlinkat, renameat, statat, statx,
    symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Directories below one another that are copied.
const MOST_NESTED: usize = 200;

/// Why the directories below these are left out of a copy.
pub(crate) const NESTED_TOO_DEEP: &str = "nested deeper than 200 directories";

/// A directory of the descriptors that are open at once while a tree is removed.
const OPEN_AT_ONCE: usize = 50;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Removes what is at a path: a directory with all that is in it, anything else by itself.
pub(crate) fn remove_all(path: &Path) -> Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(about) if about.is_dir() => remove_dir(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    removed.if_there().at("remove", path).map(drop)
}

fn remove_dir(path: &Path) -> io::Result<()> {
    let top = openat(CWD, path, DIRECTORY, Mode::empty())?;
    while empty(&top, &top, 0)? {}
    fs::remove_dir(path)
}

/// Removes what is in a directory. What is nested too deep is moved to the top, however deep it is. True: something was.
fn empty(dir: &OwnedFd, top: &OwnedFd, depth: usize) -> rustix::io::Result<bool> {
    let mut is_moved = false;
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_itself(name) {
            continue;
        }
        let removed = match unlinkat(dir, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => match unlinkat(dir, name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) if depth == OPEN_AT_ONCE => {
                    is_moved = true;
                    renameat(dir, name, top, format!(".{}", hex(16)))
                }
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    let below = openat(dir, name, DIRECTORY, Mode::empty())?;
                    is_moved |= empty(&below, top, depth + 1)?;
                    unlinkat(dir, name, AtFlags::REMOVEDIR)
                }
                removed => removed,
            },
            removed => removed,
        };
        match removed {
            Err(Errno::NOENT) => {}
            removed => removed?,
        }
    }
    Ok(is_moved)
}

fn is_itself(name: &CStr) -> bool {
    [c".", c".."].contains(&name)
}

/// Fails if something is mounted at or below a path, or a directory there cannot be read: [`remove_all`] would empty
/// what is mounted, or stop halfway.
pub(crate) fn check_removable(path: &Path) -> Result<()> {
    let mut pending = vec![path.to_owned()];
    let mut device = None;
    while let Some(path) = pending.pop() {
        let found = statx(CWD, &path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE);
        // A path that is too long for the system is removed without one.
        if let Err(Errno::NOENT | Errno::NAMETOOLONG) = found {
            continue;
        }
        let about = found.at("read", &path)?;
        let on = (about.stx_dev_major, about.stx_dev_minor);
        let is_mounted = about.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        if is_mounted || *device.get_or_insert(on) != on {
            let mounted = "something is mounted there; unmount it first";
            return Err(io::Error::other(mounted)).at("remove", &path);
        }
        if FileType::from_raw_mode(about.stx_mode.into()).is_dir() {
            for entry in fs::read_dir(&path).at("read", &path)? {
                pending.push(entry.at("read", &path)?.path());
            }
        }
    }
    Ok(())
}

/// The room that a file, or a directory with all that is in it, takes. What several share is divided.
pub(crate) fn room_of(path: &Path) -> u64 {
    let mut pending = vec![path.to_owned()];
    let mut room = 0;
    while let Some(path) = pending.pop() {
        let Ok(meta) = path.symlink_metadata() else {
            continue;
        };
        if meta.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            pending.extend(entries.map(|entry| entry.path()));
            room += meta.blocks() * 512;
        } else {
            room += meta.blocks() * 512 / meta.nlink().max(1);
        }
    }
    room
}

/// True if there is nothing but files in a directory, and directories of the same user. No link leads out of it then.
pub(crate) fn is_plain(dir: &Path) -> io::Result<bool> {
    let owner = dir.symlink_metadata()?.uid();
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        let opened = openat(CWD, &dir, DIRECTORY, Mode::empty()).map_err(io::Error::from);
        let Some(opened) = opened.if_there()? else {
            continue;
        };
        if fstat(&opened)?.st_uid != owner {
            return Ok(false);
        }
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            match entry.file_type().if_there()? {
                Some(kind) if kind.is_dir() => pending.push(entry.path()),
                Some(kind) if !kind.is_file() => return Ok(false),
                _ => {}
            }
        }
    }
    Ok(true)
}

/// Something that was not copied.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub path: PathBuf,
    /// Follows "is".
    pub why: &'static str,
}

/// Copies a directory with everything in it but the entries named in `without`, which is not looked for further down.
/// The copy must not be there yet, or be empty. Permissions, times of modification and holes are kept, and symbolic links
/// are copied as links. Returns what is neither a file nor a directory nor a link, or nested too deep, and was left out.
pub(crate) fn copy_tree(from: &Path, to: &Path, without: &[&str]) -> Result<Vec<LeftOut>> {
    make_dirs(to)?;
    let open = |path: &Path| openat(CWD, path, DIRECTORY & !OFlags::NOFOLLOW, Mode::empty());
    let source = open(from).at("read", from)?;
    let target = open(to).at("write", to)?;
    let mut copying = Copying {
        path: from.to_owned(),
        depth: 0,
        left_out: Vec::new(),
    };
    copying.directory(&source, &target, without)?;
    Ok(copying.left_out)
}

/// A tree that is being copied.
struct Copying {
    /// The path of the entry that is copied now.
    path: PathBuf,
    depth: usize,
    left_out: Vec<LeftOut>,
}

impl Copying {
    fn directory(&mut self, from: &OwnedFd, to: &OwnedFd, without: &[&str]) -> Result<()> {
        for entry in Dir::read_from(from).at("read", &self.path)? {
            let entry = entry.at("read", &self.path)?;
            let name = entry.file_name();
            let shown = OsStr::from_bytes(name.to_bytes());
            if is_itself(name) || without.iter().any(|left| shown == *left) {
                continue;
            }
            self.path.push(shown);
            self.entry(from, to, name)?;
            self.path.pop();
        }
        // Last: a directory that cannot be written to could not be filled.
        let kept = fstat(from).and_then(|about| keep_mode(to, &about));
        kept.at("write", &self.path)
    }

    fn entry(&mut self, from: &OwnedFd, to: &OwnedFd, name: &CStr) -> Result<()> {
        let about = statat(from, name, AtFlags::SYMLINK_NOFOLLOW).at("read", &self.path)?;
        match FileType::from_raw_mode(about.st_mode) {
            FileType::Directory if self.depth == MOST_NESTED => {
                self.leave_out(NESTED_TOO_DEEP);
            }
            FileType::Directory => {
                let below = openat(from, name, DIRECTORY, Mode::empty()).at("read", &self.path)?;
                let made = mkdirat(to, name, Mode::RWXU)
                    .and_then(|()| openat(to, name, DIRECTORY, Mode::empty()))
                    .at("copy", &self.path)?;
                self.depth += 1;
                self.directory(&below, &made, &[])?;
                self.depth -= 1;
            }
            FileType::Symlink => {
                let target = readlinkat(from, name, Vec::new());
                let copied = target.and_then(|target| symlinkat(target, to, name));
                copied.at("copy", &self.path)?;
            }
            FileType::RegularFile => copy_file(from, to, name).at("copy", &self.path)?,
            _ => self.leave_out("not a regular file"),
        }
        Ok(())
    }

    fn leave_out(&mut self, why: &'static str) {
        let path = self.path.clone();
        self.left_out.push(LeftOut { path, why });
    }
}

fn copy_file(from: &OwnedFd, to: &OwnedFd, name: &CStr) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut source = File::from(openat(from, name, flags, Mode::empty())?);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut copy = File::from(openat(to, name, flags, Mode::RUSR | Mode::WUSR)?);
    let about = fstat(&source)?;
    let len = about.st_size.cast_unsigned();
    let mut at = 0;
    // The parts between holes; a file system that does not know holes has one.
    while at < len {
        let start = match rustix::fs::seek(&source, rustix::fs::SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            found => found.unwrap_or(at),
        };
        let end = rustix::fs::seek(&source, rustix::fs::SeekFrom::Hole(start)).unwrap_or(len);
        source.seek(SeekFrom::Start(start))?;
        copy.seek(SeekFrom::Start(start))?;
        if io::copy(&mut (&source).take(end.min(len) - start), &mut copy)? == 0 {
            break;
        }
        at = end;
    }
    copy.set_len(len)?;
    Ok(keep_mode(&copy, &about)?)
}

/// Gives a copy the permissions and the time of modification of its original.
fn keep_mode(copy: impl rustix::fd::AsFd, about: &Stat) -> rustix::io::Result<()> {
    let modified = Timespec {
        tv_sec: about.st_mtime,
        tv_nsec: about.st_mtime_nsec.cast_signed(),
    };
    let times = Timestamps {
        last_access: modified,
        last_modification: modified,
    };
    futimens(&copy, &times)?;
    fchmod(copy, Mode::from_raw_mode(about.st_mode))
}
