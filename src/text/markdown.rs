//! Roles of the parts of an answer in Markdown: headings, strong words, code, rules and other frames. A scanner sees each character once and
//! returns each as it is, so that an answer can be shown while it arrives.
//!
//! The rules are those of `CommonMark` 0.31 for fences, ATX headings, code spans and thematic breaks, except that what begins
//! in a line ends with it at the latest.

/// The role of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Text,
    Heading,
    Strong,
    Code,
    /// A rule, the lines of a table, the address of a link.
    Rule,
}

/// Parts in order, each with its text.
pub(crate) type Parts = Vec<(Role, String)>;

/// The longest beginning of a line, in bytes, that decides its role. It is looked at once for each piece of the answer.
const LEAD: usize = 200;

/// The state between two pieces of an answer.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// The beginning of a line whose role is not known yet; the rest of such a line has another role.
    lead: String,
    /// The role of the rest of the line, once it is known.
    line: Option<Role>,
    /// The fence that is open: its character, and how often it stands there.
    fence: Option<(char, usize)>,
    /// The markers, all alike, that were read last.
    run: String,
    is_strong: bool,
    /// Number of backticks that began the code span; 0 outside of one.
    ticks: usize,
    is_escaped: bool,
    /// The line is a row of a table.
    is_row: bool,
    /// The last character ended the text of a link, perhaps.
    ends_label: bool,
    is_address: bool,
    parts: Parts,
}

/// All parts of a whole answer.
pub(crate) fn parts_of(text: &str) -> Parts {
    let mut scanner = Scanner::default();
    scanner.parts = scanner.read(text);
    scanner.end()
}

impl Scanner {
    /// The parts that are complete with another piece of the answer.
    pub(crate) fn read(&mut self, piece: &str) -> Parts {
        for c in piece.chars() {
            match self.line {
                None => {
                    self.lead.push(c);
                    // Room for another character.
                    if c == '\n' || self.lead.len() + 4 > LEAD {
                        self.decide(c == '\n');
                    }
                }
                Some(Role::Text) => self.inline(c),
                Some(role) => self.push(role, c),
            }
            if c == '\n' {
                self.line = None;
            }
        }
        if self.line.is_none() {
            self.decide(false);
        }
        std::mem::take(&mut self.parts)
    }

    /// The rest, at the end of the answer.
    pub(crate) fn end(mut self) -> Parts {
        if self.line.is_none() && !self.lead.is_empty() {
            let role = self.role_of_line(true).unwrap_or(Role::Text);
            self.begin_line(role);
        }
        self.end_run(None);
        self.parts
    }

    /// Begins the line if its role is known by now.
    fn decide(&mut self, is_whole: bool) {
        if let Some(role) = self
            .role_of_line(is_whole)
            .filter(|_| !self.lead.is_empty())
        {
            self.begin_line(role);
        }
    }

    /// The role of a line by its beginning, which may be all of it; none if more has to be read.
    fn role_of_line(&mut self, is_whole: bool) -> Option<Role> {
        let text = self.lead.trim_start_matches(' ');
        let is_indented = self.lead.len() - text.len() > 3;
        let text = text.trim_end_matches('\n');
        let other = match self.fence {
            Some(_) => Role::Code,
            None => Role::Text,
        };
        let Some(first) = text.chars().next().filter(|_| self.lead.len() <= LEAD) else {
            return (is_whole || self.lead.len() > LEAD).then_some(other);
        };
        let count = text.chars().take_while(|c| *c == first).count();
        let rest = &text[count * first.len_utf8()..];
        let is_rest_blank = rest.chars().all(char::is_whitespace);
        if let Some((fence, length)) = self.fence {
            let may_close = first == fence && is_rest_blank && !is_indented;
            if may_close && is_whole && count >= length {
                self.fence = None;
            }
            return (!may_close || is_whole).then_some(Role::Code);
        }
        match first {
            _ if is_indented => Some(Role::Text),
            '#' if count <= 6 && rest.starts_with([' ', '\t']) => Some(Role::Heading),
            '#' if count <= 6 && rest.is_empty() => is_whole.then_some(Role::Heading),
            '`' | '~' if rest.is_empty() && !is_whole => None,
            // The rest tells whether a code span begins the line.
            '`' | '~' if count >= 3 && !(first == '`' && rest.contains('`')) => {
                if is_whole {
                    self.fence = Some((first, count));
                }
                is_whole.then_some(Role::Code)
            }
            '-' | '*' | '_' if text.chars().all(|c| c == first || matches!(c, ' ' | '\t')) => {
                let markers = text.chars().filter(|c| *c == first).count();
                let role = if markers >= 3 { Role::Rule } else { Role::Text };
                is_whole.then_some(role)
            }
            '|' if text.chars().all(|c| "|-: \t".contains(c)) => is_whole.then_some(Role::Rule),
            _ => Some(Role::Text),
        }
    }

    fn begin_line(&mut self, role: Role) {
        self.line = Some(role);
        let text = self.lead.trim_start_matches(' ');
        self.is_row = text.starts_with('|') && self.lead.len() - text.len() <= 3;
        for c in std::mem::take(&mut self.lead).chars() {
            match role {
                Role::Text => self.inline(c),
                role => self.push(role, c),
            }
        }
    }

    fn inline(&mut self, c: char) {
        let is_marker = matches!(c, '*' | '`') && !self.is_escaped && !self.is_address;
        if !(is_marker && self.run.starts_with(c)) {
            self.end_run(Some(c));
        }
        if is_marker {
            self.ends_label = false;
            self.run.push(c);
            return;
        }
        let is_free = !self.is_escaped && self.ticks == 0;
        self.is_address |= self.ends_label && c == '(';
        let is_frame = self.is_address && c != '\n' || is_free && self.is_row && c == '|';
        self.push(if is_frame { Role::Rule } else { self.role() }, c);
        self.is_address &= !matches!(c, ')' | '\n');
        self.ends_label = is_free && c == ']';
        self.is_escaped = is_free && c == '\\';
        if c == '\n' {
            (self.is_strong, self.ticks) = (false, 0);
        }
    }

    /// Takes the markers that were read; `next` follows them.
    fn end_run(&mut self, next: Option<char>) {
        let run = std::mem::take(&mut self.run);
        let before = self.role();
        match run.chars().next() {
            None => return,
            Some('`') if self.ticks == 0 => self.ticks = run.len(),
            Some('`') if self.ticks == run.len() => self.ticks = 0,
            Some('*') if self.ticks == 0 && run.len() >= 2 => {
                let begins = next.is_some_and(|c| !c.is_whitespace());
                self.is_strong = !self.is_strong && begins;
            }
            Some(_) => {}
        }
        // Markers belong to what they begin or end.
        let role = match (before, self.role()) {
            (Role::Text | Role::Strong, after) if after != Role::Text => after,
            (before, _) => before,
        };
        run.chars().for_each(|c| self.push(role, c));
    }

    fn role(&self) -> Role {
        match (self.ticks, self.is_strong) {
            (1.., _) => Role::Code,
            (0, true) => Role::Strong,
            (0, false) => Role::Text,
        }
    }

    fn push(&mut self, role: Role, c: char) {
        match self.parts.last_mut() {
            Some((last, text)) if *last == role => text.push(c),
            _ => self.parts.push((role, c.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers with their expected parts, for this scanner and for that of the report.
    fn answers() -> Vec<(String, String)> {
        let table = include_str!("../../tests/it/view/answers.json");
        serde_json::from_str(table).unwrap()
    }

    /// Parts in a form that shows the role of each.
    fn shown(parts: &[(Role, String)]) -> String {
        let sign = |role: &Role| match role {
            Role::Text => "",
            Role::Heading => "H",
            Role::Strong => "S",
            Role::Code => "C",
            Role::Rule => "R",
        };
        let of_part = |(role, text): &(Role, String)| match sign(role) {
            "" => text.clone(),
            sign => format!("<{sign}|{text}>"),
        };
        parts.iter().map(of_part).collect()
    }

    fn merged(parts: Parts) -> Parts {
        let mut all = Scanner::default();
        for (role, text) in parts {
            text.chars().for_each(|c| all.push(role, c));
        }
        all.parts
    }

    #[test]
    fn headings_strong_words_code_and_rules_are_found() {
        for (answer, expected) in answers() {
            assert_eq!(shown(&parts_of(&answer)), expected);
        }
    }

    #[test]
    fn an_answer_in_pieces_has_the_same_parts_and_loses_no_character() {
        for (answer, _) in answers() {
            let whole = parts_of(&answer);
            let text: String = whole.iter().map(|(_, text)| text.as_str()).collect();
            assert_eq!(text, answer);
            for at in (0..answer.len()).filter(|at| answer.is_char_boundary(*at)) {
                let mut scanner = Scanner::default();
                let mut parts = scanner.read(&answer[..at]);
                parts.extend(scanner.read(&answer[at..]));
                parts.extend(scanner.end());
                assert_eq!(merged(parts), whole, "{at}");
            }
            let mut scanner = Scanner::default();
            let mut parts: Parts = answer
                .chars()
                .flat_map(|c| scanner.read(&c.to_string()))
                .collect();
            parts.extend(scanner.end());
            assert_eq!(merged(parts), whole);
        }
        let long = format!("{}\n~~~\n{}\n~~~\n", "-".repeat(500), "~".repeat(500));
        assert_eq!(
            shown(&parts_of(&long)),
            format!("{}<C|{}>", &long[..501], &long[501..])
        );
    }
}
