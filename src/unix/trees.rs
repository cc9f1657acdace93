//! Directories with all that is in them: removed and copied.

use super::files::make_dirs;
use crate::error::{At, Result};
use rustix::fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags, statx};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Removes what is at a path: a directory with all that is in it, anything else by itself.
pub(crate) fn remove_all(path: &Path) -> Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(about) if about.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e).at("remove", path),
        _ => Ok(()),
    }
}

/// Fails if something is mounted at or below a path, or a directory there cannot be read: [`remove_all`] would empty
/// what is mounted, or stop halfway.
pub(crate) fn check_removable(path: &Path) -> Result<()> {
    let mut pending = vec![path.to_owned()];
    let mut device = None;
    while let Some(path) = pending.pop() {
        let found = statx(CWD, &path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE);
        let about = match found.map_err(io::Error::from) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            found => found.at("read", &path)?,
        };
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

/// Copies a directory with everything in it but the entries named in `without`, which is not looked
/// for further down. The copy must not be there yet, or be empty. Permissions are kept, and symbolic
/// links are copied as links. Returns what is neither a file nor a directory nor a link, and was left
/// out.
pub(crate) fn copy_tree(from: &Path, to: &Path, without: &[&str]) -> Result<Vec<PathBuf>> {
    let mut left_out = Vec::new();
    make_dirs(to)?;
    for entry in fs::read_dir(from).at("read", from)? {
        let entry = entry.at("read", from)?;
        let (path, kind) = (entry.path(), entry.file_type().at("read", from)?);
        let copy = to.join(entry.file_name());
        if without.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if kind.is_dir() {
            left_out.extend(copy_tree(&path, &copy, &[])?);
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).at("read", &path)?;
            std::os::unix::fs::symlink(target, &copy).at("create", &copy)?;
        } else if kind.is_file() {
            fs::copy(&path, &copy).at("copy", &path)?;
        } else {
            left_out.push(path);
        }
    }
    // Last: a directory that cannot be written to could not be filled.
    let permissions = from.metadata().at("read", from)?.permissions();
    fs::set_permissions(to, permissions).at("write", to)?;
    Ok(left_out)
}
