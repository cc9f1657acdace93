//! A scripted model on loopback: it thinks no time, and notes when each request has arrived whole.

use crate::answers::{self, Api};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// When a request had been read whole, and what delta had used by then.
pub struct Arrival {
    /// The moment.
    pub at: Instant,
    /// The length of the request's body.
    pub bytes: usize,
    /// The peak of its resident memory.
    pub peak_kib: u64,
    /// Its processor time, children not counted.
    pub cpu: Duration,
}

/// What is said to each connection.
#[derive(Default)]
struct Script {
    /// So many calls of the tool before the answer.
    calls: AtomicUsize,
    /// The arguments of each call: a JSON object, as a JSON string.
    arguments: Mutex<String>,
    /// Answers are streams.
    streams: AtomicBool,
    /// The process that is measured.
    pid: AtomicU32,
}

/// The server.
pub struct Server {
    /// Where it listens.
    pub url: String,
    /// Requests as they arrive.
    pub arrivals: Receiver<Arrival>,
    script: Arc<Script>,
}

impl Server {
    /// Starts one, with a thread for each connection.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let (send, arrivals) = channel();
        let script = Arc::new(Script::default());
        let shared = Arc::clone(&script);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (send, script) = (send.clone(), Arc::clone(&shared));
                std::thread::spawn(move || serve(stream, &send, &script));
            }
        });
        Self {
            url,
            arrivals,
            script,
        }
    }

    /// From now on each run gets so many calls with these arguments.
    pub fn says(&self, calls: usize, arguments: &str) {
        self.script.calls.store(calls, Ordering::SeqCst);
        let json = serde_json::to_string(arguments).expect("JSON");
        *self.script.arguments.lock().expect("no panic") = json;
    }

    /// Whether answers are streams from now on.
    pub fn streams(&self, streams: bool) {
        self.script.streams.store(streams, Ordering::SeqCst);
    }

    /// The process that is measured.
    pub fn watch(&self, pid: u32) {
        self.script.pid.store(pid, Ordering::SeqCst);
    }
}

fn serve(stream: TcpStream, arrivals: &Sender<Arrival>, script: &Script) {
    stream.set_nodelay(true).ok();
    let mut reader = BufReader::with_capacity(1 << 20, stream.try_clone().expect("a socket"));
    for n in 0.. {
        let Some((api, bytes)) = request(&mut reader) else {
            return;
        };
        let at = Instant::now();
        let pid = script.pid.load(Ordering::SeqCst);
        let arrival = Arrival {
            at,
            bytes,
            peak_kib: peak_kib(pid),
            cpu: cpu(pid),
        };
        arrivals.send(arrival).ok();
        let last = n >= script.calls.load(Ordering::SeqCst);
        let arguments = script.arguments.lock().expect("no panic");
        let call = (!last).then(|| arguments.as_str());
        match script.streams.load(Ordering::SeqCst) {
            true => send(&stream, "text/event-stream", &answers::stream(api, n, call)),
            false => send(&stream, "application/json", &answers::whole(api, n, call)),
        }
    }
}

/// Reads one request; its API and its body's length.
fn request(reader: &mut impl BufRead) -> Option<(Api, usize)> {
    let mut length = 0;
    let mut api = Api::Chat;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        for other in [Api::Responses, Api::Messages] {
            if line.starts_with("POST ") && line.contains(&format!("/{} ", other.name())) {
                api = other;
            }
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let copied = std::io::copy(&mut reader.take(length), &mut std::io::sink());
    (copied.ok()? == length).then_some((api, length as usize))
}

fn send(mut stream: &TcpStream, kind: &str, body: &str) {
    let response = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(response.as_bytes()).ok();
}

fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok())
        .unwrap_or(0)
}

/// What the scheduler says that a process of one thread has used.
fn cpu(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}
