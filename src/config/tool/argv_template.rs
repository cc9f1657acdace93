//! Argv templates: a command split into words once, with places in the words for values.
//!
//! Unaware of the rest of a tool, and of any shell's grammar beyond its quotes.

use crate::config::keys::{Key, KeyValue};
use crate::config::section::Section;
use crate::config::tool::definition::{AGENT_HOME, CWD, Piece, Word};
use serde_json::Value;

/// A command line that was split.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ArgvTemplate {
    /// The parameters in them are indices into `names`.
    pub words: Vec<Word>,
    /// The names of its placeholders, each once, in the order in which they first appear.
    pub names: Vec<String>,
}

/// A valid name in a placeholder: letters, digits, `_`, not a digit first.
pub(crate) fn is_identifier(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

pub(crate) fn is_reserved(name: &str) -> bool {
    name == AGENT_HOME || name == CWD
}

/// Splits the line of an `exec:` by the shell's rules for quotes. Reports all errors.
///
/// A placeholder counts inside quotes, too, since no shell reads the line; a backslash before `$`
/// makes it text.
///
/// # Errors
/// Operators of a shell, `#` at the start of a word, invalid placeholders, open quotes.
pub(crate) fn split_template(line: &str) -> Result<ArgvTemplate, Vec<String>> {
    let reader = TemplateReader::of(line);
    if !reader.problems.is_empty() {
        return Err(reader.problems);
    }
    let Some(words) = shlex::split(&reader.marked) else {
        return Err(vec![match reader.quote {
            Some(quote) => format!("exec: quote {quote} is not closed"),
            None => "exec: nothing follows the backslash at the end".to_owned(),
        }]);
    };
    if words.is_empty() {
        return Err(vec!["exec: is empty; name a program".to_owned()]);
    }
    Ok(ArgvTemplate {
        words: words.iter().map(|word| unmarked(word)).collect(),
        names: reader.names,
    })
}

/// A command line holds something that a shell would act upon, outside of quotes.
pub(crate) fn has_operator(line: &str) -> bool {
    TemplateReader::of(line).has_operator
}

/// The names of the placeholders in the line of an `exec:`, also where the line cannot be split.
pub(crate) fn placeholder_names(line: &str) -> Vec<String> {
    TemplateReader::of(line).names
}

/// A word of a `command:` list: `${NAME}` is a place for the parameter or the engine's variable of
/// that name, and anything else is text.
pub(crate) fn parse_word(text: &str, names: &[&str]) -> Word {
    let mut pieces = Vec::new();
    let mut fixed = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let inner = braced(rest);
        if let Some(piece) = inner.and_then(|name| variable(name, names)) {
            push_text(&mut pieces, &mut fixed);
            pieces.push(piece);
            rest = &rest[inner.map_or(0, str::len) + "${}".len()..];
        } else {
            fixed.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    push_text(&mut pieces, &mut fixed);
    Word(pieces)
}

/// A text with the engine's variables in it, as a word without parameters.
pub(crate) fn parse_fixed_word(text: &str) -> Word {
    parse_word(text, &[])
}

/// Words with the engine's variables, and no parameters, in them.
impl KeyValue for Option<Vec<Word>> {
    fn read(section: &Section, key: &Key) -> Self {
        let texts = section.read_texts(key.name)?;
        Some(texts.into_iter().map(parse_fixed_word).collect())
    }

    fn record(&self) -> Value {
        self.as_ref().map_or(Value::Null, KeyValue::record)
    }
}

impl KeyValue for Vec<Word> {
    fn read(section: &Section, key: &Key) -> Self {
        Option::<Self>::read(section, key).unwrap_or_default()
    }

    fn record(&self) -> Value {
        self.iter().map(|word| word.written(|_| "")).collect()
    }
}

/// The parameter, if there is one, whose value would run as code: it is part of the script that a
/// shell in the command is given with `-c`.
pub(crate) fn value_in_script(words: &[Word]) -> Option<usize> {
    (0..words.len())
        .filter(|&at| words[at].as_fixed().is_some_and(is_shell))
        .filter_map(|at| script_of(&words[at + 1..]))
        .filter(|script| script.0.len() > 1)
        .find_map(|script| script.params().next())
}

/// The text between `${` and the next `}`, if the text begins so.
pub(crate) fn braced(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("${")?;
    inner.find('}').map(|end| &inner[..end])
}

fn variable(name: &str, names: &[&str]) -> Option<Piece> {
    match name {
        AGENT_HOME => Some(Piece::Home),
        CWD => Some(Piece::Cwd),
        _ => names.iter().position(|n| *n == name).map(Piece::Param),
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &mut String) {
    if !text.is_empty() {
        pieces.push(Piece::Text(std::mem::take(text)));
    }
}

/// True for the name or the path of a shell.
pub(crate) fn is_shell(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    [
        "sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish", "yash",
    ]
    .contains(&name)
}

/// The first operand after a shell's options, if `-c` is among them.
fn script_of(arguments: &[Word]) -> Option<&Word> {
    let mut is_script = false;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_fixed() {
            Some("--") => return words.next().filter(|_| is_script),
            Some("-o" | "+o" | "-O" | "+O" | "--rcfile" | "--init-file") => {
                words.next();
            }
            Some("-c" | "--command") => is_script = true,
            Some(long) if long.starts_with("--") => {}
            Some(flags) if flags.len() > 1 && flags.starts_with(['-', '+']) => {
                is_script |= flags.contains('c');
            }
            _ => return is_script.then_some(word),
        }
    }
    None
}

/// Operators that a shell would act upon outside of quotes, longest first, and their names.
const OPERATORS: [(&str, &str); 16] = [
    ("&&", "the second command"),
    ("||", "the second command"),
    (">>", "redirection"),
    ("<<", "here-document"),
    (";;", "semicolons"),
    ("|&", "pipe"),
    ("&>", "redirection"),
    (">&", "redirection"),
    ("<&", "redirection"),
    ("$(", "command substitution"),
    ("`", "command substitution"),
    ("|", "pipe"),
    (">", "redirection"),
    ("<", "redirection"),
    ("&", "ampersand"),
    (";", "semicolon"),
];

/// Replaces the placeholders of a line by marks that go through the splitter as plain text: a NUL,
/// the index of the name or the engine's variable, a NUL.
#[derive(Default)]
struct TemplateReader {
    marked: String,
    names: Vec<String>,
    problems: Vec<String>,
    /// The quote that is open.
    quote: Option<char>,
    has_operator: bool,
}

impl TemplateReader {
    fn of(line: &str) -> Self {
        let mut reader = Self::default();
        reader.read(line);
        reader
    }

    fn read(&mut self, line: &str) {
        let mut rest = line;
        let mut word_begins = true;
        while let Some(c) = rest.chars().next() {
            let mut taken = c.len_utf8();
            let begins = std::mem::replace(&mut word_begins, false);
            match (c, self.quote) {
                // A continued line: no shell sees these two (XCU 2.2.1), but the splitter would take
                // them for the beginning of a word.
                ('\\', None) if rest.starts_with("\\\n") => {
                    word_begins = begins;
                    rest = &rest["\\\n".len()..];
                    continue;
                }
                ('$', _) if rest.starts_with("${") => {
                    taken = self.placeholder(rest);
                    rest = &rest[taken..];
                    continue;
                }
                ('\\', None | Some('"')) => {
                    taken += rest[1..].chars().next().map_or(0, char::len_utf8);
                }
                ('\'' | '"', None) => self.quote = Some(c),
                (_, Some(open)) if open == c => self.quote = None,
                ('#', None) if begins => self.problem(
                    "'#' at the start of a word would begin a comment; quote it".to_owned(),
                ),
                (' ' | '\t' | '\n', None) => word_begins = true,
                (_, None) => taken = self.operator(rest).unwrap_or(taken),
                _ => {}
            }
            self.marked.push_str(&rest[..taken]);
            rest = &rest[taken..];
        }
    }

    fn problem(&mut self, problem: String) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn operator(&mut self, rest: &str) -> Option<usize> {
        let (operator, what) = OPERATORS.iter().find(|(op, _)| rest.starts_with(op))?;
        self.has_operator = true;
        self.problem(format!(
            "Shell metacharacter '{operator}' not allowed in exec: mode. \
             Use shell: mode or remove {what} (in quotes it is plain text)"
        ));
        Some(operator.len())
    }

    /// Marks the placeholder at the start of `rest`; how many bytes it takes.
    fn placeholder(&mut self, rest: &str) -> usize {
        let Some(inner) = braced(rest) else {
            let beginning: String = rest.chars().take(20).collect();
            self.problem(format!("placeholder '{beginning}' has no closing '}}'"));
            return 2;
        };
        let mark = match inner {
            AGENT_HOME => "home".to_owned(),
            CWD => "cwd".to_owned(),
            _ if is_identifier(inner) => self.index(inner).to_string(),
            _ => {
                let raw = inner.strip_suffix(":raw");
                if let Some(name) = raw.filter(|name| is_identifier(name)) {
                    self.index(name);
                }
                self.problem(match raw {
                    Some(name) => format!(
                        ":raw modifier is only allowed in shell: mode; write ${{{name}}} or use \
                         shell:"
                    ),
                    None => format!(
                        "invalid placeholder name '{inner}' in '${{{inner}}}': letters, digits and \
                         _ make a name; other expansions need shell:"
                    ),
                });
                String::new()
            }
        };
        self.marked.extend(["\0", &mark, "\0"]);
        inner.len() + "${}".len()
    }

    fn index(&mut self, name: &str) -> usize {
        let known = self.names.iter().position(|n| n == name);
        known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        })
    }
}

/// A word with the marks of [`TemplateReader`] back as pieces.
fn unmarked(word: &str) -> Word {
    let piece = |(index, part): (usize, &str)| match (index % 2, part) {
        (0, "") => None,
        (0, text) => Some(Piece::Text(text.to_owned())),
        (_, "home") => Some(Piece::Home),
        (_, "cwd") => Some(Piece::Cwd),
        (_, index) => index.parse().ok().map(Piece::Param),
    };
    Word(word.split('\0').enumerate().filter_map(piece).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> Vec<String> {
        let line = split_template(line).unwrap_or_else(|problems| panic!("{line}: {problems:?}"));
        let name = |index: usize| line.names[index].as_str();
        line.words.iter().map(|word| word.written(name)).collect()
    }

    fn problems(line: &str) -> String {
        split_template(line).unwrap_err().join("\n")
    }

    #[test]
    fn a_line_is_split_by_the_shells_rules_for_quotes() {
        for (line, words) in [
            ("ls -F ${directory}", vec!["ls", "-F", "${directory}"]),
            (
                r#"grep "fixed pattern" ${file}"#,
                vec!["grep", "fixed pattern", "${file}"],
            ),
            (
                r#"grep 'it is' "a \"b\" \\ c" d\ e"#,
                vec!["grep", "it is", r#"a "b" \ c"#, "d e"],
            ),
            ("echo ''  \"\"\n x\t", vec!["echo", "", "", "x"]),
            (
                "a --file=${f} x${f}${g}y",
                vec!["a", "--file=${f}", "x${f}${g}y"],
            ),
            (
                r#"a "--file=${f} x" '${g}'"#,
                vec!["a", "--file=${f} x", "${g}"],
            ),
            ("cp ${src} dest/", vec!["cp", "${src}", "dest/"]),
            (
                "grep 'a|b>c<d&e;f`g`$(h)' x",
                vec!["grep", "a|b>c<d&e;f`g`$(h)", "x"],
            ),
            (
                "grep \"a|b>c<d&e;f`g`$(h)\" x",
                vec!["grep", "a|b>c<d&e;f`g`$(h)", "x"],
            ),
            (r"grep a\|b\>\<\&\;\`", vec!["grep", "a|b><&;`"]),
            ("a x#y '#z' \\#", vec!["a", "x#y", "#z", "#"]),
            ("a ''#", vec!["a", "#"]),
            (
                "docker run \\\n  --rm \\\n\\\n ${image} \\\n",
                vec!["docker", "run", "--rm", "${image}"],
            ),
            (
                "a b\\\nc \"d\\\ne\" 'f\\\n'",
                vec!["a", "bc", "de", "f\\\n"],
            ),
            ("awk '{print $1}' $x$", vec!["awk", "{print $1}", "$x$"]),
            (
                "ls ${AGENT_HOME}/x ${CWD}",
                vec!["ls", "${AGENT_HOME}/x", "${CWD}"],
            ),
            ("echo ü${x}ü", vec!["echo", "ü${x}ü"]),
        ] {
            assert_eq!(shown(line), words, "{line}");
        }
    }

    #[test]
    fn the_engines_variables_are_no_parameters() {
        let line = split_template("ls ${AGENT_HOME}/x ${CWD}").unwrap();
        assert!(line.names.is_empty());
        assert_eq!(line.words[1].0[0], Piece::Home);
        assert_eq!(line.words[2].0, [Piece::Cwd]);
    }

    #[test]
    fn a_name_that_occurs_twice_is_one_parameter() {
        let line = split_template("cp ${b} ${a} ${b}").unwrap();
        assert_eq!(line.names, ["b", "a"]);
        assert_eq!(line.words[1], line.words[3]);
    }

    #[test]
    fn a_backslash_makes_a_placeholder_text_outside_of_single_quotes() {
        for line in [r"a \${x}", r#"a "\${x}""#] {
            assert_eq!(
                split_template(line).unwrap().words[1],
                Word::fixed("${x}"),
                "{line}"
            );
        }
        let line = split_template(r"a '\${x}'").unwrap();
        assert_eq!(
            line.words[1].0,
            [Piece::Text("\\".to_owned()), Piece::Param(0)]
        );
    }

    #[test]
    fn every_metacharacter_outside_of_quotes_is_an_error_that_names_it() {
        for operator in [
            "|", ">", "<", "&", ";", "`", "&&", "||", ">>", "<<", ";;", "|&", "$(",
        ] {
            for line in [
                format!("cat ${{file}} {operator} wc"),
                format!("cat a{operator}b)"),
            ] {
                let said = problems(&line);
                let expected = format!(
                    "Shell metacharacter '{operator}' not allowed in exec: mode. Use shell: "
                );
                assert!(said.contains(&expected), "{line}: {said}");
            }
        }
        assert!(problems("a | b").contains("Use shell: mode or remove pipe"));
    }

    #[test]
    fn all_problems_of_a_line_are_said_at_once() {
        let said = split_template("a | b | c > d ${x:raw} ${1} #").unwrap_err();
        assert_eq!(said.len(), 5, "{said:?}");
    }

    #[test]
    fn what_cannot_be_a_placeholder_is_an_error() {
        for (line, message) in [
            (
                "echo ${flags:raw}",
                ":raw modifier is only allowed in shell: mode",
            ),
            (
                "echo ${AGENT_HOME:raw}",
                ":raw modifier is only allowed in shell: mode",
            ),
            ("echo ${}", "invalid placeholder name ''"),
            ("echo ${1}", "invalid placeholder name '1'"),
            ("echo ${a-b}", "invalid placeholder name 'a-b'"),
            ("echo ${x:-y}", "other expansions need shell:"),
            ("echo '${#x}'", "invalid placeholder name '#x'"),
            ("echo ${ü}", "invalid placeholder name 'ü'"),
            ("echo ${x", "no closing '}'"),
        ] {
            assert!(
                problems(line).contains(message),
                "{line}: {}",
                problems(line)
            );
        }
    }

    #[test]
    fn open_quotes_comments_and_empty_lines_are_errors() {
        for (line, message) in [
            ("echo 'x", "quote ' is not closed"),
            ("echo \"x", "quote \" is not closed"),
            ("echo x\\", "nothing follows the backslash"),
            ("", "exec: is empty"),
            (" \n", "exec: is empty"),
            ("echo # ${x}", "'#' at the start of a word"),
            ("#a", "'#' at the start of a word"),
            ("echo\n#a", "'#' at the start of a word"),
        ] {
            assert!(
                problems(line).contains(message),
                "{line}: {}",
                problems(line)
            );
        }
    }

    #[test]
    fn a_word_of_a_list_has_places_for_known_names_only() {
        let names = ["a", "b-c"];
        assert_eq!(parse_word("", &names), Word::default());
        assert_eq!(parse_word("${x}${", &names), Word::fixed("${x}${"));
        assert_eq!(
            parse_word("$${a}${b-c}${AGENT_HOME}${CWD}}", &names).0,
            [
                Piece::Text("$".to_owned()),
                Piece::Param(0),
                Piece::Param(1),
                Piece::Home,
                Piece::Cwd,
                Piece::Text("}".to_owned()),
            ]
        );
        let nested = parse_word("${${a}", &names);
        assert_eq!(nested.0, [Piece::Text("${".to_owned()), Piece::Param(0)]);
    }

    #[test]
    fn a_value_inside_the_script_of_a_shell_is_found() {
        for (line, found) in [
            ("sh -c 'echo ${x}'", true),
            ("/bin/bash -c \"echo ${x}\"", true),
            ("env A=b bash -eu -o pipefail -c 'echo ${x}' --", true),
            ("bash -lc 'cd ${AGENT_HOME}; ls ${x}'", true),
            ("bash -c -x -- 'ls ${x}'", true),
            ("docker exec box sh -c ${x}y", true),
            ("bash -c ${script}", false),
            ("bash -c 'echo \"$1\"' -- ${x}y", false),
            ("bash -c 'ls ${AGENT_HOME}'", false),
            ("bash ${x}.sh", false),
            ("bash -e ${x}.sh -c", false),
            ("grep -c ${x}y", false),
            ("echo sh ${x}y", false),
        ] {
            let words = split_template(line).unwrap().words;
            assert_eq!(value_in_script(&words).is_some(), found, "{line}");
        }
    }
}
