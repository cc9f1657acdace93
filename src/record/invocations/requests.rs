//! Requests read back, kept whole or as an addition to the one before.

use super::{open, read_file};
use crate::error::{At, Error, Result};
use crate::record::blobs::Blobs;
use crate::record::request_body::{Body, read_places, with_marks};
use crate::text::json::{self, parser_message};
use crate::unix::files;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct RequestTail {
    extends: String,
    bytes: usize,
    #[serde(rename = "tail")]
    text: String,
}

/// The request of an invocation as it was sent, byte for byte.
///
/// # Errors
/// Fails if the request, or one that it builds on, does not exist, or an attachment is gone.
pub(crate) fn request(dir: &Path, name: &str) -> Result<Vec<u8>> {
    Requests::of(dir).sent(name).map(Cow::into_owned)
}

/// Reads requests one after another. One that builds on the one read before it costs only what it
/// adds.
#[derive(Debug)]
pub(crate) struct Requests {
    dir: PathBuf,
    last: Option<(String, Vec<u8>)>,
    marked: Vec<u8>,
}

impl Requests {
    /// The invocations in a directory.
    pub(crate) fn of(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            last: None,
            marked: Vec::new(),
        }
    }

    /// The request of an invocation, byte for byte, with a mark in place of the bytes of each attachment.
    ///
    /// # Errors
    /// Fails if the request, or one that it builds on, does not exist, or an attachment is gone.
    pub(crate) fn read(&mut self, name: &str) -> Result<&[u8]> {
        let length = self.text(name)?.len();
        let gaps = read_places(&self.dir.join(name), length)?;
        if gaps.is_empty() {
            return self.text(name);
        }
        self.marked = with_marks(self.text(name)?, &gaps);
        Ok(&self.marked)
    }

    /// The request of an invocation as it was sent, byte for byte.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn sent(&mut self, name: &str) -> Result<Cow<'_, [u8]>> {
        let dir = self.dir.clone();
        let text = self.text(name)?;
        let gaps = read_places(&dir.join(name), text.len())?;
        if gaps.is_empty() {
            return Ok(text.into());
        }
        // Invocations are in io/invocations of the run.
        let mut blobs = Blobs::of(dir.ancestors().nth(2).unwrap_or(&dir));
        Ok(Body::open(text, &gaps, &mut blobs)?
            .bytes()
            .at("read", &dir)?
            .into())
    }

    /// The request as it is recorded, without its attachments.
    fn text(&mut self, name: &str) -> Result<&[u8]> {
        let mut tails = Vec::new();
        let mut passed = HashSet::new();
        let mut at = name.to_owned();
        let mut bytes = loop {
            if let Some((_, bytes)) = self.last.take_if(|(last, _)| *last == at) {
                break bytes;
            }
            let entry = self.dir.join(&at);
            if let Some(bytes) = whole(&entry)? {
                break bytes;
            }
            let path = entry.join("request.tail.json");
            if !passed.insert(at.clone()) {
                let path = path.display();
                return Err(Error::failure(format!("{path}: it builds on itself")));
            }
            let text =
                read_file(&entry, "request.tail.json", files::LARGEST_INPUT).at("read", &path)?;
            let tail: RequestTail = serde_json::from_slice(&text).map_err(|e| {
                Error::failure(format!("{}: {}", path.display(), parser_message(&e)))
            })?;
            at.clone_from(&tail.extends);
            tails.push(tail);
        };
        for tail in tails.iter().rev() {
            if bytes.len() < tail.bytes {
                // Better none than one that was never sent.
                let path = self.dir.join(&tail.extends);
                return Err(Error::failure(format!(
                    "the request in {} has been truncated: {name} needs {} bytes of it, and {} exist",
                    path.display(),
                    tail.bytes,
                    bytes.len()
                )));
            }
            bytes.truncate(tail.bytes);
            bytes.extend_from_slice(tail.text.as_bytes());
        }
        Ok(&self.last.insert((name.to_owned(), bytes)).1)
    }
}

/// How long an invocation's request is; none if it is not there.
pub(crate) fn request_len(dir: &Path) -> Option<usize> {
    if let Ok(whole) = open(dir, "request.json") {
        return Some(whole.metadata().ok()?.len() as usize);
    }
    let text = read_file(dir, "request.tail.json", files::LARGEST_INPUT).ok()?;
    let tail: RequestTail = json::read(&text)?;
    Some(tail.bytes.saturating_add(tail.text.len()))
}

/// A request that is whole, if there is one.
fn whole(dir: &Path) -> Result<Option<Vec<u8>>> {
    let path = dir.join("request.json");
    let read = read_file(dir, "request.json", files::LARGEST_INPUT).if_there();
    // A run that is live may have begun to use the file for another request.
    Ok(read.at("read", &path)?.filter(|_| path.exists()))
}
