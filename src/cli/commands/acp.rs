//! `delta acp`: the Agent Client Protocol, version 1, on stdin and stdout, for editors. A translator: a session is a
//! run, each prompt is a `delta run` or `delta continue` in a process of its own, and what is shown of it are the lines
//! of its journal. Source: the protocol's schema 1.15.1.
//!
//! Architecture invariant: one process, one thread, one wait for all descriptors, and nothing that a kill could lose.

mod rpc;
mod lines;
mod prompt;
mod calls;
mod updates;
mod questions;
mod ends;
mod turn;
mod stored;
mod session;
mod turns;
mod models;

use crate::VERSION;
use crate::cli::message::GivenAgent;
use crate::error::{Error, Exit, Result, reason};
use crate::runs::preflight::{check_depth, install_signals};
use crate::unix::signals::Signals;
use lines::{LineBuffer, Outbox, Read};
use prompt::Prompt;
use rpc::{ClientMessage, METHOD_NOT_FOUND, NOT_FOUND, PARSE_ERROR, Rejection};
use rustix::event::PollFlags;
use serde_json::{Map, Value, json};
use session::EditorSession;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use turns::ClientLink;
use updates::Shows;

/// The version of the protocol.
const PROTOCOL: u64 = 1;

/// Bytes that the client may leave unread before nothing more is read from it or from runs.
const BACKLOG: usize = 1 << 20;

/// The time that runs have to end when the client has gone.
const LAST_WAIT: Duration = Duration::from_secs(14);

/// The sessions of one client.
struct EditorServer {
    signals: Arc<Signals>,
    link: ClientLink,
    sessions: BTreeMap<String, EditorSession>,
    input: LineBuffer,
    /// Set once the client has gone.
    ends_at: Option<Instant>,
}

/// Something that is waited for.
enum ReadyPlace {
    Client,
    /// The client's end.
    Gone,
    Out,
    Run(String),
}

type Params = Map<String, Value>;

/// The answer to a request. None: later.
type Answer = std::result::Result<Option<Value>, Rejection>;

pub(crate) fn serve(agent: GivenAgent) -> Result<Exit> {
    check_depth()?;
    let mut server = EditorServer {
        signals: install_signals()?,
        link: ClientLink {
            agent,
            shows: Shows::default(),
            has_forms: false,
            requests: 0,
            out: Outbox::default(),
        },
        sessions: BTreeMap::new(),
        input: LineBuffer::default(),
        ends_at: None,
    };
    while !server.is_over() {
        server.step()?;
    }
    Ok(server.signals.stop().map_or(Exit::Success, Exit::from))
}

impl EditorServer {
    fn is_over(&self) -> bool {
        self.ends_at.is_some_and(|until| {
            let is_idle = self.sessions.values().all(|it| it.busy.is_none());
            (is_idle && self.link.out.is_empty()) || Instant::now() >= until
        })
    }

    /// Waits until something can be read or written, and does it.
    fn step(&mut self) -> Result<()> {
        let lost = |e: std::io::Error| {
            let why = reason(&e);
            Error::failure(format!("cannot wait for the client: {why}"))
        };
        for place in self.ready_places().map_err(lost)? {
            match place {
                ReadyPlace::Client => self.listen(),
                ReadyPlace::Gone => self.end_all(),
                ReadyPlace::Out if self.link.out.flush().is_err() => self.end_all(),
                ReadyPlace::Out => {}
                ReadyPlace::Run(name) => {
                    if let Some(session) = self.sessions.get_mut(&name) {
                        turns::follow(session, &mut self.link)?;
                    }
                }
            }
        }
        if self.signals.stop().is_some() {
            self.end_all();
        }
        for session in self.sessions.values_mut() {
            turns::look_for_end(session, &mut self.link);
        }
        self.sessions.retain(|_, session| !session.is_closed);
        Ok(())
    }

    /// Waits for all at once.
    fn ready_places(&self) -> std::io::Result<Vec<ReadyPlace>> {
        let (mut places, mut fds) = (Vec::new(), Vec::new());
        let has_room = self.link.out.len() < BACKLOG;
        if self.ends_at.is_none() {
            let (place, flags) = if has_room {
                (ReadyPlace::Client, PollFlags::IN)
            } else {
                // Its end is reported in any case.
                (ReadyPlace::Gone, PollFlags::empty())
            };
            places.push(place);
            fds.push((rustix::stdio::stdin(), flags));
        }
        if !self.link.out.is_empty() {
            places.push(ReadyPlace::Out);
            fds.push((rustix::stdio::stdout(), PollFlags::OUT));
        }
        for (name, session) in self.sessions.iter().filter(|_| has_room) {
            if let Some(output) = session.output() {
                places.push(ReadyPlace::Run(name.clone()));
                fds.push((output, PollFlags::IN));
            }
        }
        let now = Instant::now();
        let left = self
            .ends_at
            .map(|until| until.saturating_duration_since(now));
        let ready = self.signals.wait_for_any(&fds, left)?;
        let ready = places.into_iter().zip(ready);
        Ok(ready
            .filter_map(|(place, it)| it.then_some(place))
            .collect())
    }

    /// Reads what the client says, and answers.
    fn listen(&mut self) {
        if self.input.fill(rustix::stdio::stdin()).is_err() {
            return self.end_all();
        }
        while let Some(read) = self.input.next() {
            match read {
                Read::Line(line) if line.trim_ascii().is_empty() => {}
                Read::Line(line) => {
                    for message in rpc::read_messages(&line) {
                        self.take(message);
                    }
                }
                Read::TooLong(head) => {
                    let id = rpc::id_in(&String::from_utf8_lossy(&head));
                    let error = Rejection::new(PARSE_ERROR, "the line is too long");
                    self.link.out.add(&rpc::failure(&id, &error));
                }
            }
        }
        if self.input.has_ended() {
            self.end_all();
        }
    }

    fn take(&mut self, message: std::result::Result<ClientMessage, Value>) {
        match message {
            Ok(ClientMessage::Call { id, method, params }) => {
                let Some(id) = id else {
                    return self.hear(&method, &params);
                };
                match self.answer(&id, &method, &params) {
                    Ok(Some(result)) => self.link.out.add(&rpc::success(&id, &result)),
                    Ok(None) => {}
                    Err(error) => self.link.out.add(&rpc::failure(&id, &error)),
                }
            }
            Ok(ClientMessage::Answer { id, result }) => {
                let asks = |it: &&mut EditorSession| it.request() == id.as_u64();
                let mut sessions = self.sessions.values_mut();
                if let Some(session) = sessions.find(asks).filter(|_| id.is_u64()) {
                    turns::decide(session, &mut self.link, result.as_ref());
                }
            }
            Err(error) => self.link.out.add(&error),
        }
    }

    fn answer(&mut self, id: &Value, method: &str, params: &Params) -> Answer {
        match method {
            "initialize" => Ok(Some(self.initialize(params))),
            "session/new" => {
                let mut session = EditorSession::begin(&self.link.agent, params)?;
                let mut about = self.models(&mut session);
                about["sessionId"] = session.name().into();
                self.sessions.insert(session.name().to_owned(), session);
                Ok(Some(about))
            }
            "session/set_model" => self.choose(params, "modelId"),
            "session/set_config_option" if params.get("configId") == Some(&"model".into()) => {
                self.choose(params, "value")
            }
            "session/load" => self.load(params, true),
            "session/resume" => self.load(params, false),
            "session/list" => stored::list(&self.link.agent, params).map(Some),
            "session/prompt" => {
                let prompt = params.get("prompt").unwrap_or(&Value::Null);
                let session = known(&mut self.sessions, params)?;
                turns::begin(session, &mut self.link, id, Prompt::read(prompt)?).map(|()| None)
            }
            "session/close" => {
                let session = known(&mut self.sessions, params)?;
                turns::cancel(session, &mut self.link);
                session.is_closed = session.busy.is_none();
                if session.is_closed {
                    return Ok(Some(json!({})));
                }
                session.closing.push(id.clone());
                Ok(None)
            }
            _ => {
                let message = format!("there is no method {method} here");
                Err(Rejection::new(METHOD_NOT_FOUND, message))
            }
        }
    }

    /// The members of an answer about a session that name its models, if they are known.
    fn models(&self, session: &mut EditorSession) -> Value {
        let found = models::describe(&self.link, &self.signals, session, None);
        found.ok().flatten().unwrap_or_else(|| json!({}))
    }

    fn choose(&mut self, params: &Params, chosen: &str) -> Answer {
        let session = known(&mut self.sessions, params)?;
        let chosen = params.get(chosen).unwrap_or(&Value::Null);
        models::describe(&self.link, &self.signals, session, Some(chosen))
    }

    fn initialize(&mut self, params: &Params) -> Value {
        let client = params.get("clientCapabilities").unwrap_or(&Value::Null);
        self.link.shows = Shows {
            compactions: client["session"]["compaction"].is_object(),
            notices: client["session"]["notices"].is_object(),
        };
        self.link.has_forms = client["elicitation"]["form"].is_object();
        json!({
            "protocolVersion": PROTOCOL,
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": {"image": true, "embeddedContext": true, "audio": false},
                "mcpCapabilities": {"http": false, "sse": false},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
            },
            "authMethods": [],
            "agentInfo": {"name": "delta", "title": "delta", "version": VERSION},
        })
    }

    /// Opens a session of a run that is there, and shows the run if that is wanted.
    fn load(&mut self, params: &Params, is_shown: bool) -> Answer {
        let mut session = EditorSession::find(params)?;
        let name = session.name().to_owned();
        let open = self.sessions.get(&name);
        if let Some(open) = open.filter(|open| open.workspace.root != session.workspace.root) {
            let place = open.workspace.root.display();
            let message = format!("cwd: session {name} works in {place}");
            return Err(Rejection::invalid(message));
        }
        let is_busy = open.is_some_and(|open| open.busy.is_some());
        if open.is_none() && !session.run.path.is_dir() {
            let place = session.workspace.root.display();
            let message = format!("there is no session {name} in {place}");
            return Err(Rejection::new(NOT_FOUND, message));
        }
        let all = session.record(self.link.shows)?;
        for update in all.iter().filter(|_| is_shown) {
            self.link.update(&session, update);
        }
        let about = self.models(&mut session);
        if !is_busy {
            self.sessions.insert(name, session);
        }
        Ok(Some(about))
    }

    fn hear(&mut self, method: &str, params: &Params) {
        let session = match method {
            "session/cancel" => known(&mut self.sessions, params).ok(),
            "$/cancel_request" => {
                let id = params.get("requestId");
                let asks = |it: &&mut EditorSession| {
                    let busy = it.busy.as_ref();
                    busy.is_some_and(|busy| Some(&busy.prompt_id) == id)
                };
                self.sessions.values_mut().find(asks)
            }
            _ => None,
        };
        if let Some(session) = session {
            turns::cancel(session, &mut self.link);
        }
    }

    /// The client has gone, or a signal has come: everything ends.
    fn end_all(&mut self) {
        if self.ends_at.is_none() {
            self.ends_at = Some(Instant::now() + LAST_WAIT);
            for session in self.sessions.values_mut() {
                turns::cancel(session, &mut self.link);
            }
        }
    }
}

/// The open session that a request names.
fn known<'s>(
    sessions: &'s mut BTreeMap<String, EditorSession>,
    params: &Params,
) -> std::result::Result<&'s mut EditorSession, Rejection> {
    let name = session::name_in(params)?;
    let unknown = || {
        let message = format!("session {name} is not open: load it first");
        Rejection::new(NOT_FOUND, message)
    };
    sessions.get_mut(name).ok_or_else(unknown)
}
