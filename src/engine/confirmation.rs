//! A call that a person must confirm: what is asked, what exactly is confirmed, and what an answer means.
//!
//! Pure. Unaware of how the question reaches a person and of where it is recorded.

use crate::config::tool::bind::BoundCall;
use crate::config::tool::definition::{Confirm, Tool};
use crate::text::call_line::{asked_for, is_reason};
use crate::text::digest::PartsDigest;
use crate::text::disguise::{is_unseen, mixed_words, visible};
use crate::text::shell::shell_quoted_where;
use crate::text::shorten::head;

/// Limits of the standard input in the question about a call.
const SHOWN_BYTES: usize = 2000;
const SHOWN_LINES: usize = 40;

/// A call as it would run.
#[derive(Clone, Copy)]
pub(crate) struct PlannedCall<'c> {
    pub tool: &'c Tool,
    /// The words before the call's own.
    pub wrapper: &'c [String],
    pub bound: &'c BoundCall,
}

impl PlannedCall<'_> {
    /// Identifies a call, because a yes to one call must not confirm another. Inherited variables are left out:
    /// they differ from one start of the engine to the next. So is the model's reason, which nothing executes.
    pub(crate) fn fingerprint(&self) -> String {
        let Self {
            tool,
            wrapper,
            bound,
        } = *self;
        let mut env: Vec<&str> = tool
            .env
            .iter()
            .flat_map(|(name, value)| [name.as_str(), value.as_str()])
            .collect();
        // A mapping has no order.
        env.as_chunks_mut::<2>().0.sort_unstable();
        let mut digest = PartsDigest::default();
        add_list(&mut digest, [tool.name.as_str()]);
        add_list(&mut digest, wrapper.iter().map(String::as_str));
        let executed = bound.argv.iter().map(String::as_str);
        add_list(
            &mut digest,
            executed.filter(|word| !is_reason(&bound.argv, word)),
        );
        add_list(&mut digest, env);
        digest.add(&[u8::from(bound.stdin.is_some())]);
        digest.add(bound.stdin.as_deref().unwrap_or_default());
        digest.sum()
    }

    /// The question: what is asked for, the beginning of the standard input, the model's reason, words that look like
    /// others, and then the words of the guards and of the agent. What would disguise any of it is made visible.
    pub(crate) fn question(&self, of_guards: &[String]) -> String {
        let words: Vec<String> = self
            .wrapper
            .iter()
            .chain(&self.bound.argv)
            .cloned()
            .collect();
        let asked = asked_for(&self.bound.argv);
        let mut text = format!("$ {}", shell_quoted_where(&asked.words, is_unseen));
        let mut said = words.join(" ") + " ";
        let stdin = self.bound.stdin.as_deref();
        match stdin.and_then(one_line).filter(|_| asked.is_own_tool) {
            Some(line) => {
                let quoted = shell_quoted_where(&[line.to_owned()], is_unseen);
                text.push_str(&format!(" <<< {quoted}\n"));
                said += line;
            }
            None => {
                text.push('\n');
                said += &stdin.map_or_else(String::new, |stdin| add_stdin(&mut text, stdin));
            }
        }
        if let Some(reason) = &asked.reason {
            text.push_str(&format!("reason: {}\n", visible(reason)));
        }
        let own = match &self.tool.confirm {
            Confirm::Sentence(words) => Some(words.as_str()),
            Confirm::No | Confirm::Yes => None,
        };
        let guards = of_guards.iter().map(String::as_str);
        let asked: Vec<&str> = guards
            .chain(own)
            .filter(|words| !words.trim().is_empty())
            .collect();
        text.push_str(&mixture(&(said + " " + &asked.join(" "))));
        if asked.is_empty() {
            text.push_str("Allow this command?");
        } else {
            let asked: Vec<String> = asked.into_iter().map(visible_lines).collect();
            text.push_str(&asked.join("\n"));
        }
        text
    }
}

/// Adds texts so that no two sequences of lists look the same.
fn add_list<'t>(digest: &mut PartsDigest, texts: impl IntoIterator<Item = &'t str>) {
    let texts: Vec<&str> = texts.into_iter().collect();
    digest.add(&texts.len().to_be_bytes());
    for text in texts {
        digest.add(text.as_bytes());
    }
}

/// The words of a model's question that a person answers with yes or no.
pub(crate) fn asked_by_model(prompt: &str) -> String {
    let lines: Vec<String> = prompt.split('\n').map(visible).collect();
    mixture(prompt) + &lines.join("\n")
}

/// A line about the words of a text that look like others.
fn mixture(text: &str) -> String {
    let mixed = mixed_words(text);
    if mixed.is_empty() {
        return String::new();
    }
    let some = &mixed[..mixed.len().min(SHOWN_LINES)];
    format!("[letters of two scripts in a word: {}]\n", some.join(", "))
}

/// A standard input that is a line, and short enough to be shown whole.
fn one_line(stdin: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(stdin).ok()?;
    let line = text.strip_suffix('\n').unwrap_or(text);
    (line.len() <= SHOWN_BYTES && !line.contains('\n')).then_some(line)
}

/// Returns what is shown of the standard input, as it is.
fn add_stdin(text: &mut String, stdin: &[u8]) -> String {
    let size = stdin.len();
    text.push_str(&format!("standard input, {size} bytes:\n"));
    let stdin = String::from_utf8_lossy(stdin);
    let shown = head(&stdin, SHOWN_BYTES);
    let lines = || shown.split_terminator('\n');
    for line in lines().take(SHOWN_LINES) {
        text.push_str(&format!("| {}\n", visible(line)));
    }
    if shown.len() < stdin.len() || lines().count() > SHOWN_LINES {
        text.push_str("[only the beginning is shown]\n");
    }
    shown.to_owned()
}

/// Words of an agent, which may repeat those of a model: no line of them looks like one of the question's own.
fn visible_lines(words: &str) -> String {
    let trimmed = words.trim_matches(|c: char| c.is_whitespace() && c != '\r');
    let lines: Vec<String> = trimmed.split('\n').map(visible).collect();
    lines.join("\n  ")
}

/// True for the answers that let a call run.
pub(crate) fn is_yes(answer: &str) -> bool {
    let is_it = |yes: &&str| answer.eq_ignore_ascii_case(yes);
    ["y", "yes"].iter().any(is_it) || is_always(answer)
}

/// True for the answer that lets the same call run without a question for the rest of the run, too.
pub(crate) fn is_always(answer: &str) -> bool {
    let is_it = |always: &&str| answer.eq_ignore_ascii_case(always);
    ["a", "always"].iter().any(is_it)
}

/// The result of a call that a person did not confirm.
pub(crate) fn refusal(answer: &str) -> String {
    let answered = match answer {
        "" => "gave no answer".to_owned(),
        words => format!("answered: {words}"),
    };
    format!("denied: the person who was asked to confirm this call {answered}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tool::load;
    use serde_json::json;

    fn fingerprint(
        env: &[(&str, &str)],
        wrapper: &[&str],
        argv: &[&str],
        stdin: Option<&str>,
    ) -> String {
        let item = json!({"name": "t", "exec": "t"});
        let (mut tool, _) = load::load(&item).unwrap();
        let owned = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        tool.env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let bound = BoundCall {
            argv: owned(argv),
            stdin: stdin.map(Into::into),
            arguments: json!({}),
        };
        let call = PlannedCall {
            tool: &tool,
            wrapper: &owned(wrapper),
            bound: &bound,
        };
        call.fingerprint()
    }

    #[test]
    fn no_two_calls_have_the_same_fingerprint() {
        let all = [
            fingerprint(&[], &[], &["a", "b"], None),
            fingerprint(&[], &["a"], &["b"], None),
            fingerprint(&[], &[], &["ab"], None),
            fingerprint(&[], &[], &["a", "b"], Some("")),
            fingerprint(&[], &[], &["a", "b"], Some("c")),
            fingerprint(&[], &[], &["a", "b", "c"], None),
            fingerprint(&[("c", "")], &[], &["a", "b"], None),
            fingerprint(&[("", "c")], &[], &["a", "b"], None),
            fingerprint(&[("k", "v"), ("l", "w")], &[], &["a", "b"], None),
            fingerprint(&[("k", "w"), ("l", "v")], &[], &["a", "b"], None),
        ];
        for (at, one) in all.iter().enumerate() {
            assert_eq!(one.len(), 64);
            assert!(!all[..at].contains(one), "{at}");
        }
        let swapped = fingerprint(&[("l", "w"), ("k", "v")], &[], &["a", "b"], None);
        assert_eq!(swapped, all[8]);
    }

    #[test]
    fn nothing_but_a_plain_yes_is_one() {
        for yes in ["y", "Y", "yes", "YES", "yEs"] {
            assert!(is_yes(yes), "{yes}");
        }
        for no in [
            "", " yes", "yes ", "yes\n", "yes, but", "n", "no", "ok", "ja", "yeſ",
        ] {
            assert!(!is_yes(no), "{no}");
        }
    }
}
