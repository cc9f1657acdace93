//! Patterns for the paths of files below a directory: names with `*`, `?` and `[…]`, separated by `/`, and
//! `**` for any number of directories.
//!
//! Unaware of which files there are. As in a shell, only a pattern that begins with a dot fits a name that
//! does.

use super::glob::Glob;

/// A pattern for paths. It must fit all of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePattern {
    pub text: String,
    /// Not empty, and the last is a name.
    pub parts: Vec<PathPart>,
    /// The pattern must fit at least one file.
    pub required: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathPart {
    /// Any number of directories, none of them hidden.
    AnyDirectories,
    /// One name.
    Name(Glob),
}

impl FilePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The fault of the pattern.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Err("is absolute; name files below the task's directory".to_owned());
        }
        let mut parts = Vec::new();
        for word in text.split('/') {
            match word {
                "" => return Err("has an empty name".to_owned()),
                "." | ".." => {
                    return Err(format!(
                        "has {word:?}; name files below the task's directory"
                    ));
                }
                "**" if parts.last() == Some(&PathPart::AnyDirectories) => {}
                "**" => parts.push(PathPart::AnyDirectories),
                name => parts.push(PathPart::Name(Glob::parse(name)?)),
            }
        }
        if parts.last() == Some(&PathPart::AnyDirectories) {
            parts.push(PathPart::Name(Glob::parse("*")?));
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
            required: false,
        })
    }

    /// The pattern fits a path.
    pub(crate) fn fits(&self, path: &str) -> bool {
        fn all_fit(parts: &[PathPart], names: &[&str]) -> bool {
            match (parts, names) {
                ([], []) => true,
                ([PathPart::AnyDirectories, rest @ ..], _) if all_fit(rest, names) => true,
                ([part, rest @ ..], [name, below @ ..]) if part.fits(name) => {
                    let is_any = *part == PathPart::AnyDirectories;
                    all_fit(if is_any { parts } else { rest }, below)
                }
                _ => false,
            }
        }
        all_fit(&self.parts, &path.split('/').collect::<Vec<_>>())
    }
}

impl PathPart {
    /// A file or directory of this name fits.
    pub(crate) fn fits(&self, name: &str) -> bool {
        match self {
            Self::AnyDirectories => !name.starts_with('.'),
            Self::Name(glob) => {
                (glob.text.starts_with('.') || !name.starts_with('.')) && glob.fits(name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stay_below_the_directory() {
        for wrong in ["", "/a", "../a", "a/../b", "a//b", "a/", "./a", "[a"] {
            assert!(FilePattern::parse(wrong).is_err(), "{wrong}");
        }
        for right in ["a", "*.txt", "out/**/*.csv", "**", ".hidden/x"] {
            assert!(FilePattern::parse(right).is_ok(), "{right}");
        }
    }

    #[test]
    fn a_pattern_fits_whole_paths() {
        let fits = |pattern: &str, path| FilePattern::parse(pattern).unwrap().fits(path);
        for (pattern, path) in [
            ("a", "a"),
            ("**", "a/b/c"),
            ("a/**/*.c", "a/x.c"),
            ("**/b", "b"),
        ] {
            assert!(fits(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("a", "a/b"),
            ("*", "a/b"),
            ("a/b", "b"),
            ("**", "../a"),
            ("**/*", ".delta/a"),
            ("a/*", "a"),
        ] {
            assert!(!fits(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn hidden_names_fit_only_patterns_with_a_dot() {
        let name = |text: &str| FilePattern::parse(text).unwrap().parts.remove(0);
        assert!(!name("*").fits(".a"));
        assert!(!name("**").fits(".a"));
        assert!(name(".*").fits(".a"));
        assert!(name("*").fits("a"));
    }
}
