//! Restricts this process irrevocably, with Landlock and without capabilities: where it may write, what it may
//! read, whether it may use TCP, which Unix sockets it can connect to.
//!
//! Unaware of what is executed afterwards. Access granted below a directory cannot be revoked
//! for a part of it: Landlock has no exceptions.

use super::devices::{is_terminal, parts_without_terminals};
use crate::error::{Error, Exit, Result, ignore, reason};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    Scope,
};
use rustix::fd::BorrowedFd;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities,
};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The version with all of this: Linux 6.12.
const WHOLE: ABI = ABI::V6;

/// The first version that covers sockets with a path. Before it, seccomp refuses all of them.
const WITH_UNIX: ABI = ABI::V9;

/// Places of programs, libraries and their settings. Home directories, `/var`, `/tmp`, `/run`, `/srv`
/// and `/mnt` are not among them.
const PROGRAMS: [&str; 13] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/snap",
    "/run/current-system",
];

/// Files that programs read to know the machine and to resolve names.
const READABLE: [&str; 4] = ["/proc", "/sys", "/run/systemd/resolve", "/run/resolvconf"];

/// Devices that every command can use. A terminal is usable only through a descriptor that is already open.
const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Capabilities that root keeps, to work with other users' files.
const FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Grants beyond the system itself.
#[derive(Debug, Default)]
pub(crate) struct Grants<'a> {
    /// Read, written and executed from.
    pub rw: &'a [PathBuf],
    /// Read and executed from.
    pub ro: &'a [PathBuf],
    /// TCP.
    pub network: bool,
    /// TCP within a network namespace that has nothing but a loopback interface.
    pub loopback: bool,
    /// Unix sockets of other processes, wherever they are.
    pub unix: bool,
    /// True if this process has network interfaces too, so that only Landlock keeps it from TCP.
    pub has_interfaces: bool,
    /// True if it is an error that the kernel cannot do it all.
    pub strict: bool,
}

/// True for what every sandboxed command can read and execute.
pub(crate) fn is_system_path(path: &Path) -> bool {
    let mut roots = PROGRAMS
        .iter()
        .filter_map(|dir| Path::new(dir).canonicalize().ok());
    roots.any(|dir| path.starts_with(dir))
}

/// The extent to which the kernel has restricted this process.
pub(crate) struct Enforced {
    /// Actions that it could not restrict.
    pub missing: Vec<&'static str>,
    /// True if it refuses the Unix sockets that are not granted.
    pub unix: bool,
}

/// Restricts this process and everything it will start.
///
/// # Errors
/// A directory that is not there; with `strict`, a kernel that lacks something.
pub(crate) fn restrict(grants: &Grants<'_>) -> Result<Enforced> {
    let mut all = AccessFs::from_all(WHOLE) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    if !grants.unix {
        all |= AccessFs::ResolveUnix;
    }
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let run = read | AccessFs::Execute;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev;
    let mut rules = create(grants).map_err(|_| unsupported())?;
    for path in &PROGRAMS {
        rules = grant(rules, Path::new(path), run)?;
    }
    for path in &READABLE {
        rules = grant(rules, Path::new(path), read)?;
    }
    for path in &DEVICES {
        rules = grant(rules, Path::new(path), device)?;
    }
    for (path, stream) in [
        ("/dev/stdin", stdin()),
        ("/dev/stdout", stdout()),
        ("/dev/stderr", stderr()),
    ] {
        // Scripts reopen their streams by these names.
        rules = grant(rules, Path::new(path), inherited_access(path, stream))?;
    }
    for path in grants.ro {
        rules = grant_parts(rules, path, run)?;
    }
    for path in grants.rw {
        rules = grant_parts(rules, path, all)?;
    }
    drop_capabilities();
    let status = rules.restrict_self().map_err(|_| unsupported())?;
    let restricts_network = !grants.network && grants.has_interfaces;
    Ok(Enforced {
        missing: missing_restrictions(&status.landlock, restricts_network),
        unix: !grants.unix && covers_unix(&status.landlock),
    })
}

/// Drops all but those for files, for this process and what it executes. With others, root could undo mounts, or
/// read any process's memory through `/proc` despite Landlock (`mm_access` in the kernel).
fn drop_capabilities() {
    for (_, capability) in CapabilitySet::all().difference(FILES).iter_names() {
        ignore(remove_capability_from_bounding_set(capability));
    }
    let held = capabilities(None).map_or(CapabilitySet::empty(), |held| held.permitted);
    let kept = CapabilitySets {
        effective: held & FILES,
        permitted: held & FILES,
        inheritable: CapabilitySet::empty(),
    };
    ignore(set_capabilities(None, kept));
}

fn create(grants: &Grants<'_>) -> std::result::Result<RulesetCreated, RulesetError> {
    let level = if grants.strict {
        CompatLevel::HardRequirement
    } else {
        CompatLevel::BestEffort
    };
    let mut rules = Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::from_all(WHOLE))?
        .scope(Scope::Signal)?;
    if !grants.network {
        rules = rules.scope(Scope::AbstractUnixSocket)?;
    }
    if !grants.network && !grants.loopback {
        rules = rules.handle_access(AccessNet::from_all(WHOLE))?;
    }
    if !grants.unix {
        // Not even strictly: seccomp does it on older kernels.
        rules = rules
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::ResolveUnix)?;
    }
    rules.create()
}

/// The access by path that gives no more than the stream itself. One that was empty had nothing to lose; a terminal
/// could be opened again after the command has ended.
fn inherited_access(path: &str, stream: BorrowedFd<'_>) -> BitFlags<AccessFs> {
    let found = Path::new(path)
        .metadata()
        .ok()
        .zip(fcntl_getfl(stream).ok());
    let Some((meta, flags)) = found.filter(|(meta, flags)| {
        let is_device = meta.file_type().is_char_device() && !is_terminal(meta);
        (meta.is_file() || is_device) && !flags.contains(OFlags::PATH)
    }) else {
        return BitFlags::empty();
    };
    let mode = flags & OFlags::RWMODE;
    let mut access = BitFlags::empty();
    access.set(AccessFs::ReadFile, mode != OFlags::WRONLY);
    access.set(AccessFs::WriteFile, mode != OFlags::RDONLY);
    access.set(
        AccessFs::Truncate,
        mode != OFlags::RDONLY && meta.len() == 0,
    );
    access
}

/// Grants what lies below a path, but for terminals.
fn grant_parts(
    mut rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated> {
    let refused = |why: &str| {
        let message = format!("sandbox: {}: {why}", path.display());
        Error::new(Exit::NotSetUp, message)
    };
    let real = path.canonicalize().map_err(|e| refused(&reason(&e)))?;
    let parts = parts_without_terminals(&real);
    let parts =
        parts.ok_or_else(|| refused("a terminal can only be inherited, as a descriptor"))?;
    if !parts.contains(&real) {
        rules = grant(rules, &real, AccessFs::ReadDir.into())?;
    }
    let grant_part = |rules, part: &PathBuf| grant(rules, part, access);
    parts.iter().try_fold(rules, grant_part)
}

/// Grants something below a path, if that is there.
fn grant(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated> {
    let Some((meta, file)) = path.metadata().ok().zip(PathFd::new(path).ok()) else {
        return Ok(rules);
    };
    let access = if meta.is_dir() {
        access
    } else {
        access & AccessFs::from_file(WITH_UNIX)
    };
    if access.is_empty() {
        return Ok(rules);
    }
    rules
        .add_rule(PathBeneath::new(file, access))
        .map_err(|e| Error::new(Exit::NotSetUp, format!("sandbox: {}: {e}", path.display())))
}

fn unsupported() -> Error {
    Error::new(
        Exit::NotSetUp,
        "sandbox: the kernel cannot enforce all of this; that needs Linux 6.12 with Landlock \
         enabled. Without --strict, delta enforces what it can",
    )
}

fn covers_unix(status: &LandlockStatus) -> bool {
    matches!(status, LandlockStatus::Available { effective_abi, .. } if *effective_abi >= WITH_UNIX)
}

/// The restrictions that a kernel with this Landlock lacks.
fn missing_restrictions(status: &LandlockStatus, restricts_network: bool) -> Vec<&'static str> {
    let abi = match status {
        LandlockStatus::Available { effective_abi, .. } => *effective_abi,
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => {
            return vec!["reading and writing files (the kernel has no Landlock)"];
        }
    };
    [
        (ABI::V3, true, "truncating files"),
        (ABI::V4, restricts_network, "TCP"),
        (ABI::V5, true, "ioctl on devices"),
        (ABI::V6, true, "signals to other processes"),
        (ABI::V6, restricts_network, "abstract Unix sockets"),
    ]
    .into_iter()
    .filter(|(since, wanted, _)| *wanted && abi < *since)
    .map(|(_, _, what)| what)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_kernel_leaves_open_is_named() {
        let with = |effective_abi| LandlockStatus::Available {
            effective_abi,
            kernel_abi: None,
        };
        assert!(missing_restrictions(&with(ABI::V6), true).is_empty());
        assert_eq!(
            missing_restrictions(&with(ABI::V5), false),
            ["signals to other processes"]
        );
        assert!(covers_unix(&with(ABI::V9)) && !covers_unix(&with(ABI::V8)));
        assert!(missing_restrictions(&with(ABI::V3), true).contains(&"TCP"));
        assert!(!missing_restrictions(&with(ABI::V3), false).contains(&"TCP"));
        assert_eq!(
            missing_restrictions(&LandlockStatus::NotEnabled, true).len(),
            1
        );
    }
}
