//! The `delta` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(delta_engine::cli::main::main(std::env::args_os()))
}
