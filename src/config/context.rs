//! `context.yaml`: what the model sees.

use super::agent::{Context, Problem, Severity, Source};
use super::document::{Document, error_in};
use crate::config::section::{Diagnostics, Section};
use crate::config::tool::argv_template::{parse_fixed_word, parse_word};
use crate::config::tool::definition::{Piece, Word};
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::path::{Component, Path};
use std::time::Duration;

/// A generator's time limit, unless it says otherwise.
const GENERATOR_TIMEOUT_MS: u64 = 30_000;

/// How much of the files that are searched for upwards the model sees, unless the source says otherwise.
const UPWARD_BYTES: u64 = 32 << 10;

/// Text for a context.yaml that does not exist yet.
const DEFAULT_TEXT: &str = "sources:\n  - type: file\n    id: system_prompt\n    path: '${SYSTEM_PROMPT}'\n  \
                            - type: file\n    id: workspace_guide\n    path: '${CWD}/DELTA.md'\n    \
                            on_missing: skip\n  - type: journal\n    id: conversation\n";

/// The variable that is the path of the agent's system prompt.
pub(super) const SYSTEM_PROMPT: &str = "SYSTEM_PROMPT";

/// A text of a source, with the engine's variables and that of the prompt in it.
pub(super) fn source_word(text: &str, prompt: &str) -> Word {
    let pieces = parse_word(text, &[SYSTEM_PROMPT]).0.into_iter();
    let with_prompt = pieces.flat_map(|piece| match piece {
        Piece::Param(_) => vec![Piece::Home, Piece::Text(format!("/{prompt}"))],
        other => vec![other],
    });
    Word(with_prompt.collect())
}

/// Reads `context.yaml`.
pub(crate) fn load(
    home: &Path,
    shown: String,
    prompt: &str,
    problems: &mut Vec<Problem>,
) -> Option<Context> {
    let path = home.join("context.yaml");
    if !path.exists() {
        let message = format!(
            "it does not exist, and has no default; create it, for example with \
             this text:\n\n{DEFAULT_TEXT}"
        );
        problems.push(error_in(&shown, message));
        return None;
    }
    let document = Document::read(&path, shown, problems)?;
    let section = Section::new(&document.root, vec![]);
    let mut out = Diagnostics::about("");
    section.warn_of_unknown_keys(&["sources", "system_messages"], &mut out);
    let modes = [("merged", false), ("separate", true)];
    let separate = section
        .read_choice("system_messages", &modes, &mut out)
        .unwrap_or(false);
    let listed = section.read_list("sources", &mut out);
    if listed.is_none() && !out.has_errors() {
        out.error(vec![], "sources: missing; it lists what the model sees");
    }
    let mut sources = Vec::new();
    let mut journals = 0;
    for (index, item) in listed.into_iter().flatten().enumerate() {
        let at = vec![Step::Key("sources".to_owned()), Step::Item(index)];
        match item.as_object() {
            Some(map) => {
                journals += usize::from(map.get("type").is_some_and(|kind| kind == "journal"));
                if journals == 2 {
                    let message = "journal: there are two of them among the sources; remove one";
                    out.error(at.clone(), message);
                }
                sources.extend(read_source(map, at, home, prompt, &mut out));
            }
            None => out.error(
                at,
                format!(
                    "sources: expected a mapping, found {}",
                    crate::config::section::describe_value(item)
                ),
            ),
        }
    }
    let fatal = out.has_errors();
    document.report_all(&[], out.into_list(), problems);
    if !fatal && journals == 0 {
        problems.push(document.problem_at(
            Severity::Warning,
            &section.path_to("sources"),
            "sources: no journal among them; the model will not see its task",
        ));
    }
    (!fatal).then_some(Context { sources, separate })
}

const ON_MISSING: [(&str, bool); 2] = [("error", false), ("skip", true)];

fn read_source(
    map: &Map<String, Value>,
    at: Vec<Step>,
    home: &Path,
    prompt: &str,
    out: &mut Diagnostics,
) -> Option<Source> {
    let kinds = [("file", 0), ("computed_file", 1), ("journal", 2)];
    let section = Section::new(map, at.clone()).within("source");
    if !map.contains_key("type") {
        let message = "source: type: missing; it is one of file, computed_file, journal";
        out.error(at.clone(), message);
    }
    let kind = section.read_choice("type", &kinds, out)?;
    let section = Section::new(map, at).within(kinds[kind].0);
    match kind {
        0 => read_file_source(&section, home, prompt, out),
        1 => read_computed_source(&section, prompt, out),
        _ => Some(read_journal_source(&section, out)),
    }
}

fn read_file_source(
    section: &Section<'_>,
    home: &Path,
    prompt: &str,
    out: &mut Diagnostics,
) -> Option<Source> {
    const KEYS: [&str; 6] = ["type", "id", "path", "on_missing", "search", "max_bytes"];
    section.warn_of_unknown_keys(&KEYS, out);
    let id = section.read_text("id", out).map(str::to_owned);
    let path = required_path(section, "path", prompt, out)?;
    let optional = section.read_choice("on_missing", &ON_MISSING, out);
    let optional = optional.unwrap_or(false);
    if section.map.contains_key("search") {
        section.read_choice("search", &[("up", ())], out)?;
        let max_bytes = section.at_least_one("max_bytes", out);
        return Some(Source::Upward {
            id: id.unwrap_or_else(|| file_name(&path)),
            name: name_below(&path, section, out)?,
            max_bytes: max_bytes.unwrap_or(UPWARD_BYTES),
            optional,
        });
    }
    if section.map.contains_key("max_bytes") {
        let message = "file: max_bytes: it goes with search: up; a file alone is shown whole";
        out.error(section.path_to("max_bytes"), message);
    }
    if !optional {
        must_exist(&path, home, prompt, section, out);
    }
    Some(Source::File {
        id: id.unwrap_or_else(|| file_name(&path)),
        path,
        optional,
    })
}

fn read_computed_source(
    section: &Section<'_>,
    prompt: &str,
    out: &mut Diagnostics,
) -> Option<Source> {
    const KEYS: [&str; 6] = [
        "type",
        "id",
        "generator",
        "output_path",
        "on_missing",
        "refresh",
    ];
    section.warn_of_unknown_keys(&KEYS, out);
    let id = section.read_text("id", out).map(str::to_owned);
    let output = required_path(section, "output_path", prompt, out);
    let optional = section.read_choice("on_missing", &ON_MISSING, out);
    let once = section.read_choice("refresh", &[("every", false), ("once", true)], out);
    if !section.map.contains_key("generator") {
        let message = "computed_file: generator is missing; it is {command: […]}";
        out.error(section.path_to("generator"), message);
    }
    let generator = section.read_section("generator", out)?;
    generator.warn_of_unknown_keys(&["command", "timeout_ms"], out);
    let texts = command_texts(&generator, out)?;
    let command = texts
        .into_iter()
        .map(|text| source_word(text, prompt))
        .collect();
    let timeout = generator.at_least_one("timeout_ms", out);
    let output = output?;
    Some(Source::Computed {
        id: id.unwrap_or_else(|| file_name(&output)),
        command,
        timeout: Duration::from_millis(timeout.unwrap_or(GENERATOR_TIMEOUT_MS)),
        output,
        optional: optional.unwrap_or(false),
        once: once.unwrap_or(false),
    })
}

fn read_journal_source(section: &Section<'_>, out: &mut Diagnostics) -> Source {
    section.warn_of_unknown_keys(&["type", "id", "max_iterations"], out);
    section.read_text("id", out);
    let max = section.read_count("max_iterations", out);
    if max == Some(0) {
        let message = "journal: max_iterations: expected at least 1, found 0";
        out.error(section.path_to("max_iterations"), message);
    }
    Source::Journal {
        max_iterations: max.map(|max| max as usize),
    }
}

/// A program's argv with the engine's variables in it.
pub(super) fn command(section: &Section<'_>, out: &mut Diagnostics) -> Option<Vec<Word>> {
    let texts = command_texts(section, out)?;
    Some(texts.into_iter().map(parse_fixed_word).collect())
}

fn command_texts<'s>(section: &Section<'s>, out: &mut Diagnostics) -> Option<Vec<&'s str>> {
    match section.read_texts("command", out) {
        Some(words) if !words.is_empty() => Some(words),
        Some(_) => {
            let message = format!("{}: it is empty; name a program", section.name("command"));
            out.error(section.path_to("command"), message);
            None
        }
        None => {
            if !section.map.contains_key("command") {
                let message = format!(
                    "{}: missing; it is a list: the program and its arguments",
                    section.name("command")
                );
                out.error(section.path_to("command"), message);
            }
            None
        }
    }
}

fn required_path(
    section: &Section<'_>,
    key: &str,
    prompt: &str,
    out: &mut Diagnostics,
) -> Option<Word> {
    if !section.map.contains_key(key) {
        let message = format!("{}: missing; name the file", section.name(key));
        out.error(section.path_to(key), message);
    }
    let text = section.read_text(key, out)?;
    if text.is_empty() {
        let message = format!("{}: it is empty; name the file", section.name(key));
        out.error(section.path_to(key), message);
        return None;
    }
    Some(source_word(text, prompt))
}

/// The path of a file that is searched for in several directories, from each of them.
fn name_below(path: &Word, section: &Section<'_>, out: &mut Diagnostics) -> Option<String> {
    let name = path.as_fixed();
    let is_below = |name: &&str| {
        let mut parts = Path::new(name).components();
        parts.all(|part| matches!(part, Component::Normal(_)))
    };
    let name = name.filter(is_below).map(str::to_owned);
    if name.is_none() {
        let message =
            "file: path: with search: up it is a name, such as AGENTS.md, without variables and ..";
        out.error(section.path_to("path"), message);
    }
    name
}

/// A file below the agent's directory can be looked for before there is a workspace.
///
/// A missing system prompt is reported where it is named.
fn must_exist(
    path: &Word,
    home: &Path,
    prompt: &str,
    section: &Section<'_>,
    out: &mut Diagnostics,
) {
    if let [Piece::Home, Piece::Text(rest)] = path.0.as_slice()
        && let shown = rest.trim_start_matches('/')
        && shown != prompt
        && !home.join(shown).exists()
    {
        let message = format!(
            "{}: {shown} does not exist; create it, or say on_missing: skip",
            section.name("path")
        );
        out.error(section.path_to("path"), message);
    }
}

/// True if the path of a source is that of a file below the agent's directory.
pub(super) fn is_same_file(path: &Word, home: &Path, name: &str) -> bool {
    let [Piece::Home, Piece::Text(rest)] = path.0.as_slice() else {
        return false;
    };
    let real = |name: &str| home.join(name).canonicalize().ok();
    let shown = real(rest.trim_start_matches('/'));
    shown.is_some() && shown == real(name)
}

fn file_name(path: &Word) -> String {
    let text = path.written(|_| "");
    text.rsplit('/').next().unwrap_or(&text).to_owned()
}
