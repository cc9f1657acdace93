//! The everyday command: agents by name, the usual agent, the person's own settings, messages of several parts.

use crate::harness::services::{HERE, streaming, text_stream};
use crate::harness::*;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// An agent that is reached at the scripted server, in a directory of this name.
fn agent(world: &World, dir: &str, name: &str) {
    let url = world.server.url();
    let yaml = format!("name: {name}\nllm: {{model: scripted, base_url: '{url}'}}\n");
    world.write(&format!("{dir}/agent.yaml"), yaml);
    world.write(
        &format!("{dir}/system_prompt.md"),
        format!("You are {name}.\n"),
    );
    world.write(
        &format!("{dir}/context.yaml"),
        world.read("agent/context.yaml"),
    );
}

/// A world with a directory `proj` to work in.
fn everyday() -> World {
    let world = World::new();
    fs::create_dir(world.path("proj")).unwrap();
    world
}

/// `delta` in `proj`, for an agent whose wrapper is `delta` itself.
fn in_proj<'a>(world: &World, args: impl IntoIterator<Item = &'a str>) -> Delta {
    let delta = world.delta(args).cwd(world.path("proj"));
    delta.env("PATH", path())
}

/// The same with a model and its server in the environment.
fn at_work<'a>(world: &World, args: impl IntoIterator<Item = &'a str>) -> Delta {
    in_proj(world, args)
        .env("DELTA_BASE_URL", world.server.url())
        .env("DELTA_MODEL", "chosen")
}

fn env_file(world: &World, text: &str, mode: u32) -> PathBuf {
    let path = world.write(".config/delta/env", text);
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

/// The system message and the last one of the person, as the model got them.
fn told(request: &Received) -> (String, String) {
    let messages = request.messages();
    let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
    let user = messages.iter().rfind(|it| it["role"] == "user").unwrap();
    (text(&messages[0]), text(user))
}

fn newest(world: &World) -> Run {
    Run::latest(&world.path("proj"))
}

#[test]
fn a_bare_sentence_goes_to_the_built_in_agent_in_the_current_directory() {
    let world = everyday();
    world.model_says([text("fixed")]);
    let ended = at_work(&world, ["run", "fix", "the", "test"])
        .exits(0)
        .prints("fixed\n");
    let run = newest(&world);
    let (id, url) = (run.id(), world.server.url());
    ended.says(&format!("run {id}, model chosen at {url}\n"));
    assert_eq!(run.metadata()["agent_name"], "coder");
    assert_eq!(told(&world.server.last()).1, "fix the test");
    assert_eq!(world.server.last().json()["model"], "chosen");
    let start = run.events("ENGINE_START").remove(0);
    assert_eq!(start["config"]["llm"]["model"], "chosen");
    let home = PathBuf::from(start["agent_home"].as_str().unwrap());
    assert!(
        home.starts_with(world.path(".cache/delta/agents")),
        "{home:?}"
    );
    assert!(!home.join("workspaces").exists());
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home), 0o700);
    assert_eq!(mode(&home.join("agent.yaml")), 0o600);
}

#[test]
fn an_agent_in_the_current_directory_is_never_used_for_a_task() {
    let world = everyday();
    agent(&world, "proj", "evil");
    agent(&world, "proj/coder", "evil");
    agent(&world, "proj/@coder", "evil");
    for args in [
        &["run", "look"][..],
        &["run", "--", "-a look"],
        &["run", "look", "-m", "more"],
    ] {
        world.model_says([text("ok")]);
        // Relative places in the list are not looked at.
        let run = at_work(&world, args.iter().copied()).env("DELTA_AGENTS", ".:");
        run.exits(0);
        assert!(!told(&world.server.last()).0.contains("evil"), "{args:?}");
    }
    // Behind -- everything is the task.
    world.model_says([text("ok")]);
    at_work(&world, ["run", "--", "@codr", "x"]).exits(0);
    assert_eq!(told(&world.server.last()).1, "@codr x");
    // As before: without an operand, the agent in the current directory is meant.
    world.model_says([text("ok")]);
    at_work(&world, ["run", "-w", "ws", "-m", "look"]).exits(0);
    assert!(told(&world.server.last()).0.contains("evil"));
}

#[test]
fn a_named_agent_that_others_can_write_does_not_count() {
    let world = everyday();
    agent(&world, "one/probe", "evil");
    agent(&world, "two/probe", "fine");
    let list = std::env::join_paths([world.path("one"), world.path("two")]).unwrap();
    for place in ["one", "one/probe"] {
        let mode =
            |mode| fs::set_permissions(world.path(place), Permissions::from_mode(mode)).unwrap();
        for (bits, wanted) in [(0o777, "fine"), (0o1777, "fine"), (0o755, "evil")] {
            mode(bits);
            world.model_says([text("ok")]);
            let run = at_work(&world, ["run", "@probe", "x"])
                .env("DELTA_AGENTS", &list)
                .exits(0);
            assert!(
                told(&world.server.last()).0.contains(wanted),
                "{place} {bits:o}"
            );
            assert_eq!(run.stderr.contains("one/probe is ignored: "), bits != 0o755);
        }
    }
}

#[test]
fn a_name_is_looked_up_in_its_places_in_order() {
    let world = everyday();
    let places = ["one/probe", "two/probe", ".config/delta/agents/probe"];
    for place in places {
        agent(&world, place, &place.replace('/', "_"));
    }
    let list = format!(
        "proj:{}:{}",
        world.path("one").display(),
        world.path("two").display()
    );
    let prompt = |args: &[&str]| {
        world.model_says([text("ok")]);
        let run = at_work(&world, args.iter().copied()).env("DELTA_AGENTS", &list);
        run.exits(0);
        told(&world.server.last())
    };
    let expected = |place: &str, task: &str| {
        (
            format!("# Context Block: system_prompt\n\nYou are {place}.\n"),
            task.to_owned(),
        )
    };
    let same = |found: (String, String), place: &str, task: &str| {
        let (system, said) = expected(place, task);
        assert_eq!((found.0.trim(), found.1), (system.trim(), said));
    };
    same(prompt(&["run", "@probe", "a", "@b"]), "one_probe", "a @b");
    fs::remove_dir_all(world.path("one/probe")).unwrap();
    same(prompt(&["run", "-a", "@probe", "c"]), "two_probe", "c");
    fs::remove_dir_all(world.path("two")).unwrap();
    same(
        prompt(&["run", "@probe", "--", "@d"]),
        ".config_delta_agents_probe",
        "@d",
    );
    assert_eq!(world.runs().len(), 0);
    assert!(world.exists("proj/.delta"));
    let both = at_work(&world, ["run", "-a", "agent", "@probe", "x"]).exits(2);
    both.says("two agents").says_one_line();
}

#[test]
fn a_name_leads_nowhere_else() {
    let world = everyday();
    agent(&world, "outside", "evil");
    for name in [
        "@../outside",
        "@/etc",
        "@",
        "@.",
        "@..",
        "@a/b",
        "@.hidden",
        "@a b",
    ] {
        at_work(&world, ["run", name, "x"])
            .exits(2)
            .says("names no agent")
            .says_one_line();
    }
    at_work(&world, ["run", "@codr", "x"])
        .exits(2)
        .says("did you mean @coder?");
    at_work(&world, ["run", ""])
        .exits(2)
        .says("the task is empty");
    for words in [&["fix the test"][..], &["fix", "it"]] {
        let stray = at_work(&world, words.iter().copied()).exits(2);
        stray.says("a task is given to `delta run`").says_one_line();
    }
    let nothing = at_work(&world, ["run"]).exits(78);
    nothing
        .says("delta run 'fix the failing test'")
        .says_one_line();
    assert!(!world.exists("proj/.delta"));
}

#[test]
fn the_usual_agent_is_a_persons_own_word_and_no_workspaces() {
    let world = everyday();
    agent(&world, "mine", "mine");
    let mine = world.path("mine").display().to_string();
    let evil = format!("DELTA_AGENT={mine}\nDELTA_AGENTS=/tmp\nDELTA_MODEL=evil\n");
    world.write("proj/.env", &evil);
    world.model_says([text("ok")]);
    let run = at_work(&world, ["run", "x"]).exits(0);
    run.says("DELTA_AGENT is ignored")
        .says("DELTA_MODEL is ignored");
    assert_eq!(newest(&world).metadata()["agent_name"], "coder");
    assert_eq!(world.server.last().json()["model"], "chosen");
    fs::remove_file(world.path("proj/.env")).unwrap();

    world.model_says([text("ok")]);
    at_work(&world, ["run", "y"])
        .env("DELTA_AGENT", &mine)
        .exits(0);
    assert_eq!(newest(&world).metadata()["agent_name"], "mine");
    assert!(!world.exists("mine/workspaces"));
    let relative = at_work(&world, ["run", "z"])
        .env("DELTA_AGENT", "mine")
        .end();
    relative.exits(78).says("absolute path");
}

#[test]
fn nobody_can_plant_another_agent_in_the_cache() {
    let world = everyday();
    let run = |task: &str| {
        world.model_says([text("ok")]);
        at_work(&world, ["run", task]).exits(0);
        let system = told(&world.server.last()).0;
        assert!(!system.contains("evil"), "{task}: {system}");
        let home = newest(&world).metadata()["agent_home"].clone();
        PathBuf::from(home.as_str().unwrap())
    };
    let home = run("first");
    let plant: [&dyn Fn(); 6] = [
        &|| fs::write(home.join("system_prompt.md"), "evil").unwrap(),
        &|| fs::write(home.join("hooks.yaml"), "evil").unwrap(),
        &|| fs::write(home.join(".env"), "DELTA_API_KEY=evil").unwrap(),
        &|| {
            fs::remove_file(home.join("system_prompt.md")).unwrap();
            symlink(
                world.write("evil.md", "evil"),
                home.join("system_prompt.md"),
            )
            .unwrap();
        },
        &|| {
            agent(&world, "planted", "evil");
            fs::remove_dir_all(&home).unwrap();
            symlink(world.path("planted"), &home).unwrap();
        },
        &|| fs::set_permissions(&home, Permissions::from_mode(0o777)).unwrap(),
    ];
    for (at, plant) in plant.iter().enumerate() {
        plant();
        assert_eq!(run(&format!("after {at}")), home);
        assert!(!home.join("hooks.yaml").exists() && !home.join(".env").exists());
        assert!(!home.is_symlink());
    }
    // Nothing else is left there.
    let agents = world.path(".cache/delta/agents");
    assert_eq!(fs::read_dir(&agents).unwrap().count(), 1);
    fs::set_permissions(&agents, Permissions::from_mode(0o777)).unwrap();
    at_work(&world, ["run", "x"]).exits(78).says("chmod go-w");
}

#[test]
fn a_run_of_a_built_in_agent_goes_on_whatever_its_record_leads_to() {
    let world = everyday();
    world.model_says([text("ok")]);
    at_work(&world, ["run", "x"]).exits(0);
    let run = newest(&world);
    let home = PathBuf::from(run.metadata()["agent_home"].as_str().unwrap());
    // Of a version that has gone, in a place that anybody could have filled.
    let old = world.path(".cache/delta/agents/0123456789abcdef/coder");
    agent(&world, ".cache/delta/agents/0123456789abcdef/coder", "evil");
    for file in ["journal.jsonl", "metadata.json"] {
        let text = run
            .text(file)
            .replace(home.to_str().unwrap(), old.to_str().unwrap());
        fs::write(run.path(file), text).unwrap();
    }
    world.model_says([text("again")]);
    let on = at_work(&world, ["continue", "-m", "more"]).end();
    on.exits(0).prints("again\n");
    assert!(!told(&world.server.last()).0.contains("evil"));
}

#[test]
fn a_clones_records_are_not_obeyed() {
    let world = everyday();
    world.model_says([text("ok")]);
    at_work(&world, ["run", "x"]).exits(0);
    copy(&world.path("proj"), &world.path("clone"));
    for args in [&["run", "y"][..], &["run", "@coder", "x"], &["chat"]] {
        let run = at_work(&world, args.iter().copied())
            .cwd(world.path("clone"))
            .end();
        run.exits(78).says("--adopt");
    }
}

#[test]
fn the_persons_own_file_counts_behind_the_environment() {
    let world = everyday();
    let url = world.server.url();
    let file = format!(
        "DELTA_MODEL=of-the-file\nDELTA_BASE_URL={url}\nDELTA_API_KEY=key-of-the-file-0123456789\n"
    );
    let path = env_file(&world, &file, 0o600);
    let run = |env: &[(&str, &str)]| {
        world.model_says([text("ok")]);
        let run = in_proj(&world, ["run", "--new", "x"]);
        let run = env
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value));
        run.exits(0);
        let request = world.server.last();
        let key = request.header("authorization").unwrap().to_owned();
        (request.json()["model"].as_str().unwrap().to_owned(), key)
    };
    let key = "Bearer key-of-the-file-0123456789".to_owned();
    assert_eq!(run(&[]), ("of-the-file".to_owned(), key.clone()));
    assert_eq!(
        run(&[("DELTA_MODEL", "other")]),
        ("other".to_owned(), key.clone())
    );
    assert_eq!(run(&[("DELTA_MODEL", "")]), ("of-the-file".to_owned(), key));
    assert_eq!(run(&[("DELTA_API_KEY", "abc")]).1, "Bearer abc");
    for mode in [0o640, 0o604, 0o620, 0o660] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let refused = in_proj(&world, ["run", "x"]).end();
        refused.exits(78).says("chmod 600").says_one_line();
    }
    env_file(&world, "DELTA_MODEL=m\nnonsense\n", 0o600);
    let refused = in_proj(&world, ["run", "x"]).end();
    refused.exits(78).says("env:2: not NAME=value");
    // The place can be moved; a relative one is none.
    fs::remove_file(&path).unwrap();
    let moved = world.write("xdg/delta/env", &file);
    fs::set_permissions(moved, Permissions::from_mode(0o600)).unwrap();
    let xdg = world.path("xdg").display().to_string();
    assert_eq!(run(&[("XDG_CONFIG_HOME", &xdg)]).0, "of-the-file");
    let relative = in_proj(&world, ["run", "x"]);
    relative
        .env("XDG_CONFIG_HOME", "../xdg")
        .exits(78)
        .says("No model and no key are configured. Run: delta setup\n");
}

#[test]
fn the_persons_key_reaches_no_tool() {
    let world = everyday();
    let url = world.server.url();
    env_file(
        &world,
        &format!(
            "DELTA_API_KEY=key-of-the-file-0123456789\nDELTA_BASE_URL={url}\nOPENAI_API_KEY=sk-vendor-0123456789\nMINE=seen\n"
        ),
        0o600,
    );
    agent(&world, ".config/delta/agents/shows", "shows");
    let yaml =
        world.read(".config/delta/agents/shows/agent.yaml") + "tools: [{name: show, exec: env}]\n";
    world.write(".config/delta/agents/shows/agent.yaml", yaml);
    world.model_says([call("c", "show", &json!({})), text("ok")]);
    in_proj(&world, ["run", "@shows", "x"]).exits(0);
    // In the observation it would be replaced.
    let seen = fs::read_to_string(newest(&world).execution(1).join("stdout.log")).unwrap();
    assert!(seen.contains("MINE=seen"), "{seen}");
    assert!(!seen.contains("0123456789"), "{seen}");
}

#[test]
fn without_a_model_the_ways_out_are_named() {
    let world = everyday();
    let refused = in_proj(&world, ["run", "x"]).exits(78);
    refused.says("No model and no key are configured. Run: delta setup\n");
    let keyless = in_proj(&world, ["run", "-M", "m", "x"]).exits(78);
    keyless
        .says("no key for https://api.openai.com/v1; set OPENAI_API_KEY")
        .says("\ndelta setup\n");
    assert!(!world.exists("proj/.delta"));
    world.model_says([text("ok")]);
    let named = at_work(&world, ["run", "-M", "a: [b", "x"]).end();
    named.exits(0);
    assert_eq!(world.server.last().json()["model"], "a: [b");
    let config = newest(&world).events("ENGINE_START").remove(0);
    assert_eq!(config["set"], json!({"llm.model": "a: [b"}));
    // check says it, because such an agent does not run by itself.
    agent(&world, "open", "open");
    world.write("open/agent.yaml", "name: open\nllm: {}\n");
    world
        .delta(["check", "open"])
        .exits(0)
        .says("no model is named");
    in_proj(&world, ["check", "@coder"])
        .env("DELTA_MODEL", "m")
        .exits(0)
        .does_not_say("no model");
}

#[test]
fn the_same_command_resumes_with_the_model_of_the_run_when_nothing_names_one() {
    let world = everyday();
    agent(&world, "open", "open");
    let url = world.server.url();
    let yaml = format!(
        "name: open\nllm: {{base_url: '{url}'}}\nbudget: {{cost: 1}}\npricing: {{chosen: {{input: 1, output: 1}}}}\n\
         tools: [{{name: note, exec: 'tee -a log', stdin: words}}]\n"
    );
    world.write("open/agent.yaml", yaml);
    let run = |args: &[&str]| world.delta(["run", "-a", "open", "-m", "go"]).args(args);
    for site in [&["-w", "ws"][..], &[]] {
        world.model_says([call("c", "note", &json!({"words": "once\n"})), text("done")]);
        run(site)
            .args(["--max-iterations", "1"])
            .env("DELTA_MODEL", "chosen")
            .exits(4);
        run(site)
            .arg("--dry-run")
            .exits(0)
            .says("model      chosen (the run's record)");
        run(site).exits(0).prints("done\n");
        assert_eq!(world.server.last().json()["model"], "chosen");
    }
    // What is new needs a model, and leaves nothing behind without one.
    for new in [
        &["-w", "ws"][..],
        &["-w", "ws", "--run-id", "other"],
        &["-w", "empty"],
        &["-y"],
    ] {
        run(new).exits(78).says("No model is configured, and agent");
    }
    let runs = fs::read_dir(world.path("ws/.delta")).unwrap();
    let runs = runs.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .path()
            .join("journal.jsonl")
            .exists()
    });
    assert_eq!(runs.count(), 1);
    assert!(!world.exists("empty") && !world.exists("open/workspaces/W002"));
    // A result that is there needs none.
    world.model_says([text("named")]);
    let named = ["-w", "ws", "--run-id", "named"];
    run(&named).env("DELTA_MODEL", "chosen").exits(0);
    run(&named).exits(0).prints("named\n");
}

#[test]
fn a_message_is_joined_in_the_order_given() {
    let world = everyday();
    world.write("proj/a.txt", "text of a\n");
    world.write("proj/b.txt", "text of b");
    world.model_says([text("ok")]);
    let args = [
        "run", "-f", "a.txt", "-m", "one", "do", "-m", "-", "it", "-f", "b.txt", "-m", "two",
    ];
    at_work(&world, args).stdin("from stdin\n").exits(0);
    let expected = "# File: a.txt\n\ntext of a\n\none\n\ndo it\n\nfrom stdin\n\n# File: b.txt\n\ntext of b\n\ntwo";
    assert_eq!(told(&world.server.last()).1, expected);
    let twice = at_work(&world, ["run", "-m", "-", "-m", "-"])
        .stdin("x")
        .exits(2);
    twice.says("given twice");
    world.model_says([text("ok")]);
    at_work(&world, ["continue", "-f", "a.txt", "-m", "and now"]).exits(0);
    assert_eq!(
        told(&world.server.last()).1,
        "# File: a.txt\n\ntext of a\n\nand now"
    );
}

#[test]
fn what_cannot_be_a_message_is_refused_before_anything_is_created() {
    let world = everyday();
    world.write("proj/binary", b"a\xffb");
    world.write("proj/long", vec![b'x'; (1 << 20) + 1]);
    world.write("proj/half", vec![b'x'; 600 << 10]);
    let refused = |args: &[&str], words: &str| {
        let run = at_work(&world, ["run", "x"].iter().chain(args).copied());
        run.exits(2).says(words).says_one_line();
        assert!(!world.exists("proj/.delta"), "{args:?}");
    };
    refused(&["-f", "binary"], "iconv");
    refused(&["-f", "long"], "longer than 1 MiB");
    refused(&["-f", "half", "-f", "half"], "longer than 1 MiB");
    refused(&["-f", "gone"], "gone: cannot read it");
    refused(&["-f", "."], "cannot read it");
    refused(&["-f", "-"], "-m -");
    refused(&["-f", "a\nb"], "cannot be named");
    let piped = at_work(&world, ["run", "@coder", "-m", "-"])
        .stdin(b"a\xffb")
        .end();
    piped.exits(2).says("not UTF-8").says("iconv");
    let bytes = OsStr::from_bytes(b"\xff");
    let typed = world.delta(["run"]).arg(bytes).end().exits(2);
    typed.says("run: the argument '\\xff' is not UTF-8");
}

#[test]
fn a_run_is_known_again_by_its_texts_and_the_names_of_its_files() {
    let world = everyday();
    world.write("proj/log", "version one\n");
    let args = ["run", "-f", "log", "why?", "--max-iterations", "1"];
    let looks = || call("c", "read", &json!({"path": "log"}));
    world.model_says([looks()]);
    at_work(&world, args).exits(4);
    world.write("proj/log", "version two\n");
    // Metadata is a cache: without it the journal says the same.
    fs::remove_file(newest(&world).path("metadata.json")).unwrap();
    world.model_says([looks()]);
    let again = at_work(&world, args).exits(4);
    again.says("changed since run").says("log").says("--new");
    let first = world.server.last().messages()[1]["content"].clone();
    assert_eq!(first, "# File: log\n\nversion one\n\nwhy?");
    fs::remove_file(world.path("proj/log")).unwrap();
    world.model_says([text("so")]);
    at_work(&world, args)
        .exits(0)
        .prints("so\n")
        .says("changed since run");
    assert_eq!(
        Run::latest(&world.path("proj"))
            .events("ENGINE_START")
            .len(),
        3
    );

    // Another name, or the same words as a text, is another run.
    world.write("proj/log", "version two\n");
    world.model_says([looks()]);
    at_work(&world, args).exits(4);
    world.model_says([text("new"), text("new")]);
    at_work(&world, ["run", "-f", "./log", "why?"])
        .exits(0)
        .says("starting a new run");
    // Only the newest run is mentioned, and that has ended.
    let same_text = at_work(&world, ["run", "-m", "# File: log\n\nversion two", "why?"]);
    same_text.exits(0).does_not_say("starting a new run");
    world.model_says([text("over")]);
    at_work(&world, ["run", "-f", "log", "why?", "--new"]).exits(0);
    assert_eq!(
        told(&world.server.last()).1,
        "# File: log\n\nversion two\n\nwhy?"
    );
}

#[test]
fn a_dry_run_says_where_each_setting_comes_from() {
    let world = everyday();
    let url = world.server.url();
    env_file(
        &world,
        &format!("DELTA_MODEL=of-the-file\nDELTA_API_KEY=0123456789abcdef\nDELTA_BASE_URL={url}\n"),
        0o600,
    );
    let dry = in_proj(&world, ["run", "--dry-run", "x"]).exits(0);
    let file = world.path(".config/delta/env").display().to_string();
    let dry = dry.says("coder, ").says("the default: @coder, built in");
    let dry = dry.says(&format!("of-the-file (DELTA_MODEL in {file})"));
    let dry = dry.says(&format!("{url} (DELTA_BASE_URL in {file})"));
    let dry = dry
        .says(&format!("DELTA_API_KEY in {file}"))
        .does_not_say("0123456789abcdef");
    assert_eq!(dry.object()["model"], "of-the-file");
    let run = at_work(
        &world,
        [
            "run",
            "--dry-run",
            "-M",
            "mine",
            "-a",
            "../agent",
            "-m",
            "x",
        ],
    );
    let dry = run.env("DELTA_API_KEY", "abc").exits(0);
    let dry = dry
        .says("mine (the command line)")
        .says("(agent.yaml)")
        .says("DELTA_API_KEY in the environment");
    dry.says("../agent)");
    assert!(!world.exists("proj/.delta"));
}

#[test]
fn at_a_terminal_a_wait_and_a_commands_stdin_are_shown() {
    let world = everyday();
    let mut terminal = Terminal::new();
    let script = json!({"command": "if true; then\n    echo indented\nfi"});
    world.model_says([call("c", "bash", &script), text("done").held()]);
    let run = at_work(&world, ["run", "x"])
        .env("TERM", "xterm")
        .env("NO_COLOR", "1")
        .at(&terminal)
        .spawn();
    let shown = terminal.shows("$ bash <<< 'if true; then …'");
    assert!(!shown.contains("coder-tool"), "{shown}");
    let line = terminal.shows("\r[2] waiting for chosen, ");
    assert!(!line.contains("\n[2]"), "{line}");
    assert_ne!(terminal.shows(" s"), "0 s");
    world.server.release();
    let rest = terminal.shows("tokens)");
    assert!(rest.contains("\r\u{1b}[K"), "{rest:?}");
    run.wait().exits(0).prints("done\n");

    let mut terminal = Terminal::new();
    world.model_says([call("c", "bash", &script), text("done")]);
    let run = at_work(&world, ["run", "-v", "y"])
        .env("NO_COLOR", "1")
        .at(&terminal)
        .spawn();
    terminal.shows("if true; then");
    terminal.shows("          echo indented");
    run.wait().exits(0);
}

#[test]
fn a_wait_shows_the_last_words_of_the_models_reasoning() {
    let world = everyday();
    let mut terminal = Terminal::new();
    let stream = text_stream(&["The answer\n", "is whole."], None);
    let stream = stream.replacen("\"content\"", "\"reasoning_content\"", 1);
    world.model_says([streaming(&stream).pauses_behind(HERE)]);
    let run = at_work(&world, ["run", "--set", "llm.stream=true", "x"])
        .env("TERM", "xterm")
        .env("NO_COLOR", "1")
        .at(&terminal)
        .spawn();
    terminal.shows("\r[1] waiting for chosen, ");
    terminal.shows(" s: The answer");
    world.server.release();
    terminal.shows("[1] answers");
    run.wait().exits(0).prints("is whole.\n");
}

#[test]
fn bytes_on_stdin_that_nothing_reads_are_mentioned_once() {
    const WARNING: &str = "stdin is ignored; add -m - to include it";
    let world = everyday();
    let data = world.write("data", "data");
    let pipe = world.fifo("pipe");
    world.model_says([text("ok"), text("ok").held()]);
    world.model_says((0..5).map(|_| text("ok")));
    let run = |options: &[&str], shell: &str| {
        let run = at_work(&world, ["run", "--new", "x"]).args(options);
        run.env("DATA", &data)
            .env("PIPE", world.path("pipe"))
            .under(&["sh", "-c", shell])
    };
    let from_pipe = "exec \"$0\" \"$@\" <\"$PIPE\"";
    run(&[], from_pipe).exits(0).does_not_say("stdin");
    // What comes while the run works.
    let working = run(&[], from_pipe).spawn();
    world.server.wait_for(2);
    assert!(!working.stderr().contains("stdin"));
    fs::write(world.path("pipe"), "late").unwrap();
    world.server.release();
    working.wait().exits(0).says(WARNING);
    for options in [&[][..], &["-q"]] {
        for shell in [from_pipe, "exec \"$0\" \"$@\" <\"$DATA\""] {
            let outcome = run(options, shell).exits(0);
            let said = outcome.stderr.matches(WARNING).count();
            assert_eq!(said, 1, "{options:?} {shell}: {}", outcome.stderr);
        }
    }
    // A file that has been read to its end.
    run(&[], "{ cat >/dev/null; \"$0\" \"$@\"; } <\"$DATA\"")
        .exits(0)
        .does_not_say("stdin");
    drop(pipe);
}

#[test]
fn at_a_terminal_bytes_that_nothing_reads_end_the_start_before_anything_is_created() {
    let world = everyday();
    world.server.may_stay_unasked();
    let data = world.write("data", "data");
    #[cfg(feature = "flow")]
    world.write("proj/f/workflow.yaml", flow(&[start(), exit()], "s>x"));
    for (words, command) in [
        (&["run", "y"][..], "delta run - …"),
        (&["run", "--dry-run", "y"], "delta run - …"),
        (&["continue", "-m", "y"], "delta continue -m - …"),
        (&["flow", "run", "f"], "delta flow run --input - …"),
    ] {
        if !cfg!(feature = "flow") && words[0] == "flow" {
            continue;
        }
        let mut terminal = Terminal::new();
        let under = ["sh", "-c", "exec \"$0\" \"$@\" <\"$DATA\""];
        let run = at_work(&world, words.iter().copied()).env("DATA", &data);
        let run = run.under(&under).at(&terminal).spawn();
        let shown = terminal.shows(&format!(
            "include it with `{command}`, or leave it out with `</dev/null`"
        ));
        run.wait().exits(2);
        let shown = shown + &terminal.rest();
        assert!(!shown.contains("stdin is ignored"), "{shown}");
    }
    assert!(world.server.requests().is_empty());
    assert!(!world.exists("proj/.delta") && !world.exists(".cache/delta"));
    // What comes later is a warning, as soon as an answer has come.
    let pipe = world.fifo("pipe");
    let mut terminal = Terminal::new();
    let again = call("1", "read", &json!({"path": "/nowhere"}));
    world.model_says([again.held(), text("ok").held()]);
    let late = ["sh", "-c", "exec \"$0\" \"$@\" <\"$PIPE\""];
    let run = at_work(&world, ["run", "y"]).env("PIPE", world.path("pipe"));
    let run = run.under(&late).at(&terminal).spawn();
    world.server.wait_for(1);
    fs::write(world.path("pipe"), "late").unwrap();
    world.server.release();
    terminal.shows("stdin is ignored; add -m - to include it");
    world.server.wait_for(2);
    world.server.release();
    run.wait().exits(0);
    drop(pipe);
}

#[test]
fn at_a_terminal_bytes_that_come_before_the_first_request_end_a_resumed_run_and_a_fork() {
    let world = everyday();
    world.model_says([text("ok")]);
    at_work(&world, ["run", "y"]).exits(0);
    for (name, more) in [("continue", &[][..]), ("fork", &["--at", "1"])] {
        let pipe = world.fifo(name);
        let path = world.path(name);
        // It runs after the first look.
        let command = format!("echo late >'{}'; echo sk-printed-0123", path.display());
        let mut terminal = Terminal::new();
        let under = ["sh", "-c", "exec \"$0\" \"$@\" <\"$PIPE\""];
        let run = at_work(&world, [name, "-m", "y"])
            .args(more)
            .env("PIPE", &path)
            .env("DELTA_API_KEY_COMMAND", command);
        let run = run.under(&under).at(&terminal).spawn();
        terminal.shows(&format!("include it with `delta {name} -m - …`"));
        run.wait().exits(2);
        drop(pipe);
    }
    assert_eq!(world.server.requests().len(), 1);
}

#[test]
fn a_file_that_is_the_standard_input_is_read_without_a_warning() {
    for name in ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"] {
        let world = everyday();
        world.model_says([text("ok")]);
        let terminal = Terminal::new();
        let under = ["sh", "-c", "echo the data | \"$0\" \"$@\""];
        let run = at_work(&world, ["run", "y", "-f", name]).under(&under);
        run.at(&terminal).exits(0);
        let sent = world.server.last().messages();
        assert!(
            sent.last().unwrap().to_string().contains("the data"),
            "{sent:?}"
        );
    }
}

#[test]
fn a_lone_dash_among_the_operands_is_the_standard_input() {
    let world = everyday();
    let said = |args: &[&str]| {
        world.model_says([text("ok")]);
        at_work(&world, args.iter().copied())
            .stdin("data\n")
            .exits(0);
        told(&world.server.last()).1
    };
    assert_eq!(said(&["run", "-"]), "data");
    assert_eq!(
        said(&["run", "--new", "look", "at", "-"]),
        "look at\n\ndata"
    );
    assert_eq!(said(&["run", "@coder", "-", "is", "it"]), "data\n\nis it");
    assert_eq!(said(&["run", "--", "a", "-", "b"]), "a - b");
    at_work(&world, ["run", "-", "-m", "-"])
        .stdin("data")
        .refuses(2, "given twice");
}

#[test]
fn a_message_where_no_agent_is_names_the_one_that_works() {
    let world = everyday();
    world.server.may_stay_unasked();
    for args in [
        &["run", "-m", "look"][..],
        &["run", "-f", "x"],
        &["run", "-m", "-"],
    ] {
        at_work(&world, args.iter().copied()).refuses(78, "`delta run @coder …`");
    }
    assert!(!world.exists("proj/.delta"));
}

#[test]
fn a_log_shows_what_the_tools_of_coder_were_given() {
    let world = everyday();
    world.write("proj/a.txt", "one\n");
    world.model_says([
        calls(&[
            (
                "a",
                "bash",
                json!({"command": "\necho hi\necho there", "timeout_s": 9}),
            ),
            ("b", "read", json!({"path": "a.txt"})),
            (
                "c",
                "edit",
                json!({"path": "a.txt", "old": "one", "new": "two"}),
            ),
        ]),
        text("done"),
    ]);
    let run = at_work(&world, ["run", "x"]).exits(0);
    let log = in_proj(&world, ["log"]).exits(0);
    let log = String::from_utf8(log.stdout).unwrap();
    for shown in [
        "$ bash --timeout=9 <<< 'echo hi …'\n",
        "$ read a.txt\n",
        "$ edit a.txt one <<< two\n",
    ] {
        assert!(run.stderr.contains(shown), "{shown}\n{}", run.stderr);
        assert!(log.contains(shown), "{shown}\n{log}");
    }
    assert!(!log.contains("coder-tool"), "{log}");
    let effects = in_proj(&world, ["log", "--effects"]).exits(0);
    let effects = String::from_utf8(effects.stdout).unwrap();
    assert!(effects.contains("edit a.txt one <<< two\n"), "{effects}");
    assert!(!effects.contains("coder-tool"), "{effects}");
    let full = in_proj(&world, ["log", "--effects", "--json"]).exits(0);
    let full = String::from_utf8(full.stdout).unwrap();
    assert_eq!(full.matches("sandbox --rw").count(), 3, "{full}");
    assert_eq!(full.matches("delta coder-tool").count(), 3, "{full}");
    // Words of a model do not hide what another tool runs.
    agent(&world, "other", "other");
    let yaml = world.read("other/agent.yaml");
    let tools = "tools: [{name: say, exec: 'echo ${a} ${b} ${c}'}]\n";
    world.write("other/agent.yaml", yaml + tools);
    let words = json!({"a": "delta", "b": "coder-tool", "c": "hidden"});
    world.model_says([call("d", "say", &words), text("done")]);
    in_proj(&world, ["run", "-a", "../other", "-w", ".", "-m", "y"]).exits(0);
    let log = in_proj(&world, ["log"]).exits(0);
    let log = String::from_utf8(log.stdout).unwrap();
    assert!(log.contains("$ echo delta coder-tool hidden\n"), "{log}");
}

#[test]
fn a_run_keeps_its_model_where_none_is_named() {
    let world = everyday();
    let asked = |args: &[&str]| {
        world.model_says([text("ok")]);
        let delta = in_proj(&world, args.iter().copied());
        let delta = delta.env("DELTA_BASE_URL", world.server.url());
        delta.stdin("more\n").exits(0);
        world.server.last().json()["model"].clone()
    };
    world.model_says([text("ok")]);
    at_work(&world, ["run", "x"]).exits(0);
    let id = newest(&world).id();
    assert_eq!(asked(&["continue", "-m", "on"]), "chosen");
    assert_eq!(asked(&["chat", "--run-id", &id]), "chosen");
    assert_eq!(asked(&["fork", &id, "--at", "1", "-m", "on"]), "chosen");
    let next = ["request", "--next", "-w", ".", &id];
    let next = in_proj(&world, next).env("DELTA_BASE_URL", world.server.url());
    assert_eq!(next.exits(0).object()["model"], "chosen");
    // What the person says now counts more, and stays.
    let other = ["continue", "--run-id", &id, "-M", "other", "-m", "on"];
    assert_eq!(asked(&other), "other");
    assert_eq!(asked(&["continue", "--run-id", &id, "-m", "on"]), "other");
    world.model_says([text("ok")]);
    at_work(&world, ["run", "y"]).exits(0);
    world.model_says([text("ok")]);
    let now = at_work(&world, ["continue", "-m", "on"]).env("DELTA_MODEL", "now");
    now.exits(0);
    assert_eq!(world.server.last().json()["model"], "now");
    // A new run has none to keep.
    let new = in_proj(&world, ["run", "z"]).env("DELTA_BASE_URL", world.server.url());
    new.exits(78)
        .says("No model is configured, and agent coder names none");
    // The record of a stranger names none.
    copy(&world.path("proj"), &world.path("clone"));
    let clone = in_proj(&world, ["continue", "-m", "on"]).cwd(world.path("clone"));
    clone.exits(78).says("--adopt");
}

#[test]
fn the_persons_own_file_is_trusted_less_inside_the_workspace() {
    let world = everyday();
    let url = world.server.url();
    agent(&world, "open", "open");
    world.write(
        "open/agent.yaml",
        "name: open\nllm: {}\ntools: [{name: t, exec: ls}]\n",
    );
    let at_home = |key: bool| {
        let delta = in_proj(&world, ["run", "--new", "-a", "open", "-w", ".", "-m", "x"]);
        let delta = delta.cwd(world.home());
        if key {
            delta.env("DELTA_API_KEY", "key-of-the-environment")
        } else {
            delta
        }
    };
    let file = format!("DELTA_MODEL=m\nDELTA_BASE_URL={url}\n");
    env_file(
        &world,
        &format!("{file}DELTA_API_KEY=key-of-the-file\n"),
        0o600,
    );
    world.model_says([text("ok")]);
    let run = at_home(false).exits(0);
    run.says("decides over later runs")
        .does_not_say("the workspace's .env sends");
    let sent = world
        .server
        .last()
        .header("authorization")
        .map(str::to_owned);
    assert_eq!(sent.as_deref(), Some("Bearer key-of-the-file"));
    // Nor does a server on this machine need one.
    env_file(&world, &file, 0o600);
    world.model_says([text("ok")]);
    at_home(false).exits(0);
    // A key from elsewhere is not sent where something in the workspace says.
    let refused = at_home(true).exits(78);
    refused
        .says("env, which is inside the workspace, sends requests to")
        .does_not_say("key-of-the-environment");
    world.model_says([text("ok")]);
    let elsewhere = in_proj(&world, ["run", "-a", "../open", "-w", ".", "-m", "x"]);
    let elsewhere = elsewhere.env("DELTA_API_KEY", "key-of-the-environment");
    elsewhere.exits(0).does_not_say("decides over");
}

#[test]
fn a_named_agent_asks_at_the_terminal_unless_told_otherwise() {
    let world = everyday();
    let question = || call("q", "ask_human", &json!({"prompt": "Which colour?"}));
    let mut terminal = Terminal::new();
    world.model_says([question(), text("done")]);
    let running = at_work(&world, ["run", "paint"]).all_at(&terminal).spawn();
    terminal.shows("Which colour? ");
    terminal.types("red\n");
    running.wait().exits(0);
    // The same run by continue, since the record has the agent's name.
    world.model_says([question()]);
    at_work(&world, ["run", "--no-input", "again"])
        .all_at(&terminal)
        .exits(101);
    let first = terminal.shows("to be asked at this terminal: delta continue -i");
    assert!(!first.contains("answer with"), "{first}");
    terminal.rest();
    world.model_says([text("blue, then")]);
    let running = at_work(&world, ["continue"]).all_at(&terminal).spawn();
    terminal.shows("Which colour? ");
    terminal.types("blue\n");
    running.wait().exits(0);
    // It is the waiting run that -i finds, not the newest.
    world.model_says([question(), text("other")]);
    at_work(&world, ["run", "third"]).exits(101);
    at_work(&world, ["run", "--new", "fourth"]).exits(0);
    world.model_says([text("green, then")]);
    let running = at_work(&world, ["continue", "-i"])
        .all_at(&terminal)
        .spawn();
    terminal.shows("Which colour? ");
    terminal.types("green\n");
    running.wait().exits(0);
    let waited = Run::latest(&world.path("proj"));
    assert_eq!(waited.events("HUMAN_INPUT_RECEIVED").len(), 0);
    // No person, a program that reads the result, a run of another run: files, as ever.
    for (option, variable) in [("--format=json", "X"), ("-q", "DELTA_DEPTH")] {
        world.model_says([question()]);
        let run = at_work(&world, ["run", "--new", option, "more"]).env(variable, "1");
        run.all_at(&terminal).exits(101);
    }
    world.model_says([question()]);
    at_work(&world, ["run", "--new", "piped"])
        .exits(101)
        .says("answer with");
    at_work(&world, ["run", "-i", "--no-input", "x"]).refuses(2, "-i and --no-input");
}

#[test]
fn a_question_is_asked_only_in_the_run_that_is_meant() {
    let world = everyday();
    let mut terminal = Terminal::new();
    let asks = |task: &str, id: &str| {
        world.model_says([call("q", "ask_human", &json!({"prompt": task}))]);
        at_work(&world, ["run", task, "--run-id", id]).exits(101);
    };
    asks("old", "run-1");
    asks("young", "run-2");
    // A command that asks is named for this run, and with -i alone only if that finds it.
    let shown = |terminal: &mut Terminal, id: &str, command: &str| {
        at_work(&world, ["continue", "--no-input", "--run-id", id])
            .all_at(terminal)
            .exits(101);
        let line = format!("to be asked at this terminal: {command}\r\n");
        terminal.shows(&line);
        terminal.rest();
    };
    shown(&mut terminal, "run-1", "delta continue --run-id run-1 -i");
    shown(&mut terminal, "run-2", "delta continue -i");
    // A message is for the newest run, whatever another one asks.
    world.model_says([text("new")]);
    at_work(&world, ["run", "newest"]).exits(0);
    world.model_says([text("more")]);
    at_work(&world, ["continue", "-i", "-m", "yes"]).exits(0);
    assert_eq!(newest(&world).metadata()["status"], "COMPLETED");
    let young = Run {
        dir: world.path("proj/.delta/run-2"),
    };
    assert!(young.events("HUMAN_INPUT_RECEIVED").is_empty());
    // Where nobody is asked, a run that waits is printed again and records nothing.
    let journal = || world.read("proj/.delta/run-2/journal.jsonl");
    let before = journal();
    let again = ["continue", "--run-id", "run-2"];
    at_work(&world, again)
        .env("DELTA_DEPTH", "1")
        .all_at(&terminal)
        .exits(101);
    assert_eq!(journal(), before);
    let home = young.metadata()["agent_home"].as_str().unwrap().to_owned();
    let named = world.path(".config/delta/agents/reports");
    copy(Path::new(&home), &named);
    let hook = "on_question: {command: [touch, hooked]}\n";
    fs::write(named.join("hooks.yaml"), hook).unwrap();
    world.model_says([call("q", "ask_human", &json!({"prompt": "well?"}))]);
    at_work(&world, ["run", "@reports", "hooked", "--run-id", "run-3"])
        .all_at(&terminal)
        .exits(101);
    let journal = || world.read("proj/.delta/run-3/journal.jsonl");
    let before = journal();
    at_work(&world, ["continue", "--run-id", "run-3"])
        .all_at(&terminal)
        .exits(101);
    assert!(world.exists("proj/hooked"));
    assert_eq!(journal(), before);
}

#[test]
fn a_model_at_two_hosts_costs_never_less_than_its_price() {
    let world = everyday();
    let url = world.server.url();
    let other = url.replace("127.0.0.1", "localhost");
    agent(&world, "two", "two");
    let yaml = format!(
        "name: two\nllm:\n  model: m\n  base_url: '{url}'\n  fallback: [{{model: m, base_url: '{other}'}}]\n"
    );
    world.write("two/agent.yaml", yaml);
    let run = |prices: &str, budget: &[&'static str]| {
        world.write(".config/delta/prices.yaml", prices);
        let words = ["run", "--new", "-a", "../two", "-w", ".", "-m", "go"];
        at_work(&world, words.into_iter().chain(budget.iter().copied()))
    };
    let free = "127.0.0.1: {m: {input: 0, output: 0}}\n";
    world.model_says([text("ok")]);
    run(
        &format!("{free}localhost: {{m: {{input: 1000, output: 2000}}}}\n"),
        &[],
    )
    .exits(0)
    .says("cost 0.120000");
    run(free, &["--budget", "cost=1"]).refuses(78, "there is no pricing of m");
}

#[test]
fn the_persons_prices_count_where_the_agent_has_none() {
    let world = everyday();
    let file = ".config/delta/prices.yaml";
    let own = "127.0.0.1:\n  chosen: {input: 1000, output: 2000}\nother.test:\n  else: {input: 5, output: 5}\n";
    let path = world.write(file, own);
    let run_in = |world: &World, args: &[&str]| {
        world.model_says([text("ok")]);
        let words = ["run", "--new", "go"].iter().chain(args);
        at_work(world, words.copied()).exits(0)
    };
    let run = |args: &[&str]| run_in(&world, args);
    // 100 and 10 tokens; recorded like a price of agent.yaml.
    run(&[]).says(", 110 tokens, cost 0.120000");
    let start = newest(&world).events("ENGINE_START").remove(0);
    assert_eq!(start["config"]["pricing"]["input"].as_f64(), Some(1000.0));
    run(&["--budget", "cost=1"]).says("cost 0.120000");
    run(&["--set", "pricing={input: 1, output: 0}"]).says("cost 0.000100");
    // Another model, and a model at another host, have none.
    for model in ["cheap", "else"] {
        run(&["-M", model])
            .says(", 110 tokens")
            .does_not_say("cost");
    }
    // An agent whose budget needs a price is not refused before the endpoint is known.
    let world = world.top("budget: {cost: 1}");
    let scripted = own.replace("chosen", "scripted");
    world.write(file, &scripted);
    world.model_says([text("ok")]);
    world.run("go").exits(0).says("cost 0.120000");
    for (text, why) in [
        (
            "127.0.0.1: {chosen: {input: 1}}\n",
            "prices.yaml:1: 127.0.0.1: chosen: output is missing",
        ),
        ("127.0.0.1: {chosen: 3}\n", "prices.yaml:1: "),
        ("127.0.0.1: [\n", "prices.yaml:"),
        (
            "127.0.0.1: {chosen: {imput: 1, input: 1, output: 2}}\n",
            "unknown key 'imput'",
        ),
    ] {
        world.write(file, text);
        at_work(&world, ["run", "--new", "go"]).refuses(78, why);
        // Nor is this a price that is missing.
        let budget = ["run", "--new", "--budget", "cost=1", "go"];
        at_work(&world, budget).refuses(78, why);
        for agent in ["@coder", "../agent"] {
            at_work(&world, ["check", agent]).refuses(78, why);
        }
    }
    // What others can write counts for nothing.
    world.write(file, own);
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let ignored = run_in(&world, &[]).says("prices.yaml is not used: ");
    ignored
        .says("can be written by everybody")
        .does_not_say("cost");
}

#[test]
fn the_plain_agent_answers_questions_without_tools() {
    let world = everyday();
    world.write("proj/AGENTS.md", "Use tabs.\n");
    world.model_says([text("42")]);
    at_work(&world, ["run", "@plain", "What is six by seven?"])
        .exits(0)
        .prints("42\n");
    let request = world.server.last().json();
    assert!(request.get("tools").is_none(), "{request}");
    let said: Vec<&str> = request["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["content"].as_str().unwrap())
        .collect();
    assert_eq!(said.len(), 2);
    assert!(
        said[0].trim_end().lines().count() == 3 && said[1] == "What is six by seven?",
        "{said:?}"
    );
    assert_eq!(
        newest(&world).events("ENGINE_START")[0]["config"]["name"],
        "plain"
    );
    at_work(&world, ["run", "@plan", "x"]).refuses(2, "did you mean @plain?");
}

#[test]
fn a_call_of_the_plain_agent_is_refused_because_it_has_no_tools() {
    let world = everyday();
    let answer = json!({"choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "42"}}],
        "usage": {"prompt_tokens": 12_340, "completion_tokens": 5, "total_tokens": 12_345}});
    world.model_says([
        call("c1", "bash", &json!({"command": "ls"})),
        completion(&answer),
    ]);
    at_work(&world, ["run", "@plain", "What is six by seven?"])
        .exits(0)
        .says("[1] bash refused: there is no tool 'bash'; the agent has no tools")
        .says(", 12,345 tokens)\n");
    let seen = world.server.last().observation("c1");
    assert!(seen.ends_with("; the agent has no tools"), "{seen}");
}
