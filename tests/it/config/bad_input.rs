//! Bad input: one clear line with the place and the way out, and nothing created.

use crate::harness::*;
use serde_json::json;
use std::fs;

/// Loading this agent fails with exit code 78, these words, and without a trace.
#[track_caller]
fn refuses(world: &World, words: &[&str]) -> String {
    let in_its_own = world
        .delta(["run", "-a", "agent", "-y", "-m", "go"])
        .exits(78)
        .prints("");
    assert!(!world.exists("agent/workspaces"), "a workspace was made");
    let mut outcome = world.run("go").exits(78).prints("");
    assert!(!world.exists("ws"), "a workspace was made");
    assert_eq!(in_its_own.stderr, outcome.stderr);
    assert!(
        outcome.stderr.starts_with("delta: "),
        "{}",
        outcome.describe()
    );
    for word in words {
        outcome = outcome.says(word);
    }
    assert!(world.server.requests().is_empty());
    outcome.stderr
}

/// With this tool.
#[track_caller]
fn refuses_tool(tool: &str, words: &[&str]) {
    let text = refuses(&World::with_tools(tool), words);
    assert!(text.contains("agent.yaml"), "{text}");
}

#[test]
fn there_is_no_agent() {
    let world = World::new();
    let outcome = world
        .delta(["run", "-a", "nowhere", "-w", "ws", "-m", "go"])
        .end();
    outcome.refuses(78, "nowhere").says_one_line();
    assert!(!world.exists("ws"));
}

#[test]
fn a_directory_without_an_agent_is_told_which_file_is_missing() {
    let world = World::new();
    fs::remove_file(world.path("agent/agent.yaml")).unwrap();
    refuses(&world, &["agent.yaml"]);
}

#[test]
fn an_agent_that_is_a_file_is_an_error() {
    let world = World::new();
    let outcome = world
        .delta(["run", "-a", "agent/agent.yaml", "-w", "ws", "-m", "go"])
        .end();
    outcome.refuses(78, "agent/agent.yaml").says_one_line();
    assert!(!world.exists("ws"));
}

#[test]
fn yaml_that_does_not_parse_is_told_by_line_and_column() {
    let world = World::new();
    world.write("agent/agent.yaml", "name: probe\nllm:\n  model: 'open\n");
    refuses(&world, &["agent.yaml:"]);
    world.write(
        "agent/agent.yaml",
        "name: probe\nllm: {model: m}\ntools:\n\t- x\n",
    );
    refuses(&world, &["agent.yaml:4:"]);
}

#[test]
fn a_key_given_twice_is_an_error() {
    let world = World::new().top("name: again");
    refuses(&world, &["agent.yaml", "name"]);
}

#[test]
fn a_document_that_is_no_mapping_is_an_error() {
    for document in ["", "- a\n", "just words\n", "42\n"] {
        let world = World::new();
        world.write("agent/agent.yaml", document);
        refuses(&world, &["agent.yaml"]);
    }
}

#[test]
fn a_missing_name_is_an_error() {
    let world = World::new();
    world.write("agent/agent.yaml", "llm: {model: m}\n");
    refuses(&world, &["agent.yaml", "name"]);
}

#[test]
fn a_missing_model_is_an_error() {
    let world = World::new();
    world.write(
        "agent/agent.yaml",
        "name: probe\nllm: {base_url: 'http://127.0.0.1:9/v1'}\n",
    );
    refuses(
        &world,
        &["No model is configured", "-M NAME", "DELTA_MODEL"],
    );
    world.write("agent/agent.yaml", "name: probe\n");
    refuses(&world, &["agent.yaml", "llm"]);
}

#[test]
fn a_port_that_is_none_is_an_error() {
    let world = World::new().llm("base_url: 'http://127.0.0.1:99999/v1'");
    refuses(&world, &["99999", "its port is not a number up to 65535"]);
}

#[test]
fn a_misspelt_key_is_a_warning_with_the_nearest() {
    let world = World::new()
        .top("max_iteratoins: 3")
        .llm("timeuot_ms: 5000");
    world.model_says([text("done")]);
    let outcome = world.run("go").exits(0).prints("done\n");
    let line = outcome
        .stderr
        .lines()
        .find(|line| line.contains("max_iteratoins"));
    let line = line.unwrap_or_else(|| panic!("{}", outcome.describe()));
    assert!(
        line.contains("agent.yaml") && line.contains("max_iterations"),
        "{line}"
    );
}

#[test]
fn a_misspelt_key_of_a_tool_is_a_warning_with_the_nearest() {
    let world = World::with_tools("- {name: echo, exec: 'echo ${x}', desciption: Say it}");
    world.model_says([text("done")]);
    let outcome = world.run("go").exits(0);
    outcome
        .says("desciption")
        .says("description")
        .says("agent.yaml");
}

#[test]
fn an_unknown_key_that_resembles_nothing_is_a_warning_too() {
    let world = World::new().top("zebra_crossing: 1");
    world.model_says([text("done")]);
    world
        .run("go")
        .exits(0)
        .says("zebra_crossing")
        .says("agent.yaml");
}

#[test]
fn a_value_of_the_wrong_type_is_an_error_with_its_place() {
    let cases = [
        ("max_iterations: many", "max_iterations"),
        ("max_iterations: -1", "max_iterations"),
        ("max_iterations: 1.5", "max_iterations"),
        ("max_output_bytes: [1]", "max_output_bytes"),
        ("keep_requests: all", "keep_requests"),
        ("tool_timeout_ms: 10s", "tool_timeout_ms"),
        ("limits: 5", "limits"),
        ("limits: {tokens: many}", "tokens"),
        ("wrapper: bwrap", "wrapper"),
        ("wrapper: [1]", "wrapper"),
        ("imports: ./tools.yaml", "imports"),
        ("system_prompt: 3", "system_prompt"),
        ("ask_human: perhaps", "ask_human"),
    ];
    for (yaml, key) in cases {
        refuses(&World::new().top(yaml), &["agent.yaml:2", key]);
    }
}

#[test]
fn a_value_of_the_wrong_type_in_llm_is_an_error_with_its_place() {
    for (yaml, key) in [
        ("timeout_ms: soon", "timeout_ms"),
        ("max_retries: often", "max_retries"),
        ("command: model.sh", "command"),
        ("command: []", "command"),
    ] {
        refuses(&World::new().llm(yaml), &["agent.yaml:", key]);
    }
    let world = World::new();
    world.write("agent/agent.yaml", "name: probe\nllm: gpt-4o\n");
    refuses(&world, &["agent.yaml:2", "llm"]);
    world.write("agent/agent.yaml", "name: probe\nllm: {model: [a]}\n");
    refuses(&world, &["agent.yaml:2", "model"]);
}

#[test]
fn tools_that_are_no_list_of_mappings_are_an_error() {
    refuses(
        &World::new().top("tools: {name: x}"),
        &["agent.yaml:2", "tools"],
    );
    refuses(&World::with_tools("- just words"), &["agent.yaml", "tools"]);
}

#[test]
fn two_execution_modes_in_a_tool_are_an_error() {
    refuses_tool(
        "- {name: both, exec: 'echo ${x}', shell: 'cat ${y}'}",
        &["both", "exec", "shell"],
    );
    refuses_tool(
        "- {name: both, exec: 'echo ${x}', command: [ls]}",
        &["both", "exec", "command"],
    );
    refuses_tool(
        "- {name: none, description: nothing}",
        &["none", "exec", "shell", "command"],
    );
}

#[test]
fn a_duplicate_name_is_an_error() {
    refuses_tool(
        "- {name: twice, exec: ls}\n- {name: once, exec: ls}\n- {name: twice, exec: pwd}",
        &["twice"],
    );
}

#[test]
fn a_name_that_servers_refuse_is_an_error() {
    refuses_tool("- {name: 'list files', exec: ls}", &["list files"]);
    refuses_tool("- {name: '', exec: ls}", &["name"]);
    refuses_tool(
        &format!("- {{name: {}, exec: ls}}", "a".repeat(65)),
        &["64"],
    );
    refuses_tool("- {exec: ls}", &["name"]);
}

#[test]
fn ask_human_is_the_engines_own_name() {
    refuses_tool("- {name: ask_human, exec: ls}", &["ask_human"]);
}

#[test]
fn what_needs_a_shell_is_an_error_in_exec_that_names_it_and_the_way_out() {
    let cases = [
        ("cat ${f} | wc -l", "|"),
        ("echo ${f} > out", ">"),
        ("cat < ${f}", "<"),
        ("sleep 1 &", "&"),
        ("ls ; pwd", ";"),
        ("echo `id`", "`"),
        ("echo $(id)", "$("),
        ("ls && pwd", "&"),
        ("ls || pwd", "|"),
        ("echo x >> log", ">"),
    ];
    for (template, character) in cases {
        refuses_tool(
            &format!("- {{name: needy, exec: '{template}'}}"),
            &["needy", character, "shell:"],
        );
    }
}

#[test]
fn quoted_shell_characters_in_exec_are_just_characters() {
    let world = World::with_tools("- {name: show, exec: 'printf %s \"a | b > c; $(d)\"'}");
    assert_eq!(world.observe("show", &json!({})), "a | b > c; $(d)");
}

#[test]
fn a_hash_at_the_start_of_a_word_of_exec_is_an_error() {
    refuses_tool("- {name: hash, exec: 'echo ${x} #tag'}", &["hash", "#"]);
}

#[test]
fn raw_belongs_to_shell() {
    refuses_tool(
        "- {name: flags, exec: 'ls ${flags:raw}'}",
        &["flags", ":raw", "shell:"],
    );
    refuses_tool(
        "- {name: run, shell: 'ls ${f}', parameters: [{name: f, raw: true}]}",
        &["raw", "${f:raw}"],
    );
}

#[test]
fn parameters_that_contradict_the_template_are_an_error() {
    refuses_tool(
        "- {name: grep, shell: 'grep ${pattern}', parameters: [{name: pattern, inject_as: stdin}]}",
        &["inject_as", "pattern"],
    );
    refuses_tool(
        "- {name: grep, exec: 'grep ${a} ${b}', parameters: [{name: a, position: 1}]}",
        &["position", "a"],
    );
    refuses_tool(
        "- {name: say, exec: 'echo ${msg}', parameters: [{name: other, description: none}]}",
        &["other", "not found in template"],
    );
}

#[test]
fn two_stdin_parameters_are_an_error() {
    refuses_tool(
        "- name: two\n  command: [cat]\n  parameters: [{name: a, inject_as: stdin}, {name: b, inject_as: stdin}]",
        &["two", "stdin"],
    );
}

#[test]
fn an_option_needs_its_name() {
    refuses_tool(
        "- {name: o, command: [ls], parameters: [{name: a, inject_as: option}]}",
        &["option_name", "a"],
    );
}

#[test]
fn placeholders_must_be_names() {
    refuses_tool(
        "- {name: bad, exec: 'echo ${not a name}'}",
        &["bad", "not a name"],
    );
    refuses_tool("- {name: bad, exec: 'echo ${}'}", &["bad", "${}"]);
    refuses_tool("- {name: bad, exec: 'echo ${open'}", &["bad", "${open"]);
}

#[test]
fn the_engines_variables_are_no_parameters() {
    refuses_tool(
        "- {name: bad, command: [ls], parameters: [{name: AGENT_HOME}]}",
        &["bad", "AGENT_HOME"],
    );
    refuses_tool("- {name: bad, exec: cat, stdin: CWD}", &["bad", "CWD"]);
}

#[test]
fn a_placeholder_in_single_quotes_of_a_script_is_an_error() {
    refuses_tool(
        "- {name: awk, shell: \"awk '{print ${n}}' file\"}",
        &["awk", "${n}", "single quotes"],
    );
    refuses_tool(
        "- name: doc\n  shell: |\n    cat <<'END'\n    ${n}\n    END",
        &["doc", "${n}"],
    );
}

#[test]
fn a_parameter_of_an_unknown_type_is_an_error() {
    refuses_tool(
        "- {name: t, exec: 'echo ${x}', parameters: [{name: x, type: text}]}",
        &["x", "type", "text"],
    );
}

#[test]
fn a_missing_prompt_is_an_error() {
    let world = World::new();
    fs::remove_file(world.path("agent/system_prompt.md")).unwrap();
    refuses(&world, &["system_prompt.md"]);
    refuses(
        &World::new().top("system_prompt: prompts/other.md"),
        &["prompts/other.md"],
    );
}

#[test]
fn a_missing_context_is_an_error_with_the_text_to_paste() {
    let world = World::new();
    fs::remove_file(world.path("agent/context.yaml")).unwrap();
    let message = refuses(
        &world,
        &[
            "context.yaml",
            "sources:",
            "type: journal",
            "${SYSTEM_PROMPT}",
        ],
    );
    // What is printed is YAML that works.
    let lines = message.lines().skip_while(|line| line.trim() != "sources:");
    let lines: Vec<&str> = lines.take_while(|line| !line.trim().is_empty()).collect();
    let margin = lines[0].len() - lines[0].trim_start().len();
    let pasted: String = lines
        .iter()
        .map(|line| format!("{}\n", &line[margin..]))
        .collect();
    world.write("agent/context.yaml", pasted);
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
}

#[test]
fn a_context_that_makes_no_sense_is_an_error_with_its_place() {
    for (yaml, words) in [
        ("sources:\n  - {type: file}\n", &["context.yaml:2", "path"]),
        (
            "sources:\n  - {type: journl}\n",
            &["context.yaml:2", "journl"],
        ),
        (
            "sources:\n  - {type: file, path: x, on_missing: ignore}\n",
            &["context.yaml:2", "on_missing"],
        ),
        ("source: []\n", &["context.yaml", "sources"]),
        ("sources: 3\n", &["context.yaml:1", "sources"]),
        ("sources:\n  - type: [\n", &["context.yaml:", "3"]),
    ] {
        let world = World::new();
        world.write("agent/context.yaml", yaml);
        refuses(&world, words);
    }
}

#[test]
fn a_work_directory_that_is_a_file_is_an_error() {
    let world = World::new();
    world.write("ws", "a file");
    world.run("go").refuses(78, "ws").says_one_line();
    assert_eq!(world.read("ws"), "a file");
}

#[test]
fn a_work_directory_that_cannot_be_made_is_an_error() {
    let world = World::new();
    world.write("file", "");
    let outcome = world
        .delta(["run", "-a", "agent", "-w", "file/ws", "-m", "go"])
        .end();
    outcome.refuses(78, "file/ws").says_one_line();
}

#[test]
fn a_work_directory_that_is_not_writable_is_an_error() {
    // Root may write anywhere but in /proc.
    let world = World::new();
    let outcome = world
        .delta(["run", "-a", "agent", "-w", "/proc/self", "-m", "go"])
        .end();
    outcome.refuses(78, "/proc").says_one_line();
}

#[test]
fn check_reports_every_error_and_warning() {
    let world = World::with_tools(
        "- {name: both, exec: ls, shell: ls}\n- {name: pipe, exec: 'a | b'}\n- {name: fine, exec: ls, colour: red}",
    )
    .top("max_iterations: many");
    fs::remove_file(world.path("agent/context.yaml")).unwrap();
    let outcome = world.delta(["check", "agent"]).exits(78);
    outcome
        .says("both")
        .says("pipe")
        .says("colour")
        .says("max_iterations")
        .says("context.yaml");
}

#[test]
fn check_of_a_good_agent_exits_0() {
    let world = World::with_tools("- {name: list, exec: 'ls ${d}'}");
    world.delta(["check", "agent"]).exits(0);
    world.delta(["check"]).cwd(world.path("agent")).exits(0);
    assert!(!world.exists("agent/workspaces"));
    assert!(world.server.requests().is_empty());
}

#[test]
fn check_of_an_agent_with_a_warning_exits_0_and_shows_it() {
    let world = World::new().top("colour: red");
    world.delta(["check", "agent"]).exits(0).says("colour");
}
