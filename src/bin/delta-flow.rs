//! The `delta-flow` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(delta_engine::flow::cli::main::main(
        std::env::args_os().skip(1).collect(),
    ))
}
