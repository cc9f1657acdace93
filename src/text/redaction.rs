//! Removal of a secret from bytes that came from outside, however its characters are escaped.
//!
//! A server may write any character as `\uXXXX` (RFC 8259, section 7), and JSON inside a JSON string
//! escapes the backslash again, so that a run of backslashes counts as one. In a URL any character may be
//! percent-encoded (RFC 3986, section 2.1), and twice in a URL inside a URL. Headers hold keys in base64 (RFC 4648).

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The variable that holds a command which prints the API key.
pub(crate) const KEY_COMMAND: &str = "DELTA_API_KEY_COMMAND";

/// The variables that hold an API key of the engine, or the way to one.
pub(crate) const SECRET_NAMES: [&str; 5] = [
    KEY_COMMAND,
    "DELTA_API_KEY",
    "DELTA_PROVIDER_KEY",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
];

/// How often a character may be percent-encoded.
const MOST_LAYERS: u8 = 2;

/// More backslashes in a row escape nothing: JSON doubles them each time that it is put into JSON.
const MOST_BACKSLASHES: usize = 64;

/// How many bytes a character of a secret usually becomes at most: four thirds in base64, nine percent-encoded twice,
/// each of them `\uXXXX`, with some backslashes more.
pub(crate) const LONGEST_CHARACTER: usize = 96;

/// True for a key, and not for a placeholder for local servers that require any key: such a
/// word may occur in every text.
pub(crate) fn is_secret(key: &str) -> bool {
    let looks_random = key.starts_with("sk-") || key.bytes().any(|byte| byte.is_ascii_digit());
    key.len() >= 16 || key.len() >= 8 && looks_random
}

/// The bytes with every occurrence of a secret replaced by `[redacted]`; none if it does not occur.
pub(crate) fn redact(bytes: &[u8], secret: &str) -> Option<Vec<u8>> {
    forms(secret).fold(None, |clean, form| {
        redact_form(clean.as_deref().unwrap_or(bytes), &form).or(clean)
    })
}

/// Where the end of a text begins that may be the beginning of a secret.
pub(crate) fn unended(bytes: &[u8], secret: &str) -> Option<usize> {
    let begins = forms(secret).filter_map(|form| {
        let mut from = 0;
        while let Some(at) = next_start(bytes, from, &form) {
            if ends(bytes, at, &form).any(|end| end == Err(Miss::Cut)) {
                return Some(at);
            }
            from = past_start(bytes, at);
        }
        None
    });
    begins.min()
}

/// The secret itself and its base64, without the padding that may follow.
fn forms(secret: &str) -> impl Iterator<Item = String> {
    let [standard, url] = [STANDARD_NO_PAD, URL_SAFE_NO_PAD].map(|it| it.encode(secret));
    let url = Some(url).filter(|url| *url != standard);
    [secret.to_owned(), standard].into_iter().chain(url)
}

fn redact_form(bytes: &[u8], form: &str) -> Option<Vec<u8>> {
    let mut clean = Vec::new();
    let (mut copied, mut from) = (0, 0);
    while let Some(at) = next_start(bytes, from, form) {
        match ends(bytes, at, form).find_map(Result::ok) {
            Some(end) => {
                clean.extend_from_slice(&bytes[copied..at]);
                clean.extend_from_slice(b"[redacted]");
                (copied, from) = (end, end);
            }
            None => from = past_start(bytes, at),
        }
    }
    if copied == 0 {
        return None;
    }
    clean.extend_from_slice(&bytes[copied..]);
    Some(clean)
}

/// The next place where a form may begin, plain or escaped.
fn next_start(bytes: &[u8], from: usize, form: &str) -> Option<usize> {
    let first = *form.as_bytes().first()?;
    Some(from + memchr::memchr3(first, b'\\', b'%', &bytes[from..])?)
}

/// Where to look on after a start. What fails at the first backslash of a run fails at each.
fn past_start(bytes: &[u8], at: usize) -> usize {
    at + count_backslashes(&bytes[at..]).max(1)
}

/// Why bytes are not what was wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Miss {
    /// They end too early.
    Cut,
    Other,
}

/// Where a form ends that begins at `at`, for each number of layers that percent-encoding may have. Most layers do for
/// all, unless the form itself looks encoded.
fn ends(bytes: &[u8], at: usize, form: &str) -> impl Iterator<Item = Result<usize, Miss>> {
    let least = if form.contains(['%', '\\']) {
        0
    } else {
        MOST_LAYERS
    };
    (least..=MOST_LAYERS).map(move |layers| {
        let mut characters = form.chars();
        characters.try_fold(at, |at, wanted| character_end(bytes, at, wanted, layers))
    })
}

/// Where the character at `at` ends, if it is the wanted one, escaped or not.
fn character_end(bytes: &[u8], at: usize, wanted: char, layers: u8) -> Result<usize, Miss> {
    let Some(layers) = layers.checked_sub(1) else {
        return unencoded_end(bytes, at, wanted);
    };
    match encoded_end(bytes, at, wanted, layers) {
        Err(Miss::Other) => character_end(bytes, at, wanted, layers),
        found => found,
    }
}

/// The same of a percent-encoded character.
fn encoded_end(bytes: &[u8], mut at: usize, wanted: char, layers: u8) -> Result<usize, Miss> {
    for byte in wanted.encode_utf8(&mut [0; 4]).bytes() {
        at = character_end(bytes, at, '%', layers)?;
        for digit in [byte >> 4, byte & 0xF] {
            let digit = char::from_digit(digit.into(), 16).ok_or(Miss::Other)?;
            at = match character_end(bytes, at, digit, layers) {
                Err(Miss::Other) if digit.is_ascii_lowercase() => {
                    character_end(bytes, at, digit.to_ascii_uppercase(), layers)?
                }
                found => found?,
            };
        }
    }
    Ok(at)
}

/// The same of a character that is plain or escaped as in JSON.
fn unencoded_end(bytes: &[u8], at: usize, wanted: char) -> Result<usize, Miss> {
    let rest = bytes.get(at..).unwrap_or_default();
    match rest.first() {
        Some(b'\\') => {}
        // Most are of this kind.
        Some(byte) if wanted.is_ascii() && *byte != wanted as u8 => return Err(Miss::Other),
        _ => {
            let mut buffer = [0; 4];
            let plain = wanted.encode_utf8(&mut buffer).as_bytes();
            return match rest.starts_with(plain) {
                true => Ok(at + plain.len()),
                false if plain.starts_with(rest) => Err(Miss::Cut),
                false => Err(Miss::Other),
            };
        }
    }
    let backslashes = count_backslashes(&rest[..rest.len().min(MOST_BACKSLASHES)]);
    let escaped = &rest[backslashes..];
    let digits = escaped.strip_prefix(b"u");
    let are_hex = digits.is_some_and(|it| it.iter().take(4).all(u8::is_ascii_hexdigit));
    let digits = digits
        .and_then(|it| it.get(..4))
        .filter(|_| are_hex)
        .and_then(|it| std::str::from_utf8(it).ok());
    let unit = digits.and_then(|it| u32::from_str_radix(it, 16).ok());
    match wanted {
        _ if unit == Some(wanted.into()) => Ok(at + backslashes + 5),
        '\\' => Ok(at + backslashes),
        '/' | '"' if escaped.first() == Some(&(wanted as u8)) => Ok(at + backslashes + 1),
        _ if escaped.is_empty() || are_hex && unit.is_none() => Err(Miss::Cut),
        _ => Err(Miss::Other),
    }
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
            "sk-a%2Fb",
            "%73%6b%2d%61%2f%62",
            "sk%2Da%252fb",
            "%2573%256B%252D%2561%252F%2562",
            "%25%37%33k-a/b",
            r"sk-a\u00252fb",
            "c2stYS9i",
            r"c2stYS9\u0069",
            "%63%32stYS9i",
        ] {
            let text = format!("x{spelling}y {spelling}");
            let clean = redact(text.as_bytes(), secret).unwrap();
            let clean = String::from_utf8(clean).unwrap();
            assert_eq!(clean, "x[redacted]y [redacted]", "{spelling}");
        }
    }

    #[test]
    fn a_secret_is_found_whatever_characters_it_has() {
        for secret in ["é%41\\u0041/\"x", "??>~~~", "p%40ss", r"a\b"] {
            let json = serde_json::to_string(secret).unwrap();
            let code = |text: &str| {
                let codes = text.bytes().map(|it| format!("%{it:02x}"));
                codes.collect::<Vec<_>>().concat()
            };
            for spelling in [
                secret,
                &json[1..json.len() - 1],
                &code(secret),
                &code(&code(secret)),
                &STANDARD_NO_PAD
                    .encode(secret)
                    .replace('+', "%2B")
                    .replace('/', r"\/"),
                &URL_SAFE_NO_PAD.encode(secret),
            ] {
                let clean = redact(format!("x {spelling}.").as_bytes(), secret).unwrap();
                assert_eq!(
                    String::from_utf8(clean).unwrap(),
                    "x [redacted].",
                    "{spelling}"
                );
            }
        }
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in [
            "",
            "sk-a",
            r"sk\u002d",
            r"sk-a\nb",
            r"\\\\",
            "sk-a/ab",
            "sk-a%2f",
            "sk-a%2g",
            "sk-a%%2Fb",
            "%25252f",
            "c2stYS9",
            "c2stYS9j",
            "%",
        ] {
            assert_eq!(redact(text.as_bytes(), "sk-a/b"), None, "{text}");
        }
        assert_eq!(redact(b"x", ""), None);
    }

    #[test]
    fn every_beginning_of_a_spelling_is_unended() {
        for spelling in [
            "sk-a/b",
            r"s\\u006b-a/b",
            "%73k-%61/b",
            "%2573k%25%32%64a/b",
            "c2stYS9i",
        ] {
            for cut in 1..spelling.len() {
                let text = format!("x {}", &spelling[..cut]);
                assert_eq!(unended(text.as_bytes(), "sk-a/b"), Some(2), "{text}");
            }
            let whole = format!("x {spelling}");
            assert_eq!(unended(whole.as_bytes(), "sk-a/b"), None, "{spelling}");
        }
    }

    #[test]
    fn a_hostile_text_of_some_size_is_read_in_one_go() {
        for piece in ["%25", "%", "\\", "s\\\\\\", "%2573", "sk-a/sk-a/"] {
            let text = piece.repeat((64 << 10) / piece.len());
            assert_eq!(redact(text.as_bytes(), "sk-a/b"), None);
            unended(text.as_bytes(), "sk-a/b");
        }
    }
}
