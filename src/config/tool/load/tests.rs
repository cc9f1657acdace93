use super::*;
use crate::text::yaml::{self, Step};

fn tool(text: &str) -> Tool {
    let (tool, warnings) = loaded(text);
    assert_eq!(warnings, Vec::<String>::new(), "{text}");
    tool
}

fn loaded(text: &str) -> (Tool, Vec<String>) {
    let section = yaml::parse(text).unwrap();
    let (tool, warnings) = load(&section).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
    (tool, warnings.into_iter().map(|c| c.message).collect())
}

fn errors(text: &str) -> Vec<Diagnostic> {
    let diagnostics = load(&yaml::parse(text).unwrap()).expect_err(text);
    diagnostics.into_iter().filter(|c| !c.warning).collect()
}

/// The tool's section in its expanded form.
fn expanded(text: &str) -> Value {
    let rendered = render(&[tool(text)]);
    rendered["tools"][0].clone()
}

#[test]
fn exec_appends_what_is_at_the_end() {
    assert_eq!(
        expanded("{name: run_script, exec: 'bash -c ${script}'}").to_string(),
        concat!(
            r#"{"name":"run_script","command":["bash","-c"],"parameters":[{"name":"script","#,
            r#""type":"string","inject_as":"argument","position":0}]}"#
        )
    );
}

#[test]
fn shell_becomes_a_script_with_positional_parameters() {
    let tool = expanded("{name: c, description: C, shell: 'grep ${pattern} ${file} | wc -l'}");
    assert_eq!(
        tool.to_string(),
        concat!(
            r#"{"name":"c","description":"C","#,
            r#""command":["sh","-c","grep \"$1\" \"$2\" | wc -l","--"],"#,
            r#""parameters":[{"name":"pattern","type":"string","inject_as":"argument","#,
            r#""position":0},{"name":"file","type":"string","inject_as":"argument","#,
            r#""position":1}]}"#
        )
    );
    let tool = expanded("{name: c, shell: 'docker run ${options:raw} ${image}'}");
    assert_eq!(tool["command"][2], "docker run $1 \"$2\"");
    assert_eq!(tool["description"], "docker run ${options:raw} ${image}");
}

#[test]
fn placeholders_stay_where_appending_would_change_the_words() {
    for (line, command) in [
        ("cp ${src} dest/", json!(["cp", "${src}", "dest/"])),
        ("cp ${a} ${b} ${a}", json!(["cp", "${a}", "${b}", "${a}"])),
        ("cp ${a} ${a} ${b}", json!(["cp", "${a}", "${a}"])),
        ("grep --file=${f} ${x}", json!(["grep", "--file=${f}"])),
        (
            "ls ${AGENT_HOME}/x ${CWD} ${d}",
            json!(["ls", "${AGENT_HOME}/x", "${CWD}"]),
        ),
        ("${program} ${x}", json!(["${program}"])),
        (
            "sh -c 'echo $1' -- ${x}",
            json!(["sh", "-c", "echo $1", "--", "${x}"]),
        ),
    ] {
        let section = json!({"name": "t", "exec": line});
        let (tool, _) = load(&section).unwrap();
        assert_eq!(render(&[tool])["tools"][0]["command"], command, "{line}");
    }
}

#[test]
fn a_full_form_is_printed_as_it_is() {
    let text = "
name: run_sub_agent
description: D
command:
- delta
- run
- ${AGENT_HOME}/x
- ${y}
parameters:
- name: agent_path
  type: string
  enum:
  - a
  - b
  default: a
  inject_as: option
  option_name: --agent
  position: 0
  format: path
- name: n
  type: integer
  required: false
  inject_as: argument
  position: 1
- name: input
  type: string
  required: true
  default: x
  inject_as: stdin
timeout_ms: 5
max_output_bytes: 6
wrapper:
- ${AGENT_HOME}/wrap
- --
env:
  A: b
on_resume: retry
pass_api_key: true
";
    assert_eq!(yaml::render(&expanded(text)).trim(), text.trim());
}

/// Tools with one error each, without their names, and the message.
const WRONG: &[(&str, &str)] = &[
    (
        "exec: 'cat ${file} | wc -l'",
        "Shell metacharacter '|' not allowed in exec: mode. Use shell: mode or remove pipe",
    ),
    (
        "exec: 'echo ${msg} > ${file}'",
        "Shell metacharacter '>' not allowed in exec: mode.",
    ),
    (
        "exec: 'echo ${flags:raw}'",
        ":raw modifier is only allowed in shell: mode",
    ),
    (
        "exec: ls\nshell: ls",
        "exec:, shell: and command: are mutually exclusive, found exec: and shell:",
    ),
    ("exec: ls\nshell: ls\ncommand: [ls]", "keep one"),
    ("description: x", "needs one of exec:, shell: and command:"),
    (
        "shell: 'grep ${pattern} ${file}'\nparameters: [{name: pattern, inject_as: stdin}]",
        "Cannot override inject_as for parameter 'pattern' (inferred: argument, explicit: stdin)",
    ),
    (
        "exec: 'grep ${a} ${b}'\nparameters: [{name: b, position: 0}]",
        "Cannot override position for parameter 'b' (inferred: 1, explicit: 0)",
    ),
    (
        "exec: 'grep ${a}'\nstdin: b\nparameters: [{name: b, position: 0}]",
        "(inferred: none, explicit: 0)",
    ),
    (
        "exec: 'grep'\nstdin: b\nparameters: [{name: b, inject_as: argument}]",
        "Cannot override inject_as for parameter 'b' (inferred: stdin, explicit: argument)",
    ),
    (
        "exec: 'echo ${msg}'\nparameters: [{name: undefined_param}]",
        "Parameter 'undefined_param' not found in template",
    ),
    (
        "exec: 'echo ${msg}'\nparameters: [{name: msgs}]",
        "did you mean 'msg'?",
    ),
    (
        "exec: 'echo ${msg}'\nparameters: [{name: x, inject_as: stdin}]",
        "write stdin: x",
    ),
    (
        "exec: 'a'\nstdin: b\nparameters: [{name: c, inject_as: stdin}]",
        "only one parameter can go to stdin, and 'b' does",
    ),
    (
        "exec: 'echo ${x}'\nstdin: x",
        "is in the template and in stdin:",
    ),
    ("exec: ls\nstdin: CWD", "no parameter can be named CWD"),
    (
        "command: [ls]\nparameters: [{name: AGENT_HOME}]",
        "no parameter can be named AGENT_HOME",
    ),
    (
        "command: [ls]\nparameters: [{name: a b}]",
        "invalid parameter name 'a b'",
    ),
    (
        "command: [ls]\nparameters: [{name: a}, {name: a}]",
        "parameter 'a' is declared twice",
    ),
    (
        "command: [ls]\nparameters: [{description: a}]",
        "this one has no name",
    ),
    (
        "command: [ls]\nparameters: [a]",
        "expected a mapping, found the string \"a\"",
    ),
    (
        "command: [ls]\nparameters: {a: b}",
        "parameters: expected a list, found a mapping",
    ),
    (
        "command: [ls]\nparameters: [{name: a, inject_as: stdin}, {name: b, inject_as: stdin}]",
        "only one parameter can go to stdin, found 'a' and 'b'",
    ),
    (
        "command: [ls]\nstdin: b\nparameters: [{name: a, inject_as: stdin}]",
        "found 'a' and 'b'",
    ),
    (
        "command: [ls]\nstdin: a\nparameters: [{name: a, inject_as: option, option_name: -a}]",
        "Cannot override inject_as for parameter 'a'",
    ),
    (
        "command: [ls]\nparameters: [{name: a, inject_as: option}]",
        "needs option_name:",
    ),
    (
        "command: [ls]\nparameters: [{name: a, option_name: --a}]",
        "needs inject_as: option",
    ),
    (
        "command: [ls]\nparameters: [{name: a, inject_as: file}]",
        "expected one of argument, option, stdin",
    ),
    (
        "command: [ls]\nparameters: [{name: a, type: list}]",
        "expected one of string, integer, number, boolean",
    ),
    (
        "command: [ls]\nparameters: [{name: a, enum: []}]",
        "enum of parameter 'a' is empty",
    ),
    (
        "command: [ls]\nparameters: [{name: a, enum: x}]",
        "enum of parameter 'a': expected a list, found the string \"x\"",
    ),
    (
        "command: [ls]\nparameters: [{name: a, enum: [x], default: y}]",
        "default \"y\" of parameter 'a' is not in its enum",
    ),
    (
        "command: [ls]\nparameters: [{name: a, required: maybe}]",
        "required of parameter 'a': expected true or false",
    ),
    (
        "command: [ls]\nparameters: [{name: a, raw: true}]",
        ":raw modifier is only allowed in shell: mode",
    ),
    (
        "exec: 'ls ${a}'\nparameters: [{name: a, raw: true}]",
        ":raw modifier is only allowed in shell: mode",
    ),
    (
        "shell: 'ls ${a}'\nparameters: [{name: a, raw: true}]",
        ":raw modifier must be specified in template syntax (${a:raw})",
    ),
    (
        "shell: 'ls ${a:raw}'\nparameters: [{name: a, raw: false}]",
        "has raw: false and ${a:raw}",
    ),
    (
        "command: [ls]\nparameters: [{name: a, position: 0}, {name: b, position: 0}]",
        "position 0 of parameter 'b' is taken",
    ),
    (
        "command: [ls]\nparameters: [{name: a, position: -1}]",
        "position of parameter 'a': expected a whole number",
    ),
    (
        "command: [ls]\nparameters: [{name: a, inject_as: stdin, position: 0}]",
        "has no position",
    ),
    (
        "command: [ls, 'x${a}']\nparameters: [{name: a, position: 0}]",
        "has no position",
    ),
    (
        "command: [ls, 'x${a}']\nparameters: [{name: a, inject_as: stdin}]",
        "has a place in command: and cannot be injected as stdin",
    ),
    ("command: ls -F", "found the string \"ls -F\"; use exec:"),
    ("command: []", "command: is empty"),
    ("command: ['']", "command: the program's name is empty"),
    ("exec: \"'' x\"", "exec: the program's name is empty"),
    (
        "command: [sleep, 5]",
        "command: expected a list of strings, found the number 5 in it; quote it",
    ),
    (
        "command: [\"a\\0\"]",
        "no program argument can hold a NUL byte",
    ),
    ("exec: \"a\\0\"", "no program argument can hold a NUL byte"),
    ("exec: [ls]", "exec: expected a string, found a list"),
    ("exec: ''", "exec: is empty"),
    ("shell: ' '", "shell: is empty"),
    ("shell:", "shell: expected a string, found nothing"),
    (
        "exec: ls # x\nstdin: 5",
        "stdin: expected a string, found the number 5",
    ),
    ("exec: 'ls #x'", "'#' at the start of a word"),
    (
        "exec: 'sh -c \"echo ${x}\"'",
        "the value of 'x' would run as code, because it is part of a shell's script; use shell:",
    ),
    (
        "command: [sh, -c, 'echo ${x}']\nparameters: [{name: x}]",
        "would run as code",
    ),
    (
        "command: [bash, -ec, 'echo ${x}', --]\nparameters: [{name: x}]",
        "would run as code",
    ),
    (
        "command: [sh, -c, 'echo ${x}', --]\nparameters: [{name: x}]",
        "${x} in the script is a variable of the shell and not the parameter; use shell:",
    ),
    (
        "exec: '${p} x'\nparameters: [{name: p, required: false}]",
        "names the program and cannot be optional",
    ),
    (
        "exec: 'echo \\${x} ${x}'",
        "looks like one of the tool's own placeholders",
    ),
    (
        "exec: 'echo \\${CWD}'",
        "looks like one of the tool's own placeholders",
    ),
    (
        "shell: \"echo '${x}'\"",
        "placeholder ${x} is inside single quotes",
    ),
    (
        "exec: ls\ndescription: [x]",
        "description: expected a string, found a list",
    ),
    (
        "exec: ls\ntimeout_ms: 10s",
        "timeout_ms: expected a whole number, 0 or more, found the string \"10s\"",
    ),
    (
        "exec: ls\nmax_output_bytes: 1.5",
        "max_output_bytes: expected a whole number",
    ),
    (
        "exec: ls\nwrapper: bwrap",
        "wrapper: expected a list of strings, found the string \"bwrap\"",
    ),
    (
        "exec: ls\nenv: [A=b]",
        "env: expected a mapping, found a list",
    ),
    (
        "exec: ls\nenv: {A: [b]}",
        "env: expected a string for A, found a list",
    ),
    (
        "exec: ls\nenv: {'A=': b}",
        "no variable can be named \"A=\"",
    ),
    (
        "exec: ls\non_resume: never",
        "on_resume: expected one of report, retry, {check: [PROGRAM, …]}, found the string \"never\"",
    ),
    (
        "exec: ls\npass_api_key: 1",
        "pass_api_key: expected true or false, found the number 1",
    ),
];

#[test]
fn every_error_names_the_tool_and_the_way_out() {
    let long = "x".repeat(65);
    for (text, message) in WRONG {
        let said = errors(&format!("name: t\n{text}\n"));
        assert_eq!(said.len(), 1, "{text}: {said:?}");
        let said = &said[0].message;
        assert!(
            said.starts_with("tool \"t\": ") && said.contains(message),
            "{text}: {said}"
        );
    }
    for (text, message) in [
        ("exec: ls".to_owned(), "tool: has no name; give it one"),
        (
            "{name: 5, exec: ls}".to_owned(),
            "tool: name: expected a string, found the number 5",
        ),
        (
            "{name: a b, exec: ls}".to_owned(),
            "tool \"a b\": invalid name",
        ),
        (format!("{{name: {long}, exec: ls}}"), "invalid name"),
        ("[a]".to_owned(), "tool: expected a mapping, found a list"),
    ] {
        let said = errors(&text);
        assert_eq!(said.len(), 1, "{text}: {said:?}");
        assert!(said[0].message.contains(message), "{text}: {said:?}");
    }
}

#[test]
fn all_errors_are_said_with_their_places() {
    let text = "
name: t
exec: cat ${a} | ${b:raw}
timeout_ms: x
colour: red
parameters:
- {name: a}
- {name: CWD}
- {name: c, type: 3}
";
    let diagnostics = load(&yaml::parse(text).unwrap()).unwrap_err();
    let places: Vec<Option<usize>> = diagnostics
        .iter()
        .map(|c| yaml::locate(text, &c.at))
        .collect();
    assert_eq!(places, [5, 8, 9, 3, 3, 9, 4].map(Some), "{diagnostics:?}");
    assert_eq!(diagnostics.iter().filter(|c| c.warning).count(), 1);
    let expected = ["parameters", "name"].map(|key| Step::Key(key.to_owned()));
    let [first, last] = expected;
    assert_eq!(diagnostics[1].at, [first, Step::Item(1), last]);
}

#[test]
fn what_is_doubtful_is_a_warning() {
    for (text, message) in [
        (
            "exec: ls\ndescripton: x",
            "unknown key 'descripton'; did you mean 'description'?",
        ),
        (
            "exec: 'ls ${a}'\nparameters: [{name: a, requird: true}]",
            "did you mean 'required'?",
        ),
        (
            "shell: 'ls ${HOME}'",
            "${HOME} is a parameter that the model must give; write $HOME",
        ),
        ("exec: 'ls ${HOME}'", "write $HOME in shell:"),
        (
            "shell: 'for f in *; do echo ${f}; done'",
            "${f} is a parameter",
        ),
        ("shell: 'n=1; echo ${n}'", "${n} is a parameter"),
        (
            "shell: 'while read -r line; do echo ${line}; done'",
            "${line} is a parameter",
        ),
        (
            "shell: \"ls '${CWD}'\"",
            "${CWD} in single quotes is left as it is",
        ),
    ] {
        let (_, said) = loaded(&format!("name: t\n{text}\n"));
        assert_eq!(said.len(), 1, "{text}: {said:?}");
        assert!(
            said[0].starts_with("tool \"t\": ") && said[0].contains(message),
            "{said:?}"
        );
    }
    for text in [
        "shell: 'ls ${HOME}'\nparameters: [{name: HOME}]",
        "shell: 'n=${n}; export V=${value}; grep --n=$n ${n} \"$V\"'",
        "shell: 'f=\"${f}\"; g() { echo \"$f\"; }; g'",
        "shell: 'ls \"${CWD}\"'",
    ] {
        let (_, said) = loaded(&format!("name: t\n{text}\n"));
        assert_eq!(said, Vec::<String>::new(), "{text}");
    }
}

#[test]
fn what_contradicts_input_json_is_an_error() {
    for (rest, message) in [
        (
            "exec: 'p ${x}', input: json",
            "${x} cannot be used with input: json",
        ),
        (
            "exec: p, input: json, stdin: x",
            "stdin: cannot be used with input: json",
        ),
        (
            "exec: p, input: json, parameters: [{name: x, position: 0}]",
            "position: cannot be used with input: json",
        ),
        ("exec: p, input: jsn", "expected json"),
        ("exec: p, input_schema: {type: object}", "needs input: json"),
        (
            "exec: p, input: json, input_schema: {type: array}",
            "its type must be object",
        ),
        (
            "exec: p, input: json, input_schema: {type: object}, parameters: [{name: x}]",
            "takes the place of parameters:",
        ),
    ] {
        let found = errors(&format!("{{name: t, {rest}}}"));
        let messages: Vec<&str> = found.iter().map(|one| one.message.as_str()).collect();
        assert!(
            messages.iter().any(|one| one.contains(message)),
            "{rest}: {messages:?}"
        );
    }
}
