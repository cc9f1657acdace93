//! The blocks of computed files: brought up to date by their generators, or as a recorded request has them.

use super::{Built, Unbuilt, heading, lack};
use crate::config::agent::ComputedSource;
use crate::config::skill;
use crate::engine::observation::last_words;
use crate::engine::run_context::RunContext;
use crate::error::{At, Result, is_passing};
use crate::text::json::LONGEST_EXCERPT;
use crate::unix::files;
use crate::unix::process::{self, Command, Ended, SpawnError};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Runs a generator. What it prints becomes the file if it did not write the file itself.
pub(super) fn generate(
    ctx: &RunContext<'_>,
    source: &ComputedSource,
    iteration: u64,
    lacking: &mut Vec<String>,
) -> Built<()> {
    let printed = ctx.run.path.join("generator.out");
    files::remove(&printed)?;
    let generated = run_generator(ctx, source, iteration, lacking, &printed);
    files::remove(&printed)?;
    generated
}

/// Runs a generator, whose output goes to this file.
fn run_generator(
    ctx: &RunContext<'_>,
    source: &ComputedSource,
    iteration: u64,
    lacking: &mut Vec<String>,
    printed: &Path,
) -> Built<()> {
    let id = &source.id;
    let argv = ctx.argv(&source.command);
    let output = ctx.workspace.root.join(ctx.place(&source.output));
    // Without a name: keys in it are replaced before it is kept.
    let stderr = files::create(printed)?;
    files::remove(printed)?;
    let before = version(&output);
    let command = Command {
        argv: &argv,
        dir: &ctx.workspace.root,
        env: &ctx.run_variables(iteration),
        call_id: &RunContext::own_call_id(),
        stdin: None,
        stdout: files::create(printed)?,
        stderr: stderr.try_clone().at("open", printed)?,
        timeout: Some(source.timeout),
    };
    let program = &argv[0];
    let ran = process::run(&ctx.signals, command, ctx.grace());
    let outcome = match ran {
        Ok(outcome) => outcome,
        Err(SpawnError::Other(e)) if is_passing(&e) => {
            return Ok(Err(e).at("start", Path::new(program))?);
        }
        Err(error) => return Err(Unbuilt::Unavailable(error.message(program))),
    };
    ctx.log.take(&stderr).at("read", printed)?;
    let secrets = ctx.environment.secrets();
    let said = last_words(&stderr, &secrets).at("read", printed)?;
    let mut all = files::read_part(&stderr, 0, LONGEST_EXCERPT).at("read", printed)?;
    for secret in &secrets {
        secret.redact(&mut all);
    }
    for skipped in skill::skipped_in(&String::from_utf8_lossy(&all)) {
        lack(lacking, format!("context source {id} lacks {skipped}"));
    }
    ctx.log.ended(&format!("generator of {id}"), &outcome);
    let why = match outcome.how {
        Ended::Exited(0) => {
            let text = files::read_regular(printed).at("read", printed)?;
            if !text.is_empty() && version(&output) == before {
                match write_output(&ctx.workspace.root, &output, &text) {
                    Err(error) if !error.is_passing => {
                        if source.optional {
                            lack(
                                lacking,
                                format!("context source {id} is skipped: {}", error.message),
                            );
                        }
                        return Err(Unbuilt::Unavailable(error.message));
                    }
                    written => written?,
                }
            }
            if output.exists() {
                return Ok(());
            }
            format!("{program} wrote no {}{said}", output.display())
        }
        Ended::Exited(code) => format!("{program} ended with exit code {code}{said}"),
        Ended::TimedOut => format!(
            "{program} timed out after {} ms{said}",
            source.timeout.as_millis()
        ),
        Ended::Interrupted(_) => format!("{program} was interrupted"),
    };
    Err(Unbuilt::Unavailable(why))
}

/// Writes what a generator printed. Tools may have made links on the way to a file in the workspace.
fn write_output(root: &Path, output: &Path, text: &[u8]) -> Result<()> {
    if let Ok(below) = output.strip_prefix(root) {
        return files::replace_below(root, below, text);
    }
    if let Some(parent) = output.parent() {
        files::make_dirs(parent)?;
    }
    files::replace(output, text)
}

/// Changes whenever a file is written or replaced.
fn version(path: &Path) -> Option<(u64, i64, i64, u64)> {
    let meta = path.metadata().ok()?;
    Some((meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len()))
}

/// A context block as a recorded request has it: up to the block of one of the sources in
/// `rest`, or the end of its message. Joined with its neighbours again it is the same text, whether
/// it ended with a newline or not.
pub(super) fn block_in<'s>(
    request: &[u8],
    id: &str,
    rest: impl Iterator<Item = &'s str>,
) -> Option<String> {
    let request: Value = serde_json::from_slice(request).ok()?;
    let own = heading(id);
    let mut texts = Vec::new();
    for key in ["system", "instructions", "messages", "input"] {
        texts_in(request.get(key), &mut texts);
    }
    let block = texts.into_iter().find_map(|text| {
        let at = match text.strip_prefix(&own) {
            Some(_) => 0,
            None => text.find(&format!("\n\n{own}"))? + 2,
        };
        Some(&text[at..])
    })?;
    let next = rest.filter_map(|id| block.find(&format!("\n\n{}", heading(id))));
    // Keep one of the two line breaks; it does not matter which of them was the block's own.
    let end = next.min().map_or(block.len(), |at| at + 1);
    Some(block[..end].to_owned())
}

/// The texts of messages in the form of any API, in order.
fn texts_in<'v>(value: Option<&'v Value>, texts: &mut Vec<&'v str>) {
    match value {
        Some(Value::String(text)) => texts.push(text),
        Some(Value::Array(list)) => list.iter().for_each(|item| texts_in(Some(item), texts)),
        Some(Value::Object(item)) => {
            for key in ["content", "text"] {
                texts_in(item.get(key), texts);
            }
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_)) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::joined;
    use super::*;

    #[test]
    fn a_block_is_found_in_a_request_and_joins_to_the_same_text() {
        for (first, second) in [("one", "two\n"), ("one\n", ""), ("", "two\n\nthree")] {
            let blocks = ["a", "b", "c"].map(|id| {
                let text = if id == "b" { second } else { first };
                format!("# Context Block: {id}\n\n{text}")
            });
            let text = joined(&blocks);
            let request = serde_json::json!({"messages": [{"role": "system", "content": text}]});
            let request = request.to_string().into_bytes();
            let found = [
                block_in(&request, "a", ["b", "c"].into_iter()).unwrap(),
                block_in(&request, "b", ["c"].into_iter()).unwrap(),
                block_in(&request, "c", [].into_iter()).unwrap(),
            ];
            assert_eq!(joined(&found), text);
            assert_eq!(block_in(&request, "d", [].into_iter()), None);
        }
    }
}
