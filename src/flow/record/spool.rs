//! The copy of inputs that come through a pipe: their bytes as they came, in the run's directory.
//!
//! Unaware of where they come from, and of what a line is worth. The file's name says whether it has all of them.

use crate::error::{At, Result};
use crate::unix::files;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// More may come.
const PART: &str = "inputs.part";

/// The pipe was read to its end.
const WHOLE: &str = "inputs.jsonl";

/// The copy.
#[derive(Debug)]
pub(crate) struct InputSpool {
    file: File,
    /// The run's `io` directory.
    dir: PathBuf,
    /// Bytes.
    len: u64,
    is_whole: bool,
}

impl InputSpool {
    /// Opens that of a run, made if it is not there.
    pub(crate) fn open(run: &Path) -> Result<Self> {
        let dir = files::make_dirs_below(run, "io".as_ref())?;
        let whole = dir.join(WHOLE);
        let is_whole = whole.symlink_metadata().is_ok();
        let file = if is_whole {
            files::open_regular(&whole)?
        } else {
            let part = dir.join(PART);
            files::open_or_create(&part).at("open", &part)?
        };
        let len = file.metadata().at("read", &dir)?.len();
        Ok(Self {
            file,
            dir,
            len,
            is_whole,
        })
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The pipe was read to its end.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Opens the file again, to be read from its beginning while it grows.
    pub(crate) fn reader(&self) -> Result<File> {
        files::open_regular(&self.path())
    }

    /// `len` bytes from `start` on.
    pub(crate) fn read(&self, start: u64, len: usize) -> Result<Vec<u8>> {
        files::read_part(&self.file, start, len).at("read", &self.path())
    }

    /// Adds what came. A write that fails is undone.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(bytes, self.len);
        if written.is_err() {
            self.file.set_len(self.len).at("write", &self.path())?;
        }
        written.at("write", &self.path())?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Cuts off an unfinished last line. Returns whether there was one.
    pub(crate) fn cut_unfinished_line(&mut self) -> Result<bool> {
        const PIECE: u64 = 64 << 10;
        let mut end = self.len;
        while end > 0 {
            let start = end.saturating_sub(PIECE);
            let piece = self.read(start, (end - start) as usize)?;
            if let Some(at) = memchr::memrchr(b'\n', &piece) {
                end = start + at as u64 + 1;
                break;
            }
            end = start;
        }
        let was_cut = end < self.len;
        if was_cut {
            self.file.set_len(end).at("write", &self.path())?;
            self.len = end;
        }
        Ok(was_cut)
    }

    /// Nothing more will come: from now on, also for later starts, these are all.
    pub(crate) fn complete(&mut self) -> Result<()> {
        let (part, whole) = (self.dir.join(PART), self.dir.join(WHOLE));
        self.file.sync_data().at("sync", &part)?;
        std::fs::rename(&part, &whole).at("rename", &part)?;
        files::sync_dir(&self.dir)?;
        self.is_whole = true;
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.dir.join(if self.is_whole { WHOLE } else { PART })
    }
}
