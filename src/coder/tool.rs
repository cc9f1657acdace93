//! The command line: a tool's name, its values, each one word, and then the options that were given. The text that
//! `write` and `edit` are to write and the command of `bash` are on stdin, which has no limit.

use super::edit::{Edit, edit_file};
use super::read::{PAGE_LINES, read_path};
use super::shell::{USUAL_SECONDS, run_command};
use super::target::{TargetFile, ToolRefusal};
use crate::config::tool::shown::OWN_TOOLS;
use crate::error::{Error, Result, reason};
use crate::text::amounts::counted;
use crate::unix::terminal::print;
use std::io::{self, Read, Write};

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
        let at = names.iter().position(|name| word.starts_with(name));
        let at = at.ok_or_else(usage)?;
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
    let shrunk = match lines < lines_before / 2 || bytes.len() < before.len() / 2 {
        true => "; less than half is left: if that was not meant, write the whole file",
        false => "",
    };
    Ok(format!(
        "replaced {path}, {lines_before} → {}{shrunk}",
        counted(lines, "line")
    ))
}

fn lines_of(bytes: &[u8]) -> usize {
    let ends = memchr::memchr_iter(b'\n', bytes).count();
    ends + usize::from(!bytes.is_empty() && !bytes.ends_with(b"\n"))
}
