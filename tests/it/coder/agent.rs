//! The agent that works on code, as `delta init -t coder` makes it: its tools in their sandbox, and what it is
//! shown of a repository that strangers wrote.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

/// The agent `mine`, and a repository `ws`. None if this kernel confines nothing.
fn coder() -> Option<World> {
    let world = World::on_disk();
    let strict = [
        "sandbox",
        "--strict",
        "--no-network",
        "--",
        "bash",
        "-c",
        "git --version",
    ];
    if world.delta(strict).end().code() != Some(0) {
        eprintln!("skipped: no sandbox, bash or git");
        return None;
    }
    world.delta(["init", "-t", "coder", "mine"]).exits(0);
    world.write("ws/.keep", "");
    git(&world, &["init", "-q", "-b", "main"]);
    Some(world)
}

#[track_caller]
fn git(world: &World, arguments: &[&str]) {
    let mut git = Command::new("git");
    git.current_dir(world.workspace()).args(arguments);
    let git = git
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    assert!(git.status().unwrap().success());
}

impl World {
    fn run_coder(&self, workspace: &str) -> Delta {
        let run = self.delta(["run", "-a", "mine", "-w", workspace, "-m", "go"]);
        run.env("DELTA_MODEL", "scripted")
            .env("DELTA_BASE_URL", self.server.url())
    }

    /// What the model is told about each of these calls.
    #[track_caller]
    fn told_coder(&self, wanted: &[(&str, Value)]) -> Vec<String> {
        let ids: Vec<String> = (0..wanted.len()).map(|n| format!("c{n}")).collect();
        let wanted = wanted.iter().zip(&ids);
        let wanted: Vec<_> = wanted
            .map(|((tool, arguments), id)| (id.as_str(), *tool, arguments.clone()))
            .collect();
        self.server.says([calls(&wanted), text("done")]);
        self.run_coder("ws").exits(0).prints("done\n");
        let last = self.server.last();
        ids.iter().map(|id| last.observation(id)).collect()
    }

    /// The system message of a run in a workspace.
    #[track_caller]
    fn shown(&self, workspace: &str) -> String {
        self.server.says([text("done")]);
        self.run_coder(workspace).exits(0);
        let request = self.server.last().json();
        request["messages"][0]["content"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

#[test]
fn its_tools_find_no_credentials() {
    let Some(world) = coder() else { return };
    let places = [
        ".ssh/id",
        ".docker/config.json",
        ".config/gh/hosts.yml",
        ".cargo/credentials.toml",
    ];
    for place in places {
        world.write(place, "my secret\n");
    }
    world.write(".cargo/config.toml", "my settings\n");
    let command = format!("cd ~; cat .cargo/config.toml {}; :", places.join(" "));
    for (tool, arguments) in [
        ("bash", json!({"command": command})),
        ("bash_net", json!({"command": command, "reason": "r"})),
    ] {
        world
            .server
            .says([calls(&[("c", tool, arguments)]), text("done")]);
        let run = world.run_coder("ws").args(["--set", "confirm=none"]);
        run.exits(0);
        let told = world.server.last().observation("c");
        assert!(told.contains("my settings"), "{tool}: {told}");
        assert!(!told.contains("my secret"), "{tool}: {told}");
    }
}

#[test]
fn without_namespaces_a_person_learns_what_its_tools_can_read() {
    let Some(world) = coder() else { return };
    let none = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let none = ["unshare", "-Ur", "sh", "-c", none];
    if world.delta(["-V"]).under(&none).end().code() != Some(0) {
        eprintln!("skipped: there is nothing to take namespaces away from");
        return;
    }
    world.write(".netrc", "my secret\n");
    let command = json!({"command": "echo ran"});
    let two = ["a", "b"].map(|id| (id, "bash", command.clone()));
    world.model_says([calls(&two), text("done")]);
    let run = world.run_coder("ws").under(&none).exits(0);
    let warning = "the sandbox does not restrict here: ";
    let run = run.says(warning).says(&format!(
        "reading {}",
        world.path(".netrc").canonicalize().unwrap().display()
    ));
    assert_eq!(run.stderr.matches(warning).count(), 1, "{}", run.stderr);
    assert!(world.latest().text("sandbox.txt").contains(".netrc"));
    let last = world.server.last();
    assert!(last.observation("a").contains(".netrc") && last.observation("b") == "ran\n");
}

#[test]
fn a_link_in_the_workspace_brings_no_credentials_to_the_model() {
    let Some(world) = coder() else { return };
    world.write(".netrc", "my secret\n");
    world.write(".aws/credentials", "AWS_TOKEN=my secret\n");
    let links = ["DELTA.md", "AGENTS.md"].map(|name| format!("ln -s ~/.netrc {name}"));
    let command = format!("{}; ln -s ~/.aws/credentials .env", links.join("; "));
    let look = json!({"command": "ls -l DELTA.md .env; env"});
    world.model_says([
        call("a", "bash", &json!({"command": command})),
        call("b", "bash", &look),
        text("done"),
    ]);
    world.run_coder("ws").exits(0);
    let again = [call("c", "bash", &look), text("done")];
    world.model_says(again);
    let run = world.run_coder("ws").exits(0);
    run.says(".env is ignored: it is a link out of the workspace");
    for request in world.server.requests() {
        let request = String::from_utf8_lossy(&request.body).into_owned();
        assert!(!request.contains("my secret"), "{request}");
    }
    let last = world.server.last().observation("c");
    assert!(last.contains(".env -> "), "{last}");
    let log = world.latest().text("engine.log");
    assert!(log.contains("workspace_guide lacks "), "{log}");
}

#[test]
fn its_tools_work_in_the_workspace_and_nowhere_else() {
    let Some(world) = coder() else { return };
    world.write("outside.txt", "outside\n");
    let outside = world.path("outside.txt");
    let outside = outside.to_str().unwrap();
    let told = world.told_coder(&[
        (
            "bash",
            json!({"command": "echo $GIT_PAGER $NO_COLOR ${CI-none}; cat; pwd; exit 4"}),
        ),
        (
            "write",
            json!({"path": "src/a.txt", "content": "one\ntwo\nthree\n"}),
        ),
        ("read", json!({"path": "src/a.txt", "offset": 2})),
        (
            "edit",
            json!({"path": "src/a.txt", "old": "two", "new": ""}),
        ),
        (
            "edit",
            json!({"path": "src/a.txt", "old": "e", "new": "E", "all": true}),
        ),
        ("write", json!({"path": outside, "content": "x"})),
        (
            "edit",
            json!({"path": ".git/config", "old": "[core]", "new": "[core]\n\tpager = x"}),
        ),
        (
            "write",
            json!({"path": ".git/hooks/pre-commit", "content": "x"}),
        ),
        ("read", json!({"path": outside})),
        (
            "bash",
            json!({"command": "git status --short; exec 3<>/dev/tcp/127.0.0.1/9"}),
        ),
        (
            "edit",
            json!({"path": "src/a.txt", "old": "x".repeat(200_000), "new": ""}),
        ),
    ]);
    let workspace = world.workspace().canonicalize().unwrap();
    assert_eq!(
        told[0],
        format!("cat 1 none\n{}\n[exit code: 4]", workspace.display())
    );
    assert_eq!(told[1], "created src/a.txt, 3 lines\n");
    assert_eq!(told[2], "lines 2–3 of 3\ntwo\nthree\n");
    assert!(
        told[3]
            .starts_with("edited src/a.txt, at line 2\n@@ -1,3 +1,3 @@\n one\n-two\n+\n three\n")
    );
    assert!(told[4].starts_with("edited src/a.txt, 3 places"));
    assert_eq!(world.read("ws/src/a.txt"), "onE\n\nthrEE\n");
    for at in [5, 6, 7] {
        assert!(
            told[at].starts_with("[stderr]\ncannot write "),
            "{}",
            told[at]
        );
        assert!(
            told[at].contains("tools write only below the workspace"),
            "{}",
            told[at]
        );
        // Elsewhere, the workspace is named.
        let way_out = told[at].contains("give the path from there, such as outside.txt");
        assert_eq!(way_out, at == 5, "{}", told[at]);
        assert!(told[at].ends_with("[exit code: 1]"), "{}", told[at]);
    }
    assert_eq!(world.read("outside.txt"), "outside\n");
    assert!(!world.exists("ws/.git/hooks/pre-commit"));
    assert_eq!(told[8], "lines 1–1 of 1\noutside\n");
    assert!(
        told[9].starts_with("?? .keep\n?? src/\n[stderr]\n"),
        "{}",
        told[9]
    );
    assert!(told[10].contains("the argument 'old' is too long: it has 200000 bytes"));
}

#[test]
fn its_tools_cannot_write_the_persons_own_settings() {
    let Some(world) = coder() else { return };
    let write = |id: &'static str, name: &str| {
        let path = world.path(".config/delta").join(name);
        (
            id,
            "write",
            json!({"path": path, "content": "DELTA_MODEL=evil\n"}),
        )
    };
    let run = |task: &str| {
        world.model_says([
            calls(&[
                write("a", "env"),
                write("b", "agents/coder/agent.yaml"),
                (
                    "c",
                    "bash",
                    json!({"command": "mv .config aside; mkdir -p .config/delta/x"}),
                ),
            ]),
            text("done"),
        ]);
        let home = world.delta(["run", "-a", "mine", "-w", ".", "-m", task]);
        let home = home.env("DELTA_MODEL", "scripted");
        let home = home.env("DELTA_BASE_URL", world.server.url());
        let ended = home.exits(0).does_not_say("decides over later runs");
        let last = world.server.last();
        for id in ["a", "b", "c"] {
            let told = last.observation(id);
            assert!(told.contains("[exit code: 1]"), "{task}, {id}: {told}");
        }
        assert!(!world.exists("aside"), "{}", ended.describe());
        assert!(!world.exists(".config/delta/agents") && !world.exists(".config/delta/x"));
    };
    run("nothing is there");
    assert!(!world.exists(".config/delta/env"));
    let file = world.write(".config/delta/env", "DELTA_MODEL=mine\n");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    run("it is there");
    assert_eq!(world.read(".config/delta/env"), "DELTA_MODEL=mine\n");
}

#[test]
fn long_output_is_named_and_can_be_searched() {
    let Some(world) = coder() else { return };
    let command = json!({"command": "seq 1 20000; seq 1 9"});
    let told = world.told_coder(&[("bash", command)]).remove(0);
    let last = told.lines().last().unwrap();
    let path = last
        .strip_prefix("[all 108912 bytes are in ")
        .unwrap_or_else(|| panic!("{last}"));
    let (path, _) = path.split_once(':').unwrap();
    assert!(path.starts_with(".delta/"), "{path}");
    let search = format!("grep -c 7 {path}; ls {path} >&2");
    world.model_says([call("d", "bash", &json!({"command": search})), text("done")]);
    world.run_coder("ws").exits(0);
    let told = world.server.last().observation("d");
    assert!(told.ends_with(&format!("[stderr]\n{path}\n")), "{told}");
}

#[test]
fn the_network_is_reached_only_after_a_persons_yes() {
    let Some(world) = coder() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let command = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached; touch ../x");
    let arguments = json!({"command": command, "reason": "The tests\nneed it."});
    world.model_says([call("c", "bash_net", &arguments), text("done")]);
    let asked = world.run_coder("ws").exits(101);
    asked.says("need it.").says("/dev/tcp/127.0.0.1/");
    let request = world.latest().read("interaction/request.json");
    let request: serde_json::Value = serde_json::from_slice(&request).unwrap();
    let question = format!(
        "$ bash <<< '{command}'\nreason: The tests\\nneed it.\n\
         It can use the network. Allow this command?"
    );
    assert_eq!(request["prompt"], question);
    let answered = world.delta(["continue", "-w", "ws", "-m", "yes"]);
    let answered = answered
        .env("DELTA_MODEL", "scripted")
        .env("DELTA_BASE_URL", world.server.url())
        .end();
    answered.exits(0).prints("done\n");
    let told = world.server.last().observation("c");
    assert!(
        told.starts_with("reached\n[stderr]\n") && !world.exists("x"),
        "{told}"
    );
}

#[test]
fn an_interrupted_command_leaves_nothing_behind() {
    let Some(world) = coder() else { return };
    let command = json!({"command": "sleep 1000 & echo begun > begun; sleep 1000"});
    world.model_says([call("c", "bash", &command)]);
    let running = world.run_coder("ws").spawn();
    eventually("the command runs", || world.exists("ws/begun"));
    running.signal(rustix::process::Signal::TERM);
    running.wait().exits(143);
    eventually("nothing is left", || world.processes().is_empty());
}

#[test]
fn it_sees_the_state_of_the_repository_and_no_program_of_it_runs() {
    let Some(world) = coder() else { return };
    world.write("ws/new.txt", "");
    world.write("ws/DELTA.md", "The guide.\n");
    world.script("ws/spy", "#!/bin/sh\ntouch \"$0.ran\"\n");
    git(&world, &["config", "core.fsmonitor", "./spy"]);
    let shown = world.shown("ws");
    for words in [
        "Git branch: main\n",
        "\n?? new.txt\n",
        "\nTop level:\n.keep\n",
        "The guide.",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(
        !shown.contains(".delta/") && !world.exists("ws/spy.ran"),
        "{shown}"
    );
}

#[test]
fn agents_md_is_read_from_the_root_of_the_repository_down() {
    let Some(world) = coder() else { return };
    world.write("AGENTS.md", "Outside of the repository.");
    world.write("ws/AGENTS.md", "Use tabs.");
    world.write("ws/sub/AGENTS.md", "Use spaces.\n");
    world.write("ws/sub/deep/x", "");
    symlink("../AGENTS.md", world.path("ws/sub/deep/AGENTS.md")).unwrap();
    let shown = world.shown("ws/sub/deep");
    let block = "# Context Block: project_instructions\n\nFrom ../../AGENTS.md:\n\nUse tabs.\n\n\
                 From AGENTS.md:\n\nUse spaces.\n\n# Context Block: workspace\n";
    assert!(shown.contains(block), "{shown}");
    assert!(!shown.contains("Outside"), "{shown}");
    // The instructions for another program count where there are none.
    fs::remove_file(world.path("ws/AGENTS.md")).unwrap();
    world.write("ws/CLAUDE.md", "Use two spaces.\n");
    world.write("ws/sub/CLAUDE.md", "Not this.\n");
    let shown = world.shown("ws/sub/deep");
    assert!(
        shown.contains("\n\nFrom ../../CLAUDE.md:\n\nUse two spaces.\n\nFrom AGENTS.md:\n"),
        "{shown}"
    );
    assert!(!shown.contains("Not this"), "{shown}");
    world.server.says([text("done")]);
    world
        .run_coder("ws/sub/deep")
        .arg("--new")
        .exits(0)
        .says("there is no ../../AGENTS.md: ../../CLAUDE.md is read in its place");
    // Without a repository, the directory alone.
    world.write("plain/AGENTS.md", "Plain.");
    let shown = world.shown("plain");
    assert!(
        shown.contains("Plain.") && !shown.contains("Outside"),
        "{shown}"
    );
}

#[test]
fn an_agents_md_that_leads_to_nothing_is_a_warning() {
    let Some(world) = coder() else { return };
    world.write("plain/CLAUDE.md", "Claude.\n");
    symlink("nowhere.md", world.path("plain/AGENTS.md")).unwrap();
    world.shown("plain");
    let run = Run::latest(&world.path("plain"));
    let log = fs::read_to_string(run.dir.join("engine.log")).unwrap();
    assert!(
        log.contains("lacks AGENTS.md: it is a link to nothing"),
        "{log}"
    );
}

#[test]
fn a_hostile_agents_md_is_passed_over_or_cut() {
    let Some(world) = coder() else { return };
    world.write("secret", "Secret.\n");
    world.write("ws/b/c/d/x", "");
    symlink("../secret", world.path("ws/AGENTS.md")).unwrap();
    let pipe = Command::new("mkfifo")
        .arg(world.path("ws/b/AGENTS.md"))
        .status();
    assert!(pipe.unwrap().success());
    symlink("AGENTS.md", world.path("ws/b/c/AGENTS.md")).unwrap();
    // The nearest has room first; it is larger than there is room, and takes none on the disk.
    let path = world.write("ws/b/c/d/AGENTS.md", "é".repeat(20_000));
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    let shown = world.shown("ws/b/c/d");
    assert!(
        !shown.contains("Secret") && !shown.contains('\u{fffd}'),
        "{shown}"
    );
    let omitted = format!("é\n[… {} bytes omitted …]\n", (1_u64 << 40) - 32_768);
    assert!(
        shown.contains(&omitted) && shown.len() < 60_000,
        "{}",
        shown.len()
    );
    let run = Run::latest(&world.path("ws/b/c/d"));
    let log = fs::read_to_string(run.dir.join("engine.log")).unwrap();
    for words in [
        "lacks ../AGENTS.md: it is a link to itself",
        "lacks ../../AGENTS.md: it is not a regular file",
        "lacks ../../../AGENTS.md: it is a link out of the repository",
        " bytes of AGENTS.md: max_bytes is 32768",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

#[test]
fn what_the_model_is_not_given_of_instructions_is_reported() {
    let Some(world) = coder() else { return };
    world.write("ws/.git/HEAD", "ref: refs/heads/x\n");
    world.write("ws/AGENTS.md", "Rules.\n");
    world.write("ws/module/.git", "gitdir: ../.git/modules/module\n");
    fs::create_dir_all(world.path("ws/empty/.git")).unwrap();
    world.write("ws/wide/AGENTS.md", b"\xff\xfeR\0u\0l\0e\0s\0".as_slice());
    fs::create_dir(world.path("ws/gone")).unwrap();
    symlink("nothing.md", world.path("ws/gone/AGENTS.md")).unwrap();
    world.write("alone/AGENTS.md", "Rules.\n");
    fs::create_dir_all(world.path("alone/deep/.git")).unwrap();
    for (dir, words) in [
        (
            "module",
            "lacks ../AGENTS.md: /.git begins a repository of its own",
        ),
        (
            "empty",
            "lacks ../AGENTS.md: /.git is empty, and ends the search",
        ),
        ("wide", "lacks characters of AGENTS.md: it is not UTF-8"),
        ("gone", "lacks AGENTS.md: it is a link to nothing"),
    ] {
        let dir = format!("ws/{dir}");
        let git = world.path(&dir).join(".git");
        world.shown(&dir);
        let log = Run::latest(&world.path(&dir)).text("engine.log");
        let words = words.replace("/.git", &git.display().to_string());
        assert_eq!(log.matches(&words).count(), 1, "{words}: {log}");
    }
    // No repository has it.
    world.shown("alone/deep");
    let log = Run::latest(&world.path("alone/deep")).text("engine.log");
    assert!(!log.contains("AGENTS.md"), "{log}");
}

#[test]
fn the_state_of_a_repository_waits_for_nothing_and_names_another_users() {
    let Some(world) = coder() else { return };
    world.write("ws/.git/index", "no index");
    let shown = world.shown("ws");
    let words = "Git cannot read the state of this repository.";
    assert!(
        shown.contains(words) && !shown.contains("git status"),
        "{shown}"
    );
    fs::remove_file(world.path("ws/.git/index")).unwrap();
    for file in ["info/exclude", "HEAD"] {
        let file = format!("ws/.git/{file}");
        world.write(&file, "");
        fs::remove_file(world.path(&file)).unwrap();
        // Without a writer, git waits for one.
        drop(world.fifo(&file));
        let shown = world.shown("ws");
        let words = "Git does not answer here.";
        assert!(
            shown.contains(words) && !shown.contains("git status"),
            "{file}: {shown}"
        );
    }
    world.write("other/x", "");
    git(&world, &["init", "-q", "../other"]);
    if std::os::unix::fs::chown(world.path("other"), Some(65534), None).is_err() {
        eprintln!("skipped: only root can give a repository away");
        return;
    }
    let shown = world.shown("other");
    assert!(
        shown.contains("A git repository of another user"),
        "{shown}"
    );
    assert!(!shown.contains("No git repository"), "{shown}");
}

#[test]
fn a_search_in_context_yaml_is_checked() {
    let world = World::new();
    for (keys, words) in [
        ("path: AGENTS.md, search: down", "search"),
        ("path: ../AGENTS.md, search: up", "without variables and .."),
        (
            "path: '${CWD}/AGENTS.md', search: up",
            "without variables and ..",
        ),
        (
            "path: AGENTS.md, search: up, max_bytes: 0",
            "expected at least 1, found 0",
        ),
        ("path: AGENTS.md, max_bytes: 5", "it goes with search: up"),
    ] {
        let source = format!("sources:\n  - {{type: file, {keys}}}\n  - type: journal\n");
        world.write("agent/context.yaml", source);
        world.delta(["check", "agent"]).exits(78).says(words);
    }
    let source = "sources:\n  - {type: file, path: AGENTS.md, search: up}\n  - type: journal\n";
    world.write("agent/context.yaml", source);
    world.run("go").exits(4).says("there is no AGENTS.md from ");
}

/// The line at the end of a run, without what stands before the paths.
fn executed(outcome: &Outcome) -> Option<String> {
    let line = outcome
        .stderr
        .lines()
        .find(|line| line.contains("other programs execute"))?;
    let (_, paths) = line.split_once("changed what other programs execute: ")?;
    Some(paths.to_owned())
}

#[test]
fn the_end_of_a_run_names_what_changed_that_other_programs_execute() {
    let world = World::with_tools("- {name: sh, exec: 'sh -c -- ${script}'}");
    world.write("ws/vendor/x/.git/HEAD", "");
    world.write("ws/vendor/x/.git/objects/x", "");
    world.write("ws/vendor/x/.git/config", "[core]\n");
    world.write("ws/vendor/x/.git/hooks/update.sample", "");
    world.write("ws/Makefile", "all:\n");
    world.write("ws/.envrc", "export A=1\n");
    world.write("ws/gone/.envrc", "");
    // Nothing is named that stays as it is, though it was written again; nor what is not executed.
    let same = "cp Makefile m; cat m > Makefile; touch .envrc a.txt; mkdir -p node_modules .tmp; \
                echo x > node_modules/tasks.json; echo x > .tmp/scratch; echo x >> vendor/x/.git/hooks/update.sample";
    let run = |script: &str| {
        world.model_says([call("c", "sh", &json!({"script": script})), text("done")]);
        world.run("go").arg("--new").exits(0).prints("done\n")
    };
    assert_eq!(executed(&run(same)), None);
    let changes = "cd vendor/x/.git; echo x > hooks/pre-commit; chmod +x config; cd ../../..; echo b: >> Makefile; \
                   mkdir .vscode; echo {} > .vscode/tasks.json; rm gone/.envrc; ln -sf /bin/sh .envrc; \
                   mkdir -p deep/er; echo gitdir: /x > deep/er/.git";
    let paths = ".envrc (link), .vscode/tasks.json, Makefile, deep/er/.git, gone/.envrc, vendor/x/.git/config, \
                 vendor/x/.git/hooks/pre-commit";
    assert_eq!(executed(&run(changes)).as_deref(), Some(paths));
    let notes = world.latest().events("SYSTEM_MESSAGE");
    assert_eq!(notes.len(), 1);
    // A run that executes nothing remembers nothing.
    world.model_says([text("done")]);
    world.run("other").exits(0);
    assert!(!world.latest().dir.join("executed.json").exists());
}

#[test]
fn whatever_begins_with_a_dot_is_named() {
    let world = World::with_tools("- {name: sh, exec: 'sh -c -- ${script}'}");
    world.write("ws/.few/1", "");
    for number in 0..100 {
        world.write(&format!("ws/.many/{number}"), "");
        world.write(&format!("ws/.same/{number}"), "");
    }
    let script = r"
        mkdir -p sub/.hidden/deep node_modules/.bin; echo x | tee sub/.hidden/deep/a .many/50 node_modules/.bin/a
        for i in $(seq 8); do echo x > .few/$i; done
        ln -s /bin/sh .profile; echo x > .odd$(printf '\377')
        echo x | tee bunfig.toml lefthook.yaml rust-toolchain rust-toolchain.toml rust-toolchains";
    let run = |script: &str| {
        world.model_says([call("c", "sh", &json!({"script": script})), text("done")]);
        executed(&world.run("go").arg("--new").exits(0))
    };
    let few: String = (1..=8).map(|number| format!(".few/{number}, ")).collect();
    let named = format!(
        "\".odd\\xff\" (not UTF-8), {few}.many/50, .profile (link), bunfig.toml, lefthook.yaml, \
         node_modules/.bin/a, rust-toolchain, rust-toolchain.toml, sub/.hidden/deep/a"
    );
    assert_eq!(run(script), Some(named));
    assert_eq!(run("cp .few/1 x; cat x > .few/1; rm x"), None);
    // Of too many, those in directories of tools are not listed.
    let listed = run(
        "for i in $(seq 30); do mkdir -p .cache/$i; echo x > .cache/$i/a; done
        echo all: > Makefile; mkdir -p x/.git/hooks; touch x/.git/HEAD x/.git/hooks/pre-push",
    );
    let listed = listed.unwrap();
    assert!(
        listed.starts_with("Makefile, x/.git/hooks/pre-push, .cache/1/a, "),
        "{listed}"
    );
    assert!(listed.ends_with(" more"), "{listed}");
    let cut = "; the search was cut short: there are too many files";
    let nothing = format!("nothing was found{cut}");
    assert_eq!(
        run("mkdir wide; cd wide; seq 5100 | xargs mkdir").as_deref(),
        Some(&*nothing)
    );
    let one = format!(".few/1{cut}");
    assert_eq!(run("echo y > .few/1").as_deref(), Some(&*one));
}

#[test]
fn what_changed_before_a_kill_is_named_when_the_run_ends() {
    let world = World::with_tools("- {name: sh, exec: 'sh -c -- ${script}'}");
    let script = json!({"script": "echo x > .envrc; echo begun > begun; sleep 1000"});
    world.model_says([call("c", "sh", &script)]);
    let running = world.run("go").spawn();
    eventually("the tool runs", || world.exists("ws/begun"));
    running.kill();
    // A tool that runs after the kill does not make it the beginning.
    let call = call("d", "sh", &json!({"script": "true"}));
    world.model_says([call, text("done")]);
    let outcome = world.run("go").exits(0);
    assert_eq!(executed(&outcome).as_deref(), Some(".envrc"));
    world.write("ws/.cache/a", "x");
    // What somebody wrote into the record is not trusted with paths, and its damage is said.
    let outside = world.write("outside", "x");
    let path = world.latest().dir.join("executed.json");
    for (text, words) in [
        (
            format!("{{\"complete\":true,\"files\":{{\"../outside\":\"1\",{outside:?}:\"1\"}}}}"),
            "execute: .cache/a, .envrc\n",
        ),
        (
            // Engines before remember a whole directory of a tool's own under its path with a slash.
            "{\"complete\":true,\"files\":{\".cache/\":\"1\"}}".to_owned(),
            "execute: .envrc\n",
        ),
        (
            "{".to_owned(),
            "is damaged: what changed that other programs execute is not known",
        ),
    ] {
        fs::write(&path, text).unwrap();
        world.model_says([text_reply()]);
        world.go_on().args(["-m", "more"]).exits(0).says(words);
    }
}

fn text_reply() -> Reply {
    text("done")
}

#[test]
fn each_check_of_the_tasks_fails_before_and_passes_after_the_reference_solution() {
    let needs = ["git", "make", "python3", "jq"];
    let Some(world) = as_shown("coder-tasks", &needs) else {
        return;
    };
    // The checks are nowhere in the workspace.
    let files = files_below(&world.path("tmp/coder-trials/csv.1/work"));
    let of_task = |file: &&std::path::PathBuf| !file.to_str().unwrap().contains("/.delta/");
    let names: Vec<_> = files
        .iter()
        .filter(of_task)
        .map(|file| file.file_name().unwrap())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
}
