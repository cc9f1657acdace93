//! Devices: which are terminals, and what a grant may name without granting one.
//!
//! Unaware of who gets a grant.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Numbers of terminals' drivers, of `Documentation/admin-guide/devices.txt`: BSD's, consoles and serial lines, `tty`
/// and `ptmx`, screens, pseudo-terminals, serial lines of small machines. Adapters for USB are not among them.
const TERMINALS: [std::ops::RangeInclusive<u32>; 5] =
    [2..=5, 7..=7, 136..=143, 204..=208, 229..=229];

/// True for a terminal, or a screen.
pub(crate) fn is_terminal(meta: &Metadata) -> bool {
    let major = rustix::fs::major(meta.rdev());
    meta.file_type().is_char_device() && TERMINALS.iter().any(|it| it.contains(&major))
}

/// The places of devices: those of the system, and each copy of them that is mounted elsewhere.
struct Places(Vec<PathBuf>);

/// The parts of a path, which is canonical, that hold no terminal and, unless the path names a device or a directory of
/// devices, no device: the path itself, if that can be. None: it is a terminal.
pub(crate) fn parts_without_terminals(path: &Path) -> Option<Vec<PathBuf>> {
    let meta = path.symlink_metadata().ok();
    if meta.is_some_and(|meta| is_terminal(&meta)) {
        return None;
    }
    let mut parts = Vec::new();
    Places::find().collect(path, &mut parts);
    Some(parts)
}

impl Places {
    fn find() -> Self {
        let listed = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let mounts = listed.split(|byte| *byte == b'\n').filter_map(|line| {
            // proc_pid_mountinfo(5).
            let text = String::from_utf8_lossy(line);
            let (_, kind) = text.split_once(" - ")?;
            let is_of_devices = ["devpts ", "devtmpfs "]
                .iter()
                .any(|it| kind.starts_with(it));
            let point = line.split(|byte| *byte == b' ').nth(4)?;
            is_of_devices.then(|| unescaped(point))
        });
        Self(mounts.chain(["/dev".into()]).collect())
    }

    fn collect(&self, path: &Path, parts: &mut Vec<PathBuf>) {
        let Ok(meta) = path.symlink_metadata() else {
            return;
        };
        if !meta.is_dir() {
            if !meta.is_symlink() && !is_terminal(&meta) {
                parts.push(path.to_owned());
            }
        } else if self.holds_some(path) || self.has_terminals(path, &meta) {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let children = entries.map(|entry| entry.path());
            for child in children.filter(|child| !self.0.contains(child)) {
                self.collect(&child, parts);
            }
        } else {
            parts.push(path.to_owned());
        }
    }

    /// True if there is a place of devices below a directory.
    fn holds_some(&self, dir: &Path) -> bool {
        self.0
            .iter()
            .any(|place| place != dir && place.starts_with(dir))
    }

    /// True for a directory of devices with a terminal in it. Other file systems below it are not looked into.
    fn has_terminals(&self, dir: &Path, meta: &Metadata) -> bool {
        let is_same = |place: &PathBuf| {
            dir.starts_with(place) && place.metadata().is_ok_and(|it| it.dev() == meta.dev())
        };
        self.0.iter().any(is_same) && {
            let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.any(|entry| {
                let below = entry.metadata();
                below.is_ok_and(|below| {
                    is_terminal(&below)
                        || below.is_dir() && self.has_terminals(&entry.path(), &below)
                })
            })
        }
    }
}

/// A path in which blanks and line ends are octal numbers.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    std::ffi::OsString::from_vec(bytes).into()
}
