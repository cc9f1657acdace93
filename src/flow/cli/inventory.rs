//! `delta-flow manifest`: everything that a flow, or a run of one, was made from, as one JSON object; and how that compares
//! with an earlier one.
//!
//! Of a run: as it was recorded. Holds no keys, only where they are.

use super::basis;
use super::check;
use crate::VERSION;
use crate::config::tool::definition::Word;
use crate::error::{At, Error, Exit, Result};
use crate::flow::manifest::providers::{Access, Provider};
use crate::flow::manifest::{self, AgentBody, Credential, Flow};
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::record::metadata;
use crate::record::run_dir::RunDir;
use crate::text::disguise::printable_line;
use crate::text::json;
use crate::text::options::parse::ParsedCommand;
use crate::unix::files;
use crate::unix::programs::{find_program, search_path};
use crate::unix::terminal::{print, print_json};
use serde_json::{Value, json};
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
pub(crate) fn print_inventory(given: &ParsedCommand) -> Result<Exit> {
    let found = match basis::named_run(given)? {
        Some(run) => inventory_of_run(&run)?,
        None => inventory_of(&check::usable(manifest::load_flow(&given.operand_dir(0)))?),
    };
    let Some(path) = given.path("--check") else {
        print_json(format!("{found:#}\n").as_bytes())?;
        return Ok(Exit::Success);
    };
    let differences = compare(&read_inventory(&path)?, &found);
    let lines = differences.iter().map(|it| printable_line(it) + "\n");
    print(lines.collect::<String>().as_bytes())?;
    Ok(if differences.is_empty() {
        Exit::Success
    } else {
        Exit::Failure
    })
}

fn read_inventory(path: &Path) -> Result<Value> {
    let opened = files::open_readable(path).at("read", path);
    let file = opened.map_err(Error::into_usage)?;
    let bytes = files::read_limited(file, LARGEST).at("read", path)?;
    let read = serde_json::from_slice(&bytes).ok();
    read.filter(|it: &Value| it["files"].is_array())
        .ok_or_else(|| {
            Error::usage(format!(
                "--check: {} was not printed by `delta flow manifest`",
                path.display()
            ))
        })
}

/// The inventory of a flow as it is now.
fn inventory_of(flow: &Flow) -> Value {
    let mut object = json!({"schema_version": SCHEMA_VERSION, "delta_version": VERSION});
    add_recorded(&mut object, &basis::describe_flow(flow));
    add_unrecorded(&mut object, flow);
    object
}

/// The inventory of a run. The record has no more of it than files and agents; the rest is that of the flow, as long as
/// it is as it was.
fn inventory_of_run(run: &RunDir) -> Result<Value> {
    let past = basis::shown_basis(run, None)?;
    let recorded = metadata::read_or_empty(&run.path);
    let basis = recorded.flow.ok_or_else(|| basis::not_of_flow(run, None))?;
    let mut object = json!({
        "schema_version": SCHEMA_VERSION,
        "run_id": run.id.as_str(),
        "delta_version": recorded.delta_version,
    });
    add_recorded(&mut object, &basis);
    match past.unchanged_flow() {
        Some(flow) => add_unrecorded(&mut object, &flow),
        None => {
            let text = "warning: files of the flow have changed since the run: its schemas, providers, credentials \
                        and programs are not known";
            check::warn(text);
        }
    }
    Ok(object)
}

/// Adds the parts that a run records of its flow.
fn add_recorded(object: &mut Value, described: &Value) {
    for part in ["home", "files", "agents"] {
        object[part] = described[part].clone();
    }
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
    let search = search_path();
    let programs = programs_of(flow).into_iter().map(|(program, users)| {
        let found = find_program(&program, &search).map(|path| shown(&path));
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
    let mut add = |argv: &[String], user: String| {
        if let Some(program) = argv.first() {
            all.entry(program.clone()).or_default().insert(user);
        }
    };
    let fill = |words: &[Word]| manifest::fill(words, &flow.home, Path::new("."));
    for (node, settings) in flow.graph.nodes.iter().zip(&flow.nodes) {
        let command = settings.command.iter().map(|command| &command.words);
        for words in command.chain(settings.later.iter().map(|rule| &rule.check)) {
            add(&fill(words), format!("node {}", node.id));
        }
    }
    for agent in &flow.agents {
        let argv = match &agent.body {
            AgentBody::Command(command) => fill(&command.words),
            AgentBody::Directory(_) | AgentBody::Model { .. } => vec!["delta".to_owned()],
        };
        add(&argv, format!("agent {}", agent.id));
    }
    for tool in &flow.tools {
        add(
            &fill(&tool.tool.command),
            format!("tool {}", tool.tool.name),
        );
    }
    for plugin in &flow.plugins {
        add(
            &fill(&plugin.command.words),
            format!("plugin {}", plugin.id),
        );
    }
    for provider in &flow.providers {
        if let Access::Command(words) = &provider.way {
            add(words, format!("provider {}", provider.id));
        }
        if let Some(Credential::Command(words)) = &provider.credential {
            add(words, format!("credential of {}", provider.id));
        }
    }
    all
}

/// The differences of two inventories, a line each. A part that one of them does not know is not compared.
fn compare(then: &Value, now: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let [was, is] = [then, now].map(|it| json::member_text(it, "delta_version"));
    if was != is {
        lines.push(format!("delta_version: {was}, now {is}"));
    }
    for (part, name) in COMPARED {
        let (Some(then), Some(now)) = (items_of(&then[part], name), items_of(&now[part], name))
        else {
            continue;
        };
        let names: BTreeSet<_> = then.keys().chain(now.keys()).collect();
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
fn items_of<'v>(list: &'v Value, name: &str) -> Option<BTreeMap<&'v str, &'v Value>> {
    let items = list.as_array()?.iter();
    let named = items.map(|item| (json::member_text(item, name), item));
    Some(named.collect())
}
