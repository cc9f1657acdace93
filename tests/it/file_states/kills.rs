//! A run that is killed at any moment loses no state but the one that is being taken.

use super::*;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::Duration;

const ITERATIONS: usize = 4;

fn model(request: &Received) -> Reply {
    let messages = request.messages();
    let done = messages
        .iter()
        .filter(|it| it["role"] == "assistant")
        .count();
    if done == ITERATIONS {
        return text("done");
    }
    let id = format!("c{done}");
    let script = format!(
        "echo {done} >> a; echo {done} > f{done}; rm -f f{}",
        done.wrapping_sub(2)
    );
    call(&id, "again", &json!({"command": script}))
}

/// The files of the workspace, and those of a commit.
fn on_disk(world: &World) -> BTreeMap<String, String> {
    let entries = fs::read_dir(world.workspace())
        .unwrap()
        .map(|it| it.unwrap());
    let files = entries.filter(|it| it.file_type().unwrap().is_file());
    files
        .map(|it| {
            (
                it.file_name().into_string().unwrap(),
                fs::read_to_string(it.path()).unwrap(),
            )
        })
        .collect()
}

fn in_state(world: &World, commit: &str) -> BTreeMap<String, String> {
    let names = git(world, &["ls-tree", "-r", "--name-only", commit]);
    let content = |name: &str| git(world, &["cat-file", "blob", &format!("{commit}:{name}")]);
    names
        .lines()
        .map(|name| (name.to_owned(), content(name)))
        .collect()
}

/// Kills a run after each of these times, and lets it end. Returns how often it was killed.
#[track_caller]
fn kill_and_go_on(waits: Vec<Duration>) -> usize {
    let tool = "- {name: again, on_resume: retry, exec: 'sh -c ${command}'}";
    let world = World::with_tools(tool).top("files: git");
    world.server.answers(model);
    world.write("ws/a", "begin\n");
    let mut kills = 0;
    let has_ended = waits.into_iter().any(|wait| {
        let ended = world.run("go").spawn().signal_after(wait, Signal::KILL);
        let was_killed = ended.killed_by().is_some();
        kills += usize::from(was_killed);
        check(&world, false);
        // Killed between its last act and its end, it is over, too.
        let is_told = ended.printed("done\n");
        !was_killed || is_told && world.latest().metadata()["status"] == "COMPLETED"
    });
    if !has_ended {
        world.run("go").exits(0);
    }
    assert_eq!(world.runs().len(), 1);
    check(&world, true);
    kills
}

/// What holds after each kill: all states that the journal has are whole, in order, and the last one is the disk if the run has ended.
#[track_caller]
fn check(world: &World, has_ended: bool) {
    let Some(run) = world.runs().pop() else {
        return;
    };
    let events = run.events_so_far("FILES");
    let mut iteration = 0;
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["n"], at + 1, "{events:?}");
        let own = event["iteration"].as_u64().unwrap();
        assert!(own >= iteration, "{events:?}");
        iteration = own;
        in_state(world, event["commit"].as_str().unwrap());
    }
    if has_ended {
        let last = events.last().unwrap()["commit"].as_str().unwrap();
        assert_eq!(in_state(world, last), on_disk(world), "{events:?}");
        assert_eq!(warnings(world), [""; 0]);
        assert!(events.iter().all(|it| it["why"] != "outside"), "{events:?}");
        git(world, &["fsck", "--full", "--strict"]);
    }
}

#[test]
fn no_state_is_lost_but_the_one_under_way() {
    // `DELTA_FILE_KILLS=500` is the long form of this test.
    let kills = given_or("DELTA_FILE_KILLS", 40);
    let mut killed = 0;
    let mut random = fastrand::Rng::with_seed(seed());
    while killed < kills {
        let waits: Vec<Duration> = (0..12)
            .map(|_| Duration::from_millis(random.u64(15..160)))
            .collect();
        killed += kill_and_go_on(waits).max(1);
    }
}
