//! `make install`, `make uninstall` and `make deb`, with the programs of this build.

use crate::harness::*;
use delta_engine::text::manual::{PAGES, Page};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether a program is there; who reads the test's output is told if it is not.
fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if !there {
        eprintln!("skipped: {program} is not installed");
    }
    there
}

/// `make` with what is built already.
#[track_caller]
fn make(args: &[&str]) {
    let bin = Path::new(env!("CARGO_BIN_EXE_delta")).parent().unwrap();
    let done = Command::new("make")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .arg("-s")
        .args(["CARGO=true", &format!("BIN={}", bin.display())])
        .args(args)
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .env_remove("DEBEMAIL")
        .env_remove("DEBFULLNAME")
        // The programs of this build are large, and nobody keeps the package.
        .env("DPKG_DEB_COMPRESSOR_LEVEL", "0")
        .output()
        .unwrap();
    assert!(done.status.success(), "make {args:?}: {done:?}");
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// The files below a directory, by their paths from it.
fn files(root: &Path) -> BTreeSet<String> {
    let relative = |path: PathBuf| {
        path.strip_prefix(root)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    files_below(root).into_iter().map(relative).collect()
}

fn mode(file: &Path) -> u32 {
    file.metadata().unwrap().permissions().mode() & 0o777
}

/// All examples are in a directory, without what running them created.
#[track_caller]
fn has_the_examples(dir: &Path) {
    let own = |file: &String| !file.contains("/.") && !file.contains("/workspaces/");
    for file in files(&source()).into_iter().filter(own) {
        let is_program = mode(&source().join(&file)) & 0o100 != 0;
        let expected = if is_program { 0o755 } else { 0o644 };
        assert_eq!(mode(&dir.join(&file)), expected, "{file}");
    }
}

#[test]
fn install_puts_everything_in_its_place_and_uninstall_removes_exactly_that() {
    if !has("make") {
        return;
    }
    let world = World::unasked();
    let other = "stage/usr/share/man/man1/other.1";
    world.write(other, "somebody else's");
    world.write("stage/usr/share/doc/delta-engine/note", "somebody's own");
    let stage = world.path("stage");
    let before = files(&stage);
    let to = format!("DESTDIR={}", stage.display());
    make(&["install", &to, "PREFIX=/usr"]);
    let mut expected: Vec<String> = PAGES
        .iter()
        .map(|page| {
            let Page { section, .. } = page;
            format!("usr/share/man/man{section}/{}.{section}", page.full_name())
        })
        .collect();
    expected.extend(
        [
            "usr/bin/delta",
            "usr/bin/delta-flow",
            "usr/bin/delta-sessions",
            "usr/share/bash-completion/completions/delta",
            "usr/share/bash-completion/completions/delta-flow",
            "usr/share/bash-completion/completions/delta-sessions",
            "usr/share/zsh/site-functions/_delta",
            "usr/share/fish/vendor_completions.d/delta.fish",
            "usr/share/fish/vendor_completions.d/delta-flow.fish",
            "usr/share/fish/vendor_completions.d/delta-sessions.fish",
            "usr/share/doc/delta-engine/README.md",
            "usr/share/doc/delta-engine/CHANGELOG.md",
            "usr/share/doc/delta-engine/LICENSE",
        ]
        .map(str::to_owned),
    );
    let after = files(&stage);
    has_the_examples(&stage.join("usr/share/doc/delta-engine/examples"));
    for file in expected {
        assert!(after.contains(&file), "{file} is not in {after:#?}");
    }
    for file in after.difference(&before) {
        let known = ["usr/bin/", "usr/share/man/", "usr/share/doc/delta-engine/"];
        let known = known.iter().any(|place| file.starts_with(place));
        assert!(
            known || file.contains("complet") || file.contains("zsh"),
            "{file}"
        );
        let mode = mode(&stage.join(file));
        let program = file.starts_with("usr/bin/") || mode == 0o755;
        assert_eq!(mode, if program { 0o755 } else { 0o644 }, "{file}");
    }
    let version = succeeds(Command::new(stage.join("usr/bin/delta")).arg("-V"));
    assert_eq!(version, format!("delta {}\n", env!("CARGO_PKG_VERSION")));
    let readme = world.read("stage/usr/share/doc/delta-engine/README.md");
    assert!(readme.starts_with("# delta\n") && readme.ends_with("MIT license.\n"));
    assert!(!readme.contains("<picture>"));
    let links = readme
        .split("](")
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap());
    let links: Vec<&str> = links.filter(|link| !link.starts_with("https://")).collect();
    assert!(links.contains(&"examples/README.md"), "{links:?}");
    let dead = links
        .iter()
        .filter(|link| !world.exists(&format!("stage/usr/share/doc/delta-engine/{link}")));
    assert_eq!(dead.count(), 0, "{links:?}");
    let demo = stage.join("usr/share/doc/delta-engine/examples/hello-world/demo.sh");
    succeeds(Command::new(demo).arg(stage.join("usr/bin/delta")));
    // Over what is there, and may be running.
    let running = [
        "usr/bin/delta",
        "usr/share/doc/delta-engine/examples/hello-world/demo.sh",
    ];
    replaces(&running.map(|file| stage.join(file)), || {
        make(&["install", &to, "PREFIX=/usr"]);
    });
    assert_eq!(files(&stage), after);
    make(&["uninstall", &to, "PREFIX=/usr"]);
    assert_eq!(files(&stage), before);
    assert!(!world.exists("stage/usr/share/doc/delta-engine/examples"));
}

#[test]
fn install_needs_no_cargo_and_names_make_where_nothing_is_built() {
    if !has("make") {
        return;
    }
    let world = World::unasked();
    let stage = world.path("stage");
    let bin = Path::new(env!("CARGO_BIN_EXE_delta")).parent().unwrap();
    let install = |bin: &Path| {
        // As a command of root's: an environment of its own, without cargo.
        Command::new("make")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .args(["-s", "install", "CARGO=false", "PREFIX=/usr"])
            .arg(format!("BIN={}", bin.display()))
            .arg(format!("DESTDIR={}", stage.display()))
            .output()
            .unwrap()
    };
    let empty = install(&world.path("nothing"));
    let said = String::from_utf8_lossy(&empty.stderr).into_owned();
    assert!(!empty.status.success() && !stage.exists(), "{empty:?}");
    assert!(said.contains("run make first"), "{said}");
    let done = install(bin);
    assert!(done.status.success(), "{done:?}");
    succeeds(Command::new(stage.join("usr/bin/delta")).arg("-V"));
}

#[test]
fn what_is_installed_under_a_strict_umask_can_be_read_by_all() {
    if !has("make") {
        return;
    }
    let world = World::unasked();
    let stage = world.path("stage");
    let bin = Path::new(env!("CARGO_BIN_EXE_delta")).parent().unwrap();
    let done = Command::new("sh")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["-c", "umask 077; exec make -s install \"$@\"", "sh"])
        .args(["CARGO=false", "PREFIX=/usr", "NAME=agents"])
        .arg(format!("BIN={}", bin.display()))
        .arg(format!("DESTDIR={}", stage.display()))
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    for file in files_below(&stage) {
        assert_eq!(mode(&file) & 0o444, 0o444, "{}", file.display());
        for dir in file.ancestors().skip(1).take_while(|dir| *dir != stage) {
            assert_eq!(mode(dir), 0o755, "{}", dir.display());
        }
    }
}

#[test]
fn under_another_name_it_leaves_delta_to_others_and_is_delta_to_its_tools() {
    if !has("make") {
        return;
    }
    let world = World::with_tools("- {name: version, exec: delta -V}");
    world.script("others/delta", "#!/bin/sh\necho a pager for diffs\n");
    let prefix = world.path("it's mine");
    let to = [
        format!("PREFIX={}", prefix.display()),
        "NAME=agents".to_owned(),
    ];
    make(&["install", &to[0], &to[1]]);
    assert!(!world.exists("it's mine/bin/delta"));
    assert!(world.exists("it's mine/share/man/man1/agents.1"));
    assert!(!world.exists("it's mine/share/man/man1/delta.1"));
    let path = format!(
        "{}:{}:{}",
        world.path("others").display(),
        prefix.join("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let command = |program: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", program]).env("PATH", &path);
        command.env("HOME", world.home()).current_dir(world.home());
        command
    };
    assert_eq!(succeeds(&mut command("delta -V")), "a pager for diffs\n");
    let ours = format!("delta {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(succeeds(&mut command("agents -V")), ours);
    world.write(
        "flow/workflow.yaml",
        "nodes:\n- {id: in, kind: deterministic, role: start, context: none, default_start: true}\n\
         - {id: who, kind: deterministic, role: linear, context: none, command: [delta, -V], output: text}\n\
         - {id: out, kind: deterministic, role: exit, context: none}\n\
         edges: [{from: in, to: who}, {from: who, to: out}]\n",
    );
    for flow in ["delta-flow", "agents-flow", "agents flow"] {
        let said = succeeds(&mut command(&format!("{flow} run flow -w 'ws {flow}'")));
        assert!(said.contains(ours.trim_end()), "{flow}: {said}");
    }
    world.model_says([call("c", "version", &serde_json::json!({})), text("done")]);
    let run = "agents run -a agent -w ws -m go";
    assert_eq!(succeeds(&mut command(run)), "done\n");
    assert_eq!(world.server.last().observation("c"), ours);
    // Its exit status and its arguments are its own.
    let done = command("agents check 'a  b'").output().unwrap();
    assert_eq!(done.status.code(), Some(78), "{done:?}");
    if has("bash") {
        let script = "source \"it's mine/share/bash-completion/completions/agents\"
            ! complete -p delta 2> /dev/null || exit
            complete -p agents agents-flow agents-sessions delta-flow delta-sessions > /dev/null || exit
            COMP_WORDS=(agents ru) COMP_CWORD=1
            _delta_engine; echo \"${COMPREPLY[@]}\"";
        let script = format!("bash -c '{}'", script.replace('\'', "'\\''"));
        assert_eq!(succeeds(&mut command(&script)), "run\n");
    }
    make(&["uninstall", &to[0], &to[1]]);
    assert_eq!(files(&prefix), BTreeSet::new());
    assert!(!world.exists("it's mine/lib/delta-engine"));
}

#[test]
fn a_name_or_a_prefix_that_would_go_elsewhere_is_refused() {
    if !has("make") {
        return;
    }
    let name = "NAME is letters";
    let prefix = "PREFIX is an absolute path";
    for (given, why) in [
        (["NAME=../x", ""], name),
        (["NAME=", ""], name),
        (["NAME=.x", ""], name),
        (["NAME=a b", ""], name),
        (["NAME=a'b", ""], name),
        (["PREFIX=usr", ""], prefix),
        (["PREFIX=", ""], prefix),
        (["PREFIX=~/.local", ""], prefix),
        (["PREFIX=./a 'b", ""], prefix),
        (["PREFIX=/a:b", "NAME=x"], "cannot have a colon"),
    ] {
        for verb in ["install", "uninstall"] {
            let done = Command::new("make")
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .args(["-s", verb, "CARGO=true", "DESTDIR=/nonexistent"])
                .args(given.iter().filter(|word| !word.is_empty()))
                .output()
                .unwrap();
            assert!(!done.status.success(), "{given:?}");
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(said.starts_with("make: ") && said.contains(why), "{said}");
        }
    }
    assert!(!Path::new("/nonexistent").exists());
}

#[test]
fn a_static_build_that_is_not_possible_says_what_is_missing() {
    if !has("make") {
        return;
    }
    let world = World::unasked();
    let libraries = world.path("libraries");
    for (there, missing) in [(false, "rustup target add"), (true, "musl-tools")] {
        let rustc = format!("#!/bin/sh\necho '{}'\n", libraries.display());
        world.script("bin/rustc", &rustc);
        if there {
            fs::create_dir(&libraries).unwrap();
        }
        let make = succeeds(Command::new("sh").args(["-c", "command -v make"]));
        let done = Command::new(make.trim())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args([
                "-s",
                "static",
                "CARGO=false",
                "SHELL=/bin/sh",
                "MUSL=some-linux-musl",
            ])
            .env("PATH", world.path("bin"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && said.contains(missing), "{said}");
    }
}

#[track_caller]
fn passes_lintian(package: &Path) {
    if !has("dpkg-shlibdeps") || !has("lintian") {
        return;
    }
    let mut lintian = Command::new("lintian");
    // man/check.sh looks at the pages, in less time.
    lintian.args(["--fail-on", "error,warning", "-X", "documentation/manual"]);
    lintian.arg(package);
    let bin = Path::new(env!("CARGO_BIN_EXE_delta")).parent().unwrap();
    if bin.ends_with("debug") {
        // Only debug builds are linked at fixed addresses.
        lintian.args(["--suppress-tags", "hardening-no-pie"]);
    }
    succeeds(&mut lintian);
}

#[test]
fn the_debian_package_has_no_errors_installs_and_goes_again() {
    if !has("make") || !has("dpkg-deb") || !has("dpkg") {
        return;
    }
    let world = World::unasked();
    let out = world.path("out");
    // A directory of its own: the package's licences are written beside the program.
    let bin = world.path("bin");
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_delta"), bin.join("delta")).unwrap();
    let [out_is, bin_is] = [("TARGET_DIR", &out), ("BIN", &bin)]
        .map(|(name, dir)| format!("{name}={}", dir.display()));
    make(&["deb", &out_is, &bin_is]);
    let mut packages = files_below(&out.join("dist"));
    assert_eq!(packages.remove(0).file_name().unwrap(), "SHA256SUMS");
    let package = packages.remove(0);
    passes_lintian(&package);
    let field = |name: &str| {
        let done = succeeds(Command::new("dpkg-deb").arg("-f").arg(&package).arg(name));
        done.trim().to_owned()
    };
    assert_eq!(field("Package"), "delta-engine");
    assert_eq!(field("Version"), env!("CARGO_PKG_VERSION"));
    assert!(
        field("Depends").starts_with("libc6 (>= "),
        "{}",
        field("Depends")
    );
    assert_eq!(field("Conflicts"), "git-delta");

    let root = world.path("root");
    for dir in ["info", "updates", "triggers"] {
        fs::create_dir_all(root.join("var/lib/dpkg").join(dir)).unwrap();
    }
    for file in ["status", "available"] {
        world.write(&format!("root/var/lib/dpkg/{file}"), "");
    }
    let dpkg = |args: &[&str]| {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", root.display()))
            .args(["--force-not-root", "--force-depends", "--force-bad-path"])
            // The directory has no shell.
            .arg("--force-script-chrootless")
            .args(["--log=/dev/null", "--admindir"])
            .arg(root.join("var/lib/dpkg"))
            .args(args);
        succeeds(&mut dpkg);
    };
    // Its AppArmor profile is installed where AppArmor knows its rule.
    let profile = root.join("etc/apparmor.d/delta-engine");
    dpkg(&["-i", package.to_str().unwrap()]);
    assert!(!profile.exists());
    world.write("root/etc/apparmor.d/abi/4.0", "");
    dpkg(&["-i", package.to_str().unwrap()]);
    let text = fs::read_to_string(&profile).unwrap();
    assert!(
        text.contains(" /usr/bin/delta ") && text.contains("\n  userns,\n"),
        "{text}"
    );
    assert_eq!(mode(&profile), 0o644);
    let version = succeeds(Command::new(root.join("usr/bin/delta")).arg("-V"));
    let expected = format!("delta {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(version, expected);
    for page in PAGES {
        let (name, section) = (page.full_name(), page.section);
        let file = format!("root/usr/share/man/man{section}/{name}.{section}.gz");
        assert!(world.exists(&file), "{file}");
    }
    for file in [
        "bash-completion/completions/delta",
        "zsh/vendor-completions/_delta",
        "fish/vendor_completions.d/delta.fish",
        "doc/delta-engine/copyright",
        "doc/delta-engine/changelog.gz",
    ] {
        assert!(world.exists(&format!("root/usr/share/{file}")), "{file}");
    }
    let sums = root.join("var/lib/dpkg/info/delta-engine.md5sums");
    let mut check = Command::new("md5sum");
    succeeds(check.args(["--quiet", "-c"]).arg(sums).current_dir(&root));
    dpkg(&["-P", "delta-engine"]);
    assert!(!profile.exists());
    let left = files(&root.join("usr"));
    assert_eq!(left, BTreeSet::new());
}
