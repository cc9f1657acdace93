//! The `delta-sessions` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(delta_engine::sessions::cli::main(
        std::env::args_os().skip(1).collect(),
    ))
}
