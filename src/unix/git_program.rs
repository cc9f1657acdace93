//! The git that works on the repositories and files of others.

use crate::unix::programs::{find_program, search_path};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The path of git in an absolute directory of this process's `PATH`, such that neither it nor the file that it leads to is
/// below `root`, whose path is real.
pub(crate) fn git_outside(root: &Path) -> Option<PathBuf> {
    let is_outside = |path: &PathBuf| {
        let real = path.canonicalize();
        path.is_absolute() && !path.starts_with(root) && real.is_ok_and(|it| !it.starts_with(root))
    };
    std::env::split_paths(&search_path())
        .filter(is_outside)
        .filter_map(|dir| find_program("git", dir.as_os_str()))
        .find(is_outside)
}

/// Opens a pipe in the place of a file that git reads: while it is open, git finds it empty and does not wait for a writer.
pub(crate) fn hold_pipe(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let is_pipe = path.symlink_metadata().ok()?.file_type().is_fifo();
    is_pipe.then(|| openat(CWD, path, flags, Mode::empty()).ok())?
}
