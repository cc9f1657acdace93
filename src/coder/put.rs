//! Content for a file: in one step where a new file can be all that the old one was, else in the old one itself.

use crate::engine::former_content::BEFORE;
use crate::engine::outbox;
use crate::error::ignore;
use crate::unix::files;
use crate::unix::replaced::make_alike;
use rustix::fs::{Access, OFlags, access};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
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
    let first_mode = mode.map_or(0o666, |_| 0o600);
    files::swap(path, &temporary, first_mode, |mut file| {
        file.write_all(bytes)?;
        match mode {
            Some(mode) => make_alike(file, &File::open(path)?, mode),
            None => Ok(()),
        }
    })
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
        ignore(fs::remove_file(&kept));
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
        let temporary = path.with_extension(format!("{}.new", std::process::id()));
        files::swap(&path, &temporary, 0o600, |mut file| file.write_all(bytes)).map(|()| path)
    };
    let kept = std::env::var_os(outbox::VARIABLE)
        .map(PathBuf::from)
        .and_then(|dir| write(dir.join(BEFORE)).ok());
    let name = format!(".delta-{}{BEFORE}", std::process::id());
    kept.map_or_else(|| write(std::env::temp_dir().join(name)), Ok)
}
