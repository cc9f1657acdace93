//! `delta-flow memory`: adds to the file of a store, or lists it.
//!
//! Any number of flows may be running on it.

use super::basis::read_input;
use super::check;
use crate::error::{Error, Exit, Result};
use crate::flow::context::item::MemoryItem;
use crate::flow::context::store_file;
use crate::flow::graph::Payload;
use crate::flow::manifest;
use crate::flow::manifest::memory::StoreName;
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::runs::preflight::install_signals;
use crate::text::disguise::printable;
use crate::text::ids::hex;
use crate::text::json;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::ParsedCommand;
use crate::text::options::values::unknown_word;
use crate::text::shorten::in_short;
use crate::text::table::{Column, Table};
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::signals::Signals;
use crate::unix::terminal::{columns, print, print_json};

/// Runs the command.
pub(crate) fn run_memory_command(given: &ParsedCommand) -> Result<Exit> {
    let is_add = given.operand_text(0).as_deref() == Some("add");
    check_options(given, is_add)?;
    let which = named_store(&given.required_text(1), is_add)?;
    let flow = check::usable(manifest::load_flow(&given.operand_dir(2)))?;
    let root = files::absolute(&given.work_dir())?;
    let store = store_file(&flow, which, &root).ok_or_else(|| {
        let name = which.name();
        Error::config(format!(
            "the {name} store lives in runs only; give it a file: {name}_store: {{type: jsonl, file_path: …}}"
        ))
    })?;
    let signals = install_signals()?;
    let tags = given.texts("--tag");
    if !is_add {
        let mut items = store.items(&signals)?;
        items.retain(|item| tags.is_empty() || tags.iter().any(|tag| item.tags.contains(tag)));
        let listed = match given.format() {
            OutputFormat::Json => items_object(&items, which),
            OutputFormat::Text => items_table(&items),
        };
        print_json(&listed)?;
        return Ok(Exit::Success);
    }
    let item = MemoryItem {
        id: hex(16),
        timestamp: Timestamp::now(),
        tags,
        content: content(given, &signals)?,
        task_id: None,
        node_id: None,
    };
    store.make(&signals)?;
    store.append(std::slice::from_ref(&item), false, &signals)?;
    print(format!("{}\n", item.id).as_bytes())?;
    Ok(Exit::Success)
}

fn check_options(given: &ParsedCommand, is_add: bool) -> Result<()> {
    let has_content = [given.has("--message"), given.has("--input")];
    let wrong = match (is_add, has_content) {
        (true, _) if given.has("--format") => "memory add: --format is not allowed",
        (true, [true, false] | [false, true]) | (false, [false, false]) => return Ok(()),
        (true, _) => "memory add: give either -m TEXT or -i FILE",
        (false, _) => "memory list: -m and -i are not allowed",
    };
    Err(Error::usage(wrong))
}

fn content(given: &ParsedCommand, signals: &Signals) -> Result<Payload> {
    match given.text("--input") {
        Some(path) => read_input(&path, signals),
        None => Ok(json::text(&given.text("--message")).into()),
    }
}

/// The stores that `memory add` or `memory list` can name: what tasks remember is what their nodes
/// brought, and nothing else.
pub(super) fn stores(is_add: bool) -> &'static [(&'static str, StoreName)] {
    &StoreName::ALL[usize::from(is_add)..]
}

fn named_store(name: &str, is_add: bool) -> Result<StoreName> {
    let stores = stores(is_add);
    let found = stores.iter().find(|(word, _)| *word == name);
    found.map(|(_, store)| *store).ok_or_else(|| {
        let names: Vec<&str> = stores.iter().map(|(word, _)| *word).collect();
        unknown_word("memory: no such store", name, &names)
    })
}

fn items_object(items: &[MemoryItem], store: StoreName) -> Vec<u8> {
    json::line(|object| {
        object
            .put("schema_version", SCHEMA_VERSION)
            .put("store", store.name());
        object.objects("items", items, |entry, item| {
            item.put_origin(entry);
            item.put_rest(entry);
        });
    })
}

fn items_table(items: &[MemoryItem]) -> Vec<u8> {
    /// Columns of tags and of contents that are shown.
    const WIDTH: usize = 200;
    let shown = |text: &str| in_short(&printable(text), WIDTH);
    let row = |item: &MemoryItem| {
        let tags = match item.tags.as_slice() {
            [] => "-".to_owned(),
            tags => shown(&tags.join(",")),
        };
        vec![item.timestamp.to_string(), tags, shown(&item.text())]
    };
    let table = Table {
        rows: items.iter().map(row).collect(),
        columns: vec![Column::Name, Column::Text],
        gap: 2,
    };
    table.lines(columns()).into_bytes()
}
