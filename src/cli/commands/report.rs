//! `delta report`: a run as one page of HTML on stdout, or in a directory with the pages that it links to.

use super::log::{SHOWN_SO_FAR, warn_of};
use crate::cli::args::ReportArgs;
use crate::error::{Exit, Result};
use crate::record::run_dir::RunDir;
use crate::runs::origin::warn_if_foreign_run;
use crate::runs::{find, inspect};
use crate::unix::files;
use crate::unix::terminal::{print_json_while_read, print_while_read};
use crate::view::evaluation_page::EvaluationPage;
use crate::view::report;
use std::path::Path;

pub(crate) fn print_report(options: &ReportArgs) -> Result<Exit> {
    let run = find::find_run_or_newest(&options.work_dir, options.run.as_deref())?;
    warn_if_foreign_run(&run)?;
    let evaluation = EvaluationPage::read(&run)?;
    match (&options.output, evaluation) {
        // Outside of its JSON no piece has what is escaped there.
        (None, None) => write_page(&run, &mut |piece| print_json_while_read(piece))?,
        (None, Some(page)) => {
            print_while_read(page.html(&run, None).as_bytes())?;
        }
        (Some(dir), None) => write_file(&run, &dir.join("index.html"))?,
        (Some(dir), Some(page)) => write_evaluation(&run, &page, dir)?,
    }
    Ok(Exit::Success)
}

/// Writes the page of an evaluation, and those of its trials, into a directory.
fn write_evaluation(run: &RunDir, page: &EvaluationPage, dir: &Path) -> Result<()> {
    let root = run.workspace().unwrap_or(&run.path);
    for (file, trial) in page.runs(root) {
        warn_if_foreign_run(&trial)?;
        write_file(&trial, &dir.join(file))?;
    }
    files::make_dirs(dir)?;
    let html = page.html(run, Some(root));
    files::replace_shared(&dir.join("index.html"), html.as_bytes())
}

/// Writes the page of a run into a file.
fn write_file(run: &RunDir, file: &Path) -> Result<()> {
    if let Some(dir) = file.parent() {
        files::make_dirs(dir)?;
    }
    let mut page = Vec::new();
    write_page(run, &mut |piece| {
        page.extend_from_slice(piece);
        Ok(true)
    })?;
    files::replace_shared(file, &page)
}

fn write_page(run: &RunDir, sink: &mut report::Sink<'_>) -> Result<()> {
    let (summary, _) = inspect::read_summary(run);
    for report::Damaged { path, damage } in &report::write(run, &summary, sink)? {
        warn_of(damage, path, SHOWN_SO_FAR);
    }
    Ok(())
}
