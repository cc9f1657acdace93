//! Keys of providers: read when a run of an agent begins that needs one, and kept from all other programs.
//!
//! Unaware of nodes that are no agents' but for what they must not see.

use crate::config::environment::{Secret, without};
use crate::engine::run_context::RunContext;
use crate::error::{may_fail, reason};
use crate::flow::graph::NodeIx;
use crate::flow::manifest::Flow;
use crate::flow::manifest::{AgentBody, Credential, parse_key};
use crate::unix::process::{self, Command, Ended, Variable};
use crate::unix::signals::Signals;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a program has for printing a key.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long a key that a program has printed is used, and a failure believed: keys that programs print may
/// end within the hour, and many agents may begin at once.
const KEPT: Duration = Duration::from_secs(60);

/// The most bytes of a key. A pipe holds as many without a reader.
const LONGEST: u64 = 32 << 10;

/// Keys, as the programs of nodes see them.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    /// Taken out of the environment of programs, and of runs of agents.
    hidden: Vec<Variable>,
    hidden_from_agents: Vec<Variable>,
    /// By provider: what a program printed, or why it did not.
    printed: HashMap<usize, (Result<Secret, String>, Instant)>,
}

impl Credentials {
    /// None is read yet.
    pub(crate) fn new(flow: &Flow) -> Self {
        let credentials = flow
            .providers
            .iter()
            .filter_map(|it| it.credential.as_ref());
        let names: Vec<&str> = credentials
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
        let of = |provider: usize| flow.providers[provider].credential.as_ref();
        flow.provider(node)
            .is_some_and(|it| matches!(of(it), Some(Credential::Command(_))))
    }

    /// In what the environment of a program that needs no key differs from ours.
    pub(crate) fn hidden(&self) -> Vec<Variable> {
        self.hidden.clone()
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
        let agent = flow.nodes[node].agent.map(|agent| &flow.agents[agent].body);
        let is_run = matches!(
            agent,
            Some(AgentBody::Directory(_) | AgentBody::Model { .. })
        );
        if !is_run {
            return Ok(self.hidden());
        }
        let mut variables = self.hidden_from_agents.clone();
        if let Some(provider) = flow.provider(node)
            && let Some(credential) = &flow.providers[provider].credential
        {
            variables.clone_from(&self.hidden);
            let id = &flow.providers[provider].id;
            let key = self.key(provider, credential, (flow, signals));
            let key = key.map_err(|why| format!("provider {id}: credential: {why}"))?;
            variables.push(key.given());
        }
        Ok(variables)
    }

    fn key(
        &mut self,
        provider: usize,
        credential: &Credential,
        ctx: (&Flow, &Signals),
    ) -> Result<Secret, String> {
        let known = self.printed.get(&provider);
        if let Some((key, since)) = known
            && since.elapsed() < KEPT
        {
            return key.clone();
        }
        match (credential.key()?, credential) {
            (Some(key), _) => Ok(key),
            (None, Credential::Command(argv)) => {
                let key = ask_program(argv, ctx);
                let entry = (key.clone(), Instant::now());
                self.printed.insert(provider, entry);
                key
            }
            (None, Credential::Env(_) | Credential::File(_)) => Err("there is none".to_owned()),
        }
    }
}

/// The key that a program prints: into a pipe, because what is in a file may stay there. What it says
/// goes where our own messages go.
fn ask_program(argv: &[String], (flow, signals): (&Flow, &Signals)) -> Result<Secret, String> {
    let system = |e: io::Error| format!("cannot run {}: {}", argv[0], reason(&e));
    let (mut output, input) = io::pipe().map_err(system)?;
    let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(system)?;
    let ran = process::run(
        signals,
        Command {
            argv,
            dir: &flow.home,
            env: &[],
            call_id: &RunContext::own_call_id(),
            stdin: None,
            stdout: File::from(OwnedFd::from(input)),
            stderr: File::from(stderr),
            timeout: Some(TIMEOUT),
        },
        process::GRACE / 2,
    );
    match ran.map(|outcome| outcome.how) {
        Ok(Ended::Exited(0)) => {}
        Ok(Ended::Exited(code)) => return Err(format!("{}: exit code {code}", argv[0])),
        Ok(Ended::TimedOut) => {
            let seconds = TIMEOUT.as_secs();
            return Err(format!("{}: it took longer than {seconds} s", argv[0]));
        }
        Ok(Ended::Interrupted(_)) => return Err(format!("{}: it was ended", argv[0])),
        Err(error) => return Err(error.message(&argv[0])),
    }
    // A process that it left behind may hold the pipe open.
    rustix::io::ioctl_fionbio(&output, true).map_err(|e| system(e.into()))?;
    let mut bytes = Vec::new();
    may_fail((&mut output).take(LONGEST).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    parse_key(&text, &format!("what {} prints", argv[0]))
}
