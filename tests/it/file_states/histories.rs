//! Random histories of a workspace, and a copy of its files after each step to compare with.

use super::*;
use fastrand::Rng;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The type and the content of each file and link, by its path.
pub(super) type Files = BTreeMap<PathBuf, (char, Vec<u8>)>;

/// All below a directory but its control plane.
pub(super) fn files(dir: &Path) -> Files {
    let (mut pending, mut found) = (vec![PathBuf::new()], Files::new());
    while let Some(below) = pending.pop() {
        for entry in fs::read_dir(dir.join(&below)).unwrap() {
            let path = below.join(entry.unwrap().file_name());
            let full = dir.join(&path);
            let about = full.symlink_metadata().unwrap();
            if about.is_symlink() {
                let target = fs::read_link(&full).unwrap();
                found.insert(path, ('l', target.as_os_str().as_bytes().to_vec()));
            } else if about.is_dir() {
                if path != Path::new(".delta") {
                    pending.push(path);
                }
            } else {
                let kind = if about.permissions().mode() & 0o100 == 0 {
                    '-'
                } else {
                    'x'
                };
                found.insert(path, (kind, fs::read(&full).unwrap()));
            }
        }
    }
    found
}

/// Without the files that no state has.
pub(super) fn kept(mut files: Files) -> Files {
    files.retain(|path, _| !is_ignored(path));
    files
}

fn is_ignored(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "o")
}

/// Commands that do something with a few names, of which some are each other's directories.
fn random_commands(rng: &mut Rng) -> String {
    const NAMES: [&str; 7] = ["a", "b", "d", "d/x", "d/y", "'n\nl'", "e/f/g"];
    let mut script = String::new();
    for _ in 0..rng.u32(1..4) {
        let (name, other) = (NAMES[rng.usize(..7)], NAMES[rng.usize(..7)]);
        let text = rng.u32(..1000);
        let free =
            format!("[ -d {name} ] && rm -rf {name}; mkdir -p \"$(dirname {name})\" 2>/dev/null");
        let command = match rng.u32(..8) {
            0 | 1 => format!("{free}; [ -L {name} ] && rm {name}; echo {text} > {name}"),
            2 => format!("[ -f {name} ] && echo {text} >> {name}"),
            3 => format!("rm -rf {name}"),
            4 => format!(
                "[ -f {name} ] && [ ! -L {name} ] && chmod {} {name}",
                ["+x", "-x"][rng.usize(..2)]
            ),
            5 => format!("{free}; rm -f {name}; ln -s {text} {name}"),
            6 => format!("[ -f {name} ] && [ ! -e {other} ] && mv {name} {other}"),
            _ => format!("{{ [ -L d ] || mkdir -p d; }} && echo {text} > d/k.o"),
        };
        script += &format!("( {command} ) 2>/dev/null\n");
    }
    script
}

/// A run of some random steps, and the files before the first and after each.
pub(super) fn random_run(rng: &mut Rng, id: &str) -> (World, Vec<Files>) {
    let world = world();
    world.write("ws/.gitignore", "*.o\n");
    world.write("ws/a", "first\n");
    world.write("ws/d/x", "first\n");
    world.write("ws/mine.o", "mine\n");
    let steps = rng.usize(2..6);
    let copy = |step: usize| {
        let dir = world.path(&format!("copies/{step}"));
        fs::create_dir_all(&dir).unwrap();
        (
            format!(
                "tar cf - --exclude=./.delta . | tar xf - -C {}",
                dir.display()
            ),
            dir,
        )
    };
    let copies: Vec<_> = (1..=steps).map(copy).collect();
    let before = kept(files(&world.workspace()));
    let calls = copies.iter().enumerate().map(|(at, (copying, _))| {
        sh(
            &format!("c{at}"),
            &format!("{}{copying}", random_commands(rng)),
        )
    });
    let calls: Vec<_> = calls.chain([text("done")]).collect();
    world.model_says(calls);
    world.run("go").args(["--run-id", id]).exits(0);
    let after = copies.iter().map(|(_, dir)| kept(files(dir)));
    let all = [before].into_iter().chain(after).collect();
    (world, all)
}

/// All contents in the store.
fn contents_in_store(world: &World) -> HashSet<Vec<u8>> {
    let mut command = Command::new("git");
    command
        .arg("--git-dir")
        .arg(world.path("ws/.delta/files.git"));
    command.args(["cat-file", "--batch-all-objects", "--batch", "--unordered"]);
    let listed = command.output().unwrap().stdout;
    let (mut rest, mut found) = (&listed[..], HashSet::new());
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let head = std::str::from_utf8(&rest[..end]).unwrap();
        let size: usize = head.split(' ').nth(2).unwrap().parse().unwrap();
        found.insert(rest[end + 1..][..size].to_vec());
        rest = &rest[end + size + 2..];
    }
    found
}

/// What the files are to be after those that differ between two states are put back.
fn expected(before: &Files, from: &Files, to: &Files) -> Files {
    let mut wanted = before.clone();
    let differs = |path: &&PathBuf| from.get(*path) != to.get(*path);
    for path in from.keys().chain(to.keys()).filter(differs) {
        match to.get(path) {
            Some(file) => {
                // Only by force: what has its place, or that of a directory of it.
                wanted.retain(|it, _| !it.starts_with(path) && !path.starts_with(it));
                wanted.insert(path.clone(), file.clone());
            }
            None => drop(wanted.remove(path)),
        }
    }
    wanted
}

fn check_history(seed: u64) {
    let rng = &mut Rng::with_seed(seed);
    let (world, model) = random_run(rng, "r");
    let ws = world.workspace();
    let changes = |n: &usize| model[*n] != model[*n - 1];
    let Some(last_change) = (1..model.len()).rev().find(changes) else {
        world
            .delta(["undo", "-w", "ws"])
            .refuses(1, "no iteration of run r has changed files");
        return;
    };
    let mut last = model[model.len() - 1].clone();
    for _ in 0..6 {
        let is_edited = rng.bool();
        if is_edited {
            let mut edit = Command::new("sh");
            edit.args(["-c", &random_commands(rng)]).current_dir(&ws);
            edit.status().unwrap();
        }
        let (to, force) = (rng.usize(..=model.len()), rng.bool());
        let (from, wanted) = match model.get(to) {
            Some(wanted) => (last.clone(), wanted),
            None => (model[last_change].clone(), &model[last_change - 1]),
        };
        let before = files(&ws);
        let mut undo = world.delta(["undo", "-w", "ws"]);
        if to < model.len() {
            undo = undo.args(["--to", &to.to_string()]);
        }
        let listed = world.delta(["undo", "-n", "-w", "ws"]).end();
        assert!(
            files(&ws) == before,
            "seed {seed}: -n changed files\n{}",
            listed.describe()
        );
        let outcome = undo.args(force.then_some("--force")).end();
        let after = files(&ws);
        let about = || format!("seed {seed}, to {to}\n{}", outcome.describe());
        if outcome.code() == Some(0) {
            assert!(
                kept(after.clone()) == kept(expected(&before, &from, wanted)),
                "{}",
                about()
            );
            if !outcome.stdout.is_empty() {
                last = kept(after.clone());
            }
        } else {
            assert_eq!(outcome.code(), Some(1), "{}", about());
            assert!(after == before, "{}", about());
            let has_reason = ["has changed", "place of", "older than", "in no state"];
            let why = has_reason.map(|words| outcome.stderr.contains(words));
            assert!(
                why[1] || why[3] || !force && (why[0] || why[2]),
                "{}",
                about()
            );
        }
        let stored = contents_in_store(&world);
        for (path, file) in before
            .iter()
            .filter(|(path, file)| after.get(*path) != Some(file))
        {
            assert!(!is_ignored(path), "{} {}", path.display(), about());
            assert!(stored.contains(&file.1), "{} {}", path.display(), about());
        }
    }
}

/// A number of random histories, more of them where a variable says so.
pub(super) fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

#[test]
fn files_are_put_back_as_a_copy_of_each_step_has_them_and_nothing_is_lost() {
    let first = number("UNDO_SEED", 1);
    for seed in first..first + number("UNDO_HISTORIES", 4) {
        check_history(seed);
    }
}

#[test]
fn a_fork_at_each_step_has_the_files_of_that_step() {
    for seed in 1..=number("FORK_RUNS", 2) {
        let rng = &mut Rng::with_seed(seed);
        let (world, model) = random_run(rng, "r");
        let now = files(&world.workspace());
        for (at, wanted) in model.iter().enumerate() {
            let (number, dir) = (at.to_string(), format!("fork-{at}"));
            world.model_says([text("again")]);
            let words = [
                "fork", "-w", "ws", "r", "-m", "more", "--at", &number, "--to", &dir,
            ];
            world
                .delta(words)
                .exits(0)
                .prints("again\n")
                .says("ignored files");
            let forked = files(&world.path(&dir));
            assert!(
                kept(forked.clone()) == *wanted,
                "seed {seed}, iteration {at}"
            );
            let place = Path::new("mine.o");
            assert_eq!(forked.get(place), now.get(place));
            // The states of these iterations are in its store.
            let range = format!("LATEST@{at}");
            let log = world
                .delta(["git", "-w", &dir, "log", "--format=%s", &range])
                .exits(0);
            let log = printed(&log);
            assert!(
                log.ends_with(
                    "[0] start
"
                ),
                "{log}"
            );
        }
    }
}

#[test]
fn files_are_put_back_in_a_fork_and_a_file_that_was_ignored_then_stays() {
    let world = world();
    world.write("ws/.gitignore", "*.o\n");
    world.write("ws/mine.o", "mine\n");
    world.model_says([
        sh("c1", "echo 1 > a; mkdir d; echo 1 > d/new"),
        sh("c2", "rm .gitignore; echo 2 > a; mkdir e; echo 2 > e/new"),
        text("done"),
    ]);
    world.run("go").exits(0);
    world.model_says([text("again")]);
    let words = [
        "fork", "-w", "ws", "-m", "more", "--at", "1", "--to", "fork",
    ];
    world.delta(words).exits(0).says("ignored files");
    assert_eq!(world.read("fork/mine.o"), "mine\n");
    assert!(world.exists("fork/d/new") && !world.exists("fork/e"));
    let outcome = world.delta(["undo", "-w", "fork", "--to", "0"]).exits(0);
    outcome.prints("removed a\nremoved d/new\n");
    assert_eq!(world.read("fork/mine.o"), "mine\n");
}

#[test]
fn a_fork_in_place_has_states_of_its_own() {
    let world = world();
    world.model_says([sh("c1", "echo 1 > a"), sh("c2", "echo 2 > a"), text("done")]);
    world.run("go").args(["--run-id", "first"]).exits(0);
    world.model_says([text("again")]);
    let fork = ["fork", "-w", "ws", "first", "-m", "more", "--at", "1"];
    world
        .delta(fork)
        .args(["--set", "files=off", "--run-id", "second"])
        .exits(0);
    world.delta(["prune", "-w", "ws", "first"]).exits(0);
    assert!(!world.exists("ws/.delta/first"));
    let shown = world
        .delta(["git", "-w", "ws", "show", "second@1:a"])
        .exits(0);
    shown.prints("1\n");
}

#[test]
fn that_no_files_were_kept_meanwhile_is_said() {
    let world = world();
    world.model_says([sh("c1", "echo 1 > a"), text("done")]);
    world.run("go").exits(0);
    world.model_says([sh("c2", "echo 2 > a"), text("done")]);
    let words = ["continue", "-w", "ws", "-m", "more", "--set", "files=off"];
    world.delta(words).exits(0);
    for (at, is_said) in [("1", false), ("3", true)] {
        world.model_says([text("again")]);
        let to = format!("fork-{at}");
        let words = ["fork", "-w", "ws", "-m", "more", "--at", at, "--to", &to];
        let outcome = world.delta(words).exits(0);
        let text = "no files were kept from iteration 3 on: they are as after iteration 1";
        match is_said {
            true => outcome.says(text),
            false => outcome.does_not_say("no files were kept"),
        };
    }
}
