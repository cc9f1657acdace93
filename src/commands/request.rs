//! `delta request`: the exact bytes of a request.

use super::select::named;
use crate::error::{Error, Exit, Result};
use crate::invocations;
use crate::rundir::RunDir;
use crate::screen::print;
use crate::workspace::Workspace;
use std::path::Path;

/// Runs the command.
pub fn run(work_dir: &Path, run: &str, number: Option<usize>) -> Result<Exit> {
    let workspace = Workspace::at(work_dir)?;
    workspace.check_layout()?;
    let id = named(&workspace, run)?;
    let dir = RunDir::of(&workspace, &id).io("invocations");
    let names = invocations::in_order(&dir)?;
    let index = number.unwrap_or(names.len());
    let Some(name) = index.checked_sub(1).and_then(|index| names.get(index)) else {
        return Err(Error::failure(match names.len() {
            0 => format!("run {id} has sent no request yet"),
            1 => format!("run {id} has sent one request, not {index}"),
            sent => format!("run {id} has sent {sent} requests, not {index}"),
        }));
    };
    print(&invocations::request(&dir, name)?)?;
    Ok(Exit::Success)
}
