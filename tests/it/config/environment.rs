//! `.env` files, keys and endpoints, what programs get to see, and engine.log.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::path::Path;

const KEY: &str = "sk-trusted-0123456789";
const OTHER_KEY: &str = "sk-other-9876543210";
const ENV_TOOL: &str = "- {name: env, shell: 'env | sort'}";

/// The agent says no base URL, so that the environment does.
fn without_base_url() -> World {
    let world = World::with_tools(ENV_TOOL);
    let yaml = world.read("agent/agent.yaml");
    let kept = yaml.lines().filter(|line| !line.contains("base_url"));
    world.write("agent/agent.yaml", kept.collect::<Vec<_>>().join("\n"));
    world
}

/// Where a key or a base URL can stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Workspace,
    Agent,
    Project,
    Process,
}

/// The nearest first. A workspace's key counts only if there is no other.
const PLACES: [Place; 4] = [
    Place::Agent,
    Place::Project,
    Place::Process,
    Place::Workspace,
];

/// Allows a workspace's `.env` to choose a server with a key of its own.
const ALLOWED: [&str; 2] = [
    "DELTA_WORKSPACE_ENV",
    "DELTA_API_KEY OPENAI_BASE_URL DELTA_BASE_URL",
];

/// `delta run` with these variables in these places. The project is the test's home.
fn with_variables(world: &World, variables: &[(Place, &str, &str)]) -> Delta {
    fs::create_dir_all(world.path(".git")).unwrap();
    let mut delta = world.run("go");
    for (place, name, value) in variables {
        let file = match place {
            Place::Workspace => "ws/.env",
            Place::Agent => "agent/.env",
            Place::Project => ".env",
            Place::Process => {
                delta = delta.env(name, value);
                continue;
            }
        };
        let before = fs::read_to_string(world.path(file)).unwrap_or_default();
        world.write(file, format!("{before}{name}={value}\n"));
    }
    delta
}

fn sent_key(world: &World) -> Option<String> {
    let key = world.server.last().header("authorization")?.to_owned();
    Some(key.strip_prefix("Bearer ").unwrap().to_owned())
}

/// No file below this directory has these bytes, but for those named.
#[track_caller]
fn nowhere(dir: &Path, secret: &str, but: &[&Path]) {
    for file in files_below(dir) {
        let bytes = fs::read(&file).unwrap_or_default();
        let found = bytes
            .windows(secret.len())
            .any(|part| part == secret.as_bytes());
        assert!(
            !found || but.contains(&file.as_path()),
            "{} has the key",
            file.display()
        );
    }
}

#[test]
fn the_nearest_place_that_has_a_variable_counts() {
    for at in 0..PLACES.len() {
        let world = without_base_url();
        let url = world.server.url();
        // The URL stands in the place that may send any of these keys.
        let mut variables: Vec<(Place, &str, String)> = PLACES[at..]
            .iter()
            .map(|place| (*place, "DELTA_API_KEY", format!("sk-{place:?}-0123456789")))
            .collect();
        variables.push((Place::Process, "DELTA_BASE_URL", url));
        let variables: Vec<(Place, &str, &str)> = variables
            .iter()
            .map(|(place, name, value)| (*place, *name, value.as_str()))
            .collect();
        world.model_says([text("done")]);
        with_variables(&world, &variables).exits(0);
        assert_eq!(
            sent_key(&world),
            Some(format!("sk-{:?}-0123456789", PLACES[at]))
        );
    }
}

#[test]
fn the_names_count_in_their_order() {
    let world = without_base_url();
    let url = world.server.url();
    let variables = [
        (Place::Process, "OPENAI_API_KEY", OTHER_KEY),
        (Place::Process, "DELTA_API_KEY", KEY),
        (Place::Process, "OPENAI_API_URL", "http://127.0.0.1:9/url"),
        (Place::Process, "OPENAI_BASE_URL", "http://127.0.0.1:9/base"),
        (Place::Process, "DELTA_BASE_URL", url.as_str()),
    ];
    world.model_says([text("done")]);
    with_variables(&world, &variables).exits(0);
    assert_eq!(sent_key(&world).as_deref(), Some(KEY));
    for name in ["OPENAI_API_URL", "OPENAI_BASE_URL"] {
        world.model_says([text("done")]);
        with_variables(
            &world,
            &[
                (Place::Process, name, &url),
                (Place::Process, "OPENAI_API_KEY", OTHER_KEY),
            ],
        )
        .exits(0);
        assert_eq!(sent_key(&world).as_deref(), Some(OTHER_KEY));
    }
}

#[test]
fn a_key_is_sent_only_to_an_endpoint_that_is_trusted_as_much() {
    let trust = |place| match place {
        Place::Workspace => 0,
        Place::Project => 1,
        Place::Agent | Place::Process => 2,
    };
    for key in PLACES {
        for endpoint in PLACES {
            let world = without_base_url();
            let url = world.server.url();
            let variables = [
                (key, "DELTA_API_KEY", KEY),
                (endpoint, "DELTA_BASE_URL", url.as_str()),
            ];
            let delta = with_variables(&world, &variables).env(ALLOWED[0], ALLOWED[1]);
            if trust(endpoint) >= trust(key) {
                world.model_says([text("done")]);
                delta.exits(0);
                assert_eq!(
                    sent_key(&world).as_deref(),
                    Some(KEY),
                    "{key:?} to {endpoint:?}"
                );
            } else {
                delta.refuses(78, "is not sent there").does_not_say(KEY);
                assert_eq!(world.server.connections(), 0, "{key:?} to {endpoint:?}");
                assert!(!world.exists("ws/.delta"), "{key:?} to {endpoint:?}");
            }
        }
    }
}

#[test]
fn a_workspace_that_names_an_endpoint_and_no_key_is_an_error() {
    for other in [None, Some((Place::Process, "OPENAI_API_KEY", KEY))] {
        let world = without_base_url();
        let url = world.server.url();
        let mut variables = vec![(Place::Workspace, "OPENAI_BASE_URL", url.as_str())];
        variables.extend(other);
        with_variables(&world, &variables)
            .env(ALLOWED[0], ALLOWED[1])
            .json()
            .exits(78)
            .says("workspace's .env")
            .says("without a key of its own")
            .does_not_say(KEY);
        assert_eq!(world.server.connections(), 0);
        assert!(!world.exists("ws/.delta"));
    }
}

#[test]
fn the_agents_own_endpoint_wins_over_every_variable() {
    let world = World::new();
    world.model_says([text("done")]);
    let elsewhere = (Place::Workspace, "DELTA_BASE_URL", "http://192.0.2.1/v1");
    with_variables(&world, &[elsewhere, (Place::Process, "DELTA_API_KEY", KEY)]).exits(0);
    assert_eq!(sent_key(&world).as_deref(), Some(KEY));
}

#[test]
fn a_directory_that_is_workspace_and_project_is_trusted_like_a_workspace() {
    let world = without_base_url();
    fs::create_dir(world.path(".git")).unwrap();
    let url = world.server.url();
    world.write(
        ".env",
        format!("DELTA_BASE_URL={url}\nDELTA_API_KEY={OTHER_KEY}\nPATH=/nowhere\n"),
    );
    let here = |world: &World| world.delta(["run", "-a", "agent", "-w", ".", "-m", "go"]);
    here(&world)
        .env("DELTA_API_KEY", KEY)
        .exits(78)
        .says("workspace's .env names the server");
    // One below the workspace can be written by its tools, too.
    fs::create_dir_all(world.path("sub/.git")).unwrap();
    fs::rename(world.path("agent"), world.path("sub/agent")).unwrap();
    fs::rename(world.path(".env"), world.path("sub/.env")).unwrap();
    let below = world.delta(["run", "-a", "sub/agent", "-w", ".", "-m", "go"]);
    below.exits(78).says("workspace's .env names the server");
    fs::rename(world.path("sub/agent"), world.path("agent")).unwrap();
    fs::rename(world.path("sub/.env"), world.path(".env")).unwrap();
    world.model_says([call("a", "env", &json!({})), text("done")]);
    let named = here(&world).env("OPENAI_BASE_URL", &url);
    named.exits(0).says("PATH is ignored");
    let path = told(&world.server.last().observation("a"), "PATH");
    let own = system_path();
    assert!(path.unwrap().starts_with(&own));
}

#[test]
fn no_key_for_a_remote_endpoint_is_an_error_with_three_ways_out() {
    let world = without_base_url();
    let elsewhere = [(Place::Process, "DELTA_BASE_URL", "http://192.0.2.1/v1")];
    with_variables(&world, &elsewhere)
        .exits(78)
        .says("DELTA_API_KEY")
        .says("OPENAI_API_KEY")
        .says("DELTA_BASE_URL")
        .says("llm.command");
    assert!(!world.exists("ws/.delta"));
}

#[test]
fn a_workspace_does_not_decide_which_program_runs() {
    let names = [
        "PATH",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "DYLD_INSERT_LIBRARIES",
        "BASH_ENV",
        "ENV",
        "IFS",
        "PYTHONPATH",
        "PYTHONPYCACHEPREFIX",
        "TAR_OPTIONS",
        "MAKEFLAGS",
        "NODE_OPTIONS",
        "GIT_SSH_COMMAND",
        "HOME",
    ];
    let peers = ["https_proxy", "SSL_CERT_FILE", "LOCALDOMAIN", "RES_OPTIONS"];
    let world = World::with_tools(ENV_TOOL);
    let all = names.iter().chain(&peers);
    let lines: String = all.map(|name| format!("{name}=/evil\n")).collect();
    world.write("ws/.env", format!("{lines}FRIENDLY=yes\n"));
    world.model_says([call("a", "env", &json!({})), text("done")]);
    let mut outcome = world.run("go").exits(0);
    for name in names {
        outcome = outcome.says(&format!("ws/.env: {name} is ignored"));
    }
    outcome.says(&format!("ws/.env: {} are ignored", peers.join(", ")));
    let told = world.server.last().observation("a");
    assert!(!told.contains("/evil"), "{told}");
    assert!(told.contains("FRIENDLY=yes\n"));
}

#[test]
fn an_agent_may_decide_which_program_runs() {
    let world = World::with_tools("- {name: own, exec: own-program}");
    world.script("agent/bin/own-program", "#!/bin/sh\necho mine\n");
    let path = std::env::var("PATH").unwrap();
    world.write(
        "agent/.env",
        format!("PATH={}:{path}\n", world.path("agent/bin").display()),
    );
    assert_eq!(world.observe("own", &json!({})), "mine\n");
}

#[test]
fn a_line_that_means_nothing_is_named() {
    let world = World::new();
    world.write("agent/.env", "A=1\nnonsense\n");
    world.model_says([text("done")]);
    world
        .run("go")
        .exits(0)
        .says("agent/.env:2: not NAME=value");
}

/// The names of the variables that a program told, and their values.
fn told(lines: &str, name: &str) -> Option<String> {
    let found = lines
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}=")));
    found.map(str::to_owned)
}

#[test]
fn no_program_sees_the_key_but_the_model_and_those_who_are_given_it() {
    for place in PLACES {
        let tools = format!(
            "{ENV_TOOL}\n- {{name: trusted, shell: 'env | sort > ../trusted', pass_api_key: true}}"
        );
        let world = World::with_tools(&tools);
        world.write(
            "agent/hooks.yaml",
            "on_iteration_start: {command: [sh, -c, 'env >> ../hook']}\n",
        );
        world.write(
            "agent/context.yaml",
            "sources:\n  - {type: computed_file, generator: {command: [sh, -c, 'env > ../generator; echo x']}, output_path: x}\n  - {type: journal}\n",
        );
        let variables = [
            (place, "DELTA_API_KEY", KEY),
            (place, "COPY_OF_THE_KEY", KEY),
            (place, "HARMLESS", "yes"),
        ];
        world.model_says([
            call("a", "env", &json!({})),
            call("b", "trusted", &json!({})),
            text("done"),
        ]);
        with_variables(&world, &variables).exits(0);
        let seen = world.server.last().observation("a");
        for lines in [&seen, &world.read("hook"), &world.read("generator")] {
            assert_eq!(told(lines, "DELTA_API_KEY"), None, "{place:?}");
            assert_eq!(told(lines, "COPY_OF_THE_KEY"), None, "{place:?}");
        }
        for (lines, is_tool) in [(&seen, true), (&world.read("hook"), false)] {
            let expected = (is_tool || place != Place::Workspace).then_some("yes");
            assert_eq!(told(lines, "HARMLESS").as_deref(), expected, "{place:?}");
        }
        // A workspace's key is for the engine alone.
        let passed = (place != Place::Workspace).then_some(KEY);
        assert_eq!(
            told(&world.read("trusted"), "DELTA_API_KEY").as_deref(),
            passed
        );
        nowhere(&world.path("ws/.delta"), KEY, &[]);
    }
}

#[test]
fn a_program_that_is_the_model_gets_the_key() {
    let world = World::new().program([text("done")]);
    world.write("agent/model/1.sh", "env > ../../model-env\n");
    with_variables(&world, &[(Place::Agent, "OPENAI_API_KEY", KEY)]).exits(0);
    assert_eq!(
        told(&world.read("model-env"), "OPENAI_API_KEY").as_deref(),
        Some(KEY)
    );
}

#[test]
fn whoever_gets_the_key_is_not_told_to_send_it_to_a_workspaces_endpoint() {
    let world = World::new().program([text("done")]);
    world.write("agent/model/1.sh", "env > ../../model-env\n");
    let elsewhere = (Place::Workspace, "DELTA_BASE_URL", "http://192.0.2.1/v1");
    with_variables(&world, &[elsewhere, (Place::Process, "DELTA_API_KEY", KEY)]).exits(0);
    let env = world.read("model-env");
    assert_eq!(told(&env, "DELTA_API_KEY").as_deref(), Some(KEY));
    assert_eq!(told(&env, "DELTA_BASE_URL"), None);
}

#[test]
fn an_endpoint_that_is_not_trusted_reaches_no_tool() {
    // A delta in the tool would take it for its parent's word, and send its own key there.
    for place in PLACES {
        let tools =
            format!("{ENV_TOOL}\n- {{name: trusted, shell: 'env | sort', pass_api_key: true}}");
        let world = World::with_tools(&tools);
        let elsewhere = (place, "DELTA_BASE_URL", "http://192.0.2.1/v1");
        world.model_says([
            call("a", "env", &json!({})),
            call("b", "trusted", &json!({})),
            text("done"),
        ]);
        with_variables(&world, &[elsewhere]).exits(0);
        let trusted = matches!(place, Place::Agent | Place::Process);
        for call in ["a", "b"] {
            let env = world.server.last().observation(call);
            assert_eq!(told(&env, "DELTA_BASE_URL").is_some(), trusted, "{place:?}");
        }
    }
}

#[test]
fn a_key_in_a_file_is_enough_to_start_and_to_go_on() {
    for place in [Place::Workspace, Place::Agent, Place::Project] {
        let world = without_base_url();
        let url = world.server.url();
        let variables = [
            (place, "DELTA_API_KEY", KEY),
            (place, "DELTA_BASE_URL", url.as_str()),
        ];
        world.model_says([call("a", "env", &json!({})), text("done")]);
        with_variables(&world, &variables)
            .env(ALLOWED[0], ALLOWED[1])
            .arg("--max-iterations=1")
            .exits(4);
        let more = world.go_on().env(ALLOWED[0], ALLOWED[1]);
        more.exits(0).prints("done\n");
        assert_eq!(sent_key(&world).as_deref(), Some(KEY));
    }
}

#[test]
fn nothing_that_is_written_has_the_key() {
    let world = World::with_tools(ENV_TOOL).llm("max_retries: 1");
    let echo = format!("Incorrect API key provided: {KEY}");
    world.model_says([
        Reply::error(503, &echo).header("Retry-After", "0"),
        Reply::error(401, &echo),
    ]);
    world
        .run("go")
        .env("DELTA_API_KEY", KEY)
        .env("DELTA_LOG", "debug")
        .exits(4)
        .says("Incorrect API key provided")
        .does_not_say(KEY);
    nowhere(&world.path("ws"), KEY, &[]);
}

/// The lines of engine.log without their times.
fn log(world: &World) -> Vec<String> {
    let text = world.latest().text("engine.log");
    let line = |line: &str| {
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.ends_with('Z') && time.len() == 24, "{line}");
        rest.to_owned()
    };
    text.lines().map(line).collect()
}

fn talk(world: &World, level: Option<&str>) {
    world.model_says([
        Reply::error(503, "Loading model").header("Retry-After", "0"),
        call("a", "env", &json!({})),
        text("done"),
    ]);
    let mut delta = world.run("go");
    if let Some(level) = level {
        delta = delta.env("DELTA_LOG", level);
    }
    delta.exits(0);
}

#[test]
fn the_log_tells_starts_ends_and_what_did_not_work() {
    let world = World::with_tools(ENV_TOOL);
    talk(&world, None);
    let lines = log(&world);
    assert_eq!(lines.len(), 3, "{lines:?}");
    let version = format!(
        "INFO engine started: delta {}, pid ",
        env!("CARGO_PKG_VERSION")
    );
    assert!(lines[0].starts_with(&version) && lines[0].contains(&world.latest().id()));
    assert!(
        lines[1].starts_with("WARN ")
            && lines[1].contains("Loading model")
            && lines[1].contains("waiting 0.0 s")
    );
    assert!(lines[2].starts_with("INFO engine ended: pid ") && lines[2].contains("COMPLETED"));
}

#[test]
fn the_level_says_how_much_is_in_the_log() {
    for (level, lines) in [("error", 0), ("warn", 1), ("INFO", 3), ("debug", 6)] {
        let world = World::with_tools(ENV_TOOL);
        talk(&world, Some(level));
        let written = if lines == 0 {
            assert!(!world.latest().path("engine.log").exists());
            Vec::new()
        } else {
            log(&world)
        };
        assert_eq!(written.len(), lines, "{level}: {written:?}");
        if level == "debug" {
            assert!(
                written
                    .iter()
                    .any(|line| line.starts_with("DEBUG tool env: exit code 0 after "))
            );
            assert!(
                written
                    .iter()
                    .any(|line| line.starts_with("DEBUG invocation ")
                        && line.contains(": answered, after "))
            );
        }
    }
}

#[test]
fn an_unknown_level_is_named() {
    let world = World::new();
    world.model_says([text("done")]);
    world
        .run("go")
        .env("DELTA_LOG", "loud")
        .exits(0)
        .says("DELTA_LOG=loud")
        .says("using info");
    assert_eq!(log(&world).len(), 2);
}

#[test]
fn a_failure_and_a_process_that_was_killed_are_in_the_log() {
    let world = World::with_tools("- {name: hang, shell: 'sleep 600', timeout_ms: 50}");
    world.model_says([
        call("a", "hang", &json!({})),
        Reply::error(400, "no such model"),
    ]);
    world.run("go").exits(4);
    let lines = log(&world);
    let has = |words: &[&str]| {
        lines
            .iter()
            .any(|line| words.iter().all(|word| line.contains(word)))
    };
    assert!(
        has(&["WARN tool hang: timed out and killed after "]),
        "{lines:?}"
    );
    assert!(has(&["WARN invocation ", "no such model"]), "{lines:?}");
    assert!(
        has(&[
            "ERROR engine ended",
            "INTERRUPTED (model_refused), exit code 4"
        ]),
        "{lines:?}"
    );
}

#[test]
fn a_hook_that_says_the_key_does_not_get_it_into_the_log() {
    let world = World::new();
    let hook = "[sh, -c, 'cat \"$AGENT_HOME/.env\" >&2; exit 1']";
    world.write(
        "agent/hooks.yaml",
        format!("on_run_end: {{command: {hook}}}\n"),
    );
    world.model_says([text("done")]);
    with_variables(&world, &[(Place::Agent, "DELTA_API_KEY", KEY)]).exits(0);
    let log = world.latest().text("engine.log");
    assert!(
        log.contains("hook 001_on_run_end failed") && !log.contains(KEY),
        "{log}"
    );
}

/// `delta run -v` with stderr on a terminal, if the system has a program that makes one.
fn on_a_terminal(kind: &str, no_color: Option<&str>) -> Option<String> {
    let world = World::new();
    world.model_says([text("done")]).may_stay_unasked();
    let mut delta = world.run("go").arg("-v").env("TERM", kind);
    if let Some(value) = no_color {
        delta = delta.env("NO_COLOR", value);
    }
    let outcome = delta
        .under(&["sh", "-c", "exec script -qec \"$*\" /dev/null", "sh"])
        .end();
    if outcome.code() == Some(127) {
        eprintln!("skipped: there is no script(1)");
        return None;
    }
    let outcome = outcome.exits(0);
    Some(String::from_utf8(outcome.stdout).unwrap())
}

#[test]
fn colour_is_for_terminals_and_for_those_who_want_it() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").arg("-v").exits(0).does_not_say("\u{1b}[");
    for (kind, no_color, coloured) in [
        ("xterm", None, true),
        ("xterm", Some(""), true),
        ("xterm", Some("1"), false),
        ("dumb", None, false),
        ("", None, false),
    ] {
        if let Some(shown) = on_a_terminal(kind, no_color) {
            let is_coloured = shown.contains("\u{1b}[");
            assert_eq!(is_coloured, coloured, "{kind}, {no_color:?}: {shown}");
        }
    }
}

#[test]
fn the_key_of_a_provider_comes_first_and_is_passed_on_as_the_everyday_one() {
    let show = "env | grep -e KEY -e COPY | sort; echo .";
    let world = World::with_tools(&format!(
        "- {{name: env, shell: '{show}'}}\n- {{name: trusted, shell: '{show}', pass_api_key: true}}"
    ));
    world.write("ws/.env", "DELTA_API_KEY=sk-of-the-workspace-1\n");
    world.model_says([
        calls(&[("a", "env", json!({})), ("b", "trusted", json!({}))]),
        text("done"),
    ]);
    world
        .run("go")
        .env("DELTA_PROVIDER_KEY", KEY)
        .env("OPENAI_API_KEY", OTHER_KEY)
        .env("COPY", KEY)
        .env("COPY_OF_OTHER", OTHER_KEY)
        .exits(0);
    let last = world.server.last();
    assert_eq!(
        last.header("authorization"),
        Some(&*format!("Bearer {KEY}"))
    );
    // In the observations the keys are replaced.
    assert!(!last.observation("b").contains(KEY));
    let [kept, seen] = [1, 2].map(|n| {
        let dir = world.latest().execution(n);
        fs::read_to_string(dir.join("stdout.log")).unwrap()
    });
    assert!(!kept.contains(KEY), "{kept}");
    assert!(seen.contains(&format!("DELTA_API_KEY={KEY}\n")), "{seen}");
    assert!(!seen.contains("DELTA_PROVIDER_KEY"), "{seen}");
    // A line in a workspace's file is not what whoever starts the run gives.
    let world = World::with_tools(ENV_TOOL);
    world.write("ws/.env", format!("DELTA_PROVIDER_KEY={OTHER_KEY}\n"));
    world.model_says([call("a", "env", &json!({})), text("done")]);
    world.run("go").env("DELTA_API_KEY", KEY).exits(0);
    let last = world.server.last();
    assert_eq!(
        last.header("authorization"),
        Some(&*format!("Bearer {KEY}"))
    );
    assert!(!last.observation("a").contains("DELTA_PROVIDER_KEY"));
}

#[test]
fn a_key_that_cannot_be_sent_is_named_with_its_fault() {
    for (key, words) in [
        (
            "sk-abc\u{2019}def",
            "OPENAI_API_KEY in the environment: character 7 is '\\u{2019}'",
        ),
        ("sk-a\u{7}b", "character 5 is '\\u{7}'"),
        ("\"sk-abc\"", "quotes around it"),
        ("\u{201c}sk-abc\u{201d}", "quotes around it"),
        (" sk-abc", "blanks or line breaks around it"),
        ("sk-abc\n", "blanks or line breaks around it"),
    ] {
        let world = World::unasked();
        world
            .run("go")
            .env("OPENAI_API_KEY", key)
            .refuses(78, words)
            .does_not_say("sk-a");
        assert_eq!(world.server.requests().len(), 0, "{key:?}");
    }
}

#[test]
fn a_base_url_may_have_a_query_which_stays_at_the_end() {
    let world = World::new();
    let url = format!("{}/?api-version=2026-01-01&of=a/", world.server.url());
    world.write(
        "agent/agent.yaml",
        format!("name: probe\nllm: {{model: scripted, base_url: '{url}'}}\n"),
    );
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    let line = world.server.last().line.clone();
    assert!(
        line.starts_with("POST /v1/chat/completions?api-version=2026-01-01&of=a/ "),
        "{line}"
    );
    for (end, why) in [("#top", "fragment"), ("/chat/completions?x=1", "omit that")] {
        let wrong = format!("{}{end}", world.server.url());
        let set = format!("llm.base_url={wrong}");
        let run = world.run("go").args(["--new", "--set", &set]).end();
        assert!(run.stderr.contains(why), "{}", run.stderr);
    }
}

#[test]
fn a_command_can_print_the_key() {
    let world = World::new();
    world.model_says([text("done")]);
    let log = world.path("log");
    let command = format!("pwd >> {}; echo sk-printed-0123; echo more", log.display());
    let run = |command: &str| {
        world
            .run("go")
            .arg("--new")
            .env("DELTA_API_KEY_COMMAND", command)
    };
    run(&command).exits(0).prints("done\n");
    let bearer = world.server.last();
    assert_eq!(
        bearer.header("authorization"),
        Some("Bearer sk-printed-0123")
    );
    assert_eq!(world.lines("log"), ["/"]);
    // A variable comes first, and looking runs nothing.
    world.model_says([text("done")]);
    run(&command).env("DELTA_API_KEY", "sk-other-0123").exits(0);
    let bearer = world.server.last();
    assert_eq!(bearer.header("authorization"), Some("Bearer sk-other-0123"));
    run(&command)
        .arg("--dry-run")
        .exits(0)
        .says("DELTA_API_KEY_COMMAND in the environment");
    assert_eq!(world.lines("log"), ["/"]);
    for (command, words) in [
        ("echo locked >&2; exit 3", ": locked"),
        ("echo", "the first line that the command prints is empty"),
        ("printf '\u{2018}k\u{2019}\\n'", "quotes"),
    ] {
        run(command)
            .refuses(78, words)
            .says("DELTA_API_KEY_COMMAND");
    }
    world.write("agent/.env", "DELTA_API_KEY_COMMAND=exit 9\n");
    world.model_says([text("done")]);
    world
        .run("go")
        .arg("--new")
        .exits(0)
        .says("DELTA_API_KEY_COMMAND is ignored");
}

#[test]
fn a_command_that_prints_more_than_a_key_is_ended_with_what_it_started() {
    let world = World::new();
    world.server.may_stay_unasked();
    let path = world.path("pid");
    let child = format!(
        "echo $$ >{}; head -c 100000 /dev/zero; exec sleep 600",
        path.display()
    );
    let outcome = world
        .run("go")
        .env("DELTA_API_KEY_COMMAND", format!("sh -c '{child}' & wait"))
        .refuses(78, "the command prints more than a key");
    outcome.does_not_say("has not ended");
    let pid = world.read("pid").trim().parse().unwrap();
    eventually("what the command started ends", || !alive(pid));
}

#[test]
fn a_signal_ends_the_command_that_prints_the_key() {
    let world = World::new();
    world.server.may_stay_unasked();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let pid = format!("pid-{code}");
        let path = world.path(&pid);
        let command = format!(
            "trap '' INT TERM HUP; echo $$ >{}; sleep 600",
            path.display()
        );
        let running = world
            .run("go")
            .env("DELTA_API_KEY_COMMAND", command)
            .spawn();
        eventually("the command runs", || {
            world.exists(&pid) && world.read(&pid).ends_with('\n')
        });
        running.signal(signal);
        running.wait().exits(code).says("ended by SIG");
        let pid = world.read(&pid).trim().parse().unwrap();
        eventually("the command ends", || !alive(pid));
        assert!(!world.path("work/.delta/LATEST").exists());
    }
}

#[test]
fn programs_that_get_the_key_get_its_value_and_not_the_command() {
    let tools = "- {name: with, exec: env, pass_api_key: true}\n- {name: without, exec: env}";
    let world = World::with_tools(tools);
    world.model_says([
        calls(&[("a", "with", json!({})), ("b", "without", json!({}))]),
        text("done"),
    ]);
    world
        .run("go")
        .env("DELTA_API_KEY_COMMAND", "echo sk-printed-0123")
        .exits(0);
    let run = world.latest();
    let seen = |n: usize| fs::read_to_string(run.execution(n).join("stdout.log")).unwrap();
    assert!(seen(1).contains("\nDELTA_API_KEY=sk-printed-0123\n"));
    assert!(!seen(2).contains("sk-printed"), "{}", seen(2));
    for n in [1, 2] {
        assert!(!seen(n).contains("COMMAND"), "{}", seen(n));
    }
}
