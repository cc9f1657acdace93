//! The command line: a tool's name, its values, each one word, and then the options that were given. The text that
//! `write` and `edit` are to write and the command of `bash` are on stdin, which has no limit.

use super::change::diff;
use super::edit::{Edit, LARGEST, edit_file, preview_edit};
use super::matching::Replacement;
use super::read::{PAGE_LINES, read_path};
use super::shell::{USUAL_SECONDS, run_command};
use super::target::{TargetFile, ToolRefusal};
use crate::error::{Error, Result, reason};
use crate::text::amounts::counted;
use crate::text::call_line::OWN_TOOLS;
use crate::unix::terminal::print;
use std::io::{self, Read, Write};
use std::path::Path;

/// The hidden command of delta.
pub(crate) const COMMAND: &str = OWN_TOOLS[1];

/// Runs a tool and returns its exit code: 1 for what the model must do in another way.
///
/// # Errors
/// Wrong usage, and what the system refuses.
pub(crate) fn run_tool(words: &[String]) -> Result<u8> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let answer = match words.as_slice() {
        ["read", path, options @ ..] => {
            let [offset, limit] = values(options, ["--offset=", "--limit="])?;
            let (offset, limit) = (number(offset, 1), number(limit, PAGE_LINES));
            offset.and_then(|offset| read_path(path, offset, limit?))
        }
        ["write", path] => write_file(path, &stdin()?),
        ["edit", path, old, options @ ..] => {
            let [all] = values(options, ["--all="])?;
            match String::from_utf8(stdin()?) {
                Ok(new) => edit_file(&Edit {
                    path,
                    old,
                    new: &new,
                    all: all.eq_ignore_ascii_case("true"),
                }),
                Err(_) => Err(ToolRefusal(
                    "new is not UTF-8; nothing was written".to_owned(),
                )),
            }
        }
        ["bash", options @ ..] => {
            // The reason is for the person who is asked whether the command may run.
            let [seconds, _reason] = values(options, ["--timeout=", "--reason="])?;
            let script = stdin()?;
            match number(seconds, USUAL_SECONDS).and_then(|seconds| run_command(seconds, &script)) {
                Ok(code) => return Ok(code),
                Err(refusal) => Err(refusal),
            }
        }
        _ => return Err(usage()),
    };
    match answer {
        Ok(text) => {
            let newline = if text.ends_with('\n') { "" } else { "\n" };
            print(format!("{text}{newline}").as_bytes())?;
            Ok(0)
        }
        Err(ToolRefusal(text)) => {
            // For the model alone, which knows which tool it has called.
            let line = format!("{}\n", text.trim_end());
            io::stderr()
                .write_all(line.as_bytes())
                .map_err(|e| Error::failure(format!("cannot write to stderr: {}", reason(&e))))?;
            Ok(1)
        }
    }
}

fn usage() -> Error {
    Error::usage(format!(
        "{COMMAND}: read PATH [--offset=LINE] [--limit=LINES], write PATH, edit PATH OLD [--all=true], or \
         bash [--timeout=SECONDS] [--reason=TEXT]; the text to write and the command are on stdin"
    ))
}

/// The values of these options, empty for one that is not given.
fn values<'w, const N: usize>(words: &[&'w str], names: [&str; N]) -> Result<[&'w str; N]> {
    let mut values = [""; N];
    for word in words {
        let at = names
            .iter()
            .position(|name| word.starts_with(name))
            .ok_or_else(usage)?;
        values[at] = &word[names[at].len()..];
    }
    Ok(values)
}

fn stdin() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match io::stdin().read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(e) => Err(Error::failure(format!("cannot read stdin: {}", reason(&e)))),
    }
}

/// The diff that a call would make, by the words of its command line, in a directory; none if it would make none.
pub(crate) fn preview(argv: &[String], stdin: &[u8], dir: &Path) -> Option<String> {
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let ["delta", COMMAND, tool, path, more @ ..] = argv.as_slice() else {
        return None;
    };
    let place = dir.join(path);
    let path = place.to_str()?;
    match (*tool, more) {
        ("write", []) => {
            let target = TargetFile::any(path).ok().filter(|it| !it.is_new())?;
            let before = target.read(LARGEST).ok()?;
            diff_of(&before, stdin).filter(|_| before != stdin)
        }
        ("edit", [old, options @ ..]) => preview_edit(&Edit {
            path,
            old,
            new: std::str::from_utf8(stdin).ok()?,
            all: options.contains(&"--all=true"),
        }),
        _ => None,
    }
}

/// A number as models write it: `120`, `120.0`; nothing is the default.
fn number(text: &str, default: usize) -> std::result::Result<usize, ToolRefusal> {
    let whole = text.strip_suffix(".0").unwrap_or(text);
    match whole.trim() {
        "" => Ok(default),
        text => text
            .parse()
            .map_err(|_| ToolRefusal(format!("'{text}' is not a whole number from 0"))),
    }
}

/// `write`: the whole of a file.
fn write_file(path: &str, bytes: &[u8]) -> std::result::Result<String, ToolRefusal> {
    let target = TargetFile::any(path)?;
    let lines = lines_of(bytes);
    if target.is_new() {
        target.replace(bytes)?;
        return Ok(format!("created {path}, {}", counted(lines, "line")));
    }
    let before = target.read(u64::MAX)?;
    if before == bytes {
        return Ok(format!(
            "{path} has this content already; nothing was written. If nothing else is left to do, give the final answer"
        ));
    }
    target.replace(bytes)?;
    let lines_before = lines_of(&before);
    let shrunk = if lines < lines_before / 2 || bytes.len() < before.len() / 2 {
        "; less than half is left: if that was not meant, write the whole file"
    } else {
        ""
    };
    Ok(format!(
        "replaced {path}, {lines_before} → {}{shrunk}{}",
        counted(lines, "line"),
        diff_of(&before, bytes).map_or_else(String::new, |diff| format!("\n{diff}"))
    ))
}

/// The change of a whole file as a diff; none if one of the two is no text.
fn diff_of(before: &[u8], now: &[u8]) -> Option<String> {
    let [before, now] = [before, now].map(std::str::from_utf8);
    let (before, now) = (before.ok()?, now.ok()?);
    let whole = Replacement {
        range: 0..before.len(),
        text: now.to_owned(),
    };
    Some(diff(before, &[whole]))
}

fn lines_of(bytes: &[u8]) -> usize {
    let ends = memchr::memchr_iter(b'\n', bytes).count();
    ends + usize::from(!bytes.is_empty() && !bytes.ends_with(b"\n"))
}
