//! `delta skills`: the catalogue of the skills in some directories, for a model that reads them by its own
//! tools.

use crate::config::skill::{FILE, INTRODUCTION, read_skill};
use crate::error::{Error, Exit, Result, reason};
use crate::text::disguise::{disguises, escaped, printable_line};
use crate::text::json::LONGEST_EXCERPT;
use crate::text::options::parse::ParsedCommand;
use crate::text::order;
use crate::unix::files;
use crate::unix::terminal::{Screen, print};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Levels below a directory in which skills are searched for, and directories in all.
const MOST_LEVELS: usize = 6;
const MOST_DIRECTORIES: usize = 2_000;

/// Prints the catalogue, or puts it into a file. Without a skill there is neither.
pub(crate) fn print_skills(given: &ParsedCommand) -> Result<Exit> {
    let screen = Screen::new(false, false);
    let plain = |text: &str| printable_line(&escaped(text, disguises));
    let mut lines = BTreeMap::new();
    for path in (given.operands.iter()).flat_map(|dir| find_skills(Path::new(dir), screen)) {
        let shown = plain(&path.to_string_lossy());
        let dir = path.parent().and_then(Path::file_name).unwrap_or_default();
        let read = read_start(&path).map_err(|e| format!("cannot be read: {}", reason(&e)));
        let skill = match read.and_then(|text| read_skill(&text, &dir.to_string_lossy())) {
            Ok(skill) => skill,
            Err(why) => {
                screen.warn(&format!("{shown}: skipped: {why}"));
                continue;
            }
        };
        for fault in &skill.faults {
            screen.warn(&format!("warning: {shown}: {}", plain(fault)));
        }
        if skill.is_unlisted {
            continue;
        }
        let name = plain(&skill.name);
        if lines.contains_key(&name) {
            screen.warn(&format!(
                "{shown}: skipped: there is a skill {name} before it"
            ));
            continue;
        }
        let description = plain(&skill.description);
        let path = std::path::absolute(&path).unwrap_or(path);
        let path = plain(&path.to_string_lossy());
        let line = format!("- {name}: {description} ({path})\n");
        lines.insert(name, line);
    }
    let mut catalogue: String = lines.into_values().collect();
    if !catalogue.is_empty() {
        catalogue.insert_str(0, INTRODUCTION);
    }
    match given.path("--output") {
        None => print(catalogue)?,
        Some(file) => write_catalogue(&file, &catalogue)?,
    }
    Ok(Exit::Success)
}

/// Puts the catalogue into a file, or removes the file if the catalogue is empty.
fn write_catalogue(file: &Path, catalogue: &str) -> Result<()> {
    // In the place of /dev/null or /dev/stdout, a new file would be everybody's.
    if file.symlink_metadata().is_ok_and(|it| !it.is_file()) {
        return Err(Error::io("write", file, &files::not_regular()));
    }
    if catalogue.is_empty() {
        return files::remove(file);
    }
    if files::read_text(file).is_ok_and(|text| text == catalogue) {
        return Ok(());
    }
    if let Some(parent) = file.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        files::make_dirs(parent)?;
    }
    files::replace_shared(file, catalogue.as_bytes())
}

fn read_start(path: &Path) -> io::Result<String> {
    let file = files::open_readable(path)?;
    // The front matter is at its beginning.
    let bytes = files::read_part(&file, 0, LONGEST_EXCERPT)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The skills in a directory, by their paths; those in a skill are its own affair.
fn find_skills(dir: &Path, screen: Screen) -> Vec<PathBuf> {
    if let Err(e) = fs::read_dir(dir) {
        screen.warn(&format!("warning: {}: {}", dir.display(), reason(&e)));
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut level = vec![dir.to_owned()];
    let mut seen = HashSet::new();
    for _ in 0..=MOST_LEVELS {
        let mut below = Vec::new();
        for dir in level {
            let meta = dir.metadata();
            if !meta.is_ok_and(|it| seen.insert((it.dev(), it.ino()))) {
                continue;
            }
            if seen.len() > MOST_DIRECTORIES {
                let most = MOST_DIRECTORIES;
                screen.warn(&format!(
                    "warning: {}: only {most} directories are searched",
                    dir.display()
                ));
                return found;
            }
            let file = dir.join(FILE);
            if file.is_file() {
                found.push(file);
                continue;
            }
            // It will be reported.
            if file.symlink_metadata().is_ok() {
                found.push(file);
            }
            let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
            let dirs = entries
                .map(|entry| entry.path())
                .filter(|path| path.is_dir());
            let is_other =
                |path: &PathBuf| path.ends_with(".git") || path.ends_with("node_modules");
            let mut dirs: Vec<PathBuf> = dirs.filter(|path| !is_other(path)).collect();
            order::sort(&mut dirs);
            below.extend(dirs);
        }
        level = below;
    }
    found
}
