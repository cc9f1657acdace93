//! Instructions that fixed workloads take, counted by callgrind: the same again and again, so that a
//! change that costs more is seen.

use crate::{Bench, journal};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const VALGRIND: [&str; 3] = [
    "valgrind",
    "--tool=callgrind",
    "--callgrind-out-file=/dev/null",
];

/// Counts, prints what has changed against the counts in a file, and, to record, puts them there.
pub fn compare(bench: &Bench, path: &Path, record: bool) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: there is no valgrind");
        return;
    }
    let counts = counts(bench);
    let recorded: Map<String, Value> = fs::read_to_string(path)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    println!(
        "{:<40} {:>14} {:>14} {:>8}",
        "instructions", "recorded", "now", "change"
    );
    for (name, now) in &counts {
        let before = recorded.get(*name).and_then(Value::as_u64);
        let change = before.map_or_else(String::new, |before| {
            format!("{:+.1} %", (*now as f64 / before as f64 - 1.0) * 100.0)
        });
        let before = before.map_or_else(|| "-".to_owned(), |before| before.to_string());
        println!("{name:<40} {before:>14} {now:>14} {change:>8}");
    }
    if record {
        let counts: Map<String, Value> = counts
            .into_iter()
            .map(|(name, count)| (name.to_owned(), json!(count)))
            .collect();
        let text = serde_json::to_string_pretty(&counts).expect("JSON");
        fs::write(path, text + "\n").expect("a file");
    }
}

/// What each workload takes.
fn counts(bench: &Bench) -> Vec<(&'static str, u64)> {
    let agent = bench.agent("command: ['true']", "sync: false");
    let mut counts = Vec::new();
    for (name, iterations) in [
        ("a run that is answered at once", 0),
        ("a run of 30 iterations", 30),
    ] {
        let work = bench.dir.join(format!("work-{iterations}"));
        bench.server.says(iterations, "{}");
        let mut run = bench.command(&VALGRIND, &agent, &work);
        counts.push((name, count(&mut run)));
    }
    let work = bench.dir.join("work-100");
    begun(bench, &agent, &work, 100);
    for (name, words) in [
        ("the log of 100 iterations", &["log"][..]),
        ("the statistics of 100 iterations", &["stats"]),
        ("the report of 100 iterations", &["report"]),
    ] {
        counts.push((name, shown(bench, words, &work)));
    }
    without_answer(&journal_of(&work));
    bench.server.says(0, "{}");
    let mut resume = bench.command(&VALGRIND, &agent, &work);
    counts.push(("resuming a run of 100 iterations", count(&mut resume)));
    let work = bench.dir.join("work-next");
    begun(bench, &agent, &work, 0);
    lengthen(&journal_of(&work));
    let next = shown(bench, &["request", "--next"], &work);
    counts.push(("the next request of a journal of 10 MB", next));
    let work = bench.dir.join("work-many");
    for _ in 0..100 {
        begun(bench, &agent, &work, 0);
    }
    counts.push(("the list of 100 runs", shown(bench, &["list-runs"], &work)));
    counts
}

/// A run of so many iterations, which is not counted.
fn begun(bench: &Bench, agent: &Path, work: &Path, iterations: usize) {
    bench.server.says(iterations, "{}");
    let status = bench.command(&[], agent, work).status().expect("delta");
    assert!(status.success());
}

/// What a command about the latest run of a workspace takes.
fn shown(bench: &Bench, words: &[&str], work: &Path) -> u64 {
    let mut command = Command::new(VALGRIND[0]);
    command
        .args(&VALGRIND[1..])
        .arg(&bench.delta)
        .args(words)
        .arg("-w")
        .arg(work);
    count(&mut command)
}

fn journal_of(work: &Path) -> PathBuf {
    let runs = fs::read_dir(work.join(".delta")).expect("runs");
    let mut journals = runs.flatten().map(|it| it.path().join("journal.jsonl"));
    journals.find(|path| path.exists()).expect("a run")
}

/// Takes the end of a run out of its journal: from its last THOUGHT on.
fn without_answer(path: &Path) {
    let text = fs::read_to_string(path).expect("a journal");
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let last = lines.iter().rposition(|line| line.contains("\"THOUGHT\""));
    lines.truncate(last.expect("a THOUGHT"));
    fs::write(path, lines.concat()).expect("a journal");
}

/// Makes a journal long.
fn lengthen(path: &Path) {
    let text = fs::read_to_string(path).expect("a journal");
    let start = text.split_inclusive('\n').next().expect("a start");
    // Behind the start, whose number is 1.
    let long = journal::journal(10);
    let (_, long) = long.split_once('\n').expect("lines");
    fs::write(path, [start, long].concat()).expect("a journal");
}

fn count(command: &mut Command) -> u64 {
    // Each variable costs something at each start of a program.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let command = command.env_clear().env("PATH", path).env("HOME", "/");
    let output = command.output().expect("valgrind");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let collected = told
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let number = collected.and_then(|(_, number)| number.trim().parse().ok());
    number.unwrap_or_else(|| panic!("{told}"))
}
