//! `delta init`: makes a new agent.

use crate::cli::agent_file::AgentFile;
use crate::cli::agent_names::find_word;
use crate::cli::templates::{self, Template};
use crate::config::environment::{Environment, MODEL, SETUP, run_no_key_command};
use crate::config::{load, person};
use crate::error::{At, Error, Exit, Result, ignore};
#[cfg(feature = "flow")]
use crate::flow;
use crate::text::disguise::disguises;
use crate::text::options::parse::ParsedCommand;
use crate::text::shell::shell_quoted;
use crate::unix::files;
use crate::unix::new_files::{NewFile, check_unused, write_new};
use crate::unix::terminal::{Screen, Tone, print};
use serde_json::Map;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

pub(crate) fn create_agent(given: &ParsedCommand) -> Result<Exit> {
    let dir = &*given.operand_dir(0);
    if let Some(file) = given.path("--from") {
        if given.has("--template") {
            return Err(Error::usage("two origins: --from and -t; give one"));
        }
        let agent = AgentFile::read(&file)?;
        check_unused(dir, "agent.yaml", "an agent")?;
        return write_agent(dir, &agent.name, &files::name_of(&file), agent.files);
    }
    let template = given.text("--template");
    let mut others = templates::OTHERS.into_iter();
    if let Some((name, _)) = others.find(|(name, _)| template.as_deref() == Some(*name)) {
        return create_other(given, name);
    }
    let mut all = templates::ALL.into_iter();
    let template = template.and_then(|name| all.find(|it| it.name == name));
    // Before anybody is asked anything.
    let name = name_of(dir)?;
    check_unused(dir, "agent.yaml", "an agent")?;
    let template = match template {
        Some(template) => template,
        None if given.has("--yes") || !io::stdin().is_terminal() || !io::stderr().is_terminal() => {
            templates::ALL[0]
        }
        None => menu()?,
    };
    write_agent(dir, &name, template.name, template.files(&name))
}

/// Writes the files of an agent, and prints what to do next.
fn write_agent(dir: &Path, name: &str, origin: &str, files: Vec<NewFile>) -> Result<Exit> {
    let ignored = NewFile {
        path: ".gitignore".to_owned(),
        text: templates::GITIGNORE.to_owned(),
        is_program: false,
    };
    let written = write_new(dir, [ignored].into_iter().chain(files))?;
    let screen = Screen::new(false, false);
    let files = written.join(", ");
    let shown = dir.display();
    screen.progress(&[
        (Tone::Good, "created "),
        (
            Tone::Dim,
            &format!("agent {name} ({origin}) in {shown}: {files}"),
        ),
    ]);
    screen.progress(&[(Tone::Dim, "next:")]);
    let missing = what_is_missing(dir).map(|missing| format!("  {SETUP}   # there is {missing}"));
    let run = format!("  {} 'What it should do'", run_command(dir, name));
    for line in missing.into_iter().chain([run]) {
        screen.progress(&[(Tone::Dim, &line)]);
    }
    print(format!("{shown}\n"))?;
    Ok(Exit::Success)
}

/// Creates what is no agent.
#[cfg(feature = "flow")]
fn create_other(given: &ParsedCommand, name: &str) -> Result<Exit> {
    flow::cli::init::create_named(given, name)
}

#[cfg(not(feature = "flow"))]
fn create_other(_: &ParsedCommand, name: &str) -> Result<Exit> {
    let message = format!("init -t {name}: this delta was built without its feature \"flow\"");
    Err(Error::new(Exit::NotFound, message))
}

/// Things that a run of the agent would lack.
fn what_is_missing(dir: &Path) -> Option<&'static str> {
    run_no_key_command();
    let agent = load::load_with(dir, &Map::new()).0?;
    let llm = &agent.llm;
    let has_model = llm.has_model() || matches!(person::variable(MODEL), Ok(Some(_)));
    let (environment, _) = Environment::of_agent(&agent, None).ok()?;
    let endpoint = environment.endpoint(llm.api, llm.base_url.as_deref(), &llm.headers);
    match (has_model, endpoint.is_ok()) {
        (true, true) => None,
        (true, false) => Some("no key"),
        (false, true) => Some("no model"),
        (false, false) => Some("no model and no key"),
    }
}

/// The beginning of the command that runs the agent: by its name if it was put where names are looked up.
fn run_command(dir: &Path, name: &str) -> String {
    let by_name = find_word(Path::new(&format!("@{name}"))).ok();
    let real = |path: &Path| path.canonicalize().ok();
    let is_found = by_name.is_some_and(|found| real(&found.home) == real(dir));
    let (by_name, dir) = (format!("@{name}"), dir.to_string_lossy());
    let words = if is_found {
        vec!["delta", "run", &by_name]
    } else {
        vec!["delta", "run", "-a", &dir, "-y", "-m"]
    };
    shell_quoted(&words)
}

/// The agent's name: that of its directory.
fn name_of(dir: &Path) -> Result<String> {
    let real;
    let name = match dir.file_name() {
        Some(name) => name,
        None => {
            real = dir.canonicalize().at("find", dir)?;
            real.file_name().unwrap_or(OsStr::new("agent"))
        }
    };
    match name.to_str() {
        Some(name) if !name.contains(disguises) => Ok(name.to_owned()),
        _ => Err(Error::failure(format!(
            "'{}' cannot name an agent: only printable text in UTF-8 can",
            name.to_string_lossy().escape_debug()
        ))),
    }
}

/// Lets a person at the terminal choose a template.
fn menu() -> Result<&'static Template> {
    let mut text = String::from("templates:\n");
    for (index, template) in templates::ALL.iter().enumerate() {
        text.push_str(&format!(
            "  {} {:<12} {}\n",
            index + 1,
            template.name,
            template.description
        ));
    }
    let default = templates::ALL[0];
    let mut stderr = io::stderr();
    loop {
        ignore(stderr.write_all(format!("{text}which one? [{}] ", default.name).as_bytes()));
        let mut line = String::new();
        if io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
            return Err(Error::usage(
                "no template chosen; give one with -t NAME, or -y for minimal",
            ));
        }
        let choice = line.trim();
        if choice.is_empty() {
            return Ok(default);
        }
        let mut all = (1..).zip(templates::ALL);
        let found = all.find(|(number, it)| it.name == choice || number.to_string() == choice);
        if let Some((_, template)) = found {
            return Ok(template);
        }
        text = format!("there is no {choice}; ");
    }
}
