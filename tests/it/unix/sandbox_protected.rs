//! What `delta sandbox` keeps as it is where a command may write, and what it keeps from root; without a network.

use crate::harness::*;
use serde_json::json;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::symlink;

const DELTA: &str = env!("CARGO_BIN_EXE_delta");

/// A world whose directory `box` is a workspace and a repository.
fn workspace() -> World {
    let world = World::new();
    for (name, content) in [
        ("box/.delta/run/journal.jsonl", "{}\n"),
        ("box/.delta/LATEST", "run\n"),
        ("box/.git/config", "[core]\n"),
        ("box/.git/hooks/pre-commit.sample", "exit 0\n"),
        ("box/.git/HEAD", "ref: refs/heads/main\n"),
        ("box/mine.txt", "mine\n"),
    ] {
        world.write(name, content);
    }
    world
}

fn sandbox(world: &World, options: &[&str], script: &str) -> Delta {
    let delta = world.delta(["sandbox"]).args(options);
    let delta = delta.args(["--", "sh", "-c", script]);
    delta.cwd(world.path("box"))
}

/// Whether this kernel gives namespaces to everybody, and all that `delta sandbox` asks of it besides.
fn has_namespaces() -> bool {
    let world = workspace();
    let outcome = sandbox(&world, &["--strict", "--no-network", "--rw", "."], ":").end();
    if outcome.code() != Some(0) {
        eprintln!("skipped: {}", outcome.stderr.trim_end());
    }
    outcome.code() == Some(0)
}

#[test]
fn a_run_that_a_command_makes_below_names_no_agent_outside() {
    if !has_namespaces() {
        return;
    }
    let world = World::unasked();
    fs::create_dir(world.path("box")).unwrap();
    let script = format!(
        "mkdir evil x; echo hi > evil/system_prompt.md\n\
         echo '{{name: evil, llm: {{command: [\"false\"], max_retries: 0}}}}' > evil/agent.yaml\n\
         echo 'sources: [{{type: journal, id: c}}]' > evil/context.yaml\n\
         rm -r .delta; mv .delta elsewhere; {DELTA} run -a evil -w x --run-id r -m hi; test -d x/.delta/r"
    );
    let inside = sandbox(&world, &["--rw", ".", "--ro", DELTA], &script);
    inside.exits(0);
    let on = world.delta(["continue", "-w", "box/x"]);
    on.refuses(78, "-a DIR");
    // Its own workspace keeps its records, and neither a run nor a home directory becomes one.
    assert!(world.path("box/.delta/origin").exists());
    for (name, value) in [("DELTA_RUN_DIR", "/nowhere"), ("XDG_CONFIG_HOME", ".")] {
        let dir = world.path("other");
        fs::create_dir_all(&dir).unwrap();
        let value = if value == "." {
            dir.to_str().unwrap()
        } else {
            value
        };
        let sandboxed = world
            .delta(["sandbox", "--rw", ".", "--", "true"])
            .cwd(&dir);
        sandboxed.env(name, value).exits(0);
        assert!(!dir.join(".delta").exists(), "{name}");
    }
}

#[test]
fn each_directory_that_can_be_written_below_the_current_one_is_a_workspace() {
    if !has_namespaces() {
        return;
    }
    let world = World::unasked();
    for dir in [
        "box/out/deep",
        "box/home/me",
        "box/has/agents",
        "beside",
        "old/.delta",
        "old/in",
    ] {
        fs::create_dir_all(world.path(dir)).unwrap();
    }
    let sandboxed = |dir: &str, cwd: &str| {
        let delta = world.delta(["sandbox", "--rw", dir, "--", "true"]);
        let delta = delta.env("HOME", world.path("box/home/me"));
        let delta = delta.env("DELTA_AGENTS", world.path("box/has/agents"));
        delta.cwd(world.path(cwd)).exits(0);
        world.path(cwd).join(dir).join(".delta/origin").exists()
    };
    for (dir, cwd, is_marked) in [
        ("out", "box", true),
        // It lies in one.
        ("out/deep", "box", false),
        ("home", "box", false),
        ("has", "box", false),
        (".", "box", false),
        ("../beside", "box", false),
        ("in", "old", false),
    ] {
        assert_eq!(sandboxed(dir, cwd), is_marked, "{dir} in {cwd}");
    }
    let script = format!(
        "cd out; mkdir evil x; echo hi > evil/system_prompt.md\n\
         echo '{{name: evil, llm: {{command: [\"false\"], max_retries: 0}}}}' > evil/agent.yaml\n\
         echo 'sources: [{{type: journal, id: c}}]' > evil/context.yaml\n\
         {DELTA} run -a evil -w x --run-id r -m hi; test -d x/.delta/r"
    );
    sandbox(&world, &["--rw", "out", "--ro", DELTA], &script).exits(0);
    let on = world.delta(["continue", "-w", "box/out/x"]);
    on.refuses(78, "-a DIR");
}

#[test]
fn records_hooks_and_settings_stay_as_they_are_in_a_directory_that_can_be_written() {
    if !has_namespaces() {
        return;
    }
    let world = workspace();
    let before = snapshot(&world.path("box"));
    for script in [
        "echo x >> .delta/run/journal.jsonl",
        "echo x > .delta/run/new",
        "mkdir .delta/other",
        "rm .delta/LATEST",
        "rm -r .delta",
        "mv .delta elsewhere",
        "mv .delta/run run",
        "mkdir new; mv -T new .delta",
        "ln .delta/run/journal.jsonl linked",
        "ln -s /tmp .delta/link",
        "chmod 777 .delta/LATEST",
        "touch -d 2001-01-01 .delta/LATEST",
        "truncate -s 0 .delta/LATEST",
        "cd .delta && echo x > LATEST",
        "echo x > /proc/self/cwd/.delta/LATEST",
        "echo x > /proc/self/root/$PWD/.delta/LATEST",
        "echo x >> .git/config",
        "rm .git/config",
        "echo x > new; mv new .git/config",
        "echo x > .git/hooks/pre-commit",
        "mv .git/hooks .git/other",
        "mv .git elsewhere",
        "rm -r .git/hooks",
        "mkdir new; mv -T new .git",
        "mv ../box ../other",
        "umount .delta && echo x > .delta/LATEST",
        "mount -o remount,bind,rw .delta && echo x > .delta/LATEST",
        "unshare -Urm sh -c 'umount .delta; echo x > .delta/LATEST'",
        "unshare -Urm sh -c 'mount -o remount,bind,rw .delta; echo x > .delta/LATEST'",
        "unshare -Urm sh -c 'mkdir there; mount --bind . there; echo x > there/.delta/LATEST'",
        "nsenter -t $PPID -m sh -c \"echo x > $PWD/.delta/LATEST\"",
        "echo x > /proc/$PPID/cwd/.delta/LATEST",
    ] {
        let outcome = sandbox(&world, &["--rw", "."], script).end();
        assert_ne!(outcome.code(), Some(0), "{script}\n{}", outcome.describe());
        for left in ["new", "there", "run", ".tmp"] {
            let left = world.path("box").join(left);
            fs::remove_file(&left)
                .or_else(|_| fs::remove_dir_all(&left))
                .ok();
        }
        assert_eq!(snapshot(&world.path("box")), before, "{script}");
    }
}

#[test]
fn everything_else_beside_them_can_be_written() {
    if !has_namespaces() {
        return;
    }
    let world = workspace();
    let script = "set -e; echo x > new; mkdir .git/objects; echo x > .git/index.lock; mv .git/index.lock .git/index
        rm .git/HEAD; cat .delta/LATEST .git/config; mv mine.txt yours.txt; ln yours.txt .linked; id -u";
    let ids = format!("{}\n", rustix::process::getuid().as_raw());
    sandbox(&world, &["--rw", "."], script)
        .exits(0)
        .prints(&format!("run\n[core]\n{ids}"));
    assert_eq!(world.read("box/.git/index"), "x\n");
    assert!(!world.exists("box/.git/HEAD") && world.exists("box/.linked"));
}

#[test]
fn a_command_that_starts_inside_them_can_write_there_no_more_than_from_outside() {
    if !has_namespaces() {
        return;
    }
    let world = workspace();
    let dir = world.path("box");
    let options = ["--rw", dir.to_str().unwrap()];
    for start in ["box/.delta", "box/.delta/run", "box/.git/hooks"] {
        let delta = sandbox(&world, &options, "echo x > new");
        let outcome = delta.cwd(world.path(start)).end();
        outcome.exits(2).says("read-only");
        assert!(!world.path(start).join("new").exists());
    }
    // Here what is to be covered lies below the current directory, as seen before anything was mounted.
    let options = ["--rw", "..", "--rw", "."];
    let outcome = sandbox(&world, &options, "echo x > .delta/new").end();
    outcome.exits(2).says("read-only");
}

#[test]
fn other_paths_can_be_protected_wherever_they_lie() {
    if !has_namespaces() {
        return;
    }
    let world = workspace();
    world.write("box/a/b/secret/key", "key\n");
    world.write("box/a/b/beside", "beside\n");
    world.write("box/settings", "settings\n");
    let options = [
        "--rw",
        ".",
        "--protect",
        "a/b/secret",
        "--protect",
        "settings",
        "--protect",
        "absent",
    ];
    for script in [
        "echo x > a/b/secret/key",
        "echo x > settings",
        "rm settings",
        "echo x > new; mv new settings",
        "mv a other",
        "mv a/b a/other",
        "mv a/b/secret a/b/other",
    ] {
        let outcome = sandbox(&world, &options, script).end();
        assert_ne!(outcome.code(), Some(0), "{script}\n{}", outcome.describe());
        assert_eq!(world.read("box/a/b/secret/key"), "key\n", "{script}");
        assert_eq!(world.read("box/settings"), "settings\n", "{script}");
    }
    let script = "echo x > a/b/beside && echo x > a/new && echo x > absent && cat a/b/secret/key";
    sandbox(&world, &options, script).exits(0).prints("key\n");
}

#[test]
fn a_workspace_inside_another_directory_that_can_be_written_keeps_its_place() {
    if !has_namespaces() {
        return;
    }
    let world = workspace();
    world.write("box/inner/ws/.delta/LATEST", "inner\n");
    let options = ["--rw", ".", "--rw", "inner/ws"];
    for script in [
        "mv inner/ws away",
        "mv inner away",
        "echo x > inner/ws/.delta/LATEST",
    ] {
        let outcome = sandbox(&world, &options, script).end();
        assert_ne!(outcome.code(), Some(0), "{script}\n{}", outcome.describe());
        assert_eq!(world.read("box/inner/ws/.delta/LATEST"), "inner\n");
    }
}

#[test]
fn the_file_by_which_a_worktree_finds_its_repository_stays_as_it_is() {
    if !has_namespaces() {
        return;
    }
    let world = World::new();
    world.write("box/.git", "gitdir: /nowhere\n");
    for script in ["echo x > .git", "rm .git", "mv .git other"] {
        let outcome = sandbox(&world, &["--rw", "."], script).end();
        assert_ne!(outcome.code(), Some(0), "{script}");
        assert_eq!(world.read("box/.git"), "gitdir: /nowhere\n");
    }
}

#[test]
fn what_submodules_and_worktrees_execute_stays_as_it_is_in_bare_repositories_too() {
    if !has_namespaces() {
        return;
    }
    for root in ["box/.git", "box"] {
        let world = World::new();
        world.write(&format!("{root}/HEAD"), "ref: refs/heads/main\n");
        let submodule = format!("{root}/modules/deps/lib");
        for dir in [root, &submodule, &format!("{submodule}/modules/inner")] {
            for name in ["HEAD", "objects/pack/a", "config", "hooks/update"] {
                world.write(&format!("{dir}/{name}"), "mine\n");
            }
        }
        for name in ["HEAD", "commondir", "config.worktree"] {
            world.write(&format!("{root}/worktrees/tree/{name}"), "mine\n");
        }
        world.write("box/.delta/VERSION", "1.2\n");
        let before = snapshot(&world.path("box"));
        for script in [
            "echo x > config",
            "echo x > modules/deps/lib/config",
            "echo x > modules/deps/lib/hooks/update",
            "echo x > modules/deps/lib/hooks/new",
            "mv modules/deps/lib modules/deps/other",
            "mv -T modules/deps/lib/objects modules/deps/lib/hooks",
            "mv modules other",
            "rm modules/deps/lib/modules/inner/hooks/update",
            "echo x > worktrees/tree/commondir",
            "rm -f worktrees/tree/config.worktree",
            "mv worktrees other",
        ] {
            let dir = world.path(root);
            let script = format!("cd {} && {script} 2>/dev/null && echo done", dir.display());
            sandbox(&world, &["--rw", "."], &script).end().prints("");
            fs::remove_dir_all(world.path("box/.tmp")).unwrap();
            assert_eq!(snapshot(&world.path("box")), before, "{script}");
        }
    }
}

#[test]
fn what_would_redirect_git_is_put_aside_and_reported_when_the_command_ends() {
    if !has_namespaces() {
        return;
    }
    let world = workspace();
    world.write("box/.git/modules/lib/HEAD", "ref: refs/heads/main\n");
    world.write("box/.git/modules/lib/objects/a", "a\n");
    let plant = "echo x > .git/commondir; mkdir .git/modules/lib/hooks";
    for (number, (end, code)) in [("", 1), ("; exit 3", 3), ("; kill -9 $$", -9)]
        .into_iter()
        .enumerate()
    {
        let mut outcome = sandbox(&world, &["--rw", "."], &format!("{plant}{end}")).end();
        let ended = outcome.code().or(outcome.killed_by().map(|signal| -signal));
        assert_eq!(ended, Some(code), "{}", outcome.describe());
        for (dir, name) in [(".git", "commondir"), (".git/modules/lib", "hooks")] {
            let aside = format!("{dir}/{name}.untrusted.{}", number + 1);
            outcome = outcome
                .says(&format!("{dir}/{name} was created"))
                .says(&format!(
                    "renamed to {}",
                    world.path(&format!("box/{aside}")).display()
                ));
            assert!(world.exists(&format!("box/{aside}")));
            assert!(!world.exists(&format!("box/{dir}/{name}")));
        }
    }
    // What was there before the command is a person's.
    world.write("box/.git/commondir", ".\n");
    sandbox(&world, &["--rw", "."], "cat .git/commondir")
        .exits(0)
        .prints(".\n")
        .says("");
}

#[test]
fn git_works_in_the_sandbox_and_obeys_nothing_from_it_afterwards() {
    if !has_namespaces() || !installed(&["git"]) {
        return;
    }
    let world = World::new();
    fs::create_dir(world.path("box")).unwrap();
    let git = |script: &str| {
        let status = std::process::Command::new("sh")
            .args(["-ec", script])
            .current_dir(world.path("box"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .status();
        assert!(status.unwrap().success(), "{script}");
    };
    git(
        "git init -q; git config user.name me; git config user.email me@example.org
        git commit -q --allow-empty -m first; git worktree add -q ../tree",
    );
    let script = "set -e; echo 1 > file; git add file; git commit -qm file; git checkout -q -b side; git branch other
        echo 2 >> file; git stash -q; git stash pop -q; git commit -qam more; git checkout -q -; git merge -q side
        git gc -q; git worktree add -q inner; git -C inner commit -q --allow-empty -m inner; git worktree remove inner
        git log --oneline | wc -l
        cp -r .git elsewhere; rm -rf elsewhere/config; echo '[core] fsmonitor = touch obeyed' > elsewhere/config
        echo ../elsewhere > .git/commondir";
    sandbox(&world, &["--strict", "--rw", "."], script)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .exits(1)
        .prints("3\n")
        .says("commondir.untrusted.1");
    git("git status -s > status; git fsck 2> /dev/null; git -C ../tree status -s");
    assert!(!world.exists("box/obeyed"));
}

#[test]
fn where_a_git_file_leads_is_protected_and_so_are_those_of_submodules_and_worktrees() {
    if !has_namespaces() {
        return;
    }
    let world = World::new();
    for (file, text) in [
        (".git", "gitdir: ./.bare\n"),
        (".bare/HEAD", "ref: refs/heads/main\n"),
        (".bare/config", "[core]\n"),
        (".bare/objects/a", "a\n"),
        (".bare/hooks/update", "mine\n"),
        (".bare/info/attributes", "* -text\n"),
        (".bare/worktrees/t/HEAD", "mine\n"),
        (".bare/worktrees/t/commondir", "../..\n"),
        ("tree/.git", "gitdir: ../.bare/worktrees/t\n"),
        (".bare/modules/lib/HEAD", "mine\n"),
        (".bare/modules/lib/objects/a", "a\n"),
        (
            ".bare/modules/lib/config",
            "[core]\n\tworktree = ../../../deps/lib\n",
        ),
        ("deps/lib/.git", "gitdir: ../../.bare/modules/lib\n"),
        (
            ".gitmodules",
            "[submodule \"old one\"]\n\tpath = \"old one\"\n",
        ),
        ("old one/.git/HEAD", "mine\n"),
        ("old one/.git/config", "mine\n"),
    ] {
        world.write(&format!("box/{file}"), text);
    }
    let path = world.path("box/tree/.git").display().to_string();
    world.write("box/.bare/worktrees/t/gitdir", format!("{path}\n"));
    world.write("box/.delta/VERSION", "1.2\n");
    let before = snapshot(&world.path("box"));
    for script in [
        "echo x > .git",
        "echo x > .bare/config",
        "echo x > .bare/hooks/update",
        "echo x > .bare/info/attributes",
        "mv .bare other",
        "echo x > tree/.git",
        "rm tree/.git",
        "echo x > deps/lib/.git",
        "mv deps/lib deps/other",
        "echo x > .bare/modules/lib/config",
        "echo x > 'old one/.git/config'",
        "mv 'old one/.git' 'old one/other'",
    ] {
        let script = format!("{script} 2> /dev/null && echo done");
        sandbox(&world, &["--rw", "."], &script).end().prints("");
        fs::remove_dir_all(world.path("box/.tmp")).unwrap();
        assert_eq!(snapshot(&world.path("box")), before, "{script}");
    }
    sandbox(
        &world,
        &["--rw", "."],
        "echo x > tree/a; echo x > .bare/HEAD",
    )
    .exits(0);
    // What does not exist yet does not come into being unnoticed.
    let later = World::new();
    later.write("box/in/.git", "gitdir: .later/git\n");
    let outcome = sandbox(&later, &["--rw", "in"], "mkdir -p in/.later/git").exits(1);
    outcome.says(".later was created");
    assert!(later.exists("box/in/.later.untrusted.1"));
}

#[test]
fn a_symbolic_link_in_their_place_is_named_and_with_strict_refused() {
    if !has_namespaces() {
        return;
    }
    for name in [".delta", ".git", ".git/hooks"] {
        let world = World::new();
        fs::create_dir_all(world.path("box/.git")).unwrap();
        fs::create_dir(world.path("elsewhere")).unwrap();
        let place = world.path("box").join(name);
        fs::remove_dir(&place).ok();
        symlink(world.path("elsewhere"), &place).unwrap();
        let outcome = sandbox(&world, &["--strict", "--rw", "."], "echo ran").end();
        let outcome = outcome.exits(125).prints("").says_one_line();
        outcome.says("symbolic link").says(name);
        let outcome = sandbox(&world, &["--rw", "."], "echo ran").end();
        let outcome = outcome.exits(0).prints("ran\n").says_one_line();
        outcome.says("symbolic link").says(name);
    }
}

#[test]
fn a_directory_that_is_open_already_is_named_and_with_strict_refused() {
    if !has_namespaces() {
        return;
    }
    let world = workspace();
    let delta = sandbox(&world, &["--strict", "--rw", "."], "echo ran");
    let outcome = delta.after("exec 7<.").end();
    outcome
        .exits(125)
        .prints("")
        .says_one_line()
        .says("descriptor 7");
}

#[test]
fn a_sandbox_inside_a_sandbox_keeps_what_the_outer_one_keeps() {
    if !has_namespaces() {
        return;
    }
    let world = workspace();
    let options = ["--rw", ".", "--ro", DELTA];
    let inner = |more: &str| {
        let script = "'echo x > new; echo x > .delta/LATEST'";
        let inner = format!("{DELTA} sandbox --strict --rw . {more} -- sh -c {script}");
        sandbox(&world, &options, &inner).end()
    };
    inner("").exits(2).says("read-only");
    assert_eq!(world.read("box/new"), "x\n");
    inner("--no-network").exits(125).says("user namespace");
    inner("--protect mine.txt").exits(125).says("mine.txt");
}

#[test]
fn a_tool_can_answer_no_question_and_change_no_record_of_its_run() {
    if !has_namespaces() {
        return;
    }
    let world = World::with_tools("- {name: sh, exec: 'sh -c ${script}'}").top(&format!(
        "wrapper: ['{DELTA}', sandbox, --strict, --no-network, --rw, '${{CWD}}', '--']"
    ));
    let scripts = [
        "echo x >> $DELTA_RUN_DIR/journal.jsonl",
        "mkdir $DELTA_RUN_DIR/interaction; echo yes > $DELTA_RUN_DIR/interaction/response.txt",
        "echo x > .delta/LATEST",
        "mv .delta elsewhere",
        "echo noted >&2; echo printed; echo again >> /dev/stdout",
    ];
    for (id, script) in scripts.iter().enumerate() {
        let script = json!({"script": script});
        world.model_says([call(&id.to_string(), "sh", &script)]);
    }
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    let last = world.server.last();
    for (id, words) in ["Read-only", "Read-only", "Read-only", "busy"]
        .iter()
        .enumerate()
    {
        let told = last.observation(&id.to_string());
        assert!(told.contains(words) && told.contains("exit code"), "{told}");
    }
    assert_eq!(last.observation("4"), "printed\nagain\n[stderr]\nnoted\n");
    assert!(!world.latest().path("interaction").exists());
}

#[test]
fn a_command_has_semaphores_and_shared_memory_of_its_own() {
    if !has_namespaces() || !installed(&["ipcmk", "ipcs"]) {
        return;
    }
    let world = workspace();
    let script = "ipcmk -M 4096 > /dev/null && readlink /proc/self/ns/ipc";
    for options in [["--rw", "."], ["--ro", "."]] {
        let outcome = sandbox(&world, &options, script).end();
        let ours = fs::read_link("/proc/self/ns/ipc").unwrap();
        let theirs = String::from_utf8(outcome.exits(0).stdout).unwrap();
        assert_ne!(theirs.trim_end(), ours.to_str().unwrap());
    }
}

#[test]
fn without_a_network_no_datagram_leaves() {
    if !has_namespaces() || !installed(&["bash"]) {
        return;
    }
    let world = workspace();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let port = socket.local_addr().unwrap().port();
    let script = format!("bash -c 'echo x > /dev/udp/127.0.0.1/{port}'");
    let outcome = sandbox(&world, &["--no-network", "--rw", "."], &script).end();
    outcome.exits(1).says("unreachable");
    assert!(socket.recv(&mut [0; 8]).is_err());
    sandbox(&world, &["--rw", "."], &script).exits(0);
    assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 2);
}

#[test]
fn without_a_network_no_socket_is_made_outside_its_namespace() {
    if !has_namespaces() || !installed(&["perl"]) {
        return;
    }
    let world = workspace();
    // AF_UNIX, AF_INET, AF_INET6, AF_NETLINK; AF_VSOCK, AF_ALG.
    let script = "perl -e 'for (1, 2, 10, 16, 40, 38) { print 0 + !!socket(S, $_, 1 + ($_ == 16 || $_ == 2), 0) }'";
    for (more, made) in [("--allow-unix", "111100"), ("--no-network", "011100")] {
        let outcome = sandbox(&world, &["--no-network", "--rw", ".", more], script).end();
        outcome.exits(0).prints(made);
    }
}

/// A program that makes the kernel one without Landlock.
const WITHOUT_LANDLOCK: [&str; 7] = [
    "strace",
    "-qq",
    "-f",
    "-o",
    "/dev/null",
    "-e",
    "inject=landlock_create_ruleset:error=ENOSYS",
];

#[test]
fn without_landlock_what_the_namespaces_do_is_done_all_the_same() {
    if !has_namespaces() || !installed(&["strace", "bash"]) {
        return;
    }
    let world = workspace();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("echo x > .delta/LATEST; bash -c ': > /dev/tcp/127.0.0.1/{port}'");
    let outcome = sandbox(&world, &["--no-network", "--rw", "."], &script)
        .under(&WITHOUT_LANDLOCK)
        .end();
    let outcome = outcome.says("no Landlock").does_not_say("TCP,");
    outcome.says("read-only").says("unreachable");
    assert_eq!(world.read("box/.delta/LATEST"), "run\n");
}

#[test]
fn a_kernel_without_namespaces_is_named_and_with_strict_refused() {
    let none = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let none = ["unshare", "-Ur", "sh", "-c", none];
    let world = workspace();
    if !has_namespaces() || world.delta(["-V"]).under(&none).end().code() != Some(0) {
        eprintln!("skipped: there is nothing to take namespaces away from");
        return;
    }
    let end = |options: &[&str]| sandbox(&world, options, "echo ran").under(&none).end();
    for options in [
        ["--strict", "--rw", "."],
        ["--strict", "--no-network", "--strict"],
    ] {
        let outcome = end(&options).exits(125).prints("").says_one_line();
        outcome.says("user namespace").says("--strict");
    }
    let outcome = end(&["--no-network", "--rw", "."])
        .exits(0)
        .prints("ran\n")
        .says_one_line();
    outcome
        .says(".delta")
        .says(".git/config")
        .says("UDP")
        .says("user namespace");
    // Semaphores and shared memory of System V are in every sandbox's own.
    end(&["--strict", "--ro", "."]).refuses(125, "System V IPC");
}

#[test]
fn root_keeps_the_capabilities_for_files_and_makes_no_devices() {
    let root = ["unshare", "-Ur"];
    let world = workspace();
    if !has_namespaces() || world.delta(["-V"]).under(&root).end().code() != Some(0) {
        return;
    }
    let script = "grep -E '^Cap(Eff|Prm|Bnd)' /proc/self/status; id -u; mknod device c 0 0";
    for options in [["--rw", ".", "--strict"], ["--rw", ".", "--no-network"]] {
        let outcome = sandbox(&world, &options, script).under(&root).end();
        // CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER and FSETID are the lowest five.
        let held = "\t000000000000001f\n";
        outcome
            .exits(1)
            .prints(&format!("CapPrm:{held}CapEff:{held}CapBnd:{held}0\n"))
            .says("denied");
    }
    // Not even where there is no namespace to take.
    let plain = World::new();
    fs::create_dir(plain.path("box")).unwrap();
    let outcome = sandbox(&plain, &["--rw", "."], script).under(&root).end();
    let printed = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert_eq!(printed.matches("000000000000001f").count(), 3, "{printed}");
    outcome.exits(1).says("denied");
}

#[test]
fn root_can_work_with_the_files_of_others() {
    if !has_namespaces() || !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root has files of others");
        return;
    }
    let world = workspace();
    let script =
        "chown 1:1 mine.txt && chmod 600 mine.txt && cat mine.txt && stat -c %u:%g mine.txt";
    sandbox(&world, &["--rw", "."], script)
        .exits(0)
        .prints("mine\n1:1\n");
}
