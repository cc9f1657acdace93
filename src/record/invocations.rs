//! The record of the requests to the model: each byte for byte, older ones as an addition to the
//! one before.
//!
//! Unaware of what is in a request. A request in the form of a tail is `{"extends": NAME, "bytes": N,
//! "tail": TEXT}`: the first N bytes of the invocation NAME's request, and TEXT behind them.

mod requests;

use crate::text::names::named_enum;
pub(crate) use requests::{Requests, request, request_len};

use crate::error::{At, Result};
use crate::record::request_body::{Gap, write_places};
use crate::text::amounts::grouped;
use crate::text::digest::sha256;
use crate::text::json;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// The invocations of a run.
#[derive(Debug)]
pub(crate) struct Invocations {
    dir: PathBuf,
    /// How many keep their request whole; 0: all.
    keep: usize,
    /// The newest ones that are whole, oldest first.
    whole: VecDeque<Whole>,
    /// The newest one with its request.
    previous: Option<(String, Vec<u8>)>,
    /// A request that is not needed any more: memory for the next.
    spare: Vec<u8>,
    /// The newest one and its record, if the service made its answer in the background.
    open: Option<(Begun, InvocationMetadata)>,
}

/// An invocation whose request is whole.
#[derive(Debug)]
struct Whole {
    name: String,
    /// Set if this process wrote it.
    written: Option<Written>,
}

/// A request that this process wrote.
#[derive(Debug)]
struct Written {
    extends: Option<Extends>,
    /// How many leading bytes it shares with the newest request, at least.
    shared: usize,
    stamp: RequestStamp,
}

/// Changes whenever the file is written to.
#[derive(Debug, PartialEq, Eq)]
struct RequestStamp {
    len: u64,
    modified: (i64, i64),
}

impl RequestStamp {
    fn of(meta: &std::fs::Metadata) -> Self {
        Self {
            len: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        }
    }
}

/// An invocation that has just been recorded.
#[derive(Debug)]
pub(crate) struct Begun {
    pub name: String,
    pub dir: PathBuf,
    /// The invocation before it, and how many leading bytes their requests share.
    pub extends: Option<Extends>,
    /// An earlier process has sent the request, and its answer is open.
    pub is_open: bool,
}

named_enum! {
    /// What came of an invocation. One that is pending has an answer that is open at the service.
    pub(crate) enum InvocationStatus {
        Success = "SUCCESS",
        Pending = "PENDING",
        Timeout = "TIMEOUT",
        Failed = "FAILED",
    }
}

/// The record of an invocation beside its bytes. Every field may be missing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct InvocationMetadata {
    /// The name of an [`InvocationStatus`].
    pub status: Option<String>,
    /// From the first attempt to the last, with the waits between them.
    pub duration_ms: u64,
    /// Tokens, if the server reported them.
    pub token_usage: Option<TokenUsage>,
    /// One for each time the request was sent.
    pub attempts: Vec<AttemptRecord>,
    /// The status of the last attempt's answer.
    pub http_status: Option<u64>,
    /// The model, as the answer names it.
    pub model_id: Option<String>,
    /// The invocation before it, and how many leading bytes their requests share.
    pub extends: Option<Extends>,
    /// The answer that the service is making, or has made.
    pub open: Option<OpenAnswer>,
    /// Files of the request, where they differ from those of the request before.
    pub context: Vec<GivenFile>,
}

/// A file of the context that a request holds, or a skill that it lists.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct GivenFile {
    pub path: String,
    pub bytes: u64,
    /// As many of them are in the request; none: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
}

impl GivenFile {
    pub(crate) fn in_words(&self) -> String {
        let (path, bytes) = (&self.path, grouped(self.bytes));
        match self.sent {
            None => format!("{path}, {bytes} bytes"),
            Some(sent) => format!("{path}, cut to {} of {bytes} bytes", grouped(sent)),
        }
    }
}

/// An attempt to reach the model.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AttemptRecord {
    started_at: Option<String>,
    /// Without the wait before it.
    duration_ms: Option<u64>,
    pub outcome: Option<String>,
}

impl AttemptRecord {
    pub(crate) fn began(&self) -> Option<Timestamp> {
        Timestamp::parse(self.started_at.as_deref()?)
    }
}

impl InvocationMetadata {
    pub(crate) fn has(&self, status: InvocationStatus) -> bool {
        self.status.as_deref() == Some(status.name())
    }

    /// The time between its attempts.
    pub(crate) fn waited_ms(&self) -> u64 {
        if self.attempts.len() < 2 {
            return 0;
        }
        self.attempts
            .iter()
            .filter_map(|attempt| attempt.duration_ms)
            .fold(self.duration_ms, u64::saturating_sub)
    }
}

/// An answer that a service makes in the background.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct OpenAnswer {
    /// Its id at the service.
    pub response_id: String,
    /// The digest of the conversation that it answers.
    pub conversation: String,
}

/// Tokens of one answer that the journal does not record.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TokenUsage {
    /// How many of the request's tokens came from a cache.
    pub cached: Option<u64>,
    /// How many of the request's tokens were put into a cache.
    pub cache_write: u64,
}

/// The beginning that a request shares with the one before it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Extends {
    /// The invocation before.
    pub invocation: String,
    /// How many leading bytes are the same.
    pub bytes: usize,
}

/// The metadata of an invocation; none while it is under way, or when its engine died.
pub(crate) fn metadata(dir: &Path) -> Option<InvocationMetadata> {
    json::read(&read_file(dir, "metadata.json", files::LARGEST_METADATA).ok()?)
}

/// Opens a file of an invocation. The directory is in `io/invocations` of its run, out of which no link leads.
fn open(dir: &Path, name: &str) -> io::Result<File> {
    let mut run = dir.components();
    let [last, middle, first] = [(); 3].map(|()| run.next_back());
    let names = [first, middle, last].into_iter().flatten();
    let below: PathBuf = names.chain([Component::Normal(name.as_ref())]).collect();
    files::open_below(run.as_path(), &below)
}

/// The content of a file of an invocation, of at most `limit` bytes.
pub(crate) fn read_file(dir: &Path, name: &str, limit: u64) -> io::Result<Vec<u8>> {
    files::read_limited(open(dir, name)?, limit)
}

impl Invocations {
    /// Opens the invocations in a directory. Shortens those that an engine that died left whole beyond `keep`.
    pub(crate) fn open(dir: &Path, keep: usize) -> Result<Self> {
        let mut invocations = Self {
            dir: dir.to_owned(),
            keep,
            whole: VecDeque::new(),
            previous: None,
            spare: Vec::new(),
            open: None,
        };
        let names = in_order(dir)?;
        if let Some(newest) = names.last() {
            let (name, dir) = (newest.clone(), dir.join(newest));
            let request = read_file(&dir, "request.json", files::LARGEST_INPUT).ok();
            let record = metadata(&dir).unwrap_or_default();
            if record.open.is_some() && request.is_some() {
                let begun = Begun {
                    name: name.clone(),
                    dir,
                    extends: record.extends.clone(),
                    is_open: true,
                };
                invocations.open = Some((begun, record));
            }
            invocations.previous = request.map(|request| (name, request));
        }
        let is_whole = |name: &String| {
            let dir = dir.join(name);
            // Most are shortened, and there may be thousands.
            dir.join("request.json").exists() && open(&dir, "request.json").is_ok()
        };
        let whole = names.into_iter().filter(is_whole);
        invocations.whole = whole
            .map(|name| Whole {
                name,
                written: None,
            })
            .collect();
        while keep > 0 && invocations.whole.len() > keep {
            if let Some(oldest) = invocations.whole.pop_front() {
                retire(&dir.join(oldest.name))?;
            }
        }
        Ok(invocations)
    }

    /// True if an earlier process has left an answer open, and nothing has been asked since.
    pub(crate) fn has_open(&self) -> bool {
        self.open
            .iter()
            .any(|(_, record)| record.has(InvocationStatus::Pending))
    }

    /// The invocation whose answer is open or not in the journal, if that is the answer to this conversation; once.
    pub(crate) fn resume(&mut self, conversation: &[u8]) -> Option<Begun> {
        let (begun, record) = self.open.take()?;
        (record.open?.conversation == sha256(conversation)).then_some(begun)
    }

    /// Gives up the answer that is open: another model is asked.
    pub(crate) fn give_up_open(&mut self) {
        self.open = None;
    }

    /// Records a request that is about to be sent, and shortens one that need not be whole any more.
    /// `purpose` ends its name; empty: it brings the run on. `gaps` are the places of its attachments.
    pub(crate) fn begin(
        &mut self,
        iteration: u64,
        purpose: &str,
        (request, gaps): (Vec<u8>, &[Gap]),
    ) -> Result<Begun> {
        let name = format!("{}_{iteration}{purpose}", Timestamp::now().basic());
        let name = files::make_unique_dir(&self.dir, &name)?;
        let dir = self.dir.join(&name);
        let extends = self.previous.as_ref().map(|(previous, bytes)| Extends {
            invocation: previous.clone(),
            bytes: common_prefix(bytes, &request),
        });
        let shared = extends.as_ref().map_or(0, |extends| extends.bytes);
        for written in self.whole.iter_mut().filter_map(|w| w.written.as_mut()) {
            written.shared = written.shared.min(shared);
        }
        let mut oldest = None;
        while self.keep > 0 && self.whole.len() >= self.keep {
            oldest = self.whole.pop_front();
            if let Some(Whole {
                name,
                written: None,
            }) = &oldest
            {
                retire(&self.dir.join(name))?;
            }
        }
        if !gaps.is_empty() {
            write_places(&dir, gaps)?;
        }
        let stamp = self.write(oldest, &dir, &request)?;
        self.whole.push_back(Whole {
            name: name.clone(),
            written: Some(Written {
                extends: extends.clone(),
                shared: request.len(),
                stamp,
            }),
        });
        self.spare = self
            .previous
            .replace((name.clone(), request))
            .map(|(_, bytes)| bytes)
            .unwrap_or_default();
        Ok(Begun {
            name,
            dir,
            extends,
            is_open: false,
        })
    }

    /// Writes a request into the directory of its invocation. The file of the oldest whole one is used
    /// for it if it can be: of that, only the end differs.
    fn write(&self, oldest: Option<Whole>, dir: &Path, request: &[u8]) -> Result<RequestStamp> {
        if let Some(Whole {
            name,
            written: Some(written),
        }) = oldest
        {
            let old = self.dir.join(name);
            if let Some(stamp) = recycle(&old, &written, dir, request)? {
                return Ok(stamp);
            }
            if let Some(extends) = &written.extends {
                shorten(&old, extends)?;
            }
        }
        let path = dir.join("request.json");
        let mut file = files::create(&path)?;
        file.write_all(request).at("write", &path)?;
        Ok(RequestStamp::of(&file.metadata().at("read", &path)?))
    }

    /// The request that was recorded last.
    pub(crate) fn last_request(&self) -> &[u8] {
        self.previous.as_ref().map_or(&[], |previous| &previous.1)
    }

    /// An empty buffer, with room for a request if there is any.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.spare);
        buffer.clear();
        buffer
    }
}

/// The names of a run's invocations in the order in which they were made: by iteration first, because
/// clocks may go back. Older engines did not name them so: theirs come first, by their files' times.
pub(crate) fn in_order(dir: &Path) -> Result<Vec<String>> {
    let mut names = files::names(dir)?;
    names.sort_by_cached_key(|name| {
        let mut parts = name.split('_');
        let time = parts.next().unwrap_or_default().to_owned();
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
        let iteration = number();
        let modified = || dir.join(name).metadata().ok()?.modified().ok();
        let modified = iteration.is_none().then(modified);
        (iteration, modified, time, number())
    });
    Ok(names)
}

/// Time when an invocation began, as its name says.
pub(crate) fn began(name: &str) -> Option<Timestamp> {
    Timestamp::parse_basic(name.split('_').next()?)
}

/// True for the name of an invocation that made a summary of the conversation.
pub(crate) fn is_for_summary(name: &str) -> bool {
    name.split('_').nth(2) == Some("compaction")
}

/// Replaces a request of an earlier process by what it added to the one before.
fn retire(dir: &Path) -> Result<()> {
    match metadata(dir).and_then(|metadata| metadata.extends) {
        Some(extends) => shorten(dir, &extends),
        None => Ok(()),
    }
}

/// Replaces a request by what it added to the one before, if it shares most of its bytes with it.
fn shorten(dir: &Path, extends: &Extends) -> Result<()> {
    let path = dir.join("request.json");
    let file = open(dir, "request.json").at("read", &path)?;
    let len = file.metadata().at("read", &path)?.len() as usize;
    let Some(tail) = tail(&file, len, extends).at("read", &path)? else {
        return Ok(());
    };
    files::replace(&dir.join("request.tail.json"), &tail)?;
    files::remove(&path)
}

/// The bytes that a request added to the one before, in the form of a tail. None if it is better kept whole.
fn tail(file: &File, len: usize, extends: &Extends) -> io::Result<Option<Vec<u8>>> {
    if extends.bytes * 2 < len || extends.bytes > len {
        return Ok(None);
    }
    let tail = files::read_part(file, extends.bytes as u64, len - extends.bytes)?;
    let Ok(tail) = String::from_utf8(tail) else {
        return Ok(None);
    };
    let line = json::line(|object| {
        object
            .put("extends", &extends.invocation)
            .put("bytes", &extends.bytes)
            .put("tail", &tail);
    });
    Ok(Some(line))
}

/// Shortens the request in `old` and turns its file into that of a new one, by writing what differs:
/// as long as a conversation grows, that is its end. None if the file cannot be used: it was
/// touched or linked, or it must stay whole.
fn recycle(
    old: &Path,
    written: &Written,
    dir: &Path,
    request: &[u8],
) -> Result<Option<RequestStamp>> {
    let path = old.join("request.json");
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path);
    let (Ok(file), Some(extends)) = (opened, &written.extends) else {
        return Ok(None);
    };
    let meta = file.metadata().at("read", &path)?;
    if RequestStamp::of(&meta) != written.stamp || meta.nlink() != 1 {
        return Ok(None);
    }
    let Some(tail) = tail(&file, meta.len() as usize, extends).at("read", &path)? else {
        return Ok(None);
    };
    files::write(&old.join("request.tail.json"), &tail)?;
    // It gets its name when it is whole.
    let temporary = dir.join(".request.json.tmp");
    std::fs::rename(&path, &temporary).at("rename", &path)?;
    let path = dir.join("request.json");
    file.write_all_at(&request[written.shared..], written.shared as u64)
        .at("write", &path)?;
    if meta.len() > request.len() as u64 {
        file.set_len(request.len() as u64).at("cut", &path)?;
    }
    let stamp = RequestStamp::of(&file.metadata().at("read", &path)?);
    std::fs::rename(&temporary, &path).at("rename", &path)?;
    Ok(Some(stamp))
}

/// How many leading bytes two requests share, up to a character boundary.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let shorter = a.len().min(b.len());
    let mut same = 0;
    for chunk in [4096, 64] {
        while same + chunk <= shorter && a[same..same + chunk] == b[same..same + chunk] {
            same += chunk;
        }
    }
    same += a[same..shorter]
        .iter()
        .zip(&b[same..shorter])
        .take_while(|(x, y)| x == y)
        .count();
    while same < b.len() && same > 0 && b[same] & 0xC0 == 0x80 {
        same -= 1;
    }
    same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_at_characters() {
        let long = "x".repeat(5000);
        for (a, b, same) in [
            ("", "", 0),
            ("abc", "abd", 2),
            ("é1", "è1", 0),
            ("aé", "aè", 1),
            ("ab", "abc", 2),
        ] {
            assert_eq!(common_prefix(a.as_bytes(), b.as_bytes()), same, "{a} {b}");
            let (a, b) = (format!("{long}{a}"), format!("{long}{b}"));
            assert_eq!(common_prefix(a.as_bytes(), b.as_bytes()), same + 5000);
        }
    }
}
