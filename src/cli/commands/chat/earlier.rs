//! Conversations of before in `delta chat`: their list, and the end of the one that goes on.

use super::{Chat, load_for};
use crate::error::{Error, Result};
use crate::record::event::{Recorded, decoded};
use crate::record::metadata::Metadata;
use crate::record::reader::{read_journal, readable_lines};
use crate::record::run_dir::RunDir;
use crate::record::workspace::{Workspace, command_in};
use crate::runs::inspect::{inspect_run, is_run_of, read_summary};
use crate::runs::origin::require_own;
use crate::runs::preflight::check_budget;
use crate::runs::waiting::resume_words;
use crate::text::amounts::age;
use crate::text::answers::after_thoughts;
use crate::text::order::sort_by;
use crate::text::shell::shell_quoted;
use crate::text::shorten::in_short;
use crate::text::timestamp::Timestamp;
use crate::unix::terminal::{Tone, print_below, styled_answer};
use std::path::Path;

/// Lines of the last exchange that are shown, and of its message.
const LINES: usize = 10;
const MESSAGE: usize = 3;

/// Conversations that are listed.
const LISTED: usize = 20;

impl Chat<'_> {
    /// Prints the last exchange of the run that goes on: of the message the beginning.
    pub(super) fn show_last_exchange(&self) {
        let is_shown = self.reader.is_typed && !self.options.screen.quiet;
        let Some(run) = self.run.as_ref().filter(|_| is_shown) else {
            return;
        };
        let journal = read_journal(&run.journal()).unwrap_or_default();
        let (mut message, mut answer) = (None, None);
        for (_, line) in readable_lines(&journal) {
            match &line.event {
                Recorded::UserMessage(said) => (message, answer) = (said.content.get(), None),
                Recorded::Thought(thought) if thought.calls().is_empty() => {
                    answer = thought.content.get();
                }
                _ => {}
            }
        }
        let [message, answer] = [message, answer].map(|json| json.map(decoded).unwrap_or_default());
        let (message, answer) = (message.trim_end(), after_thoughts(&answer).trim_end());
        let said = message
            .lines()
            .take(MESSAGE)
            .collect::<Vec<_>>()
            .join("\n  ");
        let answered: Vec<&str> = answer.lines().collect();
        let room = LINES - said.lines().count();
        let shown = answered[..answered.len().min(room)].join("\n");
        if !message.is_empty() {
            print_below(&styled_answer(format!("> {said}\n{shown}").trim_end()));
        }
        let more =
            message.lines().count() + answered.len() - said.lines().count() - shown.lines().count();
        if more > 0 {
            Self::note(&format!("… {more} more lines: /log prints the run"));
        }
    }

    /// The runs of the directory that can go on, the newest first.
    fn earlier(&self) -> Result<Vec<(RunDir, Metadata)>> {
        let place = self.run.as_ref().and_then(RunDir::workspace);
        let place = place.or(self.work_dir.as_deref());
        let workspace = Workspace::at(place.unwrap_or(Path::new(".")))?;
        workspace.check_layout()?;
        require_own(&workspace, self.wanted.common.adopt)?;
        let runs = workspace.runs()?.into_iter();
        let mut found: Vec<_> = runs
            .map(|id| {
                let run = RunDir::of(&workspace, &id);
                let (metadata, _) = read_summary(&run);
                (run, metadata)
            })
            .filter(|(_, metadata)| metadata.is_conversation())
            .filter(|(_, metadata)| !self.is_named || is_run_of(metadata, &self.agent, None))
            .collect();
        sort_by(&mut found, |(_, a), (_, b)| {
            let [a, b] = [a, b].map(|it| (Timestamp::parse(&it.created_at), &it.run_id));
            b.cmp(&a)
        });
        found.truncate(LISTED);
        Ok(found)
    }

    /// Lists the conversations by number.
    pub(super) fn list_earlier(&mut self) -> Result<()> {
        let found = self.earlier()?;
        self.listed = found.iter().map(|(run, _)| run.clone()).collect();
        if found.is_empty() {
            Self::note("there is no conversation here yet");
        }
        let now = Timestamp::now();
        for (number, (run, metadata)) in (1..).zip(&found) {
            let begun = Timestamp::parse(&metadata.created_at);
            let age = begun.map_or_else(|| "?".to_owned(), |at| age(now.since(at)));
            let is_this = self.run.as_ref() == Some(run);
            Self::note(&format!(
                "{number:2}{} {age:>4}  {}  {}",
                if is_this { '*' } else { ' ' },
                in_short(&metadata.agent_name, 30),
                in_short(&metadata.task_words(), 60)
            ));
        }
        Ok(())
    }

    /// Goes on with the conversation of this number, as they were listed.
    pub(super) fn choose_earlier(&mut self, number: &str) -> Result<()> {
        let at = number
            .parse::<usize>()
            .ok()
            .and_then(|it| it.checked_sub(1));
        if self.listed.is_empty() {
            self.listed = self.earlier()?.into_iter().map(|(run, _)| run).collect();
        }
        let Some(run) = at.and_then(|at| self.listed.get(at)) else {
            return Err(Error::usage(format!(
                "/resume takes a number that /resume alone lists, not '{}'",
                number.escape_debug()
            )));
        };
        let run = inspect_run(run)?;
        let named = self.is_named.then(|| self.agent.home.clone());
        let (agent, set) = load_for(&run, named, &self.wanted.common, &self.options.set)?;
        check_budget(&agent, self.options.budget)?;
        (self.agent, self.set) = (agent, set);
        self.options.compacts = false;
        self.run = Some(run.run);
        Ok(())
    }

    /// Names the command that continues the conversation.
    pub(super) fn say_goodbye(&self) {
        let run = self.run.as_ref().filter(|_| self.reader.is_typed);
        let Some((run, root)) = run.and_then(|run| Some((run, run.workspace()?))) else {
            return;
        };
        let mut command = command_in(root, &["delta", "chat"]);
        command.extend(["--run-id".to_owned(), run.id.to_string()]);
        if let Ok(workspace) = Workspace::at(root) {
            let (metadata, _) = read_summary(run);
            let home = Path::new(&metadata.agent_home);
            command.extend(resume_words(&metadata.set, home, &workspace));
        }
        let text = format!("to continue: {}", shell_quoted(&command));
        self.options.screen.progress(&[(Tone::Dim, &text)]);
    }
}
