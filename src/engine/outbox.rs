//! The outbox of an execution, which `DELTA_ATTACH` names: a program leaves pictures and documents in it.
//! Hidden files in it are for the engine.
//!
//! Architecture invariant: what is judged is what is kept. The program, or what it has left running, may change its files
//! at any time, so they are copied first; only names below the directory's descriptor are opened, and no link is followed.

use crate::config::environment::Secret;
use crate::engine::observation::on_new_line;
use crate::error::{Result, ignore};
use crate::record::attachments::head::recognize;
use crate::record::attachments::{Attachment, Facts, LONGEST_SIDE, MOST, MediaType, shown_name};
use crate::record::blobs::{self, LARGEST};
use crate::text::amounts::grouped;
use crate::text::digest::sha256;
use crate::unix::trees::remove_all;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The variable that names the directory.
pub(crate) const VARIABLE: &str = "DELTA_ATTACH";

/// The directory, in that of an execution.
pub(crate) const DIR: &str = "attach";

/// Maximum number of entries that are read, in the order of names.
const MOST_ENTRIES: usize = 64;

/// Commands that make a picture, and a document, smaller.
const SMALLER: &str = "convert in.png -resize 1568x1568 out.jpg";
const SHORTER: &str = "qpdf in.pdf --pages . 1-20 -- out.pdf";

/// Attachments of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collected {
    pub attachments: Vec<Attachment>,
    /// Lines for the observation: one for each entry.
    pub lines: Vec<String>,
}

impl Collected {
    /// Applies the changes of a hook to what a call brought, and adds what the hook has attached. Each attachment has its
    /// line in the text.
    pub(crate) fn change(
        &mut self,
        observation: &mut String,
        new: &Value,
        hook: &Path,
        store: Store<'_>,
    ) -> Result<()> {
        if let Some(kept) = new["attachments"].as_array() {
            let is_kept =
                |it: &Attachment| kept.iter().any(|kept| kept["sha256"] == it.sha256.as_str());
            let all = self.attachments.drain(..);
            let (kept, removed): (Vec<_>, Vec<_>) = all.partition(is_kept);
            self.attachments = kept;
            for line in removed.iter().map(Attachment::line) {
                let rest = observation.replace(&line, "");
                rest.trim_end().clone_into(observation);
            }
        }
        if let Some(text) = new["observation"].as_str() {
            text.clone_into(observation);
            for secret in store.secrets {
                secret.redact_text(observation);
            }
        }
        let collected = collect(hook, self.attachments.len(), store)?;
        self.attachments.extend(collected.attachments);
        let lines = self.attachments.iter().map(Attachment::line);
        for line in lines.chain(collected.lines) {
            if !observation.contains(&line) {
                on_new_line(observation);
                observation.push_str(&line);
            }
        }
        Ok(())
    }
}

/// Place of a run's attachments.
#[derive(Clone, Copy)]
pub(crate) struct Store<'s> {
    /// The run's directory.
    pub run: &'s Path,
    /// Make them durable before they are used.
    pub syncs: bool,
    /// Texts that no name may show.
    pub secrets: &'s [Secret],
}

/// Recognizes an attachment. An error is the reason why the bytes are not one.
pub(crate) fn judge(name: &str, bytes: &[u8]) -> std::result::Result<Attachment, String> {
    let facts = recognize(bytes).ok_or("not a picture or document")?;
    if bytes.len() as u64 > LARGEST {
        return Err(too_large(facts));
    }
    let attachment = Attachment {
        sha256: sha256(bytes),
        bytes: bytes.len() as u64,
        name: shown_name(name),
        facts,
    };
    if attachment.is_wider(LONGEST_SIDE) {
        Err(format!(
            "more than {} pixels a side; {SMALLER}",
            grouped(LONGEST_SIDE.into())
        ))
    } else {
        Ok(attachment)
    }
}

fn too_large(facts: Facts) -> String {
    let command = match facts.media_type {
        MediaType::Pdf => SHORTER,
        _ => SMALLER,
    };
    format!("more than {} bytes; {command}", grouped(LARGEST))
}

/// Takes what is in the directory of an execution, beside `before` attachments that there are already. Nothing stays there but
/// hidden files: what a program has nested there would burden whatever copies the run.
///
/// # Errors
/// Disk errors of the run.
pub(crate) fn collect(execution: &Path, before: usize, store: Store<'_>) -> Result<Collected> {
    let mut collected = Collected::default();
    let path = execution.join(DIR);
    // It is empty nearly always: that takes one system call, and to look inside takes nine.
    if std::fs::remove_dir(&path).is_ok() {
        return Ok(collected);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(dir) = openat(CWD, &path, flags, Mode::empty()) else {
        return Ok(collected);
    };
    let (names, more) = first_names(&dir);
    for name in &names {
        let mut shown = shown_name(&OsStr::from_bytes(name.to_bytes()).to_string_lossy());
        for secret in store.secrets {
            secret.redact_text(&mut shown);
        }
        let is_full = before + collected.attachments.len() >= MOST;
        let judged = copied(&dir, name).and_then(|bytes| {
            if is_full {
                Err(format!("more than {MOST} attachments"))
            } else {
                judge(&shown, &bytes).map(|attachment| (attachment, bytes))
            }
        });
        match judged {
            Ok((attachment, bytes)) => {
                blobs::store(store.run, &bytes, store.syncs)?;
                collected.lines.push(attachment.line());
                collected.attachments.push(attachment);
            }
            Err(why) => collected.lines.push(format!("[{shown}: {why}]")),
        }
    }
    if more > 0 {
        let line = format!(
            "[{} more entries: only the first {MOST_ENTRIES} are read]",
            grouped(more)
        );
        collected.lines.push(line);
    }
    for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
        let is_hidden = entry.file_name().as_bytes().starts_with(b".");
        if !is_hidden || !entry.file_type().is_ok_and(|it| it.is_file()) {
            ignore(remove_all(&entry.path()));
        }
    }
    Ok(collected)
}

/// The first names in a directory that do not begin with a dot, and how many more there are.
fn first_names(dir: &OwnedFd) -> (BTreeSet<CString>, u64) {
    let (mut names, mut more) = (BTreeSet::new(), 0);
    for entry in Dir::read_from(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !name.to_bytes().starts_with(b".") {
            names.insert(name.to_owned());
        }
        if names.len() > MOST_ENTRIES {
            names.pop_last();
            more += 1;
        }
    }
    (names, more)
}

/// The bytes of a file of a directory, or why it is no attachment.
fn copied(dir: &OwnedFd, name: &CString) -> std::result::Result<Vec<u8>, String> {
    let none = || "not a picture or document".to_owned();
    // Opening a device may have effects.
    let found = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| none())?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(none());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::empty()).map_err(|_| none())?;
    let file = File::from(file);
    let meta = file.metadata().map_err(|_| none())?;
    if !meta.is_file() || meta.nlink() != 1 {
        return Err(none());
    }
    let mut head = Vec::new();
    let is_large = meta.len() > LARGEST;
    // Of a file that is too large, its head says what it would be.
    let limit = if is_large { 4096 } else { LARGEST + 1 };
    file.take(limit)
        .read_to_end(&mut head)
        .map_err(|_| none())?;
    match (is_large, recognize(&head)) {
        (true, Some(facts)) => Err(too_large(facts)),
        (true, None) => Err(none()),
        (false, _) => Ok(head),
    }
}
