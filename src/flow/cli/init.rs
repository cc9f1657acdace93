//! `delta-flow init`: makes a new flow from a template.

use super::templates::{self, FlowTemplate};
use crate::error::{Error, Exit, Result};
use crate::text::options::parse::ParsedCommand;
use crate::text::options::values::unknown_word;
use crate::text::shell::shell_quoted;
use crate::unix::new_files::{check_unused, write_new};
use crate::unix::terminal::{Screen, Tone, print};

/// Runs `delta flow init`.
pub(crate) fn create_flow(given: &ParsedCommand) -> Result<Exit> {
    create(given, chosen_template(given)?)
}

/// Runs `delta init -t flow`, or `-t eval`.
pub(crate) fn create_named(given: &ParsedCommand, name: &str) -> Result<Exit> {
    let named = templates::ALL.iter().find(|it| it.name == name);
    create(given, named.unwrap_or(&templates::ALL[0]))
}

fn create(given: &ParsedCommand, template: &FlowTemplate) -> Result<Exit> {
    let dir = given.operand_dir(0);
    check_unused(&dir, template.main.0, template.main.1)?;
    let written = write_new(&dir, template.new_files())?;
    let screen = Screen::new(false, false);
    let shown = dir.display();
    // Without its article.
    let what = template.main.1;
    let noun = what.split_once(' ').map_or(what, |(_, noun)| noun);
    let text = format!(
        "{noun} ({}) in {shown}: {}",
        template.name,
        written.join(", ")
    );
    screen.progress(&[(Tone::Good, "created "), (Tone::Dim, &text)]);
    screen.progress(&[(Tone::Dim, "next:")]);
    let path = dir.to_string_lossy();
    let check = ["delta", "flow", "check", "-v", &path].map(str::to_owned);
    let mut started = template.command.to_owned();
    started.push_str(&shell_quoted(&[&*path]));
    started.push_str(template.arguments);
    for line in [shell_quoted(&check), started] {
        screen.progress(&[(Tone::Dim, &format!("  {line}"))]);
    }
    print(format!("{shown}\n").as_bytes())?;
    Ok(Exit::Success)
}

fn chosen_template(given: &ParsedCommand) -> Result<&'static FlowTemplate> {
    let [first, ..] = &templates::ALL;
    let Some(name) = given.text("--template") else {
        let names = templates::NAMES.join("|");
        let missing = || Error::usage(format!("init needs -t {names}, or -y for {}", first.name));
        return given.has("--yes").then_some(first).ok_or_else(missing);
    };
    let found = templates::ALL.iter().find(|template| template.name == name);
    found.ok_or_else(|| unknown_word("init: no such template", &name, &templates::NAMES))
}
