//! What stands on a screen after a program has written to it: as much of a terminal as programs here use.

/// A screen of so many lines and columns, and the lines that have scrolled off it.
pub struct Picture {
    lines: Vec<String>,
    height: usize,
    width: usize,
    /// The line, from the first that was ever there, and the column.
    at: (usize, usize),
    /// What has not come to its end.
    rest: String,
}

impl Picture {
    pub fn new(height: usize, width: usize) -> Self {
        Self {
            lines: vec![String::new()],
            height,
            width,
            at: (0, 0),
            rest: String::new(),
        }
    }

    /// The lines up to the cursor or the last one with something in it, without colours.
    pub fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.lines.iter().map(|line| line.trim_end()).collect();
        while lines.last().is_some_and(|line| line.is_empty()) {
            lines.pop();
        }
        lines
    }

    /// Takes what a program has written. Panics at what this terminal does not know.
    #[track_caller]
    pub fn take(&mut self, written: &str) {
        let text = std::mem::take(&mut self.rest) + written;
        let mut rest = text.as_str();
        while let Some(c) = rest.chars().next() {
            if c != '\x1b' {
                self.character(c);
                rest = &rest[c.len_utf8()..];
                continue;
            }
            let end = rest[1..].find(|c: char| c.is_ascii_alphabetic());
            let Some(end) = end.map(|end| end + 1) else {
                rest.clone_into(&mut self.rest);
                return;
            };
            self.command(&rest[1..=end]);
            rest = &rest[end + 1..];
        }
    }

    fn character(&mut self, c: char) {
        match c {
            '\r' => self.at.1 = 0,
            '\n' => self.move_to(self.at.0 + 1),
            c => {
                assert!(!c.is_control(), "a terminal is not to get {c:?}");
                if self.at.1 == self.width {
                    self.move_to(self.at.0 + 1);
                    self.at.1 = 0;
                }
                let mut line: Vec<char> = self.lines[self.at.0].chars().collect();
                line.resize(line.len().max(self.at.1 + 1), ' ');
                line[self.at.1] = c;
                self.lines[self.at.0] = line.into_iter().collect();
                self.at.1 += 1;
            }
        }
    }

    fn move_to(&mut self, line: usize) {
        self.at.0 = line;
        while self.lines.len() <= line {
            self.lines.push(String::new());
        }
    }

    #[track_caller]
    fn command(&mut self, sequence: &str) {
        let number = || sequence[1..sequence.len() - 1].parse().unwrap_or(1);
        // What has scrolled off cannot be reached any more.
        let top = self.lines.len().saturating_sub(self.height);
        match (&sequence[..1], sequence.chars().last()) {
            ("[", Some('A')) => self.at.0 = self.at.0.saturating_sub(number()).max(top),
            ("[", Some('J')) => {
                self.lines.truncate(self.at.0 + 1);
                let kept = self.lines[self.at.0].chars().take(self.at.1).collect();
                self.lines[self.at.0] = kept;
            }
            ("[", Some('m')) => {}
            _ => panic!("a terminal is not to get {sequence:?}"),
        }
    }
}
