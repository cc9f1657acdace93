//! Keys of providers: read when a run of an agent begins that needs one, and kept from all other programs.
//!
//! Unaware of nodes that are no agents' but for what they must not see.

use crate::config::environment::{Secret, without};
use crate::engine::run_context::RunContext;
use crate::error::{ignore, reason};
use crate::flow::graph::NodeIx;
use crate::flow::manifest::Flow;
use crate::flow::manifest::{AgentBody, Credential, parse_key};
use crate::unix::process::{self, Command, Variable};
use crate::unix::signals::Signals;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The time limit of a program that prints a key.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The time for which a key that a program has printed is used, and a failure believed: keys that programs print may
/// end within the hour, and many agents may begin at once.
const KEPT: Duration = Duration::from_secs(60);

/// The most bytes of a key. A pipe holds as many without a reader.
const LONGEST: u64 = 32 << 10;

/// Keys, as the programs of nodes see them.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    /// Taken out of the environment of programs, and of runs of agents.
    pub hidden: Vec<Variable>,
    hidden_from_agents: Vec<Variable>,
    /// By provider: what a program printed, or why it did not.
    printed: HashMap<usize, (Result<Secret, String>, Instant)>,
}

impl Credentials {
    /// None is read yet.
    pub(crate) fn new(flow: &Flow) -> Self {
        let names: Vec<&str> = flow
            .providers
            .iter()
            .filter_map(|it| it.credential.as_ref())
            .filter_map(|credential| match credential {
                Credential::Env(name) => Some(&**name),
                Credential::File(_) | Credential::Command(_) => None,
            })
            .collect();
        if names.is_empty() {
            return Self::default();
        }
        Self {
            hidden: without(&names, false),
            hidden_from_agents: without(&names, true),
            printed: HashMap::new(),
        }
    }

    /// A program must be asked before the node's program can be started.
    pub(crate) fn must_ask(&self, flow: &Flow, node: NodeIx) -> bool {
        flow.provider(node)
            .map(|it| &flow.providers[it])
            .is_some_and(|it| matches!(it.credential, Some(Credential::Command(_))))
    }

    /// In what the environment of a node's program differs from ours.
    ///
    /// # Errors
    /// Why the key that it needs is not there.
    pub(crate) fn variables(
        &mut self,
        flow: &Flow,
        node: NodeIx,
        signals: &Signals,
    ) -> Result<Vec<Variable>, String> {
        let agent = flow.agent(node).map(|agent| &agent.body);
        if !matches!(
            agent,
            Some(AgentBody::Directory(_) | AgentBody::Model { .. })
        ) {
            return Ok(self.hidden.clone());
        }
        let Some((index, credential)) = flow
            .provider(node)
            .and_then(|it| Some((it, flow.providers[it].credential.as_ref()?)))
        else {
            return Ok(self.hidden_from_agents.clone());
        };
        let key = match (credential, self.printed.get(&index)) {
            (_, Some((key, since))) if since.elapsed() < KEPT => key.clone(),
            (Credential::Command(argv), _) => credential.key().and_then(|_| {
                let key = ask_program(argv, &flow.home, signals);
                self.printed.insert(index, (key.clone(), Instant::now()));
                key
            }),
            (Credential::Env(_) | Credential::File(_), _) => credential
                .key()
                .and_then(|key| key.ok_or_else(|| "there is none".to_owned())),
        };
        let id = &flow.providers[index].id;
        let key = key.map_err(|why| format!("provider {id}: credential: {why}"))?;
        Ok([&*self.hidden, &[key.given()]].concat())
    }
}

/// The key that a program prints: into a pipe, because what is in a file may stay there. What it says
/// goes where our own messages go.
fn ask_program(argv: &[String], home: &Path, signals: &Signals) -> Result<Secret, String> {
    let system = |e: io::Error| format!("cannot run {}: {}", argv[0], reason(&e));
    let (mut output, input) = io::pipe().map_err(system)?;
    let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(system)?;
    let ended = process::run(
        signals,
        Command {
            argv,
            dir: home,
            env: &[],
            call_id: &RunContext::own_call_id(),
            stdin: None,
            stdout: File::from(OwnedFd::from(input)),
            stderr: File::from(stderr),
            timeout: Some(TIMEOUT),
        },
        process::GRACE / 2,
    )
    .map_err(|error| error.message(&argv[0]))?
    .how;
    if let Some(why) = ended.fault(TIMEOUT) {
        return Err(format!("{}: {why}", argv[0]));
    }
    // A process that it left behind may hold the pipe open.
    rustix::io::ioctl_fionbio(&output, true).map_err(|e| system(e.into()))?;
    let mut bytes = Vec::new();
    ignore((&mut output).take(LONGEST).read_to_end(&mut bytes));
    parse_key(
        &String::from_utf8_lossy(&bytes),
        &format!("what {} prints", argv[0]),
    )
}
