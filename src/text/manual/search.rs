//! Finds the places of the manual that answer a few everyday words.
//!
//! A page is read as paragraphs. `man/index.txt` adds the words that people use and the manual does not.

use super::{PAGES, Page, paragraphs};
use crate::text::order;
use crate::text::shorten::push_wrapped;
use paragraphs::{Paragraph, paragraphs};
use std::cmp::Reverse;

/// Lines of the form `PAGE PLACE: WORD ...`, the best place for a word first. A place is a section, a tag such
/// as a key or an option, or the beginning of a paragraph.
fn index() -> &'static str {
    super::text_of("index")
}

/// The lines of an answer: a small terminal, less the prompt and the closing line.
const SCREEN: usize = 22;

/// The lines of one place if there are many.
const LEAST_LINES: usize = 2;

/// How well a word fits that is in the index in another form, in a place's tag or heading, in its text.
const INDEXED: u32 = 50;
const IN_HEAD: u32 = 10;
const IN_TEXT: u32 = 2;

/// What an asked word may have that the index's has not.
const ENDINGS: [&str; 10] = ["s", "es", "d", "ed", "r", "er", "ing", "ning", "ting", "ly"];

/// Words that say nothing about the subject of a question.
const NOISE: &str = "a after an and are at be before by can delta did do does for from get give how i if in is it me \
                     much my of on or run runs running should that the this to use using want what when where \
                     which why with";

/// A line of the index.
struct Entry {
    page: &'static Page,
    /// As written.
    place: &'static str,
    words: Vec<&'static str>,
}

/// The entries whose page exists; the tests check that all do.
fn entries() -> impl Iterator<Item = Entry> {
    index().lines().filter_map(|line| {
        let (target, words) = line.split_once(": ")?;
        let (page, place) = target.split_once(' ')?;
        Some(Entry {
            page: super::find(page)?,
            place,
            words: words.split_whitespace().collect(),
        })
    })
}

/// The page that the index gives for a word, and whether it is about the word as a whole.
pub(crate) fn page_for(word: &str) -> Option<(&'static Page, bool)> {
    let word = word.to_lowercase();
    let found: Vec<Entry> = entries()
        .filter(|entry| entry.words.contains(&word.as_str()))
        .collect();
    let whole = found.iter().find(|entry| entry.place == "NAME");
    let page = whole.or(found.first())?.page;
    Some((page, whole.is_some()))
}

/// All words of the index.
pub(crate) fn index_words() -> Vec<&'static str> {
    entries().flat_map(|entry| entry.words).collect()
}

/// A paragraph with the words that lead to it, in lower case.
struct Place {
    paragraph: Paragraph,
    /// Its tag; of the first one of a section, the heading, and of a page, its name.
    head: String,
    text: String,
    /// The page, the section and the tags around it.
    around: String,
    /// Words of the index for it.
    indexed: Vec<&'static str>,
    /// The first line of the index that leads here.
    line: usize,
}

impl Place {
    fn new(paragraph: Paragraph) -> Self {
        let Paragraph { page, section, .. } = paragraph;
        let heading = match section {
            "NAME" => page.name,
            _ if paragraph.is_first => section,
            _ => "",
        };
        Self {
            head: format!("{} {heading}", paragraph.tag).to_lowercase(),
            text: paragraph.text.to_lowercase(),
            around: format!("{} {section} {}", page.name, paragraph.parent).to_lowercase(),
            indexed: Vec::new(),
            line: usize::MAX,
            paragraph,
        }
    }

    fn is_on(&self, page: &Page) -> bool {
        (self.paragraph.page.name, self.paragraph.page.section) == (page.name, page.section)
    }

    /// How well a word fits; 0: not at all.
    fn fit(&self, word: &str) -> u32 {
        if self.indexed.contains(&word) {
            2 * INDEXED
        } else if self.indexed.iter().any(|known| is_form_of(known, word)) {
            INDEXED
        } else if has_word(&self.head, word) {
            IN_HEAD
        } else if has_word(&self.text, word) {
            IN_TEXT
        } else {
            u32::from(has_word(&self.around, word))
        }
    }

    /// How many of the words fit, and how well. None if nothing of it fits one; what is around it fits many places.
    fn rank(&self, words: &[&str]) -> Option<(usize, u32)> {
        let fits: Vec<u32> = words
            .iter()
            .map(|word| self.fit(word))
            .filter(|fit| *fit > 0)
            .collect();
        let best = fits.iter().max()?;
        (*best >= IN_TEXT).then(|| (fits.len(), fits.iter().sum()))
    }
}

/// All places of the manual.
fn places() -> Vec<Place> {
    let mut places: Vec<Place> = PAGES.iter().flat_map(paragraphs).map(Place::new).collect();
    for (number, entry) in entries().enumerate() {
        if let Some(place) = place_of(&mut places, &entry) {
            place.indexed.extend(&entry.words);
            place.line = place.line.min(number);
        }
        let in_section =
            |it: &&mut Place| it.is_on(entry.page) && it.paragraph.section == entry.place;
        for place in places.iter_mut().filter(in_section) {
            place.around = format!("{} {}", place.around, entry.words.join(" "));
        }
    }
    places
}

/// The place that an entry names, by the best reading of its words.
fn place_of<'p>(places: &'p mut [Place], entry: &Entry) -> Option<&'p mut Place> {
    let rank = |it: &Paragraph| match entry.place {
        section if it.is_first && it.section == section => Some(0),
        label if it.label() == label => Some(1),
        tag if it.tag.split([',', ' ']).any(|word| word == tag) => Some(2),
        text if it.text.starts_with(text) => Some(3),
        _ => None,
    };
    let of_page = places.iter_mut().filter(|it| it.is_on(entry.page));
    let ranked = of_page.filter_map(|it| Some((rank(&it.paragraph)?, it)));
    Some(ranked.min_by_key(|(rank, _)| *rank)?.1)
}

/// True if a word of a text is this word, or begins with it. Both are in lower case. A number is found only whole.
fn has_word(text: &str, word: &str) -> bool {
    let is_number = word.ends_with(|c: char| c.is_ascii_digit());
    text.match_indices(word).any(|(at, _)| {
        let is_begun = text[..at].ends_with(char::is_alphanumeric);
        let goes_on = text[at + word.len()..].starts_with(char::is_alphanumeric);
        !(is_begun || is_number && goes_on)
    })
}

/// True if a word that was asked for is one of the index with another ending, or its beginning.
fn is_form_of(known: &str, asked: &str) -> bool {
    let ending = asked.strip_prefix(known).filter(|_| known.len() >= 4);
    let is_longer = ending.is_some_and(|ending| ENDINGS.contains(&ending));
    is_longer || asked.len() >= 3 && known.starts_with(asked)
}

/// Where the manual answers these words, the best place first, a screen at most; empty if nothing has one of
/// them.
pub(crate) fn search(text: &str) -> String {
    answer(&places(), text)
}

fn answer(places: &[Place], text: &str) -> String {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower
        .split_whitespace()
        .map(|word| word.trim_matches(['?', '!', ',', ';', '\'', '"', '`']))
        .filter(|word| !word.is_empty())
        .collect();
    let is_noise = |word: &&str| NOISE.split_whitespace().any(|noise| noise == *word);
    let mut specific = words.clone();
    specific.retain(|word| !is_noise(word));
    if specific.is_empty() {
        specific = words;
    }
    let mut ranked: Vec<((usize, u32), &Place)> = places
        .iter()
        .filter_map(|place| Some((place.rank(&specific)?, place)))
        .collect();
    let most = ranked.iter().map(|((count, _), _)| *count).max();
    ranked.retain(|((count, fit), _)| Some(*count) == most || *fit >= INDEXED);
    order::sort_by_key(&mut ranked, |(rank, place)| (Reverse(*rank), place.line));
    let found: Vec<&Place> = ranked.into_iter().map(|(_, place)| place).collect();
    shown(&found, &specific)
}

/// Places as paragraphs, each with its page and its tag; few at length, many in short.
fn shown(places: &[&Place], words: &[&str]) -> String {
    let Some(first) = places.first() else {
        return String::new();
    };
    let each = (SCREEN / places.len()).max(LEAST_LINES);
    let mut out = String::new();
    let mut left = places.len();
    for place in places.iter().take(SCREEN / LEAST_LINES) {
        let page = place.paragraph.page;
        let label = format!(
            "{}({}) {}",
            page.full_name(),
            page.section,
            place.paragraph.label()
        );
        let text = format!("{}: {}", label.trim_end(), place.excerpt(words));
        let mut paragraph = String::new();
        push_wrapped(&mut paragraph, "    ", &text);
        let lines = paragraph.trim_start().split_inclusive('\n');
        out.extend(lines.clone().take(each));
        if lines.count() > each {
            out.truncate(out.trim_end().len());
            out.push_str(" …\n");
        }
        left -= 1;
    }
    let page = first.paragraph.page.topic();
    let more = match left {
        0 => String::new(),
        left => format!("{left} more places; "),
    };
    out.push_str(&format!(
        "({more}`delta help {page}` prints the first page)\n"
    ));
    out
}

impl Place {
    /// The text, from the first sentence that has one of the words if nothing else led here.
    fn excerpt(&self, words: &[&str]) -> &str {
        let text = &*self.paragraph.text;
        if words.iter().any(|word| self.fit(word) >= IN_HEAD) {
            return text;
        }
        let mut before = 0;
        for sentence in text.split_inclusive(". ") {
            let lower = sentence.to_lowercase();
            if words.iter().any(|word| has_word(&lower, word)) {
                return &text[before..];
            }
            before += sentence.len();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_line_of_the_index_leads_to_a_place_and_every_page_has_one() {
        let lines: Vec<&str> = index().lines().collect();
        let entries: Vec<Entry> = entries().collect();
        assert_eq!(lines.len(), entries.len(), "a line has no page or no words");
        let mut targets = BTreeSet::new();
        let mut missing = Vec::new();
        let mut places = places();
        for (entry, line) in entries.iter().zip(lines) {
            let place = place_of(&mut places, entry);
            missing.extend(place.is_none().then_some(line));
            assert!(
                targets.insert((entry.page.topic(), entry.place)),
                "twice: {line}"
            );
            let words: BTreeSet<&str> = entry.words.iter().copied().collect();
            assert_eq!(words.len(), entry.words.len(), "a word twice: {line}");
            assert_eq!(
                line.to_lowercase().split_once(": ").map(|it| it.1),
                line.split_once(": ").map(|it| it.1)
            );
        }
        assert_eq!(missing, [""; 0], "the pages have no such places");
        for page in PAGES {
            assert!(
                targets.iter().any(|(name, _)| *name == page.topic()),
                "{}",
                page.full_name()
            );
        }
    }

    #[test]
    fn everyday_questions_are_answered_by_the_first_lines() {
        let places = places();
        for (question, place, text) in [
            ("stop", "delta-run(1) SIGNALS: ", "kill PID"),
            (
                "How do I stop a run?",
                "delta-run(1) SIGNALS: ",
                "another terminal",
            ),
            ("images", "delta-run(1) -f file, --file file: ", ""),
            (
                "share",
                "delta-report(1) Security: ",
                "Anyone with whom you share",
            ),
            ("training", "delta-export(1) chat: ", "fine-tuning"),
            ("git push", "delta-hooks(5) EXAMPLES: ", "forbids"),
            ("csv rows", "delta-run(1) MANY RUNS: ", ""),
            ("undo", "delta-run(1) UNDOING CHANGES: ", "delta-undo(1)"),
            ("limit cost", "delta-agent(5) budget: ", ""),
            ("exit code 4", "delta(1) EXIT STATUS 4: ", "INTERRUPTED"),
            (
                "time limit",
                "delta-agent(5) tool_timeout_ms: ",
                "milliseconds",
            ),
            ("watch", "delta-log(1) -f, --follow: ", "another terminal"),
            ("structured output", "delta-agent(5) output_schema: ", ""),
            ("slurm", "delta-run(1) MANY RUNS: ", "DELTA_OWNER_CHECK"),
            ("local model", "delta(1) SERVERS OF ONE'S OWN: ", ""),
            ("keep_requests", "delta-agent(5) keep_requests: ", ""),
            ("resume after a crash", "delta-run(1) WHICH RUN: ", ""),
            ("ask before running", "delta-agent(5) confirm: ", ""),
            ("budget cost", "delta-agent(5) budget", ""),
            (
                "which model is used and why",
                "delta-run(1) --dry-run: ",
                "",
            ),
            ("run many at once", "delta-run(1) MANY RUNS: ", ""),
            ("write a tool in Python", "delta-agent(5) TOOLS: ", ""),
            ("call another agent", "delta-agent(5) Sub-agents: ", ""),
            ("keep secrets away", "delta-sandbox(1) --hide path: ", ""),
            ("why did it stop", "delta-journal(5) COMPLETED: ", ""),
            ("ssh", "delta-agent(5) Another machine: ", ""),
            (
                "two terminals same directory",
                "delta-run(1) WHICH RUN: Different",
                "",
            ),
            ("commands agent ran", "delta-log(1) EXAMPLES: Print", ""),
            ("python tool", "delta-agent(5) A Python function: ", ""),
        ] {
            let found = answer(&places, question);
            assert!(found.contains(text), "{question}: {found}");
            let first: Vec<&str> = found.lines().take(8).collect();
            assert!(
                first.iter().any(|line| line.starts_with(place)),
                "{question}: {found}"
            );
        }
    }

    #[test]
    fn a_word_of_each_line_of_the_index_is_found_on_one_screen() {
        let places = places();
        for word in entries().map(|entry| entry.words[0]) {
            let found = answer(&places, word);
            let lines = found.lines().count();
            assert!((2..=SCREEN + 1).contains(&lines), "{word}: {found}");
            assert!(
                found.lines().all(|line| line.chars().count() <= 81),
                "{word}: {found}"
            );
        }
    }

    #[test]
    fn words_match_at_their_beginning_and_all_of_them_in_one_paragraph() {
        assert!(!has_word("list the skills", "kill"));
        assert!(has_word("list the skills", "skill"));
        assert!(has_word("use tool_timeout_ms", "timeout"));
        assert!(has_word("128 bytes, 12", "12"));
        assert!(!has_word("128 bytes", "12"));
        let found = search("jitter seconds");
        assert!(found.starts_with("delta-agent(5) THE MODEL: "), "{found}");
        assert!(found.contains("jitter"), "{found}");
        assert_eq!(search("xyzzy"), "");
        assert_eq!(search(" "), "");
    }
}
