//! RUN@N: the state after an iteration of a run, or RUN, its last state.

use crate::error::{Error, Result};
use crate::record::recording::unreadable;
use crate::record::run_dir::RunDir;
use crate::record::state::{self, FileState, FileStates, Reading};
use crate::unix::files;

/// A run and, after an @, an iteration, as a person writes them.
pub(crate) fn split_step(text: &str) -> (&str, Option<u64>) {
    let step = text.rsplit_once('@').and_then(|(run, number)| {
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        Some((run, number.parse().ok().filter(|_| is_number)?))
    });
    step.map_or((text, None), |(run, number)| (run, Some(number)))
}

/// The states of a run, from its journal.
pub(crate) fn states_of(run: &RunDir) -> Result<FileStates> {
    let path = run.journal();
    let journal = files::read_regular(&path).map_err(|e| Error::io("read", &path, &e))?;
    let mut state =
        state::read(&journal, Reading::all(false)).map_err(|error| unreadable(&error, &path))?;
    Ok(std::mem::take(&mut state.file_states))
}

/// The state after an iteration, or the last one.
///
/// # Errors
/// The run has no such state.
pub(crate) fn find_state(run: &RunDir, iteration: Option<u64>) -> Result<FileState> {
    let states = states_of(run)?;
    let found = match iteration {
        Some(iteration) => states.after(iteration),
        None => states.all.last(),
    };
    found.cloned().ok_or_else(|| {
        let at = iteration.map_or_else(String::new, |n| format!(" after iteration {n}"));
        Error::failure(format!("run {} has no state of its files{at}", run.id))
    })
}
