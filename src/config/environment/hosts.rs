//! The hosts that a run's tools may reach although they have no network.

use super::{ALLOW_HOSTS, Environment, Trust};
use crate::unix::doors::Door;
use crate::unix::process::Variable;

impl Environment {
    /// Takes the hosts of the command line, if there are any, in place of those that the environment lists.
    pub(crate) fn allow_hosts(&mut self, doors: &[Door]) {
        if !doors.is_empty() {
            self.given_hosts = Some(doors.iter().map(Door::to_string).collect());
        }
    }

    /// True if the command line has named them.
    pub(crate) fn has_given_hosts(&self) -> bool {
        self.given_hosts.is_some()
    }

    /// The hosts as doors are written. No file of an agent or a workspace names any.
    pub(crate) fn allowed_hosts(&self) -> Vec<String> {
        let listed = || {
            let found = self.find_trusted(&[ALLOW_HOSTS], Trust::Trusted);
            let text = found.map(|(text, _)| text).unwrap_or_default();
            text.split_whitespace().map(str::to_owned).collect()
        };
        self.given_hosts.clone().unwrap_or_else(listed)
    }

    /// The variable for a program of a run.
    pub(crate) fn hosts_variable(&self) -> Variable {
        let hosts = self.allowed_hosts().join(" ");
        (
            ALLOW_HOSTS.to_owned(),
            Some(hosts).filter(|it| !it.is_empty()),
        )
    }
}
