//! The doors of `delta sandbox`: which are open, and where their use is recorded.

use crate::cli::args::SandboxArgs;
use crate::config::environment::ALLOW_HOSTS;
use crate::error::{At, Error, Exit, Result, reason};
use crate::model::http::RESOLVE_COMMAND;
use crate::record::execution::{EXECUTION_DIR, NETWORK_LOG};
use crate::unix::doors::{Door, ProxyPlan, Upstreams, open_inside, read_doors};
use crate::unix::files;
use crate::unix::namespaces::find_obstacle;
use rustix::net::{AddressFamily, SocketType, getpeername, sockopt};
use rustix::stdio::{stderr, stdin, stdout};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The doors that the command line and, if it says so, the environment open.
///
/// # Errors
/// A word of the environment's is no door.
pub(super) fn wanted_doors(wanted: &SandboxArgs) -> Result<Vec<Door>> {
    let listed = std::env::var(ALLOW_HOSTS)
        .ok()
        .filter(|_| wanted.doors_from_env);
    let Some(listed) = listed else {
        return Ok(wanted.doors.clone());
    };
    let doors = read_doors(&listed).map_err(|why| Error::usage(format!("{ALLOW_HOSTS}: {why}")))?;
    Ok([&*wanted.doors, &*doors].concat())
}

/// The plan for the proxy of these doors; none without any. It is made before anything is restricted.
pub(super) fn plan(wanted: &SandboxArgs, doors: Vec<Door>) -> Result<Option<ProxyPlan>> {
    if doors.is_empty() {
        return Ok(None);
    }
    refuse_streams()?;
    refuse_sockets()?;
    let in_run = std::env::var_os(EXECUTION_DIR).map(|dir| PathBuf::from(dir).join(NETWORK_LOG));
    let path = wanted.log.clone().or(in_run);
    let opened = path.map(|path| open_log(&path)).transpose();
    let log = opened.map_err(|error| Error {
        exit: Exit::NotSetUp,
        message: format!("sandbox: {}", error.message),
        ..error
    })?;
    Ok(Some(ProxyPlan {
        doors,
        log,
        upstreams: Upstreams::of_process(false),
        // This program, even if the command replaces its file: what looks names up is not restricted.
        resolver: vec!["/proc/self/exe".to_owned(), RESOLVE_COMMAND.to_owned()],
    }))
}

fn open_log(path: &Path) -> Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let file = opened.at("open", path)?;
    if file.metadata().at("read", path)?.is_file() {
        Ok(file)
    } else {
        Err(files::not_regular()).at("open", path)
    }
}

/// Opens the inner end for the command, and returns its port.
///
/// # Errors
/// There is no network namespace, so that there would be no doors but an open network.
pub(super) fn open_doors(keeper: &UnixStream, obstacle: Option<&str>) -> Result<u16> {
    let refused = |why: &str| {
        let cause = find_obstacle().unwrap_or(
            "an outer sandbox, or the seccomp or AppArmor profile of a container, forbids it",
        );
        let message =
            format!("sandbox: --allow-host needs a network namespace, and {why}; {cause}");
        Error::new(Exit::NotSetUp, message)
    };
    match obstacle {
        Some(why) => Err(refused(why)),
        None => open_inside(keeper)
            .map_err(|e| refused(&format!("it cannot be set up: {}", reason(&e)))),
    }
}

/// Fails if a standard stream is a socket that the command could connect to something else. Only a connected stream
/// socket of Unix stays what it is: one of TCP can be disconnected, and belongs to the network outside.
fn refuse_streams() -> Result<()> {
    let streams = [
        ("input", stdin()),
        ("output", stdout()),
        ("error", stderr()),
    ];
    for (name, stream) in streams {
        // Fails for what is no socket.
        let Ok(domain) = sockopt::socket_domain(stream) else {
            continue;
        };
        let kind = sockopt::socket_type(stream);
        let is_stream = matches!(kind, Ok(SocketType::STREAM | SocketType::SEQPACKET));
        if domain != AddressFamily::UNIX || !is_stream || getpeername(stream).is_err() {
            let message = format!(
                "sandbox: standard {name} is a socket that can be connected elsewhere; put a pipe in between, as with cat"
            );
            return Err(Error::new(Exit::NotSetUp, message));
        }
    }
    Ok(())
}

/// Fails if the command would inherit another socket from outside, which belongs to no namespace of its own.
fn refuse_sockets() -> Result<()> {
    const CLOSED_ON_EXEC: u32 = 0o2_000_000;
    let known = std::fs::read_to_string("/proc/self/net/unix").unwrap_or_default();
    for entry in std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
    {
        let number = entry.file_name().to_string_lossy().parse().unwrap_or(0);
        let Ok(target) = entry.path().read_link() else {
            continue;
        };
        let target = target.to_string_lossy();
        let inode = target
            .strip_prefix("socket:[")
            .and_then(|it| it.strip_suffix(']'));
        let Some(inode) = inode.filter(|_| number > 2) else {
            continue;
        };
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
        let closes_on_exec = info.is_ok_and(|info| {
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
            let flags = flags.and_then(|it| u32::from_str_radix(it.trim(), 8).ok());
            flags.is_some_and(|flags| flags & CLOSED_ON_EXEC != 0)
        });
        if !closes_on_exec && !is_connected_pair(&known, inode) {
            let message = format!(
                "sandbox: descriptor {number} is a socket that was opened outside; close it: {number}<&- in a shell"
            );
            return Err(Error::new(Exit::NotSetUp, message));
        }
    }
    Ok(())
}

/// True for a Unix socket that is connected and cannot send elsewhere. `known` is `/proc/net/unix`.
fn is_connected_pair(known: &str, inode: &str) -> bool {
    const STREAM: &str = "0001";
    const SEQPACKET: &str = "0005";
    const CONNECTED: &str = "03";
    known.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        matches!(fields[..], [_, _, _, _, STREAM | SEQPACKET, CONNECTED, it, ..] if it == inode)
    })
}
