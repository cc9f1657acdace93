//! The programs that are installed together with this one.

use std::path::PathBuf;

/// A program beside this one; none if it is not there, so that PATH decides.
pub(crate) fn find_sibling(program: &str) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(program);
    path.is_file().then_some(path)
}
