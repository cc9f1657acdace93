//! What the files of a run's states differ in, from one state to the next.

use crate::config::environment::Environment;
use crate::file_states::changes::diff;
use crate::file_states::store::{Store, Use};
use crate::record::event::recorded::{EngineStart, Files};
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::ids::is_hash;
use crate::unix::secret::Secret;
use std::path::Path;

/// The states of a run, up to one of them.
pub(super) struct FileDiffs {
    store: Option<Store>,
    last: Option<String>,
    /// Taken out of what is shown. Where they cannot be read, nothing is shown, but the reason.
    secrets: Result<Vec<Secret>, String>,
}

impl Default for FileDiffs {
    fn default() -> Self {
        Self {
            store: None,
            last: None,
            secrets: Ok(Vec::new()),
        }
    }
}

impl FileDiffs {
    /// Takes note of a start: the keys that it could know are not shown.
    pub(super) fn note(&mut self, run: &RunDir, start: &EngineStart<'_>) {
        let home = Path::new(&*start.agent_home);
        let known = Environment::read(home, run.workspace(), None);
        let secrets = known.map(|(environment, _)| environment.secrets());
        self.secrets = secrets.map_err(|error| error.message);
    }

    /// The difference of a state from the one before, without secrets, or the reason why it is not shown; empty if it
    /// cannot be had.
    pub(super) fn of_next(&mut self, run: &RunDir, files: &Files<'_>) -> String {
        let commit = files.commit.owned().filter(|commit| is_hash(commit));
        let before = std::mem::replace(&mut self.last, commit.clone());
        let (Some(before), Some(commit)) = (before, commit) else {
            return String::new();
        };
        if self.store.is_none() {
            let workspace = run.workspace().and_then(|root| Workspace::at(root).ok());
            self.store = workspace.and_then(|it| Store::open(&it, Use::Shared).ok()?);
        }
        let shown = |store: &Store| diff(store, [&before, &commit], &files.changed_files()).ok();
        let mut text = self.store.as_ref().and_then(shown).unwrap_or_default();
        match &self.secrets {
            Err(_) if text.is_empty() => {}
            Err(why) => {
                text = format!("not shown: it could contain keys, which cannot be read: {why}");
            }
            Ok(secrets) => {
                for secret in secrets {
                    secret.redact_text(&mut text);
                }
            }
        }
        text
    }
}
