//! A final answer that is a tool call in words: the service has not recognized it as one.
//!
//! Pure. Small models forget the marks that their chat template wants, and some servers know no template.

use serde_json::Value;

/// The tool that a text calls, if it is nothing but a call of one of these.
pub(super) fn called_in<'t>(
    text: &str,
    mut names: impl Iterator<Item = &'t str>,
) -> Option<&'t str> {
    let call: Value = serde_json::from_str(without_marks(text)).ok()?;
    let name = call.get("name")?.as_str()?;
    let arguments = call.get("arguments").or_else(|| call.get("parameters"))?;
    let is_call = arguments.is_object() || arguments.is_string();
    names.find(|known| is_call && *known == name)
}

/// A text without a code fence or the tags that models put around calls.
fn without_marks(text: &str) -> &str {
    let text = text.trim();
    let fenced = text
        .strip_prefix("```")
        .and_then(|text| text.strip_suffix("```"));
    let text = fenced.map_or(text, |text| text.strip_prefix("json").unwrap_or(text));
    let text = text.trim();
    let text = text.strip_prefix("<tool_call>").unwrap_or(text);
    text.strip_suffix("</tool_call>").unwrap_or(text).trim()
}

#[cfg(test)]
mod tests {
    use super::called_in;

    #[test]
    fn only_a_text_that_is_a_call_and_nothing_else_is_one() {
        let called = |text: &str| called_in(text, ["ls", "read"].into_iter());
        let call = r#"{"name": "read", "arguments": {"path": "a"}}"#;
        for text in [
            call.to_owned(),
            format!("```json\n{call}\n```"),
            format!("\n<tool_call>\n{call}\n</tool_call>"),
            call.replace("arguments", "parameters"),
            r#"{"name": "read", "arguments": "{}"}"#.to_owned(),
        ] {
            assert_eq!(called(&text), Some("read"), "{text}");
        }
        for text in [
            format!("It would be {call}"),
            call.replace("read", "other"),
            r#"{"name": "read"}"#.to_owned(),
            r#"{"name": "read", "arguments": 7}"#.to_owned(),
            String::new(),
        ] {
            assert_eq!(called(&text), None, "{text}");
        }
    }
}
