//! Who may write to a file or a directory, and so decide what is read there.
//!
//! Unaware of what is read. Access control lists count as far as the group's permissions show them.

use crate::error::reason;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The users whose files count: the caller, root, and the owners of these paths, as far as they are there.
pub(crate) fn trusted_users<'p>(of: impl IntoIterator<Item = &'p Path>) -> Vec<u32> {
    let owners = of.into_iter().filter_map(|path| fs::metadata(path).ok());
    let callers = [rustix::process::geteuid().as_raw(), 0];
    callers
        .into_iter()
        .chain(owners.map(|meta| meta.uid()))
        .collect()
}

/// The first of these paths that others than the trusted users can write to, with the reason.
pub(crate) fn objection<'p>(
    paths: impl IntoIterator<Item = &'p Path>,
    trusted: &[u32],
) -> io::Result<Option<String>> {
    for path in paths {
        if let Some(why) = objection_to(&fs::metadata(path)?, trusted) {
            return Ok(Some(format!("{} {why}", path.display())));
        }
    }
    Ok(None)
}

/// An objection to what lies in a directory, and each directory on the way; what cannot be looked at does not count either.
pub(crate) fn objection_below(dir: &Path, path: &Path, trusted: &[u32]) -> Option<String> {
    let on_way = path.ancestors().take_while(|at| at.starts_with(dir));
    objection(on_way, trusted).unwrap_or_else(|e| Some(reason(&e)))
}

/// The reason why others than the trusted users can write to something, if they can.
pub(crate) fn objection_to(meta: &Metadata, trusted: &[u32]) -> Option<String> {
    let (owner, group, mode) = (meta.uid(), meta.gid(), meta.mode());
    if !trusted.contains(&owner) {
        Some(format!("belongs to another user (uid {owner})"))
    } else if mode & 0o002 != 0 {
        Some("can be written by everybody".to_owned())
    } else if mode & 0o020 != 0 && group != own_group(owner) {
        Some(format!("can be written by a group (gid {group})"))
    } else {
        None
    }
}

/// The group that a user shares with no one, which has the user's name; else the primary group.
fn own_group(user: u32) -> u32 {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let unlisted = || {
        if user == rustix::process::geteuid().as_raw() {
            return rustix::process::getgid().as_raw();
        }
        // Of a user of another system, as in a container: most have a group of the same number.
        user
    };
    listed_group(user, &users, &groups).unwrap_or_else(unlisted)
}

/// The group of a user that passwd(5) lists, with group(5).
fn listed_group(user: u32, users: &str, groups: &str) -> Option<u32> {
    let id = |text: &&str| text.parse::<u32>().ok();
    let mut users = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let found = users.find(|fields| fields.get(2).and_then(id) == Some(user))?;
    let mut groups = groups
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let private = groups
        .find(|fields| fields.first() == found.first())
        .and_then(|fields| fields.get(2).and_then(id));
    private.or_else(|| found.get(3).and_then(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_ones_own_has_ones_name_or_is_the_primary_one() {
        let users =
            "root:x:0:0::/:\nann:x:1000:1000::/:\nbob:x:1001:100::/:\neve:x:1002:100::/:\nodd\n";
        let groups = "root:x:0:\nann:x:1000:\nusers:x:100:bob,eve\neve:x:1002:\n";
        let cases = [
            (0, Some(0)),
            (1000, Some(1000)),
            (1001, Some(100)),
            (1002, Some(1002)),
            (7, None),
        ];
        for (user, group) in cases {
            assert_eq!(listed_group(user, users, groups), group, "{user}");
        }
    }
}
