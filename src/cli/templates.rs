//! The templates of `delta init`.
//!
//! Data only: the files themselves are in `templates/`, and each template is an agent that runs as
//! it is.

use crate::unix::new_files::NewFile;

/// An agent to begin with.
#[derive(Debug)]
pub(crate) struct Template {
    /// The argument of `-t`. The agent.yaml begins with this name.
    pub name: &'static str,
    /// In half a line, for the menu.
    pub description: &'static str,
    /// The text of `agent.yaml`.
    pub agent: &'static str,
    /// The text of `system_prompt.md`.
    pub prompt: &'static str,
    /// The text of `context.yaml`.
    pub context: &'static str,
    /// Programs below `tools/`: name and text.
    pub tools: &'static [(&'static str, &'static str)],
}

/// All of them; the first is the one that `-y` takes.
pub(crate) const ALL: [&Template; 5] = [
    &Template {
        name: "minimal",
        description: "prints text and writes files",
        agent: include_str!("templates/minimal/agent.yaml"),
        prompt: include_str!("templates/minimal/system_prompt.md"),
        context: CONTEXT,
        tools: &[],
    },
    &Template {
        name: "hello-world",
        description: "a friendly agent with a few common tools",
        agent: include_str!("templates/hello-world/agent.yaml"),
        prompt: include_str!("templates/hello-world/system_prompt.md"),
        context: CONTEXT,
        tools: &[],
    },
    &Template {
        name: "file-ops",
        description: "finds, reads, writes and tidies files",
        agent: include_str!("templates/file-ops/agent.yaml"),
        prompt: include_str!("templates/file-ops/system_prompt.md"),
        context: CONTEXT,
        tools: &[],
    },
    &Template {
        name: "api-tester",
        description: "tests HTTP APIs with curl",
        agent: include_str!("templates/api-tester/agent.yaml"),
        prompt: include_str!("templates/api-tester/system_prompt.md"),
        context: CONTEXT,
        tools: &[],
    },
    CODER,
];

/// The templates of `-t` that are not agents, each with its description.
pub(crate) const OTHERS: [(&str, &str); 2] = [
    ("flow", "a graph of commands and agents"),
    ("eval", "an evaluation"),
];

/// The arguments of `-t`.
pub(crate) const NAMES: [&str; ALL.len() + OTHERS.len()] = {
    let ([a, b, c, d, e], [f, g]) = (ALL, OTHERS);
    [a.name, b.name, c.name, d.name, e.name, f.0, g.0]
};

pub(crate) const CODER: &Template = &Template {
    name: "coder",
    description: "works on code: shell, reading, writing and editing files",
    agent: include_str!("templates/coder/agent.yaml"),
    prompt: include_str!("templates/coder/system_prompt.md"),
    context: include_str!("templates/coder/context.yaml"),
    tools: &[],
};

/// The agents that need no directory, under their names: `@coder`, and one for questions.
pub(crate) const BUILT_IN: [&Template; 2] = [
    CODER,
    &Template {
        name: "plain",
        description: "answers questions, without tools",
        agent: include_str!("templates/plain/agent.yaml"),
        prompt: include_str!("templates/plain/system_prompt.md"),
        context: include_str!("templates/plain/context.yaml"),
        tools: &[],
    },
];

/// The context.yaml of templates that have none of their own.
const CONTEXT: &str = include_str!("templates/context.yaml");

/// Keeps workspaces and keys out of version control.
pub(crate) const GITIGNORE: &str = include_str!("templates/gitignore");

impl Template {
    /// The files of an agent of this name, the one that makes it an agent last.
    pub(crate) fn files(&self, name: &str) -> Vec<NewFile> {
        let file = |path: &str, text: String| NewFile {
            path: path.to_owned(),
            text,
            is_program: path.starts_with("tools/"),
        };
        let programs = self.tools.iter();
        let programs =
            programs.map(|(name, text)| file(&format!("tools/{name}"), (*text).to_owned()));
        let mut files: Vec<NewFile> = programs.collect();
        files.push(file("context.yaml", self.context.to_owned()));
        files.push(file("system_prompt.md", self.prompt.to_owned()));
        files.push(file("agent.yaml", self.agent_named(name)));
        files
    }

    /// The agent.yaml of an agent of this name, which holds no control characters.
    pub(crate) fn agent_named(&self, name: &str) -> String {
        let own = format!("name: {}\n", self.name);
        self.agent
            .replacen(&own, &format!("name: {}\n", scalar(name)), 1)
    }
}

/// A text as YAML: as it is where it cannot be taken for anything else, in double quotes otherwise.
fn scalar(text: &str) -> String {
    // What YAML 1.1 or 1.2 reads as a boolean or as nothing.
    const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if is_plain {
        text.to_owned()
    } else {
        crate::text::json::text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::yaml;

    #[test]
    fn any_name_is_read_back_as_the_text_that_it_was() {
        for name in [
            "reviewer", "a-b_2", "007", "true", "No", "~", "a: b", "#x", "- x", "é", "\"", "'",
            "\\", "a b", "1.5", "{x}", "&a", "*a", "!t", "%", "@", "`", "null", "\u{2028}", "<<",
            "=",
        ] {
            for template in ALL {
                let agent = yaml::parse(&template.agent_named(name)).unwrap();
                assert_eq!(agent["name"], name, "{}", template.name);
            }
        }
    }
}
