//! `delta-flow artifacts`: the index of all that a run brought: outputs of nodes, results of tools, and files.
//!
//! Reads the journal only, and with `--verify` the files that it names. Schemas are those of the flow's directory, if it is
//! as it was.

use super::args::ArtifactsArgs;
use super::basis;
use crate::error::{Error, Exit, Result};
use crate::flow::PROGRAM;
use crate::flow::manifest::Flow;
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::flow::record::{each_line, task_path};
use crate::record::event::{EventKind, FlowEvent, Line};
use crate::record::run_dir::RunDir;
use crate::runs::find;
use crate::runs::origin::warn_if_foreign_run;
use crate::text::digest::sha256_of;
use crate::text::disguise::printable_line;
use crate::text::json;
use crate::text::options::format::OutputFormat;
use crate::text::shorten::in_short;
use crate::unix::files;
use crate::unix::terminal::{Screen, print, print_value};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

/// Longer outputs are only counted.
const SHOWN: usize = 60;

/// Something that a run brought.
#[derive(Debug, Serialize)]
struct Artifact {
    task_id: String,
    node_id: String,
    /// `output`, `tool` or `file`.
    kind: &'static str,
    /// Of an output or a tool's result; none: it has none, or the flow is no longer what it was.
    schema: Option<String>,
    timestamp: String,
    /// Of a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<String>,
    /// The file that has it; none: the journal itself.
    path: Option<PathBuf>,
    /// The directory below which the file is read.
    #[serde(skip)]
    base: PathBuf,
    /// Bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    /// An output in the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Value>,
    /// What is wrong with its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    differs: Option<String>,
}

/// A file as the end of a node records it.
#[derive(Deserialize)]
struct RecordedFile {
    path: String,
    size: u64,
    sha256: String,
}

/// Runs the command.
pub(crate) fn list_artifacts(wanted: &ArtifactsArgs) -> Result<Exit> {
    let run = find::find_run_or_newest(&wanted.work_dir, wanted.run.as_deref())?;
    warn_if_foreign_run(&run)?;
    let Some(past) = basis::read_recorded_basis(&run)? else {
        let id = &run.id;
        return Err(Error::failure(format!("run {id} is not a flow's")));
    };
    let flow = past.unchanged_flow();
    if flow.is_none() {
        let text = "warning: files of the flow have changed since the run; schemas are not known";
        Screen::new(false, false).warn_as(PROGRAM, text);
    }
    let index = Index {
        run: &run,
        flow: flow.as_ref(),
        has_many_roots: past.has_many_roots(),
    };
    let mut all: Vec<Artifact> = Vec::new();
    let mut removed = HashSet::new();
    each_line(&run.journal(), true, |line| {
        index.add(line, &mut all);
        removed.extend(line.step().filter(|_| line.records_removed == Some(true)));
        Ok(true)
    })?;
    // The results of tools went with the records of the step.
    let is_gone = |it: &&mut Artifact| {
        it.kind == "tool" && removed.contains(&(it.task_id.clone(), it.node_id.clone()))
    };
    all.iter_mut().filter(is_gone).for_each(|it| it.path = None);
    index.check_names(wanted, &all)?;
    let is_wanted = |wanted: &Option<String>, found: Option<&str>| {
        wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
    };
    all.retain(|it| {
        is_wanted(&wanted.node, Some(&it.node_id))
            && is_wanted(&wanted.schema, it.schema.as_deref())
    });
    if wanted.verify {
        all.iter_mut().for_each(Artifact::verify);
    }
    let differs = all.iter().any(|it| it.differs.is_some());
    match wanted.format {
        OutputFormat::Json => print_index(&run, &all)?,
        OutputFormat::Text => {
            let lines = all.iter().map(|it| printable_line(&it.line()) + "\n");
            print(lines.collect::<String>().as_bytes())?;
        }
    }
    Ok(if differs {
        Exit::Failure
    } else {
        Exit::Success
    })
}

fn print_index(run: &RunDir, all: &[Artifact]) -> Result<()> {
    let object = serde_json::json!({
        "schema_version": SCHEMA_VERSION,
        "run_id": run.id.as_str(),
        "artifacts": all,
    });
    print_value(&object)
}

fn check_name(option: &str, name: Option<&str>, known: &[&str]) -> Result<()> {
    match name.filter(|name| !known.contains(name)) {
        Some(name) => Err(basis::unknown_name(option, name, known.iter().copied())),
        None => Ok(()),
    }
}

/// A run whose journal is read.
struct Index<'i> {
    run: &'i RunDir,
    flow: Option<&'i Flow>,
    has_many_roots: bool,
}

impl Index<'_> {
    /// Refuses names that the flow does not have. Of a flow that has changed, only the nodes that brought something are known.
    fn check_names(&self, wanted: &ArtifactsArgs, all: &[Artifact]) -> Result<()> {
        let mut nodes: Vec<&str> = match self.flow {
            Some(flow) => flow.graph.nodes.iter().map(|it| it.id.as_str()).collect(),
            None => all.iter().map(|it| it.node_id.as_str()).collect(),
        };
        nodes.sort_unstable();
        nodes.dedup();
        check_name("--node", wanted.node.as_deref(), &nodes)?;
        let Some(flow) = self.flow else { return Ok(()) };
        let schemas: Vec<&str> = flow.schemas.iter().map(|it| it.id.as_str()).collect();
        check_name("--schema", wanted.schema.as_deref(), &schemas)
    }

    /// Adds what an event brings.
    fn add(&self, line: &Line<'_>, all: &mut Vec<Artifact>) {
        let Some((task_id, node_id)) = line.step() else {
            return;
        };
        let artifact = |kind| Artifact {
            task_id: task_id.clone(),
            node_id: node_id.clone(),
            kind,
            schema: None,
            timestamp: line.timestamp.as_deref().unwrap_or_default().to_owned(),
            tool_name: None,
            path: None,
            base: self.run.path.clone(),
            size: None,
            sha256: None,
            output: None,
            differs: None,
        };
        match line.kind {
            EventKind::Flow(FlowEvent::NodeEnd) => {
                let name = line.output_ref.as_deref();
                if name.is_some() || line.output.is_some() {
                    let text = line.output.map(RawValue::get);
                    all.push(Artifact {
                        schema: self.schema_of_node(&node_id),
                        path: name.map(|name| self.run.path.join(name)),
                        size: text.map(|text| text.len() as u64),
                        output: text.and_then(|text| serde_json::from_str(text).ok()),
                        ..artifact("output")
                    });
                }
                let files = line.outputs.map_or("[]", RawValue::get);
                let files: Vec<RecordedFile> = serde_json::from_str(files).unwrap_or_default();
                let dir = self.dir_of(&task_id);
                all.extend(files.into_iter().map(|file| Artifact {
                    path: Some(dir.join(file.path)),
                    base: dir.clone(),
                    size: Some(file.size),
                    sha256: Some(file.sha256),
                    ..artifact("file")
                }));
            }
            EventKind::Flow(FlowEvent::Tool) if line.status.as_deref() == Some("success") => {
                let name = line.tool_name.as_deref().unwrap_or_default();
                let records = line.execution_ref.as_deref();
                all.push(Artifact {
                    schema: self.schema_of_tool(name),
                    tool_name: Some(name.to_owned()),
                    path: records.map(|dir| self.run.path.join(dir).join("stdout.log")),
                    ..artifact("tool")
                });
            }
            _ => {}
        }
    }

    fn schema_of_node(&self, id: &str) -> Option<String> {
        let flow = self.flow?;
        let schema = flow.schema_out(flow.graph.find(id)?)?;
        Some(schema.id.clone())
    }

    fn schema_of_tool(&self, name: &str) -> Option<String> {
        let flow = self.flow?;
        let tool = flow.tools.iter().find(|tool| tool.tool.name == name)?;
        Some(flow.schemas[tool.schema_out?].id.clone())
    }

    /// Where a task worked.
    fn dir_of(&self, task: &str) -> PathBuf {
        let root = self.run.workspace().unwrap_or(&self.run.path);
        let is_alone = !task.contains('.') && !self.has_many_roots;
        task_path(root, self.run.id.as_str(), (!is_alone).then_some(task))
    }
}

impl Artifact {
    /// Compares its file with what is recorded of it. Of an output there is no digest, and its file must be JSON.
    fn verify(&mut self) {
        let Some(path) = &self.path else { return };
        // What leads elsewhere is nothing that the run brought.
        let below = path.strip_prefix(&self.base).unwrap_or(path);
        let found = match (&self.sha256, self.kind) {
            (Some(recorded), _) => self.is_as_recorded(below, recorded),
            (None, "output") => {
                let text = files::read_text_below(&self.base, below, files::LARGEST);
                text.map(|text| json::check(&text).is_ok())
            }
            (None, _) => files::open_below(&self.base, below).map(|_| true),
        };
        self.differs = match found {
            Ok(true) => None,
            Ok(false) if self.sha256.is_none() => Some("it is no longer JSON".to_owned()),
            Ok(false) => Some("it is not what it was".to_owned()),
            Err(e) => Some(crate::error::reason(&e)),
        };
    }

    /// A file of another size is another one, and need not be read.
    fn is_as_recorded(&self, below: &Path, sha256: &str) -> io::Result<bool> {
        let mut file = files::open_below(&self.base, below)?;
        if self.size != Some(file.metadata()?.len()) {
            return Ok(false);
        }
        let read = sha256_of(&mut file, &mut io::sink(), &|| false)?;
        Ok(read.is_some_and(|(_, found)| found == sha256))
    }

    /// For people, on one line.
    fn line(&self) -> String {
        let what = match (&self.path, &self.output) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(value)) => in_short(&value.to_string(), SHOWN),
            (None, None) => String::new(),
        };
        let schema = self.schema.as_deref().unwrap_or("-");
        let kind = match &self.tool_name {
            Some(name) => format!("tool {name}"),
            None => self.kind.to_owned(),
        };
        let differs = self.differs.as_ref();
        let differs = differs.map_or_else(String::new, |why| format!("  DIFFERS: {why}"));
        format!(
            "{}  {}  {}  {kind}  {schema}  {what}{differs}",
            self.timestamp, self.task_id, self.node_id
        )
    }
}
