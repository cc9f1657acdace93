//! Agent nodes: a run of `delta` for each, whose answer is JSON.
//!
//! The run has a name of its own and lies in the task's directory, so that the same command resumes it.
//! An answer that does not fit is sent back with what is wrong with it, as often as the agent says. How
//! often that was stands in the agent's own journal: it has the message, or has not, however often the
//! engine was killed.

use super::begin::{BeginningStep, task_dir, task_path, text_of};
use super::finish::{AttemptEnd, add_tool_calls};
use super::{ActiveProgram, FlowEngine, Need, RunPlace};
use crate::config::tool::bind::shell_quoted;
use crate::error::{At, Error, Exit, Result};
use crate::flow::context::recall::find_lacking;
use crate::flow::context::select::AssembledContext;
use crate::flow::graph::{
    Failure, FailureCode, NodeIx, Payload, Role, StepRef, choose_route, edge_names, edge_words,
};
use crate::flow::manifest::asked;
use crate::flow::manifest::{AgentBody, Flow, FlowAgent, PayloadForm};
use crate::flow::record::{
    BegunBefore, ProgramInput, check_schema, denied_tools, each_line, find_failure, one_value,
    program_beside, tools_option,
};
use crate::record::event::{EventKind, InputType};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::digest::sha256;
use crate::text::ids::RunId;
use crate::text::json;
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
struct AgentMessage {
    words: Vec<String>,
    run_id: String,
    text: String,
    /// The context, as it is recorded.
    context: String,
}

/// An agent that is talked to, and not a program.
pub(super) fn is_conversation(flow: &Flow, node: NodeIx) -> bool {
    let settings = &flow.nodes[node];
    let agent = settings.agent.filter(|_| settings.command.is_none());
    agent.is_some_and(|agent| !matches!(flow.agents[agent].body, AgentBody::Command(_)))
}

/// A node that is a run of its own, which goes on where it was.
pub(super) fn is_own_run(flow: &Flow, node: NodeIx) -> bool {
    is_conversation(flow, node) || flow.nodes[node].flow.is_some()
}

impl FlowEngine<'_> {
    /// Prepares the run of an agent: a new one, or the one that an earlier process began.
    pub(super) fn begin_agent(
        &mut self,
        beginning: &BeginningStep,
        dir: PathBuf,
        context: &AssembledContext,
    ) -> Result<()> {
        let flow = self.place.flow;
        let step = &beginning.step;
        let Some(agent) = flow.nodes[step.node].agent else {
            return Ok(());
        };
        let home = agent_home(&self.place, &flow.agents[agent])?;
        let message = AgentMessage {
            words: agent_command("run", flow, step.node, (&home, &dir)),
            run_id: self.own_run(step),
            text: first_message(flow, beginning, &context.told),
            context: context.text.clone(),
        };
        self.converse(beginning, dir, &message)?;
        for denied in denied_tools(flow, step.node) {
            self.events.add_denial(step, &denied, None);
        }
        Ok(())
    }

    fn converse(
        &mut self,
        beginning: &BeginningStep,
        dir: PathBuf,
        message: &AgentMessage,
    ) -> Result<()> {
        let mut argv = self.options.launch.clone();
        argv.push(program_beside("delta"));
        argv.extend_from_slice(&message.words);
        let rest = [
            "-m",
            "-",
            "--run-id",
            &message.run_id,
            "--format",
            "json",
            "-q",
        ];
        argv.extend(rest.map(str::to_owned));
        let given = ProgramInput {
            argv,
            dir,
            input: &beginning.input,
            context: Some(&message.context),
            stdin: Some(message.text.as_bytes()),
        };
        self.prepare(beginning, given, None)
    }

    /// The name of the run that a node is, of an agent or a flow: the same for the same step, and another one for each
    /// retry of the step or of the flow.
    pub(super) fn own_run(&self, step: &StepRef) -> String {
        let times = self.begun_before(step).map_or(0, |before| before.times);
        self.run_name(step, (times, self.failed_attempts(step)))
    }

    /// The name of the run of a step that was begun so often before, after so many failed attempts.
    pub(super) fn run_name(&self, step: &StepRef, (times, failed): (u32, u32)) -> String {
        const OF_NODE: usize = 40;
        let node = self.node_id(step);
        let place = format!("{}\n{}\n{node}", self.place.run.id, step.task);
        let sum = &sha256(place.as_bytes())[..10];
        let begin: String = node.trim_start_matches('.').chars().take(OF_NODE).collect();
        let again = match times {
            0 => String::new(),
            times => format!("-r{times}"),
        };
        match failed {
            0 => format!("node-{begin}-{sum}{again}"),
            failed => format!("node-{begin}-{sum}{again}-{}", failed + 1),
        }
    }

    /// What was before a step that a retry begins anew.
    pub(super) fn begun_before(&self, step: &StepRef) -> Option<&BegunBefore> {
        let name = (step.task.to_string(), self.node_id(step).to_owned());
        self.begun_before.get(&name)
    }

    pub(super) fn failed_attempts(&self, step: &StepRef) -> u32 {
        self.attempts.get(&step.key).map_or(0, |it| it.failed)
    }

    /// The run of an agent has come to a stop.
    pub(super) fn end_agent(
        &mut self,
        active: ActiveProgram,
        outcome: &Outcome,
        ended: AttemptEnd,
    ) -> Result<()> {
        let step = &active.step;
        let path = active.io.join("stdout.log");
        let printed = std::fs::read(&path).at("read", &path)?;
        let printed: AgentResult = serde_json::from_slice(&printed).unwrap_or_default();
        if let Ended::Exited(code) = outcome.how
            && active.failure.is_none()
            && let Some(need) = need_of(code)
        {
            let printed_reason = printed.stop_reason.clone();
            let why = match (need, printed.error.as_ref()) {
                (Need::Answer, _) => self.how_to_answer(step, printed),
                (_, Some(error)) => error.message.clone(),
                (_, None) => format!("its run ended with {code}"),
            };
            let key = active.step.key;
            self.suspend(active.step, need, &why);
            if let Some((_, suspension)) = self.suspended.get_mut(&key) {
                suspension.reason = printed_reason;
            }
            return Ok(());
        }
        add_tool_calls(&mut self.events, &self.place, step, (&active.io, &[]))?;
        let flow = self.place.flow;
        let fault = match active.failure {
            Some(failure) => Some(failure),
            None => find_failure(&active.io, outcome, flow.nodes[step.node].timeout)?,
        };
        if let Some(mut failure) = fault {
            if let Some(error) = printed
                .error
                .filter(|_| failure.code == FailureCode::Operation)
            {
                failure = Failure::new(FailureCode::Operation, error.message);
            }
            return self.judge(step, Err(failure), ended);
        }
        let is_completed = printed.status.as_deref() == Some("COMPLETED");
        let Some(answer) = printed.result.filter(|_| is_completed) else {
            let failure = Failure::new(FailureCode::Operation, "the agent's run has no result");
            return self.judge(step, Err(failure), ended);
        };
        match understand(flow, step.node, answer) {
            Ok(output) => self.judge(step, Ok(output), ended),
            Err(failure) => self.send_back(step, failure, ended),
        }
    }

    /// Asks for a better answer, if the agent may be asked again.
    fn send_back(&mut self, step: &StepRef, failure: Failure, ended: AttemptEnd) -> Result<()> {
        let flow = self.place.flow;
        let Some(router) = self.router(step.key) else {
            return Ok(());
        };
        let input = router.input(step.key.step);
        let agent = flow.nodes[step.node].agent;
        let most = agent.map_or(0, |agent| flow.agents[agent].repairs);
        let dir = task_dir(&self.place, step)?;
        let run_id = self.own_run(step);
        // Where that cannot be found out, it was often enough.
        if count_sent_back(&dir, &run_id).unwrap_or(u32::MAX) >= most {
            return self.judge(step, Err(failure), ended);
        }
        self.report_step(step, Err(&failure.message), "sent back");
        // What its first answer was given.
        let path = ended.io.unwrap_or_default().join("context.json");
        let context = std::fs::read_to_string(&path).at("read", &path)?;
        let beginning = BeginningStep {
            step: step.clone(),
            input: input.unwrap_or_else(|| "null".into()),
            attempt: self.attempts.get(&step.key).map_or(0, |it| it.last),
        };
        let Some(agent) = agent else {
            return Ok(());
        };
        let home = agent_home(&self.place, &flow.agents[agent])?;
        let again = match flow.schema_out(step.node) {
            Some(_) => "Answer again, with the whole JSON value and nothing else.",
            None => "Answer again.",
        };
        let message = AgentMessage {
            words: agent_command("continue", flow, step.node, (&home, &dir)),
            run_id,
            text: format!("{SENT_BACK}{}\n{again}", failure.message),
            context,
        };
        self.converse(&beginning, dir, &message)
    }

    fn how_to_answer(&self, step: &StepRef, printed: AgentResult) -> String {
        let below = printed
            .awaits
            .and_then(|it| Some((it.interaction?, it.answer_command?)));
        let (asked, below) = match (printed.interaction, below) {
            (_, Some((asked, command))) => (asked, Some(command)),
            (asked, None) => (asked.unwrap_or_default(), None),
        };
        let dir = task_path(&self.place, step);
        let flow = self.place.flow;
        let agent = flow.nodes[step.node].agent.map(|agent| &flow.agents[agent]);
        let home = agent.map_or_else(PathBuf::new, |agent| home_of(&self.place, agent));
        let mut command = vec!["delta".to_owned()];
        command.extend(agent_command("continue", flow, step.node, (&home, &dir)));
        command.extend(["--run-id".to_owned(), self.own_run(step)]);
        command.extend(["--question".to_owned(), asked.request_id]);
        let own = || shell_quoted(&command);
        // The command of a sub-agent's run comes with its answer.
        let below = below.as_deref().map(|below| {
            let bare = [" -m ANSWER", " -m yes"].into_iter();
            bare.fold(below, |below, end| below.strip_suffix(end).unwrap_or(below))
        });
        let command = below.map_or_else(own, str::to_owned);
        let prompt = asked.prompt;
        let root = self.place.workspace.root.to_string_lossy().into_owned();
        let (root, run, task) = (shell_quoted(&[root]), &self.place.run.id, &step.task);
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
}

/// What an agent's step needs whose run ended with a code, if it is none that ends the step: a run that
/// can be resumed has not failed, and one that a signal ended can.
pub(super) fn need_of(code: i32) -> Option<Need> {
    /// The codes that shells and the engine have for signals.
    const SIGNALS: std::ops::RangeInclusive<i32> = 129..=192;
    let is = |exit: Exit| code == exit as i32;
    match code {
        _ if is(Exit::Config) => Some(Need::Config),
        _ if is(Exit::Undecided) => Some(Need::Decision),
        _ if is(Exit::Waiting) => Some(Need::Answer),
        _ if is(Exit::TempFail) || SIGNALS.contains(&code) => Some(Need::Time),
        _ => None,
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
fn agent_home(place: &RunPlace<'_>, agent: &FlowAgent) -> Result<PathBuf> {
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
                   path: '${AGENT_HOME}/system_prompt.md'\n  - type: journal\n    id: conversation\n";
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

/// The JSON value that an answer is, or that it has in a fenced block. Where neither a schema nor a choice asks for
/// JSON, only a block that is the whole answer counts: words around one belong to the answer. What is no JSON is a
/// string, unless there is a schema to fit.
fn read_answer(flow: &Flow, node: NodeIx, answer: &str) -> std::result::Result<Payload, Failure> {
    let has_schema = flow.schema_out(node).is_some();
    let value = match has_schema || flow.graph.nodes[node].role == Role::Decision {
        true => Some(json::unfenced(answer)),
        false => json::unwrapped(answer),
    };
    match value.and_then(|value| one_value(value.to_owned()).ok()) {
        Some(output) => Ok(output),
        None if has_schema => {
            let message = "the answer is not one JSON value";
            Err(Failure::new(FailureCode::SchemaOut, message))
        }
        None => Ok(json::text(answer).into()),
    }
}

/// An answer as the node's output, if it will do.
fn understand(flow: &Flow, node: NodeIx, answer: String) -> std::result::Result<Payload, Failure> {
    let leads_on = |output: Payload| choose_route(&flow.graph, node, &output).map(|_| output);
    if flow.nodes[node].output == PayloadForm::Text {
        return leads_on(json::text(&answer).into());
    }
    let output = match selected_word(flow, node, &answer) {
        Some(word) => json::text(word).into(),
        None => read_answer(flow, node, &answer)?,
    };
    let misfit = check_schema(flow.schema_out(node), &output, FailureCode::SchemaOut);
    match misfit.or_else(|| find_lacking(&flow.nodes[node].remember, &output)) {
        Some(failure) => Err(failure),
        None => leads_on(output),
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
