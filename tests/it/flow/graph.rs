//! `delta-flow graph`: a flow as a picture.

use crate::harness::*;

const FLOW: &str = r#"
nodes:
- {id: s, kind: deterministic, role: start, context: none, default_start: true}
- {id: d, kind: agent, role: decision, context: none, agent_id: chooser, name: 'Which "way"?'}
- {id: b, kind: deterministic, role: branch, context: none}
- {id: l, kind: deterministic, role: linear, context: none, exec: cat}
- {id: k, kind: deterministic, role: linear, context: none, exec: cat, name: "a <b> & \\ #c"}
- {id: m, kind: deterministic, role: merge, context: none}
- {id: x, kind: deterministic, role: exit, context: none}
edges:
- {from: s, to: d}
- {from: d, to: b, label: all}
- {from: d, to: x, label: 'say "no"'}
- {from: b, to: l}
- {from: b, to: k}
- {from: l, to: m}
- {from: k, to: m}
- {from: m, to: x}
"#;

fn world() -> World {
    let world = World::new();
    world.write("f/workflow.yaml", FLOW);
    world.write("f/agents.yaml", "agents: [{id: chooser, command: [cat]}]\n");
    world
}

fn graph(world: &World, args: &[&str]) -> String {
    let graph = Delta::flow(world.home()).args(["graph", "f"]).args(args);
    let outcome = graph.exits(0);
    assert_eq!(outcome.stderr, "");
    String::from_utf8(outcome.stdout).unwrap()
}

#[test]
fn the_graph_is_written_for_graphviz() {
    let dot = "digraph flow {
  node [shape=box, style=filled, fillcolor=white];
  \"s\" [label=\"s\\nstart\", shape=oval];
  \"d\" [label=\"Which \\\"way\\\"?\\ndecision, chooser\", shape=diamond, peripheries=2];
  \"b\" [label=\"b\\nbranch\", shape=triangle];
  \"l\" [label=\"l\\nlinear\"];
  \"k\" [label=\"a <b> & \\\\ #c\\nlinear\"];
  \"m\" [label=\"m\\nmerge\", shape=invtrapezium];
  \"x\" [label=\"x\\nexit\", shape=oval];
  \"s\" -> \"d\";
  \"d\" -> \"b\" [label=\"all\"];
  \"d\" -> \"x\" [label=\"say \\\"no\\\"\"];
  \"b\" -> \"l\";
  \"b\" -> \"k\";
  \"l\" -> \"m\";
  \"k\" -> \"m\";
  \"m\" -> \"x\";
}
";
    let world = world();
    assert_eq!(graph(&world, &[]), dot);
    assert_eq!(graph(&world, &["--format", "dot"]), dot);
}

#[test]
fn the_graph_is_written_for_mermaid() {
    let mermaid = "flowchart TD
  n0([\"s<br>start\"])
  n1{\"Which #34;way#34;?<br>decision, chooser\"}
  n2[/\"b<br>branch\"\\]
  n3[\"l<br>linear\"]
  n4[\"a #60;b#62; #38; #92; #35;c<br>linear\"]
  n5[\\\"m<br>merge\"/]
  n6([\"x<br>exit\"])
  n0 --> n1
  n1 -->|\"all\"| n2
  n1 -->|\"say #34;no#34;\"| n6
  n2 --> n3
  n2 --> n4
  n3 --> n5
  n4 --> n5
  n5 --> n6
";
    assert_eq!(graph(&world(), &["--format", "mermaid"]), mermaid);
}

/// The values of an attribute of the elements that begin so, as numbers.
fn numbers(svg: &str, element: &str, attribute: &str) -> Vec<f64> {
    let start = format!("<{element} ");
    svg.split(&start)
        .skip(1)
        .filter_map(|rest| {
            let tag = rest.split('>').next()?;
            let value = tag.split(&format!("{attribute}=\"")).nth(1)?;
            value.split('"').next()?.parse().ok()
        })
        .collect()
}

/// Every element that is opened is closed.
fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').unwrap();
        assert!(!text.contains('"') && !tag.contains('\n'), "{tag}>{text}");
        let name = tag.split([' ', '/']).next().unwrap();
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn the_picture_has_every_node_and_edge_and_no_box_lies_on_another() {
    let svg = graph(&world(), &["--format", "svg"]);
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
    assert_well_formed(&svg);
    assert_eq!(svg.matches("marker-end").count(), 8);
    for text in [
        ">Which &quot;way&quot;?<",
        ">a &lt;b&gt; &amp; \\ #c<",
        ">decision, chooser<",
        ">say &quot;no&quot;<",
    ] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    // The middle of each name is that of its box; the smaller text stands below it.
    let (xs, ys) = (numbers(&svg, "text", "x"), numbers(&svg, "text", "y"));
    let places: Vec<(f64, f64)> = xs.into_iter().zip(ys).collect();
    let labels = 2;
    let names: Vec<_> = places[labels..].iter().step_by(2).collect();
    assert_eq!(names.len(), 7);
    for (at, a) in names.iter().enumerate() {
        for b in &names[at + 1..] {
            let apart = (a.0 - b.0).abs() >= 150.0 || (a.1 - b.1).abs() >= 44.0;
            assert!(apart, "{a:?} {b:?}");
        }
    }
}

#[test]
fn a_flow_that_cannot_be_loaded_is_not_drawn() {
    let world = World::new();
    world.write("f/workflow.yaml", "nodes: 3\n");
    let graph = Delta::flow(world.home()).args(["graph", "f"]).end();
    graph
        .refuses(78, "delta-flow: f/workflow.yaml:1: manifest_invalid: nodes: expected a list, found the number 3");
}

#[test]
fn a_long_chain_beside_a_long_edge_is_drawn() {
    let world = World::new();
    let mut nodes = "nodes:
- {id: s, kind: deterministic, role: start, context: none, default_start: true}
- {id: b, kind: deterministic, role: branch, context: none}
- {id: x, kind: deterministic, role: exit, context: none}
"
    .to_owned();
    let mut edges =
        "edges:\n- {from: s, to: b}\n- {from: b, to: x}\n- {from: b, to: n0}\n".to_owned();
    for n in 0..2000 {
        nodes += &format!(
            "- {{id: n{n}, kind: deterministic, role: linear, context: none, exec: cat}}\n"
        );
        let to = if n < 1999 {
            format!("n{}", n + 1)
        } else {
            "x".to_owned()
        };
        edges += &format!("- {{from: n{n}, to: {to}}}\n");
    }
    world.write("f/workflow.yaml", nodes + &edges);
    let svg = graph(&world, &["--format", "svg"]);
    assert_well_formed(&svg);
    assert_eq!(svg.matches("marker-end").count(), 2003);
    // The edge from b to x bends in each row that it passes.
    assert!(svg.lines().any(|line| line.matches('C').count() == 2001));
}

#[test]
fn a_language_that_is_none_is_refused_with_the_nearest() {
    let world = world();
    let graph = Delta::flow(world.home()).args(["graph", "f", "--format", "mermiad"]);
    let said = graph.exits(2).prints("").stderr;
    assert_eq!(
        said,
        "delta-flow: --format: unknown value 'mermiad'; did you mean 'mermaid'?\n"
    );
}

/// The colour of each node, by its id.
fn colours(dot: &str) -> Vec<(String, String)> {
    let nodes = dot
        .lines()
        .filter(|line| line.contains("[label=") && !line.contains("->"));
    let colour = |line: &str| {
        let id = line.split('"').nth(1).unwrap().to_owned();
        let colour = line.split("fillcolor=\"").nth(1).unwrap_or_default();
        (id, colour.split('"').next().unwrap().to_owned())
    };
    nodes.map(colour).collect()
}

#[test]
fn a_run_is_coloured_by_what_became_of_its_nodes() {
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        "
nodes:
- {id: s, kind: deterministic, role: start, context: none, default_start: true}
- {id: p, kind: deterministic, role: split, context: none}
- {id: w, kind: deterministic, role: linear, context: none, exec: grep 1}
- {id: m, kind: deterministic, role: merge, context: none, merge_failure_mode: ignore_failures}
- {id: d, kind: deterministic, role: decision, context: none, command: [echo, '\"go\"']}
- {id: bad, kind: deterministic, role: linear, context: none, exec: 'false'}
- {id: other, kind: deterministic, role: linear, context: none, exec: cat}
- {id: x, kind: deterministic, role: exit, context: none}
edges:
- {from: s, to: p}
- {from: p, to: w}
- {from: w, to: m}
- {from: m, to: d}
- {from: d, to: bad, label: go}
- {from: d, to: other}
- {from: bad, to: x}
- {from: other, to: x}
",
    );
    world.write("input.json", "[1, 2]");
    let run = [
        "run",
        "f",
        "-w",
        "ws",
        "--run-id",
        "one",
        "-i",
        "input.json",
    ];
    Delta::flow(world.home()).args(run).exits(1);
    let (good, failed, both) = ("#b7e4c7", "#f5b5b0", "#ffe08a");
    let expected = [
        ("s", good),
        ("p", good),
        ("w", both),
        ("m", good),
        ("d", good),
        ("bad", failed),
        ("other", ""),
        ("x", ""),
    ];
    let expected = expected.map(|(id, colour)| (id.to_owned(), colour.to_owned()));
    for args in [
        &["graph", "one", "-w", "ws"][..],
        &["graph", "ws/.delta/one"],
    ] {
        let drawn = Delta::flow(world.home()).args(args).exits(0);
        assert_eq!(drawn.stderr, "");
        assert_eq!(colours(&String::from_utf8_lossy(&drawn.stdout)), expected);
    }
    let svg = Delta::flow(world.home()).args(["graph", "one", "-w", "ws", "--format", "svg"]);
    let svg = String::from_utf8(svg.exits(0).stdout).unwrap();
    assert_well_formed(&svg);
    assert!(svg.contains(both));
    let mermaid =
        Delta::flow(world.home()).args(["graph", "one", "-w", "ws", "--format", "mermaid"]);
    let mermaid = String::from_utf8(mermaid.exits(0).stdout).unwrap();
    assert!(
        mermaid.contains(&format!("  style n5 fill:{failed}\n")),
        "{mermaid}"
    );

    world.write("f/agents.yaml", "agents: []\n");
    let drawn = Delta::flow(world.home())
        .args(["graph", "one", "-w", "ws"])
        .end();
    drawn
        .exits(0)
        .says("delta-flow: warning: files of the flow have changed since the run");
    let none = Delta::flow(world.home())
        .args(["graph", "two", "-w", "ws"])
        .end();
    none.refuses(1, "two");
}

#[test]
fn a_node_that_waits_and_one_that_never_ended_have_colours_of_their_own() {
    let world = World::unasked();
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/flow-approval");
    let run = |more: &[&str]| {
        let run = Delta::flow(world.home()).arg("run").arg(&example);
        run.args(["-w", "ws", "--run-id", "one", "-m", "x"])
            .args(more)
    };
    run(&[]).exits(101);
    let drawn = Delta::flow(world.home())
        .args(["graph", "one", "-w", "ws"])
        .exits(0);
    let waiting = ("approve".to_owned(), "#d9c2f0".to_owned());
    let colours = colours(&String::from_utf8_lossy(&drawn.stdout));
    assert!(colours.contains(&waiting), "{colours:?}");
}

#[test]
fn a_run_that_is_no_flows_is_not_drawn() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let id = world.latest().id();
    let drawn = Delta::flow(world.home())
        .args(["graph", &id, "-w", "ws"])
        .end();
    drawn.refuses(
        1,
        &format!("`delta log -w {} {id}`", world.workspace().display()),
    );
    for (command, advised) in [("show", "log"), ("replay", "replay")] {
        Delta::flow(world.home())
            .args([command, &id, "-w", "ws"])
            .exits(1)
            .says(&format!(
                "`delta {advised} -w {} {id}`",
                world.workspace().display()
            ));
    }
}
