//! `delta later`: a tool's program that waits for a time, and its check.

use crate::config::pricing::parse_deadline;
use crate::config::tool::definition::LONGEST_WAIT;
use crate::engine::later::{ENDED_BADLY, HANDLE, NOT_YET, TIMES};
use crate::error::{At, Error, Exit, Result};
use crate::text::options::parse::ParsedCommand;
use crate::text::timestamp::{Timestamp, parse_span};
use crate::unix::terminal::{print, warn};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Time that must pass after the given one before the call has failed.
const SPARE: Duration = Duration::from_secs(86_400);

/// Returns the exit code: that of a tool that ends later, or of a look at it.
pub(crate) fn wait_until(given: &ParsedCommand) -> Result<u8> {
    let now = Timestamp::now();
    let times = (given.text("--for"), given.text("--at"));
    let until = match (times, given.has("--check")) {
        ((Some(span), None), false) => parse_span(&span)
            .map(|time| now.plus(time))
            .ok_or_else(|| format!("--for: '{span}' is not a time such as 90m, 2h or 3d")),
        ((None, Some(time)), false) => {
            parse_deadline(&time, now).map_err(|why| format!("--at: {why}"))
        }
        ((None, None), true) => return look(),
        _ => Err("later needs one of --for, --at and --check".to_owned()),
    };
    begin(until.map_err(Error::usage)?)
}

/// Prints the time as the handle of the call.
fn begin(at: Timestamp) -> Result<u8> {
    let Some(times) = std::env::var_os(TIMES) else {
        return Err(Error::usage(
            "later: this is the program of a tool with the key later: {check: [delta, later, --check]}",
        ));
    };
    let wait = seconds_to(at);
    if wait > LONGEST_WAIT - SPARE.as_secs() {
        return Err(Error::usage(format!("later: {at} is too far away")));
    }
    let expires = wait + SPARE.as_secs();
    write_times(
        &times.into(),
        &json!({"every_s": wait, "expires_s": expires}),
    )?;
    print(format!("{at}\n"))?;
    Ok(Exit::TempFail.code())
}

fn look() -> Result<u8> {
    let Ok(handle) = std::env::var(HANDLE) else {
        return Err(Error::usage(
            "later --check: this is the check of a tool with the key later, and looks at DELTA_HANDLE",
        ));
    };
    let Some(at) = Timestamp::parse(handle.trim()) else {
        warn("later --check: the handle is no time of `delta later`");
        return Ok(ENDED_BADLY as u8);
    };
    let now = Timestamp::now();
    if now >= at {
        print(format!("it is {now}\n"))?;
        return Ok(Exit::Success.code());
    }
    if let Some(times) = std::env::var_os(TIMES) {
        write_times(&times.into(), &json!({"every_s": seconds_to(at)}))?;
    }
    Ok(NOT_YET as u8)
}

/// The whole seconds to a time, at least one.
fn seconds_to(at: Timestamp) -> u64 {
    let millis = at.since(Timestamp::now()).as_millis() as u64;
    millis.div_ceil(1000).max(1)
}

fn write_times(path: &PathBuf, times: &Value) -> Result<()> {
    std::fs::write(path, times.to_string()).at("write", path)
}
