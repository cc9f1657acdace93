//! From the files of a directory to a [`Flow`]: reads all of them, and looks up every name.

use super::agent::{self, AgentBody, AgentDraft};
use super::asked::{self, AskedModel};
use super::cli_profile::{self, CliProfile};
use super::confinement::warn_of_unreadable;
use super::derive::derive_contexts;
use super::directory;
use super::lookup::{
    Finder, KnownNames, NameLookup, derive_payloads, index_names, warn_of_runs, warn_of_unseen,
};
use super::memory;
use super::nested::{self, NestedFlows};
use super::node::NodeDraft;
use super::plugin::{self, Plugin};
use super::policy;
use super::problem::{Code, FlowProblem, Manifest, sha256, sort_problems};
use super::providers::{self, ProvidersFile};
use super::scheduling::{apply_limits, read_scheduler_file};
use super::tool::{self, ToolDraft};
use super::workflow::{self, WorkflowFile};
use super::{Flow, FlowAgent, FlowTool, NamedSchema, NodeKind, NodeSettings, UsedFile, used};
use crate::error::reason;
use crate::flow::graph::Role;
use crate::flow::schema::JsonSchema;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct Loaded {
    /// There if none of the problems is an error.
    pub flow: Option<Flow>,
    /// Sorted by file and line.
    pub problems: Vec<FlowProblem>,
}

/// Reads a flow's directory.
pub(crate) fn load_flow(dir: &Path) -> Loaded {
    read(dir, false)
}

/// The same before a run: credentials that are missing are errors.
pub(crate) fn load_to_run(dir: &Path) -> Loaded {
    read(dir, true)
}

fn read(dir: &Path, to_run: bool) -> Loaded {
    read_below(&[], dir, to_run)
}

/// The same of a flow within others, which lie in these directories.
fn read_below(above: &[PathBuf], dir: &Path, to_run: bool) -> Loaded {
    let mut loader = FlowLoader {
        above,
        dir,
        to_run,
        home: PathBuf::new(),
        problems: Vec::new(),
        files: BTreeMap::new(),
        schemas: Vec::new(),
    };
    let flow = loader.flow();
    let mut problems = loader.problems;
    sort_problems(&mut problems);
    let fatal = problems.iter().any(|problem| problem.code.is_some());
    let flow = flow.filter(|_| !fatal);
    Loaded { flow, problems }
}

struct FlowLoader<'l> {
    above: &'l [PathBuf],
    dir: &'l Path,
    to_run: bool,
    home: PathBuf,
    problems: Vec<FlowProblem>,
    /// The SHA-256 of each file that was read, by its path.
    files: BTreeMap<String, String>,
    schemas: Vec<NamedSchema>,
}

impl FlowLoader<'_> {
    fn flow(&mut self) -> Option<Flow> {
        if let Err(why) = self.find_home() {
            self.add_missing(&why);
            return None;
        }
        let manifests = [
            "workflow.yaml",
            "agents.yaml",
            "tools.yaml",
            "memory.yaml",
            "providers.yaml",
            "policy.yaml",
            "plugins.yaml",
            "scheduler.yaml",
            "cli_profiles.yaml",
        ];
        let mut manifests = manifests.map(|file| self.read(file));
        let flow = self.read_manifests(&mut manifests);
        self.problems
            .extend(manifests.into_iter().flat_map(|it| it.problems));
        flow
    }

    fn read_manifests(&mut self, manifests: &mut [Manifest; 9]) -> Option<Flow> {
        let [
            main,
            agents_file,
            tools_file,
            memory_file,
            providers_file,
            policy_file,
            plugins_file,
            scheduler_file,
            profiles_file,
        ] = manifests;
        let WorkflowFile {
            nodes: mut drafts,
            edges,
            defaults,
            scheduling,
            records,
        } = self.read_main(main);
        let memory = memory::read_memory(memory_file);
        let (tools, wrong_tools) = tool::read_tools(tools_file);
        let agents = agent::read_agents(&self.home, agents_file);
        derive_contexts(main, &mut drafts, &agents, &defaults);
        let lookup = NameLookup::new(
            index_names(memory.profiles.iter().map(|profile| &*profile.id)),
            tool_names(&tools, wrong_tools),
            index_names(agents.iter().map(|agent| &*agent.id)),
            self.schemas(),
        );
        lookup.check_default_context(main, defaults.context.as_deref());
        let mut providers = providers::read_providers(&self.home, providers_file);
        let has_own = scheduling.is_some();
        let older = read_scheduler_file(scheduler_file, &self.home, has_own);
        let place = if has_own { &mut *main } else { scheduler_file };
        let scheduling = scheduling.or(older).unwrap_or_default();
        apply_limits(place, &scheduling, &mut drafts, &mut providers.all);
        self.add_used(scheduling.files);
        warn_of_unseen(main, &drafts, &memory);
        warn_of_runs(main, &drafts, &agents);
        if self.to_run {
            warn_of_unreadable(tools_file, &tools, &self.home);
        }
        let tools = tools.into_iter();
        let tools = tools.map(|draft| tool_of(tools_file, draft, &lookup));
        let tools: Vec<FlowTool> = tools.collect();
        let asked = (&providers, providers_file.exists());
        let agents = agents.into_iter();
        let agents = agents.map(|draft| self.agent_of(agents_file, draft, &lookup, asked));
        let agents: Vec<Option<FlowAgent>> = agents.collect();
        let nodes = self.node_settings(main, &drafts, &lookup);
        derive_payloads(&mut drafts, &nodes, &agents);
        let used = used::used_paths(&self.home, &nodes, &agents, &tools, &memory);
        self.add_used(used);
        self.add_used(providers.files);
        let plugins = self.plugins(plugins_file);
        let cli_profiles = self.cli_profiles(profiles_file, &drafts);
        let ids: Vec<&str> = drafts.iter().map(|draft| &*draft.id).collect();
        if self.to_run {
            let nodes = ids.iter().copied().zip(nodes.iter().map(Option::as_ref));
            let nodes: Vec<_> = nodes.collect();
            asked::add_missing_credentials(&providers.all, &agents, &nodes, providers_file);
        }
        let known = policy::KnownIds {
            nodes: ids,
            tools: tools.iter().map(|tool| &*tool.tool.name).collect(),
            profiles: memory.profiles.iter().map(|it| &*it.id).collect(),
        };
        let policies = policy::read_policies(policy_file, &known);
        let files = std::mem::take(&mut self.files).into_iter();
        let graph = workflow::build_graph(&drafts, edges)?;
        if main.problems.iter().all(|problem| problem.code.is_none()) {
            workflow::warn_of_idle_winners(main, &drafts, &graph);
        }
        Some(Flow {
            home: std::mem::take(&mut self.home),
            derived: drafts
                .iter_mut()
                .map(|it| std::mem::take(&mut it.derived))
                .collect(),
            graph,
            nodes: nodes.into_iter().collect::<Option<_>>()?,
            agents: agents.into_iter().collect::<Option<_>>()?,
            tools,
            memory,
            policies,
            cli_profiles,
            plugins,
            providers: providers.all,
            schemas: std::mem::take(&mut self.schemas),
            scheduling: scheduling.scheduling,
            records,
            files: files
                .map(|(path, sha256)| UsedFile { path, sha256 })
                .collect(),
        })
    }

    fn find_home(&mut self) -> Result<(), String> {
        let dir = self.dir.display();
        let home = std::fs::canonicalize(self.dir)
            .map_err(|e| format!("cannot read {dir}: {}", reason(&e)))?;
        if !home.is_dir() {
            return Err(format!("{dir} is not a directory"));
        }
        if home.to_str().is_none() {
            return Err(format!("the path of {dir} is not UTF-8; rename it"));
        }
        self.home = home;
        Ok(())
    }

    fn add_missing(&mut self, message: &str) {
        let code = Some(Code::ManifestMissing);
        self.add_problem(code, None, "workflow.yaml", message.to_owned());
    }

    /// How messages call a file of the directory.
    fn shown(&self, file: &str) -> String {
        if self.dir == Path::new(".") {
            file.to_owned()
        } else {
            self.dir.join(file).display().to_string()
        }
    }

    fn read(&mut self, file: &str) -> Manifest {
        let manifest = Manifest::read(&self.home, self.shown(file), file);
        if let Some(sha256) = &manifest.sha256 {
            self.files.insert(file.to_owned(), sha256.clone());
        }
        manifest
    }

    fn add_problem(&mut self, code: Option<Code>, id: Option<&str>, file: &str, message: String) {
        self.problems.push(FlowProblem {
            code,
            ids: id.map(str::to_owned).into_iter().collect(),
            file: file.to_owned(),
            shown: self.shown(file),
            line: None,
            column: None,
            message,
        });
    }

    fn read_main(&mut self, main: &mut Manifest) -> WorkflowFile {
        if main.exists() || !main.problems.is_empty() {
            return workflow::read_workflow(main, &self.home);
        }
        self.add_missing("there is no such file; a flow's directory needs it");
        WorkflowFile::default()
    }

    fn plugins(&mut self, file: &mut Manifest) -> Vec<Plugin> {
        let plugins = plugin::read_plugins(file);
        for plugin in &plugins {
            self.add_used(plugin.command.files(&self.home));
        }
        plugins
    }

    fn cli_profiles(&mut self, file: &mut Manifest, drafts: &[NodeDraft]) -> Vec<CliProfile> {
        let is_start = |draft: &&NodeDraft| draft.role == Some(Role::Start);
        let starts: Vec<&str> = drafts.iter().filter(is_start).map(|it| &*it.id).collect();
        let profiles = cli_profile::read_profiles(file, &starts);
        for own in profiles.iter().flat_map(|profile| &profile.commands) {
            self.add_used(own.command.files(&self.home));
        }
        profiles
    }

    /// The settings of each node, with the flow within it; none if a name in them is wrong.
    fn node_settings(
        &mut self,
        main: &mut Manifest,
        drafts: &[NodeDraft],
        lookup: &NameLookup,
    ) -> Vec<Option<NodeSettings>> {
        let inner = self.inner_flows(main, drafts);
        self.add_used(inner.files);
        self.problems.extend(inner.problems);
        let nodes = drafts.iter().zip(inner.homes).map(|(draft, flow)| {
            let settings = settings_of(main, draft, lookup)?;
            Some(NodeSettings { flow, ..settings })
        });
        nodes.collect()
    }

    /// Loads the flows within this one.
    fn inner_flows(&mut self, main: &mut Manifest, drafts: &[NodeDraft]) -> NestedFlows {
        let above = [self.above, std::slice::from_ref(&self.home)].concat();
        let (dir, to_run) = (self.dir, self.to_run);
        nested::load_inner_flows(main, drafts, &above, |text, home| {
            let mut loaded = read_below(&above, &dir.join(text), to_run);
            for problem in &mut loaded.problems {
                problem.file = format!("{text}/{}", problem.file);
            }
            let files = loaded.flow.iter().flat_map(|flow| &flow.files);
            let files = files.map(|file| home.join(&file.path)).collect();
            (files, loaded.problems)
        })
    }

    /// Adds files that were not read here.
    fn add_used(&mut self, paths: Vec<PathBuf>) {
        for path in paths {
            let name = path.strip_prefix(&self.home).unwrap_or(&path);
            let name = name.display().to_string();
            if !self.files.contains_key(&name)
                && let Ok(bytes) = crate::unix::files::read_regular(&path)
            {
                self.files.insert(name, sha256(&bytes));
            }
        }
    }

    /// Compiles `schemas/*.json`, without hidden files: editors keep their own there. Wrong names are left out.
    fn schemas(&mut self) -> KnownNames {
        let mut known = KnownNames::new();
        let names = crate::unix::files::names(&self.home.join("schemas")).unwrap_or_default();
        for name in names {
            let Some(id) = name
                .strip_suffix(".json")
                .filter(|id| !id.is_empty() && !id.starts_with('.'))
            else {
                continue;
            };
            let file = format!("schemas/{name}");
            let compiled = crate::unix::files::read_regular(&self.home.join(&file))
                .map_err(|e| format!("cannot read it: {}", reason(&e)))
                .and_then(|bytes| {
                    self.files.insert(file.clone(), sha256(&bytes));
                    JsonSchema::parse(&bytes)
                });
            match compiled {
                Ok(schema) => {
                    known.insert(id.to_owned(), Some(self.schemas.len()));
                    let id = id.to_owned();
                    self.schemas.push(NamedSchema { id, schema });
                }
                Err(why) => {
                    known.insert(id.to_owned(), None);
                    let message = format!("schema \"{id}\": {why}");
                    self.add_problem(Some(Code::InvalidSchema), Some(id), &file, message);
                }
            }
        }
        known
    }

    fn agent_of(
        &mut self,
        file: &mut Manifest,
        draft: AgentDraft,
        lookup: &NameLookup,
        (providers, there): (&ProvidersFile, bool),
    ) -> Option<FlowAgent> {
        let asked = match &draft.body {
            Some(AgentBody::Directory(dir)) => {
                let shown = |file: &str| self.shown(file);
                let (asked, found) =
                    directory::read_agent_directory(&draft.id, dir, &self.home, shown);
                self.problems.extend(found);
                asked
            }
            _ => AskedModel::by(&draft, providers, there, file),
        };
        let mut finder = Finder {
            file,
            kind: "agent",
            id: &draft.id,
            at: &draft.at,
        };
        let schema_out = draft.schema_out.as_deref();
        let schema_out = finder.find(&lookup.schemas, "schema_out", schema_out);
        finder.context(lookup, draft.context.as_deref());
        let tools = finder.tools(lookup, draft.tools.as_deref());
        Some(FlowAgent {
            body: draft.body?,
            id: draft.id,
            schema_out,
            tools,
            config: draft.config,
            asked,
            repairs: draft.repairs,
            limits: draft.limits,
        })
    }
}

/// The tools by their names, without wrong ones.
fn tool_names(tools: &[ToolDraft], wrong: Vec<String>) -> KnownNames {
    let mut names = index_names(tools.iter().map(|tool| &*tool.tool.name));
    for id in wrong {
        names.entry(id).or_insert(None);
    }
    names
}

fn tool_of(file: &mut Manifest, draft: ToolDraft, lookup: &NameLookup) -> FlowTool {
    let mut finder = Finder {
        file,
        kind: "tool",
        id: &draft.tool.name,
        at: &draft.at,
    };
    let mut find =
        |key: &str, name: &Option<String>| finder.find(&lookup.schemas, key, name.as_deref());
    let schema_in = find("schema_in", &draft.schema_in);
    let schema_out = find("schema_out", &draft.schema_out);
    FlowTool {
        tool: draft.tool,
        schema_in,
        schema_out,
        partial_exit: draft.partial_exit,
        permissions: draft.permissions,
    }
}

fn settings_of(
    file: &mut Manifest,
    draft: &NodeDraft,
    lookup: &NameLookup,
) -> Option<NodeSettings> {
    let mut finder = Finder {
        file,
        kind: "node",
        id: &draft.id,
        at: &draft.at,
    };
    let schema_in = finder.find(&lookup.schemas, "schema_in", draft.schema_in.as_deref());
    let schema_out = finder.find(&lookup.schemas, "schema_out", draft.schema_out.as_deref());
    let context = match draft.lacks_context {
        true => draft.context.as_deref().and_then(|it| lookup.context(it)),
        false => finder.context(lookup, draft.context.as_deref()),
    };
    let tools = finder.tools(lookup, draft.tools.as_deref());
    let agent = finder.find(&lookup.agents, "agent_id", draft.agent_id.as_deref());
    let kind = draft.kind?;
    Some(NodeSettings {
        kind,
        context: context?,
        schema_in,
        schema_out,
        tools,
        agent: agent.filter(|_| kind == NodeKind::Agent),
        ..draft.settings.clone()
    })
}
