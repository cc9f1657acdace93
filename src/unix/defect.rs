//! The end of a program in which a panic has shown a defect.

use super::terminal::print_error;
use crate::error::{Error, Exit, Result};
use std::panic::{set_hook, take_hook};
use std::process;

/// Runs a program to its exit code; its error is printed. `kept` says what a defect leaves as it was.
pub(crate) fn run_program(
    program: &'static str,
    kept: &'static str,
    run: impl FnOnce() -> Result<u8>,
) -> u8 {
    exit_at_panic(move || {
        let message = format!("this is a defect in {program}; {kept}");
        print_error(program, &Error::new(Exit::Software, message));
    });
    run().unwrap_or_else(|error| {
        print_error(program, &error);
        error.exit.code()
    })
}

/// From now on a panic in any thread ends the process with the exit code of a defect (70; a panic's own,
/// 101, would mean a question).
///
/// The place of the panic is printed first, then `report` prints what it means to the user. No destructor runs and
/// nothing else is recorded: to the records it is as if the process had been killed. A terminal that is read without
/// an echo stays without one.
#[expect(clippy::exit, reason = "there is nothing to return to")]
pub(crate) fn exit_at_panic(report: impl Fn() + Send + Sync + 'static) {
    let print_place = take_hook();
    set_hook(Box::new(move |panic| {
        print_place(panic);
        report();
        process::exit(Exit::Software.code().into());
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::process::Command;

    struct Loud;

    impl Drop for Loud {
        fn drop(&mut self) {
            println!("destructor");
        }
    }

    #[test]
    fn a_panic_is_explained_and_ends_everything_with_70() {
        let program = env::current_exe().unwrap();
        let child = format!(
            "{}::panics_beside_a_value",
            module_path!().split_once("::").unwrap().1
        );
        let output = Command::new(program)
            .args(["--exact", "--ignored", "--nocapture", &child])
            .env(OWN_PROCESS, "1")
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(70), "{stdout}{stderr}");
        let place = stderr.find("unix/defect.rs").unwrap();
        let meaning = stderr.find("what it means").unwrap();
        assert!(place < meaning, "{stderr}");
        assert!(!stdout.contains("destructor"), "{stdout}");
    }

    /// The test below ends its process, and does so only in one with this variable.
    const OWN_PROCESS: &str = "DELTA_TEST_OWN_PROCESS";

    #[test]
    #[ignore = "run by the test above, in a process of its own"]
    fn panics_beside_a_value() {
        if env::var_os(OWN_PROCESS).is_none() {
            return;
        }
        exit_at_panic(|| eprintln!("what it means"));
        let _loud = Loud;
        panic!("a defect");
    }
}
