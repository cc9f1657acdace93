//! `delta check`: what it says beyond what keeps an agent from running.

use crate::harness::*;
use serde_json::json;
use std::fs;

const SYSTEM: &str = "  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}\n";

impl World {
    /// What `delta check` says about the agent, without the program's name and the agent's directory.
    #[track_caller]
    fn advice(&self) -> Vec<String> {
        let outcome = self.delta(["check", "agent"]).exits(0);
        let line = |line: &str| {
            let line = line.strip_prefix("delta: warning: agent/").unwrap_or(line);
            line.to_owned()
        };
        outcome.stderr.lines().map(line).collect()
    }
}

#[test]
fn raw_and_a_missing_description_are_warned_of() {
    let world = World::with_tools("- name: t\n  shell: ls ${flags:raw} ${flags:raw} -- ${dir}");
    assert_eq!(
        world.advice(),
        [
            "agent.yaml:6: tool \"t\": has no description; the model is shown its command instead",
            "agent.yaml:7: tool \"t\": ${flags:raw} is split into words and its patterns are \
             expanded, and each word can be an option; write ${flags} unless that is what it is for",
        ]
    );
}

#[test]
fn a_program_that_is_not_there_is_warned_of_wherever_one_is_named() {
    let world = World::with_tools(
        "- {name: a, description: d, exec: nonsuch}\n\
         - {name: b, description: d, exec: '${AGENT_HOME}/gone.sh'}\n\
         - {name: c, description: d, exec: '${AGENT_HOME}/plain.sh'}\n\
         - {name: d, description: d, exec: 'sh ${AGENT_HOME}/gone.sh'}\n\
         - {name: e, description: d, exec: /no/such}\n\
         - {name: f, description: d, exec: ls, wrapper: [nonsuch, --]}\n\
         - {name: g, description: d, exec: './later.sh ${CWD}/x'}\n\
         - {name: h, description: d, exec: '${CWD}/later.sh'}",
    )
    .llm("command: [no-model]")
    .top("wrapper: [no-box]");
    world.write("agent/plain.sh", "");
    world.write(
        "agent/hooks.yaml",
        "on_error: {command: ['${AGENT_HOME}/gone.sh']}\n\
         on_run_end:\n  - {command: [ls]}\n  - {command: [no-hook]}\n",
    );
    world.write(
        "agent/context.yaml",
        format!(
            "sources:\n{SYSTEM}  - type: computed_file\n    generator: {{command: [no-generator]}}\n    \
             output_path: x\n  - {{type: journal}}\n"
        ),
    );
    let install =
        |name: &str| format!("there is no program '{name}' in PATH; install it, or name another");
    assert_eq!(
        world.advice(),
        [
            format!("agent.yaml:2: wrapper: {}", install("no-box")),
            format!("agent.yaml:5: command: {}", install("no-model")),
            format!("agent.yaml:7: tool \"a\": {}", install("nonsuch")),
            "agent.yaml:8: tool \"b\": gone.sh does not exist; create it".to_owned(),
            "agent.yaml:9: tool \"c\": plain.sh cannot be executed; chmod +x plain.sh".to_owned(),
            "agent.yaml:10: tool \"d\": gone.sh does not exist; create it".to_owned(),
            "agent.yaml:11: tool \"e\": /no/such does not exist or cannot be executed".to_owned(),
            format!("agent.yaml:12: tool \"f\": wrapper: {}", install("nonsuch")),
            format!("context.yaml:4: command: {}", install("no-generator")),
            "hooks.yaml:1: command: gone.sh does not exist; create it".to_owned(),
            format!("hooks.yaml:4: command: {}", install("no-hook")),
        ]
    );
}

#[test]
fn programs_are_looked_for_where_the_agents_env_file_says() {
    let world = World::with_tools("- {name: a, description: d, exec: own-program}");
    world.script("bin/own-program", "#!/bin/sh\n");
    assert_eq!(world.advice().len(), 1);
    let path = format!("PATH={}\n", world.path("bin").display());
    world.write("agent/.env", path);
    assert_eq!(world.advice(), [""; 0]);
}

#[test]
fn what_is_wrong_with_the_env_file_is_told() {
    let world = World::new();
    world.write("agent/.env", "A=1\nnot a pair\n");
    let outcome = world.delta(["check", "agent"]).exits(0);
    outcome.says("agent/.env:2: not NAME=value, ignored");
}

#[test]
fn a_prompt_outside_of_the_agent_is_an_error_and_no_source_is_advised_for_it() {
    let world = World::new().top("system_prompt: ../x.md");
    world.write("x.md", "Be brief.");
    let outcome = world.delta(["check", "agent"]).end().exits(78);
    outcome
        .says_one_line()
        .says("system_prompt: ../x.md is outside the agent's directory");
}

#[test]
fn a_prompt_that_no_source_shows_is_warned_of() {
    let missing = "context.yaml:1: sources: none of them shows system_prompt.md, so the model does not see it; \
                   add {type: file, path: '${SYSTEM_PROMPT}'}";
    let computed = "  - {type: computed_file, output_path: x, generator: {command: [cat, ";
    for (sources, said) in [
        (String::new(), Some(missing)),
        (SYSTEM.to_owned(), None),
        (
            "  - {type: file, path: '${SYSTEM_PROMPT}'}\n".to_owned(),
            None,
        ),
        (
            "  - {type: file, path: '${AGENT_HOME}/./link.md'}\n".to_owned(),
            None,
        ),
        (
            "  - {type: file, path: '${AGENT_HOME}/other.md'}\n".to_owned(),
            Some(missing),
        ),
        (format!("{computed}x]}}}}\n"), Some(missing)),
        (
            format!("{computed}'${{AGENT_HOME}}/system_prompt.md']}}}}\n"),
            None,
        ),
    ] {
        let world = World::new();
        world.write("agent/other.md", "other");
        std::os::unix::fs::symlink("system_prompt.md", world.path("agent/link.md")).unwrap();
        let context = format!("sources:\n{sources}  - {{type: journal}}\n");
        world.write("agent/context.yaml", &context);
        assert_eq!(world.advice(), Vec::from_iter(said), "{context}");
    }
}

#[test]
fn a_misspelt_key_of_a_model_is_warned_of_and_one_for_its_service_is_not() {
    let near = "goes into each request as it is; did you mean";
    for (key, said) in [
        ("modell: x", Some("model")),
        ("base-url: x", Some("base_url")),
        ("timeout: 3", Some("timeout_ms")),
        ("max_retry: 3", Some("max_retries")),
        ("temprature: 0", Some("temperature")),
        ("top_p: 1", None),
        ("models: [a, b]", None),
        ("stream_options: {}", None),
        ("max_tokens: 5", None),
        ("reasoning_effort: low", None),
    ] {
        let world = World::new().llm(key);
        let name = key.split(':').next().unwrap();
        let said = said.map(|meant| format!("agent.yaml:5: llm: '{name}' {near} '{meant}'?"));
        assert_eq!(world.advice(), Vec::from_iter(said), "{key}");
    }
}

#[test]
fn a_temperature_that_services_refuse_is_warned_of() {
    for (value, is_said) in [("0", false), ("2", false), ("2.1", true), ("-1", true)] {
        let world = World::new().llm(&format!("temperature: {value}"));
        let said = "agent.yaml:5: llm: temperature: services refuse what is not between 0 and 2";
        let said = is_said.then(|| said.to_owned());
        assert_eq!(world.advice(), Vec::from_iter(said), "{value}");
    }
}

#[test]
fn a_path_with_another_variable_is_warned_of() {
    let world = World::new();
    let file = "  - {type: file, path: '${HOME}/${CWD}/x', on_missing: skip}\n";
    let context = format!("sources:\n{SYSTEM}{file}  - {{type: journal}}\n");
    world.write("agent/context.yaml", &context);
    assert_eq!(
        world.advice(),
        [
            "context.yaml:3: path: ${HOME}/${CWD}/x: ${HOME} is not replaced: only ${SYSTEM_PROMPT}, ${AGENT_HOME} and ${CWD} are"
        ]
    );
}

#[test]
fn a_context_without_a_journal_is_warned_of_by_check_and_by_run() {
    let world = World::new();
    world.write("agent/context.yaml", format!("sources:\n{SYSTEM}"));
    let said = "context.yaml:1: sources: no journal among them; the model will not see its task";
    assert_eq!(world.advice(), [said]);
    world.server.accepts_anything().says([text("done")]);
    world.run("go").exits(0).says(said);
}

#[test]
fn run_keeps_advice_to_itself() {
    let world = World::with_tools("- {name: t, shell: 'ls ${flags:raw} ${d}'}");
    assert_eq!(world.advice().len(), 2);
    world.model_says([text("done")]);
    world.run("go").exits(0).does_not_say("warning");
}

#[test]
fn advice_is_given_also_where_there_are_errors() {
    let world = World::with_tools("- {name: t, exec: 'ls ${d}'}").top("max_iterations: many");
    fs::remove_file(world.path("agent/system_prompt.md")).unwrap();
    world
        .delta(["check", "agent"])
        .refuses(78, "max_iterations")
        .says("system_prompt.md does not exist")
        .says("has no description");
}

#[test]
fn a_main_file_that_cannot_be_read_hides_nothing_else() {
    let world = World::new();
    world.write("agent/agent.yaml", "name: [\n");
    world.write("agent/hooks.yaml", "on_error: 3\n");
    world.write("agent/context.yaml", "sources: 3\n");
    world
        .delta(["check", "agent"])
        .exits(78)
        .says("agent/agent.yaml:2:1: not valid YAML")
        .says("agent/hooks.yaml:1: on_error: expected {command: […]}, found the number 3")
        .says("agent/context.yaml:1: sources: expected a list, found the number 3");
}

#[test]
fn json_has_one_object_for_editors() {
    let world = World::with_tools(
        "- {name: t, description: d, shell: 'ls ${d:raw}'}\n- {name: u, exec: 'a | b'}",
    )
    .top("colour: red");
    fs::remove_file(world.path("agent/context.yaml")).unwrap();
    world.write("agent/hooks.yaml", "pre_llm_req: {command: [ls]}\n");
    let outcome = world.delta(["check", "agent"]).json().exits(78);
    assert_eq!(outcome.stderr, "");
    let object = outcome.object();
    assert_eq!(object["ok"], false);
    let problems = object["problems"].as_array().unwrap();
    let short = |problem: &serde_json::Value| {
        let text = |key: &str| problem[key].as_str().unwrap().to_owned();
        let message: String = text("message").chars().take(24).collect();
        (
            text("severity"),
            text("file"),
            problem["line"].clone(),
            message,
        )
    };
    let said: Vec<_> = problems.iter().map(short).collect();
    let row = |severity: &str, file: &str, line, message: &str| {
        (
            severity.to_owned(),
            format!("agent/{file}"),
            line,
            message.to_owned(),
        )
    };
    assert_eq!(
        said,
        [
            row("warning", "agent.yaml", json!(2), "unknown key 'colour'"),
            row(
                "warning",
                "agent.yaml",
                json!(7),
                "tool \"t\": ${d:raw} is sp"
            ),
            row(
                "error",
                "agent.yaml",
                json!(8),
                "tool \"u\": Shell metachar"
            ),
            row(
                "error",
                "context.yaml",
                json!(null),
                "it does not exist, and h"
            ),
            row(
                "deprecation",
                "hooks.yaml",
                json!(1),
                "pre_llm_req is called pr"
            ),
        ]
    );
    let syntax = World::new();
    syntax.write("agent/agent.yaml", "name: probe\nllm: {\n");
    let object = syntax.delta(["check", "agent"]).json().exits(78).object();
    assert_eq!(object["problems"][0]["line"], 3);
    assert_eq!(object["problems"][0]["column"], 1);
    let good = World::new()
        .delta(["check", "agent"])
        .json()
        .exits(0)
        .object();
    assert_eq!((&good["ok"], &good["problems"]), (&json!(true), &json!([])));
    assert!(good["home"].as_str().unwrap().ends_with("/agent"), "{good}");
    let nowhere = World::new().delta(["check", "x"]).json().exits(78).object();
    assert_eq!(nowhere["problems"][0]["file"], "x");
}

#[test]
fn a_schema_is_reported_beside_the_other_errors() {
    let world = World::new().top("output_schema: s.json\nmax_iterations: 0");
    world.write("agent/s.json", "{\"type\": \"nonsense\"}");
    world
        .delta(["check", "agent"])
        .exits(78)
        .says("max_iterations")
        .says("output_schema: s.json");
}

#[test]
fn a_variable_without_its_closing_brace_is_reported() {
    let world = World::with_tools(
        "- {name: a, command: [echo, 'x${words'], parameters: [{name: words}]}\n\
         - {name: b, exec: 'echo ${words'}\n- {name: c, shell: 'echo ${words'}",
    )
    .top("wrapper: [env, 'D=${CWD']");
    let context = world.read("agent/context.yaml");
    let source = "  - {type: file, id: x, path: '${CWD/x', on_missing: skip}\n";
    world.write("agent/context.yaml", context + source);
    world.write(
        "agent/hooks.yaml",
        "on_run_end: {command: [echo, '${AGENT_HOME']}\n",
    );
    let checked = world.delta(["check", "agent"]).exits(78);
    for place in [
        "wrapper: D=${CWD: '${' has no closing '}'",
        "command: ${AGENT_HOME: '${' has no closing '}'",
        "path: ${CWD/x: '${' has no closing '}'",
        "tool \"b\"",
        "tool \"c\"",
    ] {
        assert!(
            checked.stderr.contains(place),
            "{place}\n{}",
            checked.stderr
        );
    }
}

#[test]
fn a_setting_that_check_would_warn_of_brings_the_same_warning() {
    let world = World::new();
    world.model_says([text("ok")]);
    let warning = "llm: 'temprature' goes into each request as it is; did you mean 'temperature'?";
    let run = world.run("go").args(["--set", "llm.temprature=1"]).exits(0);
    run.says(warning);
    let yaml = world.read("agent/agent.yaml") + "  temprature: 1\n";
    world.write("agent/agent.yaml", yaml);
    world.delta(["check", "agent"]).exits(0).says(warning);
}

#[test]
fn an_unknown_kind_and_a_path_that_is_no_parameter_are_warned_of_and_harmless() {
    let world = World::with_tools(
        "- {name: a, description: d, exec: 'cat -- ${f}', kind: raed, path: file}\n\
         - {name: b, description: d, exec: 'cat -- ${f}', kind: other, path: f}",
    );
    assert_eq!(
        world.advice(),
        [
            "agent.yaml:6: tool \"a\": kind: 'raed' is unknown; did you mean read?",
            "agent.yaml:6: tool \"a\": path: there is no parameter file; name one of the tool's",
        ]
    );
    world.model_says([text("done")]);
    let run = world.run("go").exits(0);
    run.does_not_say("kind");
    let offered = String::from_utf8_lossy(&world.server.last().body).into_owned();
    assert!(!offered.contains("raed"), "{offered}");
    let config = &world.latest().events("ENGINE_START")[0]["config"];
    assert_eq!(config["tools"][1]["kind"], "other");
    assert_eq!(config["tools"][1]["path"], "f");
}

#[test]
fn a_name_does_not_control_the_terminal() {
    let world = World::new();
    let yaml = world.read("agent/agent.yaml");
    let name = "name: \"\\e]0;PWN\\a\\u202e\\x9b31m\\nnext: ok\"";
    world.write("agent/agent.yaml", yaml.replace("name: probe", name));
    let outcome = world.delta(["check", "agent"]).exits(0);
    let shown = String::from_utf8(outcome.stdout).unwrap();
    let name = "\u{fffd}]0;PWN\u{fffd}\\u{202e}\u{fffd}31m\u{fffd}next: ok: ok, ";
    assert!(shown.starts_with(name), "{shown:?}");
    assert_eq!(shown.lines().count(), 1);
}

#[test]
fn thousands_of_tools_are_checked_in_the_time_of_reading_them() {
    let world = World::new();
    let tool = |n| {
        format!(
            "- {{name: t{n}, command: [odd-program-{n}], input: json, input_schema: {{type: object}}}}\n"
        )
    };
    let tools: String = (0..5_000).map(tool).collect();
    let agent = format!("name: many\nask_human: false\nllm: {{model: m}}\ntools:\n{tools}");
    world.write("agent/agent.yaml", agent);
    let check = world.delta(["check", "agent"]).under(&["timeout", "100"]);
    check.exits(0).says("odd-program-4999");
}

#[test]
fn yaml_of_more_than_16_mib_is_not_read() {
    let world = World::new();
    fs::File::create(world.path("agent/hooks.yaml"))
        .and_then(|file| file.set_len((16 << 20) + 1))
        .unwrap();
    let said = "hooks.yaml: cannot read it: it is larger than 16 MiB";
    world.delta(["check", "agent"]).exits(78).says(said);
    world.run("go").exits(78).says(said);
    world.server.may_stay_unasked();
    for file in ["flow/workflow.yaml", "suite/evaluations.yaml"] {
        let path = world.write(file, "");
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len((16 << 20) + 1)
            .unwrap();
    }
    for dir in ["flow", "suite"] {
        let check = world.delta(["flow", "check", dir]).exits(78);
        check.says("cannot read it: it is larger than 16 MiB");
    }
}
