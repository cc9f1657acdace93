//! `delta tool expand`: tools in their full form.

use crate::config::agent::{Problem, Severity};
use crate::config::imports;
use crate::config::tool::load::render;
use crate::error::{Error, Exit, Result};
use crate::text::yaml;
use crate::unix::terminal::{print, warn};
use std::path::Path;

pub(crate) fn print_expanded(file: &Path) -> Result<Exit> {
    let (tools, problems) = imports::load_tools(file);
    let (errors, warnings): (Vec<&Problem>, Vec<&Problem>) = problems
        .iter()
        .partition(|problem| problem.severity == Severity::Error);
    for warning in warnings {
        warn(&warning.to_string());
    }
    if !errors.is_empty() {
        let lines: Vec<String> = errors.into_iter().map(Problem::to_string).collect();
        return Err(Error::config(lines.join("\n")));
    }
    print(yaml::render(&render(&tools)))?;
    Ok(Exit::Success)
}
