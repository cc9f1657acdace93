//! Links that a tool, or a clone, has put where the engine writes, and trees that are made to hold it up.

use crate::flow::run::{chain, run};
use crate::harness::*;
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

const CONTEXT: &str = "sources:\n  - {type: computed_file, id: notes, output_path: notes/a/index.md, \
     generator: {command: [echo, made]}}\n  - {type: journal}\n";

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn a_source_that_may_be_missing_is_reported_if_a_link_is_in_the_way_of_its_file() {
    let world = World::new();
    world.model_says([text("done")]);
    let context = CONTEXT.replace("id: notes,", "id: notes, on_missing: skip,");
    world.write("agent/context.yaml", context);
    fs::create_dir(world.path("outside")).unwrap();
    fs::create_dir_all(world.path("ws")).unwrap();
    symlink(world.path("outside"), world.path("ws/notes")).unwrap();
    let link = world.path("ws/notes");
    world
        .run("go")
        .exits(0)
        .says("context source notes is skipped: ")
        .says(&format!("{} is a link", link.display()));
    assert!(is_empty(&world.path("outside")));
}

#[test]
fn what_a_generator_prints_is_written_through_no_link() {
    for link in ["notes", "notes/a"] {
        let world = World::new();
        world
            .model_says([text("done"), text("done")])
            .may_stay_unasked();
        world.write("agent/context.yaml", CONTEXT);
        let outside = world.path("outside");
        fs::create_dir_all(outside.join("a")).unwrap();
        let link = world.path("ws").join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&outside, &link).unwrap();
        let said = format!("{}: it is a link, or is no directory", link.display());
        let other = said.replace(": it is", " is");
        let stderr = world.run("go").exits(4).stderr;
        assert!(
            stderr.contains(&said) || stderr.contains(&other),
            "{stderr}"
        );
        assert!(is_empty(&outside.join("a")) && !outside.join("index.md").exists());

        fs::remove_file(&link).unwrap();
        world.go_on().exits(0);
        assert_eq!(world.read("ws/notes/a/index.md"), "made\n");
        // The file itself is replaced, wherever a link in its place leads.
        let file = world.path("ws/notes/a/index.md");
        fs::remove_file(&file).unwrap();
        symlink(outside.join("made"), &file).unwrap();
        world.run("again").exits(0);
        assert!(!outside.join("made").exists());
    }
}

#[test]
fn a_file_outside_of_the_workspace_is_written_where_its_path_leads() {
    let world = World::new();
    world.model_says([text("done")]);
    fs::create_dir(world.path("real")).unwrap();
    symlink("real", world.path("out")).unwrap();
    let path = world.path("out/index.md");
    world.write(
        "agent/context.yaml",
        CONTEXT.replace("notes/a/index.md", path.to_str().unwrap()),
    );
    world.run("go").exits(0);
    assert_eq!(world.read("real/index.md"), "made\n");
}

#[test]
fn no_task_of_a_flow_works_where_a_link_leads() {
    let world = World::unasked();
    chain(&world, "output: text, shell: 'pwd > here; echo done'");
    world.write("in.jsonl", "1\n2\n");
    let outside = world.path("outside");
    fs::create_dir_all(outside.join("r")).unwrap();
    fs::create_dir_all(world.workspace()).unwrap();
    symlink(&outside, world.path("ws/tasks")).unwrap();
    let start = || run(&world).args(["--run-id", "r", "--inputs", "in.jsonl"]);
    start()
        .exits(75)
        .says("ws/tasks is a link, or is no directory");
    assert!(is_empty(&outside.join("r")));
    fs::remove_file(world.path("ws/tasks")).unwrap();
    start().exits(0);
    assert!(world.exists("ws/tasks/r/T1/here"));
}

/// A run in a workspace whose files are these.
fn ran(make: impl Fn(&Path)) -> World {
    let world = World::new();
    world
        .model_says([text("done"), text("again")])
        .may_stay_unasked();
    world.run("go").args(["--run-id", "r"]).exits(0);
    make(&world.workspace());
    world
}

fn fork(world: &World) -> Delta {
    world.delta([
        "fork", "-w", "ws", "r", "--at", "0", "-a", "agent", "--to", "new/copy",
    ])
}

#[test]
fn a_copy_keeps_holes_and_times_and_leaves_out_what_is_nested_too_deep() {
    let world = ran(|ws| {
        let file = fs::File::create(ws.join("hole")).unwrap();
        file.set_len(1 << 32).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"in the middle", 1 << 31).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        fs::write(ws.join("plain"), "text").unwrap();
        fs::create_dir_all(ws.join("a/".repeat(201))).unwrap();
    });
    let forked = fork(&world).exits(0);
    let warning = format!(
        "{} is nested deeper than 200 directories and has not been copied",
        "a/".repeat(201).trim_end_matches('/')
    );
    forked.says(&warning);
    let (copy, hole) = (world.path("new/copy"), world.path("new/copy/hole"));
    assert!(copy.join("a/".repeat(200)).is_dir() && !copy.join("a/".repeat(201)).exists());
    let meta = fs::metadata(&hole).unwrap();
    assert!(meta.len() == 1 << 32 && meta.blocks() * 512 < 1 << 20);
    assert_eq!(meta.modified().unwrap(), std::time::UNIX_EPOCH);
    let mut read = [0; 13];
    std::os::unix::fs::FileExt::read_exact_at(&fs::File::open(&hole).unwrap(), &mut read, 1 << 31)
        .unwrap();
    assert_eq!(&read, b"in the middle");
    assert_eq!(fs::read(copy.join("plain")).unwrap(), b"text");
}

#[test]
fn a_fork_that_fails_removes_what_it_has_made() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root reads every file");
        return;
    }
    let world = ran(|ws| {
        fs::create_dir(ws.join("sub")).unwrap();
        fs::write(ws.join("sub/secret"), "x").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o0);
        fs::set_permissions(ws.join("sub/secret"), mode).unwrap();
    });
    fork(&world).exits(1).says("sub/secret");
    assert!(!world.exists("new"));
    fs::create_dir_all(world.path("new/copy")).unwrap();
    fork(&world).exits(1);
    assert!(is_empty(&world.path("new/copy")));
    fs::remove_file(world.path("ws/sub/secret")).unwrap();
    fork(&world).exits(0);
}

#[test]
fn what_a_tool_leaves_to_be_attached_is_removed_however_deep_it_is() {
    let world = World::with_tools(
        "- {name: deep, shell: 'cd $DELTA_ATTACH; echo x > note; i=0; while [ $i -lt 1200 ]; do mkdir d; cd d; \
         i=$((i+1)); done'}\n",
    );
    world.model_says([
        call("call_1", "deep", &json!({})),
        text("done"),
        text("again"),
    ]);
    world.run("go").args(["--run-id", "r"]).exits(0);
    let observed = &world.latest().events("ACTION_RESULT")[0]["observation_content"];
    assert_eq!(
        observed,
        "(no output)\n[d: not a picture or document]\n[note: not a picture or document]"
    );
    assert!(is_empty(&world.latest().execution(1).join("attach")));
    world
        .delta(["fork", "-w", "ws", "r", "--at", "1", "-a", "agent"])
        .exits(0);
    world
        .delta(["prune", "-w", "ws", "--yes", "--keep", "0"])
        .end();
}
