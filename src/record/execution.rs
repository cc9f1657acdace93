//! The record of one execution of a program: `command.txt`, `stdin.txt`, `stdout.log` and `stderr.log`, and at
//! its end `exit_code.txt` and `duration_ms.txt`.
//!
//! Unaware of what the program is for, and of the directory's other files.

use crate::error::{At, Result};
use crate::text::shell::shell_quoted;
use crate::unix::files;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The variable that names the directory of an execution to the tool that is executed.
pub(crate) const EXECUTION_DIR: &str = "DELTA_EXECUTION_DIR";

/// The file in it with a line for each connection to a host.
pub(crate) const NETWORK_LOG: &str = "network.jsonl";

/// The standard input of a program.
pub(crate) enum Stdin<'s> {
    /// `/dev/null`.
    Nothing,
    /// Recorded as `stdin.txt`.
    Bytes(&'s [u8]),
    /// A file that is recorded already.
    Recorded(PathBuf),
}

/// An execution that may begin: its record has all that is known before.
pub(crate) struct ExecutionRecord {
    /// On one line, as a shell would take it.
    pub command: String,
    pub stdin: Option<File>,
    pub stdout: File,
    pub stderr: File,
}

/// Begins a record in a directory that has been made for it. With `linked`, files that are alike are one.
pub(crate) fn begin_record(
    dir: &Path,
    argv: &[String],
    stdin: Stdin<'_>,
    linked: Option<&mut LinkedFiles>,
) -> Result<ExecutionRecord> {
    let command = shell_quoted(argv);
    write_line(&dir.join("command.txt"), &command, linked)?;
    let stdin = match stdin {
        Stdin::Nothing => None,
        Stdin::Bytes(bytes) => {
            let path = dir.join("stdin.txt");
            files::write(&path, bytes)?;
            Some(path)
        }
        Stdin::Recorded(path) => Some(path),
    };
    Ok(ExecutionRecord {
        command,
        stdin: stdin
            .map(|path| File::open(&path).at("open", &path))
            .transpose()?,
        stdout: files::create(&dir.join("stdout.log"))?,
        stderr: files::create(&dir.join("stderr.log"))?,
    })
}

/// Ends a record.
pub(crate) fn end_record(
    dir: &Path,
    exit_code: i32,
    duration: Duration,
    mut linked: Option<&mut LinkedFiles>,
) -> Result<()> {
    let code = exit_code.to_string();
    write_line(&dir.join("exit_code.txt"), &code, linked.as_deref_mut())?;
    let ms = duration.as_millis().to_string();
    write_line(&dir.join("duration_ms.txt"), &ms, linked)
}

fn write_line(path: &Path, line: &str, linked: Option<&mut LinkedFiles>) -> Result<()> {
    let line = format!("{line}\n");
    match linked {
        Some(linked) => linked.write(path, &line),
        None => files::write(path, line.as_bytes()),
    }
}

/// Small files of records that are alike: written once, and linked from then on, because a new file costs
/// more than what is in it. Programs can read them and not write to them.
#[derive(Debug, Default)]
pub(crate) struct LinkedFiles {
    known: HashMap<String, (PathBuf, SystemTime)>,
}

impl LinkedFiles {
    /// Makes a file with this text.
    pub(crate) fn write(&mut self, path: &Path, text: &str) -> Result<()> {
        /// Longer texts are not remembered, and not more of them than this.
        const LONGEST: usize = 1 << 10;
        const MOST: usize = 1 << 10;
        if let Some((one, at)) = self.known.get(text)
            && modified_time(one) == Some(*at)
            && std::fs::hard_link(one, path).is_ok()
        {
            return Ok(());
        }
        files::write_once(path, text.as_bytes())?;
        if text.len() <= LONGEST
            && let Some(at) = modified_time(path)
        {
            if self.known.len() >= MOST {
                self.known.clear();
            }
            self.known.insert(text.to_owned(), (path.to_owned(), at));
        }
        Ok(())
    }
}

/// Time when a file was written to. One whom nothing is forbidden may have done so since.
/// The milliseconds that a hook took, from its directory.
pub(crate) fn hook_duration(dir: &Path) -> Option<u64> {
    files::read_text(&dir.join("execution_meta/duration_ms.txt"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn modified_time(path: &Path) -> Option<SystemTime> {
    path.symlink_metadata().ok()?.modified().ok()
}
