//! The state that a shell wrote when it ended: whether all of it is there, and no key in it.

use crate::error::Result;
use crate::sessions::secrets::ApiKeys;
use crate::sessions::session::Session;
use crate::sessions::shell::{ANY_STATE, BASH_TRAILER, POSIX_TRAILER, ShellKind, UNFINISHED};
use crate::unix::files;
use crate::unix::files::LARGEST_INPUT;
use std::borrow::Cow;

/// Last lines of `env.sh` by the kind of shell that wrote it to its end.
const TRAILERS: [(&str, ShellKind); 2] = [
    (BASH_TRAILER, ShellKind::Bash),
    (POSIX_TRAILER, ShellKind::Posix),
];

/// At least the length of the longest last line.
const TRAILER_LEN: u64 = 64;

/// The last line of `functions.sh`.
const FUNCTIONS_END: &[u8] = b"# end of functions\n";

/// A state that a shell wrote to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedState {
    pub(crate) kind: ShellKind,
    /// The changes of the command's exit trap are missing.
    pub(crate) is_before_trap: bool,
}

impl SavedState {
    /// Judges a state by the last bytes of `env.sh`.
    fn from_tail(tail: &[u8]) -> Option<Self> {
        let tail = tail.strip_suffix(b"\n")?;
        let before_trap = tail.strip_suffix(UNFINISHED.as_bytes());
        let tail = before_trap.unwrap_or(tail);
        let mut trailers = TRAILERS.iter();
        let (_, kind) = trailers.find(|(line, _)| tail.ends_with(line.as_bytes()))?;
        Some(Self {
            kind: *kind,
            is_before_trap: before_trap.is_some(),
        })
    }
}

/// Looks at the state in the session's directory (`""`) or in a directory there.
pub(crate) fn read_saved_state(session: &Session, dir: &str) -> Option<SavedState> {
    let tail = |name: &str| {
        let file = files::open_regular(&session.path(dir).join(name)).ok()?;
        let len = file.metadata().ok()?.len();
        if len > LARGEST_INPUT {
            return None;
        }
        let part = len.min(TRAILER_LEN);
        files::read_part(&file, len - part, part as usize).ok()
    };
    let state = SavedState::from_tail(&tail("env.sh")?)?;
    let whole = state.kind != ShellKind::Bash || tail("functions.sh")?.ends_with(FUNCTIONS_END);
    (whole && tail("work_dir.txt")?.ends_with(b"\n")).then_some(state)
}

/// Removes the keys of this process from the state in `next/` and from the text of the command, which is
/// returned as it may be kept.
pub(crate) fn remove_keys<'t>(session: &Session, text: &'t [u8]) -> Result<Cow<'t, [u8]>> {
    let keys = ApiKeys::from_environment();
    for name in ANY_STATE.map(|name| format!("next/{name}")) {
        let path = session.path(&name);
        if path.metadata().is_ok_and(|meta| meta.len() > LARGEST_INPUT) {
            // What is not looked at is not kept.
            files::remove(&path)?;
        }
        let printed = session.read_file(&name, LARGEST_INPUT).unwrap_or_default();
        let kept = if name.ends_with("env.sh") {
            keys.redact_variables(&printed)
        } else {
            keys.redact(&printed)
        };
        if let Some(kept) = kept {
            files::replace(&path, &kept)?;
        }
    }
    Ok(match keys.redact(text) {
        Some(kept) => {
            session.rewrite_file("command", &kept)?;
            Cow::Owned(kept)
        }
        None => Cow::Borrowed(text),
    })
}
