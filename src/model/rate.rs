//! The waits that servers ask for, shared by all processes that use one directory.
//!
//! Unaware of runs. There is a file for each endpoint, model and key. If the directory or a file is unusable, each
//! process finds out for itself, as it would without them.

use crate::error::{At, ignore};
use crate::model::asked::{Asked, LONGEST_RETRY_AFTER, Patience};
use crate::model::attempt::{Attempt, Failure, FailureKind};
use crate::text::digest::PartsDigest;
use crate::text::json;
use crate::text::shorten::in_short;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::locks::try_lock_for;
use crate::unix::signals::Signals;
use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The variable of the process environment that names the directory.
const RATE_DIR: &str = "DELTA_RATE_DIR";

/// The time for which a quota that is used up stops those that share it.
const QUOTA_LASTS: Duration = Duration::from_secs(600);

/// No server asks for a longer wait; longer ones in the file are ignored.
const LONGEST: u64 = 24 * 60 * 60 * 1000;

/// The largest difference between clocks that is tolerated.
const SKEW: u64 = 60_000;

/// The time for which others wait for the first one to ask again.
const PROBE_LASTS: Duration = Duration::from_secs(2);

/// The longest wait for a lock, which is held for microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// A file that is longer is not read.
const LARGEST: u64 = 4096;

/// A wait that a server has asked for. Times are in milliseconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct AskedWait {
    said_at: u64,
    until: u64,
    is_quota: bool,
    words: String,
}

/// The file of an endpoint, a model and a key.
#[derive(Debug)]
pub(crate) struct SharedRate {
    dir: PathBuf,
    name: String,
    /// The reason why nothing can be shared.
    pub objection: Option<String>,
}

impl SharedRate {
    /// None without a directory to share.
    pub(crate) fn of(url: &str, model: Option<&str>, key: Option<&str>) -> Option<Self> {
        let dir = PathBuf::from(std::env::var_os(RATE_DIR).filter(|dir| !dir.is_empty())?);
        let mut digest = PartsDigest::default();
        for part in [url, model.unwrap_or(""), key.unwrap_or("")] {
            digest.add(part.as_bytes());
        }
        let allowed = || access(&dir, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from);
        let objection = files::make_dirs(&dir)
            .and_then(|()| allowed().at("write to", &dir))
            .err()
            .map(|error| {
                let why = error.message;
                format!("{RATE_DIR}: {why}; what servers say of waiting is not shared")
            });
        Some(Self {
            dir,
            name: digest.sum()[..32].to_owned(),
            objection,
        })
    }

    /// Waits until a request may be sent, unless that would take too long. The process that asks first gets a lock, which it
    /// holds meanwhile.
    pub(crate) fn pass(
        &self,
        signals: &Signals,
        patience: Patience,
        notify: &mut dyn FnMut(&str),
    ) -> Result<Option<File>, Asked> {
        let mut waited: Option<AskedWait> = None;
        let mut probed_since = None;
        loop {
            let now = Timestamp::now().millis();
            let said = self.read().filter(|said| said.counts(now));
            let wait = match said {
                None => match waited.take() {
                    None => return Ok(None),
                    Some(said) => said.jitter(),
                },
                Some(said) if said.is_quota => {
                    return Err(Asked::Quota(in_short(&said.words, 500), None));
                }
                Some(said) if now < said.until => {
                    let left = Duration::from_millis(said.until - now);
                    if left > LONGEST_RETRY_AFTER {
                        let until = Timestamp::from_millis(said.until);
                        return Err(Asked::to_wait(&in_short(&said.words, 500), until));
                    }
                    if waited.as_ref() != Some(&said) {
                        let seconds = left.as_secs_f64();
                        notify(&format!(
                            "the server asked another process to wait; waiting {seconds:.1} s"
                        ));
                    }
                    waited = Some(said);
                    probed_since = None;
                    left
                }
                Some(said) => {
                    let probe = self.probe();
                    if probe.is_some() {
                        return Ok(probe);
                    }
                    let since = *probed_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= PROBE_LASTS {
                        // The answer takes its time, but is on its way.
                        signals.sleep(said.jitter()).map_err(Asked::Stopped)?;
                        return Ok(None);
                    }
                    waited = Some(said);
                    Duration::from_millis(fastrand::u64(50..150))
                }
            };
            if patience.ends_within(wait) {
                return Err(Asked::OutOfTime);
            }
            if let Some(stop) = signals.stop_within(wait) {
                return Err(Asked::Stopped(stop));
            }
            signals.sleep(wait).map_err(Asked::Stopped)?;
        }
    }

    /// Notes what came of an attempt.
    pub(crate) fn learn(&self, attempt: &Attempt) {
        let now = Timestamp::now().millis();
        let asked = |after: Duration, is_quota, words: &str| AskedWait {
            said_at: now,
            until: now.saturating_add(after.as_millis() as u64),
            is_quota,
            words: in_short(words, 500),
        };
        let said = match attempt {
            Attempt::Failed(Failure {
                kind: FailureKind::Quota,
                why,
                ..
            }) => asked(QUOTA_LASTS, true, why),
            Attempt::Failed(Failure {
                http_status: Some(429 | 503),
                after: Some(after),
                why,
                ..
            }) if !after.is_zero() => {
                asked((*after).min(Duration::from_millis(LONGEST)), false, why)
            }
            Attempt::Body { .. } => {
                // Most answers have nothing to end.
                if self.read().is_some_and(|said| said.until > 0) {
                    self.update(|said| (said.until <= now).then(AskedWait::default));
                }
                return;
            }
            _ => return,
        };
        self.update(|old| {
            let is_longer = !old.counts(now) || said.is_quota || said.until > old.until;
            is_longer.then_some(said)
        });
    }

    fn path(&self, end: &str) -> PathBuf {
        self.dir.join(format!("{}.{end}", self.name))
    }

    fn read(&self) -> Option<AskedWait> {
        let file = files::open_unlinked(&self.path("json")).ok()?;
        try_lock_for(PATIENCE, || file.try_lock_shared()).ok()?;
        serde_json::from_slice(&files::read_limited(file, LARGEST).ok()?).ok()
    }

    /// Changes what the file says.
    fn update(&self, change: impl FnOnce(&AskedWait) -> Option<AskedWait>) {
        // Several processes write to it.
        let Ok(file) = files::open_or_create(&self.path("json")) else {
            return;
        };
        if try_lock_for(PATIENCE, || file.try_lock()).is_err() {
            return;
        }
        let old = file
            .try_clone()
            .and_then(|copy| files::read_limited(copy, LARGEST))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(new) = change(&old.unwrap_or_default()) {
            ignore(file.set_len(0));
            ignore(file.write_all_at(json::text(&new).as_bytes(), 0));
        }
    }

    /// The lock of the process that asks first; none if another process has it.
    fn probe(&self) -> Option<File> {
        let file = files::open_or_create(&self.path("probe")).ok()?;
        file.try_lock().ok().map(|()| file)
    }
}

impl AskedWait {
    /// False of what is over for long, or what no server says.
    fn counts(&self, now: u64) -> bool {
        let (longest, lasts) = if self.is_quota {
            (QUOTA_LASTS.as_millis() as u64, 0)
        } else {
            (LONGEST, SKEW)
        };
        let is_likely = self.said_at <= now.saturating_add(SKEW)
            && self.until.saturating_sub(self.said_at) <= longest;
        is_likely && self.until > self.said_at && now < self.until.saturating_add(lasts)
    }

    /// A part of half the time that was to be waited, so that not all come at once.
    fn jitter(&self) -> Duration {
        let span = self.until.saturating_sub(self.said_at).min(20_000);
        Duration::from_millis(fastrand::u64(0..=span / 2))
    }
}
