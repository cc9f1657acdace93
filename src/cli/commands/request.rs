//! `delta request`: the exact bytes of a request or of the next one, and the first difference of two.

use crate::cli::agent_names::agent_of_run;
use crate::cli::args::settings;
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
use crate::text::options::parse::ParsedCommand;
use crate::unix::terminal::{Screen, print, print_json};
use crate::view::request_diff;
use std::io::IsTerminal;
use std::path::PathBuf;

pub(crate) fn print_request(given: &ParsedCommand) -> Result<Exit> {
    let (run, number) = match (given.operand_text(0), given.operand_text(1)) {
        (Some(word), None) if is_request_number(&word) => (None, Some(word)),
        words => words,
    };
    if given.has("--next") && number.is_some() {
        return Err(Error::usage(
            "--next is the request after the last one; it has no number",
        ));
    }
    let asked = number.map(|word| request_number(&word)).transpose()?;
    let set = settings(given)?;
    let run = find_run(&given.work_dir(), run.as_deref().unwrap_or(NEWEST))?;
    let sent = SentRequests::of(&run)?;
    let (request, name) = if given.has("--next") {
        (next_request(&run, given, &set)?, "the next".to_owned())
    } else {
        warn_if_foreign_run(&run)?;
        let number = asked.unwrap_or(RequestNumber {
            number: sent.names.len(),
            is_for_summary: false,
        });
        let name = number.number.to_string();
        if number.is_for_summary {
            (sent.summary(number.number)?, format!("{name}c"))
        } else {
            (sent.request(number.number)?, name)
        }
    };
    let Some(other) = given.number::<usize>("--diff") else {
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
            print(text)?;
            Ok(Exit::Failure)
        }
    }
}

/// The request that going on with a run would send.
fn next_request(run: &RunDir, given: &ParsedCommand, set: &[(String, String)]) -> Result<Vec<u8>> {
    let Some(root) = run.workspace() else {
        let path = run.path.display();
        return Err(Error::failure(format!(
            "{path} is in no workspace, so it cannot be continued there"
        )));
    };
    let workspace = Workspace::at(root)?;
    require_own_run(run, given.has("--adopt"))?;
    let mut journal = None;
    let (found, journal, state) = inspect_journal(run, &mut journal)?;
    let screen = Screen::new(false, false);
    let id = run.id.as_str();
    let recorded = (id, found.metadata.agent_home.as_str());
    let home = agent_of_run(given.path("--agent").as_deref(), recorded, &workspace)?;
    let recorded = RecordedSettings {
        journal: journal.clone(),
        ..found.recorded()
    };
    let (mut agent, _) = load_recorded(&home, recorded, set, screen)?;
    run_no_key_command();
    let (environment, _) = Environment::of_agent(&agent, Some(&workspace.root))?;
    environment.choose_api(&mut agent.llm)?;
    preview::next_request(
        &agent,
        &workspace,
        &found,
        journal,
        state,
        (preflight::install_signals()?, screen),
    )
}

/// A request of a run.
#[derive(Clone, Copy, Debug)]
struct RequestNumber {
    /// From 1.
    number: usize,
    /// Not that one, but the one for the summary before it.
    pub is_for_summary: bool,
}

/// True for a word that means a request where it could also mean a run: an id begins with the eight digits of a date.
fn is_request_number(word: &str) -> bool {
    let digits = word.strip_suffix('c').unwrap_or(word);
    (1..8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn request_number(word: &str) -> Result<RequestNumber> {
    let digits = word.strip_suffix('c');
    let number = digits
        .unwrap_or(word)
        .parse()
        .ok()
        .filter(|number| *number > 0)
        .map(|number| RequestNumber {
            number,
            is_for_summary: digits.is_some(),
        });
    let wrong = || Error::usage(format!("N: '{word}' is not a whole number, 1 or more"));
    number.ok_or_else(wrong)
}

/// The requests that a run has sent.
struct SentRequests {
    id: RunId,
    dir: PathBuf,
    /// Without those for summaries.
    names: Vec<String>,
    /// Names with the number of the request that each came before.
    summaries: Vec<(usize, String)>,
}

impl SentRequests {
    fn of(run: &RunDir) -> Result<Self> {
        let dir = run.io("invocations");
        let (mut names, mut summaries) = (Vec::new(), Vec::new());
        for name in invocations::in_order(&dir)? {
            if invocations::is_for_summary(&name) {
                summaries.push((names.len() + 1, name));
            } else {
                names.push(name);
            }
        }
        Ok(Self {
            id: run.id.clone(),
            names,
            summaries,
            dir,
        })
    }

    /// The request for the summary before another one; if there were several, the last.
    fn summary(&self, number: usize) -> Result<Vec<u8>> {
        let mut made = self.summaries.iter().rev();
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
