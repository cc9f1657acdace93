//! The hosts that a run's tools may reach: before anything is created, a check that they can be opened to them.

use crate::config::agent::Agent;
use crate::config::environment::{ALLOW_HOSTS, Environment};
use crate::config::lint::is_sandbox;
use crate::config::tool::definition::{Word, written_words};
use crate::error::{At, Error, Exit, Result};
use crate::unix::doors::{Door, read_doors, shared_warning};
use crate::unix::own_program::own_program;
use crate::unix::terminal::Screen;
use std::process::{Command, Stdio};

/// The word in a wrapper by which its tools get the hosts.
const FROM_ENV: &str = "--allow-hosts-from-env";

/// Adds hosts to the environment of a run's tools.
///
/// # Errors
/// A name is not a host's, or this kernel cannot open hosts without opening the network.
pub(crate) fn open_hosts(
    agent: &Agent,
    environment: &mut Environment,
    doors: &[Door],
    screen: Screen,
) -> Result<()> {
    environment.allow_hosts(doors);
    let hosts = environment.allowed_hosts();
    if hosts.is_empty() {
        return Ok(());
    }
    let is_given = environment.has_given_hosts();
    if !has_doors(agent) {
        if is_given {
            let name = &agent.name;
            screen.warn(&format!(
                "warning: --allow-host opens nothing: no wrapper of agent {name} is delta sandbox with {FROM_ENV}"
            ));
        }
        return Ok(());
    }
    let doors = read_doors(&hosts.join(" "))
        .map_err(|why| Error::config(format!("{ALLOW_HOSTS}: {why}")))?;
    for warning in doors.iter().filter_map(shared_warning) {
        screen.warn(&format!("warning: {warning}"));
    }
    probe()
}

/// True if a wrapper of the agent opens the hosts to its tools.
fn has_doors(agent: &Agent) -> bool {
    let opens = |wrapper: &[Word]| {
        let words = written_words(wrapper);
        is_sandbox(&words) && words.iter().any(|word| word == FROM_ENV)
    };
    let of_tools = agent
        .tools
        .iter()
        .filter_map(|tool| tool.wrapper.as_deref());
    of_tools.chain([&*agent.wrapper]).any(opens)
}

/// Opens a door to nothing, as each tool would.
fn probe() -> Result<()> {
    let program = own_program();
    let mut command = Command::new(&program);
    command.args(["sandbox", "--allow-host", "127.0.0.1:9", "--", "true"]);
    command
        .env_remove("DELTA_RUN_DIR")
        .env_remove("DELTA_EXECUTION_DIR");
    command.stdin(Stdio::null());
    let done = command.output().at("run", program.as_ref())?;
    if done.status.code() != Some(i32::from(Exit::NotSetUp.code())) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&done.stderr)
        .trim_end()
        .trim_start_matches("delta: ")
        .to_owned();
    Err(Error::config(text))
}
