//! Ids and names that every service takes.

use crate::text::digest::sha256;

/// True for an id of a call that all services take.
pub(super) fn is_call_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&id.len()) && id.bytes().all(allowed)
}

/// An id in place of one that a service would refuse, the same each time.
pub(super) fn usable_call_id(id: &str) -> std::borrow::Cow<'_, str> {
    if is_call_id(id) {
        id.into()
    } else {
        format!("call_{}", &sha256(id.as_bytes())[..24]).into()
    }
}
