//! An argv as a line that a person can paste into a shell.

use crate::text::disguise::disguises;

/// An argv as one line that can be pasted into a shell: bash, ksh, zsh, or any that knows `$'…'`
/// (POSIX.1-2024), which is used only where a control character would break or disguise the line.
pub(crate) fn shell_quoted(argv: &[impl AsRef<str>]) -> String {
    shell_quoted_where(argv, disguises)
}

/// Words for a shell, in which these characters are escaped.
pub(crate) fn shell_quoted_where(argv: &[impl AsRef<str>], hides: fn(char) -> bool) -> String {
    let words = argv
        .iter()
        .enumerate()
        .map(|(index, word)| quoted(word.as_ref(), index == 0, hides));
    words.collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str, is_program: bool, hides: fn(char) -> bool) -> String {
    let is_option = word.starts_with('-');
    let is_plain = |byte: u8| {
        let is_mark = matches!(
            byte,
            b'_' | b'-' | b'.' | b'/' | b':' | b',' | b'+' | b'@' | b'%'
        );
        byte.is_ascii_alphanumeric() || is_mark || byte == b'=' && is_option
    };
    // Nothing plain has to be escaped; most words are plain.
    let is_plain = !word.is_empty() && word.bytes().all(is_plain);
    if is_plain && !(is_program && is_keyword(word)) {
        word.to_owned()
    } else if word.chars().any(hides) {
        dollar_quoted(word, hides)
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The argv that a line of [`shell_quoted`] is; none if it is no such line.
pub(crate) fn unquoted(line: &str) -> Option<Vec<String>> {
    let mut words = vec![Vec::new()];
    let mut bytes = line.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let word = words.last_mut()?;
        match byte {
            b' ' => words.push(Vec::new()),
            b'\'' => loop {
                match bytes.next()? {
                    b'\'' => break,
                    inner => word.push(inner),
                }
            },
            b'\\' => word.push(bytes.next()?),
            b'$' if bytes.next_if_eq(&b'\'').is_some() => loop {
                match bytes.next()? {
                    b'\'' => break,
                    b'\\' => word.push(match bytes.next()? {
                        b'n' => b'\n',
                        b't' => b'\t',
                        b'r' => b'\r',
                        first @ b'0'..=b'3' => {
                            let mut digit = || Some(bytes.next()?.wrapping_sub(b'0') & 7);
                            (first - b'0') << 6 | digit()? << 3 | digit()?
                        }
                        other => other,
                    }),
                    inner => word.push(inner),
                }
            },
            _ => word.push(byte),
        }
    }
    words
        .into_iter()
        .map(|word| String::from_utf8(word).ok())
        .collect()
}

fn is_keyword(word: &str) -> bool {
    const KEYWORDS: [&str; 18] = [
        "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if",
        "in", "select", "then", "time", "until", "while", "repeat",
    ];
    KEYWORDS.contains(&word)
}

fn dollar_quoted(word: &str, hides: fn(char) -> bool) -> String {
    let mut line = "$'".to_owned();
    for c in word.chars() {
        match c {
            '\n' => line.push_str("\\n"),
            '\t' => line.push_str("\\t"),
            '\r' => line.push_str("\\r"),
            '\'' | '\\' => line.extend(['\\', c]),
            // An interactive shell may look for `!` before it looks for quotes.
            '!' => line.push_str("\\041"),
            _ if hides(c) => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    line.push('\\');
                    line.extend(
                        [byte >> 6, byte >> 3 & 7, byte & 7].map(|digit| char::from(b'0' + digit)),
                    );
                }
            }
            _ => line.push(c),
        }
    }
    line.push('\'');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_quoted_line_is_as_plain_as_it_can_be() {
        for (words, line) in [
            (
                vec!["ls", "-la", "--x=a/b.c", "a:b,c@d%e+f"],
                "ls -la --x=a/b.c a:b,c@d%e+f",
            ),
            (vec!["grep", "a b", "", "it's"], r"grep 'a b' '' 'it'\''s'"),
            (
                vec!["A=b", "c=d", "~", "#", "*", "é"],
                "'A=b' 'c=d' '~' '#' '*' 'é'",
            ),
            (vec!["if", "if"], "'if' if"),
            (
                vec!["a", "x\ny\t'\\\u{1b}!é\u{85}\u{202e}"],
                r"a $'x\ny\t\'\\\033\041é\302\205\342\200\256'",
            ),
            (vec![], ""),
        ] {
            assert_eq!(shell_quoted(&strings(&words)), line);
        }
        for broken in ["a 'b", r"a $'\", r"$'\30", r"$'\377'", r"a\"] {
            assert_eq!(unquoted(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_quoted_line_is_read_back_by_shells() {
        let mut random = fastrand::Rng::with_seed(3);
        let parts = [
            "a", "'", "\"", "\\", "$x", "`", " ", "\n", "\t", "\u{1}", "!", "*", "~", "#", "=",
            "é", "\u{9b}", "0", "7", "\\n", "$'", "{a,b}", "-", "&", ";", "\u{7f}", "\r",
        ];
        let (mut lines, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..300 {
            let mut argv = strings(&["printf", "%s|"]);
            for _ in 0..random.usize(1..5) {
                let word = (0..random.usize(0..7)).map(|_| parts[random.usize(0..parts.len())]);
                argv.push(word.collect());
            }
            let line = shell_quoted(&argv);
            assert_eq!(unquoted(&line).as_ref(), Some(&argv), "{line}");
            assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
            expected.push(argv[2..].join("|") + "|");
            lines.push(line);
        }
        for shell in ["bash", "dash"] {
            let is_known = |(line, _): &(&String, &String)| shell == "bash" || !line.contains("$'");
            let known = lines.iter().zip(&expected).filter(is_known);
            let script = known
                .clone()
                .map(|(line, _)| format!("{line}\nprintf '\\0'\n"));
            let script: String = script.collect();
            let output = Command::new(shell).args(["-c", &script]).output().unwrap();
            let stdout = String::from_utf8(output.stdout).unwrap();
            let mut read = stdout.split('\0');
            for (line, expected) in known {
                assert_eq!(read.next(), Some(&expected[..]), "{shell}: {line}");
            }
            assert_eq!((read.next(), read.next()), (Some(""), None), "{shell}");
        }
    }
}
