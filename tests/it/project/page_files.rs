//! Every file that the manual and the README show is accepted, and does what they say.

use crate::harness::*;
use delta_engine::text::manual::PAGES;
use serde_json::json;
use std::fs;
use std::path::Path;

/// The blocks of an EXAMPLES section that are not commands, without their margins.
fn blocks(name: &str) -> Vec<String> {
    let page = PAGES.iter().find(|page| page.name == name).unwrap();
    let (_, examples) = page.text().split_once("\nEXAMPLES\n").unwrap();
    let is_heading = |line: &&str| line.starts_with(|c: char| c.is_ascii_uppercase());
    let lines = examples.lines().take_while(|line| !is_heading(line));
    let examples = lines.collect::<Vec<_>>().join("\n");
    let pieces = examples.split("\n\n");
    pieces
        .map(|piece| {
            let lines = piece.lines();
            let margin = lines
                .clone()
                .filter(|line| !line.is_empty())
                .map(|line| line.len() - line.trim_start().len())
                .min()
                .unwrap_or(0);
            lines
                .map(|line| format!("{}\n", line.get(margin..).unwrap_or("")))
                .collect()
        })
        .collect()
}

#[test]
fn the_files_that_the_manual_and_the_readme_show_are_accepted() {
    let world = World::unasked();
    let beginning = |name: &str, word: &str| -> String {
        let found = blocks(name)
            .into_iter()
            .find(|block| block.starts_with(word));
        found.unwrap_or_else(|| panic!("no {word} in {name}"))
    };
    let agent = world.read("agent/agent.yaml");
    let check = |what: &str| {
        let outcome = world.delta(["check", "agent"]).exits(0);
        assert!(
            !outcome.stderr.contains("rror"),
            "{what}: {}",
            outcome.stderr
        );
    };
    // Programs of the agent that the pages name.
    for name in ["tools/fold.sh", "tools/guard.sh"] {
        world.script(&format!("agent/{name}"), "#!/bin/sh\n");
    }
    world.write("agent/context.yaml", beginning("context", "sources:"));
    check("context");
    world.write(
        "agent/hooks.yaml",
        beginning("hooks", "pre_tool_execution:"),
    );
    check("hooks");
    world.write("agent/hooks.yaml", beginning("sessions", "on_run_end:"));
    world.write(
        "agent/agent.yaml",
        agent.clone() + &beginning("sessions", "tools:"),
    );
    check("sessions");
    let mut wrappers = blocks("sandbox");
    wrappers.retain(|block| block.starts_with("wrapper:"));
    assert_eq!(wrappers.len(), 3);
    for wrapper in wrappers {
        world.write("agent/agent.yaml", agent.clone() + &wrapper);
        check("sandbox");
    }
    let model = beginning("model", "llm:");
    world.write("agent/agent.yaml", format!("name: probe\n{model}"));
    check("model");
    world.write("agent/agent.yaml", beginning("agent", "name:"));
    check("agent");
    let readme =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let (_, yaml) = readme.split_once("```yaml\n").unwrap();
    world.write("agent/agent.yaml", yaml.split_once("```").unwrap().0);
    check("README.md");
}

#[test]
fn the_guard_that_the_manual_shows_denies_and_allows() {
    if std::process::Command::new("jq").arg("-V").output().is_err() {
        eprintln!("skipped: jq is not installed");
        return;
    }
    let mut shown = blocks("hooks");
    shown.retain(|block| block.starts_with("#!/bin/sh"));
    let tool = "- {name: write_file, exec: 'tee -- ${filename}', stdin: content}";
    let world = World::with_tools(tool);
    world.script("agent/guard.sh", &shown[0]);
    let hook = "pre_tool_execution: {command: ['${AGENT_HOME}/guard.sh']}\n";
    world.write("agent/hooks.yaml", hook);
    fs::create_dir_all(world.path("ws/out")).unwrap();
    for (at, (file, allowed)) in [("out/a", true), ("b", false), ("out/../b", false)]
        .into_iter()
        .enumerate()
    {
        let id = format!("c{at}");
        let args = serde_json::json!({"filename": file, "content": "x"});
        world.model_says([call(&id, "write_file", &args), text("done")]);
        world.run(file).exits(0);
        let seen = world.server.last().observation(&id);
        assert_eq!(
            seen.starts_with("denied: write below out/ only"),
            !allowed,
            "{seen}"
        );
    }
    assert!(world.exists("ws/out/a") && !world.exists("ws/b"));
}

#[test]
fn the_tools_for_another_machine_that_the_manual_shows_pass_values_as_they_are() {
    let page = PAGES.iter().find(|page| page.name == "agent").unwrap();
    let (_, shown) = page.text().split_once("   Another machine\n").unwrap();
    let at = shown.find("- name: count").unwrap();
    let tools = shown[at..].split("\n\n").next().unwrap();
    let tools = tools.replace("\n           ", "\n");
    let world = World::with_tools(&tools);
    // As ssh does: one command line for the shell of the other machine.
    let ssh = "#!/bin/sh\n[ \"$1\" = builder ] || exit 9\nshift\nexec sh -c \"$*\"\n";
    world.script("bin/ssh", ssh);
    let path = format!(
        "{}:{}",
        world.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let values = [
        "x'; touch pwned; '",
        "$(touch pwned)",
        "`touch pwned`",
        "-c",
        "a  *",
    ];
    world.write("ws/app.log", format!("{}\n", values.join("\n")));
    for (at, value) in values.into_iter().enumerate() {
        world.write(&format!("ws/{value}"), value);
        let [count, copy] = ["count", "copy"].map(|tool| format!("{tool}{at}"));
        world.model_says([
            calls(&[
                (&count, "count", json!({"words": value})),
                (&copy, "copy", json!({"from": value, "to": "b c"})),
            ]),
            text("done"),
        ]);
        world.run(value).env("PATH", &path).exits(0);
        assert_eq!(world.server.last().observation(&count), "1\n", "{value}");
        assert_eq!(world.read("ws/b c"), value);
        assert!(!world.exists("ws/pwned"), "{value}");
    }
}

/// The lines of a page's blocks, each with the one before it.
fn literal_lines(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let (mut is_block, mut before) = (false, String::new());
    for line in source.lines() {
        if line.starts_with(".Bd -literal") || line.starts_with(".Bd -unfilled") {
            is_block = true;
        } else if line.starts_with(".Ed") {
            is_block = false;
        } else if is_block {
            found.push((before.clone(), line.to_owned()));
        } else if let Some(line) = line.strip_prefix(".Dl ") {
            found.push((String::new(), line.to_owned()));
        }
        line.clone_into(&mut before);
    }
    found
}

/// Whether a command of ours begins in a line.
fn is_command(line: &str) -> bool {
    let starts = ["delta ", "delta-flow ", "delta-sessions "];
    let parts = line.split(['|', ';', '&', '(']);
    let mut parts = parts.map(str::trim_start);
    parts.any(|part| starts.iter().any(|start| part.starts_with(start)))
}

#[test]
fn every_command_line_of_the_manual_has_a_dollar_and_is_run_for_it() {
    let man = Path::new(env!("CARGO_MANIFEST_DIR")).join("man");
    let mut bare = Vec::new();
    for page in PAGES {
        let name = format!("{}.{}", page.full_name(), page.section);
        let source = fs::read_to_string(man.join(&name)).unwrap();
        for (before, line) in literal_lines(&source) {
            let goes_on = before.ends_with("\\e") || before.ends_with('|');
            if is_command(&line) && !line.starts_with("$ ") && !goes_on {
                bare.push(format!("{name}: {line}"));
            }
        }
    }
    // They are for the program of a node; the next test runs them there.
    let of_a_node = |line: &String| line.contains("delta flow tool");
    bare.retain(|line| !of_a_node(line));
    assert_eq!(bare, [""; 0]);
}

#[cfg(feature = "flow")]
#[test]
fn the_tools_that_the_manual_calls_in_a_node_are_called() {
    let page = PAGES.iter().find(|page| page.full_name() == "delta-flow");
    let lines = page.unwrap().text().lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| is_command(line)).collect();
    let of_tools: Vec<&&str> = lines.iter().filter(|l| l.contains(" tool grep")).collect();
    assert_eq!(of_tools.len(), 2, "{lines:?}");
    let world = World::unasked();
    world.write(
        "f/tools.yaml",
        "tools:\n- {id: grep, exec: 'grep -c -e ${pattern} -- list.txt'}\n",
    );
    let script: String = of_tools
        .iter()
        .map(|line| format!("    {line}\n"))
        .collect();
    let work =
        "- id: work\n  kind: deterministic\n  role: linear\n  context: none\n  tools: [grep]\n";
    let work = format!("{work}  output: text\n  shell: |\n{script}");
    let workflow = flow(&[start(), work, exit()], "s>work work>x");
    world.write("f/workflow.yaml", workflow);
    world.write("ws/list.txt", "TODO one\nTODO two\n");
    let run = Delta::flow(world.home()).args(["run", "f", "-w", "ws", "-q"]);
    run.env("PATH", path()).exits(0).prints("\"2\\n2\"\n");
}
