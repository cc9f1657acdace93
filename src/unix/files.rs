//! Files and directories that only their owner may read, and replacing a file in one step.
//!
//! Unaware of what the files mean.

use crate::error::{At, Result, ignore};
use rustix::fs::{
    CWD, FsWord, MemfdFlags, Mode, OFlags, RenameFlags, memfd_create, mkdirat, openat,
    renameat_with, symlinkat,
};
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// The largest file that is read whole.
pub(crate) const LARGEST: u64 = 4 << 30;

/// The largest input, in bytes, and the most that a program may print as the output of a node.
pub(crate) const LARGEST_INPUT: u64 = 256 << 20;

/// Largest metadata of an invocation, with all attempts, or of a session, with the words of a command line twice, of which
/// Linux takes 6 MiB at most.
pub(crate) const LARGEST_METADATA: u64 = 16 << 20;

/// A workspace may bring a file that is larger than memory and takes no room on disk.
const LONGEST_LINE: u64 = 16 << 20;

/// Makes a directory with mode 0700. Its parent must be there.
pub(crate) fn make_dir(path: &Path) -> Result<()> {
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .at("create", path)
}

/// Makes a directory with mode 0700, and those above it, unless it is there.
pub(crate) fn make_dirs(path: &Path) -> Result<()> {
    DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(path)
        .at("create", path)
}

/// Makes a directory of this name in `parent`, or with `_2`, `_3`… appended if it is taken. `parent` and the directory
/// that it is in are made when they are first used. Returns the name it got.
pub(crate) fn make_unique_dir(parent: &Path, name: &str) -> Result<String> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    for attempt in 1u32.. {
        let candidate = match attempt {
            1 => name.to_owned(),
            _ => format!("{name}_{attempt}"),
        };
        let path = parent.join(&candidate);
        match builder.create(&path) {
            Ok(()) => return Ok(candidate),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound && !parent.is_dir() => {
                for dir in parent.parent().into_iter().chain([parent]) {
                    match builder.create(dir) {
                        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                        made => made.at("create", dir)?,
                    }
                }
                return make_unique_dir(parent, name);
            }
            Err(e) => return Err(e).at("create", &path),
        }
    }
    unreachable!("four billion directories of one name")
}

/// Creates a file with mode 0600 that must not exist yet.
pub(crate) fn create(path: &Path) -> Result<File> {
    create_new(path, 0o600).at("create", path)
}

fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(mode);
    options.open(path)
}

/// A new file without a name, for reading and writing, on the file system of a directory.
pub(crate) fn create_without_name(dir: &Path) -> Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
        return Ok(file.into());
    }
    // The file system cannot.
    let path = dir.join(format!(".{}.tmp", crate::text::ids::hex(12)));
    let file = create(&path)?;
    remove(&path).map(|()| file)
}

/// Writes a new file that is final, with mode 0400.
pub(crate) fn write_once(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = create_new(path, 0o400).at("create", path);
    file?.write_all(bytes).at("write", path)
}

/// Options of an open that follows no link and never waits; a new file has mode 0600.
fn careful() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.mode(0o600).custom_flags(flags.bits().cast_signed());
    options
}

/// Opens a file for appending, creating it with mode 0600. A link is not followed.
pub(crate) fn append(path: &Path) -> Result<File> {
    let opened = careful().append(true).create(true).open(path);
    opened.at("open", path)
}

/// Opens a file for reading and writing, creating it with mode 0600. A link is not followed, and what is no file is
/// refused.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = careful();
    regular(options.read(true).write(true).create(true).open(path)?)
}

/// Refuses what is no regular file.
fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(not_regular())
    }
}

/// Creates a file with mode 0600 and this content.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    create(path)?.write_all(bytes).at("write", path)
}

/// Replaces a file in one step. The caller must be the only one to write it, by a lock.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = swap_in(path, ".tmp", |mut file| file.write_all(bytes));
    written.at("write", path)
}

/// Replaces a file in one step; any number of processes may do so at once.
pub(crate) fn replace_shared(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = swap_in(path, &own_suffix(), |mut file| file.write_all(bytes));
    written.at("write", path)
}

/// Replaces a file like [`replace_shared`]; the file and its name are on disk when this returns.
pub(crate) fn replace_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = swap_in(path, &own_suffix(), |mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.at("write", path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

fn own_suffix() -> String {
    format!(".{}.tmp", std::process::id())
}

/// Replaces a file that is replaced often. As [`replace`], but the old content stays beside it in a
/// hidden file, which is used again the next time, until [`replace`] takes it away: some file systems
/// make new files slowly where many have just been removed.
pub(crate) fn exchange(path: &Path, bytes: &[u8]) -> Result<()> {
    let hidden = path_beside(path, ".tmp");
    match written_over(&hidden, bytes) {
        Ok(true) => {}
        Ok(false) => return replace(path, bytes),
        Err(e) => {
            ignore(fs::remove_file(&hidden));
            return Err(e).at("write", path);
        }
    }
    let exchanged = renameat_with(CWD, &hidden, CWD, path, RenameFlags::EXCHANGE);
    match exchanged {
        Ok(()) => Ok(()),
        // There is nothing to exchange it with, or the file system cannot.
        Err(_) => fs::rename(&hidden, path).at("write", path),
    }
}

/// Puts other content into a file, or into a new one. False if it is not a file of ours alone.
fn written_over(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let Ok(mut file) = careful().write(true).create(true).open(path) else {
        return Ok(false);
    };
    let meta = file.metadata()?;
    if !meta.is_file() || meta.nlink() != 1 {
        return Ok(false);
    }
    file.write_all(bytes)?;
    if meta.len() > bytes.len() as u64 {
        file.set_len(bytes.len() as u64)?;
    }
    Ok(true)
}

/// The path of a hidden file in the same directory.
pub(super) fn path_beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(suffix);
    path.with_file_name(name)
}

/// Writes a new file beside another one, and puts it in that one's place.
fn swap_in(path: &Path, suffix: &str, write: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
    swap(path, &path_beside(path, suffix), 0o600, write)
}

/// Puts a temporary file with this mode in place of a file, once it is written.
pub(crate) fn swap(
    path: &Path,
    temporary: &Path,
    mode: u32,
    write: impl Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let file = match create_new(temporary, mode) {
        // What a process that died left there goes first. A link planted there is not
        // followed.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(temporary).and_then(|()| create_new(temporary, mode))
        }
        file => file,
    };
    let written = file
        .and_then(|file| write(&file))
        .and_then(|()| fs::rename(temporary, path));
    if written.is_err() {
        // The old content stays; the half-written file must not be mistaken for it.
        ignore(fs::remove_file(temporary));
    }
    written
}

/// Opens a regular file for reading. A pipe without a writer, or a device without an end, would keep
/// the reader where no signal can end it.
pub(crate) fn open_readable(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    regular(options.read(true).custom_flags(flags).open(path)?)
}

/// Opens a regular file for reading. Neither a link nor a pipe in its place is opened.
pub(crate) fn open_regular(path: &Path) -> Result<File> {
    let opened = careful().read(true).open(path).and_then(regular);
    opened.at("read", path)
}

/// Opens a regular file for reading. A link is not followed. The first look keeps devices from being opened, which can have effects.
pub(crate) fn open_unlinked(path: &Path) -> io::Result<File> {
    if !path.symlink_metadata()?.is_file() {
        return Err(not_regular());
    }
    let opened = careful().read(true).open(path).and_then(regular);
    opened.map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::LOOP) => not_regular(),
        _ => e,
    })
}

/// True for a path of names alone, which leads neither out of the directory that it begins in nor to the root.
pub(crate) fn is_below(path: &Path) -> bool {
    let path = path.as_os_str().as_encoded_bytes();
    let mut names = path.split(|byte| *byte == b'/');
    let begins_here = path == b"." || path.starts_with(b"./") || path.starts_with(b"/");
    !begins_here && names.all(|name| name != b"..")
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Opens a directory in another one, unless it is a link.
pub(super) fn enter(dir: &OwnedFd, name: &Path) -> rustix::io::Result<OwnedFd> {
    openat(dir, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// A directory below another one, to which no link leads. `enter` opens a name in a directory.
fn descend(
    dir: &Path,
    names: &Path,
    enter: impl Fn(&OwnedFd, &Path) -> rustix::io::Result<OwnedFd>,
) -> io::Result<OwnedFd> {
    if !is_below(names) {
        return Err(leads_out());
    }
    let mut at = openat(CWD, dir, DIRECTORY, Mode::empty())?;
    for (number, name) in names.iter().enumerate() {
        let way = || names.iter().take(number + 1).collect::<PathBuf>();
        at = enter(&at, Path::new(name)).map_err(|e| match e {
            // A link, or no directory.
            Errno::LOOP | Errno::NOTDIR if way() == names => no_directory(),
            Errno::LOOP | Errno::NOTDIR => {
                let way = dir.join(way());
                io::Error::other(format!("{} is a link, or is no directory", way.display()))
            }
            e => e.into(),
        })?;
    }
    Ok(at)
}

/// The path of a name in an open directory, wherever that directory has been moved to.
fn path_in(dir: &OwnedFd, name: &OsStr) -> PathBuf {
    Path::new("/proc/self/fd")
        .join(dir.as_raw_fd().to_string())
        .join(name)
}

/// The directory that a path below another one leads to, and the last name of the path. No link is followed.
pub(super) fn parent_below<'p>(
    dir: &Path,
    path: &'p Path,
    enter: impl Fn(&OwnedFd, &Path) -> rustix::io::Result<OwnedFd>,
) -> io::Result<(OwnedFd, &'p OsStr)> {
    let mut names = path.components();
    let Some(Component::Normal(name)) = names.next_back() else {
        return Err(leads_out());
    };
    Ok((descend(dir, names.as_path(), enter)?, name))
}

/// Replaces a file below a directory in one step. No link is followed on the way, which is made.
pub(crate) fn replace_below(dir: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    write_below(dir, path, |mut file| file.write_all(bytes))
}

/// Replaces a file below a directory, as [`replace_below`] does, with what `write` writes to it.
pub(crate) fn write_below(
    dir: &Path,
    path: &Path,
    write: impl Fn(&File) -> io::Result<()>,
) -> Result<()> {
    let file = dir.join(path);
    let found = parent_below(dir, path, make_and_enter(Mode::RWXU));
    let (opened, name) = found.at("use", file.parent().unwrap_or(dir))?;
    swap_in(&path_in(&opened, name), &own_suffix(), write).at("write", &file)
}

/// Creates a file below a directory, where there is nothing yet. No link is followed on the way, which is made.
pub(crate) fn create_below(dir: &Path, path: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let (parent, name) = parent_below(dir, path, make_and_enter(Mode::RWXU))?;
    Ok(openat(&parent, name, flags, Mode::from_raw_mode(mode))?.into())
}

/// Makes a symbolic link below a directory, as [`create_below`] creates a file.
pub(crate) fn link_below(dir: &Path, path: &Path, target: &OsStr) -> io::Result<()> {
    let (parent, name) = parent_below(dir, path, make_and_enter(Mode::RWXU))?;
    Ok(symlinkat(target, &parent, name)?)
}

/// Removes a directory below another one with all that is in it. No link is followed.
pub(crate) fn remove_dir_below(dir: &Path, path: &Path) -> io::Result<()> {
    let (parent, name) = parent_below(dir, path, enter)?;
    fs::remove_dir_all(path_in(&parent, name))
}

/// Opens a regular file below a directory for reading. No link is followed on the way, nor in the end.
pub(crate) fn open_below(dir: &Path, path: &Path) -> io::Result<File> {
    let (parent, name) = parent_below(dir, path, enter)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&parent, name, flags, Mode::empty()).map_err(|e| match e {
        Errno::LOOP | Errno::NXIO => not_regular(),
        e => e.into(),
    })?;
    regular(file.into())
}

/// The content of such a file of at most `limit` bytes.
pub(crate) fn read_below(dir: &Path, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_limited(open_below(dir, path)?, limit)
}

/// The text of such a file of at most `limit` bytes.
pub(crate) fn read_text_below(dir: &Path, path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(read_below(dir, path, limit)?).map_err(|_| not_utf8())
}

/// True if there is such a directory.
pub(crate) fn is_dir_below(dir: &Path, path: &Path) -> bool {
    descend(dir, path, enter).is_ok()
}

/// Makes a directory below another one, and those on the way, with mode 0700, unless they are there. Returns its path,
/// in which no name is a link's.
pub(crate) fn make_dirs_below(dir: &Path, path: &Path) -> Result<PathBuf> {
    make_dirs_in(dir, path, Mode::RWXU)
}

/// Makes directories as [`make_dirs_below`] does, with the usual mode.
pub(crate) fn make_usual_dirs_below(dir: &Path, path: &Path) -> Result<PathBuf> {
    make_dirs_in(dir, path, Mode::from_raw_mode(0o777))
}

fn make_dirs_in(dir: &Path, path: &Path, mode: Mode) -> Result<PathBuf> {
    let made = dir.join(path);
    descend(dir, path, make_and_enter(mode)).at("use", &made)?;
    Ok(made)
}

/// Opens a directory in another one, made with this mode unless it is there.
pub(super) fn make_and_enter(
    mode: Mode,
) -> impl Fn(&OwnedFd, &Path) -> rustix::io::Result<OwnedFd> {
    move |at, name| match mkdirat(at, name, mode) {
        Err(Errno::EXIST) | Ok(()) => enter(at, name),
        Err(e) => Err(e),
    }
}

fn not_utf8() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8")
}

/// The error of a path that [`is_below`] refuses.
pub(crate) fn leads_out() -> io::Error {
    io::Error::other("it leads out of its directory")
}

/// The error of a path that [`make_dirs_below`] refuses.
pub(crate) fn no_directory() -> io::Error {
    io::Error::other("it is a link, or is no directory")
}

/// Refuses to write to what is no regular file, and to a file that has another name elsewhere.
pub(crate) fn refuse_shared(file: &File) -> io::Result<()> {
    let meta = file.metadata()?;
    match (meta.is_file(), meta.nlink()) {
        (false, _) => Err(not_regular()),
        (true, 0 | 1) => Ok(()),
        _ => Err(io::Error::other("it has another name, as a hard link")),
    }
}

/// The error for a directory, a pipe or a device in place of a file.
pub(crate) fn not_regular() -> io::Error {
    io::Error::other("it is not a regular file")
}

/// A file that is nowhere on a disk, with these bytes, which is read from its beginning.
pub(crate) fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("delta", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// The content of a regular file.
pub(crate) fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    read_regular_limited(path, LARGEST)
}

/// The content of a regular file of at most `limit` bytes.
pub(crate) fn read_regular_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_limited(open_readable(path)?, limit)
}

/// The content of a file of at most `limit` bytes below a directory; none if a link leads out of the directory. What may
/// write there, but not read everything, could have made it.
pub(crate) fn read_within(dir: &Path, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let file = open_readable(path)?;
    let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let is_within = real.starts_with(dir.canonicalize()?);
    is_within.then(|| read_limited(file, limit)).transpose()
}

/// The content of a file of at most `limit` bytes. A larger one is not read: a file may be larger than the memory
/// and take no room on the disk.
pub(crate) fn read_limited(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = file.metadata()?.len();
    if length <= limit {
        // With room for one more, the end is seen without growing.
        bytes.try_reserve_exact(length as usize + 1)?;
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= limit {
            return Ok(bytes);
        }
    }
    Err(too_large(limit))
}

/// The error of a file that is larger than this.
pub(crate) fn too_large(limit: u64) -> io::Error {
    io::Error::other(format!("it is larger than {} MiB", limit >> 20))
}

/// The text of a regular file.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    read_text_limited(path, LARGEST)
}

/// The text of a regular file of at most `limit` bytes.
pub(crate) fn read_text_limited(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(read_regular_limited(path, limit)?).map_err(|_| not_utf8())
}

/// The first line of a file without its white space; `None` if there is no file, nothing in it, or more
/// than [`LONGEST_LINE`]. No more of the file is read.
pub(crate) fn read_line(path: &Path) -> Option<String> {
    first_line(open_readable(path).ok()?)
}

/// The first line of a file that [`open_below`] opens.
pub(crate) fn read_line_below(dir: &Path, path: &Path) -> Option<String> {
    first_line(open_below(dir, path).ok()?)
}

fn first_line(file: File) -> Option<String> {
    let mut bytes = Vec::new();
    let mut reader = BufReader::new(file).take(LONGEST_LINE);
    reader.read_until(b'\n', &mut bytes).ok()?;
    let is_whole = bytes.ends_with(b"\n") || (bytes.len() as u64) < LONGEST_LINE;
    let text = String::from_utf8(bytes).ok()?;
    let line = text.trim();
    (is_whole && !line.is_empty()).then(|| line.to_owned())
}

/// At most `len` bytes from the beginning of a file, as text.
pub(crate) fn read_head(file: &File, len: usize) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&read_part(file, 0, len)?).into_owned())
}

/// `len` bytes of a file from `start` on; fewer if it ends before. The file's own position, which a
/// child that writes to it may share, stays where it is.
pub(crate) fn read_part(file: &File, start: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut part = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match file.read_at(&mut part[filled..], start + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    part.truncate(filled);
    Ok(part)
}

/// Removes a file if it is there.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let removed = fs::remove_file(path).if_there();
    removed.at("remove", path).map(drop)
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_dir(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .at("sync", path)
}

/// The names in a directory that are UTF-8, sorted; none if it is not there.
pub(crate) fn names(path: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(path).if_there().at("read", path)?.into_iter();
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// The last part of a path as text; empty for the root.
pub(crate) fn name_of(path: &Path) -> Cow<'_, str> {
    path.file_name().map_or("".into(), OsStr::to_string_lossy)
}

/// A path made absolute without asking the file system, for files that may not exist yet.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).at("resolve", path)
}

/// True if a path is on a file system that other hosts may share, where a lock may be local only.
pub(crate) fn is_network_file_system(path: &Path) -> bool {
    // The magic numbers of statfs(2): NFS, SMB, CIFS, SMB2, 9P, AFS, Ceph, Lustre, GPFS, FUSE.
    const SHARED: [FsWord; 10] = [
        0x6969,
        0x517B,
        0xFF53_4D42,
        0xFE53_4D42,
        0x0102_1997,
        0x5346_414F,
        0x00C3_6400,
        0x0BD0_0BD0,
        0x4750_4653,
        0x6573_5546,
    ];
    rustix::fs::statfs(path).is_ok_and(|fs| SHARED.contains(&fs.f_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("delta-files-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn a_taken_name_gets_a_number() {
        let dir = scratch("unique");
        let made: Vec<_> = (0..3)
            .map(|_| make_unique_dir(&dir, "a").unwrap())
            .collect();
        assert_eq!(made, ["a", "a_2", "a_3"]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_copied_tree_has_links_and_permissions_and_lacks_what_was_named() {
        let dir = scratch("copy");
        let (from, to) = (dir.join("from"), dir.join("to"));
        for made in ["from/.delta", "from/sub/.delta"] {
            fs::create_dir_all(dir.join(made)).unwrap();
        }
        fs::write(from.join("sub/script"), b"x").unwrap();
        fs::set_permissions(from.join("sub/script"), fs::Permissions::from_mode(0o750)).unwrap();
        std::os::unix::fs::symlink("sub/none", from.join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
        let left_out = crate::unix::trees::copy_tree(&from, &to, &[".delta"]).unwrap();
        assert_eq!(left_out.len(), 1);
        assert_eq!(left_out[0].path, from.join("socket"));
        assert_eq!(names(&to).unwrap(), ["link", "sub"]);
        assert_eq!(names(&to.join("sub")).unwrap(), [".delta", "script"]);
        let mode = fs::metadata(to.join("sub/script"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o750);
        assert_eq!(
            fs::read_link(to.join("link")).unwrap(),
            Path::new("sub/none")
        );
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_file_is_exchanged_whatever_lies_in_the_hidden_files_place() {
        let dir = scratch("exchange");
        let (path, hidden) = (dir.join("f"), dir.join(".f.tmp"));
        for text in ["longer text", "short", "longest text of all"] {
            exchange(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_to_string(&hidden).unwrap(), "short");

        let other = dir.join("other");
        fs::write(&other, "mine").unwrap();
        let places: [&dyn Fn() -> io::Result<()>; 3] = [
            &|| std::os::unix::fs::symlink(&other, &hidden),
            &|| fs::hard_link(&other, &hidden),
            &|| {
                Ok(rustix::fs::mknodat(
                    CWD,
                    &hidden,
                    rustix::fs::FileType::Fifo,
                    0o600.into(),
                    0,
                )?)
            },
        ];
        for place in places {
            fs::remove_file(&hidden).ok();
            place().unwrap();
            exchange(&path, b"new").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(fs::read(&other).unwrap(), b"mine");
        }
        replace(&path, b"last").unwrap();
        assert!(!hidden.exists());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_link_that_takes_a_files_place_is_never_followed() {
        let dir = scratch("unlinked");
        let (path, link) = (dir.join("f"), dir.join("link"));
        fs::write(&path, "mine").unwrap();
        fs::write(dir.join("other"), "other").unwrap();
        std::os::unix::fs::symlink("other", &link).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let mut opened = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    renameat_with(CWD, &path, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let read = (0..100_000).map(|_| open_unlinked(&path).and_then(io::read_to_string));
            let others = read.flatten().inspect(|_| opened += 1);
            let followed = others.filter(|text| text != "mine").count();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(followed, 0);
        });
        assert!(opened > 0);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_replaced_file_is_private_and_leaves_nothing_beside_it() {
        let dir = scratch("replace");
        let path = dir.join("f");
        replace(&path, b"one").unwrap();
        replace_shared(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(names(&dir).unwrap(), ["f"]);
        fs::remove_dir_all(dir).unwrap();
    }
}
