//! A text without what an editor or a model may write in another way: a byte order mark, CRLF, blanks at
//! line ends. Places in it lead back to the text as it is.

use std::ops::Range;

/// The character that some editors begin a file with.
pub(super) const MARK: char = '\u{feff}';

/// The parts that are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// The byte order mark, and the CR of each CRLF.
    LineEnds,
    /// These, and spaces and tabs before line ends.
    TrailingBlanks,
}

/// Bytes that the folded text lacks.
#[derive(Debug)]
struct Cut {
    /// The place where they would be in the folded text.
    at: usize,
    blanks: usize,
    cr: usize,
}

/// A folded text. It ends with a newline, also where the original does not.
#[derive(Debug)]
pub(super) struct Folded {
    pub(super) text: String,
    cuts: Vec<Cut>,
    original_len: usize,
    mark: usize,
}

impl Folded {
    pub(super) fn new(original: &str, fold: Fold) -> Self {
        let body = original.strip_prefix(MARK).unwrap_or(original);
        let mut folded = Self {
            text: String::with_capacity(body.len() + 1),
            cuts: Vec::new(),
            original_len: original.len(),
            mark: original.len() - body.len(),
        };
        for line in body.split_inclusive('\n') {
            let content = line.strip_suffix('\n').unwrap_or(line);
            let without_cr = match content.strip_suffix('\r') {
                Some(rest) if content.len() < line.len() => rest,
                _ => content,
            };
            let kept = match fold {
                Fold::LineEnds => without_cr,
                Fold::TrailingBlanks => without_cr.trim_end_matches([' ', '\t']),
            };
            folded.text += kept;
            let (blanks, cr) = (
                without_cr.len() - kept.len(),
                content.len() - without_cr.len(),
            );
            if blanks + cr > 0 {
                let at = folded.text.len();
                folded.cuts.push(Cut { at, blanks, cr });
            }
            folded.text.push('\n');
        }
        folded
    }

    /// The part of the original for a part of the folded text.
    pub(super) fn original(&self, part: &Range<usize>) -> Range<usize> {
        let start = self.mark + part.start + self.cut_before(part.start);
        // Blanks belong to the line that they follow, a CR to the line end.
        let cut = self.cuts.binary_search_by_key(&part.end, |cut| cut.at);
        let blanks = cut.map_or(0, |index| self.cuts[index].blanks);
        let end = self.mark + part.end + self.cut_before(part.end) + blanks;
        start.min(self.original_len)..end.min(self.original_len)
    }

    /// True if a part goes over the end of the original, which lacks its final newline.
    pub(super) fn passes_end(&self, part: &Range<usize>) -> bool {
        self.mark + part.end + self.cut_before(part.end) > self.original_len
    }

    fn cut_before(&self, at: usize) -> usize {
        let before = self.cuts.partition_point(|cut| cut.at < at);
        self.cuts[..before]
            .iter()
            .map(|cut| cut.blanks + cut.cr)
            .sum()
    }
}

/// A text from a model, to be searched for in a folded one: folded alike, but without a newline that it
/// does not end with.
pub(super) fn folded_wanted(wanted: &str, fold: Fold) -> String {
    let mut text = Folded::new(wanted, fold).text;
    if !wanted.ends_with('\n') {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lead_back_to_the_bytes_of_the_original() {
        let original = "\u{feff}one  \r\ntwo\t\r\n\r\nend ";
        let folded = Folded::new(original, Fold::TrailingBlanks);
        assert_eq!(folded.text, "one\ntwo\n\nend\n");
        for (wanted, found) in [
            ("one", "one  "),
            ("one\n", "one  \r\n"),
            ("two\n\nend", "two\t\r\n\r\nend "),
            ("w", "w"),
        ] {
            let start = folded.text.find(wanted).unwrap();
            let part = start..start + wanted.len();
            assert_eq!(&original[folded.original(&part)], found);
            assert!(!folded.passes_end(&part));
        }
        let whole = 0..folded.text.len();
        assert_eq!(folded.original(&whole), 3..original.len());
        assert!(folded.passes_end(&whole));
        let folded = Folded::new(original, Fold::LineEnds);
        assert_eq!(folded.text, "one  \ntwo\t\n\nend \n");
    }
}
