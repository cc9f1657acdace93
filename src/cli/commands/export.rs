//! `delta export`: runs in forms that other programs read, on stdout.

use super::log::warn_of;
use crate::error::{Error, Exit, Result};
use crate::export::{RecordedRun, atif, cases, chat, otlp, read_run};
use crate::record::run_dir::RunDir;
use crate::runs::find;
use crate::runs::origin::warn_if_foreign_run;
use crate::text::amounts::counted;
use crate::text::disguise::printable_json;
use crate::text::json;
use crate::text::options::parse::ParsedCommand;
use crate::unix::terminal::{print_while_read, warn};

pub(crate) fn export_runs(given: &ParsedCommand) -> Result<Exit> {
    let is_trace = given.text("--format").as_deref() == Some("otlp");
    let options = ["--content", "--compat"];
    if let Some(option) = options.iter().find(|it| given.has(it) && !is_trace) {
        return Err(Error::usage(format!("{option} is for --format otlp")));
    }
    let runs = find::find_runs(&given.work_dir(), &given.operand_texts())?;
    let mut failures = 0;
    for run in &runs {
        match export(run, given) {
            Ok(is_whole) => failures += usize::from(!is_whole),
            Err(error) if runs.len() == 1 => return Err(error),
            Err(error) => {
                warn(&error.message);
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
fn export(run: &RunDir, given: &ParsedCommand) -> Result<bool> {
    warn_if_foreign_run(run)?;
    if given.text("--format").as_deref() == Some("cases") {
        let (case, damaged) = cases::case_of(run)?;
        for damage in &damaged {
            warn_of(damage, &run.journal(), "left out");
        }
        print_line(&json::text(&case))?;
        return Ok(damaged.is_empty());
    }
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
    print_run(&recorded, given)?;
    Ok(recorded.damaged.is_empty())
}

fn print_run(run: &RecordedRun, given: &ParsedCommand) -> Result<()> {
    let lines = match given.text("--format").as_deref() {
        Some("otlp") => {
            let (content, old_names) = (given.has("--content"), given.has("--compat"));
            return otlp::write(run, content, old_names, &mut print_line);
        }
        Some("atif") => vec![atif::trajectory(run).into()],
        _ => chat::conversations(run),
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
