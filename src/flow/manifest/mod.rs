//! A flow's directory, understood: `workflow.yaml`, `agents.yaml`, `tools.yaml`, `memory.yaml`,
//! `policy.yaml`, `providers.yaml`, `plugins.yaml` and the schemas.
//!
//! Loading reports everything that is wrong at once, runs nothing and creates nothing. Unaware of
//! runs, tasks and payloads.

pub(crate) mod glob;
mod file_pattern;
pub mod problem;
pub(crate) mod command;
mod items;
pub(crate) mod memory;
pub(crate) mod tool;
pub(crate) mod agent;
pub(crate) mod policy;
pub(crate) mod plugin;
pub(crate) mod cli_profile;
pub(crate) mod credential;
pub(crate) mod providers;
pub(crate) mod asked;
mod directory;
mod defaults;
mod waiting;
pub mod node;
mod derive;
mod scheduling;
mod shape;
mod workflow;
mod lookup;
mod confinement;
mod used;
mod nested;
mod load;

use super::graph::topology::{Graph, NodeIx};
use super::schema::JsonSchema;
use crate::config::tool::definition::{LaterRule, Word};
use crate::text::names::named_enum;
use asked::AskedModel;
use cli_profile::CliProfile;
use command::NodeCommand;
use memory::Memory;
use plugin::Plugin;
use policy::{Policies, PolicyTarget};
use providers::Provider;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use agent::AgentBody;
pub(crate) use command::{fill, fill_paths};
pub(crate) use credential::{Credential, parse_key};
pub(crate) use file_pattern::{FilePattern, PathPart};
pub(crate) use items::{is_id, read_mappings};
pub(crate) use load::{Loaded, load_flow, load_to_run};
pub(crate) use memory::{HelperProgram, Profile, ProfileSource, StoreName};
pub(crate) use node::Remember;
pub(crate) use policy::Denied;
pub use problem::Code;
pub(crate) use problem::{FlowProblem, sha256};
pub(crate) use scheduling::Scheduling;
pub(crate) use tool::Permissions;
pub(crate) use waiting::WaitTime;

/// A flow, as its files say.
#[derive(Debug)]
pub(crate) struct Flow {
    /// `$FLOW_HOME`: its directory, absolute, with symbolic links resolved. UTF-8.
    pub home: PathBuf,
    pub graph: Graph,
    /// The rest of each node, by its index in the graph.
    pub nodes: Vec<NodeSettings>,
    /// In the order of `agents.yaml`.
    pub agents: Vec<FlowAgent>,
    /// In the order of `tools.yaml`.
    pub tools: Vec<FlowTool>,
    /// `memory.yaml`.
    pub memory: Memory,
    /// `policy.yaml`.
    pub policies: Policies,
    /// In the order of `cli_profiles.yaml`.
    pub cli_profiles: Vec<CliProfile>,
    /// In the order of `plugins.yaml`.
    pub plugins: Vec<Plugin>,
    /// In the order of `providers.yaml`.
    pub providers: Vec<Provider>,
    /// By name.
    pub schemas: Vec<NamedSchema>,
    pub scheduling: Scheduling,
    pub records: Option<KeptRecords>,
    /// The keys of each node that were not written, with what was derived for them.
    pub derived: Vec<Vec<(&'static str, String)>>,
    /// Every file that the flow was read from or names, sorted by path.
    pub files: Vec<UsedFile>,
}

/// The part of a node that routing does not need.
#[derive(Clone, Debug)]
pub(crate) struct NodeSettings {
    /// How people call it; its id unless it says otherwise.
    pub name: String,
    pub kind: NodeKind,
    pub context: ContextChoice,
    /// An index in [`Flow::schemas`].
    pub schema_in: Option<usize>,
    /// An index in [`Flow::schemas`]; see also [`Flow::schema_out`].
    pub schema_out: Option<usize>,
    /// Indices in [`Flow::tools`]; none: it does not say. See also [`Flow::tools_of`].
    pub tools: Option<Vec<usize>>,
    /// An index in [`Flow::agents`]; there if, and only if, the kind is [`NodeKind::Agent`].
    pub agent: Option<usize>,
    /// None on a deterministic node: its role's default operation.
    pub command: Option<NodeCommand>,
    /// Its command may begin something that ends later.
    pub later: Option<LaterRule>,
    /// It runs nothing, and waits for this time.
    pub wait: Option<WaitTime>,
    /// The directory of the flow that it is, absolute.
    pub flow: Option<PathBuf>,
    /// How long one attempt may take; none: as long as it likes.
    pub timeout: Option<Duration>,
    /// How often a failure is tried again inside the node.
    pub retries: u32,
    /// How many programs of it may run at once; none: as many as like.
    pub limit: Option<usize>,
    /// The exit code of its program by which the output counts in part; never 0.
    pub partial_exit: Option<i32>,
    /// The output is kept and replayed.
    pub cache: bool,
    /// Files whose content belongs to the key of the cache.
    pub cache_files: Vec<Word>,
    /// An agent is always resumed.
    pub on_resume: ResumePolicy,
    /// How a command gets its payload.
    pub input: PayloadForm,
    /// How a command's standard output is read.
    pub output: PayloadForm,
    pub remember: Vec<Remember>,
    /// The files that it makes, below its task's directory.
    pub outputs: Vec<FilePattern>,
}

impl NodeSettings {
    /// Otherwise the role's default operation is all that happens.
    pub(crate) fn runs(&self) -> bool {
        self.command.is_some() || self.agent.is_some() || self.flow.is_some()
    }
}

named_enum! {
    pub(crate) enum NodeKind {
        /// One of `agents.yaml`.
        Agent = "agent",
        /// A command, or the role's default operation.
        Deterministic = "deterministic",
    }
}

/// The context that a node is given beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextChoice {
    /// Nothing.
    None,
    /// The global store, under the default profile.
    Global,
    /// An index in [`Memory::profiles`].
    Profile(usize),
}

named_enum! {
    /// The fate of a node that was running when the engine died.
    #[derive(Default)]
    pub(crate) enum ResumePolicy {
        #[default]
        Retry = "retry",
        Fail = "fail",
    }
}

named_enum! {
    /// The nodes whose directories of records stay.
    #[derive(Default)]
    pub(crate) enum KeptRecords {
        #[default]
        All = "all",
        /// Those that did not succeed; of the others the journal has enough.
        Failed = "failed",
    }
}

named_enum! {
    /// How a payload is given to a command, or read from it.
    #[derive(Default)]
    pub(crate) enum PayloadForm {
        /// As one JSON value.
        #[default]
        Json = "json",
        /// As one string: without quotes, and without escapes.
        Text = "text",
    }
}

/// An agent of `agents.yaml`.
#[derive(Debug)]
pub(crate) struct FlowAgent {
    pub id: String,
    pub body: agent::AgentBody,
    /// For nodes that do not say.
    pub schema_out: Option<usize>,
    /// Indices in [`Flow::tools`], for nodes that do not say.
    pub tools: Option<Vec<usize>>,
    /// For `llm:` of an agent that is made from a model.
    pub config: Map<String, Value>,
    /// Whom it asks.
    pub asked: AskedModel,
    /// How often an answer that does not fit is sent back.
    pub repairs: u32,
    /// Keys of agent.yaml that its run overrides: what it may spend, and what checks its answer.
    pub limits: Map<String, Value>,
}

/// A tool of `tools.yaml`.
#[derive(Debug)]
pub(crate) struct FlowTool {
    /// The id is its name.
    pub tool: crate::config::tool::definition::Tool,
    /// For the arguments: an index in [`Flow::schemas`].
    pub schema_in: Option<usize>,
    pub schema_out: Option<usize>,
    /// As a node's.
    pub partial_exit: Option<i32>,
    /// None: nothing is denied.
    pub permissions: Option<tool::Permissions>,
}

/// A schema of `schemas/`.
#[derive(Debug)]
pub(crate) struct NamedSchema {
    /// The stem of its file.
    pub id: String,
    /// The schema.
    pub schema: JsonSchema,
}

/// A file that belongs to the flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsedFile {
    /// Below the flow's directory, or absolute.
    pub path: String,
    /// In hexadecimal digits.
    pub sha256: String,
}

impl Flow {
    /// The name of its directory.
    pub(crate) fn name(&self) -> String {
        let name = self.home.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The node's own schema, or else its agent's.
    pub(crate) fn schema_out(&self, node: NodeIx) -> Option<&NamedSchema> {
        let settings = &self.nodes[node];
        let of_agent = settings.agent.and_then(|ix| self.agents[ix].schema_out);
        Some(&self.schemas[settings.schema_out.or(of_agent)?])
    }

    pub(crate) fn schema_in(&self, node: NodeIx) -> Option<&NamedSchema> {
        Some(&self.schemas[self.nodes[node].schema_in?])
    }

    /// A node that is the run of an agent, and not a program.
    pub(crate) fn is_conversation(&self, node: NodeIx) -> bool {
        let settings = &self.nodes[node];
        let agent = settings.agent.filter(|_| settings.command.is_none());
        agent.is_some_and(|agent| !matches!(self.agents[agent].body, AgentBody::Command(_)))
    }

    /// A node that is a run of its own, which goes on where it was.
    pub(crate) fn is_own_run(&self, node: NodeIx) -> bool {
        self.is_conversation(node) || self.nodes[node].flow.is_some()
    }

    /// The tools that a node allows: its own, or else its agent's.
    pub(crate) fn tools_of(&self, node: NodeIx) -> &[usize] {
        let settings = &self.nodes[node];
        let of_agent = settings
            .agent
            .and_then(|ix| self.agents[ix].tools.as_deref());
        settings.tools.as_deref().or(of_agent).unwrap_or_default()
    }

    /// Why a node must not run, if a policy says so: it is denied itself, or its context.
    pub(crate) fn denial(&self, node: NodeIx) -> Option<Denied> {
        let id = &*self.graph.nodes[node].id;
        let denial = |target, what| self.policies.denial(target, what, id);
        denial(PolicyTarget::Node, id).or_else(|| match self.nodes[node].context {
            ContextChoice::None => None,
            ContextChoice::Global => denial(PolicyTarget::Context, "global"),
            ContextChoice::Profile(ix) => {
                denial(PolicyTarget::Context, &self.memory.profiles[ix].id)
            }
        })
    }

    /// The provider that the agent of a node asks, by its index in [`Flow::providers`].
    pub(crate) fn provider(&self, node: NodeIx) -> Option<usize> {
        self.agents[self.nodes[node].agent?].asked.index
    }

    /// Why a node must not call a tool, if a policy says so.
    pub(crate) fn denial_of_tool(&self, node: NodeIx, tool: &str) -> Option<Denied> {
        let id = &self.graph.nodes[node].id;
        self.policies.denial(PolicyTarget::Tool, tool, id)
    }
}
