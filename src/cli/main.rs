//! The program as a whole: from the command line to the exit code.

use crate::VERSION;
use crate::cli::args::{DeltaCommand as Command, parse_args};
use crate::cli::commands::{
    acp, chat, check, complete, continue_run, diff, due, expand, export, flow, fork, init, later,
    list_runs, log, mcp, model, models, prune, replay, report, request, run, sandbox, setup,
    skills, tell,
};
use crate::cli::tables::DELTA;
use crate::coder::tool;
use crate::error::{Error, Exit, Result};
use crate::mcp::stdio::run_server;
use crate::model::http;
use crate::text::manual;
use crate::text::options::short_help::help_text;
use crate::unix::defect::exit_at_panic;
use crate::unix::line_editor::edit_lines;
use crate::unix::pager::Pager;
use crate::unix::terminal::{print, print_error};
use crate::view::stats_table::print_stats;
use std::ffi::OsString;

/// Runs `delta`. Returns its exit code.
pub fn main(args: Vec<OsString>) -> u8 {
    exit_at_panic(|| {
        let message = "this is a defect in delta; what was recorded is safe, and the same command resumes the run";
        print_error("delta", &Error::new(Exit::Software, message));
    });
    match execute(args) {
        Ok(code) => code,
        Err(error) => {
            print_error("delta", &error);
            error.exit.code()
        }
    }
}

fn execute(args: Vec<OsString>) -> Result<u8> {
    let exit = match parse_args(args)? {
        Command::Run(wanted) => run::run_agent(&wanted),
        Command::Chat(wanted) => chat::chat(&wanted),
        Command::Continue(wanted) => continue_run::continue_run(&wanted),
        Command::Acp(agent) => acp::serve(agent),
        Command::Setup(wanted) => setup::set_up(&wanted),
        Command::Models(agent) => models::print_models(&agent),
        Command::Init { dir, template, yes } => init::create_agent(&dir, template, yes),
        Command::Check { agent, format } => check::check_agent(&agent, format),
        Command::Schema(schema) => print_text(&schema.text()),
        Command::ModelReplay { run_dir, lenient } => model::serve_answer(&run_dir, lenient),
        Command::Replay(wanted) => replay::replay_run(&wanted),
        Command::Fork(wanted) => fork::fork_run(&wanted),
        Command::Diff { work_dir, runs } => diff::print_diff(&work_dir, &runs),
        Command::Later(wanted) => return later::wait_until(wanted),
        Command::Due(wanted) => due::due_runs(&wanted),
        Command::Tell(wanted) => tell::tell_run(&wanted),
        Command::ListRuns(options) => list_runs::print_runs(&options),
        Command::Prune(options) => prune::prune_runs(&options),
        Command::Log(options) => log::print_log(&options),
        Command::Request(options) => request::print_request(&options),
        Command::Report(options) => report::print_report(&options),
        Command::Export(options) => export::export_runs(&options),
        Command::Stats(options) => print_stats(&options),
        Command::ToolExpand { file } => expand::print_expanded(&file),
        Command::Skills { dirs, output } => skills::print_skills(&dirs, output.as_deref()),
        Command::Sandbox(wanted) => return sandbox::run_sandboxed(&wanted),
        Command::Mcp(wanted) => return mcp::run_command(wanted),
        Command::McpServer(arguments) => return run_server(arguments),
        Command::Flow(arguments) => flow::execute_flow(&arguments),
        Command::Version => print_text(&format!("delta {VERSION}\n")),
        Command::Help { command, full } => {
            let page = command.map_or(DELTA.name, |command| command.name);
            show_in_pager(&help_text(&DELTA, command, full.then_some(page)))
        }
        Command::FoundLines(lines) => show_in_pager(&lines),
        Command::Page(page) => show_in_pager(page.text()),
        Command::ListPages => show_in_pager(&manual::list()),
        Command::Complete(words) => complete::print_candidates(&words),
        Command::CoderTool(words) => return tool::run_tool(&words),
        Command::EditLines => edit_lines(),
        Command::ResolveHost(host) => print_text(&http::resolve_host(&host)),
    };
    exit.map(Exit::code)
}

/// A text that a person reads: at a terminal, through the pager if it is longer than the screen.
fn show_in_pager(text: &str) -> Result<Exit> {
    let mut pager = Pager::new();
    pager.show(text)?;
    pager.end()?;
    Ok(Exit::Success)
}

fn print_text(text: &str) -> Result<Exit> {
    print(text.as_bytes())?;
    Ok(Exit::Success)
}
