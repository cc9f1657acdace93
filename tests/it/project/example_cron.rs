//! examples/orchestration/cron: a daily run, its guard and its reports.

use crate::harness::*;
use std::fs;

#[test]
fn cron_runs_as_shown() {
    let Some(world) = as_shown("orchestration/cron", &["flock"]) else {
        return;
    };
    assert!(!world.exists("mail"), "nothing was wrong");
    given_again(&world, "orchestration/cron");
}

fn scheduled(world: &World, agent: &str) -> Delta {
    let line =
        format!("exec examples/orchestration/cron/scheduled.sh examples/{agent} daily 'Where?'");
    shell(world, &line)
        .env("RUN_OPTIONS", ASKS_SERVER)
        .env("MAILTO", "ops")
}

#[test]
fn cron_reports_each_trouble_once_and_goes_on() {
    if !installed(&["flock"]) {
        return;
    }
    let world = examples();
    let down = || Reply::error(503, "come back later");
    world.model_says([down(), down()]);
    scheduled(&world, "file-reader").exits(75).prints("");
    let first = world.read("mail");
    assert!(
        first.starts_with("-s\nfile-reader: interrupted, the next start resumes\nops\n"),
        "{first}"
    );
    assert!(first.contains("come back later"), "{first}");
    scheduled(&world, "file-reader").exits(75);
    assert_eq!(world.read("mail"), first, "the same is not told again");
    scheduled(&world, "file-reader").exits(0);
    assert_eq!(world.read("mail"), first);
    let answers = files_below(&world.path("daily/answers"));
    assert!(
        fs::read_to_string(&answers[0])
            .unwrap()
            .starts_with("The heron was seen twice")
    );
    let asked = world.server.requests().len();
    scheduled(&world, "file-reader").exits(0);
    assert_eq!(
        world.server.requests().len(),
        asked,
        "the day's run is complete"
    );
}

#[test]
fn cron_goes_on_with_the_run_of_an_earlier_day() {
    if !installed(&["flock"]) {
        return;
    }
    let world = examples();
    world.model_says([Reply::error(503, "down")]);
    let line = format!(
        "delta run {ASKS_SERVER} -a examples/file-reader -w daily/work --run-id 2020-02-20 -m 'Where?'"
    );
    shell(&world, &line).exits(75);
    scheduled(&world, "file-reader").exits(0);
    assert!(world.exists("daily/answers/2020-02-20.txt"));
    // Then it is the turn of today's.
    scheduled(&world, "file-reader").exits(0);
    assert_eq!(files_below(&world.path("daily/answers")).len(), 2);
}

#[test]
fn cron_tells_of_a_question() {
    if !installed(&["flock", "python3"]) {
        return;
    }
    let world = examples();
    scheduled(&world, "orchestration/approval").exits(101);
    let mail = world.read("mail");
    assert!(
        mail.starts_with("-s\napproval: waiting for an answer\nops\n"),
        "{mail}"
    );
    assert!(mail.contains("May I delete old.log ?"), "{mail}");
}

#[test]
fn cron_does_not_start_beside_itself() {
    if !installed(&["flock"]) {
        return;
    }
    let world = examples();
    world.model_says([text("late").held()]);
    let first = scheduled(&world, "file-reader").spawn();
    world.server.wait_for(1);
    scheduled(&world, "file-reader").exits(0);
    assert_eq!(world.server.requests().len(), 1);
    assert!(!world.exists("mail"));
    // Without the guard the run is safe all the same.
    let run = Run::latest(&world.path("daily/work")).id();
    let line =
        format!("delta run -a examples/file-reader -w daily/work --run-id {run} -m 'Where?'");
    shell(&world, &line).exits(75).says("already running");
    world.server.release();
    first.wait().exits(0);
    assert_eq!(
        fs::read_to_string(&files_below(&world.path("daily/answers"))[0]).unwrap(),
        "late\n"
    );
}
