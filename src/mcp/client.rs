//! A client of one server: how it is reached, which revision it speaks, and what is asked of it.

use super::headers::Headers;
use super::http::HttpServer;
use super::protocol::{
    CALL, INVALID_PARAMS, INVALID_REQUEST, LEGACY, METHOD_NOT_FOUND, Outgoing, Revision, RpcError,
    RpcOutcome, RpcResponse, TASKS, UNSUPPORTED_VERSION, chosen_revision, effect_of, initialize,
    initialized, meta, other_offers, request, speaks_modern,
};
use super::servers::{Reach, Secrets, Server};
use super::stdio::StdioServer;
use super::task::offers_tasks;
use crate::config::environment::Environment;
use crate::error::{Error, Result};
use crate::text::disguise::indented;
use crate::text::json::{self, Members};
use crate::unix::signals::Signals;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a program may be silent when it is asked for the revision without sessions, which an older
/// one may not answer at all.
const PROBE: Duration = Duration::from_secs(5);

/// How long a server may be silent when anything but a call is asked of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most pages of a list of tools.
const MOST_PAGES: usize = 100;

/// The most tools of a server.
const MOST_TOOLS: usize = 10_000;

/// A connection to a server.
pub(crate) struct Client<'s> {
    transport: Transport<'s>,
    launch: Launch<'s>,
    pub revision: Revision,
    /// Offers of the server beside tools.
    pub other_offers: Vec<String>,
    /// The server may answer calls with tasks, if that is declared.
    pub offers_tasks: bool,
    /// Every request says that a task will do.
    pub declares_tasks: bool,
    next_id: u64,
    /// The server has been asked for the revision without sessions, which may have ended it.
    was_probed: bool,
}

/// A server, and what it is started with.
#[derive(Clone)]
pub(crate) struct Launch<'s> {
    pub server: Server,
    /// Where its program is found from, if it is a path.
    pub home: PathBuf,
    /// Where it works.
    pub dir: PathBuf,
    pub signals: &'s Arc<Signals>,
}

/// What a server says of a task.
#[derive(Debug)]
pub(crate) enum TaskAnswer {
    Task(Members),
    /// It has none of this name any more.
    Unknown(String),
    /// It cannot say for now.
    Broken(String),
    /// It does not answer such a request.
    Refused(String),
}

enum Transport<'s> {
    Stdio(Box<StdioServer<'s>>),
    Http(Box<HttpServer>),
}

impl Transport<'_> {
    fn end(self) {
        match self {
            Self::Stdio(server) => server.end(),
            Self::Http(server) => server.end(),
        }
    }
}

impl<'s> Launch<'s> {
    fn start(&self) -> Result<Transport<'s>> {
        let (server, signals) = (&self.server, self.signals);
        Ok(match &server.reach {
            Reach::Command(argv) => {
                let mut argv = argv.clone();
                if argv[0].contains('/') {
                    argv[0] = self.home.join(&argv[0]).display().to_string();
                }
                let own = server.program_variables()?;
                let mut env = Environment::default().for_child(false);
                env.retain(|(name, _)| own.iter().all(|(other, _)| other != name));
                env.extend(own);
                let cwd = server.cwd.as_ref().map(|cwd| self.home.join(cwd));
                let place = (cwd.as_deref().unwrap_or(&self.dir), &*env);
                let started = StdioServer::start(signals, &argv, place, server.secrets())?;
                Transport::Stdio(Box::new(started))
            }
            Reach::Url(url) => {
                let headers = Headers::of(server, &self.home, signals)?;
                Transport::Http(Box::new(HttpServer::new(url, headers, signals)?))
            }
        })
    }
}

impl<'s> Client<'s> {
    /// Connects to a server. Without a pinned revision it is asked which it speaks.
    pub(crate) fn connect(launch: Launch<'s>, pinned: Option<Revision>) -> Result<Self> {
        let mut client = Self {
            transport: launch.start()?,
            launch,
            revision: Revision::Modern,
            other_offers: Vec::new(),
            offers_tasks: false,
            declares_tasks: false,
            next_id: 1,
            was_probed: false,
        };
        match client.begin(client.launch.server.revision.or(pinned)) {
            Ok(()) => Ok(client),
            Err(error) => {
                client.close();
                Err(error)
            }
        }
    }

    fn begin(&mut self, pinned: Option<Revision>) -> Result<()> {
        match pinned {
            Some(Revision::Modern) => Ok(()),
            Some(Revision::Legacy(version)) => self.begin_legacy(version),
            None => self.probe(),
        }
    }

    /// Secrets of the server, those that its header commands have printed included.
    pub(crate) fn secrets(&self) -> Secrets {
        match &self.transport {
            Transport::Stdio(_) => self.launch.server.secrets(),
            Transport::Http(server) => server.headers.secrets.clone(),
        }
    }

    /// All tools of the server, as it describes them, each as JSON; and what is odd about the list.
    pub(crate) fn list_tools(&mut self) -> Result<(Vec<Box<RawValue>>, Option<String>)> {
        let mut tools = Vec::new();
        let mut cursors = BTreeSet::new();
        let mut params = Vec::new();
        for _ in 0..MOST_PAGES {
            let borrowed: Vec<(&str, &str)> = params
                .iter()
                .map(|cursor: &String| ("cursor", &**cursor))
                .collect();
            let page = self.ask("tools/list", &borrowed)?;
            let items: Option<Vec<Box<RawValue>>> =
                serde_json::from_str(page.get("tools").unwrap_or("null"))
                    .map_err(|_| Error::failure("tools/list: the server's tools are not a list"))?;
            tools.extend(items.into_iter().flatten());
            if tools.len() > MOST_TOOLS {
                let message = format!("the server lists more than {MOST_TOOLS} tools");
                return Err(Error::failure(message));
            }
            let Some(cursor) = page.get("nextCursor").filter(|json| *json != "null") else {
                return Ok((tools, None));
            };
            if !cursors.insert(cursor.to_owned()) {
                let odd = format!("the server's list of tools is cut: its cursor {cursor} repeats");
                return Ok((tools, Some(odd)));
            }
            params = vec![cursor.to_owned()];
        }
        Err(Error::failure(format!(
            "the server lists more than {MOST_PAGES} pages of tools"
        )))
    }

    /// Calls a tool with arguments that are JSON. A server that refuses the revision is asked which it speaks, and called
    /// once more, since a call that was refused had no effect.
    pub(crate) fn call_tool(
        &mut self,
        tool: &str,
        arguments: &str,
        headers: &[(String, String)],
        limit: Option<Duration>,
    ) -> Result<Members> {
        let name = json::text(tool);
        let params = [("name", &*name), ("arguments", arguments)];
        if let Transport::Http(server) = &mut self.transport {
            server.set_headers(headers);
        }
        let mut reply = self.exchange(CALL, &params, limit)?;
        let pinned = self.revision;
        if self.is_refusal(&reply) {
            self.probe()?;
        }
        if self.revision != pinned {
            reply = self.exchange(CALL, &params, limit)?;
        }
        self.expect_result(CALL, reply)
    }

    /// Asks for the state of a task.
    ///
    /// # Errors
    /// The server cannot be reached, or a signal came.
    pub(crate) fn task(&mut self, name: &str) -> Result<TaskAnswer> {
        let name = json::text(name);
        let reply = self.exchange("tasks/get", &[("taskId", &name)], Some(PATIENCE))?;
        Ok(match reply {
            RpcOutcome::Answer(RpcResponse::Result(task)) => TaskAnswer::Task(task),
            RpcOutcome::Answer(RpcResponse::Error(error)) => {
                let why = format!("tasks/get: {}", error.words());
                match (error.code, self.status()) {
                    (INVALID_PARAMS, _) => TaskAnswer::Unknown(why),
                    (_, Some(500..)) => TaskAnswer::Broken(why),
                    _ => TaskAnswer::Refused(why),
                }
            }
            RpcOutcome::Status(status @ 400..=499, text) => {
                TaskAnswer::Refused(refused(status, &text).message)
            }
            reply => match self.expect_result("tasks/get", reply) {
                Err(error) if self.launch.signals.stop().is_none() => {
                    TaskAnswer::Broken(error.message)
                }
                other => return Err(other.err().unwrap_or_else(|| Error::failure("tasks/get"))),
            },
        })
    }

    /// Asks the server to end a task.
    pub(crate) fn cancel_task(&mut self, name: &str) -> Result<()> {
        let params = [("taskId", &*json::text(name))];
        self.exchange("tasks/cancel", &params, Some(PROBE))
            .map(drop)
    }

    /// True if an answer to a call may come from a server that does not speak the revision. A modern one
    /// gives some of them, too, to a name or arguments that it does not know.
    fn is_refusal(&self, reply: &RpcOutcome) -> bool {
        let is_modern = self.revision == Revision::Modern;
        match (reply, self.status()) {
            (RpcOutcome::Answer(RpcResponse::Error(error)), _) if error.is_modern() => {
                error.code == UNSUPPORTED_VERSION
            }
            (RpcOutcome::Answer(RpcResponse::Error(error)), None) => {
                is_modern && [INVALID_REQUEST, INVALID_PARAMS].contains(&error.code)
            }
            (RpcOutcome::Status(..) | RpcOutcome::Answer(RpcResponse::Error(_)), status) => {
                is_modern && status == Some(400)
            }
            _ => false,
        }
    }

    /// The status of the last answer over HTTP.
    fn status(&self) -> Option<u16> {
        match &self.transport {
            Transport::Stdio(_) => None,
            Transport::Http(server) => Some(server.status),
        }
    }

    /// True for what only a modern server answers.
    fn is_modern(&self, error: &RpcError) -> bool {
        error.is_modern() || error.code == METHOD_NOT_FOUND && self.status() == Some(404)
    }

    /// Ends the connection. Of a program nothing is left.
    pub(crate) fn close(self) {
        self.transport.end();
    }

    /// Finds out which revision the server speaks.
    fn probe(&mut self) -> Result<()> {
        if self.discover()? {
            return Ok(());
        }
        self.begin_legacy(LEGACY[0])
    }

    /// True if the server speaks the revision without sessions. An older one may answer anything, or end.
    fn discover(&mut self) -> Result<bool> {
        let patience = match self.transport {
            Transport::Stdio(_) => PROBE,
            Transport::Http(_) => PATIENCE,
        };
        self.revision = Revision::Modern;
        self.was_probed = true;
        match self.exchange("server/discover", &[], Some(patience))? {
            RpcOutcome::Answer(RpcResponse::Result(result)) => {
                self.other_offers = other_offers(&result);
                self.offers_tasks = offers_tasks(&result);
                Ok(speaks_modern(&result))
            }
            RpcOutcome::Answer(RpcResponse::Error(error)) => {
                let is_other = error.code == UNSUPPORTED_VERSION && !error.offers_modern();
                Ok(self.is_modern(&error) && !is_other)
            }
            RpcOutcome::Status(status @ (300..=399 | 401 | 403), text) => {
                Err(refused(status, &text))
            }
            RpcOutcome::Lost(_) => self.restart().map(|()| false),
            _ => Ok(false),
        }
    }

    /// Starts the program anew.
    fn restart(&mut self) -> Result<()> {
        self.was_probed = false;
        if matches!(self.transport, Transport::Stdio(_)) {
            let started = self.launch.start()?;
            let ended = std::mem::replace(&mut self.transport, started);
            ended.end();
        }
        Ok(())
    }

    /// Begins a legacy connection. A server that does not know how is asked whether it is a modern one: it may have been
    /// too slow to answer at first.
    fn begin_legacy(&mut self, version: &'static str) -> Result<()> {
        self.revision = Revision::Legacy(version);
        let mut reply = self.initialize(version)?;
        let is_program = matches!(self.transport, Transport::Stdio(_));
        if matches!(reply, RpcOutcome::Lost(_)) && is_program && self.was_probed {
            self.restart()?;
            reply = self.initialize(version)?;
        }
        if let RpcOutcome::Answer(RpcResponse::Error(error)) = &reply
            && (error.code == METHOD_NOT_FOUND || error.is_modern())
            && self.discover()?
        {
            return Ok(());
        }
        let result = self.expect_result("initialize", reply)?;
        self.revision = chosen_revision(&result).map_err(Error::failure)?;
        self.other_offers = other_offers(&result);
        let until = Some(Instant::now() + PATIENCE);
        match &mut self.transport {
            Transport::Stdio(server) => server.send(&initialized().to_string(), until),
            Transport::Http(server) => server.notify(&initialized().into(), self.revision),
        }
    }

    fn initialize(&mut self, version: &str) -> Result<RpcOutcome> {
        let id = self.take_id();
        self.deliver(id, &initialize(id, version).into(), Some(PATIENCE))
    }

    fn ask(&mut self, method: &str, params: &[(&str, &str)]) -> Result<Members> {
        let reply = self.exchange(method, params, Some(PATIENCE))?;
        self.expect_result(method, reply)
    }

    fn exchange(
        &mut self,
        method: &str,
        params: &[(&str, &str)],
        patience: Option<Duration>,
    ) -> Result<RpcOutcome> {
        let id = self.take_id();
        let about = (self.revision == Revision::Modern).then(|| {
            let mut about = meta();
            put_trace(&mut about);
            if self.declares_tasks {
                let tasks = json!({"extensions": {TASKS: {}}});
                about["io.modelcontextprotocol/clientCapabilities"] = tasks;
            }
            about
        });
        let message = request(id, method, params, about.as_ref());
        self.deliver(id, &message, patience)
    }

    /// Sends a request and waits for what comes of it.
    ///
    /// # Errors
    /// A signal came, or a URL cannot be reached.
    fn deliver(
        &mut self,
        id: u64,
        message: &Outgoing,
        patience: Option<Duration>,
    ) -> Result<RpcOutcome> {
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        let reply = match &mut self.transport {
            Transport::Http(server) => server.exchange(id, message, self.revision, patience),
            Transport::Stdio(server) => server
                .exchange(id, message, until)
                .or_else(|error| Ok(RpcOutcome::Lost(error))),
        };
        match self.launch.signals.stop() {
            Some(stop) => Err(stop.into()),
            None => reply,
        }
    }

    fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn expect_result(&self, method: &str, reply: RpcOutcome) -> Result<Members> {
        let effect = effect_of(method);
        let why = match reply {
            RpcOutcome::Answer(RpcResponse::Result(result)) => return Ok(result),
            RpcOutcome::Answer(RpcResponse::Error(error)) => error.words(),
            RpcOutcome::Answer(RpcResponse::Unreadable(text)) => {
                format!("the answer cannot be read{effect}: {text}")
            }
            RpcOutcome::Silence => format!("the server does not answer{effect}"),
            RpcOutcome::Lost(error) => return Err(error),
            RpcOutcome::Status(status @ ..300, _) => {
                format!("the server answered with HTTP status {status} and no message{effect}")
            }
            RpcOutcome::Status(status, text) => return Err(refused(status, &text)),
        };
        Err(Error::failure(indented(&format!("{method}: {why}"))))
    }
}

/// Passes on the trace that this process is a part of.
fn put_trace(meta: &mut Value) {
    for (variable, key) in [("TRACEPARENT", "traceparent"), ("TRACESTATE", "tracestate")] {
        match std::env::var(variable) {
            Ok(value) if !value.is_empty() => meta[key] = value.into(),
            _ => return,
        }
    }
}

fn refused(status: u16, text: &str) -> Error {
    let said = if text.is_empty() {
        String::new()
    } else {
        format!(": {}", indented(text))
    };
    Error::failure(format!(
        "the server answered with HTTP status {status}{said}"
    ))
}
