//! The program `delta-flow` as a whole: from the command line to the exit code.

use super::args::{FlowCommand, parse_args};
use super::tables::FLOW;
use super::{
    answer, artifacts, check, complete, eval, graph, init, inventory, memory, observe, repl,
    replay, run, show, tool, validate_json,
};
use crate::VERSION;
use crate::error::{Error, Exit, Result};
use crate::flow::PROGRAM;
use crate::text::options::short_help::help_text;
use crate::unix::defect::exit_at_panic;
use crate::unix::terminal::{print, print_error};
use crate::view::stats_table::print_stats;
use std::ffi::OsString;

/// Runs `delta-flow`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> u8 {
    exit_at_panic(|| {
        let message = "this is a defect in delta-flow; what was recorded is safe";
        print_error(PROGRAM, &Error::new(Exit::Software, message));
    });
    match execute(args) {
        Ok(code) => code,
        Err(error) => {
            print_error(PROGRAM, &error);
            error.exit.code()
        }
    }
}

fn execute(args: Vec<OsString>) -> Result<u8> {
    let exit = match parse_args(args)? {
        // A tool's exit code may be any.
        FlowCommand::Tool(wanted) => return tool::run_tool(&wanted),
        FlowCommand::Run(wanted) => run::run_flow(&wanted).map_err(Error::of_run),
        FlowCommand::Show(wanted) => show::show_run(&wanted),
        FlowCommand::Stats(wanted) => print_stats(&wanted),
        FlowCommand::Init { dir, template } => init::create_flow(&dir, template),
        FlowCommand::Check {
            dir,
            verbose,
            format,
        } => check::check_flow(&dir, verbose, format),
        FlowCommand::Graph(wanted) => graph::draw_graph(&wanted),
        FlowCommand::Answer(wanted) => answer::answer_question(&wanted),
        FlowCommand::Observe(wanted) => observe::observe_run(&wanted),
        FlowCommand::Replay(wanted) => replay::replay_run(&wanted),
        FlowCommand::Artifacts(wanted) => artifacts::list_artifacts(&wanted),
        FlowCommand::Manifest(wanted) => inventory::print_inventory(&wanted),
        FlowCommand::Repl(wanted) => repl::talk_to_flow(&wanted),
        FlowCommand::Complete(words) => complete::print_candidates(&words),
        FlowCommand::Memory(wanted) => memory::run_memory_command(&wanted),
        FlowCommand::Eval(wanted) => eval::run_evaluation(&wanted).map_err(Error::of_run),
        FlowCommand::ValidateJson => return validate_json::answer_request(),
        FlowCommand::Version => print_text(&format!("{PROGRAM} {VERSION}\n")),
        FlowCommand::Help { command, full } => {
            print_text(&help_text(&FLOW, command, full.then_some(PROGRAM)))
        }
    };
    exit.map(Exit::code)
}

fn print_text(text: &str) -> Result<Exit> {
    print(text.as_bytes())?;
    Ok(Exit::Success)
}
