//! Finds the places of the manual that answer a few everyday words.
//!
//! A page is read as paragraphs. `man/index.txt` adds the words that people use and the manual does not.

use super::{PAGES, Page, paragraphs};
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

/// What an asked word may have that the index's has not.
const ENDINGS: [&str; 10] = ["s", "es", "d", "ed", "r", "er", "ing", "ning", "ting", "ly"];

/// The least score of a place to which the index leads for one of the words.
const INDEXED: u32 = 500;

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

/// A paragraph with what the index says of it, and its parts in lower case.
struct Place {
    paragraph: Paragraph,
    section: String,
    parent: String,
    tag: String,
    text: String,
    /// Words of the index for it, each with the number of the line.
    everyday: Vec<(usize, &'static str)>,
    /// Words of the index for its section.
    everyday_of_section: Vec<&'static str>,
}

/// All places of the manual.
fn places() -> Vec<Place> {
    let new = |paragraph: Paragraph| Place {
        section: paragraph.section.to_lowercase(),
        parent: paragraph.parent.to_lowercase(),
        tag: paragraph.tag.to_lowercase(),
        text: paragraph.text.to_lowercase(),
        everyday: Vec::new(),
        everyday_of_section: Vec::new(),
        paragraph,
    };
    let mut places: Vec<Place> = PAGES.iter().flat_map(paragraphs).map(new).collect();
    for (number, entry) in entries().enumerate() {
        let Some(place) = place_of(&mut places, &entry) else {
            continue;
        };
        place
            .everyday
            .extend(entry.words.iter().map(|word| (number, *word)));
        if place.paragraph.section == entry.place {
            let in_section =
                |it: &&mut Place| it.is_on(entry.page) && it.paragraph.section == entry.place;
            for place in places.iter_mut().filter(in_section) {
                place.everyday_of_section.extend(&entry.words);
            }
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

/// How well a word fits a place: `own` is what is in it, the rest what is around it.
#[derive(Clone, Copy, Default)]
struct Fit {
    own: u32,
    around: u32,
    /// The line of the index.
    line: Option<usize>,
}

impl Place {
    fn is_on(&self, page: &Page) -> bool {
        (self.paragraph.page.name, self.paragraph.page.section) == (page.name, page.section)
    }

    fn fit(&self, word: &str) -> Fit {
        let graded = |text: &str, whole: u32, beginning: u32| match fits(text, word) {
            Some(true) => whole,
            Some(false) => beginning,
            None => 0,
        };
        let indexed = self
            .everyday
            .iter()
            .filter_map(|(line, known)| Some((related(known, word)?, *line)));
        let indexed = indexed.max_by_key(|(fit, line)| (*fit, Reverse(*line)));
        let of_section = self
            .everyday_of_section
            .iter()
            .filter_map(|known| related(known, word));
        let of_section =
            (of_section.max().unwrap_or_default() / 10).max(graded(&self.section, 90, 60));
        let of_page = graded(self.paragraph.page.name, 90, 60);
        let own = [
            indexed.map_or(0, |(fit, _)| fit),
            graded(&self.tag, 200, 150),
            graded(&self.text, 20, 10),
            if self.paragraph.is_first {
                of_section
            } else {
                0
            },
            if self.section == "name" { of_page } else { 0 },
        ];
        let around = [of_section, of_page, graded(&self.parent, 90, 60)];
        Fit {
            own: own.into_iter().max().unwrap_or_default(),
            around: around.into_iter().max().unwrap_or_default(),
            line: indexed.map(|(_, line)| line),
        }
    }
}

/// Whether a word is in a text, whole, or as the beginning of a word. Both are in lower case. A number is
/// found only whole.
fn fits(text: &str, word: &str) -> Option<bool> {
    let is_part = |c: char| c.is_alphanumeric();
    let mut best = None;
    for (at, _) in text.match_indices(word) {
        if text[..at].ends_with(is_part) {
            continue;
        }
        let is_whole = !text[at + word.len()..].starts_with(is_part);
        if is_whole {
            return Some(true);
        }
        if !word.ends_with(|c: char| c.is_ascii_digit()) {
            best = Some(false);
        }
    }
    best
}

/// How well a word of the index fits one that was asked for: the same, or one with another ending.
fn related(known: &str, asked: &str) -> Option<u32> {
    if known == asked {
        return Some(1000);
    }
    let ending = asked.strip_prefix(known).filter(|_| known.len() >= 4);
    let is_longer = ending.is_some_and(|ending| ENDINGS.contains(&ending));
    let is_beginning = asked.len() >= 3 && known.starts_with(asked);
    (is_longer || is_beginning).then_some(INDEXED)
}

/// Where the manual answers these words, the best place first, a screen at most; empty if nothing has one of
/// them.
pub(crate) fn search(text: &str) -> String {
    answer(&places(), text)
}

fn answer(places: &[Place], text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower.split_whitespace();
    let words = words.map(|word| word.trim_matches(['?', '!', ',', ';', '\'', '"', '`']));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let is_noise = |word: &&str| NOISE.split_whitespace().any(|noise| noise == *word);
    let mut telling: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| !is_noise(word))
        .collect();
    if telling.is_empty() {
        telling = words;
    }
    let ranked = places
        .iter()
        .filter_map(|place| Some((place.rank(&telling)?, place)));
    let mut ranked: Vec<(Rank, &Place)> = ranked.collect();
    let most = ranked.iter().map(|(rank, _)| rank.words).max();
    ranked.retain(|(rank, _)| Some(rank.words) == most || rank.score >= INDEXED);
    ranked.sort_by_key(|(rank, _)| (Reverse((rank.words, rank.score)), rank.line));
    let found: Vec<&Place> = ranked.into_iter().map(|(_, place)| place).collect();
    shown(&found, &telling)
}

/// The order of places that were found.
struct Rank {
    /// How many of the words fit.
    words: usize,
    score: u32,
    /// The first line of the index that led here.
    line: usize,
}

impl Place {
    /// None if nothing of it fits a word; what is around it fits many places.
    fn rank(&self, words: &[&str]) -> Option<Rank> {
        let fits: Vec<Fit> = words.iter().map(|word| self.fit(word)).collect();
        let best = |fit: &Fit| fit.own.max(fit.around);
        let lines = fits.iter().filter_map(|fit| fit.line);
        fits.iter().any(|fit| fit.own > 0).then(|| Rank {
            words: fits.iter().filter(|fit| best(fit) > 0).count(),
            score: fits.iter().map(best).sum(),
            line: lines.min().unwrap_or(usize::MAX),
        })
    }
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
        let text = &self.paragraph.text;
        let lower = &self.text;
        let leads = |word: &&str| self.fit(word).own >= 60;
        if words.iter().any(leads) || lower.len() != text.len() {
            return text;
        }
        let sentences = lower.match_indices(". ").map(|(at, _)| at + 2);
        let starts: Vec<usize> = std::iter::once(0).chain(sentences).collect();
        let ends = starts.iter().copied().skip(1).chain([lower.len()]);
        let has_word = |sentence: &str| words.iter().any(|word| fits(sentence, word).is_some());
        let mut sentences = starts.iter().copied().zip(ends);
        let start = sentences.find(|(start, end)| has_word(&lower[*start..*end]));
        &text[start.map_or(0, |(start, _)| start)..]
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
            ("undo", "delta-run(1) UNDOING CHANGES: ", "git diff"),
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
        assert_eq!(fits("list the skills", "kill"), None);
        assert_eq!(fits("list the skills", "skill"), Some(false));
        assert_eq!(fits("use tool_timeout_ms", "timeout"), Some(true));
        assert_eq!(fits("128 bytes, 12", "12"), Some(true));
        assert_eq!(fits("128 bytes", "12"), None);
        let found = search("jitter seconds");
        assert!(found.starts_with("delta-agent(5) THE MODEL: "), "{found}");
        assert!(found.contains("jitter"), "{found}");
        assert_eq!(search("xyzzy"), "");
        assert_eq!(search(" "), "");
    }
}
