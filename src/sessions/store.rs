//! The sessions directory: which sessions there are, and which of them may be run.

use crate::error::{Error, Result};
use crate::sessions::session::{Session, SessionId};
use crate::text::ids;
use crate::unix::files;
use crate::unix::origin::{
    ForeignReason, Origin, adopts_all, check_origin, make_stamped_dir, stamp_dir,
};
use std::path::{Path, PathBuf};

/// The sessions directory, which need not exist.
#[derive(Debug)]
pub(crate) struct SessionStore {
    dir: PathBuf,
    /// If set, nothing in it is run: `env.sh` is code.
    foreign: Option<ForeignReason>,
}

impl SessionStore {
    /// `adopt` stamps the directory and all sessions in it as one's own.
    pub(crate) fn open(dir: &Path, adopt: bool) -> Result<Self> {
        let dir = files::absolute(dir)?;
        if dir.to_str().is_none() {
            let message = format!("the path of the sessions, {}, is not UTF-8", dir.display());
            return Err(Error::failure(message));
        }
        let foreign = foreign_reason(&dir)?;
        let mut store = Self { dir, foreign };
        if adopt || adopts_all() {
            adopt_dir(&store.dir)?;
            for session in store.list_sessions()? {
                adopt_dir(session.dir())?;
            }
            store.foreign = None;
        }
        Ok(store)
    }

    /// Creates the directory of a new session, and the sessions directory unless it exists.
    pub(crate) fn create_session(&mut self) -> Result<Session> {
        make_stamped_dir(&self.dir, &[(".gitignore", b"*\n")])?;
        // Before the stamp is checked: another start stamps before it creates a session.
        let is_unused = self.list_sessions()?.is_empty();
        self.foreign = foreign_reason(&self.dir)?;
        if is_unused && self.foreign == Some(ForeignReason::NoStamp) {
            stamp_dir(&self.dir)?;
            files::replace_shared(&self.dir.join(".gitignore"), b"*\n")?;
            self.foreign = None;
        }
        self.refuse_foreign()?;
        let name = files::make_unique_dir(&self.dir, &format!("sess_{}", ids::hex(8)))?;
        stamp_dir(&self.dir.join(&name))?;
        let id = SessionId::parse(&name)
            .ok_or_else(|| Error::failure(format!("no session can be called {name}")))?;
        Ok(Session::at(&self.dir, id))
    }

    /// Finds a session to run, by a name that may come from a model.
    pub(crate) fn open_session(&self, name: &str) -> Result<Session> {
        let begun = self.find_session(name).filter(Session::is_begun);
        let session = begun.ok_or_else(|| {
            Error::failure(format!(
                "no session '{}' in {}; 'delta-sessions start' begins one, 'list' prints them",
                name.escape_debug(),
                self.dir.display()
            ))
        })?;
        self.refuse_foreign()?;
        if let Some(reason) = foreign_reason(session.dir())? {
            return Err(foreign_error(session.dir(), reason));
        }
        session.refuse_links()?;
        Ok(session)
    }

    /// An error if nothing in this directory may be run.
    pub(crate) fn refuse_foreign(&self) -> Result<()> {
        let error = |reason| Err(foreign_error(&self.dir, reason));
        self.foreign.map_or(Ok(()), error)
    }

    /// True for a session that may only be listed.
    pub(crate) fn is_foreign(&self, session: &Session) -> Result<bool> {
        Ok(self.foreign.is_some() || foreign_reason(session.dir())?.is_some())
    }

    /// All sessions by name, also those that are being started.
    pub(crate) fn list_sessions(&self) -> Result<Vec<Session>> {
        let names = files::names(&self.dir)?.into_iter();
        Ok(names.filter_map(|name| self.find_session(&name)).collect())
    }

    fn find_session(&self, name: &str) -> Option<Session> {
        let session = Session::at(&self.dir, SessionId::parse(name)?);
        let is_dir = session.dir().symlink_metadata().is_ok_and(|m| m.is_dir());
        is_dir.then_some(session)
    }
}

fn adopt_dir(dir: &Path) -> Result<()> {
    foreign_reason(dir)?.map_or(Ok(()), |_| stamp_dir(dir))
}

fn foreign_reason(dir: &Path) -> Result<Option<ForeignReason>> {
    Ok(match check_origin(dir)? {
        Origin::Foreign(reason) => Some(reason),
        Origin::Own | Origin::Missing => None,
    })
}

fn foreign_error(dir: &Path, reason: ForeignReason) -> Error {
    Error::failure(format!(
        "{} {reason}; nothing in it is run: if you trust it, --adopt makes it yours",
        dir.display()
    ))
}
