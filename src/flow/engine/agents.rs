//! Agent nodes: a run of `delta` for each, whose answer is JSON.
//!
//! The run has a name of its own and lies in the task's directory, so that the same command resumes it.
//! An answer that does not fit is sent back with its faults, as often as the agent allows. The agent's own
//! journal has the messages, so that the count survives every kill of the engine.

use super::printed_run::PrintedRun;
use super::programs::{ActiveProgram, BeginningStep, text_of};
use super::{FlowEngine, Need, RunPlace, StepResult, SuspendedStep};
use crate::error::{At, Error, Result};
use crate::flow::context::recall::find_lacking;
use crate::flow::context::store::LARGEST_STORE;
use crate::flow::graph::{
    Failure, FailureCode, NodeIx, Payload, Role, StepRef, choose_route, edge_names, edge_words,
};
use crate::flow::manifest::asked;
use crate::flow::manifest::{AgentBody, Flow, FlowAgent, PayloadForm};
use crate::flow::record::attempt;
use crate::flow::record::{check_schema, each_line, one_value, tools_option};
use crate::record::event::{InputType, Recorded};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::answers::values_in;
use crate::text::ids::RunId;
use crate::text::json;
use crate::text::shell::shell_quoted;
use crate::unix::files;
use crate::unix::own_program::own_program;
use crate::unix::process::{Ended, Outcome};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The beginning of a message that sends an answer back.
const SENT_BACK: &str = "This answer will not do: ";

/// The end or the pause of a node's own run: an agent's or a flow's.
pub(super) enum ChildRunEnd {
    /// Resumable once it has what it needs.
    Suspended(SuspendedStep),
    Ended(StepResult),
    /// The answer does not fit; the agent may be asked again.
    Unfit(Failure),
}

impl FlowEngine<'_> {
    /// The command that begins the run of an agent with a message, or goes on with the one that an earlier start began.
    pub(super) fn message_command(
        &self,
        command: &str,
        step: &StepRef,
        dir: &Path,
    ) -> Result<Vec<String>> {
        let run_id = self.own_run(step);
        let home = agent_home(&self.place, step.node)?;
        let mut argv = vec![own_program()];
        argv.extend(agent_command(
            command,
            self.place.flow,
            step.node,
            &home,
            dir,
        ));
        argv.extend(["-m", "-", "--run-id", &run_id, "--format", "json", "-q"].map(str::to_owned));
        Ok(argv)
    }

    /// The end of an agent's run that has stopped.
    pub(super) fn end_agent(
        &self,
        active: &ActiveProgram,
        outcome: &Outcome,
    ) -> Result<ChildRunEnd> {
        let (flow, step) = (self.place.flow, &active.step);
        let printed = PrintedRun::read(&active.io)?;
        if let Some((need, code)) = active.need(outcome) {
            let reason = printed.stop_reason.clone();
            let text = match need {
                Need::Answer => self.how_to_answer(step, printed),
                _ => printed
                    .error_message()
                    .unwrap_or_else(|| format!("its run ended with {code}")),
            };
            return Ok(ChildRunEnd::Suspended(SuspendedStep {
                need,
                text,
                reason,
                due_at: self.due_at(step),
            }));
        }
        if let Some(failure) = active.find_failure(outcome, flow.nodes[step.node].timeout)? {
            let message = printed
                .error_message()
                .filter(|_| failure.code == FailureCode::Operation);
            return Ok(ChildRunEnd::Ended(Err(
                message.map_or(failure, Failure::operation)
            )));
        }
        let is_completed = printed.status.as_deref() == Some("COMPLETED");
        let Some(answer) = printed.result.filter(|_| is_completed) else {
            return Ok(ChildRunEnd::Ended(Err(Failure::operation(
                "the agent's run has no result",
            ))));
        };
        Ok(match understand(flow, step.node, &answer) {
            Ok(output) => ChildRunEnd::Ended(Ok(output)),
            Err(failure) => ChildRunEnd::Unfit(failure),
        })
    }

    /// The agent may be asked for a better answer.
    pub(super) fn may_send_back(&self, step: &StepRef, dir: &Path) -> bool {
        let most = self
            .place
            .flow
            .agent(step.node)
            .map_or(0, |agent| agent.repairs);
        // An unknown count is taken for the largest.
        count_sent_back(dir, &self.own_run(step)).unwrap_or(u32::MAX) < most
    }

    /// The message that asks for a better answer.
    pub(super) fn sent_back(&self, step: &StepRef, failure: &Failure) -> String {
        let again = match self.place.flow.schema_out(step.node) {
            Some(_) => "Answer again, with the whole JSON value and nothing else.",
            None => "Answer again.",
        };
        format!("{SENT_BACK}{}\n{again}", failure.message)
    }

    /// The context of an agent's first answer, from its records.
    pub(super) fn context_of(&self, io: &Path) -> Result<String> {
        let run = &self.place.run.path;
        let path = Path::new(&*attempt::reference(run, io)).join("context.json");
        files::read_text_below(run, &path, LARGEST_STORE).at("read", &run.join(&path))
    }

    fn how_to_answer(&self, step: &StepRef, printed: PrintedRun) -> String {
        let place = &self.place;
        let below = printed
            .awaits
            .and_then(|it| Some((it.interaction?, it.answer_command?)));
        let (asked, command) = match below {
            // The command of a sub-agent's run comes with its answer.
            Some((asked, command)) => {
                let bare = [" -m ANSWER", " -m yes"]
                    .into_iter()
                    .fold(&*command, |it, end| it.strip_suffix(end).unwrap_or(it));
                (asked, bare.to_owned())
            }
            None => {
                let asked = printed.interaction.unwrap_or_default();
                let (flow, node) = (place.flow, step.node);
                let home = flow
                    .agent(node)
                    .map_or_else(PathBuf::new, |it| home_of(place, it));
                let mut command = vec!["delta".to_owned()];
                let dir = place.task_path(step);
                command.extend(agent_command("continue", flow, node, &home, &dir));
                command.extend(["--run-id".to_owned(), self.own_run(step)]);
                command.extend(["--question".to_owned(), asked.request_id.clone()]);
                (asked, shell_quoted(&command))
            }
        };
        let prompt = asked.prompt;
        let root = place.workspace.root.to_string_lossy().into_owned();
        let (root, run, task) = (shell_quoted(&[root]), &place.run.id, &step.task);
        let here = format!("or: delta flow answer -w {root} --run-id {run} {task}");
        match InputType::of(Cow::Borrowed(&*asked.input_type)) {
            InputType::Confirmation => format!(
                "{prompt}\nto say yes: {command} -m yes\nto say no: {command} -m no\n{here} yes"
            ),
            _ => format!("{prompt}\nanswer with: {command} -m ANSWER\n{here} ANSWER"),
        }
    }
}

impl ActiveProgram {
    /// The need of a node's own run that has stopped with a code and can be resumed.
    pub(super) fn need(&self, outcome: &Outcome) -> Option<(Need, i32)> {
        match outcome.how {
            Ended::Exited(code) if self.failure.is_none() => Some((Need::of_exit(code)?, code)),
            _ => None,
        }
    }
}

/// The message with which the run of an agent begins.
pub(super) fn first_message(flow: &Flow, beginning: &BeginningStep, context: &str) -> String {
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
fn agent_command(command: &str, flow: &Flow, node: NodeIx, home: &Path, dir: &Path) -> Vec<String> {
    let (agent_dir, work_dir) = (home.to_string_lossy(), dir.to_string_lossy());
    let mut words = [command, "-a", &agent_dir, "-w", &work_dir]
        .map(str::to_owned)
        .to_vec();
    words.extend(tools_option(flow, node, home));
    let agent = flow.agent(node);
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
    budget
        .iter()
        .map(|(key, value)| match value {
            Value::String(word) => format!("{key}={word}"),
            number => format!("{key}={number}"),
        })
        .collect::<Vec<_>>()
        .join(",")
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
    let Some(agent) = place.flow.agent(node) else {
        return Ok(place.flow.home.clone());
    };
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
fn understand(flow: &Flow, node: NodeIx, answer: &str) -> StepResult {
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
    let values = if has_schema || flow.graph.nodes[node].role == Role::Decision {
        values_in(answer)
    } else {
        json::unwrapped(answer).into_iter().collect()
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
        None if has_schema => Err(Failure::new(
            FailureCode::SchemaOut,
            "the answer is not one JSON value",
        )),
        None => judge(json::text(answer).into()),
    }
}

/// The number of answers of an agent's run that were sent back.
fn count_sent_back(work_dir: &Path, run_id: &str) -> Result<u32> {
    let id = RunId::parse(run_id).map_err(Error::failure)?;
    let run = RunDir::of(&Workspace::at(work_dir)?, &id);
    let mut count = 0;
    each_line(&run.journal(), true, |line| {
        if let Recorded::UserMessage(message) = &line.event {
            count += u32::from(message.content.text().starts_with(SENT_BACK));
        }
        Ok(true)
    })?;
    Ok(count)
}
