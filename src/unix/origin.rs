//! Proof that a directory of the engine's was made where it is found, and came with no copy.
//!
//! The file `origin` in it holds the directory's inode and birth time, which no program can give to a
//! cloned, unpacked or copied directory. Where the file system keeps no birth time, the owner replaces it. The file
//! itself belongs to the user who made or adopted the directory.
//!
//! Unaware of what the directory is for, and of what is refused to a foreign one.

use crate::error::{At, Error, Result, ignore};
use crate::text::ids;
use crate::unix::files;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fmt::{self, Display};
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The name of the stamp in the directory.
pub(crate) const ORIGIN: &str = "origin";

/// The variable of the process environment that adopts every directory met, when it is `1`.
pub(crate) const ADOPT: &str = "DELTA_ADOPT";

/// The origin of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Made or adopted here.
    Own,
    /// Not to be obeyed.
    Foreign(ForeignReason),
    /// Nothing has this path.
    Missing,
}

/// The evidence that a directory is foreign; as text, the rest of a sentence about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignReason {
    /// Cannot be adopted: the link may lead anywhere.
    SymbolicLink,
    /// Cannot be adopted either.
    NotDirectory,
    /// A version without stamps made it, or another program that cannot know the stamp.
    NoStamp,
    /// The stamp of another directory, of which this one is a copy; or no stamp at all.
    OtherStamp,
    /// The stamp belongs to another user, who is not root.
    OtherUser,
    /// It holds what is neither a file nor a directory, or a directory of another user.
    OddContent,
}

impl ForeignReason {
    pub(crate) fn is_adoptable(self) -> bool {
        match self {
            Self::NoStamp | Self::OtherStamp | Self::OtherUser => true,
            Self::SymbolicLink | Self::NotDirectory | Self::OddContent => false,
        }
    }
}

impl Display for ForeignReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SymbolicLink => "is a symbolic link",
            Self::NotDirectory => "is not a directory",
            Self::NoStamp => {
                "has no file 'origin': it came from elsewhere or from an earlier version"
            }
            Self::OtherStamp => {
                "was made elsewhere: its file 'origin' belongs to another directory"
            }
            Self::OtherUser => "has a file 'origin' of another user",
            Self::OddContent => "holds a link, a pipe, a device or another user's directory",
        })
    }
}

/// True if the process environment adopts every foreign directory.
pub(crate) fn adopts_all() -> bool {
    std::env::var_os(ADOPT).is_some_and(|value| value == "1")
}

/// Compares the stamp in a directory with the directory. Neither a link nor a pipe is opened.
pub(crate) fn check_origin(dir: &Path) -> Result<Origin> {
    let dir = without_slash(dir);
    let Some(metadata) = dir.symlink_metadata().if_there().at("look at", &dir)? else {
        return Ok(Origin::Missing);
    };
    if let Some(reason) = unstampable(&metadata) {
        return Ok(Origin::Foreign(reason));
    }
    let path = dir.join(ORIGIN);
    match path.symlink_metadata().if_there().at("look at", &path)? {
        None => return Ok(Origin::Foreign(ForeignReason::NoStamp)),
        Some(stamp) if !stamp.is_file() => return Ok(Origin::Foreign(ForeignReason::OtherStamp)),
        Some(_) => {}
    }
    let wanted = stamp_text(&metadata);
    let mut found = Vec::new();
    let file = match files::open_unlinked(&path) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            return Ok(Origin::Foreign(ForeignReason::OtherUser));
        }
        file => file.at("read", &path)?,
    };
    let maker = file.metadata().at("look at", &path)?.uid();
    // Root could do anything anyway.
    if maker != 0 && maker != geteuid().as_raw() && Some(maker) != owner_of_new_files(&dir) {
        return Ok(Origin::Foreign(ForeignReason::OtherUser));
    }
    // A byte more than fits shows a longer file, however long that is.
    let read = file.take(wanted.len() as u64 + 1).read_to_end(&mut found);
    read.at("read", &path)?;
    Ok(if found == wanted.as_bytes() {
        Origin::Own
    } else {
        Origin::Foreign(ForeignReason::OtherStamp)
    })
}

/// Adopts a directory with all that it brought.
///
/// # Errors
/// A link cannot be adopted, nor what is no directory.
pub(crate) fn stamp_dir(dir: &Path) -> Result<()> {
    let dir = without_slash(dir);
    let metadata = dir.symlink_metadata().at("look at", &dir)?;
    if let Some(reason) = unstampable(&metadata) {
        let message = format!("{} {reason} and cannot be adopted", dir.display());
        return Err(Error::failure(message));
    }
    files::replace_shared(&dir.join(ORIGIN), stamp_text(&metadata).as_bytes())
}

/// Stamps a directory that is not in use yet and will be renamed into place.
pub(crate) fn stamp_new_dir(dir: &Path) -> Result<()> {
    let metadata = dir.symlink_metadata().at("look at", dir)?;
    files::write(&dir.join(ORIGIN), stamp_text(&metadata).as_bytes())
}

/// Makes a directory that has its stamp and these files, by name and content, from the instant at which
/// it is there, and the directories above it. What is at the path already stays as it is: check it
/// afterwards.
pub(crate) fn make_stamped_dir(dir: &Path, contents: &[(&str, &[u8])]) -> Result<()> {
    let dir = without_slash(dir);
    if let Some(parent) = dir.parent() {
        files::make_dirs(parent)?;
    }
    let temporary = files::path_beside(&dir, &format!(".{}.tmp", ids::hex(12)));
    files::make_dir(&temporary)?;
    let filled = stamp_new_dir(&temporary).and_then(|()| {
        let mut files = contents.iter();
        files.try_for_each(|(name, bytes)| files::write(&temporary.join(name), bytes))
    });
    let placed = filled.and_then(|()| rename_new(&temporary, &dir).at("create", &dir));
    if !matches!(placed, Ok(true)) {
        ignore(fs::remove_dir_all(&temporary));
    }
    placed.map(drop)
}

/// Renames a directory unless the new path is taken. Returns whether it was free.
fn rename_new(from: &Path, to: &Path) -> io::Result<bool> {
    let renamed = match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system knows no such rename. The plain one replaces nothing but an empty directory.
        Err(Errno::INVAL | Errno::NOSYS) => fs::rename(from, to),
        other => other.map_err(io::Error::from),
    };
    match renamed {
        Ok(()) => Ok(true),
        Err(_) if to.symlink_metadata().is_ok() => Ok(false),
        Err(e) => Err(e),
    }
}

fn unstampable(metadata: &Metadata) -> Option<ForeignReason> {
    if metadata.is_symlink() {
        return Some(ForeignReason::SymbolicLink);
    }
    (!metadata.is_dir()).then_some(ForeignReason::NotDirectory)
}

fn stamp_text(metadata: &Metadata) -> String {
    let born = metadata.created().ok();
    let second = match born.and_then(|time| time.duration_since(UNIX_EPOCH).ok()) {
        Some(born) => format!("born {}.{:09}", born.as_secs(), born.subsec_nanos()),
        None => format!("owner {}", metadata.uid()),
    };
    format!("inode {}\n{second}\n", metadata.ino())
}

/// The owner of a file that this process makes in a directory: on some network file systems, and on those of other
/// systems, not the user of the process. `None` if none can be made.
fn owner_of_new_files(dir: &Path) -> Option<u32> {
    let path = dir.join(format!(".{}.tmp", ids::hex(12)));
    let made = files::create(&path).ok()?;
    ignore(fs::remove_file(&path));
    made.metadata().ok().map(|metadata| metadata.uid())
}

/// The path without a slash or a dot at its end, with which the system would follow a link.
fn without_slash(dir: &Path) -> PathBuf {
    dir.components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unix::trees;
    use rustix::fs::{FileType, mknodat};
    use std::os::unix::fs::{chown, symlink};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let dir = std::env::temp_dir().join(format!("delta-origin-{}", ids::hex(12)));
            fs::create_dir(&dir).unwrap();
            Self(dir)
        }

        fn stamped(&self, name: &str) -> PathBuf {
            let dir = self.0.join(name);
            make_stamped_dir(&dir, &[("kept", b"content")]).unwrap();
            dir
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn foreign(dir: &Path) -> ForeignReason {
        match check_origin(dir).unwrap() {
            Origin::Foreign(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_new_directory_is_ones_own_also_under_another_name() {
        let scratch = Scratch::new();
        assert_eq!(check_origin(&scratch.0.join("a")).unwrap(), Origin::Missing);
        let dir = scratch.stamped("a/b");
        assert_eq!(check_origin(&dir).unwrap(), Origin::Own);
        assert_eq!(fs::read(dir.join("kept")).unwrap(), b"content");
        assert_eq!(files::names(&scratch.0.join("a")).unwrap(), ["b"]);
        let moved = scratch.0.join("c");
        fs::rename(&dir, &moved).unwrap();
        assert_eq!(check_origin(&moved).unwrap(), Origin::Own);
    }

    #[test]
    fn a_copy_is_foreign_until_it_is_adopted() {
        let scratch = Scratch::new();
        let (dir, copy) = (scratch.stamped("a"), scratch.0.join("copy"));
        trees::copy_tree(&dir, &copy, &[]).unwrap();
        assert_eq!(foreign(&copy), ForeignReason::OtherStamp);
        stamp_dir(&copy).unwrap();
        assert_eq!(check_origin(&copy).unwrap(), Origin::Own);
        assert_eq!(check_origin(&dir).unwrap(), Origin::Own);
        assert_eq!(files::names(&copy).unwrap(), ["kept", ORIGIN]);
    }

    #[test]
    fn a_directory_of_another_user_is_foreign_until_it_is_adopted() {
        const NOBODY: u32 = 65534;
        let scratch = Scratch::new();
        let dir = scratch.stamped("a");
        if chown(dir.join(ORIGIN), Some(NOBODY), None).is_err() {
            eprintln!("skipped: only root can give a file away");
            return;
        }
        assert_eq!(foreign(&dir), ForeignReason::OtherUser);
        stamp_dir(&dir).unwrap();
        assert_eq!(check_origin(&dir).unwrap(), Origin::Own);
    }

    #[test]
    fn a_directory_without_a_stamp_is_foreign() {
        let scratch = Scratch::new();
        assert_eq!(foreign(&scratch.0), ForeignReason::NoStamp);
    }

    #[test]
    fn what_has_the_path_already_stays_as_it_is() {
        let scratch = Scratch::new();
        let (dir, file) = (scratch.0.join("dir"), scratch.0.join("file"));
        fs::create_dir(&dir).unwrap();
        fs::write(&file, "mine").unwrap();
        for path in [&dir, &file] {
            make_stamped_dir(path, &[]).unwrap();
        }
        assert_eq!(foreign(&dir), ForeignReason::NoStamp);
        assert_eq!(foreign(&file), ForeignReason::NotDirectory);
        assert_eq!(fs::read(&file).unwrap(), b"mine");
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 2);
    }

    #[test]
    fn a_link_is_foreign_and_cannot_be_adopted_however_it_is_spelled() {
        let scratch = Scratch::new();
        let dir = scratch.stamped("a");
        let link = scratch.0.join("link");
        symlink(&dir, &link).unwrap();
        for path in [link.clone(), link.join(""), link.join(".")] {
            assert_eq!(foreign(&path), ForeignReason::SymbolicLink);
            let error = stamp_dir(&path).unwrap_err();
            assert!(error.message.contains("symbolic link"), "{}", error.message);
        }
        let nowhere = scratch.0.join("nowhere");
        symlink("none", &nowhere).unwrap();
        assert_eq!(foreign(&nowhere), ForeignReason::SymbolicLink);
    }

    #[test]
    fn whatever_lies_in_the_stamps_place_neither_blocks_nor_counts_and_is_replaced() {
        let scratch = Scratch::new();
        let (dir, copy) = (scratch.stamped("a"), scratch.0.join("copy"));
        let stamp = dir.join(ORIGIN);
        let whole = fs::read_to_string(&stamp).unwrap();
        let metadata = dir.metadata().unwrap();
        fs::write(&copy, &whole).unwrap();
        let texts = [
            String::new(),
            whole.trim_end().to_owned(),
            whole.repeat(2),
            whole.replace("inode ", "inode 1"),
            // A file system that keeps birth times is not satisfied with less.
            format!("inode {}\nowner {}\n", metadata.ino(), metadata.uid()),
        ];
        let texts = texts.iter().filter(|text| **text != whole);
        type Plant<'t> = Box<dyn Fn() + 't>;
        let mut plants: Vec<Plant<'_>> = Vec::new();
        for text in texts {
            let stamp = &stamp;
            plants.push(Box::new(move || fs::write(stamp, text).unwrap()));
        }
        plants.push(Box::new(|| symlink(&copy, &stamp).unwrap()));
        plants.push(Box::new(|| symlink("/dev/zero", &stamp).unwrap()));
        plants.push(Box::new(|| {
            mknodat(CWD, &stamp, FileType::Fifo, 0o600.into(), 0).unwrap();
        }));
        for plant in plants {
            fs::remove_file(&stamp).unwrap();
            plant();
            assert_eq!(foreign(&dir), ForeignReason::OtherStamp);
            stamp_dir(&dir).unwrap();
            assert_eq!(check_origin(&dir).unwrap(), Origin::Own);
        }
    }

    #[test]
    fn of_many_that_make_it_at_once_one_does() {
        let scratch = Scratch::new();
        let dir = scratch.0.join("a");
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    make_stamped_dir(&dir, &[]).unwrap();
                    assert_eq!(check_origin(&dir).unwrap(), Origin::Own);
                });
            }
        });
        assert_eq!(files::names(&scratch.0).unwrap(), ["a"]);
    }
}
