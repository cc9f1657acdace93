//! Content for a file: in one step where a new file can be all that the old one was, else in the old one itself.

use crate::engine::attached;
use crate::engine::former_content::BEFORE;
use crate::error::may_fail;
use rustix::fs::{
    Access, OFlags, XattrFlags, access, fgetxattr, flistxattr, fremovexattr, fsetxattr,
};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Failures of a replacement that the file itself may take: its directory takes no new one, it is a mount point, or a new one
/// cannot be like it.
const IN_PLACE: [ErrorKind; 4] = [
    ErrorKind::PermissionDenied,
    ErrorKind::ReadOnlyFilesystem,
    ErrorKind::ResourceBusy,
    ErrorKind::Unsupported,
];

/// Puts content into a file. `mode` is that of one that is there.
pub(super) fn put(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    let Some(mode) = mode else {
        return replace(path, bytes, None);
    };
    access(path, Access::WRITE_OK)?;
    if fs::metadata(path)?.nlink() == 1 {
        match replace(path, bytes, Some(mode)) {
            Err(e) if IN_PLACE.contains(&e.kind()) => {}
            done => return done,
        }
    }
    write_in_place(path, bytes)
}

/// Replaces a file in one step. A new file gets the usual mode.
fn replace(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    let temporary = path.with_file_name(format!(".delta-{}.tmp", std::process::id()));
    let created = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode.map_or(0o666, |_| 0o600))
        .open(&temporary);
    let fill = |mut file: File| {
        file.write_all(bytes)?;
        if let Some(mode) = mode {
            make_alike(&file, &File::open(path)?, mode)?;
        }
        fs::rename(&temporary, path)
    };
    let is_created = created.is_ok();
    let filled = created.and_then(fill);
    if is_created && filled.is_err() {
        may_fail(fs::remove_file(&temporary));
    }
    filled
}

/// Gives a new file the owner, mode, ACL and extended attributes of the old one.
fn make_alike(new: &File, old: &File, mode: u32) -> io::Result<()> {
    let (own, wanted) = (new.metadata()?, old.metadata()?);
    if (own.uid(), own.gid()) != (wanted.uid(), wanted.gid()) {
        fchown(new, Some(wanted.uid()), Some(wanted.gid()))?;
    }
    let before = attributes(old)?;
    for (name, _) in attributes(new)? {
        if !before.iter().any(|(known, _)| *known == name) {
            may_fail(fremovexattr(new, name.as_str()));
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

/// Writes into the file that is there. Until that has succeeded, its former content is in a file of its own, from which the
/// engine restores it if this process is killed.
fn write_in_place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(flags)
        .open(path)?;
    let former = fs::read(path)?;
    let kept = keep(&former)?;
    if let Err(error) = overwrite(&file, bytes) {
        overwrite(&file, &former).map_err(|_| {
            let kept = kept.display();
            io::Error::new(
                error.kind(),
                format!("{error}; its former content is in {kept}"),
            )
        })?;
        may_fail(fs::remove_file(&kept));
        return Err(error);
    }
    fs::remove_file(&kept)
}

fn overwrite(file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)
}

/// Keeps the former content where the engine looks for it, or in the directory for temporary files.
fn keep(bytes: &[u8]) -> io::Result<PathBuf> {
    let write = |path: PathBuf| {
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        let written = file.write_all(bytes).and_then(|()| fs::rename(&new, &path));
        if written.is_err() {
            may_fail(fs::remove_file(&new));
        }
        written.map(|()| path)
    };
    let attach = std::env::var_os(attached::VARIABLE).map(PathBuf::from);
    let kept = attach.and_then(|dir| write(dir.join(BEFORE)).ok());
    let name = format!(".delta-{}{BEFORE}", std::process::id());
    kept.map_or_else(|| write(std::env::temp_dir().join(name)), Ok)
}
