//! Bytes that belong to events, such as pictures: each once in `io/blobs`, in a file named by its digest.
//!
//! Architecture invariant: bytes are on disk before an event that names them. Whatever is read back is compared with its
//! digest: a workspace may bring any file.

use crate::error::{At, Result};
use crate::text::digest::{sha256, sha256_of};
use crate::unix::files;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The most bytes of one: 5 MB as base64.
pub(crate) const LARGEST: u64 = 3_750_000;

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

/// The length of the base64 of this number of bytes.
pub(crate) fn base64_len(bytes: u64) -> u64 {
    bytes.div_ceil(3) * 4
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

impl Blobs {
    /// The ones of the run in a directory.
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

    /// The bytes of a blob; none if it is gone or changed.
    pub(crate) fn read(&self, digest: &str) -> Option<Vec<u8>> {
        let bytes = files::read_limited(self.file(digest)?, LARGEST).ok()?;
        (sha256(&bytes) == digest).then_some(bytes)
    }
}
