//! From the files of a directory to a [`Flow`]: reads all of them, and looks up every name.

use super::agent::{self, AgentBody};
use super::asked::{self, AskedModel};
use super::directory;
use super::lookup::{Known, NameLookup, Names, names, unseen};
use super::memory;
use super::node::NodeDraft;
use super::policy::{self, Policies};
use super::problem::{Code, FlowProblem, Manifest, sha256, sort};
use super::providers::{self, ProvidersFile};
use super::{Flow, FlowAgent, FlowTool, NamedSchema, NodeSettings, UsedFile, tool, used, workflow};
use crate::error::reason;
use crate::flow::schema::JsonSchema;
use crate::text::yaml::Step;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a node may take unless it says otherwise.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Files that belong to a flow and that this version makes no use of.
const UNUSED: [&str; 4] = [
    "evaluations.yaml",
    "scheduler.yaml",
    "plugins.yaml",
    "cli_profiles.yaml",
];

/// What came of loading.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// There if none of the problems is an error.
    pub flow: Option<Flow>,
    /// Sorted by file and line.
    pub problems: Vec<FlowProblem>,
}

/// Reads a flow's directory.
pub(crate) fn load(dir: &Path) -> Loaded {
    read(dir, false)
}

/// The same for whoever is about to run it: credentials that are missing are errors.
pub(crate) fn load_to_run(dir: &Path) -> Loaded {
    read(dir, true)
}

fn read(dir: &Path, to_run: bool) -> Loaded {
    let mut loader = FlowLoader {
        dir,
        to_run,
        home: PathBuf::new(),
        problems: Vec::new(),
        files: BTreeMap::new(),
        schemas: Vec::new(),
    };
    let flow = loader.flow();
    sort(&mut loader.problems);
    let fatal = loader.problems.iter().any(|problem| problem.code.is_some());
    Loaded {
        flow: flow.filter(|_| !fatal),
        problems: loader.problems,
    }
}

struct FlowLoader<'l> {
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
            self.missing(&why);
            return None;
        }
        let mut main = self.read("workflow.yaml");
        let known = self.problems.len();
        let (drafts, edges) = if main.exists() || known > 0 {
            workflow::read(&mut main, &mut self.problems)
        } else {
            self.missing("there is no such file; a flow's directory needs it");
            (Vec::new(), Vec::new())
        };
        let mut agents_file = self.read("agents.yaml");
        let mut tools_file = self.read("tools.yaml");
        let mut memory_file = self.read("memory.yaml");
        let memory = memory::read(&mut memory_file, &mut self.problems);
        let (tools, wrong_tools) = tool::read(&mut tools_file, &mut self.problems);
        let agents = agent::read(&self.home, &mut agents_file, &mut self.problems);
        let mut tool_names = names(tools.iter().map(|tool| tool.tool.name.as_str()));
        for id in wrong_tools {
            tool_names.entry(id).or_insert(None);
        }
        let lookup = NameLookup::new(
            names(memory.profiles.iter().map(|profile| profile.id.as_str())),
            tool_names,
            names(agents.iter().map(|agent| agent.id.as_str())),
            self.schemas(),
        );
        self.unused();
        let mut providers_file = self.read("providers.yaml");
        let providers = providers::read(&self.home, &mut providers_file, &mut self.problems);
        let there = providers_file.exists();
        unseen(&mut main, &drafts, &memory, &mut self.problems);
        let tools = self.tools(&mut tools_file, tools, &lookup.schemas);
        let agents = self.agents(&mut agents_file, agents, &lookup, (&providers, there));
        let mut nodes = Vec::with_capacity(drafts.len());
        for draft in &drafts {
            nodes.push(self.settings(&mut main, draft, &lookup));
        }
        self.used(used::paths(&self.home, &nodes, &agents, &tools, &memory));
        self.used(providers.files);
        let providers = providers.all;
        if self.to_run {
            let ids = drafts.iter().map(|draft| &*draft.id);
            let nodes: Vec<_> = ids.zip(nodes.iter().map(Option::as_ref)).collect();
            let file = &mut providers_file;
            asked::missing(&providers, &agents, &nodes, file, &mut self.problems);
        }
        let policies = self.policies(&drafts, &tools, &memory);
        let graph = workflow::graph(&drafts, edges)?;
        Some(Flow {
            home: std::mem::take(&mut self.home),
            graph,
            nodes: nodes.into_iter().collect::<Option<_>>()?,
            agents: agents.into_iter().collect::<Option<_>>()?,
            tools,
            memory,
            policies,
            providers,
            schemas: std::mem::take(&mut self.schemas),
            files: std::mem::take(&mut self.files)
                .into_iter()
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

    fn missing(&mut self, message: &str) {
        let code = Some(Code::ManifestMissing);
        self.problem(code, "", "workflow.yaml", message.to_owned());
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
        let manifest = Manifest::read(&self.home, self.shown(file), file, &mut self.problems);
        if let Some(sha256) = &manifest.sha256 {
            self.files.insert(file.to_owned(), sha256.clone());
        }
        manifest
    }

    fn problem(&mut self, code: Option<Code>, id: &str, file: &str, message: String) {
        self.problems.push(FlowProblem {
            code,
            ids: (!id.is_empty())
                .then(|| id.to_owned())
                .into_iter()
                .collect(),
            file: file.to_owned(),
            shown: self.shown(file),
            line: None,
            column: None,
            message,
        });
    }

    /// Adds files that were not read here.
    fn used(&mut self, paths: Vec<PathBuf>) {
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

    fn unused(&mut self) {
        for file in UNUSED {
            if self.home.join(file).exists() {
                let message = "this version of delta-flow makes no use of it";
                self.problem(None, "", file, message.to_owned());
            }
        }
    }

    /// Without the file there are no rules.
    fn policies(
        &mut self,
        nodes: &[NodeDraft],
        tools: &[FlowTool],
        memory: &memory::Memory,
    ) -> Policies {
        let mut file = self.read("policy.yaml");
        let known = policy::KnownIds {
            nodes: nodes.iter().map(|node| &*node.id).collect(),
            tools: tools.iter().map(|tool| &*tool.tool.name).collect(),
            profiles: memory.profiles.iter().map(|it| &*it.id).collect(),
        };
        policy::read(&mut file, &known, &mut self.problems)
    }

    /// Compiles `schemas/*.json`. A name that is wrong is none.
    fn schemas(&mut self) -> Known {
        let mut known = Known::new();
        let names = crate::unix::files::names(&self.home.join("schemas")).unwrap_or_default();
        for name in names {
            let Some(id) = name.strip_suffix(".json").filter(|id| !id.is_empty()) else {
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
                    self.problem(Some(Code::InvalidSchema), id, &file, message);
                }
            }
        }
        known
    }

    fn tools(
        &mut self,
        file: &mut Manifest,
        drafts: Vec<tool::ToolDraft>,
        schemas: &Names,
    ) -> Vec<FlowTool> {
        let mut tools = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let whose = ("tool", draft.tool.name.as_str());
            let mut find = |key: &str, name: &Option<String>| {
                let at = below(&draft.at, key);
                let wanted = name.as_deref()?;
                schemas.find(wanted, whose, file, &at, &mut self.problems)
            };
            let schema_in = find("schema_in", &draft.schema_in);
            let schema_out = find("schema_out", &draft.schema_out);
            tools.push(FlowTool {
                tool: draft.tool,
                schema_in,
                schema_out,
                permissions: draft.permissions,
            });
        }
        tools
    }

    fn agents(
        &mut self,
        file: &mut Manifest,
        drafts: Vec<agent::AgentDraft>,
        lookup: &NameLookup,
        (providers, there): (&ProvidersFile, bool),
    ) -> Vec<Option<FlowAgent>> {
        let mut agents = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let asked = match &draft.body {
                Some(AgentBody::Directory(dir)) => {
                    let shown = |file: &str| self.shown(file);
                    let (asked, found) = directory::read(&draft.id, dir, &self.home, shown);
                    self.problems.extend(found);
                    asked
                }
                _ => AskedModel::by(&draft, providers, there, file, &mut self.problems),
            };
            let whose = ("agent", draft.id.as_str());
            let problems = &mut self.problems;
            let schema_out = draft.schema_out.as_deref().and_then(|name| {
                let at = draft.key("schema_out");
                lookup.schemas.find(name, whose, file, &at, problems)
            });
            // Every node names its context; an agent's is only checked.
            if let Some(name) = &draft.context {
                lookup.context(name, whose, file, &draft.key("context"), problems);
            }
            let tools = draft
                .tools
                .as_deref()
                .map(|names| lookup.tools(names, whose, file, &draft.key("tools"), problems));
            agents.push(draft.body.map(|body| FlowAgent {
                id: draft.id,
                body,
                schema_out,
                tools,
                config: draft.config,
                asked,
                repairs: draft.repairs,
            }));
        }
        agents
    }

    fn settings(
        &mut self,
        file: &mut Manifest,
        draft: &NodeDraft,
        lookup: &NameLookup,
    ) -> Option<NodeSettings> {
        let whose = ("node", draft.id.as_str());
        let problems = &mut self.problems;
        let mut schema = |key: &str, name: &Option<String>| {
            let at = draft.key(key);
            lookup
                .schemas
                .find(name.as_deref()?, whose, file, &at, problems)
        };
        let schema_in = schema("schema_in", &draft.schema_in);
        let schema_out = schema("schema_out", &draft.schema_out);
        let context = draft
            .context
            .as_deref()
            .and_then(|name| lookup.context(name, whose, file, &draft.key("context"), problems));
        let tools = draft
            .tools
            .as_deref()
            .map(|names| lookup.tools(names, whose, file, &draft.key("tools"), problems));
        let agent = draft.agent_id.as_deref().and_then(|name| {
            let at = draft.key("agent_id");
            lookup.agents.find(name, whose, file, &at, problems)
        });
        let kind = draft.kind?;
        Some(NodeSettings {
            name: draft.name.clone().unwrap_or_else(|| draft.id.clone()),
            kind,
            context: context?,
            schema_in,
            schema_out,
            tools,
            agent: agent.filter(|_| kind == super::NodeKind::Agent),
            command: draft.command.clone(),
            timeout: match draft.timeout_ms {
                None => Some(TIMEOUT),
                Some(0) => None,
                Some(ms) => Some(Duration::from_millis(ms)),
            },
            retries: draft.retries,
            cache: draft.cache,
            cache_files: draft.cache_files.clone(),
            on_resume: draft.on_resume,
            output: draft.output,
            remember: draft.remember.clone(),
        })
    }
}

fn below(at: &[Step], key: &str) -> Vec<Step> {
    let mut at = at.to_vec();
    at.push(Step::Key(key.to_owned()));
    at
}
