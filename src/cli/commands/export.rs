//! `delta export`: runs in forms that other programs read, on stdout.

use super::log::warn_of;
use crate::cli::args::{ExportArgs, ExportForm};
use crate::error::{Error, Exit, Result};
use crate::export::{RecordedRun, atif, chat, otlp, read_run};
use crate::record::run_dir::RunDir;
use crate::runs::find;
use crate::runs::origin::warn_if_foreign_run;
use crate::text::amounts::counted;
use crate::text::disguise::printable_json;
use crate::text::json;
use crate::unix::terminal::{Screen, print_while_read};

pub(crate) fn export_runs(options: &ExportArgs) -> Result<Exit> {
    let runs = match options.runs.as_slice() {
        [] => vec![find::find_run_or_newest(&options.work_dir, None)?],
        names => {
            let found = names
                .iter()
                .map(|name| find::find_run(&options.work_dir, name));
            found.collect::<Result<_>>()?
        }
    };
    let mut failures = 0;
    for run in &runs {
        match export(run, options) {
            Ok(is_whole) => failures += usize::from(!is_whole),
            Err(error) if runs.len() == 1 => return Err(error),
            Err(error) => {
                Screen::new(false, false).warn(&error.message);
                failures += 1;
            }
        }
    }
    match failures {
        0 => Ok(Exit::Success),
        _ => Err(Error::failure(format!(
            "{} could not be exported as a whole",
            counted(failures, "run")
        ))),
    }
}

/// False if some of the run cannot be read.
fn export(run: &RunDir, options: &ExportArgs) -> Result<bool> {
    warn_if_foreign_run(run)?;
    let recorded = read_run(run)?;
    for (path, damage) in &recorded.damaged {
        warn_of(damage, path, "left out");
    }
    if recorded.steps.is_empty() {
        let id = &run.id;
        return Err(Error::failure(format!(
            "run {id} has nothing to export: there is no message in it"
        )));
    }
    print_run(&recorded, options)?;
    Ok(recorded.damaged.is_empty())
}

fn print_run(run: &RecordedRun, options: &ExportArgs) -> Result<()> {
    let lines = match options.form {
        ExportForm::Otlp => {
            let wanted = (options.has_content, options.has_old_names);
            return otlp::write(run, wanted, &mut print_line);
        }
        ExportForm::Atif => vec![atif::trajectory(run)],
        ExportForm::Chat => chat::conversations(run),
    };
    for line in lines {
        if !print_line(&json::text(&line))? {
            break;
        }
    }
    Ok(())
}

/// Prints a line; on a terminal without characters that control it. Returns whether anybody still reads.
fn print_line(json: &str) -> Result<bool> {
    print_while_read((printable_json(json) + "\n").as_bytes())
}
