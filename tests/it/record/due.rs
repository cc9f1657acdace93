//! The registry of runs that wait, and `delta due`.

use crate::engine::later::{BUILD, let_time_pass, waiting};
use crate::engine::torture::{strace_works, traced};
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

fn entry(world: &World) -> PathBuf {
    world.path(&format!(".local/state/delta/due/{}", world.latest().id()))
}

fn change_entry(world: &World, change: impl FnOnce(&mut Value)) {
    let path = entry(world);
    let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut value);
    fs::write(&path, value.to_string()).unwrap();
}

/// Lets the time of the run come, for its record and for the registry.
fn is_due(world: &World) {
    let_time_pass(&world.latest(), &["due_at"]);
    change_entry(world, |entry| {
        entry["due_at"] = json!("2026-01-02T03:04:05.678Z");
    });
}

fn due(world: &World) -> Delta {
    world.delta(["due"])
}

#[test]
fn due_lists_what_is_due_and_all_that_waits() {
    let world = World::unasked();
    due(&world).exits(0).prints("");
    let world = waiting(BUILD);
    due(&world).exits(0).prints("");
    let id = world.latest().id();
    let all = due(&world).arg("--all").exits(0).describe();
    assert!(all.contains(&id) && all.contains("/ws"), "{all}");
    is_due(&world);
    let registered_at: Value = serde_json::from_slice(&fs::read(entry(&world)).unwrap()).unwrap();
    let registered_at = &registered_at["registered_at"];
    let listed = due(&world).args(["--format", "json"]).exits(0);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(
        listed,
        json!([{
            "run_id": id,
            "workspace": world.path("ws"),
            "agent": world.path("agent"),
            "flow": false,
            "due_at": "2026-01-02T03:04:05.678Z",
            "registered_at": registered_at,
            "options": [],
        }])
    );
    assert!(!world.exists("looks"));
    due(&world).args(["--all", "--run"]).exits(2);
    due(&world).args(["--run", "--format", "json"]).exits(2);
    due(&world).args(["-j", "2"]).exits(2);
}

#[test]
fn due_starts_what_is_due_with_the_options_of_its_start() {
    let world = World::with_tools(BUILD);
    world.model_says([
        call("call_1", "build", &json!({"branch": "main"})),
        text("done"),
    ]);
    world.write("code", "0");
    world.write("said", "all green\n");
    let options = [
        "--set",
        "llm.temperature=0.5",
        "--max-iterations",
        "7",
        "--budget",
        "tokens=900000,per=tree",
        "--accept",
        "cat > ../accepted",
        "--allow-host",
        "example.org",
    ];
    world.run("go").args(options).exits(75);
    // A start that is too early changes nothing, also without the options.
    world.go_on().exits(75);
    // Not due.
    due(&world).arg("--run").exits(0).prints("");
    assert!(!world.exists("looks"));
    is_due(&world);
    due(&world).arg("--run").exits(0).prints("done\n");
    let run = world.latest();
    assert_eq!(run.ending().0, "COMPLETED");
    assert_eq!(world.read("accepted"), "done");
    let start = run.events("ENGINE_START").pop().unwrap();
    assert_eq!(start["config"]["max_iterations"], 7);
    assert_eq!(start["config"]["budget"]["tokens"], 900_000);
    assert_eq!(start["config"]["llm"]["temperature"], 0.5);
    assert_eq!(start["allow_hosts"], json!(["example.org"]));
    assert!(!entry(&world).exists());
    due(&world).arg("--run").exits(0).prints("");
}

#[test]
fn a_clock_that_is_set_back_puts_no_start_off() {
    let world = waiting(BUILD);
    due(&world).exits(0).prints("");
    change_entry(&world, |entry| {
        assert!(entry["registered_at"].as_str() < entry["due_at"].as_str());
        entry["registered_at"] = entry["due_at"].clone();
    });
    let id = world.latest().id();
    let listed = due(&world).exits(0).describe();
    assert!(listed.contains(&id), "{listed}");
}

#[test]
fn an_entry_is_on_disk_before_its_run_waits() {
    if !strace_works() {
        return;
    }
    let world = World::with_tools(BUILD);
    world.model_says([call("call_1", "build", &json!({"branch": "main"}))]);
    let calls = "trace=fsync,fdatasync,rename,renameat,renameat2";
    traced(&world, &["-y", "-e", calls, "-o", "trace"]).exits(75);
    let dir = world.path(".local/state/delta/due");
    let entry = format!("{}/.", dir.display());
    let steps: Vec<String> = world
        .lines("trace")
        .into_iter()
        .filter(|line| line.contains(&*dir.to_string_lossy()))
        .map(|line| {
            let name = line.split('(').next().unwrap();
            let is_file = line.contains(&entry);
            format!("{name} {}", if is_file { "file" } else { "directory" })
        })
        .collect();
    // Once when the call is deferred, and once when the run ends.
    let once = ["fsync file", "rename file", "fsync directory"];
    assert_eq!(steps, [once, once].concat());
}

#[test]
fn a_start_that_ends_otherwise_than_expected_makes_due_fail() {
    let world = waiting(BUILD);
    is_due(&world);
    world.write("agent/agent.yaml", "name: [broken\n");
    due(&world).arg("--run").exits(1).says("exit code 78");
    assert!(entry(&world).exists());
    let world = waiting(BUILD);
    is_due(&world);
    // Not yet: 75.
    due(&world).arg("--run").exits(0).says("exit code 75");
}

#[test]
fn two_at_once_resume_nothing_twice() {
    let tools = BUILD.replace("cat ../said;", "echo up > ../ready; read x < ../go;");
    let world = waiting(&tools);
    world.write("code", "0");
    let (mut ready, mut go) = (world.fifo("ready"), world.fifo("go"));
    is_due(&world);
    let first = due(&world).arg("--run").spawn();
    ready.line();
    due(&world).arg("--run").exits(0).prints("");
    go.tell("x");
    first.wait().exits(0);
    assert_eq!(world.lines("looks").len(), 1);
    assert_eq!(world.latest().events("ENGINE_START").len(), 2);
}

#[test]
fn an_entry_without_a_run_to_start_is_dropped() {
    type Change = fn(&World);
    let cases: [(&str, Change); 6] = [
        ("it is gone", |world| {
            fs::remove_dir_all(world.latest().dir).unwrap();
        }),
        ("belongs to another directory", |world| {
            fs::rename(world.path("ws/.delta"), world.path("ws/old")).unwrap();
            let copied = std::process::Command::new("cp")
                .args([
                    "-a".as_ref(),
                    world.path("ws/old").as_os_str(),
                    world.path("ws/.delta").as_os_str(),
                ])
                .status();
            assert!(copied.unwrap().success());
        }),
        ("has no file 'origin'", |world| {
            fs::remove_file(world.latest().path("origin")).unwrap();
        }),
        ("it has ended", |world| {
            let kept = fs::read(entry(world)).unwrap();
            world.write("code", "0");
            world.run("go").exits(0);
            fs::write(entry(world), kept).unwrap();
        }),
        ("a run of another agent", |world| {
            world.write("other/agent.yaml", "name: probe\n");
            let other = world.path("other");
            change_entry(world, |entry| entry["agent"] = json!(other));
        }),
        ("a symbolic link leads to another workspace", |world| {
            fs::rename(world.path("ws"), world.path("moved")).unwrap();
            symlink("moved", world.path("ws")).unwrap();
        }),
    ];
    for (why, change) in cases {
        let world = waiting(BUILD);
        is_due(&world);
        let path = entry(&world);
        change(&world);
        let ended = due(&world).arg("--run").env("DELTA_ADOPT", "1");
        ended.exits(0).prints("").says("dropped run").says(why);
        assert!(!path.exists(), "{why}");
        assert!(why == "it has ended" || !world.exists("looks"), "{why}");
    }
}

#[test]
fn an_entry_that_is_damaged_or_has_another_name_is_reported_in_a_line_and_kept() {
    let world = waiting(BUILD);
    is_due(&world);
    let path = entry(&world);
    let good = fs::read(&path).unwrap();
    let mut other: Value = serde_json::from_slice(&good).unwrap();
    other["run_id"] = json!("another");
    let cases = [
        (Vec::new(), "it is damaged: EOF"),
        (b"{\"run_id\": 1}".to_vec(), "it is damaged: "),
        (
            other.to_string().into_bytes(),
            "it is named like another run",
        ),
    ];
    for (bytes, why) in cases {
        fs::write(&path, bytes).unwrap();
        for words in [&["--all"][..], &["--run"], &[]] {
            let ended = due(&world).args(words).exits(0).prints("").says(why);
            assert_eq!(ended.stderr.lines().count(), 1);
        }
        assert!(path.exists() && !world.exists("looks"), "{why}");
    }
    fs::write(&path, good).unwrap();
    due(&world).arg("--run").exits(0);
    assert!(world.exists("looks"));
}

/// The seconds until the next look at a run.
fn put_off(world: &World) -> i64 {
    let due_at = read_entry(world)["due_at"].as_str().unwrap().to_owned();
    let now = std::time::SystemTime::now();
    let text = format!("date -d {due_at} +%s");
    let date = std::process::Command::new("sh")
        .args(["-c", &text])
        .output();
    let at: i64 = String::from_utf8(date.unwrap().stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    at - now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        .cast_signed()
}

fn read_entry(world: &World) -> Value {
    serde_json::from_slice(&fs::read(entry(world)).unwrap()).unwrap()
}

/// A run whose call has ended, and whose model is then asked.
fn goes_on(replies: impl IntoIterator<Item = Reply>) -> World {
    let world = World::with_tools(BUILD).llm("max_retries: 0");
    let first = call("call_1", "build", &json!({"branch": "main"}));
    let replies = std::iter::once(first).chain(replies);
    world.model_says(replies).may_stay_unasked();
    world.write("said", "all green\n");
    world.write("code", "75");
    world.run("go").exits(75);
    world.write("code", "0");
    is_due(&world);
    world
}

#[test]
fn a_run_that_is_interrupted_stays_and_is_looked_at_after_longer_and_longer() {
    let down = || Reply::error(503, "down");
    let world = goes_on([down(), down(), down(), text("done")]);
    for (tries, wait) in [(1, 60), (2, 120), (3, 240)] {
        due(&world).arg("--run").exits(0).says("exit code 75");
        assert_eq!(read_entry(&world)["tries"], tries);
        let left = put_off(&world);
        assert!((wait - 30..=wait).contains(&left), "{left} of {wait}");
        due(&world).arg("--run").exits(0).prints("");
        due(&world).arg("--all").exits(0).says("");
        change_entry(&world, |entry| {
            entry["due_at"] = json!("2026-01-02T03:04:05.678Z");
        });
    }
    change_entry(&world, |entry| {
        entry["tries"] = json!(40);
    });
    due(&world).arg("--run").exits(0).prints("done\n");
    assert!(!entry(&world).exists());
}

#[test]
fn a_run_that_a_person_must_continue_is_held_until_then() {
    let refused = Reply::error(401, "bad key");
    let world = goes_on([refused, Reply::error(503, "down"), text("done")]);
    due(&world).arg("--run").exits(0).says("exit code 4");
    assert_eq!(read_entry(&world)["held"], true);
    change_entry(&world, |entry| {
        entry["due_at"] = json!("2026-01-02T03:04:05.678Z");
    });
    due(&world).exits(0).prints("");
    due(&world).arg("--run").exits(0).prints("");
    let all = due(&world).arg("--all").exits(0).describe();
    assert!(all.contains("held"), "{all}");
    world.go_on().exits(75);
    let read = read_entry(&world);
    assert_eq!(read.get("held"), None, "{read}");
    change_entry(&world, |entry| {
        entry["due_at"] = json!("2026-01-02T03:04:05.678Z");
    });
    due(&world).arg("--run").exits(0).prints("done\n");
    assert!(!entry(&world).exists());
}

#[test]
fn a_start_that_dies_is_put_off_and_one_that_due_is_told_to_end_is_not() {
    let tools = BUILD.replace("cat ../said;", "echo up > ../ready; read x < ../go;");
    for dies in [true, false] {
        let world = waiting(&tools);
        let mut ready = world.fifo("ready");
        let _go = world.fifo("go");
        is_due(&world);
        let before = read_entry(&world);
        let running = due(&world).arg("--run").spawn();
        ready.line();
        if dies {
            let metadata = world.latest().metadata();
            let pid = metadata["pid"].as_u64().unwrap();
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            running.wait().exits(1);
            assert_eq!(read_entry(&world)["tries"], 1);
            assert!((30..=60).contains(&put_off(&world)));
        } else {
            running.signal(rustix::process::Signal::TERM);
            running.wait().exits(143);
            assert_eq!(read_entry(&world), before);
        }
    }
}

#[test]
fn what_another_could_have_written_begins_nothing() {
    let world = waiting(BUILD);
    is_due(&world);
    let path = entry(&world);
    let dir = path.parent().unwrap().to_owned();
    // Others may write the entry.
    fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    due(&world).arg("--run").exits(0).prints("").says("skipped");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    // Another name of it, and a link.
    fs::hard_link(&path, world.path("second")).unwrap();
    due(&world).arg("--run").exits(0).prints("").says("skipped");
    fs::rename(world.path("second"), world.path("moved")).unwrap();
    fs::remove_file(&path).unwrap();
    symlink(world.path("moved"), &path).unwrap();
    due(&world).arg("--run").exits(0).prints("").says("skipped");
    fs::remove_file(&path).unwrap();
    fs::rename(world.path("moved"), &path).unwrap();
    // Members that this version does not know, rubbish, a directory, a pipe.
    fs::write(dir.join("a"), "{\"run_id\": \"a\"}").unwrap();
    fs::write(dir.join("b"), "\0\0").unwrap();
    fs::create_dir(dir.join("c")).unwrap();
    let _pipe = Fifo::new(dir.join("d"));
    let ended = due(&world).exits(0);
    assert_eq!(ended.stderr.matches("is skipped").count(), 4);
    // Others may write the directory.
    fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
    due(&world).arg("--run").refuses(78, "others can write to");
    fs::set_permissions(&dir, PermissionsExt::from_mode(0o700)).unwrap();
    assert!(!world.exists("looks"));
}

#[test]
fn a_sandbox_keeps_the_registry_as_it_is() {
    let world = World::unasked();
    fs::create_dir(world.path("empty")).unwrap();
    let sandbox = |script: &str| {
        let home = world.home().to_str().unwrap();
        let words = [
            "sandbox", "--strict", "--rw", home, "--", "sh", "-c", script,
        ];
        world.delta(words).cwd(world.path("empty"))
    };
    if sandbox(":").end().code() != Some(0) {
        eprintln!("skipped: no namespaces");
        return;
    }
    let write = "cd \"$HOME\" && touch here && mkdir -p .local/state/delta/due; ! touch .local/state/delta/due/x";
    sandbox(write).exits(0);
    let replace = "cd \"$HOME\" && ! mv .local/state/delta .local/state/other && ! rm -r .local/state/delta/due";
    sandbox(replace).exits(0);
    assert!(world.exists("here") && !world.exists(".local/state/delta/due/x"));
}

#[test]
fn a_run_whose_agent_tools_could_change_is_not_registered() {
    let world = World::with_tools(BUILD);
    world.model_says([call("call_1", "build", &json!({"branch": "main"}))]);
    fs::rename(world.path("agent"), world.path("inside")).unwrap();
    fs::create_dir(world.path("ws")).unwrap();
    fs::rename(world.path("inside"), world.path("ws/agent")).unwrap();
    world
        .delta(["run", "-a", "ws/agent", "-w", "ws", "-m", "go"])
        .exits(75)
        .says("not registered")
        .says("inside the workspace");
    assert!(!entry(&world).exists());
    // One that was registered before it was moved there.
    let world = waiting(BUILD);
    is_due(&world);
    fs::rename(world.path("agent"), world.path("ws/agent")).unwrap();
    symlink(world.path("ws/agent"), world.path("agent")).unwrap();
    due(&world)
        .arg("--run")
        .exits(0)
        .says("inside the workspace");
    assert!(!world.exists("looks"));
}

#[test]
fn a_run_whose_records_tools_could_change_is_not_registered() {
    let world = World::with_tools(BUILD);
    world.model_says([call("call_1", "build", &json!({"branch": "main"}))]);
    world.write("ws/code", "75");
    world.write("ws/said", "");
    let run = || world.delta(["run", "-a", "agent", "-w", "ws/inner", "-m", "go"]);
    run().exits(75).does_not_say("not registered");
    let inner = Run::latest(&world.path("ws/inner"));
    let entry = world.path(&format!(".local/state/delta/due/{}", inner.id()));
    let text = fs::read_to_string(&entry).unwrap();
    let due_at = inner.metadata()["due_at"].as_str().unwrap().to_owned();
    let text = text.replace(&due_at, "2026-01-02T03:04:05.678Z");
    fs::write(&entry, text).unwrap();
    let_time_pass(&inner, &["due_at"]);
    fs::create_dir(world.path("ws/.delta")).unwrap();
    let ended = due(&world).arg("--run").exits(0).prints("");
    ended.says("whose tools can change its records");
    assert!(!entry.exists() && !world.exists("ws/looks"));
    run()
        .exits(75)
        .says("not registered")
        .says("/ws/inner is inside the workspace");
    due(&world).arg("--all").exits(0).prints("");
}

#[test]
fn an_entry_that_cannot_be_looked_at_stays() {
    let world = waiting(BUILD);
    is_due(&world);
    let path = entry(&world);
    fs::rename(world.path("ws"), world.path("moved")).unwrap();
    symlink("ws", world.path("ws")).unwrap();
    due(&world).arg("--run").exits(0).says("skipped");
    assert!(path.exists());
}

#[test]
fn where_the_registry_cannot_be_written_the_run_reports_it() {
    let world = World::with_tools(BUILD);
    world.model_says([call("call_1", "build", &json!({"branch": "main"}))]);
    world.write("state", "");
    world
        .run("go")
        .env("XDG_STATE_HOME", world.path("state"))
        .exits(75)
        .says("not registered, so `delta due` does not start it again");
}

#[test]
fn runs_of_one_name_in_two_workspaces_are_both_registered() {
    let world = World::with_tools(BUILD);
    world.server.answers(|request: &Received| {
        match request.messages().iter().any(|it| it["role"] == "tool") {
            true => text("done"),
            false => call("call_1", "build", &json!({"branch": "main"})),
        }
    });
    world.write("code", "75");
    world.write("said", "");
    for workspace in ["ws", "ws2", "ws"] {
        let run = ["run", "-a", "agent", "-w", workspace, "-m", "go"];
        world.delta(run).args(["--run-id", "nightly"]).exits(75);
    }
    let all = due(&world).args(["--all", "--format", "json"]).exits(0);
    let all: Value = serde_json::from_slice(&all.stdout).unwrap();
    let places: Vec<&Value> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["workspace"])
        .collect();
    assert_eq!(places.len(), 2);
    assert_ne!(places[0], places[1]);
    // The end of one changes nothing about the other, which has one entry as before.
    world.write("code", "0");
    let_time_pass(&Run::latest(&world.path("ws")), &["due_at"]);
    let first = ["run", "-a", "agent", "-w", "ws", "-m", "go"];
    world.delta(first).args(["--run-id", "nightly"]).exits(0);
    let second = ["continue", "-w", "ws2", "--run-id", "nightly"];
    world.delta(second).exits(75);
    let all = due(&world).args(["--all", "--format", "json"]).exits(0);
    let all: Value = serde_json::from_slice(&all.stdout).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 1);
    assert_eq!(all[0]["workspace"], json!(world.path("ws2")));
}

#[test]
fn later_waits_for_a_time() {
    let tools = "- {name: nap, exec: 'delta later --for ${span}', later: {check: [delta, later, --check]}}\n";
    let world = World::with_tools(tools);
    world
        .model_says([call("call_1", "nap", &json!({"span": "3d"})), text("done")])
        .may_stay_unasked();
    world.run("go").exits(75);
    let run = world.latest();
    let event = run.events("ACTION_DEFERRED").remove(0);
    let handle = event["handle"].as_str().unwrap();
    let second = |text: &Value| text.as_str().unwrap()[..17].to_owned();
    assert_eq!(second(&event["due_at"]), handle[..17]);
    assert!(event["expires_at"].as_str().unwrap() > event["due_at"].as_str().unwrap());
    // Too early: the look finds the rest of the time.
    let_time_pass(&run, &["due_at"]);
    world.run("go").exits(75);
    let look = run.events("DEFERRED_LOOK").remove(0);
    assert_eq!(look["exit_code"], 75);
    assert_eq!(second(&look["due_at"]), handle[..17]);
    let_time_pass(&run, &["due_at", "handle"]);
    world.run("go").exits(0);
    assert!(
        world
            .server
            .last()
            .observation("call_1")
            .starts_with("it is 20")
    );
}

#[test]
fn later_waits_until_a_time_that_is_given() {
    let tools = "- {name: nap, exec: 'delta later --at ${time}', later: {check: [delta, later, --check]}}\n";
    for (time, starts) in [
        ("2041-02-03T04:05:06Z", "2041-02-03T04:05:0"),
        ("2243477106", "2041-02-03T04:05:0"),
        ("+1m", "20"),
    ] {
        let world = World::with_tools(tools);
        world.model_says([call("call_1", "nap", &json!({"time": time}))]);
        world.run("go").exits(75);
        let event = world.latest().events("ACTION_DEFERRED").remove(0);
        for member in ["handle", "due_at"] {
            let text = event[member].as_str().unwrap();
            assert!(text.starts_with(starts), "{event}");
        }
        assert!(event["expires_at"].as_str() > event["due_at"].as_str());
    }
}

#[test]
fn later_writes_its_times_from_inside_a_sandbox() {
    let delta = PathBuf::from(env!("CARGO_BIN_EXE_delta"));
    let dir = delta.parent().unwrap().display();
    let world = World::on_disk().top(&format!(
        "wrapper: [delta, sandbox, --no-network, --rw, '${{CWD}}', --ro, '{dir}', --]"
    ));
    let world = world.tools(
        "- {name: nap, exec: 'delta later --for 3d', later: {check: [delta, later, --check]}}\n",
    );
    world
        .model_says([call("call_1", "nap", &json!({})), text("done")])
        .may_stay_unasked();
    let started = world.run("go").end();
    let run = world.latest();
    if started.code() != Some(75) {
        let observed = run.result(1)["observation_content"].to_string();
        assert!(observed.contains("no user namespace"), "{observed}");
        eprintln!("skipped: {observed}");
        return;
    }
    let event = run.events("ACTION_DEFERRED").remove(0);
    // The second of the day; between the two times a second may end.
    let second = |time: &Value| {
        let parts = time.as_str().unwrap()[11..19].split(':');
        parts.fold(0, |sum, part| sum * 60 + part.parse::<i32>().unwrap())
    };
    let is_it = |time: &Value| (second(time) - second(&event["handle"])).rem_euclid(86_400) < 60;
    assert!(is_it(&event["due_at"]), "{event}");
    // The look writes its times, too.
    let_time_pass(&run, &["due_at"]);
    world.run("go").exits(75);
    let look = run.events("DEFERRED_LOOK").remove(0);
    assert!(is_it(&look["due_at"]), "{look} {event}");
}

#[test]
fn later_takes_nothing_but_a_time() {
    let world = World::unasked();
    let later = || world.delta(["later"]);
    for wrong in [
        &["--for", "2"][..],
        &["--for", "soon"],
        &["--at", "noon"],
        &["--for", "2h", "--at", "+2h"],
        &[],
        &["--for", "2h"],
        &["--check"],
    ] {
        later().args(wrong.iter()).exits(2).prints("");
    }
    let check = |handle: &str| later().arg("--check").env("DELTA_HANDLE", handle);
    check("ci-7; rm -rf /").refuses(10, "no time");
    check("2026-01-02T03:04:05.678Z").exits(0);
    check("2999-01-02T03:04:05.678Z").exits(75).prints("");
}
