//! A run's events as lines for a person: messages, commands, how they ended and how long they took.
//!
//! Unaware of where the events come from and where the lines go. Each event is printed by itself, with
//! the little state that must be kept of those before it.

mod flow;
mod trials;

use crate::record::engine_log::Level;
use crate::record::event::recorded::{
    Acceptance, ActionResult, EngineEnd, EngineStart, HookAudit, Thought,
};
use crate::record::event::{
    EventTrait, ForkedFrom, HookStatus, Line, Raw, Recorded, Tokens, decoded,
};
use crate::record::execution::hook_duration;
use crate::record::history::{COMMAND_WIDTH, History, NOT_SHOWN};
use crate::record::invocations::{self, GivenFile};
use crate::record::metadata::Status;
use crate::record::network::read_traffic;
use crate::text::amounts::{clock, format_duration, format_millis};
use crate::text::disguise::{disguises, escaped};
use crate::text::shorten::{cut_to_columns, in_short};
use crate::text::timestamp::{Timestamp, date_and_time};
use crate::unix::terminal::{Tone, painted};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// As much of a line of output is shown.
const OUTPUT_WIDTH: usize = 160;

/// The numbers of lines of output shown from its beginning and from its end.
const OUTPUT_LINES: (usize, usize) = (5, 2);

/// The column between the time and the text.
const WHO_WIDTH: usize = 6;

/// Formats one run's timeline.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// The run's directory.
    run: PathBuf,
    /// The zero of relative times; none: the first event's time.
    zero: Option<Timestamp>,
    /// Precedes each line.
    margin: String,
    colour: bool,
    /// The action that is running.
    running: Option<String>,
    history: History,
    before: Option<Timestamp>,
    /// The start of the engine, once it has been printed.
    started_at: Option<Timestamp>,
    /// Tokens of the answers since then.
    tokens: Tokens,
    is_flow: bool,
    /// Files of requests and connections of tools are shown.
    is_verbose: bool,
}

/// The lines of one event.
#[derive(Default)]
struct TimelineEntry {
    who: String,
    said: Vec<(Tone, String)>,
    /// In lines of their own.
    below: Vec<(Tone, String)>,
}

impl TimelineEntry {
    fn new(who: impl Into<String>) -> Self {
        Self {
            who: who.into(),
            ..Self::default()
        }
    }

    fn say(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.said.push((tone, text.into()));
        self
    }

    fn add_line(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.below.push((tone, text.into()));
        self
    }
}

impl Timeline {
    /// The timeline of the run in a directory.
    pub(crate) fn new(run: &Path, zero: Option<Timestamp>, colour: bool) -> Self {
        Self {
            run: run.to_owned(),
            zero,
            margin: String::new(),
            colour,
            running: None,
            history: History::default(),
            before: None,
            started_at: None,
            tokens: Tokens::default(),
            is_flow: false,
            is_verbose: false,
        }
    }

    /// The same, with the files of requests and the connections of tools if they are wanted.
    pub(crate) fn with_details(self, is_verbose: bool) -> Self {
        Self { is_verbose, ..self }
    }

    /// The timeline of a run that a tool or a node of this one has started.
    pub(crate) fn nested(&self, run: &Path) -> Self {
        Self {
            margin: format!("{}          │ ", self.margin),
            is_verbose: self.is_verbose,
            ..Self::new(run, self.zero, self.colour)
        }
    }

    /// The lines of an event; empty if it has none.
    pub(crate) fn format_event(&mut self, line: &Line<'_>) -> String {
        let at = line.time();
        if self.zero.is_none() {
            self.zero = at;
        }
        let entry = self.entry(line, at);
        self.before = at.or(self.before);
        entry.map_or_else(String::new, |entry| self.written(&entry, at))
    }

    fn entry(&mut self, line: &Line<'_>, at: Option<Timestamp>) -> Option<TimelineEntry> {
        self.is_flow |= line.task_id.is_some();
        self.history.add(line);
        Some(match &line.event {
            Recorded::EngineStart(event) => {
                self.started_at = at;
                self.tokens = Tokens::default();
                start(line, event)
            }
            Recorded::UserMessage(message) => {
                TimelineEntry::new("user").say(Tone::Said, content(message.content))
            }
            Recorded::Thought(thought) => self.thought(line, thought, at),
            Recorded::ActionRequest(request) => {
                self.running = Some(line.action_id.to_string());
                numbered(line)
                    .say(Tone::Dim, "$ ")
                    .say(Tone::Command, self.history.asked(request))
            }
            Recorded::ActionCheck(check) => numbered(line)
                .say(Tone::Dim, "? ")
                .say(Tone::Command, &*check.tool_name)
                .say(Tone::Dim, checked(&check.status)),
            Recorded::ActionResult(result) => return self.result(line, result),
            Recorded::Acceptance(check) => acceptance(line, check),
            Recorded::HumanInputRequest(question) => {
                TimelineEntry::new("asks").say(Tone::Said, &*question.prompt)
            }
            Recorded::HumanInputReceived(answer) => {
                let entry = TimelineEntry::new("person");
                match self.history.answer(answer) {
                    Some(text) => entry.say(Tone::Said, text),
                    None => entry.say(Tone::Dim, NOT_SHOWN),
                }
            }
            Recorded::SystemMessage(note) => {
                let tone = match Level::parse(&note.level) {
                    Some(Level::Warn | Level::Error) => Tone::Bad,
                    _ => Tone::Dim,
                };
                TimelineEntry::new("note").say(tone, content(note.content))
            }
            Recorded::ModelChanged(change) => TimelineEntry::new("model")
                .say(
                    Tone::Command,
                    format!("{} -> {}", &*change.from, &*change.to),
                )
                .say(Tone::Dim, format!(": {}", &*change.why)),
            Recorded::HookAudit(hook) => self.hook(hook),
            Recorded::Files(_) => TimelineEntry::new("files").say(Tone::Dim, line.note()?),
            Recorded::Error(error) if line.node_id.is_some() => flow::retry(line, error),
            Recorded::Error(error) => {
                TimelineEntry::new("error").say(Tone::Bad, &*error.error_message)
            }
            Recorded::EngineEnd(end) => self.end(end, at),
            Recorded::Evaluation(_) => return trials::entry(line),
            Recorded::Unknown => TimelineEntry::new("?").say(Tone::Dim, line.kind.name()),
            _ => match line.note() {
                Some(note) if line.kind.is(EventTrait::OfAnswer) => {
                    numbered(line).say(Tone::Dim, format!("  {note}"))
                }
                Some(note) => TimelineEntry::new("note").say(Tone::Dim, note),
                None => return flow::entry(line).map(|entry| self.with_hosts(entry, line)),
            },
        })
    }

    fn thought(
        &mut self,
        line: &Line<'_>,
        thought: &Thought<'_>,
        at: Option<Timestamp>,
    ) -> TimelineEntry {
        let calls = thought.calls();
        let words = match thought.content.get() {
            Some(said) if said != "\"\"" => decoded(said).trim_end().to_owned(),
            _ if calls.is_empty() => "gives an empty answer".to_owned(),
            _ => {
                let names: Vec<&str> = calls.iter().map(|call| &*call.function.name).collect();
                format!("calls {}", names.join(", "))
            }
        };
        let mut figures = Vec::new();
        let recorded = thought
            .llm_invocation_ref
            .get()
            .and_then(|it| invocations::metadata(&self.run.join(it)));
        let took = recorded
            .as_ref()
            .map(|it| Duration::from_millis(it.duration_ms));
        let measured = || Some(at?.since(self.before?));
        figures.extend(took.or_else(measured).map(format_duration));
        if let Some(usage) = thought.usage {
            self.tokens.add(usage.tokens());
            let (asked, answered) = (usage.prompt_tokens, usage.completion_tokens);
            figures.push(format!("{asked} + {answered} tokens"));
        }
        let mut entry = numbered(line)
            .say(Tone::Said, words)
            .say(Tone::Dim, format!("  ({})", figures.join(", ")));
        let files = recorded.iter().flat_map(|it| &it.context);
        for file in files.map(GivenFile::in_words).filter(|_| self.is_verbose) {
            entry = entry.add_line(Tone::Dim, format!("context: {}", escaped(&file, disguises)));
        }
        match thought.finish_reason.as_ref().filter(|it| it.is_cut_off()) {
            Some(reason) => entry.add_line(Tone::Bad, format!("cut off: {}", reason.name())),
            None => entry,
        }
    }

    fn result(&mut self, line: &Line<'_>, result: &ActionResult<'_>) -> Option<TimelineEntry> {
        let began = self.running.take_if(|running| *running == *line.action_id);
        let was_run = line.execution_ref.is_some();
        let good = result.is_success();
        if began.is_none() && !was_run && good {
            // The person's answer has been printed already.
            return None;
        }
        let mut outcome = match result.exit_code {
            _ if good => "ok".to_owned(),
            Some(code) => format!("exit code {code}"),
            None if was_run => "no exit code".to_owned(),
            None => "not run".to_owned(),
        };
        if let Some(took) = result.duration_ms
            && (good || result.exit_code.is_some())
        {
            outcome.push_str(&format!(", {}", format_millis(took)));
        }
        let mut entry = numbered(line);
        if began.is_none() {
            let name = result.tool_name.get().unwrap_or("?");
            entry = entry.say(Tone::Command, format!("{name} "));
        }
        entry = entry.say(if good { Tone::Good } else { Tone::Bad }, outcome);
        for said in shortened(self.history.observation(line, result).trim_end()) {
            entry = entry.add_line(Tone::Dim, said);
        }
        Some(self.with_hosts(entry, line))
    }

    /// The same with the hosts that a tool connected to, if they are wanted.
    fn with_hosts(&self, mut entry: TimelineEntry, line: &Line<'_>) -> TimelineEntry {
        let reference = line.execution_ref.get().filter(|_| self.is_verbose);
        for host in read_traffic(&self.run, reference) {
            let tone = if host.allowed { Tone::Dim } else { Tone::Bad };
            entry = entry.add_line(tone, host.in_words());
        }
        entry
    }

    fn hook(&self, hook: &HookAudit<'_>) -> TimelineEntry {
        let good = &*hook.status == HookStatus::Success.name();
        let took = hook
            .io_path_ref
            .get()
            .and_then(|it| hook_duration(&self.run.join(it)))
            .map_or_else(String::new, |took| format!(", {}", format_millis(took)));
        let (tone, outcome) = if good {
            (Tone::Good, "ok")
        } else {
            (Tone::Bad, "failed")
        };
        TimelineEntry::new("hook")
            .say(Tone::Command, hook.hook_name.get().unwrap_or("?"))
            .say(tone, format!("  {outcome}{took}"))
    }

    fn end(&self, end: &EngineEnd<'_>, at: Option<Timestamp>) -> TimelineEntry {
        let status = end.status.get().unwrap_or(Status::Failed.name());
        let tone = if status == "COMPLETED" {
            Tone::Good
        } else {
            Tone::Bad
        };
        let mut figures = vec![end.stop_reason.get().unwrap_or("?").to_owned()];
        figures.extend(end.exit_code.map(|code| format!("exit code {code}")));
        if let (Some(start), Some(at)) = (self.started_at, at) {
            figures.push(format_duration(at.since(start)));
            let (asked, answered) = (self.tokens.prompt_tokens, self.tokens.completion_tokens);
            if !self.is_flow {
                figures.push(format!("{asked} + {answered} tokens"));
            }
        }
        let entry = TimelineEntry::new("end")
            .say(tone, status)
            .say(Tone::Dim, format!("  ({})", figures.join(", ")));
        match end.error.get() {
            Some(error) => entry.add_line(Tone::Bad, error.trim_end()),
            // The result is what the model said last.
            None => entry,
        }
    }

    fn written(&self, entry: &TimelineEntry, at: Option<Timestamp>) -> String {
        let clock = match (at, self.zero) {
            (Some(at), Some(zero)) => clock(at.since(zero)),
            _ => String::new(),
        };
        let rest = format!(
            "{}{:indent$}",
            self.margin,
            "",
            indent = 9 + 2 + WHO_WIDTH + 1
        );
        let head = format!(
            "{}{clock:>9}  {:<width$} ",
            self.margin,
            entry.who,
            width = WHO_WIDTH
        );
        let mut out = painted(self.colour, &[(Tone::Dim, &head)]);
        for (tone, text) in &entry.said {
            for (index, line) in text.split('\n').enumerate() {
                if index > 0 {
                    out.push('\n');
                    if !line.is_empty() {
                        out.push_str(&painted(self.colour, &[(Tone::Dim, &rest)]));
                    }
                }
                out.push_str(&painted(self.colour, &[(*tone, line)]));
            }
        }
        out.push('\n');
        for (tone, text) in &entry.below {
            for line in text.split('\n') {
                if !line.is_empty() {
                    let pieces = [(Tone::Dim, rest.as_str()), (*tone, line)];
                    out.push_str(&painted(self.colour, &pieces));
                }
                out.push('\n');
            }
        }
        out
    }
}

/// The entry of an event in an iteration.
fn numbered(line: &Line<'_>) -> TimelineEntry {
    TimelineEntry::new(format!("[{}]", line.iteration.unwrap_or(0)))
}

/// The finding of an action's check.
fn checked(status: &str) -> &'static str {
    match status {
        "HAPPENED" => " has happened, its check says",
        "ABSENT" => " has not happened, its check says",
        _ => " may have happened, its check says",
    }
}

/// A check of a final answer.
fn acceptance(line: &Line<'_>, check: &Acceptance<'_>) -> TimelineEntry {
    let what = in_short(check.what.get().unwrap_or("?"), COMMAND_WIDTH);
    let took = format_millis(check.duration_ms.unwrap_or(0));
    let (tone, outcome) = match (check.content.get(), check.exit_code.unwrap_or(0)) {
        (None, 0) => (Tone::Good, "accepted".to_owned()),
        (Some(_), code) => (Tone::Bad, format!("refused, exit code {code}")),
        (None, code) => (Tone::Bad, format!("not checked, exit code {code}")),
    };
    let mut entry = numbered(line)
        .say(Tone::Dim, "? ")
        .say(Tone::Command, what)
        .say(tone, format!("  {outcome}, {took}"));
    for said in shortened(&content(check.content)) {
        entry = entry.add_line(Tone::Dim, said);
    }
    entry
}

fn start(line: &Line<'_>, start: &EngineStart<'_>) -> TimelineEntry {
    #[derive(Deserialize)]
    struct Suite {
        name: String,
    }
    let config = start.config();
    let name = config.get("name").read().unwrap_or_else(|| "?".to_owned());
    let suites: Vec<Suite> = config.get("suites").read().unwrap_or_default();
    let what = match config.get("start").read::<String>() {
        Some(start) => format!("flow {name} from {start}"),
        None if suites.is_empty() => {
            let model = config.model().unwrap_or_else(|| "?".to_owned());
            format!("agent {name}, model {model}")
        }
        None => {
            let suites: Vec<String> = suites.into_iter().map(|suite| suite.name).collect();
            format!("evaluation {name}: {}", suites.join(", "))
        }
    };
    let verb = if start.resumed == Some(true) {
        "resumes"
    } else {
        "starts"
    };
    let run = start.run_id.get().unwrap_or("?");
    let fork = start.forked_from.as_ref().map_or_else(String::new, |from| {
        let ForkedFrom { run_id, iteration } = from;
        format!(" as a fork of {run_id} at iteration {iteration}")
    });
    let date = date_and_time(&line.timestamp);
    let place = start.work_dir.get().unwrap_or("?");
    TimelineEntry::new("run")
        .say(Tone::Said, format!("{run} {verb}{fork}"))
        .say(Tone::Dim, format!("  {date} UTC"))
        .add_line(Tone::Dim, format!("{what}, in {place}"))
}

fn content(text: Raw<'_>) -> String {
    text.text().trim_end().to_owned()
}

/// The beginning and the end of an output.
fn shortened(text: &str) -> Vec<String> {
    let (first, last) = OUTPUT_LINES;
    let count = text.lines().count();
    let omitted = count.saturating_sub(first + last);
    let mut shown = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if omitted > 1 && index == first {
            shown.push(format!("… {omitted} more lines …"));
        }
        if omitted <= 1 || index < first || index >= count - last {
            shown.push(cut_to_columns(line, OUTPUT_WIDTH));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_is_shown_from_both_ends() {
        let text = |n: usize| {
            let lines: Vec<String> = (1..=n).map(|i| i.to_string()).collect();
            lines.join("\n")
        };
        assert_eq!(shortened(&text(8)).len(), 8);
        let shown = shortened(&text(100));
        assert_eq!(
            shown,
            ["1", "2", "3", "4", "5", "… 93 more lines …", "99", "100"]
        );
        assert_eq!(shortened(&"é".repeat(500))[0].chars().count(), 160);
    }
}
