//! `delta report`: a run as one page of HTML on stdout.

use super::log::{SHOWN_SO_FAR, warn_of};
use crate::cli::args::ReportArgs;
use crate::error::{Exit, Result};
use crate::runs::origin::warn_if_foreign_run;
use crate::runs::{find, inspect};
use crate::unix::terminal::print_while_read;
use crate::view::report;

pub(crate) fn print_report(options: &ReportArgs) -> Result<Exit> {
    let run = find::find_run_or_newest(&options.work_dir, options.run.as_deref())?;
    warn_if_foreign_run(&run)?;
    let (summary, _) = inspect::read_summary(&run);
    let root = run.workspace().unwrap_or(&run.path);
    let damaged = report::write(&run, root, &summary, &mut |piece| print_while_read(piece))?;
    for report::Damaged { path, damage } in &damaged {
        warn_of(damage, path, SHOWN_SO_FAR);
    }
    Ok(Exit::Success)
}
