//! A run's directory: the paths of its files, and its creation in one step.
//!
//! Unaware of what happens in the run.

use crate::error::{At, Error, Result};
use crate::record::journal::Journal;
use crate::record::metadata::Metadata;
use crate::record::workspace::Workspace;
use crate::text::ids::RunId;
use crate::unix::files;
use crate::unix::origin::stamp_new_dir;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Room that is given back when the disk is full, so that the end of the run can still be recorded.
const RESERVE_BYTES: u64 = 32 << 10;

/// What `delta sandbox` does not restrict in the run, and how a line about this kernel begins.
pub(crate) const NOTE: &str = "sandbox.txt";
/// More than all reports of a run.
pub(crate) const NOTE_BYTES: usize = 64 << 10;
pub(crate) const OPEN_HERE: &str = "on this kernel: ";

/// Names the run of a flow, in the programs of its steps.
pub(crate) const FLOW_RUN: &str = "FLOW_RUN_ID";

/// The directories of records that a run may have, below `io`.
const RECORDS: [&str; 5] = ["invocations", "tool_executions", "hooks", "nodes", "trials"];

/// A run's directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunDir {
    /// The run's name.
    pub id: RunId,
    /// The directory, absolute.
    pub path: PathBuf,
}

impl RunDir {
    /// The directory of a run in a workspace.
    pub(crate) fn of(workspace: &Workspace, id: &RunId) -> Self {
        Self {
            id: id.clone(),
            path: workspace.run_path(id),
        }
    }

    /// Creates a run with its first events and metadata. The directory appears when all of it is
    /// there; LATEST names it before that, so that no crash can leave a newer run unnamed.
    ///
    /// # Errors
    /// There is a run of that name, or the disk's.
    pub(crate) fn create(
        workspace: &Workspace,
        id: &RunId,
        metadata: &Metadata,
        first_events: impl FnOnce(&mut Journal) -> Result<()>,
    ) -> Result<(Self, Journal)> {
        let run = Self::of(workspace, id);
        if run.path.exists() {
            return Err(Error::failure(format!("run {id} already exists")));
        }
        let building = workspace.staging_dir();
        workspace.clear_unborn()?;
        files::make_dir(&building)?;
        stamp_new_dir(&building)?;
        let mut journal = Journal::create(&building.join("journal.jsonl"))?;
        first_events(&mut journal)?;
        journal.flush()?;
        journal.moved_to(&run.journal());
        metadata.create(&building)?;
        workspace.name_latest(id)?;
        fs::rename(&building, &run.path).at("create", &run.path)?;
        Ok((run, journal))
    }

    /// The root of the workspace that the run is in; none if it lies somewhere else, as a copy may.
    pub(crate) fn workspace(&self) -> Option<&Path> {
        let control = self.path.parent()?;
        control.ends_with(".delta").then(|| control.parent())?
    }

    /// The journal.
    pub(crate) fn journal(&self) -> PathBuf {
        self.path.join("journal.jsonl")
    }

    /// The engine's log.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("engine.log")
    }

    /// A directory of records, below `io`.
    pub(crate) fn io(&self, kind: &str) -> PathBuf {
        self.path.join("io").join(kind)
    }

    /// Verifies that none of the directories of records leads out of the run's.
    ///
    /// # Errors
    /// One is a link, or no directory.
    pub(crate) fn check_records(&self) -> Result<()> {
        let nodes = self.io("nodes");
        let kinds = RECORDS.map(|kind| self.io(kind));
        for dir in [self.path.join("io")].iter().chain(&kinds) {
            if dir.symlink_metadata().is_ok_and(|it| !it.is_dir()) {
                return Err(files::no_directory()).at("use", dir);
            }
        }
        // Those of a flow's tasks.
        for entry in fs::read_dir(&nodes).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|it| it.is_symlink()) {
                return Err(files::no_directory()).at("use", &entry.path());
            }
        }
        Ok(())
    }

    /// The question's directory.
    pub(crate) fn interaction(&self) -> PathBuf {
        self.path.join("interaction")
    }

    /// Sets room aside until the file is closed; none where the file system cannot.
    pub(crate) fn reserve(&self) -> Option<File> {
        use rustix::fs::{FallocateFlags, fallocate};
        let file = files::create_without_name(&self.path).ok()?;
        fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES)
            .is_ok()
            .then_some(file)
    }

    /// Makes the entry that leads to the directory durable. The entries in it were made before: file systems that keep
    /// the order of their changes (ext4, XFS, btrfs, f2fs) have them on disk, too.
    pub(crate) fn sync_entries(&self) -> Result<()> {
        self.path.parent().map_or(Ok(()), files::sync_dir)
    }
}

/// A path relative to a run's directory, as the journal has it.
pub(crate) fn reference(kind: &str, name: &str) -> String {
    format!("io/{kind}/{name}")
}
