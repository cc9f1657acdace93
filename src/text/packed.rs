//! Texts that the program carries compressed. `build.rs` compresses them.

use miniz_oxide::inflate::decompress_to_vec;

/// The bytes of a text that `build.rs` has compressed under this name.
macro_rules! packed {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".deflate"))
    };
}
pub(crate) use packed;

/// The text of such bytes.
pub(crate) fn unpacked(bytes: &[u8]) -> String {
    let text = decompress_to_vec(bytes).unwrap_or_default();
    String::from_utf8(text).unwrap_or_default()
}
