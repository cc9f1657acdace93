//! An evaluation as one page of HTML: the verdict, settings side by side, cases as rows, outputs beside what was expected,
//! with a link for each trial to the page of its run.
//!
//! Unaware of statistics: the results were kept when they were printed last. The page is data and a script, like that of a
//! run, and by the same rule: nothing in it becomes markup.

use super::report::writer::{PageRecord, Writer};
use super::report::{Sink, head, tail};
use crate::error::{At, Result};
use crate::record::event::decoded;
use crate::record::event::evaluation::{RESULTS, result_path};
use crate::record::run_dir::RunDir;
use crate::text::ids::RunId;
use crate::text::json::{self, Fields};
use crate::text::order;
use crate::text::packed::{packed, unpacked};
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::secret::Secret;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

pub(super) static SCRIPT: LazyLock<String> = LazyLock::new(|| unpacked(packed!("evaluation.js")));

/// See that of the report.
pub(super) const SCRIPT_HASH: &str = include_str!("report/evaluation.js.sha256");

/// An evaluation, as its results were printed last.
pub(crate) struct EvaluationPage<'r> {
    run: &'r RunDir,
    secrets: Vec<Secret>,
    /// A file for each suite: JSON lines.
    suites: Vec<String>,
}

/// A trial of a suite, as its line names them.
struct TrialPlace {
    suite: String,
    id: RunId,
}

impl TrialPlace {
    /// None if a name could lead anywhere else.
    fn read(suite: &str, members: &Fields<'_>) -> Option<Self> {
        RunId::parse(suite).ok()?;
        Some(Self {
            suite: suite.to_owned(),
            id: RunId::parse(&members.read::<String>("run_id").ok()?).ok()?,
        })
    }

    fn run(self, root: &Path) -> Option<RunDir> {
        let id = self.id.as_str();
        let place = root.join("eval").join(&self.suite).join(id);
        let path = place.join(".delta").join(id);
        let is_there = path.join("journal.jsonl").is_file();
        is_there.then_some(RunDir { id: self.id, path })
    }

    /// The file of its page, from that of the evaluation.
    fn page(&self) -> String {
        format!("{}/{}.html", self.suite, self.id)
    }
}

impl<'r> EvaluationPage<'r> {
    /// Reads the results of a run without these secrets; none if it has none.
    pub(crate) fn read(run: &'r RunDir, secrets: Vec<Secret>) -> Result<Option<Self>> {
        let Ok(entries) = fs::read_dir(run.path.join(RESULTS)) else {
            return Ok(None);
        };
        let mut names: Vec<_> = entries.flatten().map(|it| it.file_name()).collect();
        names.retain(|name| Path::new(name).extension().is_some_and(|it| it == "jsonl"));
        order::sort(&mut names);
        let mut page = Self {
            run,
            secrets,
            suites: Vec::new(),
        };
        for name in names {
            let path = Path::new(RESULTS).join(name);
            let bytes = page.read_file(&path).at("read", &run.path.join(&path))?;
            page.suites
                .push(String::from_utf8_lossy(&bytes).into_owned());
        }
        Ok((!page.suites.is_empty()).then_some(page))
    }

    /// A file of the run, without the secrets.
    fn read_file(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        let mut bytes = files::read_below(&self.run.path, path, 2 * LARGEST_INPUT)?;
        for secret in &self.secrets {
            secret.redact(&mut bytes);
        }
        Ok(bytes)
    }

    /// The lines of all suites, each with the name of its suite.
    fn lines(&self) -> impl Iterator<Item = (String, Fields<'_>)> {
        self.suites.iter().flat_map(|text| {
            let mut lines = text
                .lines()
                .map(json::read_or_default::<Fields<'_>>)
                .peekable();
            let suite: Option<String> = lines.peek().and_then(|first| first.read("suite").ok());
            let suite = suite.unwrap_or_default();
            lines.map(move |line| (suite.clone(), line))
        })
    }

    /// The runs of trials, each with the file of its page, from the page of the evaluation. `root` is the
    /// evaluation's workspace.
    pub(crate) fn runs(&self, root: &Path) -> Vec<(PathBuf, RunDir)> {
        let trials = self.lines().filter_map(|(suite, line)| {
            let place = TrialPlace::read(&suite, &line)?;
            Some((place.page().into(), place.run(root)?))
        });
        trials.collect()
    }

    /// Writes the page, with links to those of the runs in `root`, if these are written, too.
    pub(crate) fn write(&self, root: Option<&Path>, sink: &mut Sink<'_>) -> Result<()> {
        let mut writer = Writer::new(sink);
        let id = self.run.id.as_str();
        writer.raw(&head(id, SCRIPT_HASH))?;
        writer.record("page", |record| {
            record.put("id", id);
        })?;
        for (suite, line) in self.lines() {
            let kind: String = line.read("type").unwrap_or_default();
            writer.record(&kind, |record| self.fill(record, &suite, &line, root))?;
        }
        writer.raw(&tail(&SCRIPT))?;
        writer.end()
    }

    fn fill(
        &self,
        record: &mut PageRecord<'_>,
        suite: &str,
        line: &Fields<'_>,
        root: Option<&Path>,
    ) {
        let place = self.run.path.join(RESULTS).join(format!("{suite}.jsonl"));
        for (name, value) in &line.0 {
            match &**name {
                "type" | "execution_ref" | "assertions" => {}
                "input" | "expected" | "reason" => {
                    put_text(record, name, value.get(), &place);
                }
                _ => {
                    record.put(name, value);
                }
            }
        }
        let answer: Option<String> = line.read("execution_ref").ok();
        if let Some(path) = answer.as_deref().and_then(result_path)
            && let Ok(bytes) = self.read_file(&path)
        {
            let text = String::from_utf8_lossy(&bytes);
            let result: Fields<'_> = json::read_or_default(&*text);
            if let Some(output) = result.raw("output") {
                put_text(record, "output", output.get(), &self.run.path.join(path));
            }
        }
        if let Some(place) = TrialPlace::read(suite, line)
            && let page = place.page()
            && root.is_some_and(|root| place.run(root).is_some())
        {
            record.put("page", &page);
        }
    }
}

/// A text as it is, anything else as indented JSON; nothing for null. All of it is in the file `place`.
fn put_text(record: &mut PageRecord<'_>, name: &str, json: &str, place: &Path) {
    let place = place.to_string_lossy();
    if json.starts_with('"') {
        record.text(name, &decoded(json), &place);
    } else if json != "null" {
        let value: Value = json::read_or_default(json);
        let indented = serde_json::to_string_pretty(&value).unwrap_or_default();
        record.text(name, &indented, &place);
    }
}
