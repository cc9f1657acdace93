//! `delta-flow memory`: adds to the file of a store, or lists it.
//!
//! Any number of flows may be running on it.

use super::args::{MemoryAction, MemoryArgs as Wanted};
use super::basis::read_input;
use super::check;
use crate::error::{Error, Exit, Result};
use crate::flow::context::item::MemoryItem;
use crate::flow::context::store::StoreFile;
use crate::flow::manifest;
use crate::flow::manifest::memory::StoreName;
use crate::flow::record::tally::SCHEMA_VERSION;
use crate::runs::preflight::install_signals;
use crate::text::disguise::printable;
use crate::text::ids::hex;
use crate::text::json::{self, Object};
use crate::text::options::format::OutputFormat;
use crate::text::shorten::in_short;
use crate::text::table::{Column, Table};
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::terminal::{columns, print, print_json};

/// Runs the command.
pub(crate) fn run_memory_command(wanted: &Wanted) -> Result<Exit> {
    let Some(flow) = check::usable(manifest::load_flow(&wanted.dir)) else {
        return Ok(Exit::Config);
    };
    let root = files::absolute(&wanted.work_dir)?;
    let store = crate::flow::context::store_file(&flow, wanted.store, &root).ok_or_else(|| {
        let name = wanted.store.name();
        Error::config(format!(
            "the {name} store lives in runs only; give it a file: {name}_store: {{type: jsonl, file_path: …}}"
        ))
    })?;
    let signals = install_signals()?;
    let content = match &wanted.what {
        MemoryAction::AddText(text) => json::text(text).into(),
        MemoryAction::AddFile(path) => read_input(path, &signals)?,
        MemoryAction::List(format) => {
            let mut items = store.items(&signals)?;
            items.retain(|item| is_wanted(item, &wanted.tags));
            return print_items(&items, wanted.store, *format);
        }
    };
    let item = MemoryItem {
        id: hex(16),
        timestamp: Timestamp::now(),
        tags: wanted.tags.clone(),
        content,
        task_id: None,
        node_id: None,
    };
    add_item(&store, &item, &signals)
}

fn add_item(
    store: &StoreFile,
    item: &MemoryItem,
    signals: &crate::unix::signals::Signals,
) -> Result<Exit> {
    store.make(signals)?;
    store.append(std::slice::from_ref(item), false, signals)?;
    print(format!("{}\n", item.id).as_bytes())?;
    Ok(Exit::Success)
}

fn is_wanted(item: &MemoryItem, tags: &[String]) -> bool {
    tags.is_empty() || tags.iter().any(|tag| item.tags.contains(tag))
}

fn print_items(items: &[MemoryItem], store: StoreName, format: OutputFormat) -> Result<Exit> {
    /// So much of a content is shown.
    const WIDTH: usize = 200;
    let mut out = Vec::new();
    if format == OutputFormat::Json {
        let mut object = Object::begin(&mut out);
        object
            .put("schema_version", SCHEMA_VERSION)
            .put("store", store.name());
        object.objects("items", items, |entry, item| {
            item.put_origin(entry);
            item.put_rest(entry);
        });
        object.end();
        out.push(b'\n');
    } else {
        let row = |item: &MemoryItem| {
            let tags = match item.tags.as_slice() {
                [] => "-".to_owned(),
                tags => in_short(&printable(&tags.join(",")), WIDTH),
            };
            let content = in_short(&printable(&item.text()), WIDTH);
            vec![item.timestamp.to_string(), tags, content]
        };
        let table = Table {
            rows: items.iter().map(row).collect(),
            columns: vec![Column::Name, Column::Text],
            gap: 2,
        };
        out.extend_from_slice(table.lines(columns()).as_bytes());
    }
    print_json(&out)?;
    Ok(Exit::Success)
}
