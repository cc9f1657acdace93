//! A model server on loopback that answers from a script and remembers what it was sent.

use super::services::{api_of, objections};
use super::system::{PATIENCE, eventually};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// A request as it arrived.
#[derive(Debug)]
pub struct Received {
    /// From 1.
    pub number: usize,
    /// From 1: which connection it came over.
    pub connection: usize,
    pub at: Instant,
    /// `POST /v1/chat/completions HTTP/1.1`.
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name)?;
        Some(&found.1)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a request in JSON")
    }

    pub fn messages(&self) -> Vec<Value> {
        let mut request = self.json();
        let messages = request["messages"].take();
        messages.as_array().expect("messages").clone()
    }

    /// What the model was told about the call with this id.
    #[track_caller]
    pub fn observation(&self, id: &str) -> String {
        let messages = self.messages();
        let told: Vec<&Value> = messages
            .iter()
            .filter(|m| m["tool_call_id"] == id)
            .collect();
        assert_eq!(told.len(), 1, "results for {id}: {told:?}");
        told[0]["content"].as_str().expect("text").to_owned()
    }

    /// The observation of the last message.
    #[track_caller]
    pub fn last_observation(&self) -> String {
        let messages = self.messages();
        let last = messages.last().expect("a message");
        assert_eq!(last["role"], "tool", "{last}");
        last["content"].as_str().expect("text").to_owned()
    }
}

/// When a connection is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Unread: the client gets a reset.
    BeforeReading,
    /// The request was read, no byte of an answer comes.
    AfterReading,
    /// The head of the answer and half of its body come.
    MidBody,
}

/// The time between two signs of life of a server that has nothing to say.
pub const PING: Duration = Duration::from_millis(40);

/// What the server does with one request.
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    length: Option<usize>,
    chunked: bool,
    closes: bool,
    held: bool,
    /// Words behind which it waits.
    pause: Option<String>,
    drops: Option<Moment>,
    closure: Option<Closure>,
    pings: usize,
    single: Option<(usize, Duration)>,
}

type Closure = Box<dyn FnOnce(&Received) -> Reply + Send>;
type Model = Box<dyn FnMut(&Received) -> Reply + Send>;

/// An answer in words: a run's end.
pub fn text(content: &str) -> Reply {
    message(&json!({"role": "assistant", "content": content}))
}

/// One tool call.
pub fn call(id: &str, tool: &str, arguments: &Value) -> Reply {
    calls(&[(id, tool, arguments.clone())])
}

/// A message with these tool calls: id, tool, arguments.
pub fn calls(wanted: &[(&str, &str, Value)]) -> Reply {
    let calls: Vec<Value> = wanted
        .iter()
        .map(|(id, tool, arguments)| {
            let function = json!({"name": tool, "arguments": arguments.to_string()});
            json!({"id": id, "type": "function", "function": function})
        })
        .collect();
    message(&json!({"role": "assistant", "content": null, "tool_calls": calls}))
}

/// A completion with this message.
pub fn message(message: &Value) -> Reply {
    let called = message["tool_calls"]
        .as_array()
        .is_some_and(|c| !c.is_empty());
    answer(message, if called { "tool_calls" } else { "stop" })
}

/// A completion with this message and `finish_reason`.
pub fn answer(message: &Value, finish_reason: &str) -> Reply {
    completion(&json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted-1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }))
}

/// Any JSON, with status 200.
pub fn completion(body: &Value) -> Reply {
    raw(body.to_string())
}

/// Any body, with status 200.
pub fn raw(body: impl Into<Vec<u8>>) -> Reply {
    Reply {
        status: 200,
        headers: vec![("Content-Type".into(), "application/json".into())],
        body: body.into(),
        length: None,
        chunked: false,
        closes: false,
        held: false,
        pause: None,
        drops: None,
        closure: None,
        pings: 0,
        single: None,
    }
}

impl Reply {
    /// An error as `OpenAI` words it.
    pub fn error(status: u16, message: &str) -> Self {
        let body = json!({"error": {"message": message, "type": "scripted", "code": null}});
        completion(&body).status(status)
    }

    /// A connection that breaks.
    pub fn drops(moment: Moment) -> Self {
        Self {
            drops: Some(moment),
            ..text("never heard")
        }
    }

    /// An answer that depends on the request.
    pub fn of(closure: impl FnOnce(&Received) -> Self + Send + 'static) -> Self {
        Self {
            closure: Some(Box::new(closure)),
            ..text("")
        }
    }

    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// A header in place of one that replies have anyway.
    pub fn header_instead(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.header(name, value)
    }

    /// In pieces, without a length.
    pub fn chunked(mut self) -> Self {
        self.chunked = true;
        self
    }

    /// With a length that is not the body's.
    pub fn claims_length(mut self, length: usize) -> Self {
        self.length = Some(length);
        self
    }

    /// The connection is closed after the answer, without a word about it.
    pub fn then_closes(mut self) -> Self {
        self.closes = true;
        self
    }

    /// Not before [`Server::release`]; never, if that does not come.
    pub fn held(mut self) -> Self {
        self.held = true;
        self
    }

    /// In pieces, behind so many comments of a stream, one each [`PING`].
    pub fn pings_before(mut self, pings: usize) -> Self {
        self.pings = pings;
        self.chunked()
    }

    /// The first half up to the end of these words, which stand in the body once; the rest not before
    /// [`Server::release`].
    pub fn pauses_behind(mut self, words: &str) -> Self {
        self.pause = Some(words.to_owned());
        self
    }

    /// The first so many bytes one by one, with a pause before each.
    pub fn in_single_bytes(mut self, bytes: usize, pause: Duration) -> Self {
        self.single = Some((bytes, pause));
        self.chunked()
    }

    pub fn body(&self) -> &[u8] {
        &self.body
    }

    fn bytes(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", self.status);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        let mut bytes = Vec::new();
        if self.chunked {
            head += "Transfer-Encoding: chunked\r\n\r\n";
            let single = self.single.map_or(0, |(single, _)| single);
            let (single, rest) = self.body.split_at(single.min(self.body.len()));
            for chunk in single.chunks(1).chain(rest.chunks(97)) {
                bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
                bytes.extend(chunk);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
        } else {
            let length = self.length.unwrap_or(self.body.len());
            head += &format!("Content-Length: {length}\r\n\r\n");
            bytes.extend(&self.body);
        }
        if self.drops == Some(Moment::MidBody) {
            bytes.truncate(bytes.len() / 2);
        }
        [head.into_bytes(), bytes].concat()
    }
}

#[derive(Default)]
struct State {
    script: VecDeque<Reply>,
    model: Option<Model>,
    received: Vec<Arc<Received>>,
    connections: usize,
    streams: Vec<TcpStream>,
    complaints: Vec<String>,
    /// Counts the releases.
    released: usize,
    stopped: bool,
    unchecked: bool,
    rest_allowed: bool,
    /// What it answers where it is asked for its models; none: it knows no such path.
    models: Option<Value>,
    /// Questions for its models are requests like others.
    lists_are_scripted: bool,
    /// Such questions: the line, and how many requests had come before.
    looks: Vec<(String, usize)>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The server. When it goes out of scope, a test fails whose script was too short or too long, or
/// that sent what a strict server would refuse.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Server {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared::default());
        let server = Self {
            address,
            shared: Arc::clone(&shared),
        };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let mut state = shared.lock();
                if state.stopped {
                    return;
                }
                state.connections += 1;
                let connection = state.connections;
                state
                    .streams
                    .push(stream.try_clone().expect("a second handle"));
                drop(state);
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(&stream, connection));
            }
        });
        server
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For `base_url`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Adds to the script.
    pub fn says(&self, replies: impl IntoIterator<Item = Reply>) -> &Self {
        self.shared.lock().script.extend(replies);
        self
    }

    /// What answers when the script is empty.
    pub fn answers(&self, model: impl FnMut(&Received) -> Reply + Send + 'static) -> &Self {
        self.shared.lock().model = Some(Box::new(model));
        self
    }

    /// Gives this where it is asked for its models.
    pub fn lists(&self, models: Value) -> &Self {
        self.shared.lock().models = Some(models);
        self
    }

    /// Answers questions for its models with the scripted answers.
    pub fn scripts_lists(&self) -> &Self {
        self.shared.lock().lists_are_scripted = true;
        self
    }

    /// The questions for its models: the line, and how many requests had come before.
    pub fn looks(&self) -> Vec<(String, usize)> {
        self.shared.lock().looks.clone()
    }

    /// Requests need not be valid for a strict server.
    pub fn accepts_anything(&self) -> &Self {
        self.shared.lock().unchecked = true;
        self
    }

    /// Replies that nobody asked for are no failure.
    pub fn may_stay_unasked(&self) -> &Self {
        self.shared.lock().rest_allowed = true;
        self
    }

    /// Lets all held replies go.
    pub fn release(&self) {
        self.shared.lock().released += 1;
        self.shared.changed.notify_all();
    }

    /// Closes all connections, and refuses new ones from now on.
    pub fn goes_away(&self) {
        let mut state = self.shared.lock();
        state.stopped = true;
        for stream in state.streams.drain(..) {
            // It may be closed already.
            stream.shutdown(Shutdown::Both).ok();
        }
        drop(state);
        eventually("connections are refused", || {
            TcpStream::connect(self.address).is_err()
        });
    }

    pub fn requests(&self) -> Vec<Arc<Received>> {
        self.shared.lock().received.clone()
    }

    /// The newest request.
    #[track_caller]
    pub fn last(&self) -> Arc<Received> {
        let received = self.requests();
        Arc::clone(received.last().expect("the server received a request"))
    }

    /// Waits until this many requests have come.
    #[track_caller]
    pub fn wait_for(&self, requests: usize) {
        let state = self.shared.lock();
        let (state, timeout) = self
            .shared
            .changed
            .wait_timeout_while(state, PATIENCE / 2, |s| s.received.len() < requests)
            .expect("the server lives");
        let came = state.received.len();
        // A panic with the lock held would be followed by another one in `drop`.
        drop(state);
        assert!(
            !timeout.timed_out(),
            "waited for {requests} requests, {came} came"
        );
    }

    /// How many connections were opened.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopped = true;
        for stream in state.streams.drain(..) {
            // It may be closed already.
            stream.shutdown(Shutdown::Both).ok();
        }
        let unasked = if state.rest_allowed {
            0
        } else {
            state.script.len()
        };
        let complaints = std::mem::take(&mut state.complaints);
        drop(state);
        self.shared.changed.notify_all();
        drop(TcpStream::connect(self.address));
        if !thread::panicking() {
            assert!(
                complaints.is_empty(),
                "the server: {}",
                complaints.join("\n")
            );
            assert_eq!(unasked, 0, "replies that nobody asked for");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread of the server panicked")
    }

    fn serve(&self, stream: &TcpStream, connection: usize) {
        stream.set_nodelay(true).expect("nodelay");
        let mut reader = BufReader::new(stream);
        while stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0) {
            if self.drops_unread() {
                break;
            }
            let Some(reply) = self.receive(&mut reader, connection) else {
                break;
            };
            let broken =
                reply.drops == Some(Moment::AfterReading) || self.send(stream, &reply).is_err();
            if broken || reply.closes || reply.drops.is_some() {
                break;
            }
        }
        // With bytes unread, this is a reset. The handle in the list must not keep it open.
        let mut state = self.lock();
        let here = stream.peer_addr().ok();
        state.streams.retain(|other| other.peer_addr().ok() != here);
    }

    fn send(&self, mut stream: &TcpStream, reply: &Reply) -> std::io::Result<()> {
        let bytes = reply.bytes();
        let mut from = 0;
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some((single, pause)) = reply.single {
            // A chunk of one byte takes six.
            from = head.expect("a head") + 4;
            stream.write_all(&bytes[..from])?;
            for _ in 0..single {
                thread::sleep(pause);
                stream.write_all(&bytes[from..from + 6])?;
                from += 6;
            }
        }
        if reply.pings > 0 {
            from = head.expect("a head") + 4;
            stream.write_all(&bytes[..from])?;
            for _ in 0..reply.pings {
                if self.lock().stopped {
                    break;
                }
                stream.write_all(b"8\r\n: ping\n\n\r\n")?;
                thread::sleep(PING);
            }
        }
        if let Some(words) = &reply.pause {
            let mut windows = bytes.windows(words.len());
            let at = windows.position(|it| it == words.as_bytes());
            let to = at.expect("the words are in the body") + words.len();
            let before = self.lock().released;
            stream.write_all(&bytes[from..to])?;
            from = to;
            let mut state = self.lock();
            while state.released == before && !state.stopped {
                state = self.changed.wait(state).expect("the server lives");
            }
        }
        stream.write_all(&bytes[from..])
    }

    fn drops_unread(&self) -> bool {
        let mut state = self.lock();
        let drops = |reply: &Reply| reply.drops == Some(Moment::BeforeReading);
        let first = state.script.front().is_some_and(drops);
        if first {
            state.script.pop_front();
        }
        first
    }

    /// Reads a request and finds its reply.
    fn receive(&self, reader: &mut BufReader<&TcpStream>, connection: usize) -> Option<Reply> {
        let (line, headers, body) = read_request(reader)?;
        let mut state = self.lock();
        let asks_for_models = ["/models", "/models/scripted", "/api/ps"];
        let path = line.split([' ', '?']).nth(1).unwrap_or_default();
        let is_apart = line.starts_with("GET ") && !state.lists_are_scripted;
        if is_apart && asks_for_models.iter().any(|end| path.ends_with(end)) {
            let before = state.received.len();
            state.looks.push((line, before));
            return Some(match &state.models {
                Some(models) => completion(models),
                None => Reply::error(404, "no such path"),
            });
        }
        let received = Arc::new(Received {
            number: state.received.len() + 1,
            connection,
            at: Instant::now(),
            line,
            headers,
            body,
        });
        // A look at an answer has no body.
        if !state.unchecked && !received.line.starts_with("GET ") {
            let number = received.number;
            let found = objections(api_of(&received.line), &received.body);
            let found = found.iter().map(|why| format!("request {number}: {why}"));
            state.complaints.extend(found);
        }
        state.received.push(Arc::clone(&received));
        let mut reply = if let Some(reply) = state.script.pop_front() {
            reply
        } else if let Some(mut model) = state.model.take() {
            let reply = model(&received);
            state.model = Some(model);
            reply
        } else {
            let number = received.number;
            state
                .complaints
                .push(format!("request {number} was not in the script"));
            // Not a 5xx: that would be asked again for minutes.
            Reply::error(400, "the script is at its end")
        };
        self.changed.notify_all();
        let before = state.released;
        while reply.held && state.released == before && !state.stopped {
            state = self.changed.wait(state).expect("the server lives");
        }
        drop(state);
        if let Some(closure) = reply.closure.take() {
            reply = closure(&received);
        }
        Some(reply)
    }
}

type Parts = (String, Vec<(String, String)>, Vec<u8>);

fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<Parts> {
    let mut next_line = || {
        let mut line = String::new();
        let read = reader.read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    };
    let first = next_line()?;
    let mut headers = Vec::new();
    loop {
        let line = next_line()?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let header = |name| {
        headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    };
    let mut body = Vec::new();
    if let Some(length) = header("content-length") {
        body.resize(length.parse().ok()?, 0);
        reader.read_exact(&mut body).ok()?;
    } else if header("transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            body.extend(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
    }
    Some((first, headers, body))
}

/// The roles of messages, in their order.
pub fn roles(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| message["role"].as_str().expect("a role"))
        .collect()
}
