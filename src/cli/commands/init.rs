//! `delta init`: makes a new agent.

use crate::cli::templates::{self, Template};
use crate::config::load;
use crate::error::{At, Error, Exit, Result, may_fail};
use crate::text::disguise::disguises;
use crate::text::shell::shell_quoted;
use crate::unix::new_files::{NewFile, check_unused, write_new};
use crate::unix::terminal::{Screen, Tone, print};
use serde_json::Map;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

pub(crate) fn create_agent(
    dir: &Path,
    template: Option<&'static Template>,
    yes: bool,
) -> Result<Exit> {
    // Before anybody is asked anything.
    let name = name_of(dir)?;
    check_unused(dir, ("agent.yaml", "an agent"))?;
    let template = match template {
        Some(template) => template,
        None if yes || !io::stdin().is_terminal() || !io::stderr().is_terminal() => {
            templates::ALL[0]
        }
        None => menu()?,
    };
    let ignored = NewFile {
        path: ".gitignore".to_owned(),
        text: templates::GITIGNORE.to_owned(),
        is_program: false,
    };
    let files = [ignored].into_iter().chain(template.files(&name));
    let written = write_new(dir, files)?;
    let screen = Screen::new(false, false);
    let files = written.join(", ");
    let shown = dir.display();
    screen.progress(&[
        (Tone::Good, "created "),
        (
            Tone::Dim,
            &format!("agent {name} ({}) in {shown}: {files}", template.name),
        ),
    ]);
    let run = ["delta", "run", "-a", &dir.to_string_lossy(), "-y", "-m"].map(str::to_owned);
    let (agent, _) = load::load_with(dir, &Map::new());
    let lacks_model = agent.is_some_and(|agent| !agent.llm.has_model());
    let mut next = vec![
        "next:".to_owned(),
        "  export DELTA_API_KEY=...   # or DELTA_BASE_URL=http://127.0.0.1:8080/v1".to_owned(),
    ];
    if lacks_model {
        next.push("  export DELTA_MODEL=...     # the name of the model to ask".to_owned());
    }
    next.push(format!("  {} 'What it should do'", shell_quoted(&run)));
    for line in next {
        screen.progress(&[(Tone::Dim, &line)]);
    }
    print(format!("{shown}\n").as_bytes())?;
    Ok(Exit::Success)
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
        may_fail(stderr.write_all(format!("{text}which one? [{}] ", default.name).as_bytes()));
        let mut line = String::new();
        if io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
            return Err(Error::usage(
                "no template chosen; give one with -t NAME, or -y for minimal",
            ));
        }
        let choice = line.trim();
        let by_number = choice.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
        let found = match by_number {
            _ if choice.is_empty() => Some(default),
            Some(index) => templates::ALL.get(index).copied(),
            None => templates::ALL.into_iter().find(|t| t.name == choice),
        };
        match found {
            Some(template) => return Ok(template),
            None => text = format!("there is no {choice}; "),
        }
    }
}
