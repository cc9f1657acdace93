//! Who owns a run on a file system that hosts share, where a lock may be known to its own host only.
//!
//! Architecture invariant: of several processes that would go on with a run in one state, exactly one claims it:
//! by a rename to `takeover.N`, N being one more than those that are there. What a claim was made upon is in it, so
//! that it counts until its process has recorded a start, or is itself found to be gone.

use super::launcher::{is_launcher_variable, launcher_variables};
use crate::config::environment::{KEY_NAMES, without};
use crate::engine::run_context::RunContext;
use crate::error::{At, Error, Exit, Result, ignore};
use crate::record::run_dir::RunDir;
use crate::record::state;
use crate::text::disguise::printable;
use crate::unix::files;
use crate::unix::process::{self, Command, Ended, Variable};
use crate::unix::procfs;
use crate::unix::signals::Signals;
use rustix::fd::AsFd;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

/// The variable of the process environment that declares every file system to be shared by hosts, when it is `1`: not
/// every kernel says so of each.
const SHARED_FS: &str = "DELTA_SHARED_FS";

/// The variable of the process environment with the command that knows whether an owner is gone.
const OWNER_CHECK: &str = "DELTA_OWNER_CHECK";

/// Time limit of the command.
const PATIENCE: Duration = Duration::from_secs(30);

/// The exit code that says that the owner is gone.
const GONE: i32 = 10;

const CLAIM: &str = "takeover.";
const OWNER_FILE: &str = "owner.json";

/// A process that works on a run, or did.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Owner {
    hostname: String,
    pid: u64,
    launcher: Map<String, Value>,
    /// Number of starts that the run had when the process claimed it.
    starts: u64,
}

impl Owner {
    /// The process of the newest start.
    fn recorded(state: &state::Run<'_>) -> Self {
        Self {
            hostname: state.start.hostname.to_string(),
            pid: state.start.pid.unwrap_or(0),
            launcher: state.start.launcher(),
            starts: state.starts,
        }
    }

    fn this_process(starts: u64) -> Self {
        Self {
            hostname: procfs::hostname(),
            pid: u64::from(std::process::id()),
            launcher: launcher_variables(),
            starts,
        }
    }

    fn is_elsewhere(&self) -> bool {
        !self.hostname.is_empty() && self.hostname != procfs::hostname()
    }

    /// A record may hold any text.
    fn host(&self) -> String {
        printable(&self.hostname).replace('\n', " ")
    }
}

/// Makes sure that no other host works on a run whose lock this process holds, and claims it where several hosts
/// might. Returns a remark if it was taken over from another host.
///
/// # Errors
/// It may be live elsewhere, or another process claims it at this moment.
pub(super) fn claim_run(
    run: &RunDir,
    state: &state::Run<'_>,
    signals: &Signals,
) -> Result<Option<String>> {
    let is_shared = std::env::var_os(SHARED_FS).is_some_and(|value| value == "1");
    if !is_shared && !files::is_network_file_system(&run.path) {
        // On a local one the lock is proof enough: containers change their names.
        return Ok(None);
    }
    let newest = newest_claim(&run.path)?;
    let number = newest.as_ref().map_or(0, |(number, _)| *number);
    let pending = newest
        .map(|(_, claim)| claim)
        .filter(|claim| claim.starts == state.starts);
    let has_ended = pending.is_none() && state.end.is_some();
    let owner = pending.unwrap_or_else(|| Owner::recorded(state));
    let command = std::env::var(OWNER_CHECK)
        .ok()
        .filter(|command| !command.trim().is_empty());
    let is_taken = !has_ended && owner.is_elsewhere();
    let Some(command) = command else {
        return if is_taken {
            Err(unseen(run, &owner))
        } else {
            Ok(None)
        };
    };
    if is_taken {
        ask_whether_gone(&command, run, &owner, signals)?;
    }
    if !claim(run, number.saturating_add(1), state.starts)? {
        return Err(Error::new(
            Exit::TempFail,
            format!("run {} is being taken over by another process", run.id),
        ));
    }
    Ok(is_taken.then(|| {
        let (host, pid) = (owner.host(), owner.pid);
        format!(
            "took the run over from host {host}, pid {pid}, which is gone as {OWNER_CHECK} says"
        )
    }))
}

fn unseen(run: &RunDir, owner: &Owner) -> Error {
    let (id, theirs) = (&run.id, owner.host());
    Error::new(
        Exit::TempFail,
        format!(
            "run {id} was started on host {theirs} and may still be running there: its lock cannot be seen from \
             here; make sure that it is not, then use `delta continue --force`"
        ),
    )
}

/// Asks the command whether an owner is gone.
///
/// # Errors
/// It lives, or its state is unknown.
fn ask_whether_gone(command: &str, run: &RunDir, owner: &Owner, signals: &Signals) -> Result<()> {
    let (id, host, pid) = (&run.id, owner.host(), owner.pid);
    let unknown = |why: &str| {
        let message =
            format!("cannot tell whether run {id} is still running on host {host}: {why}");
        Error::new(Exit::TempFail, message)
    };
    let Some(mut argv) = shlex::split(command).filter(|argv| !argv.is_empty()) else {
        return Err(Error::config(format!(
            "{OWNER_CHECK}: '{command}' is not a command"
        )));
    };
    if !is_host_name(&owner.hostname) {
        return Err(unknown("its record names no host"));
    }
    let dir = run.path.to_string_lossy().into_owned();
    argv.extend([owner.hostname.clone(), pid.to_string(), dir]);
    let call_id = RunContext::own_call_id();
    let child = Command {
        argv: &argv,
        dir: Path::new("."),
        env: &variables(owner),
        call_id: &call_id,
        stdin: None,
        stdout: File::options()
            .write(true)
            .open("/dev/null")
            .at("open", Path::new("/dev/null"))?,
        stderr: stderr()?,
        timeout: Some(PATIENCE),
    };
    let ended = process::run(signals, child, process::GRACE);
    let ended =
        ended.map_err(|error| unknown(&format!("{OWNER_CHECK}: {}", error.message(&argv[0]))))?;
    match ended.how {
        Ended::Exited(GONE) => Ok(()),
        Ended::Exited(0) => Err(Error::new(
            Exit::TempFail,
            format!("run {id} is running on host {host}, pid {pid}, as {OWNER_CHECK} says"),
        )),
        Ended::Exited(code) => Err(unknown(&format!("{OWNER_CHECK} ended with {code}"))),
        Ended::TimedOut => {
            let seconds = PATIENCE.as_secs();
            Err(unknown(&format!(
                "{OWNER_CHECK} gave no answer in {seconds} s"
            )))
        }
        Ended::Interrupted(_) => match signals.stop() {
            Some(stop) => Err(Error::new(stop.into(), stop.name().to_owned())),
            None => Err(unknown(&format!("{OWNER_CHECK} was ended"))),
        },
    }
}

/// No option, and nothing that a shell or a terminal would take for more than a name.
fn is_host_name(name: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
    (1..=255).contains(&name.len()) && !name.starts_with('-') && name.chars().all(is_of_name)
}

/// The variables of the batch system that had started an owner, under names of their own; keys are taken out.
fn variables(owner: &Owner) -> Vec<Variable> {
    let known = owner
        .launcher
        .iter()
        .filter(|(name, _)| is_launcher_variable(name));
    let texts = known.filter_map(|(name, value)| Some((name, value.as_str()?)));
    let theirs = texts
        .filter(|(_, value)| !value.contains('\0'))
        .map(|(name, value)| (format!("DELTA_OWNER_{name}"), Some(value.to_owned())));
    without(&KEY_NAMES, false)
        .into_iter()
        .chain(theirs)
        .collect()
}

fn stderr() -> Result<File> {
    let stderr = std::io::stderr().as_fd().try_clone_to_owned();
    stderr.map(File::from).at("open", Path::new("/dev/stderr"))
}

/// The claim with the highest number. One that cannot be read was made upon nothing.
fn newest_claim(run: &Path) -> Result<Option<(u32, Owner)>> {
    let names = files::names(run)?;
    let numbers = names
        .iter()
        .filter_map(|name| name.strip_prefix(CLAIM)?.parse().ok());
    let Some(newest) = numbers.max() else {
        return Ok(None);
    };
    let path = run.join(format!("{CLAIM}{newest}")).join(OWNER_FILE);
    let owner = files::read_regular(&path)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok());
    Ok(Some((newest, owner.unwrap_or_default())))
}

/// Claims a run. False if another process has this claim.
fn claim(run: &RunDir, number: u32, starts: u64) -> Result<bool> {
    let host = procfs::hostname().replace('/', "_");
    // This name is unique among all hosts.
    let draft = run
        .path
        .join(format!(".{CLAIM}{host}.{}", std::process::id()));
    ignore(fs::remove_dir_all(&draft));
    files::make_dir(&draft)?;
    let owner = Owner::this_process(starts);
    let text = serde_json::to_vec(&owner).unwrap_or_default();
    files::write(&draft.join(OWNER_FILE), &text)?;
    let claimed = run.path.join(format!("{CLAIM}{number}"));
    // A directory takes the place of an empty one only, and a claim is never empty.
    let renamed = fs::rename(&draft, &claimed);
    if renamed.is_err() {
        ignore(fs::remove_dir_all(&draft));
    }
    match renamed {
        Ok(()) => files::sync_dir(&run.path).map(|()| true),
        Err(_) if claimed.symlink_metadata().is_ok() => Ok(false),
        Err(error) => Err(error).at("create", &claimed),
    }
}
