//! Agent nodes: a run of `delta` for each, whose answer is JSON.
//!
//! The run has a name of its own and lies in the task's directory, so that the same command resumes it.
//! An answer that does not fit is sent back with what is wrong with it, as often as the agent says. How
//! often that was stands in the agent's own journal: it has the message, or has not, however often the
//! engine was killed.

use super::begin::{BeginningStep, task_dir, task_path};
use super::finish::{AttemptEnd, add_tool_calls};
use super::{ActiveProgram, FlowEngine, RunPlace, Suspension};
use crate::config::tool::bind::shell_quoted;
use crate::error::{At, Error, Result};
use crate::flow::context::recall::find_lacking;
use crate::flow::context::select::AssembledContext;
use crate::flow::graph::{
    Failure, FailureCode, NodeIx, Payload, Role, StepRef, choose_route, edge_words,
};
use crate::flow::manifest::asked;
use crate::flow::manifest::{AgentBody, Flow, FlowAgent, OutputForm, sha256};
use crate::flow::record::{
    ProgramInput, check_schema, denied_tools, each_line, find_failure, one_value, program_beside,
    tools_option,
};
use crate::record::event::EventKind;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::ids::RunId;
use crate::text::json;
use crate::unix::files;
use crate::unix::process::{Ended, Outcome};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// How a message begins that sends an answer back.
const SENT_BACK: &str = "This answer will not do: ";

/// The object that `delta run --format json` prints.
#[derive(Deserialize, Default)]
#[serde(default)]
struct AgentResult {
    status: Option<String>,
    result: Option<String>,
    error: Option<AgentError>,
    interaction: Option<AgentQuestion>,
}

#[derive(Deserialize)]
struct AgentError {
    message: String,
}

#[derive(Deserialize)]
struct AgentQuestion {
    prompt: String,
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
        let (agent_dir, work_dir) = (home.to_string_lossy(), dir.to_string_lossy());
        let words = ["run", "-a", &agent_dir, "-m", "-", "-w", &work_dir];
        let mut words = words.map(str::to_owned).to_vec();
        words.extend(tools_option(flow, step.node, &home));
        let message = AgentMessage {
            words,
            run_id: self.agent_run(step),
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
        let rest = ["--run-id", &message.run_id, "--format", "json", "-q"];
        argv.extend(rest.map(str::to_owned));
        let given = ProgramInput {
            argv,
            dir,
            input: &beginning.input,
            context: Some(&message.context),
            stdin: Some(message.text.as_bytes()),
        };
        self.prepare(beginning, given)
    }

    /// The name of the run of an agent: the same for the same step, and another one for each retry.
    fn agent_run(&self, step: &StepRef) -> String {
        const OF_NODE: usize = 40;
        let node = self.node_id(step);
        let place = format!("{}\n{}\n{node}", self.place.run.id, step.task);
        let sum = &sha256(place.as_bytes())[..10];
        let begin: String = node.trim_start_matches('.').chars().take(OF_NODE).collect();
        match self.attempts.get(&step.key).map_or(0, |it| it.failed) {
            0 => format!("node-{begin}-{sum}"),
            failed => format!("node-{begin}-{sum}-{}", failed + 1),
        }
    }

    /// The run of an agent has come to a stop.
    pub(super) fn end_agent(
        &mut self,
        active: ActiveProgram,
        outcome: &Outcome,
        ended: AttemptEnd,
    ) -> Result<()> {
        const RESUMABLE: i32 = 75;
        const ASKS: i32 = 101;
        const UNDECIDED: i32 = 4;
        let step = &active.step;
        let path = active.io.join("stdout.log");
        let printed = std::fs::read(&path).at("read", &path)?;
        let printed: AgentResult = serde_json::from_slice(&printed).unwrap_or_default();
        match outcome.how {
            Ended::Exited(ASKS) => {
                let asked = printed.interaction.map(|asked| asked.prompt);
                let how = self.how_to_answer(step, &asked.unwrap_or_default());
                self.suspend(active.step, Suspension::Waiting(how));
                return Ok(());
            }
            Ended::Exited(RESUMABLE) => {
                let why = printed.error.map(|error| error.message);
                self.suspend(active.step, Suspension::Later(why.unwrap_or_default()));
                return Ok(());
            }
            Ended::Exited(UNDECIDED) => {
                let why = printed.error.map(|error| error.message);
                self.suspend(active.step, Suspension::Undecided(why.unwrap_or_default()));
                return Ok(());
            }
            _ => {}
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
        let run_id = self.agent_run(step);
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
        let work_dir = dir.to_string_lossy().into_owned();
        let message = AgentMessage {
            words: ["continue", "-w", &work_dir, "-m", "-"]
                .map(str::to_owned)
                .to_vec(),
            run_id,
            text: format!(
                "{SENT_BACK}{}\nAnswer again, with the whole JSON value and nothing else.",
                failure.message
            ),
            context,
        };
        self.converse(&beginning, dir, &message)
    }

    fn how_to_answer(&self, step: &StepRef, asked: &str) -> String {
        let dir = task_path(&self.place, step);
        let run = self.agent_run(step);
        let command = [
            "delta",
            "continue",
            "-w",
            &dir.to_string_lossy(),
            "--run-id",
            &run,
        ];
        format!(
            "{} of {} asks: {asked}\nanswer with: {} -m ANSWER",
            self.node_id(step),
            step.task,
            shell_quoted(&command.map(str::to_owned))
        )
    }
}

/// The message with which the run of an agent begins.
fn first_message(flow: &Flow, beginning: &BeginningStep, context: &str) -> String {
    let node = beginning.step.node;
    let mut text = format!("Input:\n```json\n{}\n```\n{context}", beginning.input);
    if flow.graph.nodes[node].role == Role::Decision {
        let ways = edge_words(&flow.graph, node);
        text.push_str(&format!(
            "\nThe answer selects the next edge: it is one of these strings, or an object that has \
             one of them as \"selected_edge\": {ways}\n"
        ));
    }
    if flow.nodes[node].output == OutputForm::Text {
        return text;
    }
    match flow.schema_out(node) {
        Some(schema) => text.push_str(&format!(
            "\nAnswer with one JSON value that fits this JSON Schema, and nothing else:\n```json\n{}\n```\n",
            schema.schema.source
        )),
        None => text.push_str("\nAnswer with one JSON value, and nothing else.\n"),
    }
    text
}

/// An agent's directory: its own, or one that is made from a model and a prompt.
fn agent_home(place: &RunPlace<'_>, agent: &FlowAgent) -> Result<PathBuf> {
    let (llm, prompt) = match &agent.body {
        AgentBody::Directory(path) => return Ok(path.clone()),
        AgentBody::Model { llm, prompt, .. } => (llm, prompt),
        AgentBody::Command(_) => return Ok(place.flow.home.clone()),
    };
    let home = place.run.path.join("agents").join(&agent.id);
    files::make_dirs(&home)?;
    let model = llm.split_once('/').map_or(llm.as_str(), |(_, model)| model);
    let mut settings = Map::new();
    settings.insert("model".to_owned(), model.into());
    if let Some(provider) = agent.asked.index {
        let (key, value) = asked::provider_setting(&place.flow.providers[provider]);
        settings.insert(key.to_owned(), value);
    }
    settings.extend(agent.config.clone());
    let document = serde_json::json!({"name": agent.id, "llm": Value::Object(settings)});
    let context = "sources:\n  - type: file\n    id: system_prompt\n    \
                   path: '${AGENT_HOME}/system_prompt.md'\n  - type: journal\n    id: conversation\n";
    // JSON is YAML. Several starts write the same.
    files::replace(&home.join("agent.yaml"), json::text(&document).as_bytes())?;
    files::replace(&home.join("system_prompt.md"), prompt.as_bytes())?;
    files::replace(&home.join("context.yaml"), context.as_bytes())?;
    Ok(home)
}

/// An answer as the node's output, if it will do.
fn understand(flow: &Flow, node: NodeIx, answer: String) -> std::result::Result<Payload, Failure> {
    let leads_on = |output: Payload| choose_route(&flow.graph, node, &output).map(|_| output);
    if flow.nodes[node].output == OutputForm::Text {
        return leads_on(json::text(&answer).into());
    }
    let output = one_value(unfenced(&answer).to_owned())
        .map_err(|_| Failure::new(FailureCode::SchemaOut, "the answer is not one JSON value"))?;
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

/// The text in the first fenced block of an answer, or all of it.
fn unfenced(answer: &str) -> &str {
    let text = answer.trim();
    if json::check(text).is_ok() {
        return text;
    }
    let Some((_, rest)) = text.split_once("```") else {
        return text;
    };
    let body = rest.split_once('\n').map_or(rest, |(_, body)| body);
    body.split("```").next().unwrap_or(body).trim()
}

#[cfg(test)]
mod tests {
    use super::unfenced;

    #[test]
    fn an_answer_in_a_fenced_block_is_what_is_inside() {
        assert_eq!(unfenced(" {\"a\": \"```\"} "), "{\"a\": \"```\"}");
        assert_eq!(unfenced("Here:\n```json\n[1]\n```\nbye"), "[1]");
        assert_eq!(unfenced("```\n7\n```"), "7");
        assert_eq!(unfenced("no"), "no");
    }
}
