//! A session of a client: a run, and what is under way in it.

use super::prompt::Prompt;
use super::rpc::Rejection;
use super::stored;
use super::turn::RunProcess;
use super::updates::{Shows, Updates};
use crate::cli::agent_names::{find_agent, is_nested};
use crate::cli::message::GivenAgent;
use crate::cli::result::answer_command;
use crate::engine::question::Question;
use crate::error::{At, Result};
use crate::record::metadata::Status;
use crate::record::reader::read_journal;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::inspect::{inspect_run, read_summary};
use crate::text::ids::RunId;
use crate::text::shorten::list_names;
use crate::text::timestamp::Timestamp;
use rustix::fd::BorrowedFd;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A session.
#[derive(Debug)]
pub(super) struct EditorSession {
    pub workspace: Workspace,
    /// The run, which may not exist yet.
    pub run: RunDir,
    /// The model that the client has chosen, or the run was begun with.
    pub model: Option<String>,
    /// Said before the first answer.
    pub notice: Option<String>,
    pub updates: Updates,
    /// None between two prompts.
    pub busy: Option<Busy>,
    /// Requests to close it, to be answered at the end of the turn.
    pub closing: Vec<Value>,
    pub is_closed: bool,
}

/// A prompt that has no answer yet.
#[derive(Debug)]
pub(super) struct Busy {
    pub prompt_id: Value,
    pub is_cancelled: bool,
    /// The process that works on the run.
    pub process: Option<RunProcess>,
    /// The request to the client, and the question that it asks.
    pub asked: Option<(u64, Question)>,
    /// The message that follows once the question is answered.
    pub next: Option<Prompt>,
}

/// The state of a session's run between two starts.
pub(super) enum SessionState {
    /// There is no run yet.
    New,
    There,
    /// An answer is waited for; and the command that gives one.
    Open(Box<Question>, String),
}

/// The session that a request names.
pub(super) fn name_in(params: &Map<String, Value>) -> std::result::Result<&str, Rejection> {
    params
        .get("sessionId")
        .and_then(Value::as_str)
        .ok_or_else(|| Rejection::invalid("sessionId: expected a string"))
}

impl EditorSession {
    /// A session whose run begins with the first prompt.
    pub(super) fn begin(
        agent: &GivenAgent,
        params: &Map<String, Value>,
    ) -> std::result::Result<Self, Rejection> {
        let workspace = stored::workspace_of(params)?;
        stored::check_new(agent, &workspace)?;
        let id = RunId::generate(Timestamp::now());
        Ok(Self::of(workspace, &id, params))
    }

    /// The session of a run; of none if there is no such run.
    pub(super) fn find(params: &Map<String, Value>) -> std::result::Result<Self, Rejection> {
        let name = name_in(params)?;
        let workspace = stored::workspace_of(params)?;
        let id = stored::find(name, &workspace)?;
        let mut session = Self::of(workspace, &id, params);
        let set = read_summary(&session.run).0.set;
        let model = set.get("llm.model").and_then(Value::as_str);
        session.model = model.map(str::to_owned);
        Ok(session)
    }

    /// The name of its run.
    pub(super) fn name(&self) -> &str {
        self.run.id.as_str()
    }

    pub(super) fn process(&mut self) -> Option<&mut RunProcess> {
        self.busy.as_mut()?.process.as_mut()
    }

    fn of(workspace: Workspace, id: &RunId, params: &Map<String, Value>) -> Self {
        Self {
            run: RunDir::of(&workspace, id),
            model: None,
            notice: notice(params.get("mcpServers")),
            updates: Updates::new(workspace.root.clone()),
            workspace,
            busy: None,
            closing: Vec::new(),
            is_closed: false,
        }
    }

    /// The record of the run, as updates.
    pub(super) fn record(&mut self, shows: Shows) -> Result<Vec<Value>> {
        let path = self.run.journal();
        if self.run.path.is_dir() {
            Ok(self
                .updates
                .of_record(&read_journal(&path).at("read", &path)?, shows))
        } else {
            Ok(Vec::new())
        }
    }

    /// The pipe that the lines of its process come from.
    pub(super) fn output(&self) -> Option<BorrowedFd<'_>> {
        self.busy.as_ref()?.process.as_ref()?.output()
    }

    /// The request to the client that has no answer yet.
    pub(super) fn request(&self) -> Option<u64> {
        self.busy
            .as_ref()?
            .asked
            .as_ref()
            .map(|(number, _)| *number)
    }

    /// # Errors
    /// Another process works on the run.
    pub(super) fn state(&self) -> Result<SessionState> {
        if !self.run.path.is_dir() {
            return Ok(SessionState::New);
        }
        let found = inspect_run(&self.run)?;
        match &found.question {
            _ if found.metadata.status == Status::Running => Err(found.busy()),
            Some(question) if !found.has_ended() => Ok(SessionState::Open(
                Box::new(question.clone()),
                answer_command(&found),
            )),
            _ => Ok(SessionState::There),
        }
    }

    /// The words of the command that goes on with the run.
    pub(super) fn words(&self, state: &SessionState, agent: &GivenAgent) -> Result<Vec<String>> {
        let (root, id) = (self.workspace.root.to_string_lossy(), self.run.id.as_str());
        let place = ["-w", &root, "--run-id", id];
        let home = |home: PathBuf| ["-a".to_owned(), home.to_string_lossy().into_owned()];
        let mut words: Vec<String> = Vec::new();
        match state {
            SessionState::New => {
                words.push("run".to_owned());
                words.extend(home(find_agent(agent)?.home));
            }
            SessionState::There | SessionState::Open(..) => {
                words.push("continue".to_owned());
                // One that a record must not choose.
                let recorded = inspect_run(&self.run)?.metadata.agent_home;
                if is_nested(Path::new(&recorded), &self.workspace.root) {
                    let own = find_agent(agent)?.home;
                    if own.canonicalize().ok().as_deref() == Some(Path::new(&recorded)) {
                        words.extend(home(own));
                    }
                }
            }
        }
        words.extend(place.map(str::to_owned));
        if let Some(model) = &self.model {
            words.extend(["-M".to_owned(), model.clone()]);
        }
        if let SessionState::Open(question, _) = state
            && !question.request_id.is_empty()
        {
            words.extend(["--question".to_owned(), question.request_id.clone()]);
        }
        Ok(words)
    }
}

/// A notice about the servers that a client would like to have started.
fn notice(servers: Option<&Value>) -> Option<String> {
    let servers = servers?.as_array().filter(|servers| !servers.is_empty())?;
    let names = servers
        .iter()
        .map(|server| server["name"].as_str().unwrap_or("unnamed").to_owned());
    let names = list_names(names);
    Some(format!(
        "The MCP servers of this client are not started ({names}); `delta mcp import` turns the tools of a server into \
         tools of the agent.\n\n"
    ))
}
