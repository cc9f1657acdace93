//! The `.env` of a workspace, which the agent itself can write, and the variables of vendors: what
//! counts, what is ignored, and what no program gets.

use crate::harness::*;
use serde_json::json;
use std::fs;

const KEY: &str = "sk-trusted-0123456789";
const OTHER_KEY: &str = "sk-other-9876543210";
const ENV_TOOL: &str = "- {name: env, shell: 'env | sort'}";
const VENDORS: [&str; 6] = [
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_API_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "DELTA_PROVIDER_KEY",
];

/// What the tool `env` prints in a run.
fn printed(world: &World, delta: Delta) -> (String, Outcome) {
    world.model_says([call("a", "env", &json!({})), text("done")]);
    let outcome = delta.exits(0);
    (world.server.last().observation("a"), outcome)
}

fn value<'l>(lines: &'l str, name: &str) -> Option<&'l str> {
    let mut pairs = lines.lines().filter_map(|line| line.split_once('='));
    pairs.find(|(known, _)| *known == name).map(|pair| pair.1)
}

#[test]
fn a_workspace_chooses_no_compiler_package_source_cluster_or_directory_for_temporary_files() {
    let names = [
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTFLAGS",
        "CARGO_HOME",
        "CARGO_BUILD_RUSTC_WRAPPER",
        "npm_config_registry",
        "NPM_CONFIG_SCRIPT_SHELL",
        "PIP_INDEX_URL",
        "UV_INDEX_URL",
        "CC",
        "CXX",
        "CFLAGS",
        "GOPROXY",
        "KUBECONFIG",
        "DOCKER_HOST",
        "TMPDIR",
        "GCC_EXEC_PREFIX",
        "PYTEST_ADDOPTS",
        "SVN_SSH",
        "DBUS_SESSION_BUS_ADDRESS",
    ];
    let world = World::with_tools(ENV_TOOL);
    let lines: String = names.iter().map(|name| format!("{name}=/evil\n")).collect();
    world.write("ws/.env", format!("{lines}FRIENDLY=yes\n"));
    let (seen, mut outcome) = printed(&world, world.run("go"));
    for name in names {
        outcome = outcome.says(&format!("ws/.env: {name} is ignored"));
    }
    assert!(!seen.contains("/evil"), "{seen}");
    assert_eq!(value(&seen, "FRIENDLY"), Some("yes"));
}

#[test]
fn an_agent_lists_the_variables_that_a_workspace_may_set() {
    let world = World::with_tools(ENV_TOOL).top("workspace_env: [STAGE, APP_*, CC]");
    world.write(
        "ws/.env",
        "STAGE=test\nAPP_URL=here\nCC=tcc\nSTAGED=no\nAPP=no\nCXX=no\n",
    );
    world.write("agent/.env", "FROM_AGENT=yes\n");
    let (seen, outcome) = printed(&world, world.run("go"));
    for (name, expected) in [
        ("STAGE", Some("test")),
        ("APP_URL", Some("here")),
        ("CC", Some("tcc")),
        ("STAGED", None),
        ("APP", None),
        ("FROM_AGENT", Some("yes")),
    ] {
        assert_eq!(value(&seen, name), expected, "{name}");
    }
    assert_ne!(value(&seen, "CXX"), Some("no"));
    outcome
        .says("ws/.env: STAGED is ignored: workspace_env does not list it")
        .says("ws/.env: APP is ignored")
        .says("ws/.env: CXX is ignored");
}

#[test]
fn an_empty_list_keeps_a_workspace_from_setting_anything() {
    let world = World::with_tools(ENV_TOOL).top("workspace_env: []");
    world.write(
        "ws/.env",
        format!("HARMLESS=no\nDELTA_API_KEY={OTHER_KEY}\n"),
    );
    let (seen, outcome) = printed(&world, world.run("go").env("DELTA_API_KEY", KEY));
    assert_eq!(value(&seen, "HARMLESS"), None);
    outcome
        .says("HARMLESS is ignored")
        .says("DELTA_API_KEY is ignored");
    let sent = world.server.last();
    assert_eq!(
        sent.header("authorization"),
        Some(&*format!("Bearer {KEY}"))
    );
}

#[test]
fn check_reports_what_cannot_be_an_entry_of_the_list() {
    for (list, said) in [
        (
            "PATH",
            "agent.yaml:2: workspace_env: expected a list of strings",
        ),
        (
            "['A*B']",
            "agent.yaml:2: workspace_env: 'A*B' is neither a variable's name nor a prefix such as APP_*",
        ),
        ("['*']", "workspace_env: '*' is neither"),
        ("['']", "workspace_env: '' is neither"),
        ("[A-B]", "workspace_env: 'A-B' is neither"),
    ] {
        let world = World::new().top(&format!("workspace_env: {list}"));
        world.delta(["check", "agent"]).exits(78).says(said);
    }
    let world = World::new().top("workspace_env: [A, B_*]");
    let outcome = world.delta(["check", "agent"]).exits(0);
    outcome.does_not_say("workspace_env");
}

#[test]
fn a_workspaces_key_and_endpoint_reach_no_program() {
    let show = "env | sort";
    let world = World::with_tools(&format!(
        "{ENV_TOOL}\n- {{name: trusted, shell: '{show}', pass_api_key: true}}"
    ));
    world.write(
        "agent/hooks.yaml",
        "on_iteration_start: {command: [sh, -c, 'env >> ../hook']}\n",
    );
    let names = ["DELTA_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"];
    let urls = [
        "DELTA_BASE_URL",
        "OPENAI_BASE_URL",
        "OPENAI_API_URL",
        "ANTHROPIC_BASE_URL",
    ];
    let mut lines: String = names
        .iter()
        .map(|name| format!("{name}=sk-of-the-workspace-1\n"))
        .collect();
    lines.extend(urls.map(|name| format!("{name}=http://192.0.2.1/v1\n")));
    world.write("ws/.env", lines);
    world.model_says([
        calls(&[("a", "env", json!({})), ("b", "trusted", json!({}))]),
        text("done"),
    ]);
    world.run("go").exits(0);
    let last = world.server.last();
    let (tool, trusted) = (last.observation("a"), last.observation("b"));
    for seen in [&tool, &trusted, &world.read("hook")] {
        assert!(!seen.contains("sk-of-the-workspace-1"), "{seen}");
        assert!(!seen.contains("192.0.2.1"), "{seen}");
    }
    // The engine itself uses the key at an endpoint that the agent names.
    assert_eq!(
        last.header("authorization"),
        Some("Bearer sk-of-the-workspace-1")
    );
}

#[test]
fn a_program_that_is_the_model_gets_no_key_from_a_workspace_but_that_of_the_process() {
    let world = World::new().program([text("done")]);
    world.write("agent/model/1.sh", "env > ../../model-env\n");
    world.write("ws/.env", format!("DELTA_API_KEY={OTHER_KEY}\n"));
    world.run("go").env("DELTA_API_KEY", KEY).exits(0);
    assert_eq!(value(&world.read("model-env"), "DELTA_API_KEY"), Some(KEY));
}

#[test]
fn a_sub_agent_takes_no_setting_from_a_workspace() {
    let world = World::with_tools(ENV_TOOL);
    world.write(
        "ws/.env",
        "DELTA_MAX_DEPTH=1\nDELTA_LOG=debug\nDELTA_ADOPT=1\nDELTA_ANYTHING=1\n",
    );
    let (seen, outcome) = printed(&world, world.run("go"));
    for name in [
        "DELTA_MAX_DEPTH",
        "DELTA_LOG",
        "DELTA_ADOPT",
        "DELTA_ANYTHING",
    ] {
        assert_eq!(value(&seen, name), None, "{name}");
        assert!(outcome.stderr.contains(&format!(
            "ws/.env: {name} is ignored: of the variables that begin with DELTA_ a .env file sets only \
             DELTA_API_KEY and DELTA_BASE_URL"
        )));
    }
}

#[test]
fn engine_settings_come_from_the_process_alone() {
    for file in ["agent/.env", ".env"] {
        let world = World::with_tools(ENV_TOOL);
        fs::create_dir(world.path(".git")).unwrap();
        world.write(file, "DELTA_LOG=error\nDELTA_ANYTHING=1\nOWN=1\n");
        let (seen, outcome) = printed(&world, world.run("go"));
        assert_eq!(value(&seen, "DELTA_ANYTHING"), None, "{file}");
        assert_eq!(value(&seen, "OWN"), Some("1"), "{file}");
        outcome
            .says(".env: DELTA_LOG is ignored")
            .says(".env: DELTA_ANYTHING is ignored");
        let log = world.latest().text("engine.log");
        assert!(log.contains("INFO engine started"), "{log}");
    }
}

#[test]
fn no_vendors_variable_reaches_a_tool_a_hook_or_a_generator() {
    let world = World::with_tools(&format!(
        "{ENV_TOOL}\n- {{name: trusted, shell: 'env > ../trusted', pass_api_key: true}}"
    ));
    world.write(
        "agent/hooks.yaml",
        "on_iteration_start: {command: [sh, -c, 'env >> ../hook']}\n",
    );
    world.write(
        "agent/context.yaml",
        "sources:\n  - {type: computed_file, generator: {command: [sh, -c, 'env > ../generator; echo x']}, output_path: x}\n  - {type: journal}\n",
    );
    let mut delta = world.run("go").env("COPY", "sk-of-ANTHROPIC_API_KEY");
    for name in VENDORS {
        delta = delta.env(name, format!("sk-of-{name}"));
    }
    world.model_says([
        calls(&[("a", "env", json!({})), ("b", "trusted", json!({}))]),
        text("done"),
    ]);
    delta.exits(0);
    let last = world.server.last();
    for seen in [
        last.observation("a"),
        world.read("hook"),
        world.read("generator"),
    ] {
        for name in VENDORS {
            assert_eq!(value(&seen, name), None, "{name}");
        }
        assert_eq!(value(&seen, "COPY"), None);
    }
    // A tool that runs an agent of its own needs them.
    let trusted = world.read("trusted");
    assert_eq!(
        value(&trusted, "ANTHROPIC_API_KEY"),
        Some("sk-of-ANTHROPIC_API_KEY")
    );
}

#[test]
fn a_program_that_is_the_model_gets_the_vendors_variables() {
    let world = World::new().program([text("done")]);
    world.write("agent/model/1.sh", "env > ../../model-env\n");
    let mut delta = world.run("go");
    for name in &VENDORS[..5] {
        delta = delta.env(name, format!("sk-of-{name}"));
    }
    delta.exits(0);
    let seen = world.read("model-env");
    for name in &VENDORS[..5] {
        assert_eq!(value(&seen, name), Some(&*format!("sk-of-{name}")));
    }
}

#[test]
fn a_sub_agent_without_a_key_names_the_setting_that_passes_it_on() {
    let world = World::new().llm("base_url: http://192.0.2.1/v1");
    let nested = world.run("go").env("DELTA_DEPTH", "1").exits(78);
    nested
        .says("no key for http://192.0.2.1/v1")
        .says("say pass_api_key: true of the tool that starts this run")
        .does_not_say("set DELTA_API_KEY");
    let outermost = world.run("go").exits(78);
    outermost
        .says("set DELTA_API_KEY (to any word if the server asks for none), or")
        .does_not_say("pass_api_key");
}

#[test]
fn a_base_url_with_the_path_that_is_appended_to_it_is_refused() {
    let advice = "ends in /chat/completions, which is appended to it; omit that";
    let world = World::new().llm("base_url: http://127.0.0.1:9/v1/chat/completions/");
    let check = world.delta(["check", "agent"]).exits(78);
    check.says("agent.yaml:4: llm: base_url: it ").says(advice);
    world.run("go").exits(78).says(advice);
    let world = World::new().llm("base_url: http://127.0.0.1:9/v1");
    let yaml = world.read("agent/agent.yaml");
    let kept = yaml.lines().filter(|line| !line.contains("base_url"));
    world.write("agent/agent.yaml", kept.collect::<Vec<_>>().join("\n"));
    let url = "http://127.0.0.1:9/v1/chat/completions";
    let outcome = world.run("go").env("DELTA_BASE_URL", url).exits(78);
    outcome.says("the base URL").says(advice);
}
