//! `delta-sessions complete -- WORD...`: candidates for the next word, for the completion scripts of shells.

use super::session::{Session, SessionStatus};
use super::store::SessionStore;
use super::tables::SESSIONS;
use crate::error::Result;
use crate::text::options::completion::{Candidate, complete_line};
use crate::unix::terminal::print;
use std::env;
use std::ffi::OsString;
use std::path::Path;

/// Prints the offer for the words behind the program's name, the last one under the cursor.
pub(crate) fn print_candidates(raw: &[OsString]) -> Result<()> {
    let home = env::var("HOME").ok();
    let offer = complete_line(&SESSIONS, raw, home.as_deref(), |value, line| {
        let dir = line.value("--sessions-dir").unwrap_or(".sessions");
        (value.value.name == "ID").then(|| ("", active_sessions(Path::new(dir))))
    });
    print(offer)
}

fn active_sessions(dir: &Path) -> Vec<Candidate> {
    let all = SessionStore::open(dir, false).and_then(|store| store.list_sessions());
    let candidate = |session: &Session| {
        let metadata = session.read_metadata().ok()?;
        (metadata.status == SessionStatus::Active).then_some(Candidate {
            word: metadata.session_id,
            about: metadata.command,
        })
    };
    all.unwrap_or_default()
        .iter()
        .filter_map(candidate)
        .collect()
}
