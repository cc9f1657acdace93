//! `delta skills`: the catalogue of the skills in directories.

use crate::harness::*;
use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};

const HEAD: &str = "Skills are instructions for certain tasks. When a task fits one, read its file before you begin. \
                    Paths in it start at its directory.\n\n";

fn skill(world: &World, dir: &str, front: &str) {
    world.write(
        &format!("{dir}/SKILL.md"),
        format!("---\n{front}\n---\n# Text\n"),
    );
}

/// The catalogue of these skills: their names, descriptions and paths.
fn catalogue(world: &World, skills: &[(&str, &str, &str)]) -> String {
    let line = |(name, description, path): &(&str, &str, &str)| {
        let path = world.path(path);
        format!("- {name}: {description} ({}/SKILL.md)\n", path.display())
    };
    HEAD.to_owned() + &skills.iter().map(line).collect::<String>()
}

#[test]
fn skills_are_listed_and_what_is_wrong_with_them_is_reported() {
    let world = World::new();
    skill(
        &world,
        "a/pdf",
        "name: pdf\ndescription: >\n  Fill in\n  forms.",
    );
    skill(
        &world,
        "a/group/deep/csv",
        "name: csv\ndescription: Clean tables.",
    );
    skill(
        &world,
        "a/pdf/inner",
        "name: inner\ndescription: Not a skill of its own.",
    );
    skill(&world, "a/odd", "name: Odd\ndescription: Odd name.");
    skill(&world, "a/silent", "name: silent");
    skill(&world, "a/torn", "name: [");
    skill(&world, "b/pdf", "name: pdf\ndescription: Another.");
    world.write(
        "a/huge/SKILL.md",
        "---\nname: x\n".to_owned() + &"x".repeat(1 << 20),
    );
    let pipe = std::process::Command::new("mkfifo")
        .arg(world.path("b/SKILL.md"))
        .status();
    assert!(pipe.unwrap().success());
    symlink("../a/pdf", world.path("b/link")).unwrap();
    symlink("..", world.path("b/loop")).unwrap();
    let outcome = world.delta(["skills", "a", "b/pdf", "nowhere"]).exits(0);
    let expected = catalogue(
        &world,
        &[
            ("Odd", "Odd name.", "a/odd"),
            ("csv", "Clean tables.", "a/group/deep/csv"),
            ("pdf", "Fill in forms.", "a/pdf"),
        ],
    );
    let outcome = outcome.prints(&expected);
    for words in [
        "warning: a/odd/SKILL.md: name: 'Odd' is not made of a to z",
        "a/silent/SKILL.md: skipped: it has no description",
        "a/torn/SKILL.md: skipped: line 3: not valid YAML",
        "a/huge/SKILL.md: skipped: its front matter does not end",
        "b/pdf/SKILL.md: skipped: there is a skill pdf before it",
        "warning: nowhere: ",
    ] {
        assert!(
            outcome.stderr.contains(words),
            "{words}: {}",
            outcome.stderr
        );
    }
    // Pipes and loops of links hold nobody up.
    let pipe = world.delta(["skills", "b"]).exits(0);
    pipe.says("b/SKILL.md: skipped: cannot be read: it is not a regular file");
}

#[test]
fn skills_are_read_as_leniently_as_the_format_asks() {
    let world = World::new();
    skill(
        &world,
        "a/1/2/3/4/5/deep",
        "name: deep\ndescription: Use when: the user's file is a: b",
    );
    for dir in ["a/1/2/3/4/5/6/deeper", "a/node_modules/x", "a/.git/y"] {
        skill(&world, dir, "name: never\ndescription: Never.");
    }
    skill(
        &world,
        "a/own",
        "name: own\ndescription: Mine.\ndisable-model-invocation: true",
    );
    skill(
        &world,
        "b/esc",
        "name: esc\ndescription: \"\\e[2J\\u202Eclear\"",
    );
    let odd = "b/\u{1b}[31m";
    skill(&world, odd, "name: a\ndescription: Red.");
    symlink(".", world.path("a/loop")).unwrap();
    let outcome = world.delta(["skills", "a", "b"]).exits(0);
    let expected = catalogue(
        &world,
        &[
            ("a", "Red.", "b/\\u{1b}[31m"),
            (
                "deep",
                "Use when: the user's file is a: b",
                "a/1/2/3/4/5/deep",
            ),
            ("esc", "\\u{1b}[2J\\u{202e}clear", "b/esc"),
        ],
    );
    let outcome = outcome.prints(&expected);
    let outcome = outcome.says("deep/SKILL.md: a value with a colon in it needs quotes");
    let outcome = outcome.says("b/\\u{1b}[31m/SKILL.md: name: 'a' is not the name");
    assert!(!outcome.stderr.contains("own"), "{}", outcome.stderr);
}

#[test]
fn a_file_follows_what_is_there() {
    let world = World::new();
    skill(&world, "a/pdf", "name: pdf\ndescription: Fill in forms.");
    let write = || {
        world
            .delta(["skills", "-o", "out/skills.md", "a"])
            .exits(0)
            .prints("")
    };
    write();
    assert_eq!(
        world.read("out/skills.md"),
        catalogue(&world, &[("pdf", "Fill in forms.", "a/pdf")])
    );
    let before = fs::metadata(world.path("out/skills.md")).unwrap();
    write();
    let after = fs::metadata(world.path("out/skills.md")).unwrap();
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    fs::remove_dir_all(world.path("a/pdf")).unwrap();
    write();
    assert!(!world.exists("out/skills.md"));
    world.delta(["skills", "a"]).exits(0).prints("");
    world.delta(["skills"]).exits(2);
}

#[test]
fn what_is_no_regular_file_is_neither_replaced_nor_removed() {
    let world = World::new();
    skill(&world, "a/pdf", "name: pdf\ndescription: Fill in forms.");
    world.write("empty/x", "");
    world.write("file", "kept");
    let _pipe = Fifo::new(world.path("pipe"));
    symlink("file", world.path("link")).unwrap();
    for output in ["pipe", "link"] {
        for dir in ["a", "empty"] {
            let words = format!("cannot write {output}: it is not a regular file");
            world
                .delta(["skills", "-o", output, dir])
                .refuses(1, &words);
        }
    }
    let kind = |name: &str| fs::symlink_metadata(world.path(name)).unwrap().file_type();
    assert!(kind("pipe").is_fifo() && kind("link").is_symlink());
    assert_eq!(world.read("file"), "kept");
}

#[test]
fn a_model_is_shown_the_catalogue() {
    let world = World::new();
    skill(
        &world,
        "agent/skills/pdf",
        "name: pdf\ndescription: Fill in forms.",
    );
    let source = "sources:\n  - type: computed_file\n    id: skills\n    generator: {command: [delta, skills, \
                  '${AGENT_HOME}/skills']}\n    output_path: '${CWD}/.delta/context_artifacts/skills.md'\n    \
                  on_missing: skip\n  - type: journal\n";
    world.write("agent/context.yaml", source);
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let request = world.server.last().json();
    let system = request["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains("- pdf: Fill in forms. ("), "{system}");
}

#[test]
fn files_and_skills_of_a_request_are_listed_and_skipped_skills_reported() {
    let world = World::new();
    skill(
        &world,
        "agent/skills/pdf",
        "name: pdf\ndescription: Fill in forms.\nargument-hint: [a] [b]",
    );
    skill(&world, "agent/skills/mute", "name: mute");
    let source = "sources:\n  - {type: file, path: AGENTS.md, search: up, max_bytes: 8}\n  - type: computed_file\n    \
                  id: skills\n    generator: {command: [delta, skills, '${AGENT_HOME}/skills', -o, \
                  '${CWD}/.delta/context_artifacts/skills.md']}\n    \
                  output_path: '${CWD}/.delta/context_artifacts/skills.md'\n    on_missing: skip\n  - type: journal\n";
    world.write("agent/context.yaml", source);
    world.write("ws/AGENTS.md", "Use tabs.\n");
    world.model_says([text("done"), text("done")]);
    let outcome = world.run("go").exits(0);
    let skipped = "lacks {}/mute/SKILL.md: skipped: it has no description";
    let outcome =
        outcome.says(&skipped.replace("{}", &world.path("agent/skills").display().to_string()));
    outcome.says("lacks 2 bytes of AGENTS.md: max_bytes is 8");
    let pdf = world.path("agent/skills/pdf/SKILL.md");
    let size = fs::metadata(&pdf).unwrap().len();
    let lines = [
        "AGENTS.md, cut to 8 of 10 bytes".to_owned(),
        format!("{}, {size} bytes", pdf.display()),
    ];
    let log = |args: &[&str]| {
        let outcome = world.delta(["log", "-w", "ws"]).args(args).exits(0);
        String::from_utf8(outcome.stdout).unwrap()
    };
    for line in &lines {
        assert!(
            log(&["-v"]).contains(&format!("context: {line}\n")),
            "{}",
            log(&["-v"])
        );
        assert!(!log(&[]).contains("context: "));
    }
    world.run("again").exits(0);
    let dry = world.run("more").arg("--dry-run").exits(0);
    for line in &lines {
        assert!(
            dry.stderr.contains(&format!("context    {line}\n")),
            "{}",
            dry.stderr
        );
    }
}
