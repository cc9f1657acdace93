//! Building the request: the sources of context.yaml, in order, around the conversation.
//!
//! Unaware of how requests are sent. Constant parts come first and messages last, so that each request
//! begins with the bytes of the one before it until a source changes.

use crate::config::agent::{Agent, Llm, Source};
use crate::config::api::{Api, TakenAttachments};
use crate::config::environment::{Environment, is_loopback};
use crate::config::skill;
use crate::config::tool::definition::{Tool, Word, schema};
use crate::engine::observation::last_words;
use crate::engine::run_context::RunContext;
use crate::engine::upward::read_upward;
use crate::error::{At, Error, is_passing, reason};
use crate::model::wire::Neutral;
use crate::record::engine_log::Level;
use crate::record::invocations::GivenFile;
use crate::record::messages::attached::ShownAttachments;
use crate::record::messages::{self, Form};
use crate::record::state::fallback_model;
use crate::text::json::{self, LONGEST_EXCERPT, Object};
use crate::unix::files;
use crate::unix::process::{self, Command, Ended, SpawnError};
use serde_json::Value;
use std::borrow::Cow;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The largest file of a context source.
const LARGEST_FILE: u64 = 64 << 20;

/// Builds the requests of one start of the engine.
pub(crate) struct Builder {
    /// Everything up to the first message.
    head: Vec<u8>,
    /// Which computed files are not computed again in this start, and whether there is anything.
    computed: Vec<(usize, bool)>,
    /// Nothing is run: computed files are taken as they are.
    only_looks: bool,
    /// The parts that a request lacks because they cannot be read, or because nothing is run; each once.
    lacking: Vec<String>,
    /// How many of them have been reported.
    reported: usize,
    /// The files of the newest request, and of the one before it.
    files: [Vec<GivenFile>; 2],
}

/// Why a request cannot be built.
#[derive(Debug)]
pub(crate) enum Unbuilt {
    /// A source that is required cannot be had: the run fails with this.
    Unavailable(String),
    /// The disk's error.
    Failed(Error),
}

impl From<Error> for Unbuilt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Unbuilt> for Error {
    fn from(unbuilt: Unbuilt) -> Self {
        match unbuilt {
            Unbuilt::Unavailable(why) => Self::failure(why),
            Unbuilt::Failed(error) => error,
        }
    }
}

type Built<T> = std::result::Result<T, Unbuilt>;

impl Builder {
    /// A builder for an agent. `tools` is everything the model can call.
    pub(crate) fn new<'t>(agent: &Agent, tools: impl Iterator<Item = &'t Tool>) -> Self {
        Self {
            head: Self::head(agent, tools),
            computed: Vec::new(),
            only_looks: false,
            lacking: Vec::new(),
            reported: 0,
            files: Default::default(),
        }
    }

    /// Builds for the same agent with another model from now on.
    pub(crate) fn change_model(&mut self, other: Self) {
        self.head = other.head;
    }

    fn head<'t>(agent: &Agent, tools: impl Iterator<Item = &'t Tool>) -> Vec<u8> {
        let mut head = Vec::new();
        let mut object = Object::begin(&mut head);
        object.put_some("model", agent.llm.model.as_ref());
        for (key, value) in &agent.llm.parameters {
            object.put(key, value);
        }
        let tools: Vec<Value> = tools.map(schema).collect();
        if !tools.is_empty() {
            object.put("tools", &tools);
        }
        object.nest("messages").push(b'[');
        head
    }

    /// Runs no generators from now on. Computed files are used as they are; missing ones are left out.
    pub(crate) fn only_looking(mut self) -> Self {
        self.only_looks = true;
        self
    }

    /// The parts of the requests that are missing or stale, and have not been reported.
    pub(crate) fn lacking(&mut self) -> &[String] {
        let new = self.reported..;
        self.reported = self.lacking.len();
        &self.lacking[new]
    }

    /// The files of the newest request, if they differ from those of the one before.
    pub(crate) fn new_files(&self) -> Option<&[GivenFile]> {
        let [newest, before] = &self.files;
        (newest != before).then_some(newest)
    }

    /// Appends to `out` the next request, around the conversation's messages. With `recorded`, a request that was sent at this place in a recorded run, what
    /// generators wrote is taken from there, and none is run.
    ///
    /// # Errors
    /// Disk errors, or a required source that is not available.
    pub(crate) fn request(
        &mut self,
        ctx: &RunContext<'_>,
        messages: &[u8],
        iteration: u64,
        recorded: Option<&[u8]>,
        mut out: Vec<u8>,
    ) -> Built<Neutral> {
        let context = &ctx.agent.context;
        out.extend_from_slice(&self.head);
        let mut blocks: Vec<String> = Vec::new();
        let mut journal_seen = false;
        let mut stable = out.len();
        self.files.swap(0, 1);
        self.files[0].clear();
        for (index, source) in context.sources.iter().enumerate() {
            let block = match source {
                Source::Journal { .. } => {
                    system_messages(&mut out, &mut blocks, context.separate);
                    messages::splice(&mut out, messages);
                    journal_seen = true;
                    stable = out.len();
                    continue;
                }
                Source::File { id, path, optional } => {
                    let block = file_block(ctx, id, path, *optional, &mut self.lacking)?;
                    self.files[0].extend(block.iter().map(|block| GivenFile {
                        path: ctx.place(path),
                        bytes: (block.len() - heading(id).len()) as u64,
                        sent: None,
                    }));
                    block
                }
                Source::Upward { .. } => self.upward_block(ctx, source)?,
                Source::Computed { id, .. } if recorded.is_some() => {
                    let later = context.sources[index + 1..].iter().filter_map(Source::id);
                    recorded.and_then(|request| block_in(request, id, later))
                }
                Source::Computed { id, output, .. } if self.only_looks => {
                    let block = file_block(ctx, id, output, true, &mut self.lacking)?;
                    let used = match block {
                        None => "there is no earlier file, so it is left out",
                        Some(_) => "using the existing file",
                    };
                    self.lacking.push(format!(
                        "context source {id}: its program is not run; {used}"
                    ));
                    block
                }
                Source::Computed { .. } => self.computed_block(ctx, index, source, iteration)?,
            };
            if let (Source::Computed { id, .. }, Some(block)) = (source, &block) {
                let paths = skill::listed_in(&block[heading(id).len()..]);
                self.files[0].extend(paths.filter_map(skill_file));
            }
            blocks.extend(block);
        }
        if journal_seen {
            if !blocks.is_empty() {
                messages::message(&mut out, "user", &json_string(&joined(&blocks)));
            }
        } else {
            system_messages(&mut out, &mut blocks, context.separate);
            stable = out.len();
        }
        out.extend_from_slice(b"]}");
        Ok(Neutral {
            bytes: out,
            messages: self.head.len(),
            stable,
        })
    }

    /// The block of the files that are searched for upwards.
    fn upward_block(&mut self, ctx: &RunContext<'_>, source: &Source) -> Built<Option<String>> {
        let Source::Upward {
            id,
            name,
            max_bytes,
            optional,
        } = source
        else {
            return Ok(None);
        };
        let root = &ctx.workspace.root;
        let found = read_upward(root, name, *max_bytes).at("read", &root.join(name))?;
        for left_out in &found.left_out {
            lack(
                &mut self.lacking,
                format!("context source {id} lacks {left_out}"),
            );
        }
        if !found.text.is_empty() {
            let text = found.text;
            self.files[0].extend(found.files);
            return Ok(Some(heading(id) + &text));
        }
        if *optional {
            return Ok(None);
        }
        let why = match found.left_out.first() {
            Some(why) => format!("cannot read {why}"),
            None => format!("there is no {name} from {} up", root.display()),
        };
        Err(unavailable(id, &why))
    }

    /// The block of a computed file, which its generator brings up to date first.
    fn computed_block(
        &mut self,
        ctx: &RunContext<'_>,
        index: usize,
        source: &Source,
        iteration: u64,
    ) -> Built<Option<String>> {
        let Source::Computed {
            id,
            command,
            timeout,
            output,
            optional,
            once,
        } = source
        else {
            return Ok(None);
        };
        let earlier = self.computed.iter().find(|(at, _)| *at == index);
        let is_there = match earlier {
            Some((_, is_there)) => *is_there,
            None => match generate(
                ctx,
                id,
                command,
                *timeout,
                output,
                iteration,
                &mut self.lacking,
            ) {
                Ok(()) => true,
                Err(Unbuilt::Unavailable(why)) if *optional => {
                    let text = format!("context source {id} is skipped: {why}");
                    ctx.log.line(Level::Warn, &text);
                    false
                }
                Err(Unbuilt::Unavailable(why)) => return Err(unavailable(id, &why)),
                Err(failed) => return Err(failed),
            },
        };
        if *once && earlier.is_none() {
            self.computed.push((index, is_there));
        }
        if !is_there {
            return Ok(None);
        }
        let mut block = file_block(ctx, id, output, *optional, &mut self.lacking)?;
        if let Some(text) = &mut block {
            for secret in ctx.environment.secrets() {
                secret.redact_text(text);
            }
        }
        Ok(block)
    }
}

fn json_string(text: &str) -> Vec<u8> {
    json::text(text).into_bytes()
}

fn system_messages(out: &mut Vec<u8>, blocks: &mut Vec<String>, separate: bool) {
    if separate {
        for block in blocks.iter() {
            messages::message(out, "system", &json_string(block));
        }
    } else if !blocks.is_empty() {
        messages::message(out, "system", &json_string(&joined(blocks)));
    }
    blocks.clear();
}

/// Blocks with a blank line between them, whether they end with a newline or not.
fn joined(blocks: &[String]) -> String {
    let mut text = String::new();
    for block in blocks {
        if !text.is_empty() {
            text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
        }
        text.push_str(block);
    }
    text
}

/// The block of a file. One that may be missing and cannot be read is left out.
fn file_block(
    ctx: &RunContext<'_>,
    id: &str,
    path: &Word,
    optional: bool,
    lacking: &mut Vec<String>,
) -> Built<Option<String>> {
    let root = &ctx.workspace.root;
    let path = root.join(ctx.place(path));
    let read = match path.starts_with(root) && ctx.agent.has_wrapper() {
        true => files::read_within(root, &path, LARGEST_FILE),
        false => files::read_regular_limited(&path, LARGEST_FILE).map(Some),
    };
    match read {
        Ok(None) => {
            let why = format!("{}: it is a link out of the workspace", path.display());
            if !optional {
                return Err(unavailable(id, &format!("cannot read {why}")));
            }
            lack(lacking, format!("context source {id} lacks {why}"));
            Ok(None)
        }
        Ok(Some(bytes)) => {
            let content = String::from_utf8_lossy(&bytes);
            if matches!(content, Cow::Owned(_)) {
                let path = path.display();
                lack(
                    lacking,
                    format!("context source {id} lacks characters of {path}: it is not UTF-8"),
                );
            }
            Ok(Some(heading(id) + &content))
        }
        Err(e) if optional && is_missing(&e) => Ok(None),
        Err(e) if is_passing(&e) => Ok(Err(e).at("read", &path)?),
        Err(e) => {
            let path = path.display();
            let why = format!("cannot read {path}: {}", reason(&e));
            if optional {
                lack(lacking, format!("context source {id} is skipped: {why}"));
                return Ok(None);
            }
            Err(unavailable(id, &why))
        }
    }
}

/// The first lines of a block.
fn heading(id: &str) -> String {
    format!("# Context Block: {id}\n\n")
}

/// The file of a skill that a catalogue lists, if it is there.
fn skill_file(path: &str) -> Option<GivenFile> {
    Some(GivenFile {
        path: path.to_owned(),
        bytes: fs::metadata(path).ok()?.len(),
        sent: None,
    })
}

fn lack(lacking: &mut Vec<String>, text: String) {
    if !lacking.contains(&text) {
        lacking.push(text);
    }
}

fn unavailable(id: &str, why: &str) -> Unbuilt {
    Unbuilt::Unavailable(format!("context source {id}: {why}"))
}

/// A context block as a recorded request has it: up to the block of one of the sources that come
/// `later`, or the end of its message. Joined with its neighbours again it is the same text, whether
/// it ended with a newline or not.
fn block_in<'s>(request: &[u8], id: &str, later: impl Iterator<Item = &'s str>) -> Option<String> {
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
    let next = later.filter_map(|id| block.find(&format!("\n\n{}", heading(id))));
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

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The form of the conversation in an agent's requests, before they are put into that of its API.
pub(crate) fn form(llm: &Llm, environment: &Environment) -> Form {
    let mut form = match llm.api {
        Api::Chat => Form::chat(llm.model_json()),
        Api::Responses | Api::Messages => Form::neutral(),
    };
    form.shown = shown(llm, environment);
    form
}

/// The same for a model of this name that is asked in place of the first.
pub(crate) fn fallback_form(llm: &Llm, name: &str, environment: &Environment) -> Form {
    let mut form = match llm.api {
        Api::Chat => Form::chat(Some(fallback_model(name))),
        Api::Responses | Api::Messages => Form::neutral(),
    };
    form.shown = shown(llm, environment);
    form
}

/// The attachments that a model takes. Servers on this machine, as llama.cpp's, drop some without a word.
fn shown(llm: &Llm, environment: &Environment) -> ShownAttachments {
    let endpoint = || environment.endpoint(llm.api, None, &[]).ok();
    let url = llm.base_url.clone().or_else(|| Some(endpoint()?.base_url));
    let is_program = llm.command.is_some();
    let is_near = !is_program && url.is_some_and(|url| is_loopback(&url));
    let default = ShownAttachments::default();
    match llm.attachments {
        Some(TakenAttachments::All) => default,
        Some(TakenAttachments::Images) => ShownAttachments {
            documents: false,
            ..default
        },
        Some(TakenAttachments::Nothing) => ShownAttachments {
            pictures: false,
            documents: false,
            ..default
        },
        None => ShownAttachments {
            documents: !(is_near && llm.api == Api::Messages),
            webp: !(is_near && llm.api == Api::Chat),
            ..default
        },
    }
}

/// Runs a generator. What it prints becomes the file if it did not write the file itself.
fn generate(
    ctx: &RunContext<'_>,
    id: &str,
    command: &[Word],
    timeout: Duration,
    output: &Word,
    iteration: u64,
    lacking: &mut Vec<String>,
) -> Built<()> {
    let argv = ctx.argv(command);
    let output = ctx.workspace.root.join(ctx.place(output));
    let printed = ctx.run.path.join("generator.out");
    files::remove(&printed)?;
    // Without a name: keys in it are replaced before it is kept.
    let stderr = files::create(&printed)?;
    files::remove(&printed)?;
    let before = version(&output);
    let command = Command {
        argv: &argv,
        dir: &ctx.workspace.root,
        env: &ctx.run_variables(iteration),
        call_id: &RunContext::own_call_id(),
        stdin: None,
        stdout: files::create(&printed)?,
        stderr: stderr.try_clone().at("open", &printed)?,
        timeout: Some(timeout),
    };
    let program = &argv[0];
    let ran = process::run(&ctx.signals, command, ctx.grace());
    let outcome = match ran {
        Ok(outcome) => outcome,
        Err(SpawnError::Other(e)) if is_passing(&e) => {
            return Ok(Err(e).at("start", Path::new(program))?);
        }
        Err(error) => {
            files::remove(&printed)?;
            return Err(Unbuilt::Unavailable(error.message(program)));
        }
    };
    ctx.log.take(&stderr).at("read", &printed)?;
    let secrets = ctx.environment.secrets();
    let said = last_words(&stderr, &secrets).at("read", &printed)?;
    let mut all = files::read_part(&stderr, 0, LONGEST_EXCERPT).at("read", &printed)?;
    for secret in &secrets {
        secret.redact(&mut all);
    }
    for skipped in skill::skipped_in(&String::from_utf8_lossy(&all)) {
        lack(lacking, format!("context source {id} lacks {skipped}"));
    }
    ctx.log.ended(&format!("generator of {id}"), &outcome);
    let result = match outcome.how {
        Ended::Exited(0) => {
            let text = files::read_regular(&printed).at("read", &printed)?;
            if !text.is_empty() && version(&output) == before {
                match write_output(&ctx.workspace.root, &output, &text) {
                    Err(error) if !error.is_passing => {
                        files::remove(&printed)?;
                        return Err(Unbuilt::Unavailable(error.message));
                    }
                    written => written?,
                }
            }
            if output.exists() {
                Ok(())
            } else {
                Err(format!("{program} wrote no {}{said}", output.display()))
            }
        }
        Ended::Exited(code) => Err(format!("{program} ended with exit code {code}{said}")),
        Ended::TimedOut => Err(format!(
            "{program} timed out after {} ms{said}",
            timeout.as_millis()
        )),
        Ended::Interrupted(_) => Err(format!("{program} was interrupted")),
    };
    files::remove(&printed)?;
    result.map_err(Unbuilt::Unavailable)
}

/// Writes what a generator printed. Tools may have made links on the way to a file in the workspace.
fn write_output(root: &Path, output: &Path, text: &[u8]) -> crate::error::Result<()> {
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

#[cfg(test)]
mod tests {
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
