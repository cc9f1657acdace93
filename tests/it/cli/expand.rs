//! `delta tool expand`: what it prints is YAML that loads again, to tools that do the same.

use crate::harness::*;
use fastrand::Rng;
use serde_json::{Map, Value, json};
use std::fs;

/// How many tools are tried out at once.
const TOOLS: usize = 40;

/// Prints its arguments and its input so that nothing can be mistaken for anything else.
const PROGRAM: &str =
    "#!/bin/sh\nfor word; do printf '<%s>' \"$word\"; done\nprintf '[%s]' \"$(cat)\"\n";

/// A tool in YAML's JSON form, and arguments for a call of it.
fn tool(random: &mut Rng, number: usize) -> (Value, Value) {
    let names: Vec<String> = (0..random.usize(0..5)).map(|n| format!("p{n}")).collect();
    let mut tool = Map::new();
    tool.insert("name".into(), format!("tool-{number}").into());
    let mut declared: Vec<Value> = Vec::new();
    let mut arguments = Map::new();
    let is_command = random.u8(0..3) == 0;
    for name in &names {
        let mut parameter = json!({"name": name});
        if random.bool() {
            parameter["description"] = "About: \"it\", #1".into();
        }
        match random.u8(0..4) {
            0 => parameter["required"] = false.into(),
            1 => parameter["default"] = value(random).into(),
            _ => {}
        }
        let optional = parameter.get("required").is_some() || parameter.get("default").is_some();
        if is_command && random.u8(0..3) == 0 {
            parameter["inject_as"] = "option".into();
            parameter["option_name"] = format!("--{name}").into();
        }
        if !optional || random.bool() {
            arguments.insert(name.clone(), value(random).into());
        }
        declared.push(parameter);
    }
    let places: Vec<String> = names
        .iter()
        .filter(|_| random.u8(0..4) > 0)
        .map(|name| format!("${{{name}}}"))
        .collect();
    if is_command {
        let mut words = vec![json!("${AGENT_HOME}/show")];
        for (place, parameter) in places.iter().zip(&declared) {
            let is_option = parameter.get("option_name").is_some();
            if !is_option && place == &format!("${{{}}}", parameter["name"].as_str().unwrap()) {
                words.push(around(random, place).into());
            }
            words.push(fixed(random).into());
        }
        tool.insert("command".into(), words.into());
    } else {
        let (form, program) = if random.bool() {
            ("exec", "${AGENT_HOME}/show")
        } else {
            ("shell", "cat | ${AGENT_HOME}/show")
        };
        let mut line = program.to_owned();
        for place in &places {
            let word = match random.u8(0..4) {
                0 => format!("\"x {place} y\""),
                1 => format!("--o={place}"),
                2 => format!("{place}{place}"),
                _ => place.clone(),
            };
            line += &format!(" {word} {}", shlex::try_quote(&fixed(random)).unwrap());
        }
        tool.insert(form.into(), line.into());
        // Only what the template names can be declared.
        let is_used = |parameter: &Value| {
            places.contains(&format!("${{{}}}", parameter["name"].as_str().unwrap()))
        };
        declared.retain(is_used);
        arguments.retain(|name, _| places.contains(&format!("${{{name}}}")));
    }
    if random.u8(0..3) == 0 {
        tool.insert("stdin".into(), "input".into());
        arguments.insert("input".into(), value(random).into());
    }
    random.shuffle(&mut declared);
    if !declared.is_empty() {
        tool.insert("parameters".into(), declared.into());
    }
    if random.u8(0..4) == 0 {
        tool.insert("env".into(), json!({"A": fixed(random)}));
        tool.insert("timeout_ms".into(), 60_000.into());
    }
    (tool.into(), arguments.into())
}

/// A value that a model could give.
fn value(random: &mut Rng) -> String {
    const PIECES: [&str; 16] = [
        "a", " ", "\n", "'", "\"", "\\", "$", "${p0}", "`id`", "$(id)", "-", "--", "*", "é", "#",
        "%s",
    ];
    (0..random.usize(0..6))
        .map(|_| random.choice(PIECES).unwrap())
        .collect()
}

/// Text of the author's.
fn fixed(random: &mut Rng) -> String {
    const TEXTS: [&str; 9] = [
        "x",
        "-x",
        "two words",
        "it's",
        "a\"b",
        "#1",
        "100%",
        "é",
        "yes",
    ];
    random.choice(TEXTS).unwrap().to_owned()
}

fn around(random: &mut Rng, place: &str) -> String {
    match random.u8(0..3) {
        0 => format!("--o={place}"),
        1 => format!("{place} {place}"),
        _ => place.to_owned(),
    }
}

/// Calls every tool once, and returns what the model was told.
#[track_caller]
fn told(world: &World, wanted: &[(String, Value)]) -> Vec<String> {
    let ids: Vec<String> = (0..wanted.len()).map(|n| format!("c{n}")).collect();
    let calls_wanted: Vec<(&str, &str, Value)> = wanted
        .iter()
        .zip(&ids)
        .map(|((name, arguments), id)| (id.as_str(), name.as_str(), arguments.clone()))
        .collect();
    world.model_says([calls(&calls_wanted), text("done")]);
    world.run("go").arg("-q").exits(0);
    let last = world.server.last();
    ids.iter().map(|id| last.observation(id)).collect()
}

#[test]
fn expanded_tools_load_again_and_do_the_same() {
    for seed in 0..3 {
        let mut random = Rng::with_seed(seed);
        let (tools, wanted): (Vec<Value>, Vec<Value>) =
            (0..TOOLS).map(|number| tool(&mut random, number)).unzip();
        let wanted: Vec<(String, Value)> = wanted
            .into_iter()
            .enumerate()
            .map(|(number, arguments)| (format!("tool-{number}"), arguments))
            .collect();
        let world = World::new().top("sync: false\nimports: [tools.yaml]");
        world.script("agent/show", PROGRAM);
        world.write(
            "agent/tools.yaml",
            delta_engine::text::yaml::render(&json!({"tools": tools})),
        );
        let expand = || {
            let outcome = world.delta(["tool", "expand", "agent/tools.yaml"]).exits(0);
            String::from_utf8(outcome.stdout).unwrap()
        };
        let expanded = expand();
        let before = told(&world, &wanted);
        let offered = world.server.last().json()["tools"].clone();
        let failed: Vec<&String> = before
            .iter()
            .filter(|told| !told.starts_with(['<', '[']))
            .collect();
        assert!(failed.is_empty(), "seed {seed}: {failed:?}");

        fs::write(world.path("agent/tools.yaml"), &expanded).unwrap();
        let after = told(&world, &wanted);
        for (n, (before, after)) in before.iter().zip(&after).enumerate() {
            assert_eq!(after, before, "seed {seed}, {}\n{}", tools[n], wanted[n].1);
        }
        assert_eq!(world.server.last().json()["tools"], offered, "seed {seed}");
        assert_eq!(expand(), expanded, "seed {seed}");
        assert!(
            !expanded.contains("exec:") && !expanded.contains("shell:"),
            "{expanded}"
        );
    }
}

#[test]
fn a_files_imports_are_expanded_with_it() {
    let world = World::new();
    world.write(
        "m/a.yaml",
        "imports: [b.yaml]\ntools:\n  - {name: a, exec: 'ls -- ${x}'}\n",
    );
    world.write("m/b.yaml", "tools:\n  - {name: b, shell: 'cat < ${y}'}\n");
    let expected = "\
tools:
- name: b
  description: cat < ${y}
  command:
  - sh
  - -c
  - cat < \"$1\"
  - --
  parameters:
  - name: y
    type: string
    inject_as: argument
    position: 0
- name: a
  command:
  - ls
  - --
  parameters:
  - name: x
    type: string
    inject_as: argument
    position: 0
";
    let outcome = world.delta(["tool", "expand", "m/a.yaml"]).end();
    outcome.exits(0).prints(expected);
    // From another directory, too.
    let here = world
        .delta(["tool", "expand", "a.yaml"])
        .cwd(world.path("m"));
    here.exits(0).prints(expected);
}

#[test]
fn what_cannot_be_expanded_is_told_and_nothing_is_printed() {
    let world = World::new();
    world.write(
        "bad.yaml",
        "tools:\n  - {name: a, exec: ls}\n  - {name: b}\n",
    );
    let outcome = world.delta(["tool", "expand", "bad.yaml"]).exits(78);
    outcome
        .prints("")
        .says("bad.yaml:3: tool \"b\": has no command")
        .says_one_line();
    let outcome = world.delta(["tool", "expand", "gone.yaml"]).exits(78);
    outcome
        .prints("")
        .says("gone.yaml: no such file")
        .says_one_line();
    world
        .delta(["tool", "expand", "agent"])
        .exits(78)
        .says("agent: it is a directory; name a file in it, such as agent.yaml");
}

#[test]
fn a_module_of_an_agent_imports_what_lies_below_the_agent() {
    let world = World::new();
    world.write("agent/tools/a.yaml", "imports: [../b.yaml]\n");
    world.write("agent/b.yaml", "tools: [{name: b, command: [ls]}]\n");
    let expected = "tools:\n- name: b\n  command:\n  - ls\n";
    let expand = |file: &str, dir: &str| {
        let delta = world.delta(["tool", "expand", file]);
        delta.cwd(world.path(dir)).end()
    };
    expand("agent/tools/a.yaml", ".").exits(0).prints(expected);
    expand("a.yaml", "agent/tools").exits(0).prints(expected);
    world.write("agent/tools/a.yaml", "imports: [../../c.yaml]\n");
    world.write("c.yaml", "tools: []\n");
    expand("a.yaml", "agent/tools")
        .exits(78)
        .says("a.yaml:1: imports: ../../c.yaml is outside the agent's directory");
}
