//! The engine is killed at every kind of moment and always goes on.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::Command;
use std::time::{Duration, Instant};

/// Calls in each iteration but the last.
const CALLS: usize = 3;

/// `once` must not be repeated; `again` may be. Both write down which call they are.
const TOOLS: &str = "- {name: once, shell: 'echo \"${mark} $DELTA_CALL_ID\" >> ../log; echo did ${mark}'}\n\
     - {name: again, on_resume: retry, shell: 'echo \"${mark} $DELTA_CALL_ID\" >> ../log; echo did ${mark}'}";

/// Depends on nothing but the conversation, as a model does.
fn model(request: &Received, iterations: usize) -> Reply {
    let done = request
        .messages()
        .iter()
        .filter(|m| m["role"] == "assistant")
        .count();
    if done == iterations {
        return text("done");
    }
    let marks: Vec<String> = (0..CALLS).map(|n| format!("{done}-{n}")).collect();
    let wanted: Vec<(&str, &str, Value)> = marks
        .iter()
        .enumerate()
        .map(|(n, mark)| {
            let tool = if n == 1 { "again" } else { "once" };
            (mark.as_str(), tool, json!({"mark": mark}))
        })
        .collect();
    calls(&wanted)
}

fn world(iterations: usize) -> World {
    let world = World::with_tools(TOOLS);
    world
        .server
        .answers(move |request| model(request, iterations));
    world
}

/// What must hold when a run is complete, however often it was killed.
/// That each request was valid is checked by the server.
#[track_caller]
fn holds(world: &World, iterations: usize, killed: &str) {
    let run = world.latest();
    assert_eq!(world.runs().len(), 1, "{killed}");
    assert_eq!(run.ending().0, "COMPLETED", "{killed}");

    let journal = run.journal();
    let seqs: Vec<_> = journal
        .iter()
        .map(|event| event["seq"].as_u64().expect("a number"))
        .collect();
    assert!(
        seqs.windows(2).all(|pair| pair[0] < pair[1]),
        "{killed}: {seqs:?}"
    );

    // Every call of every thought has one result, and none runs twice but those that may.
    let mut results: HashMap<&str, usize> = HashMap::new();
    for event in journal
        .iter()
        .filter(|event| event["type"] == "ACTION_RESULT")
    {
        *results
            .entry(event["action_id"].as_str().expect("an action_id"))
            .or_default() += 1;
    }
    assert_eq!(results.len(), iterations * CALLS, "{killed}");
    assert!(
        results.values().all(|count| *count == 1),
        "{killed}: {results:?}"
    );

    let mut ran: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in world.lines("log") {
        let (mark, id) = line.split_once(' ').expect("a mark and an id");
        ran.entry(mark.to_owned()).or_default().push(id.to_owned());
    }
    for (mark, ids) in &ran {
        let distinct: BTreeSet<_> = ids.iter().collect();
        assert_eq!(
            distinct.len(),
            1,
            "{killed}: {mark} ran under several ids: {ids:?}"
        );
        assert!(
            mark.ends_with("-1") || ids.len() == 1,
            "{killed}: {mark} ran {} times",
            ids.len()
        );
    }
    let all: BTreeSet<_> = ran.values().map(|ids| &ids[0]).collect();
    assert_eq!(all.len(), ran.len(), "{killed}: an id was used twice");

    // What did not run, or not to its end, was told so.
    let last = world.server.last();
    for iteration in 0..iterations {
        for n in 0..CALLS {
            let mark = format!("{iteration}-{n}");
            let told = last.observation(&mark);
            if told.trim_end() == format!("did {mark}") {
                assert!(
                    ran.contains_key(&mark),
                    "{killed}: {mark} is said to have run"
                );
            } else {
                assert!(
                    n != 1,
                    "{killed}: {mark} may be repeated, but the model was told {told:?}"
                );
            }
        }
    }
    assert!(world.processes().is_empty(), "{killed}");
}

#[test]
fn a_run_that_is_never_killed_holds() {
    let world = world(4);
    world.run("go").exits(0).prints("done\n");
    holds(&world, 4, "never killed");
    assert_eq!(world.lines("log").len(), 4 * CALLS);
}

#[test]
fn killed_at_random_moments_it_goes_on() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    // The moments are spread over the time that a whole run takes here.
    let began = Instant::now();
    world(4).run("go").exits(0);
    let whole = began.elapsed().min(Duration::from_secs(1));

    let (mut kills, mut runs) = (0, 0);
    while kills < 100 {
        let world = world(4);
        runs += 1;
        let before = kills;
        loop {
            let delta = world.run("go").arg("-q").spawn();
            let moment = whole.mul_f64(random.f64() * 0.6);
            // A machine that has become slow must not keep a run from ever ending.
            let patient = kills - before >= 12;
            let outcome = if patient {
                delta.wait()
            } else {
                delta.signal_after(moment, Signal::KILL)
            };
            if outcome.killed_by().is_none() {
                outcome.exits(0).prints("done\n");
                break;
            }
            kills += 1;
            // Killed between its last act and its end: the answer has been told.
            if outcome.printed("done\n") && world.latest().metadata()["status"] == "COMPLETED" {
                break;
            }
        }
        holds(
            &world,
            4,
            &format!("run {runs} with DELTA_TEST_SEED={seed}"),
        );
    }
}

/// Whether strace is there and may trace.
pub fn strace_works() -> bool {
    let try_it = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .output();
    let works = try_it.is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped: strace is not installed or may not trace");
    }
    works
}

/// Runs under strace, with these arguments.
#[track_caller]
pub fn traced(world: &World, args: &[&str]) -> Outcome {
    let strace = [&["strace", "-qq"], args].concat();
    world.run("go").arg("-q").under(&strace).end()
}

/// How often a run uses each system call that changes a file.
fn changes(names: &str) -> BTreeMap<String, usize> {
    let world = world(2);
    traced(&world, &["-e", &format!("trace={names}"), "-o", "trace"]).exits(0);
    let mut counts = BTreeMap::new();
    for line in world.lines("trace") {
        if let Some((name, _)) = line.split_once('(') {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn killed_before_each_single_change_of_a_file_it_goes_on() {
    if !strace_works() {
        return;
    }
    let names = "write,writev,pwrite64,rename,renameat,renameat2,mkdir,mkdirat,fdatasync,fsync,\
                 ftruncate,unlink,unlinkat,link,linkat,flock,sendto";
    for (name, count) in changes(names) {
        for n in 1..=count {
            let world = world(2);
            let inject = format!("inject={name}:signal=KILL:when={n}");
            let killed = traced(
                &world,
                &[
                    "-o",
                    "/dev/null",
                    "-e",
                    &format!("trace={name}"),
                    "-e",
                    &inject,
                ],
            );
            assert_eq!(
                killed.code(),
                None,
                "{name} number {n}: {}",
                killed.describe()
            );
            world.run("go").arg("-q").exits(0).prints("done\n");
            holds(
                &world,
                2,
                &format!("killed before {name} number {n} of {count}"),
            );
        }
    }
}
