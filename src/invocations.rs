//! The record of what was sent to the model: each request byte for byte, older ones as what they
//! added to the one before.
//!
//! Unaware of what is in a request. A request in the form of a tail is `{"extends": NAME, "bytes": N,
//! "tail": TEXT}`: the first N bytes of the invocation NAME's request, and TEXT behind them.

use crate::clock::Timestamp;
use crate::error::{At, Error, Result};
use crate::files;
use crate::json::Object;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The invocations of a run.
#[derive(Debug)]
pub struct Invocations {
    dir: PathBuf,
    /// How many keep their request whole; 0: all.
    keep: usize,
    /// The newest ones that are whole, oldest first.
    whole: VecDeque<String>,
    /// The newest one with its request.
    previous: Option<(String, Vec<u8>)>,
}

/// An invocation that has just been recorded.
#[derive(Debug)]
pub struct Begun {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub dir: PathBuf,
    /// The invocation before it, and how many leading bytes their requests share.
    pub extends: Option<(String, usize)>,
}

#[derive(Deserialize)]
struct Tail {
    extends: String,
    bytes: usize,
    #[serde(rename = "tail")]
    text: String,
}

/// What is kept of an invocation beside its bytes. Every field may be missing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// `SUCCESS`, `FAILED` or `TIMEOUT`.
    pub status: Option<String>,
    /// From the first attempt to the last, with the waits between them.
    pub duration_ms: u64,
    /// Tokens, if the server told.
    pub token_usage: Option<TokenUsage>,
    /// One for each time the request was sent.
    pub attempts: Vec<IgnoredAny>,
    /// The invocation before it, and how many leading bytes their requests share.
    pub extends: Option<Extends>,
}

/// Tokens of one answer, as far as the journal does not tell them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    /// How many of the request's tokens came from a cache.
    pub cached: Option<u64>,
}

/// What a request shares with the one before it.
#[derive(Debug, Deserialize)]
pub struct Extends {
    /// The invocation before.
    pub invocation: String,
    /// How many leading bytes are the same.
    pub bytes: usize,
}

/// What is known of an invocation; none while it is under way, or when its engine died.
#[must_use]
pub fn metadata(dir: &Path) -> Option<Metadata> {
    let text = std::fs::read(dir.join("metadata.json")).ok()?;
    serde_json::from_slice(&text).ok()
}

/// How long an invocation's request is; none if it is not there.
#[must_use]
pub fn request_len(dir: &Path) -> Option<usize> {
    if let Ok(whole) = dir.join("request.json").metadata() {
        return Some(whole.len() as usize);
    }
    let text = std::fs::read(dir.join("request.tail.json")).ok()?;
    let tail: Tail = serde_json::from_slice(&text).ok()?;
    Some(tail.bytes.saturating_add(tail.text.len()))
}

impl Invocations {
    /// Those in a directory. What an engine that died left whole and should not have is put in order.
    pub fn open(dir: &Path, keep: usize) -> Result<Self> {
        let mut invocations = Self {
            dir: dir.to_owned(),
            keep,
            whole: VecDeque::new(),
            previous: None,
        };
        let names = in_order(dir)?;
        if let Some(newest) = names.last() {
            let request = std::fs::read(dir.join(newest).join("request.json")).ok();
            invocations.previous = request.map(|request| (newest.clone(), request));
        }
        let is_whole = |name: &String| dir.join(name).join("request.json").exists();
        invocations.whole = names.into_iter().filter(is_whole).collect();
        invocations.retire_old()?;
        Ok(invocations)
    }

    /// Records a request that is about to be sent.
    pub fn begin(&mut self, iteration: u64, request: Vec<u8>) -> Result<Begun> {
        let name = format!("{}_{iteration}", Timestamp::now().compact());
        let name = files::make_unique_dir(&self.dir, &name)?;
        let dir = self.dir.join(&name);
        files::write(&dir.join("request.json"), &request)?;
        let extends = self
            .previous
            .as_ref()
            .map(|(previous, bytes)| (previous.clone(), common_prefix(bytes, &request)));
        self.whole.push_back(name.clone());
        self.previous = Some((name.clone(), request));
        Ok(Begun { name, dir, extends })
    }

    /// The request that was recorded last.
    #[must_use]
    pub fn last_request(&self) -> &[u8] {
        self.previous.as_ref().map_or(&[], |previous| &previous.1)
    }

    /// Shortens requests that need not be whole any more.
    pub fn retire_old(&mut self) -> Result<()> {
        while self.keep > 0 && self.whole.len() > self.keep {
            if let Some(name) = self.whole.pop_front() {
                retire(&self.dir.join(name))?;
            }
        }
        Ok(())
    }
}

/// The names of a run's invocations in the order in which they were made: by iteration first, because
/// clocks may go back. Older engines did not name them so: theirs stand first, by their files' times.
pub fn in_order(dir: &Path) -> Result<Vec<String>> {
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

/// Replaces a request by what it added to the one before, if it shares most of its bytes with it.
fn retire(dir: &Path) -> Result<()> {
    let path = dir.join("request.json");
    let Some(extends) = metadata(dir).and_then(|metadata| metadata.extends) else {
        return Ok(());
    };
    let file = File::open(&path).at("read", &path)?;
    let len = file.metadata().at("read", &path)?.len() as usize;
    if extends.bytes * 2 < len || extends.bytes > len {
        return Ok(());
    }
    let tail =
        files::read_part(&file, extends.bytes as u64, len - extends.bytes).at("read", &path)?;
    let Ok(tail) = String::from_utf8(tail) else {
        return Ok(());
    };
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    object
        .put("extends", &extends.invocation)
        .put("bytes", &extends.bytes)
        .put("tail", &tail);
    object.end();
    out.push(b'\n');
    files::replace(&dir.join("request.tail.json"), &out)?;
    files::remove(&path)
}

/// The request of an invocation, byte for byte.
///
/// # Errors
/// It is not there, or one that it builds on is not.
pub fn request(dir: &Path, name: &str) -> Result<Vec<u8>> {
    Requests::of(dir).read(name).map(<[u8]>::to_vec)
}

/// Reads requests one after another. One that builds on the one read before it costs only what it
/// adds.
#[derive(Debug)]
pub struct Requests {
    dir: PathBuf,
    last: Option<(String, Vec<u8>)>,
}

impl Requests {
    /// Those of the invocations in a directory.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            last: None,
        }
    }

    /// The request of an invocation, byte for byte.
    ///
    /// # Errors
    /// It is not there, or one that it builds on is not.
    pub fn read(&mut self, name: &str) -> Result<&[u8]> {
        let mut tails = Vec::new();
        let mut at = name.to_owned();
        let mut bytes = loop {
            if let Some((_, bytes)) = self.last.take_if(|(last, _)| *last == at) {
                break bytes;
            }
            let entry = self.dir.join(&at);
            let path = entry.join("request.json");
            if path.exists() {
                break std::fs::read(&path).at("read", &path)?;
            }
            let path = entry.join("request.tail.json");
            let text = std::fs::read(&path).at("read", &path)?;
            let tail: Tail = serde_json::from_slice(&text)
                .map_err(|e| Error::failure(format!("{}: {e}", path.display())))?;
            at.clone_from(&tail.extends);
            tails.push(tail);
        };
        for tail in tails.iter().rev() {
            bytes.truncate(tail.bytes);
            bytes.extend_from_slice(tail.text.as_bytes());
        }
        Ok(&self.last.insert((name.to_owned(), bytes)).1)
    }
}

/// How many leading bytes two requests share, up to a character boundary.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const CHUNK: usize = 4096;
    let shorter = a.len().min(b.len());
    let mut same = 0;
    while same + CHUNK <= shorter && a[same..same + CHUNK] == b[same..same + CHUNK] {
        same += CHUNK;
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
