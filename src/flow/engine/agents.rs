//! Agent nodes: a run of `delta` for each, whose answer is JSON.
//!
//! The run has a name of its own and lies in the task's directory, so that the same command resumes it.
//! An answer that does not fit is sent back with its faults, as often as the agent allows. The agent's own
//! journal has the messages, so that the count survives every kill of the engine.

use super::attempt_runs::AttemptState;
use super::prepare::{BeginningStep, text_of};
use super::programs::ActiveProgram;
use super::{Need, RunPlace, SuspendedStep};
use crate::error::{At, Error, Result};
use crate::flow::context::recall::find_lacking;
use crate::flow::context::select::AssembledContext;
use crate::flow::context::store::LARGEST_STORE;
use crate::flow::graph::{
    Failure, FailureCode, NodeIx, Payload, Role, StepRef, choose_route, edge_names, edge_words,
};
use crate::flow::manifest::asked;
use crate::flow::manifest::{AgentBody, Flow, FlowAgent, PayloadForm};
use crate::flow::record::attempt;
use crate::flow::record::{
    check_schema, each_line, find_failure, one_value, program_beside, tools_option,
};
use crate::record::event::{EventKind, InputType};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::answers::values_in;
use crate::text::ids::RunId;
use crate::text::json;
use crate::text::shell::shell_quoted;
use crate::unix::files;
use crate::unix::process::{Ended, Outcome};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// How a message begins that sends an answer back.
const SENT_BACK: &str = "This answer will not do: ";

/// The object that `delta run --format json` prints.
#[derive(Deserialize, Default)]
#[serde(default)]
struct AgentResult {
    status: Option<String>,
    stop_reason: Option<String>,
    result: Option<String>,
    error: Option<AgentError>,
    interaction: Option<AgentQuestion>,
    awaits: Option<AwaitedRun>,
}

/// The run of a sub-agent that an agent's run waits for.
#[derive(Deserialize)]
struct AwaitedRun {
    interaction: Option<AgentQuestion>,
    answer_command: Option<String>,
}

#[derive(Deserialize)]
struct AgentError {
    message: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AgentQuestion {
    request_id: String,
    prompt: String,
    input_type: String,
}

/// A message to an agent, with the command that sends it.
pub(super) struct AgentMessage {
    /// Without what is put before every program.
    pub argv: Vec<String>,
    pub text: String,
    /// The context, as it is recorded.
    pub context: String,
}

/// How the run of a node's own stopped: an agent's or a flow's.
pub(super) enum ChildRunEnd {
    /// It goes on when it has what it needs.
    Suspended(SuspendedStep),
    Ended(std::result::Result<Payload, Failure>),
    /// The answer does not fit; the agent may be asked again.
    Unfit(Failure),
}

/// The message that begins the run of an agent, or goes on with the one that an earlier start began.
pub(super) fn begin_agent(
    place: &RunPlace<'_>,
    attempts: &AttemptState,
    beginning: &BeginningStep,
    dir: &Path,
    context: &AssembledContext,
) -> Result<AgentMessage> {
    let (flow, step) = (place.flow, &beginning.step);
    let run_id = attempts.own_run(place, step);
    Ok(AgentMessage {
        argv: message_command(place, ("run", &run_id), step.node, dir)?,
        text: first_message(flow, beginning, &context.prompt),
        context: context.text.clone(),
    })
}

fn message_command(
    place: &RunPlace<'_>,
    (command, run_id): (&str, &str),
    node: NodeIx,
    dir: &Path,
) -> Result<Vec<String>> {
    let home = agent_home(place, node)?;
    let mut argv = vec![program_beside("delta")];
    argv.extend(agent_command(command, place.flow, node, (&home, dir)));
    let rest = ["-m", "-", "--run-id", run_id, "--format", "json", "-q"];
    argv.extend(rest.map(str::to_owned));
    Ok(argv)
}

/// The end of an agent's run that has stopped.
pub(super) fn end_agent(
    place: &RunPlace<'_>,
    attempts: &AttemptState,
    active: &ActiveProgram,
    outcome: &Outcome,
) -> Result<ChildRunEnd> {
    let (flow, step) = (place.flow, &active.step);
    let path = active.io.join("stdout.log");
    let printed = std::fs::read(&path).at("read", &path)?;
    let printed: AgentResult = serde_json::from_slice(&printed).unwrap_or_default();
    if let Ended::Exited(code) = outcome.how
        && active.failure.is_none()
        && let Some(need) = Need::of_exit(code)
    {
        let reason = printed.stop_reason.clone();
        let text = match (need, printed.error.as_ref()) {
            (Need::Answer, _) => how_to_answer(place, attempts, step, printed),
            (_, Some(error)) => error.message.clone(),
            (_, None) => format!("its run ended with {code}"),
        };
        let suspended = SuspendedStep {
            need,
            text,
            reason,
            due_at: attempts.due_at(place, step),
        };
        return Ok(ChildRunEnd::Suspended(suspended));
    }
    let fault = match &active.failure {
        Some(failure) => Some(failure.clone()),
        None => find_failure(&active.io, outcome, flow.nodes[step.node].timeout)?,
    };
    if let Some(mut failure) = fault {
        if let Some(error) = printed
            .error
            .filter(|_| failure.code == FailureCode::Operation)
        {
            failure = Failure::new(FailureCode::Operation, error.message);
        }
        return Ok(ChildRunEnd::Ended(Err(failure)));
    }
    let is_completed = printed.status.as_deref() == Some("COMPLETED");
    let Some(answer) = printed.result.filter(|_| is_completed) else {
        let failure = Failure::new(FailureCode::Operation, "the agent's run has no result");
        return Ok(ChildRunEnd::Ended(Err(failure)));
    };
    Ok(match understand(flow, step.node, &answer) {
        Ok(output) => ChildRunEnd::Ended(Ok(output)),
        Err(failure) => ChildRunEnd::Unfit(failure),
    })
}

/// The message that asks for a better answer, if the agent may be asked again. `io` has the records of the last one.
pub(super) fn send_back(
    place: &RunPlace<'_>,
    attempts: &AttemptState,
    step: &StepRef,
    (failure, io): (&Failure, &Path),
) -> Result<Option<AgentMessage>> {
    let flow = place.flow;
    let agent = flow.nodes[step.node].agent;
    let most = agent.map_or(0, |agent| flow.agents[agent].repairs);
    let dir = place.task_dir(step)?;
    let run_id = attempts.own_run(place, step);
    // An unknown count is taken for the largest.
    if count_sent_back(&dir, &run_id).unwrap_or(u32::MAX) >= most {
        return Ok(None);
    }
    // The context of its first answer.
    let run = &place.run.path;
    let path = Path::new(&*attempt::reference(run, io)).join("context.json");
    let context = files::read_text_below(run, &path, LARGEST_STORE).at("read", &run.join(&path))?;
    let again = match flow.schema_out(step.node) {
        Some(_) => "Answer again, with the whole JSON value and nothing else.",
        None => "Answer again.",
    };
    Ok(Some(AgentMessage {
        argv: message_command(place, ("continue", &run_id), step.node, &dir)?,
        text: format!("{SENT_BACK}{}\n{again}", failure.message),
        context,
    }))
}

fn how_to_answer(
    place: &RunPlace<'_>,
    attempts: &AttemptState,
    step: &StepRef,
    printed: AgentResult,
) -> String {
    let below = printed
        .awaits
        .and_then(|it| Some((it.interaction?, it.answer_command?)));
    let (asked, below) = match (printed.interaction, below) {
        (_, Some((asked, command))) => (asked, Some(command)),
        (asked, None) => (asked.unwrap_or_default(), None),
    };
    let dir = place.task_path(step);
    let flow = place.flow;
    let agent = flow.nodes[step.node].agent.map(|agent| &flow.agents[agent]);
    let home = agent.map_or_else(PathBuf::new, |agent| home_of(place, agent));
    let mut command = vec!["delta".to_owned()];
    command.extend(agent_command("continue", flow, step.node, (&home, &dir)));
    command.extend(["--run-id".to_owned(), attempts.own_run(place, step)]);
    command.extend(["--question".to_owned(), asked.request_id]);
    let own = || shell_quoted(&command);
    // The command of a sub-agent's run comes with its answer.
    let below = below.as_deref().map(|below| {
        let bare = [" -m ANSWER", " -m yes"].into_iter();
        bare.fold(below, |below, end| below.strip_suffix(end).unwrap_or(below))
    });
    let command = below.map_or_else(own, str::to_owned);
    let prompt = asked.prompt;
    let root = place.workspace.root.to_string_lossy().into_owned();
    let (root, run, task) = (shell_quoted(&[root]), &place.run.id, &step.task);
    let here = format!("or: delta flow answer -w {root} --run-id {run} {task}");
    match InputType::of(Cow::Borrowed(&*asked.input_type)) {
        InputType::Confirmation => {
            format!(
                "{prompt}\nto say yes: {command} -m yes\nto say no: {command} -m no\n{here} yes"
            )
        }
        _ => format!("{prompt}\nanswer with: {command} -m ANSWER\n{here} ANSWER"),
    }
}

/// The message with which the run of an agent begins.
fn first_message(flow: &Flow, beginning: &BeginningStep, context: &str) -> String {
    let node = beginning.step.node;
    let mut text = match text_of(&beginning.input, flow.nodes[node].input) {
        Some(input) => format!("Input:\n{input}\n{context}"),
        None => format!("Input:\n```json\n{}\n```\n{context}", beginning.input),
    };
    if flow.graph.nodes[node].role == Role::Decision {
        let ways = edge_words(&flow.graph, node);
        text.push_str(&format!(
            "\nThe answer selects the next edge: it is one of these strings, or an object that has \
             one of them as \"selected_edge\": {ways}\n"
        ));
    }
    if flow.nodes[node].output == PayloadForm::Text {
        return text;
    }
    if let Some(schema) = flow.schema_out(node) {
        text.push_str(&format!(
            "\nAnswer with one JSON value that fits this JSON Schema, and nothing else:\n```json\n{}\n```\n",
            schema.schema.source
        ));
    }
    text
}

/// The words of a command of `delta` on an agent's run. What decides where programs go, and what is spent, is in
/// each of them: no record is believed about it.
fn agent_command(
    command: &str,
    flow: &Flow,
    node: NodeIx,
    (home, dir): (&Path, &Path),
) -> Vec<String> {
    let (agent_dir, work_dir) = (home.to_string_lossy(), dir.to_string_lossy());
    let words = [command, "-a", &agent_dir, "-w", &work_dir];
    let mut words = words.map(str::to_owned).to_vec();
    words.extend(tools_option(flow, node, home));
    let agent = flow.nodes[node].agent.map(|agent| &flow.agents[agent]);
    // One that is made from a model has them in its own file.
    let is_directory = |agent: &&FlowAgent| matches!(agent.body, AgentBody::Directory(_));
    let limits = agent.filter(is_directory).map(|agent| &agent.limits);
    for (key, value) in limits.into_iter().flatten() {
        words.extend(match (key.as_str(), value) {
            // It may be raised when the run is resumed.
            ("budget", Value::Object(budget)) => ["--budget".to_owned(), budget_words(budget)],
            _ => ["--set".to_owned(), format!("{key}={}", json::text(value))],
        });
    }
    words
}

/// A budget as the command line has it.
fn budget_words(budget: &Map<String, Value>) -> String {
    let words = budget.iter().map(|(key, value)| match value {
        Value::String(word) => format!("{key}={word}"),
        number => format!("{key}={number}"),
    });
    words.collect::<Vec<_>>().join(",")
}

/// An agent's directory: its own, or the one for what is made from a model and a prompt.
fn home_of(place: &RunPlace<'_>, agent: &FlowAgent) -> PathBuf {
    match &agent.body {
        AgentBody::Directory(path) => path.clone(),
        AgentBody::Model { .. } => place.run.path.join("agents").join(&agent.id),
        AgentBody::Command(_) => place.flow.home.clone(),
    }
}

/// An agent's directory, made if it is from a model and a prompt.
fn agent_home(place: &RunPlace<'_>, node: NodeIx) -> Result<PathBuf> {
    let Some(agent) = place.flow.nodes[node].agent else {
        return Ok(place.flow.home.clone());
    };
    let agent = &place.flow.agents[agent];
    let home = home_of(place, agent);
    let AgentBody::Model { llm, prompt, .. } = &agent.body else {
        return Ok(home);
    };
    files::make_dirs(&home)?;
    let model = llm.split_once('/').map_or(llm.as_str(), |(_, model)| model);
    let mut settings = Map::new();
    settings.insert("model".to_owned(), model.into());
    if let Some(provider) = agent.asked.index {
        let (key, value) = asked::provider_setting(&place.flow.providers[provider]);
        settings.insert(key.to_owned(), value);
    }
    settings.extend(agent.config.clone());
    let mut document = agent.limits.clone();
    document.insert("name".to_owned(), agent.id.as_str().into());
    document.insert("llm".to_owned(), settings.into());
    let context = "sources:\n  - type: file\n    id: system_prompt\n    \
                   path: '${SYSTEM_PROMPT}'\n  - type: journal\n    id: conversation\n";
    // JSON is YAML. Several starts write the same.
    files::replace(&home.join("agent.yaml"), json::text(&document).as_bytes())?;
    files::replace(&home.join("system_prompt.md"), prompt.as_bytes())?;
    files::replace(&home.join("context.yaml"), context.as_bytes())?;
    Ok(home)
}

/// The edge of a decision that an answer names with nothing around it.
fn selected_word<'a>(flow: &Flow, node: NodeIx, answer: &'a str) -> Option<&'a str> {
    let is_decision = flow.graph.nodes[node].role == Role::Decision;
    let word = answer.trim();
    let is_edge = edge_names(&flow.graph, node).any(|edge| edge == word);
    (is_decision && is_edge).then_some(word)
}

/// An answer as the node's output, if it will do. Where a schema or a choice asks for JSON, it is the whole answer or the
/// last fenced block that will do; elsewhere only a block that is the whole answer counts: words around one belong to it.
/// What is no JSON is a string, unless there is a schema to fit.
fn understand(flow: &Flow, node: NodeIx, answer: &str) -> std::result::Result<Payload, Failure> {
    let leads_on = |output: Payload| choose_route(&flow.graph, node, &output).map(|_| output);
    if flow.nodes[node].output == PayloadForm::Text {
        return leads_on(json::text(answer).into());
    }
    let judge = |output: Payload| {
        let misfit = check_schema(flow.schema_out(node), &output, FailureCode::SchemaOut);
        match misfit.or_else(|| find_lacking(&flow.nodes[node].remember, &output)) {
            Some(failure) => Err(failure),
            None => leads_on(output),
        }
    };
    if let Some(word) = selected_word(flow, node, answer) {
        return judge(json::text(word).into());
    }
    let has_schema = flow.schema_out(node).is_some();
    let values = match has_schema || flow.graph.nodes[node].role == Role::Decision {
        true => values_in(answer),
        false => json::unwrapped(answer).into_iter().collect(),
    };
    let values = values.into_iter().map(str::to_owned);
    let outputs: Vec<Payload> = values.filter_map(|value| one_value(value).ok()).collect();
    let mut first = None;
    for output in outputs {
        match judge(output) {
            Ok(output) => return Ok(output),
            Err(failure) => first = first.or(Some(failure)),
        }
    }
    match first {
        Some(failure) => Err(failure),
        None if has_schema => {
            let message = "the answer is not one JSON value";
            Err(Failure::new(FailureCode::SchemaOut, message))
        }
        None => judge(json::text(answer).into()),
    }
}

/// How often the answers of an agent's run have been sent back.
fn count_sent_back(work_dir: &Path, run_id: &str) -> Result<u32> {
    let id = RunId::parse(run_id).map_err(Error::failure)?;
    let run = RunDir::of(&Workspace::at(work_dir)?, &id);
    let mut count = 0;
    each_line(&run.journal(), true, |line| {
        if line.kind == EventKind::UserMessage {
            let content = line.content.map_or("null", RawValue::get);
            let message: Option<String> = serde_json::from_str(content).unwrap_or_default();
            count += u32::from(message.is_some_and(|it| it.starts_with(SENT_BACK)));
        }
        Ok(true)
    })?;
    Ok(count)
}
