//! Headers of requests to a server, whose values may be secrets from variables and programs.
//!
//! Unaware of requests.

use super::servers::{Given, Launch, Secrets, variable};
use crate::config::environment::Environment;
use crate::error::{Error, Result, reason};
use crate::text::disguise::indented;
use crate::text::json::LONGEST_EXCERPT;
use crate::unix::files;
use crate::unix::process::{Command, GRACE, end_leftovers, run};
use crate::unix::procfs::new_call_id;
use std::io;
use std::time::Duration;
use ureq::http::HeaderValue;

/// The longest run of a program that prints a header.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The headers of a server, names and values. Secrets of its programs are added to the known ones.
pub(super) fn read_headers(
    launch: &Launch<'_>,
    secrets: &mut Secrets,
) -> Result<Vec<(String, String)>> {
    let server = &launch.server;
    let mut values = Vec::new();
    if let Some(name) = &server.bearer_env {
        let token = variable(&server.name, name)?;
        values.push((
            "Authorization".to_owned(),
            format!("Bearer {}", token.trim()),
        ));
    }
    let wrong = |name: &str, why: &str| format!("{}: header {name}: {why}", server.name);
    for (name, given) in &server.headers {
        let value = match given {
            Given::Text(text) => text.clone(),
            Given::Variable(source) => variable(&server.name, source)?,
            Given::Command(argv) => {
                let line =
                    first_line(launch, argv).map_err(|why| Error::failure(wrong(name, &why)))?;
                secrets.add(&line);
                line
            }
        };
        values.push((name.clone(), value.trim().to_owned()));
    }
    let is_odd = |(_, value): &&(String, String)| HeaderValue::from_str(value).is_err();
    match values.iter().find(is_odd) {
        Some((name, _)) => Err(Error::config(wrong(name, "no header can hold its value"))),
        None => Ok(values),
    }
}

/// The first line that a program prints.
fn first_line(launch: &Launch<'_>, argv: &[String]) -> std::result::Result<String, String> {
    let program = &argv[0];
    let system = |e: io::Error| format!("cannot run {program}: {}", reason(&e));
    // Files without a name, so that no secret stays.
    let stdout = files::in_memory(b"").map_err(system)?;
    let stderr = files::in_memory(b"").map_err(system)?;
    let call_id = new_call_id();
    let command = Command {
        argv: &launch.argv(argv),
        dir: &launch.home,
        env: &Environment::default().for_child(false),
        call_id: &call_id,
        stdin: None,
        stdout: stdout.try_clone().map_err(system)?,
        stderr: stderr.try_clone().map_err(system)?,
        timeout: Some(TIMEOUT),
    };
    let ran = run(launch.signals, command, GRACE);
    end_leftovers(&call_id);
    let ended = ran.map_err(|error| error.message(program))?.how;
    let printed = files::read_head(&stdout, LONGEST_EXCERPT).map_err(system)?;
    let line = printed.lines().next().unwrap_or("").trim();
    let why = match ended.fault(TIMEOUT) {
        None if !line.is_empty() => return Ok(line.to_owned()),
        None => "its first line is empty".to_owned(),
        Some(why) => why,
    };
    let said = files::read_head(&stderr, LONGEST_EXCERPT).map_err(system)?;
    Err(match said.trim() {
        "" => format!("{program}: {why}"),
        said => format!("{program}: {why}; it printed:\n  {}", indented(said)),
    })
}
