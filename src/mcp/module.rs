//! `tools/mcp-NAME.yaml`: the tools of a server, pinned as a module of tools that a person reviews.
//!
//! Pure, but for reading the module.

use super::protocol::Revision;
use super::servers::Server;
use crate::error::{At, Error, Result};
use crate::text::yaml;
use crate::unix::files;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The longest name of a tool.
const LONGEST_NAME: usize = 64;

/// The annotation of a parameter whose value is also sent as a header.
const HEADER: &str = "x-mcp-header";

/// A module as it was written.
pub(crate) struct Module {
    pub revision: Revision,
    /// The entries of `tools:` by name.
    pub tools: BTreeMap<String, Value>,
}

/// The tools of a server as entries of a module.
pub(crate) struct Import {
    /// The entries, with the server's hints for the review.
    pub tools: Vec<ImportedTool>,
    /// Why others were left out.
    pub left_out: Vec<String>,
}

pub(crate) struct ImportedTool {
    pub entry: Value,
    /// `annotations` of the server, which decide nothing.
    pub hints: Vec<String>,
}

/// Where a server's module is.
pub(crate) fn module_path(home: &Path, server: &str) -> PathBuf {
    home.join("tools").join(format!("mcp-{server}.yaml"))
}

/// Reads a module; `None` if the server has not been imported.
pub(crate) fn read_module(home: &Path, server: &str) -> Result<Option<Module>> {
    let path = module_path(home, server);
    let text = match files::read_text(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("read", &path, &e)),
    };
    let wrong = |why: &str| {
        let path = path.display();
        Error::config(format!(
            "{path}: {why}; import the server again: delta mcp import {server}"
        ))
    };
    let root = yaml::parse(&text).map_err(|error| wrong(&error.message))?;
    let version = root.pointer("/mcp/version").and_then(Value::as_str);
    let revision = version.and_then(Revision::parse);
    let revision =
        revision.ok_or_else(|| wrong("it names no revision of the protocol that is known"))?;
    let tools = root.get("tools").and_then(Value::as_array);
    let named = |tool: &Value| Some((tool.get("name")?.as_str()?.to_owned(), tool.clone()));
    Ok(Some(Module {
        revision,
        tools: tools.into_iter().flatten().filter_map(named).collect(),
    }))
}

/// Writes a module.
pub(crate) fn write_module(
    home: &Path,
    server: &Server,
    revision: Revision,
    tools: &[ImportedTool],
) -> Result<PathBuf> {
    let path = module_path(home, &server.name);
    let dir = path.parent().unwrap_or(home);
    std::fs::create_dir_all(dir).at("create", dir)?;
    let entries: Vec<&Value> = tools.iter().map(|tool| &tool.entry).collect();
    let body = yaml::render(&json!({
        "mcp": {"server": server.name, "version": revision.name()},
        "tools": entries,
    }));
    let text = format!(
        "# The tools of the MCP server {0}, as it described them. Review them: descriptions and\n\
         # parameters go to the model. delta mcp check {0} reports what has changed since.\n{body}",
        server.name
    );
    files::replace_shared(&path, text.as_bytes())?;
    Ok(path)
}

/// Turns what a server lists into entries of a module.
///
/// # Errors
/// Two tools would have one name.
pub(crate) fn import_tools(server: &str, listed: &[Map<String, Value>]) -> Result<Import> {
    let mut import = Import {
        tools: Vec::new(),
        left_out: Vec::new(),
    };
    let mut originals: BTreeMap<String, &str> = BTreeMap::new();
    for tool in listed {
        let original = tool.get("name").and_then(Value::as_str).unwrap_or_default();
        if let Some(why) = objection(original, tool) {
            import
                .left_out
                .push(format!("{original:?} is left out: {why}"));
            continue;
        }
        let name = tool_name(server, original);
        if let Some(other) = originals.insert(name.clone(), original) {
            return Err(Error::failure(format!(
                "the tools {other:?} and {original:?} would both be named {name}"
            )));
        }
        import.tools.push(ImportedTool {
            entry: entry(server, &name, original, tool),
            hints: hints(tool),
        });
    }
    Ok(import)
}

/// Why a tool cannot be imported.
fn objection(name: &str, tool: &Map<String, Value>) -> Option<String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    if name.is_empty() || name.len() > 128 || !name.chars().all(is_good) {
        return Some("its name is not 1 to 128 letters, digits, '_', '-', '.' and '/'".to_owned());
    }
    let Some(schema) = tool.get("inputSchema").and_then(Value::as_object) else {
        return Some("it has no inputSchema".to_owned());
    };
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Some("its inputSchema is not one of an object".to_owned());
    }
    if let Some(reference) = external_reference(tool.get("inputSchema")?) {
        return Some(format!(
            "its inputSchema refers to {reference:?}, which is never fetched"
        ));
    }
    header_objection(schema)
}

/// A `$ref` that leads out of a schema.
fn external_reference(schema: &Value) -> Option<&str> {
    match schema {
        Value::Object(map) => {
            let own = ["$ref", "$dynamicRef"]
                .iter()
                .filter_map(|key| map.get(*key)?.as_str());
            own.into_iter()
                .find(|reference| !reference.starts_with('#'))
                .or_else(|| map.values().find_map(external_reference))
        }
        Value::Array(list) => list.iter().find_map(external_reference),
        _ => None,
    }
}

fn header_objection(schema: &Map<String, Value>) -> Option<String> {
    let mut seen: Vec<String> = Vec::new();
    for (_, name) in header_names(schema) {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let text = name.as_str().unwrap_or_default();
        if text.is_empty() || !text.chars().all(is_token) {
            return Some(format!("{HEADER}: {name} is not a header's name"));
        }
        if seen.contains(&text.to_ascii_lowercase()) {
            return Some(format!("{HEADER}: {name} is used twice"));
        }
        seen.push(text.to_ascii_lowercase());
    }
    None
}

fn header_names(schema: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten();
    properties.filter_map(|(name, property)| Some((name, property.get(HEADER)?)))
}

/// The headers that a call of a pinned tool sends beside its arguments: name and value.
pub(crate) fn argument_headers(entry: &Value, arguments: &Value) -> Vec<(String, String)> {
    let schema = entry.get("input_schema").and_then(Value::as_object);
    let names = schema.into_iter().flat_map(header_names);
    let header = |(parameter, name): (&String, &Value)| {
        let value = match arguments.get(parameter)? {
            Value::Null => return None,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Some((format!("Mcp-Param-{}", name.as_str()?), value))
    };
    names.filter_map(header).collect()
}

/// The name under which the model calls a tool.
fn tool_name(server: &str, original: &str) -> String {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let plain = |c: char| if is_good(c) { c } else { '_' };
    let name = format!(
        "{server}_{}",
        original.chars().map(plain).collect::<String>()
    );
    if name.len() <= LONGEST_NAME {
        return name;
    }
    // FNV-1a, so that names that are alike at the front stay apart.
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = original.bytes().fold(0x811c_9dc5, step);
    format!("{}_{:06x}", &name[..LONGEST_NAME - 7], hash & 0x00ff_ffff)
}

fn entry(server: &str, name: &str, original: &str, tool: &Map<String, Value>) -> Value {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), name.into());
    let text = |key: &str| {
        tool.get(key)
            .and_then(Value::as_str)
            .filter(|text| !text.trim().is_empty())
    };
    if let Some(description) = text("description").or_else(|| text("title")) {
        entry.insert("description".to_owned(), description.into());
    }
    let mut command = vec!["delta", "mcp", "call", server];
    if original.starts_with('-') {
        command.push("--");
    }
    command.push(original);
    entry.insert("command".to_owned(), command.into());
    entry.insert("input".to_owned(), "json".into());
    let mut schema = tool
        .get("inputSchema")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    schema.entry("type").or_insert_with(|| "object".into());
    entry.insert("input_schema".to_owned(), schema.into());
    entry.into()
}

fn hints(tool: &Map<String, Value>) -> Vec<String> {
    let annotations = tool.get("annotations").and_then(Value::as_object);
    let annotations = annotations.into_iter().flatten();
    annotations
        .map(|(name, value)| format!("{name}: {value}"))
        .collect()
}

/// How the tools of a server differ from the pinned ones, a line each.
pub(crate) fn changes(pinned: &BTreeMap<String, Value>, now: &[ImportedTool]) -> Vec<String> {
    let name_of = |tool: &ImportedTool| tool.entry["name"].as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for tool in now {
        let name = name_of(tool);
        match pinned.get(&name) {
            None => lines.push(format!("new: {name}")),
            Some(before) => {
                let keys = ["description", "command", "input_schema"];
                let changed = keys
                    .into_iter()
                    .filter(|key| before.get(key) != tool.entry.get(key));
                let changed: Vec<&str> = changed.collect();
                if !changed.is_empty() {
                    lines.push(format!("changed: {name} ({})", changed.join(", ")));
                }
            }
        }
    }
    let gone = pinned
        .keys()
        .filter(|name| !now.iter().any(|tool| name_of(tool) == **name));
    lines.extend(gone.map(|name| format!("gone: {name}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, schema: Value) -> Map<String, Value> {
        let tool = json!({"name": name, "description": "D", "inputSchema": schema,
            "annotations": {"readOnlyHint": true}});
        tool.as_object().cloned().unwrap()
    }

    #[test]
    fn names_are_mapped_without_collisions() {
        let plain = json!({"type": "object"});
        let long = "a".repeat(100);
        let other = format!("{}b", "a".repeat(99));
        let tools = [
            listed("x.y", plain.clone()),
            listed(&long, plain.clone()),
            listed(&other, plain.clone()),
        ];
        let import = import_tools("s", &tools).unwrap();
        let names: Vec<&str> = import
            .tools
            .iter()
            .map(|t| t.entry["name"].as_str().unwrap())
            .collect();
        assert_eq!(names[0], "s_x_y");
        assert!(names.iter().all(|name| name.len() <= 64));
        assert_ne!(names[1], names[2]);
        let twice = [listed("x.y", plain.clone()), listed("x/y", plain)];
        let error = import_tools("s", &twice).err().unwrap();
        assert!(error.message.contains("\"x.y\" and \"x/y\""), "{error}");
    }

    #[test]
    fn what_cannot_be_imported_is_left_out_with_a_reason() {
        let tools = [
            listed("a b", json!({"type": "object"})),
            listed("a", json!({"type": "array"})),
            listed(
                "b",
                json!({"properties": {"x": {"$ref": "https://e.example/s.json"}}}),
            ),
            listed("c", json!({"properties": {"x": {"x-mcp-header": "a b"}}})),
            listed("${CWD}", json!({"type": "object"})),
            listed(
                "ok",
                json!({"$defs": {"t": {}}, "properties": {"x": {"$ref": "#/$defs/t"}}}),
            ),
        ];
        let import = import_tools("s", &tools).unwrap();
        assert_eq!(import.tools.len(), 1, "{:?}", import.left_out);
        assert_eq!(import.tools[0].entry["input_schema"]["type"], "object");
        assert_eq!(import.tools[0].hints, ["readOnlyHint: true"]);
        assert_eq!(import.left_out.len(), 5);
    }

    #[test]
    fn a_change_is_named_with_what_changed() {
        let before = import_tools("s", &[listed("a", json!({})), listed("b", json!({}))]).unwrap();
        let pinned = before.tools.iter().map(|t| {
            (
                t.entry["name"].as_str().unwrap().to_owned(),
                t.entry.clone(),
            )
        });
        let pinned: BTreeMap<String, Value> = pinned.collect();
        let mut other = listed("a", json!({"required": ["x"]}));
        other.insert("description".to_owned(), "E".into());
        let now = import_tools("s", &[other, listed("c", json!({}))]).unwrap();
        assert_eq!(
            changes(&pinned, &now.tools),
            [
                "changed: s_a (description, input_schema)",
                "new: s_c",
                "gone: s_b"
            ]
        );
    }

    #[test]
    fn annotated_arguments_are_headers_too() {
        let entry = json!({"input_schema": {"properties": {
            "region": {"x-mcp-header": "Region"}, "n": {"x-mcp-header": "N"}, "z": {"x-mcp-header": "Z"}, "q": {}}}});
        let headers = argument_headers(
            &entry,
            &json!({"region": "eu", "n": 3, "z": null, "q": "x"}),
        );
        let expected = [("Mcp-Param-Region", "eu"), ("Mcp-Param-N", "3")];
        assert_eq!(headers, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }
}
