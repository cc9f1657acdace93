//! examples/orchestration/batch: fifty runs with make, GNU parallel or Slurm.

use crate::harness::*;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};

#[test]
fn batch_runs_as_shown() {
    let Some(world) = as_shown("orchestration/batch", &["bc", "make", "parallel"]) else {
        return;
    };
    for n in 1..=50u64 {
        let answer = world.read(&format!("tmp/batch/done/{n}.txt"));
        let value = n * (n + 1) + (1 << n);
        assert!(
            answer.trim_end().ends_with(&format!(" = {value}")),
            "{answer}"
        );
    }
    assert!(!world.exists("scontrol"), "no task was requeued");
    given_again(&world, "orchestration/batch");
}

/// A world in which some tasks do not come through at first: some meet a server that is down, one a
/// server that refuses.
fn troubled() -> World {
    let world = examples();
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    world.server.answers(move |request| {
        let task = request.messages()[1]["content"]
            .as_str()
            .unwrap()
            .to_owned();
        let is_first = seen.lock().unwrap().insert(task.clone());
        match task.as_str() {
            "7*8 + 2^7" | "13*14 + 2^13" if is_first => Reply::error(503, "down"),
            "20*21 + 2^20" if is_first => {
                answer(&json!({"role": "assistant", "content": "It is"}), "length")
            }
            _ => answer_to(&request.body),
        }
    });
    world
}

/// A batch that fails in three tasks, and then does these alone.
fn fails_and_recovers(line: &str) -> World {
    let world = troubled();
    let line = format!("mkdir -p jobs && cd jobs && {line}");
    let start = || shell(&world, &line).env("RUN_OPTIONS", ASKS_SERVER);
    let code = start().end().code();
    assert_ne!(code, Some(0));
    let done = |n: u32| world.exists(&format!("jobs/done/{n}.txt"));
    let missing: Vec<u32> = (1..=50).filter(|n| !done(*n)).collect();
    assert_eq!(missing, [7, 13, 20]);
    let asked = world.server.requests().len();
    start().exits(0);
    assert_eq!(
        world.server.requests().len(),
        asked + 6,
        "two requests for each of the three"
    );
    assert!((1..=50).all(done));
    let starts = |n: u32| {
        Run::latest(&world.path(&format!("jobs/work/{n}")))
            .events("ENGINE_START")
            .len()
    };
    assert_eq!((starts(7), starts(20), starts(21)), (2, 1, 1));
    let aside = fs::read_dir(world.path("jobs/work")).unwrap();
    let names = aside.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let others: Vec<_> = names.filter(|name| name.parse::<u32>().is_err()).collect();
    assert!(
        others.len() == 1 && others[0].starts_with("20.failed."),
        "{others:?}"
    );
    world
}

#[test]
fn make_tries_again_what_did_not_come_through() {
    if installed(&["bc", "make"]) {
        fails_and_recovers("make -f ../examples/orchestration/batch/Makefile -j 4 -k");
    }
}

#[test]
fn parallel_tries_again_what_did_not_come_through() {
    if !installed(&["bc", "parallel"]) {
        return;
    }
    let world = fails_and_recovers("../examples/orchestration/batch/parallel.sh --jobs 4");
    let log = world.read("jobs/joblog");
    assert_eq!(
        log.lines().count(),
        1 + 50 + 3,
        "only the three were started again"
    );
}

/// Task 7 of an array.
fn array(world: &World) -> Delta {
    let shell = shell(
        world,
        "mkdir -p jobs && cd jobs && exec ../examples/orchestration/batch/array.sbatch",
    );
    shell
        .env("RUN_OPTIONS", ASKS_SERVER)
        .env("BATCH_HOME", world.path("examples/orchestration/batch"))
        .env("SLURM_ARRAY_JOB_ID", "100")
        .env("SLURM_ARRAY_TASK_ID", "7")
}

fn task(world: &World) -> Run {
    Run::latest(&world.path("jobs/work/7"))
}

#[test]
fn a_job_that_is_started_twice_finds_the_lock() {
    let world = examples();
    world.model_says([text("184").held()]);
    let first = array(&world).spawn();
    world.server.wait_for(1);
    array(&world).exits(75).says("already running, pid");
    assert_eq!(world.lines("scontrol"), ["requeue 100_7"]);
    assert!(!world.exists("jobs/done/7.txt"));
    world.server.release();
    first.wait().exits(0);
    assert_eq!(world.read("jobs/done/7.txt"), "184\n");
    // The second, requeued, finds the answer.
    array(&world).exits(0);
    assert_eq!(world.read("jobs/done/7.txt"), "184\n");
    assert_eq!(world.server.requests().len(), 1);
    let left = fs::read_dir(world.path("jobs/work")).unwrap().count();
    assert_eq!(left, 1, "nothing but the workspace is left");
}

#[test]
fn a_job_whose_node_died_goes_on_where_it_was() {
    if !installed(&["bc"]) {
        return;
    }
    let world = examples();
    let first = call(
        "call_0_1",
        "calculate",
        &json!({"expression": "7*8 + 2^7\n"}),
    );
    world.model_says([first, text("never heard").held()]);
    let running = array(&world).spawn();
    world.server.wait_for(2);
    for pid in world.processes() {
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        kill_process(pid, Signal::KILL).ok();
    }
    drop(running);
    array(&world).exits(0);
    assert_eq!(world.read("jobs/done/7.txt").trim_end(), "7*8 + 2^7 = 184");
    assert_eq!(
        task(&world).events("ACTION_REQUEST").len(),
        1,
        "the tool ran once"
    );
    assert_eq!(task(&world).events("ENGINE_START").len(), 2);
}

#[test]
fn a_job_whose_time_is_over_is_requeued() {
    let world = examples();
    world.model_says([text("never heard").held()]);
    let running = array(&world).spawn();
    world.server.wait_for(1);
    running.signal(Signal::TERM);
    running.wait().exits(143);
    let metadata = task(&world).metadata();
    assert_eq!(metadata["status"], "INTERRUPTED");
    assert_eq!(world.lines("scontrol"), ["requeue 100_7"]);
    world.model_says([text("184")]);
    array(&world).exits(0);
    assert_eq!(world.read("jobs/done/7.txt"), "184\n");
    // Not for ever.
    world.model_says([Reply::error(503, "down")]);
    array(&world)
        .env("SLURM_ARRAY_TASK_ID", "8")
        .env("SLURM_RESTART_COUNT", "10")
        .exits(75);
    assert_eq!(world.lines("scontrol").len(), 1);
}

#[test]
fn what_a_server_says_to_one_job_is_known_to_all() {
    let world = examples();
    let later = Reply::error(429, "later").header("Retry-After", "3600");
    world.model_says([later]);
    array(&world).exits(75);
    let other = array(&world).env("SLURM_ARRAY_TASK_ID", "8");
    other.exits(75);
    assert_eq!(world.server.requests().len(), 1);
}

#[test]
fn an_array_ends_before_its_time_and_stops_for_what_needs_a_person() {
    let world = examples();
    let at = |end: i64| array(&world).env("SLURM_JOB_END_TIME", end.to_string());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = i64::try_from(now.unwrap().as_secs()).unwrap();
    // Within the last minute and the half of one before a deadline, nothing is begun.
    at(now + 80).exits(75).says("deadline");
    assert_eq!(world.lines("scontrol"), ["requeue 100_7"]);
    assert!(world.server.requests().is_empty());
    // Older versions of Slurm have to be asked.
    world.script(
        "bin/scontrol",
        "#!/bin/sh\necho \"$@\" >> \"$HOME/scontrol\"\nif [ \"$1\" = show ]; then echo \"   StartTime=x EndTime=$(date +%Y-%m-%dT%H:%M:%S) Deadline=N/A\"; fi\n",
    );
    array(&world).env("SLURM_JOB_ID", "101").exits(4);
    assert_eq!(world.lines("scontrol")[1..], ["show job 101"]);
    // A budget that is spent is for a person to raise.
    world.model_says([call("c", "calculate", &json!({"expression": "1+1\n"}))]);
    let spent = at(now + 3600).env("BUDGET", "tokens=100").end();
    spent.exits(4).says("budget");
    assert_eq!(world.lines("scontrol").len(), 2);
    world.model_says([text("184")]);
    at(now + 3600).exits(0);
}
