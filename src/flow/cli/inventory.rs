//! `delta-flow manifest`: everything that a flow, or a run of one, was made from, as one JSON object; and how that compares
//! with an earlier one.
//!
//! Of a run: as it was recorded. Holds no keys, only where they are.

use super::args::ManifestArgs;
use super::basis;
use super::check;
use crate::VERSION;
use crate::error::{At, Error, Exit, Result};
use crate::flow::PROGRAM;
use crate::flow::manifest::command::NodeCommand;
use crate::flow::manifest::providers::{Access, Provider};
use crate::flow::manifest::{self, AgentBody, Credential, Flow};
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::record::metadata;
use crate::record::run_dir::RunDir;
use crate::runs::find;
use crate::runs::origin::warn_if_foreign_run;
use crate::text::disguise::printable_line;
use crate::unix::files;
use crate::unix::terminal::{Screen, print, print_json};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The largest inventory that is compared, in bytes.
const LARGEST: u64 = 64 << 20;

/// The parts that are compared, each with the member that names its items.
const COMPARED: [(&str, &str); 6] = [
    ("files", "path"),
    ("schemas", "id"),
    ("providers", "id"),
    ("agents", "id"),
    ("credentials", "provider"),
    ("programs", "program"),
];

/// Runs the command.
pub(crate) fn print_inventory(wanted: &ManifestArgs) -> Result<Exit> {
    let what = wanted.what.as_deref().unwrap_or(".");
    let dir = Path::new(what);
    let is_flow = dir.is_dir() && !dir.join("journal.jsonl").exists();
    let found = if is_flow {
        check::usable(manifest::load_flow(dir)).map(|flow| inventory_of(&flow))
    } else {
        let run = find::find_run(&wanted.work_dir, what)?;
        warn_if_foreign_run(&run)?;
        Some(inventory_of_run(&run)?)
    };
    let Some(found) = found else {
        return Ok(Exit::Config);
    };
    let Some(path) = &wanted.check else {
        let text = serde_json::to_string_pretty(&found).unwrap_or_default();
        print_json(format!("{text}\n").as_bytes())?;
        return Ok(Exit::Success);
    };
    let differences = compare(&read_inventory(path)?, &found);
    let lines = differences.iter().map(|it| printable_line(it) + "\n");
    print(lines.collect::<String>().as_bytes())?;
    Ok(match differences.is_empty() {
        true => Exit::Success,
        false => Exit::Failure,
    })
}

fn read_inventory(path: &Path) -> Result<Value> {
    let file = files::open_readable(path).at("read", path);
    let file = file.map_err(Error::into_usage)?;
    let bytes = files::read_limited(file, LARGEST).at("read", path)?;
    let read: Option<Value> = serde_json::from_slice(&bytes).ok();
    let is_one = |value: &Value| value["files"].is_array();
    read.filter(is_one).ok_or_else(|| {
        let path = path.display();
        Error::usage(format!(
            "--check: {path} was not printed by `delta flow manifest`"
        ))
    })
}

/// What a flow is made from now.
fn inventory_of(flow: &Flow) -> Value {
    let described = basis::describe_flow(flow);
    let mut object = json!({
        "schema_version": SCHEMA_VERSION,
        "delta_version": VERSION,
        "home": described["home"],
        "files": described["files"],
        "agents": described["agents"],
    });
    add_unrecorded(&mut object, flow);
    object
}

/// What a run was made from. The record has no more of it than files and agents; the rest is that of the flow, as long as
/// it is as it was.
fn inventory_of_run(run: &RunDir) -> Result<Value> {
    let recorded = metadata::read(&run.path).unwrap_or_default();
    let (Some(past), Some(basis)) = (basis::read_recorded_basis(run)?, recorded.flow) else {
        let id = &run.id;
        return Err(Error::failure(format!("run {id} is not a flow's")));
    };
    let mut object = json!({
        "schema_version": SCHEMA_VERSION,
        "run_id": run.id.as_str(),
        "delta_version": recorded.delta_version,
        "home": basis["home"],
        "files": basis["files"],
        "agents": basis["agents"],
    });
    match past.unchanged_flow() {
        Some(flow) => add_unrecorded(&mut object, &flow),
        None => {
            let text = "warning: files of the flow have changed since the run: its schemas, providers, credentials \
                        and programs are not known";
            Screen::new(false, false).warn_as(PROGRAM, text);
        }
    }
    Ok(object)
}

/// Adds what follows from the files.
fn add_unrecorded(object: &mut Value, flow: &Flow) {
    let schemas = flow.schemas.iter().map(|schema| {
        let path = format!("schemas/{}.json", schema.id);
        let file = flow.files.iter().find(|file| file.path == path);
        json!({"id": schema.id, "sha256": file.map(|file| &file.sha256)})
    });
    let credentials = flow.providers.iter().filter_map(credential_of);
    // Those of the flow itself are the same wherever it lies.
    let shown = |path: &Path| match path.strip_prefix(&flow.home) {
        Ok(own) => format!("${{FLOW_HOME}}/{}", own.display()),
        Err(_) => path.to_string_lossy().into_owned(),
    };
    let search = std::env::var_os("PATH").unwrap_or_default();
    let programs = programs_of(flow).into_iter().map(|(program, users)| {
        let found = files::find_program(&program, &search);
        let found = found.as_deref().map(shown);
        json!({"program": shown(Path::new(&program)), "path": found, "needed_by": users})
    });
    object["schemas"] = schemas.collect();
    object["providers"] = flow.providers.iter().map(provider_object).collect();
    object["credentials"] = credentials.collect();
    object["programs"] = programs.collect();
}

fn provider_object(provider: &Provider) -> Value {
    let mut object =
        json!({"id": provider.id, "models": provider.models, "version": provider.version});
    match &provider.way {
        Access::Url(url) => object["base_url"] = url.as_str().into(),
        Access::Command(words) => object["command"] = words.clone().into(),
    }
    object
}

fn credential_of(provider: &Provider) -> Option<Value> {
    let (source, name) = match provider.credential.as_ref()? {
        Credential::Env(name) => ("env", name.clone()),
        Credential::File(path) => ("file", path.to_string_lossy().into_owned()),
        Credential::Command(words) => ("command", words.first().cloned().unwrap_or_default()),
    };
    Some(json!({"provider": provider.id, "source": source, "name": name}))
}

/// The programs that the commands of a flow begin with, and who needs each.
fn programs_of(flow: &Flow) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut add = |program: Option<&String>, user: String| {
        if let Some(program) = program {
            all.entry(program.clone()).or_default().insert(user);
        }
    };
    let first = |command: &NodeCommand| command.argv(&flow.home, Path::new(".")).into_iter().next();
    for (node, settings) in flow.graph.nodes.iter().zip(&flow.nodes) {
        let program = settings.command.as_ref().and_then(first);
        add(program.as_ref(), format!("node {}", node.id));
        let rule = settings.later.iter();
        let words = rule.flat_map(|rule| manifest::fill(&rule.check, &flow.home, Path::new(".")));
        add(words.take(1).last().as_ref(), format!("node {}", node.id));
    }
    for agent in &flow.agents {
        let program = match &agent.body {
            AgentBody::Command(command) => first(command),
            AgentBody::Directory(_) | AgentBody::Model { .. } => Some("delta".to_owned()),
        };
        add(program.as_ref(), format!("agent {}", agent.id));
    }
    for tool in &flow.tools {
        let words = manifest::fill(&tool.tool.command, &flow.home, Path::new("."));
        add(words.first(), format!("tool {}", tool.tool.name));
    }
    for plugin in &flow.plugins {
        add(
            first(&plugin.command).as_ref(),
            format!("plugin {}", plugin.id),
        );
    }
    let memory = [
        ("embedder", &flow.memory.embedder),
        ("tokenizer", &flow.memory.tokenizer),
    ];
    for (name, helper) in memory {
        let program = helper.as_ref().and_then(|helper| first(&helper.command));
        add(program.as_ref(), name.to_owned());
    }
    for provider in &flow.providers {
        if let Access::Command(words) = &provider.way {
            add(words.first(), format!("provider {}", provider.id));
        }
        if let Some(Credential::Command(words)) = &provider.credential {
            add(words.first(), format!("credential of {}", provider.id));
        }
    }
    all
}

/// The differences of two inventories, a line each. A part that one of them does not know is not compared.
fn compare(then: &Value, now: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let version = |of: &Value| of["delta_version"].as_str().unwrap_or_default().to_owned();
    if version(then) != version(now) {
        let (then, now) = (version(then), version(now));
        lines.push(format!("delta_version: {then}, now {now}"));
    }
    for (part, name) in COMPARED {
        let (Some(then), Some(now)) = (items_of(&then[part], name), items_of(&now[part], name))
        else {
            continue;
        };
        let names: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
        for name in names {
            let what = match (then.get(name), now.get(name)) {
                (Some(then), Some(now)) if then == now => continue,
                (Some(_), Some(_)) => "differs",
                (Some(_), None) => "is gone",
                (None, _) => "is new",
            };
            lines.push(format!("{part}: {name} {what}"));
        }
    }
    lines
}

/// The items of a part by their names.
fn items_of<'v>(list: &'v Value, name: &str) -> Option<Map<String, Value>> {
    let items: &'v Vec<Value> = list.as_array()?;
    let named = items.iter().map(|item| {
        let name = item[name].as_str().unwrap_or_default().to_owned();
        (name, item.clone())
    });
    Some(named.collect())
}
