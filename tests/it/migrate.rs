//! Workspaces and journals of older engines: migrated, read, continued.

use crate::harness::*;
use rustix::fs::{CWD, FlockOperation, Mode, flock, mkfifoat};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

const ID: &str = "20250926_120006_a1b2c3";

/// An event as engines up to 1.3 write it.
fn nested(seq: u64, kind: &str, payload: &Value) -> String {
    let at = format!("2025-09-26T12:00:{:02}.000Z", seq % 60);
    let event = json!({"seq": seq, "timestamp": at, "type": kind, "payload": payload});
    format!("{event}\n")
}

impl World {
    /// The first events of an old run of the agent: two iterations, the second with two actions.
    fn old_events(&self) -> String {
        let agent = self.path("agent");
        [
            nested(
                1,
                "RUN_START",
                &json!({"run_id": ID, "task": "list \"it\"", "agent_ref": agent}),
            ),
            nested(
                2,
                "HOOK_EXECUTION_AUDIT",
                &json!({"hook_name": "pre_llm_req", "status": "SUCCESS"}),
            ),
            nested(
                3,
                "THOUGHT",
                &json!({"content": "I look.", "llm_invocation_ref": "u1"}),
            ),
            nested(
                4,
                "ACTION_REQUEST",
                &json!({"action_id": "a-1", "tool_name": "list",
                "tool_args": {"dir": "."}, "resolved_command": "ls ."}),
            ),
            nested(
                5,
                "ACTION_RESULT",
                &json!({"action_id": "a-1", "status": "SUCCESS",
                "observation_content": "x\ny", "execution_ref": "a-1"}),
            ),
            nested(
                6,
                "THOUGHT",
                &json!({"content": "", "llm_invocation_ref": "u2"}),
            ),
            nested(
                7,
                "ACTION_REQUEST",
                &json!({"action_id": "a-2", "tool_name": "list", "tool_args": {}}),
            ),
            nested(
                8,
                "ACTION_RESULT",
                &json!({"action_id": "a-2", "observation_content": "z"}),
            ),
            nested(
                9,
                "ACTION_REQUEST",
                &json!({"action_id": "a-3", "tool_name": "other", "tool_args": {"n": 1}}),
            ),
        ]
        .concat()
    }

    /// Puts a journal into an old workspace.
    fn old_workspace(&self, journal: &str, metadata: Option<&Value>) {
        let run = format!("ws/.delta/runs/{ID}");
        self.write("ws/data.csv", "1,2\n");
        self.write("ws/.delta/schema_version.txt", "1.1");
        self.write("ws/.delta/runs/LATEST", format!("{ID}\n"));
        self.write(&format!("{run}/execution/journal.jsonl"), journal);
        if let Some(metadata) = metadata {
            self.write(
                &format!("{run}/execution/metadata.json"),
                metadata.to_string(),
            );
        }
        self.write(
            &format!("{run}/configuration/resolved_config.yaml"),
            "name: probe\n",
        );
        self.write(
            &format!("{run}/runtime_io/invocations/u1/request.json"),
            "{\"n\":1}",
        );
        self.write(
            &format!("{run}/runtime_io/tool_executions/a-1/stdout.log"),
            "x\ny",
        );
    }

    #[track_caller]
    fn migrated(&self) -> Outcome {
        self.delta(["migrate", "--adopt", "-w", "ws"])
            .exits(0)
            .prints("")
    }
}

fn messages(request: &Received) -> Vec<Value> {
    request.messages().split_off(1)
}

fn called(id: &str, tool: &str, arguments: &str) -> Value {
    let function = json!({"name": tool, "arguments": arguments});
    json!({"id": id, "type": "function", "function": function})
}

fn observed(id: &str, content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

#[test]
fn an_old_run_is_migrated_and_continued_where_it_was() {
    let world = World::new();
    world.old_workspace(&world.old_events(), None);
    for args in [
        &["continue", "-w", "ws"][..],
        &["run", "-a", "agent", "-w", "ws", "-m", "go"],
        &["request", "-w", "ws", "LATEST"],
    ] {
        let outcome = world.delta(args.iter().copied()).exits(1);
        outcome.says("delta migrate --adopt -w ").says_one_line();
    }
    world.migrated().says("migrated ").says("with 1 run");
    let run = world.latest();
    assert_eq!(run.id(), ID);
    assert_eq!(run.metadata()["status"], "INTERRUPTED");
    assert_eq!(run.metadata()["agent_name"], "probe");
    assert_eq!(run.metadata()["initial_message"], "list \"it\"");
    world
        .delta(["request", "-w", "ws", ID])
        .exits(0)
        .prints("{\"n\":1}");

    world.model_says([text("done")]);
    world.go_on().exits(0).prints("done\n");
    let sent = messages(&world.server.last());
    let note = sent[5]["content"].as_str().unwrap();
    assert!(note.contains("has not been run again"), "{note}");
    let first = [called("a-1", "list", "{\"dir\":\".\"}")];
    let both = [
        called("a-2", "list", "{}"),
        called("a-3", "other", "{\"n\":1}"),
    ];
    let expected = [
        json!({"role": "user", "content": "list \"it\""}),
        json!({"role": "assistant", "content": "I look.", "tool_calls": first}),
        observed("a-1", "x\ny"),
        json!({"role": "assistant", "content": "", "tool_calls": both}),
        observed("a-2", "z"),
        observed("a-3", note),
    ];
    assert_eq!(sent, expected);
    assert_eq!(run.ending().0, "COMPLETED");
    assert_eq!(run.metadata()["iterations"], 3);
    // Today's requests stand behind the old ones.
    let newest = world.delta(["request", "-w", "ws", ID]).exits(0);
    assert_eq!(newest.stdout, world.server.last().body);
    let first = world.delta(["request", "-w", "ws", ID, "1"]).end();
    first.exits(0).prints("{\"n\":1}");
    // What was there is still the beginning.
    assert!(run.text("journal.jsonl").starts_with(&world.old_events()));
}

#[test]
fn an_old_run_can_be_continued_from_every_event_on() {
    let world = World::new();
    let events = world.old_events();
    let lines: Vec<&str> = events.split_inclusive('\n').collect();
    for count in 1..=lines.len() {
        let world = World::new();
        // The agent is another world's, and so is named here.
        let journal = lines[..count].concat();
        let journal = journal.replace(
            &*events_home(&events),
            &world.path("agent").to_string_lossy(),
        );
        world.old_workspace(&journal, None);
        world.migrated();
        // The server refuses what a strict one would.
        world.model_says([text("done")]);
        world.go_on().exits(0).prints("done\n");
        let said = messages(&world.server.last());
        let task = json!({"role": "user", "content": "list \"it\""});
        assert_eq!(said[0], task, "{count} events");
    }
}

/// The agent's directory that these events name.
fn events_home(events: &str) -> String {
    let first: Value = serde_json::from_str(events.lines().next().unwrap()).unwrap();
    first["payload"]["agent_ref"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_that_was_complete_is_continued_with_another_message() {
    let world = World::new();
    let end = [
        nested(
            10,
            "ACTION_RESULT",
            &json!({"action_id": "a-3", "observation_content": "w"}),
        ),
        nested(11, "THOUGHT", &json!({"content": "All listed."})),
        nested(12, "RUN_END", &json!({"status": "COMPLETED"})),
    ];
    world.old_workspace(&(world.old_events() + &end.concat()), None);
    world.migrated();
    world.go_on().exits(2).says("COMPLETED");
    world.model_says([text("more")]);
    world.go_on().args(["-m", "and?"]).exits(0).prints("more\n");
    let said = messages(&world.server.last());
    assert_eq!(said.len(), 8);
    assert_eq!(said[6]["content"], "All listed.");
    assert_eq!(said[7], json!({"role": "user", "content": "and?"}));
}

#[test]
fn a_window_over_old_events_keeps_the_task_and_the_newest_iterations() {
    let world = World::new();
    let context = world.read("agent/context.yaml");
    let context = context.replace("{type: journal,", "{type: journal, max_iterations: 1,");
    world.write("agent/context.yaml", context);
    world.old_workspace(&world.old_events(), None);
    world.migrated();
    world.model_says([text("done")]);
    world.go_on().exits(0);
    let said = messages(&world.server.last());
    assert_eq!(roles(&said), ["user", "assistant", "tool", "tool"]);
    assert_eq!(world.latest().metadata()["iterations"], 3);
}

#[test]
fn flat_events_without_ids_or_calls_are_read_too() {
    let world = World::new();
    let home = world.path("agent");
    let run = "20251013_143522_a1b2c3";
    let at = "2025-10-13T14:35:22.123Z";
    let events = [
        json!({"type": "ENGINE_START", "run_id": run, "timestamp": at, "agent_home": home,
            "work_dir": world.workspace(), "config": {"name": "probe"}}),
        json!({"type": "THOUGHT", "iteration": 1, "timestamp": at, "content": "I look."}),
        json!({"type": "ACTION_REQUEST", "iteration": 1, "timestamp": at, "tool_name": "list",
            "tool_args": {"directory": "."}}),
        json!({"type": "ACTION_RESULT", "iteration": 1, "timestamp": at, "tool_name": "list",
            "observation_content": "a", "exit_code": 0}),
        json!({"type": "ACTION_REQUEST", "iteration": 1, "timestamp": at, "tool_name": "list", "tool_args": {}}),
        json!({"type": "ACTION_RESULT", "iteration": 1, "timestamp": at, "tool_name": "list",
            "observation_content": "b", "exit_code": 0}),
        json!({"type": "THOUGHT", "iteration": 2, "timestamp": at, "content": "I ask."}),
        json!({"type": "HUMAN_INPUT_REQUEST", "timestamp": at, "prompt": "Which?", "input_type": "text"}),
        json!({"type": "HUMAN_INPUT_RECEIVED", "timestamp": at, "response": "this"}),
        json!({"type": "THOUGHT", "iteration": 3, "timestamp": at, "content": "I write."}),
        json!({"type": "ACTION_REQUEST", "iteration": 3, "timestamp": at, "tool_name": "write", "tool_args": {}}),
    ];
    let journal: String = events.iter().map(|event| format!("{event}\n")).collect();
    world.write(&format!("ws/.delta/{run}/journal.jsonl"), journal);
    world.write(
        &format!("ws/.delta/{run}/metadata.json"),
        json!({"run_id": run, "agent_name": "probe", "status": "RUNNING", "initial_message": "go",
            "agent_home": home})
        .to_string(),
    );
    world.write("ws/.delta/LATEST", format!("{run}\n"));
    world.write("ws/.delta/VERSION", "1.2\n");
    world.adopt("ws");
    world.model_says([text("done")]);
    world.go_on().exits(0).prints("done\n");
    let mut said = messages(&world.server.last());
    // Such engines kept the task elsewhere.
    let task = json!({"role": "user", "content": "go"});
    assert_eq!(said.remove(0), task);
    let ids = ["action_3", "action_5", "action_8", "action_11"];
    let two = [
        called(ids[0], "list", "{\"directory\":\".\"}"),
        called(ids[1], "list", "{}"),
    ];
    let one = |id, tool, arguments| [called(id, tool, arguments)];
    assert_eq!(
        said[0],
        json!({"role": "assistant", "content": "I look.", "tool_calls": two})
    );
    assert_eq!(said[1..3], [observed(ids[0], "a"), observed(ids[1], "b")]);
    let question = one(ids[2], "ask_human", "{\"prompt\":\"Which?\"}");
    assert_eq!(said[3]["tool_calls"], json!(question));
    assert_eq!(said[4], observed(ids[2], "this"));
    assert_eq!(said[5]["tool_calls"], json!(one(ids[3], "write", "{}")));
    assert_eq!(said[6]["tool_call_id"], ids[3]);
    assert_eq!(said.len(), 7);
}

#[test]
fn an_action_of_todays_whose_call_was_taken_out_stays_out() {
    let world = World::with_tools("- {name: list, exec: ls}");
    world.model_says([call("c", "list", &json!({})), text("done")]);
    world.run("go").exits(0);
    let run = world.latest();
    let lines = run.journal().into_iter().filter_map(|mut event| {
        if event["type"] == "THOUGHT" && event["iteration"] == 1 {
            event.as_object_mut().unwrap().remove("tool_calls");
            event["content"] = "Nothing to do.".into();
        }
        (event["type"] != "ENGINE_END").then(|| format!("{event}\n"))
    });
    let text_of_journal: String = lines.collect();
    fs::write(run.path("journal.jsonl"), text_of_journal).unwrap();
    world.model_says([text("more")]);
    world.go_on().args(["-m", "on"]).exits(0);
    let said = messages(&world.server.last());
    assert!(
        said.iter()
            .all(|m| m["role"] != "tool" && m["tool_calls"].is_null()),
        "{said:?}"
    );
}

#[test]
fn migrating_again_changes_nothing() {
    let world = World::new();
    world.old_workspace(&world.old_events(), None);
    world.migrated();
    let before = files_below(&world.workspace());
    let metadata = world.latest().text("metadata.json");
    world.migrated().says("has the current layout");
    assert_eq!(files_below(&world.workspace()), before);
    assert_eq!(world.latest().text("metadata.json"), metadata);
    assert_eq!(world.read("ws/data.csv"), "1,2\n");
}

#[test]
fn two_at_once_come_to_one_end() {
    let world = World::new();
    world.old_workspace(&world.old_events(), None);
    let both: Vec<Running> = (0..8)
        .map(|_| world.delta(["migrate", "--adopt", "-w", "ws"]).spawn())
        .collect();
    for one in both {
        one.wait().exits(0);
    }
    assert_eq!(world.latest().id(), ID);
    assert!(!world.exists("ws/.delta/runs") && !world.exists("ws/.delta/schema_version.txt"));
}

/// Migrating is refused, and nothing has been changed.
#[track_caller]
fn refuses(world: &World, code: i32, words: &str) {
    let before = files_below(&world.path("ws"));
    let outcome = world.delta(["migrate", "--adopt", "-w", "ws"]).exits(code);
    outcome.prints("").says(words).says_one_line();
    assert_eq!(files_below(&world.path("ws")), before);
}

#[test]
fn a_workspace_that_somebody_works_in_is_refused() {
    let world = World::new();
    let pid = std::process::id();
    let running = json!({"run_id": ID, "status": "RUNNING", "pid": pid});
    world.old_workspace(&world.old_events(), Some(&running));
    refuses(
        &world,
        75,
        &format!("run {ID} is already running, pid {pid}"),
    );
    let ended = json!({"run_id": ID, "status": "RUNNING", "pid": 0x7fff_fff0});
    world.old_workspace(&world.old_events(), Some(&ended));
    let journal = world.path(&format!("ws/.delta/runs/{ID}/execution/journal.jsonl"));
    // Not this process: what another test starts has its files, too, for an instant.
    let mut writer = Command::new("sh")
        .args(["-c", "exec >>\"$0\"; echo open >&2; read _"])
        .arg(&journal)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    writer
        .stderr
        .as_mut()
        .unwrap()
        .read_exact(&mut [0])
        .unwrap();
    refuses(
        &world,
        75,
        &format!("process {} writes {}", writer.id(), journal.display()),
    );
    writer.wait().unwrap();
    // Whoever only reads it disturbs nobody.
    let reader = File::open(&journal).unwrap();
    flock(&reader, FlockOperation::LockExclusive).unwrap();
    refuses(&world, 75, &format!("run {ID} is already running"));
    flock(&reader, FlockOperation::Unlock).unwrap();
    world.migrated();
}

#[test]
fn a_layout_that_is_not_known_is_refused() {
    let change = |words: &str, change: &dyn Fn(&Path)| {
        let world = World::new();
        world.old_workspace(&world.old_events(), None);
        change(&world.path("ws/.delta"));
        refuses(&world, 1, words);
    };
    let put = |path: &str, text: &'static str| {
        let path = path.to_owned();
        move |control: &Path| {
            let path = control.join(&path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    };
    change(
        "names layout '7', which this delta does not know",
        &put("schema_version.txt", "7\n"),
    );
    change("VERSION names layout '9.9'", &put("VERSION", "9.9\n"));
    change(
        "runs/notes.txt is not a run of any known engine: it is not a directory",
        &put("runs/notes.txt", ""),
    );
    change("runs/.cache is not a run", &put("runs/.cache/x", ""));
    change(
        "runs/other is not a run of any known engine: it contains no part of a run",
        &put("runs/other/x", ""),
    );
    change("both ", &put(&format!("{ID}/journal.jsonl"), ""));
    change("both ", &put(&format!("runs/{ID}/journal.jsonl"), ""));
    change("both ", &put(&format!("runs/{ID}/io/x"), ""));
}

/// Migrating is refused when this path of the control plane is a link to where it has been moved, with the words behind
/// the path, and nothing has been changed on either side.
#[track_caller]
fn refuses_link(path: &str, words: &str) {
    let world = World::new();
    world.old_workspace(&world.old_events(), None);
    fs::create_dir_all(world.path("elsewhere")).unwrap();
    let (there, elsewhere) = (
        world.path(&format!("ws/.delta/{path}")),
        world.path("elsewhere/moved"),
    );
    // An engine in the middle of a migration has made it.
    if path.ends_with("/io") {
        let old = there.with_file_name("runtime_io");
        fs::rename(old, &there).unwrap();
    }
    fs::rename(&there, &elsewhere).unwrap();
    symlink(&elsewhere, &there).unwrap();
    let before = files_below(&elsewhere);
    refuses(&world, 1, &format!("{path}{words}"));
    assert_eq!(files_below(&elsewhere), before);
    // A link that leads nowhere is there, too.
    fs::remove_dir_all(&elsewhere).unwrap();
    refuses(&world, 1, &format!("{path}{words}"));
}

#[test]
fn no_link_leads_a_migration_out_of_the_workspace() {
    let no_directory = ": it is a link, or is no directory";
    refuses_link("runs", no_directory);
    refuses_link(
        &format!("runs/{ID}"),
        " is not a run of any known engine: it is a link",
    );
    for part in ["execution", "runtime_io", "io", "configuration"] {
        refuses_link(&format!("runs/{ID}/{part}"), no_directory);
    }
}

#[test]
fn what_a_step_could_not_replace_is_found_before_the_first_step() {
    let refuses_dir = |path: &str, words: &str| {
        let world = World::new();
        world.old_workspace(&world.old_events(), None);
        let path = world.path(&format!("ws/.delta/{path}"));
        fs::remove_file(&path).ok();
        fs::create_dir(&path).unwrap();
        refuses(&world, 1, words);
    };
    refuses_dir("runs/LATEST", "runs/LATEST: it is not a regular file");
    for name in ["io", "metadata.json.damaged"] {
        refuses_dir(
            &format!("runs/{ID}/execution/{name}"),
            &format!("execution/{name} belongs to no run"),
        );
    }
    for dir in ["runs".to_owned(), format!("runs/{ID}/execution")] {
        let world = World::new();
        world.old_workspace(&world.old_events(), None);
        let dir = world.path(&format!("ws/.delta/{dir}"));
        fs::write(dir.join(OsStr::from_bytes(b"\xff")), "").unwrap();
        refuses(&world, 1, "has an entry whose name is not UTF-8");
    }
    let world = World::new();
    world.old_workspace(&world.old_events(), None);
    symlink("nowhere", world.path(&format!("ws/.delta/{ID}"))).unwrap();
    refuses(&world, 1, "both ");
}

#[test]
fn neither_a_pipe_nor_a_device_nor_a_link_is_read_in_place_of_a_file() {
    for name in ["metadata.json", "journal.jsonl"] {
        let world = World::new();
        world.old_workspace(&world.old_events(), Some(&json!({"run_id": ID})));
        let path = world.path(&format!("ws/.delta/runs/{ID}/execution/{name}"));
        let words = format!("execution/{name}: it is not a regular file");
        fs::remove_file(&path).unwrap();
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        refuses(&world, 1, &words);
        for target in ["/dev/zero", "../../../../data.csv", "nowhere"] {
            fs::remove_file(&path).unwrap();
            symlink(target, &path).unwrap();
            refuses(&world, 1, &words);
        }
        fs::remove_file(&path).unwrap();
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        refuses(&world, 1, &format!("execution/{name}: it is larger than"));
    }
    // The name in a configuration is not needed.
    let world = World::new();
    world.old_workspace(&world.old_events(), None);
    let path = world.path(&format!(
        "ws/.delta/runs/{ID}/configuration/resolved_config.yaml"
    ));
    fs::remove_file(&path).unwrap();
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    world.migrated();
}

#[test]
fn links_that_no_step_goes_through_are_moved_with_the_run() {
    let world = World::new();
    world.old_workspace(&world.old_events(), None);
    let runs = world.path("ws/.delta/runs");
    fs::remove_file(runs.join("LATEST")).unwrap();
    symlink(ID, runs.join("LATEST")).unwrap();
    symlink("/root", runs.join(ID).join("execution/results")).unwrap();
    world.migrated();
    let run = world.latest();
    assert_eq!(run.id(), ID);
    let target = fs::read_link(run.path("results")).unwrap();
    assert_eq!(target, Path::new("/root"));
}

#[test]
fn where_there_is_nothing_to_migrate_that_is_said() {
    let world = World::new();
    world
        .delta(["migrate", "--adopt", "-w", "ws"])
        .exits(1)
        .says("nothing to migrate in");
    assert!(!world.exists("ws"));
    world.model_says([text("done")]);
    world.run("go").exits(0);
    world.migrated().says("has the current layout");
    world
        .delta(["migrate"])
        .exits(2)
        .says("migrate needs -w DIR: delta migrate [OPTIONS] -w DIR");
    world
        .delta(["migrate", "ws"])
        .exits(2)
        .says("unexpected argument 'ws'");
}

#[test]
fn a_later_layout_stays_as_it_is() {
    let world = World::unasked();
    for number in ["1.2", "1.3"] {
        world.write("ws/.delta/schema_version.txt", "1.1\n");
        world.write("ws/.delta/VERSION", format!("{number}\n"));
        world.adopt("ws");
        world.delta(["migrate", "--adopt", "-w", "ws"]).exits(0);
        assert_eq!(world.read("ws/.delta/VERSION"), format!("{number}\n"));
    }
}
