//! The modules of each folder are listed from the bottom up, and each uses only those above it in its list.

use std::fs;
use std::path::{Path, PathBuf};

/// Floors that must not know each other, in either direction of the lists: user, used.
const NEVER: &[(&str, &str)] = &[
    ("flow", "cli"),
    ("runs", "cli"),
    ("runs", "view"),
    ("sessions", "config"),
    ("sessions", "record"),
    ("sessions", "model"),
    ("sessions", "engine"),
    ("sessions", "runs"),
    ("sessions", "view"),
    ("sessions", "cli"),
];

/// A module: its path from the crate's root, and its file.
struct Module {
    path: Vec<String>,
    file: PathBuf,
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn source_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The modules that a file declares, in the order in which it lists them, without its unit tests.
fn declared_modules(source: &str) -> Vec<String> {
    let name = |line: &str| {
        let line = match line.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
            Some(rest) => rest.strip_prefix(' ')?,
            None => line,
        };
        Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned())
    };
    source
        .lines()
        .filter_map(name)
        .filter(|name| name != "tests")
        .collect()
}

/// A file's code without comments and without what follows its first `#[cfg(test)]`.
fn code_of(source: &str) -> String {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// A module and all modules below it.
fn collect_modules(path: &[String], file: PathBuf, found: &mut Vec<Module>) {
    let folder = if file.ends_with("mod.rs") || file.ends_with("lib.rs") {
        file.parent().expect("a folder").to_owned()
    } else {
        file.with_extension("")
    };
    for name in declared_modules(&read(&file)) {
        let flat = folder.join(format!("{name}.rs"));
        let file = if flat.is_file() {
            flat
        } else {
            folder.join(&name).join("mod.rs")
        };
        let path = [path, &[name]].concat();
        collect_modules(&path, file, found);
    }
    found.push(Module {
        path: path.to_vec(),
        file,
    });
}

fn all_modules() -> Vec<Module> {
    let mut found = Vec::new();
    collect_modules(&[], source_root().join("lib.rs"), &mut found);
    assert!(found.len() > 100, "{}", found.len());
    found
}

/// The end of the name that text begins with.
fn name_end(text: &str) -> usize {
    let outside = |c: char| !(c.is_alphanumeric() || c == '_');
    text.find(outside).unwrap_or(text.len())
}

/// Adds the paths of a use tree, `a::b::{c, d::e}`, and returns what follows the tree.
fn collect_paths<'t>(
    mut text: &'t str,
    prefix: &[&'t str],
    found: &mut Vec<Vec<String>>,
) -> &'t str {
    let mut path = prefix.to_vec();
    loop {
        text = text.trim_start();
        if let Some(mut inside) = text.strip_prefix('{') {
            loop {
                inside = inside.trim_start().trim_start_matches(',').trim_start();
                if let Some(after) = inside.strip_prefix('}') {
                    return after;
                }
                let after = collect_paths(inside, &path, found);
                if after.len() == inside.len() {
                    return after;
                }
                inside = after;
            }
        }
        let (name, after) = text.split_at(name_end(text));
        if name.is_empty() {
            break;
        }
        path.push(name);
        text = after;
        match after.strip_prefix("::") {
            Some(next) => text = next,
            None => break,
        }
    }
    found.push(path.into_iter().map(str::to_owned).collect());
    // An alias belongs to the path that it follows.
    match text.trim_start().strip_prefix("as ") {
        Some(alias) => &alias[name_end(alias)..],
        None => text.trim_start_matches('*'),
    }
}

/// The paths that a module uses, from the crate's root.
fn used_paths(module: &[String], source: &str) -> Vec<Vec<String>> {
    let code = code_of(source);
    let mut found = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if before.is_alphanumeric() || before == '_' || before == ':' {
                continue;
            }
            let mut paths = Vec::new();
            collect_paths(&code[at..], &[], &mut paths);
            found.extend(paths.into_iter().map(|path| absolute_path(module, path)));
        }
    }
    found
}

fn absolute_path(module: &[String], path: Vec<String>) -> Vec<String> {
    let mut base = module.to_vec();
    let mut rest = path.as_slice();
    while let Some((first, after)) = rest.split_first() {
        match first.as_str() {
            "crate" => base.clear(),
            "super" => drop(base.pop()),
            "self" => {}
            _ => break,
        }
        rest = after;
    }
    base.extend(rest.iter().cloned());
    base
}

/// Where two paths part, if both go on there.
fn parting<'a>(user: &'a [String], path: &'a [String]) -> Option<(usize, &'a str, &'a str)> {
    let common = user.iter().zip(path).take_while(|(a, b)| a == b).count();
    Some((common, user.get(common)?, path.get(common)?))
}

#[test]
fn each_module_uses_only_those_above_it() {
    let modules = all_modules();
    let mut wrong = Vec::new();
    for module in &modules {
        for used in used_paths(&module.path, &read(&module.file)) {
            let Some((depth, own, other)) = parting(&module.path, &used) else {
                continue;
            };
            let parent = modules
                .iter()
                .find(|parent| parent.path == module.path[..depth])
                .expect("a parent");
            let listed = declared_modules(&read(&parent.file));
            let place = |name: &str| listed.iter().position(|listed| listed == name);
            // A name that is no module is something that the parent itself defines.
            if let (Some(here), Some(there)) = (place(own), place(other))
                && there > here
            {
                wrong.push(format!(
                    "{} uses {}, which {} lists below {own}",
                    module.file.display(),
                    used.join("::"),
                    parent.file.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn floors_that_must_not_know_each_other_do_not() {
    let mut wrong = Vec::new();
    for module in all_modules() {
        let Some(floor) = module.path.first() else {
            continue;
        };
        for used in used_paths(&module.path, &read(&module.file)) {
            if NEVER
                .iter()
                .any(|(user, other)| floor == user && used.first().is_some_and(|it| it == other))
            {
                wrong.push(format!(
                    "{} uses {}",
                    module.file.display(),
                    used.join("::")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_program_ends_at_a_panic() {
    for (file, function, first, then) in [
        ("cli/main.rs", "fn main(", "run_program(", "execute("),
        ("flow/cli/main.rs", "fn main(", "run_program(", "execute("),
        (
            "unix/defect.rs",
            "fn run_program(",
            "exit_at_panic(",
            "run()",
        ),
        ("sessions/cli.rs", "fn main(", "exit_at_panic(", "execute("),
    ] {
        let source = read(&source_root().join(file));
        let body = source.split_once(function).unwrap().1;
        let body = body.split_once("\n}\n").unwrap().0;
        assert_eq!(body.matches(first).count(), 1, "{file}");
        assert!(body.find(first) < body.find(then), "{file}");
    }
}

#[test]
fn every_file_of_the_source_is_a_module_that_is_listed() {
    let listed: Vec<PathBuf> = all_modules().into_iter().map(|it| it.file).collect();
    let mut unlisted = crate::harness::files_below(&source_root());
    unlisted.retain(|path| {
        let is_source = path.extension().is_some_and(|it| it == "rs");
        let is_program = path.ends_with("src/main.rs")
            || path.parent().is_some_and(|it| it.ends_with("src/bin"));
        is_source && !is_program && !path.ends_with("tests.rs") && !listed.contains(path)
    });
    assert_eq!(unlisted, [""; 0].map(PathBuf::from));
}

#[test]
fn the_map_names_every_floor_and_its_modules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = read(&root.join("ARCHITECTURE.md"));
    let mut missing = Vec::new();
    for floor in declared_modules(&read(&source_root().join("lib.rs"))) {
        let start = format!("| `{floor}`");
        let Some(row) = page.lines().find(|line| line.starts_with(&start)) else {
            missing.push(floor);
            continue;
        };
        let words: Vec<&str> = row
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .collect();
        let listing = source_root().join(&floor).join("mod.rs");
        if listing.is_file() {
            let modules = declared_modules(&read(&listing));
            let unnamed = modules
                .iter()
                .filter(|name| !words.contains(&name.as_str()));
            missing.extend(unnamed.map(|name| format!("{floor}::{name}")));
        }
    }
    assert_eq!(missing, [""; 0]);
}

#[test]
fn uses_are_found_in_every_form() {
    let source = "use crate::error::{At, Error as Wrong};\nuse crate::{unix::files, record::journal::{self, Event}};\n\
                  // crate::comment\nfn f() { crate::text::now(); super::sibling::g() }\n\
                  #[cfg(test)]\nmod tests { use crate::below; }";
    let module = ["view".to_owned(), "stats".to_owned()];
    let found: Vec<String> = used_paths(&module, source)
        .into_iter()
        .map(|path| path.join("::"))
        .collect();
    assert_eq!(
        found,
        [
            "error::At",
            "error::Error",
            "unix::files",
            "record::journal::self",
            "record::journal::Event",
            "text::now",
            "view::sibling::g"
        ]
    );
    let listing = "pub mod a;\npub(crate) mod b;\nmod c;\npub use d::e;\n#[cfg(test)]\nmod tests;\nmod tests {";
    assert_eq!(declared_modules(listing), ["a", "b", "c"]);
}
