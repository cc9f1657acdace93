//! `delta-flow artifacts`: the index of all that a run brought: outputs of nodes, results of tools, and files.
//!
//! Reads the journal only, and with `--verify` the files that it names. Schemas are those of the flow's directory, if it is
//! as it was.

use super::basis;
use super::check;
use crate::error::{Exit, Result};
use crate::flow::manifest::Flow;
use crate::flow::record::made_files::MadeFile;
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::flow::record::{each_line, task_path};
use crate::record::event::{Line, Recorded};
use crate::record::run_dir::RunDir;
use crate::runs::find;
use crate::text::digest::sha256_of;
use crate::text::disguise::printable_line;
use crate::text::json;
use crate::text::options::parse::ParsedCommand;
use crate::text::order;
use crate::text::shorten::in_short;
use crate::unix::files;
use crate::unix::terminal::{print, print_value};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

/// Longer outputs are only counted.
const SHOWN: usize = 60;

/// Something that a run brought.
#[derive(Debug, Default, Serialize)]
struct Artifact {
    task_id: String,
    node_id: String,
    /// `output`, `tool` or `file`.
    kind: &'static str,
    /// The schema of an output or a tool's result, if the flow is still what it was.
    schema: Option<String>,
    timestamp: String,
    /// The tool of a result.
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
    /// The fault of its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    differs: Option<String>,
}

/// Runs the command.
pub(crate) fn list_artifacts(given: &ParsedCommand) -> Result<Exit> {
    let run = find::find_run_or_newest(&given.work_dir(), given.operand_text(0).as_deref())?;
    let past = basis::shown_basis(&run, None)?;
    let flow = past.unchanged_flow();
    if flow.is_none() {
        let text = "warning: files of the flow have changed since the run; schemas are not known";
        check::warn(text);
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
        if let Recorded::NodeEnd(end) = &line.event
            && end.records_removed == Some(true)
        {
            removed.extend(line.step());
        }
        Ok(true)
    })?;
    for it in &mut all {
        // The results of tools went with the records of the step.
        if it.kind == "tool" && removed.contains(&(it.task_id.clone(), it.node_id.clone())) {
            it.path = None;
        }
    }
    let [node, schema] = ["--node", "--schema"].map(|option| given.text(option));
    index.check_names(node.as_deref(), schema.as_deref(), &all)?;
    all.retain(|it| {
        node.as_ref().is_none_or(|node| *node == it.node_id)
            && (schema.is_none() || schema == it.schema)
    });
    if given.has("--verify") {
        all.iter_mut().for_each(Artifact::verify);
    }
    if given.has("--json") {
        print_value(&json!({
            "schema_version": SCHEMA_VERSION,
            "run_id": run.id.as_str(),
            "artifacts": all,
        }))?;
    } else {
        let lines = all.iter().map(|it| printable_line(&it.line()) + "\n");
        print(lines.collect::<String>().as_bytes())?;
    }
    Ok(if all.iter().any(|it| it.differs.is_some()) {
        Exit::Failure
    } else {
        Exit::Success
    })
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
    fn check_names(
        &self,
        node: Option<&str>,
        schema: Option<&str>,
        all: &[Artifact],
    ) -> Result<()> {
        let mut nodes: Vec<&str> = match self.flow {
            Some(flow) => flow.graph.nodes.iter().map(|it| it.id.as_str()).collect(),
            None => all.iter().map(|it| it.node_id.as_str()).collect(),
        };
        order::sort(&mut nodes);
        nodes.dedup();
        check_name("--node", node, &nodes)?;
        let Some(flow) = self.flow else { return Ok(()) };
        let schemas: Vec<&str> = flow.schemas.iter().map(|it| it.id.as_str()).collect();
        check_name("--schema", schema, &schemas)
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
            timestamp: line.timestamp.to_string(),
            base: self.run.path.clone(),
            ..Artifact::default()
        };
        match &line.event {
            Recorded::NodeEnd(end) => {
                let (name, text) = (end.output_ref.get(), end.output.get());
                if name.is_some() || text.is_some() {
                    all.push(Artifact {
                        schema: self.schema_of_node(&node_id),
                        path: name.map(|name| self.run.path.join(name)),
                        size: text.map(|text| text.len() as u64),
                        output: end.output.read(),
                        ..artifact("output")
                    });
                }
                let files: Vec<MadeFile> = end.outputs.read_or_default();
                let dir = self.dir_of(&task_id);
                all.extend(files.into_iter().map(|file| Artifact {
                    path: Some(dir.join(file.path)),
                    base: dir.clone(),
                    size: Some(file.size),
                    sha256: Some(file.sha256),
                    ..artifact("file")
                }));
            }
            Recorded::Tool(call) if &*call.status == "success" => {
                let name = &*call.tool_name;
                let records = line.execution_ref.get();
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
        Some(flow.schema(tool.schema_out.as_ref())?.id.clone())
    }

    /// The directory that a task worked in.
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
        let mut line = format!(
            "{}  {}  {}  {kind}  {schema}  {what}",
            self.timestamp, self.task_id, self.node_id
        );
        if let Some(why) = &self.differs {
            line.push_str(&format!("  DIFFERS: {why}"));
        }
        line
    }
}
