//! What is remembered, and how a node's context is chosen from it.
//!
//! Unaware of the loop and of the journal. What a run remembers lives in the run, and is built again from
//! its record when the run resumes; what others are to find is appended to the files of stores.

pub(crate) mod item;
pub(crate) mod store;
pub(crate) mod rank;
pub(crate) mod select;
pub(crate) mod recall;

use super::manifest::Flow;
use super::manifest::memory::StoreName;
use std::path::Path;
use store::StoreFile;

/// The file of a store; none if it lives in runs only. `root` is the workspace.
pub(crate) fn store_file(flow: &Flow, which: StoreName, root: &Path) -> Option<StoreFile> {
    let settings = flow.memory.store(which);
    Some(StoreFile {
        path: settings.path(&flow.home, root)?,
        max_items: settings.max_items.map(|max| max as usize),
    })
}
