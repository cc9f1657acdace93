//! `mcp import --from`: servers in the files of other programs, each shown before it is started.

use super::McpCommand;
use crate::cli::args::McpArgs;
use crate::engine::question::ask_person;
use crate::error::{Error, Exit, Result, reason};
use crate::mcp::foreign::{ForeignServer, FoundServer, read_foreign};
use crate::mcp::servers::{Given, Reach, Server, read_servers};
use crate::record::event::InputType;
use crate::text::disguise::{is_unseen, visible};
use crate::text::shell::shell_quoted_where;
use crate::text::suggestion::nearest;
use crate::unix::files;
use std::io::{IsTerminal, stderr, stdin};
use std::path::Path;

/// The largest file of servers, in bytes.
const LARGEST: u64 = 16 << 20;

impl McpCommand {
    pub(super) fn import_from(&self, file: &Path, wanted: &McpArgs) -> Result<Exit> {
        self.check_home()?;
        let known = read_servers(&self.home)?;
        let found = servers_in(file)?;
        if let Some(missing) = wanted
            .words
            .iter()
            .find(|name| found.iter().all(|(it, _)| it != *name))
        {
            let meant = nearest(missing, found.iter().map(|(name, _)| name.as_str()));
            let hint = meant.map_or(String::new(), |meant| format!("; did you mean {meant:?}?"));
            let message = format!("{} has no server {missing:?}{hint}", file.display());
            return Err(Error::config(message));
        }
        let asks = !wanted.yes && stdin().is_terminal() && stderr().is_terminal();
        let mut exit = Exit::Success;
        let mut taken = Vec::new();
        let is_chosen = |name: &String| wanted.words.is_empty() || wanted.words.contains(name);
        for (name, foreign) in found.into_iter().filter(|(name, _)| is_chosen(name)) {
            let usable = foreign.and_then(|foreign| {
                let own = &foreign.server.name;
                let is_other = |it: &&Server| it.name == *own && **it != foreign.server;
                if taken.contains(own) || known.iter().find(is_other).is_some() {
                    return Err(format!("there is another server {own} already"));
                }
                taken.push(own.clone());
                Ok(foreign)
            });
            let foreign = match usable {
                Ok(foreign) => foreign,
                Err(why) => {
                    self.screen
                        .warn(&visible(&format!("{name} is left out: {why}")));
                    exit = Exit::Failure;
                    continue;
                }
            };
            self.note(&description(&foreign));
            let is_wanted = wanted.yes
                || asks
                    && ask_person(
                        &self.signals,
                        "start it and import its tools?",
                        InputType::Confirmation,
                        false,
                    )? == "yes";
            if is_wanted && let Err(error) = self.pin(&foreign.server, true, &wanted.only) {
                if let Some(stop) = self.signals.stop() {
                    return Err(stop.into());
                }
                self.screen
                    .warn(&format!("{}: {}", foreign.server.name, error.message));
                exit = Exit::Failure;
            }
        }
        if !asks && !wanted.yes {
            return Err(Error::usage(
                "nothing was started: mcp import --from asks at a terminal; without one, add -y to start these",
            ));
        }
        Ok(exit)
    }
}

fn servers_in(file: &Path) -> Result<Vec<FoundServer>> {
    let path = files::absolute(file)?;
    let bytes = files::read_regular_limited(&path, LARGEST)
        .map_err(|e| Error::usage(format!("{}: {}", file.display(), reason(&e))))?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let is_editors = [".vscode", ".cursor"]
        .iter()
        .any(|name| dir.ends_with(name));
    let root = dir.parent().filter(|_| is_editors).unwrap_or(dir);
    read_foreign(&String::from_utf8_lossy(&bytes), root)
        .map_err(|why| Error::config(format!("{}: {why}", file.display())))
}

/// The command that will be started, with its surroundings: nothing of it is cut, and every line says what it is.
fn description(foreign: &ForeignServer) -> String {
    let server = &foreign.server;
    let mut lines = vec![match &server.reach {
        Reach::Command(argv) => {
            format!("{}: {}", server.name, shell_quoted_where(argv, is_unseen))
        }
        Reach::Url(url) => format!("{}: {}", server.name, visible(url)),
    }];
    let dir = server.cwd.iter().map(|dir| format!("directory: {dir}"));
    let value = |given: &Given| match given {
        Given::Variable(name) => format!("the variable {name}"),
        Given::Text(text) => text.clone(),
        Given::Command(words) => words.join(" "),
    };
    let env = server
        .env
        .iter()
        .map(|(name, it)| format!("variable: {name} = {}", value(it)));
    let headers = server
        .headers
        .iter()
        .map(|(name, it)| format!("header: {name} = {}", value(it)));
    let token = server
        .bearer_env
        .iter()
        .map(|name| format!("token: the variable {name}"));
    let notes = foreign.notes.iter().map(|note| format!("note: {note}"));
    let details = dir.chain(env).chain(headers).chain(token).chain(notes);
    lines.extend(details.map(|line| format!("    {}", visible(&line))));
    lines.join("\n")
}
