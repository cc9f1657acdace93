//! The inbox of a run: messages that a person sends to it while it is live, a file each.
//!
//! Unaware of the journal. A file that another user, or a link, could have put there is left where it is.

use crate::error::{At, Result, ignore};
use crate::record::run_dir::RunDir;
use crate::text::ids::hex;
use crate::unix::files;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The most bytes of a message.
pub(crate) const LONGEST: usize = 64 << 10;

/// The most messages that are taken at once.
const MOST: usize = 100;

/// Limit of the time for which another process may keep the inbox from being closed.
const PATIENCE: Duration = Duration::from_secs(2);

/// The inbox in the run's directory.
const BELOW: &str = "interaction/inbox";

/// A message that has arrived.
#[derive(Debug)]
pub(crate) struct ArrivedMessage {
    /// The name of its file.
    pub id: String,
    pub text: String,
    path: PathBuf,
}

impl ArrivedMessage {
    /// Removes its file. The message must be on disk in the journal.
    pub(crate) fn remove(&self) -> Result<()> {
        files::remove(&self.path)
    }
}

fn inbox(run: &RunDir) -> PathBuf {
    run.path.join(BELOW)
}

/// The messages that lie there, by name.
pub(crate) fn arrived(run: &RunDir) -> Result<Vec<ArrivedMessage>> {
    let dir = inbox(run);
    // Most runs have none.
    if dir.symlink_metadata().is_err() || !files::is_dir_below(&run.path, Path::new(BELOW)) {
        return Ok(Vec::new());
    }
    let names = files::names(&dir)?
        .into_iter()
        .filter(|name| !name.starts_with('.'));
    let messages = names.filter_map(|id| {
        let path = dir.join(&id);
        let text = read(&path)?;
        Some(ArrivedMessage { id, text, path })
    });
    Ok(messages.take(MOST).collect())
}

fn read(path: &Path) -> Option<String> {
    let file = files::open_unlinked(path).ok()?;
    let meta = file.metadata().ok()?;
    let is_own = meta.uid() == rustix::process::geteuid().as_raw() && meta.nlink() == 1;
    let bytes = files::read_limited(file, LONGEST as u64).ok()?;
    String::from_utf8(bytes).ok().filter(|_| is_own)
}

/// A name for a message that is put into the inbox now.
pub(crate) fn new_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    format!("{:020}_{}", since.unwrap_or_default().as_nanos(), hex(8))
}

/// Puts a message into the inbox, which the caller holds. Returns its file.
pub(crate) fn put(run: &RunDir, name: &str, text: &str) -> Result<PathBuf> {
    let dir = files::make_dirs_below(&run.path, Path::new(BELOW))?;
    let path = dir.join(name);
    files::replace_durably(&path, text.as_bytes())?;
    Ok(path)
}

/// Keeps other processes from putting messages into the inbox, until what is returned is dropped: a lock on the run's
/// directory. None: another process has it for too long.
pub(crate) fn hold(run: &RunDir) -> Result<Option<File>> {
    let file = File::open(&run.path).at("open", &run.path)?;
    let began = Instant::now();
    while file.try_lock().is_err() {
        if began.elapsed() > PATIENCE {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    remove_unfinished(run)?;
    Ok(Some(file))
}

/// Removes what writers that were killed have left; the inbox is held.
fn remove_unfinished(run: &RunDir) -> Result<()> {
    let dir = inbox(run);
    if !dir.is_dir() || !files::is_dir_below(&run.path, Path::new(BELOW)) {
        return Ok(());
    }
    let names = files::names(&dir)?.into_iter();
    let is_unfinished = |name: &str| name.strip_suffix(".tmp")?.strip_prefix('.').map(drop);
    let unfinished = names.filter(|name| is_unfinished(name).is_some());
    unfinished.for_each(|name| ignore(files::remove(&dir.join(name))));
    Ok(())
}
