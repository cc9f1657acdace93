use super::*;
use crate::config::tool::definition::schema;
use crate::config::tool::load::{load, render};
use crate::text::yaml;
use serde_json::json;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PLACES: BaseDirs = BaseDirs {
    home: "/agent's $HOME",
    cwd: "/work space",
};

fn tool(text: &str) -> Tool {
    let section = yaml::parse(text).unwrap();
    let loaded = load(&section);
    loaded
        .unwrap_or_else(|errors| panic!("{text}: {errors:?}"))
        .0
}

fn argv_of(text: &str, arguments: &str) -> Vec<String> {
    bind_arguments(&tool(text), arguments, &PLACES)
        .unwrap()
        .argv
}

fn refusal(text: &str, arguments: &str) -> String {
    bind_arguments(&tool(text), arguments, &PLACES).unwrap_err()
}

fn bound_to(tool: &Tool, arguments: &Value) -> Vec<String> {
    bind_arguments(tool, &arguments.to_string(), &PLACES)
        .unwrap()
        .argv
}

/// An empty directory that goes away.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("delta-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Runs a command as the engine would; `program`, if given, under the name that it has there.
fn run(bound: &BoundCall, program: Option<&str>, directory: &Path) -> (String, Option<i32>) {
    let name = &bound.argv[0];
    let mut child = Command::new(program.unwrap_or(name))
        .arg0(name)
        .args(&bound.argv[1..])
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(bound.stdin.as_deref().unwrap_or_default())
        .unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    (
        String::from_utf8(output.stdout).unwrap(),
        output.status.code(),
    )
}

/// Runs commands of a shell one after the other in one process; each script is evaluated in a subshell, with its values,
/// as `-c` evaluates it.
fn run_all(shell: &str, calls: &[BoundCall], directory: &Path) -> Vec<(String, Option<i32>)> {
    let quoted = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
    let commands = calls.iter().map(|bound| {
        let [_, _, script, _, values @ ..] = &bound.argv[..] else {
            panic!("{:?}", bound.argv);
        };
        let values: Vec<String> = values.iter().map(quoted).collect();
        let (values, script) = (values.join(" "), quoted(script));
        format!("( set -- {values}; eval {script} )\nprintf '\\0%s\\0' $?\n")
    });
    let script = commands.collect::<Vec<_>>().concat();
    let file = Scratch::new(&format!(
        "{shell}-{}",
        directory.file_name().unwrap().display()
    ));
    let file = file.0.join("script");
    std::fs::write(&file, script).unwrap();
    let output = Command::new(shell)
        .arg(&file)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let parts: Vec<&str> = stdout.split('\0').collect();
    assert_eq!(parts.len(), 2 * calls.len() + 1, "{shell}: {stdout}");
    let ended = parts.chunks_exact(2);
    ended
        .map(|pair| (pair[0].to_owned(), pair[1].parse().ok()))
        .collect()
}

fn hostile_values() -> Vec<String> {
    let mut values: Vec<String> = [
        "",
        " ",
        "  two  spaces  ",
        "tab\tand\nnewline\n\nand\r\n",
        "\n",
        "'",
        "\"",
        "`",
        "\\",
        "\\\\ \\n \\$x \\' \\\"",
        "it's \"quoted\"",
        "\"; touch pwned; \"",
        "'; touch pwned; '",
        "; touch pwned #",
        "| touch pwned & touch pwned && touch pwned",
        "$(touch pwned)",
        "`touch pwned`",
        "\"$(touch pwned)\"",
        "'$(touch pwned)'",
        "${AGENT_HOME} ${CWD} ${x} ${x:raw} $1 $@ $HOME",
        "a[$(touch pwned)]",
        "$((1+1))",
        "--help",
        "-n",
        "--",
        "*",
        "? [a-z] ~ {a,b} !x !!",
        "E\nE\n<<E",
        ")",
        "}",
        "esac;;",
        "héllo wörld → 日本語 🦀",
        "\u{1b}[31m\u{7}\u{1}",
        "%s %d \\c",
    ]
    .map(str::to_owned)
    .into();
    values.push("0123456789abcde'\"$`\\ \n".repeat(100_000 / 23));
    values
}

#[test]
fn a_hostile_value_arrives_byte_for_byte_through_exec() {
    let scratch = Scratch::new("exec");
    let whole = tool("{name: t, exec: 'printf %s. ${x}'}");
    let inside = tool("{name: t, exec: 'printf %s. \"<${x}>\"'}");
    for value in hostile_values() {
        let arguments = json!({"x": value}).to_string();
        let bound = bind_arguments(&whole, &arguments, &PLACES).unwrap();
        assert_eq!(run(&bound, None, &scratch.0).0, format!("{value}."));
        let bound = bind_arguments(&inside, &arguments, &PLACES).unwrap();
        assert_eq!(run(&bound, None, &scratch.0).0, format!("<{value}>."));
    }
    assert!(std::fs::read_dir(&scratch.0).unwrap().next().is_none());
}

#[test]
fn a_hostile_value_arrives_byte_for_byte_through_any_quotes_of_a_script() {
    let scratch = Scratch::new("shell");
    let tools: Vec<(Tool, &str, &str)> = [
        ("printf %s. ${x}", "", "."),
        ("printf %s. [${x}]", "[", "]."),
        ("printf %s. \"<${x}>\"", "<", ">."),
        ("printf %s. '<'${x}'>'", "<", ">."),
        ("printf %s. it\\'s\" \"${x}", "it's ", "."),
        ("cat <<E\n<${x}>\nE\n", "<", ">\n"),
        ("cat <<-E\n\t\"${x}\"\n\tE\n", "\"", "\"\n"),
        ("cat <<E\n$(printf %s. ${x})\nE\n", "", ".\n"),
        ("printf %s \"$(printf %s. ${x})\"", "", "."),
        ("printf %s \"$(printf %s. \"${x}\")\"", "", "."),
        ("printf %s \"`printf %s. ${x}`\"", "", "."),
        ("v=\"`printf %s. \"${x}\"`\"; printf %s \"$v\"", "", "."),
        (
            "printf %s \"$(case a in a) printf %s. ${x};; esac)\"",
            "",
            ".",
        ),
        ("v=${x}; f() { printf %s. \"$v\"; }; f", "", "."),
        ("printf %s. \"${none:-${x}}\"", "", "."),
        ("printf %s. ${none:-${x}}", "", "."),
        ("printf %s. \"${none:-\"${x}\"}\"", "", "."),
        ("case ${x} in ${x}) printf %s. ${x};; esac", "", "."),
        ("v=${x}z; printf %s. \"${v%z}\" \"${v#${x}}\"", "", ".z."),
        ("# it's ${x}\nprintf %s. ${x} # ${x}", "", "."),
        ("for v in ${x}; do\n\tprintf %s. \"$v\"\ndone", "", "."),
        ("[ ${x} = ${x} ] && printf '%s.' ${x}", "", "."),
    ]
    .iter()
    .map(|(script, before, after)| {
        let (tool, _) = load(&json!({"name": "t", "shell": script})).unwrap();
        (tool, *before, *after)
    })
    .collect();
    for value in hostile_values() {
        let arguments = json!({"x": value}).to_string();
        // Matching patterns of this size takes bash seconds.
        let is_slow =
            |text: &str| value.len() > 1000 && (text.contains("case ${x}") || text.contains('#'));
        let tools = tools.iter().filter(|(tool, ..)| !is_slow(&tool.template));
        let bind = |tool: &Tool| bind_arguments(tool, &arguments, &PLACES).unwrap();
        let calls: Vec<BoundCall> = tools.clone().map(|(tool, ..)| bind(tool)).collect();
        for shell in ["dash", "bash"] {
            let ended = run_all(shell, &calls, &scratch.0);
            assert_eq!(run(&calls[0], Some(shell), &scratch.0), ended[0], "{shell}");
            for ((tool, before, after), ended) in tools.clone().zip(ended) {
                let expected = (format!("{before}{value}{after}"), Some(0));
                assert_eq!(ended, expected, "{shell}: {}", tool.template);
            }
        }
    }
    assert!(std::fs::read_dir(&scratch.0).unwrap().next().is_none());
}

#[test]
fn a_hostile_value_arrives_however_commands_are_nested() {
    let value = "a  b\n'\"`\\*$(touch pwned)${x}";
    let arguments = json!({"x": value}).to_string();
    let scratch = Scratch::new("nested");
    let mut random = fastrand::Rng::with_seed(11);
    let innermost = [
        "printf %s. ${x}",
        "printf %s. \"${x}\"",
        "cat <<E\n${x}.\nE\n",
    ];
    let around = [
        ("printf %s \"$( ", "\n)\""),
        ("v=$( ", "\n); printf %s \"$v\""),
        ("printf %s \"${none:-$( ", "\n)}\""),
        ("printf %s \"`", "\n`\""),
        ("cat <<E@\n$( ", "\n)\nE@\n"),
        ("cat <<E@\n${none:-$( ", "\n)}\nE@\n"),
        ("( ", "\n)"),
        ("{ ", "\n}"),
        ("if :; then ", "\nfi"),
        ("case a in (b) ;; a) ", "\n;; esac"),
        ("case 'case' in case*) ", "\nesac"),
        ("for i in 1; do ", "\ndone"),
        ("# it's )\n", "\n# )"),
        ("echo \")'\" >/dev/null; ", " # )"),
        ("echo $((1 << (2 + 1))) >/dev/null; ", "\n"),
        ("f() { :; }; : '\n' \\\" ;", ""),
        ("tr a a <<'A' >/dev/null\n# $x\nA\n", ""),
    ];
    let (mut scripts, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        let mut script = innermost[random.usize(0..innermost.len())].to_owned();
        for depth in 0..random.usize(0..5) {
            // Shells differ about a here-document in one that has the same delimiter.
            let (before, after) = around[random.usize(0..around.len())];
            let [before, after] = [before, after].map(|s| s.replace('@', &depth.to_string()));
            // Nothing can be nested in backquotes without backslashes in them.
            if !(before.contains('`') && script.contains(['`', '\\'])) {
                script = format!("{before}{script}{after}");
            }
        }
        let loaded = load(&json!({"name": "t", "shell": script}));
        let (tool, _) = loaded.unwrap_or_else(|errors| panic!("{script}: {errors:?}"));
        calls.push(bind_arguments(&tool, &arguments, &PLACES).unwrap());
        scripts.push(script);
    }
    for shell in ["dash", "bash"] {
        let ended = run_all(shell, &calls, &scratch.0);
        for ((stdout, _), script) in ended.iter().zip(&scripts) {
            assert_eq!(stdout.trim_end(), format!("{value}."), "{shell}: {script}");
        }
    }
    assert!(std::fs::read_dir(&scratch.0).unwrap().next().is_none());
}

#[test]
fn more_than_nine_values_keep_their_places() {
    let script = "printf '%s ' ${a}${b}${c}${d}${e}${f}${g}${h}${i}${j} \"${k}0\" ${j:raw}0";
    let (tool, _) = load(&json!({"name": "t", "shell": script})).unwrap();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
    let arguments: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), name.to_uppercase().into()))
        .collect();
    let bound = bind_arguments(&tool, &Value::Object(arguments).to_string(), &PLACES).unwrap();
    for shell in ["dash", "bash"] {
        let (stdout, _) = run(&bound, Some(shell), Path::new("/"));
        assert_eq!(stdout, "ABCDEFGHIJ K0 J0 ", "{shell}");
    }
}

#[test]
fn a_raw_value_is_split_and_globbed_and_nothing_in_it_runs() {
    let scratch = Scratch::new("raw");
    std::fs::write(scratch.0.join("a.log"), "").unwrap();
    let tool = tool("{name: t, shell: \"printf '%s.' ${x:raw}\"}");
    for (value, stdout) in [
        ("-n -e", "-n.-e."),
        ("*.log", "a.log."),
        ("; touch b.log", ";.touch.b.log."),
        ("$(touch b.log)", "$(touch.b.log)."),
        ("'a b'", "'a.b'."),
    ] {
        let bound = bind_arguments(&tool, &json!({"x": value}).to_string(), &PLACES).unwrap();
        for shell in ["dash", "bash"] {
            assert_eq!(
                run(&bound, Some(shell), &scratch.0).0,
                stdout,
                "{shell}: {value}"
            );
        }
    }
    assert!(!scratch.0.join("b.log").exists());
}

/// The tests of v1.7 that run something; those that refuse a configuration are in `expand`.
#[test]
fn the_commands_of_the_conformance_tests_print_what_they_should() {
    let scratch = Scratch::new("conformance");
    std::fs::write(
        scratch.0.join("sample.txt"),
        "a \"test\" with fixed pattern\n",
    )
    .unwrap();
    std::fs::write(scratch.0.join("marker"), "").unwrap();
    for (text, arguments, stdout) in [
        (
            "exec: 'echo ${message}'",
            json!({"message": "; rm marker"}),
            "; rm marker\n",
        ),
        (
            "shell: 'echo ${input}'",
            json!({"input": "; rm marker; echo done"}),
            "; rm marker; echo done\n",
        ),
        (
            "shell: 'grep -c ${pattern} ${file}'",
            json!({"pattern": "\"test\"", "file": "sample.txt"}),
            "1\n",
        ),
        (
            "shell: 'echo ${input}'",
            json!({"input": "$(whoami)"}),
            "$(whoami)\n",
        ),
        (
            "shell: 'echo ${input}'",
            json!({"input": "test | grep x"}),
            "test | grep x\n",
        ),
        ("shell: 'echo ${flags:raw} x'", json!({"flags": "-n"}), "x"),
        (
            "shell: 'echo ${input:raw}'",
            json!({"input": "; rm marker"}),
            "; rm marker\n",
        ),
        (
            "exec: 'grep -c \"fixed pattern\" ${file}'",
            json!({"file": "sample.txt"}),
            "1\n",
        ),
        (
            "exec: 'echo ${arg1} ${arg2} ${arg3}'",
            json!({"arg1": "first", "arg2": "second", "arg3": "third"}),
            "first second third\n",
        ),
        (
            "exec: 'wc -l'\nstdin: content",
            json!({"content": "line1\nline2\nline3"}),
            "2\n",
        ),
        (
            "shell: 'grep ${pattern}'\nstdin: content",
            json!({"pattern": "test", "content": "test1\nfoo\ntest2"}),
            "test1\ntest2\n",
        ),
        (
            "shell: |\n  echo \"Start\"\n  echo ${value}\n  echo \"End\"",
            json!({"value": "test ; echo injected"}),
            "Start\ntest ; echo injected\nEnd\n",
        ),
        (
            "shell: |\n  echo ${text} |\n  tr '[:lower:]' '[:upper:]' |\n  wc -c",
            json!({"text": "hello"}),
            "6\n",
        ),
        (
            "exec: 'echo ${msg}'\nparameters: [{name: msg, description: Message, default: hello}]",
            json!({}),
            "hello\n",
        ),
        (
            "exec: 'echo ${msg}'\nparameters: [{name: msg, description: Message, default: hello}]",
            json!({"msg": "x"}),
            "x\n",
        ),
    ] {
        let tool = tool(&format!("name: t\n{text}\n"));
        let bound = bind_arguments(&tool, &arguments.to_string(), &PLACES).unwrap();
        assert_eq!(
            run(&bound, None, &scratch.0),
            (stdout.to_owned(), Some(0)),
            "{text}"
        );
        assert!(scratch.0.join("marker").exists(), "{text}");
    }
}

#[test]
fn a_value_is_passed_as_it_was_written() {
    let text = "{name: t, exec: 'p ${x}', parameters: [{name: x, type: number}]}";
    for (json, value) in [
        ("1", "1"),
        ("1.0", "1.0"),
        ("1e3", "1e3"),
        ("-0", "-0"),
        ("0.1000", "0.1000"),
        (
            "123456789012345678901234567890",
            "123456789012345678901234567890",
        ),
        ("1e999", "1e999"),
        ("true", "true"),
        ("\"12\"", "12"),
        ("\"\"", ""),
        ("\"a\\u00e9\\n\\\"\\ud83e\\udd80\"", "aé\n\"🦀"),
        (
            "[1.0, \"a b\\\" c\", {\"k\" : null}]",
            "[1.0,\"a b\\\" c\",{\"k\":null}]",
        ),
        (
            "{\"a\": [ ] , \"b\\\\\" : \" \"}",
            "{\"a\":[],\"b\\\\\":\" \"}",
        ),
        ("[\n\t1,\r\n2 ]", "[1,2]"),
    ] {
        assert_eq!(
            argv_of(text, &format!(" {{ \"x\" : {json} }} "))[1],
            value,
            "{json}"
        );
    }
}

#[test]
fn of_a_name_that_occurs_twice_the_last_value_counts() {
    let bound = bind_arguments(
        &tool("{name: t, exec: 'p ${x}'}"),
        r#"{"x":1,"x":2}"#,
        &PLACES,
    )
    .unwrap();
    assert_eq!(bound.argv, ["p", "2"]);
    assert_eq!(bound.arguments, json!({"x": 2}));
}

#[test]
fn nothing_at_all_is_an_empty_object() {
    for arguments in ["", " \n", "{}", " { } "] {
        assert_eq!(argv_of("{name: t, exec: p}", arguments), ["p"]);
    }
}

#[test]
fn the_arguments_are_kept_as_the_model_gave_them() {
    let text = "{name: t, command: [p], parameters: [{name: b, default: 1}, {name: a}]}";
    let arguments = r#"{"a": 1e999, "b": null}"#;
    let bound = bind_arguments(&tool(text), arguments, &PLACES).unwrap();
    assert_eq!(bound.arguments.to_string(), r#"{"a":1e+999,"b":null}"#);
    assert_eq!(bound.argv, ["p", "1", "1e999"]);
}

#[test]
fn values_are_never_searched_for_anything() {
    let value = "${AGENT_HOME} ${y} ${x:raw} $1";
    let arguments = json!({"x": value, "y": "Y"}).to_string();
    let argv = argv_of(
        "{name: t, exec: 'p ${x} a${y}${AGENT_HOME} ${CWD} z'}",
        &arguments,
    );
    assert_eq!(argv, ["p", value, "aY/agent's $HOME", "/work space", "z"]);
}

#[test]
fn standard_input_is_none_only_if_its_parameter_is_absent() {
    let text = "{name: t, exec: p, stdin: c, parameters: [{name: c, required: false}]}";
    for (arguments, stdin) in [
        ("{}", None),
        (r#"{"c": null}"#, None),
        (r#"{"c": ""}"#, Some("")),
        (r#"{"c": "a\u0000\n"}"#, Some("a\0\n")),
        (r#"{"c": 1e3}"#, Some("1e3")),
    ] {
        let bound = bind_arguments(&tool(text), arguments, &PLACES).unwrap();
        assert_eq!(
            bound.stdin,
            stdin.map(|s| s.as_bytes().to_vec()),
            "{arguments}"
        );
        assert_eq!(bound.argv, ["p"]);
    }
}

#[test]
fn what_is_not_an_object_is_quoted_back() {
    let text = "{name: t, exec: 'p ${x}'}";
    for (arguments, cause) in [
        (
            "{\"x\": ",
            "(it ends where a value is expected, at column 6)",
        ),
        (
            "{\"x\": 1} trailing",
            "(unexpected text behind the value, at column 10)",
        ),
        ("ls -l", "(expected a value, at column 1)"),
        ("no", "(expected true, false or null, at column 2)"),
        ("[1]", "they are an array"),
        ("\"{}\"", "they are a string"),
        ("null", "they are a single value"),
        ("{x: 1}", "(expected a key in double quotes, at column 2)"),
        (
            "{\"x\": 1,}",
            "(unexpected comma behind the last value, at column 9)",
        ),
    ] {
        let said = refusal(text, arguments);
        let begin = "tool 't' was not run: its arguments are not a JSON object (";
        assert!(said.starts_with(begin) && said.contains(cause), "{said}");
        assert!(said.ends_with(&format!("they were: {arguments}")), "{said}");
    }
    let said = refusal(text, &"é".repeat(1000));
    assert!(
        said.len() < 1400 && said.ends_with("… (2000 bytes)"),
        "{said}"
    );
}

#[test]
fn a_list_or_an_object_is_no_string() {
    let text =
        "{name: t, exec: 'p ${s} ${n}', parameters: [{name: n, type: number, required: false}]}";
    for (value, kind) in [
        (r#"["ls", "-a"]"#, "an array"),
        (r#"{"c": 1}"#, "an object"),
    ] {
        let said = refusal(text, &format!("{{\"s\": {value}}}"));
        let why = format!("parameter 's' must be a string, not {kind}");
        assert!(said.contains(&why), "{said}");
        let other = format!("{{\"s\": 7, \"n\": {value}}}");
        assert!(bind_arguments(&tool(text), &other, &PLACES).is_ok());
    }
}

#[test]
fn all_that_is_wrong_with_arguments_is_said_at_once() {
    let text = "
name: t
exec: p ${file} ${mode} ${x}
parameters: [{name: mode, enum: [read, 2]}]
";
    let arguments = r#"{"fiel": "a", "zzz": 1, "mode": "write", "x": "a\u0000b"}"#;
    assert_eq!(
        refusal(text, arguments),
        "tool 't' was not run:\n\
         - unknown parameter 'fiel': did you mean 'file'? the parameters are 'file', 'mode', 'x'\n\
         - unknown parameter 'zzz': the parameters are 'file', 'mode', 'x'\n\
         - required parameter 'file' (string) is missing\n\
         - parameter 'mode' must be one of \"read\", 2, not \"write\"\n\
         - parameter 'x' holds a NUL byte, which no program argument can; leave it out"
    );
    let said = refusal("{name: t, exec: p}", r#"{"a": 1}"#);
    assert!(
        said.ends_with("unknown parameter 'a': the tool has no parameters"),
        "{said}"
    );
    let said = refusal("{name: t, exec: 'p ${a}'}", r#"{"a": "\ud800"}"#);
    assert!(said.contains("parameter 'a' is not valid JSON: "), "{said}");
    let said = refusal("{name: t, exec: 'p ${a}'}", r#"{"a": null}"#);
    assert!(
        said.contains("required parameter 'a' (string) is missing"),
        "{said}"
    );
}

#[test]
fn a_default_is_not_used_where_a_value_is_required() {
    let text = "{name: t, exec: 'p ${a}', parameters: [{name: a, default: 1, required: true}]}";
    assert!(refusal(text, "{}").contains("is missing"));
}

#[test]
fn an_enum_admits_a_number_by_its_value_and_passes_it_as_written() {
    let text = "{name: t, exec: 'p ${a}', parameters: [{name: a, type: number, enum: [1, 2]}]}";
    assert_eq!(argv_of(text, r#"{"a": 2.0}"#), ["p", "2.0"]);
    assert_eq!(argv_of(text, r#"{"a": "1"}"#), ["p", "1"]);
    assert!(refusal(text, r#"{"a": 3}"#).contains("must be one of 1, 2, not \"3\""));
}

#[test]
fn fixed_words_know_the_engines_variables() {
    let wrapper = tool("{name: t, exec: p, wrapper: [w, '${AGENT_HOME}/x', '${x}', '']}").wrapper;
    let words = fill_words(&wrapper.unwrap(), &PLACES);
    assert_eq!(words, ["w", "/agent's $HOME/x", "${x}", ""]);
}

#[test]
fn values_follow_the_command_by_position_and_in_order() {
    let text = "
name: t
command: [p]
parameters:
- {name: a}
- {name: b, position: 0}
- {name: c, inject_as: option, option_name: -c, position: 7}
- {name: d, inject_as: stdin}
- {name: e}
";
    let tool = tool(text);
    let arguments = json!({"a": "A", "b": "B", "c": "C", "d": "D", "e": "E"});
    assert_eq!(bound_to(&tool, &arguments), ["p", "B", "A", "E", "-c", "C"]);
    assert_eq!(tool.template, "p ${b} ${a} ${e} -c ${c}");
}

#[test]
fn a_list_holds_placeholders_of_declared_parameters_only() {
    let text = "
name: t
command: [p, '--x=${x}', '${y}', '${CWD}/a']
parameters: [{name: x}, {name: z}]
";
    let arguments = json!({"x": "${y}", "z": "${CWD}"});
    assert_eq!(
        bound_to(&tool(text), &arguments),
        ["p", "--x=${y}", "${y}", "/work space/a", "${CWD}"]
    );
}

#[test]
fn parameters_are_merged_with_what_is_declared() {
    let text = "
name: search
exec: grep ${pattern} ${file}
stdin: text
parameters:
- {name: text, description: T, inject_as: stdin}
- {name: file, type: string, description: The file, default: ./data.txt, minLength: 1, position: 1, raw: false}
";
    let tool = tool(text);
    let names: Vec<&str> = tool.parameters.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["pattern", "file", "text"]);
    assert_eq!(tool.parameters[1].description.as_deref(), Some("The file"));
    assert_eq!(tool.parameters[1].extra["minLength"], 1);
    let arguments = json!({"pattern": "p", "text": "t"});
    assert_eq!(bound_to(&tool, &arguments), ["grep", "p", "./data.txt"]);
    assert_eq!(
        schema(&tool)["function"]["parameters"]["required"],
        json!(["pattern", "text"])
    );
}

#[test]
fn stdin_can_be_named_beside_any_form() {
    for form in [
        "exec: tee ${f}",
        "shell: 'tee ${f}'",
        "command: [tee]\nparameters: [{name: f}]",
    ] {
        let tool = tool(&format!("name: t\n{form}\nstdin: content\n"));
        let bound = bind_arguments(&tool, r#"{"f": "x", "content": "a\u0000b"}"#, &PLACES).unwrap();
        assert_eq!(bound.argv.last().unwrap(), "x", "{form}");
        assert_eq!(bound.stdin.unwrap(), b"a\0b", "{form}");
    }
}

#[test]
fn an_absent_optional_parameter_drops_its_word_or_is_an_empty_string() {
    let declared = "parameters: [{name: a, required: false}]";
    for (form, expected) in [
        ("exec: 'p ${a} --a=${a} ${b}'", vec!["p", "B"]),
        ("exec: 'p ${a} ${b}'", vec!["p", "B"]),
        ("exec: 'p x${a}${b} ${b}'", vec!["p", "B"]),
        (
            "shell: 'p ${a} ${b}'",
            vec!["sh", "-c", "p \"$1\" \"$2\"", "--", "", "B"],
        ),
        (
            "exec: \"sh -c 'p' -- ${a} ${b}\"",
            vec!["sh", "-c", "p", "--", "B"],
        ),
    ] {
        let tool = tool(&format!("name: t\n{form}\n{declared}\n"));
        assert_eq!(bound_to(&tool, &json!({"b": "B"})), expected, "{form}");
        assert_eq!(
            bound_to(&tool, &json!({"b": "B", "a": null})),
            expected,
            "{form}"
        );
    }
    let text = "
name: t
command: [sh, -c, S, --]
parameters:
- {name: a, required: false}
- {name: o, required: false, inject_as: option, option_name: -o}
- {name: b, default: ~}
";
    assert_eq!(
        bound_to(&tool(text), &json!({})),
        ["sh", "-c", "S", "--", "", ""]
    );
}

#[test]
fn the_engines_variables_in_a_script_are_left_to_the_shell() {
    for form in [
        "shell: 'ls ${AGENT_HOME}'",
        "exec: \"sh -c 'ls \\\"${AGENT_HOME}\\\"' --\"",
        "command: [sh, -c, 'ls \"${AGENT_HOME}\"', --]",
    ] {
        let tool = tool(&format!("name: t\n{form}\n"));
        assert_eq!(
            bound_to(&tool, &json!({}))[2],
            "ls \"${AGENT_HOME}\"",
            "{form}"
        );
    }
    let tool = tool("{name: t, command: [bash, -c, 'ls ${AGENT_HOME}']}");
    assert_eq!(bound_to(&tool, &json!({}))[2], "ls /agent's $HOME");
}

const WORDS: &[&str] = &[
    "p",
    "-c",
    "sh",
    "--",
    "bash",
    "${a}",
    "${b}",
    "${c}",
    "--x=${a}",
    "${a}${b}",
    "''",
    "'a b'",
    "\"it's\"",
    "${AGENT_HOME}/x",
    "${CWD}",
    "\\${d}",
    "\\${a}",
    "$${b}",
    "'$'{b}",
    "x\\\"y",
    "-",
    "\"\\${AGENT_HOME}\"",
    "ü",
];

const PARTS: &[&str] = &[
    "echo ",
    "${a}",
    " ${b}",
    "\"${c}\"",
    " '",
    "' ",
    "\"",
    "\\",
    "\\${a}",
    "$(",
    ")",
    "`",
    "\n",
    "# ${a}\n",
    "${b:raw}",
    "${a:-x}",
    "${AGENT_HOME}",
    "cat <<E\n",
    "\nE\n",
    "-x ",
];

const TEXTS: &[&str] = &[
    "p", "sh", "-c", "--", "${a}", "x${b}", "${d}", "${", "}", "$1 ${e}", "", "\\${a}", "# ${a}",
    "${CWD}", "é\t",
];

fn pick<'t>(random: &mut fastrand::Rng, from: &[&'t str]) -> &'t str {
    from[random.usize(0..from.len())]
}

fn random_list<'t>(random: &mut fastrand::Rng, from: &[&'t str]) -> Vec<&'t str> {
    (0..random.usize(1..7))
        .map(|_| pick(random, from))
        .collect()
}

/// A YAML section of a tool that may or may not load.
fn random_node(random: &mut fastrand::Rng) -> Value {
    let script = random_list(random, PARTS).concat();
    let (form, command) = match random.u8(0..6) {
        0 | 1 => ("exec", random_list(random, WORDS).join(" ").into()),
        2 | 3 => ("shell", script.into()),
        4 => ("command", json!(["sh", "-c", script, "--"])),
        _ => ("command", random_list(random, TEXTS).into()),
    };
    let mut parameters = Vec::new();
    for name in ["a", "b", "c"] {
        if random.bool() {
            parameters.push(random_parameter(random, name, form == "command"));
        }
    }
    let mut section = json!({"name": "t", form: command, "parameters": parameters});
    if random.u8(0..4) == 0 {
        section["stdin"] = pick(random, &["c", "in"]).into();
    }
    if random.u8(0..4) == 0 {
        section["wrapper"] = json!(["w", "${a}", "${CWD}"]);
        section["env"] = json!({"A": "1", "B": "x: y\n"});
        section["timeout_ms"] = 0.into();
        section["on_resume"] = "retry".into();
    }
    section
}

fn random_parameter(random: &mut fastrand::Rng, name: &str, is_list: bool) -> Value {
    let mut parameter = json!({"name": name});
    match random.u8(0..6) {
        0 => parameter["required"] = false.into(),
        1 => parameter["default"] = pick(random, &["1", "", "x y", "${a}"]).into(),
        2 => parameter["default"] = Value::Null,
        3 => parameter["type"] = "integer".into(),
        _ => {}
    }
    match random.u8(0..5) {
        0 if is_list => {
            parameter["inject_as"] = "option".into();
            parameter["option_name"] = "-o".into();
        }
        1 if is_list => parameter["inject_as"] = "stdin".into(),
        2 if is_list => parameter["position"] = random.u8(0..4).into(),
        3 => parameter["title"] = "T: 1".into(),
        _ => {}
    }
    parameter
}

#[test]
fn the_expanded_form_loads_again_to_a_tool_that_does_the_same() {
    let mut random = fastrand::Rng::with_seed(42);
    let mut loaded = 0;
    for _ in 0..3_000 {
        let section = random_node(&mut random);
        let Ok((tool, _)) = load(&section) else {
            continue;
        };
        loaded += 1;
        let text = yaml::render(&render(std::slice::from_ref(&tool)));
        let document = yaml::parse(&text).unwrap();
        let (again, warnings) = load(&document["tools"][0])
            .unwrap_or_else(|errors| panic!("{section}\n{text}\n{errors:?}"));
        assert!(warnings.is_empty(), "{section}\n{text}\n{warnings:?}");
        assert_eq!(
            yaml::render(&render(std::slice::from_ref(&again))),
            text,
            "{section}"
        );
        assert_eq!(schema(&again), schema(&tool), "{section}\n{text}");
        let same = Tool {
            description: tool.description.clone(),
            template: tool.template.clone(),
            ..again.clone()
        };
        assert_eq!(same, tool, "{section}\n{text}");
        for _ in 0..3 {
            let mut arguments = serde_json::Map::new();
            for parameter in &tool.parameters {
                let value = match random.u8(0..5) {
                    0 => Value::Null,
                    1 => json!(17),
                    2 => json!("a 'b' \"c\" ${a}"),
                    3 => json!(""),
                    _ => continue,
                };
                arguments.insert(parameter.name.clone(), value);
            }
            let arguments = Value::Object(arguments).to_string();
            assert_eq!(
                bind_arguments(&again, &arguments, &PLACES),
                bind_arguments(&tool, &arguments, &PLACES),
                "{section}\n{text}\n{arguments}"
            );
        }
    }
    assert!(loaded > 600, "{loaded}");
}

#[test]
fn with_input_json_all_arguments_are_one_object_on_stdin() {
    let text = "name: t\ncommand: [prog, '$x']\ninput: json\nparameters:\n\
        - {name: n, type: number}\n- {name: mode, enum: [a, b], default: a}\n- {name: o, type: number, required: false}";
    let stdin = |arguments: &str| {
        let bound = bind_arguments(&tool(text), arguments, &PLACES).unwrap();
        assert_eq!(bound.argv, ["prog", "$x"]);
        String::from_utf8(bound.stdin.unwrap()).unwrap()
    };
    // Numbers keep their digits, a name that occurs twice its last value, NUL bytes are data.
    assert_eq!(
        stdin("{ \"n\": 1, \"o\" : [ 1, \" x \" ],\"n\":1.000000000000000000001}"),
        r#"{"n":1.000000000000000000001,"o":[1," x "],"mode":"a"}"#
    );
    assert_eq!(
        stdin(r#"{"n":0,"mode":null,"o":"\u0000"}"#),
        r#"{"n":0,"o":"\u0000","mode":"a"}"#
    );
    assert!(refusal(text, r#"{"n":1,"mode":"c"}"#).contains("must be one of"));
    assert!(refusal(text, "{}").contains("required parameter 'n'"));
    assert!(refusal(text, r#"{"n":1,"z":1}"#).contains("unknown parameter 'z'"));
}

#[test]
fn with_an_input_schema_any_object_reaches_the_command() {
    let text = "name: t\nexec: prog\ninput: json\ninput_schema:\n  type: object\n  properties:\n    \
        a: {type: array, items: {type: object}}\n  required: [a]";
    let tool = tool(text);
    assert_eq!(
        schema(&tool)["function"]["parameters"],
        json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}},
            "required": ["a"]})
    );
    let stdin = |arguments: &str| {
        bind_arguments(&tool, arguments, &PLACES)
            .unwrap()
            .stdin
            .unwrap()
    };
    assert_eq!(
        stdin(r#"{"a": [ {"b": "c d"} ], "z": null}"#),
        br#"{"a":[{"b":"c d"}],"z":null}"#
    );
    assert_eq!(stdin(""), b"{}");
    assert!(refusal(text, "[1]").contains("not a JSON object"));
    let again = load(&render(std::slice::from_ref(&tool))["tools"][0])
        .unwrap()
        .0;
    assert_eq!(
        schema(&again)["function"]["parameters"],
        schema(&tool)["function"]["parameters"]
    );
    assert_eq!(
        (again.input, again.command),
        (tool.input.clone(), tool.command.clone())
    );
}
