//! `delta-flow init`: makes a new flow from a template.

use super::templates::FlowTemplate;
use crate::error::{Exit, Result};
use crate::text::shell::shell_quoted;
use crate::unix::new_files::{check_unused, write_new};
use crate::unix::terminal::{Screen, Tone, print};
use std::path::Path;

/// Runs the command.
pub(crate) fn create_flow(dir: &Path, template: &FlowTemplate) -> Result<Exit> {
    check_unused(dir, template.main)?;
    let written = write_new(dir, template.new_files())?;
    let screen = Screen::new(false, false);
    let shown = dir.display();
    let text = format!(
        "{} ({}) in {shown}: {}",
        noun_of(template.main.1),
        template.name,
        written.join(", ")
    );
    screen.progress(&[(Tone::Good, "created "), (Tone::Dim, &text)]);
    screen.progress(&[(Tone::Dim, "next:")]);
    let dir = dir.to_string_lossy();
    let check = ["delta", "flow", "check", "-v", &dir].map(str::to_owned);
    let run = ["delta", "flow", template.command, &dir]
        .map(str::to_owned)
        .to_vec();
    let run = shell_quoted(&run) + template.arguments;
    for line in [shell_quoted(&check), run] {
        screen.progress(&[(Tone::Dim, &format!("  {line}"))]);
    }
    print(format!("{shown}\n").as_bytes())?;
    Ok(Exit::Success)
}

/// What follows the article: `flow` of `a flow`.
fn noun_of(what: &str) -> &str {
    what.split_once(' ').map_or(what, |(_, noun)| noun)
}
