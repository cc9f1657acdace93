//! A call as people are shown it everywhere: what was asked for, without the words that are the same for each call.
//!
//! Unaware of where it is shown.

use crate::text::shell::shell_quoted;
use crate::text::shorten::{cut_to_columns, in_short};

/// The hidden command of delta that its own tools are. Their names say to a person what they do.
pub(crate) const OWN_TOOLS: [&str; 2] = ["delta", "coder-tool"];

/// The columns that the beginning of a standard input may take.
const STDIN_WIDTH: usize = 120;

/// The request of a call.
pub(crate) struct AskedFor {
    /// Its command; of one of delta's own tools, the tool's name and arguments.
    pub words: Vec<String>,
    /// Why the model wants it, if the tool has it say so.
    pub reason: Option<String>,
    pub is_own_tool: bool,
}

/// The request of a command without a wrapper.
pub(crate) fn asked_for(argv: &[String]) -> AskedFor {
    let is_own_tool = is_own_tool(argv);
    let words = &argv[if is_own_tool { OWN_TOOLS.len() } else { 0 }..];
    AskedFor {
        words: words
            .iter()
            .filter(|word| !is_reason(argv, word))
            .cloned()
            .collect(),
        reason: words
            .iter()
            .find(|word| is_reason(argv, word))
            .and_then(|word| word.split_once('='))
            .map(|(_, text)| text.to_owned()),
        is_own_tool,
    }
}

fn is_own_tool(argv: &[String]) -> bool {
    argv.len() > OWN_TOOLS.len() && OWN_TOOLS.iter().zip(argv).all(|(a, b)| a == b)
}

/// True for the word of a command in which the model says why it wants it: no part of what is executed.
pub(crate) fn is_reason(argv: &[String], word: &str) -> bool {
    is_own_tool(argv) && argv[OWN_TOOLS.len()] == "bash" && word.starts_with("--reason=")
}

/// A recorded command without the wrapper that its configuration has, variables and all.
pub(crate) fn without_wrapper<'a>(argv: &'a [String], wrapper: &[String]) -> &'a [String] {
    let is_word = |(written, word): (&String, &String)| written.contains('$') || written == word;
    if argv.len() > wrapper.len() && wrapper.iter().zip(argv).all(is_word) {
        &argv[wrapper.len()..]
    } else {
        argv
    }
}

/// A command on one line, cut to `columns`, with the beginning of its standard input.
pub(crate) fn call_line(argv: &[String], stdin: Option<&str>, columns: usize) -> String {
    let command = in_short(&shell_quoted(&asked_for(argv).words), columns);
    match stdin {
        Some(stdin) => format!("{command} <<< {}", first_line(stdin)),
        None => command,
    }
}

/// The first line of a text that is not blank, in quotes; with an ellipsis if that is not all.
fn first_line(text: &str) -> String {
    let mut lines = text.lines();
    let first = lines.by_ref().find(|line| !line.trim().is_empty());
    let head = cut_to_columns(first.unwrap_or_default().trim_end(), STDIN_WIDTH);
    let head = if lines.next().is_some() && !head.ends_with('…') {
        format!("{head} …")
    } else {
        head
    };
    shell_quoted(&[head])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_command_is_shown_without_what_says_nothing() {
        let shown = |text: &str| call_line(&words(text), None, 80);
        assert_eq!(shown("delta coder-tool read a"), "read a");
        assert_eq!(
            shown("delta coder-tool bash --reason=r --timeout=9"),
            "bash --timeout=9"
        );
        assert_eq!(shown("delta coder-tool read --reason=r"), "read --reason=r");
        assert_eq!(shown("delta coder-tool"), "delta coder-tool");
        assert_eq!(shown("delta run coder-tool"), "delta run coder-tool");
        assert_eq!(shown("ls delta coder-tool x"), "ls delta coder-tool x");
        assert_eq!(shown("bash --reason=r"), "bash --reason=r");
    }

    #[test]
    fn only_the_wrapper_that_is_there_is_taken_off() {
        let wrapper = words("box --rw ${CWD} --");
        let shown = |text: &str| without_wrapper(&words(text), &wrapper).join(" ");
        assert_eq!(shown("box --rw /a/b -- ls -l"), "ls -l");
        assert_eq!(shown("box --rw /a/b --"), "box --rw /a/b --");
        assert_eq!(shown("box --ro /a/b -- ls"), "box --ro /a/b -- ls");
        assert_eq!(without_wrapper(&wrapper, &[]), wrapper);
    }

    #[test]
    fn the_first_line_says_whether_there_are_more() {
        assert_eq!(first_line("a b\n"), "'a b'");
        assert_eq!(first_line("\n  a b \nc"), "'  a b …'");
        assert_eq!(first_line(""), "''");
        assert!(first_line(&"x".repeat(200)).ends_with("x…'"));
    }
}
