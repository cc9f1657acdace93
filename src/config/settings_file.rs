//! Writing the person's own settings, `~/.config/delta/env`: some variables are replaced, every other line stays.
//!
//! Unaware of what the variables mean.

use super::dotenv;
use super::person::{OLD_FILE, env_file};
use crate::error::{At, Error, Result};
use crate::unix::files;
use crate::unix::locks::wait_for_lock;
use crate::unix::signals::Signals;
use std::fs::File;
use std::path::PathBuf;

/// A variable and its value; none: the variable is removed.
pub(crate) type Setting<'s> = (&'s str, Option<&'s str>);

/// Sets variables in the file, which is replaced in one step, under a lock on its directory. The lines of `kept` variables
/// become comments that name their endpoint. A new file beside it keeps the old contents. Returns both paths; without old
/// contents there is no second one.
///
/// # Errors
/// There is no home directory, the file is a symbolic link, another process keeps the lock, or the disk's.
pub(crate) fn save(
    settings: &[Setting<'_>],
    kept: &[(&str, String)],
    signals: &Signals,
) -> Result<(PathBuf, Option<PathBuf>)> {
    let path = env_file().ok_or_else(|| {
        Error::failure("there is no place for settings: set HOME, or XDG_CONFIG_HOME")
    })?;
    let shown = path.display();
    if path.is_symlink() {
        let message = format!("{shown} is a symbolic link, which would be replaced: edit its file");
        return Err(Error::failure(message));
    }
    let dir = path.parent().unwrap_or(&path);
    files::make_dirs(dir)?;
    let lock = File::open(dir).at("open", dir)?;
    wait_for_lock(|| lock.try_lock(), dir, signals, None).map_err(|(error, _)| error)?;
    let old = files::read_regular(&path).if_there().at("read", &path)?;
    let text = std::str::from_utf8(old.as_deref().unwrap_or_default())
        .map_err(|_| Error::failure(format!("{shown}: it is not UTF-8")))?;
    let new = with_settings(text, settings, kept);
    let changed = old.filter(|old| *old != new.as_bytes());
    let aside = changed
        .map(|old| {
            let numbered = (2_u32..).map(|number| format!("{OLD_FILE}.{number}"));
            let mut names = [OLD_FILE.to_owned()].into_iter().chain(numbered);
            let is_free = |name: &String| path.with_file_name(name).symlink_metadata().is_err();
            let name = names.find(is_free).unwrap_or_else(|| OLD_FILE.to_owned());
            let aside = path.with_file_name(name);
            files::replace(&aside, &old).map(|()| aside)
        })
        .transpose()?;
    files::replace(&path, new.as_bytes())?;
    Ok((path, aside))
}

/// The text of a file in which variables are set: at the place of the first line about one of them, or at the end.
fn with_settings(text: &str, settings: &[Setting<'_>], kept: &[(&str, String)]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut at = None;
    for line in text.lines() {
        let (pairs, _) = dotenv::parse(line);
        let is = |known: &str| pairs.iter().any(|(name, _)| name == known);
        let aside = kept.iter().find(|(known, _)| is(known));
        let is_set = settings.iter().any(|(known, _)| is(known));
        if aside.is_some() || is_set {
            at.get_or_insert(lines.len());
        }
        match aside {
            Some((_, endpoint)) => {
                let comment = format!("# for {endpoint}: {}", line.trim());
                if !text.lines().any(|line| line == comment) {
                    lines.push(comment);
                }
            }
            None if is_set => {}
            None => lines.push(line.to_owned()),
        }
    }
    let own = settings.iter().filter_map(|(name, value)| {
        let value = (*value)?;
        Some(format!("{name}={}", quoted(value)))
    });
    let at = at.unwrap_or(lines.len());
    lines.splice(at..at, own);
    lines.push(String::new());
    lines.join("\n")
}

/// A value of one line as the file's reader reads it back.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@+=,[]".contains(c);
    if value.chars().all(is_plain) {
        return value.to_owned();
    }
    let escaped = |c: char| match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '"' | '\\' | '$' => format!("\\{c}"),
        c => c.to_string(),
    };
    format!("\"{}\"", value.chars().map(escaped).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_lines_stay_as_they_are() {
        let old = "# mine\nA='x y'\nexport DELTA_MODEL=old # c\n\nDELTA_API_KEY=k\nDELTA_MODEL=twice\nB=1";
        let new = with_settings(
            old,
            &[
                ("DELTA_BASE_URL", Some("http://h/v1")),
                ("DELTA_MODEL", Some("new")),
                ("DELTA_API_KEY", None),
            ],
            &[],
        );
        assert_eq!(
            new,
            "# mine\nA='x y'\nDELTA_BASE_URL=http://h/v1\nDELTA_MODEL=new\n\nB=1\n"
        );
        assert_eq!(with_settings("", &[("A", Some("1"))], &[]), "A=1\n");
        assert_eq!(with_settings("x\n", &[("A", None)], &[]), "x\n");
    }

    #[test]
    fn a_key_of_another_endpoint_becomes_a_comment_once() {
        let of_a = [("K", "http://a".to_owned())];
        let new = with_settings("export K=1\nB=2\n", &[("K", Some("3"))], &of_a);
        assert_eq!(new, "K=3\n# for http://a: export K=1\nB=2\n");
        let back = with_settings(&new, &[("K", Some("1"))], &[("K", "http://b".to_owned())]);
        assert_eq!(
            back,
            "K=1\n# for http://b: K=3\n# for http://a: export K=1\nB=2\n"
        );
        let again = with_settings("# for http://a: K=1\nK=1\n", &[], &of_a);
        assert_eq!(again, "# for http://a: K=1\n");
    }

    #[test]
    fn every_value_is_read_back_as_it_was() {
        for value in [
            "a", "a b", " a", "a #b", "\"", "'", "\\", "$HOME", "`x`", "é", "a\nB=1", "a\tb", "#",
            "=", "",
        ] {
            let text = with_settings("", &[("A", Some(value))], &[]);
            let (pairs, bad) = dotenv::parse(&text);
            assert!(bad.is_empty(), "{text}");
            assert_eq!(pairs, [("A".to_owned(), value.to_owned())], "{text}");
        }
    }
}
