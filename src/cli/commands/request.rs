//! `delta request`: the exact bytes of a request or of the next one, and the first difference of two.

use crate::cli::agent_names::agent_of_run;
use crate::cli::args::{RequestArgs, RequestNumber};
use crate::config::environment::{Environment, run_no_key_command};
use crate::error::{Error, Exit, Result};
use crate::record::invocations;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::find::{NEWEST, find_run};
use crate::runs::inspect::{RecordedSettings, inspect_journal};
use crate::runs::origin::{require_own_run, warn_if_foreign_run};
use crate::runs::overrides::load_recorded;
use crate::runs::{preflight, preview};
use crate::text::disguise::printable;
use crate::text::ids::RunId;
use crate::unix::terminal::{Screen, print, print_json};
use crate::view::request_diff;
use std::io::IsTerminal;
use std::path::PathBuf;

pub(crate) fn print_request(options: &RequestArgs) -> Result<Exit> {
    let run = find_run(&options.work_dir, options.run.as_deref().unwrap_or(NEWEST))?;
    let sent = SentRequests::of(&run)?;
    let (request, name) = if options.next {
        (next_request(&run, options)?, "the next".to_owned())
    } else {
        warn_if_foreign_run(&run)?;
        let number = options.number.unwrap_or(RequestNumber {
            number: sent.names.len(),
            is_compaction: false,
        });
        let name = number.number.to_string();
        match number.is_compaction {
            false => (sent.request(number.number)?, name),
            true => (sent.compaction(number.number)?, format!("{name}c")),
        }
    };
    let Some(other) = options.diff else {
        // A file or a pipe gets what is sent, byte for byte.
        if std::io::stdout().is_terminal() {
            print_json(&request)?;
        } else {
            print(&request)?;
        }
        return Ok(Exit::Success);
    };
    let names = [name.as_str(), &other.to_string()];
    match described(names, &request, &sent.request(other)?) {
        None => Ok(Exit::Success),
        Some(text) => {
            print(text.as_bytes())?;
            Ok(Exit::Failure)
        }
    }
}

/// The request that going on with a run would send.
fn next_request(run: &RunDir, options: &RequestArgs) -> Result<Vec<u8>> {
    let Some(root) = run.workspace() else {
        let path = run.path.display();
        return Err(Error::failure(format!(
            "{path} is in no workspace, so it cannot be continued there"
        )));
    };
    let workspace = Workspace::at(root)?;
    require_own_run(run, options.adopt)?;
    let mut journal = None;
    let (found, journal, state) = inspect_journal(run, &mut journal)?;
    let screen = Screen::new(false, false);
    let id = run.id.as_str();
    let recorded = (id, found.metadata.agent_home.as_str());
    let home = agent_of_run(options.agent.as_deref(), recorded, &workspace)?;
    let recorded = RecordedSettings {
        journal: journal.clone(),
        ..found.recorded()
    };
    let (mut agent, _) = load_recorded(&home, recorded, &options.set, screen)?;
    run_no_key_command();
    let (environment, _) = Environment::of_agent(&agent, Some(&workspace.root))?;
    environment.choose_api(&mut agent.llm)?;
    preview::next_request(
        &agent,
        &workspace,
        &found,
        (journal, state),
        (preflight::install_signals()?, screen),
    )
}

/// The requests that a run has sent.
struct SentRequests {
    id: RunId,
    dir: PathBuf,
    /// Without those for summaries.
    names: Vec<String>,
    /// With the number of the request that each came before.
    compactions: Vec<(usize, String)>,
}

impl SentRequests {
    fn of(run: &RunDir) -> Result<Self> {
        let dir = run.io("invocations");
        let (mut names, mut compactions) = (Vec::new(), Vec::new());
        for name in invocations::in_order(&dir)? {
            match invocations::is_compaction(&name) {
                true => compactions.push((names.len() + 1, name)),
                false => names.push(name),
            }
        }
        Ok(Self {
            id: run.id.clone(),
            names,
            compactions,
            dir,
        })
    }

    /// The request for the summary before another one; if there were several, the last.
    fn compaction(&self, number: usize) -> Result<Vec<u8>> {
        let mut made = self.compactions.iter().rev();
        let name = made.find(|(before, _)| *before == number);
        let (_, name) = name.ok_or_else(|| {
            Error::usage(format!(
                "N: '{number}c': no request of this run made a summary before request {number}"
            ))
        })?;
        invocations::request(&self.dir, name)
    }

    fn request(&self, number: usize) -> Result<Vec<u8>> {
        let id = &self.id;
        let Some(name) = number
            .checked_sub(1)
            .and_then(|index| self.names.get(index))
        else {
            return Err(Error::failure(match self.names.len() {
                0 => format!("run {id} has sent no request yet"),
                1 => format!("run {id} has sent one request, not {number}"),
                sent => format!("run {id} has sent {sent} requests, not {number}"),
            }));
        };
        invocations::request(&self.dir, name)
    }
}

/// `first` and `second` are the requests.
fn described(names: [&str; 2], first: &[u8], second: &[u8]) -> Option<String> {
    let difference = request_diff::first(first, second)?;
    let same = first.iter().zip(second).take_while(|(a, b)| a == b).count();
    let place = match difference.place.as_str() {
        // What is no request, or differs only in how it is written, has no other place.
        place if place.starts_with("byte ") => String::new(),
        place => format!(", in {place}"),
    };
    let width = names[0].len().max(names[1].len());
    let mut out = format!(
        "requests {} and {} differ at byte {same}{place}\n",
        names[0], names[1]
    );
    for (name, text) in names.into_iter().zip([difference.left, difference.right]) {
        out.push_str(&format!("  {name:>width$}: {}\n", printable(&text)));
    }
    Some(out)
}
