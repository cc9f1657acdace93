//! The basis of a run, as its journal has it: the flow, the start, the input.
//!
//! Unaware of command lines.

use super::events::{each_line, read_text};
use crate::error::Result;
use crate::flow::graph::Payload;
use crate::flow::manifest::{self, Flow, UsedFile, sha256};
use crate::record::event::Recorded;
use crate::record::reader::JournalSource;
use crate::record::run_dir::RunDir;
use serde::Deserialize;
use std::path::PathBuf;

/// The basis of a run, from its journal.
#[derive(Debug, Deserialize)]
pub(crate) struct RecordedBasis {
    /// The flow's directory.
    pub home: PathBuf,
    /// The node where its root tasks began.
    pub start: String,
    input_sha256: Option<String>,
    /// The file with many inputs, or `-` for a pipe.
    pub inputs: Option<String>,
    files: Vec<UsedFile>,
    #[serde(skip)]
    pub input: Option<Payload>,
}

impl RecordedBasis {
    /// The newest basis in a run's journal; none if the run is not a flow's.
    pub(crate) fn read(run: &RunDir) -> Result<Option<Self>> {
        Self::read_in(run, (&run.journal()).into())
    }

    /// Reads it from the journal as it was read before.
    pub(crate) fn read_in(run: &RunDir, journal: JournalSource<'_>) -> Result<Option<Self>> {
        let mut found = None;
        each_line(journal, true, |line| {
            let Recorded::FlowStart(start) = &line.event else {
                // It follows a start, or is missing.
                return Ok(found.is_some() || matches!(line.event, Recorded::EngineStart(_)));
            };
            if let Some(basis) = start.flow.read::<Self>() {
                let input = read_text(&run.path, start.input.0, &start.input_ref)?;
                found = Some(Self { input, ..basis });
            }
            Ok(true)
        })?;
        Ok(found)
    }

    /// The flow, unless its files have changed since.
    pub(crate) fn unchanged_flow(&self) -> Option<Flow> {
        let flow = manifest::load_flow(&self.home).flow;
        flow.filter(|flow| self.changes(flow).is_empty())
    }

    /// Each of its inputs is the task of a root of its own.
    pub(crate) fn has_many_roots(&self) -> bool {
        self.inputs.is_some()
    }

    /// The files that are not what they were, or are there no more, or were not there.
    pub(crate) fn changes(&self, flow: &Flow) -> Vec<String> {
        let changed = self.files.iter().filter(|file| !flow.files.contains(file));
        let is_new = |file: &&UsedFile| !self.files.iter().any(|then| then.path == file.path);
        let new = flow.files.iter().filter(is_new);
        changed.chain(new).map(|file| file.path.clone()).collect()
    }

    /// True if the run has this single input.
    pub(crate) fn is_given(&self, input: &str) -> bool {
        self.input_sha256 == Some(sha256(input.as_bytes()))
    }
}
