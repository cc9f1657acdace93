//! A call that begins something which ends without it: its handle, the times that its program chooses, and the looks
//! at it.
//!
//! Unaware of the journal.

use crate::config::environment::Secret;
use crate::config::tool::definition::{HANDLE_BYTES, LONGEST_WAIT, LaterRule};
use crate::engine::outbox;
use crate::error::At;
use crate::record::state::Deferred;
use crate::text::json::{parser_message, without_mark};
use crate::text::timestamp::Timestamp;
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

/// Bytes at the end of the output that are searched for the handle.
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
    dir.join(outbox::DIR).join(".later.json")
}

/// The variables of an execution in this directory, which may choose times. Those of a run around this one are taken
/// away.
pub(crate) fn variables(
    may_choose: bool,
    dir: &Path,
    look: Option<LookInput<'_>>,
) -> [Variable; 3] {
    let times = may_choose
        .then(|| times_file(dir))
        .and_then(|file| file.to_str().map(str::to_owned));
    let handle = look.map(|look| look.handle.to_owned());
    let last = look.filter(|look| look.is_last).map(|_| "1".to_owned());
    let of = |name: &str, value| (name.to_owned(), value);
    [of(TIMES, times), of(HANDLE, handle), of(LAST, last)]
}

/// The handle that a program has printed: the last line of its output that is not empty.
///
/// # Errors
/// The reason why it has printed no handle.
pub(crate) fn handle_in(secrets: &[Secret], dir: &Path) -> Result<String, String> {
    let unreadable = |e: io::Error| format!("its output cannot be read: {e}");
    let file = files::open_unlinked(&dir.join("stdout.log")).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let start = length.saturating_sub(SEARCHED as u64);
    let end = files::read_part(&file, start, SEARCHED).map_err(unreadable)?;
    let mut lines = end.split(|byte| *byte == b'\n').rev();
    let last = lines
        .find(|line| !line.trim_ascii().is_empty())
        .ok_or("it printed no handle")?;
    let line = last.strip_suffix(b"\r").unwrap_or(last);
    if line.len() > HANDLE_BYTES {
        return Err(format!(
            "its last line is no handle: it has more than {HANDLE_BYTES} bytes"
        ));
    }
    let handle = std::str::from_utf8(line)
        .ok()
        .filter(|it| !it.contains('\0'))
        .ok_or("its last line is no handle: it is not text in UTF-8")?;
    let mut shown = handle.to_owned();
    if secrets.iter().any(|secret| secret.redact_text(&mut shown)) {
        Err("its last line is no handle: it holds an API key".to_owned())
    } else {
        Ok(handle.to_owned())
    }
}

/// The times of the first look at a call that has just begun, and of the last one.
pub(crate) fn first_times(rule: &LaterRule, chosen: ChosenTimes) -> (Timestamp, Timestamp) {
    let now = Timestamp::now();
    let expires_at = now.plus(chosen.expires.unwrap_or(rule.expires));
    let due_at = now.plus(chosen.every.unwrap_or(rule.every));
    (due_at.min(expires_at), expires_at)
}

/// The times of the next look and of the last one, after a look that has not found an end.
pub(crate) fn next_times(deferred: &Deferred, chosen: ChosenTimes) -> (Timestamp, Timestamp) {
    let now = Timestamp::now();
    let expires = chosen.expires.map(|time| now.plus(time));
    let expires_at = expires.unwrap_or(deferred.expires_at);
    let wait = chosen.every.unwrap_or_else(|| deferred.doubled_wait());
    (now.plus(wait).min(expires_at.max(now)), expires_at)
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
    let file = match files::open_unlinked(&times_file(dir)).if_there() {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(ChosenTimes::default()),
        Err(e) => return refused(&e.to_string()),
    };
    let Ok(bytes) = files::read_limited(file, TIMES_BYTES) else {
        return refused("the file is too long");
    };
    let written: WrittenTimes = match serde_json::from_slice(without_mark(&bytes)) {
        Ok(written) => written,
        Err(e) => return refused(&parser_message(&e)),
    };
    let is_wrong = |seconds: &u64| !(1..=LONGEST_WAIT).contains(seconds);
    if [written.every_s, written.expires_s]
        .iter()
        .flatten()
        .any(is_wrong)
    {
        refused(&format!("every_s and expires_s are 1 to {LONGEST_WAIT}"))
    } else {
        Ok(ChosenTimes {
            every: written.every_s.map(Duration::from_secs),
            expires: written.expires_s.map(Duration::from_secs),
        })
    }
}
