//! What states have and what they leave out, whatever lies in the workspace.

use super::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::os::unix::fs::symlink;

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a pipe");
}

#[test]
fn contents_are_kept_byte_for_byte_whatever_attributes_and_filters_say() {
    let world = world();
    world.write(
        "ws/.gitattributes",
        "* text eol=crlf ident working-tree-encoding=UTF-16 filter=evil diff=evil merge=evil\n",
    );
    world.write("ws/a", "1\r\n2\n$Id$\n");
    // The workspace is a repository, whose settings would execute something.
    let evil = format!("touch {}; cat", world.path("pwned").display());
    shell(&world.workspace(), "git init -q .");
    let mut config =
        String::from("[core]\n\tfsmonitor = \"EVIL\"\n\thooksPath = hooks\n\tpager = EVIL\n");
    config += "[filter \"evil\"]\n\tclean = \"EVIL\"\n\tsmudge = \"EVIL\"\n\tprocess = \"EVIL\"\n[diff \"evil\"]\n\tcommand = \"EVIL\"\n\ttextconv = \"EVIL\"\n";
    let config = config.replace("EVIL", &evil);
    world.write("ws/.git/config", &config);
    world.write(".gitconfig", &config);
    world.write(".config/git/attributes", "* text eol=lf filter=evil\n");
    for hook in [
        "pre-commit",
        "reference-transaction",
        "post-index-change",
        "post-commit",
    ] {
        world.script(&format!("ws/hooks/{hook}"), &format!("#!/bin/sh\n{evil}\n"));
    }
    world.model_says([sh("c1", "echo 3 >> a"), text("done")]);
    let run = world.run("go").env("GIT_DIR", world.path("ws/.git"));
    let run = run
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "core.fsmonitor");
    let run = run
        .env("GIT_CONFIG_VALUE_0", &evil)
        .env("GIT_EXTERNAL_DIFF", &evil);
    run.env("GIT_CONFIG_GLOBAL", world.path(".gitconfig"))
        .exits(0);
    assert_eq!(content(&world, 1, "a"), "1\r\n2\n$Id$\n");
    assert_eq!(content(&world, 2, "a"), "1\r\n2\n$Id$\n3\n");
    assert!(!world.exists("pwned"));
    assert!(names(&world, 1).contains(&".gitattributes".to_owned()));
}

#[test]
fn what_may_hold_keys_other_repositories_and_large_files_are_left_out_and_named_once() {
    let world = world();
    world.write("ws/a", "1\n");
    world.write("ws/.gitignore", "ignored\n!.delta\n!.delta/**\n");
    world.write("ws/ignored", "i\n");
    for name in [
        ".env",
        "sub/.env.local",
        ".envs/production/key",
        ".tmp/t",
        "sub/.delta/x",
        ".GIT/config",
        "sub/.Git",
    ] {
        world.write(&format!("ws/{name}"), "secret\n");
    }
    world.write("ws/d/.git/HEAD", "ref: refs/heads/main\n");
    world.write("ws/d/mine", "1\n");
    // As a submodule has it.
    world.write("ws/module/.git", "gitdir: ../.git/modules/module\n");
    world.write("ws/module/file", "1\n");
    let large = fs::File::create(world.path("ws/large")).unwrap();
    large.set_len(1 << 40).unwrap();
    let most = fs::File::create(world.path("ws/most")).unwrap();
    most.set_len(10 << 20).unwrap();
    symlink("/etc", world.path("ws/link")).unwrap();
    symlink("a", world.path("ws/.gitmodules")).unwrap();
    run_once(&world, "echo 2 > a");
    let kept = [".gitignore", "a", "link", "most"];
    assert_eq!(names(&world, 1), kept);
    assert_eq!(names(&world, 2), kept);
    let warned = warnings(&world);
    assert_eq!(warned.len(), 1, "{warned:?}");
    for named in [
        ".env (may hold keys)",
        ".envs (may hold keys)",
        "sub/.env.local (may hold keys)",
        "d (a repository)",
        "module (a repository)",
        "large (larger than 10 MiB)",
        ".GIT (git refuses the name)",
        "sub/.Git (git refuses the name)",
        ".gitmodules (git refuses the name)",
    ] {
        assert!(warned[0].contains(named), "{named}: {warned:?}");
    }
    assert!(
        !warned[0].contains("ignored") && !warned[0].contains(".delta"),
        "{warned:?}"
    );
    // Not again in a later start.
    world.model_says([sh("c2", "echo 3 > a"), text("done")]);
    world.go_on().args(["-m", "more"]).exits(0);
    assert_eq!(warnings(&world).len(), 1);
    assert_eq!(states(&world).len(), 3);
}

#[test]
fn no_pipe_keeps_git_waiting_and_no_repository_is_read() {
    let world = world();
    world.write("ws/a", "1\n");
    for dir in ["ws", "ws/sub/deep", "ws/nested"] {
        fs::create_dir_all(world.path(dir)).unwrap();
        for name in [".gitignore", ".gitattributes", ".gitmodules", "pipe"] {
            pipe(&world.path(&format!("{dir}/{name}")));
        }
    }
    for name in ["objects", "refs"] {
        fs::create_dir_all(world.path("ws/nested/.git").join(name)).unwrap();
    }
    pipe(&world.path("ws/nested/.git/HEAD"));
    fs::create_dir(world.path("ws/file")).unwrap();
    pipe(&world.path("ws/file/.git"));
    world.write("ws/sub/deep/b", "1\n");
    let began = std::time::Instant::now();
    run_once(&world, "echo 2 > a");
    assert_eq!(names(&world, 2), ["a", "sub/deep/b"]);
    assert_eq!(states(&world).len(), 2);
    assert!(
        began.elapsed().as_secs() < 9,
        "git was ended by its time limit"
    );
}

#[test]
fn a_change_behind_a_new_repository_is_a_state_without_what_is_there() {
    let world = world();
    world.write("ws/a", "1\n");
    world.write("ws/src/b", "1\n");
    run_once(&world, "touch src/.git; echo 2 > src/b");
    assert_eq!(names(&world, 2), ["a"]);
    assert_eq!(states(&world)[1], state(2, "iteration", 1, [0, 0, 1]));
}

#[test]
fn a_gitignore_that_is_too_large_is_not_read() {
    let world = world();
    world.write("ws/a", "1\n");
    world.write("ws/.gitignore", "\n");
    world.model_says([
        sh(
            "c1",
            "mkdir d; truncate -s 2M d/.gitignore; echo 1 > d/f; echo 2 > a",
        ),
        sh(
            "c2",
            "truncate -s 300G .gitignore; echo 1 > new; echo 3 > a",
        ),
        text("done"),
    ]);
    world.run("go").exits(0);
    let warned = warnings(&world);
    let why = "d (its .gitignore is larger than 1 MiB)";
    assert!(warned.len() == 1 && warned[0].contains(why), "{warned:?}");
    assert_eq!(names(&world, 2), [".gitignore", "a"]);
    assert_eq!(names(&world, 3), ["a"]);
    assert_eq!(content(&world, 3, "a"), "3\n");
    world.model_says([text("done")]);
    world.run("go").args(["--new"]).exits(0);
    let warned = warnings(&world);
    let why = ".gitignore (larger than 1 MiB, and with it new files)";
    assert!(warned.len() == 1 && warned[0].contains(why), "{warned:?}");
}

#[test]
fn what_cannot_be_looked_at_is_left_out() {
    let world = world();
    world.write("ws/a", "1\n");
    world.write("ws/kept/f", "1\n");
    world.model_says([
        sh("c1", "mkdir d; echo 1 > d/f; chmod 444 d kept; echo 2 > a"),
        sh("c2", "echo 3 > a"),
        text("done"),
    ]);
    // Nothing keeps root from looking otherwise.
    let words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"];
    let is_root = rustix::process::geteuid().is_root();
    world
        .run("go")
        .under(if is_root { &words } else { &[] })
        .exits(0);
    shell(&world.workspace(), "chmod 755 d kept");
    let warned = warnings(&world);
    assert!(warned.len() == 1, "{warned:?}");
    assert!(warned[0].contains("d/f (cannot be read)"), "{warned:?}");
    assert_eq!(names(&world, 3), ["a", "kept/f"]);
    assert_eq!(content(&world, 3, "a"), "3\n");
}

#[test]
fn a_file_at_which_git_fails_is_left_out_and_no_other() {
    let world = world();
    for name in ["a", "b", "c", "d", "e", "z/bad"] {
        world.write(&format!("ws/{name}"), "1\n");
    }
    // As where a file becomes shorter while git reads it.
    let script = "#!/bin/sh\ncase \"$*\" in *--add*) cat > in.$$; tr '\\0' '\\n' < in.$$ | grep -q bad && kill -BUS $$;\n\
                  PATH=${PATH#*:} exec git \"$@\" < in.$$;; esac\nPATH=${PATH#*:} exec git \"$@\"\n";
    world.script(
        "bin/git",
        &script.replace("in.$$", &format!("{}/in.$$", world.home().display())),
    );
    let path = format!("{}:{}", world.path("bin").display(), system_path());
    world.model_says([sh("c1", "echo 2 > a; echo 2 > z/bad"), text("done")]);
    world.run("go").env("PATH", path).exits(0);
    let warned = warnings(&world);
    assert!(warned.len() == 1, "{warned:?}");
    assert!(
        warned[0].contains("z/bad (git cannot read it)"),
        "{warned:?}"
    );
    assert_eq!(names(&world, 2), ["a", "b", "c", "d", "e"]);
    assert_eq!(content(&world, 2, "a"), "2\n");
}

#[test]
fn where_git_fails_at_every_file_the_warning_says_why() {
    let world = world();
    for number in 0..30 {
        world.write(&format!("ws/f{number}"), "1\n");
    }
    let script = "#!/bin/sh\ncase \"$*\" in *--add*) echo 'warning: beside it' >&2; echo 'fatal: no room' >&2; exit 128;; esac\n\
                  PATH=${PATH#*:} exec git \"$@\"\n";
    world.script("bin/git", script);
    let path = format!("{}:{}", world.path("bin").display(), system_path());
    world.model_says([sh("c1", "echo 2 > f1"), text("done")]);
    world.run("go").env("PATH", path).exits(0);
    let warned = warnings(&world);
    assert!(
        warned.len() == 1 && warned[0].contains("fatal: no room"),
        "{warned:?}"
    );
    assert_eq!(states(&world), []);
}

#[test]
fn a_file_that_becomes_something_else_is_not_in_later_states() {
    let world = world();
    for name in [
        "pipe",
        "dir",
        "large",
        "link",
        "nested/x",
        "gone/y",
        "swapped/z",
        "stays",
    ] {
        world.write(&format!("ws/{name}"), "1\n");
    }
    let script = "rm pipe dir link; mkfifo pipe; mkdir dir; echo 1 > dir/inside; truncate -s 11M large; ln -s stays link
        mkdir nested/.git; rm -r gone swapped; ln -s nested swapped";
    run_once(&world, script);
    assert_eq!(names(&world, 2), ["dir/inside", "link", "stays", "swapped"]);
    assert_eq!(
        git(&world, &["ls-tree", &commit(&world, 2), "swapped"])[..6],
        *"120000"
    );
    // And back.
    world.model_says([
        sh(
            "c2",
            "rm -r pipe nested/.git; echo 1 > pipe; echo 1 > large",
        ),
        text("done"),
    ]);
    world.go_on().args(["-m", "more"]).exits(0);
    assert_eq!(
        names(&world, 3),
        [
            "dir/inside",
            "large",
            "link",
            "nested/x",
            "pipe",
            "stays",
            "swapped"
        ]
    );
}

#[test]
fn odd_names_are_kept_as_they_are() {
    use std::os::unix::ffi::OsStrExt;
    let world = world();
    let odd: [&[u8]; 9] = [
        b"a\nb",
        b"-rf",
        b":(exclude)x",
        b"*",
        b"\xff\xfe",
        b"a\\b",
        b"con.txt",
        b"git~1",
        "\u{200c}.git".as_bytes(),
    ];
    fs::create_dir_all(world.workspace()).unwrap();
    for name in odd {
        fs::write(
            world.workspace().join(std::ffi::OsStr::from_bytes(name)),
            name,
        )
        .unwrap();
    }
    run_once(&world, "for f in *; do echo more >> \"./$f\"; done");
    assert_eq!(
        states(&world),
        [
            state(1, "start", 0, [0, 9, 0]),
            state(2, "iteration", 1, [9, 0, 0])
        ]
    );
    assert_eq!(content(&world, 2, "-rf"), "-rfmore\n");
    assert_eq!(
        git(
            &world,
            &["ls-tree", "-r", "-z", "--name-only", &commit(&world, 2)]
        )
        .matches('\0')
        .count(),
        9
    );
}

#[test]
fn what_the_wrappers_of_tools_hide_is_left_out() {
    let tools = "- {name: sh, exec: 'sh -c ${command}', wrapper: [delta, sandbox, --rw, '${CWD}', --ro, /, \
                 --hide, '${CWD}/secret', --hide, ~/ws/sub/key, --hide, relative, --hide, link, --hide, sub/../dots, --]}";
    let world = World::on_disk().tools(tools).top("files: git");
    for name in [
        "a",
        "secret/key",
        "sub/key",
        "sub/b",
        "relative",
        "target",
        "dots",
    ] {
        world.write(&format!("ws/{name}"), "1\n");
    }
    symlink("target", world.path("ws/link")).unwrap();
    world.model_says([sh("c1", "echo 2 > a"), text("done")]);
    world.run("go").exits(0);
    let warned = warnings(&world);
    if warned.iter().any(|it| it.contains("no user namespace")) {
        eprintln!("skipped: {warned:?}");
        return;
    }
    assert_eq!(names(&world, 2), ["a", "link", "sub/b"]);
    assert!(
        warned[0].contains("secret (hidden from tools)"),
        "{warned:?}"
    );
}

#[test]
fn what_the_last_word_of_a_wrapper_hides_is_left_out_also_by_undo() {
    let tools = "- {name: sh, exec: 'sh -c ${command}', wrapper: [delta, sandbox, --rw, '${CWD}', --ro, /, \
                 '--hide=${CWD}/secret']}";
    let world = World::on_disk().tools(tools).top("files: git");
    world.write("ws/a", "1\n");
    world.write("ws/secret", "key\n");
    run_once(&world, "echo 2 > a");
    if warnings(&world)
        .iter()
        .any(|it| it.contains("no user namespace"))
    {
        eprintln!("skipped: {:?}", warnings(&world));
        return;
    }
    world.write("ws/b", "1\n");
    world
        .delta(["undo", "-w", "ws"])
        .exits(0)
        .prints("put back a\n");
    assert_eq!(names(&world, 2), ["a"]);
    assert_eq!(names(&world, 4), ["a", "b"]);
}

#[test]
fn what_is_mounted_in_the_workspace_is_left_out() {
    let world = world();
    world.write("ws/a", "1\n");
    world.write("ws/mounted/below", "1\n");
    world.write("ws/file", "1\n");
    let script = "mount -t tmpfs none ws/mounted && echo 2 > ws/mounted/other && mount --bind ws/a ws/file && \
                  exec \"$0\" \"$@\"";
    let namespaces = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
    ];
    let is_given = Command::new(namespaces[0])
        .args(&namespaces[1..])
        .arg("mount -t tmpfs none /mnt")
        .output()
        .is_ok_and(|done| done.status.success());
    if !is_given {
        eprintln!("skipped: nothing can be mounted");
        return;
    }
    world.model_says([sh("c1", "echo 2 > b"), text("done")]);
    let under = [&namespaces[..], &[script]].concat();
    world.run("go").under(&under).exits(0);
    assert_eq!(names(&world, 2), ["a", "b"]);
    let warned = warnings(&world);
    for named in [
        "mounted (another file system)",
        "file (another file system)",
    ] {
        assert!(warned[0].contains(named), "{warned:?}");
    }
}
