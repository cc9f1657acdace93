//! Script templates: a shell script with placeholders becomes one with positional parameters.
//!
//! The values never become part of the script, and no shell parses an expanded value again. What a
//! placeholder turns into depends on the quotes around it, so that a value stays in its one word.
//! Unaware of the rest of a tool.

use crate::config::tool::argv_template::{is_identifier, is_reserved};
use crate::config::tool::shell_lexer::{Placeholder, QuoteContext, find_placeholders};

/// A script without placeholders, and what its positional parameters are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Script {
    /// The operand of `sh -c`.
    pub text: String,
    /// The names of the placeholders, each once, in the order in which they first appear; the first
    /// is `$1`.
    pub names: Vec<String>,
    /// For each name, whether it has the `:raw` modifier somewhere.
    pub raw: Vec<bool>,
}

/// Makes a script of a template. The engine's variables are left to the shell, in quotes.
///
/// # Errors
/// Every placeholder at a place where a value is not allowed.
pub(crate) fn expand(template: &str) -> Result<Script, Vec<String>> {
    let mut script = Script::default();
    let mut problems = Vec::new();
    let mut copied = 0;
    for placeholder in find_placeholders(template) {
        if let Some(problem) = problem(&placeholder) {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
            continue;
        }
        let before = &template[copied..placeholder.range.start];
        let after = &template[placeholder.range.end..];
        script.text.push_str(before);
        let instead = script.instead_of(&placeholder, after);
        script.text.push_str(&instead);
        copied = placeholder.range.end;
    }
    script.text.push_str(&template[copied..]);
    if script.text.starts_with(['-', '+']) {
        // The shell would take it for an option.
        script.text.insert(0, ' ');
    }
    if problems.is_empty() {
        Ok(script)
    } else {
        Err(problems)
    }
}

/// The names of the placeholders in a template, and whether each has the `:raw` modifier, including
/// those at places where they are not allowed.
pub(crate) fn names(template: &str) -> (Vec<String>, Vec<bool>) {
    let mut script = Script::default();
    for placeholder in find_placeholders(template) {
        if is_identifier(placeholder.name) && !is_reserved(placeholder.name) {
            script.position(&placeholder);
        }
    }
    (script.names, script.raw)
}

fn problem(placeholder: &Placeholder) -> Option<String> {
    let Placeholder { name, raw, .. } = placeholder;
    let modifier = if *raw { ":raw" } else { "" };
    if !is_identifier(name) {
        return Some(format!(
            "invalid placeholder name '{name}' in '${{{name}{modifier}}}': letters, digits and _ \
             make a name"
        ));
    }
    if is_reserved(name) {
        return raw.then(|| format!("${{{name}}} takes no :raw; write ${name}"));
    }
    let objection = objection(placeholder.place)?;
    Some(format!("placeholder ${{{name}{modifier}}} {objection}"))
}

/// The reason why a value is not allowed at a place, and the way out; None if it is allowed.
fn objection(place: QuoteContext) -> Option<&'static str> {
    Some(match place {
        QuoteContext::Bare | QuoteContext::Quoted => return None,
        QuoteContext::Single => {
            "is inside single quotes, where it would never be replaced; end the quotes before \
             it and begin them again after it, or write $NAME for a shell variable"
        }
        QuoteContext::Document => {
            "is in a here-document whose delimiter is quoted, where it would never be \
             replaced; remove the quotes from the delimiter"
        }
        QuoteContext::Delimiter => {
            "is the delimiter of a here-document, where it would never be replaced; write a word"
        }
        QuoteContext::Arithmetic => {
            "is in an arithmetic expression, where some shells would run commands found in the \
             value; use expr or awk, which take it as an argument"
        }
        QuoteContext::Test => {
            "is inside [[ ]], where some shells would evaluate the value; use [ ] or case"
        }
        QuoteContext::Function => {
            "is inside a function, which has arguments of its own; assign it to a variable \
             outside and use that"
        }
        QuoteContext::Shifted => {
            "is after shift or set --, which move the values; assign it to a variable before \
             and use that"
        }
        QuoteContext::Backquotes => {
            "is inside backquotes together with backslashes; use $(...) instead"
        }
    })
}

impl Script {
    /// The text that replaces a placeholder; `after` is the rest of the template.
    fn instead_of(&mut self, placeholder: &Placeholder, after: &str) -> String {
        let quotes = if placeholder.place == QuoteContext::Bare && !placeholder.raw {
            "\""
        } else {
            ""
        };
        if is_reserved(placeholder.name) {
            return format!("{quotes}${{{}}}{quotes}", placeholder.name);
        }
        let position = self.position(placeholder);
        // `$10` is `$1` and a zero, and `$1_` or `$1a` are read well by people only.
        let alone = !after.starts_with(|c: char| c == '_' || c.is_ascii_alphanumeric());
        let parameter = if position < 10
            && placeholder.place == QuoteContext::Bare
            && (alone || !placeholder.raw)
        {
            format!("${position}")
        } else {
            format!("${{{position}}}")
        };
        format!("{quotes}{parameter}{quotes}")
    }

    /// The position of a placeholder's parameter, from 1.
    fn position(&mut self, placeholder: &Placeholder) -> usize {
        let known = self.names.iter().position(|name| name == placeholder.name);
        let index = known.unwrap_or_else(|| {
            self.names.push(placeholder.name.to_owned());
            self.raw.push(false);
            self.names.len() - 1
        });
        self.raw[index] |= placeholder.raw;
        index + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(template: &str) -> String {
        let script = expand(template);
        script
            .unwrap_or_else(|problems| panic!("{template}: {problems:?}"))
            .text
    }

    #[test]
    fn a_placeholder_becomes_a_positional_parameter_that_fits_its_quotes() {
        for (template, expected) in [
            (
                "grep ${pattern} ${file} | wc -l",
                r#"grep "$1" "$2" | wc -l"#,
            ),
            (
                "docker run ${options:raw} ${image}",
                r#"docker run $1 "$2""#,
            ),
            ("a ${x}${x} ${y}", r#"a "$1""$1" "$2""#),
            ("a \"b ${x} c\"", "a \"b ${1} c\""),
            ("a \"${x:raw}\"", "a \"${1}\""),
            ("a ${x:raw}0 ${x:raw}_ ${x:raw}/", "a ${1}0 ${1}_ $1/"),
            ("cat <<E\n'${x}'\nE", "cat <<E\n'${1}'\nE"),
            ("V=${x} W=${V:-d}", "V=\"$1\" W=${V:-d}"),
            ("a $(b ${x}) \"$(c ${x})\"", "a $(b \"$1\") \"$(c \"$1\")\""),
            ("# ${x}\na \\${x}", "# ${x}\na \\${x}"),
            ("a '${a.b}' ${1} ${12} ${", "a '${a.b}' ${1} ${12} ${"),
            (
                "a ${b-c} ${b:-c d} ${#b} ${b%.c} ${b#c d}",
                "a ${b-c} ${b:-c d} ${#b} ${b%.c} ${b#c d}",
            ),
            (
                "ls ${AGENT_HOME}/x \"${CWD}/y\"",
                "ls \"${AGENT_HOME}\"/x \"${CWD}/y\"",
            ),
            ("awk '{print ${AGENT_HOME}}'", "awk '{print ${AGENT_HOME}}'"),
            ("f() { ls ${CWD}; }", "f() { ls \"${CWD}\"; }"),
            ("-x ${x}", " -x \"$1\""),
            ("", ""),
        ] {
            assert_eq!(text(template), expected, "{template}");
        }
    }

    #[test]
    fn the_tenth_parameter_has_braces() {
        let script = expand("a ${a}${b}${c}${d}${e}${f}${g}${h}${i}${j} ${j:raw} ${a}").unwrap();
        assert!(
            script.text.ends_with("\"$9\"\"${10}\" ${10} \"$1\""),
            "{}",
            script.text
        );
        assert_eq!(script.names.len(), 10);
        assert_eq!(script.raw.iter().filter(|raw| **raw).count(), 1);
    }

    #[test]
    fn a_placeholder_where_no_value_can_stand_is_an_error_with_the_way_out() {
        for (template, message) in [
            ("echo '${x}'", "placeholder ${x} is inside single quotes"),
            (
                "echo '${x:raw}'",
                "placeholder ${x:raw} is inside single quotes",
            ),
            ("cat <<'E'\n${x}\nE", "remove the quotes from the delimiter"),
            ("echo $((${x}+1))", "use expr or awk"),
            ("f() { echo ${x}; }", "assign it to a variable"),
            ("shift; echo ${x}", "assign it to a variable"),
            ("[[ ${x} -gt 1 ]]", "use [ ] or case"),
            ("echo `echo \\`echo ${x}\\``", "use $(...) instead"),
            ("cat <<${x}", "write a word"),
            ("echo ${1a:raw}", "invalid placeholder name '1a'"),
            ("echo ${1a}", "invalid placeholder name '1a' in '${1a}'"),
            ("echo \"${a.b}\"", "invalid placeholder name 'a.b'"),
            ("cat <<E\n${ x }\nE", "invalid placeholder name ' x '"),
            ("echo ${}", "invalid placeholder name ''"),
            ("echo ${größe}", "invalid placeholder name 'größe'"),
            ("echo ${CWD:raw}", "${CWD} takes no :raw"),
        ] {
            let problems = expand(template).unwrap_err();
            assert_eq!(problems.len(), 1, "{template}: {problems:?}");
            assert!(problems[0].contains(message), "{template}: {problems:?}");
        }
    }

    #[test]
    fn all_problems_of_a_script_are_said_once_each() {
        let problems = expand("echo '${x}${x}' '${y}' ${z}").unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
