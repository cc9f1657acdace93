//! Measures the release binary against a scripted model on loopback, and the floor beneath it.
//!
//! Prints medians. A floor is what the same work costs without delta: spawning the same tool, a bare
//! exchange of the same bytes, an fdatasync of a line. Nothing here passes or fails.

#![allow(clippy::print_stdout)] // A table is what it is for.

use delta_engine::conversation;
use delta_engine::state::{self, Reading};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// When a request had been read whole, and how much memory delta had used by then.
struct Arrival {
    at: Instant,
    bytes: usize,
    peak_kib: u64,
}

/// Answers every request with a call of the tool until `calls` have been made, then with text.
fn serve(listener: TcpListener, arrivals: Sender<Arrival>, calls: Receiver<usize>) {
    while let Ok(limit) = calls.recv() {
        let Ok((stream, _)) = listener.accept() else {
            return;
        };
        stream.set_nodelay(true).ok();
        let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
        for done in 0..=limit {
            let Some(bytes) = request(&mut reader) else {
                break;
            };
            let arrival = Arrival {
                at: Instant::now(),
                bytes,
                peak_kib: peak_kib(),
            };
            arrivals.send(arrival).ok();
            answer(&stream, done, done == limit);
        }
    }
}

/// Reads one request; its body's length.
fn request(reader: &mut impl BufRead) -> Option<usize> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(length)
}

fn answer(mut stream: &TcpStream, n: usize, last: bool) {
    let message = if last {
        r#"{"role":"assistant","content":"done"}"#.to_owned()
    } else {
        format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"call_{n}","type":"function","function":{{"name":"tool","arguments":"{{}}"}}}}]}}"#
        )
    };
    let body = format!(
        r#"{{"model":"m","choices":[{{"message":{message},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}}}"#
    );
    let response = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(response.as_bytes()).ok();
}

/// The peak of the resident memory of the one delta that runs.
fn peak_kib() -> u64 {
    let pid = RUNNING.load(std::sync::atomic::Ordering::SeqCst);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok())
        .unwrap_or(0)
}

static RUNNING: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

struct Bench {
    delta: PathBuf,
    dir: PathBuf,
    url: String,
    arrivals: Receiver<Arrival>,
    calls: Sender<usize>,
}

/// One run of so many iterations.
struct Run {
    first_request: Duration,
    total: Duration,
    gaps: Vec<Duration>,
    peak_kib: u64,
    last_request: usize,
    disk: u64,
    files: u64,
}

impl Bench {
    fn new(delta: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let (send, arrivals) = channel();
        let (calls, receive) = channel();
        std::thread::spawn(move || serve(listener, send, receive));
        let dir = std::env::temp_dir().join(format!("delta-bench-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        Self {
            delta,
            dir,
            url,
            arrivals,
            calls,
        }
    }

    fn agent(&self, tool: &str, top: &str) -> PathBuf {
        let agent = self.dir.join("agent");
        fs::create_dir_all(&agent).expect("a directory");
        let yaml = format!(
            "name: bench\nllm: {{model: m, base_url: '{}'}}\nmax_iterations: 100000\n{top}\ntools:\n  - {{name: tool, {tool}}}\n",
            self.url
        );
        fs::write(agent.join("agent.yaml"), yaml).expect("a file");
        fs::write(agent.join("system_prompt.md"), "Be brief.").expect("a file");
        let context = "sources: [{type: file, id: p, path: '${AGENT_HOME}/system_prompt.md'}, {type: journal}]\n";
        fs::write(agent.join("context.yaml"), context).expect("a file");
        agent
    }

    fn run(&self, agent: &Path, iterations: usize) -> Run {
        let work = self.dir.join("work");
        fs::remove_dir_all(&work).ok();
        self.calls.send(iterations).expect("the server");
        let began = Instant::now();
        let mut child = Command::new(&self.delta)
            .args(["run", "-q", "-m", "go", "-a"])
            .arg(agent)
            .arg("-w")
            .arg(&work)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("delta");
        RUNNING.store(child.id(), std::sync::atomic::Ordering::SeqCst);
        let status = child.wait().expect("delta");
        let total = began.elapsed();
        assert!(status.success(), "delta ended with {status}");
        let arrivals: Vec<Arrival> = self.arrivals.try_iter().collect();
        assert_eq!(arrivals.len(), iterations + 1);
        let (disk, files) = usage(&work);
        Run {
            first_request: arrivals[0].at - began,
            total,
            gaps: arrivals
                .windows(2)
                .map(|pair| pair[1].at - pair[0].at)
                .collect(),
            peak_kib: arrivals.iter().map(|a| a.peak_kib).max().unwrap_or(0),
            last_request: arrivals[iterations].bytes,
            disk,
            files,
        }
    }
}

/// Bytes and number of the files below a directory.
fn usage(dir: &Path) -> (u64, u64) {
    let (mut bytes, mut files) = (0, 0);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let meta = entry.metadata().expect("a file");
        if meta.is_dir() {
            let below = usage(&entry.path());
            bytes += below.0;
            files += below.1;
        } else {
            bytes += meta.len();
            files += 1;
        }
    }
    (bytes, files)
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn ms(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1000.0)
}

/// The median of something done often.
fn often(times: usize, mut what: impl FnMut()) -> Duration {
    let mut all: Vec<Duration> = (0..times)
        .map(|_| {
            let began = Instant::now();
            what();
            began.elapsed()
        })
        .collect();
    median(&mut all)
}

fn floor(dir: &Path) -> [Duration; 3] {
    let spawn = often(100, || {
        Command::new("true")
            .stdin(Stdio::null())
            .status()
            .expect("true");
    });
    let mut file = File::create(dir.join("synced")).expect("a file");
    let line = [b'x'; 600];
    let sync = often(50, || {
        file.write_all(&line).expect("a write");
        file.sync_data().expect("a sync");
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut client =
        TcpStream::connect(listener.local_addr().expect("an address")).expect("a socket");
    let (mut server, _) = listener.accept().expect("a socket");
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    std::thread::spawn(move || {
        let mut bytes = [0; 1024];
        while server.read_exact(&mut bytes).is_ok() && server.write_all(&bytes[..300]).is_ok() {}
    });
    let (bytes, mut back) = ([b'x'; 1024], [0; 300]);
    let trip = often(500, || {
        client.write_all(&bytes).expect("a write");
        client.read_exact(&mut back).expect("a read");
    });
    [spawn, sync, trip]
}

fn main() {
    let delta = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let delta = fs::canonicalize(delta.unwrap_or_else(|| "target/release/delta".to_owned()));
    let bench = Bench::new(delta.expect("the release binary; `make bench` builds it"));
    let [spawn, sync, trip] = floor(&bench.dir);
    println!(
        "floor, ms: spawn and wait {}, fdatasync {}, loopback exchange {}",
        ms(spawn),
        ms(sync),
        ms(trip)
    );

    let agent = bench.agent("command: ['true']", "");
    let mut firsts: Vec<Duration> = (0..30)
        .map(|_| bench.run(&agent, 0).first_request)
        .collect();
    println!(
        "start of the process to its first request, ms: {}",
        ms(median(&mut firsts))
    );

    println!(
        "\nrun with a trivial tool        total    gap between requests, ms      peak RSS   last request     disk  files"
    );
    println!(
        "                                 ms    first tenth   last tenth        KiB          bytes      KiB"
    );
    for (label, top, sizes) in [
        ("sync", "", &[0usize, 10, 30, 100, 500][..]),
        ("sync: false", "sync: false", &[10, 30, 100, 500, 2000][..]),
    ] {
        let agent = bench.agent("command: ['true']", top);
        for iterations in sizes {
            row(label, *iterations, bench.run(&agent, *iterations));
        }
    }
    let tool = "shell: 'head -c 1024 /dev/zero | tr \"\\\\0\" x'";
    let agent = bench.agent(tool, "sync: false");
    row("sync: false, 1 KiB seen", 2000, bench.run(&agent, 2000));
    let agent = bench.agent("shell: 'head -c 1073741824 /dev/zero | tr \"\\\\0\" x'", "");
    row("1 GiB of output", 1, bench.run(&agent, 1));
    fs::remove_dir_all(&bench.dir).ok();

    println!("\njournal to conversation       MB/s, all of it    ms, a window of 20 iterations");
    for megabytes in [1, 10, 100] {
        rebuild(megabytes);
    }
}

/// Rebuilds the conversation from a journal of this size, with observations of 1 KiB.
fn rebuild(megabytes: usize) {
    let at = "2025-10-13T14:35:22.123Z";
    let mut journal = format!(
        "{{\"seq\":1,\"timestamp\":\"{at}\",\"type\":\"USER_MESSAGE\",\"iteration\":0,\"content\":\"go\"}}\n"
    );
    let observation = "one line of output \\\"quoted\\\"\\n".repeat(32);
    let mut seq = 1;
    let mut iteration = 0;
    while journal.len() < megabytes << 20 {
        iteration += 1;
        let begin = |seq: usize, kind: &str| {
            format!(
                "{{\"seq\":{seq},\"timestamp\":\"{at}\",\"type\":\"{kind}\",\"iteration\":{iteration},"
            )
        };
        journal += &begin(seq + 1, "THOUGHT");
        journal += &format!(
            "\"content\":\"I look.\",\"tool_calls\":[{{\"id\":\"c{iteration}\",\"type\":\"function\",\"function\":{{\"name\":\"look\",\"arguments\":\"{{}}\"}}}}],\"finish_reason\":\"stop\",\"model\":\"m\",\"llm_invocation_ref\":\"io/invocations/x\"}}\n"
        );
        journal += &begin(seq + 2, "ACTION_REQUEST");
        journal += &format!(
            "\"action_id\":\"c{iteration}\",\"tool_name\":\"look\",\"tool_args\":{{}},\"resolved_command\":\"ls\",\"call_id\":\"x\",\"execution_ref\":\"io/tool_executions/x\"}}\n"
        );
        journal += &begin(seq + 3, "ACTION_RESULT");
        journal += &format!(
            "\"action_id\":\"c{iteration}\",\"tool_name\":\"look\",\"status\":\"SUCCESS\",\"exit_code\":0,\"observation_content\":\"{observation}\",\"duration_ms\":1,\"execution_ref\":\"io/tool_executions/x\"}}\n"
        );
        seq += 3;
    }
    let build = |window| {
        let reading = Reading {
            lenient: false,
            window,
        };
        let run = state::read(journal.as_bytes(), reading).expect("a journal");
        let mut out = Vec::with_capacity(journal.len());
        conversation::write(&mut out, &run, None);
        assert!(out.len() > 1000);
    };
    let whole = often(7, || build(None));
    let window = often(7, || build(Some(20)));
    println!(
        "{:>4} MB {:>28.0} {:>25}",
        megabytes,
        journal.len() as f64 / 1e6 / whole.as_secs_f64(),
        ms(window)
    );
}

fn row(label: &str, iterations: usize, run: Run) {
    let tenth = (run.gaps.len() / 10).max(1);
    let edge = |gaps: &[Duration]| match gaps.len() {
        0 => "-".to_owned(),
        _ => ms(median(&mut gaps.to_vec())),
    };
    let first = edge(&run.gaps[..run.gaps.len().min(tenth)]);
    let last = edge(&run.gaps[run.gaps.len().saturating_sub(tenth)..]);
    println!(
        "{:<24} {:>4} {:>8} {:>12} {:>12} {:>10} {:>14} {:>8} {:>6}",
        label,
        iterations,
        ms(run.total),
        first,
        last,
        run.peak_kib,
        run.last_request,
        run.disk / 1024,
        run.files
    );
}
