//! `delta-flow repl`: a flow line by line. Each line is an input of one ordinary run, whose inputs are the lines of a file
//! that grows.
//!
//! Unaware of how a run is resumed; between two lines it has ended.

use super::args::{FlowRunArgs, named_run_id};
use super::basis::{self, RunBasis, RunInput};
use super::check;
use super::run::run_typed;
use super::show;
use crate::engine::line_reader::{LineReader, Typed};
use crate::engine::run_context::RunContext;
use crate::error::{At, Error, Exit, Result};
use crate::flow::PROGRAM;
use crate::flow::manifest::cli_profile::{COMMANDS, CliProfile, LineMode, ProfileCommand};
use crate::flow::manifest::{self, Flow};
use crate::record::run_dir::FLOW_RUN;
use crate::record::workspace::Workspace;
use crate::runs::origin::create_own;
use crate::runs::preflight::{check_depth, install_signals};
use crate::text::disguise::printable;
use crate::text::ids::RunId;
use crate::text::json;
use crate::text::options::parse::ParsedCommand;
use crate::text::suggestion::nearest;
use crate::text::timestamp::Timestamp;
use crate::unix::draft::edit_draft;
use crate::unix::files;
use crate::unix::line_editor::{Completion, RECALLED};
use crate::unix::line_history::LineHistory;
use crate::unix::process::{self, Command, GRACE};
use crate::unix::signals::{Signals, Stop};
use crate::unix::terminal::{Screen, Tone, print};
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// The directory of what was typed, beside the runs of a workspace; its name can be none of theirs.
const DIR: &str = ".repl";

/// The number of typed lines that are shown.
const SHOWN: usize = 100;

/// The largest file that is attached, or edited, in bytes.
const LARGEST: u64 = 1 << 20;

/// Runs the command.
pub(crate) fn talk_to_flow(given: &ParsedCommand) -> Result<Exit> {
    check_depth()?;
    let dir = given.operand_dir(0);
    let flow = check::usable(manifest::load_to_run(&dir))?;
    let workspace = Workspace::at(&given.work_dir())?;
    workspace.check_layout()?;
    workspace.check_writable()?;
    create_own(&workspace, false)?;
    let own_dir = files::make_dirs_below(&workspace.control, DIR.as_ref())?;
    let signals = install_signals()?;
    let profile = match given.text("--profile") {
        Some(id) => find_profile(&flow, &id)?.clone(),
        None => flow.cli_profiles.first().cloned().unwrap_or_default(),
    };
    let quiet = given.has("--quiet");
    let repl = Repl {
        args: FlowRunArgs {
            dir,
            run_id: named_run_id(given)?,
            jobs: given.number("--jobs"),
            keep_going: true,
            quiet,
            ..FlowRunArgs::default()
        },
        flow: &flow,
        workspace: &workspace,
        signals: &signals,
        screen: Screen::new(quiet, false),
        is_typed: io::stdin().is_terminal() && io::stderr().is_terminal(),
        profile,
        run: None,
        files: Vec::new(),
        history: LineHistory {
            path: own_dir.join("history.jsonl"),
        },
        own_dir,
    };
    repl.talk()
}

fn find_profile<'f>(flow: &'f Flow, id: &str) -> Result<&'f CliProfile> {
    let found = flow.cli_profiles.iter().find(|profile| profile.id == id);
    found.ok_or_else(|| {
        let known = flow.cli_profiles.iter().map(|profile| &*profile.id);
        if flow.cli_profiles.is_empty() {
            Error::usage("the flow has no cli_profiles.yaml")
        } else {
            basis::unknown_name("profile", id, known)
        }
    })
}

/// A conversation with a flow, between two lines.
struct Repl<'r> {
    /// The command that each line is, but for its input, its start and its run.
    args: FlowRunArgs,
    flow: &'r Flow,
    workspace: &'r Workspace,
    signals: &'r Signals,
    screen: Screen,
    /// A person types: there are prompts, and a failure ends nothing.
    is_typed: bool,
    profile: CliProfile,
    /// None before the first line.
    run: Option<RunId>,
    /// The names and the texts of files for the next line.
    files: Vec<(String, String)>,
    /// All that was typed.
    history: LineHistory,
    /// The directory of what was typed.
    own_dir: PathBuf,
}

impl Repl<'_> {
    fn talk(mut self) -> Result<Exit> {
        if self.is_typed {
            let text = format!(
                "{}, in {}; Ctrl-D ends",
                self.flow.name(),
                self.workspace.root.display()
            );
            self.screen.progress(&[(Tone::Dim, &text)]);
        }
        let recalled = self.history.newest(RECALLED).unwrap_or_default();
        let mut reader = LineReader::new(self.completion(), recalled);
        loop {
            let line = match reader.next_message(self.signals)? {
                Typed::Message(line) => line,
                Typed::End => return Ok(Exit::Success),
                Typed::Stopped(stop) => return Ok(stop.into()),
            };
            if let Some(exit) = self.follow(&line)? {
                return Ok(exit);
            }
        }
    }

    /// The commands, and whether a path follows.
    fn completion(&self) -> Completion {
        let own = self.profile.commands.iter().map(|own| &*own.name);
        let names = COMMANDS.into_iter().chain(own);
        names
            .map(|name| (format!("/{name}"), name == "attach"))
            .collect()
    }

    /// Does what a line says. Returns how the conversation ends, if it does: without a terminal, a fault ends it.
    fn follow(&mut self, line: &str) -> Result<Option<Exit>> {
        self.history.add(line);
        let done = match line.trim_start().strip_prefix('/') {
            Some(command) => self.obey(command.trim()),
            None => self.say(line).map(Some),
        };
        match self.signals.stop() {
            Some(Stop::Interrupt) if self.is_typed => {
                self.signals.forget_interrupt();
                return Ok(None);
            }
            Some(stop) => return Ok(Some(stop.into())),
            None => {}
        }
        match done {
            Ok(None) => Ok(Some(Exit::Success)),
            Ok(Some(Exit::Success)) => Ok(None),
            Ok(Some(exit)) => Ok((!self.is_typed).then_some(exit)),
            Err(error) if self.is_typed => {
                self.screen.warn_as(PROGRAM, &error.message);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the flow a line, and prints what comes of it.
    fn say(&mut self, line: &str) -> Result<Exit> {
        let payload = self.payload(line)?;
        self.files.clear();
        let named = self.run.as_ref().or(self.args.run_id.as_ref()).cloned();
        let id = named.unwrap_or_else(|| RunId::generate(Timestamp::now()));
        let inputs = self.own_dir.join(format!("{id}.jsonl"));
        let mut file = files::append(&inputs)?;
        file.write_all(format!("{}\n", json::text(&payload)).as_bytes())
            .at("write", &inputs)?;
        let args = FlowRunArgs {
            start: self.profile.start.clone(),
            inputs: Some(inputs.clone()),
            run_id: Some(id.clone()),
            ..self.args.clone()
        };
        self.run = Some(id);
        let basis = RunBasis {
            start: basis::find_start(self.flow, args.start.as_deref())?,
            given: RunInput::Lines(inputs),
            is_said: true,
        };
        run_typed(self.flow, &args, basis, self.workspace, self.signals)
    }

    /// The input that a line is, with the files that were attached.
    fn payload(&self, line: &str) -> Result<Value> {
        match self.profile.mode {
            LineMode::Raw => {
                let text = |(name, text): &(String, String)| format!("# File: {name}\n\n{text}");
                let files = self.files.iter().map(text);
                let parts: Vec<String> = files.chain([line.to_owned()]).collect();
                Ok(parts.join("\n\n").into())
            }
            LineMode::Json => {
                let value: Value =
                    serde_json::from_str(json::after_mark(line)).map_err(|error| {
                        let why = json::parser_message(&error);
                        Error::usage(format!("not JSON: {why}; each line is one value"))
                    })?;
                if self.files.is_empty() {
                    return Ok(value);
                }
                let file = |(name, text): &(String, String)| json!({"name": name, "text": text});
                let files: Value = self.files.iter().map(file).collect();
                Ok(json!({"input": value, "files": files}))
            }
        }
    }

    /// Does what a command says. None: the conversation is to end.
    fn obey(&mut self, line: &str) -> Result<Option<Exit>> {
        let (name, rest) = match line.split_once(char::is_whitespace) {
            Some((name, rest)) => (name, rest.trim()),
            None => (line, ""),
        };
        match name {
            "quit" => return Ok(None),
            "attach" => self.attach(rest)?,
            "edit" => {
                if let Some(text) = self.edit()? {
                    return self.say(&text).map(Some);
                }
            }
            "profile" => self.choose_profile(rest)?,
            "history" => self.print_history()?,
            "show" => self.show(rest)?,
            name => {
                let own = self.profile.commands.iter();
                if let Some(command) = own.clone().find(|own| own.name == name) {
                    self.run_command(&command.clone(), rest)?;
                    return Ok(Some(Exit::Success));
                }
                let known: Vec<&str> = own.map(|own| &*own.name).chain(COMMANDS).collect();
                let hint = match nearest(name, known.iter().copied()) {
                    Some(near) => format!("did you mean /{near}?"),
                    None => format!("there are /{}", known.join(", /")),
                };
                return Err(Error::usage(format!("there is no command /{name}; {hint}")));
            }
        }
        Ok(Some(Exit::Success))
    }

    fn attach(&mut self, name: &str) -> Result<()> {
        if name.is_empty() {
            return Err(Error::usage("/attach FILE"));
        }
        let text = read_text(Path::new(name))?;
        self.files.push((name.to_owned(), text));
        Ok(())
    }

    /// Lets the person write a text in an editor. None if it is empty.
    fn edit(&self) -> Result<Option<String>> {
        let name = format!("edit-{}.txt", std::process::id());
        edit_draft(&self.own_dir.join(name), "")
    }

    /// Changes to a profile, or lists all. Where tasks begin elsewhere, another run begins.
    fn choose_profile(&mut self, id: &str) -> Result<()> {
        if id.is_empty() {
            let line = |it: &CliProfile| {
                let mark = if it.id == self.profile.id { "*" } else { " " };
                format!("{mark} {}  {}\n", it.id, it.mode.name())
            };
            let list: String = self.flow.cli_profiles.iter().map(line).collect();
            return print(list.as_bytes());
        }
        let profile = find_profile(self.flow, id)?.clone();
        if profile.start != self.profile.start {
            self.run = None;
        }
        self.profile = profile;
        Ok(())
    }

    fn print_history(&self) -> Result<()> {
        let last = self.history.newest(SHOWN)?;
        print(printable(&(last.join("\n") + "\n")).as_bytes())
    }

    /// Shows the run, a task of it, or a node.
    fn show(&self, names: &str) -> Result<()> {
        let Some(run) = &self.run else {
            return Err(Error::usage("there is no run yet"));
        };
        let words = names.split_whitespace().map(str::to_owned);
        let all: Vec<String> = [run.to_string()].into_iter().chain(words).collect();
        show::show_run(&self.workspace.root, &all).map(drop)
    }

    /// Runs a command of the profile, with the rest of the line on its standard input.
    fn run_command(&self, own: &ProfileCommand, rest: &str) -> Result<()> {
        let root = &self.workspace.root;
        let argv = own.command.argv(&self.flow.home, root);
        let text = |path: &Path| Some(path.to_string_lossy().into_owned());
        let env = [
            ("FLOW_HOME", text(&self.flow.home)),
            ("FLOW_WORKSPACE", text(root)),
            ("CWD", text(root)),
            (FLOW_RUN, self.run.as_ref().map(ToString::to_string)),
        ];
        let [stdout, stderr] = process::own_output().at("open", root)?;
        let command = Command {
            argv: &argv,
            dir: root,
            env: &env.map(|(name, value)| (name.to_owned(), value)),
            call_id: &RunContext::new_call_id(),
            stdin: Some(files::in_memory(rest.as_bytes()).at("create", root)?),
            stdout,
            stderr,
            timeout: None,
        };
        let ran = process::run(self.signals, command, GRACE);
        let outcome = ran.map_err(|error| Error::failure(error.message(&argv[0])))?;
        match outcome.how.code() {
            0 => Ok(()),
            code => Err(Error::failure(format!("/{}: exit code {code}", own.name))),
        }
    }
}

fn read_text(path: &Path) -> Result<String> {
    let file = files::open_readable(path).at("read", path)?;
    let bytes = files::read_limited(file, LARGEST).at("read", path)?;
    String::from_utf8(bytes).map_err(|_| Error::usage(format!("{} is not UTF-8", path.display())))
}
