//! Digests of bytes.
//!
//! Unaware of what the bytes are.

use sha2::{Digest, Sha256};

/// The SHA-256 of some bytes, in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    digits(&Sha256::digest(bytes))
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

fn digits(digest: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * digest.len());
    for byte in digest {
        digits.push_str(&format!("{byte:02x}"));
    }
    digits
}
