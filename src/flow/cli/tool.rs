//! `delta-flow tool`: runs a tool for the program of a node, and records the call.
//!
//! A process of its own beside the engine, which it only leaves a record to. Unaware of what the node
//! makes of the result.

use super::args::ToolArgs as Wanted;
use crate::config::environment::Environment;
use crate::config::tool::bind::{BaseDirs, BoundCall, bind_arguments};
use crate::config::tool::definition::{CWD, ParameterType};
use crate::engine::later::NOT_YET;
use crate::engine::run_context::{self, RunContext};
use crate::error::{At, Error, Exit, Result, may_fail};
use crate::flow::PROGRAM;
use crate::flow::graph::Failure;
use crate::flow::graph::choice;
use crate::flow::manifest::{self, Denied, Flow, FlowTool, PayloadForm, Permissions, fill};
use crate::flow::record::attempt::PrintedOutput;
use crate::flow::record::{
    CallCode, CallRecord, NodeToolCall, attempt, check_schema, not_started, program_beside,
};
use crate::record::execution::{self, ExecutionRecord, Stdin};
use crate::runs::preflight::install_signals;
use crate::runs::task::read_stdin;
use crate::text::json;
use crate::text::suggestion::nearest;
use crate::unix::process::{self, Command, Ended, Outcome, Variable};
use crate::unix::signals::Signals;
use crate::unix::terminal::{print_error, print_while_read};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a tool may take that does not say, in ms: as long as an agent's.
const TIMEOUT: u64 = 600_000;

/// The origin of the call, from the environment of a node's program.
struct CallPlace {
    home: PathBuf,
    node: String,
    /// The task's directory.
    cwd: PathBuf,
    /// The attempt's directory of records.
    io: PathBuf,
    /// The workspace of the run.
    root: PathBuf,
}

/// Runs the command. The exit code is the tool's.
pub(crate) fn run_tool(wanted: &Wanted) -> Result<u8> {
    let place = CallPlace::from_environment()?;
    let signals = install_signals()?;
    let flow = load_flow_of(&place.home)?;
    let found = find_tool(&flow, &place.node, &wanted.name);
    let arguments = read_arguments(wanted, found.as_ref().ok().copied(), &signals)?;
    let record = CallRecord::begin(&place.io)?;
    record.write("input.json", &arguments)?;
    let ready = found.and_then(|tool| Ok((tool, bind_call(&flow, tool, &arguments, &place)?)));
    match ready {
        Ok((tool, bound)) => place.execute(&flow, tool, bound, (record, &signals)),
        Err(refusal) => refuse_call(&wanted.name, record, refusal),
    }
}

/// Why a call is not run.
struct RefusedCall {
    why: String,
    /// A policy says so.
    denied: Option<Denied>,
}

impl From<String> for RefusedCall {
    fn from(why: String) -> Self {
        let denied = None;
        Self { why, denied }
    }
}

impl CallPlace {
    fn from_environment() -> Result<Self> {
        let get = |name: &str| {
            let value = std::env::var(name).ok().filter(|value| !value.is_empty());
            value.ok_or_else(|| {
                Error::usage(format!(
                    "tool: {name} is not set; only the program of a node calls tools, while it runs"
                ))
            })
        };
        let context = PathBuf::from(get("FLOW_CONTEXT")?);
        let run_id = get("FLOW_RUN_ID")?;
        let io = context.parent().unwrap_or(&context).to_owned();
        // RUN/io/nodes/TASK/NODE
        let run = io.ancestors().nth(4).filter(|run| run.ends_with(&run_id));
        let root = run.and_then(Path::parent).and_then(Path::parent);
        let Some(root) = root.filter(|_| io.is_dir()) else {
            let context = context.display();
            let message = format!("tool: FLOW_CONTEXT: {context} is not in run {run_id}");
            return Err(Error::usage(message));
        };
        Ok(Self {
            home: get("FLOW_HOME")?.into(),
            node: get("FLOW_NODE_ID")?,
            cwd: get(CWD)?.into(),
            root: root.to_owned(),
            io,
        })
    }

    fn execute(
        &self,
        flow: &Flow,
        tool: &FlowTool,
        bound: BoundCall,
        (record, signals): (CallRecord, &Signals),
    ) -> Result<u8> {
        let argv = self.confined(tool, bound.argv)?;
        let stdin = bound.stdin.as_deref().map_or(Stdin::Nothing, Stdin::Bytes);
        let ExecutionRecord {
            command,
            stdin,
            mut stdout,
            mut stderr,
        } = execution::begin_record(&record.dir, &argv, stdin, None)?;
        let timeout = tool.tool.timeout_ms.unwrap_or(TIMEOUT);
        let timeout = (timeout > 0).then(|| Duration::from_millis(timeout));
        let call_id = RunContext::new_call_id();
        let ran = process::run(
            signals,
            Command {
                argv: &argv,
                dir: &self.cwd,
                env: &tool_variables(tool, &record.dir),
                call_id: &call_id,
                stdin,
                stdout: stdout.try_clone().at("open", &record.dir)?,
                stderr: stderr.try_clone().at("open", &record.dir)?,
                timeout,
            },
            run_context::grace(run_context::depth().0),
        );
        let (mut exit_code, duration, failure) = match ran {
            Ok(outcome) => {
                let failure = find_tool_failure(flow, tool, &record.dir, (&outcome, timeout))?;
                (outcome.how.code(), outcome.duration, failure)
            }
            Err(error) => {
                let failure = not_started(&argv[0], &error);
                let said = writeln!(stderr, "{}", failure.message);
                said.at("write", &record.dir)?;
                (
                    error.code(),
                    Duration::ZERO,
                    Some((CallCode::Operation, failure)),
                )
            }
        };
        if exit_code == 0 && failure.is_some() {
            exit_code = Exit::Failure as i32;
        }
        let (code, message) = failure.map(|(code, it)| (code, it.message)).unzip();
        // What its caller would take for something that ends later.
        let is_later = exit_code == NOT_YET && tool.partial_exit != Some(NOT_YET);
        let call = NodeToolCall {
            tool_name: tool.tool.name.clone(),
            call_id,
            code,
            message: message.map(|message| message.to_string()),
            exit_code,
            duration_ms: duration.as_millis() as u64,
            resolved_command: Some(command),
            denied: None,
        };
        record.finish(&call)?;
        pass_on_output(&mut stdout, &mut stderr, &call)?;
        match u8::try_from(exit_code) {
            Ok(_) if is_later => {
                let name = &tool.tool.name;
                let text =
                    format!("tool {name}: exit code 75, and a tool of a flow cannot end later");
                Err(Error::failure(text))
            }
            Ok(code) => Ok(code),
            Err(_) => Ok(Exit::Failure.code()),
        }
    }

    /// A tool's argv, with its permissions before it.
    fn confined(&self, tool: &FlowTool, argv: Vec<String>) -> Result<Vec<String>> {
        let Some(Permissions {
            root,
            read,
            allow_network,
            allow_hosts,
            ..
        }) = &tool.permissions
        else {
            return Ok(argv);
        };
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (home, cwd) = (text(&self.home), text(&self.cwd));
        let root = fill(root.as_slice(), &self.home, &self.cwd).pop();
        let root = root.map_or_else(|| self.cwd.clone(), |root| self.cwd.join(root));
        // A task's directory is new, and no other process could make what is below it.
        std::fs::create_dir_all(&root).at("create", &root)?;
        let mut all = vec![program_beside("delta"), "sandbox".to_owned()];
        all.extend(["--rw".to_owned(), text(&root)]);
        let more = manifest::fill_paths(read, &self.home, &self.cwd);
        for readable in [home, text(&self.root), cwd].into_iter().chain(more) {
            all.extend(["--ro".to_owned(), readable]);
        }
        if !allow_network {
            all.push("--no-network".to_owned());
        }
        for door in allow_hosts {
            all.extend(["--allow-host".to_owned(), door.to_string()]);
        }
        all.push("--".to_owned());
        all.extend(argv);
        Ok(all)
    }
}

fn load_flow_of(home: &Path) -> Result<Flow> {
    let loaded = manifest::load_flow(home);
    loaded.flow.ok_or_else(|| {
        let home = home.display();
        Error::config(format!(
            "tool: the flow has errors now; see `delta flow check {home}`"
        ))
    })
}

/// The tool that is meant, if the node allows it.
fn find_tool<'f>(
    flow: &'f Flow,
    node: &str,
    name: &str,
) -> std::result::Result<&'f FlowTool, RefusedCall> {
    let ix = flow.graph.find(node);
    let ix = ix.ok_or_else(|| format!("the flow has no node {node}"))?;
    let allowed = flow.tools_of(ix).iter().map(|ix| &flow.tools[*ix]);
    if let Some(tool) = allowed.clone().find(|tool| tool.tool.name == name) {
        return match flow.denial_of_tool(ix, name) {
            None => Ok(tool),
            Some(denied) => Err(RefusedCall {
                why: denied.message(),
                denied: Some(denied),
            }),
        };
    }
    let names: Vec<&str> = allowed.map(|tool| tool.tool.name.as_str()).collect();
    let hint = match (nearest(name, names.iter().copied()), names.is_empty()) {
        (Some(near), _) => format!("did you mean '{near}'?"),
        (None, true) => "it allows none; name it in tools: of the node".to_owned(),
        (None, false) => format!("it allows {}", names.join(", ")),
    };
    Err(format!("node {node} does not allow it; {hint}").into())
}

/// The arguments as JSON text: the standard input, or what the command line gives.
fn read_arguments(wanted: &Wanted, tool: Option<&FlowTool>, signals: &Signals) -> Result<String> {
    if wanted.parameters.is_empty() && wanted.stdin.is_none() {
        let given = String::from_utf8_lossy(&read_stdin("input", signals)?).into_owned();
        let is_nothing = given.trim().is_empty();
        return Ok(if is_nothing { "{}".to_owned() } else { given });
    }
    let mut all = Map::new();
    let declared = |name: &str| {
        let mut parameters = tool?.tool.parameters.iter();
        parameters.find(|parameter| parameter.name == name)
    };
    let mut add = |name: &str, text: String| {
        let value = match declared(name).map(|parameter| parameter.kind) {
            None | Some(ParameterType::String) => Value::String(text),
            Some(_) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        };
        all.insert(name.to_owned(), value);
    };
    for (name, value) in &wanted.parameters {
        add(name, value.clone());
    }
    if let Some(name) = &wanted.stdin {
        let text = String::from_utf8_lossy(&read_stdin("input", signals)?).into_owned();
        // Without arguments the input is empty.
        if !text.is_empty() || declared(name).is_none_or(|parameter| parameter.required) {
            add(name, text);
        }
    }
    Ok(json::text(&all))
}

/// The command with its arguments, if these will do.
fn bind_call(
    flow: &Flow,
    tool: &FlowTool,
    arguments: &str,
    place: &CallPlace,
) -> std::result::Result<BoundCall, String> {
    let places = BaseDirs {
        home: &place.home.to_string_lossy(),
        cwd: &place.cwd.to_string_lossy(),
    };
    let bound = bind_arguments(&tool.tool, arguments, &places)?;
    let schema = tool.schema_in.map(|ix| &flow.schemas[ix]);
    match check_schema(schema, arguments, choice::FailureCode::SchemaIn) {
        Some(failure) => Err(format!("the arguments: {}", failure.message)),
        None => Ok(bound),
    }
}

/// The environment of a tool beside that of the node's program: no key of a model.
fn tool_variables(tool: &FlowTool, dir: &Path) -> Vec<Variable> {
    let environment = Environment::default();
    let mut variables = environment.for_child(tool.tool.pass_api_key);
    let own = tool.tool.env.iter();
    variables.extend(own.map(|(name, value)| (name.clone(), Some(value.clone()))));
    let dir = dir.to_string_lossy().into_owned();
    variables.push((execution::EXECUTION_DIR.to_owned(), Some(dir)));
    variables.push(environment.hosts_variable());
    variables
}

/// Why a tool that ended like this has failed, if it has.
fn find_tool_failure(
    flow: &Flow,
    tool: &FlowTool,
    dir: &Path,
    (outcome, timeout): (&Outcome, Option<Duration>),
) -> Result<Option<(CallCode, Failure)>> {
    if !attempt::is_partial(outcome, tool.partial_exit)
        && let Some(failure) = attempt::find_failure(dir, outcome, timeout)?
    {
        let code = match outcome.how {
            Ended::TimedOut => CallCode::Timeout,
            Ended::Exited(_) | Ended::Interrupted(_) => CallCode::Operation,
        };
        return Ok(Some((code, failure)));
    }
    let Some(schema) = tool.schema_out.map(|ix| &flow.schemas[ix]) else {
        return Ok(None);
    };
    let failure = match PrintedOutput::read(dir)?.payload(PayloadForm::Json, "") {
        Ok(output) => check_schema(Some(schema), &output, choice::FailureCode::SchemaOut),
        Err(failure) => Some(failure),
    };
    Ok(failure.map(|failure| (CallCode::SchemaOut, failure)))
}

/// Records a call that is not run, and says why.
fn refuse_call(
    name: &str,
    record: CallRecord,
    RefusedCall { why, denied }: RefusedCall,
) -> Result<u8> {
    let error = Error::new(Exit::Misuse, format!("tool {name}: {why}"));
    let code = match denied {
        Some(_) => CallCode::PolicyDenied,
        None => CallCode::Misuse,
    };
    record.write("stdout.log", "")?;
    record.write("stderr.log", &format!("{error}\n"))?;
    record.finish(&NodeToolCall {
        tool_name: name.to_owned(),
        call_id: RunContext::new_call_id(),
        code: Some(code),
        message: Some(error.message.clone()),
        exit_code: Exit::Misuse as i32,
        duration_ms: 0,
        resolved_command: None,
        denied,
    })?;
    Err(error)
}

/// Passes on what a tool printed and said. An output that is not as declared is not passed on.
fn pass_on_output(stdout: &mut File, stderr: &mut File, call: &NodeToolCall) -> Result<()> {
    may_fail(
        stderr
            .rewind()
            .and_then(|()| std::io::copy(stderr, &mut std::io::stderr())),
    );
    if call.code != Some(CallCode::SchemaOut) {
        let mut buffer = vec![0; 64 << 10];
        let path = Path::new("stdout.log");
        stdout.rewind().at("read", path)?;
        loop {
            let read = stdout.read(&mut buffer).at("read", path)?;
            if read == 0 || !print_while_read(&buffer[..read])? {
                break;
            }
        }
    }
    // Of a program that failed, all has been said.
    let is_said = call.code == Some(CallCode::Operation);
    if let Some(message) = call.message.as_ref().filter(|_| !is_said) {
        let message = format!("tool {}: {message}", call.tool_name);
        print_error(PROGRAM, &Error::failure(message));
    }
    Ok(())
}
