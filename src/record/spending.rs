//! A run's ledger: a line before each attempt to reach the model and one after it, of the run and of the
//! runs below it.
//!
//! Unaware of models, prices and of who may spend how much. Spent is what was settled, and what was
//! reserved and never settled: a process that dies between the two has spent the estimate.

use crate::error::{At, Error, Exit, Result};
use crate::record::reader::split_lines;
use crate::text::json;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::locks::{try_lock_for, wait_for_lock};
use crate::unix::procfs;
use crate::unix::signals::{Signals, Stop};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The ledger's name in the directory of its run.
pub(crate) const FILE: &str = "spending.jsonl";

/// Larger figures are not the engine's.
const MOST: u64 = 1_000_000_000_000_000;

/// What is read at once. A longer line is not the engine's.
const CHUNK: usize = 1 << 20;

/// What is said of a ledger that lacks what was written into it.
const REPLACED: &str = "it was replaced or cut while the run was live";

/// The way the engine's lines begin, so that a torn one can be recognised.
const LINE_START: &[u8] = b"{\"timestamp\":\"";

/// How long a settlement waits for the lock when the engine is to end.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// Something spent. Costs are whole numbers of 10^-12, so that sums are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    tokens: u128,
    picos: u128,
}

impl Amount {
    pub(crate) fn new(tokens: u64, cost: Option<f64>) -> Self {
        Self {
            tokens: tokens.into(),
            picos: in_picos(cost.unwrap_or_default()),
        }
    }

    pub(crate) fn tokens(self) -> u64 {
        u64::try_from(self.tokens).unwrap_or(u64::MAX)
    }

    pub(crate) fn cost(self) -> f64 {
        self.picos as f64 / 1e12
    }

    /// Whether this is not below a limit of the cost.
    pub(crate) fn reaches_cost(self, limit: f64) -> bool {
        self.picos >= in_picos(limit)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.picos += other.picos;
    }

    fn take(&mut self, other: Self) {
        self.tokens -= other.tokens;
        self.picos -= other.picos;
    }
}

fn in_picos(cost: f64) -> u128 {
    (cost * 1e12).round() as u128
}

/// An attempt to reach the model, and what it is estimated to cost or has cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct LedgerEntry<'e> {
    pub run_id: &'e str,
    /// The name of the invocation's directory.
    pub invocation: &'e str,
    /// From 1.
    pub attempt: u64,
    pub model: Option<&'e str>,
    pub tokens: u64,
    /// None if the model has no price.
    pub cost: Option<f64>,
    /// The [`procfs::process_name`] of this process.
    pub process: Option<&'e str>,
}

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Reserve,
    Settle,
}

/// A line that this process has appended and not yet found in the file.
#[derive(Debug)]
struct OwnLine {
    /// With its newline.
    bytes: Vec<u8>,
    kind: Kind,
    amount: Amount,
    is_own: bool,
}

impl LedgerEntry<'_> {
    fn line(&self, kind: Kind, own_run: &str) -> OwnLine {
        let tokens = self.tokens.min(MOST);
        // Rounded, so that what is read is what is counted.
        let cost = self
            .cost
            .map(|cost| cost.clamp(0.0, MOST as f64))
            .map(|cost| in_picos(cost) as f64 / 1e12);
        let out = json::line(|line| {
            line.put("timestamp", &Timestamp::now().to_string())
                .put("kind", &kind)
                .members(&LedgerEntry {
                    tokens,
                    cost,
                    ..*self
                });
        });
        OwnLine {
            bytes: out,
            kind,
            amount: Amount::new(tokens, cost),
            is_own: self.run_id == own_run,
        }
    }
}

/// Reason why nothing can be reserved.
#[derive(Debug)]
pub(crate) enum Denial {
    /// The budget is spent.
    Exhausted(String),
    /// It may not be once other processes have settled what they reserved.
    Pending(String),
    /// Another program has written the ledger.
    Foreign(String),
    /// The ledger can be neither read nor written now.
    Unusable(Error),
    /// A signal asks the engine to end.
    Stopped(Stop),
}

impl Denial {
    fn unusable(path: &Path, doing: &str, cause: &io::Error) -> Self {
        let mut error = Error::io(doing, path, cause);
        error.exit = Exit::TempFail;
        Self::Unusable(error)
    }
}

impl From<Denial> for Error {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::Exhausted(text) | Denial::Pending(text) | Denial::Foreign(text) => {
                Self::new(Exit::Undecided, text)
            }
            Denial::Unusable(error) => error,
            Denial::Stopped(stop) => Self::new(stop.into(), stop.name()),
        }
    }
}

type Checked<T> = std::result::Result<T, Denial>;

#[derive(Deserialize)]
struct SpendingLine<'l> {
    #[serde(borrow)]
    timestamp: Cow<'l, str>,
    kind: Kind,
    #[serde(borrow)]
    run_id: Cow<'l, str>,
    #[serde(borrow)]
    invocation: Cow<'l, str>,
    attempt: u64,
    #[serde(borrow, default)]
    model: Option<Cow<'l, str>>,
    tokens: u64,
    #[serde(default)]
    cost: Option<f64>,
    #[serde(borrow, default)]
    process: Option<Cow<'l, str>>,
}

/// An amount, and the process that has reserved it.
type Reservation = (Amount, Option<String>);

/// The sums of a ledger's lines.
#[derive(Debug, Default)]
pub(crate) struct LedgerTally {
    /// Reservations without a settlement that others have made, or an earlier process.
    open: HashMap<(String, String, u64), Vec<Reservation>>,
    /// That of this process: it makes one at a time.
    open_here: Option<Amount>,
    /// Of all runs.
    all: Amount,
    /// Of the ledger's own run.
    own: Amount,
    lines: u64,
    /// Tokens of attempts that were settled as they had been estimated, as far as lines were read: their usage is not known.
    unsaid: u64,
    /// How many of the attempts that were read repeat another.
    pub retries: u32,
    /// The models that have answered, in the order of their first answers, as far as lines were read.
    pub models: Vec<String>,
}

impl LedgerTally {
    /// Adds a line, without its newline.
    ///
    /// # Errors
    /// Why it cannot be the engine's.
    fn add(&mut self, line: &[u8], own_run: &str) -> std::result::Result<(), &'static str> {
        self.lines += 1;
        let line: SpendingLine<'_> = json::read(line).ok_or("it is not a line of a ledger")?;
        let cost = line.cost.unwrap_or_default();
        if !(0.0..=MOST as f64).contains(&cost) || line.tokens > MOST {
            return Err("its figures are neither tokens nor costs");
        }
        if Timestamp::parse(&line.timestamp).is_none() || line.attempt == 0 {
            return Err("it is not a line of a ledger");
        }
        let is_own = line.run_id == own_run;
        let amount = Amount::new(line.tokens, line.cost);
        let key = (
            line.run_id.into_owned(),
            line.invocation.into_owned(),
            line.attempt,
        );
        let mut reserved = None;
        if line.kind == Kind::Reserve {
            self.retries = self.retries.saturating_add(u32::from(line.attempt > 1));
            let process = line.process.map(Cow::into_owned);
            self.open.entry(key).or_default().push((amount, process));
        } else {
            reserved = self.open.get_mut(&key).and_then(Vec::pop);
            if reserved.is_none() {
                return Err("it settles what was never reserved");
            }
            if self.open.get(&key).is_some_and(Vec::is_empty) {
                self.open.remove(&key);
            }
            let answered = line
                .model
                .filter(|model| line.tokens > 0 && !self.models.iter().any(|known| known == model));
            self.models.extend(answered.map(Cow::into_owned));
        }
        let reserved = reserved.map(|(amount, _)| amount);
        if reserved == Some(amount) {
            self.unsaid = self.unsaid.saturating_add(amount.tokens());
        }
        self.count(amount, reserved, is_own);
        Ok(())
    }

    /// Adds a line of this process, which need not be parsed.
    fn add_here(&mut self, line: &OwnLine) {
        self.lines += 1;
        let reserved = match line.kind {
            Kind::Reserve => {
                self.open_here = Some(line.amount);
                None
            }
            Kind::Settle => self.open_here.take(),
        };
        self.count(line.amount, reserved, line.is_own);
    }

    fn count(&mut self, amount: Amount, reserved: Option<Amount>, is_own: bool) {
        self.all.add(amount);
        self.all.take(reserved.unwrap_or_default());
        if is_own {
            self.own.add(amount);
            self.own.take(reserved.unwrap_or_default());
        }
    }

    /// Whether an attempt has a reservation and no settlement.
    pub(crate) fn has_open(&self, entry: &LedgerEntry<'_>) -> bool {
        let (run, invocation) = (entry.run_id.to_owned(), entry.invocation.to_owned());
        self.open_here.is_some() || self.open.contains_key(&(run, invocation, entry.attempt))
    }

    /// What the ledger's own run has spent.
    pub(crate) fn own(&self) -> Amount {
        self.own
    }

    /// What the ledger's run and those below it have spent.
    pub(crate) fn all(&self) -> Amount {
        self.all
    }

    /// How many of the tokens in a ledger that was read are estimates: of attempts without an end, or without usage.
    pub(crate) fn estimated_tokens(&self) -> u64 {
        let open = self.open.values().flatten();
        open.fold(self.unsaid, |sum, (amount, _)| {
            sum.saturating_add(amount.tokens())
        })
    }

    /// The same without what other processes that live have reserved and will settle.
    pub(crate) fn all_but_pending(&self) -> Amount {
        let own = procfs::process_name(std::process::id());
        let is_pending = |process: &str| {
            let living = process
                .split('.')
                .next()
                .and_then(|pid| pid.parse().ok())
                .and_then(procfs::process_name);
            living.as_deref() == Some(process) && living != own
        };
        let mut all = self.all;
        for (amount, process) in self.open.values().flatten() {
            if process.as_deref().is_some_and(is_pending) {
                all.take(*amount);
            }
        }
        all
    }
}

/// A ledger that is open, with what has been read of it.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    file: File,
    run: String,
    /// Device and inode.
    identity: (u64, u64),
    tally: LedgerTally,
    read_to: u64,
    /// In the order in which they were appended.
    written: VecDeque<OwnLine>,
}

impl Ledger {
    /// Opens the ledger in a run's directory; `create` makes it if it is missing.
    pub(crate) fn open(path: &Path, create: bool) -> Checked<Self> {
        let (file, metadata) = OpenOptions::new()
            .read(true)
            .append(true)
            .create(create)
            .mode(0o600)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(path)
            .and_then(|file| {
                let metadata = file.metadata()?;
                metadata
                    .is_file()
                    .then_some((file, metadata))
                    .ok_or_else(files::not_regular)
            })
            .map_err(|e| Denial::unusable(path, "open", &e))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            run: run_of(path),
            identity: (metadata.dev(), metadata.ino()),
            tally: LedgerTally::default(),
            read_to: 0,
            written: VecDeque::new(),
        })
    }

    /// The file, however it is called.
    pub(crate) fn file_id(&self) -> (u64, u64) {
        self.identity
    }

    /// Waits for the ledger, no longer than `until`, and reads what others have written. [`Self::release`] lets go of
    /// it. `is_last`: the entry is worth a moment's wait even if the engine must end.
    pub(crate) fn lock(
        &mut self,
        signals: &Signals,
        until: Option<Instant>,
        is_last: bool,
    ) -> Checked<()> {
        let lock = || self.file.try_lock();
        if let Err((mut error, stop)) = wait_for_lock(lock, &self.path, signals, until)
            && !(is_last && try_lock_for(LAST_WAIT, lock).is_ok())
        {
            error.exit = Exit::TempFail;
            return Err(stop.map_or(Denial::Unusable(error), Denial::Stopped));
        }
        self.read_on().inspect_err(|_| self.release())
    }

    /// Lets others have the ledger.
    pub(crate) fn release(&self) {
        // A lock that stays ends with the process.
        crate::error::ignore(self.file.unlock());
    }

    /// Appends a line. The ledger is locked.
    pub(crate) fn append(&mut self, entry: &LedgerEntry<'_>, kind: Kind) -> Checked<()> {
        let line = entry.line(kind, &self.run);
        let written = (&self.file).write_all(&line.bytes);
        written.map_err(|e| {
            // What is left of it would be cut off by the next who reads it, too.
            crate::error::ignore(self.file.set_len(self.read_to));
            self.written.clear();
            Denial::unusable(&self.path, "write", &e)
        })?;
        self.written.push_back(line);
        Ok(())
    }

    /// Makes what was appended durable.
    pub(crate) fn sync(&self) -> Checked<()> {
        self.file
            .sync_data()
            .map_err(|e| Denial::unusable(&self.path, "write", &e))
    }

    /// The sums, as of the last lock.
    pub(crate) fn tally(&self) -> &LedgerTally {
        &self.tally
    }

    fn read_on(&mut self) -> Checked<()> {
        let there = fs::symlink_metadata(&self.path)
            .map_err(|e: io::Error| Denial::unusable(&self.path, "read", &e))?;
        let is_in_place = (there.dev(), there.ino()) == self.identity;
        if !is_in_place || there.len() < self.read_to {
            return Err(self.foreign(REPLACED));
        }
        if there.len() > files::LARGEST {
            return Err(self.foreign("it is too large"));
        }
        while self.read_to < there.len() {
            // No larger than what is there: the buffer is zeroed first, twice in each iteration.
            let left = usize::try_from(there.len() - self.read_to).unwrap_or(CHUNK);
            let chunk = files::read_part(&self.file, self.read_to, left.min(CHUNK))
                .map_err(|e| Denial::unusable(&self.path, "read", &e))?;
            let whole = memchr::memrchr(b'\n', &chunk).map_or(0, |at| at + 1);
            for (_, line) in split_lines(&chunk[..whole]) {
                let own = self
                    .written
                    .front()
                    .is_some_and(|own| own.bytes.strip_suffix(b"\n") == Some(line))
                    .then(|| self.written.pop_front())
                    .flatten();
                // One that settles what an earlier process has reserved is read as others are.
                if let Some(own) = own
                    && (own.kind == Kind::Reserve || self.tally.open_here.is_some())
                {
                    self.tally.add_here(&own);
                    continue;
                }
                self.tally
                    .add(line, &self.run)
                    .map_err(|why| self.foreign(why))?;
            }
            self.read_to += whole as u64;
            let rest = &chunk[whole..];
            let is_end = self.read_to + rest.len() as u64 >= there.len();
            if is_end && !rest.is_empty() {
                return self.mend(rest);
            }
            if whole == 0 {
                return Err(self.foreign("a line is too long"));
            }
        }
        if !self.written.is_empty() {
            return Err(self.foreign(REPLACED));
        }
        Ok(())
    }

    /// Brings a last line without an end to one, or cuts it off: its writer died, or had no room,
    /// and what it would have announced did not happen.
    fn mend(&mut self, rest: &[u8]) -> Checked<()> {
        let start = &rest[..rest.len().min(LINE_START.len())];
        let is_torn = LINE_START.starts_with(start) || rest.iter().all(|byte| *byte == 0);
        if !is_torn {
            self.tally.lines += 1;
            return Err(self.foreign("it is not a line of a ledger"));
        }
        let mended = if serde_json::from_slice::<SpendingLine<'_>>(rest).is_ok() {
            self.tally
                .add(rest, &self.run)
                .map_err(|why| self.foreign(why))?;
            self.read_to += rest.len() as u64 + 1;
            (&self.file).write_all(b"\n")
        } else {
            self.file.set_len(self.read_to)
        };
        mended.map_err(|e| Denial::unusable(&self.path, "write", &e))
    }

    fn foreign(&self, why: &str) -> Denial {
        let (path, line) = (self.path.display(), self.tally.lines.max(1));
        Denial::Foreign(format!(
            "{path}:{line}: {why}: not the engine's, so the amount spent is unknown; mend the file, then \
             resume the run"
        ))
    }
}

/// The run in whose directory a ledger is.
fn run_of(path: &Path) -> String {
    path.parent().map_or("".into(), files::name_of).into_owned()
}

/// The sums of the ledger at a path, read without a lock; None if there is no ledger.
///
/// # Errors
/// It cannot be read, or is not the engine's.
pub(crate) fn read_tally(path: &Path) -> Result<Option<LedgerTally>> {
    let opened = files::open_unlinked(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let Some((len, file)) = opened.if_there().at("read", path)? else {
        return Ok(None);
    };
    if len > files::LARGEST {
        return Err(files::too_large(files::LARGEST)).at("read", path);
    }
    let (run, mut tally) = (run_of(path), LedgerTally::default());
    let mut read_to = 0;
    while read_to < len {
        let chunk = files::read_part(&file, read_to, CHUNK.min((len - read_to) as usize))
            .at("read", path)?;
        let whole = memchr::memrchr(b'\n', &chunk).map_or(0, |at| at + 1);
        for (_, line) in split_lines(&chunk[..whole]) {
            tally.add(line, &run).map_err(|why| {
                let line = tally.lines;
                Error::failure(format!("{}:{line}: {why}", path.display()))
            })?;
        }
        read_to += whole as u64;
        if whole == 0 && chunk.len() == CHUNK {
            let (path, line) = (path.display(), tally.lines + 1);
            return Err(Error::failure(format!("{path}:{line}: a line is too long")));
        }
        // The rest is a last line without an end.
        if whole == 0 {
            break;
        }
    }
    Ok(Some(tally))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: Kind, attempt: u64, tokens: u64, cost: f64) -> Vec<u8> {
        let entry = LedgerEntry {
            run_id: "r",
            invocation: "i",
            attempt,
            model: None,
            tokens,
            cost: Some(cost),
            process: None,
        };
        let mut line = entry.line(kind, "r").bytes;
        line.pop();
        line
    }

    #[test]
    fn what_is_settled_replaces_what_was_reserved() {
        let mut tally = LedgerTally::default();
        tally.add(&line(Kind::Reserve, 1, 100, 0.1), "r").unwrap();
        tally.add(&line(Kind::Reserve, 2, 100, 0.1), "x").unwrap();
        assert_eq!(tally.all(), Amount::new(200, Some(0.2)));
        tally.add(&line(Kind::Settle, 1, 7, 0.01), "r").unwrap();
        assert_eq!(tally.all(), Amount::new(107, Some(0.11)));
        assert_eq!(tally.own(), Amount::new(7, Some(0.01)));
        assert_eq!(tally.open.len(), 1);
        tally.add(&line(Kind::Settle, 1, 7, 0.01), "r").unwrap_err();
    }

    #[test]
    fn sums_of_costs_are_exact() {
        let mut tally = LedgerTally::default();
        for attempt in 1..=10 {
            tally
                .add(&line(Kind::Reserve, attempt, 1, 0.1), "r")
                .unwrap();
        }
        assert!(tally.all().reaches_cost(1.0));
        assert!(!tally.all().reaches_cost(1.000_000_1));
    }
}
