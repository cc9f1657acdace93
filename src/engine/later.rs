//! A call that begins something which ends without it: its handle, the times that its program chooses, and the looks
//! at it.
//!
//! Unaware of the journal.

use crate::config::tool::definition::{HANDLE_BYTES, LONGEST_WAIT, Tool};
use crate::engine::attached;
use crate::engine::run_context::RunContext;
use crate::text::json::parser_message;
use crate::unix::files;
use crate::unix::process::Variable;
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The exit code of a tool that has begun something, and of a look at it before it has ended.
pub(crate) const NOT_YET: i32 = 75;

/// The exit code of a look at something that has ended badly.
pub(crate) const ENDED_BADLY: i32 = 10;

/// The variable that names the file for the times.
pub(crate) const TIMES: &str = "DELTA_LATER";
/// The variable that holds the handle during a look.
pub(crate) const HANDLE: &str = "DELTA_HANDLE";
/// Set during the last look.
pub(crate) const LAST: &str = "DELTA_LATER_LAST";

/// As much of the end of the output is searched for the handle.
const SEARCHED: usize = 64 << 10;

/// The most bytes of a file with times.
const TIMES_BYTES: u64 = 4096;

/// The input of a look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookInput<'l> {
    pub handle: &'l str,
    pub is_last: bool,
}

/// The times that a program has chosen, each from its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChosenTimes {
    pub every: Option<Duration>,
    pub expires: Option<Duration>,
}

fn times_file(dir: &Path) -> PathBuf {
    dir.join(attached::DIR).join(".later.json")
}

/// The variables of an execution in this directory. Those of a run around this one are taken away.
pub(crate) fn variables(tool: &Tool, dir: &Path, look: Option<LookInput<'_>>) -> [Variable; 3] {
    let times = tool.later.as_ref().map(|_| times_file(dir));
    let times = times.and_then(|file| file.to_str().map(str::to_owned));
    let handle = look.map(|look| look.handle.to_owned());
    let last = look.filter(|look| look.is_last).map(|_| "1".to_owned());
    let of = |name: &str, value| (name.to_owned(), value);
    [of(TIMES, times), of(HANDLE, handle), of(LAST, last)]
}

/// The handle that a tool has printed: the last line of its output that is not empty.
///
/// # Errors
/// Why there is none, for the model.
pub(crate) fn handle_in(ctx: &RunContext<'_>, dir: &Path) -> Result<String, String> {
    let unreadable = |e: io::Error| format!("its output cannot be read: {e}");
    let file = files::open_unlinked(&dir.join("stdout.log")).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let start = length.saturating_sub(SEARCHED as u64);
    let end = files::read_part(&file, start, SEARCHED).map_err(unreadable)?;
    let mut lines = end.split(|byte| *byte == b'\n').rev();
    let line = lines.find(|line| !line.trim_ascii().is_empty());
    let line = line.ok_or("it printed no handle")?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() > HANDLE_BYTES {
        return Err(format!(
            "its last line is no handle: it has more than {HANDLE_BYTES} bytes"
        ));
    }
    let handle = std::str::from_utf8(line)
        .ok()
        .filter(|it| !it.contains('\0'));
    let handle = handle.ok_or("its last line is no handle: it is not text in UTF-8")?;
    let mut shown = handle.to_owned();
    let secrets = ctx.environment.secrets();
    match secrets.iter().any(|secret| secret.redact_text(&mut shown)) {
        true => Err("its last line is no handle: it holds an API key".to_owned()),
        false => Ok(handle.to_owned()),
    }
}

/// The times that the program of an execution has written.
///
/// # Errors
/// Why they do not count, for people.
pub(crate) fn times_in(dir: &Path) -> Result<ChosenTimes, String> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct WrittenTimes {
        every_s: Option<u64>,
        expires_s: Option<u64>,
    }
    let refused = |why: &str| Err(format!("the times in {TIMES} do not count: {why}"));
    let file = match files::open_unlinked(&times_file(dir)) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(ChosenTimes::default()),
        Err(e) => return refused(&e.to_string()),
    };
    let Ok(bytes) = files::read_limited(file, TIMES_BYTES) else {
        return refused("the file is too long");
    };
    let written: WrittenTimes = match serde_json::from_slice(&bytes) {
        Ok(written) => written,
        Err(e) => return refused(&parser_message(&e)),
    };
    let is_wrong = |seconds: &u64| !(1..=LONGEST_WAIT).contains(seconds);
    match [written.every_s, written.expires_s]
        .iter()
        .flatten()
        .any(is_wrong)
    {
        true => refused(&format!("every_s and expires_s are 1 to {LONGEST_WAIT}")),
        false => Ok(ChosenTimes {
            every: written.every_s.map(Duration::from_secs),
            expires: written.expires_s.map(Duration::from_secs),
        }),
    }
}
