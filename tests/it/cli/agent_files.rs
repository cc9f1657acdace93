//! Agents that are one Markdown file: what they become, what they cannot do, and who can put one there.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

const REVIEWER: &str =
    "---\nname: reviewer\ndescription: Reviews code\ntools: Read, Grep, Glob\n---\n\nYou review.\n";

/// A world with a directory `proj` to work in, and `files` with agents.
fn everyday() -> World {
    prepared(World::new())
}

fn prepared(world: World) -> World {
    fs::create_dir(world.path("proj")).unwrap();
    fs::create_dir(world.path("files")).unwrap();
    world
}

/// `delta` in `proj`, with a model and its server in the environment.
fn at_work<'a>(world: &World, args: impl IntoIterator<Item = &'a str>) -> Delta {
    let delta = world.delta(args).cwd(world.path("proj"));
    delta
        .env("PATH", path())
        .env("DELTA_BASE_URL", world.server.url())
        .env("DELTA_MODEL", "chosen")
}

/// A file with this front matter, as the value of `-a`.
fn file(world: &World, front: &str) -> String {
    let text = format!("---\n{front}\n---\nYou do it.\n");
    let path = world.write("files/agent-1.md", text);
    path.to_str().unwrap().to_owned()
}

fn newest(world: &World) -> Run {
    Run::latest(&world.path("proj"))
}

fn tools_of(request: &Value) -> Vec<String> {
    let all = request["tools"].as_array().cloned().unwrap_or_default();
    let names = all
        .iter()
        .map(|it| it["function"]["name"].as_str().unwrap().to_owned());
    names.filter(|name| name != "ask_human").collect()
}

/// What `delta check` says that a front matter becomes, and what it prints on stderr.
fn becomes(world: &World, front: &str) -> (Value, String) {
    let file = file(world, front);
    let checked = at_work(world, ["check", &file, "--format", "json"]).exits(0);
    (checked.object()["becomes"].clone(), checked.stderr)
}

#[test]
fn a_file_runs_as_coder_with_its_own_prompt_and_tools_in_the_current_directory() {
    let world = everyday();
    let path = world.write("files/reviewer.md", REVIEWER);
    world.write(
        "files/.env",
        "DELTA_BASE_URL=http://127.0.0.1:9\nPLANTED=1\n",
    );
    fs::create_dir(world.path("files/.git")).unwrap();
    world.write("proj/AGENTS.md", "Use tabs.\n");
    world.write("proj/a.txt", "content of a\n");
    world.model_says([call("c", "read", &json!({"path": "a.txt"})), text("fine")]);
    let run = at_work(&world, ["run", "-a", path.to_str().unwrap(), "look"]).exits(0);
    run.prints("fine\n").does_not_say("warning");
    let requests = world.server.requests();
    let request = requests[0].json();
    assert_eq!(request["model"], "chosen");
    assert_eq!(tools_of(&request), ["read"]);
    let system = request["messages"][0]["content"].as_str().unwrap();
    assert!(
        system.starts_with("# Context Block: system_prompt\n\nYou review.\n"),
        "{system}"
    );
    assert!(system.contains("Use tabs.") && system.contains("Directory: "));
    assert!(!system.contains("software engineer") && !system.contains("tools: Read"));
    assert!(
        world
            .server
            .last()
            .observation("c")
            .contains("content of a")
    );
    let run = newest(&world);
    assert_eq!(run.metadata()["agent_name"], "reviewer");
    assert_eq!(
        run.events("ENGINE_START")[0]["config"]["max_iterations"],
        100
    );
    let home = run.metadata()["agent_home"].as_str().unwrap().to_owned();
    let digest = sha256_of(&world, "files/reviewer.md");
    assert!(
        home.contains(&format!(".cache/delta/agents/{digest}-reviewer/")),
        "{home}"
    );
}

fn sha256_of(world: &World, name: &str) -> String {
    let output = std::process::Command::new("sha256sum")
        .arg(world.path(name))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

#[test]
fn agent_home_is_an_empty_directory_of_the_cache() {
    let world = everyday();
    world.write("files/.env", "PLANTED=1\n");
    let file = file(&world, "tools: Bash");
    let look = "echo $AGENT_HOME $DELTA_AGENT_HOME ${PLANTED-none}; ls -A $AGENT_HOME | wc -l";
    world.model_says([call("c", "bash", &json!({"command": look})), text("ok")]);
    at_work(&world, ["run", "-a", &file, "x"]).exits(0);
    let seen = world.server.last().observation("c");
    let words: Vec<&str> = seen.split_whitespace().collect();
    let at = words
        .iter()
        .position(|word| word.contains(".cache/delta/agents/"))
        .unwrap();
    assert_eq!(words[at + 1], words[at], "{seen}");
    assert_eq!(words[at + 2..at + 4], ["none", "0"], "{seen}");
}

#[test]
fn tools_are_those_that_the_file_names() {
    let all = ["bash", "read", "write", "edit", "bash_net"];
    let bash = ["bash", "bash_net"];
    let world = everyday();
    world.server.may_stay_unasked();
    for (front, tools, writes) in [
        ("name: a", &all[..], true),
        ("tools: Read, Grep, Glob, LS", &["read"], false),
        ("tools: [grep, Write]", &["read", "write"], true),
        ("tools: MultiEdit", &["edit"], true),
        ("tools: Bash", &bash, false),
        ("tools: Read, Bash(*)", &["bash", "read", "bash_net"], false),
        ("tools: 'Bash(git diff:*), Read'", &["read"], false),
        ("tools: 'Agent(a, write, b), Read'", &["read"], false),
        (
            "disallowedTools: 'Bash(rm, edit, x)'",
            &["read", "write", "edit"],
            true,
        ),
        ("tools: '*'", &all, true),
        ("tools:", &[], false),
        ("tools: []", &[], false),
        ("tools: WebFetch", &[], false),
        (
            "tools: {write: false, edit: false}",
            &["bash", "read", "bash_net"],
            false,
        ),
        ("tools: {bash: ask}", &["read", "write", "edit"], true),
        ("tools: {'*': false, read: true}", &["read"], false),
        ("disallowedTools: Bash", &["read", "write", "edit"], true),
        (
            "disallowedTools: [Write, Edit]",
            &["bash", "read", "bash_net"],
            false,
        ),
        (
            "disallowedTools: 'Bash(rm:*)'",
            &["read", "write", "edit"],
            true,
        ),
        ("tools: Read, Edit\ndisallowedTools: Edit", &["read"], false),
        ("permissionMode: plan", &["bash", "read", "bash_net"], false),
        ("permissionMode: Plan\ntools: Read, Write", &["read"], false),
        ("permissionMode: acceptEdits", &all, true),
    ] {
        let (found, _) = becomes(&world, front);
        assert_eq!(found["tools"], json!(tools), "{front}");
        assert_eq!(found["writes"], writes, "{front}");
    }
}

#[test]
fn models_and_turns_are_taken_and_the_names_of_vendors_are_not() {
    let world = everyday();
    world.server.may_stay_unasked();
    for (front, model) in [
        ("name: a", Value::Null),
        ("model: inherit", Value::Null),
        ("model: Sonnet", Value::Null),
        ("model: 'opus[1m]'", Value::Null),
        ("model: claude-sonnet-4-5", json!("claude-sonnet-4-5")),
        ("model: \"a'b\"", json!("a'b")),
    ] {
        let (found, said) = becomes(&world, front);
        assert_eq!((&found["model"], &*said), (&model, ""), "{front}");
    }
    let (found, said) = becomes(
        &world,
        "maxTurns: 7\ncolor: blue\nhooks: {a: b}\ntools: Task, Read",
    );
    assert_eq!(found["max_iterations"], 7);
    let file = world.path("files/agent-1.md");
    let expected = format!(
        "delta: warning: {}: no effect here: color, hooks; no such tool here: Task\n",
        file.display()
    );
    assert_eq!(said, expected);
    let (_, said) = becomes(
        &world,
        "permissionMode: default\nmodel: [a, b]\ntools: Task",
    );
    assert!(said.contains("no effect here: permissionMode, model; no such tool here: Task"));
    world.model_says([text("ok")]);
    let own = "model: their-own\nmaxTurns: 3";
    let file = self::file(&world, own);
    at_work(&world, ["run", "-a", &file, "x"]).exits(0);
    assert_eq!(world.server.last().json()["model"], "their-own");
    assert_eq!(
        newest(&world).events("ENGINE_START")[0]["config"]["max_iterations"],
        3
    );
    world.model_says([text("ok")]);
    at_work(&world, ["run", "-a", &file, "-M", "mine", "y"]).exits(0);
    assert_eq!(world.server.last().json()["model"], "mine");
}

#[test]
fn an_agent_without_writing_tools_cannot_write() {
    let world = prepared(World::on_disk());
    world.write("proj/a.txt", "before\n");
    fs::create_dir(world.path("proj/sub")).unwrap();
    let home = world.home().display().to_string();
    let attempts = [
        "echo evil >a.txt".to_owned(),
        "echo evil >new.txt".to_owned(),
        "echo evil >sub/new.txt".to_owned(),
        "rm a.txt".to_owned(),
        "mv a.txt b.txt".to_owned(),
        "ln a.txt linked.txt".to_owned(),
        "mkdir made".to_owned(),
        "truncate -s 0 a.txt".to_owned(),
        "exec 3<>a.txt; echo evil >&3".to_owned(),
        "echo evil >.delta/evil".to_owned(),
        "echo evil >\"$DELTA_RUN_DIR/evil\"".to_owned(),
        "printf evil | delta coder-tool write a.txt".to_owned(),
        "printf evil | delta coder-tool edit a.txt before".to_owned(),
        "delta sandbox --rw . -- sh -c 'echo evil >a.txt'".to_owned(),
        "env -u DELTA_RUN_DIR delta sandbox --rw . --ro / -- sh -c 'echo evil >a.txt'".to_owned(),
        "echo evil >\"${TMPDIR-/tmp}/evil-of-an-agent\"".to_owned(),
        format!("echo evil >{home}/evil"),
        "echo evil >$AGENT_HOME/evil".to_owned(),
    ];
    let before = listing(&world);
    for front in [
        "tools: Read, Grep, Glob, Bash",
        "permissionMode: plan",
        "disallowedTools: Write, Edit",
    ] {
        let file = file(&world, front);
        let wanted: Vec<(String, Value)> = attempts
            .iter()
            .enumerate()
            .map(|(at, command)| (format!("c{at}"), json!({"command": command})))
            .collect();
        let mut all: Vec<(&str, &str, Value)> = wanted
            .iter()
            .map(|it| (it.0.as_str(), "bash", it.1.clone()))
            .collect();
        all.push(("r", "bash", json!({"command": "cat a.txt"})));
        all.push(("w", "write", json!({"path": "w.txt", "content": "evil"})));
        all.push((
            "e",
            "edit",
            json!({"path": "a.txt", "old": "before", "new": "evil"}),
        ));
        world.model_says([calls(&all), text("ok")]);
        at_work(&world, ["run", "-a", &file, "--new", front]).exits(0);
        let last = world.server.last();
        assert!(last.observation("r").contains("before"));
        for (id, arguments) in &wanted {
            let seen = last.observation(id);
            assert!(
                !seen.contains("exit code: 0") && !seen.contains("(exit code 0)"),
                "{front}: {arguments}: {seen}"
            );
        }
        assert_eq!(world.read("proj/a.txt"), "before\n", "{front}");
        assert_eq!(listing(&world), before, "{front}");
        assert!(!world.exists("evil"));
        assert!(!newest(&world).path("evil").exists() && !world.exists("proj/.delta/evil"));
    }
    // A tool that is offered, and only that, is there at all: with Write, the same command works.
    let file = file(&world, "tools: Write, Bash");
    let command = json!({"command": "echo good >a.txt"});
    world.model_says([call("c", "bash", &command), text("ok")]);
    at_work(&world, ["run", "-a", &file, "--new", "w"]).exits(0);
    assert_eq!(world.read("proj/a.txt"), "good\n");
}

/// What there is in `proj` and below, but for the records.
fn listing(world: &World) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![world.path("proj")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap() == ".delta" {
                continue;
            }
            if path.is_dir() {
                dirs.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn what_limits_an_agent_is_never_left_out() {
    let world = everyday();
    world.server.may_stay_unasked();
    let broken = "description: It does: 'this\ncolor: [";
    for (front, why) in [
        ("tools: 7", "tools: expected a list"),
        (
            "disallowedTools: {a: b}",
            "disallowedTools: expected a list",
        ),
        ("permissionMode: [plan]", "permissionMode: expected a word"),
        ("maxTurns: 0", "maxTurns: expected a whole number"),
        ("maxTurns: many", "maxTurns: expected a whole number"),
        ("tools: [Read", "line "),
        (
            &format!("{broken}\ntools: [Read"),
            "tools: it cannot be read for certain",
        ),
        (
            &format!("{broken}\ntools: Read\ntools: Bash"),
            "tools: it cannot be read for certain",
        ),
        (
            &format!("{broken}\n tools: Read"),
            "tools: it cannot be read for certain",
        ),
        (
            &format!("{broken}\n\"tools\" : [Read"),
            "tools: it cannot be read for certain",
        ),
        (
            &format!("{broken}\ndisallowedTools: Write,\nEdit"),
            "disallowedTools: it cannot be read",
        ),
        (
            &format!("{broken}\npermissionMode: 'plan"),
            "permissionMode: it cannot be read",
        ),
        ("tools: &a [*a]", "line "),
        ("- tools", "not a mapping"),
    ] {
        let file = file(&world, front);
        let checked = at_work(&world, ["check", &file]).end();
        checked.exits(78).says(why).says_one_line();
        at_work(&world, ["run", "-a", &file, "x"])
            .exits(78)
            .says(why);
    }
    assert!(!world.exists("proj/.delta"));
    // Where only something else is broken, what can be read counts, and what is wrong is said.
    let (found, said) = becomes(&world, &format!("{broken}\ntools: Read"));
    assert_eq!(found["tools"], json!(["read"]));
    assert!(
        said.contains("warning: ") && said.contains("line "),
        "{said}"
    );
    let (found, said) = becomes(&world, "description: Use it: always\ntools: Read");
    assert_eq!(found["tools"], json!(["read"]));
    assert!(said.contains("needs quotes"), "{said}");
}

#[test]
fn a_limit_is_read_as_it_is_written_or_not_at_all_in_a_front_matter_with_a_fault() {
    let world = everyday();
    world.server.may_stay_unasked();
    let colon = "description: Use when: the tools of a diff matter";
    let read = ["bash", "read", "bash_net"];
    for (front, tools) in [
        (
            "disallowedTools: Bash(rm:*), Write, Edit # reads",
            &read[1..2],
        ),
        ("permissionMode: plan # note: read only", &read),
        ("permissionMode: plan", &read),
        ("tools:\n- Read\n- Bash", &read),
        ("tools: Read # not: Write", &read[1..2]),
    ] {
        for front in [format!("{colon}\n{front}"), format!("{front}\n{colon}")] {
            let (found, said) = becomes(&world, &front);
            assert_eq!(found["tools"], json!(tools), "{front}");
            assert_eq!(found["writes"], false, "{front}");
            assert!(said.contains("needs quotes"), "{said}");
        }
    }
    let broken = "description: A text\ncolor: [";
    for (front, key) in [
        ("permissionMode: plan: x", "permissionMode"),
        ("disallowedTools: Write: Edit", "disallowedTools"),
        ("tools: {\nwrite: false, edit: false\n}", "tools"),
        ("{a: b, tools: Read", "tools"),
        ("model: m, tools: Read: x", "tools"),
        ("tools\u{a0}: Read", "tools"),
        ("# tools: Read", "tools"),
    ] {
        for fault in [colon, broken] {
            let path = file(&world, &format!("{fault}\n{front}"));
            let checked = at_work(&world, ["check", &path]).end();
            checked
                .exits(78)
                .says(&format!("{key}: it cannot be read for certain"))
                .says_one_line();
        }
    }
    // YAML has more breaks of a line than one.
    let path = file(&world, "description: a: b\rtools: Read");
    at_work(&world, ["check", &path])
        .exits(78)
        .says("tools: it");
}

#[test]
fn names_of_tools_that_mean_nothing_are_in_the_warning() {
    let world = everyday();
    world.server.may_stay_unasked();
    for (front, unknown) in [
        ("disallowedTools: Write Edit", "'Write Edit'"),
        (
            "disallowedTools: [Wirte, Edti(x), 'Bash(rm:*)']",
            "Wirte, 'Edti(x)'",
        ),
        ("tools: {wirte: false, write: false}", "wirte"),
        ("tools: {'wr*': false, webfetch: false}", "'wr*', webfetch"),
        (
            "tools: ['Bash(git diff:*)', Read]\ndisallowedTools: Task, Edit",
            "'Bash(git diff:*)', Task",
        ),
    ] {
        let (_, said) = becomes(&world, front);
        assert!(
            said.ends_with(&format!("no such tool here: {unknown}\n")),
            "{front}: {said}"
        );
    }
    let known = "tools: {'*': false, Read: true}\ndisallowedTools: Bash(rm:*), LS(*)";
    assert_eq!(becomes(&world, known).1, "");
}

#[test]
fn a_key_that_only_looks_like_a_limit_is_in_the_warning() {
    let world = everyday();
    world.server.may_stay_unasked();
    for (front, shown) in [
        ("tools\u{a0}: Read", r"'tools\u{a0}'"),
        ("'tools ': Read", "'tools '"),
        ("t\u{43e}\u{43e}ls: Read", r"'t\u{43e}\u{43e}ls'"),
        (
            "description: Use: it\nto\u{200b}ols: Read",
            r"'to\u{200b}ols'",
        ),
    ] {
        let (_, said) = becomes(&world, front);
        let expected = format!("no effect here: {shown}\n");
        assert!(said.ends_with(&expected), "{front}: {said}");
    }
}

#[test]
fn hostile_files_end_with_a_line() {
    let world = everyday();
    world.server.may_stay_unasked();
    let bomb: String = (0..12).fold("a: &a [x]\n".to_owned(), |text, at| {
        let (old, new) = (char::from(b'a' + at), char::from(b'b' + at));
        format!(
            "{text}{new}: &{new} [{}]\n",
            vec![format!("*{old}"); 12].join(", ")
        )
    });
    let _pipe = world.fifo("files/pipe.md");
    world.write("files/huge.md", vec![b'-'; (1 << 20) + 1]);
    world.write("files/binary.md", b"---\nname: \xff\n---\n");
    world.write("files/plain.md", "# A text\n");
    world.write("files/open.md", "---\nname: x\n");
    world.write("files/bomb.md", format!("---\n{bomb}\n---\n"));
    world.write(
        "files/deep.md",
        format!("---\na: {}\n---\n", "[".repeat(400_000)),
    );
    symlink("loop.md", world.path("files/loop.md")).unwrap();
    symlink("/dev/zero", world.path("files/zero.md")).unwrap();
    for (name, why) in [
        ("pipe", "not a regular file"),
        ("huge", "larger than 1 MiB"),
        ("binary", "UTF-8"),
        ("plain", "does not begin with front matter"),
        ("open", "does not end with a line"),
        ("bomb", "line "),
        ("deep", "brackets"),
        ("loop", ""),
        ("zero", "not a regular file"),
        ("none", "No such file"),
    ] {
        let path = format!("../files/{name}.md");
        let run = at_work(&world, ["run", "-a", &path, "x"]).end();
        run.exits(78)
            .says(&format!("files/{name}.md: "))
            .says(why)
            .says_one_line();
    }
    assert!(!world.exists("proj/.delta"));
    // A name that would show as another one is none; a key is shown without what it hides.
    let front = "name: \"a\\e[2Jb\"\nkey: 1\n\"k\\e[2J\\n\": 1\ntools: \"T\\e[2J\"\ndescription: \"a\\nname: b\"";
    let (_, said) = becomes(&world, front);
    assert!(
        !said.contains('\u{1b}') && said.lines().count() == 1,
        "{said:?}"
    );
    assert!(
        said.contains(
            r"no effect here: name, key, 'k\u{1b}[2J\n'; no such tool here: 'T\u{1b}[2J'"
        ),
        "{said}"
    );
    let file = world.path("files/agent-1.md");
    let checked = at_work(&world, ["check", file.to_str().unwrap()]).exits(0);
    assert!(checked.stdout.starts_with(b"agent-1: ok"));
    // Nor is a built-in agent taken for it, or it for one.
    world.model_says([text("ok")]);
    let file = self::file(&world, "name: coder");
    at_work(&world, ["run", "-a", &file, "x"]).exits(0);
    world.model_says([text("ok")]);
    at_work(&world, ["continue", "-m", "more"]).exits(0);
    let system = world.server.last().messages()[0]["content"].clone();
    assert!(system.as_str().unwrap().contains("You do it."));
}

#[test]
fn another_content_is_another_agent() {
    let world = everyday();
    let path = world.write("files/reviewer.md", REVIEWER);
    let path = path.to_str().unwrap();
    let run = |task: &str, id: &str| at_work(&world, ["run", "-a", path, "--run-id", id, task]);
    world.model_says([text("first")]);
    run("x", "one").exits(0).prints("first\n");
    // The same file, and a copy elsewhere, are the same agent.
    run("x", "one").exits(0).prints("first\n");
    let copy = world.write("other/reviewer.md", REVIEWER);
    let again = at_work(
        &world,
        ["run", "-a", copy.to_str().unwrap(), "--run-id", "one", "x"],
    );
    again.exits(0).prints("first\n");
    fs::write(path, REVIEWER.replace("Grep", "Write")).unwrap();
    run("x", "one")
        .exits(1)
        .says("belongs to the agent reviewer");
    // A run goes on with its own, whatever the file has become.
    fs::remove_file(path).unwrap();
    world.model_says([text("second")]);
    at_work(&world, ["continue", "-m", "more"])
        .exits(0)
        .prints("second\n");
    let request = world.server.last().json();
    assert_eq!(tools_of(&request), ["read"]);
}

#[test]
fn the_same_content_is_the_same_agent_wherever_it_is_kept() {
    let world = everyday();
    let path = world.write("files/r.md", REVIEWER);
    let elsewhere = world.path("elsewhere").display().to_string();
    let run = |path: &str, cache: &str| {
        let run = at_work(&world, ["run", "-a", path, "--run-id", "one", "x"]);
        run.env("XDG_CACHE_HOME", cache).end()
    };
    world.model_says([text("first")]);
    run(path.to_str().unwrap(), "").exits(0).prints("first\n");
    // Under another cache directory, as that of cron may be.
    run(path.to_str().unwrap(), &elsewhere)
        .exits(0)
        .prints("first\n");
    // And under another name, if its own is in it.
    fs::rename(&path, world.path("files/s.md")).unwrap();
    let moved = world.path("files/s.md");
    run(moved.to_str().unwrap(), "").exits(0).prints("first\n");
    let nameless = REVIEWER.replace("name: reviewer\n", "");
    let other = world.write("files/reviewer.md", nameless);
    run(other.to_str().unwrap(), "")
        .exits(1)
        .says("belongs to the agent reviewer");
    // A directory of that name is another agent, too.
    let moved = moved.to_str().unwrap();
    at_work(&world, ["init", "--from", moved, "reviewer"]).exits(0);
    at_work(
        &world,
        ["run", "-a", "reviewer", "-w", ".", "--run-id", "one", "x"],
    )
    .exits(1)
    .says("belongs to the agent reviewer");
}

#[test]
fn a_run_goes_on_with_an_empty_home_under_another_cache_directory() {
    let world = everyday();
    let file = file(&world, "tools: Bash");
    world.model_says([text("ok")]);
    at_work(&world, ["run", "-a", &file, "x"]).exits(0);
    let home = newest(&world).metadata()["agent_home"].clone();
    let planted = PathBuf::from(home.as_str().unwrap()).join(".env");
    fs::write(planted, "PLANTED=1\n").unwrap();
    let look = "echo of ${PLANTED-none}; ls -A $AGENT_HOME | wc -l";
    world.model_says([call("c", "bash", &json!({"command": look})), text("on")]);
    let on = at_work(&world, ["continue", "-m", "more"]);
    on.env("XDG_CACHE_HOME", world.path("elsewhere"))
        .end()
        .exits(0);
    let seen = world.server.last().observation("c");
    assert!(seen.contains("of none\n0\n"), "{seen}");
}

#[test]
fn what_is_put_beside_an_unpacked_file_has_no_effect() {
    let world = everyday();
    let path = world.write("files/reviewer.md", REVIEWER);
    let path = path.to_str().unwrap();
    let run = |task: &str| {
        world.model_says([text("ok")]);
        at_work(&world, ["run", "-a", path, task]).exits(0);
        let system = world.server.last().messages()[0]["content"].clone();
        assert!(
            system.as_str().unwrap().contains("You review."),
            "{task}: {system}"
        );
        PathBuf::from(newest(&world).metadata()["agent_home"].as_str().unwrap())
    };
    let home = run("first");
    let place = home.parent().unwrap();
    let plant: [&dyn Fn(); 4] = [
        &|| fs::write(home.join("system_prompt.md"), "evil").unwrap(),
        &|| fs::write(home.join("hooks.yaml"), "evil").unwrap(),
        &|| fs::write(place.join("home/x"), "evil").unwrap(),
        &|| fs::set_permissions(&home, Permissions::from_mode(0o777)).unwrap(),
    ];
    for (at, plant) in plant.iter().enumerate() {
        plant();
        assert_eq!(run(&format!("after {at}")), home);
        assert!(!home.join("hooks.yaml").exists() && !place.join("home/x").exists());
    }
    // Not even on going on, which takes the place as it is.
    fs::write(home.join(".env"), "DELTA_BASE_URL=http://127.0.0.1:9").unwrap();
    fs::create_dir(world.path(".git")).unwrap();
    world.write(".env", "DELTA_BASE_URL=http://127.0.0.1:9");
    let on = || {
        at_work(&world, ["continue", "-m", "more"])
            .env("DELTA_BASE_URL", "")
            .env("OPENAI_BASE_URL", world.server.url())
    };
    world.model_says([text("on")]);
    on().exits(0).prints("on\n");
    fs::remove_dir_all(place).unwrap();
    on().exits(78).says("no longer at");
    world.model_says([text("back")]);
    at_work(&world, ["continue", "-a", path, "-m", "more"])
        .exits(0)
        .prints("back\n");
}

#[test]
fn a_record_cannot_name_an_unpacked_file_that_tools_could_write() {
    let world = World::new();
    let file = world.write("reviewer.md", REVIEWER);
    world.model_says([text("ok")]);
    let home = |args: &[&str]| at_work_in_home(&world, args);
    home(&["run", "-a", file.to_str().unwrap(), "x"]).exits(0);
    home(&["continue", "-m", "more"])
        .exits(78)
        .says("which a tool may have put there");
    world.model_says([text("on")]);
    let on = home(&["continue", "-a", file.to_str().unwrap(), "-m", "more"]).end();
    on.exits(0).prints("on\n");
}

/// `delta` with the home directory as the workspace, in which the cache lies.
fn at_work_in_home(world: &World, args: &[&str]) -> Delta {
    fs::create_dir_all(world.path("proj")).unwrap();
    at_work(world, args.iter().copied()).cwd(world.home())
}

#[test]
fn a_name_finds_a_file_in_the_directories_of_agents() {
    let world = everyday();
    world.write("one/reviewer.md", REVIEWER);
    world.write("two/reviewer.md", REVIEWER.replace("You review.", "Two."));
    world.write("two/dir.md/agent.yaml", "x");
    let list = std::env::join_paths([world.path("one"), world.path("two")]).unwrap();
    let says = |wanted: &str, warns: bool| {
        world.model_says([text("ok")]);
        let run = at_work(&world, ["run", "@reviewer", "--new", "x"])
            .env("DELTA_AGENTS", &list)
            .exits(0);
        let system = world.server.last().messages()[0]["content"].clone();
        assert!(system.as_str().unwrap().contains(wanted), "{system}");
        assert_eq!(
            run.stderr.contains("one/reviewer.md is ignored: "),
            warns,
            "{}",
            run.stderr
        );
    };
    says("You review.", false);
    for place in ["one", "one/reviewer.md"] {
        let set =
            |mode| fs::set_permissions(world.path(place), Permissions::from_mode(mode)).unwrap();
        set(0o777);
        says("Two.", true);
        set(0o755);
    }
    // A link counts like what it leads to.
    fs::remove_file(world.path("one/reviewer.md")).unwrap();
    world.write("shared/r.md", REVIEWER);
    symlink(world.path("shared/r.md"), world.path("one/reviewer.md")).unwrap();
    says("You review.", false);
    fs::set_permissions(world.path("shared"), Permissions::from_mode(0o777)).unwrap();
    says("Two.", true);
    // A directory of the name comes first, and one called NAME.md is none.
    let missing = at_work(&world, ["run", "@dir", "x"])
        .env("DELTA_AGENTS", &list)
        .end();
    missing.exits(2).says("no agent is named @dir");
    let offered = at_work(&world, ["complete", "--", "run", "@"])
        .env("DELTA_AGENTS", &list)
        .exits(0);
    assert!(String::from_utf8_lossy(&offered.stdout).contains("@reviewer"));
}

#[test]
fn a_clones_file_is_only_shown() {
    let world = everyday();
    world.server.may_stay_unasked();
    world.write("proj/.claude/agents/helper.md", REVIEWER);
    world.write("proj/helper.md", REVIEWER);
    let run = at_work(&world, ["run", "@helper", "x"]).exits(2);
    run.says("no agent is named @helper")
        .says("`delta run -a .claude/agents/helper.md …`")
        .says_one_line();
    at_work(&world, ["run", "@helpr", "x"])
        .exits(2)
        .does_not_say(".claude");
    let _pipe = world.fifo("proj/.claude/agents/pipe.md");
    at_work(&world, ["run", "@pipe", "x"])
        .exits(2)
        .does_not_say(".claude");
    assert!(!world.exists("proj/.delta"));
    world.model_says([text("ok")]);
    let file = ".claude/agents/helper.md";
    at_work(&world, ["run", "-a", file, "x"]).exits(0);
    for (agent, count) in [(file, 1), ("@coder", 0)] {
        let listed = at_work(
            &world,
            ["list-runs", "-r", ".", "-a", agent, "--format", "json"],
        );
        let lines = String::from_utf8(listed.end().stdout).unwrap();
        assert_eq!(lines.lines().count(), count, "{agent}: {lines}");
    }
}

#[test]
fn a_directory_made_from_a_file_sends_the_same_request() {
    let world = everyday();
    for (at, front) in [
        "name: r e\ndescription: 'a: \"b\"'\ntools: Read, Grep",
        "model: m-1\nmaxTurns: 5",
        "tools: Bash, Edit",
        "tools: Task",
        "permissionMode: plan",
    ]
    .iter()
    .enumerate()
    {
        let file = file(&world, front);
        let dir = format!("made{at}");
        let made = at_work(&world, ["init", "--from", &file, &dir]).exits(0);
        made.prints(&format!("{dir}\n"));
        let checked = at_work(&world, ["check", &dir]).exits(0);
        checked.does_not_say("warning");
        let mut sent = Vec::new();
        for agent in [&file, &dir] {
            world.model_says([text("ok")]);
            at_work(&world, ["run", "-a", agent, "-w", ".", "--new", "x"]).exits(0);
            sent.push(newest(&world).invocations().remove(0).join("request.json"));
            let metadata = newest(&world).metadata();
            assert_eq!(
                metadata["agent_name"],
                if at == 0 { "r e" } else { "agent-1" }
            );
        }
        assert_eq!(
            fs::read(&sent[0]).unwrap(),
            fs::read(&sent[1]).unwrap(),
            "{front}"
        );
    }
    let file = file(&world, "tools: Read");
    let both = at_work(&world, ["init", "--from", &file, "-t", "coder", "more"]).end();
    both.exits(2).says("--from and -t");
    at_work(&world, ["init", "--from", &file, "made0"])
        .exits(1)
        .says("already contains an agent");
    at_work(&world, ["init", "--from", "none.md", "more"]).exits(78);
    assert!(!world.exists("proj/more"));
}

#[test]
fn a_file_that_says_nothing_is_coder_itself() {
    let world = everyday();
    world.server.may_stay_unasked();
    let file = file(&world, "name: coder");
    at_work(&world, ["init", "--from", &file, "one"]).exits(0);
    at_work(&world, ["init", "-t", "coder", "coder"]).exits(0);
    for name in ["agent.yaml", "context.yaml", ".gitignore"] {
        assert_eq!(
            world.read(&format!("proj/one/{name}")),
            world.read(&format!("proj/coder/{name}"))
        );
    }
    let file = self::file(&world, "description: 'a: \"b\"'\nmodel: m\nmaxTurns: 2");
    at_work(&world, ["init", "--from", &file, "three"]).exits(0);
    let lines: Vec<String> = world.lines("proj/three/agent.yaml");
    for line in [
        "description: \"a: \\\"b\\\"\"",
        "llm: {model: \"m\"}",
        "max_iterations: 2",
    ] {
        assert!(lines.iter().any(|it| it == line), "{line}");
    }
    // What a file says is kept as it is.
    let usual = "Works on code with a shell, and reads, writes and edits files";
    let most = "max_iterations: 100";
    let front = format!("name: {usual}\ndescription: '{most}'\nmodel: '{most}'\nmaxTurns: 2");
    let (found, said) = becomes(&world, &front);
    assert_eq!((&found["model"], &*said), (&json!(most), ""));
    assert_eq!(found["max_iterations"], 2);
    // Whatever the template says: no word of it lets a tool write, and no comment says so.
    let file = self::file(&world, "tools: Bash");
    at_work(&world, ["init", "--from", &file, "two"]).exits(0);
    let agent = world.read("proj/two/agent.yaml");
    assert!(!agent.contains("--rw") && agent.contains("Tools cannot write"));
    assert!(agent.contains("\nfiles: off\n"), "{agent}");
}

#[test]
fn check_prints_what_a_file_becomes() {
    let world = everyday();
    world.server.may_stay_unasked();
    let path = world.write("proj/reviewer.md", REVIEWER);
    let checked = at_work(&world, ["check", "reviewer.md"])
        .env("DELTA_MODEL", "")
        .exits(0);
    // The files that are made from it are nobody's to mend.
    let checked = checked
        .says("warning: reviewer.md: llm: no model is named")
        .does_not_say("agent.yaml");
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(text.starts_with("reviewer: ok, 1 tool, "), "{text}");
    let expected = "\ntools:\n- read\nwrites: false\nmodel: null\nmax_iterations: 100\n";
    assert!(text.ends_with(expected), "{text}");
    fs::remove_file(path).unwrap();
    at_work(&world, ["check", "reviewer.md"]).exits(78);
}
