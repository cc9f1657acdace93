//! A request with attachments: its text, without their base64, and the place of each.
//!
//! Three forms of the same bytes. As it is built, a request has `$blob:DIGEST` in each place. As it is recorded, it has
//! nothing there, and `request.blobs.json` lists the places. As it is sent, it has the bytes as base64, which are read from
//! their files while it is sent.

use crate::error::{At, Error, Result};
use crate::record::blobs::{Blobs, base64_len};
use crate::text::digest::is_sha256;
use crate::unix::files;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The largest list of places.
const LARGEST_PLACES: u64 = 1 << 20;

/// Precedes the digest in place of the base64 of a blob.
pub(crate) const MARK: &str = "$blob:";

/// The file of the places, beside request.json.
pub(crate) const PLACES: &str = "request.blobs.json";

/// Maximum number of bytes of base64 in a recorded request. No service takes as many.
const LONGEST_SENT: u64 = 100_000_000;

/// The number of bytes that are encoded at once, a multiple of 3.
const CHUNK: usize = 3 << 14;

/// A place of a blob in a text that lacks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub at: usize,
    pub sha256: String,
    /// The blob's bytes.
    pub len: u64,
}

/// A place as it is recorded.
#[derive(Deserialize, Serialize)]
struct RecordedGap {
    /// In the bytes that were sent.
    offset: u64,
    sha256: String,
}

/// Records the places of a request in the directory of its invocation.
pub(crate) fn write_places(dir: &Path, gaps: &[Gap]) -> Result<()> {
    let mut before = 0;
    let places: Vec<RecordedGap> = gaps
        .iter()
        .map(|gap| {
            let offset = gap.at as u64 + before;
            before += base64_len(gap.len);
            RecordedGap {
                offset,
                sha256: gap.sha256.clone(),
            }
        })
        .collect();
    let mut text = crate::text::json::text(&places).into_bytes();
    text.push(b'\n');
    files::write(&dir.join(PLACES), &text)
}

/// The places in a recorded request of `len` bytes; none if it has no attachments.
///
/// # Errors
/// They cannot be read, or a blob is gone: its length is not known then.
pub(crate) fn read_places(dir: &Path, len: usize) -> Result<Vec<Gap>> {
    let path = dir.join(PLACES);
    let read = files::read_regular_limited(&path, LARGEST_PLACES).if_there();
    let Some(text) = read.at("read", &path)? else {
        return Ok(Vec::new());
    };
    let broken = |what: &str| Error::failure(format!("{}: {what}", path.display()));
    let places: Vec<RecordedGap> =
        serde_json::from_slice(&text).map_err(|_| broken("it is not a list of places"))?;
    // Invocations are in io/invocations of the run.
    let run = dir.ancestors().nth(3).unwrap_or(dir);
    let mut blobs = Blobs::of(run);
    let (mut gaps, mut before) = (Vec::<Gap>::new(), 0);
    for RecordedGap { offset, sha256 } in places {
        let file = is_sha256(&sha256).then(|| blobs.open(&sha256)).flatten();
        let Some(file) = file else {
            let path = blobs.path(&sha256);
            return Err(Error::failure(format!(
                "the request needs {}, which is gone or changed",
                path.display()
            )));
        };
        let at = offset
            .checked_sub(before)
            .map_or(usize::MAX, |at| at as usize);
        let least = gaps.last().map_or(0, |gap| gap.at);
        if at > len || at < least {
            return Err(broken("it has places that the request does not have"));
        }
        let len = file.metadata().at("read", &path)?.len();
        before += base64_len(len);
        if before > LONGEST_SENT {
            return Err(broken("it has more than a service would take"));
        }
        gaps.push(Gap { at, sha256, len });
    }
    Ok(gaps)
}

/// A recorded text with a mark in each gap.
pub(crate) fn with_marks(text: &[u8], gaps: &[Gap]) -> Vec<u8> {
    filled(text, gaps, |digest| format!("{MARK}{digest}"))
}

/// A text with the base64 of these bytes in each gap.
pub(crate) fn with_bytes(text: &[u8], gaps: &[Gap], bytes: &HashMap<&str, &[u8]>) -> Vec<u8> {
    let bytes_of = |digest: &str| bytes.get(digest).copied().unwrap_or_default();
    filled(text, gaps, |digest| {
        BASE64_STANDARD.encode(bytes_of(digest))
    })
}

fn filled(text: &[u8], gaps: &[Gap], part: impl Fn(&str) -> String) -> Vec<u8> {
    let (mut out, mut from) = (Vec::with_capacity(text.len()), 0);
    for gap in gaps {
        out.extend_from_slice(&text[from..gap.at]);
        out.extend_from_slice(part(&gap.sha256).as_bytes());
        from = gap.at;
    }
    out.extend_from_slice(&text[from..]);
    out
}

/// A request to be sent.
#[derive(Debug)]
pub(crate) struct Body<'b> {
    pub text: &'b [u8],
    blobs: Vec<(usize, File, u64)>,
}

impl<'b> Body<'b> {
    /// Opens the blobs of a request.
    ///
    /// # Errors
    /// One is gone.
    pub(crate) fn open(text: &'b [u8], gaps: &[Gap], blobs: &mut Blobs) -> Result<Self> {
        let opened = gaps.iter().map(|gap| {
            let file = blobs.open(&gap.sha256).ok_or_else(|| {
                let path = blobs.path(&gap.sha256);
                Error::failure(format!(
                    "cannot read {}: it is gone or changed",
                    path.display()
                ))
            })?;
            Ok((gap.at, file, gap.len))
        });
        Ok(Self {
            text,
            blobs: opened.collect::<Result<_>>()?,
        })
    }

    /// One without attachments.
    pub(crate) fn of_text(text: &'b [u8]) -> Self {
        Self {
            text,
            blobs: Vec::new(),
        }
    }

    pub(crate) fn has_blobs(&self) -> bool {
        !self.blobs.is_empty()
    }

    /// The bytes that are sent.
    pub(crate) fn len(&self) -> u64 {
        let blobs = self.blobs.iter().map(|(_, _, len)| base64_len(*len));
        self.text.len() as u64 + blobs.sum::<u64>()
    }

    /// The bytes that are sent, from the first one on.
    pub(crate) fn reader(&self) -> BodyReader<'_> {
        BodyReader {
            body: self,
            text_at: 0,
            next: 0,
            blob_at: 0,
            encoded: Vec::new(),
            encoded_at: 0,
        }
    }

    /// The bytes that are sent, at once.
    pub(crate) fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.len() as usize);
        self.reader().read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Reads a request, a part of a blob at a time.
pub(crate) struct BodyReader<'r> {
    body: &'r Body<'r>,
    text_at: usize,
    /// The blob that comes next, or is being read.
    next: usize,
    blob_at: u64,
    encoded: Vec<u8>,
    encoded_at: usize,
}

impl Read for BodyReader<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.encoded_at < self.encoded.len() {
                let count = (&self.encoded[self.encoded_at..]).read(to)?;
                self.encoded_at += count;
                return Ok(count);
            }
            let blob = self.body.blobs.get(self.next);
            let end = blob.map_or(self.body.text.len(), |(at, ..)| *at);
            if self.text_at < end {
                let count = (&self.body.text[self.text_at..end]).read(to)?;
                self.text_at += count;
                return Ok(count);
            }
            let Some((_, file, len)) = blob else {
                return Ok(0);
            };
            if self.blob_at == *len {
                self.next += 1;
                self.blob_at = 0;
                continue;
            }
            let count = (*len - self.blob_at).min(CHUNK as u64) as usize;
            let mut bytes = vec![0; count];
            file.read_exact_at(&mut bytes, self.blob_at)?;
            self.blob_at += count as u64;
            self.encoded = BASE64_STANDARD.encode(&bytes).into_bytes();
            self.encoded_at = 0;
        }
    }
}
