//! `delta-sessions`: whose sessions it runs, what it keeps out of them, and what their files may be.

use crate::harness::sessions::*;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

const KEYS: [(&str, &str); 4] = [
    ("DELTA_API_KEY", "sk-delta-11111111"),
    ("DELTA_PROVIDER_KEY", "sk-provider-11111111"),
    ("OPENAI_API_KEY", "sk-openai-11111111"),
    ("ANTHROPIC_API_KEY", "sk-anthropic-11111111"),
];

/// The lines below a directory in which a key stands.
fn keys_below(dir: &Path) -> String {
    let output = Command::new("grep")
        .args(["-ra", "sk-[a-z]*-1"])
        .arg(dir)
        .output();
    String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
}

fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let object = json(output);
    assert_eq!(object.as_object().unwrap().len(), 1, "{object}");
    object["error"].as_str().unwrap().to_owned()
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.unwrap().success());
}

// --- keys

#[test]
fn no_key_and_no_copy_of_one_is_inherited_by_a_session() {
    for program in ["bash", "dash", "sh", "python3"] {
        if !is_installed(program) {
            continue;
        }
        for (name, key) in KEYS {
            let place = Place::new();
            let header = format!("Bearer {key}");
            let env = [
                (name, key),
                ("COPY", key),
                ("HEADER", &header),
                ("KEPT", "kept-1"),
            ];
            let session = place.start_with(&[program], &env);
            assert_eq!(
                keys_below(&place.path(".sessions")),
                "",
                "{program}: {name}"
            );
            if program != "python3" {
                let text = "echo ${COPY-none} ${HEADER-none} $KEPT";
                assert_eq!(
                    session.says(text),
                    "none none kept-1\n",
                    "{program}: {name}"
                );
            }
        }
    }
}

#[test]
fn a_word_that_stands_in_for_a_key_is_no_secret() {
    let place = Place::new();
    let env = [("DELTA_API_KEY", "ollama"), ("SERVER", "ollama")];
    let session = place.start_with(&["bash"], &env);
    assert_eq!(
        session.says("echo $SERVER ${DELTA_API_KEY-none}"),
        "ollama none\n"
    );
}

#[test]
fn a_key_that_a_command_brings_into_a_session_is_not_kept() {
    for shell in ALL_SHELLS {
        let place = Place::new();
        let session = place.start(&[shell]);
        for (name, key) in KEYS {
            let text = format!(
                "export {name}={key} COPY={key} LONG='a {key} b'; alias x='echo {key}'; export KEPT=1; cd /"
            );
            let output = session.command(&[], &text).env(name, key).output().unwrap();
            assert_eq!(json(&output)["exit_code"], 0, "{output:?}");
            assert_eq!(keys_below(&place.path(".sessions")), "", "{shell}: {name}");
            let text = format!("echo ${{{name}-none}} ${{COPY-none}} $LONG $KEPT $PWD");
            let shown = session.says(&text);
            assert_eq!(shown, "none none a [redacted] b 1 /\n", "{shell}");
        }
        let history = fs::read_to_string(session.dir().join("history.log")).unwrap();
        assert!(history.contains("COPY=[redacted]"), "{history}");
    }
    let place = Place::new();
    let session = place.start(&["bash"]);
    let (name, key) = KEYS[1];
    let text = format!("f() {{\n    local k={key}\n    echo ${{#k}}\n}}");
    session.command(&[], &text).env(name, key).output().unwrap();
    assert_eq!(keys_below(&place.path(".sessions")), "");
    assert_eq!(session.says("f"), "10\n");
}

// --- directories that came from elsewhere

#[test]
fn a_copied_sessions_directory_is_shown_and_not_run_until_it_is_adopted() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    session.says("export X=1");
    let code = session.dir().join("env.sh");
    let text = fs::read_to_string(&code).unwrap();
    fs::write(
        &code,
        format!("echo >'{}/ran'\n{text}", place.dir.display()),
    )
    .unwrap();
    fs::rename(place.path(".sessions"), place.path("there")).unwrap();
    copy(&place.path("there"), &place.path(".sessions"));
    let before = Command::new("ls")
        .args(["-laR"])
        .arg(place.path(".sessions"))
        .output();

    for command in [
        session.command(&[], "echo $X"),
        session.command(&["--raw"], "echo $X"),
        place.command(&["start"]),
        place.command(&["end", &session.id]),
        place.command(&["cleanup"]),
    ] {
        let mut command = command;
        let output = command.output().unwrap();
        let error = if output.stdout.is_empty() {
            String::from_utf8(output.stderr).unwrap()
        } else {
            refused(&output)
        };
        assert!(
            error.contains("made elsewhere") && error.contains("--adopt"),
            "{error}"
        );
        assert_eq!(output.status.code(), Some(1));
    }
    let listed = json(&place.run(&["list"]));
    assert_eq!(listed[0]["session_id"], *session.id);
    assert_eq!(
        (&listed[0]["foreign"], &listed[0]["status"]),
        (&true.into(), &"active".into())
    );
    let after = Command::new("ls")
        .args(["-laR"])
        .arg(place.path(".sessions"))
        .output();
    assert_eq!(before.unwrap().stdout, after.unwrap().stdout);
    assert!(!place.path("ran").exists());

    let adopted = json(&place.run(&["--adopt", "exec", &session.id, "echo $X"]));
    assert_eq!(adopted["stdout"], "1\n");
    assert!(place.path("ran").exists());
    assert_eq!(session.says("echo $X"), "1\n");
    let listed = json(&place.run(&["list"]));
    assert_eq!(listed[0].get("foreign"), None);
}

#[test]
fn the_environment_can_adopt_what_is_met() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    fs::rename(place.path(".sessions"), place.path("there")).unwrap();
    copy(&place.path("there"), &place.path(".sessions"));
    for (value, code) in [("0", 1), ("", 1), ("1", 0)] {
        let mut command = session.command(&[], ":");
        let output = command.env("DELTA_ADOPT", value).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{value:?}: {output:?}");
    }
    assert_eq!(session.says("echo again"), "again\n");

    let other = Place::new();
    let planted = other.start(&["bash"]);
    copy(&planted.dir(), &place.path(".sessions").join(&planted.id));
    let mut command = place.command(&["exec", &planted.id, ":"]);
    let output = command.env("DELTA_ADOPT", "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn sessions_without_an_origin_are_foreign() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    let origin = place.path(".sessions/origin");
    assert!(fs::read_to_string(&origin).unwrap().starts_with("inode "));
    fs::remove_file(origin).unwrap();
    let error = refused(&session.command(&[], ":").output().unwrap());
    assert!(
        error.contains("no file 'origin'") && error.contains("--adopt"),
        "{error}"
    );
    assert_eq!(
        json(&place.run(&["--adopt", "list"]))[0].get("foreign"),
        None
    );
    assert_eq!(session.says("echo again"), "again\n");
}

#[test]
fn a_session_that_was_put_among_ones_own_is_not_run() {
    let (place, other) = (Place::new(), Place::new());
    let own = place.start(&["bash"]);
    let planted = other.start(&["bash"]);
    let dir = place.path(".sessions").join(&planted.id);
    copy(&planted.dir(), &dir);
    let error = refused(&place.run(&["exec", &planted.id, ":"]));
    assert!(
        error.contains(&planted.id) && error.contains("--adopt"),
        "{error}"
    );
    assert_eq!(own.says("echo own"), "own\n");
    let listed = json(&place.run(&["list"]));
    let foreign = |id: &str| {
        let mut found = listed.as_array().unwrap().iter();
        let found = found.find(|session| session["session_id"] == *id);
        found.unwrap().get("foreign").cloned()
    };
    assert_eq!(
        (foreign(&own.id), foreign(&planted.id)),
        (None, Some(Value::Bool(true)))
    );
    let removed = json(&place.run(&["cleanup"]));
    assert_eq!(removed["removed"], serde_json::json!([own.id]));
    assert!(dir.exists());
}

#[test]
fn cleanup_leaves_foreign_sessions_alone_that_have_no_metadata() {
    let place = Place::new();
    let own = place.start(&["bash"]);
    // A start of one's own that was cut short.
    let cut_short = place.start(&["bash"]);
    fs::remove_file(cut_short.dir().join("metadata.json")).unwrap();
    let sessions = place.path(".sessions");
    for name in ["sess_victim/data", "sess_dangling"] {
        fs::create_dir_all(sessions.join(name)).unwrap();
    }
    fs::write(sessions.join("sess_victim/data/file"), "kept").unwrap();
    symlink("nowhere", sessions.join("sess_dangling/metadata.json")).unwrap();
    let removed = json(&place.run(&["cleanup"]));
    let mut expected = [&*own.id, &*cut_short.id];
    expected.sort_unstable();
    assert_eq!(removed["removed"], serde_json::json!(expected));
    assert!(sessions.join("sess_victim/data/file").exists());
    assert!(sessions.join("sess_dangling").exists());
}

#[test]
fn files_of_a_session_that_are_too_large_are_not_read() {
    let place = Place::new();
    let sparse = |path: &Path| {
        let file = fs::OpenOptions::new().append(true).create(true).open(path);
        file.unwrap().set_len(2 << 30).unwrap();
    };
    let limited = |args: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v 400000; exec \"$0\" \"$@\"", BIN]);
        command.args(args).current_dir(&place.dir).output().unwrap()
    };
    let session = place.start(&["bash"]);
    session.says("export X=1; f() { echo f; }");
    for name in ["command", "boot.sh", "functions.sh"] {
        let path = session.dir().join(name);
        sparse(&path);
        let result = json(&limited(&["exec", &session.id, "echo ran"]));
        assert_eq!(result["stdout"], "ran\n", "{name}: {result}");
    }
    // What a command makes of its state is not read either.
    let next = session.dir().join("next/env.sh");
    let text = format!(
        "trap 'truncate -s 2G {}' EXIT",
        quote(next.to_str().unwrap())
    );
    let result = json(&limited(&["exec", &session.id, &text]));
    assert_eq!(result["exit_code"], 0, "{result}");
    sparse(&session.dir().join("metadata.json"));
    let error = "is larger than 16 MiB";
    let listed = json(&limited(&["list"]));
    assert_eq!(listed[0]["status"], "damaged");
    assert!(
        listed[0]["error"].as_str().unwrap().ends_with(error),
        "{listed}"
    );
    for args in [&["exec", &*session.id, ":"][..], &["end", &session.id]] {
        let said = refused(&limited(args));
        assert!(said.ends_with(error), "{said}");
    }
}

#[test]
fn a_file_elsewhere_is_not_written_through_a_hard_link() {
    for name in ["lock", "history.log"] {
        let place = Place::new();
        let session = place.start(&["bash"]);
        session.says("echo first");
        let mine = place.path("mine");
        fs::write(&mine, "kept").unwrap();
        let path = session.dir().join(name);
        fs::remove_file(&path).unwrap();
        fs::hard_link(&mine, &path).unwrap();
        let said = refused(&session.command(&[], "touch ran").output().unwrap());
        assert!(
            said.contains(name) && said.ends_with("as a hard link"),
            "{said}"
        );
        assert_eq!(fs::read_to_string(&mine).unwrap(), "kept");
        assert!(!place.path("ran").exists());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert_eq!(session.says("echo again"), "again\n");
    }
}

#[test]
fn a_command_line_of_a_session_may_be_as_long_as_the_system_allows() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    // The metadata of a start with two megabytes of words.
    let path = session.dir().join("metadata.json");
    let mut metadata: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    metadata["command"] = "x".repeat(2 << 20).into();
    fs::write(&path, metadata.to_string()).unwrap();
    assert_eq!(session.says("echo ran"), "ran\n");
}

#[test]
fn a_link_in_the_place_of_the_sessions_directory_is_foreign_for_good() {
    let (place, other) = (Place::new(), Place::new());
    let session = other.start(&["bash"]);
    symlink(other.path(".sessions"), place.path(".sessions")).unwrap();
    for args in [
        &["exec", &*session.id, ":"][..],
        &["--adopt", "exec", &session.id, ":"],
        &["--sessions-dir", ".sessions/", "exec", &session.id, ":"],
        &["start"],
    ] {
        let error = refused(&place.run(args));
        assert!(error.contains("is a symbolic link"), "{args:?}: {error}");
    }
    assert_eq!(session.says("echo there"), "there\n");
}

#[test]
fn an_existing_directory_without_sessions_becomes_ones_own() {
    let place = Place::new();
    fs::create_dir(place.path(".sessions")).unwrap();
    let session = place.start(&["bash"]);
    assert_eq!(session.says("echo x"), "x\n");
    let ignored = fs::read_to_string(place.path(".sessions/.gitignore")).unwrap();
    assert_eq!(ignored, "*\n");
}

// --- files that are something else

#[test]
fn nothing_in_the_place_of_a_file_hangs_a_command_or_is_followed() {
    let place = Place::new();
    let victim = place.path("victim");
    fs::create_dir(place.path("kept")).unwrap();
    type Plant = fn(&Path, &Path);
    let plants: [(&str, Plant); 4] = [
        ("link", |path, victim| symlink(victim, path).unwrap()),
        ("device", |path, _| symlink("/dev/zero", path).unwrap()),
        ("fifo", |path, _| {
            let made = Command::new("mkfifo").arg(path).status();
            assert!(made.unwrap().success());
        }),
        ("directory", |path, _| fs::create_dir(path).unwrap()),
    ];
    for shell in ["bash", "dash"] {
        for name in [
            "metadata.json",
            "env.sh",
            "work_dir.txt",
            "functions.sh",
            "options.sh",
            "aliases.txt",
            "history.log",
            "lock",
            "command",
            "boot.sh",
            "save.sh",
        ] {
            for (kind, plant) in plants {
                let session = place.start(&[shell]);
                session.says("export X=1");
                fs::write(&victim, "content of the victim\n").unwrap();
                let path = session.dir().join(name);
                drop(fs::remove_file(&path));
                plant(&path, &victim);
                let output = session.command(&[], "echo ran").output().unwrap();
                let context = format!("{shell}: {name}: {kind}: {output:?}");
                let result = json(&output);
                if output.status.code() == Some(0) {
                    assert_eq!(result["stdout"], "ran\n", "{context}");
                } else {
                    assert!(
                        result["error"].as_str().unwrap().contains(name),
                        "{context}"
                    );
                }
                let kept = fs::read_to_string(&victim).unwrap();
                assert_eq!(kept, "content of the victim\n", "{context}");
                assert!(place.run(&["list"]).status.success(), "{context}");
                fs::remove_dir_all(session.dir()).unwrap();
            }
        }
        for name in ["next", "output"] {
            let session = place.start(&[shell]);
            fs::write(place.path("kept/env.sh"), "kept").unwrap();
            fs::remove_dir_all(session.dir().join(name)).unwrap();
            symlink(place.path("kept"), session.dir().join(name)).unwrap();
            let error = refused(&session.command(&[], "echo ran").output().unwrap());
            assert!(
                error.ends_with(&format!("{name} is not a directory")),
                "{error}"
            );
            let names: Vec<_> = fs::read_dir(place.path("kept")).unwrap().collect();
            assert_eq!(names.len(), 1, "{shell}: {name}: {names:?}");
            fs::remove_dir_all(session.dir()).unwrap();
        }
    }
}

// --- words of an older program

#[test]
fn the_words_of_the_terminal_program_name_exec_and_the_example() {
    let place = Place::new();
    for word in ["write", "read", "attach", "detach", "write-key"] {
        let output = place.run(&[word, "sess_1", "text"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(output.stdout, b"");
        let error = String::from_utf8(output.stderr).unwrap();
        for part in [word, "'exec'", "examples/terminal", "tmux"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
