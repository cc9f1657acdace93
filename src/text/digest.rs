//! Digests of bytes.
//!
//! Unaware of what the bytes are.

use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};

/// The SHA-256 of some bytes, in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    digits(&Sha256::digest(bytes))
}

/// The number of bytes that are read, and copied, and their SHA-256, in hexadecimal digits. None if `is_stopped`, which
/// is asked between parts, says so.
pub(crate) fn sha256_of(
    from: &mut impl Read,
    copy: &mut impl Write,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<Option<(u64, String)>> {
    let (mut sum, mut size) = (Sha256::new(), 0);
    let mut part = vec![0; 1 << 16];
    loop {
        if is_stopped() {
            return Ok(None);
        }
        match from.read(&mut part)? {
            0 => return Ok(Some((size, digits(&sum.finalize())))),
            count => {
                copy.write_all(&part[..count])?;
                sum.update(&part[..count]);
                size += count as u64;
            }
        }
    }
}

/// The SHA-256 of a list of parts. It differs where the same bytes are parted otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartsDigest(Sha256);

impl PartsDigest {
    pub(crate) fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    /// The digest of the parts so far, in hexadecimal digits.
    pub(crate) fn sum(&self) -> String {
        digits(&self.0.clone().finalize())
    }
}

/// True for the digits of a SHA-256 as [`sha256`] writes them.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn digits(digest: &[u8]) -> String {
    let halves = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves
        .filter_map(|half| char::from_digit(half.into(), 16))
        .collect()
}
