//! The manual as pages for a browser, and what docs/ says.

use crate::harness::*;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs the script that renders a copy of the manual, or the manual itself.
fn render(root: &Path, to: &Path) -> Output {
    Command::new("python3")
        .env("PATH", system_path())
        .arg(root.join("man/html/build.py"))
        .arg(to)
        .output()
        .unwrap()
}

#[test]
fn every_page_is_rendered_and_found_by_the_search() {
    if !installed(&["mandoc", "python3"]) {
        return;
    }
    let world = World::new();
    let to = world.path("html");
    let output = render(root(), &to);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let index = fs::read_to_string(to.join("index.html")).unwrap();
    for page in delta_engine::text::manual::PAGES {
        let file = format!("{}.{}.html", page.full_name(), page.section);
        assert!(to.join(&file).is_file(), "{file}");
        assert!(index.contains(&format!("href=\"{file}\"")), "{file}");
    }
    if let Some(opened) = open(world.home(), &to.join("index.html"), "?q=--budget") {
        opened
            .is_well()
            .shows("href=\"delta-run.1.html#budget\"")
            .shows("<b>delta-run(1), --budget");
    }
}

#[test]
fn a_link_that_leads_nowhere_fails_the_rendering() {
    if !installed(&["mandoc", "python3"]) {
        return;
    }
    let world = World::new();
    for dir in ["man/html", "docs"] {
        fs::create_dir_all(world.path(dir)).unwrap();
    }
    for file in ["build.py", "style.css", "search.js"] {
        let from = root().join("man/html").join(file);
        fs::copy(from, world.path("man/html").join(file)).unwrap();
    }
    world.write(
        "man/html/index.md",
        "# Index\n\n[here](delta-a.1.html#ONE)\n",
    );
    let page = |more: &str| {
        let text = format!(
            ".Dd May 1, 2026\n.Dt DELTA-A 1\n.Os\n.Sh NAME\n.Nm delta-a\n.Nd a page\n.Sh ONE\nText.\n{more}"
        );
        world.write("man/delta-a.1", text);
    };
    let fails_with = |message: &str| {
        let output = render(world.home(), &world.path("html"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), message.is_empty(), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    };
    page("");
    fails_with("");
    page(".Sx TWO\n");
    fails_with("delta-a.1.html: #TWO: delta-a.1.html has no such place");
    page(".Xr delta-b 5\n");
    fails_with("there is no page delta-b(5)");
    page("");
    world.write(
        "docs/more.md",
        "# More\n\n![a picture](pictures/none.svg)\n",
    );
    fails_with("more.html: pictures/none.svg: there is no such file");
    world.write("docs/more.md", "# More\n\n`delta help none`\n");
    fails_with("more.md: there is no page for: delta help none");
}

/// The command lines of delta in a page of Markdown, in code spans and after `$ ` in blocks.
fn command_lines(page: &str) -> Vec<&str> {
    let mut found: Vec<&str> = page.split('`').skip(1).step_by(2).collect();
    found.extend(page.lines().filter_map(|line| line.strip_prefix("$ ")));
    found.retain(|text| text.starts_with("delta "));
    found
}

#[test]
fn every_option_in_docs_is_an_option_of_its_command() {
    let world = World::new();
    let mut checked = 0;
    for file in files_below(&root().join("docs")) {
        if file.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = fs::read_to_string(&file).unwrap();
        for line in command_lines(&page) {
            let mut words: Vec<&str> = line.split_whitespace().skip(1).collect();
            if words[0] == "help" {
                continue;
            }
            let of_flow = words[0] == "flow" && words.len() > 1;
            let options = words.split_off(if of_flow { 2 } else { 1 });
            let help = world.delta([words, vec!["-h"]].concat()).exits(0).stdout;
            let help = String::from_utf8(help).unwrap();
            let known: BTreeSet<&str> = help.split([' ', ',', '=', '\n']).collect();
            let own = options
                .iter()
                .take_while(|word| **word != "--" && **word != "|");
            for option in own.filter(|word| word.starts_with('-') && word.len() > 1) {
                checked += 1;
                assert!(
                    known.contains(option),
                    "{}: {line}: {option}",
                    file.display()
                );
            }
        }
    }
    assert!(checked > 10, "{checked} options");
}

/// What the pictures show of a text, made by the script that makes them.
fn normal(text: &str) -> String {
    let program = "import sys; sys.path.insert(0, sys.argv[1]); from normal import Normal; \
        print(Normal({'/tmp/d0000': '/home/user'}).text(sys.argv[2]))";
    let output = Command::new("python3")
        .env("PATH", system_path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-c", program])
        .arg(root().join("docs/tools"))
        .arg(text)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn pictures_of_two_runs_of_a_command_are_the_same() {
    if !installed(&["python3"]) {
        return;
    }
    let shown = |id: &str, at: &str, took: &str, blanks: &str, total: &str| {
        format!(
            "\x1b[2mrun {id} in /tmp/d0000\x1b[0m, {at}\n[1]   ok, {took}\n\
             {id}  COMPLETED {blanks}{took}  400\n\x1b[2m{total}, 455 tokens\n"
        )
    };
    let first = normal(&shown(
        "20261121_112156_ad4c86",
        "2026-11-21 11:21:56 UTC",
        "3 ms",
        "   ",
        "12 ms",
    ));
    let second = normal(&shown(
        "20261122_235959_0e57f9",
        "2026-11-22 23:59:59 UTC",
        "214 ms",
        " ",
        "1.2 s",
    ));
    assert_eq!(first, second);
    for (of_the_machine, instead) in [
        ("20261121", "20260105_0915"),
        ("/tmp", "/home/user"),
        ("11:21", "2026-01-05 09:15:00 UTC"),
    ] {
        assert!(!first.contains(of_the_machine), "{first}");
        assert!(first.contains(instead), "{first}");
    }
}
