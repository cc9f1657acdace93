//! Makes the recording `survey` anew: `cargo test --test it record_the_survey -- --ignored`.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

const TOOLS: &str = r#"
- name: list_files
  description: List a directory
  exec: 'ls -F -- ${directory}'
  parameters: [{name: directory, default: .}]
- {name: read_file, description: Print a file, exec: 'cat -- ${file}'}
- {name: write_file, description: Write a file, exec: 'tee -- ${file}', stdin: content}
- {name: append, description: Add a line to a file, shell: 'printf "%s\n" ${line} >> ${file}'}
- {name: count, description: Count the lines with a word, shell: 'grep -c -- ${word} ${file}'}
- {name: total, description: Add up the numbers in a file, shell: "awk '{s += $1} END {print s}' ${file}"}
- {name: remove, description: Remove a file, exec: 'rm -- ${file}'}
"#;

const CONTEXT: &str = "\
sources:
  - {type: file, id: system_prompt, path: '${AGENT_HOME}/system_prompt.md'}
  - {type: file, id: workspace_guide, path: '${CWD}/DELTA.md', on_missing: skip}
  - {type: journal, id: conversation}
  - type: computed_file
    id: inventory
    generator: {command: ['${AGENT_HOME}/inventory.sh']}
    output_path: '${CWD}/.delta/context_artifacts/inventory.md'
";

const INVENTORY: &str =
    "#!/bin/sh\necho \"There are $(ls stations | wc -l | tr -d ' ') files in stations/.\"\n";

/// Refuses to remove anything.
const GUARD: &str = r#"#!/bin/sh
if [ "$TOOL_NAME" = remove ]; then
    echo '{"action":"deny","message":"nothing is removed here"}' > "$DELTA_HOOK_IO_PATH/output/control.json"
fi
"#;

const STATIONS: [&str; 6] = ["alder", "birch", "cedar", "elm", "fir", "hazel"];

fn plan() -> Vec<Value> {
    let call = |tool: &str, arguments: Value| json!([tool, arguments]);
    let mut plan = vec![json!([
        call("list_files", json!({})),
        call("read_file", json!({"file": "DELTA.md"}))
    ])];
    for station in STATIONS {
        let file = format!("stations/{station}.txt");
        let mean = format!("{station}: read\n");
        plan.push(json!([call("read_file", json!({"file": file}))]));
        plan.push(json!([
            call("count", json!({"word": "mm", "file": file})),
            call("total", json!({"file": file}))
        ]));
        plan.push(json!([call(
            "write_file",
            json!({"file": format!("stations/{station}.done"), "content": mean})
        )]));
        plan.push(json!([call(
            "append",
            json!({"file": "report.txt", "line": format!("{station} \u{2713}")})
        )]));
    }
    plan.push(json!([call(
        "count",
        json!({"word": "snow", "file": "stations/elm.txt"})
    )]));
    plan.push(json!([call(
        "read_file",
        json!({"file": "stations/oak.txt"})
    )]));
    plan.push(json!([call(
        "remove",
        json!({"file": "stations/elm.done"})
    )]));
    plan.push(json!([call(
        "ask_human",
        json!({"prompt": "Is the oak station closed?"})
    )]));
    plan.push(json!("Six stations are in the report; oak is closed."));
    plan.push(json!([call(
        "append",
        json!({"file": "report.txt", "line": "oak closed"})
    )]));
    plan.push(json!([
        call("read_file", json!({"file": "report.txt"})),
        call("no_such_tool", json!({}))
    ]));
    plan.push(json!([call(
        "list_files",
        json!({"directory": "stations", "order": "age"})
    )]));
    plan.push(json!([call(
        "list_files",
        json!({"directory": "stations"})
    )]));
    plan.push(json!("The report has seven lines."));
    plan
}

fn reply(n: usize, step: &Value) -> Reply {
    let Some(list) = step.as_array() else {
        return text(step.as_str().unwrap());
    };
    let calls: Vec<Value> = list
        .iter()
        .enumerate()
        .map(|(at, call)| {
            let function = json!({"name": call[0], "arguments": call[1].to_string()});
            // Some servers give no ids.
            let id = if n.is_multiple_of(5) {
                String::new()
            } else {
                format!("call_{n}_{at}")
            };
            json!({"id": id, "type": "function", "function": function})
        })
        .collect();
    message(&json!({"role": "assistant", "content": format!("Step {n}."), "tool_calls": calls}))
}

#[test]
#[ignore = "writes into the project"]
fn record_the_survey() {
    let world = World::with_tools(TOOLS).top("keep_requests: 4");
    world.write("agent/context.yaml", CONTEXT);
    world.script("agent/inventory.sh", INVENTORY);
    world.script("agent/guard.sh", GUARD);
    world.write(
        "agent/hooks.yaml",
        "pre_tool_execution: {command: ['${AGENT_HOME}/guard.sh']}\n",
    );
    world.write(
        "start/DELTA.md",
        "Rain is in stations/*.txt, one amount a line.\n",
    );
    for (at, station) in STATIONS.into_iter().enumerate() {
        let lines: String = (1..=at + 3)
            .map(|day| format!("{} mm\n", day * (at + 2) % 17))
            .collect();
        world.write(&format!("start/stations/{station}.txt"), lines);
    }
    copy(&world.path("start"), &world.workspace());
    let steps = plan();
    world.model_says(
        steps
            .iter()
            .enumerate()
            .map(|(at, step)| reply(at + 1, step)),
    );
    world.run("Write a report about the rain.").exits(101);
    world.go_on().args(["-m", "yes, since May"]).exits(0);
    world
        .go_on()
        .args(["-m", "Mention the oak station, too."])
        .exits(0);

    let kept = recordings().join("survey");
    fs::remove_dir_all(&kept).ok();
    copy(&world.path("agent"), &kept.join("agent"));
    copy(&world.path("start"), &kept.join("workspace"));
    copy(&world.latest().dir, &kept.join("run"));
    fs::remove_dir_all(kept.join("run/interaction")).ok();
    let host = rustix::system::uname();
    let path = |name: &str| world.path(name).to_str().unwrap().to_owned();
    let places = [
        (path("agent"), "/agent"),
        (path("ws"), "/workspace"),
        (path(""), "/"),
        (world.server.url(), "http://127.0.0.1:9/v1"),
        (host.nodename().to_str().unwrap().to_owned(), "host"),
    ];
    for file in files_below(&kept) {
        let Ok(mut content) = fs::read_to_string(&file) else {
            continue;
        };
        for (place, instead) in &places {
            let is_request = file.to_string_lossy().contains("request.");
            assert!(
                !is_request || !content.contains(place),
                "{}",
                file.display()
            );
            content = content.replace(place, instead);
        }
        fs::write(&file, content).unwrap();
    }
}
