//! A client of one server: how it is reached, which revision it speaks, and what is asked of it.

use super::http::HttpServer;
use super::protocol::{
    CALL, INVALID_PARAMS, INVALID_REQUEST, LEGACY, METHOD_NOT_FOUND, Outgoing, Reply, Revision,
    RpcError, TASKS, UNSUPPORTED_VERSION, chosen_revision, effect_of, initialize, initialized,
    meta, other_offers, request, speaks_modern,
};
use super::servers::{Launch, Reach, Secrets, Transport};
use super::stdio::StdioServer;
use super::task::offers_tasks;
use crate::error::{Error, Result};
use crate::text::disguise::indented;
use crate::text::json::{self, Members};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest silence of a program that is asked for the revision without sessions, which an older
/// one may not answer at all.
const PROBE: Duration = Duration::from_secs(5);

/// The longest silence of a server that is asked for anything but a call.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most pages of a list of tools.
const MOST_PAGES: usize = 100;

/// The most tools of a server.
const MOST_TOOLS: usize = 10_000;

/// A connection to a server.
pub(crate) struct Client<'s> {
    transport: Box<dyn Transport + 's>,
    launch: Launch<'s>,
    pub revision: Revision,
    /// Offers of the server beside tools.
    pub other_offers: Vec<String>,
    /// The server may answer calls with tasks, if that is declared.
    pub offers_tasks: bool,
    /// Every request says that a task will do.
    pub declares_tasks: bool,
    /// Headers of calls beside those of every request.
    pub call_headers: Vec<(String, String)>,
    next_id: u64,
    /// The server has been asked for the revision without sessions, which may have ended it.
    was_probed: bool,
}

/// A server's answer about a task.
#[derive(Debug)]
pub(crate) enum TaskAnswer {
    Task(Members),
    /// No task has this name any more.
    Unknown(String),
    /// Such requests are not answered.
    Refused(String),
}

fn start<'s>(launch: &Launch<'s>) -> Result<Box<dyn Transport + 's>> {
    Ok(match &launch.server.reach {
        Reach::Command(argv) => Box::new(StdioServer::start(argv, launch)?),
        Reach::Url(url) => Box::new(HttpServer::new(url, launch)?),
    })
}

impl<'s> Client<'s> {
    /// Connects to a server. Without a pinned revision it is asked which it speaks.
    pub(crate) fn connect(launch: Launch<'s>, pinned: Option<Revision>) -> Result<Self> {
        let mut client = Self {
            transport: start(&launch)?,
            launch,
            revision: Revision::Modern,
            other_offers: Vec::new(),
            offers_tasks: false,
            declares_tasks: false,
            call_headers: Vec::new(),
            next_id: 1,
            was_probed: false,
        };
        let begun = match client.launch.server.revision.or(pinned) {
            Some(Revision::Modern) => Ok(()),
            Some(Revision::Legacy(version)) => client.begin_legacy(version),
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

    /// Secrets of the server, those that its header commands have printed included.
    pub(crate) fn secrets(&self) -> Secrets {
        self.transport.secrets().clone()
    }

    /// All tools of the server, as it describes them, each as JSON; and what is odd about the list.
    pub(crate) fn list_tools(&mut self) -> Result<(Vec<Box<RawValue>>, Option<String>)> {
        const LIST: &str = "tools/list";
        let (mut tools, mut cursors) = (Vec::new(), BTreeSet::new());
        let mut cursor: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let params = cursor.as_deref().map(|cursor| ("cursor", cursor));
            let reply = self.exchange(LIST, params.as_slice(), Some(PATIENCE))?;
            let page = expect_result(LIST, reply)?;
            let items: Option<Vec<Box<RawValue>>> =
                serde_json::from_str(page.get("tools").unwrap_or("null"))
                    .map_err(|_| Error::failure("tools/list: the server's tools are not a list"))?;
            tools.extend(items.into_iter().flatten());
            if tools.len() > MOST_TOOLS {
                return Err(Error::failure(format!(
                    "the server lists more than {MOST_TOOLS} tools"
                )));
            }
            cursor = page
                .get("nextCursor")
                .filter(|json| *json != "null")
                .map(str::to_owned);
            let Some(next) = &cursor else {
                return Ok((tools, None));
            };
            if !cursors.insert(next.clone()) {
                return Ok((
                    tools,
                    Some(format!(
                        "the server's list of tools is cut: its cursor {next} repeats"
                    )),
                ));
            }
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
        limit: Option<Duration>,
    ) -> Result<Members> {
        let params = [("name", &*json::text(tool)), ("arguments", arguments)];
        let mut reply = self.exchange(CALL, &params, limit)?;
        let pinned = self.revision;
        if self.is_refusal(&reply) {
            self.probe()?;
        }
        if self.revision != pinned {
            reply = self.exchange(CALL, &params, limit)?;
        }
        expect_result(CALL, reply)
    }

    /// Asks for the state of a task.
    ///
    /// # Errors
    /// The server cannot say for now.
    pub(crate) fn task(&mut self, name: &str) -> Result<TaskAnswer> {
        const GET: &str = "tasks/get";
        let reply = self.exchange(GET, &[("taskId", &json::text(name))], Some(PATIENCE))?;
        match reply {
            Reply::Error(error) => {
                let why = format!("{GET}: {}", error.words());
                match (error.code, self.transport.status()) {
                    (INVALID_PARAMS, _) => Ok(TaskAnswer::Unknown(why)),
                    (_, Some(500..)) => Err(Error::failure(why)),
                    _ => Ok(TaskAnswer::Refused(why)),
                }
            }
            Reply::Status(status @ 400..=499, text) => {
                Ok(TaskAnswer::Refused(refused(status, &text).message))
            }
            reply => expect_result(GET, reply).map(TaskAnswer::Task),
        }
    }

    /// Asks the server to end a task.
    pub(crate) fn cancel_task(&mut self, name: &str) -> Result<()> {
        let params = [("taskId", &*json::text(name))];
        self.exchange("tasks/cancel", &params, Some(PROBE))
            .map(drop)
    }

    /// True if an answer to a call may come from a server that does not speak the revision. A modern one
    /// gives some of them, too, to a name or arguments that it does not know.
    fn is_refusal(&self, reply: &Reply) -> bool {
        let is_modern = self.revision == Revision::Modern;
        match (reply, self.transport.status()) {
            (Reply::Error(error), _) if error.is_modern() => error.code == UNSUPPORTED_VERSION,
            (Reply::Error(error), None) => {
                is_modern && [INVALID_REQUEST, INVALID_PARAMS].contains(&error.code)
            }
            (Reply::Status(..) | Reply::Error(_), status) => is_modern && status == Some(400),
            _ => false,
        }
    }

    /// True for what only a modern server answers.
    fn is_modern(&self, error: &RpcError) -> bool {
        let is_not_found = self.transport.status() == Some(404);
        error.is_modern() || error.code == METHOD_NOT_FOUND && is_not_found
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

    fn is_program(&self) -> bool {
        matches!(self.launch.server.reach, Reach::Command(_))
    }

    /// True if the server speaks the revision without sessions. An older one may answer anything, or end.
    fn discover(&mut self) -> Result<bool> {
        let patience = if self.is_program() { PROBE } else { PATIENCE };
        self.revision = Revision::Modern;
        self.was_probed = true;
        match self.exchange("server/discover", &[], Some(patience))? {
            Reply::Result(result) => {
                self.other_offers = other_offers(&result);
                self.offers_tasks = offers_tasks(&result);
                Ok(speaks_modern(&result))
            }
            Reply::Error(error) => {
                let is_other = error.code == UNSUPPORTED_VERSION && !error.offers_modern();
                Ok(self.is_modern(&error) && !is_other)
            }
            Reply::Status(status @ (300..=399 | 401 | 403), text) => Err(refused(status, &text)),
            Reply::Lost(_) => self.restart().map(|()| false),
            _ => Ok(false),
        }
    }

    /// Starts the program anew.
    fn restart(&mut self) -> Result<()> {
        self.was_probed = false;
        if self.is_program() {
            let started = start(&self.launch)?;
            std::mem::replace(&mut self.transport, started).end();
        }
        Ok(())
    }

    /// Begins a legacy connection. A server that does not know how is asked whether it is a modern one: it may have been
    /// too slow to answer at first.
    fn begin_legacy(&mut self, version: &'static str) -> Result<()> {
        self.revision = Revision::Legacy(version);
        let mut reply = self.initialize(version)?;
        if matches!(reply, Reply::Lost(_)) && self.is_program() && self.was_probed {
            self.restart()?;
            reply = self.initialize(version)?;
        }
        if let Reply::Error(error) = &reply
            && (error.code == METHOD_NOT_FOUND || error.is_modern())
            && self.discover()?
        {
            return Ok(());
        }
        let result = expect_result("initialize", reply)?;
        self.revision = chosen_revision(&result)?;
        self.other_offers = other_offers(&result);
        self.transport.notify(&initialized().into(), self.revision)
    }

    fn initialize(&mut self, version: &str) -> Result<Reply> {
        let id = self.take_id();
        self.deliver(id, &initialize(id, version).into(), Some(PATIENCE))
    }

    fn exchange(
        &mut self,
        method: &str,
        params: &[(&str, &str)],
        patience: Option<Duration>,
    ) -> Result<Reply> {
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
        let mut message = request(id, method, params, about.as_ref());
        if method == CALL {
            message.headers.clone_from(&self.call_headers);
        }
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
    ) -> Result<Reply> {
        let reply = self
            .transport
            .exchange(id, message, self.revision, patience);
        match self.launch.signals.stop() {
            Some(stop) => Err(stop.into()),
            None => reply,
        }
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }
}

fn expect_result(method: &str, reply: Reply) -> Result<Members> {
    let effect = effect_of(method);
    let why = match reply {
        Reply::Result(result) => return Ok(result),
        Reply::Error(error) => error.words(),
        Reply::Unreadable(text) => format!("the answer cannot be read{effect}: {text}"),
        Reply::Silence => format!("the server does not answer{effect}"),
        Reply::Lost(error) => return Err(error),
        Reply::Status(status @ ..300, _) => {
            format!("the server answered with HTTP status {status} and no message{effect}")
        }
        Reply::Status(status, text) => return Err(refused(status, &text)),
    };
    Err(Error::failure(indented(&format!("{method}: {why}"))))
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
    let colon = if text.is_empty() { "" } else { ": " };
    let said = indented(text);
    Error::failure(format!(
        "the server answered with HTTP status {status}{colon}{said}"
    ))
}
