//! Characters that make a text look like another one when it is shown, and texts without them.
//!
//! Unaware of where it is shown.

use crate::text::order;

/// True if a character controls the terminal, breaks the line, or changes the direction of the text around it.
pub(crate) fn disguises(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// True if a character disguises, or cannot be seen and is not the space: the default-ignorable ones of Unicode
/// (DerivedCoreProperties.txt), unusual spaces and other blanks. Emoji and some scripts need a few of them.
pub(crate) fn is_unseen(c: char) -> bool {
    let is_space = c.is_whitespace() && c != ' ';
    is_space
        || disguises(c)
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// True if a character cannot be seen in a text that is shown to people, or reorders what is around it. Unusual spaces
/// are seen.
fn hides(c: char) -> bool {
    disguises(c) || is_unseen(c) && !c.is_whitespace()
}

/// True if a joiner or a variation selector changes how the character before it looks, as in emoji, Persian and Hindi.
fn joins(before: Option<char>, c: char) -> bool {
    let is_selector = matches!(c, '\u{fe0e}' | '\u{fe0f}');
    before.is_some_and(|before| match before {
        '\u{fe0f}' => c == '\u{200d}',
        '\u{FFFD}' => false,
        '#' | '*' | '0'..='9' | '©' | '®' => is_selector,
        _ => {
            before >= '\u{600}'
                && !is_unseen(before)
                && (is_selector || matches!(c, '\u{200c}' | '\u{200d}'))
        }
    })
}

/// Writes what a person is shown in the place of a hidden character.
fn push_shown(c: char, out: &mut String) {
    if joins(out.chars().next_back(), c) {
        out.push(c);
    } else if c.is_control() {
        out.push('\u{FFFD}');
    } else {
        out.extend(c.escape_unicode());
    }
}

/// Text for people: U+FFFD in the place of control characters, which could move the cursor or change the terminal,
/// and escapes in that of others that are not seen or change the direction of the text.
pub(crate) fn printable(text: &str) -> String {
    let is_meant = |c| hides(c) && c != '\n' && c != '\t';
    replaced(text, is_meant, push_shown)
}

/// A piece of a text that arrives, after a character, in the manner of [`printable`].
pub(crate) fn printable_after(before: char, piece: &str) -> String {
    let shown = printable(&format!("{before}{piece}"));
    shown[printable(&before.to_string()).len()..].to_owned()
}

/// A text on one line: what is printed a line each, such as names of files, cannot look like another line.
pub(crate) fn printable_line(text: &str) -> String {
    replaced(text, hides, push_shown)
}

/// A text in which no line but the first can look like one of delta's own.
pub(crate) fn indented(text: &str) -> String {
    text.replace('\n', "\n  ")
}

/// Text inside the strings of JSON that people are shown.
pub(crate) fn printable_in_json(json: &str) -> String {
    replaced(json, hides, |c, out| {
        if joins(out.chars().next_back(), c) {
            out.push(c);
        } else {
            out.push('\\');
            out.extend(c.escape_unicode());
        }
    })
}

/// JSON of the same value in which no character controls the terminal, changes the direction of text or is a tag. Such
/// characters can be in strings only.
pub(crate) fn printable_json(text: &str) -> String {
    let is_tag = |c| matches!(c, '\u{e0000}'..='\u{e007f}');
    let is_meant = |c| (disguises(c) || is_tag(c)) && !matches!(c, '\n' | '\t' | '\r');
    replaced(text, is_meant, |c, out| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    })
}

/// A line with escapes in the place of what cannot be seen in it, or would be obeyed.
pub(crate) fn visible(line: &str) -> String {
    escaped(line, is_unseen)
}

/// A line with escapes in the place of some characters, other than the visible ones of ASCII.
pub(crate) fn escaped(line: &str, is_meant: impl Fn(char) -> bool) -> String {
    replaced(line, is_meant, |c, out| out.extend(c.escape_default()))
}

/// A text in which some characters are replaced. The space and the visible characters of ASCII are not asked for:
/// runs of them are copied whole.
fn replaced(
    text: &str,
    is_meant: impl Fn(char) -> bool,
    replace: impl Fn(char, &mut String),
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = find_other(rest.as_bytes()) {
        let (plain, from) = rest.split_at(at);
        out.push_str(plain);
        let mut chars = from.chars();
        if let Some(c) = chars.next() {
            if is_meant(c) {
                replace(c, &mut out);
            } else {
                out.push(c);
            }
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out
}

/// The place of the first byte that is neither a space nor a visible character of ASCII. Looks at eight at once.
fn find_other(text: &[u8]) -> Option<usize> {
    const EACH: u64 = u64::MAX / 255;
    let is_plain = |eight: &&[u8; 8]| {
        let bytes = u64::from_ne_bytes(**eight);
        let (low, delete) = (bytes.wrapping_sub(EACH * 0x20), bytes.wrapping_add(EACH));
        (bytes | low | delete) & (EACH * 0x80) == 0
    };
    let plain = 8 * text.as_chunks().0.iter().take_while(is_plain).count();
    let others = text[plain..]
        .iter()
        .position(|byte| !matches!(byte, b' '..=b'~'));
    others.map(|at| plain + at)
}

/// The words that have both Latin letters and ones of a script in which many look the same, such as `pаy` with a
/// Cyrillic a; these letters as escapes.
pub(crate) fn mixed_words(text: &str) -> Vec<String> {
    let is_like_latin = |c: char| {
        matches!(c, '\u{370}'..='\u{58f}' | '\u{13a0}'..='\u{13ff}' | '\u{1c80}'..='\u{1c8f}'
            | '\u{1f00}'..='\u{1fff}' | '\u{2c80}'..='\u{2cff}' | '\u{a4d0}'..='\u{a4ff}' | '\u{a640}'..='\u{a69f}'
            | '\u{ab70}'..='\u{abbf}' | '\u{ff21}'..='\u{ff5a}' | '\u{1d400}'..='\u{1d7ff}')
    };
    let is_latin = |c: char| {
        c.is_ascii_alphabetic()
            || c.is_alphabetic() && matches!(c, '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}')
    };
    let is_inside = |c: char| c.is_alphanumeric() || matches!(c, '\u{300}'..='\u{36f}');
    let words = text.split(|c| !is_inside(c));
    let mixed = words.filter(|word| word.contains(is_latin) && word.contains(is_like_latin));
    let mut found: Vec<String> = mixed.map(|word| escaped(word, is_like_latin)).collect();
    order::sort(&mut found);
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_is_not_plain_is_found_wherever_it_is() {
        for at in 0..20 {
            for byte in 0..=u8::MAX {
                let mut text = [b'~'; 20];
                text[at] = byte;
                let is_plain = matches!(byte, b' '..=b'~');
                assert_eq!(
                    find_other(&text),
                    (!is_plain).then_some(at),
                    "{byte} at {at}"
                );
            }
        }
    }

    #[test]
    fn what_cannot_be_seen_is_escaped_and_other_text_is_not() {
        for c in "\u{ad}\u{200b}\u{200d}\u{202e}\u{2060}\u{3164}\u{ffa0}\u{fe0f}\u{feff}\u{e0041}\u{a0}\u{85}\r\t".chars() {
            let escape = c.escape_default();
            assert_eq!(visible(&format!("a{c}b")), format!("a{escape}b"));
        }
        let plain = "für naïve Übung, Ελλάδα, привет, שלום, 漢字, 한국어, e\u{301}, 👩 €";
        assert_eq!(visible(plain), plain);
    }

    #[test]
    fn words_of_two_scripts_are_found() {
        let mixed = |text| mixed_words(text).join(" ");
        assert_eq!(
            mixed("rm раypal.txt, p\u{301}а/ο\u{301}k"),
            "\\u{3bf}\u{301}k \\u{440}\\u{430}ypal p\u{301}\\u{430}"
        );
        assert_eq!(mixed("ｒｍr"), "\\u{ff52}\\u{ff4d}r");
        for plain in [
            "привет-world",
            "mixed_слова",
            "für 5µs",
            "x3 Δ 漢字kanji",
            "Ελλάδα Übung",
        ] {
            assert_eq!(mixed(plain), "", "{plain}");
        }
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(printable("a\x1b[2Jb\r"), "a\u{FFFD}[2Jb\u{FFFD}");
        for c in ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}') {
            assert_eq!(
                printable(&format!("a{c}b")),
                format!("a{}b", c.escape_unicode())
            );
        }
    }

    #[test]
    fn people_see_escapes_of_what_is_hidden_and_emoji_as_they_are() {
        for c in
            "\u{200e}\u{61c}\u{202e}\u{2066}\u{200b}\u{200d}\u{feff}\u{3164}\u{ad}\u{fe0f}\u{e0041}"
                .chars()
        {
            let escape = c.escape_unicode();
            for before in ["a", "é", "ж ", "👩\u{200d}"] {
                let shown = format!("{before}{escape}b");
                assert_eq!(printable(&format!("{before}{c}b")), shown);
                assert_eq!(printable_line(&format!("{before}{c}b")), shown);
            }
        }
        for plain in [
            "👩\u{200d}🚀 ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3}",
            "می\u{200c}خواهم",
            "1\u{a0}000\u{3000}漢",
        ] {
            assert_eq!(printable(plain), plain);
        }
        let (woman, rocket) = ("👩", "\u{200d}🚀");
        assert_eq!(printable_after('👩', rocket), rocket);
        assert_eq!(printable_after(' ', woman), woman);
        assert_eq!(printable_after('\u{200b}', "a"), "a");
        assert_eq!(printable_after('\0', rocket), "\\u{200d}🚀");
        assert_eq!(printable_in_json("[\"a\u{200b}\"]"), r#"["a\\u{200b}"]"#);
    }

    #[test]
    fn json_for_people_has_the_same_value() {
        let json = "[\"\u{9b}\u{202e}\u{e0041}\u{200b}é👩\"]";
        assert_eq!(
            printable_json(json),
            "[\"\\u009b\\u202e\\udb40\\udc41\u{200b}é👩\"]"
        );
    }
}
