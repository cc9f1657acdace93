//! Commands of a person to `delta chat` itself: words that begin with a slash, each alone on its line.

use super::{Chat, check_files};
use crate::cli::args::LogArgs;
use crate::cli::commands::log::print_log;
use crate::cli::commands::undo::{put_back, target};
use crate::config::person;
use crate::error::{Error, Result};
use crate::record::run_dir::RunDir;
use crate::record::spending::{self, read_tally};
use crate::runs::inspect::inspect_run;
use crate::runs::overrides::{load_recorded, load_with_overrides};
use crate::runs::preflight::check_budget;
use crate::runs::result::used;
use crate::runs::task::GivenPart;
use crate::runs::undo::UndoRequest;
use crate::text::json;
use crate::text::suggestion::nearest;
use crate::unix::draft::edit_draft;
use crate::unix::files;
use crate::unix::line_editor::Completion;
use crate::unix::terminal::{Screen, Tone};
use serde_json::Map;
use std::path::Path;

/// The words, what follows them, and what they do.
const WORDS: [(&str, &str, &str); 11] = [
    ("/help", "", "print this list"),
    (
        "/file",
        "PATH",
        "add a file's text, a picture or a PDF to the next message",
    ),
    ("/edit", "[TEXT]", "write a message in $VISUAL or $EDITOR"),
    (
        "/model",
        "[NAME]",
        "ask this model from the next message on",
    ),
    ("/new", "", "let the next message begin a new run"),
    (
        "/resume",
        "[N]",
        "list the conversations here, or continue number N",
    ),
    (
        "/undo",
        "[N]",
        "put files back to before the last change, or after iteration N",
    ),
    ("/log", "", "print the run so far"),
    ("/cost", "", "print what the run has used"),
    (
        "/compact",
        "",
        "shorten the conversation before the next request",
    ),
    ("/quit", "", "end"),
];

/// A line of a person, understood.
pub(super) enum Said {
    Message(String),
    /// A word that has been obeyed.
    Done,
    /// Another conversation goes on.
    Resumed,
    Quit,
}

/// Words that Tab completes.
pub(super) fn completion() -> Completion {
    let words = WORDS.iter();
    words
        .map(|(word, _, _)| ((*word).to_owned(), *word == "/file"))
        .collect()
}

impl Chat<'_> {
    /// Does what a word says; anything else is a message, from which one slash of two is taken.
    pub(super) fn obey(&mut self, line: String) -> Result<Said> {
        let is_word = line.starts_with('/') && !line.contains('\n');
        if let Some(message) = line.strip_prefix('/').filter(|it| it.starts_with('/')) {
            return Ok(Said::Message(message.to_owned()));
        }
        if ["exit", "quit"].contains(&line.trim()) {
            return Ok(Said::Quit);
        }
        if !is_word {
            return Ok(Said::Message(line));
        }
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        let rest = rest.trim();
        let takes_nothing =
            |(known, after, _): &&(&str, &str, &str)| *known == word && after.is_empty();
        if !rest.is_empty() && WORDS.iter().any(|row| takes_nothing(&row)) {
            return Err(Error::usage(format!("{word} takes nothing after it")));
        }
        match word {
            "/help" => Self::print_words(),
            "/file" => self.attach(rest)?,
            "/edit" => return self.edit(rest),
            "/model" => self.choose_model(rest)?,
            "/new" => {
                (self.run, self.options.compacts) = (None, false);
                Self::note("the next message begins a new run");
            }
            "/resume" if rest.is_empty() => self.list_earlier()?,
            "/resume" => {
                self.choose_earlier(rest)?;
                return Ok(Said::Resumed);
            }
            "/undo" => self.undo(rest)?,
            "/log" => self.print_log()?,
            "/cost" => self.print_cost()?,
            "/compact" => {
                self.begun()?;
                self.options.compacts = true;
                Self::note("the conversation is shortened before the next request");
            }
            "/quit" => return Ok(Said::Quit),
            word => return Err(unknown(word)),
        }
        Ok(Said::Done)
    }

    /// Prints what a word answers, also if there is no progress.
    pub(super) fn note(text: &str) {
        Screen::new(false, false).progress(&[(Tone::Dim, text)]);
    }

    fn print_words() {
        for (word, after, what) in WORDS {
            Self::note(&format!("{:<15} {what}", format!("{word} {after}")));
        }
        Self::note("//…             a message that begins with a slash");
        Self::note("\"\"\"             begin and end a message of several lines");
    }

    /// A file goes with the next message.
    fn attach(&mut self, name: &str) -> Result<()> {
        if name.is_empty() {
            return Err(Error::usage("/file needs the path of a file"));
        }
        let mut parts = self.parts.clone();
        parts.push(GivenPart::File(person::at_home(Path::new(name))));
        check_files(&parts, &self.signals)?;
        self.parts = parts;
        Self::note(&format!("{name} goes with the next message"));
        Ok(())
    }

    fn edit(&self, text: &str) -> Result<Said> {
        let dir =
            person::state_dir().ok_or_else(|| Error::usage("/edit needs a home: set HOME"))?;
        files::make_dirs(&dir)?;
        let path = dir.join(format!("draft-{}.txt", std::process::id()));
        let draft = edit_draft(&path, text)?;
        if draft.is_none() {
            Self::note("the draft is empty: nothing was sent");
        }
        Ok(draft.map_or(Said::Done, Said::Message))
    }

    fn choose_model(&mut self, name: &str) -> Result<()> {
        if !name.is_empty() {
            let (home, screen) = (&self.agent.home, self.options.screen);
            let mut given = self.options.set.clone();
            given.push(("llm.model".to_owned(), json::text(name)));
            let (agent, set) = match &self.run {
                Some(run) => load_recorded(home, inspect_run(run)?.recorded(), &given, screen)?,
                None => load_with_overrides(home, Map::new(), &given, screen)?,
            };
            check_budget(&agent, self.options.budget)?;
            (self.agent, self.set, self.options.set) = (agent, set, given);
        }
        let model = self.agent.llm.model.as_deref().unwrap_or("its own program");
        Self::note(&format!("model {model}"));
        Ok(())
    }

    fn begun(&self) -> Result<&RunDir> {
        let run = self.run.as_ref();
        run.ok_or_else(|| Error::usage("there is no run before the first message"))
    }

    fn undo(&self, to: &str) -> Result<()> {
        let wanted = UndoRequest {
            to: target("/undo", Some(to).filter(|to| !to.is_empty()))?,
            force: false,
            is_preview: false,
        };
        put_back(self.begun()?, &wanted, &self.signals, "/undo").map(drop)
    }

    fn print_log(&self) -> Result<()> {
        let run = self.begun()?;
        print_log(&LogArgs {
            work_dir: run.workspace().unwrap_or(&run.path).to_owned(),
            run: Some(run.id.to_string()),
            follow: false,
            json: false,
            verbose: false,
            last: None,
            effects: false,
        })
        .map(|_| ())
    }

    fn print_cost(&self) -> Result<()> {
        let run = self.begun()?;
        let metadata = inspect_run(run)?.metadata;
        let spent = read_tally(&run.path.join(spending::FILE))?.map(|it| it.all());
        let llm = &self.agent.llm;
        let has_price = self.agent.prices.of_model(llm.model.as_deref()).is_some();
        let cost = spent.filter(|_| has_price);
        Self::note(&used(run, &metadata, cost));
        Ok(())
    }
}

fn unknown(word: &str) -> Error {
    let hint = match nearest(word, WORDS.iter().map(|(known, _, _)| *known)) {
        Some(near) => format!("did you mean {near}"),
        None => "/help lists the commands".to_owned(),
    };
    Error::usage(format!(
        "{word} is not a command of chat, and nothing was sent: {hint}, or // to begin a message with a slash"
    ))
}
