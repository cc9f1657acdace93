//! A command as people are shown it, in one line: while it runs, and in logs.
//!
//! Unaware of where the line goes and of what a wrapper is.

use crate::text::shell::shell_quoted;
use crate::text::shorten::cut_to_columns;

/// The hidden command of delta that its own tools are. Their names say to a person what they do.
pub(crate) const OWN_TOOLS: [&str; 2] = ["delta", "coder-tool"];

/// The columns that the beginning of a standard input may take.
const STDIN_WIDTH: usize = 120;

/// True if a command is one of delta's own tools.
pub(crate) fn is_own_tool(command: &[String]) -> bool {
    command.len() > OWN_TOOLS.len() && OWN_TOOLS.iter().zip(command).all(|(own, word)| own == word)
}

/// The words of a command that say what it does.
pub(crate) fn telling_words(argv: &[String]) -> &[String] {
    match is_own_tool(argv) {
        true => &argv[OWN_TOOLS.len()..],
        false => argv,
    }
}

/// The first line of a text that is not blank, in quotes; with an ellipsis if that is not all.
pub(crate) fn first_line(text: &str) -> String {
    let mut lines = text.lines();
    let first = lines.by_ref().find(|line| !line.trim().is_empty());
    let head = cut_to_columns(first.unwrap_or_default().trim_end(), STDIN_WIDTH);
    let head = match lines.next().is_some() && !head.ends_with('…') {
        true => format!("{head} …"),
        false => head,
    };
    shell_quoted(&[head])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_without_what_says_nothing() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let shown = |text: &str| telling_words(&words(text)).join(" ");
        assert_eq!(shown("delta coder-tool read a"), "read a");
        assert_eq!(shown("delta coder-tool"), "delta coder-tool");
        assert_eq!(shown("delta run coder-tool"), "delta run coder-tool");
        assert_eq!(shown("ls delta coder-tool x"), "ls delta coder-tool x");
    }

    #[test]
    fn the_first_line_says_whether_there_are_more() {
        assert_eq!(first_line("a b\n"), "'a b'");
        assert_eq!(first_line("\n  a b \nc"), "'  a b …'");
        assert_eq!(first_line(""), "''");
        assert!(first_line(&"x".repeat(200)).ends_with("x…'"));
    }
}
