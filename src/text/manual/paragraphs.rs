//! A page as paragraphs, each with its section and its tag. Knows the form in which mandoc prints a page.

use super::Page;

/// Sections that only repeat words of others.
const SKIPPED: [&str; 3] = ["SECTIONS", "SYNOPSIS", "SEE ALSO"];

/// Part of a page.
pub(super) struct Paragraph {
    pub page: &'static Page,
    /// The heading above it, of a part of a section if there is one.
    pub section: &'static str,
    pub is_first: bool,
    /// The tags of the lists around it.
    pub parent: String,
    /// The key, option or other word that it explains; empty outside of lists.
    pub tag: String,
    /// On one line.
    pub text: String,
}

impl Paragraph {
    /// The words that lead a reader to it on its page; empty for the page as such.
    pub(super) fn label(&self) -> String {
        let section = match self.section {
            "NAME" => "",
            section => section,
        };
        let is_number = self.tag.starts_with(|c: char| c.is_ascii_digit());
        let before = match self.parent.as_str() {
            "" if is_number || self.tag.is_empty() => section,
            parent => parent,
        };
        format!("{before} {}", self.tag).trim().to_owned()
    }
}

/// The paragraphs of a page, without those that only refer elsewhere.
pub(super) fn paragraphs(page: &'static Page) -> Vec<Paragraph> {
    let mut reader = Reader {
        page,
        section: "",
        is_first: true,
        tags: Vec::new(),
        indent: 0,
        found: Vec::new(),
    };
    let mut block: Vec<&str> = Vec::new();
    for line in page.text().lines().chain([""]) {
        let indent = indent_of(line);
        let is_heading = indent == 0 || indent == 3;
        if line.is_empty() || is_heading {
            reader.add_block(&std::mem::take(&mut block));
            if !line.is_empty() && (indent == 3 || !line.contains("  ")) {
                reader.section = line.trim();
                reader.is_first = true;
                reader.tags.clear();
            }
        } else {
            block.push(line);
        }
    }
    reader.found
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

struct Reader {
    page: &'static Page,
    section: &'static str,
    is_first: bool,
    /// The lists that are open: where their tags begin, and the last tag.
    tags: Vec<(usize, String)>,
    /// Of the last block.
    indent: usize,
    found: Vec<Paragraph>,
}

impl Reader {
    /// Adds what is between two empty lines: text, code, or items of a list.
    fn add_block(&mut self, lines: &[&str]) {
        let Some(&first) = lines.first().filter(|_| !SKIPPED.contains(&self.section)) else {
            return;
        };
        let indent = indent_of(first);
        let is_deeper = indent > self.indent;
        self.indent = indent;
        let continues = |last: &Paragraph| last.section == self.section && last.text.ends_with(':');
        if let Some(last) = self
            .found
            .last_mut()
            .filter(|last| is_deeper && continues(last))
        {
            last.text = format!("{} {}", last.text, joined(lines));
            return;
        }
        self.tags.retain(|(at, _)| *at < indent);
        let is_tagged = tag_and_text(first).is_some();
        let is_yaml = !is_tagged && (first.ends_with(':') || first.contains(": "));
        let is_code = self.section == "EXAMPLES" || is_yaml;
        let hangs = lines.iter().any(|line| indent_of(line) > indent);
        if is_code || !(hangs || is_tagged) {
            self.add(joined(lines));
            return;
        }
        let mut rest = lines;
        while let Some((first, after)) = rest.split_first() {
            let length = after
                .iter()
                .take_while(|line| indent_of(line) > indent)
                .count();
            let (body, next) = after.split_at(length);
            rest = next;
            let (tag, beginning) = tag_and_text(first).unwrap_or((first.trim(), ""));
            let text = joined(&[&[beginning], body].concat());
            self.tags.retain(|(at, _)| *at < indent);
            if tag.contains(char::is_alphanumeric) && !is_number(tag) {
                self.tags.push((indent, tag.to_owned()));
            }
            self.add(text);
        }
    }

    fn add(&mut self, text: String) {
        let mut tags: Vec<&str> = self.tags.iter().map(|(_, tag)| tag.as_str()).collect();
        let tag = tags.pop().unwrap_or_default().to_owned();
        let name = match self.section {
            "NAME" => text.split_once(" – ").map(|(_, about)| about.to_owned()),
            _ => None,
        };
        self.found.push(Paragraph {
            page: self.page,
            section: self.section,
            is_first: std::mem::take(&mut self.is_first),
            parent: tags.join(" "),
            tag,
            text: name.unwrap_or(text),
        });
    }
}

/// A tag and the text beside it. Between two sentences there are two blanks, too.
fn tag_and_text(line: &str) -> Option<(&str, &str)> {
    let (tag, text) = line.trim_start().split_once("  ")?;
    let is_sentence = tag.trim_end_matches([')', '’']).ends_with(['.', '?', '!']);
    (!is_sentence || is_number(tag)).then_some((tag, text.trim_start()))
}

/// Whether a tag is the number of an item.
fn is_number(tag: &str) -> bool {
    let number = tag.strip_suffix('.');
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Lines as one; a word that was broken at a hyphen is whole again.
fn joined(lines: &[&str]) -> String {
    let mut text = String::new();
    for word in lines.iter().flat_map(|line| line.split_whitespace()) {
        let is_broken = text.ends_with('-') && !text.ends_with(" -") && !text.ends_with("--");
        if !(text.is_empty() || is_broken) {
            text.push(' ');
        }
        text.push_str(word);
    }
    text
}
