//! The `.env` of a workspace, which the agent itself can write, and the variables of vendors: what
//! counts, what is ignored, and what no program gets.

use crate::harness::*;
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;

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
             DELTA_API_KEY, DELTA_BASE_URL and DELTA_API"
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

/// An agent that leaves its server to the environment.
fn without_base_url() -> World {
    let world = World::with_tools(ENV_TOOL);
    let yaml = world.read("agent/agent.yaml");
    let kept = yaml.lines().filter(|line| !line.contains("base_url"));
    world.write("agent/agent.yaml", kept.collect::<Vec<_>>().join("\n"));
    world
}

fn set_mode(world: &World, path: &str, mode: u32) {
    fs::set_permissions(world.path(path), Permissions::from_mode(mode)).unwrap();
}

fn sent_key(world: &World) -> Option<String> {
    let last = world.server.last();
    last.header("authorization")
        .map(|header| header.replace("Bearer ", ""))
}

#[test]
fn a_workspace_names_no_server_unless_it_is_allowed() {
    let evil = Server::start();
    evil.may_stay_unasked();
    let lines = format!(
        "DELTA_BASE_URL={}\nOPENAI_BASE_URL={}\nDELTA_API=messages\nhttp_proxy={}\nGEMINI_BASE_URL=x\nDELTA_API_KEY={OTHER_KEY}\n",
        evil.url(),
        evil.url(),
        evil.url()
    );
    // No default is a source that names one.
    let world = without_base_url();
    world.write("ws/.env", &lines);
    let run = world.run("go").env("DELTA_API_KEY", KEY).exits(78);
    run.says("the workspace's .env names the server http://")
        .says(".config/delta/env")
        .says("DELTA_WORKSPACE_ENV=DELTA_BASE_URL")
        .does_not_say("DELTA_BASE_URL is ignored");
    assert!(!world.exists("ws/.delta"));
    // Without a model, too.
    world.write("agent/agent.yaml", "name: test\nllm: {}\n");
    let run = world.run("go").env("DELTA_API_KEY", KEY).exits(78);
    run.says("the workspace's .env names the server http://");
    // What names one: the process, the person, the agent.
    let start = |place: usize| {
        let world = without_base_url();
        world.write("ws/.env", &lines);
        let line = format!("DELTA_BASE_URL={}\n", world.server.url());
        let run = world.run("go").env("DELTA_API_KEY", KEY);
        let named = match place {
            0 => run.env("DELTA_BASE_URL", world.server.url()),
            1 => {
                world.write(".config/delta/env", line);
                set_mode(&world, ".config/delta/env", 0o600);
                run
            }
            _ => {
                world.write("agent/.env", line);
                run
            }
        };
        world.model_says([text("done")]);
        let run = named.exits(0);
        let warnings = run.stderr.lines().filter(|line| line.contains("BASE_URL"));
        assert_eq!(warnings.count(), 1, "{}", run.stderr);
        let ignored = "DELTA_BASE_URL, OPENAI_BASE_URL, DELTA_API, http_proxy, GEMINI_BASE_URL";
        run.says(&format!("ws/.env: {ignored} are ignored: "))
            .does_not_say("the key comes from");
        assert_eq!(sent_key(&world).as_deref(), Some(KEY));
    };
    (0..3).for_each(start);
    assert_eq!(evil.connections(), 0);
    // A list counts if it is the person's, or that of an agent whose files no tool of this workspace can write.
    let names = "DELTA_API_KEY DELTA_BASE_URL";
    let list = format!("workspace_env: [{}]", names.replace(' ', ", "));
    for by_person in [true, false] {
        let world = without_base_url();
        let line = format!(
            "DELTA_BASE_URL={}\nDELTA_API_KEY={OTHER_KEY}\n",
            world.server.url()
        );
        world.write("ws/.env", &line);
        world.model_says([text("done")]);
        let run = if by_person {
            world.run("go").env("DELTA_WORKSPACE_ENV", names)
        } else {
            let yaml = world.read("agent/agent.yaml");
            world.write("agent/agent.yaml", format!("{yaml}\n{list}\n"));
            world.run("go")
        };
        let run = run.env("DELTA_API_KEY", KEY).exits(0);
        run.does_not_say("warning");
        assert_eq!(sent_key(&world).as_deref(), Some(OTHER_KEY));
        if !by_person {
            // Now the agent lies in the workspace.
            fs::rename(world.path("ws/.env"), world.path(".env")).unwrap();
            let here = world.delta(["run", "-a", "agent", "-w", ".", "-m", "go"]);
            here.exits(78).says("names the server");
        }
    }
    // Neither a .env nor a person's file in the workspace is the person's word.
    let world = without_base_url();
    world.write(
        "ws/.env",
        format!("{lines}DELTA_WORKSPACE_ENV=DELTA_BASE_URL\n"),
    );
    world.run("go").exits(78).says("names the server");
    world.write(
        "ws/.config/delta/env",
        format!("DELTA_WORKSPACE_ENV={names}\n"),
    );
    set_mode(&world, "ws/.config/delta/env", 0o600);
    let inside = world
        .run("go")
        .env("XDG_CONFIG_HOME", world.path("ws/.config"));
    inside.exits(78).says("names the server");
    assert_eq!(evil.connections(), 0);
}

#[test]
fn a_workspaces_key_counts_if_there_is_no_other_and_is_said() {
    let said = "warning: the key comes from the workspace's .env";
    for other in [None, Some("OPENAI_API_KEY"), Some("DELTA_API_KEY")] {
        let world = World::new();
        // As a framework's file has it.
        world.write(
            "ws/.env",
            format!("DATABASE_URL=postgres://x\nOPENAI_API_KEY={OTHER_KEY}\n"),
        );
        world.model_says([text("done")]);
        let run = match other {
            Some(name) => world.run("go").env(name, KEY).exits(0).does_not_say(said),
            None => world.run("go").exits(0).says(said),
        };
        assert!(!run.stderr.contains(OTHER_KEY));
        let expected = if other.is_some() { KEY } else { OTHER_KEY };
        assert_eq!(sent_key(&world).as_deref(), Some(expected), "{other:?}");
    }
    // So does a header in which servers expect a key; another one is delta's own.
    let world = World::new().llm("headers: {api-key: {env: APP_KEY}}");
    world.write("ws/.env", format!("APP_KEY={OTHER_KEY}\n"));
    world.model_says([text("done")]);
    world.run("go").exits(0).says(said);
    assert_eq!(world.server.last().header("api-key"), Some(OTHER_KEY));
    let world = World::new().llm("headers: {x-tenant: {env: APP_KEY}}");
    world.write("ws/.env", format!("APP_KEY={OTHER_KEY}\n"));
    let said = "llm.headers: x-tenant: APP_KEY in the workspace's .env is for tools alone";
    world.run("go").exits(78).says(said);
}

#[test]
fn what_a_workspace_sets_reaches_tools_alone_unless_it_is_allowed() {
    const PROGRAMS: [&str; 6] = ["tool", "before", "end", "generator", "check", "nested"];
    for listed in [false, true] {
        let world = World::with_tools(
            "- {name: env, shell: 'env > ../tool; \"$DELTA\" run -a ../other -w ../nested-ws -m go > /dev/null'}",
        );
        let look = |name: &str| format!("{{command: [sh, -c, 'env > ../{name}; echo x > facts']}}");
        let hooks = ["pre_tool_execution: before", "on_run_end: end"];
        let hooks = hooks.map(|hook| hook.split_once(": ").unwrap());
        let hooks = hooks.map(|(event, name)| format!("{event}: {}\n", look(name)));
        world.write("agent/hooks.yaml", hooks.concat());
        let sources = format!(
            "sources:\n  - {{type: computed_file, generator: {}, output_path: facts}}\n  - {{type: journal}}\n",
            look("generator")
        );
        world.write("agent/context.yaml", sources);
        let yaml = world.read("agent/agent.yaml");
        let accept = "accept: [{command: [sh, -c, 'env > ../check']}]\n";
        world.write("agent/agent.yaml", format!("{yaml}\n{accept}"));
        world.write(
            "other/agent.yaml",
            "name: o\nllm: {command: [sh, -c, 'env > ../nested; exit 1']}\n",
        );
        world.write("other/context.yaml", "sources:\n  - {type: journal}\n");
        world.write("other/system_prompt.md", "x\n");
        world.write("ws/.env", "SEEN=yes\nPATH_OF_MINE=/x\n");
        world.model_says([call("a", "env", &json!({})), text("done")]);
        let run = world.run("go").env("DELTA", env!("CARGO_BIN_EXE_delta"));
        let run = if listed {
            run.env("DELTA_WORKSPACE_ENV", "OTHER SEEN")
        } else {
            run
        };
        run.exits(0);
        for program in PROGRAMS {
            let sees = value(&world.read(program), "SEEN") == Some("yes");
            // A run that a tool starts has the tool's environment.
            let is_tool = ["tool", "nested"].contains(&program);
            assert_eq!(sees, listed || is_tool, "{program} {listed}");
        }
    }
    let world = World::new().program([text("done")]);
    world.write("agent/model/1.sh", "env > ../../model-env\n");
    world.write("ws/.env", "SEEN=yes\n");
    world.run("go").exits(0);
    assert_eq!(value(&world.read("model-env"), "SEEN"), None);
    // The nearest file counts for tools; for others the next one does.
    let world = World::with_tools(ENV_TOOL);
    world.write(
        "agent/hooks.yaml",
        "on_run_end: {command: [sh, -c, 'env > ../hook']}\n",
    );
    world.write("ws/.env", "STAGE=workspace\n");
    world.write("agent/.env", "STAGE=agent\n");
    let (seen, _) = printed(&world, world.run("go"));
    assert_eq!(value(&seen, "STAGE"), Some("workspace"));
    assert_eq!(value(&world.read("hook"), "STAGE"), Some("agent"));
}

#[test]
fn a_projects_file_counts_only_where_nobody_else_can_write() {
    let start = |prepare: &dyn Fn(&World)| {
        let world = World::with_tools(ENV_TOOL);
        let root = world.path("");
        let within = |name: &str| world.path(&format!("up/proj/{name}"));
        fs::create_dir_all(within("sub")).unwrap();
        fs::rename(root.join("agent"), within("sub/agent")).unwrap();
        fs::create_dir(within(".git")).unwrap();
        world.write("up/proj/.env", "OWN=yes\n");
        for (path, mode) in [
            ("", 0o755),
            (".git", 0o755),
            ("sub", 0o755),
            (".env", 0o644),
        ] {
            fs::set_permissions(within(path), Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir_all(world.path("ws")).unwrap();
        prepare(&world);
        let run = world.delta(["run", "-a", "up/proj/sub/agent", "-w", "ws", "-m", "go"]);
        let (seen, outcome) = printed(&world, run);
        (value(&seen, "OWN").is_some(), outcome)
    };
    let said = "up/proj/.env is ignored: ";
    for (path, mode, why) in [
        ("", 0o777, "proj can be written by everybody"),
        ("", 0o1777, "proj can be written by everybody"),
        ("sub", 0o1777, "sub can be written by everybody"),
        ("sub/agent", 0o777, "agent can be written by everybody"),
        (".git", 0o777, ".git can be written by everybody"),
        (".env", 0o666, ".env can be written by everybody"),
    ] {
        let (counts, outcome) = start(&|world| set_mode(world, &format!("up/proj/{path}"), mode));
        assert!(!counts, "{path} {mode:o}");
        outcome.says(said).says(why);
    }
    // With umask 002; a directory above, such as /tmp; a worktree; nothing there.
    for honest in [
        (&|world: &World| {
            for (path, mode) in [
                ("", 0o2775),
                ("sub", 0o775),
                (".git", 0o775),
                (".env", 0o664),
            ] {
                set_mode(world, &format!("up/proj/{path}"), mode);
            }
        }) as &dyn Fn(&World),
        &|world| set_mode(world, "up", 0o1777),
        &|world| {
            fs::remove_dir(world.path("up/proj/.git")).unwrap();
            world.write("up/proj/.git", "gitdir: /elsewhere/.git/worktrees/x\n");
        },
    ] {
        let (counts, outcome) = start(honest);
        assert!(counts, "{}", outcome.stderr);
        outcome.does_not_say("is ignored");
    }
    let (counts, outcome) = start(&|world| {
        fs::remove_file(world.path("up/proj/.env")).unwrap();
        set_mode(world, "up/proj", 0o777);
    });
    assert!(!counts);
    outcome.does_not_say("ignored");
    if chown_all(&[]).is_none() {
        eprintln!("skipped: the rest needs root");
        return;
    }
    const OTHER: u32 = 65_534;
    const OTHER_GROUP: u32 = 12_345;
    for path in ["", ".git", "sub", ".env"] {
        let (counts, outcome) = start(&|world| {
            chown(world.path(&format!("up/proj/{path}")), Some(OTHER), None).unwrap();
        });
        assert!(!counts, "{path}");
        outcome.says("belongs to another user (uid 65534)");
    }
    let (counts, outcome) = start(&|world| {
        chown(world.path("up/proj"), None, Some(OTHER_GROUP)).unwrap();
        set_mode(world, "up/proj", 0o775);
    });
    assert!(!counts);
    outcome.says("can be written by a group (gid 12345)");
    // As root in a container, with a repository of another user that is mounted.
    let (counts, _) = start(&|world| {
        chown_all(
            &[
                "up/proj",
                "up/proj/.git",
                "up/proj/sub",
                "up/proj/.env",
                "ws",
            ]
            .map(|path| world.path(path)),
        );
    });
    assert!(counts);

    fn chown_all(paths: &[std::path::PathBuf]) -> Option<()> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        for path in paths {
            chown(path, Some(OTHER), Some(OTHER)).unwrap();
        }
        Some(())
    }
}

/// Puts something else into the place of a file.
fn put(world: &World, path: &str, kind: &str) {
    let at = world.path(path);
    match kind {
        "directory" => fs::create_dir(at).unwrap(),
        "device" => symlink("/dev/null", at).unwrap(),
        "link" => symlink(".env", at).unwrap(),
        _ => {
            let made = Command::new("mkfifo").args(["-m", "600"]).arg(at).status();
            assert!(made.unwrap().success());
        }
    }
}

#[test]
fn a_dotenv_that_is_no_file_is_skipped_or_read_as_a_pipe() {
    for kind in ["directory", "pipe", "device", "link"] {
        let why = match kind {
            "link" => "symbolic link",
            _ => "it is not a regular file",
        };
        let world = World::new();
        fs::create_dir_all(world.path("ws")).unwrap();
        put(&world, "ws/.env", kind);
        world.model_says([text("done")]);
        let run = world.run("go").exits(0).prints("done\n");
        run.says("ws/.env is ignored: ").says(why);
        // A pipe of the agent's is read.
        if kind != "pipe" {
            let world = World::new();
            put(&world, "agent/.env", kind);
            let run = world.run("go").exits(78).says("cannot read ");
            run.says("agent/.env: ").says(why);
        }
    }
    for path in ["agent/.env", ".env", ".config/delta/env"] {
        let world = World::with_tools(ENV_TOOL);
        fs::create_dir(world.path(".git")).unwrap();
        fs::create_dir_all(world.path(".config/delta")).unwrap();
        put(&world, path, "pipe");
        let mut writer = Command::new("sh")
            .args(["-c", "printf 'FROM_PIPE=yes\\n' > \"$0\""])
            .arg(world.path(path))
            .spawn()
            .unwrap();
        // A conversation needs the variables more than once.
        world.model_says([call("a", "env", &json!({})), text("done"), text("more")]);
        let chat = world.delta(["chat", "-a", "agent", "-w", "ws"]);
        chat.stdin("one\ntwo\n").exits(0);
        assert!(writer.wait().unwrap().success());
        let seen = world.server.requests()[1].observation("a");
        assert_eq!(value(&seen, "FROM_PIPE"), Some("yes"), "{path}");
    }
}

#[test]
fn a_context_file_that_cannot_be_read_is_skipped_or_missing() {
    for (optional, missing) in [(true, ", on_missing: skip"), (false, "")] {
        let world = World::new();
        let source = format!("  - {{type: file, id: rules, path: '${{CWD}}/RULES.md'{missing}}}\n");
        world.write(
            "agent/context.yaml",
            format!("sources:\n{source}  - {{type: journal}}\n"),
        );
        fs::create_dir_all(world.path("ws/RULES.md")).unwrap();
        world.model_says([text("done")]);
        let run = world.run("go").end();
        let said = "RULES.md: it is not a regular file";
        if optional {
            run.exits(0)
                .says("context source rules is skipped: ")
                .says(said);
        } else {
            world.server.may_stay_unasked();
            run.exits(4).says(said);
        }
    }
}

#[test]
fn a_file_above_the_workspace_counts_only_where_nobody_else_can_write() {
    let world = World::new();
    let source = "  - {type: file, id: guide, path: AGENTS.md, search: up}\n";
    world.write(
        "agent/context.yaml",
        format!("sources:\n{source}  - {{type: journal}}\n"),
    );
    fs::create_dir(world.path(".git")).unwrap();
    for dir in ["", "a/", "a/b/", "a/b/ws/"] {
        world.write(&format!("{dir}AGENTS.md"), format!("Rule of /{dir}.\n"));
    }
    for dir in ["a/b", "a/b/ws"] {
        set_mode(&world, dir, 0o755);
    }
    set_mode(&world, "a", 0o1777);
    // The workspace itself is not judged, nor is a directory for the files of others.
    set_mode(&world, "a/b/ws", 0o777);
    world.model_says([text("done")]);
    let start = world.delta(["run", "-a", "agent", "-w", "a/b/ws", "-m", "go"]);
    let run = start.exits(0);
    let sent = world.server.last().json()["messages"].to_string();
    for (dir, counts) in [("", true), ("a/", false), ("a/b/", true), ("a/b/ws/", true)] {
        assert_eq!(sent.contains(&format!("Rule of /{dir}.")), counts, "{dir}");
    }
    run.says("context source guide lacks ../../AGENTS.md: ")
        .says("a can be written by everybody");
}

#[test]
fn the_note_at_the_end_of_a_run_names_dotenv() {
    let world = World::with_tools("- {name: write, shell: 'echo A=1 > .env'}");
    let wrapped = world.top("wrapper: [env]");
    wrapped.model_says([call("a", "write", &json!({})), text("done")]);
    let run = wrapped.run("go").exits(0);
    run.says("changed what other programs execute: .env");
}
