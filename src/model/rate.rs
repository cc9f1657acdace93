//! What a server has said of "later", shared by all processes that use one directory.
//!
//! Unaware of runs. There is a file for each endpoint, model and key. If the directory or a file is unusable, each
//! process finds out for itself, as it would without them.

use crate::error::{At, may_fail};
use crate::model::attempt::Attempt;
use crate::text::digest::PartsDigest;
use crate::text::shorten::in_short;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::locks::try_lock_for;
use crate::unix::signals::{Signals, Stop};
use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The variable of the process environment that names the directory.
const RATE_DIR: &str = "DELTA_RATE_DIR";

/// How long a quota that is used up stops those that share it.
const QUOTA_LASTS: Duration = Duration::from_secs(600);

/// No server asks for a longer wait; a file that says so is not believed.
const LONGEST: u64 = 24 * 60 * 60 * 1000;

/// Of clocks that differ, the most that is taken for that.
const SKEW: u64 = 60_000;

/// How long others wait for the first one to ask again.
const PROBE_LASTS: Duration = Duration::from_secs(2);

/// How long a lock is waited for, which is held for microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// A file that is longer is not read.
const LARGEST: u64 = 4096;

/// What a server has said. Times are in milliseconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Later {
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
    /// Why nothing can be shared.
    pub objection: Option<String>,
}

/// Whether a request may be sent now.
#[derive(Debug)]
pub(crate) enum Pass {
    /// Yes. The process that asks first holds a lock meanwhile.
    Open(Option<File>),
    /// Not before a time that is too far away to be waited for.
    Later(String, Timestamp),
    /// The quota is used up.
    Quota(String),
    /// A deadline lies before that time.
    OutOfTime,
    Stopped(Stop),
}

impl SharedRate {
    /// None without a directory to share.
    pub(crate) fn of(url: &str, model: Option<&str>, key: Option<&str>) -> Option<Self> {
        let dir = std::env::var_os(RATE_DIR).filter(|dir| !dir.is_empty())?;
        let mut digest = PartsDigest::default();
        for part in [url, model.unwrap_or_default(), key.unwrap_or_default()] {
            digest.add(part.as_bytes());
        }
        let name = digest.sum()[..32].to_owned();
        let dir = PathBuf::from(dir);
        let mut rate = Self {
            dir,
            name,
            objection: None,
        };
        let may = Access::WRITE_OK | Access::EXEC_OK;
        let usable = files::make_dirs(&rate.dir).and_then(|()| {
            let allowed = access(&rate.dir, may).map_err(io::Error::from);
            allowed.at("write to", &rate.dir)
        });
        rate.objection = usable.err().map(|error| {
            let why = error.message;
            format!("{RATE_DIR}: {why}; what servers say of waiting is not shared")
        });
        Some(rate)
    }

    /// Waits until a request may be sent. Waits that are longer than `longest` are not begun.
    pub(crate) fn pass(
        &self,
        signals: &Signals,
        deadline: Option<Instant>,
        longest: Duration,
        notify: &mut dyn FnMut(&str),
    ) -> Pass {
        let mut waited: Option<Later> = None;
        let mut probed_since = None;
        loop {
            let now = Timestamp::now().millis();
            let said = self.read().filter(|said| said.counts(now));
            let wait = match said {
                None => match waited.take() {
                    None => return Pass::Open(None),
                    Some(said) => said.jitter(),
                },
                Some(said) if said.is_quota => return Pass::Quota(in_short(&said.words, 500)),
                Some(said) if now < said.until => {
                    let left = Duration::from_millis(said.until - now);
                    if left > longest {
                        return Pass::Later(
                            in_short(&said.words, 500),
                            Timestamp::from_millis(said.until),
                        );
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
                    if let Some(probe) = self.probe() {
                        return Pass::Open(Some(probe));
                    }
                    let since = *probed_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= PROBE_LASTS {
                        // The answer takes its time, but is on its way.
                        return match signals.sleep(said.jitter()) {
                            Ok(()) => Pass::Open(None),
                            Err(stop) => Pass::Stopped(stop),
                        };
                    }
                    waited = Some(said);
                    Duration::from_millis(fastrand::u64(50..150))
                }
            };
            if deadline.is_some_and(|deadline| Instant::now() + wait >= deadline) {
                return Pass::OutOfTime;
            }
            if let Some(stop) = signals.stop_within(wait) {
                return Pass::Stopped(stop);
            }
            if let Err(stop) = signals.sleep(wait) {
                return Pass::Stopped(stop);
            }
        }
    }

    /// Notes what came of an attempt.
    pub(crate) fn learn(&self, attempt: &Attempt) {
        let now = Timestamp::now().millis();
        let later = |after: Duration, is_quota, words: &str| Later {
            said_at: now,
            until: now.saturating_add(after.as_millis() as u64),
            is_quota,
            words: in_short(words, 500),
        };
        let said = match attempt {
            Attempt::Again {
                http_status: Some(429 | 503),
                after: Some(after),
                why,
                ..
            } if !after.is_zero() => {
                later((*after).min(Duration::from_millis(LONGEST)), false, why)
            }
            Attempt::Quota { why, .. } => later(QUOTA_LASTS, true, why),
            Attempt::Body { .. } => {
                // Most answers have nothing to end.
                if self.read().is_some_and(|said| said.until > 0) {
                    self.update(|said| (said.until <= now).then(Later::default));
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

    fn path(&self) -> PathBuf {
        self.dir.join(format!("{}.json", self.name))
    }

    fn read(&self) -> Option<Later> {
        let file = files::open_unlinked(&self.path()).ok()?;
        try_lock_for(PATIENCE, || file.try_lock_shared()).ok()?;
        let text = files::read_limited(file, LARGEST).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Changes what the file says.
    fn update(&self, change: impl FnOnce(&Later) -> Option<Later>) {
        let Ok(file) = open(&self.path()) else { return };
        if try_lock_for(PATIENCE, || file.try_lock()).is_err() {
            return;
        }
        let copy = file
            .try_clone()
            .and_then(|copy| files::read_limited(copy, LARGEST));
        let old = copy
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(new) = change(&old.unwrap_or_default()) {
            let text = serde_json::to_vec(&new).unwrap_or_default();
            may_fail(file.set_len(0));
            may_fail(file.write_all_at(&text, 0));
        }
    }

    /// The lock of the process that asks first; none if another process has it.
    fn probe(&self) -> Option<File> {
        let file = open(&self.dir.join(format!("{}.probe", self.name))).ok()?;
        file.try_lock().ok().map(|()| file)
    }
}

impl Later {
    /// False of what is over for long, or what no server says.
    fn counts(&self, now: u64) -> bool {
        let longest = if self.is_quota {
            QUOTA_LASTS.as_millis() as u64
        } else {
            LONGEST
        };
        let is_likely = self.said_at <= now.saturating_add(SKEW)
            && self.until.saturating_sub(self.said_at) <= longest;
        let lasts = if self.is_quota { 0 } else { SKEW };
        is_likely && self.until > self.said_at && now < self.until.saturating_add(lasts)
    }

    /// A part of half the time that was to be waited, so that not all come at once.
    fn jitter(&self) -> Duration {
        let span = self.until.saturating_sub(self.said_at).min(20_000);
        Duration::from_millis(fastrand::u64(0..=span / 2))
    }
}

/// A file that several processes write to. A link is not followed.
fn open(path: &Path) -> io::Result<File> {
    files::open_or_create(path)
}
