//! Files below a directory that others take the place of, which are like them but for their content.
//!
//! Architecture invariant: no link is followed, and a file that has another name elsewhere keeps its content there.

use super::files::{enter, make_and_enter, open_below, open_unlinked, parent_below};
use crate::error::{At, Result, ignore};
use rustix::fs::{
    AtFlags, CWD, Mode, XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr, renameat,
    unlinkat,
};
use rustix::io::Errno;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

/// Moves a file or a link to a path below a directory, in one step; directories on the way are made. A file that is there
/// leaves it its owner, ACL and mode, but for the right to execute it.
pub(crate) fn place(file: &Path, dir: &Path, path: &Path) -> Result<()> {
    let usual = make_and_enter(Mode::from_raw_mode(0o777));
    let place = dir.join(path);
    let (parent, name) = parent_below(dir, path, usual).at("write", &place)?;
    let (new, old) = (open_unlinked(file).ok(), open_below(dir, path).ok());
    let alike = new
        .as_ref()
        .zip(old.as_ref())
        .map(|(new, old)| make_like(new, old));
    let moved = alike.unwrap_or(Ok(()));
    moved
        .and_then(|()| Ok(renameat(CWD, file, &parent, name)?))
        .at("write", &place)
}

/// What may execute the new file decides that for the old one's mode.
fn make_like(new: &File, old: &File) -> io::Result<()> {
    let (wanted, mode) = (new.metadata()?.mode(), old.metadata()?.mode() & 0o7777);
    make_alike(new, old, mode)?;
    let executed = match (wanted & 0o100, mode & 0o100) {
        (0, 0) | (0o100, 0o100) => return Ok(()),
        (0, _) => mode & !0o111,
        _ => mode | (mode >> 2 & 0o111),
    };
    new.set_permissions(Permissions::from_mode(executed))
}

/// Removes a file or a link below a directory, or with `REMOVEDIR` an empty directory, if it is there.
pub(crate) fn remove_below(dir: &Path, path: &Path, flags: AtFlags) -> Result<()> {
    let removed = parent_below(dir, path, enter)
        .and_then(|(parent, name)| Ok(unlinkat(&parent, name, flags)?));
    removed.if_there().at("remove", &dir.join(path)).map(drop)
}

/// Gives a new file the owner, mode, ACL and extended attributes of the old one.
pub(crate) fn make_alike(new: &File, old: &File, mode: u32) -> io::Result<()> {
    let (own, wanted) = (new.metadata()?, old.metadata()?);
    if (own.uid(), own.gid()) != (wanted.uid(), wanted.gid()) {
        fchown(new, Some(wanted.uid()), Some(wanted.gid()))?;
    }
    let before = attributes(old)?;
    for (name, _) in attributes(new)? {
        if !before.iter().any(|(known, _)| *known == name) {
            ignore(fremovexattr(new, name.as_str()));
        }
    }
    new.set_permissions(Permissions::from_mode(mode))?;
    for (name, value) in before {
        let set = fsetxattr(new, name.as_str(), &value, XattrFlags::empty());
        // Labels of the system are given by the system.
        if !name.starts_with("security.") {
            set?;
        }
    }
    Ok(())
}

/// The extended attributes of a file, ACLs among them.
fn attributes(file: &File) -> io::Result<Vec<(String, Vec<u8>)>> {
    /// Maximum sizes of a list and of a value (xattr(7)).
    const ROOM: usize = 64 << 10;
    let mut names = vec![0; ROOM];
    let length = match flistxattr(file, &mut names[..]) {
        Err(Errno::NOTSUP) => 0,
        length => length?,
    };
    let names = String::from_utf8_lossy(&names[..length]).into_owned();
    let mut found = Vec::new();
    for name in names.split_terminator('\0') {
        let mut value = vec![0; ROOM];
        let length = fgetxattr(file, name, &mut value[..])?;
        value.truncate(length);
        found.push((name.to_owned(), value));
    }
    Ok(found)
}
