//! What `make release` does, what a crate holds, and the steps of the GitHub action.

use crate::harness::*;
use delta_engine::text::yaml;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const URL: &str = "https://delta.example/releases";

fn project(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn said(done: &Output) -> String {
    let text = [&done.stdout[..], &done.stderr[..]].concat();
    String::from_utf8(text).unwrap()
}

fn git(world: &World, args: &[&str]) -> String {
    let done = Command::new("git")
        .current_dir(world.path("repository"))
        .env("HOME", world.home())
        .args(args)
        .output()
        .unwrap();
    assert!(done.status.success(), "git {args:?}: {}", said(&done));
    String::from_utf8(done.stdout).unwrap()
}

/// A repository with the files of this one that a release concerns.
fn repository() -> World {
    let world = World::unasked();
    let mut copied: Vec<PathBuf> = ["Cargo.toml", "Cargo.lock", "CHANGELOG.md", "README.md"]
        .map(PathBuf::from)
        .to_vec();
    let below = files_below(&project("packaging"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    copied.extend(
        below
            .iter()
            .map(|it| it.strip_prefix(here).unwrap().to_owned()),
    );
    for file in copied {
        let to = world.path("repository").join(&file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(here.join(&file), to).unwrap();
    }
    git(&world, &["init", "-q", "-b", "main"]);
    git(&world, &["config", "user.name", "A Maintainer"]);
    git(
        &world,
        &["config", "user.email", "maintainer@delta.example"],
    );
    commit(&world);
    world
}

fn commit(world: &World) {
    git(world, &["add", "-A"]);
    git(world, &["commit", "-q", "--allow-empty", "-m", "A change"]);
}

fn release(world: &World, version: &str, url: &str, mode: &[&str]) -> Output {
    Command::new(world.path("repository/packaging/release.sh"))
        .args([version, url])
        .arg(world.path("out"))
        .args(mode)
        .env("HOME", world.home())
        .output()
        .unwrap()
}

#[track_caller]
fn refused(world: &World, version: &str, url: &str, words: &str) {
    let before = git(world, &["rev-parse", "HEAD"]);
    let done = release(world, version, url, &[]);
    assert_eq!(done.status.code(), Some(1), "{}", said(&done));
    let said = said(&done);
    assert!(
        said.contains("make release: ") && said.contains(words),
        "{words}: {said}"
    );
    assert_eq!(git(world, &["rev-parse", "HEAD"]), before);
    assert!(!world.exists("out/SHA256SUMS"));
}

#[test]
fn all_files_name_one_version() {
    let done = Command::new(project("packaging/versions.sh"))
        .output()
        .unwrap();
    assert_eq!(said(&done), format!("{}\n", env!("CARGO_PKG_VERSION")));
    let world = repository();
    let readme = world.read("repository/README.md");
    let other = readme.replace(
        concat!("\ndelta ", env!("CARGO_PKG_VERSION"), "\n"),
        "\ndelta 9.9.9\n",
    );
    world.write("repository/README.md", other);
    let done = Command::new(world.path("repository/packaging/versions.sh"))
        .output()
        .unwrap();
    assert!(
        !done.status.success() && said(&done).contains("README.md"),
        "{}",
        said(&done)
    );
}

#[test]
fn a_release_is_refused_for_a_dirty_tree_or_a_wrong_version() {
    if !installed(&["git"]) {
        return;
    }
    let world = repository();
    for version in [
        "",
        "1",
        "1.2",
        "1.2.3.4",
        "v1.2.3",
        "1.2.3-rc1",
        "01.2.3",
        "1.2.3\n4.5.6",
    ] {
        refused(&world, version, URL, "VERSION is X.Y.Z");
    }
    refused(&world, "0.0.1", URL, "is older than");
    for url in [
        "",
        "delta.example",
        "ftp://delta.example",
        "https://delta.example/a|b",
        "https://a b",
    ] {
        refused(&world, "9.0.0", url, "URL ");
    }
    git(&world, &["tag", "v9.0.0"]);
    refused(&world, "9.0.0", URL, "a tag v9.0.0");
    world.write("repository/note", "");
    refused(
        &world,
        "9.0.1",
        URL,
        "the tree is dirty; commit or remove: note",
    );
    world.write(
        "repository/CHANGELOG.md",
        "# Changelog\n\n## Unreleased\n\n## 9.9.9 - 2026-01-01\n",
    );
    commit(&world);
    refused(&world, "9.9.9", URL, "do not name one version");
}

#[test]
fn a_release_without_entries_or_with_a_date_is_refused() {
    if !installed(&["git"]) {
        return;
    }
    let world = repository();
    let version = env!("CARGO_PKG_VERSION");
    let heading = format!("# Changelog\n\n## Unreleased\n\n## {version} - 2026-01-01\n\n- First\n");
    world.write("repository/CHANGELOG.md", &heading);
    commit(&world);
    refused(&world, version, URL, "it has been released");
    refused(&world, "9.0.0", URL, "nothing under Unreleased");
    let undated = format!("# Changelog\n\n## Unreleased\n\n- Late\n\n## {version}\n\n- First\n");
    world.write("repository/CHANGELOG.md", &undated);
    commit(&world);
    refused(&world, version, URL, "has lines under Unreleased");
}

#[test]
fn a_dry_run_makes_the_files_of_a_release_and_leaves_the_repository_as_it_was() {
    if !installed(&["git", "sha256sum"]) {
        return;
    }
    let world = repository();
    let old = env!("CARGO_PKG_VERSION");
    let log =
        format!("# Changelog\n\n## Unreleased\n\n- A change\n\n## {old} - 2026-01-01\n\n- First\n");
    world.write("repository/CHANGELOG.md", &log);
    commit(&world);
    let before = git(&world, &["rev-parse", "HEAD"]);
    let done = release(&world, "9.8.7", URL, &["--dry-run"]);
    assert!(done.status.success(), "{}", said(&done));
    assert!(
        said(&done).contains("dry run: nothing is committed"),
        "{}",
        said(&done)
    );
    assert_eq!(git(&world, &["rev-parse", "HEAD"]), before);
    assert_eq!(git(&world, &["status", "--porcelain"]), "");
    assert_eq!(git(&world, &["tag"]), "");

    let sums = world.read("out/SHA256SUMS");
    let (sum, name) = sums.trim_end().split_once("  ").unwrap();
    assert_eq!(name, "delta-engine-9.8.7.tar.gz");
    for template in ["PKGBUILD", "delta-engine.rb"] {
        let text = world.read(&format!("out/{template}"));
        assert!(text.contains(sum) && text.contains(URL), "{text}");
        assert!(text.contains("9.8.7") && !text.contains('@'), "{text}");
    }
    let entry: serde_json::Value = serde_json::from_str(&world.read("out/agent.json")).unwrap();
    assert_eq!(
        (&entry["id"], &entry["version"]),
        (&"delta".into(), &"9.8.7".into())
    );
    let binaries = entry["distribution"]["binary"].as_object().unwrap();
    assert_eq!(binaries.len(), 2);
    for (machine, binary) in binaries {
        let machine = machine.strip_prefix("linux-").unwrap();
        let name = format!("delta-engine-9.8.7-{machine}-linux");
        assert_eq!(binary["archive"], format!("{URL}/{name}.tar.gz"));
        assert_eq!(binary["cmd"], format!("./{name}/bin/delta"));
    }
    assert!(world.read("out/icon.svg").contains("currentColor"));
    assert!(
        world
            .read("out/install.sh")
            .contains(&format!("\nplace={URL}\n"))
    );
    // The same again is the same, byte for byte.
    release(&world, "9.8.7", URL, &["--dry-run"]);
    assert_eq!(world.read("out/SHA256SUMS"), sums);

    let unpacked = world.path("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xzf")
        .arg(world.path("out").join(name))
        .arg("-C")
        .arg(&unpacked);
    assert!(tar.status().unwrap().success());
    let versions = unpacked.join("delta-engine-9.8.7/packaging/versions.sh");
    let done = Command::new(versions).output().unwrap();
    assert_eq!(said(&done), "9.8.7\n");
    let log = world.read("unpacked/delta-engine-9.8.7/CHANGELOG.md");
    let head: String = log.lines().take(7).collect::<Vec<_>>().join("\n");
    assert!(
        head.starts_with("# Changelog\n\n## Unreleased\n\n## 9.8.7 - 20"),
        "{log}"
    );
    assert!(head.ends_with("\n\n- A change"), "{log}");
}

#[test]
fn a_release_whose_tag_cannot_be_made_changes_nothing() {
    if !installed(&["git", "sha256sum"]) {
        return;
    }
    let world = repository();
    let before = git(&world, &["rev-parse", "HEAD"]);
    let fails = || {
        let done = release(&world, env!("CARGO_PKG_VERSION"), URL, &[]);
        assert!(!done.status.success(), "{}", said(&done));
        assert_eq!(git(&world, &["rev-parse", "HEAD"]), before);
        assert_eq!(git(&world, &["tag"]), "");
    };
    git(&world, &["config", "tag.gpgSign", "true"]);
    git(&world, &["config", "gpg.program", "false"]);
    fails();
    git(&world, &["config", "tag.gpgSign", "false"]);
    world.write("repository/.git/index.lock", "");
    fails();
}

#[test]
fn programs_of_another_version_are_not_packed() {
    let world = World::unasked();
    world.script("bin/delta", "#!/bin/sh\necho delta 0.0.1\n");
    let packed = || {
        let done = Command::new(project("packaging/tarball.sh"))
            .args([world.path("bin"), world.path("out")])
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(1), "{}", said(&done));
        assert_eq!(files_below(&world.path("out")), Vec::<PathBuf>::new());
        said(&done)
    };
    assert!(packed().contains("there is no "));
    world.write("bin/THIRD-PARTY", "licences\n");
    assert!(packed().contains("is 'delta 0.0.1'; Cargo.toml has"));
}

#[test]
fn the_licences_of_all_crates_are_printed() {
    let world = World::unasked();
    let licences = |cargo: &str| {
        Command::new(project("packaging/licenses.sh"))
            .arg(world.path("out/THIRD-PARTY"))
            .env("CARGO", cargo)
            .env("CARGO_NET_OFFLINE", "true")
            .env("CARGO_TERM_COLOR", "always")
            .output()
            .unwrap()
    };
    assert!(!licences("false").status.success());
    assert_eq!(files_below(&world.path("out")), Vec::<PathBuf>::new());
    let done = licences(env!("CARGO"));
    assert!(done.status.success(), "{}", said(&done));
    let text = world.read("out/THIRD-PARTY");
    assert!(!text.contains('\u{1b}'), "{text}");
    let lock = fs::read_to_string(project("Cargo.lock")).unwrap();
    for (name, words) in [
        ("ring", "Permission to use, copy, modify, and/or distribute"),
        // Of code within ring, and of data within regex-syntax.
        ("ring", "the fiat-crypto authors"),
        ("regex-syntax", "UNICODE, INC. LICENSE AGREEMENT"),
        ("serde_json", "Permission is hereby granted, free of charge"),
    ] {
        let (_, rest) = lock
            .split_once(&format!("name = \"{name}\"\nversion = \""))
            .unwrap();
        let line = format!("\n{name} {} (", rest.split('"').next().unwrap());
        assert!(text.contains(&line) && text.contains(words), "{line}");
    }
    assert!(!text.contains("delta-engine "), "{text}");
}

#[test]
fn a_release_is_one_commit_and_a_tag() {
    if !installed(&["git", "sha256sum"]) {
        return;
    }
    let world = repository();
    let version = env!("CARGO_PKG_VERSION");
    let log = format!("# Changelog\n\n## Unreleased\n\n## {version}\n\n- First\n");
    world.write("repository/CHANGELOG.md", &log);
    commit(&world);
    let before = git(&world, &["rev-parse", "HEAD"]);
    let done = release(&world, version, URL, &[]);
    assert!(done.status.success(), "{}", said(&done));
    assert_eq!(git(&world, &["rev-parse", "HEAD^"]), before);
    assert_eq!(
        git(&world, &["log", "-1", "--format=%s"]),
        format!("Release {version}\n")
    );
    assert_eq!(git(&world, &["describe"]), format!("v{version}\n"));
    assert_eq!(git(&world, &["status", "--porcelain"]), "");
    assert!(
        world
            .read("repository/CHANGELOG.md")
            .contains(&format!("\n## {version} - 20"))
    );
}

#[test]
fn the_crate_has_what_it_is_built_from_and_no_more() {
    if !project(".git").exists() {
        eprintln!("skipped: no repository");
        return;
    }
    let done = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "package",
            "--list",
            "--locked",
            "--offline",
            "--allow-dirty",
        ])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", said(&done));
    let list = String::from_utf8(done.stdout).unwrap();
    let list: Vec<&str> = list.lines().collect();
    for file in [
        "src/main.rs",
        "man/delta.1",
        "man/text/delta.txt",
        "examples/hello-world/agent.yaml",
        "examples/flow-triage/workflow.yaml",
        "packaging/files.sh",
        "Makefile",
        "LICENSE",
    ] {
        assert!(list.contains(&file), "{file} is not in the crate");
    }
    for file in list {
        let unwanted = ["tests/", "fuzz/", "benches/", "docs/", ".ci/", ".git"];
        assert!(!unwanted.iter().any(|it| file.starts_with(it)), "{file}");
    }
}

/// Runs a step of the action as GitHub does: inputs are variables, files take the outputs.
#[track_caller]
fn step(world: &World, step: &Value, inputs: &[(&str, &str)]) -> Output {
    let place = project("packaging/action").display().to_string();
    let mut bash = Command::new("bash");
    bash.args(["-e", "-o", "pipefail", "-c", step["run"].as_str().unwrap()])
        .env("HOME", world.home())
        .env("RUNNER_TEMP", world.path("temp"))
        .env("GITHUB_PATH", world.path("github-path"))
        .env("GITHUB_OUTPUT", world.path("github-output"))
        .current_dir(world.path("checkout"));
    let added = fs::read_to_string(world.path("github-path")).unwrap_or_default();
    let path = std::env::var("PATH").unwrap();
    bash.env("PATH", format!("{}:{path}", added.trim_end()));
    for (name, value) in step["env"].as_object().unwrap() {
        let value = value.as_str().unwrap();
        let word = value.trim_start_matches("${{ ").trim_end_matches(" }}");
        let value = match word.strip_prefix("inputs.") {
            None if word == "github.action_path" => place.as_str(),
            None => panic!("{value}"),
            Some(input) => inputs.iter().find(|(name, _)| *name == input).unwrap().1,
        };
        bash.env(name, value);
    }
    bash.output().unwrap()
}

#[test]
fn the_action_installs_delta_runs_an_agent_and_sets_its_outputs() {
    if !installed(&["bash", "jq", "sha256sum"]) {
        return;
    }
    let world = World::unasked();
    let name = format!("delta-engine-1.2.3-{}-linux", std::env::consts::ARCH);
    let delta = shell_word(Path::new(env!("CARGO_BIN_EXE_delta")));
    world.script(
        &format!("{name}/bin/delta"),
        &format!("#!/bin/sh\nexec {delta} \"$@\"\n"),
    );
    fs::create_dir(world.path("release")).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-czf")
        .arg(world.path("release").join(format!("{name}.tar.gz")));
    tar.arg("-C").arg(world.path("")).arg(&name);
    assert!(tar.status().unwrap().success());
    let mut sums = Command::new(project("packaging/sums.sh"));
    assert!(sums.arg(world.path("release")).status().unwrap().success());
    for dir in ["temp", "checkout"] {
        fs::create_dir(world.path(dir)).unwrap();
    }
    let action = fs::read_to_string(project("packaging/action/action.yml")).unwrap();
    let action = yaml::parse(&action).unwrap();
    let place = world.path("release").display().to_string();
    let agent = project("examples/hello-world").display().to_string();
    let limited = "--max-iterations\n1\n";
    let mut inputs = [
        ("from", place.as_str()),
        ("version", ""),
        ("sha256", ""),
        ("agent", agent.as_str()),
        // No shell reads it.
        (
            "task",
            "Greet $(touch injected) the world; `touch injected`",
        ),
        ("arguments", limited),
    ];
    let steps = action["runs"]["steps"].as_array().unwrap();
    let done = step(&world, &steps[0], &inputs);
    assert!(done.status.success(), "{}", said(&done));
    let done = step(&world, &steps[1], &inputs);
    assert_eq!(done.status.code(), Some(4), "{}", said(&done));
    let output = world.read("github-output");
    assert!(output.starts_with("exit-code=4\nresult<<end_"), "{output}");
    assert!(output.ends_with("\ncost=\n"), "{output}");

    fs::remove_file(world.path("github-output")).unwrap();
    assert!(world.exists("checkout/greeting.txt"));
    let error = String::from_utf8(done.stderr).unwrap();
    let (first, last) = (error.lines().next().unwrap(), error.lines().last().unwrap());
    let token = first.strip_prefix("::stop-commands::end_").unwrap();
    assert_eq!(last, format!("::end_{token}::"));

    inputs[5].1 = "--set\npricing={input: 1000000, output: 0}\n--format\ntext\n";
    let done = step(&world, &steps[1], &inputs);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    let output = world.read("github-output");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "exit-code=0");
    assert_eq!(
        lines[2],
        "I wrote a greeting of two words into greeting.txt."
    );
    assert_eq!(lines[1], format!("result<<{}", lines[3]));
    assert!(
        lines[4].starts_with("cost=") && lines[4] != "cost=",
        "{output}"
    );
    assert!(!world.exists("checkout/injected"));

    fs::remove_file(world.path("github-output")).unwrap();
    inputs[5].1 = "--no-such-option\n";
    let done = step(&world, &steps[1], &inputs);
    assert_eq!(done.status.code(), Some(2), "{}", said(&done));
    let output = world.read("github-output");
    assert!(output.starts_with("exit-code=2\nresult<<end_"), "{output}");
    assert!(output.ends_with("\ncost=\n"), "{output}");
    for (name, output) in action["outputs"].as_object().unwrap() {
        assert_eq!(
            output["value"],
            format!("${{{{ steps.run.outputs.{name} }}}}")
        );
    }
}

#[test]
fn scripts_and_templates_of_packages_are_clean() {
    let mut scripts: Vec<PathBuf> = files_below(&project("packaging"));
    let is_script = |file: &PathBuf| {
        fs::read(file).is_ok_and(|it| it.starts_with(b"#!") && !it.starts_with(b"#!/usr/bin/make"))
    };
    scripts.retain(is_script);
    for script in &scripts {
        let text = fs::read_to_string(script).unwrap();
        assert!(
            text.contains("\nset -e") || text.lines().count() < 5,
            "{}",
            script.display()
        );
        assert!(!text.contains("sudo"), "{}", script.display());
    }
    if installed(&["shellcheck"]) {
        let done = Command::new("shellcheck").args(&scripts).output().unwrap();
        assert!(done.status.success(), "{}", said(&done));
    }
    for (program, flags, file) in [
        ("nix-instantiate", "--parse", "flake.nix"),
        ("ruby", "-c", "packaging/templates/delta-engine.rb"),
        ("bash", "-n", "packaging/templates/PKGBUILD"),
    ] {
        if installed(&[program]) {
            let done = Command::new(program)
                .arg(flags)
                .arg(project(file))
                .output()
                .unwrap();
            assert!(done.status.success(), "{}", said(&done));
        }
    }
}
