//! `context.yaml`: what the model sees.

use super::agent::{ComputedSource, Context, Problem, Severity, Source, UpwardSource};
use super::document::{Document, error_in};
use crate::config::section::Section;
use crate::config::tool::argv_template::{parse_fixed_word, parse_word};
use crate::config::tool::definition::{Piece, Word};
use crate::unix::files::is_below;
use std::path::Path;
use std::time::Duration;

/// A generator's time limit, unless it says otherwise.
const GENERATOR_TIMEOUT_MS: u64 = 30_000;

/// The bytes of files found upwards that the model sees, unless the source says otherwise.
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
    section.warn_of_unknown_keys(&["sources", "system_messages"]);
    let modes = [("merged", false), ("separate", true)];
    let separate = section
        .read_choice("system_messages", &modes)
        .unwrap_or(false);
    let listed = section.read_sections("sources");
    if !section.has("sources") && !section.has_errors() {
        section.error("", "sources: missing; it lists what the model sees");
    }
    let mut sources = Vec::new();
    let mut journals = 0;
    for (_, source) in listed {
        journals += usize::from(source.map.get("type").is_some_and(|kind| kind == "journal"));
        if journals == 2 {
            let message = "journal: there are two of them among the sources; remove one";
            source.error("", message);
        }
        sources.extend(read_source(source, home, prompt));
    }
    let fatal = section.has_errors();
    document.report_all(&[], section.take_diagnostics(), problems);
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

fn read_source(section: Section<'_>, home: &Path, prompt: &str) -> Option<Source> {
    let kinds = [("file", 0), ("computed_file", 1), ("journal", 2)];
    let any = section.within("source");
    if !any.has("type") {
        let message = "source: type: missing; it is one of file, computed_file, journal";
        any.error("type", message);
    }
    let kind = any.read_choice("type", &kinds)?;
    let section = any.within(kinds[kind].0);
    match kind {
        0 => read_file_source(&section, home, prompt),
        1 => read_computed_source(&section, prompt),
        _ => Some(read_journal_source(&section)),
    }
}

fn read_file_source(section: &Section, home: &Path, prompt: &str) -> Option<Source> {
    const KEYS: [&str; 6] = ["type", "id", "path", "on_missing", "search", "max_bytes"];
    section.warn_of_unknown_keys(&KEYS);
    let id = section.read_text("id").map(str::to_owned);
    let path = required_path(section, "path", prompt)?;
    let optional = section
        .read_choice("on_missing", &ON_MISSING)
        .unwrap_or(false);
    if section.has("search") {
        section.read_choice("search", &[("up", ())])?;
        let max_bytes = section.at_least_one("max_bytes");
        return Some(Source::Upward(UpwardSource {
            id: id.unwrap_or_else(|| file_name(&path)),
            name: name_below(&path, section)?,
            max_bytes: max_bytes.unwrap_or(UPWARD_BYTES),
            optional,
        }));
    }
    if section.has("max_bytes") {
        let message = "file: max_bytes: it goes with search: up; a file alone is shown whole";
        section.error("max_bytes", message);
    }
    if !optional {
        must_exist(&path, home, prompt, section);
    }
    Some(Source::File {
        id: id.unwrap_or_else(|| file_name(&path)),
        path,
        optional,
    })
}

fn read_computed_source(section: &Section, prompt: &str) -> Option<Source> {
    const KEYS: [&str; 6] = [
        "type",
        "id",
        "generator",
        "output_path",
        "on_missing",
        "refresh",
    ];
    section.warn_of_unknown_keys(&KEYS);
    let id = section.read_text("id").map(str::to_owned);
    let output = required_path(section, "output_path", prompt);
    let optional = section.read_choice("on_missing", &ON_MISSING);
    let once = section.read_choice("refresh", &[("every", false), ("once", true)]);
    if !section.has("generator") {
        let message = "computed_file: generator is missing; it is {command: […]}";
        section.error("generator", message);
    }
    let generator = section.read_section("generator")?;
    generator.warn_of_unknown_keys(&["command", "timeout_ms"]);
    let texts = command_texts(&generator)?.into_iter();
    let command = texts.map(|text| source_word(text, prompt)).collect();
    let timeout = generator.at_least_one("timeout_ms");
    let output = output?;
    Some(Source::Computed(ComputedSource {
        id: id.unwrap_or_else(|| file_name(&output)),
        command,
        timeout: Duration::from_millis(timeout.unwrap_or(GENERATOR_TIMEOUT_MS)),
        output,
        optional: optional.unwrap_or(false),
        once: once.unwrap_or(false),
    }))
}

fn read_journal_source(section: &Section) -> Source {
    section.warn_of_unknown_keys(&["type", "id", "max_iterations"]);
    section.read_text("id");
    let max = section.at_least_one("max_iterations");
    Source::Journal {
        max_iterations: max.map(|max| max as usize),
    }
}

/// A program's argv with the engine's variables in it.
pub(super) fn command(section: &Section) -> Option<Vec<Word>> {
    let texts = command_texts(section)?;
    Some(texts.into_iter().map(parse_fixed_word).collect())
}

fn command_texts<'s>(section: &Section<'s>) -> Option<Vec<&'s str>> {
    let texts = section.read_texts("command");
    let why = match &texts {
        Some(words) if !words.is_empty() => return texts,
        Some(_) => "it is empty; name a program",
        None if section.has("command") => return None,
        None => "missing; it is a list: the program and its arguments",
    };
    let message = format!("{}: {why}", section.name("command"));
    section.refuse("command", message)
}

fn required_path(section: &Section, key: &str, prompt: &str) -> Option<Word> {
    let text = section.read_text(key);
    let why = match text {
        Some("") => "it is empty",
        None if !section.has(key) => "missing",
        text => return Some(source_word(text?, prompt)),
    };
    let message = format!("{}: {why}; name the file", section.name(key));
    section.refuse(key, message)
}

/// The path of a file that is searched for in several directories, from each of them.
fn name_below(path: &Word, section: &Section) -> Option<String> {
    let name = path.as_fixed().filter(|name| is_below(Path::new(name)));
    if name.is_none() {
        let message =
            "file: path: with search: up it is a name, such as AGENTS.md, without variables and ..";
        section.error("path", message);
    }
    name.map(str::to_owned)
}

/// A file below the agent's directory can be looked for before there is a workspace.
///
/// A missing system prompt is reported where it is named.
fn must_exist(path: &Word, home: &Path, prompt: &str, section: &Section) {
    if let [Piece::Home, Piece::Text(rest)] = path.0.as_slice()
        && let shown = rest.trim_start_matches('/')
        && shown != prompt
        && !home.join(shown).exists()
    {
        let message = format!(
            "{}: {shown} does not exist; create it, or say on_missing: skip",
            section.name("path")
        );
        section.error("path", message);
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
