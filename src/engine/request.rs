//! Building the request: the sources of context.yaml, in order, around the conversation.
//!
//! Unaware of how requests are sent. Constant parts come first and messages last, so that each request
//! begins with the bytes of the one before it until a source changes.

mod computed;

use crate::config::agent::{Agent, ComputedSource, Llm, Source, UpwardSource};
use crate::config::api::{Api, TakenAttachments};
use crate::config::environment::{Environment, is_loopback};
use crate::config::skill;
use crate::config::tool::definition::{Tool, Word, schema};
use crate::engine::run_context::RunContext;
use crate::engine::upward::read_upward;
use crate::error::{At, Error, is_passing, reason};
use crate::model::wire::Neutral;
use crate::record::engine_log::Level;
use crate::record::invocations::GivenFile;
use crate::record::messages::attached::ShownAttachments;
use crate::record::messages::{self, Form};
use crate::record::state::fallback_model;
use crate::text::json::{self, Object};
use crate::unix::files;
use computed::{block_in, generate};
use serde_json::Value;
use std::borrow::Cow;
use std::fs;
use std::io;

/// The largest file of a context source.
const LARGEST_FILE: u64 = 64 << 20;

/// Builds the requests of one start of the engine.
pub(crate) struct Builder {
    /// Everything up to the first message.
    head: Vec<u8>,
    /// Which computed files are not computed again in this start, and whether there is anything.
    computed: Vec<(usize, bool)>,
    blocks: ComputedBlocks,
    /// The parts that a request lacks because they cannot be read, or because nothing is run; each once.
    lacking: Vec<String>,
    /// Number of those that have been reported.
    reported: usize,
    /// The files of the newest request, and of the one before it.
    files: [Vec<GivenFile>; 2],
}

/// Source of the blocks of computed files.
enum ComputedBlocks {
    Generators,
    /// The files as they are: nothing is run.
    Files,
    /// A request of a recorded run.
    Recorded(Vec<u8>),
}

/// The reason why a request cannot be built.
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
            blocks: ComputedBlocks::Generators,
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
        self.blocks = ComputedBlocks::Files;
        self
    }

    /// Runs no generators for the next request. The blocks of computed files are those of this recorded one.
    pub(crate) fn take_blocks_of(&mut self, recorded: &[u8]) {
        self.blocks = ComputedBlocks::Recorded(recorded.to_vec());
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

    /// Appends to `out` the next request, around the conversation's messages.
    ///
    /// # Errors
    /// Disk errors, or a required source that is not available.
    pub(crate) fn request(
        &mut self,
        ctx: &RunContext<'_>,
        messages: &[u8],
        iteration: u64,
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
            if let Source::Journal { .. } = source {
                system_messages(&mut out, &mut blocks, context.separate);
                messages::splice(&mut out, messages);
                journal_seen = true;
                stable = out.len();
            } else {
                blocks.extend(self.block(ctx, index, source, iteration)?);
            }
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

    /// The block of a source other than the conversation. Its files are noted.
    fn block(
        &mut self,
        ctx: &RunContext<'_>,
        index: usize,
        source: &Source,
        iteration: u64,
    ) -> Built<Option<String>> {
        let source = match source {
            Source::Journal { .. } => return Ok(None),
            Source::Upward(source) => return self.upward_block(ctx, source),
            Source::File { id, path, optional } => {
                let block = file_block(ctx, id, path, *optional, &mut self.lacking)?;
                self.files[0].extend(block.iter().map(|block| GivenFile {
                    path: ctx.place(path),
                    bytes: (block.len() - heading(id).len()) as u64,
                    sent: None,
                }));
                return Ok(block);
            }
            Source::Computed(source) => source,
        };
        let id = &source.id;
        let block = match &self.blocks {
            ComputedBlocks::Recorded(request) => {
                let rest = ctx.agent.context.sources[index + 1..].iter();
                block_in(request, id, rest.filter_map(Source::id))
            }
            ComputedBlocks::Files => {
                let block = file_block(ctx, id, &source.output, true, &mut self.lacking)?;
                let used = match block {
                    None => "there is no earlier file, so it is left out",
                    Some(_) => "using the existing file",
                };
                self.lacking.push(format!(
                    "context source {id}: its program is not run; {used}"
                ));
                block
            }
            ComputedBlocks::Generators => self.computed_block(ctx, index, source, iteration)?,
        };
        if let Some(block) = &block {
            let paths = skill::listed_in(&block[heading(id).len()..]);
            self.files[0].extend(paths.filter_map(skill_file));
        }
        Ok(block)
    }

    /// The block of the files that are searched for upwards.
    fn upward_block(
        &mut self,
        ctx: &RunContext<'_>,
        source: &UpwardSource,
    ) -> Built<Option<String>> {
        let UpwardSource { id, name, .. } = source;
        let root = &ctx.workspace.root;
        let found = read_upward(root, name, source.max_bytes).at("read", &root.join(name))?;
        for left_out in &found.left_out {
            lack(
                &mut self.lacking,
                format!("context source {id} lacks {left_out}"),
            );
        }
        for text in &found.replaced {
            lack(&mut self.lacking, format!("context source {id}: {text}"));
        }
        if !found.text.is_empty() {
            let text = found.text;
            self.files[0].extend(found.files);
            return Ok(Some(heading(id) + &text));
        }
        if source.optional {
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
        source: &ComputedSource,
        iteration: u64,
    ) -> Built<Option<String>> {
        let id = &source.id;
        let earlier = self.computed.iter().find(|(at, _)| *at == index);
        let is_there = match earlier {
            Some((_, is_there)) => *is_there,
            None => match generate(ctx, source, iteration, &mut self.lacking) {
                Ok(()) => true,
                Err(Unbuilt::Unavailable(why)) if source.optional => {
                    let text = format!("context source {id} is skipped: {why}");
                    ctx.log.line(Level::Warn, &text);
                    false
                }
                Err(Unbuilt::Unavailable(why)) => return Err(unavailable(id, &why)),
                Err(failed) => return Err(failed),
            },
        };
        if source.once && earlier.is_none() {
            self.computed.push((index, is_there));
        }
        if !is_there {
            return Ok(None);
        }
        let mut block = file_block(ctx, id, &source.output, source.optional, &mut self.lacking)?;
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
    let read = if path.starts_with(root) && ctx.agent.has_wrapper() {
        files::read_within(root, &path, LARGEST_FILE)
    } else {
        files::read_regular_limited(&path, LARGEST_FILE).map(Some)
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
                let text = format!(
                    "context source {id} lacks characters of {}: it is not UTF-8",
                    path.display()
                );
                lack(lacking, text);
            }
            Ok(Some(heading(id) + &content))
        }
        Err(e) if optional && is_missing(&e) => Ok(None),
        Err(e) if is_passing(&e) => Ok(Err(e).at("read", &path)?),
        Err(e) => {
            let why = format!("cannot read {}: {}", path.display(), reason(&e));
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

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The form of the conversation in an agent's requests, before they are put into that of its API. `fallback` is the
/// model's name, if it is asked in place of the first.
pub(crate) fn form(llm: &Llm, environment: &Environment, fallback: Option<&str>) -> Form {
    let model = || fallback.map_or_else(|| llm.model_json(), |name| Some(fallback_model(name)));
    let mut form = match llm.api {
        Api::Chat => Form::chat(model()),
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
