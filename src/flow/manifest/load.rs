//! From the files of a directory to a [`Flow`]: reads all of them, and looks up every name.

use super::agent::{AgentBody, FlowAgent, read_agents};
use super::asked::{add_missing_credentials, read_agent_directory};
use super::cli_profile::read_profiles;
use super::confinement::warn_of_unreadable;
use super::derive::derive_contexts;
use super::lookup::{KnownNames, derive_payloads, warn_of_runs, warn_of_unseen};
use super::memory::read_memory;
use super::nested::find_inner_flows;
use super::node::NodeSettings;
use super::plugin::read_plugins;
use super::policy::read_policies;
use super::problem::{Code, FlowProblem, Manifest, sha256, shown_in, sort_problems};
use super::providers::{AskedModel, Provider, ProvidersFile, read_providers};
use super::scheduling::{Scheduling, apply_limits, read_scheduler_file};
use super::tool::read_tools;
use super::used::used_paths;
use super::workflow::{WorkflowFile, build_graph, read_workflow, warn_of_idle_winners};
use super::{Flow, NamedSchema, UsedFile};
use crate::error::reason;
use crate::text::schema::JsonSchema;
use crate::unix::files;
use std::collections::{BTreeMap, HashSet};
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

/// Reads a flow's directory before a run: credentials that are missing are errors.
pub(crate) fn load_to_run(dir: &Path) -> Loaded {
    read(dir, true)
}

fn read(dir: &Path, to_run: bool) -> Loaded {
    read_below(&[], dir, to_run)
}

/// Reads a flow within others, which lie in these directories.
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
    let is_well = problems.iter().all(|problem| problem.code.is_none());
    Loaded {
        flow: flow.filter(|_| is_well),
        problems,
    }
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
        let names = [
            "workflow.yaml",
            "agents.yaml",
            "tools.yaml",
            "providers.yaml",
        ];
        let mut files = names.map(|file| self.read(file));
        let flow = self.read_files(&mut files);
        let problems = files.into_iter().flat_map(|file| file.problems);
        self.problems.extend(problems);
        Some(flow)
    }

    fn read_files(&mut self, files: &mut [Manifest; 4]) -> Flow {
        let [main, agents_file, tools_file, providers_file] = files;
        let home = self.home.clone();
        let mut workflow = self.read_main(main);
        let nodes = &mut workflow.nodes;
        let memory = self.with("memory.yaml", read_memory);
        let (tools, wrong_tools) = read_tools(tools_file);
        let mut agents = read_agents(&home, agents_file);
        let context = workflow.defaults.context.as_deref();
        derive_contexts(main, nodes, &agents, context);
        let known = KnownNames {
            profiles: memory.profiles.iter().map(|it| it.id.clone()).collect(),
            tools: tools
                .iter()
                .map(|it| it.tool.name.clone())
                .chain(wrong_tools)
                .collect(),
            agents: agents.iter().map(|it| it.id.clone()).collect(),
            schemas: self.schemas(),
        };
        known.check_default_context(main, context);
        let mut providers = read_providers(&home, providers_file);
        let own = workflow.scheduling.take();
        let scheduling = self.scheduling(own, main, nodes, &mut providers.all);
        warn_of_unseen(main, nodes, &memory);
        warn_of_runs(main, nodes, &agents);
        if self.to_run {
            warn_of_unreadable(tools_file, &tools, &home);
        }
        known.check_tools(tools_file, &tools);
        for agent in &mut agents {
            agent.asked = self.asked(agent, &providers, agents_file);
            known.check_agent(agents_file, agent);
        }
        self.load_inner_flows(main, nodes);
        known.check_nodes(main, nodes);
        derive_payloads(nodes, &agents);
        self.add_used(used_paths(&home, nodes, &agents, &tools, &memory));
        self.add_used(providers.files);
        if self.to_run {
            add_missing_credentials(&providers.all, &agents, nodes, providers_file);
        }
        let flow = Flow {
            graph: build_graph(nodes, workflow.edges).unwrap_or_default(),
            nodes: workflow.nodes,
            agents,
            tools,
            memory,
            providers: providers.all,
            scheduling,
            records: workflow.records,
            ..Flow::default()
        };
        self.finish(flow, main)
    }

    /// Reads the files that only name what the others define.
    fn finish(&mut self, flow: Flow, main: &mut Manifest) -> Flow {
        let policies = self.with("policy.yaml", |file| read_policies(file, &flow));
        let cli_profiles = self.with("cli_profiles.yaml", |file| read_profiles(file, &flow.nodes));
        let plugins = self.with("plugins.yaml", read_plugins);
        let own = cli_profiles.iter().flat_map(|profile| &profile.commands);
        let observers = plugins.iter().map(|plugin| &plugin.command);
        let commands = observers.chain(own.map(|own| &own.command));
        self.add_used(commands.flat_map(|it| it.files(&self.home)).collect());
        if main.problems.iter().all(|problem| problem.code.is_none()) {
            warn_of_idle_winners(main, &flow.nodes, &flow.graph);
        }
        let used = std::mem::take(&mut self.files).into_iter();
        Flow {
            home: self.home.clone(),
            policies,
            cli_profiles,
            plugins,
            schemas: std::mem::take(&mut self.schemas),
            files: used
                .map(|(path, sha256)| UsedFile { path, sha256 })
                .collect(),
            ..flow
        }
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
        self.add_problem(Code::ManifestMissing, &[], "workflow.yaml", message);
    }

    fn read(&mut self, file: &str) -> Manifest {
        let manifest = Manifest::read(&self.home, shown_in(self.dir, file), file);
        if let Some(sha256) = &manifest.sha256 {
            self.files.insert(file.to_owned(), sha256.clone());
        }
        manifest
    }

    /// Reads a file about which nothing is found out later.
    fn with<T>(&mut self, file: &str, read: impl FnOnce(&mut Manifest) -> T) -> T {
        let mut manifest = self.read(file);
        let value = read(&mut manifest);
        self.problems.extend(manifest.problems);
        value
    }

    fn add_problem(&mut self, code: Code, ids: &[&str], file: &str, message: &str) {
        self.problems.push(FlowProblem {
            file: file.to_owned(),
            shown: shown_in(self.dir, file),
            ..FlowProblem::new(Some(code), ids, message)
        });
    }

    fn read_main(&mut self, main: &mut Manifest) -> WorkflowFile {
        if !main.exists() && main.problems.is_empty() {
            self.add_missing("there is no such file; a flow's directory needs it");
            return WorkflowFile::default();
        }
        read_workflow(main, &self.home)
    }

    /// The keys of `scheduling:`, or else those of the file that had them before. Gives their limits to nodes and
    /// providers.
    fn scheduling(
        &mut self,
        own: Option<Scheduling>,
        main: &mut Manifest,
        nodes: &mut [NodeSettings],
        providers: &mut [Provider],
    ) -> Scheduling {
        let home = self.home.clone();
        let mut scheduling = self.with("scheduler.yaml", |file| {
            let older = read_scheduler_file(file, &home, own.is_some());
            let place = if own.is_some() { main } else { file };
            let scheduling = own.or(older).unwrap_or_default();
            apply_limits(place, &scheduling, nodes, providers);
            scheduling
        });
        self.add_used(std::mem::take(&mut scheduling.files));
        scheduling
    }

    /// Finds and loads the flows within this one.
    fn load_inner_flows(&mut self, main: &mut Manifest, nodes: &mut [NodeSettings]) {
        let above = [self.above, std::slice::from_ref(&self.home)].concat();
        for (text, home) in find_inner_flows(main, nodes, &above) {
            let loaded = read_below(&above, &self.dir.join(&text), self.to_run);
            self.problems
                .extend(loaded.problems.into_iter().map(|problem| FlowProblem {
                    file: format!("{text}/{}", problem.file),
                    ..problem
                }));
            let files = loaded.flow.into_iter().flat_map(|flow| flow.files);
            self.add_used(files.map(|file| home.join(file.path)).collect());
        }
    }

    /// Adds files that were not read here.
    fn add_used(&mut self, paths: Vec<PathBuf>) {
        for path in paths {
            let below = path.strip_prefix(&self.home).unwrap_or(&path);
            let name = below.display().to_string();
            if !self.files.contains_key(&name)
                && let Ok(bytes) = files::read_regular(&path)
            {
                self.files.insert(name, sha256(&bytes));
            }
        }
    }

    /// Compiles `schemas/*.json`, without hidden files: editors keep their own there. Returns the names, also of those
    /// that are wrong.
    fn schemas(&mut self) -> HashSet<String> {
        let mut known = HashSet::new();
        let names = files::names(&self.home.join("schemas")).unwrap_or_default();
        for name in names {
            let id = name.strip_suffix(".json").unwrap_or_default();
            if id.is_empty() || id.starts_with('.') {
                continue;
            }
            known.insert(id.to_owned());
            let file = format!("schemas/{name}");
            let compiled = files::read_regular(&self.home.join(&file))
                .map_err(|e| format!("cannot read it: {}", reason(&e)))
                .and_then(|bytes| {
                    self.files.insert(file.clone(), sha256(&bytes));
                    JsonSchema::parse(&bytes)
                });
            match compiled {
                Ok(schema) => self.schemas.push(NamedSchema {
                    id: id.to_owned(),
                    schema,
                }),
                Err(why) => {
                    let message = format!("schema \"{id}\": {why}");
                    self.add_problem(Code::InvalidSchema, &[id], &file, &message);
                }
            }
        }
        known
    }

    fn asked(
        &mut self,
        agent: &FlowAgent,
        providers: &ProvidersFile,
        file: &mut Manifest,
    ) -> AskedModel {
        let AgentBody::Directory(dir) = &agent.body else {
            return AskedModel::by(agent, providers, file);
        };
        let name = dir.strip_prefix(&self.home).unwrap_or(dir);
        let shown = shown_in(self.dir, &name.display().to_string());
        let (asked, found) = read_agent_directory(&agent.id, dir, name, &shown);
        self.problems.extend(found);
        asked
    }
}
