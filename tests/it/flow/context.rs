//! What a node is given of what is remembered, and in which order.

use crate::flow::agents;
use crate::flow::run::run;
use crate::harness::*;
use serde_json::{Value, json};

/// A node that prints a text and has a context.
fn says(id: &str, role: &str, context: &str, text: &str) -> String {
    let more = format!(", output: text, command: [printf, '%s', '{text}']");
    node(id, role, &more).replace("context: none", &format!("context: {context}"))
}

/// A line of a store; `hour` says when.
fn line(hour: u32, tags: &str, content: &str) -> String {
    let tags: Vec<&str> = tags.split_whitespace().collect();
    let item = json!({
        "id": format!("i{hour}"),
        "timestamp": format!("2026-01-01T{hour:02}:00:00.000Z"),
        "tags": tags,
        "content": content,
    });
    format!("{item}\n")
}

/// One node `a` with the context `p`, and a project store with these items.
fn one(profile: &str, items: &[String]) -> World {
    let world = World::new();
    world.write("f/workflow.yaml", around(&says("a", "linear", "p", "x")));
    world.write("f/project.jsonl", items.concat());
    let memory = format!(
        "project_store: {{type: jsonl, file_path: project.jsonl}}\n\
         context_profiles:\n- {{id: p, sources: [{{store: project}}], {profile}}}\n"
    );
    world.write("f/memory.yaml", memory);
    world
}

/// The context of an attempt.
pub fn context(world: &World, io: &str) -> Value {
    let run = Run::latest(&world.path("ws"));
    serde_json::from_slice(&run.read(&format!("io/nodes/{io}/context.json"))).unwrap()
}

fn ids(context: &Value) -> Vec<&str> {
    let items = context["items"].as_array().unwrap();
    items.iter().map(|it| it["id"].as_str().unwrap()).collect()
}

fn contents(context: &Value) -> Vec<Value> {
    let items = context["items"].as_array().unwrap();
    items.iter().map(|it| it["content"].clone()).collect()
}

fn scores(context: &Value) -> Vec<f64> {
    let items = context["items"].as_array().unwrap();
    items
        .iter()
        .map(|it| it["score"].as_f64().unwrap())
        .collect()
}

#[test]
fn a_task_remembers_what_its_nodes_brought_and_the_newest_comes_first() {
    let world = World::new();
    let nodes = [
        start(),
        says("a", "linear", "none", "one"),
        says("b", "linear", "p", "two"),
        says("c", "linear", "p", "three"),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>a a>b b>c c>x"));
    // Without sources a profile is of the task's own memory.
    world.write("f/memory.yaml", "context_profiles: [{id: p}]\n");
    run(&world).args(["-m", "in"]).exits(0);
    assert_eq!(
        context(&world, "T1/a"),
        json!({"profile": "none", "items": []})
    );
    assert_eq!(contents(&context(&world, "T1/b")), ["one", "in"]);
    let of_c = context(&world, "T1/c");
    assert_eq!(contents(&of_c), ["two", "one", "in"]);
    let run = Run::latest(&world.path("ws"));
    let size = |node: &str| run.read(&format!("io/nodes/T1/{node}/context.json")).len();
    let ends = run.events("NODE_END");
    let told = ["a", "b", "c"].map(|node| {
        let end = ends.iter().find(|end| end["node_id"] == node).unwrap();
        end["context_bytes"].as_u64().unwrap()
    });
    assert_eq!(told, ["a", "b", "c"].map(|node| size(node) as u64));
    let head = ["profile", "retrieval_policy", "max_tokens", "tokens"].map(|key| of_c[key].clone());
    assert_eq!(head, [json!("p"), json!("recency"), Value::Null, json!(3)]);
    let mut first = of_c["items"][0].clone();
    let keys: Vec<String> = first.as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        keys,
        [
            "id",
            "timestamp",
            "tags",
            "content",
            "task_id",
            "node_id",
            "store",
            "tokens",
            "score"
        ]
    );
    let id = first["id"].take();
    assert!(id.as_str().unwrap().ends_with("/T1/b"), "{id}");
    let ends = Run::latest(&world.path("ws")).events("NODE_END");
    let end = ends.iter().find(|end| end["node_id"] == "b").unwrap();
    assert_eq!(first["timestamp"], end["timestamp"]);
    assert_eq!(first["tags"], json!(["b"]));
    assert_eq!(
        (&first["task_id"], &first["node_id"]),
        (&json!("T1"), &json!("b"))
    );
    assert_eq!(
        (&first["store"], &first["tokens"]),
        (&json!("task"), &json!(1))
    );
    assert_eq!(scores(&of_c), [1.0, 0.5, 0.333_333]);
}

#[test]
fn children_remember_what_their_parents_did_and_a_merge_what_arrived() {
    let world = World::new();
    // It goes on only when the other way has come to its end.
    let waits = "output: text, shell: 'until test -e \"$DONE\" -o $JOBS = 1; do sleep 0.01; done; printf u'";
    let late = node("u", "linear", &format!(", {waits}")).replace("context: none", "context: p");
    let nodes = [
        start(),
        node("b", "branch", ""),
        late,
        says("v", "linear", "p", "v"),
        says("w", "linear", "p", "w").replace(
            "command: [printf, '%s', 'w']",
            "shell: 'touch \"$DONE\"; printf w'",
        ),
        says("m", "merge", "p", "m"),
        exit(),
    ];
    let edges = "s>b b>u b>v v>w u>m w>m m>x";
    world.write("f/workflow.yaml", flow(&nodes, edges));
    let memory = "context_profiles: [{id: p, sources: [{store: task, tags: [s, u, v, w]}]}]\n";
    world.write("f/memory.yaml", memory);
    for jobs in ["1", "8"] {
        let done = world.path(&format!("done-{jobs}"));
        let flow = run(&world).args(["-m", "in", "-j", jobs]);
        flow.env("DONE", done).env("JOBS", jobs).exits(0);
        assert_eq!(contents(&context(&world, "T1.c0/u")), ["in"]);
        assert_eq!(contents(&context(&world, "T1.c1/v")), ["in"]);
        assert_eq!(contents(&context(&world, "T1.c1/w")), ["v", "in"]);
        // By place, whoever came first.
        assert_eq!(contents(&context(&world, "T1/m")), ["w", "v", "u", "in"]);
    }
}

#[test]
fn inputs_remember_nothing_of_each_other() {
    let world = World::new();
    let store = "remember: [{store: project}]";
    let middle =
        says("a", "linear", "none", "a").replace("output: text", &format!("output: text, {store}"));
    let nodes = [start(), middle, says("b", "linear", "p", "b"), exit()];
    world.write("f/workflow.yaml", flow(&nodes, "s>a a>b b>x"));
    let sources = "sources: [{store: task}, {store: project}]";
    world.write(
        "f/memory.yaml",
        format!("context_profiles: [{{id: p, {sources}}}]\n"),
    );
    world.write("inputs", "1\n2\n");
    run(&world).args(["--inputs", "inputs", "-j", "1"]).exits(0);
    for (task, input) in [("T1", 1), ("T2", 2)] {
        let context = context(&world, &format!("{task}/b"));
        // What is remembered elsewhere comes right behind the output that it is of.
        assert_eq!(contents(&context), [json!("a"), json!("a"), json!(input)]);
        let stores: Vec<&Value> = context["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["store"])
            .collect();
        assert_eq!(stores, ["project", "task", "task"]);
    }
}

#[test]
fn sources_are_restricted_by_tags_and_recency_goes_by_time() {
    let items = [
        line(3, "a", "three"),
        line(1, "b", "one"),
        line(2, "a b", "two"),
        line(4, "", "four"),
    ];
    let world = one("retrieval_policy: recency", &items);
    run(&world).exits(0);
    assert_eq!(ids(&context(&world, "T1/a")), ["i4", "i3", "i2", "i1"]);
    let tagged = |tags: &str| {
        let world = one("", &items);
        let memory = world.read("f/memory.yaml");
        let tagged = format!("{{store: project, tags: {tags}}}");
        world.write("f/memory.yaml", memory.replace("{store: project}", &tagged));
        run(&world).exits(0);
        let context = context(&world, "T1/a");
        ids(&context).join(" ")
    };
    assert_eq!(tagged("[b]"), "i2 i1");
    assert_eq!(tagged("[a, b]"), "i3 i2 i1");
    assert_eq!(tagged("[c]"), "");
    // What two sources find comes once.
    assert_eq!(tagged("[a]}, {store: project, tags: [b]"), "i3 i2 i1");
}

#[test]
fn items_are_taken_whole_until_the_tokens_are_used_up() {
    let four = "sixteen bytes!!!";
    let items = [
        line(1, "", "1"),
        line(2, "", four),
        line(3, "", four),
        line(4, "", "ab"),
    ];
    for (max, expected) in [
        (0, &[][..]),
        (1, &["i4"]),
        (4, &["i4"]),
        (5, &["i4", "i3"]),
        (8, &["i4", "i3"]),
        (9, &["i4", "i3", "i2"]),
        (10, &["i4", "i3", "i2", "i1"]),
    ] {
        let world = one(&format!("max_tokens: {max}"), &items);
        run(&world).exits(0);
        let context = context(&world, "T1/a");
        assert_eq!(ids(&context), expected, "{max}");
        assert!(context["tokens"].as_u64().unwrap() <= max);
    }
}

#[test]
fn hybrid_is_bm25_and_recency_by_reciprocal_ranks() {
    let items = [
        line(1, "", "A red apple falls."),
        line(2, "", "a green pear"),
        line(3, "", "the blue sky"),
        line(4, "", "night"),
    ];
    let world = one("retrieval_policy: hybrid", &items);
    run(&world)
        .args(["-i", "-"])
        .stdin(r#"{"ask": "RED\napple, pear?"}"#)
        .exits(0);
    let found = context(&world, "T1/a");
    // By words: i1 has two of three, i2 one, in a shorter text. By age: i4, i3, i2, i1.
    assert_eq!(ids(&found), ["i1", "i2", "i4", "i3"]);
    let expected = [
        1.0 / 61.0 + 1.0 / 64.0,
        1.0 / 62.0 + 1.0 / 63.0,
        1.0 / 61.0,
        1.0 / 62.0,
    ];
    for (found, expected) in scores(&found).into_iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
}

#[test]
fn global_is_the_newest_of_the_global_store_within_4000_tokens() {
    let world = World::new();
    let middle = says("a", "linear", "global", "x");
    world.write("f/workflow.yaml", around(&middle));
    let long = "x".repeat(8000);
    let items = [line(1, "", "old"), line(2, "", &long), line(3, "t", &long)];
    world.write("home/g.jsonl", items.concat());
    world.write(
        "f/memory.yaml",
        "global_store: {type: jsonl, file_path: ../home/g.jsonl}\n",
    );
    run(&world).exits(0);
    let context = context(&world, "T1/a");
    assert_eq!(ids(&context), ["i3", "i2"]);
    assert_eq!(
        (&context["profile"], &context["tokens"]),
        (&json!("global"), &json!(4000))
    );
}

#[test]
fn the_key_of_a_cache_has_what_a_context_says_and_not_when_it_was_said() {
    let world = World::new();
    let more = ", output: text, cache: true, shell: 'echo >>ran; cat $FLOW_CONTEXT | wc -l'";
    let cached = node("b", "linear", more).replace("context: none", "context: p");
    let nodes = [start(), says("a", "linear", "none", "WORD"), cached, exit()];
    let write = |word: &str| {
        let text = flow(&nodes, "s>a a>b b>x").replace("WORD", word);
        world.write("f/workflow.yaml", text);
        // The payload is the same; what the start brought is not seen.
        world.write(
            "f/memory.yaml",
            "context_profiles: [{id: p, sources: [{store: task, tags: [s]}]}]\n",
        );
    };
    write("w");
    let input = |text: &'static str| run(&world).args(["-m", text]);
    input("1").exits(0);
    input("1").exits(0).says("ok, cached");
    assert_eq!(world.lines("ws/ran").len(), 1);
    input("2").exits(0).does_not_say("cached");
    assert_eq!(world.lines("ws/ran").len(), 2);
}

#[test]
fn an_agent_is_told_of_its_context_if_there_is_any() {
    for (context, is_told) in [("p", true), ("none", false)] {
        let world = agents::world("", "path: ../agent");
        let workflow = world.read("f/workflow.yaml");
        let agent = format!("linear, context: {context}, agent_id");
        world.write(
            "f/workflow.yaml",
            workflow.replace("linear, context: none, agent_id", &agent),
        );
        world.write("f/memory.yaml", "context_profiles: [{id: p}]\n");
        world.model_says([text("1")]);
        agents::command(&world).exits(0);
        let said = agents::said(&world, 1);
        let item = r#"{\"store\":\"task\",\"tags\":[\"s\"],\"content\":\"do it\"}"#;
        assert_eq!(said.contains(item), is_told, "{said}");
        assert_eq!(
            said.contains("Context, the most relevant first"),
            is_told,
            "{said}"
        );
    }
}

/// Two nodes: `a` remembers in the project store what `b` may see.
fn two(of_b: &str) -> String {
    let a = node(
        "a",
        "linear",
        ", output: text, command: [printf, own], remember: [{store: project}]",
    );
    flow(
        &[start(), a, says("b", "linear", of_b, "x"), exit()],
        "s>a a>b b>x",
    )
}

const STORE: &str = "project_store: {type: jsonl, file_path: project.jsonl}\n\
     context_profiles:\n- {id: p, sources: [{store: project}]}\n";

#[test]
fn what_a_run_has_remembered_is_there_once_also_if_nobody_wanted_to_see_it_before() {
    let world = World::new();
    world.write("f/workflow.yaml", two("none"));
    world.write("f/memory.yaml", STORE);
    run(&world).args(["--pause-before", "b"]).exits(4);
    world.write("f/workflow.yaml", two("p"));
    run(&world).args(["--changed", "ok"]).exits(0);
    assert_eq!(contents(&context(&world, "T1/b")), [json!("own")]);
}

#[test]
fn a_first_line_that_somebody_has_edited_changes_no_names() {
    let world = World::new();
    world.write("f/workflow.yaml", two("p"));
    world.write("f/memory.yaml", STORE);
    run(&world).args(["--pause-before", "b"]).exits(4);
    let path = Run::latest(&world.path("ws")).path("journal.jsonl");
    let journal = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        journal.replacen("\"type\":", "\"note\": \"mine\", \"type\": ", 1),
    )
    .unwrap();
    run(&world).exits(0);
    assert_eq!(world.lines("f/project.jsonl").len(), 1);
    assert_eq!(contents(&context(&world, "T1/b")), [json!("own")]);
}

#[test]
fn a_store_that_a_command_names_is_no_file_of_the_flow() {
    let world = World::new();
    let b = node(
        "b",
        "linear",
        ", output: text, command: [cat, '${FLOW_HOME}/project.jsonl']",
    );
    let a = node(
        "a",
        "linear",
        ", output: text, command: [printf, own], remember: [{store: project}]",
    );
    world.write(
        "f/workflow.yaml",
        flow(&[start(), a, b, exit()], "s>a a>b b>x"),
    );
    world.write("f/memory.yaml", STORE);
    run(&world).args(["--pause-before", "b"]).exits(4);
    run(&world).exits(0);
}
