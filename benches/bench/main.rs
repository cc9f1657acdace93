//! Measures the release binary against a scripted model on loopback, and the floor beneath it.
//!
//! Medians, their spread, and what the same work costs without delta: spawning the same tool, a bare
//! exchange of the same bytes, an fdatasync of a line. Nothing here passes or fails.
//!
//! `bench DELTA [--json FILE]` measures times; `bench DELTA --instructions FILE [--record]` counts
//! instructions and compares them with those in FILE; `bench DELTA --evaluation` simulates evaluations, and
//! needs no program.

#![allow(clippy::print_stdout)] // A table is what it is for.
#![allow(clippy::missing_panics_doc, clippy::must_use_candidate)] // Only this program calls it.

mod answers;
#[cfg(feature = "flow")]
mod evaluation;
mod figures;
mod floor;
mod flow;
mod instructions;
mod journal;
mod server;

use answers::APIS;
use figures::{Figures, Sample, often};
use server::{Arrival, Server};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Where the measuring is done, and with what.
pub struct Bench {
    delta: PathBuf,
    dir: PathBuf,
    server: Server,
    runs: AtomicUsize,
}

/// One run of so many iterations.
struct Run {
    first_request: Duration,
    total: Duration,
    arrivals: Vec<Arrival>,
    disk: u64,
    files: u64,
}

impl Run {
    /// The times between requests, in milliseconds, in a part of the run.
    fn gaps(&self, part: impl Fn(usize) -> (usize, usize)) -> impl Iterator<Item = Duration> {
        let gaps = self.arrivals.len().saturating_sub(1);
        let (from, to) = part(gaps);
        let pairs = self.arrivals.windows(2).skip(from).take(to - from);
        pairs.map(|pair| pair[1].at - pair[0].at)
    }

    fn last(&self) -> &Arrival {
        &self.arrivals[self.arrivals.len() - 1]
    }
}

fn first_tenth(gaps: usize) -> (usize, usize) {
    (0, gaps.div_ceil(10))
}

fn last_tenth(gaps: usize) -> (usize, usize) {
    (gaps - gaps.div_ceil(10), gaps)
}

impl Bench {
    fn new(delta: PathBuf) -> Self {
        let dir = std::env::temp_dir().join(format!("delta-bench-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        Self {
            delta,
            dir,
            server: Server::start(),
            runs: AtomicUsize::new(0),
        }
    }

    /// An agent with one tool, and other keys at the top.
    pub fn agent(&self, tool: &str, top: &str) -> PathBuf {
        self.agent_over(tool, top, "")
    }

    /// The same, with other keys of `llm`, a comma behind each.
    fn agent_over(&self, tool: &str, top: &str, llm: &str) -> PathBuf {
        let agent = self.dir.join("agent");
        fs::create_dir_all(&agent).expect("a directory");
        let url = &self.server.url;
        let yaml = format!(
            "name: bench\nllm: {{model: m, {llm} base_url: '{url}'}}\nmax_iterations: 100000\n{top}\n\
             tools:\n  - {{name: tool, {tool}}}\n"
        );
        fs::write(agent.join("agent.yaml"), yaml).expect("a file");
        fs::write(agent.join("system_prompt.md"), "Be brief.").expect("a file");
        let context = "sources: [{type: file, id: p, path: '${AGENT_HOME}/system_prompt.md'}, \
                       {type: journal}]\n";
        fs::write(agent.join("context.yaml"), context).expect("a file");
        agent
    }

    /// `delta run` of an agent in a workspace, after the words of a program around it.
    pub fn command(&self, around: &[&str], agent: &Path, work: &Path) -> Command {
        let delta = self.delta.to_string_lossy().into_owned();
        let mut words = around.iter().map(ToString::to_string).chain([delta]);
        let mut command = Command::new(words.next().expect("a program"));
        command
            .args(words)
            .args(["run", "-q", "-m", "go", "-a"])
            .arg(agent)
            .arg("-w")
            .arg(work)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    fn run(&self, agent: &Path, iterations: usize, arguments: &str) -> Run {
        // Nothing is removed before the end: ext4 makes new files slowly after that.
        let number = self.runs.fetch_add(1, Ordering::SeqCst);
        let work = self.dir.join(format!("work-{number}"));
        self.server.says(iterations, arguments);
        let began = Instant::now();
        let mut child = self.command(&[], agent, &work).spawn().expect("delta");
        self.server.watch(child.id());
        let status = child.wait().expect("delta");
        let total = began.elapsed();
        assert!(status.success(), "delta ended with {status}");
        let arrivals: Vec<Arrival> = self.server.arrivals.try_iter().collect();
        assert_eq!(arrivals.len(), iterations + 1);
        let (disk, files) = usage(&work);
        Run {
            first_request: arrivals[0].at - began,
            total,
            arrivals,
            disk,
            files,
        }
    }

    /// Runs of several lengths. `beneath` is the floor of an iteration without its exchange.
    fn lengths(&self, out: &mut Figures, agent: &Path, label: &str, sizes: &[usize], beneath: f64) {
        for &iterations in sizes {
            let repeats = if iterations > 100 { 3 } else { 7 };
            let runs: Vec<Run> = (0..repeats)
                .map(|_| self.run(agent, iterations, "{}"))
                .collect();
            let name = |what: &str| format!("{label}, {iterations}: {what}");
            let totals = Sample::of_times(runs.iter().map(|run| run.total));
            out.add(&name("whole run"), "ms", &totals, None);
            if iterations == 0 {
                continue;
            }
            let exchange = floor::exchange(runs[0].last().bytes).median();
            let small = floor::exchange(1000).median();
            let first = Sample::of_times(runs.iter().flat_map(|run| run.gaps(first_tenth)));
            let last = Sample::of_times(runs.iter().flat_map(|run| run.gaps(last_tenth)));
            out.add(
                &name("gap, first tenth"),
                "ms",
                &first,
                Some(beneath + small),
            );
            out.add(
                &name("gap, last tenth"),
                "ms",
                &last,
                Some(beneath + exchange),
            );
            out.one(
                &name("of it delta's own"),
                "ms",
                last.median() - beneath - exchange,
            );
            let used = |run: &Run| {
                run.last()
                    .cpu
                    .saturating_sub(run.arrivals[0].cpu)
                    .as_secs_f64()
                    * 1e3
            };
            let used = runs.iter().map(|run| used(run) / iterations as f64);
            out.add(
                &name("processor, an iteration"),
                "ms",
                &Sample::new(used.collect()),
                None,
            );
            let peak = runs
                .iter()
                .map(|run| run.last().peak_kib)
                .max()
                .unwrap_or(0);
            out.one(&name("resident memory"), "MiB", peak as f64 / 1024.0);
            out.one(
                &name("last request"),
                "KiB",
                runs[0].last().bytes as f64 / 1024.0,
            );
            out.one(&name("disk"), "KiB", runs[0].disk as f64 / 1024.0);
            out.one(&name("files"), "", runs[0].files as f64);
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

fn starts(bench: &Bench, out: &mut Figures, spawn: f64) {
    let agent = bench.agent("command: ['true']", "");
    figures::heading("starting");
    let runs: Vec<Run> = (0..40).map(|_| bench.run(&agent, 0, "{}")).collect();
    let first = Sample::of_times(runs.iter().map(|run| run.first_request));
    out.add("process start to first request", "ms", &first, Some(spawn));
    let peak = runs
        .iter()
        .map(|run| run.last().peak_kib)
        .max()
        .unwrap_or(0);
    out.one(
        "resident memory at the first request",
        "MiB",
        peak as f64 / 1024.0,
    );

    const AT_ONCE: usize = 200;
    let all = |spawn: &dyn Fn(usize) -> Child| {
        often(3, || {
            let children: Vec<Child> = (0..AT_ONCE).map(spawn).collect();
            for mut child in children {
                assert!(child.wait().expect("a child").success());
            }
        })
    };
    let floor = all(&|_| Command::new("true").spawn().expect("true"));
    let many = bench.dir.join("many");
    let runs = all(&|n| {
        let work = many.join(format!("{:?}-{n}", Instant::now()));
        bench.command(&[], &agent, &work).spawn().expect("delta")
    });
    bench.server.arrivals.try_iter().for_each(drop);
    out.add(
        "200 runs started at once, to the last end",
        "ms",
        &runs,
        Some(floor.median()),
    );
}

/// The same run over each API. With reasoning that goes back, so that requests are longer than over chat completions.
fn apis(bench: &Bench, out: &mut Figures, spawn: f64) {
    const ITERATIONS: usize = 300;
    figures::heading("each API, 300 iterations with a trivial tool");
    for stream in [false, true] {
        bench.server.streams(stream);
        let mut of_chat = None;
        for api in APIS {
            let llm = format!("api: {}, stream: {stream},", api.name());
            let agent = bench.agent_over("command: ['true']", "sync: false", &llm);
            let runs: Vec<Run> = (0..3)
                .map(|_| bench.run(&agent, ITERATIONS, "{}"))
                .collect();
            let how = if stream { "streamed" } else { "whole" };
            let name = |what: &str| format!("{}, {how}: {what}", api.name());
            let gaps = Sample::of_times(runs.iter().flat_map(|run| run.gaps(last_tenth)));
            let exchange = floor::exchange(runs[0].last().bytes).median();
            let floor = spawn + exchange;
            out.add(&name("gap, last tenth"), "ms", &gaps, Some(floor));
            let own = gaps.median() - floor;
            let than_chat = own - *of_chat.get_or_insert(own);
            out.one(&name("of it more than over chat"), "ms", than_chat);
        }
    }
    bench.server.streams(false);
}

fn outputs(bench: &Bench, out: &mut Figures, spawn: f64) {
    figures::heading("much to write, much to read");
    let print = "head -c 1073741824 /dev/zero | tr '\\0' x";
    let to_file = format!("{print} >{}", bench.dir.join("flood").display());
    let floor = floor::spawn(3, &["sh", "-c", &to_file]).median();
    fs::remove_file(bench.dir.join("flood")).ok();
    let agent = bench.agent(&format!("shell: \"{}\"", print.replace('\\', "\\\\")), "");
    let runs: Vec<Run> = (0..3).map(|_| bench.run(&agent, 1, "{}")).collect();
    let gaps = Sample::of_times(runs.iter().flat_map(|run| run.gaps(first_tenth)));
    out.add("a tool that prints 1 GiB", "ms", &gaps, Some(floor));
    let peak = runs
        .iter()
        .map(|run| run.last().peak_kib)
        .max()
        .unwrap_or(0);
    out.one("resident memory then", "MiB", peak as f64 / 1024.0);

    let agent = bench.agent("exec: wc -c, stdin: text", "sync: false");
    let arguments = format!("{{\"text\":\"{}\"}}", "five megabytes\\n".repeat(349_526));
    let runs: Vec<Run> = (0..5).map(|_| bench.run(&agent, 1, &arguments)).collect();
    let gaps = Sample::of_times(runs.iter().flat_map(|run| run.gaps(first_tenth)));
    let floor = spawn + floor::exchange(arguments.len()).median();
    out.add(
        "5 MB on a tool's stdin, and back in a request",
        "ms",
        &gaps,
        Some(floor),
    );
}

fn sessions(bench: &Bench, out: &mut Figures) {
    figures::heading("delta sessions");
    let call = |args: &[&str]| {
        let output = Command::new(&bench.delta)
            .arg("sessions")
            .args(args)
            .current_dir(&bench.dir)
            .stdin(Stdio::null())
            .output();
        String::from_utf8(output.expect("delta sessions").stdout).expect("text")
    };
    let started: serde_json::Value =
        serde_json::from_str(&call(&["start", "bash"])).expect("an answer in JSON");
    let id = started["session_id"].as_str().expect("an id").to_owned();
    let floor = floor::spawn(60, &["bash", "-c", "true"]).median();
    let exec = often(60, || {
        let command = Command::new(&bench.delta)
            .args(["sessions", "exec", &id])
            .current_dir(&bench.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let mut child = command.expect("delta sessions");
        let mut input = child.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut input, b"true\n").expect("a command");
        drop(input);
        assert!(child.wait().expect("delta sessions").success());
    });
    out.add("exec of true in bash", "ms", &exec, Some(floor));
}

fn measure(bench: &Bench) -> Figures {
    let mut out = Figures::default();
    let dir = &bench.dir;
    figures::heading("floor");
    let spawn = floor::spawn(200, &["true"]);
    out.add("spawn and wait: true", "ms", &spawn, None);
    let sync = floor::sync(dir, 600);
    out.add("append 600 bytes, fdatasync", "ms", &sync, None);
    out.add("loopback, 1 kB", "ms", &floor::exchange(1000), None);
    out.add("loopback, 2.4 MB", "ms", &floor::exchange(2_400_000), None);
    let (spawn, sync) = (spawn.median(), sync.median());

    starts(bench, &mut out, spawn);
    figures::heading("iterations with a trivial tool");
    let agent = bench.agent("command: ['true']", "sync: false");
    bench.lengths(
        &mut out,
        &agent,
        "sync: false",
        &[0, 10, 30, 100, 500, 2000],
        spawn,
    );
    let agent = bench.agent("command: ['true']", "");
    bench.lengths(
        &mut out,
        &agent,
        "sync: true",
        &[30, 100, 500],
        spawn + sync,
    );
    figures::heading("iterations with observations of 1 KiB");
    let argv = ["/usr/bin/printf", "%1024d", "1"];
    let spawn_printf = floor::spawn(200, &argv).median();
    let agent = bench.agent(&format!("command: {argv:?}"), "sync: false");
    bench.lengths(&mut out, &agent, "1 KiB", &[30, 300, 2000], spawn_printf);
    apis(bench, &mut out, spawn);
    outputs(bench, &mut out, spawn);
    journal::rebuild(&mut out);
    sessions(bench, &mut out);
    flow::measure(&bench.delta);
    #[cfg(feature = "flow")]
    evaluation::simulate();
    out
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let delta = args
        .next()
        .unwrap_or_else(|| "target/release/delta".to_owned());
    let mut args = args.peekable();
    #[cfg(feature = "flow")]
    if args.peek().is_some_and(|arg| arg == "--evaluation") {
        return evaluation::simulate();
    }
    let delta = fs::canonicalize(delta).expect("the release binary; `make bench` builds it");
    let bench = Bench::new(delta);
    match args.next().as_deref() {
        None => drop(measure(&bench)),
        Some("--json") => {
            let path = args.next().expect("a file");
            let text = serde_json::to_string_pretty(&measure(&bench).json()).expect("JSON");
            fs::write(path, text + "\n").expect("a file");
        }
        Some("--instructions") => {
            let path = PathBuf::from(args.next().expect("a file"));
            instructions::compare(&bench, &path, args.next().as_deref() == Some("--record"));
        }
        Some(other) => panic!("unknown option {other}"),
    }
    fs::remove_dir_all(&bench.dir).ok();
}
