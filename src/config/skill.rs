//! The front matter of a SKILL.md: the name and the description of instructions that a model may read.
//!
//! Unaware of files.

use crate::text::yaml;
use serde_json::{Map, Value};

/// Keys that the format knows.
const KEYS: [&str; 7] = [
    "name",
    "description",
    "license",
    "compatibility",
    "metadata",
    "allowed-tools",
    "disable-model-invocation",
];

/// The most characters of a name, of a description and of a compatibility.
const LONGEST: [(&str, usize); 3] = [("name", 64), ("description", 1_024), ("compatibility", 500)];

/// What the catalogue says of a skill.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Skill {
    pub name: String,
    /// On one line.
    pub description: String,
    /// Only a person calls for it.
    pub is_unlisted: bool,
    /// What is wrong with it, though it can be used.
    pub faults: Vec<String>,
}

/// Reads the text of a SKILL.md in a directory of this name.
///
/// # Errors
/// Why it cannot be used.
pub(crate) fn read_skill(text: &str, dir: &str) -> Result<Skill, String> {
    let (keys, is_repaired) = front_matter(text)?;
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let description = match keys.get("description") {
        Some(Value::String(text)) if !text.trim().is_empty() => one_line(text),
        Some(Value::String(_) | Value::Null) | None => return Err("it has no description".into()),
        Some(_) => return Err("its description is not a string".into()),
    };
    let mut faults = Vec::new();
    if is_repaired {
        faults.push("a value with a colon in it needs quotes".to_owned());
    }
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
    let unknown = keys.keys().filter(|key| !KEYS.contains(&key.as_str()));
    faults.extend(unknown.map(|key| format!("{key}: the format knows no such key")));
    Ok(Skill {
        name,
        description,
        is_unlisted: keys.get("disable-model-invocation") == Some(&Value::Bool(true)),
        faults,
    })
}

/// The mapping between the first line, `---`, and the next such line; and whether it needed [`with_quotes`].
fn front_matter(text: &str) -> Result<(Map<String, Value>, bool), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let is_fence = |line: &str| line.trim_end() == "---";
    let first = lines.next().unwrap_or_default();
    if !is_fence(first) {
        return Err("it does not begin with front matter, a line ---".into());
    }
    let mut end = first.len();
    for line in lines {
        if is_fence(line) {
            let front = &text[first.len()..end];
            let parsed = yaml::parse(front).map(|keys| (keys, false));
            let repaired = |error| {
                yaml::parse(&with_quotes(front)).map_or(Err(error), |keys| Ok((keys, true)))
            };
            return match parsed.or_else(repaired) {
                Ok((Value::Object(keys), is_repaired)) => Ok((keys, is_repaired)),
                Ok(_) => Err("its front matter is not a mapping of keys".into()),
                Err(error) => {
                    let line = error.place.map_or(1, |(line, _)| line + 1);
                    Err(format!("line {line}: {}", error.message))
                }
            };
        }
        end += line.len();
    }
    Err("its front matter does not end with a line ---".into())
}

/// The same with quotes around the values that have a colon and are on the line of their key.
fn with_quotes(front: &str) -> String {
    let line = |line: &str| match line.split_once(": ") {
        Some((key, value))
            if !key.starts_with([' ', '#', '-'])
                && value.contains(':')
                && !value
                    .trim_start()
                    .starts_with(['"', '\'', '[', '{', '|', '>']) =>
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
                "name: pdf\ndescription: d\ntools: x",
                "tools: the format knows no such key",
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
