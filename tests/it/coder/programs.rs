//! The programs behind the tools of the agent `coder`, by themselves: what they change, what they leave
//! alone, and what they tell a model.

use crate::harness::*;
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

/// A world with a file `f`.
fn with_file(content: impl AsRef<[u8]>) -> World {
    let world = World::new();
    world.write("f", content);
    world
}

impl World {
    fn tool(&self, words: &[&str], stdin: &str) -> Outcome {
        let tool = self.delta(["coder-tool"]).args(words);
        tool.stdin(stdin).end()
    }

    fn edit(&self, old: &str, new: &str) -> Outcome {
        self.tool(&["edit", "f", old], new)
    }

    /// An edit that is refused with these words and changes nothing.
    #[track_caller]
    fn refuses(&self, old: &str, new: &str, words: &[&str]) {
        let before = fs::read(self.path("f")).unwrap();
        let mut outcome = self.edit(old, new).exits(1).prints("");
        for word in words {
            outcome = outcome.says(word);
        }
        assert_eq!(fs::read(self.path("f")).unwrap(), before);
    }
}

fn printed(outcome: &Outcome) -> String {
    String::from_utf8(outcome.stdout.clone()).unwrap()
}

#[test]
fn an_edit_shows_carriage_returns_within_lines_as_signs_and_finds_them() {
    let note = "[carriage returns within lines are shown as ␍ (each is one character, CR)]";
    let world = with_file("old\rmac\rfile\r");
    let diff = format!(
        "edited f, at line 1\n@@ -1 +1 @@\n-old␍mac␍file␍\n\\ No newline at end of file\n\
         +new␍mac␍file␍\n\\ No newline at end of file\n{note}\n"
    );
    world.edit("old\rmac", "new\rmac").exits(0).prints(&diff);
    assert_eq!(fs::read(world.path("f")).unwrap(), b"new\rmac\rfile\r");
    world.refuses(
        "new␍mac",
        "x",
        &["old is not in f", "\nnew␍mac␍file␍\n", note],
    );
    let world = with_file("␍\r\na\r\n");
    let shown = printed(&world.edit("a", "b").exits(0));
    assert!(
        shown.contains(" ␍\n-a\n+b") && !shown.contains(note),
        "{shown}"
    );
}

#[test]
fn an_edit_changes_one_place_and_no_other_byte() {
    // The file, old, new, the file afterwards, and what was not compared.
    let crlf = "\u{feff}one\r\n\ttwo  \r\nthree";
    for (file, old, new, after, note) in [
        ("a\nb\nc", "b", "B", "a\nB\nc", ""),
        (
            crlf,
            "one\n\ttwo  \n",
            "1\n\t2\n",
            "\u{feff}1\r\n\t2\r\nthree",
            "line ends",
        ),
        (
            crlf,
            "three\n",
            "3\n",
            "\u{feff}one\r\n\ttwo  \r\n3",
            "line ends",
        ),
        (
            crlf,
            "\ttwo\n",
            "\t2\n",
            "\u{feff}one\r\n\t2\r\nthree",
            "blanks at line ends",
        ),
        (
            crlf,
            "three",
            "3\n4",
            "\u{feff}one\r\n\ttwo  \r\n3\r\n4",
            "",
        ),
        (
            "if x:\n\t\ty()\n\t\tz()\n",
            "y()\nz()\n",
            "w()\n",
            "if x:\n\t\tw()\n",
            "indentation",
        ),
        ("a\n\tb\n", "\tb", "", "a\n\n", ""),
    ] {
        let world = with_file(file);
        let outcome = world.edit(old, new).exits(0);
        assert_eq!(world.read("f"), after, "{file:?} {old:?}");
        let printed = printed(&outcome);
        assert!(printed.starts_with("edited f, at line "), "{printed}");
        let first = printed.lines().next().unwrap();
        assert_eq!(
            first.contains("not compared"),
            !note.is_empty(),
            "{printed}"
        );
        assert!(first.contains(note), "{printed}");
        assert!(printed.contains("\n@@ -"), "{printed}");
    }
}

#[test]
fn several_places_are_counted_and_changed_only_together() {
    let world = with_file("aaa\n");
    world.refuses("aa", "b", &["2 times, at lines 1, 1", "all: true"]);
    let world = with_file("x = 1;\n".repeat(3));
    world.refuses("x = 1;", "y", &["3 times, at lines 1, 2, 3"]);
    let outcome = world
        .tool(&["edit", "f", "x = 1;", "--all=true"], "y")
        .exits(0);
    assert!(printed(&outcome).starts_with("edited f, 3 places, the first at line 1\n"));
    assert_eq!(world.read("f"), "y\ny\ny\n");
    // A tolerance is for one place alone, whatever is asked for.
    let world = with_file("a \nb\na\t\nb\n");
    for all in ["false", "true"] {
        let outcome = world
            .tool(&["edit", "f", "a\nb", &format!("--all={all}")], "c")
            .exits(1);
        outcome.says("2 times if blanks at line ends are not compared, at lines 1, 3");
    }
}

#[test]
fn what_cannot_be_edited_is_said_with_the_way_out() {
    let world = with_file("fn total(items: &[u32]) -> u32 {\n    items.iter().sum()\n}\n");
    world.refuses(
        "fn totals(items: &[u32]) {",
        "x",
        &[
            "The nearest lines 1–3 are:\nfn total(items: &[u32]) -> u32 {\n",
            "copy, do not retype",
        ],
    );
    world.refuses("", "x", &["old is empty"]);
    world.refuses(
        "items",
        "items",
        &["the same", "The nearest lines 1–3 are:\nfn total"],
    );
    world.refuses("zzz", "x", &["The first lines 1–3 are:\nfn total"]);
    fs::write(world.path("f"), b"caf\xe9 x\n").unwrap();
    world.refuses("x", "y", &["not UTF-8"]);
    world.write("src/deep/main.rs", "");
    for (path, words) in [
        (
            "src/main.rs",
            "the nearest paths are src/deep/main.rs; to make a new file, use write",
        ),
        ("src/deep/mian.rs", "src/deep/main.rs"),
        ("src", "is a directory"),
        ("/dev/null", "not a regular file"),
        ("", "the path is empty"),
    ] {
        let outcome = world.tool(&["edit", path, "a"], "b");
        outcome.refuses(1, words);
    }
}

#[test]
fn the_same_edit_again_says_that_it_is_done() {
    let world = with_file("let a = 1;\nreturn None\n");
    let new = "let number_of_lines = 12345;";
    world.edit("let a = 1;", new).exits(0);
    let outcome = world.edit("let a = 1;", new).exits(0);
    assert!(printed(&outcome).starts_with("already done: f has new at line 1"));
    // What is so short may stand anywhere.
    world
        .edit("return 1", "return None")
        .refuses(1, "old is not in f");
    assert_eq!(world.read("f"), format!("{new}\nreturn None\n"));
}

#[test]
fn modes_and_links_stay() {
    let world = with_file("#!/bin/sh\necho one\n");
    fs::set_permissions(world.path("f"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("f", world.path("link")).unwrap();
    symlink("new/file", world.path("dangling")).unwrap();
    let mode = |name: &str| fs::metadata(world.path(name)).unwrap().permissions().mode() & 0o777;
    world.tool(&["edit", "link", "one"], "two").exits(0);
    assert_eq!(world.read("f"), "#!/bin/sh\necho two\n");
    let outcome = world.tool(&["write", "link"], "#!/bin/sh\n").exits(0);
    assert_eq!(
        printed(&outcome),
        "replaced link, 2 → 1 line\n@@ -1,2 +1 @@\n #!/bin/sh\n-echo two\n"
    );
    assert_eq!(
        (world.read("f"), mode("f")),
        ("#!/bin/sh\n".to_owned(), 0o755)
    );
    assert!(
        fs::symlink_metadata(world.path("link"))
            .unwrap()
            .is_symlink()
    );
    world
        .tool(&["write", "dangling"], "x")
        .exits(0)
        .prints("created dangling, 1 line\n");
    assert_eq!(world.read("new/file"), "x");
    // A new file has the usual mode, not a private one.
    let umask = world
        .delta(["coder-tool", "write", "usual"])
        .after("umask 027");
    umask.stdin("").exits(0).prints("created usual, 0 lines\n");
    assert_eq!(mode("usual"), 0o640);
}

#[test]
fn a_file_is_whole_whenever_the_tool_is_killed() {
    if !installed(&["strace"]) {
        return;
    }
    // The first write is that of the file, then comes its rename.
    for inject in [
        "inject=write:signal=KILL:when=1",
        "inject=rename:signal=KILL",
    ] {
        let world = with_file("one\n".repeat(1000));
        let trace = ["strace", "-qq", "-o", "/dev/null", "-e", inject];
        let killed = world
            .delta(["coder-tool", "edit", "f", "one\n", "--all=true"])
            .under(&trace);
        let killed = killed.stdin("two\n").end();
        assert!(killed.code() != Some(0), "{}", killed.describe());
        let text = world.read("f");
        assert!(text == "one\n".repeat(1000) || text == "two\n".repeat(1000));
        world.tool(&["edit", "f", "one\n", "--all=true"], "two\n");
        assert_eq!(world.read("f"), "two\n".repeat(1000));
    }
}

#[test]
fn a_write_says_what_it_replaced() {
    let world = with_file("line\n".repeat(10));
    let outcome = world.tool(&["write", "f"], "line\nline\n").exits(0);
    let printed = printed(&outcome);
    assert!(
        printed.starts_with("replaced f, 10 → 2 lines; less than half is left"),
        "{printed}"
    );
    let again = world.tool(&["write", "f"], "line\nline\n").exits(0);
    again.prints(
        "f has this content already; nothing was written. If nothing else is left to do, give the final answer\n",
    );
    let taken = world.tool(&["write", "f/x"], "x").exits(1);
    taken.says("cannot find f/x: ");
}

#[test]
fn reading_shows_lines_as_they_are_and_says_how_to_go_on() {
    let world = with_file((1..=3000).map(|n| format!("\t{n}\n")).collect::<String>());
    let read = |path: &str, offset: &str, limit: &str| {
        printed(
            &world
                .tool(
                    &[
                        "read",
                        path,
                        &format!("--offset={offset}"),
                        &format!("--limit={limit}"),
                    ],
                    "",
                )
                .exits(0),
        )
    };
    let shown = read("f", "1", "2000");
    assert!(
        shown.starts_with("lines 1–2000 of 3000\n\t1\n\t2\n"),
        "{shown}"
    );
    assert!(shown.ends_with("\t2000\n[go on with offset 2001]\n"));
    assert_eq!(
        read("f", "2999", "2000"),
        "lines 2999–3000 of 3000\n\t2999\n\t3000\n"
    );
    world
        .tool(&["read", "f", "--offset=3001", "--limit=5"], "")
        .exits(1)
        .says("f has 3000 lines");
    assert_eq!(read("f", "0", "5"), read("f", "1", "5"));
    world
        .tool(&["read", "f", "--offset=1", "--limit=0"], "")
        .exits(1)
        .says("limit is 0");
    world
        .tool(&["read", "f", "--offset=x", "--limit=5"], "")
        .exits(1)
        .says("'x' is not a whole number");

    world.write("crlf", "\u{feff}a\r\nb");
    let notes = "line ends mixed: 1 CRLF, begins with a byte order mark, no newline at the end";
    assert_eq!(
        read("crlf", "1", "9"),
        format!("lines 1–2 of 2, {notes}\na\nb\n")
    );
    world.write("mac", "old\rmac\r\r\nfile\r");
    let notes = "line ends mixed: 1 CRLF, no newline at the end, carriage returns within lines are shown as ␍ (each is \
                 one character, CR)";
    assert_eq!(
        read("mac", "1", "9"),
        format!("lines 1–2 of 2, {notes}\nold␍mac␍\nfile␍\n")
    );
    world.write("dos", "a\r\nb\r\n");
    assert_eq!(
        read("dos", "1", "9"),
        "lines 1–2 of 2, line ends CRLF\na\nb\n"
    );
    world.write("long", "é".repeat(1 << 20) + "\nend\n");
    let shown = read("long", "1", "9");
    assert!(shown.len() < 5_000 && shown.contains("bytes more]") && shown.ends_with("\nend\n"));
    world.write("wide", format!("{}\n", "x".repeat(1_500)).repeat(100));
    let shown = read("wide", "1", "2000");
    assert!(
        shown.len() < 52_000 && shown.ends_with("[go on with offset 34]\n"),
        "{}",
        shown.len()
    );
    world.write("image", b"\x89PNG\r\n\x1a\n\0\0");
    assert_eq!(read("image", "1", "9"), "image: PNG image, 10 bytes\n");
    world.write("empty", "");
    assert_eq!(read("empty", "1", "9"), "empty is empty\n");
    rustix_fifo(&world);
    world
        .tool(&["read", "pipe", "--offset=1", "--limit=9"], "")
        .exits(1)
        .says("not a regular file");
    world
        .tool(&["read", "lang", "--offset=1", "--limit=9"], "")
        .exits(1)
        .says("there is no lang; the nearest paths are long");

    for path in ["d/.git/config", "d/a/b/c", "d/z"] {
        world.write(path, "");
    }
    symlink("a", world.path("d/link")).unwrap();
    let listed = read("d", "1", "9");
    assert_eq!(
        listed,
        "directory d, two levels, without .git and .delta\na/\n  b/\nlink/ -> a\nz\n"
    );
}

fn rustix_fifo(world: &World) {
    let made = std::process::Command::new("mkfifo")
        .arg(world.path("pipe"))
        .status();
    assert!(made.unwrap().success());
}

#[test]
fn a_command_ends_with_its_time_and_takes_its_children_along() {
    let world = World::new();
    let outcome = world
        .tool(
            &["bash", "--timeout=3"],
            "echo begun; sleep 1000 & sleep 1000",
        )
        .exits(124);
    assert!(printed(&outcome).starts_with("begun\n[timed out after 3 s; "));
    eventually("nothing is left", || world.processes().is_empty());
    let outcome = world
        .tool(
            &["bash", "--timeout=120"],
            "cat; echo out; echo err >&2; exit 3",
        )
        .exits(3);
    assert_eq!(
        (printed(&outcome).as_str(), outcome.stderr.as_str()),
        ("out\n", "err\n")
    );
    for seconds in ["0", "601"] {
        world
            .tool(&["bash", &format!("--timeout={seconds}")], "touch ran")
            .exits(1)
            .says("may be 1 to 600");
    }
    let long = format!(": {}", "x".repeat(140_000));
    world
        .tool(&["bash", "--timeout=9"], &long)
        .exits(1)
        .says("Put it into a file with write");
    assert!(!world.exists("ran"));
}

/// Runs the tool as a user whom modes bind. None: that cannot be done here.
fn as_user(world: &World, words: &[&str], stdin: &str) -> Option<Outcome> {
    let tool = world.delta(["coder-tool"]).args(words).stdin(stdin);
    if !rustix::process::geteuid().is_root() {
        return Some(tool.end());
    }
    if !installed(&["setpriv"]) {
        eprintln!("skipped: there is no setpriv to be another user with");
        return None;
    }
    for name in ["", "f", "d", "d/f"] {
        if world.exists(name) {
            chown(world.path(name), Some(65534), Some(65534)).unwrap();
        }
    }
    let user = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    Some(tool.under(&user).end())
}

fn set_mode(world: &World, name: &str, mode: u32) {
    fs::set_permissions(world.path(name), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_the_user_may_not_write_is_not_replaced() {
    for words in [&["edit", "f", "keep"][..], &["write", "f"]] {
        let world = with_file("keep me\n");
        set_mode(&world, "f", 0o444);
        let Some(outcome) = as_user(&world, words, "changed") else {
            return;
        };
        let outcome = outcome.exits(1).says("cannot write f: permission denied");
        outcome.does_not_say("tools write only");
        assert_eq!(world.read("f"), "keep me\n");
    }
}

#[test]
fn a_directory_that_takes_no_file_has_its_files_written_in_place() {
    let world = World::new();
    world.write("d/f", "a long text\n");
    set_mode(&world, "d", 0o555);
    let inode = || fs::metadata(world.path("d/f")).unwrap().ino();
    let before = inode();
    let Some(outcome) = as_user(&world, &["edit", "d/f", "a long text"], "short") else {
        return;
    };
    outcome.exits(0);
    assert_eq!((world.read("d/f").as_str(), inode()), ("short\n", before));
    let new = as_user(&world, &["write", "d/new"], "x").unwrap();
    new.exits(1)
        .says("cannot write d/new")
        .does_not_say("tools write only");
    set_mode(&world, "d", 0o755);
}

#[test]
fn both_names_of_a_file_show_a_change_and_its_former_content_is_kept_meanwhile() {
    let world = with_file("one\n");
    fs::hard_link(world.path("f"), world.path("g")).unwrap();
    fs::create_dir(world.path("attach")).unwrap();
    let write = |text: &str| {
        let tool = world.delta(["coder-tool", "write", "f"]).stdin(text);
        tool.env("DELTA_ATTACH", world.path("attach"))
            .env("TMPDIR", world.path("attach"))
    };
    write("much longer than before\n").exits(0);
    assert_eq!(world.read("g"), "much longer than before\n");
    // A file that cannot grow gets back what it had.
    let full = write(&"x".repeat(40_000))
        .after("ulimit -f 16; trap '' XFSZ")
        .end();
    full.exits(1).says("cannot write f: ");
    assert_eq!(world.read("g"), "much longer than before\n");
    assert_eq!(fs::read_dir(world.path("attach")).unwrap().count(), 0);
}

#[test]
fn a_replaced_file_keeps_its_attributes() {
    let world = with_file("one\n");
    let path = world.path("f");
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(&path, "user.note", b"x", flags) {
        eprintln!("skipped: no attributes here: {error}");
        return;
    }
    set_mode(&world, "f", 0o640);
    world.edit("one", "two").exits(0);
    let mut value = [0; 8];
    assert_eq!(
        rustix::fs::getxattr(&path, "user.note", &mut value[..]),
        Ok(1)
    );
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
}

/// A program in place of `delta` whose first call as the tool dies while it writes in place, with what is done before that.
fn dying_tool(world: &World, last: &str) {
    let script = format!(
        "#!/bin/sh\n[ -e \"$CWD/../died\" ] && exec '{}' \"$@\"\ntouch \"$CWD/../died\"\n\
         cp f \"$DELTA_ATTACH/.before\"; printf half >f; {last}kill -9 $$\n",
        env!("CARGO_BIN_EXE_delta")
    );
    world.script("bin/delta", &script);
}

#[test]
fn a_file_that_was_being_written_in_place_is_restored_after_a_kill() {
    let tool = "- {name: put, description: d, exec: 'delta coder-tool edit f ${old}', stdin: new, \
                parameters: [{name: old, description: d}, {name: new, description: d}]}\n";
    for engine_dies in [false, true] {
        let world = World::with_tools(tool);
        world.write("ws/f", "whole\n");
        fs::hard_link(world.path("ws/f"), world.path("ws/g")).unwrap();
        dying_tool(&world, if engine_dies { "kill -9 $PPID; " } else { "" });
        let path = format!("{}:{}", world.path("bin").display(), system_path());
        let asked = call(
            "1",
            "put",
            &serde_json::json!({"old": "whole", "new": "other"}),
        );
        world.model_says([asked, text("done")]);
        let run = world.run("go").env("PATH", &path);
        if engine_dies {
            let outcome = run.end();
            assert_eq!(outcome.killed_by(), Some(9), "{}", outcome.describe());
            assert_eq!(world.read("ws/g"), "half");
            world.rerun().env("PATH", &path).exits(0);
        } else {
            run.exits(0);
            let told = world.server.last().last_observation();
            assert!(told.contains("f has its former content again"), "{told}");
        }
        assert_eq!(world.read("ws/g"), "whole\n");
        let kept = files_below(&world.workspace());
        assert!(
            !kept.iter().any(|it| format!("{it:?}").contains(".before")),
            "{kept:?}"
        );
    }
}

/// An agent with the coder's tools for files, without their sandbox.
const FILE_TOOLS: &str = "- {name: write, kind: edit, path: path, exec: 'delta coder-tool write ${path}', stdin: content}\n\
     - {name: edit, kind: edit, path: path, exec: 'delta coder-tool edit ${path} ${old}', stdin: new}\n\
     - {name: shout, exec: 'printf \"edited x\\n@@ -1 +1 @@\\n+no\\n\"'}";

#[test]
fn progress_shows_the_diff_of_an_edit_and_the_end_lists_the_files() {
    let world = World::with_tools(FILE_TOOLS);
    let lines = |count: u32| {
        (1..=count)
            .map(|n| format!("line {n}\n"))
            .collect::<String>()
    };
    world.write("ws/calc.py", "a\nb\nc\n");
    world.write("ws/old.txt", lines(60));
    world.write("ws/bin", [0xff, 0xfe]);
    let edit = |id: &str, old: &str, new: &str| {
        call(
            id,
            "edit",
            &json!({"path": "calc.py", "old": old, "new": new}),
        )
    };
    let write = |path: &str, content: &str| json!({"path": path, "content": content});
    let whole_path = world.path("ws/test_calc.py");
    let replies = || {
        [
            edit("e1", "b\n", "B\n\u{1b}[2J\n"),
            edit("e2", "nowhere", "x"),
            calls(&[
                ("w1", "write", write("./test_calc.py", "new\n")),
                ("w5", "write", write(whole_path.to_str().unwrap(), "new\n")),
                (
                    "w2",
                    "write",
                    write("old.txt", &lines(60).replace("line", "row")),
                ),
                ("w3", "write", write("bin", "text")),
                ("w4", "shout", json!({})),
            ]),
            text("done"),
        ]
    };
    world.model_says(replies());
    let outcome = world.run("go").env("PATH", path()).exits(0);
    let shown = &outcome.stderr;
    assert!(
        shown.contains(
            "      @@ -1,3 +1,4 @@\n       a\n      -b\n      +B\n      +\u{FFFD}[2J\n       c\n"
        ),
        "{shown}"
    );
    // A call that failed says why.
    assert!(
        shown.contains("exit code 1, ")
            && shown.contains("      old is not in calc.py (of 4 lines)"),
        "{shown}"
    );
    // The call and its end: two lines, and the diff below.
    assert!(
        !shown.contains("calls edit") && shown.contains("calls write, write, write, write, shout"),
        "{shown}"
    );
    assert!(
        shown.contains("      -line 39\n      … 81 more lines\n") && !shown.contains("      +no"),
        "{shown}"
    );
    let last = shown.lines().last().unwrap();
    assert_eq!(
        last,
        "changed: bin, calc.py +2 -1, old.txt, test_calc.py new"
    );
    let told = world.server.last();
    assert!(
        told.observation("w2")
            .starts_with("replaced old.txt, 60 → 60 lines\n@@ -1,60 +1,60 @@\n-line 1\n")
    );
    assert_eq!(told.observation("w3"), "replaced bin, 1 → 1 line\n");
    // All of it with -v.
    world.write("ws/old.txt", lines(20));
    world.model_says([
        call(
            "w",
            "write",
            &write("old.txt", &lines(20).replace("line", "row")),
        ),
        text("done"),
    ]);
    let all = world
        .run("go")
        .args(["--new", "-v"])
        .env("PATH", path())
        .exits(0);
    assert!(all.stderr.contains("      -line 20\n") && all.stderr.contains("      +row 20\n"));
    assert!(all.stderr.contains("[1] calls write"));
    assert_eq!(all.stderr.matches("      -line 1\n").count(), 1);
    assert!(
        all.stderr
            .contains("      replaced old.txt, 20 → 20 lines\n      @@ -1,20")
    );
}

#[test]
fn a_question_about_an_edit_shows_the_diff_that_it_would_make() {
    let asking = FILE_TOOLS.replace("kind: edit,", "kind: edit, confirm: true,");
    let world = World::with_tools(&asking);
    world.write("ws/f", "a\nb\n");
    let edit = json!({"path": "f", "old": "b", "new": "B\u{1b}[2J"});
    let write = json!({"path": "f", "content": "a\n"});
    let none = json!({"path": "new", "content": "x"});
    world.model_says([
        calls(&[
            ("e", "edit", edit),
            ("w", "write", write),
            ("n", "write", none),
        ]),
        text("done"),
    ]);
    let mut terminal = Terminal::new();
    let run = world
        .run("go")
        .arg("-i")
        .env("PATH", path())
        .env("NO_COLOR", "1");
    let running = run.at(&terminal).spawn();
    let shown = terminal.shows("Allow this command?").replace("\r\n", "\n");
    assert!(
        shown.contains("      @@ -1,2 +1,2 @@\n       a\n      -b\n      +B\u{FFFD}[2J\n"),
        "{shown}"
    );
    assert_eq!(world.read("ws/f"), "a\nb\n");
    terminal.types("no\n");
    let shown = terminal.shows("Allow this command?").replace("\r\n", "\n");
    assert!(
        shown.contains("      @@ -1,2 +1 @@\n       a\n      -b\n"),
        "{shown}"
    );
    terminal.types("yes\n");
    let shown = terminal.shows("Allow this command?");
    assert!(!shown.contains("\n      @@ -0"), "{shown}");
    terminal.types("no\n");
    running.wait().exits(0);
    assert_eq!(world.read("ws/f"), "a\n");
    // It is recorded nowhere.
    let asked = world.latest().events("HUMAN_INPUT_REQUEST");
    assert!(
        asked
            .iter()
            .all(|event| !event["prompt"].to_string().contains("@@"))
    );
    // In the colours of other diffs.
    let write = json!({"path": "f", "content": "b\n"});
    world.model_says([call("w2", "write", &write), text("done")]);
    let mut terminal = Terminal::new();
    let run = world.run("again").arg("-i").env("PATH", path());
    let run = run.env("TERM", "xterm");
    let running = run.at(&terminal).spawn();
    let shown = terminal.shows("Allow this command?");
    for line in ["\u{1b}[31m-a\u{1b}[0m", "\u{1b}[32m+b\u{1b}[0m"] {
        assert!(shown.contains(line), "{shown:?}");
    }
    terminal.types("no\n");
    running.wait().exits(0);
}

#[test]
fn a_question_that_is_left_to_files_shows_the_diff_without_keys() {
    let asking = FILE_TOOLS.replace("kind: edit,", "kind: edit, confirm: true,");
    let world = World::with_tools(&asking);
    world.write("ws/f", "key: k-0123456789abcdef\n");
    let edit = json!({"path": "f", "old": "key:", "new": "KEY:"});
    world.model_says([call("e", "edit", &edit)]);
    let run = world.run("go").arg("-v").env("PATH", path());
    let asked = run.env("DELTA_API_KEY", "k-0123456789abcdef").exits(101);
    let shown = &asked.stderr;
    assert!(shown.contains("      @@ -1 +1 @@\n      -key: "), "{shown}");
    assert!(shown.contains("      +KEY: "), "{shown}");
    assert!(!shown.contains("0123456789"), "{shown}");
    // Also when it is asked again.
    let mut terminal = Terminal::new();
    let again = world.run("go").arg("-i").env("PATH", path());
    let again = again.env("NO_COLOR", "1").at(&terminal).spawn();
    let shown = terminal.shows("Allow this command?");
    assert!(shown.contains("      @@ -1 +1 @@"), "{shown}");
    world.model_says([text("done")]);
    terminal.types("no\n");
    again.wait().exits(0);
}

#[test]
fn at_a_terminal_the_last_line_of_a_running_tool_is_shown() {
    let world = World::with_tools(
        "- {name: t, shell: 'printf \"one\\\\nst\\\\033[2Jep 7, k-0123456789abcdef\\\\n\"; read x < gate'}",
    );
    fs::create_dir_all(world.path("ws")).unwrap();
    world.fifo("ws/gate");
    world.model_says([call("c", "t", &json!({})), text("done")]);
    let mut terminal = Terminal::new();
    let run = world.run("go").env("TERM", "xterm").env("NO_COLOR", "1");
    let run = run.env("DELTA_API_KEY", "k-0123456789abcdef");
    let running = run.all_at(&terminal).spawn();
    terminal.shows("[1] waiting for t, ");
    // Nothing of it controls the terminal, and no key is shown.
    terminal.shows(" s: st[2Jep 7, [redacted]\u{1b}[K");
    fs::write(world.path("ws/gate"), "on\n").unwrap();
    running.wait().exits(0);
    assert!(terminal.rest().contains("done"));
}
