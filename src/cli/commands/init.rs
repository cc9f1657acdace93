//! `delta init`: makes a new agent.

use crate::cli::templates::{self, Template, TemplateFile};
use crate::config::tool::bind::shell_quoted;
use crate::error::{At, Error, Exit, Result, may_fail};
use crate::text::disguise::disguises;
use crate::unix::terminal::{Screen, Tone, print};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub(crate) fn create_agent(
    dir: &Path,
    template: Option<&'static Template>,
    yes: bool,
) -> Result<Exit> {
    // Before anybody is asked anything.
    let name = name_of(dir)?;
    check_empty(dir)?;
    let template = match template {
        Some(template) => template,
        None if yes || !io::stdin().is_terminal() || !io::stderr().is_terminal() => {
            templates::ALL[0]
        }
        None => menu()?,
    };
    let written = write(dir, &name, template)?;
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
    for line in [
        "next:".to_owned(),
        "  export DELTA_API_KEY=...   # or DELTA_BASE_URL=http://127.0.0.1:8080/v1".to_owned(),
        format!("  {} 'What it should do'", shell_quoted(&run)),
    ] {
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

/// Refuses a directory that is in use. Hidden files, such as `.git`, do not count.
fn check_empty(dir: &Path) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e).at("use", dir),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.at("read", dir)?.file_name();
        if !name.as_bytes().starts_with(b".") {
            names.push(name);
        }
    }
    names.sort_unstable();
    let Some(first) = names.first() else {
        return Ok(());
    };
    let shown = dir.display();
    Err(Error::failure(
        if names.iter().any(|name| name == "agent.yaml") {
            format!("{shown} already contains an agent; choose another directory")
        } else {
            format!(
                "{shown} is not empty: there is {}; choose a new or an empty directory",
                first.to_string_lossy()
            )
        },
    ))
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

/// Writes the agent's files, and returns their names. If that fails, nothing is left of them.
fn write(dir: &Path, name: &str, template: &Template) -> Result<Vec<String>> {
    let is_new = !dir.exists();
    fs::create_dir_all(dir).at("create", dir)?;
    let ignored = TemplateFile {
        path: ".gitignore".to_owned(),
        text: templates::GITIGNORE.to_owned(),
        is_program: false,
    };
    let mut written: Vec<String> = Vec::new();
    for file in [ignored].into_iter().chain(template.files(name)) {
        let path = dir.join(&file.path);
        match create(&path, &file) {
            Ok(()) => written.push(file.path),
            // It is hidden, and somebody's own.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && file.path.starts_with('.') => {}
            Err(e) => {
                for file in written {
                    may_fail(fs::remove_file(dir.join(file)));
                }
                may_fail(fs::remove_dir(dir.join("tools")));
                if is_new {
                    may_fail(fs::remove_dir(dir));
                }
                return Err(e).at("create", &path);
            }
        }
    }
    Ok(written)
}

fn create(path: &Path, file: &TemplateFile) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut options = OpenOptions::new();
    options.mode(if file.is_program { 0o777 } else { 0o666 });
    let mut created = options.write(true).create_new(true).open(path)?;
    let written = created.write_all(file.text.as_bytes());
    if written.is_err() {
        may_fail(fs::remove_file(path));
    }
    written
}
