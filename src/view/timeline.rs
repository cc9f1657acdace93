//! A run's events as lines for a person: messages, commands, how they ended and how long they took.
//!
//! Unaware of where the events come from and where the lines go. Each event is printed by itself, with
//! the little state that must be kept of those before it.

mod flow;
mod trials;

use crate::record::engine_log::Level;
use crate::record::event::{EventKind, HookStatus, Line, Tokens};
use crate::record::execution::hook_duration;
use crate::record::invocations::{self, GivenFile};
use crate::record::metadata::Status;
use crate::record::network::read_traffic;
use crate::record::state::decoded;
use crate::text::amounts::{clock, format_duration, format_millis};
use crate::text::disguise::{disguises, escaped};
use crate::text::shorten::{cut_to_columns, in_short};
use crate::text::timestamp::{Timestamp, date_and_time};
use crate::unix::terminal::{Tone, painted};
use crate::view::asked::{COMMAND_WIDTH, KnownTools};
use crate::view::shown_answers::{NOT_SHOWN, ShownAnswers};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// As much of a line of output is shown.
const OUTPUT_WIDTH: usize = 160;

/// The numbers of lines of output shown from its beginning and from its end.
const OUTPUT_LINES: (usize, usize) = (5, 2);

/// The column between the time and the text.
const WHO_WIDTH: usize = 6;

/// The telling of one run.
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
    tools: KnownTools,
    answers: ShownAnswers,
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

#[derive(Deserialize, Default)]
#[serde(default)]
struct StartConfig<'c> {
    #[serde(borrow)]
    name: Option<Cow<'c, str>>,
    #[serde(borrow)]
    llm: StartLlm<'c>,
    /// In a workflow: the node where it begins.
    #[serde(borrow)]
    start: Option<Cow<'c, str>>,
    /// Of an evaluation.
    #[serde(borrow)]
    suites: Vec<StartSuite<'c>>,
}

#[derive(Deserialize)]
struct StartSuite<'c> {
    #[serde(borrow)]
    name: Cow<'c, str>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StartLlm<'c> {
    #[serde(borrow)]
    model: Option<Cow<'c, str>>,
    #[serde(borrow)]
    command: Vec<Cow<'c, str>>,
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
            tools: KnownTools::default(),
            answers: ShownAnswers::default(),
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
        let text = |from: &Option<Cow<'_, str>>| from.as_deref().unwrap_or_default().to_owned();
        let number = || format!("[{}]", line.iteration.unwrap_or(0));
        self.is_flow |= line.task_id.is_some();
        Some(match line.kind {
            EventKind::EngineStart => {
                self.started_at = at;
                self.tokens = Tokens::default();
                self.tools = KnownTools::of_start(line);
                start(line)
            }
            EventKind::UserMessage => {
                TimelineEntry::new("user").say(Tone::Said, content(line.content))
            }
            EventKind::Thought => self.thought(line, at),
            EventKind::ActionRequest => {
                self.running = Some(text(&line.action_id));
                TimelineEntry::new(number())
                    .say(Tone::Dim, "$ ")
                    .say(Tone::Command, self.tools.shown(line))
            }
            EventKind::ActionCheck => {
                let entry = TimelineEntry::new(number()).say(Tone::Dim, "? ");
                let entry = entry.say(Tone::Command, text(&line.tool_name));
                entry.say(Tone::Dim, checked(line))
            }
            EventKind::ActionDeferred | EventKind::DeferredLook => {
                TimelineEntry::new(number()).say(Tone::Dim, format!("  {}", line.deferral()))
            }
            EventKind::ActionResult => return self.result(line),
            EventKind::Acceptance => acceptance(line),
            EventKind::HumanInputRequest => {
                self.answers.note_question(line);
                TimelineEntry::new("asks").say(Tone::Said, text(&line.prompt))
            }
            EventKind::HumanInputReceived => {
                let entry = TimelineEntry::new("person");
                if self.answers.has_answer(line) {
                    entry.say(Tone::Said, text(&line.response))
                } else {
                    entry.say(Tone::Dim, NOT_SHOWN)
                }
            }
            EventKind::Compaction => TimelineEntry::new("note").say(Tone::Dim, line.compaction()),
            EventKind::AttachmentsLeftOut => {
                TimelineEntry::new("note").say(Tone::Dim, line.attachments_left_out())
            }
            EventKind::SystemMessage => {
                TimelineEntry::new("note").say(tone_of_level(line), content(line.content))
            }
            EventKind::ModelChanged => {
                let (from, to) = (text(&line.from), line.changed_to());
                TimelineEntry::new("model")
                    .say(Tone::Command, format!("{from} -> {to}"))
                    .say(Tone::Dim, format!(": {}", text(&line.why)))
            }
            EventKind::HookAudit => self.hook(line),
            EventKind::Error if line.node_id.is_some() => flow::retry(line),
            EventKind::Error => {
                TimelineEntry::new("error").say(Tone::Bad, text(&line.error_message))
            }
            EventKind::EngineEnd => self.end(line, at),
            EventKind::Flow(event) => {
                let entry = flow::entry(event, line);
                return entry.map(|entry| self.with_hosts(entry, line));
            }
            EventKind::Evaluation(event) => return trials::entry(event, line),
            EventKind::Unknown(ref name) => TimelineEntry::new("?").say(Tone::Dim, &**name),
        })
    }

    fn thought(&mut self, line: &Line<'_>, at: Option<Timestamp>) -> TimelineEntry {
        let mut entry = TimelineEntry::new(format!("[{}]", line.iteration.unwrap_or(0)));
        let said = line.content.map_or("null", RawValue::get);
        let calls = line.calls();
        if matches!(said, "null" | "\"\"") {
            let names = if calls.is_empty() {
                "gives an empty answer".to_owned()
            } else {
                let names = calls.iter().map(|call| &*call.function.name);
                format!("calls {}", names.collect::<Vec<_>>().join(", "))
            };
            entry = entry.say(Tone::Said, names);
        } else {
            entry = entry.say(Tone::Said, decoded(said).trim_end());
        }
        let mut figures = Vec::new();
        let recorded = line
            .llm_invocation_ref
            .as_deref()
            .and_then(|reference| invocations::metadata(&self.run.join(reference)));
        let files = recorded.iter().flat_map(|it| &it.context);
        let files: Vec<String> = files.map(GivenFile::in_words).collect();
        let recorded = recorded.map(|it| Duration::from_millis(it.duration_ms));
        let measured = || Some(at?.since(self.before?));
        figures.extend(recorded.or_else(measured).map(format_duration));
        if let Some(usage) = line.usage {
            self.tokens.add(usage.tokens());
            let (asked, answered) = (usage.prompt_tokens, usage.completion_tokens);
            figures.push(format!("{asked} + {answered} tokens"));
        }
        let mut entry = entry.say(Tone::Dim, format!("  ({})", figures.join(", ")));
        for file in files.iter().filter(|_| self.is_verbose) {
            entry = entry.add_line(Tone::Dim, format!("context: {}", escaped(file, disguises)));
        }
        match line.finish_reason.as_ref().filter(|it| it.is_cut_off()) {
            Some(reason) => entry.add_line(Tone::Bad, format!("cut off: {}", reason.name())),
            None => entry,
        }
    }

    fn result(&mut self, line: &Line<'_>) -> Option<TimelineEntry> {
        let id = line.action_id.as_deref().unwrap_or_default();
        let began = self.running.take_if(|running| running == id);
        let good = line.is_success();
        if began.is_none() && line.execution_ref.is_none() && good {
            // The person's answer has been printed already.
            return None;
        }
        let mut outcome = match (line.exit_code, line.execution_ref.is_some()) {
            _ if good => "ok".to_owned(),
            (Some(code), _) => format!("exit code {code}"),
            (None, true) => "no exit code".to_owned(),
            (None, false) => "not run".to_owned(),
        };
        if let Some(took) = line
            .duration_ms
            .filter(|_| good || line.exit_code.is_some())
        {
            outcome.push_str(&format!(", {}", format_millis(took)));
        }
        let mut entry = TimelineEntry::new(format!("[{}]", line.iteration.unwrap_or(0)));
        if began.is_none() {
            let name = line.tool_name.as_deref().unwrap_or("?");
            entry = entry.say(Tone::Command, format!("{name} "));
        }
        let tone = if good { Tone::Good } else { Tone::Bad };
        entry = entry.say(tone, outcome);
        let observation = if self.answers.has_result(line) {
            content(line.observation_content)
        } else {
            NOT_SHOWN.to_owned()
        };
        for line in shortened(&observation) {
            entry = entry.add_line(Tone::Dim, line);
        }
        Some(self.with_hosts(entry, line))
    }

    /// The same with the hosts that a tool connected to, if they are wanted.
    fn with_hosts(&self, mut entry: TimelineEntry, line: &Line<'_>) -> TimelineEntry {
        let reference = line.execution_ref.as_deref();
        for host in read_traffic(&self.run, reference.filter(|_| self.is_verbose)) {
            let tone = if host.allowed { Tone::Dim } else { Tone::Bad };
            entry = entry.add_line(tone, host.in_words());
        }
        entry
    }

    fn hook(&self, line: &Line<'_>) -> TimelineEntry {
        let name = line.hook_name.as_deref().unwrap_or("?");
        let good = line.status.as_deref() == Some(HookStatus::Success.name());
        let took = line
            .io_path_ref
            .as_deref()
            .and_then(|reference| hook_duration(&self.run.join(reference)))
            .map_or_else(String::new, |took| format!(", {}", format_millis(took)));
        let outcome = if good { "ok" } else { "failed" };
        let tone = if good { Tone::Good } else { Tone::Bad };
        TimelineEntry::new("hook")
            .say(Tone::Command, name)
            .say(tone, format!("  {outcome}{took}"))
    }

    fn end(&self, line: &Line<'_>, at: Option<Timestamp>) -> TimelineEntry {
        let status = line.status.as_deref().unwrap_or(Status::Failed.name());
        let tone = if status == "COMPLETED" {
            Tone::Good
        } else {
            Tone::Bad
        };
        let mut figures = vec![line.stop_reason.as_deref().unwrap_or("?").to_owned()];
        figures.extend(line.exit_code.map(|code| format!("exit code {code}")));
        if let (Some(at), Some(start)) = (at, self.started_at) {
            figures.push(format_duration(at.since(start)));
            let (asked, answered) = (self.tokens.prompt_tokens, self.tokens.completion_tokens);
            if !self.is_flow {
                figures.push(format!("{asked} + {answered} tokens"));
            }
        }
        let entry = TimelineEntry::new("end")
            .say(tone, status)
            .say(Tone::Dim, format!("  ({})", figures.join(", ")));
        match &line.error {
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

/// The finding of an action's check.
fn tone_of_level(line: &Line<'_>) -> Tone {
    match line.level.as_deref().and_then(Level::parse) {
        Some(Level::Warn | Level::Error) => Tone::Bad,
        _ => Tone::Dim,
    }
}

fn checked(line: &Line<'_>) -> &'static str {
    match line.status.as_deref() {
        Some("HAPPENED") => " has happened, its check says",
        Some("ABSENT") => " has not happened, its check says",
        _ => " may have happened, its check says",
    }
}

/// A check of a final answer.
fn acceptance(line: &Line<'_>) -> TimelineEntry {
    let what = in_short(line.what.as_deref().unwrap_or("?"), COMMAND_WIDTH);
    let took = line.duration_ms.unwrap_or(0);
    let took = format_millis(took);
    let code = line.exit_code.unwrap_or(0);
    let (tone, outcome) = match (line.content, code) {
        (None, 0) => (Tone::Good, "accepted".to_owned()),
        (Some(_), code) => (Tone::Bad, format!("refused, exit code {code}")),
        (None, code) => (Tone::Bad, format!("not checked, exit code {code}")),
    };
    let mut entry = TimelineEntry::new(format!("[{}]", line.iteration.unwrap_or(0)))
        .say(Tone::Dim, "? ")
        .say(Tone::Command, what)
        .say(tone, format!("  {outcome}, {took}"));
    for said in shortened(&content(line.content)) {
        entry = entry.add_line(Tone::Dim, said);
    }
    entry
}

fn start(line: &Line<'_>) -> TimelineEntry {
    let config: StartConfig<'_> = line
        .config
        .and_then(|config| serde_json::from_str(config.get()).ok())
        .unwrap_or_default();
    let model = config
        .llm
        .model
        .or_else(|| config.llm.command.into_iter().next());
    let name = config.name.as_deref().unwrap_or("?");
    let suites: Vec<&str> = config.suites.iter().map(|suite| &*suite.name).collect();
    let what = match (&config.start, &suites[..]) {
        (Some(start), _) => format!("flow {name} from {start}"),
        (None, []) => format!("agent {name}, model {}", model.as_deref().unwrap_or("?")),
        (None, suites) => format!("evaluation {name}: {}", suites.join(", ")),
    };
    let date = line.timestamp.as_deref().unwrap_or_default();
    let date = date_and_time(date);
    let verb = if line.resumed == Some(true) {
        "resumes"
    } else {
        "starts"
    };
    let run = line.run_id.as_deref().unwrap_or("?");
    let fork = line.forked_from.as_ref().map_or_else(String::new, |from| {
        format!(
            " as a fork of {} at iteration {}",
            from.run_id, from.iteration
        )
    });
    TimelineEntry::new("run")
        .say(Tone::Said, format!("{run} {verb}{fork}"))
        .say(Tone::Dim, format!("  {date} UTC"))
        .add_line(
            Tone::Dim,
            format!("{what}, in {}", line.work_dir.as_deref().unwrap_or("?")),
        )
}

fn content(raw: Option<&RawValue>) -> String {
    let text = raw.map_or(Cow::Borrowed(""), |raw| decoded(raw.get()));
    text.trim_end().to_owned()
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
