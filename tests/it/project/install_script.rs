//! `packaging/install.sh`, from tarballs of `packaging/tarball.sh` on a scripted server.

use crate::harness::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn project(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn said(done: &Output) -> String {
    let text = [&done.stdout[..], &done.stderr[..]].concat();
    String::from_utf8(text).unwrap()
}

/// A release in the directory `release`: a small program that starts that of this build.
#[track_caller]
fn release(world: &World) -> String {
    let delta = shell_word(Path::new(env!("CARGO_BIN_EXE_delta")));
    let script = format!("#!/bin/bash\nexec -a \"$0\" {delta} \"$@\"\n");
    world.script("bin/delta", &script);
    world.write("bin/THIRD-PARTY", "licences\n");
    let done = Command::new(project("packaging/tarball.sh"))
        .args([world.path("bin"), world.path("release")])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", said(&done));
    let name = String::from_utf8(done.stdout).unwrap();
    name.trim().rsplit_once('/').unwrap().1.to_owned()
}

/// A small release in the directory `release`: a program and a file.
fn small_release(world: &World) -> String {
    let name = format!("delta-engine-1.2.3-{}-linux", std::env::consts::ARCH);
    world.script(
        &format!("{name}/bin/delta"),
        "#!/bin/sh\necho delta 1.2.3\n",
    );
    world.write(&format!("{name}/share/doc/delta-engine/README.md"), "");
    fs::create_dir(world.path("release")).unwrap();
    let tarball = format!("{name}.tar.gz");
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(world.path("release").join(&tarball));
    tar.arg("-C").arg(world.path("")).arg(&name);
    assert!(tar.status().unwrap().success());
    let mut sums = Command::new(project("packaging/sums.sh"));
    assert!(sums.arg(world.path("release")).status().unwrap().success());
    tarball
}

/// Serves the files of the directory `release` as `/v1/NAME`.
fn serve(world: &World) -> String {
    let dir = world.path("release");
    world.server.accepts_anything().answers(move |request| {
        let path = request.line.split(' ').nth(1).unwrap();
        let name = path.strip_prefix("/v1/").unwrap();
        match fs::read(dir.join(name)) {
            Ok(bytes) => raw(bytes).then_closes(),
            Err(_) => raw("no such file").status(404).then_closes(),
        }
    });
    world.server.url()
}

fn script(world: &World, args: &[&str]) -> Output {
    Command::new("sh")
        .arg(project("packaging/install.sh"))
        .args(args)
        .env("HOME", world.home())
        .env("NO_PROXY", "*")
        .output()
        .unwrap()
}

#[test]
fn the_script_installs_a_release_that_works_and_removes_all_of_it() {
    if !installed(&["curl", "sha256sum"]) {
        return;
    }
    let world = World::unasked();
    release(&world);
    let place = serve(&world);
    let done = script(&world, &["--from", &place]);
    let version = env!("CARGO_PKG_VERSION");
    let prefix = world.home().join(".local");
    let expected = format!("installed delta {version} in {}\n", prefix.display());
    assert!(
        done.status.success() && said(&done).starts_with(&expected),
        "{}",
        said(&done)
    );
    assert!(
        said(&done).contains("/.local/bin is not in PATH"),
        "{}",
        said(&done)
    );

    let smoke = Command::new(project("packaging/smoke.sh"))
        .arg(prefix.join("share/doc/delta-engine/examples"))
        .env(
            "PATH",
            format!(
                "{}/bin:{}",
                prefix.display(),
                std::env::var("PATH").unwrap()
            ),
        )
        .output()
        .unwrap();
    assert!(smoke.status.success(), "{}", said(&smoke));
    assert_eq!(said(&smoke), format!("smoke: ok, delta {version}\n"));

    // Over what is there and may be running, and with a file of a version that had more.
    let list = prefix.join("lib/delta-engine/installed");
    let gone = prefix.join("share/doc/delta-engine/gone/old.txt");
    fs::create_dir(gone.parent().unwrap()).unwrap();
    fs::write(&gone, "").unwrap();
    let text = fs::read_to_string(&list).unwrap();
    let gone_lines = "share/doc/delta-engine/gone/\nshare/doc/delta-engine/gone/old.txt\n";
    fs::write(&list, format!("{text}{gone_lines}")).unwrap();
    let running = [
        "bin/delta",
        "share/doc/delta-engine/examples/hello-world/demo.sh",
    ];
    let again = replaces(&running.map(|file| prefix.join(file)), || {
        script(&world, &["--from", &place, "--version", version])
    });
    assert!(again.status.success(), "{}", said(&again));
    assert!(!gone.parent().unwrap().exists());

    let own = prefix.join("share/doc/own.txt");
    fs::write(&own, "").unwrap();
    let removed = script(&world, &["--uninstall"]);
    assert!(removed.status.success(), "{}", said(&removed));
    assert_eq!(files_below(&prefix), std::slice::from_ref(&own));
    // Without it, not even the directory is left.
    fs::remove_dir_all(&prefix).unwrap();
    script(&world, &["--from", &place]);
    assert!(script(&world, &["--uninstall"]).status.success());
    assert!(!prefix.exists());
    let nothing = script(&world, &["--uninstall"]);
    assert_eq!(nothing.status.code(), Some(1));
}

#[test]
fn a_list_of_files_that_leads_out_of_the_prefix_removes_nothing_there() {
    let world = World::unasked();
    world.write("keep.txt", "");
    let outside = world.path("keep.txt").display().to_string();
    let lines = format!("{outside}\n../keep.txt\nshare/../../keep.txt\n../\n");
    world.write("prefix/lib/delta-engine/installed", lines);
    let prefix = world.path("prefix").display().to_string();
    let done = script(&world, &["--uninstall", "--prefix", &prefix]);
    assert!(done.status.success(), "{}", said(&done));
    assert!(world.exists("keep.txt"));
}

#[test]
fn a_release_with_a_wrong_checksum_is_not_installed() {
    if !installed(&["curl", "sha256sum"]) {
        return;
    }
    let world = World::unasked();
    let name = small_release(&world);
    let place = serve(&world);
    let pinned = script(&world, &["--from", &place, "--sha256", &"0".repeat(64)]);
    let tarball = world.path("release").join(&name);
    let mut bytes = fs::read(&tarball).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&tarball, bytes).unwrap();
    let damaged = script(&world, &["--from", &place]);
    fs::remove_file(&tarball).unwrap();
    let missing = script(&world, &["--from", &place]);
    let other = script(&world, &["--from", &place, "--version", "9.9.9"]);
    world.write("release/SHA256SUMS", "no checksums\n");
    let empty = script(&world, &["--from", &place]);
    for (done, words) in [
        (pinned, "nothing was installed"),
        (damaged, "nothing was installed"),
        (missing, "cannot get"),
        (other, "has no delta 9"),
        (empty, "has no delta for"),
    ] {
        assert_eq!(done.status.code(), Some(1), "{}", said(&done));
        assert!(said(&done).contains(words), "{words}: {}", said(&done));
    }
    assert!(!world.home().join(".local").exists());
}

#[test]
fn files_of_another_program_stay() {
    let world = World::unasked();
    small_release(&world);
    let release = world.path("release").display().to_string();
    for place in ["bin/delta", "share/doc/delta-engine/README.md"] {
        let other = world.script(&format!("home/.local/{place}"), "#!/bin/sh\necho a pager\n");
        let prefix = world.path("home/.local").display().to_string();
        let done = script(&world, &["--from", &release, "--prefix", &prefix]);
        assert_eq!(done.status.code(), Some(1), "{}", said(&done));
        let words = format!("/.local/{place} is another program's");
        assert!(said(&done).contains(&words), "{}", said(&done));
        assert_eq!(
            files_below(Path::new(&prefix)),
            std::slice::from_ref(&other)
        );
        fs::remove_file(&other).unwrap();
        std::os::unix::fs::symlink("nowhere", &other).unwrap();
        let dangling = script(&world, &["--from", &release, "--prefix", &prefix]);
        assert!(said(&dangling).contains(&words), "{}", said(&dangling));
        fs::remove_file(&other).unwrap();
    }
}

#[test]
fn an_installation_that_failed_says_so_and_can_be_repeated_or_removed() {
    let world = World::unasked();
    small_release(&world);
    let release = world.path("release").display().to_string();
    let prefix = world.home().join(".local");
    assert!(script(&world, &["--from", &release]).status.success());
    let in_the_way = prefix.join("bin/delta.new");
    fs::create_dir(&in_the_way).unwrap();
    let failed = script(&world, &["--from", &release]);
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    let text = said(&failed);
    assert!(
        text.contains("not all is installed; run it again"),
        "{text}"
    );
    assert!(!text.contains("\ninstalled"), "{text}");

    let stuck = script(&world, &["--uninstall"]);
    assert_eq!(stuck.status.code(), Some(1), "{}", said(&stuck));
    assert!(said(&stuck).contains("not all files"), "{}", said(&stuck));
    fs::remove_dir(&in_the_way).unwrap();
    let removed = script(&world, &["--uninstall"]);
    assert!(removed.status.success(), "{}", said(&removed));
    assert_eq!(files_below(&prefix), Vec::<PathBuf>::new());
    assert!(!prefix.join("lib").exists());

    assert!(script(&world, &["--from", &release]).status.success());
    // What a kill between a copy and its rename leaves.
    fs::write(&in_the_way, "half").unwrap();
    let again = script(&world, &["--from", &release]);
    assert!(again.status.success(), "{}", said(&again));
    fs::write(&in_the_way, "half").unwrap();
    assert!(script(&world, &["--uninstall"]).status.success());
    assert_eq!(files_below(&prefix), Vec::<PathBuf>::new());
}

#[test]
fn a_list_that_cannot_be_written_leaves_nothing() {
    let world = World::unasked();
    small_release(&world);
    let release = world.path("release").display().to_string();
    let prefix = world.home().join(".local");
    let list = prefix.join("lib/delta-engine/installed");
    fs::create_dir_all(list.with_extension("new")).unwrap();
    let failed = script(&world, &["--from", &release]);
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    assert!(!said(&failed).contains("not all"), "{}", said(&failed));
    fs::remove_dir(list.with_extension("new")).unwrap();
    assert_eq!(files_below(&prefix), Vec::<PathBuf>::new());
    // Zeros, as after a power cut.
    assert!(script(&world, &["--from", &release]).status.success());
    let lines = fs::read(&list).unwrap();
    fs::write(&list, [b"\0\0\0\n", &lines[..]].concat()).unwrap();
    assert!(script(&world, &["--uninstall"]).status.success());
    assert_eq!(files_below(&prefix), Vec::<PathBuf>::new());
}

#[test]
fn what_is_fetched_by_https_is_not_redirected_to_plain_http() {
    let world = World::unasked();
    let fetched = "#!/bin/sh\necho \"${0##*/} $*\" >> \"$HOME/fetched\"\nexit 1\n";
    for (program, expected) in [
        ("curl", "curl -fsSL --proto =https --retry"),
        ("wget", "wget -q --max-redirect=0 -O"),
    ] {
        let own = format!("{program}-only");
        let found = world.script(&format!("{own}/{program}"), fetched);
        for tool in ["sh", "mktemp", "rm", "uname", "sed", "env"] {
            let real = std::env::split_paths("/usr/bin:/bin").map(|dir| dir.join(tool));
            let real = real.into_iter().find(|it| it.exists()).unwrap();
            std::os::unix::fs::symlink(real, found.with_file_name(tool)).unwrap();
        }
        let done = Command::new("sh")
            .arg(project("packaging/install.sh"))
            .args(["--from", "https://delta.example/releases"])
            .env("HOME", world.path(""))
            .env("PATH", found.parent().unwrap())
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(1), "{}", said(&done));
        let line = world.read("fetched");
        assert!(line.lines().last().unwrap().starts_with(expected), "{line}");
    }
}

#[test]
fn a_script_that_was_cut_off_does_nothing() {
    let world = World::unasked();
    let text = fs::read_to_string(project("packaging/install.sh")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.last(), Some(&"main \"$@\""));
    for length in 0..lines.len() {
        let part = world.write("part.sh", lines[..length].join("\n"));
        let done = Command::new("sh")
            .arg(part)
            .args(["--from", "/nonexistent"])
            .env("HOME", world.home())
            .output()
            .unwrap();
        assert!(!said(&done).contains("cannot"), "{length}: {}", said(&done));
        assert!(done.stdout.is_empty(), "{length}: {}", said(&done));
    }
    assert!(!world.home().join(".local").exists());
}

#[test]
fn wrong_arguments_are_refused() {
    let world = World::unasked();
    for args in [
        &["--prefix", "usr"][..],
        &["--prefix"],
        &["--version", "1;2"],
        &["--version", ""],
        &["--sha256", ""],
        &["--sha256", "1234"],
        &["--other"],
        &[],
    ] {
        let done = script(&world, args);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {}", said(&done));
        assert!(said(&done).starts_with("install.sh: "), "{}", said(&done));
    }
}

#[test]
fn programs_that_need_libraries_make_no_tarball() {
    if !installed(&["ldd"]) {
        return;
    }
    let world = World::unasked();
    world.write("bin/THIRD-PARTY", "licences\n");
    fs::create_dir(world.path("none")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_delta"), world.path("bin/delta")).unwrap();
    for (bin, words) in [("bin", "shared libraries"), ("none", "there is no")] {
        let done = Command::new(project("packaging/tarball.sh"))
            .arg(world.path(bin))
            .arg(world.path("out"))
            .output()
            .unwrap();
        assert!(!done.status.success(), "{}", said(&done));
        assert!(said(&done).contains(words), "{}", said(&done));
    }
    assert_eq!(files_below(&world.path("out")), Vec::<PathBuf>::new());
}
