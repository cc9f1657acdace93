//! An evaluation as pages of HTML: a table for each suite, settings as columns, cases as rows, with a link
//! for each trial to the page of its run.
//!
//! Unaware of statistics: what is said of a setting was recorded with the last verdict. The pages have no
//! script, and every text in them is escaped.

use super::report::page_head;
use crate::error::Result;
use crate::record::event::{EvaluationEvent, EventKind};
use crate::record::reader::{JournalReader, Next};
use crate::record::run_dir::RunDir;
use crate::text::amounts::format_millis;
use crate::text::disguise::printable;
use crate::text::ids::RunId;
use crate::text::order::sort_by;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Columns of a reason that are shown.
const REASON_COLUMNS: usize = 300;

/// An evaluation, read from its journal.
#[derive(Debug, Default)]
pub(crate) struct EvaluationPage {
    suites: Vec<SuiteTable>,
}

#[derive(Debug, Default)]
struct SuiteTable {
    name: String,
    cases: Vec<String>,
    settings: Vec<String>,
    /// In the order in which they began first.
    trials: Vec<TrialCell>,
    /// Where each trial is in the list, by its case, setting and number.
    places: HashMap<(usize, usize, u64), usize>,
    verdict: Option<RecordedVerdict>,
}

/// A trial of the table.
#[derive(Debug, Default)]
pub(crate) struct TrialCell {
    /// The name, which is that of its run.
    name: String,
    case: usize,
    setting: usize,
    number: u64,
    status: String,
    reason: String,
    duration_ms: u64,
}

#[derive(Debug)]
struct RecordedVerdict {
    verdict: String,
    number: u64,
    rates: Vec<Value>,
}

/// The fields of the events that the page is made from.
#[derive(Deserialize, Default)]
#[serde(default)]
struct TrialEvent {
    suite: String,
    trial: String,
    case: String,
    setting: String,
    number: u64,
    status: String,
    stop_reason: String,
    duration_ms: u64,
    verdict: String,
    rates: Vec<Value>,
    assertions: Vec<MarkedAssertion>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MarkedAssertion {
    reason: Option<String>,
}

impl EvaluationPage {
    /// Reads the journal of a run; none if it is no evaluation's. Lines that cannot be read are passed over.
    pub(crate) fn read(run: &RunDir) -> Result<Option<Self>> {
        let mut page = Self::default();
        let mut reader = JournalReader::open(&run.journal())?;
        loop {
            match reader.read_next()? {
                // An agent's run begins with one.
                Next::Event(_, line) if line.kind == EventKind::UserMessage => return Ok(None),
                Next::Event(text, line) => page.add(&line.kind, text),
                Next::Damaged(_) => {}
                Next::End { .. } => break,
            }
        }
        Ok((!page.suites.is_empty()).then_some(page))
    }

    fn add(&mut self, kind: &EventKind<'_>, text: &str) {
        let EventKind::Evaluation(kind) = kind else {
            return;
        };
        let Ok(event) = serde_json::from_str::<TrialEvent>(text) else {
            return;
        };
        let suite = self.suite(&event.suite);
        match kind {
            EvaluationEvent::TrialStart => suite.begin(event),
            EvaluationEvent::TrialEnd | EvaluationEvent::Grade => suite.end(event),
            EvaluationEvent::Look => {
                suite.verdict = Some(RecordedVerdict {
                    verdict: event.verdict,
                    number: event.number,
                    rates: event.rates,
                });
            }
        }
    }

    fn suite(&mut self, name: &str) -> &mut SuiteTable {
        let at = self.suites.iter().position(|suite| suite.name == name);
        let at = at.unwrap_or_else(|| {
            self.suites.push(SuiteTable {
                name: name.to_owned(),
                ..SuiteTable::default()
            });
            self.suites.len() - 1
        });
        &mut self.suites[at]
    }

    /// The runs of trials, each with the file of its page, from the page of the evaluation. `root` is the
    /// evaluation's workspace.
    pub(crate) fn runs(&self, root: &Path) -> Vec<(PathBuf, RunDir)> {
        let mut runs = Vec::new();
        for suite in &self.suites {
            for trial in &suite.trials {
                if let Some(run) = suite.run_of(trial, root) {
                    runs.push((page_of(suite, trial).into(), run));
                }
            }
        }
        runs
    }

    /// The page, with links to those of the runs in `root`, if these are written, too.
    pub(crate) fn html(&self, run: &RunDir, root: Option<&Path>) -> String {
        let id = escaped(run.id.as_str());
        let mut out = page_head(&id, "style-src 'unsafe-inline'", STYLE);
        out.push_str(&format!("<h1>Evaluation <code>{id}</code></h1>\n"));
        for suite in &self.suites {
            suite.write(root, &mut out);
        }
        out.push_str("</body>\n</html>\n");
        out
    }
}

const STYLE: &str = "\
body { font: 14px/1.5 system-ui, sans-serif; margin: 20px; }
table { border-collapse: collapse; margin: 8px 0 28px; }
th, td { border-bottom: 1px solid #8885; padding: 3px 14px 3px 0; text-align: left; vertical-align: top; }
.figures td { border: 0; color: #888; }
.passed { color: #2f7a3d; } .failed { color: #b8361f; } .not_measured { color: #a6791a; }
a { text-decoration: none; } a:hover { text-decoration: underline; }
";

impl SuiteTable {
    fn begin(&mut self, event: TrialEvent) {
        let case = index_of(&mut self.cases, event.case);
        let setting = index_of(&mut self.settings, event.setting);
        let place = (case, setting, event.number);
        let trials = self.trials.len();
        let at = *self.places.entry(place).or_insert(trials);
        let trial = TrialCell {
            name: event.trial,
            case,
            setting,
            number: event.number,
            status: "running".to_owned(),
            ..TrialCell::default()
        };
        match self.trials.get_mut(at) {
            Some(before) => *before = trial,
            None => self.trials.push(trial),
        }
    }

    fn end(&mut self, event: TrialEvent) {
        let named = |trial: &&mut TrialCell| trial.name == event.trial;
        let Some(trial) = self.trials.iter_mut().rev().find(named) else {
            return;
        };
        trial.status = event.status;
        if event.duration_ms > 0 {
            trial.duration_ms = event.duration_ms;
        }
        let why = event.assertions.into_iter().find_map(|it| it.reason);
        trial.reason = match why {
            Some(why) => format!("{}: {why}", event.stop_reason),
            None => event.stop_reason,
        };
    }

    fn run_of(&self, trial: &TrialCell, root: &Path) -> Option<RunDir> {
        let id = RunId::parse(&trial.name).ok()?;
        // A name of a record leads nowhere else.
        RunId::parse(&self.name).ok()?;
        let workspace = root.join("eval").join(&self.name).join(id.as_str());
        let path = workspace.join(".delta").join(id.as_str());
        path.join("journal.jsonl")
            .is_file()
            .then_some(RunDir { id, path })
    }

    fn write(&self, root: Option<&Path>, out: &mut String) {
        out.push_str(&format!("<h2>{}</h2>\n", escaped(&self.name)));
        if let Some(look) = &self.verdict {
            let verdict = escaped(&look.verdict);
            let number = look.number;
            out.push_str(&format!(
                "<p>verdict: <b>{verdict}</b> (look {number})</p>\n"
            ));
        }
        out.push_str("<table>\n<tr><th>case</th>");
        for setting in &self.settings {
            out.push_str(&format!("<th>{}</th>", escaped(setting)));
        }
        out.push_str("</tr>\n");
        self.write_figures(out);
        for (case, id) in self.cases.iter().enumerate() {
            out.push_str(&format!("<tr><th>{}</th>", escaped(id)));
            for setting in 0..self.settings.len() {
                out.push_str("<td>");
                self.write_cell((case, setting), root, out);
                out.push_str("</td>");
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table>\n");
    }

    /// The figures that were recorded with the last verdict.
    fn write_figures(&self, out: &mut String) {
        let Some(look) = &self.verdict else { return };
        out.push_str("<tr class=\"figures\"><td>rate</td>");
        for setting in &self.settings {
            let of_setting = |it: &&Value| it.get("name").and_then(Value::as_str) == Some(setting);
            let figures = look.rates.iter().find(of_setting);
            let shown = figures.map(describe_rate).unwrap_or_default();
            out.push_str(&format!("<td>{}</td>", escaped(&shown)));
        }
        out.push_str("</tr>\n");
    }

    fn write_cell(&self, place: (usize, usize), root: Option<&Path>, out: &mut String) {
        let is_here = |trial: &&TrialCell| (trial.case, trial.setting) == place;
        let mut trials: Vec<&TrialCell> = self.trials.iter().filter(is_here).collect();
        sort_by(&mut trials, |a, b| a.number.cmp(&b.number));
        let passed = trials
            .iter()
            .filter(|trial| trial.status == "passed")
            .count();
        let measured = trials.iter().filter(|trial| trial.is_measured()).count();
        out.push_str(&format!("{passed}/{measured} "));
        for trial in trials {
            let word = match trial.status.as_str() {
                "passed" => "✓",
                "failed" => "✗",
                "not_measured" => "–",
                _ => "…",
            };
            let class = match word {
                "✓" => "passed",
                "✗" => "failed",
                _ => "not_measured",
            };
            let took = format_millis(trial.duration_ms);
            let title = escaped(&format!(
                "{}: {}, {took}",
                trial.number,
                trial.shown_reason()
            ));
            let link = root.and_then(|root| self.run_of(trial, root));
            match link {
                Some(_) => out.push_str(&format!(
                    "<a class=\"{class}\" title=\"{title}\" href=\"{}\">{word}</a> ",
                    escaped(&page_of(self, trial))
                )),
                None => {
                    out.push_str(&format!(
                        "<span class=\"{class}\" title=\"{title}\">{word}</span> "
                    ));
                }
            }
        }
    }
}

impl TrialCell {
    fn is_measured(&self) -> bool {
        matches!(self.status.as_str(), "passed" | "failed")
    }

    fn shown_reason(&self) -> String {
        crate::text::shorten::in_short(&self.reason, REASON_COLUMNS)
    }
}

/// The file of a trial's page, from that of the evaluation.
fn page_of(suite: &SuiteTable, trial: &TrialCell) -> String {
    format!("{}/{}.html", suite.name, trial.name)
}

fn index_of(names: &mut Vec<String>, name: String) -> usize {
    names.iter().position(|it| *it == name).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}

/// `80 % [64, 90], 157 of 160 measured`.
fn describe_rate(figures: &Value) -> String {
    let number = |path: &str| figures.pointer(path).and_then(Value::as_f64);
    let percent = |share: f64| (share * 100.0).round();
    let mut shown = match number("/rate") {
        Some(rate) => format!("{} %", percent(rate)),
        None => "–".to_owned(),
    };
    if let (Some(lower), Some(upper)) = (number("/ci/lower"), number("/ci/upper")) {
        shown.push_str(&format!(" [{}, {}]", percent(lower), percent(upper)));
    }
    if let (Some(measured), Some(planned)) = (number("/trials_measured"), number("/trials_planned"))
    {
        shown.push_str(&format!(", {measured} of {planned} measured"));
    }
    shown
}

/// A text escaped for HTML, also for an attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
