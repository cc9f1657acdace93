//! The commands of `delta-flow`: from the command line to the exit code.

use super::args::FlowRunArgs;
use super::tables::{COMMANDS, FLOW};
use super::{
    answer, artifacts, check, complete, eval, graph, init, inventory, memory, observe, repl,
    replay, run, show, tool,
};
use crate::VERSION;
use crate::error::{Error, Exit, Result};
use crate::flow::PROGRAM;
use crate::text::options::parse::{CommandLine, ParsedCommand, parse_line};
use crate::text::options::short_help::help_text;
use crate::text::options::table::CommandTable;
use crate::text::options::values::unknown_word;
use crate::unix::defect::run_program;
use crate::unix::terminal::print;
use crate::view::stats_table::{StatsArgs, print_stats};
use std::ffi::OsString;

/// Runs `delta-flow`. Returns its exit code.
pub(crate) fn main(args: Vec<OsString>) -> u8 {
    run_program(PROGRAM, "what was recorded is safe", || execute(args))
}

fn execute(args: Vec<OsString>) -> Result<u8> {
    let done = match parse_line(&FLOW, args)? {
        CommandLine::Version => print_text(&format!("{PROGRAM} {VERSION}\n")),
        CommandLine::Help { command, full } => print_help(command, full),
        CommandLine::Raw(_, words) => complete::print_candidates(&words),
        // A tool's exit code may be any.
        CommandLine::Command(given) if given.command.name == "tool" => {
            return tool::run_tool(&given);
        }
        CommandLine::Command(given) => execute_command(&given),
    };
    done.map(Exit::code)
}

fn execute_command(given: &ParsedCommand) -> Result<Exit> {
    match given.command.name {
        "run" => run::run_flow(&FlowRunArgs::read(given)?).map_err(Error::of_run),
        "show" => show::show_run(&given.work_dir(), &given.operand_texts()),
        "init" => init::create_flow(given),
        "check" => check::check_flow(given),
        "graph" => graph::draw_graph(given),
        "answer" => answer::answer_question(given),
        "observe" => observe::observe_run(given),
        "replay" => replay::replay_run(given),
        "artifacts" => artifacts::list_artifacts(given),
        "manifest" => inventory::print_inventory(given),
        "repl" => repl::talk_to_flow(given),
        "stats" => print_stats(&StatsArgs::new(given)),
        "memory" => memory::run_memory_command(given),
        "eval" if given.first_before_dashes().is_some_and(|it| it == "report") => {
            Err(Error::usage(
                "the page of an evaluation is printed by: delta eval report [DIR] [-o PATH]",
            ))
        }
        "eval" => eval::run_evaluation(given, PROGRAM),
        _ => help_about(given.operand_text(0)),
    }
}

fn help_about(topic: Option<String>) -> Result<Exit> {
    let Some(topic) = topic else {
        return print_help(None, true);
    };
    match FLOW.command(&topic) {
        Some(command) => print_help(Some(command), false),
        None => Err(unknown_word("unknown command", &topic, &COMMANDS)),
    }
}

fn print_help(command: Option<&'static CommandTable>, full: bool) -> Result<Exit> {
    print_text(&help_text(&FLOW, command, full.then_some(PROGRAM)))
}

fn print_text(text: &str) -> Result<Exit> {
    print(text.as_bytes())?;
    Ok(Exit::Success)
}
