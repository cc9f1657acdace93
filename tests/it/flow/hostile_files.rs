//! Files of flows that are broken, huge or malicious: an error, and no hang.

use crate::harness::*;
use serde_json::{Value, json};

#[test]
fn a_schema_whose_references_multiply_is_refused_when_the_flow_is_loaded() {
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        around(&node("a", "linear", ", schema_out: twice")),
    );
    let mut defs = serde_json::Map::new();
    for at in 0..60 {
        let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
        defs.insert(format!("d{at}"), json!({"allOf": [next, next]}));
    }
    defs.insert("d60".to_owned(), true.into());
    let schema = json!({"$defs": defs, "$ref": "#/$defs/d0"});
    world.write("f/schemas/twice.json", schema.to_string());
    has(
        &errors_of(&world, "f"),
        1,
        "invalid_schema",
        &["twice"],
        "schemas/twice.json",
        "its references multiply",
    );
}

#[test]
fn a_schema_that_is_too_large_or_whose_references_lead_too_far_is_refused() {
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        around(&node("a", "linear", ", schema_out: long")),
    );
    let mut defs = serde_json::Map::new();
    for at in 0..70 {
        let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
        defs.insert(format!("d{at}"), json!({"properties": {"a": next}}));
    }
    defs.insert("d70".to_owned(), true.into());
    let chain = json!({"$defs": defs, "$ref": "#/$defs/d0"}).to_string();
    let large = json!({"title": "x".repeat(1 << 20)}).to_string();
    for (schema, message) in [
        (
            chain,
            "its references lead from one to the next more than 64 times",
        ),
        (large, "1048588 bytes are too many; the limit is 1048576"),
    ] {
        world.write("f/schemas/long.json", schema);
        let errors = errors_of(&world, "f");
        let file = "schemas/long.json";
        has(&errors, 1, "invalid_schema", &["long"], file, message);
    }
}

#[test]
fn a_schema_that_is_none_is_refused_with_its_place() {
    let world = World::new();
    let yaml = flow(
        &[start(), node("a", "linear", ", schema_out: bad"), exit()],
        "s>a a>x",
    );
    world.write("f/workflow.yaml", yaml);
    for (schema, message) in [
        (
            "{",
            "f/schemas/bad.json: schema \"bad\": not valid JSON: it ends inside an object, at column 1",
        ),
        (r#"{"type": "thing"}"#, "/type: "),
        (r#"{"pattern": "("}"#, "/pattern: "),
        ("3", "schema \"bad\": "),
    ] {
        world.write("f/schemas/bad.json", schema);
        let errors = errors_of(&world, "f");
        has(
            &errors,
            1,
            "invalid_schema",
            &["bad"],
            "schemas/bad.json",
            message,
        );
    }
}

#[test]
fn a_file_that_is_no_manifest_is_invalid_with_its_place() {
    let world = World::new();
    for (yaml, message) in [
        (&b"nodes: [\n"[..], "f/workflow.yaml:2:1: not valid YAML: "),
        (
            b"- a\n",
            "f/workflow.yaml: expected keys and values at the top, found a list",
        ),
        (
            b"nodes: 3\n",
            "f/workflow.yaml:1: nodes: expected a list, found the number 3",
        ),
        (
            b"nodes: [3]\n",
            "f/workflow.yaml:1: nodes: expected a mapping, found the number 3",
        ),
        (
            b"nodes: []\nedges: {}\n",
            "f/workflow.yaml:2: edges: expected a list, found a mapping",
        ),
        (
            b"nodes: []\nedges: [a]\n",
            "f/workflow.yaml:2: edges: expected a mapping or a chain of nodes, found the string",
        ),
        (
            b"nodes: []\nedges: [{}]\n",
            "f/workflow.yaml:2: edge: has no from; name a node",
        ),
        (
            b"nodes: [{}]\n",
            "f/workflow.yaml:1: this node has no id; give it one",
        ),
        (
            b"nodes: [{id: a b}]\n",
            "f/workflow.yaml:1: invalid id \"a b\": 1 to 64 letters",
        ),
        (
            b"nodes: [{id: 3}]\n",
            "f/workflow.yaml:1: id: expected a string, found the number 3",
        ),
        (
            b"\xff\xfe\x00",
            "f/workflow.yaml: cannot read it: it is not UTF-8",
        ),
        (b"nodes: []\nnodes: []\n", "duplicate"),
        (b"a: &a [*a]\n", "not valid YAML: "),
    ] {
        world.write("f/workflow.yaml", yaml);
        let errors = errors_of(&world, "f");
        let said = errors.iter().find(|error| {
            error["code"] == "manifest_invalid"
                && error["message"].as_str().unwrap().contains(message)
        });
        assert!(said.is_some(), "{message:?} is not in {errors:#?}");
    }
    std::fs::remove_file(world.path("f/workflow.yaml")).unwrap();
    std::fs::create_dir(world.path("f/workflow.yaml")).unwrap();
    let errors = errors_of(&world, "f");
    let message = "f/workflow.yaml: cannot read it: it is not a regular file";
    has(
        &errors,
        1,
        "manifest_invalid",
        &[],
        "workflow.yaml",
        message,
    );
}

#[test]
fn hostile_yaml_ends_in_an_error() {
    let world = World::new();
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let below = format!("*a{}", n - 1);
        let list = vec![below; 9].join(", ");
        laughs += &format!("a{n}: &a{n} [{list}]\n");
    }
    for yaml in [
        laughs,
        "[".repeat(1 << 20),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        format!("nodes: [{{id: {}}}]", "x".repeat(1 << 20)),
        format!("nodes: [{{id: a, {}: 1}}]", "k".repeat(1 << 16)),
    ] {
        world.write("f/workflow.yaml", yaml);
        assert!(!errors_of(&world, "f").is_empty());
    }
}

#[test]
fn a_cycle_of_five_thousand_nodes_is_named_and_shortened_in_the_message() {
    let count = 5000;
    let mut nodes = vec![start(), exit()];
    let mut list = "s>x".to_owned();
    for n in 0..count {
        nodes.push(node(&format!("n{n}"), "linear", ""));
        list += &format!(" n{n}>n{}", (n + 1) % count);
    }
    let errors = errors_in(&flow(&nodes, &list));
    assert_eq!(errors.len(), 2);
    let cycle = errors
        .iter()
        .find(|error| error["code"] == "cycle")
        .unwrap();
    let ids = cycle["ids"].as_array().unwrap();
    assert_eq!(
        (ids.len(), &ids[0], &ids[count - 1]),
        (count, &json!("n0"), &json!("n4999"))
    );
    let message = cycle["message"].as_str().unwrap();
    assert!(message.contains("n0 > n1 > n2 > "), "{message}");
    assert!(message.contains(" > … 4960 more … > n4980 > "), "{message}");
    assert!(message.contains(" > n4999 > n0 is a cycle"), "{message}");
}

#[test]
fn each_knot_of_cycles_is_told_by_its_shortest_way_round() {
    let nodes = [
        start(),
        node("a", "merge", ""),
        node("b", "branch", ""),
        node("c", "linear", ""),
        node("d", "decision", ""),
        node("e", "merge", ""),
        node("f", "decision", ""),
        exit(),
    ];
    // a > b > a and a > b > c > a are one knot; e > f > e another; and d leads to itself.
    let list = "s>a a>b b>a b>c b>d c>a d>d:again d>e:on e>f f>e:back f>x:out";
    let errors = errors_in(&flow(&nodes, list));
    let cycles: Vec<&Value> = errors
        .iter()
        .filter(|error| error["code"] == "cycle")
        .map(|error| &error["ids"])
        .collect();
    assert_eq!(
        cycles,
        [&json!(["a", "b"]), &json!(["d"]), &json!(["e", "f"])]
    );
}

#[test]
fn four_thousand_nodes_are_checked_also_where_each_of_them_is_wrong() {
    let world = World::new();
    let build = |role: &str, other: &str| {
        let mut nodes = vec![start(), exit()];
        let mut list = "s>n0".to_owned();
        for n in 0..4_000 {
            nodes.push(node(
                &format!("n{n}"),
                role,
                &format!(", schema_in: none{other}"),
            ));
            let to = if n < 3_999 {
                format!("n{}", n + 1)
            } else {
                "x".to_owned()
            };
            list += &format!(" n{n}>{to}");
        }
        flow(&nodes, &list)
    };
    world.write("f/workflow.yaml", build("linear", ", colour: red"));
    world.write("f/schemas/none.json", "{}");
    let check = Delta::flow(world.home()).args(["check", "f"]).exits(0);
    let check = check.prints("f: ok, 4002 nodes, 4001 edges, 0 agents, 0 tools, 1 schema\n");
    assert_eq!(check.stderr.lines().count(), 4_000);
    world.write("f/workflow.yaml", build("liner", ""));
    assert_eq!(errors_of(&world, "f").len(), 4_000);
}
