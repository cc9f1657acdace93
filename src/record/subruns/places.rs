//! The directories in which a command starts runs, as far as its words show them.

use std::path::{Path, PathBuf};

/// The workspaces that a command names which starts runs, as far as words can show: those of `delta run`
/// and `delta continue` behind any wrapper, and in a script for a shell. Relative paths begin in `dir`.
pub(super) fn named_in(command: &str, dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let words = shlex::split(command).unwrap_or_default();
    for (at, word) in words.iter().enumerate() {
        let is_delta = Path::new(word)
            .file_name()
            .is_some_and(|name| name == "delta");
        let verb = words.get(at + 1).map(String::as_str);
        if is_delta && matches!(verb, Some("run" | "continue")) {
            found.extend(named_by_options(&words[at + 2..], dir));
        } else if word.contains(char::is_whitespace) && word.len() < command.len() {
            found.extend(named_in(word, dir));
        }
    }
    found
}

/// Without `-w`, a sub-agent works below its own directory.
fn named_by_options(words: &[String], dir: &Path) -> Vec<PathBuf> {
    const LONG_WITH_VALUE: [&str; 5] = [
        "--agent",
        "--message",
        "--run-id",
        "--max-iterations",
        "--format",
    ];
    let (mut workspace, mut agent) = (None, None);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        } else if let Some(value) = word.strip_prefix("--work-dir=") {
            workspace = Some(value);
        } else if word == "--work-dir" {
            workspace = words.next();
        } else if let Some(value) = word.strip_prefix("--agent=") {
            agent = Some(value);
        } else if word == "--agent" {
            agent = words.next();
        } else if LONG_WITH_VALUE.contains(&word) {
            words.next();
        } else if let Some(flags) = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'))
            && let Some(at) = flags.find(['w', 'a', 'm'])
        {
            let value = match &flags[at + 1..] {
                "" => words.next(),
                rest => Some(rest),
            };
            match &flags[at..=at] {
                "w" => workspace = value,
                "a" => agent = value,
                _ => {}
            }
        }
    }
    match workspace {
        Some(workspace) => vec![dir.join(workspace)],
        None => {
            let home = dir.join(agent.unwrap_or("."));
            let numbered = crate::record::own_workspaces::numbered(&home).unwrap_or_default();
            numbered
                .into_iter()
                .map(|name| home.join("workspaces").join(name))
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_found_in_the_words_of_a_command() {
        let named = |command: &str| named_in(command, Path::new("/ws"));
        let there = |path: &str| vec![PathBuf::from(path)];
        for (command, workspace) in [
            ("delta run -w sub -m go", "/ws/sub"),
            (
                "/usr/bin/delta run -qa ../x -w/over/there -m -w",
                "/over/there",
            ),
            (
                "bwrap --bind / / -- delta continue --work-dir=../b",
                "/ws/../b",
            ),
            ("delta run --message '-w no' --work-dir 'a b'", "/ws/a b"),
            ("sh -c 'cd . && delta run -q -w /x -m \"$1\"' -- go", "/x"),
        ] {
            assert_eq!(named(command), there(workspace), "{command}");
        }
        for command in [
            "delta log -w x",
            "echo delta run",
            "delta run -m 'unbalanced",
        ] {
            assert!(named(command).is_empty(), "{command}");
        }
    }
}
