//! `delta-flow tool`: runs a tool for the program of a node, and records the call.
//!
//! A process of its own beside the engine, which it only leaves a record to. Unaware of what the node
//! makes of the result.

use crate::config::environment::Environment;
use crate::config::tool::bind::{BaseDirs, BoundCall, bind_arguments};
use crate::config::tool::definition::{CWD, ParameterType};
use crate::engine::later::NOT_YET;
use crate::engine::run_context::{self, RunContext};
use crate::error::{At, Error, Exit, Result, ignore};
use crate::flow::PROGRAM;
use crate::flow::graph::Failure;
use crate::flow::graph::choice;
use crate::flow::manifest::{self, Denied, Flow, FlowTool, PayloadForm, Permissions, fill};
use crate::flow::record::attempt::PrintedOutput;
use crate::flow::record::{CallCode, CallRecord, NodeToolCall, attempt, check_schema, not_started};
use crate::record::execution::{self, ExecutionRecord, Stdin};
use crate::record::run_dir::FLOW_RUN;
use crate::runs::preflight::install_signals;
use crate::runs::task::read_stdin;
use crate::text::json;
use crate::text::options::parse::ParsedCommand;
use crate::text::suggestion::nearest;
use crate::unix::own_program::own_program;
use crate::unix::process::{self, Command, Ended, Outcome, Variable};
use crate::unix::signals::Signals;
use crate::unix::terminal::{print_error, print_while_read};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time of a tool that names none, in ms: as long as an agent's.
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
pub(crate) fn run_tool(given: &ParsedCommand) -> Result<u8> {
    let name = given.required_text(0);
    let place = CallPlace::from_environment()?;
    let signals = install_signals()?;
    let flow = load_flow_of(&place.home)?;
    let found = find_tool(&flow, &place.node, &name);
    let arguments = read_arguments(given, found.as_ref().ok().copied(), &signals)?;
    let record = CallRecord::begin(&place.io)?;
    record.write("input.json", &arguments)?;
    let ready = found.and_then(|tool| Ok((tool, bind_call(&flow, tool, &arguments, &place)?)));
    match ready {
        Ok((tool, bound)) => place.execute(&flow, tool, bound, record, &signals),
        Err(refusal) => refuse_call(name, record, refusal),
    }
}

/// The reason why a call is not run.
enum RefusedCall {
    Misuse(String),
    Denied(Denied),
}

impl From<String> for RefusedCall {
    fn from(why: String) -> Self {
        Self::Misuse(why)
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
        let run_id = get(FLOW_RUN)?;
        let io = context.parent().unwrap_or(&context).to_owned();
        // RUN/io/nodes/TASK/NODE
        let run = io.ancestors().nth(4).filter(|run| run.ends_with(&run_id));
        let workspace = run.and_then(|run| run.parent()?.parent());
        let Some(root) = workspace.filter(|_| io.is_dir()) else {
            let shown = context.display();
            let message = format!("tool: FLOW_CONTEXT: {shown} is not in run {run_id}");
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
        record: CallRecord,
        signals: &Signals,
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
        let mut call = NodeToolCall {
            tool_name: tool.tool.name.clone(),
            call_id: RunContext::new_call_id(),
            resolved_command: Some(command),
            ..NodeToolCall::default()
        };
        let program = Command {
            argv: &argv,
            dir: &self.cwd,
            env: &tool_variables(tool, &record.dir),
            call_id: &call.call_id,
            stdin,
            stdout: stdout.try_clone().at("open", &record.dir)?,
            stderr: stderr.try_clone().at("open", &record.dir)?,
            timeout,
        };
        let grace = run_context::grace(run_context::depth().0);
        let failure = match process::run(signals, program, grace) {
            Ok(outcome) => {
                call.exit_code = outcome.how.code();
                call.duration_ms = outcome.duration.as_millis() as u64;
                find_tool_failure(flow, tool, &record.dir, &outcome, timeout)?
            }
            Err(error) => {
                call.exit_code = error.code();
                let failure = not_started(&argv[0], &error);
                let said = writeln!(stderr, "{}", failure.message);
                said.at("write", &record.dir)?;
                Some((CallCode::Operation, failure))
            }
        };
        if let Some((code, failure)) = failure {
            (call.code, call.message) = (Some(code), Some(failure.message.to_string()));
            if call.exit_code == 0 {
                call.exit_code = Exit::Failure as i32;
            }
        }
        record.finish(&call)?;
        pass_on_output(&mut stdout, &mut stderr, &call)?;
        // What its caller would take for something that ends later.
        if call.exit_code == NOT_YET && tool.partial_exit != Some(NOT_YET) {
            let name = &call.tool_name;
            return Err(Error::failure(format!(
                "tool {name}: exit code 75, and a tool of a flow cannot end later"
            )));
        }
        Ok(u8::try_from(call.exit_code).unwrap_or(Exit::Failure.code()))
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
        let below = fill(root.as_slice(), &self.home, &self.cwd).pop();
        let root = below.map_or_else(|| self.cwd.clone(), |root| self.cwd.join(root));
        // A task's directory is new, and no other process could make what is below it.
        std::fs::create_dir_all(&root).at("create", &root)?;
        let mut all = vec![own_program(), "sandbox".to_owned()];
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
    manifest::load_flow(home).flow.ok_or_else(|| {
        Error::config(format!(
            "tool: the flow has errors now; see `delta flow check {}`",
            home.display()
        ))
    })
}

/// The tool that is meant, if the node allows it.
fn find_tool<'f>(
    flow: &'f Flow,
    node: &str,
    name: &str,
) -> std::result::Result<&'f FlowTool, RefusedCall> {
    let found = flow.graph.find(node);
    let ix = found.ok_or_else(|| format!("the flow has no node {node}"))?;
    let allowed = flow.tools_of(ix);
    if let Some(tool) = allowed.clone().find(|tool| tool.tool.name == name) {
        let denied = flow.denial_of_tool(ix, name).map(RefusedCall::Denied);
        return denied.map_or(Ok(tool), Err);
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
fn read_arguments(
    given: &ParsedCommand,
    tool: Option<&FlowTool>,
    signals: &Signals,
) -> Result<String> {
    let stdin_text = || -> Result<String> {
        let bytes = read_stdin("input", signals)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (parameters, stdin) = (given.pairs("--parameter"), given.text("--stdin"));
    if parameters.is_empty() && stdin.is_none() {
        let text = stdin_text()?;
        let is_nothing = text.trim().is_empty();
        return Ok(if is_nothing { "{}".to_owned() } else { text });
    }
    let mut all = Map::new();
    let declared = |name: &str| {
        let mut parameters = tool?.tool.parameters.iter();
        parameters.find(|parameter| parameter.name == name)
    };
    let mut add = |name: String, text: String| {
        let value = match declared(&name).map(|parameter| parameter.kind) {
            None | Some(ParameterType::String) => Value::String(text),
            Some(_) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        };
        all.insert(name, value);
    };
    for (name, value) in parameters {
        add(name, value);
    }
    if let Some(name) = stdin {
        let text = stdin_text()?;
        // Without arguments the input is empty.
        if !text.is_empty() || declared(&name).is_none_or(|parameter| parameter.required) {
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
    let schema = flow.schema(tool.schema_in.as_ref());
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
    let path = dir.to_string_lossy().into_owned();
    variables.push((execution::EXECUTION_DIR.to_owned(), Some(path)));
    variables.push(environment.hosts_variable());
    variables
}

/// The failure of a tool that ended like this, if it has failed.
fn find_tool_failure(
    flow: &Flow,
    tool: &FlowTool,
    dir: &Path,
    outcome: &Outcome,
    timeout: Option<Duration>,
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
    let Some(schema) = flow.schema(tool.schema_out.as_ref()) else {
        return Ok(None);
    };
    let failure = match PrintedOutput::read(dir)?.payload(PayloadForm::Json, "") {
        Ok(output) => check_schema(Some(schema), &output, choice::FailureCode::SchemaOut),
        Err(failure) => Some(failure),
    };
    Ok(failure.map(|failure| (CallCode::SchemaOut, failure)))
}

/// Records a call that is not run, and says why.
fn refuse_call(tool_name: String, record: CallRecord, refusal: RefusedCall) -> Result<u8> {
    let (code, why, denied) = match refusal {
        RefusedCall::Misuse(why) => (CallCode::Misuse, why, None),
        RefusedCall::Denied(denied) => (CallCode::PolicyDenied, denied.message(), Some(denied)),
    };
    let error = Error::new(Exit::Misuse, format!("tool {tool_name}: {why}"));
    record.write("stdout.log", "")?;
    record.write("stderr.log", &format!("{error}\n"))?;
    record.finish(&NodeToolCall {
        tool_name,
        call_id: RunContext::new_call_id(),
        code: Some(code),
        message: Some(error.message.clone()),
        exit_code: Exit::Misuse as i32,
        denied,
        ..NodeToolCall::default()
    })?;
    Err(error)
}

/// Passes on what a tool printed and said. An output that is not as declared is not passed on.
fn pass_on_output(stdout: &mut File, stderr: &mut File, call: &NodeToolCall) -> Result<()> {
    ignore(
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
