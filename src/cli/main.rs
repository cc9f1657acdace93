//! The program as a whole: from the command line to the exit code.
//!
//! Three names lead to it, as links: `delta-flow` and `delta-sessions` are `delta flow` and `delta sessions`.

use crate::VERSION;
use crate::cli::args::{below, list_runs_args, log_args, mcp_args, only_agent, sandbox_args};
use crate::cli::commands::{
    acp, chat, check, complete, continue_run, diff, due, expand, export, fork, git, init, later,
    list_runs, log, mcp, model, models, prune, replay, report, request, run, sandbox, setup,
    skills, tell, undo,
};
use crate::cli::schemas;
use crate::cli::tables::{DELTA, EVERYDAY};
use crate::coder::tool;
use crate::error::{Error, Exit, Result, ignore};
use crate::file_states::snapshot::{self, take_files};
#[cfg(feature = "flow")]
use crate::flow;
use crate::mcp::stdio::{SERVER_COMMAND, run_server};
use crate::model::http::{self, RESOLVE_COMMAND};
use crate::sessions;
use crate::text::manual::{self, Page};
use crate::text::options::completion;
use crate::text::options::parse::{CommandLine, ParsedCommand, parse_line};
use crate::text::options::short_help::{groups_text, help_text};
use crate::text::options::values::unknown_word;
use crate::text::suggestion::nearest;
use crate::unix::defect::run_program;
use crate::unix::line_editor::{self, edit_lines};
use crate::unix::pager::Pager;
use crate::unix::terminal::print;
use crate::view::stats_survey::print_survey;
use crate::view::stats_table::{StatsArgs, print_stats};
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, Write};

/// Runs the program to its exit code. `words` begin with the name by which it was called.
pub fn main(mut words: impl Iterator<Item = OsString>) -> u8 {
    let name = words.next().map(|name| name.to_string_lossy().into_owned());
    let part = name
        .as_ref()
        .and_then(|name| Some(name.rsplit_once('-')?.1))
        .filter(|part| ["flow", "sessions"].contains(part));
    let mut words: Vec<_> = part.map(OsString::from).into_iter().chain(words).collect();
    match words.first().and_then(|word| word.to_str()) {
        #[cfg(feature = "flow")]
        Some("flow") => flow::cli::main::main(words.split_off(1)),
        Some("sessions") => sessions::cli::main(words.split_off(1)),
        _ => run_program(
            "delta",
            "what was recorded is safe, and the same command resumes the run",
            || execute(words),
        ),
    }
}

fn execute(words: Vec<OsString>) -> Result<u8> {
    if words.is_empty() {
        let groups = groups_text(&DELTA, EVERYDAY);
        ignore(io::stderr().write_all(groups.as_bytes()));
        return Ok(Exit::Usage.code());
    }
    let exit = match parse_line(&DELTA, words)? {
        CommandLine::Version => print_text(&format!("delta {VERSION}\n")),
        CommandLine::Help { command, full } => {
            let page = command.map_or(DELTA.name, |command| command.name);
            show_in_pager(&help_text(&DELTA, command, full.then_some(page)))
        }
        CommandLine::Command(given) => return run_command(&given),
        CommandLine::Raw(completion::COMMAND, words) => complete::print_candidates(&words),
        CommandLine::Raw(SERVER_COMMAND, words) => return run_server(words),
        CommandLine::Raw(tool::COMMAND, words) => {
            let words = (words.into_iter().map(OsString::into_string))
                .collect::<std::result::Result<Vec<_>, _>>()
                .map_err(|_| Error::usage("the values of a tool are UTF-8"))?;
            return tool::run_tool(&words);
        }
        CommandLine::Raw(line_editor::COMMAND, _) => edit_lines(),
        CommandLine::Raw(snapshot::COMMAND, words) => take_files(&words),
        CommandLine::Raw(RESOLVE_COMMAND, words) => match words.first() {
            Some(host) => print_text(&http::resolve_host(&host.to_string_lossy())),
            None => Err(Error::usage("resolve-host needs a name")),
        },
        CommandLine::Raw(name, _) => Err(Error::new(
            Exit::NotFound,
            format!("{name}: this delta was built without its feature \"flow\""),
        )),
    };
    exit.map(Exit::code)
}

fn run_command(given: &ParsedCommand) -> Result<u8> {
    let exit = match given.command.name {
        "run" => run::run_agent(given),
        "chat" => chat::chat(given),
        "continue" => continue_run::continue_run(given),
        "setup" => setup::set_up(given),
        "models" => models::print_models(given),
        "init" => init::create_agent(given),
        "tell" => tell::tell_run(given),
        "due" => due::due_runs(given),
        "later" => return later::wait_until(given),
        "list-runs" => list_runs::print_runs(&list_runs_args(given)?),
        "prune" => prune::prune_runs(given),
        "log" => log::print_log(&log_args(given)?),
        "stats" if given.has("--recursive") => print_survey(&below(given)?, given.table_format()),
        "stats" => print_stats(&StatsArgs::new(given)),
        "report" => report::print_report(given),
        "export" => export::export_runs(given),
        "request" => request::print_request(given),
        "fork" => fork::fork_run(given),
        "replay" => replay::replay_run(given),
        "undo" => undo::undo_iteration(given),
        "git" => return git::run_git(given),
        "diff" => diff::print_diff(given),
        "eval" if given.first_before_dashes().is_some_and(|it| it == "report") => {
            report::print_evaluation(given)
        }
        #[cfg(feature = "flow")]
        "eval" => flow::cli::eval::run_evaluation(given, "delta"),
        "check" => check::check_agent(given),
        "schema" => {
            let name = given.operand_text(0);
            let found = schemas::ALL
                .into_iter()
                .find(|schema| Some(schema.name) == name.as_deref());
            print_text(&found.unwrap_or(schemas::ALL[0]).text())
        }
        "tool" => expand::print_expanded(&given.operand_dir(1)),
        "skills" => skills::print_skills(given),
        "sandbox" => return sandbox::run_sandboxed(&sandbox_args(given)?),
        "model" => model::serve_answer(given),
        "mcp" => return mcp::run_command(mcp_args(given)?),
        "acp" => acp::serve(only_agent(given)?),
        _ => show_in_pager(&pages(given)?),
    };
    exit.map(Exit::code)
}

/// The page that is asked for, the list of all, or the places where words are found.
fn pages(given: &ParsedCommand) -> Result<Cow<'static, str>> {
    let words = given.operand_texts();
    let topic = words.join(" ");
    if words.is_empty() {
        return match (given.has("--search"), given.has("--all")) {
            (true, _) => Err(Error::usage("help -k needs a word to search for")),
            (false, true) => Ok(manual::list().into()),
            (false, false) => Ok(groups_text(&DELTA, EVERYDAY).into()),
        };
    }
    if let Some(page) = manual::find(&words.join("-")).filter(|_| !given.has("--search")) {
        return Ok(page.text().into());
    }
    let found = manual::search(&topic);
    if found.is_empty() {
        let names: Vec<String> = manual::PAGES.iter().map(Page::topic).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let known = names.iter().copied().chain(manual::index_words());
        let near = nearest(&topic, known).map(|near| vec![near]);
        let what = "nothing in the manual about";
        return Err(unknown_word(what, &topic, &near.unwrap_or(names)));
    }
    Ok(found.into())
}

/// A text that a person reads: at a terminal, through the pager if it is longer than the screen.
fn show_in_pager(text: &str) -> Result<Exit> {
    let mut pager = Pager::new();
    pager.show(text)?;
    pager.end()?;
    Ok(Exit::Success)
}

fn print_text(text: &str) -> Result<Exit> {
    print(text)?;
    Ok(Exit::Success)
}
