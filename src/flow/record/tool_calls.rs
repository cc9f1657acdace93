//! Tools of a node: the record of a call, and how they are offered to an agent.
//!
//! A call is recorded by the process that a node's program starts for it, and reported in the journal by the
//! engine, the only writer there. A record has a hidden name until it is complete.

use crate::config::document::Document;
use crate::config::load;
use crate::config::tool::definition::{Inject, InputForm, Parameter};
use crate::error::{At, Result, ignore};
use crate::flow::graph::NodeIx;
use crate::flow::manifest::{AgentBody, Denied, Flow, FlowTool};
use crate::record::execution;
use crate::text::json::{text, without_nulls};
use crate::text::names::named_enum;
use crate::text::order;
use crate::unix::files;
use crate::unix::own_program::own_program;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of the calls, in an attempt's directory of records.
pub(crate) const DIR: &str = "tools";

/// The file of a record that is read back.
const RESULT: &str = "result.json";

/// A call and its result.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct NodeToolCall {
    /// The tool's id.
    pub tool_name: String,
    /// `DELTA_CALL_ID` of its processes.
    pub call_id: String,
    /// The kind of its failure.
    pub code: Option<CallCode>,
    /// The failure in words.
    pub message: Option<String>,
    /// The exit code that the caller got.
    pub exit_code: i32,
    /// From start to end; 0 if it was not run.
    pub duration_ms: u64,
    /// The command on one line, if one was built.
    pub resolved_command: Option<String>,
    /// The rule of a policy that denies it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied: Option<Denied>,
}

named_enum! {
    /// The reason why a call is no success, in one word.
    pub(crate) enum CallCode {
        /// The node does not allow the tool, or the arguments are wrong. Nothing was run.
        Misuse = "misuse",
        /// A policy denies the tool. Nothing was run.
        PolicyDenied = "policy_denied",
        /// The program failed.
        Operation = "operation",
        Timeout = "timeout",
        SchemaOut = "schema_out",
    }
}

impl CallCode {
    /// The tool should not have been called like this.
    pub(crate) fn is_misuse(self) -> bool {
        matches!(self, Self::Misuse | Self::PolicyDenied)
    }
}

impl NodeToolCall {
    /// The status, as nodes and tasks have it.
    pub(crate) fn status(&self) -> &'static str {
        match (self.code, self.exit_code) {
            (None, 0) => "success",
            (None, _) => "partial",
            (Some(_), _) => "failure",
        }
    }
}

/// A record that is being made.
#[derive(Debug)]
pub(crate) struct CallRecord {
    number: u32,
    /// The directory, until the record is complete.
    pub dir: PathBuf,
}

impl CallRecord {
    /// Takes the next number. Several processes may do so at once.
    pub(crate) fn begin(io: &Path) -> Result<Self> {
        /// Names with a higher number are not ours.
        const MOST: u32 = 1_000_000_000;
        let all = io.join(DIR);
        files::make_dirs(&all)?;
        loop {
            let names = files::names(&all)?;
            let known = names.iter().filter_map(|name| number_of(name));
            let number = known.filter(|it| *it < MOST).max().unwrap_or(0) + 1;
            let dir = all.join(format!(".{number:03}"));
            match fs::DirBuilder::new().mode(0o700).create(&dir) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                made => made.at("create", &dir)?,
            }
            // One that was complete in between had the number first.
            let is_other =
                |name: &String| !name.starts_with('.') && number_of(name) == Some(number);
            if !files::names(&all)?.iter().any(is_other) {
                return Ok(Self { number, dir });
            }
            ignore(fs::remove_dir(&dir));
        }
    }

    /// Writes a file of it.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        files::write(&self.dir.join(name), text.as_bytes())
    }

    /// Completes it.
    pub(crate) fn finish(self, call: &NodeToolCall) -> Result<()> {
        let duration = Duration::from_millis(call.duration_ms);
        execution::end_record(&self.dir, call.exit_code, duration, None)?;
        self.write(RESULT, &format!("{}\n", text(call)))?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let name: String = call
            .tool_name
            .chars()
            .take(64)
            .map(|c| if is_plain(c) { c } else { '_' })
            .collect();
        let complete = self
            .dir
            .with_file_name(format!("{:03}_{name}", self.number));
        fs::rename(&self.dir, &complete).at("create", &complete)
    }
}

fn number_of(name: &str) -> Option<u32> {
    let shown = name.strip_prefix('.').unwrap_or(name);
    shown.split('_').next()?.parse().ok()
}

/// The calls that are complete in an attempt's directory of records, with the names of their
/// directories, in the order in which they began.
pub(crate) fn read_calls(io: &Path) -> Result<Vec<(String, NodeToolCall)>> {
    let all = io.join(DIR);
    if !all.is_dir() {
        return Ok(Vec::new());
    }
    let mut names = files::names(&all)?;
    names.retain(|name| !name.starts_with('.'));
    order::sort_by_key(&mut names, |name| number_of(name));
    let read = |name: String| {
        let result = Path::new(&name).join(RESULT);
        let bytes = files::read_below(&all, &result, files::LARGEST).ok()?;
        // The program can write there, too.
        Some((name, serde_json::from_slice(&bytes).ok()?))
    };
    Ok(names.into_iter().filter_map(read).collect())
}

/// The denials of tools that a node allows.
pub(crate) fn denied_tools(flow: &Flow, node: NodeIx) -> Vec<Denied> {
    let names = flow.tools_of(node).map(|tool| &*tool.tool.name);
    names
        .filter_map(|name| flow.denial_of_tool(node, name))
        .collect()
}

/// The option that gives the agent of a node, whose directory is `home`, the node's tools beside its
/// own. Empty without tools.
///
/// A tool that a policy denies is not offered, unless the agent has one of that name itself: then
/// the denied one replaces it, and each call is refused.
pub(crate) fn tools_option(flow: &Flow, node: NodeIx, home: &Path) -> Vec<String> {
    let (mut tools, names) = match flow.agent(node).map(|agent| &agent.body) {
        Some(AgentBody::Directory(_)) if flow.tools_of(node).next().is_some() => own_tools(home),
        _ => (Vec::new(), Vec::new()),
    };
    let denied = denied_tools(flow, node);
    let is_offered = |tool: &&FlowTool| {
        let name = &tool.tool.name;
        names.contains(name) || !denied.iter().any(|it| it.target_id == *name)
    };
    let offered: Vec<&FlowTool> = flow.tools_of(node).filter(is_offered).collect();
    if offered.is_empty() {
        return Vec::new();
    }
    // Of two tools of one name the later one counts, as with imports.
    let is_replaced = |tool: &Value| offered.iter().any(|it| tool["name"] == *it.tool.name);
    tools.retain(|tool| !is_replaced(tool));
    let program = own_program();
    tools.extend(offered.iter().map(|tool| agent_tool(tool, &program)));
    vec!["--set".to_owned(), format!("tools={}", text(&tools))]
}

/// The tools in an agent's own file, as they are written, and the names of all that it has. What it
/// imports stays as it is.
fn own_tools(home: &Path) -> (Vec<Value>, Vec<String>) {
    let (agent, mut problems, found) = load::survey(home);
    let tools = agent.into_iter().flat_map(|agent| agent.tools);
    let names = tools.map(|tool| tool.name).collect();
    let path = home.join(&found.main_file);
    let document = Document::read(&path, found.main_file, &mut problems);
    match document.and_then(|mut document| document.root.shift_remove("tools")) {
        Some(Value::Array(written)) => (written, names),
        _ => (Vec::new(), names),
    }
}

/// A tool as `agent.yaml` has it. Its command is the call of the flow's tool, which has permissions and
/// a time limit of its own, and writes a record where no sandbox of the agent lets it.
fn agent_tool(tool: &FlowTool, program: &str) -> Value {
    let tool = &tool.tool;
    let mut command = [program, "flow", "tool", &tool.name]
        .map(str::to_owned)
        .to_vec();
    let mut stdin = None;
    let placed = match tool.input {
        InputForm::Parameters => &tool.parameters[..],
        InputForm::Json | InputForm::Schema(_) => &[],
    };
    for Parameter { name, inject, .. } in placed {
        if *inject == Inject::Stdin {
            command.push(format!("--stdin={name}"));
            stdin = Some(name);
        } else {
            // Without a value the word is left out.
            command.push(format!("--parameter={name}=${{{name}}}"));
        }
    }
    let parameters: Vec<Value> = tool.parameters.iter().map(parameter_object).collect();
    let (parameters, schema, is_json) = match &tool.input {
        InputForm::Parameters => (Some(parameters), None, false),
        InputForm::Json => (Some(parameters), None, true),
        InputForm::Schema(schema) => (None, Some(schema), true),
    };
    let item = without_nulls(json!({
        "name": tool.name,
        "description": tool.description.as_ref().unwrap_or(&tool.template),
        "command": command,
        "timeout_ms": 0,
        "wrapper": [],
        "parameters": parameters,
        "input_schema": schema,
        "input": is_json.then_some("json"),
        "stdin": stdin,
        "max_output_bytes": tool.max_output_bytes,
    }));
    item.into()
}

/// A parameter as it is declared.
fn parameter_object(parameter: &Parameter) -> Value {
    let mut item = parameter.extra.clone();
    item.extend(without_nulls(json!({
        "name": parameter.name,
        "type": parameter.kind.name(),
        "required": parameter.required,
        "description": parameter.description,
        "enum": parameter.given_choices(),
        "default": parameter.default,
    })));
    item.into()
}
