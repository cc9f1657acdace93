//! Stores: what is remembered exactly once, whatever happens, and whoever else writes there.

use crate::flow::run::{chain, run};
use crate::flow::stores::{crowd, memory};
use crate::harness::*;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;

/// Splits, merges, branches; every program has a context of everything, and some outputs are remembered.
const FLOW: &str = r#"
nodes:
- {id: s, kind: deterministic, role: start, context: none, default_start: true}
- {id: p, kind: deterministic, role: split, context: none, shell: 'echo "[1,2,3]"'}
- {id: w, kind: deterministic, role: linear, context: all, remember: [{store: project, tags: [n], pointer: /n}, {store: global}],
   shell: 'read n; echo "{\"n\":\"number $n\",\"of\":\"$FLOW_TASK_ID\"}"'}
- {id: v, kind: deterministic, role: linear, context: words, shell: 'echo 7'}
- {id: m, kind: deterministic, role: merge, context: all, shell: 'echo "\"merged\""', remember: [{store: project, tags: [m]}]}
- {id: b, kind: deterministic, role: branch, context: none}
- {id: c, kind: deterministic, role: linear, context: all, output: text, command: [printf, c]}
- {id: d, kind: deterministic, role: linear, context: all, output: text, command: [printf, d], remember: [{store: project}]}
- {id: j, kind: deterministic, role: merge, context: none}
- {id: z, kind: deterministic, role: linear, context: all, command: [cat]}
- {id: x, kind: deterministic, role: exit, context: none}
edges: [{from: s, to: p}, {from: p, to: w}, {from: w, to: v}, {from: v, to: m}, {from: m, to: b}, {from: b, to: c},
  {from: b, to: d}, {from: c, to: j}, {from: d, to: j}, {from: j, to: z}, {from: z, to: x}]
"#;

const MEMORY: &str = "
task_store: {type: jsonl, file_path: ../task.jsonl}
project_store: {type: jsonl, file_path: ../project.jsonl}
global_store: {type: in_memory}
context_profiles:
- {id: all, sources: [{store: task}, {store: project}, {store: global}]}
- {id: words, retrieval_policy: hybrid, max_tokens: 20, sources: [{store: task}, {store: project}]}
";

fn world() -> World {
    let world = World::new();
    world.write("f/workflow.yaml", FLOW);
    world.write("f/memory.yaml", MEMORY);
    memory(
        &world,
        &["add", "project", "f", "-m", "from before", "--tag", "old"],
    )
    .exits(0);
    world
}

fn command(world: &World, jobs: &str) -> Delta {
    run(world).args(["--run-id", "r", "-q", "-j", jobs])
}

/// The items of a store's file.
fn items(world: &World, store: &str) -> Vec<Value> {
    let lines = world.lines(&format!("{store}.jsonl"));
    lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What is left of an id if it is taken from its run.
fn place(id: &Value) -> String {
    let id = id.as_str().unwrap();
    id.split_once('/').map_or("", |(_, place)| place).to_owned()
}

/// The contexts of all steps, without times.
fn contexts(world: &World) -> BTreeMap<String, Value> {
    let run = Run::latest(&world.path("ws"));
    let ends = run.events("NODE_END");
    let mut all = BTreeMap::new();
    for start in run.events("NODE_START") {
        let Some(io) = start["execution_ref"].as_str() else {
            continue;
        };
        let text = run.text(&format!("{io}/context.json"));
        let mut context: Value = serde_json::from_str(&text).unwrap();
        for item in context["items"].as_array_mut().unwrap() {
            let time = item["timestamp"].take();
            item["id"] = place(&item["id"]).into();
            let is_its_end = |end: &&Value| {
                end["task_id"] == item["task_id"] && end["node_id"] == item["node_id"]
            };
            let end = ends.iter().find(is_its_end);
            assert!(
                end.is_none_or(|end| end["timestamp"] == time),
                "{item} {time}"
            );
        }
        all.insert(
            format!("{}/{}", start["task_id"], start["node_id"]),
            context,
        );
    }
    all
}

#[test]
fn contexts_do_not_depend_on_how_many_run_at_once_nor_on_what_others_remember_meanwhile() {
    let all = ["1", "8"].map(|jobs| {
        let world = world();
        let shell =
            r#"shell: 'delta-flow memory add project "$FLOW_HOME" -m meanwhile >&2; read n;"#;
        let workflow = world
            .read("f/workflow.yaml")
            .replace("shell: 'read n;", shell);
        world.write("f/workflow.yaml", workflow);
        let bin = std::path::Path::new(env!("CARGO_BIN_EXE_delta-flow"))
            .parent()
            .unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command(&world, jobs).env("PATH", path).exits(0);
        let meanwhile = items(&world, "project")
            .into_iter()
            .filter(|it| it["content"] == "meanwhile");
        assert_eq!(meanwhile.count(), 3);
        contexts(&world)
    });
    assert_eq!(all[0], all[1]);
    let last = &all[0]["\"T1\"/\"z\""]["items"];
    let told = |item: &Value| format!("{} {}", item["store"].as_str().unwrap(), item["content"]);
    let told: Vec<String> = last.as_array().unwrap().iter().map(told).collect();
    assert_eq!(
        told[..4],
        [
            r#"task ["c","d"]"#,
            r#"project "d""#,
            r#"task "d""#,
            r#"task "c""#
        ]
    );
    assert_eq!(told.last().unwrap(), r#"project "from before""#);
    assert_eq!(told.len(), 22, "{told:#?}");
}

/// The ids in a store, each once.
fn ids(world: &World, store: &str) -> HashSet<String> {
    let items = items(world, store);
    let ids: HashSet<String> = items.iter().map(|it| it["id"].to_string()).collect();
    assert_eq!(ids.len(), items.len(), "an id is there twice: {items:#?}");
    ids
}

#[test]
fn from_every_prefix_of_the_journal_the_same_contexts_come_and_nothing_is_remembered_twice() {
    let world = world();
    let before = world.read("project.jsonl");
    command(&world, "3").exits(0);
    let expected = contexts(&world);
    let stores = ["task", "project"].map(|store| (store, ids(&world, store)));
    assert_eq!(stores.each_ref().map(|(_, ids)| ids.len()), [15, 6]);
    let written = stores
        .each_ref()
        .map(|(store, _)| world.lines(&format!("{store}.jsonl")));
    fs::rename(world.path("ws"), world.path("whole")).unwrap();
    let journal = world.read("whole/.delta/r/journal.jsonl");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    let of = |kind: &str, upto: usize| {
        let events = lines[..upto]
            .iter()
            .map(|it| serde_json::from_str::<Value>(it).unwrap());
        let events = events.filter(|event| event["type"] == kind);
        let key = if kind == "MEMORY" { "item_id" } else { "seq" };
        events
            .map(|event| event[key].to_string())
            .collect::<HashSet<_>>()
    };
    assert_eq!(of("MEMORY", lines.len()).len(), 20);
    for kept in 2..lines.len() {
        fs::remove_dir_all(world.path("ws")).ok();
        copy(&world.path("whole"), &world.path("ws"));
        let mut prefix = lines[..kept].concat();
        let torn = &lines[kept][..lines[kept].len() / 2];
        prefix.push_str(if kept % 3 == 0 { torn } else { "" });
        world.write("ws/.delta/r/journal.jsonl", prefix);
        // What had been told is there; or all that had ended; or it was torn while it was appended.
        let told = of("MEMORY", kept);
        let ended: HashSet<String> = lines[..kept]
            .iter()
            .map(|it| serde_json::from_str::<Value>(it).unwrap())
            .filter(|it| it["type"] == "NODE_END")
            .map(|it| {
                format!(
                    "{}/{}",
                    it["task_id"].as_str().unwrap(),
                    it["node_id"].as_str().unwrap()
                )
            })
            .collect();
        for ((store, _), lines) in stores.iter().zip(&written) {
            let mut text = String::new();
            for line in lines {
                let item: Value = serde_json::from_str(line).unwrap();
                let of_end = place(&item["id"]);
                let of_end = of_end.split('#').next().unwrap();
                let is_old = before.contains(line.as_str());
                let is_there = told.contains(&item["id"].to_string())
                    || (kept % 2 == 0 && ended.contains(of_end));
                if is_old || is_there {
                    text.push_str(&format!("{line}\n"));
                } else if kept % 5 == 0 && ended.contains(of_end) {
                    text.push_str(&line[..line.len() / 2]);
                    break;
                }
            }
            world.write(&format!("{store}.jsonl"), text);
        }
        world.adopt("ws");
        command(&world, "3").exits(0);
        assert_eq!(contexts(&world), expected, "from {kept} lines");
        for (store, expected) in &stores {
            assert_eq!(ids(&world, store), *expected, "{store} from {kept} lines");
        }
        let events = Run::latest(&world.path("ws")).events("MEMORY");
        let told: HashSet<String> = events.iter().map(|it| it["item_id"].to_string()).collect();
        assert_eq!((told.len(), events.len()), (20, 20), "from {kept} lines");
    }
}

#[test]
fn log_and_show_pass_over_what_has_been_written_down() {
    let world = World::new();
    chain(&world, "command: [cat], remember: [{store: project}]");
    let store = "project_store: {type: jsonl, file_path: p.jsonl}";
    world.write("f/memory.yaml", store);
    run(&world).args(["-m", "x"]).exits(0);
    let log = world.delta(["log", "-w", "ws"]).exits(0).stdout;
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("T1"), "{log}");
    assert!(!log.contains("MEMORY"), "{log}");
    let show = Delta::flow(world.home()).args(["show", "-w", "ws"]);
    show.exits(0);
}

#[test]
fn what_would_have_been_trimmed_by_now_does_not_come_back() {
    let world = World::new();
    chain(&world, "command: [cat], remember: [{store: project}]");
    let store = "project_store: {type: jsonl, file_path: p.jsonl, max_items: 2}";
    world.write("f/memory.yaml", store);
    let command = || run(&world).args(["--run-id", "r", "-m", "mine"]);
    command().exits(0);
    // The engine died when the node had ended, and others have written since.
    let journal = world.read("ws/.delta/r/journal.jsonl");
    let upto = journal.find("\"MEMORY\"").unwrap();
    let upto = journal[..upto].rfind('\n').unwrap();
    world.write("ws/.delta/r/journal.jsonl", &journal[..=upto]);
    let line = |id: u32| {
        format!("{{\"id\":\"{id}\",\"timestamp\":\"2999-01-01T00:00:00Z\",\"content\":0}}\n")
    };
    let others = [line(1), line(2)].concat();
    world.write("f/p.jsonl", &others);
    command().exits(0);
    assert_eq!(world.lines("f/p.jsonl").len(), 2);
    assert!(!world.read("f/p.jsonl").contains("mine"));
    assert_eq!(Run::latest(&world.path("ws")).events("MEMORY").len(), 1);
    // Where there is room it is added.
    world.write("ws/.delta/r/journal.jsonl", &journal[..=upto]);
    world.write("f/p.jsonl", line(1));
    command().exits(0);
    assert!(world.read("f/p.jsonl").contains("mine"));
}

#[test]
fn however_often_it_is_killed_all_is_remembered_once() {
    let mut rng = fastrand::Rng::with_seed(11);
    for _ in 0..4 {
        let world = world();
        let journal = world.path("ws/.delta/r/journal.jsonl");
        let lines = || {
            fs::read_to_string(&journal)
                .unwrap_or_default()
                .matches('\n')
                .count()
        };
        for _ in 0..8 {
            let goal = lines() + rng.usize(1..14);
            let running = command(&world, "3").spawn();
            eventually("the journal grows or the run ends", || {
                lines() >= goal || !alive(running.pid())
            });
            running.kill();
        }
        command(&world, "3").exits(0);
        assert_eq!(ids(&world, "project").len(), 6);
        assert_eq!(ids(&world, "task").len(), 15);
    }
}

fn at_once(world: &World) {
    let flows: Vec<Running> = [100, 200, 300]
        .map(|n| {
            let workspace = format!("ws{n}");
            let flow =
                Delta::flow(world.home()).args(["run", "f", "-w", &workspace, "-q", "-j", "4"]);
            flow.args(["--run-id", "same", "-i", "-"])
                .stdin(n.to_string())
                .spawn()
        })
        .into();
    for n in 0..10 {
        memory(
            world,
            &["add", "project", "f", "-m", &format!("by hand {n}")],
        )
        .exits(0);
    }
    for flow in flows {
        flow.wait().exits(0);
    }
}

#[test]
fn flows_that_share_a_store_lose_nothing_though_their_runs_have_one_name() {
    let world = crowd("");
    at_once(&world);
    let items = Value::from(
        world
            .lines("f/project.jsonl")
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .collect::<Vec<_>>(),
    );
    let contents: HashSet<String> = items
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["content"].to_string())
        .collect();
    let numbers = [100, 200, 300]
        .into_iter()
        .flat_map(|n| n..n + 40)
        .map(|n| n.to_string());
    let by_hand = (0..10).map(|n| format!("\"by hand {n}\""));
    assert_eq!(contents, numbers.chain(by_hand).collect());
    assert_eq!(items.as_array().unwrap().len(), 130);
}

#[test]
fn the_oldest_items_go_and_no_append_with_them() {
    let world = crowd(", max_items: 130");
    let old = |n: u32| {
        format!("{{\"id\":\"{n}\",\"timestamp\":\"2020-01-01T00:00:00Z\",\"content\":\"old\"}}\n")
    };
    world.write("f/project.jsonl", (0..130).map(old).collect::<String>());
    at_once(&world);
    let text = world.read("f/project.jsonl");
    assert_eq!(
        (text.lines().count(), text.contains("\"old\"")),
        (130, false)
    );
    assert_eq!(
        fs::read_dir(world.path("f")).unwrap().count(),
        3,
        "something was left"
    );
    // By their time, wherever they stand.
    let line = |hour: u32| {
        format!(
            "{{\"id\":\"i{hour}\",\"timestamp\":\"2026-01-01T{hour:02}:00:00Z\",\"content\":{hour}}}\n"
        )
    };
    let small = crowd(", max_items: 3");
    small.write(
        "f/project.jsonl",
        [line(3), line(1), line(2), line(4)].concat(),
    );
    memory(&small, &["add", "project", "f", "-m", "new"]).exits(0);
    let ids = small
        .lines("f/project.jsonl")
        .iter()
        .map(|line| line[7..9].to_owned())
        .collect::<Vec<_>>();
    assert_eq!(ids[..2], ["i3", "i4"]);
    assert_eq!(ids.len(), 3);
}

#[test]
fn a_context_sees_as_many_items_as_its_store_keeps() {
    let world = World::new();
    chain(&world, "command: [cat]");
    let workflow = world
        .read("f/workflow.yaml")
        .replace("linear, context: none", "linear, context: p");
    world.write("f/workflow.yaml", workflow);
    for (max, expected) in [(1, 1), (2, 1), (0, 0)] {
        world.write(
            "f/memory.yaml",
            format!(
                "task_store: {{type: in_memory, max_items: {max}}}\ncontext_profiles: [{{id: p}}]\n"
            ),
        );
        run(&world).args(["-m", &format!("m{max}")]).exits(0);
        let context = crate::flow::context::context(&world, "T1/a");
        assert_eq!(
            context["items"].as_array().unwrap().len(),
            expected,
            "{max}"
        );
    }
}

#[test]
fn a_store_that_cannot_be_written_stops_the_run_and_nothing_is_lost() {
    let world = World::new();
    chain(&world, "command: [cat], remember: [{store: project}]");
    world.write(
        "f/memory.yaml",
        "project_store: {type: jsonl, file_path: p.jsonl, max_items: 9}\n",
    );
    world.write("f/p.jsonl", "damaged\n");
    let command = || run(&world).args(["-m", "kept"]);
    command()
        .exits(75)
        .says("p.jsonl:1: it is not an item")
        .says("the same command resumes the run");
    world.write("f/p.jsonl", "");
    command().exits(0);
    assert!(world.read("f/p.jsonl").contains("\"content\":\"kept\""));
    assert_eq!(world.lines("f/p.jsonl").len(), 1);
}

#[test]
fn a_flow_without_memory_has_no_files_of_it() {
    let world = World::new();
    chain(&world, "command: [cat]");
    run(&world).exits(0);
    let run = Run::latest(&world.path("ws"));
    assert!(!run.path("memory").exists());
    assert!(run.events("MEMORY").is_empty());
    let kinds: HashMap<String, usize> =
        run.types()
            .into_iter()
            .fold(HashMap::new(), |mut all, kind| {
                *all.entry(kind).or_default() += 1;
                all
            });
    assert_eq!(kinds["NODE_END"], 3);
}
