//! Lists of commands, and the here-documents that belong to them.
//!
//! Knows reserved words only as far as they decide where something ends and whose positional
//! parameters are meant.

use super::{QuoteContext, Scanner};
use std::mem::take;

/// The end of a list of commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    End,
    Parenthesis,
}

/// A construct that is open, and closed by `)`, `}`, `esac` or `]]`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Construct {
    Parenthesis { function: bool },
    Brace { function: bool },
    Case,
    Test,
}

/// A list of commands while it is being read.
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own about the current word.
struct List {
    /// The place where the current word began.
    word: Option<usize>,
    /// A command may begin here, and so a reserved word.
    command: bool,
    /// The current command is `set`.
    set: bool,
    /// The current command moves the positional parameters, once its own words have been expanded.
    moves: bool,
    /// A function's name and parentheses have been read, and its body begins next.
    function: bool,
    open: Vec<Construct>,
}

/// A here-document whose body has not begun.
pub(super) struct HereDocument {
    delimiter: String,
    /// `<<-`: leading tabs do not count.
    tabs: bool,
    quoted: bool,
}

/// Commands.
impl Scanner<'_> {
    pub(super) fn commands(&mut self, until: Until) {
        let (documents, tests) = (take(&mut self.documents), take(&mut self.tests));
        let (functions, shifted) = (self.functions, self.shifted);
        let mut list = List {
            word: None,
            command: true,
            set: false,
            moves: false,
            function: false,
            open: Vec::new(),
        };
        while let Some(c) = self.peek(0) {
            match c {
                b' ' | b'\t' => {
                    self.end_word(&mut list);
                    self.skip(1);
                }
                b'\n' => {
                    self.separator(&mut list);
                    self.bodies();
                }
                b';' | b'&' | b'|' => self.separator(&mut list),
                b'#' if list.word.is_none() => self.comment(),
                b'<' | b'>' => self.redirection(&mut list),
                b'(' => self.open(&mut list),
                b')' => {
                    if self.close(&mut list) && until == Until::Parenthesis {
                        break;
                    }
                }
                _ => {
                    list.word.get_or_insert(self.at);
                    self.piece(QuoteContext::Bare);
                }
            }
        }
        (self.documents, self.tests) = (documents, tests);
        (self.functions, self.shifted) = (functions, shifted);
    }

    fn separator(&mut self, list: &mut List) {
        self.end_word(list);
        self.skip(1);
        list.command = true;
        list.set = false;
        self.shifted |= take(&mut list.moves) && self.functions == 0;
    }

    fn comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != b'\n') {
            self.skip(1);
        }
    }

    /// Acts upon a word that was read if it is a reserved one at its place.
    fn end_word(&mut self, list: &mut List) {
        let Some(start) = list.word.take() else {
            return;
        };
        let word = self.slice(start..self.at);
        let command = std::mem::replace(&mut list.command, false);
        match (word, list.open.last()) {
            ("--", _) if list.set => list.moves = true,
            ("]]", Some(Construct::Test)) => {
                list.open.pop();
                self.tests -= 1;
            }
            ("in", Some(Construct::Case)) => list.command = true,
            _ if !command => {}
            ("case", _) => list.open.push(Construct::Case),
            ("esac", Some(Construct::Case)) => {
                list.open.pop();
            }
            ("[[", _) => {
                list.open.push(Construct::Test);
                self.tests += 1;
            }
            ("{", _) => {
                let function = take(&mut list.function);
                list.open.push(Construct::Brace { function });
                self.functions += usize::from(function);
                list.command = true;
            }
            ("}", Some(&Construct::Brace { function })) => {
                list.open.pop();
                self.functions -= usize::from(function);
            }
            ("if" | "then" | "else" | "elif" | "while" | "until" | "do" | "!" | "time", _) => {
                list.command = true;
            }
            ("shift", _) => list.moves = true,
            ("set", _) => list.set = true,
            _ => {}
        }
    }

    fn open(&mut self, list: &mut List) {
        self.end_word(list);
        if self.is_arithmetic() {
            self.skip(2);
            return self.arithmetic("))");
        }
        self.skip(1);
        let blanks = self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
        list.command = true;
        if self.peek(blanks) == Some(b')') {
            list.function = true;
            self.skip(blanks + 1);
        } else {
            let function = take(&mut list.function);
            list.open.push(Construct::Parenthesis { function });
            self.functions += usize::from(function);
        }
    }

    /// True if the parenthesis closes the list itself.
    fn close(&mut self, list: &mut List) -> bool {
        self.end_word(list);
        self.skip(1);
        // What a subshell moves stays moved in it.
        list.moves = false;
        match list.open.last() {
            Some(&Construct::Parenthesis { function }) => {
                list.open.pop();
                self.functions -= usize::from(function);
                list.command = list.open.last() == Some(&Construct::Case);
                false
            }
            Some(Construct::Case) => {
                list.command = true;
                false
            }
            _ => true,
        }
    }

    fn redirection(&mut self, list: &mut List) {
        self.end_word(list);
        let rest = self.rest();
        if rest.starts_with("<<<") {
            self.skip(3);
        } else if rest.starts_with("<<") {
            self.document();
        } else if [">&", "<&", ">|", "<>", ">>"]
            .iter()
            .any(|op| rest.starts_with(op))
        {
            self.skip(2);
        } else {
            self.skip(1);
        }
    }
}

/// Here-documents.
impl Scanner<'_> {
    fn document(&mut self) {
        self.skip(2);
        let tabs = self.peek(0) == Some(b'-');
        self.skip(usize::from(tabs));
        while matches!(self.peek(0), Some(b' ' | b'\t')) {
            self.skip(1);
        }
        let start = self.at;
        let mut delimiter = String::new();
        let mut quote = None;
        for c in self.rest().chars() {
            match (c, quote) {
                (' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')', None) => break,
                ('\'' | '"' | '\\', None) => quote = Some(c),
                (_, Some('\\')) => {
                    delimiter.push(c);
                    quote = None;
                }
                (_, Some(open)) if open == c => quote = None,
                _ => delimiter.push(c),
            }
            self.skip(c.len_utf8());
        }
        self.text_only(start..self.at, QuoteContext::Delimiter);
        let quoted = self.slice(start..self.at).contains(['\'', '"', '\\']);
        self.documents.push(HereDocument {
            delimiter,
            tabs,
            quoted,
        });
    }

    /// Reads the bodies of the documents that were begun on the line before.
    fn bodies(&mut self) {
        for document in take(&mut self.documents) {
            let start = self.at;
            let (body_end, next) = self.body_end(&document);
            if document.quoted {
                self.text_only(start..body_end, QuoteContext::Document);
            } else {
                let end = std::mem::replace(&mut self.end, body_end);
                while let Some(c) = self.peek(0) {
                    match c {
                        b'\'' | b'"' => self.skip(1),
                        _ => self.piece(QuoteContext::Quoted),
                    }
                }
                self.end = end;
            }
            self.at = next;
        }
    }

    /// The end of the body that begins here, and the beginning of the line after its delimiter.
    fn body_end(&self, document: &HereDocument) -> (usize, usize) {
        let mut line_start = self.at;
        let mut continued = false;
        while line_start < self.end {
            let rest = self.slice(line_start..self.end);
            let line = rest.split('\n').next().unwrap_or(rest);
            let next = (line_start + line.len() + 1).min(self.end);
            let text = if document.tabs {
                line.trim_start_matches('\t')
            } else {
                line
            };
            if text == document.delimiter && !continued {
                return (line_start, next);
            }
            let backslashes = line.len() - line.trim_end_matches('\\').len();
            continued = !document.quoted && backslashes % 2 == 1;
            line_start = next;
        }
        (self.end, self.end)
    }
}
