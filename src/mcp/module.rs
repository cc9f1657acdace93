//! `tools/mcp-NAME.yaml`: the tools of a server, pinned as a module of tools that a person reviews.
//!
//! Pure, but for reading the module.

use super::protocol::Revision;
use super::servers::Server;
use crate::error::{At, Error, Result};
use crate::text::json::{self, LARGEST_INTEGER, Members};
use crate::text::shorten::{head, in_short};
use crate::text::yaml;
use crate::unix::files;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The longest name of a tool.
const LONGEST_NAME: usize = 64;

/// The annotation of a parameter whose value is also sent as a header.
const HEADER: &str = "x-mcp-header";

/// Keywords of JSON Schema whose value is data, and not a schema, schemas by name or a list of schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// Keywords whose value is schemas by name.
const BY_NAME: [&str; 4] = [
    "$defs",
    "definitions",
    "dependentSchemas",
    "patternProperties",
];

/// A module as it was written.
pub(crate) struct Module {
    pub revision: Revision,
    /// The server may answer calls with tasks.
    pub tasks: bool,
    /// The server's own names of the tools that were chosen; empty for all.
    pub only: Vec<String>,
    /// The entries of `tools:` by name.
    pub tools: BTreeMap<String, Value>,
}

/// A tool of a server as an entry of a module.
pub(crate) struct ImportedTool {
    pub entry: Value,
    /// `annotations` of the server, which decide nothing.
    pub hints: Vec<String>,
}

/// The path of a server's module.
pub(crate) fn module_path(home: &Path, server: &str) -> PathBuf {
    home.join("tools").join(format!("mcp-{server}.yaml"))
}

/// Reads a module; `None` if the server has not been imported.
pub(crate) fn read_module(home: &Path, server: &str) -> Result<Option<Module>> {
    let path = module_path(home, server);
    let read = files::read_text_limited(&path, yaml::LARGEST).if_there();
    let Some(text) = read.at("read", &path)? else {
        return Ok(None);
    };
    let wrong = |why: &str| {
        let path = path.display();
        Error::config(format!(
            "{path}: {why}; import the server again: delta mcp import {server}"
        ))
    };
    let root = yaml::parse(&text).map_err(|error| wrong(&error.message))?;
    let pinned = &root["mcp"];
    let revision = pinned["version"].as_str().and_then(Revision::parse);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let named = |tool: Value| Some((tool["name"].as_str()?.to_owned(), tool));
    let only = list(&pinned["only"]);
    Ok(Some(Module {
        revision: revision
            .ok_or_else(|| wrong("it names no revision of the protocol that is known"))?,
        tasks: pinned["tasks"] == true,
        only: only
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        tools: list(&root["tools"]).into_iter().filter_map(named).collect(),
    }))
}

/// Writes a module.
pub(crate) fn write_module(
    home: &Path,
    server: &Server,
    revision: Revision,
    only: &[String],
    tools: &[ImportedTool],
) -> Result<PathBuf> {
    let path = module_path(home, &server.name);
    let dir = path.parent().unwrap_or(home);
    std::fs::create_dir_all(dir).at("create", dir)?;
    let entries: Vec<&Value> = tools.iter().map(|tool| &tool.entry).collect();
    let has_tasks = entries.iter().any(|entry| entry.get("later").is_some());
    let pinned = json::without_nulls(json!({
        "server": server.name,
        "version": revision.name(),
        "tasks": has_tasks.then_some(true),
        "only": Some(only).filter(|only| !only.is_empty()),
    }));
    let body = yaml::render(&json!({"mcp": pinned, "tools": entries}));
    let text = format!(
        "# The tools of the MCP server {0}, as it described them. Review them: descriptions and\n\
         # parameters go to the model. delta mcp check {0} reports what has changed since.\n{body}",
        server.name
    );
    files::replace_shared(&path, text.as_bytes())?;
    Ok(path)
}

/// The tools of a server's list that can be used, each name once, and why others are left out.
pub(crate) fn usable_tools(listed: &[Box<RawValue>]) -> (Vec<Map<String, Value>>, Vec<String>) {
    let (mut tools, mut left_out) = (Vec::new(), Vec::new());
    let mut names = BTreeSet::new();
    for json in listed {
        let Ok(tool) = serde_json::from_str::<Map<String, Value>>(json.get()) else {
            let shown = in_short(json.get(), 80);
            left_out.push(format!("{shown} is left out: it cannot be read"));
            continue;
        };
        let name = name_of(&tool).to_owned();
        let shown = json::text(&name);
        let why = objection(&tool).or_else(|| {
            let is_twice = !names.insert(name);
            is_twice.then(|| "a tool of this name is listed before it".to_owned())
        });
        match why {
            None => tools.push(tool),
            Some(why) => left_out.push(format!("{shown} is left out: {why}")),
        }
    }
    (tools, left_out)
}

/// Turns usable tools into entries of a module. Names that become the same are numbered.
pub(crate) fn import_tools(server: &str, listed: &[Map<String, Value>]) -> Vec<ImportedTool> {
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let import = |tool: &Map<String, Value>| {
        let original = name_of(tool);
        let first = tool_name(server, original);
        let mut name = first.clone();
        while taken.contains_key(&name) {
            let count = taken.entry(first.clone()).or_insert(1);
            *count += 1;
            let end = format!("_{count}");
            name = format!("{}{end}", head(&first, LONGEST_NAME - end.len()));
        }
        taken.insert(name.clone(), 1);
        let hints = tool
            .get("annotations")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        ImportedTool {
            entry: entry(server, &name, original, tool),
            hints: hints
                .map(|(name, value)| format!("{name}: {value}"))
                .collect(),
        }
    };
    listed.iter().map(import).collect()
}

/// Lets calls of tools end later, because their server decides at each call whether it answers with a task.
pub(crate) fn let_end_later(server: &str, tools: &mut [ImportedTool]) {
    for tool in tools {
        tool.entry["later"] = json!({"check": ["delta", "mcp", "task", server]});
    }
}

fn name_of(tool: &Map<String, Value>) -> &str {
    tool.get("name").and_then(Value::as_str).unwrap_or("")
}

/// The objection to a tool that a server lists and that cannot be used.
pub(crate) fn objection(tool: &Map<String, Value>) -> Option<String> {
    let name = name_of(tool);
    // The name is a word of a command.
    let is_bad = name.contains("${") || name.chars().any(char::is_control);
    if is_bad || !(1..=128).contains(&name.chars().count()) {
        return Some(
            "its name is not 1 to 128 characters without control characters and \"${\"".to_owned(),
        );
    }
    let Some(schema) = tool.get("inputSchema").filter(|it| it.is_object()) else {
        return Some("it has no inputSchema".to_owned());
    };
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Some("its inputSchema is not one of an object".to_owned());
    }
    match lost_reference(schema, schema) {
        Some(to) => {
            let why = if to.starts_with('#') {
                "is not in it"
            } else {
                "is never fetched"
            };
            Some(format!("its inputSchema refers to {to:?}, which {why}"))
        }
        None => find_annotated(schema, Some(&[]), &mut Vec::new())
            .err()
            .map(|error| error.message),
    }
}

/// The schemas right below a schema or a list of them, with the name of each property.
fn parts(schema: &Value) -> Vec<(Option<&str>, &Value)> {
    let mut parts = Vec::new();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        match value {
            Value::Object(named) if keyword == "properties" => {
                parts.extend(named.iter().map(|(name, value)| (Some(&**name), value)));
            }
            Value::Object(named) if BY_NAME.contains(&&**keyword) => {
                parts.extend(named.values().map(|value| (None, value)));
            }
            _ if DATA.contains(&&**keyword) => {}
            _ => parts.push((None, value)),
        }
    }
    let list = schema.as_array().into_iter().flatten();
    parts.extend(list.map(|value| (None, value)));
    parts
}

/// A `$ref` in a part of a schema that leads out of the whole, or to nothing in it.
fn lost_reference<'s>(whole: &Value, part: &'s Value) -> Option<&'s str> {
    let own = ["$ref", "$dynamicRef"].map(|key| part[key].as_str());
    let is_lost = |reference: &&str| match reference.strip_prefix('#') {
        None => true,
        // Escaped characters are not looked up.
        Some(path) => path.starts_with('/') && !path.contains('%') && whole.pointer(path).is_none(),
    };
    own.into_iter().flatten().find(is_lost).or_else(|| {
        parts(part)
            .into_iter()
            .find_map(|(_, part)| lost_reference(whole, part))
    })
}

/// A parameter whose value is also a header: its path in the arguments, and the annotation.
type Annotated<'s> = (Vec<&'s str>, &'s str);

/// Adds the annotated parameters of a schema, at any depth of `properties`. Below other keywords there is no `path`.
///
/// # Errors
/// An annotation is not valid, so that no client may use the tool.
fn find_annotated<'s>(
    schema: &'s Value,
    path: Option<&[&'s str]>,
    found: &mut Vec<Annotated<'s>>,
) -> Result<()> {
    for (name, part) in parts(schema) {
        let path = path.zip(name).map(|(path, name)| [path, &[name]].concat());
        find_annotated(part, path.as_deref(), found)?;
    }
    let Some(annotation) = schema.get(HEADER) else {
        return Ok(());
    };
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let name = annotation.as_str().unwrap_or("");
    let kind = schema["type"].as_str();
    let why = if path.is_none_or(<[_]>::is_empty) {
        "is not on a parameter that only properties lead to"
    } else if name.is_empty() || !name.chars().all(is_token) {
        "is not a header's name"
    } else if !matches!(kind, Some("string" | "boolean" | "integer")) {
        "is not on a string, a boolean or an integer"
    } else if found.iter().any(|(_, it)| it.eq_ignore_ascii_case(name)) {
        "is used twice"
    } else {
        found.push((path.unwrap_or_default().to_vec(), name));
        return Ok(());
    };
    Err(Error::config(format!("{HEADER}: {annotation} {why}")))
}

/// The headers that a call of a pinned tool sends beside its arguments: name and value.
///
/// # Errors
/// The tool cannot be called, or not with these arguments.
pub(crate) fn argument_headers(entry: &Value, arguments: &str) -> Result<Vec<(String, String)>> {
    let (mut annotated, mut headers) = (Vec::new(), Vec::new());
    find_annotated(&entry["input_schema"], Some(&[]), &mut annotated)?;
    for (path, name) in annotated {
        let mut json = arguments.to_owned();
        for key in &path {
            json::read_or_default::<Members>(&json)
                .get(key)
                .unwrap_or("null")
                .clone_into(&mut json);
        }
        let text = match serde_json::from_str(&json).ok() {
            Some(Value::String(text)) => text,
            Some(Value::Number(n))
                if n.as_f64().is_none_or(|n| n.abs() > LARGEST_INTEGER as f64) =>
            {
                let path = path.join(".");
                return Err(Error::usage(format!(
                    "argument {path}: {json} is not between ±{LARGEST_INTEGER}, as a value with {HEADER} must be"
                )));
            }
            Some(Value::Number(_) | Value::Bool(_)) => json,
            _ => continue,
        };
        headers.push((format!("Mcp-Param-{name}"), text));
    }
    Ok(headers)
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
    let text = |key: &str| {
        let text = tool.get(key).and_then(Value::as_str);
        text.filter(|text| !text.trim().is_empty())
    };
    let mut command = vec!["delta", "mcp", "call", server];
    if original.starts_with('-') {
        command.push("--");
    }
    command.push(original);
    let mut schema = tool
        .get("inputSchema")
        .cloned()
        .unwrap_or_else(|| json!({}));
    if schema.get("type").is_none() {
        schema["type"] = "object".into();
    }
    json::without_nulls(json!({
        "name": name,
        "description": text("description").or_else(|| text("title")),
        "command": command,
        "input": "json",
        "input_schema": schema,
    }))
    .into()
}

/// The differences of a server's tools from the pinned ones, a line each.
pub(crate) fn changes(pinned: &BTreeMap<String, Value>, now: &[ImportedTool]) -> Vec<String> {
    let name_of = |tool: &ImportedTool| tool.entry["name"].as_str().unwrap_or("").to_owned();
    let mut lines = Vec::new();
    for tool in now {
        let name = name_of(tool);
        let Some(before) = pinned.get(&name) else {
            lines.push(format!("new: {name}"));
            continue;
        };
        let mut changed = vec!["description", "command", "input_schema"];
        changed.retain(|key| before.get(key) != tool.entry.get(key));
        if !changed.is_empty() {
            lines.push(format!("changed: {name} ({})", changed.join(", ")));
        }
    }
    let is_gone = |name: &&String| now.iter().all(|tool| name_of(tool) != **name);
    lines.extend(
        pinned
            .keys()
            .filter(is_gone)
            .map(|name| format!("gone: {name}")),
    );
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
        let tools = import_tools("s", &tools);
        let names: Vec<&str> = tools
            .iter()
            .map(|t| t.entry["name"].as_str().unwrap())
            .collect();
        assert_eq!(names[0], "s_x_y");
        assert!(names.iter().all(|name| name.len() <= 64));
        assert_ne!(names[1], names[2]);
        let many = ["x.y", "x_y_2", "x/y", "日付", "查询", &long, &long];
        let many = import_tools("s", &many.map(|name| listed(name, plain.clone())));
        let names: Vec<&str> = many
            .iter()
            .map(|t| t.entry["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names[..5],
            ["s_x_y", "s_x_y_2", "s_x_y_3", "s___", "s____2"]
        );
        assert!(
            names[6].ends_with("_2") && names[6].len() == 64,
            "{names:?}"
        );
    }

    #[test]
    fn what_cannot_be_imported_is_left_out_with_a_reason() {
        let plain = || json!({"type": "object"});
        let (longest, longer) = ("é".repeat(128), "é".repeat(129));
        for (name, schema, why) in [
            ("", plain(), "1 to 128"),
            (longer.as_str(), plain(), "1 to 128"),
            ("a\0b", plain(), "control characters"),
            ("${CWD}", plain(), "\"${\""),
            ("a", json!({"type": "array"}), "not one of an object"),
            (
                "b",
                json!({"properties": {"x": {"$ref": "https://e.example/s.json"}}}),
                "never fetched",
            ),
            (
                "c",
                json!({"properties": {"x": {"$ref": "#/$defs/t"}}}),
                "is not in it",
            ),
        ] {
            let said = objection(&listed(name, schema));
            assert!(
                said.as_ref().is_some_and(|said| said.contains(why)),
                "{name}: {said:?}"
            );
        }
        for name in ["a b", "a,b/c.d", "日付", "$a", longest.as_str()] {
            assert_eq!(objection(&listed(name, plain())), None);
        }
        let data = json!({"default": {"$ref": "u"}, "enum": [{"$ref": "u"}], "const": {"$ref": "u"},
            "examples": [{"$ref": "u"}], "properties": {"$ref": {"type": "string"}}});
        assert_eq!(objection(&listed("data", data)), None);
        for name in ["properties", "$defs", "patternProperties"] {
            let schema = json!({name: {"default": {"$ref": "https://e.example/s.json"}}});
            assert!(objection(&listed("a", schema)).is_some(), "{name}");
        }
        let odd = [
            "{\"name\": \"a\", \"inputSchema\": {}, \"n\": 1e999}",
            "7",
            "{\"inputSchema\": {}}",
        ];
        let entries = [
            odd[0],
            odd[1],
            odd[2],
            r#"{"name": "b", "inputSchema": {}}"#,
        ];
        let entries = [&entries[..], &entries[3..]].concat();
        let raw = entries
            .iter()
            .map(|json| RawValue::from_string((*json).to_owned()).unwrap());
        let (tools, left_out) = usable_tools(&raw.collect::<Vec<_>>());
        assert_eq!(tools.iter().map(name_of).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(left_out.len(), 3, "{left_out:?}");
        let ok = listed(
            "ok",
            json!({"$defs": {"t": {}}, "properties": {"x": {"$ref": "#/$defs/t"}}}),
        );
        assert_eq!(objection(&ok), None);
        let tools = import_tools("s", &[ok]);
        assert_eq!(tools[0].entry["input_schema"]["type"], "object");
        assert_eq!(tools[0].hints, ["readOnlyHint: true"]);
    }

    #[test]
    fn an_annotation_that_is_not_valid_excludes_the_tool() {
        let annotated = |kind: &str| json!({"type": kind, "x-mcp-header": "N"});
        let text = || annotated("string");
        let with = |property: Value| json!({"type": "object", "properties": {"a": property}});
        for schema in [
            with(annotated("number")),
            with(annotated("object")),
            with(annotated("array")),
            with(annotated("null")),
            with(json!({"type": ["string", "null"], "x-mcp-header": "N"})),
            with(json!({"x-mcp-header": "N"})),
            with(json!({"type": "string", "x-mcp-header": "a b"})),
            with(json!({"type": "string", "x-mcp-header": ""})),
            with(json!({"type": "string", "x-mcp-header": 1})),
            json!({"type": "object", "x-mcp-header": "N"}),
            json!({"properties": {"a": text(), "b": {"type": "string", "x-mcp-header": "n"}}}),
            json!({"$defs": {"t": text()}}),
            json!({"$defs": {"t": with(text())}}),
            with(json!({"anyOf": [{"type": "null"}, text()]})),
            with(json!({"oneOf": [text()]})),
            with(json!({"allOf": [with(text())]})),
            with(json!({"items": text()})),
            with(json!({"items": [text()]})),
            with(json!({"additionalProperties": text()})),
            with(json!({"patternProperties": {"x": text()}})),
            json!({"if": {"properties": {"a": text()}}}),
        ] {
            let said = objection(&listed("t", schema.clone()));
            assert!(
                said.is_some_and(|said| said.starts_with("x-mcp-header: ")),
                "{schema}"
            );
        }
        for schema in [
            with(with(with(text()))),
            with(annotated("integer")),
            with(annotated("boolean")),
            json!({"properties": {"x-mcp-header": {"type": "string"}}}),
            with(
                json!({"default": text(), "const": text(), "enum": [text()], "examples": [text()]}),
            ),
        ] {
            assert_eq!(objection(&listed("t", schema)), None);
        }
    }

    #[test]
    fn a_change_is_named_with_what_changed() {
        let before = import_tools("s", &[listed("a", json!({})), listed("b", json!({}))]);
        let pinned = before.iter().map(|t| {
            (
                t.entry["name"].as_str().unwrap().to_owned(),
                t.entry.clone(),
            )
        });
        let pinned: BTreeMap<String, Value> = pinned.collect();
        let mut other = listed("a", json!({"required": ["x"]}));
        other.insert("description".to_owned(), "E".into());
        let now = import_tools("s", &[other, listed("c", json!({}))]);
        assert_eq!(
            changes(&pinned, &now),
            [
                "changed: s_a (description, input_schema)",
                "new: s_c",
                "gone: s_b"
            ]
        );
    }

    #[test]
    fn annotated_arguments_are_headers_too() {
        let of = |kind: &str, name: &str| json!({"type": kind, "x-mcp-header": name});
        let inner = json!({"properties": {"deep": {"properties": {"n": of("integer", "N"), "b": of("boolean", "B")}}}});
        let entry = json!({"input_schema": {"properties": {
            "region": of("string", "Region"), "z": of("boolean", "Z"), "q": {}, "in": inner}}});
        let headers = |arguments: &str| {
            let headers = argument_headers(&entry, arguments);
            headers.map_err(|error| error.message)
        };
        let arguments =
            json!({"region": "eu", "z": null, "q": "x", "in": {"deep": {"n": 3, "b": false}}});
        let expected = [
            ("Mcp-Param-Region", "eu"),
            ("Mcp-Param-N", "3"),
            ("Mcp-Param-B", "false"),
        ];
        let expected = expected.map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(headers(&arguments.to_string()).unwrap(), expected);
        assert_eq!(
            headers(r#"{"region": [], "in": "x", "z": {}}"#).unwrap(),
            []
        );
        for n in ["9007199254740991", "-9007199254740991", "0"] {
            let arguments = format!(r#"{{"in":{{"deep":{{"n":{n}}}}}}}"#);
            let sent = headers(&arguments).unwrap();
            assert_eq!(sent, [("Mcp-Param-N".to_owned(), n.to_owned())]);
        }
        for n in [
            "9007199254740992",
            "-9007199254740993",
            "18446744073709551615",
            "1e300",
        ] {
            let arguments = format!(r#"{{"in":{{"deep":{{"n":{n}}}}}}}"#);
            let refused = headers(&arguments).unwrap_err();
            assert!(refused.starts_with("argument in.deep.n: "), "{refused}");
        }
    }
}
