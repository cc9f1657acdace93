//! Characters that make a text look like another one when it is shown.
//!
//! Unaware of where it is shown.

/// True if a character controls the terminal, breaks the line, or changes the direction of the text around it.
pub(crate) fn disguises(c: char) -> bool {
    let marks = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}'];
    c.is_control()
        || marks.contains(&c)
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
