//! The modules are listed from the bottom up, and each uses only those above it in the list.

use crate::harness::files_below;
use std::fs;
use std::path::{Path, PathBuf};

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The modules of a file, in the order in which it lists them.
fn modules(source: &str) -> Vec<String> {
    let name = |line: &str| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned())
    };
    source.lines().filter_map(name).collect()
}

/// The files of a top-level module: its own and those of its submodules.
fn files(src: &Path, module: &str) -> Vec<PathBuf> {
    let mut found = files_below(&src.join(module));
    found.push(src.join(format!("{module}.rs")));
    found.retain(|path| path.is_file());
    found
}

/// The names that follow `crate::`, also in braces; without the unit tests at the end of a file.
fn used(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join("\n");
    let name = |text: &str| -> String {
        let text = text.trim_start();
        text.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let mut found = Vec::new();
    for after in code.split("crate::").skip(1) {
        let Some(list) = after.strip_prefix('{') else {
            found.push(name(after));
            continue;
        };
        let mut depth = 0;
        let mut item = true;
        for (at, character) in list.char_indices() {
            match character {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => item = true,
                c if item && c.is_alphabetic() => {
                    found.push(name(&list[at..]));
                    item = false;
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn each_module_uses_only_those_above_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let listed = modules(&read(&src.join("lib.rs")));
    assert!(!listed.is_empty());
    let mut wrong = Vec::new();
    for (at, module) in listed.iter().enumerate() {
        let files = files(&src, module);
        assert!(!files.is_empty(), "{module} has no file");
        for file in files {
            for name in used(&read(&file)) {
                // A name that is no module is something that lib.rs itself defines.
                if listed
                    .iter()
                    .position(|other| *other == name)
                    .is_some_and(|there| there > at)
                {
                    wrong.push(format!(
                        "{} uses {name}, which is below {module}",
                        file.display()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_map_names_every_module() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = read(&root.join("ARCHITECTURE.md"));
    let map: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
    let names = |rows: &str| -> Vec<String> {
        let words = rows.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.map(str::to_owned).collect()
    };
    let own = names(&map.join("\n"));
    let flow = map.iter().find(|row| row.starts_with("| `delta-flow`"));
    let flow = names(flow.expect("a row for delta-flow"));
    let of = |file: &str| modules(&read(&root.join("src").join(file)));
    let missing: Vec<String> = of("lib.rs")
        .into_iter()
        .filter(|name| !own.contains(name))
        .chain(
            of("flow.rs")
                .into_iter()
                .filter(|name| !flow.contains(name)),
        )
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn uses_are_found_in_every_form() {
    let source = "use crate::error::{At, Error};\nuse crate::{files, journal::{self, Event}, ids};\n\
                  // crate::comment\nfn f() { crate::sys::now() }\n#[cfg(test)]\nmod tests { use crate::below; }";
    assert_eq!(used(source), ["error", "files", "journal", "ids", "sys"]);
    assert_eq!(
        modules("pub mod a;\nmod b;\npub use c::d;\nmod tests {"),
        ["a", "b"]
    );
}
