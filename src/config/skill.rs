//! Front matter, and that of a SKILL.md: the name and the description of instructions that a model may read.
//!
//! Unaware of files.

use crate::text::json::after_mark;
use crate::text::yaml;
use serde_json::{Map, Value};

/// The file that makes a directory a skill.
pub(crate) const FILE: &str = "SKILL.md";

/// The beginning of a catalogue.
pub(crate) const INTRODUCTION: &str = "Skills are instructions for certain tasks. When a task fits one, read its file before you \
    begin. Paths in it start at its directory.\n\n";

/// Follows the path of a skill that is not listed, before the reason.
pub(crate) const SKIPPED: &str = "SKILL.md: skipped: ";

/// The most characters of a name, of a description and of a compatibility.
const LONGEST: [(&str, usize); 3] = [("name", 64), ("description", 1_024), ("compatibility", 500)];

/// A skill as the catalogue shows it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Skill {
    pub name: String,
    /// On one line.
    pub description: String,
    /// Only a person calls for it.
    pub is_unlisted: bool,
    /// Faults that do not keep it from being used.
    pub faults: Vec<String>,
}

/// Reads the text of a SKILL.md in a directory of this name.
///
/// # Errors
/// Why it cannot be used.
pub(crate) fn read_skill(text: &str, dir: &str) -> Result<Skill, String> {
    let FrontMatter { keys, fault, .. } = front_matter(text)?;
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let description = match keys.get("description") {
        Some(Value::String(text)) if !text.trim().is_empty() => one_line(text),
        Some(Value::String(_) | Value::Null) | None => return Err("it has no description".into()),
        Some(_) => return Err("its description is not a string".into()),
    };
    let mut faults: Vec<String> = fault.into_iter().collect();
    let name = match keys.get("name") {
        Some(Value::String(name)) if !name.trim().is_empty() => one_line(name),
        _ => {
            faults.push(format!(
                "it has no name; it is called {dir}, as its directory"
            ));
            dir.to_owned()
        }
    };
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_edged = name.starts_with('-') || name.ends_with('-') || name.contains("--");
    if !name.chars().all(is_plain) || is_edged {
        faults.push(format!(
            "name: '{name}' is not made of a to z, 0 to 9 and single hyphens between them"
        ));
    } else if name != dir {
        faults.push(format!(
            "name: '{name}' is not the name of its directory, '{dir}'"
        ));
    }
    for (key, most) in LONGEST {
        if let Some(Value::String(text)) = keys.get(key)
            && text.chars().count() > most
        {
            faults.push(format!("{key}: it has more than {most} characters"));
        }
    }
    Ok(Skill {
        name,
        description,
        is_unlisted: keys.get("disable-model-invocation") == Some(&Value::Bool(true)),
        faults,
    })
}

/// The paths of the skills that a catalogue lists; none of another text.
pub(crate) fn listed_in(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.strip_prefix(INTRODUCTION).unwrap_or("").lines();
    lines.filter_map(|line| line.strip_suffix(')')?.rsplit_once(" (").map(|it| it.1))
}

/// Reports about skills that a program's catalogue does not list.
pub(crate) fn skipped_in(stderr: &str) -> impl Iterator<Item = &str> {
    let skipped = stderr.lines().filter(|line| line.contains(SKIPPED));
    skipped.map(|line| line.strip_prefix("delta: ").unwrap_or(line))
}

/// The mapping between the first line, `---`, and the next such line.
#[derive(Debug)]
pub(crate) struct FrontMatter<'t> {
    pub keys: Map<String, Value>,
    /// What was wrong with it.
    pub fault: Option<String>,
    /// Keys or parts of their values may be missing.
    pub is_partial: bool,
    /// The text of the mapping.
    pub lines: &'t str,
    /// The text after it.
    pub body: &'t str,
}

/// Reads the front matter of a text, if need be key by key.
///
/// # Errors
/// There is none, or it cannot be read.
pub(crate) fn front_matter(text: &str) -> Result<FrontMatter<'_>, String> {
    let text = after_mark(text);
    let mut all = text.split_inclusive('\n');
    let is_fence = |line: &&str| line.trim_end() == "---";
    let Some(first) = all.next().filter(is_fence) else {
        return Err("it does not begin with front matter, a line ---".into());
    };
    let length: usize = all.take_while(|line| !is_fence(line)).map(str::len).sum();
    let (lines, rest) = text[first.len()..].split_at(length);
    if rest.is_empty() {
        return Err("its front matter does not end with a line ---".into());
    }
    let mut front = FrontMatter {
        keys: Map::new(),
        fault: None,
        is_partial: false,
        lines,
        body: rest.split_once('\n').map_or("", |(_, body)| body),
    };
    let error = match yaml::parse(lines) {
        Ok(Value::Object(keys)) => return Ok(FrontMatter { keys, ..front }),
        Ok(_) => return Err("its front matter is not a mapping of keys".into()),
        Err(error) => error,
    };
    if let Ok(Value::Object(keys)) = yaml::parse(&with_quotes(lines)) {
        front.fault = Some("a value with a colon in it needs quotes".into());
        return Ok(FrontMatter { keys, ..front });
    }
    let line = error.place.map_or(1, |(line, _)| line + 1);
    let why = format!("line {line}: {}", error.message);
    front.keys = key_by_key(lines, true);
    if !front.keys.contains_key("description") {
        return Err(why);
    }
    front.fault = Some(why);
    front.is_partial = true;
    Ok(front)
}

/// The keys that can be read, each for itself, with quotes if need be. The first of several of one name counts.
pub(crate) fn key_by_key(front: &str, may_quote: bool) -> Map<String, Value> {
    let mut parts: Vec<String> = Vec::new();
    for line in front.split_inclusive('\n') {
        match parts.last_mut() {
            Some(part) if line.starts_with([' ', '\t', '-', '#', '\r', '\n', ']', '}']) => {
                part.push_str(line);
            }
            _ => parts.push(line.to_owned()),
        }
    }
    let mut keys = Map::new();
    for part in parts {
        let parsed = match yaml::parse(&part) {
            Err(_) if may_quote => yaml::parse(&with_quotes(&part)),
            parsed => parsed,
        };
        if let Ok(Value::Object(read)) = parsed {
            for (key, value) in read {
                keys.entry(key).or_insert(value);
            }
        }
    }
    keys
}

/// The front matter with quotes around the values that have a colon and are on the line of their key, which cannot be
/// read without.
fn with_quotes(front: &str) -> String {
    let line = |line: &str| match line.split_once(": ") {
        Some((key, value))
            if !key.starts_with([' ', '#', '-'])
                && value.contains(':')
                && !value
                    .trim_start()
                    .starts_with(['"', '\'', '[', '{', '|', '>'])
                && yaml::parse(line).is_err() =>
        {
            format!("{key}: '{}'\n", value.trim().replace('\'', "''"))
        }
        _ => format!("{line}\n"),
    };
    front.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_used_is_read_and_its_faults_are_named() {
        let good = "\u{feff}---\r\nname: pdf\r\ndescription: >\r\n  Fill in\r\n  forms.\r\n---\r\n# Text\n";
        let skill = read_skill(good, "pdf").unwrap();
        assert_eq!(
            (skill.name.as_str(), skill.description.as_str()),
            ("pdf", "Fill in forms.")
        );
        assert_eq!(skill.faults, [""; 0]);
        for (front, fault) in [
            ("description: d", "no name; it is called pdf"),
            ("name: PDF\ndescription: d", "'PDF' is not made of"),
            ("name: a--b\ndescription: d", "single hyphens"),
            (
                "name: other\ndescription: d",
                "not the name of its directory, 'pdf'",
            ),
            (
                &format!("name: pdf\ndescription: {}", "d".repeat(1_025)),
                "more than 1024",
            ),
        ] {
            let skill = read_skill(&format!("---\n{front}\n---\n"), "pdf").unwrap();
            assert_eq!(skill.faults.len(), 1, "{:?}", skill.faults);
            assert!(skill.faults[0].contains(fault), "{:?}", skill.faults);
        }
    }

    #[test]
    fn a_value_with_a_colon_is_quoted() {
        let text = "---\r\nname: a\r\ndescription: It's for: 'x'\r\nmetadata:\r\n  k: v\r\n---\r\n";
        let skill = read_skill(text, "a").unwrap();
        assert_eq!(skill.description, "It's for: 'x'");
        assert_eq!(skill.faults, ["a value with a colon in it needs quotes"]);
        let text = "---\nname: a\ndescription: b\ndisable-model-invocation: true\n---\n";
        let skill = read_skill(text, "a").unwrap();
        assert!(skill.is_unlisted && skill.faults.is_empty());
    }

    #[test]
    fn a_skill_is_read_whatever_is_wrong_with_its_other_keys() {
        for other in [
            "argument-hint: [env] [version]",
            "allowed-tools: *",
            "license: @x",
            "name: again",
            "hooks:\n\t- x",
            "metadata: {a: b\n",
            "model: \"a\" b\n  c",
        ] {
            for front in [
                format!("name: a\ndescription: Does it\n{other}"),
                format!("name: a\n{other}\ndescription: >\n  Does\n  it"),
            ] {
                let skill = read_skill(&format!("---\n{front}\n---\n"), "a").unwrap();
                assert_eq!((&*skill.name, &*skill.description), ("a", "Does it"));
                assert_eq!(skill.faults.len(), 1, "{:?}", skill.faults);
            }
        }
        let unknown = "---\nname: a\ndescription: b\ntools: x\nuser-invocable: true\n---\n";
        assert_eq!(read_skill(unknown, "a").unwrap().faults, [""; 0]);
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        for (text, why) in [
            ("", "does not begin"),
            ("# Title\n---\n", "does not begin"),
            ("---\nname: a\n", "does not end"),
            ("---\nname: a\n---\n", "no description"),
            ("---\nname: a\ndescription: ' '\n---\n", "no description"),
            ("---\nname: a\ndescription: [x]\n---\n", "not a string"),
            ("---\n- a\n---\n", "not a mapping"),
            (
                "---\nname: a\ndescription: [b: c\n---\n",
                "line 4: not valid YAML",
            ),
        ] {
            let said = read_skill(text, "a").unwrap_err();
            assert!(said.contains(why), "{text:?}: {said}");
        }
    }
}
