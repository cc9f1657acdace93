//! Agent nodes: a run of `delta` of its own for each, whose answer is JSON.
//!
//! The run has a name of its own and lies in the task's directory, so that the same command resumes it.
//! An answer that does not fit is sent back with what is wrong with it, as often as the agent says. How
//! often that was is told by the agent's own journal: it has the message, or has not, however often the
//! engine was killed.

use super::begin::BeginningStep;
use super::finish::AttemptEnd;
use super::{Active, FlowEngine, StepKey, Suspension};
use crate::config::tool::bind::shell_quoted;
use crate::error::{At, Error, Result};
use crate::flow::context::recall::lacking;
use crate::flow::context::select::AssembledContext;
use crate::flow::graph::choice::{Failure, FailureCode, Payload, choose, named};
use crate::flow::graph::router::TaskKind;
use crate::flow::graph::topology::{NodeIx, Role};
use crate::flow::manifest::agent::AgentBody;
use crate::flow::manifest::asked;
use crate::flow::manifest::problem::sha256;
use crate::flow::manifest::{FlowAgent, OutputForm};
use crate::flow::record::attempt::{ProgramInput, fault, misfit, one_value};
use crate::flow::record::tool_calls::{beside, denied, set_of_agent};
use crate::record::event::EventKind;
use crate::record::reader::{JournalReader, Next};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::ids::{RunId, hex};
use crate::text::json;
use crate::unix::files;
use crate::unix::process::{self, Outcome};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// How a message begins that sends an answer back.
const SENT_BACK: &str = "This answer will not do: ";

/// What `delta run --format json` prints.
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

impl FlowEngine<'_> {
    /// Whether a node is an agent that is talked to, and not a program.
    pub(super) fn is_conversation(&self, node: NodeIx) -> bool {
        let flow = self.place.flow;
        let settings = &flow.nodes[node];
        settings.command.is_none()
            && settings
                .agent
                .is_some_and(|agent| !matches!(flow.agents[agent].body, AgentBody::Command(_)))
    }

    /// Prepares the run of an agent: a new one, or the one that an earlier process began.
    pub(super) fn begin_agent(
        &mut self,
        beginning: &BeginningStep,
        dir: PathBuf,
        context: &AssembledContext,
    ) -> Result<()> {
        let flow = self.place.flow;
        let Some(agent) = flow.nodes[beginning.node].agent else {
            return Ok(());
        };
        let home = self.agent_home(&flow.agents[agent])?;
        let message = self.message(beginning, &context.told);
        let failed = self
            .tries
            .get(&beginning.which)
            .map_or(0, |tries| tries.failed);
        let run_id = self.agent_run(&beginning.task, beginning.node, failed);
        let (place, work_dir) = (home.to_string_lossy(), dir.to_string_lossy());
        let words = ["run", "-a", &place, "-m", "-", "-w", &work_dir];
        let mut words = words.map(str::to_owned).to_vec();
        words.extend(set_of_agent(flow, beginning.node, &home));
        let talk = (&words[..], run_id.as_str(), message.as_str());
        self.converse(beginning, dir, &context.text, talk)?;
        for denied in denied(flow, beginning.node) {
            self.record_denial(beginning.which, &denied, None);
        }
        Ok(())
    }

    fn converse(
        &mut self,
        beginning: &BeginningStep,
        dir: PathBuf,
        context: &str,
        (words, run_id, message): (&[String], &str, &str),
    ) -> Result<()> {
        let mut argv = self.options.launch.clone();
        argv.push(beside("delta"));
        argv.extend_from_slice(words);
        let rest = ["--run-id", run_id, "--format", "json", "-q"];
        argv.extend(rest.map(str::to_owned));
        let given = ProgramInput {
            argv,
            dir,
            input: &beginning.input,
            context: Some(context),
            stdin: Some(message.as_bytes()),
        };
        let call_id = format!("{}{}", self.place.call_prefix, hex(12));
        self.prepare(beginning, given, call_id)
    }

    /// The name of the run of an agent: the same for the same step, and another one for each retry.
    fn agent_run(&self, task: &str, node: NodeIx, failed: u32) -> String {
        const OF_NODE: usize = 40;
        let node = &self.place.flow.graph.nodes[node].id;
        let place = format!("{}\n{task}\n{node}", self.place.run.id);
        let sum = &sha256(place.as_bytes())[..10];
        let begin: String = node.trim_start_matches('.').chars().take(OF_NODE).collect();
        match failed {
            0 => format!("node-{begin}-{sum}"),
            _ => format!("node-{begin}-{sum}-{}", failed + 1),
        }
    }

    /// What an agent is told.
    fn message(&self, beginning: &BeginningStep, context: &str) -> String {
        let flow = self.place.flow;
        let mut text = format!("Input:\n```json\n{}\n```\n{context}", beginning.input);
        if flow.graph.nodes[beginning.node].role == Role::Decision {
            let ways = named(&flow.graph, beginning.node);
            text.push_str(&format!(
                "\nThe answer decides how it goes on: it is one of these strings, or an object that has \
                 one of them as \"selected_edge\": {ways}\n"
            ));
        }
        if flow.nodes[beginning.node].output == OutputForm::Text {
            return text;
        }
        match flow.schema_out(beginning.node) {
            Some(schema) => text.push_str(&format!(
                "\nAnswer with one JSON value that fits this JSON Schema, and nothing else:\n```json\n{}\n```\n",
                schema.schema.source
            )),
            None => text.push_str("\nAnswer with one JSON value, and nothing else.\n"),
        }
        text
    }

    /// An agent's directory: its own, or one that is made from a model and a prompt.
    fn agent_home(&self, agent: &FlowAgent) -> Result<PathBuf> {
        let (llm, prompt) = match &agent.body {
            AgentBody::Directory(path) => return Ok(path.clone()),
            AgentBody::Model { llm, prompt, .. } => (llm, prompt),
            AgentBody::Command(_) => return Ok(self.place.flow.home.clone()),
        };
        let home = self.place.run.path.join("agents").join(&agent.id);
        files::make_dirs(&home)?;
        let model = llm.split_once('/').map_or(llm.as_str(), |(_, model)| model);
        let mut settings = Map::new();
        settings.insert("model".to_owned(), model.into());
        if let Some(provider) = agent.asked.index {
            let (key, value) = asked::settings(&self.place.flow.providers[provider]);
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

    /// The run of an agent has come to a stop.
    pub(super) fn answered(
        &mut self,
        active: Active,
        outcome: &Outcome,
        ended: AttemptEnd,
    ) -> Result<()> {
        const RESUMABLE: i32 = 75;
        const ASKS: i32 = 101;
        let which = active.which;
        let Some(step) = self
            .roots
            .get(&which.0)
            .and_then(|it| it.router.get(which.1))
        else {
            return Ok(());
        };
        let node = step.node;
        let path = active.io.join("stdout.log");
        let printed = std::fs::read(&path).at("read", &path)?;
        let told: AgentResult = serde_json::from_slice(&printed).unwrap_or_default();
        match outcome.how {
            process::Ended::Exited(ASKS) => {
                let asked = told.interaction.map(|asked| asked.prompt);
                self.held.insert(
                    which,
                    Suspension::Waiting(self.how_to_answer(&active, asked)),
                );
                return Ok(());
            }
            process::Ended::Exited(RESUMABLE) => {
                let why = told.error.map(|said| said.message);
                self.held
                    .insert(which, Suspension::Later(why.unwrap_or_default()));
                return Ok(());
            }
            _ => {}
        }
        self.tell_tools(which, &active.io, &[])?;
        let timeout = self.place.flow.nodes[node].timeout;
        let fault = match active.doomed.clone() {
            Some(failure) => Some(failure),
            None => fault(&active.io, outcome, timeout)?,
        };
        if let Some(mut failure) = fault {
            if let Some(said) = told
                .error
                .filter(|_| failure.code == FailureCode::Operation)
            {
                failure = Failure::new(FailureCode::Operation, said.message);
            }
            return self.judge(which, Err(failure), ended);
        }
        let Some(answer) = told
            .result
            .filter(|_| told.status.as_deref() == Some("COMPLETED"))
        else {
            let failure = Failure::new(FailureCode::Operation, "the agent's run told no result");
            return self.judge(which, Err(failure), ended);
        };
        match self.understood(node, answer) {
            Ok(output) => self.judge(which, Ok(output), ended),
            Err(failure) => self.send_back(which, failure, ended),
        }
    }

    /// An answer as the node's output, if it will do.
    fn understood(&self, node: NodeIx, answer: String) -> std::result::Result<Payload, Failure> {
        let flow = self.place.flow;
        let leads_on = |output: Payload| choose(&flow.graph, node, &output).map(|_| output);
        if flow.nodes[node].output == OutputForm::Text {
            return leads_on(json::text(&answer).into());
        }
        let output = one_value(unfenced(&answer).to_owned()).map_err(|_| {
            Failure::new(FailureCode::SchemaOut, "the answer is not one JSON value")
        })?;
        let misfit = misfit(flow.schema_out(node), &output, FailureCode::SchemaOut);
        match misfit.or_else(|| lacking(&flow.nodes[node].remember, &output)) {
            Some(failure) => Err(failure),
            None => leads_on(output),
        }
    }

    /// Asks for a better answer, if the agent may be asked again.
    fn send_back(&mut self, which: StepKey, failure: Failure, ended: AttemptEnd) -> Result<()> {
        let flow = self.place.flow;
        let Some(root) = self.roots.get(&which.0) else {
            return Ok(());
        };
        let Some(step) = root.router.get(which.1) else {
            return Ok(());
        };
        let most = flow.nodes[step.node]
            .agent
            .map_or(0, |agent| flow.agents[agent].repairs);
        let tries = self.tries.get(&which).copied().unwrap_or_default();
        let beginning = BeginningStep {
            which,
            task: root.router.id(step.task).to_owned(),
            node: step.node,
            input: root.router.input(which.1).unwrap_or_else(|| "null".into()),
            is_root: root.router.view(step.task).kind == TaskKind::Root,
            attempt: tries.last,
        };
        let dir = self.task_dir(&beginning)?;
        let run_id = self.agent_run(&beginning.task, beginning.node, tries.failed);
        // Where that cannot be found out, it was often enough.
        let made = sent_back(&dir, &run_id).unwrap_or(u32::MAX);
        if made >= most {
            return self.judge(which, Err(failure), ended);
        }
        self.say(which, false, "sent back", &failure.message);
        // What its first answer was given.
        let path = ended.io.unwrap_or_default().join("context.json");
        let context = std::fs::read_to_string(&path).at("read", &path)?;
        let message = format!(
            "{SENT_BACK}{}\nAnswer again, with the whole JSON value and nothing else.",
            failure.message
        );
        let work_dir = dir.to_string_lossy().into_owned();
        let words = ["continue", "-w", &work_dir, "-m", "-"].map(str::to_owned);
        let talk = (&words[..], run_id.as_str(), message.as_str());
        self.converse(&beginning, dir, &context, talk)
    }

    fn how_to_answer(&self, active: &Active, asked: Option<String>) -> String {
        let Some((task, node)) = self.named(active.which) else {
            return String::new();
        };
        let flow = self.place.flow;
        let ix = flow.graph.find(node).unwrap_or_default();
        let failed = self
            .tries
            .get(&active.which)
            .map_or(0, |tries| tries.failed);
        let root = &self.place.workspace.root;
        let dir = if task.contains('.') {
            root.join("tasks")
                .join(crate::flow::record::attempt::dir_name(task))
        } else {
            root.clone()
        };
        let command = [
            "delta".to_owned(),
            "continue".to_owned(),
            "-w".to_owned(),
            dir.to_string_lossy().into_owned(),
            "--run-id".to_owned(),
            self.agent_run(task, ix, failed),
        ];
        format!(
            "{node} of {task} asks: {}\nanswer with: {} -m ANSWER",
            asked.unwrap_or_default(),
            shell_quoted(&command)
        )
    }
}

/// How often the answers of an agent's run have been sent back.
fn sent_back(work_dir: &Path, run_id: &str) -> Result<u32> {
    let id = RunId::parse(run_id).map_err(Error::failure)?;
    let run = RunDir::of(&Workspace::at(work_dir)?, &id);
    let mut lines = JournalReader::open(&run.journal())?;
    let mut count = 0;
    loop {
        match lines.read_next()? {
            Next::Event(_, line) if line.kind == EventKind::UserMessage => {
                let content = line.content.map_or("null", RawValue::get);
                let message: Option<String> = serde_json::from_str(content).unwrap_or_default();
                count += u32::from(message.is_some_and(|it| it.starts_with(SENT_BACK)));
            }
            Next::Event(..) | Next::Damaged(_) => {}
            Next::End { .. } => return Ok(count),
        }
    }
}

/// What stands in the first fenced block of an answer, or all of it.
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
