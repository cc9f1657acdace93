//! Flows against GNU make doing the same, and how cost and memory grow.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs `true`, or nothing at all.
const PROGRAM: &str = ", command: ['true'], output: text";

fn node(id: &str, role: &str, more: &str) -> String {
    format!("- {{id: {id}, kind: deterministic, role: {role}, context: none{more}}}\n")
}

/// Nodes with their roles, one behind the other.
fn flow(dir: &Path, nodes: &[(String, &str, &str)]) {
    fs::create_dir_all(dir).expect("a directory");
    let mut text = "nodes:\n".to_owned();
    text += &node("s", "start", ", default_start: true");
    for (id, role, more) in nodes {
        text += &node(id, role, more);
    }
    text += &node("x", "exit", "");
    text += "edges:\n";
    let ids = nodes.iter().map(|(id, ..)| id.as_str());
    let ids: Vec<&str> = ["s"].into_iter().chain(ids).chain(["x"]).collect();
    for pair in ids.windows(2) {
        text += &format!("- {{from: {}, to: {}}}\n", pair[0], pair[1]);
    }
    fs::write(dir.join("workflow.yaml"), text).expect("a flow");
}

fn chain(dir: &Path, length: usize, more: &'static str) {
    let node = |n| (format!("n{n}"), "linear", more);
    flow(dir, &(0..length).map(node).collect::<Vec<_>>());
}

fn fan(dir: &Path, more: &'static str) {
    let nodes = [
        ("p", "split", ""),
        ("w", "linear", more),
        ("m", "merge", ""),
    ];
    flow(
        dir,
        &nodes.map(|(id, role, more)| (id.to_owned(), role, more)),
    );
}

/// How long a command takes, and how much memory it had at most, in KiB.
fn timed(command: &mut Command) -> (Duration, u64) {
    let began = Instant::now();
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a program");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().expect("wait").is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok());
        peak = now.unwrap_or(peak).max(peak);
        std::thread::sleep(Duration::from_millis(1));
    }
    (began.elapsed(), peak)
}

struct Bench {
    program: PathBuf,
    dir: PathBuf,
    runs: u32,
}

impl Bench {
    fn median(&mut self, mut once: impl FnMut(&mut Self) -> (Duration, u64)) -> (Duration, u64) {
        let mut all = [once(self), once(self), once(self)];
        all.sort_unstable();
        all[1]
    }

    /// Runs a flow over a list of so many items.
    fn flow(&mut self, name: &str, items: usize, jobs: &str) -> (Duration, u64) {
        self.median(|bench| {
            bench.runs += 1;
            let workspace = bench.dir.join(format!("ws{}", bench.runs));
            let list: Vec<usize> = (0..items).collect();
            fs::write(bench.dir.join("in.json"), format!("{list:?}")).expect("an input");
            let mut command = Command::new(&bench.program);
            command
                .args(["flow", "run", name, "-q", "-i", "in.json", "-j", jobs, "-w"])
                .arg(&workspace)
                .current_dir(&bench.dir);
            // Nothing is removed before the end: ext4 makes new files slowly after that.
            timed(&mut command)
        })
    }

    fn make(&mut self, text: &str, jobs: &str) -> (Duration, u64) {
        fs::write(self.dir.join("Makefile"), text).expect("a Makefile");
        self.median(|bench| {
            timed(
                Command::new("make")
                    .args(["-j", jobs])
                    .current_dir(&bench.dir),
            )
        })
    }

    fn against_make(&mut self) {
        let names: Vec<String> = (0..1000).map(|n| format!("t{n}")).collect();
        let line = |n: usize| match n {
            0 => "t0:\n\t@true\n".to_owned(),
            n => format!("t{n}: t{}\n\t@true\n", n - 1),
        };
        let chained: String = (0..1000).map(line).collect();
        let fanned = format!(
            "{}:
	@true
",
            names.join(
                ":
	@true
"
            )
        );
        chain(&self.dir.join("chain"), 1000, PROGRAM);
        fan(&self.dir.join("fan"), PROGRAM);
        for (label, name, items, jobs, rules) in [
            (
                "chain of 1,000",
                "chain",
                1,
                "1",
                format!("all: t999\n{chained}"),
            ),
            (
                "fan-out of 1,000, -j 2",
                "fan",
                1000,
                "2",
                format!("all: {}\n{fanned}", names.join(" ")),
            ),
            (
                "fan-out of 1,000, -j 8",
                "fan",
                1000,
                "8",
                format!("all: {}\n{fanned}", names.join(" ")),
            ),
        ] {
            let (make, _) = self.make(&rules, jobs);
            let (flow, peak) = self.flow(name, items, jobs);
            let ratio = flow.as_secs_f64() / make.as_secs_f64();
            println!(
                "  {label:<24} make {:>8.1} ms   flow {:>8.1} ms   {ratio:>5.2}   {peak:>6} KiB",
                millis(make),
                millis(flow)
            );
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Measures `delta flow`.
pub fn measure(delta: &Path) {
    // Every start of a program waits for the disk; in memory, what is left is the engine's own.
    for (label, base) in [
        ("on the disk", std::env::temp_dir()),
        ("in memory", PathBuf::from("/dev/shm")),
    ] {
        let dir = base.join(format!("delta-bench-flow-{}", std::process::id()));
        if fs::create_dir_all(&dir).is_err() {
            continue;
        }
        let mut bench = Bench {
            program: delta.to_owned(),
            dir: dir.clone(),
            runs: 0,
        };
        println!("\nflows of `true` against make, {label}");
        bench.against_make();
        for length in [10, 100, 1_000, 10_000] {
            chain(&dir.join("long"), length, "");
            let (time, peak) = bench.flow("long", 1, "1");
            let each = time.as_secs_f64() * 1e6 / length as f64;
            println!(
                "  chain of {length:>6} nodes that run nothing: {each:>7.1} us a node, {peak:>6} KiB"
            );
        }
        fan(&dir.join("wide"), "");
        let (time, peak) = bench.flow("wide", 10_000, "8");
        println!(
            "  10,000 subtasks that run nothing: {:.1} ms, {peak} KiB",
            millis(time)
        );
        fs::remove_dir_all(dir).expect("the directory goes");
    }
}
