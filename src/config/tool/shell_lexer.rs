//! Finds what looks like a placeholder in a shell script, and its quoting.
//!
//! Follows the grammar of POSIX.1-2024 XCU chapter 2 as far as quotes, comments, here-documents and
//! substitutions go, and knows what bash adds where it matters. Unaware of what takes a
//! placeholder's place.

mod commands;

use crate::config::tool::argv_template::{braced, is_identifier, is_reserved};
use commands::{HereDocument, Until};
use std::ops::Range;

/// A `${NAME}` or `${NAME:raw}` that a shell would take for an expansion, or that looks like one
/// where a shell sees only text; or one with an invalid name, such as `${a.b}`, which a shell would refuse. One after a backslash or in a comment is not a placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placeholder<'s> {
    /// The bytes of the script that it takes.
    pub range: Range<usize>,
    /// The name in it; mostly an identifier.
    pub name: &'s str,
    /// True with the modifier that leaves out the quotes.
    pub raw: bool,
    pub place: QuoteContext,
}

/// The quotes and constructs around a placeholder, which decide what is allowed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuoteContext {
    /// No quotes: the value needs its own.
    Bare,
    /// Double quotes, or a here-document that is expanded: quotes of its own would close them, or
    /// be seen.
    Quoted,
    /// Single quotes: nothing is expanded.
    Single,
    /// A here-document with a quoted delimiter: nothing is expanded.
    Document,
    /// The delimiter of a here-document: nothing is expanded.
    Delimiter,
    /// An arithmetic expression. Some shells run commands found in one (`a[$(id)]`).
    Arithmetic,
    /// Between `[[` and `]]`, where some operators evaluate arithmetic.
    Test,
    /// The body of a function, which has positional parameters of its own.
    Function,
    /// After `shift` or `set --`, which change the positional parameters.
    Shifted,
    /// Backquotes with backslashes in them, which change what is quoted.
    Backquotes,
}

/// All placeholders in a script, in order.
pub(crate) fn find_placeholders(script: &str) -> Vec<Placeholder<'_>> {
    let mut scanner = Scanner {
        text: script,
        at: 0,
        end: script.len(),
        placeholders: Vec::new(),
        documents: Vec::new(),
        functions: 0,
        tests: 0,
        shifted: false,
        backquotes: false,
    };
    scanner.commands(Until::End);
    scanner.placeholders
}

/// Reads a script once from start to end. All significant characters are ASCII, so it goes by bytes.
struct Scanner<'s> {
    text: &'s str,
    at: usize,
    /// The end of the part that is being read.
    end: usize,
    placeholders: Vec<Placeholder<'s>>,
    /// Their bodies begin after the next newline.
    documents: Vec<HereDocument>,
    /// The number of open function bodies.
    functions: usize,
    /// The number of open `[[`.
    tests: usize,
    shifted: bool,
    /// Inside backquotes that hold backslashes.
    backquotes: bool,
}

/// Quotes and expansions.
impl<'s> Scanner<'s> {
    /// One character, or one quoted string or expansion, at `place`.
    fn piece(&mut self, place: QuoteContext) {
        match self.peek(0) {
            Some(b'\\') => self.skip(2),
            Some(b'\'') => self.single(),
            Some(b'"') => self.double(),
            Some(b'`') => self.backquotes(),
            Some(b'$') => self.dollar(place),
            _ => self.skip(1),
        }
    }

    fn single(&mut self) {
        self.skip(1);
        let length = self.rest().find('\'').unwrap_or(self.rest().len());
        self.text_only(self.at..self.at + length, QuoteContext::Single);
        self.skip(length + 1);
    }

    fn double(&mut self) {
        self.skip(1);
        while let Some(c) = self.peek(0) {
            match c {
                b'"' => return self.skip(1),
                b'\'' => self.skip(1),
                _ => self.piece(QuoteContext::Quoted),
            }
        }
    }

    /// Backquotes end at the first bare backquote, even inside quotes.
    fn backquotes(&mut self) {
        self.skip(1);
        let start = self.at;
        while self.peek(0).is_some_and(|c| c != b'`') {
            self.skip(if self.peek(0) == Some(b'\\') { 2 } else { 1 });
        }
        let close = std::mem::replace(&mut self.at, start);
        let backslashes = self.slice(start..close).contains('\\');
        let end = std::mem::replace(&mut self.end, close);
        let outer = self.backquotes;
        self.backquotes |= backslashes;
        self.commands(Until::End);
        self.backquotes = outer;
        self.end = end;
        self.at = close;
        self.skip(1);
    }

    fn dollar(&mut self, place: QuoteContext) {
        match self.peek(1) {
            Some(b'{') => self.brace(place),
            Some(b'(') => {
                self.skip(1);
                if self.is_arithmetic() {
                    self.skip(2);
                    self.arithmetic("))");
                } else {
                    self.skip(1);
                    self.commands(Until::Parenthesis);
                }
            }
            Some(b'[') => {
                self.skip(2);
                self.arithmetic("]");
            }
            Some(b'$' | b'#' | b'?' | b'!' | b'@' | b'*' | b'-') => self.skip(2),
            _ => self.skip(1),
        }
    }

    /// `${…}`: a placeholder, or an expansion of the shell's own with a word in it.
    fn brace(&mut self, place: QuoteContext) {
        let found = braced(self.rest())
            .and_then(|inner| Some((inner, mentioned(inner).or_else(|| misspelt(inner))?)));
        if let Some((inner, (name, raw))) = found {
            let length = inner.len() + "${}".len();
            self.placeholder(name, raw, place, self.at..self.at + length);
            return self.skip(length);
        }
        self.skip(2);
        if matches!(
            self.peek(0),
            Some(b'#' | b'!' | b'@' | b'*' | b'?' | b'-' | b'$')
        ) {
            self.skip(1);
        }
        while self
            .peek(0)
            .is_some_and(|c| c == b'_' || c.is_ascii_alphanumeric())
        {
            self.skip(1);
        }
        let place = match (self.peek(0), self.peek(1)) {
            _ if place == QuoteContext::Arithmetic => place,
            (Some(b':'), Some(op)) | (Some(op), _) if b"-=?+".contains(&op) => place,
            // Patterns are quoted on their own, independent of the quotes around the braces (XCU 2.6.2).
            (Some(b'#' | b'%' | b'/' | b'^' | b','), _) => QuoteContext::Bare,
            // Offsets and indices.
            _ => QuoteContext::Arithmetic,
        };
        while let Some(c) = self.peek(0) {
            match c {
                b'}' => return self.skip(1),
                b'\'' if place != QuoteContext::Bare => self.skip(1),
                b'"' if place == QuoteContext::Arithmetic => self.skip(1),
                _ => self.piece(place),
            }
        }
    }

    /// True if two parentheses here hold an expression: they are closed by two.
    fn is_arithmetic(&self) -> bool {
        let Some(inside) = self.rest().strip_prefix("((") else {
            return false;
        };
        let mut depth = 2;
        for (index, c) in inside.bytes().enumerate() {
            match c {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            if depth == 1 {
                return inside.as_bytes().get(index + 1) == Some(&b')');
            }
        }
        false
    }

    fn arithmetic(&mut self, close: &str) {
        let mut depth = 0_usize;
        while let Some(c) = self.peek(0) {
            if depth == 0 && self.rest().starts_with(close) {
                return self.skip(close.len());
            }
            match c {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            match c {
                b'\'' | b'"' => self.skip(1),
                _ => self.piece(QuoteContext::Arithmetic),
            }
        }
    }

    /// Mentions in what a shell takes as it is.
    fn text_only(&mut self, range: Range<usize>, place: QuoteContext) {
        let mut at = range.start;
        while let Some(found) = self.slice(at..range.end).find("${") {
            at += found;
            let inner = braced(self.slice(at..range.end)).unwrap_or_default();
            if let Some((name, raw)) = mentioned(inner) {
                let range = at..at + inner.len() + "${}".len();
                self.placeholders.push(Placeholder {
                    range,
                    name,
                    raw,
                    place,
                });
            }
            at += "${".len();
        }
    }

    fn placeholder(&mut self, name: &'s str, raw: bool, place: QuoteContext, range: Range<usize>) {
        let is_open = matches!(place, QuoteContext::Bare | QuoteContext::Quoted);
        let place = if !is_open || is_reserved(name) {
            place
        } else if self.backquotes {
            QuoteContext::Backquotes
        } else if self.functions > 0 {
            QuoteContext::Function
        } else if self.shifted {
            QuoteContext::Shifted
        } else if self.tests > 0 {
            QuoteContext::Test
        } else {
            place
        };
        self.placeholders.push(Placeholder {
            range,
            name,
            raw,
            place,
        });
    }
}

/// Moving about.
impl<'s> Scanner<'s> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        let at = self.at + ahead;
        (at < self.end).then(|| self.text.as_bytes()[at])
    }

    fn skip(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.end);
    }

    fn rest(&self) -> &'s str {
        self.slice(self.at..self.end)
    }

    /// Empty where the range does not fall between characters, which is never of interest.
    fn slice(&self, range: Range<usize>) -> &'s str {
        self.text.get(range).unwrap_or_default()
    }
}

/// The name, and whether it has the modifier, if the text between braces is a placeholder.
fn mentioned(inner: &str) -> Option<(&str, bool)> {
    if is_identifier(inner) {
        return Some((inner, false));
    }
    let name = inner.strip_suffix(":raw")?;
    let wordlike = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.chars().all(wordlike).then_some((name, true))
}

/// The name in what is neither a placeholder nor an expansion that a shell knows, but looks like one.
fn misspelt(inner: &str) -> Option<(&str, bool)> {
    let is_positional = !inner.is_empty() && inner.chars().all(|c| c.is_ascii_digit());
    let wordlike = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ' ');
    (!is_positional && inner.chars().all(wordlike)).then_some((inner, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(script: &str) -> Vec<QuoteContext> {
        find_placeholders(script)
            .iter()
            .map(|placeholder| placeholder.place)
            .collect()
    }

    #[test]
    fn quotes_decide_the_place() {
        use QuoteContext::{Bare, Document, Quoted, Single};
        for (script, expected) in [
            ("echo ${x}", vec![Bare]),
            ("echo a${x}b${y:raw}", vec![Bare, Bare]),
            ("echo \"${x}\" ${x}", vec![Quoted, Bare]),
            ("echo \"it's ${x}\" ${x}", vec![Quoted, Bare]),
            ("echo \"a\\\"${x}\" ${x}", vec![Quoted, Bare]),
            ("echo '${x}' ${x}", vec![Single, Bare]),
            ("echo 'a\"'${x}", vec![Bare]),
            ("echo \\'${x} \\\"${x}", vec![Bare, Bare]),
            ("echo \\${x} \"\\${x}\" \\\\${x}", vec![Bare]),
            ("echo $${x} $#${x}", vec![Bare]),
            ("echo ü\\ü${x}", vec![Bare]),
            (
                "cat <<E\n${x} '${x}' \"${x}\" \\${x}\nE\necho ${x}",
                vec![Quoted, Quoted, Quoted, Bare],
            ),
            ("cat <<'E'\n${x}\nE\necho ${x}", vec![Document, Bare]),
            (
                "cat <<\\E | tr a b\n${x}\nE\necho ${x}",
                vec![Document, Bare],
            ),
            ("cat <<\"E\"\n${x}\n E\nE\n${x}", vec![Document, Bare]),
            ("cat <<-E\n\t${x}\n\tE\n${x}", vec![Quoted, Bare]),
            (
                "cat <<A <<'B' ${x}\n${x}\nA\n${x}\nB\n${x}",
                vec![Bare, Quoted, Document, Bare],
            ),
            ("cat <<E\na\\\nE\n${x}\nE\n${x}", vec![Quoted, Bare]),
            ("cat <<E\n${x}", vec![Quoted]),
            ("cat <<<${x} 2>&1 ${x}", vec![Bare, Bare]),
            (
                "cat <<E\n$(echo ${x} \"${x}\")\nE\n${x}",
                vec![Bare, Quoted, Bare],
            ),
            ("echo $((1<<2)) ${x}\nE", vec![Bare]),
        ] {
            assert_eq!(places(script), expected, "{script}");
        }
    }

    #[test]
    fn a_command_substitution_begins_anew() {
        use QuoteContext::{Bare, Quoted, Single};
        for (script, expected) in [
            (
                "echo \"$(cat ${x} \"${x}\" '${x}') ${x}\"",
                vec![Bare, Quoted, Single, Quoted],
            ),
            ("echo \"$( (a; ${x}) ) ${x}\"", vec![Bare, Quoted]),
            (
                "echo \"$(case a in a) b ${x};; (c) ${x};; esac) ${x}\"",
                vec![Bare, Bare, Quoted],
            ),
            ("echo \"$(echo case) ${x}\"", vec![Quoted]),
            (
                "echo \"$(if case a in a) ${x} ;; esac; then :; fi) ${x}\"",
                vec![Bare, Quoted],
            ),
            (
                "echo \"$(echo ')' \")\" \\) # ) ${x}\n) ${x}\"",
                vec![Quoted],
            ),
            (
                "echo \"$(cat <<E\n) ${x}\nE\n) ${x}\"",
                vec![Quoted, Quoted],
            ),
            (
                "echo \"`cat ${x} \"${x}\"` ${x}\"",
                vec![Bare, Quoted, Quoted],
            ),
            ("echo \"$(( $(echo ${x}) + 1 )) ${x}\"", vec![Bare, Quoted]),
            ("echo $((a); (b ${x})) ${x}", vec![Bare, Bare]),
            ("echo $( (a); (b ${x}) ) ${x}", vec![Bare, Bare]),
        ] {
            assert_eq!(places(script), expected, "{script}");
        }
    }

    #[test]
    fn the_words_of_the_shells_own_expansions_are_read() {
        use QuoteContext::{Arithmetic, Bare, Quoted, Single};
        for (script, expected) in [
            ("echo ${x:-y} ${#x} ${x%y} ${1} ${@} ${x?}", vec![]),
            (
                "echo ${a:-${x}} ${a:-\"${x}\"} ${a:-'${x}'}",
                vec![Bare, Quoted, Single],
            ),
            ("echo \"${a:-${x}} ${a:-it's} ${x}\"", vec![Quoted, Quoted]),
            ("echo \"${a:-\"${x}\"}\" ${x}", vec![Quoted, Bare]),
            (
                "echo \"${a#${x}} ${a%%'${x}'}\" ${x}",
                vec![Bare, Single, Bare],
            ),
            ("echo ${a:-\\}${x}} ${x}", vec![Bare, Bare]),
            (
                "echo \"${a:${x}}\" ${a[${x}]}",
                vec![Arithmetic, Arithmetic],
            ),
            ("echo ${a:-${b:+${x}}} ${x}", vec![Bare, Bare]),
        ] {
            assert_eq!(places(script), expected, "{script}");
        }
    }

    #[test]
    fn comments_hold_no_mentions() {
        for (script, count) in [
            ("# ${x}\necho ${x}", 1),
            ("echo # it's ${x}\necho ${x}", 1),
            ("echo a#${x}", 1),
            ("echo a;# ${x}", 0),
            ("(# ${x}\necho)", 0),
        ] {
            assert_eq!(find_placeholders(script).len(), count, "{script}");
        }
    }

    #[test]
    fn places_without_our_positional_parameters_or_with_evaluation_are_told() {
        use QuoteContext::{
            Arithmetic, Backquotes, Bare, Delimiter, Function, Quoted, Shifted, Test,
        };
        for (script, expected) in [
            ("echo $((${x} + 1)) ${x}", vec![Arithmetic, Bare]),
            ("echo \"$(( (1) * ${x} ))\"", vec![Arithmetic]),
            ("echo $[${x}] ${x}", vec![Arithmetic, Bare]),
            ("((a = ${x})); ${x}", vec![Arithmetic, Bare]),
            ("[[ ${x} -eq 1 ]] && echo ${x}", vec![Test, Bare]),
            ("echo [[ ${x}", vec![Bare]),
            ("[[ $(echo ${x}) ]]", vec![Bare]),
            (
                "f() { echo ${x}; { a; }; ${x}; }\nf ${x}",
                vec![Function, Function, Bare],
            ),
            ("f () (\n ${x} )\n${x}", vec![Function, Bare]),
            ("f() { echo $(echo ${x}) }; }; ${x}", vec![Function, Bare]),
            ("if f; then { ${x}; }; fi", vec![Bare]),
            ("echo {${x}}", vec![Bare]),
            ("${x}; shift; ${x}", vec![Bare, Shifted]),
            ("set -e; ${x}; set -- a; ${x}", vec![Bare, Shifted]),
            (
                "set -- ${x:raw} \"${x}\"\n${x}",
                vec![Bare, Quoted, Shifted],
            ),
            ("shift ${x} && ${x}", vec![Bare, Shifted]),
            ("(set -- ${x}); ${x}", vec![Bare, Bare]),
            (
                "echo $(set -- a; ${x}) ${x} shift ${x}",
                vec![Shifted, Bare, Bare],
            ),
            ("f() { shift; }; ${x}", vec![Bare]),
            ("`echo \\`echo ${x}\\`` ${x}", vec![Backquotes, Bare]),
            ("cat <<${x}\n", vec![Delimiter]),
        ] {
            assert_eq!(places(script), expected, "{script}");
        }
    }

    #[test]
    fn a_name_is_read_with_its_modifier() {
        let found = find_placeholders("${a} ${b_2:raw} ${1:raw} ${a:-raw} ${AGENT_HOME}");
        let names: Vec<(&str, bool)> = found.iter().map(|m| (m.name, m.raw)).collect();
        assert_eq!(
            names,
            [
                ("a", false),
                ("b_2", true),
                ("1", true),
                ("AGENT_HOME", false)
            ]
        );
        assert_eq!(found[1].range, 5..15);
    }

    #[test]
    fn any_text_can_be_read() {
        let parts = [
            "${x}",
            "$(",
            "`",
            "'",
            "\"",
            "\\",
            "(",
            ")",
            "((",
            "))",
            "{",
            "}",
            " ",
            "\n",
            "<<E",
            "E",
            "case a in",
            "esac",
            "ü",
            "#",
            "${",
            "$[",
            "]",
            ";",
            "f()",
            "[[",
            "]]",
            "<<'",
            "-",
        ];
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let script: String = (0..random.usize(0..14))
                .map(|_| parts[random.usize(0..parts.len())])
                .collect();
            let mut read = 0;
            for placeholder in find_placeholders(&script) {
                assert!(placeholder.range.start >= read, "{script}");
                read = placeholder.range.end;
                let text = &script[placeholder.range];
                assert!(text.starts_with("${") && text.ends_with('}'), "{script}");
            }
        }
    }
}
