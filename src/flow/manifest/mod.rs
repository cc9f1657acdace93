//! A flow's directory, understood: `workflow.yaml`, `agents.yaml`, `tools.yaml`, `memory.yaml`,
//! `policy.yaml`, `providers.yaml`, `plugins.yaml` and the schemas.
//!
//! Loading reports everything that is wrong at once, runs nothing and creates nothing. Unaware of
//! runs, tasks and payloads.

pub(crate) mod fields;
pub(crate) mod glob;
mod file_pattern;
pub mod problem;
pub(crate) mod command;
mod items;
pub(crate) mod memory;
pub(crate) mod tool;
pub(crate) mod plugin;
pub(crate) mod credential;
pub(crate) mod providers;
mod waiting;
pub(crate) mod node;
pub(crate) mod policy;
pub(crate) mod cli_profile;
mod scheduling;
pub(crate) mod agent;
mod lookup;
pub(crate) mod asked;
mod derive;
mod shape;
mod workflow;
mod confinement;
mod used;
mod nested;
mod load;

use super::graph::topology::{Graph, NodeIx};
use crate::text::names::named_enum;
use crate::text::schema::JsonSchema;
use cli_profile::CliProfile;
use memory::Memory;
use node::Defaults;
use plugin::Plugin;
use policy::{Policies, PolicyTarget};
use providers::Provider;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::PathBuf;
use workflow::WorkflowFile;

pub(crate) use agent::{AgentBody, FlowAgent};
pub(crate) use command::{fill, fill_paths};
pub(crate) use credential::{Credential, parse_key};
pub(crate) use file_pattern::{FilePattern, PathPart};
pub(crate) use items::is_id;
pub(crate) use load::{Loaded, load_flow, load_to_run};
use lookup::agent_of;
pub(crate) use memory::{Profile, ProfileSource, StoreName};
pub(crate) use node::{NodeSettings, Remember};
pub(crate) use policy::Denied;
pub use problem::Code;
pub(crate) use problem::{FlowProblem, sha256};
pub(crate) use scheduling::Scheduling;
pub(crate) use tool::{FlowTool, Permissions};
pub(crate) use waiting::WaitTime;

/// The keys of the files of flows, a list for each table.
pub const KEYS: [&[&str]; 12] = [
    WorkflowFile::KEYS,
    Defaults::KEYS,
    Scheduling::KEYS,
    NodeSettings::KEYS,
    FlowAgent::KEYS,
    FlowTool::KEYS,
    Permissions::KEYS,
    Memory::KEYS,
    Profile::KEYS,
    Provider::KEYS,
    Plugin::KEYS,
    CliProfile::KEYS,
];

/// A flow, as it is in its files.
#[derive(Debug, Default)]
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
    /// Every file that the flow was read from or names, sorted by path.
    pub files: Vec<UsedFile>,
}

named_enum! {
    pub(crate) enum NodeKind {
        /// One of `agents.yaml`.
        Agent = "agent",
        /// A command, or the role's default operation.
        Deterministic = "deterministic",
    }
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
        /// Only nodes that did not succeed; of the others the journal has enough.
        Failed = "failed",
    }
}

named_enum! {
    /// The form in which a payload is given to a command, or read from it.
    #[derive(Default)]
    pub(crate) enum PayloadForm {
        /// One JSON value.
        #[default]
        Json = "json",
        /// One string, without quotes and escapes.
        Text = "text",
    }
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UsedFile {
    /// Below the flow's directory, or absolute.
    pub path: String,
    /// In hexadecimal digits.
    pub sha256: String,
}

impl Flow {
    /// The name of its directory.
    pub(crate) fn name(&self) -> String {
        let name = self.home.file_name();
        name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    pub(crate) fn agent(&self, node: NodeIx) -> Option<&FlowAgent> {
        agent_of(&self.nodes[node], &self.agents)
    }

    pub(crate) fn schema(&self, name: Option<&String>) -> Option<&NamedSchema> {
        let is_named = |schema: &&NamedSchema| Some(&schema.id) == name;
        self.schemas.iter().find(is_named)
    }

    /// The node's own schema, or else its agent's.
    pub(crate) fn schema_out(&self, node: NodeIx) -> Option<&NamedSchema> {
        let own = self.nodes[node].schema_out.as_ref();
        self.schema(own.or_else(|| self.agent(node)?.schema_out.as_ref()))
    }

    pub(crate) fn schema_in(&self, node: NodeIx) -> Option<&NamedSchema> {
        self.schema(self.nodes[node].schema_in.as_ref())
    }

    /// The profile of a node; none if it is given nothing.
    pub(crate) fn profile(&self, node: NodeIx) -> Option<Cow<'_, Profile>> {
        match self.nodes[node].context.as_deref()? {
            "none" => None,
            "global" => Some(Cow::Owned(Profile::global())),
            id => {
                let mut profiles = self.memory.profiles.iter();
                profiles.find(|it| it.id == id).map(Cow::Borrowed)
            }
        }
    }

    /// A node that is the run of an agent, and not a program.
    pub(crate) fn is_conversation(&self, node: NodeIx) -> bool {
        let has_command = self.nodes[node].command.is_some();
        !has_command && self.agent(node).is_some_and(|agent| agent.body.is_run())
    }

    /// A node that is a run of its own, which goes on where it was.
    pub(crate) fn is_own_run(&self, node: NodeIx) -> bool {
        self.is_conversation(node) || self.nodes[node].flow.is_some()
    }

    /// The tools that a node allows: its own, or else its agent's.
    pub(crate) fn tools_of(&self, node: NodeIx) -> impl Iterator<Item = &FlowTool> + Clone {
        let own = self.nodes[node].tools.as_ref();
        let tools = own.or_else(|| self.agent(node)?.tools.as_ref());
        let named = move |name: &String| self.tools.iter().find(|it| it.tool.name == *name);
        tools.into_iter().flatten().filter_map(named)
    }

    /// The denial of a node by a policy: of itself, or of its context.
    pub(crate) fn denial(&self, node: NodeIx) -> Option<Denied> {
        let id = &*self.graph.nodes[node].id;
        let denial = |target, what| self.policies.denial(target, what, id);
        denial(PolicyTarget::Node, id).or_else(|| {
            let context = self.nodes[node].context.as_deref();
            denial(
                PolicyTarget::Context,
                context.filter(|name| *name != "none")?,
            )
        })
    }

    /// The provider that the agent of a node asks, by its index in [`Flow::providers`].
    pub(crate) fn provider(&self, node: NodeIx) -> Option<usize> {
        self.agent(node)?.asked.index
    }

    /// The denial of a tool that a node would call.
    pub(crate) fn denial_of_tool(&self, node: NodeIx, tool: &str) -> Option<Denied> {
        let id = &self.graph.nodes[node].id;
        self.policies.denial(PolicyTarget::Tool, tool, id)
    }
}
