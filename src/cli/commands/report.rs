//! `delta report`: a run as one page of HTML on stdout, or in a directory with the pages that it links to.

use super::log::{SHOWN_SO_FAR, warn_of};
use crate::config::environment::Environment;
use crate::error::{Error, Exit, Result};
use crate::record::event::evaluation::RESULTS;
use crate::record::metadata::Metadata;
use crate::record::reader::JournalSource;
use crate::record::run_dir::RunDir;
use crate::runs::origin::warn_if_foreign_run;
use crate::runs::{find, inspect};
use crate::text::options::parse::ParsedCommand;
use crate::unix::files;
use crate::unix::secret::Secret;
use crate::unix::terminal::print_json_while_read;
use crate::view::evaluation_page::EvaluationPage;
use crate::view::report;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(crate) fn print_report(given: &ParsedCommand) -> Result<Exit> {
    let output = output_of(given)?;
    let run = find::find_run_or_newest(&given.work_dir(), given.operand_text(0).as_deref())?;
    warn_if_foreign_run(&run)?;
    let is_evaluation = run.path.join(RESULTS).is_dir();
    let known = is_evaluation.then(secrets).transpose()?;
    let page = known.map(|known| EvaluationPage::read(&run, known));
    match (output, page.transpose()?.flatten()) {
        // Outside of its JSON no piece has what is escaped there.
        (None, None) => write_page(&run, &mut |piece| print_json_while_read(piece))?,
        (None, Some(page)) => page.write(None, &mut |piece| print_json_while_read(piece))?,
        (Some(dir), None) => write_file(&run, &dir.join("index.html"))?,
        (Some(dir), Some(page)) => write_evaluation(&run, &page, &dir)?,
    }
    Ok(Exit::Success)
}

/// Where the page goes; none: the standard output.
fn output_of(given: &ParsedCommand) -> Result<Option<PathBuf>> {
    let output = given.path("--output");
    if output.is_none() && io::stdout().is_terminal() {
        return Err(Error::usage(
            "the page is for a browser: give -o, or redirect the output to a file",
        ));
    }
    Ok(output)
}

/// `delta eval report`.
pub(crate) fn print_evaluation(given: &ParsedCommand) -> Result<Exit> {
    if let Some(option) = given.given_options().find(|it| *it != "--output") {
        return Err(Error::usage(format!("report takes no {option}")));
    }
    let output = output_of(given)?;
    let workspace = find::open_workspace(&given.operand_dir(1))?;
    let has_results =
        |run: &RunDir, _: JournalSource<'_>, _: &Metadata| Ok(run.path.join(RESULTS).is_dir());
    let none = || {
        let root = workspace.root.display();
        Error::failure(format!(
            "there is no result of an evaluation in {root}; `delta eval -w {root}` runs what is missing, and prints one"
        ))
    };
    let found = find::newest_where(&workspace, has_results)?;
    let run = found.ok_or_else(none)?.run;
    warn_if_foreign_run(&run)?;
    let page = EvaluationPage::read(&run, secrets()?)?.ok_or_else(none)?;
    match output {
        None => page.write(None, &mut |piece| print_json_while_read(piece))?,
        Some(path) if path.is_dir() || path.as_os_str().as_bytes().ends_with(b"/") => {
            write_evaluation(&run, &page, &path)?;
        }
        Some(file) => write_to(&file, |sink| page.write(None, sink))?,
    }
    Ok(Exit::Success)
}

/// The keys that are known here.
fn secrets() -> Result<Vec<Secret>> {
    Ok(Environment::read(Path::new("."), None, None)?.0.secrets())
}

/// Writes the page of an evaluation, and those of its trials, into a directory.
fn write_evaluation(run: &RunDir, page: &EvaluationPage<'_>, dir: &Path) -> Result<()> {
    let root = run.workspace().unwrap_or(&run.path);
    for (file, trial) in page.runs(root) {
        warn_if_foreign_run(&trial)?;
        write_file(&trial, &dir.join(file))?;
    }
    write_to(&dir.join("index.html"), |sink| page.write(Some(root), sink))
}

/// Writes the page of a run into a file.
fn write_file(run: &RunDir, file: &Path) -> Result<()> {
    write_to(file, |sink| write_page(run, sink))
}

/// Writes into a file what `write` gives to a sink.
fn write_to(file: &Path, write: impl FnOnce(&mut report::Sink<'_>) -> Result<()>) -> Result<()> {
    if let Some(dir) = file.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        files::make_dirs(dir)?;
    }
    let mut page = Vec::new();
    write(&mut |piece| {
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
