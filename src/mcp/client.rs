//! A client of one server: how it is reached, which revision it speaks, and what is asked of it.

use super::http::HttpServer;
use super::protocol::TASKS;
use super::protocol::{
    INVALID_PARAMS, INVALID_REQUEST, Incoming, METHOD_NOT_FOUND, Revision, RpcError, RpcOutcome,
    RpcResponse, UNSUPPORTED_VERSION, cancelled, chosen_revision, initialize, initialized,
    other_offers, request, speaks_modern,
};
use super::servers::{Reach, Server};
use super::stdio::StdioServer;
use super::task::offers_tasks;
use crate::config::environment::Environment;
use crate::error::{Error, Result, may_fail};
use crate::unix::signals::Signals;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a program may be silent when it is asked for the revision without sessions, which an older
/// one may not answer at all.
const PROBE: Duration = Duration::from_secs(5);

/// The most pages of a list of tools.
const MOST_PAGES: usize = 100;

/// A connection to a server.
pub(crate) struct Client<'s> {
    transport: Transport<'s>,
    pub revision: Revision,
    /// Offers of the server beside tools.
    pub other_offers: Vec<String>,
    /// The server may answer calls with tasks, if that is declared.
    pub offers_tasks: bool,
    /// Every request says that a task will do.
    pub declares_tasks: bool,
    next_id: u64,
    patience: Option<Duration>,
    signals: &'s Signals,
}

/// What a server says of a task.
#[derive(Debug)]
pub(crate) enum TaskAnswer {
    Task(Map<String, Value>),
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

impl<'s> Client<'s> {
    /// Connects to a server, which works in `dir`; its program, if it is a path, is found from `home`. Without a pinned revision it is asked which it speaks.
    ///
    /// `patience` bounds each wait for an answer.
    pub(crate) fn connect(
        server: &Server,
        (home, dir): (&Path, &Path),
        signals: &'s Arc<Signals>,
        pinned: Option<Revision>,
        patience: Option<Duration>,
    ) -> Result<Self> {
        let transport = match &server.reach {
            Reach::Command(argv) => {
                let mut argv = argv.clone();
                if argv[0].contains('/') {
                    argv[0] = home.join(&argv[0]).display().to_string();
                }
                let mut env = Environment::default().for_child(false);
                env.retain(|(name, _)| !server.env.contains(name));
                Transport::Stdio(Box::new(StdioServer::start(
                    signals,
                    &argv,
                    (dir, &env),
                    server.secrets(),
                )?))
            }
            Reach::Url(url) => Transport::Http(Box::new(HttpServer::new(
                url,
                (server.bearer_env.as_deref(), server.secrets()),
                signals,
            )?)),
        };
        let mut client = Self {
            transport,
            revision: Revision::Modern,
            other_offers: Vec::new(),
            offers_tasks: false,
            declares_tasks: false,
            next_id: 1,
            patience,
            signals,
        };
        let begun = match pinned {
            Some(Revision::Modern) => Ok(()),
            Some(Revision::Legacy(_)) => {
                let begun = client.begin_legacy();
                begun.and_then(|error| error.map_or(Ok(()), |_| client.probe()))
            }
            None => client.probe(),
        };
        match begun {
            Ok(()) => Ok(client),
            Err(error) => {
                client.close();
                Err(error)
            }
        }
    }

    /// All tools of the server, as it describes them.
    pub(crate) fn list_tools(&mut self) -> Result<Vec<Map<String, Value>>> {
        let mut tools = Vec::new();
        let mut params = Map::new();
        for _ in 0..MOST_PAGES {
            let mut page = self.ask("tools/list", params)?;
            if let Some(Value::Array(items)) = page.shift_remove("tools") {
                tools.extend(items.into_iter().filter_map(|item| match item {
                    Value::Object(tool) => Some(tool),
                    _ => None,
                }));
            }
            match page.shift_remove("nextCursor") {
                Some(cursor @ Value::String(_)) => {
                    params = Map::from_iter([("cursor".to_owned(), cursor)]);
                }
                _ => return Ok(tools),
            }
        }
        Err(Error::failure(format!(
            "the server lists more than {MOST_PAGES} pages of tools"
        )))
    }

    /// Calls a tool. A server that refuses the revision is asked which it speaks, and called once more,
    /// since a call that was refused had no effect.
    pub(crate) fn call_tool(
        &mut self,
        tool: &str,
        arguments: Value,
        headers: &[(String, String)],
    ) -> Result<Map<String, Value>> {
        let params = Map::from_iter([
            ("name".to_owned(), Value::from(tool)),
            ("arguments".to_owned(), arguments),
        ]);
        if let Transport::Http(server) = &mut self.transport {
            server.set_headers(headers);
        }
        let reply = self.exchange("tools/call", params.clone(), self.patience)?;
        let pinned = self.revision;
        if self.is_refusal(&reply) {
            self.probe()?;
        }
        if self.revision == pinned {
            return self.expect_result("tools/call", reply);
        }
        self.ask("tools/call", params)
    }

    /// Asks for the state of a task.
    ///
    /// # Errors
    /// The server cannot be reached, or a signal came.
    pub(crate) fn task(&mut self, name: &str) -> Result<TaskAnswer> {
        let params = Map::from_iter([("taskId".to_owned(), Value::from(name))]);
        Ok(match self.exchange("tasks/get", params, self.patience)? {
            RpcOutcome::Answer(RpcResponse::Result(task)) => TaskAnswer::Task(task),
            RpcOutcome::Answer(RpcResponse::Error(error)) => {
                let why = format!("tasks/get: {}", error.words());
                match (error.code, self.status()) {
                    (INVALID_PARAMS, _) => TaskAnswer::Unknown(why),
                    (_, Some(500..)) => TaskAnswer::Broken(why),
                    _ => TaskAnswer::Refused(why),
                }
            }
            RpcOutcome::Silence => {
                let stop = self.signals.stop();
                let why = || "tasks/get: the server does not answer".to_owned();
                return stop.map_or_else(|| Ok(TaskAnswer::Broken(why())), |stop| Err(stop.into()));
            }
            RpcOutcome::Status(status @ 500.., text) => {
                TaskAnswer::Broken(refused(status, &text).message)
            }
            RpcOutcome::Status(status, text) => TaskAnswer::Refused(refused(status, &text).message),
        })
    }

    /// Asks the server to end a task.
    pub(crate) fn cancel_task(&mut self, name: &str) -> Result<()> {
        let params = Map::from_iter([("taskId".to_owned(), Value::from(name))]);
        self.exchange("tasks/cancel", params, Some(PROBE)).map(drop)
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
            (RpcOutcome::Answer(RpcResponse::Result(_)) | RpcOutcome::Silence, _) => false,
            (_, status) => is_modern && status == Some(400),
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
        match self.transport {
            Transport::Stdio(server) => server.end(),
            Transport::Http(server) => server.end(),
        }
    }

    /// Finds out which revision the server speaks.
    fn probe(&mut self) -> Result<()> {
        self.revision = Revision::Modern;
        if self.discover()? {
            return Ok(());
        }
        match self.begin_legacy()? {
            // One that had been too slow to answer at first.
            Some(_) if self.discover()? => Ok(()),
            Some(error) => Err(Error::failure(format!("initialize: {}", error.words()))),
            None => Ok(()),
        }
    }

    /// True if the server speaks the revision without sessions.
    fn discover(&mut self) -> Result<bool> {
        let patience = match self.transport {
            Transport::Stdio(_) => Some(PROBE),
            Transport::Http(_) => self.patience,
        };
        self.revision = Revision::Modern;
        match self.exchange("server/discover", Map::new(), patience)? {
            RpcOutcome::Answer(RpcResponse::Result(result)) => {
                self.other_offers = other_offers(&result);
                self.offers_tasks = offers_tasks(&result);
                Ok(speaks_modern(&result))
            }
            RpcOutcome::Answer(RpcResponse::Error(error)) => {
                let supported = error.data.get("supported").and_then(Value::as_array);
                let has_modern = supported
                    .is_some_and(|list| list.iter().any(|one| one == super::protocol::MODERN));
                Ok(self.is_modern(&error) && (error.code != UNSUPPORTED_VERSION || has_modern))
            }
            RpcOutcome::Status(status @ (401 | 403 | 407), text) => Err(refused(status, &text)),
            RpcOutcome::Silence | RpcOutcome::Status(400..=499, _) => Ok(false),
            RpcOutcome::Status(status, text) => Err(refused(status, &text)),
        }
    }

    /// Begins a legacy connection. An error that only a modern server answers is returned.
    fn begin_legacy(&mut self) -> Result<Option<RpcError>> {
        let id = self.take_id();
        let message = initialize(id);
        self.revision = Revision::Legacy(super::protocol::LEGACY[0]);
        match self.deliver(id, &message, self.patience)? {
            RpcOutcome::Answer(RpcResponse::Error(error)) if self.is_modern(&error) => {
                Ok(Some(error))
            }
            reply => {
                let result = self.expect_result("initialize", reply)?;
                self.revision = chosen_revision(&result).map_err(Error::failure)?;
                self.other_offers = other_offers(&result);
                self.notify(&initialized())?;
                Ok(None)
            }
        }
    }

    fn notify(&mut self, message: &Value) -> Result<()> {
        match &mut self.transport {
            Transport::Stdio(server) => server.send(message),
            Transport::Http(server) => server.notify(message, self.revision),
        }
    }

    fn ask(&mut self, method: &str, params: Map<String, Value>) -> Result<Map<String, Value>> {
        let reply = self.exchange(method, params, self.patience)?;
        self.expect_result(method, reply)
    }

    fn exchange(
        &mut self,
        method: &str,
        params: Map<String, Value>,
        patience: Option<Duration>,
    ) -> Result<RpcOutcome> {
        let id = self.take_id();
        let mut message = request(id, method, params, self.revision);
        if let Some(meta) = message.pointer_mut("/params/_meta") {
            put_trace(meta);
            if self.declares_tasks {
                let tasks = json!({"extensions": {TASKS: {}}});
                meta["io.modelcontextprotocol/clientCapabilities"] = tasks;
            }
        }
        self.deliver(id, &message, patience)
    }

    fn deliver(
        &mut self,
        id: u64,
        message: &Value,
        patience: Option<Duration>,
    ) -> Result<RpcOutcome> {
        let until = patience.map(|patience| Instant::now() + patience);
        match &mut self.transport {
            Transport::Http(server) => server.exchange(id, message, self.revision, patience),
            Transport::Stdio(server) => {
                server.send(message)?;
                loop {
                    match server.receive(until) {
                        Ok(Some(Incoming::Answer(answered, answer)))
                            if answered == id || answered == 0 =>
                        {
                            return Ok(RpcOutcome::Answer(answer));
                        }
                        // An answer that came too late.
                        Ok(Some(_)) => {}
                        Ok(None) => {
                            may_fail(server.send(&cancelled(id)));
                            return Ok(RpcOutcome::Silence);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn expect_result(&self, method: &str, reply: RpcOutcome) -> Result<Map<String, Value>> {
        match reply {
            RpcOutcome::Answer(RpcResponse::Result(result)) => Ok(result),
            RpcOutcome::Answer(RpcResponse::Error(error)) => {
                Err(Error::failure(format!("{method}: {}", error.words())))
            }
            RpcOutcome::Silence => match self.signals.stop() {
                Some(stop) => Err(stop.into()),
                None => Err(Error::failure(format!(
                    "{method}: the server does not answer"
                ))),
            },
            RpcOutcome::Status(status, text) => Err(refused(status, &text)),
        }
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
        format!(": {text}")
    };
    Error::failure(format!(
        "the server answered with HTTP status {status}{said}"
    ))
}
