//! The bytes of attachments: each once in `io/blobs`, in a file named by its digest.
//!
//! Architecture invariant: bytes are on disk before an event that names them. Whatever is read back is compared with its
//! digest: a workspace may bring any file.

use super::{Attachment, LARGEST};
use crate::error::{At, Result};
use crate::text::digest::{sha256, sha256_of};
use crate::unix::files;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The directory of a run's blobs, from the run's directory.
const BLOBS: &str = "io/blobs";

/// The blobs of a run.
#[derive(Debug)]
pub(crate) struct Blobs {
    dir: PathBuf,
    /// What a file was when its digest was right.
    known: HashMap<String, FileStamp>,
}

/// Whatever writes to a file changes it.
type FileStamp = (u64, u64, i64, i64);

fn stamp(file: &File) -> io::Result<FileStamp> {
    let meta = file.metadata()?;
    Ok((meta.ino(), meta.len(), meta.ctime(), meta.ctime_nsec()))
}

/// Keeps bytes in a run's directory. They are on disk when this returns, unless `syncs` is false.
pub(crate) fn store(run: &Path, bytes: &[u8], syncs: bool) -> Result<()> {
    let dir = files::make_dirs_below(run, Path::new(BLOBS))?;
    let digest = sha256(bytes);
    let path = dir.join(&digest);
    let there = files::open_unlinked(&path).and_then(|file| files::read_limited(file, LARGEST));
    let is_there = there.is_ok_and(|there| there == bytes);
    if !is_there {
        files::replace(&path, bytes)?;
    }
    if !syncs {
        return Ok(());
    }
    // What an earlier process found there need not be on disk either.
    files::open_unlinked(&path)
        .and_then(|file| file.sync_all())
        .at("sync", &path)?;
    files::sync_dir(&dir)?;
    dir.parent().map_or(Ok(()), files::sync_dir)
}

/// Copies the blobs of these attachments from one run to another. What is gone is left out.
pub(crate) fn copy<'a>(
    from: &Path,
    to: &Path,
    attachments: impl Iterator<Item = &'a Attachment>,
) -> Result<()> {
    let blobs = Blobs::of(from);
    for attachment in attachments {
        if let Some(bytes) = blobs.read(attachment) {
            store(to, &bytes, true)?;
        }
    }
    Ok(())
}

impl Blobs {
    /// Those of the run in a directory.
    pub(crate) fn of(run: &Path) -> Self {
        Self {
            dir: run.join(BLOBS),
            known: HashMap::new(),
        }
    }

    pub(crate) fn path(&self, digest: &str) -> PathBuf {
        self.dir.join(digest)
    }

    /// Opens the file of a blob. None if it is no regular file of a run's own directory.
    fn file(&self, digest: &str) -> Option<File> {
        let is_real = |path: &Path| path.symlink_metadata().is_ok_and(|it| it.is_dir());
        let io = self.dir.parent()?;
        if !is_real(io) || !is_real(&self.dir) {
            return None;
        }
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::options()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(self.path(digest))
            .ok()?;
        let meta = file.metadata().ok()?;
        (meta.is_file() && meta.len() <= LARGEST).then_some(file)
    }

    /// Opens a blob. None if it is gone or changed.
    pub(crate) fn open(&mut self, digest: &str) -> Option<File> {
        let mut file = self.file(digest)?;
        let now = stamp(&file).ok()?;
        if self.known.get(digest) == Some(&now) {
            return Some(file);
        }
        let (_, sum) = sha256_of(&mut file, &mut std::io::sink(), &|| false).ok()??;
        if sum != digest || stamp(&file).ok()? != now {
            return None;
        }
        self.known.insert(digest.to_owned(), now);
        Some(file)
    }

    /// The bytes of a blob; none as for [`Self::open`].
    pub(crate) fn len(&mut self, digest: &str) -> Option<u64> {
        Some(self.open(digest)?.metadata().ok()?.len())
    }

    /// True if the bytes of an attachment are there.
    pub(crate) fn has(&mut self, attachment: &Attachment) -> bool {
        self.len(&attachment.sha256) == Some(attachment.bytes)
    }

    /// The bytes of an attachment, if they are there.
    pub(crate) fn read(&self, attachment: &Attachment) -> Option<Vec<u8>> {
        let file = self.file(&attachment.sha256)?;
        let bytes = files::read_limited(file, LARGEST).ok()?;
        let is_it = bytes.len() as u64 == attachment.bytes && sha256(&bytes) == attachment.sha256;
        is_it.then_some(bytes)
    }
}
