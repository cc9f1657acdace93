//! Removal of a secret from bytes that came from outside, however JSON escapes its characters.
//!
//! A server may write any character as `\uXXXX` (RFC 8259, section 7), and JSON inside a JSON string
//! escapes the backslash again, so that a run of backslashes counts as one.

/// The variables that hold an API key of the engine.
pub(crate) const SECRET_NAMES: [&str; 4] = [
    "DELTA_API_KEY",
    "DELTA_PROVIDER_KEY",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
];

/// True for a key, and not for a word that stands in for one where a local server wants any: such a
/// word may occur in every text.
pub(crate) fn is_secret(key: &str) -> bool {
    let looks_random = key.starts_with("sk-") || key.bytes().any(|byte| byte.is_ascii_digit());
    key.len() >= 16 || key.len() >= 8 && looks_random
}

/// The bytes with every occurrence of a secret replaced by `[redacted]`; none if it does not occur.
pub(crate) fn redact(bytes: &[u8], secret: &str) -> Option<Vec<u8>> {
    let first = *secret.as_bytes().first()?;
    let mut clean = Vec::new();
    let (mut copied, mut from) = (0, 0);
    while let Some(found) = memchr::memchr2(first, b'\\', &bytes[from..]) {
        let at = from + found;
        match occurrence_end(bytes, at, secret) {
            Some(end) => {
                clean.extend_from_slice(&bytes[copied..at]);
                clean.extend_from_slice(b"[redacted]");
                (copied, from) = (end, end);
            }
            // What fails at the first backslash of a run fails at each.
            None => from = at + count_backslashes(&bytes[at..]).max(1),
        }
    }
    if copied == 0 {
        return None;
    }
    clean.extend_from_slice(&bytes[copied..]);
    Some(clean)
}

/// Where the secret ends that begins at `at`.
fn occurrence_end(bytes: &[u8], at: usize, secret: &str) -> Option<usize> {
    let mut characters = secret.chars();
    characters.try_fold(at, |at, wanted| character_end(bytes, at, wanted))
}

/// Where the character at `at` ends, if it is the wanted one, escaped or not.
fn character_end(bytes: &[u8], at: usize, wanted: char) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let backslashes = count_backslashes(rest);
    if backslashes == 0 {
        let mut buffer = [0; 4];
        let plain = wanted.encode_utf8(&mut buffer).as_bytes();
        return rest.starts_with(plain).then_some(at + plain.len());
    }
    let escaped = &rest[backslashes..];
    if let Some(digits) = escaped.strip_prefix(b"u").and_then(|rest| rest.get(..4)) {
        let unit = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        return (unit == u32::from(wanted)).then_some(at + backslashes + 5);
    }
    match wanted {
        '\\' => Some(at + backslashes),
        '/' | '"' if escaped.first() == Some(&(wanted as u8)) => Some(at + backslashes + 1),
        _ => None,
    }
}

/// Where the end of a text begins that may be the beginning of a secret.
pub(crate) fn unended(bytes: &[u8], secret: &str) -> Option<usize> {
    let first = *secret.as_bytes().first()?;
    let mut from = 0;
    while let Some(found) = memchr::memchr2(first, b'\\', &bytes[from..]) {
        let at = from + found;
        if may_go_on(bytes, at, secret) {
            return Some(at);
        }
        from = at + count_backslashes(&bytes[at..]).max(1);
    }
    None
}

/// True if the bytes from `at` on are the secret but for its end.
fn may_go_on(bytes: &[u8], mut at: usize, secret: &str) -> bool {
    for wanted in secret.chars() {
        let Some(end) = character_end(bytes, at, wanted) else {
            let rest = &bytes[at..];
            let escaped = &rest[count_backslashes(rest)..];
            let is_escape = || match escaped {
                [] => true,
                [b'u', digits @ ..] => digits.len() < 4 && digits.iter().all(u8::is_ascii_hexdigit),
                _ => false,
            };
            return rest.is_empty() || rest[0] == b'\\' && is_escape();
        };
        at = end;
    }
    false
}

fn count_backslashes(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| **byte == b'\\').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_every_spelling() {
        let secret = "sk-a/b";
        for spelling in [
            "sk-a/b",
            r"\u0073k-a/b",
            r"sk\u002Da\/b",
            r"sk\u002da\u002fb",
            r"\u0073\u006b\u002d\u0061\u002f\u0062",
            r"sk\\u002da\\\/b",
        ] {
            let text = format!("x{spelling}y {spelling}");
            let clean = redact(text.as_bytes(), secret).unwrap();
            let clean = String::from_utf8(clean).unwrap();
            assert_eq!(clean, "x[redacted]y [redacted]", "{spelling}");
        }
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in ["", "sk-a", r"sk\u002d", r"sk-a\nb", r"\\\\", "sk-a/ab"] {
            assert_eq!(redact(text.as_bytes(), "sk-a/b"), None, "{text}");
        }
        assert_eq!(redact(b"x", ""), None);
    }
}
