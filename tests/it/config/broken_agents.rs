//! Broken agents, and what is said about each: the whole of stderr, without the program's name.
//!
//! One line for each problem: file, line, what, and the way out. Nothing is created.

use crate::harness::*;
use std::fs;
use std::os::unix::fs::symlink;

/// A part of an agent's files, and what is said.
type Row = (&'static str, &'static str);

/// Whole files `agent.yaml`.
const AGENTS: &[Row] = &[
    (
        "",
        "agent.yaml: name: missing; it is the agent's name\nagent.yaml: llm: missing; it names the model: llm: {model: …}, or leaves it to DELTA_MODEL: llm: {}",
    ),
    (
        "# nothing\n",
        "agent.yaml: name: missing; it is the agent's name\nagent.yaml: llm: missing; it names the model: llm: {model: …}, or leaves it to DELTA_MODEL: llm: {}",
    ),
    (
        "- a\n",
        "agent.yaml: expected keys and values at the top, found a list",
    ),
    (
        "just words\n",
        r#"agent.yaml: expected keys and values at the top, found the string "just words""#,
    ),
    (
        "name: [\n",
        "agent.yaml:2:1: not valid YAML: did not find expected node content, while parsing a flow node",
    ),
    (
        "name: probe\n\tllm: {model: m}\n",
        "agent.yaml:2:1: not valid YAML: found a tab character that violates indentation, while scanning a plain scalar at line 1 column 7",
    ),
    (
        "name: a\nname: b\nllm: {model: m}\n",
        r#"agent.yaml:1:1: not valid YAML: duplicate entry with key "name""#,
    ),
    (
        "name: a\nllm: {model: m}\n---\nname: b\n",
        "agent.yaml: more than one document in a file; remove the line --- and what follows it",
    ),
    (
        "\u{feff}name: a\r\nllm: {model: ''}\r\n",
        "agent.yaml:2: llm: model: it is empty; name one",
    ),
    ("1: x\n", "agent.yaml:1: key 1 is not a string; quote it"),
    (
        "name: !tag x\n",
        "agent.yaml:1: tag !tag has no meaning here",
    ),
    ("name: .nan\n", "agent.yaml:1: number .nan is not finite"),
    (
        "llm: {model: m}\n",
        "agent.yaml:1: name: missing; it is the agent's name",
    ),
    (
        "name: ''\nllm: {model: m}\n",
        "agent.yaml:1: name: it is empty; it should be the agent's name",
    ),
    (
        "name: 7\nllm: {model: m}\n",
        "agent.yaml:1: name: expected a string, found the number 7",
    ),
    (
        "name:\nllm: {model: m}\n",
        "agent.yaml:1: name: expected a string, found nothing",
    ),
    (
        "name: probe\n",
        "agent.yaml:1: llm: missing; it names the model: llm: {model: …}, or leaves it to DELTA_MODEL: llm: {}",
    ),
    (
        "name: probe\nllm: gpt-4o\n",
        r#"agent.yaml:2: llm: expected a mapping, found the string "gpt-4o""#,
    ),
    (
        "name: probe\nllm:\n  model:\n",
        "agent.yaml:3: llm: model: expected a string, found nothing",
    ),
    (
        "name: probe\nllm: {model: [a]}\n",
        "agent.yaml:2: llm: model: expected a string, found a list",
    ),
    (
        "name: probe\nllm: {model: m, base_url: 'localhost:8080'}\n",
        "agent.yaml:2: llm: base_url: 'localhost:8080': it does not begin with http:// or https://; did you mean http://localhost:8080?",
    ),
    (
        "name: probe\nllm: {model: m, base_url: 8080}\n",
        "agent.yaml:2: llm: base_url: expected a string, found the number 8080",
    ),
    (
        "name: probe\nllm: {command: model.sh}\n",
        r#"agent.yaml:2: llm: command: expected a list of strings, found the string "model.sh"; make each word an item: [a, b]"#,
    ),
    (
        "name: probe\nllm: {command: []}\n",
        "agent.yaml:2: llm: command: it is empty; name a program",
    ),
    (
        "name: probe\nllm: {command: [a, 1]}\n",
        "agent.yaml:2: llm: command: expected a list of strings, found the number 1 in it; quote it",
    ),
    (
        "name: probe\nllm: {model: m, api_key: sk-1}\n",
        "agent.yaml:2: llm: api_key: keys belong in the environment, as DELTA_API_KEY",
    ),
    (
        "name: probe\nllm: {model: m, messages: []}\n",
        "agent.yaml:2: llm: messages: context.yaml defines what the model sees",
    ),
    (
        "name: probe\nllm: {model: m, tools: []}\n",
        "agent.yaml:2: llm: tools: tools belong at the top of the file",
    ),
    (
        "name: probe\nllm: {model: m, command: ['true'], stream: true}\n",
        "agent.yaml:2: llm: stream: a program's answer is read whole; leave it out",
    ),
    (
        "name: probe\nllm: {model: m, timeout_ms: 0}\n",
        "agent.yaml:2: llm: timeout_ms: expected at least 1, found 0",
    ),
    (
        "name: probe\nllm: {model: m, max_retries: often}\n",
        r#"agent.yaml:2: llm: max_retries: expected a whole number, 0 or more, found the string "often""#,
    ),
    (
        "name: probe\nllm: {model: ''}\n",
        "agent.yaml:2: llm: model: it is empty; name one",
    ),
    (
        "name: probe\nllm_config: gpt-4o\n",
        "[DEPRECATION WARNING] agent.yaml:2: llm_config is called llm now, and its model_name model\nagent.yaml:2: llm_config: expected a mapping, found the string \"gpt-4o\"",
    ),
    (
        "name: probe\nllm_config:\n  model_name: ' '\n",
        "[DEPRECATION WARNING] agent.yaml:2: llm_config is called llm now, and its model_name model\nagent.yaml:2: llm: model: it is empty; name one",
    ),
    (
        "name: probe\nllm_config:\n  model_name: m\n  timeout_ms: soon\n",
        "[DEPRECATION WARNING] agent.yaml:2: llm_config is called llm now, and its model_name model\nagent.yaml:4: llm: timeout_ms: expected a whole number, 0 or more, found the string \"soon\"",
    ),
];

/// Keys of agent.yaml behind `name` and `llm`, from line 3 on.
const KEYS: &[Row] = &[
    (
        "max_iterations: many",
        r#"agent.yaml:3: max_iterations: expected a whole number, 0 or more, found the string "many""#,
    ),
    (
        "max_iterations: 0",
        "agent.yaml:3: max_iterations: expected at least 1, found 0",
    ),
    (
        "max_iterations: -1",
        "agent.yaml:3: max_iterations: expected a whole number, 0 or more, found the number -1",
    ),
    (
        "max_iterations: 1.5",
        "agent.yaml:3: max_iterations: expected a whole number, 0 or more, found the number 1.5",
    ),
    (
        "max_iterations: '3'",
        r#"agent.yaml:3: max_iterations: expected a whole number, 0 or more, found the string "3""#,
    ),
    (
        "max_output_bytes: [1]",
        "agent.yaml:3: max_output_bytes: expected a whole number, 0 or more, found a list",
    ),
    (
        "max_output_bytes: 0",
        "agent.yaml:3: max_output_bytes: expected at least 1, found 0",
    ),
    (
        "keep_requests: all",
        r#"agent.yaml:3: keep_requests: expected a whole number, 0 or more, found the string "all""#,
    ),
    (
        "tool_timeout_ms: 10s",
        r#"agent.yaml:3: tool_timeout_ms: expected a whole number, 0 or more, found the string "10s""#,
    ),
    (
        "limits: 5",
        "agent.yaml:3: limits: expected a mapping, found the number 5",
    ),
    (
        "limits: {tokens: many}",
        r#"agent.yaml:3: limits: tokens: expected a whole number, 0 or more, found the string "many""#,
    ),
    (
        "limits: {seconds: -1}",
        "agent.yaml:3: limits: seconds: expected a whole number, 0 or more, found the number -1",
    ),
    (
        "wrapper: bwrap",
        r#"agent.yaml:3: wrapper: expected a list of strings, found the string "bwrap"; make each word an item: [a, b]"#,
    ),
    (
        "wrapper: [1]",
        "agent.yaml:3: wrapper: expected a list of strings, found the number 1 in it; quote it",
    ),
    (
        r#"wrapper: ["a\0"]"#,
        "agent.yaml:3: wrapper: no program argument can hold a NUL byte",
    ),
    (
        "ask_human: perhaps",
        r#"agent.yaml:3: ask_human: expected true or false, found the string "perhaps""#,
    ),
    (
        "sync: 1",
        "agent.yaml:3: sync: expected true or false, found the number 1",
    ),
    (
        "version: [1]",
        "agent.yaml:3: version: expected a string, found a list",
    ),
    (
        "description: 3",
        "agent.yaml:3: description: expected a string, found the number 3",
    ),
    (
        "system_prompt: 3",
        "agent.yaml:3: system_prompt: expected a string, found the number 3",
    ),
    (
        "system_prompt: prompts/other.md",
        "agent.yaml:3: system_prompt: prompts/other.md does not exist; create it",
    ),
    (
        "system_prompt: ../outside.md",
        "agent.yaml:3: system_prompt: ../outside.md is outside the agent's directory; put it inside",
    ),
    (
        "system_prompt: tools",
        "agent.yaml:3: system_prompt: tools does not exist; create it",
    ),
    (
        "imports: ./tools.yaml",
        r#"agent.yaml:3: imports: expected a list of strings, found the string "./tools.yaml"; make each word an item: [a, b]"#,
    ),
    (
        "imports: [1]",
        "agent.yaml:3: imports: expected a list of strings, found the number 1 in it; quote it",
    ),
    (
        "tools: {name: x}",
        "agent.yaml:3: tools: expected a list, found a mapping",
    ),
    (
        "lifecycle_hooks: 3",
        "[DEPRECATION WARNING] agent.yaml:3: lifecycle_hooks belong in hooks.yaml now, without this key around them\nagent.yaml:3: lifecycle_hooks: expected a mapping, found the number 3",
    ),
    (
        "lifecycle_hooks:\n  on_error: 3",
        "[DEPRECATION WARNING] agent.yaml:3: lifecycle_hooks belong in hooks.yaml now, without this key around them\nagent.yaml:4: on_error: expected {command: […]}, found the number 3",
    ),
];

/// Items of `tools`, from line 4 on.
const TOOLS: &[Row] = &[
    (
        "- words",
        r#"agent.yaml:4: tools: expected a mapping, found the string "words""#,
    ),
    (
        "- {exec: ls}",
        "agent.yaml:4: tool: has no name; give it one",
    ),
    (
        "- {name: 3, exec: ls}",
        "agent.yaml:4: tool: name: expected a string, found the number 3",
    ),
    (
        "- {name: 'list files', exec: ls}",
        r#"agent.yaml:4: tool "list files": invalid name: 1 to 64 letters, digits, '_' and '-' make a name"#,
    ),
    (
        "- {name: '', exec: ls}",
        r#"agent.yaml:4: tool "": invalid name: 1 to 64 letters, digits, '_' and '-' make a name"#,
    ),
    (
        "- {name: none}",
        r#"agent.yaml:4: tool "none": has no command; needs one of exec:, shell: and command:"#,
    ),
    (
        "- {name: both, exec: ls, shell: ls}",
        r#"agent.yaml:4: tool "both": exec:, shell: and command: are mutually exclusive, found exec: and shell:; keep one"#,
    ),
    (
        "- {name: all, exec: ls, shell: ls, command: [ls]}",
        r#"agent.yaml:4: tool "all": exec:, shell: and command: are mutually exclusive, found exec: and shell: and command:; keep one"#,
    ),
    (
        "- {name: ask_human, exec: ls}",
        r#"agent.yaml:4: tool "ask_human": the engine has a tool of this name; rename it, or say ask_human: false"#,
    ),
    (
        "- {name: twice, exec: ls}\n- {name: once, exec: ls}\n- {name: twice, exec: ls}",
        r#"agent.yaml:6: tool "twice": there are two tools of this name in this file; rename one"#,
    ),
    (
        "- {name: twice, exec: ls}\n- {name: twice, exec: ''}",
        r#"agent.yaml:5: tool "twice": there are two tools of this name in this file; rename one
agent.yaml:5: tool "twice": exec: is empty; name a program"#,
    ),
    (
        "- name: e\n  exec: 'cat ${a} | wc ${b:raw}'\n  stdin: a\n  parameters: [{name: b, position: 0}, {name: c}]",
        r#"agent.yaml:5: tool "e": Shell metacharacter '|' not allowed in exec: mode. Use shell: mode or remove pipe (in quotes it is plain text)
agent.yaml:5: tool "e": :raw modifier is only allowed in shell: mode; write ${b} or use shell:
agent.yaml:6: tool "e": parameter 'a' is in the template and in stdin:, and can go one way only; remove one
agent.yaml:7: tool "e": Cannot override position for parameter 'b' (inferred: 1, explicit: 0)
agent.yaml:7: tool "e": Parameter 'c' not found in template; write ${c} where it goes"#,
    ),
    (
        "- name: e\n  shell: echo '${a}' ${b:raw}\n  parameters: [{name: b, raw: false}, {name: a}, {name: c}]",
        r#"agent.yaml:5: tool "e": placeholder ${a} is inside single quotes, where it would never be replaced; end the quotes before it and begin them again after it, or write $NAME for a shell variable
agent.yaml:6: tool "e": parameter 'b' has raw: false and ${b:raw} in the template; remove one
agent.yaml:6: tool "e": Parameter 'c' not found in template; write ${c} where it goes"#,
    ),
    (
        "- {name: e, shell: 'ls ${my file} ${dir.name}'}",
        r#"agent.yaml:4: tool "e": invalid placeholder name 'my file' in '${my file}': letters, digits and _ make a name
agent.yaml:4: tool "e": invalid placeholder name 'dir.name' in '${dir.name}': letters, digits and _ make a name"#,
    ),
    (
        "- {name: e, exec: ''}",
        r#"agent.yaml:4: tool "e": exec: is empty; name a program"#,
    ),
    (
        "- {name: e, exec: [ls]}",
        r#"agent.yaml:4: tool "e": exec: expected a string, found a list"#,
    ),
    (
        r#"- {name: e, exec: "'"}"#,
        r#"agent.yaml:4: tool "e": exec: quote ' is not closed"#,
    ),
    (
        r"- {name: e, exec: 'a\'}",
        r#"agent.yaml:4: tool "e": exec: nothing follows the backslash at the end"#,
    ),
    (
        "- {name: p, exec: 'cat ${f} | wc -l'}",
        r#"agent.yaml:4: tool "p": Shell metacharacter '|' not allowed in exec: mode. Use shell: mode or remove pipe (in quotes it is plain text)"#,
    ),
    (
        "- {name: p, exec: 'echo x > out'}",
        r#"agent.yaml:4: tool "p": Shell metacharacter '>' not allowed in exec: mode. Use shell: mode or remove redirection (in quotes it is plain text)"#,
    ),
    (
        "- {name: p, exec: 'a && b'}",
        r#"agent.yaml:4: tool "p": Shell metacharacter '&&' not allowed in exec: mode. Use shell: mode or remove the second command (in quotes it is plain text)"#,
    ),
    (
        "- {name: p, exec: 'sleep 1 &'}",
        r#"agent.yaml:4: tool "p": Shell metacharacter '&' not allowed in exec: mode. Use shell: mode or remove ampersand (in quotes it is plain text)"#,
    ),
    (
        "- {name: p, exec: 'echo $(id)'}",
        r#"agent.yaml:4: tool "p": Shell metacharacter '$(' not allowed in exec: mode. Use shell: mode or remove command substitution (in quotes it is plain text)"#,
    ),
    (
        "- {name: p, exec: 'echo `id`'}",
        r#"agent.yaml:4: tool "p": Shell metacharacter '`' not allowed in exec: mode. Use shell: mode or remove command substitution (in quotes it is plain text)"#,
    ),
    (
        "- {name: h, exec: 'echo ${x} #tag'}",
        r#"agent.yaml:4: tool "h": '#' at the start of a word would begin a comment; quote it"#,
    ),
    (
        "- {name: r, exec: 'ls ${f:raw}'}",
        r#"agent.yaml:4: tool "r": :raw modifier is only allowed in shell: mode; write ${f} or use shell:"#,
    ),
    (
        "- {name: b, exec: 'echo ${not a name}'}",
        r#"agent.yaml:4: tool "b": invalid placeholder name 'not a name' in '${not a name}': letters, digits and _ make a name; other expansions need shell:"#,
    ),
    (
        "- {name: b, exec: 'echo ${}'}",
        r#"agent.yaml:4: tool "b": invalid placeholder name '' in '${}': letters, digits and _ make a name; other expansions need shell:"#,
    ),
    (
        "- {name: b, exec: 'echo ${open'}",
        r#"agent.yaml:4: tool "b": placeholder '${open' has no closing '}'"#,
    ),
    (
        "- {name: b, exec: 'echo ${1x}'}",
        r#"agent.yaml:4: tool "b": invalid placeholder name '1x' in '${1x}': letters, digits and _ make a name; other expansions need shell:"#,
    ),
    (
        "- {name: s, shell: ''}",
        r#"agent.yaml:4: tool "s": shell: is empty; write a script"#,
    ),
    (
        r#"- {name: s, shell: "awk '{print ${n}}'"}"#,
        r#"agent.yaml:4: tool "s": placeholder ${n} is inside single quotes, where it would never be replaced; end the quotes before it and begin them again after it, or write $NAME for a shell variable"#,
    ),
    (
        "- name: s\n  shell: |\n    cat <<'E'\n    ${n}\n    E",
        r#"agent.yaml:5: tool "s": placeholder ${n} is in a here-document whose delimiter is quoted, where it would never be replaced; remove the quotes from the delimiter"#,
    ),
    (
        "- {name: s, shell: 'echo $((${n} + 1))'}",
        r#"agent.yaml:4: tool "s": placeholder ${n} is in an arithmetic expression, where some shells would run commands found in the value; use expr or awk, which take it as an argument"#,
    ),
    (
        "- {name: s, shell: 'f() { echo ${n}; }; f'}",
        r#"agent.yaml:4: tool "s": placeholder ${n} is inside a function, which has arguments of its own; assign it to a variable outside and use that"#,
    ),
    (
        "- {name: s, shell: 'shift; echo ${n}'}",
        r#"agent.yaml:4: tool "s": placeholder ${n} is after shift or set --, which move the values; assign it to a variable before and use that"#,
    ),
    (
        "- {name: s, shell: '[[ ${n} -gt 1 ]]'}",
        r#"agent.yaml:4: tool "s": placeholder ${n} is inside [[ ]], where some shells would evaluate the value; use [ ] or case"#,
    ),
    (
        "- {name: s, shell: 'cat <<${x}'}",
        r#"agent.yaml:4: tool "s": placeholder ${x} is the delimiter of a here-document, where it would never be replaced; write a word"#,
    ),
    (
        "- {name: s, shell: 'ls ${CWD:raw}'}",
        r#"agent.yaml:4: tool "s": ${CWD} takes no :raw; write $CWD"#,
    ),
    (
        "- {name: c, command: ls}",
        r#"agent.yaml:4: tool "c": command: expected a list of strings, found the string "ls"; use exec: for a command line"#,
    ),
    (
        "- {name: c, command: []}",
        r#"agent.yaml:4: tool "c": command: is empty; name a program"#,
    ),
    (
        "- {name: c, command: ['']}",
        r#"agent.yaml:4: tool "c": command: the program's name is empty; name a program"#,
    ),
    (
        "- {name: c, command: [ls, 1]}",
        r#"agent.yaml:4: tool "c": command: expected a list of strings, found the number 1 in it; quote it"#,
    ),
    (
        "- {name: c, command: [sh, -c, 'cat ${f}'], parameters: [{name: f}]}",
        r#"agent.yaml:4: tool "c": the value of 'f' would run as code, because it is part of a shell's script; use shell: with ${f} in the script"#,
    ),
    (
        "- {name: q, exec: 'ls ${a}', parameters: {a: string}}",
        r#"agent.yaml:4: tool "q": parameters: expected a list, found a mapping"#,
    ),
    (
        "- {name: q, exec: 'ls ${a}', parameters: [a]}",
        r#"agent.yaml:4: tool "q": parameters: expected a mapping, found the string "a""#,
    ),
    (
        "- {name: q, exec: 'ls ${a}', parameters: [{type: string}]}",
        r#"agent.yaml:4: tool "q": parameters: this one has no name; give it one"#,
    ),
    (
        "- {name: q, exec: 'ls ${a}', parameters: [{name: b}]}",
        r#"agent.yaml:4: tool "q": Parameter 'b' not found in template; write ${b} where it goes"#,
    ),
    (
        "- {name: q, exec: 'ls ${path}', parameters: [{name: paht}]}",
        r#"agent.yaml:4: tool "q": Parameter 'paht' not found in template; did you mean 'path'?"#,
    ),
    (
        "- {name: q, exec: 'ls ${a}', parameters: [{name: a}, {name: a}]}",
        r#"agent.yaml:4: tool "q": parameter 'a' is declared twice; remove one"#,
    ),
    (
        "- {name: q, exec: 'ls ${a}', parameters: [{name: a, type: text}]}",
        r#"agent.yaml:4: tool "q": type of parameter 'a': expected one of string, integer, number, boolean, found the string "text""#,
    ),
    (
        "- {name: q, exec: 'ls ${a}', parameters: [{name: a, required: 1}]}",
        r#"agent.yaml:4: tool "q": required of parameter 'a': expected true or false, found the number 1"#,
    ),
    (
        "- {name: q, exec: 'ls ${a}', parameters: [{name: a, enum: []}]}",
        r#"agent.yaml:4: tool "q": enum of parameter 'a' is empty: nothing could be given"#,
    ),
    (
        "- {name: q, exec: 'ls ${a}', parameters: [{name: a, enum: [x], default: y}]}",
        r#"agent.yaml:4: tool "q": default "y" of parameter 'a' is not in its enum"#,
    ),
    (
        "- {name: q, exec: 'ls ${a}', parameters: [{name: a, inject_as: pipe}]}",
        r#"agent.yaml:4: tool "q": inject_as of parameter 'a': expected one of argument, option, stdin, found the string "pipe""#,
    ),
    (
        "- {name: q, shell: 'ls ${a}', parameters: [{name: a, inject_as: stdin}]}",
        r#"agent.yaml:4: tool "q": Cannot override inject_as for parameter 'a' (inferred: argument, explicit: stdin)"#,
    ),
    (
        "- {name: q, exec: 'ls ${a} ${b}', parameters: [{name: a, position: 1}]}",
        r#"agent.yaml:4: tool "q": Cannot override position for parameter 'a' (inferred: 0, explicit: 1)"#,
    ),
    (
        "- {name: q, shell: 'ls ${a}', parameters: [{name: a, raw: true}]}",
        r#"agent.yaml:4: tool "q": parameter 'a': :raw modifier must be specified in template syntax (${a:raw})"#,
    ),
    (
        "- {name: q, command: [ls], parameters: [{name: a, inject_as: option}]}",
        r#"agent.yaml:4: tool "q": parameter 'a' is injected as an option and needs option_name:, such as --a"#,
    ),
    (
        "- {name: q, command: [ls], parameters: [{name: a, option_name: --a}]}",
        r#"agent.yaml:4: tool "q": option_name of parameter 'a' needs inject_as: option"#,
    ),
    (
        "- {name: q, command: [ls], parameters: [{name: AGENT_HOME}]}",
        r#"agent.yaml:4: tool "q": no parameter can be named AGENT_HOME, which is the engine's; rename it"#,
    ),
    (
        "- {name: q, command: [ls], parameters: [{name: 'a b'}]}",
        r#"agent.yaml:4: tool "q": invalid parameter name 'a b': 1 to 64 letters, digits, '_', '-' and '.' make a name"#,
    ),
    (
        "- {name: q, command: [cat], parameters: [{name: a, inject_as: stdin}, {name: b, inject_as: stdin}]}",
        r#"agent.yaml:4: tool "q": only one parameter can go to stdin, found 'a' and 'b'"#,
    ),
    (
        "- {name: q, exec: cat, stdin: CWD}",
        r#"agent.yaml:4: tool "q": no parameter can be named CWD, which is the engine's; rename it"#,
    ),
    (
        "- {name: q, exec: 'cat ${a}', stdin: a}",
        r#"agent.yaml:4: tool "q": parameter 'a' is in the template and in stdin:, and can go one way only; remove one"#,
    ),
    (
        "- {name: q, exec: '${p} x', parameters: [{name: p, required: false}]}",
        r#"agent.yaml:4: tool "q": parameter 'p' names the program and cannot be optional; give it a default"#,
    ),
    (
        "- {name: o, exec: ls, timeout_ms: soon}",
        r#"agent.yaml:4: tool "o": timeout_ms: expected a whole number, 0 or more, found the string "soon""#,
    ),
    (
        "- {name: o, exec: ls, wrapper: sudo}",
        r#"agent.yaml:4: tool "o": wrapper: expected a list of strings, found the string "sudo"; make each word an item: [a, b]"#,
    ),
    (
        "- {name: o, exec: ls, env: [A]}",
        r#"agent.yaml:4: tool "o": env: expected a mapping, found a list"#,
    ),
    (
        "- {name: o, exec: ls, env: {A: [b]}}",
        r#"agent.yaml:4: tool "o": env: expected a string for A, found a list"#,
    ),
    (
        "- {name: o, exec: ls, env: {'A=B': c}}",
        r#"agent.yaml:4: tool "o": env: no variable can be named "A=B" or hold a NUL byte"#,
    ),
    (
        "- {name: o, exec: ls, on_resume: again}",
        r#"agent.yaml:4: tool "o": on_resume: expected one of report, retry, {check: [PROGRAM, …]}, found the string "again""#,
    ),
    (
        "- {name: o, exec: ls, pass_api_key: please}",
        r#"agent.yaml:4: tool "o": pass_api_key: expected true or false, found the string "please""#,
    ),
];

/// Whole files `context.yaml`.
const CONTEXTS: &[Row] = &[
    (
        "",
        "context.yaml: sources: missing; it lists what the model sees",
    ),
    (
        "sources: 3\n",
        "context.yaml:1: sources: expected a list, found the number 3",
    ),
    (
        "source: []\n",
        "warning: context.yaml:1: unknown key 'source'; did you mean 'sources'?\ncontext.yaml:1: sources: missing; it lists what the model sees",
    ),
    (
        "sources:\n  - x\n",
        r#"context.yaml:2: sources: expected a mapping, found the string "x""#,
    ),
    (
        "sources:\n  - {path: x}\n",
        "context.yaml:2: source: type: missing; it is one of file, computed_file, journal",
    ),
    (
        "sources:\n  - {type: file}\n",
        "context.yaml:2: file: path: missing; name the file",
    ),
    (
        "sources:\n  - {type: journl}\n",
        r#"context.yaml:2: source: type: expected one of file, computed_file, journal, found the string "journl""#,
    ),
    (
        "sources:\n  - {type: file, path: ''}\n",
        "context.yaml:2: file: path: it is empty; name the file",
    ),
    (
        "sources:\n  - {type: file, path: [a]}\n",
        "context.yaml:2: file: path: expected a string, found a list",
    ),
    (
        "sources:\n  - {type: file, path: x, on_missing: ignore}\n",
        r#"context.yaml:2: file: on_missing: expected one of error, skip, found the string "ignore""#,
    ),
    (
        "sources:\n  - {type: file, path: '${AGENT_HOME}/gone.md'}\n",
        "context.yaml:2: file: path: gone.md does not exist; create it, or say on_missing: skip",
    ),
    (
        "sources:\n  - {type: computed_file, output_path: x}\n",
        "context.yaml:2: computed_file: generator is missing; it is {command: […]}",
    ),
    (
        "sources:\n  - {type: computed_file, generator: {command: [a]}}\n",
        "context.yaml:2: computed_file: output_path: missing; name the file",
    ),
    (
        "sources:\n  - {type: computed_file, output_path: x, generator: sum.sh}\n",
        r#"context.yaml:2: computed_file: generator: expected a mapping, found the string "sum.sh""#,
    ),
    (
        "sources:\n  - {type: computed_file, output_path: x, generator: {}}\n",
        "context.yaml:2: generator: command: missing; it is a list: the program and its arguments",
    ),
    (
        "sources:\n  - {type: computed_file, output_path: x, generator: {command: sum.sh}}\n",
        r#"context.yaml:2: generator: command: expected a list of strings, found the string "sum.sh"; make each word an item: [a, b]"#,
    ),
    (
        "sources:\n  - {type: computed_file, output_path: x, generator: {command: [a], timeout_ms: 0}}\n",
        "context.yaml:2: generator: timeout_ms: expected at least 1, found 0",
    ),
    (
        "sources:\n  - {type: computed_file, output_path: x, generator: {command: [a]}, refresh: never}\n",
        r#"context.yaml:2: computed_file: refresh: expected one of every, once, found the string "never""#,
    ),
    (
        "sources:\n  - {type: journal, max_iterations: 0}\n",
        "context.yaml:2: journal: max_iterations: expected at least 1, found 0",
    ),
    (
        "sources:\n  - {type: journal, max_iterations: all}\n",
        r#"context.yaml:2: journal: max_iterations: expected a whole number, 0 or more, found the string "all""#,
    ),
    (
        "sources:\n  - {type: journal}\n  - {type: journal}\n",
        "context.yaml:3: journal: there are two of them among the sources; remove one",
    ),
    (
        "sources:\n  - {type: journal}\nsystem_messages: many\n",
        r#"context.yaml:3: system_messages: expected one of merged, separate, found the string "many""#,
    ),
    (
        "sources:\n  - type: [\n",
        "context.yaml:3:1: not valid YAML: did not find expected node content, while parsing a flow node",
    ),
];

/// Whole files `hooks.yaml`.
const HOOKS: &[Row] = &[
    (
        "pre_tool_exection: {command: [ls]}\n",
        "hooks.yaml:1: unknown key 'pre_tool_exection'; did you mean 'pre_tool_execution'?",
    ),
    (
        "on_error: {command: [ls], timeout: 3}\n",
        "hooks.yaml:1: on_error: unknown key 'timeout'; did you mean 'timeout_ms'?",
    ),
    (
        "hooks:\n  on_eror: {command: [ls]}\n",
        "[DEPRECATION WARNING] hooks.yaml:1: the hooks stand at the top now, without hooks around them\nhooks.yaml:2: unknown key 'on_eror'; did you mean 'on_error'?",
    ),
    (
        "lifecycle_hooks: 3\n",
        "[DEPRECATION WARNING] hooks.yaml:1: the hooks stand at the top now, without lifecycle_hooks around them\nhooks.yaml:1: lifecycle_hooks: expected a mapping, found the number 3",
    ),
    (
        "lifecycle_hooks:\n  on_error: 3\n",
        "[DEPRECATION WARNING] hooks.yaml:1: the hooks stand at the top now, without lifecycle_hooks around them\nhooks.yaml:2: on_error: expected {command: […]}, found the number 3",
    ),
    (
        "on_error: 3\n",
        "hooks.yaml:1: on_error: expected {command: […]}, found the number 3",
    ),
    (
        "on_error: {}\n",
        "hooks.yaml:1: on_error: command: missing; it is a list: the program and its arguments",
    ),
    (
        "on_error: {command: ls}\n",
        r#"hooks.yaml:1: on_error: command: expected a list of strings, found the string "ls"; make each word an item: [a, b]"#,
    ),
    (
        "on_error: {command: []}\n",
        "hooks.yaml:1: on_error: command: it is empty; name a program",
    ),
    (
        "on_error:\n  - {command: [ls]}\n  - ls\n",
        r#"hooks.yaml:3: on_error: expected {command: […]}, found the string "ls""#,
    ),
    (
        "on_error: {command: [ls], timeout_ms: 0}\n",
        "hooks.yaml:1: on_error: timeout_ms: expected at least 1, found 0",
    ),
    (
        "on_error: {command: [ls], timeout_ms: soon}\n",
        r#"hooks.yaml:1: on_error: timeout_ms: expected a whole number, 0 or more, found the string "soon""#,
    ),
    (
        "- on_error\n",
        "hooks.yaml: expected keys and values at the top, found a list",
    ),
];

/// The agent cannot run, this is said about it, and nothing has been made.
#[track_caller]
fn is_broken(world: &World, said: &str) {
    let agent = world.path("agent");
    let before = files_below(&agent);
    for place in [&["-y"][..], &["-w", "../ws"]] {
        let run = world.delta(["run", "-m", "go"]).args(place);
        let outcome = run.cwd(&agent).exits(78).prints("");
        let lines = outcome.stderr.lines();
        let lines = lines.map(|line| line.strip_prefix("delta: ").unwrap_or(line));
        assert_eq!(lines.collect::<Vec<_>>().join("\n"), said);
    }
    assert!(!world.exists("ws"));
    assert_eq!(files_below(&agent), before);
    world.delta(["check", "agent"]).exits(78);
}

/// Every row, put into a file of an agent that is good otherwise.
#[track_caller]
fn all_are_broken(rows: &[Row], file: &str, whole: impl Fn(&str) -> String) {
    for (part, said) in rows {
        let world = World::new();
        world.write(&format!("agent/{file}"), whole(part));
        is_broken(&world, said);
    }
}

fn keys(part: &str) -> String {
    format!("name: probe\nllm: {{model: m}}\n{part}\n")
}

#[test]
fn there_are_more_than_sixty() {
    let tables = [AGENTS, KEYS, TOOLS, CONTEXTS, HOOKS];
    let rows: usize = tables.iter().map(|table| table.len()).sum();
    assert!(rows > 60, "{rows}");
}

#[test]
fn broken_agent_files() {
    all_are_broken(AGENTS, "agent.yaml", str::to_owned);
    all_are_broken(KEYS, "agent.yaml", keys);
}

#[test]
fn broken_tools() {
    all_are_broken(TOOLS, "agent.yaml", |tools| {
        let tools = tools.replace('\n', "\n  ");
        keys(&format!("tools:\n  {tools}"))
    });
}

#[test]
fn broken_contexts() {
    all_are_broken(CONTEXTS, "context.yaml", str::to_owned);
}

#[test]
fn broken_hooks() {
    all_are_broken(HOOKS, "hooks.yaml", str::to_owned);
}

#[test]
fn files_that_are_not_there_or_cannot_be_read() {
    let without = |file: &str| {
        let world = World::new();
        fs::remove_file(world.path("agent").join(file)).unwrap();
        world
    };
    is_broken(
        &without("agent.yaml"),
        "there is no agent in the current directory (no agent.yaml), and -m and -f alone are for that one; name an agent: `delta run @coder …`",
    );
    is_broken(
        &without("system_prompt.md"),
        "agent.yaml:1: system_prompt: system_prompt.md does not exist; create it",
    );
    let world = without("context.yaml");
    fs::create_dir(world.path("agent/context.yaml")).unwrap();
    is_broken(
        &world,
        "context.yaml: cannot read it: it is not a regular file",
    );
    let world = World::new();
    world.write("agent/hooks.yaml", b"on_error: \xff\n");
    is_broken(&world, "hooks.yaml: cannot read it: it is not UTF-8");
    let world = World::new().top("system_prompt: link.md");
    world.write("outside.md", "");
    symlink("../outside.md", world.path("agent/link.md")).unwrap();
    is_broken(
        &world,
        "agent.yaml:2: system_prompt: link.md is outside the agent's directory; put it inside",
    );
    let world = World::new().top("system_prompt: prompts");
    fs::create_dir(world.path("agent/prompts")).unwrap();
    is_broken(&world, "agent.yaml:2: system_prompt: prompts is not a file");
}

#[test]
fn everything_that_is_wrong_is_said_in_one_go_in_the_order_of_the_files() {
    let world = World::with_tools("- {name: a, exec: 'x | y'}\n- {name: a b, exec: ''}")
        .top("max_iterations: 0\nimports: [gone.yaml]");
    world.write("agent/context.yaml", "sources:\n  - {type: file}\n");
    world.write("agent/hooks.yaml", "on_error: 3\n");
    is_broken(
        &world,
        "agent.yaml:2: max_iterations: expected at least 1, found 0\n\
         agent.yaml:3: imports: gone.yaml does not exist; create it, or remove the import\n\
         agent.yaml:8: tool \"a\": Shell metacharacter '|' not allowed in exec: mode. Use shell: mode or \
         remove pipe (in quotes it is plain text)\n\
         agent.yaml:9: tool \"a b\": invalid name: 1 to 64 letters, digits, '_' and '-' make a name\n\
         agent.yaml:9: tool \"a b\": exec: is empty; name a program\n\
         context.yaml:2: file: path: missing; name the file\n\
         hooks.yaml:1: on_error: expected {command: […]}, found the number 3",
    );
}
