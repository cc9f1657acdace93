//! Instructions that fixed workloads take, counted by callgrind: the same again and again, so that a
//! change that costs more is seen.

use crate::{Bench, journal};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
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
    let agent = bench.agent("command: ['true']", "sync: false");
    let work = bench.dir.join("work");
    let fresh = |iterations: usize| {
        fs::remove_dir_all(&work).ok();
        bench.server.says(iterations, "{}");
        count(&mut bench.command(&VALGRIND, &agent, &work))
    };
    let counts = [
        ("a run that is answered at once", fresh(0)),
        ("a run of 30 iterations", fresh(30)),
        (
            "the next request of a journal of 10 MB",
            next_request(bench, &agent, &work),
        ),
    ];
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

/// A run whose journal has been made long.
fn next_request(bench: &Bench, agent: &Path, work: &Path) -> u64 {
    fs::remove_dir_all(work).ok();
    bench.server.says(0, "{}");
    let status = bench.command(&[], agent, work).status().expect("delta");
    assert!(status.success());
    let runs = fs::read_dir(work.join(".delta")).expect("runs");
    let mut runs = runs.flatten().map(|entry| entry.path());
    let run = runs.find(|path| path.join("journal.jsonl").exists());
    let path = run.expect("a run").join("journal.jsonl");
    let mut journal_text = fs::read_to_string(&path).expect("a journal");
    let start = journal_text.lines().next().expect("a start").to_owned() + "\n";
    journal_text.clear();
    journal_text += &start;
    // Behind the start, whose number is 1.
    let long = journal::journal(10);
    journal_text += long.split_once('\n').expect("lines").1;
    fs::write(&path, journal_text).expect("a journal");
    let mut command = Command::new(VALGRIND[0]);
    command
        .args(&VALGRIND[1..])
        .arg(&bench.delta)
        .args(["request", "--next", "-w"])
        .arg(work)
        .arg("LATEST");
    count(&mut command)
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
