//! The command lines that a page shows, run as a reader would run them.
//!
//! A Markdown page shows them in fenced blocks: `sh`, a script of which each block has to succeed; and
//! `console`, where a line that begins with `$ ` is a command and the lines below it are what it prints.
//! In these `…` stands for any text, and a line that is nothing else for any number of lines. Blocks in
//! other languages are passed over. All commands of a page run in one shell, so that variables and the
//! directory last from one to the next.

use super::delta::{Delta, system_path};
use super::world::World;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// A command that a page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The line of the page on which it begins.
    pub line: usize,
    pub command: String,
    /// What it is said to print, if anything is said.
    pub output: Option<String>,
}

/// The commands in the fenced blocks of a Markdown page.
pub fn in_markdown(page: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let mut block: Option<(&str, &str)> = None;
    for (line, text) in (1..).zip(page.lines()) {
        let fence = text.trim_start().strip_prefix("```");
        let Some((language, indent)) = block else {
            block = fence.map(|language| {
                (
                    language.trim(),
                    &text[..text.len() - text.trim_start().len()],
                )
            });
            if let Some(("sh", _)) = block {
                let (line, command) = (line + 1, String::new());
                found.push(Shown {
                    line,
                    command,
                    output: None,
                });
            }
            continue;
        };
        let text = text.strip_prefix(indent).unwrap_or(text);
        match (language, fence) {
            (_, Some(_)) => block = None,
            ("sh", _) => add_line(&mut found.last_mut().expect("a block").command, text),
            ("console", _) => match text.strip_prefix("$ ") {
                Some(command) => {
                    let (command, output) = (command.to_owned() + "\n", None);
                    found.push(Shown {
                        line,
                        command,
                        output,
                    });
                }
                None => belongs_to(found.last_mut().expect("a line with $ first"), text),
            },
            _ => {}
        }
    }
    found
}

/// A line of a `console` block below a command: more of it, or what it prints.
fn belongs_to(shown: &mut Shown, text: &str) {
    let goes_on = shown.command.ends_with("\\\n") || has_open_here_document(&shown.command);
    if shown.output.is_none() && goes_on {
        add_line(&mut shown.command, text);
    } else {
        add_line(shown.output.get_or_insert_default(), text);
    }
}

/// Whether a command has the beginning of a here-document, `<<'END'`, and not its end.
fn has_open_here_document(command: &str) -> bool {
    let begun = command
        .split_once("<<'")
        .and_then(|(_, rest)| rest.split_once('\''));
    begun.is_some_and(|(end, rest)| !rest.lines().any(|line| line == end))
}

fn add_line(to: &mut String, line: &str) {
    to.push_str(line);
    to.push('\n');
}

/// Runs the commands of a page: `start` says how a shell runs a script. `/tmp/` in the commands stands for
/// the world's own `tmp/`. Panics if one of a `console` block prints something else than is shown, or if
/// one fails and the next is not `echo $?`.
#[track_caller]
pub fn run_shown(name: &str, commands: &[Shown], world: &World, start: impl FnOnce(&str) -> Delta) {
    let tmp = world.path("tmp");
    fs::create_dir_all(&tmp).expect("a directory");
    let own = |text: &str| text.replace("/tmp/", &format!("{}/", tmp.display()));
    let told = world.path("told");
    fs::create_dir_all(&told).expect("a directory");
    let mut script = String::new();
    for (at, shown) in commands.iter().enumerate() {
        let file = told.join(at.to_string());
        let file = file.display();
        // `$?` of the next command is that of this one.
        let command = own(&shown.command);
        writeln!(script, "{{\n{command}}} >{file}.output 2>&1\nset -- $?\necho \"$1\" >{file}.status\n(exit \"$1\")")
            .expect("memory");
    }
    start(&script).end();
    let read =
        |file: String| fs::read(told.join(file)).map(|b| String::from_utf8_lossy(&b).into_owned());
    for (at, shown) in commands.iter().enumerate() {
        let output = read(format!("{at}.output")).unwrap_or_default();
        let status = read(format!("{at}.status"));
        let what = format!("{name}:{}: {}", shown.line, shown.command.trim_end());
        let status = status.unwrap_or_else(|_| panic!("{what}\nended the shell\n{output}"));
        let status: i32 = status.trim().parse().expect("a status");
        let tells_status = commands
            .get(at + 1)
            .is_some_and(|next| next.command.trim() == "echo $?");
        assert!(
            status == 0 || tells_status,
            "{what}\nexit status {status}\n{output}"
        );
        if let Some(expected) = &shown.output {
            let (expected, seen): (Vec<_>, Vec<_>) =
                (expected.lines().collect(), output.lines().collect());
            let expected: Vec<String> = expected.into_iter().map(own).collect();
            assert!(
                is_like(&expected, &seen),
                "{what}\nis said to print\n{}\nprints\n{output}",
                expected.join("\n")
            );
        }
    }
}

/// `PATH` with the programs of this build before all others.
pub fn path() -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_delta")).parent();
    let programs = programs.expect("a directory");
    format!("{}:{}", programs.display(), system_path())
}

/// Whether lines are as shown.
fn is_like(shown: &[String], seen: &[&str]) -> bool {
    match shown.split_first() {
        None => seen.is_empty(),
        Some((any, rest)) if any.trim() == "…" => {
            (0..=seen.len()).any(|n| is_like(rest, &seen[n..]))
        }
        Some((line, rest)) => seen
            .split_first()
            .is_some_and(|(first, others)| is_line_like(line, first) && is_like(rest, others)),
    }
}

/// Whether a line is as shown.
fn is_line_like(shown: &str, seen: &str) -> bool {
    match shown.split_once('…') {
        None => shown == seen,
        Some((head, rest)) => seen.strip_prefix(head).is_some_and(|tail| {
            let starts = tail.char_indices().map(|(at, _)| at).chain([tail.len()]);
            starts.into_iter().any(|at| is_line_like(rest, &tail[at..]))
        }),
    }
}
