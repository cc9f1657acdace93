//! Ids of traces and spans: computed, so that a run that is exported twice gives the same ones.

use super::recorded::RecordedRun;
use crate::text::digest::sha256;

/// A trace: 32 hexadecimal digits.
pub(super) fn trace_id(run: &RecordedRun) -> String {
    run.traceparent
        .as_deref()
        .and_then(span_outside)
        .map_or_else(
            || sha256(run.root.as_bytes())[..32].to_owned(),
            |(trace, _)| trace,
        )
}

/// A span of a run: 16 hexadecimal digits. `number` distinguishes those of one kind.
pub(super) fn span_id(run_id: &str, kind: &str, number: &str) -> String {
    // No id of a run has a line break.
    let name = format!("{run_id}\n{kind}\n{number}");
    sha256(name.as_bytes())[..16].to_owned()
}

/// The trace and the span of another program, of W3C's header `traceparent`. None if it is invalid.
pub(super) fn span_outside(header: &str) -> Option<(String, String)> {
    let parts: Vec<&str> = header.split('-').collect();
    let [version, trace, span, flags, ..] = parts.as_slice() else {
        return None;
    };
    let is_hex = |text: &str, len| {
        text.len() == len
            && text
                .bytes()
                .all(|byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let is_well = is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
    let is_known = *version != "ff" && (*version != "00" || parts.len() == 4);
    let is_set = |id: &str| id.bytes().any(|byte| byte != b'0');
    (is_well && is_known && is_set(trace) && is_set(span))
        .then(|| ((*trace).to_owned(), (*span).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_outside_is_only_what_the_header_s_form_allows() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let span = "00f067aa0ba902b7";
        let found = Some((trace.to_owned(), span.to_owned()));
        assert_eq!(span_outside(&format!("00-{trace}-{span}-01")), found);
        assert_eq!(span_outside(&format!("01-{trace}-{span}-01-more")), found);
        for header in [
            String::new(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{trace}-{span}0-01"),
        ] {
            assert_eq!(span_outside(&header), None, "{header}");
        }
    }
}
