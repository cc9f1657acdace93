//! Tools: what reaches a command, how it is run and stopped, what the model is told.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

/// Values that a shell, a template or an option parser would not leave alone.
fn hostile_values() -> Vec<String> {
    let mut values: Vec<String> = [
        "",
        " ",
        "--help",
        "-n",
        "--",
        "it's",
        "say \"hi\"",
        "'\"'\"'",
        "a\nb",
        "ends with newlines\n\n",
        "\n",
        "tab\tand\rreturn",
        "$(id)",
        "`id`",
        "${AGENT_HOME}",
        "${CWD} ${value} ${value:raw}",
        "$HOME $1 $$ $@",
        "\"; touch pwned; \"",
        "; touch pwned #",
        "a | b > c < d & e && f || g",
        "*.md ~ [a-z] {x,y} ?",
        "back\\slash \\n \\\\ \\",
        "%s %d %n",
        "# no comment",
        "!! !x",
        "=a --b=c",
        "grüße 日本語 🦀 \u{202e}abc e\u{301}",
        "\u{1}\u{7f}\u{1b}[31m",
        "\u{feff}bom",
        "EOF\nEOF2",
    ]
    .map(String::from)
    .into();
    values.push("0123456789".repeat(10_000));
    values
}

/// Sends every hostile value through a tool that writes it to stdout, and compares bytes.
#[track_caller]
fn arrives_untouched(tool: &str, expected: impl Fn(&str) -> String) {
    let world = World::with_tools(tool);
    world.script("agent/put.sh", "#!/bin/sh\nshift\nprintf '%s' \"$*\"\n");
    let values = hostile_values();
    let ids: Vec<String> = (0..values.len()).map(|n| format!("call_{n}")).collect();
    let wanted: Vec<(&str, &str, Value)> = ids
        .iter()
        .zip(&values)
        .map(|(id, value)| (id.as_str(), "put", json!({"value": value})))
        .collect();
    world.model_says([calls(&wanted), text("done")]);
    world.run("go").exits(0).prints("done\n");
    let run = world.latest();
    for (at, value) in values.iter().enumerate() {
        let stdout = fs::read(run.execution(at + 1).join("stdout.log")).unwrap();
        let stdout = String::from_utf8(stdout).unwrap();
        assert!(
            stdout == expected(value),
            "{tool}\nsent {value:?}\ngot  {stdout:?}"
        );
    }
    assert!(!world.exists("ws/pwned"));
}

#[test]
fn a_key_in_a_tools_output_is_not_what_the_model_and_the_journal_get() {
    let key = "sk-very-secret-0";
    let world = World::with_tools("- {name: look, shell: 'cat ../env; cat ../env >&2'}");
    let spellings = [
        key,
        "%73k-very%2dsecret-0",
        "sk%252Dvery-secret-0",
        "\\u0073k-very-secret-0",
        "c2stdmVyeS1zZWNyZXQtMA==",
    ];
    world.write("env", spellings.join("\n"));
    world.model_says([call("a", "look", &json!({})), text("done")]);
    world.run("go").env("DELTA_API_KEY", key).exits(0);
    let clean = "[redacted]\n[redacted]\n[redacted]\n[redacted]\n[redacted]==";
    let told = world.server.last().observation("a");
    assert_eq!(told, format!("{clean}\n[stderr]\n{clean}"));
    let run = world.latest();
    assert_eq!(run.result(1)["observation_content"], told.as_str());
    let dir = run.result(1)["execution_ref"].as_str().unwrap().to_owned();
    assert_eq!(run.text(&format!("{dir}/stdout.log")), spellings.join("\n"));
}

#[test]
fn every_value_arrives_untouched_as_an_argument_of_exec() {
    arrives_untouched(
        "- {name: put, exec: '${AGENT_HOME}/put.sh - ${value}'}",
        str::to_owned,
    );
}

#[test]
fn every_value_arrives_untouched_inside_a_word_of_exec() {
    arrives_untouched(
        "- {name: put, exec: '${AGENT_HOME}/put.sh - --file=${value}.txt'}",
        |value| format!("--file={value}.txt"),
    );
}

#[test]
fn every_value_arrives_untouched_twice_in_exec() {
    arrives_untouched(
        "- {name: put, exec: '${AGENT_HOME}/put.sh - ${value} and ${value} end'}",
        |value| format!("{value} and {value} end"),
    );
}

#[test]
fn every_value_arrives_untouched_in_shell() {
    arrives_untouched(
        "- {name: put, shell: 'printf %s ${value} | cat'}",
        str::to_owned,
    );
}

#[test]
fn every_value_arrives_untouched_inside_double_quotes_in_shell() {
    arrives_untouched(
        "- {name: put, shell: 'printf %s \"<${value}>\"'}",
        |value| format!("<{value}>"),
    );
}

#[test]
fn every_value_arrives_untouched_in_a_here_document() {
    let tool = "- name: put\n  shell: |\n    cat <<END\n    [${value}]\n    END\n";
    arrives_untouched(tool, |value| format!("[{value}]\n"));
}

#[test]
fn every_value_arrives_untouched_as_an_argument_of_command() {
    let tool = "- name: put\n  command: ['${AGENT_HOME}/put.sh', '-']\n  \
                parameters: [{name: value, type: string, inject_as: argument}]";
    arrives_untouched(tool, str::to_owned);
}

#[test]
fn every_value_arrives_untouched_as_an_option() {
    let tool = "- name: put\n  command: ['${AGENT_HOME}/put.sh', '-']\n  \
                parameters: [{name: value, inject_as: option, option_name: --value}]";
    arrives_untouched(tool, |value| format!("--value {value}"));
}

#[test]
fn every_value_arrives_untouched_on_stdin_of_exec() {
    arrives_untouched("- {name: put, exec: cat, stdin: value}", str::to_owned);
}

#[test]
fn every_value_arrives_untouched_on_stdin_of_shell() {
    arrives_untouched(
        "- {name: put, shell: 'cat | cat', stdin: value}",
        str::to_owned,
    );
}

#[test]
fn every_value_arrives_untouched_on_stdin_of_command() {
    let tool = "- name: put\n  command: [cat]\n  parameters: [{name: value, inject_as: stdin}]";
    arrives_untouched(tool, str::to_owned);
}

/// Prints its arguments, one in brackets after the other.
const SHOW: &str = "#!/bin/sh\nfor word; do printf '[%s]' \"$word\"; done\n";

/// What a tool with this template gets for these arguments.
#[track_caller]
fn shown(tool: &str, arguments: &Value) -> String {
    let world = World::with_tools(tool);
    world.script("agent/show.sh", SHOW);
    world.observe("show", arguments)
}

#[test]
fn arguments_follow_the_words_of_a_command_in_order_of_position() {
    let tool = "- name: show\n  command: ['${AGENT_HOME}/show.sh', first]\n  parameters:\n  \
                - {name: b, position: 1}\n  - {name: a, position: 0}\n  \
                - {name: o, inject_as: option, option_name: -o}";
    let words = shown(tool, &json!({"a": "A", "b": "B", "o": "O"}));
    assert!(words.starts_with("[first]"), "{words}");
    assert!(words.contains("[A][B]"), "{words}");
    assert!(words.contains("[-o][O]"), "{words}");
}

#[test]
fn a_default_stands_in_for_an_absent_value() {
    let tool = "- name: show\n  command: ['${AGENT_HOME}/show.sh']\n  \
                parameters: [{name: directory, type: string, default: '.', inject_as: argument}]";
    assert_eq!(shown(tool, &json!({})), "[.]");
    assert_eq!(shown(tool, &json!({"directory": "src"})), "[src]");
}

#[test]
fn null_is_the_same_as_absent() {
    let tool = "- {name: show, exec: '${AGENT_HOME}/show.sh ${a} ${b}', parameters: [{name: b, default: x}]}";
    assert_eq!(shown(tool, &json!({"a": "A", "b": null})), "[A][x]");
}

#[test]
fn an_absent_optional_value_drops_its_whole_word_in_exec() {
    let tool = "- {name: show, exec: '${AGENT_HOME}/show.sh -v --file=${f} ${g} end', \
                parameters: [{name: f, required: false}, {name: g, required: false}]}";
    assert_eq!(shown(tool, &json!({})), "[-v][end]");
    assert_eq!(
        shown(tool, &json!({"f": "", "g": ""})),
        "[-v][--file=][][end]"
    );
}

#[test]
fn an_absent_optional_value_is_an_empty_string_in_shell() {
    let tool = "- {name: show, shell: '\"$AGENT_HOME\"/show.sh ${f} end', \
                parameters: [{name: f, required: false}]}";
    assert_eq!(shown(tool, &json!({})), "[][end]");
}

#[test]
fn shell_has_more_than_nine_parameters_and_repeats_them() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "a"];
    let words: Vec<String> = names.iter().map(|name| format!("${{{name}}}")).collect();
    let tool = format!(
        "- {{name: show, shell: '\"$AGENT_HOME\"/show.sh {}'}}",
        words.join(" ")
    );
    let arguments: Value = names
        .iter()
        .map(|n| ((*n).to_owned(), json!(n.to_uppercase())))
        .collect();
    assert_eq!(
        shown(&tool, &arguments),
        "[A][B][C][D][E][F][G][H][I][J][K][A]"
    );
}

#[test]
fn raw_is_split_and_globbed_and_nothing_in_it_runs() {
    let world =
        World::with_tools("- {name: show, shell: '\"$AGENT_HOME\"/show.sh ${flags:raw} end'}");
    world.script("agent/show.sh", SHOW);
    world.write("ws/one.md", "");
    let flags = json!({"flags": "-d  *.md ; touch pwned $(touch pwned)"});
    let words = world.observe("show", &flags);
    assert_eq!(words, "[-d][one.md][;][touch][pwned][$(touch][pwned)][end]");
    assert!(!world.exists("ws/pwned"));
}

#[test]
fn static_words_of_exec_may_be_quoted() {
    let tool = "- {name: show, exec: '${AGENT_HOME}/show.sh \"fixed pattern\" ${a} last'}";
    assert_eq!(
        shown(tool, &json!({"a": "x y"})),
        "[fixed pattern][x y][last]"
    );
}

#[test]
fn a_line_of_exec_that_ends_in_a_backslash_goes_on() {
    let tool = "- name: show\n  exec: |\n    ${AGENT_HOME}/show.sh \\\n      --flag ${a} \\\n      la\\\n    st";
    assert_eq!(
        shown(tool, &json!({"a": "x \\\ny"})),
        "[--flag][x \\\ny][last]"
    );
}

#[test]
fn numbers_and_booleans_are_passed_as_their_json_text() {
    let tool = "- {name: show, exec: '${AGENT_HOME}/show.sh ${a} ${b} ${c} ${d}', parameters: [\
                {name: a, type: integer}, {name: b, type: number}, {name: c, type: boolean}, {name: d, type: integer}]}";
    let arguments = json!({"a": -3, "b": 1.5, "c": true, "d": "7"});
    assert_eq!(shown(tool, &arguments), "[-3][1.5][true][7]");
}

#[test]
fn lists_and_objects_are_passed_as_compact_json() {
    let world = World::with_tools(
        "- {name: show, exec: '${AGENT_HOME}/show.sh ${a} ${b}', parameters: [{name: a, type: number}, {name: b, type: number}]}",
    );
    world.script("agent/show.sh", SHOW);
    let arguments = r#"{ "a": [1, "x y", null], "b": {"z": 1, "a": {} } }"#;
    world.model_says([with_arguments("show", &json!(arguments)), text("done")]);
    world.run("go").exits(0);
    assert_eq!(
        world.server.last().last_observation(),
        r#"[[1,"x y",null]][{"z":1,"a":{}}]"#
    );
}

#[test]
fn a_number_keeps_its_digits() {
    let world = World::with_tools("- {name: show, exec: '${AGENT_HOME}/show.sh ${a} ${b}'}");
    world.script("agent/show.sh", SHOW);
    let arguments = r#"{"a": 12345678901234567890123, "b": 1.10}"#;
    world.model_says([with_arguments("show", &json!(arguments)), text("done")]);
    world.run("go").exits(0);
    assert_eq!(
        world.server.last().last_observation(),
        "[12345678901234567890123][1.10]"
    );
}

/// A call with the `arguments` field as given.
fn with_arguments(tool: &str, arguments: &Value) -> Reply {
    let function = json!({"name": tool, "arguments": arguments});
    let call = json!({"id": "call_1", "type": "function", "function": function});
    message(&json!({"role": "assistant", "content": null, "tool_calls": [call]}))
}

/// Sends a call that cannot run; checks that nothing ran, and returns what the model was told.
#[track_caller]
fn refused(tool: &str, arguments: &Value) -> String {
    let world = World::with_tools(
        "- name: mark\n  exec: 'touch ${file} ${mode}'\n  parameters:\n  \
         - {name: mode, enum: [fast, slow], required: false}",
    );
    world.model_says([with_arguments(tool, arguments), text("done")]);
    world.run("go").exits(0).prints("done\n");
    let run = world.latest();
    assert_eq!(run.result(1)["status"], "ERROR");
    assert_eq!(run.result(1)["exit_code"], Value::Null);
    let names: Vec<_> = fs::read_dir(world.workspace())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, [".delta"], "nothing ran");
    world.server.last().last_observation()
}

#[track_caller]
fn has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} missing in {text:?}");
    }
}

#[test]
fn a_missing_argument_is_an_observation_and_nothing_runs() {
    has(&refused("mark", &json!("{}")), &["file"]);
    has(&refused("mark", &json!("{\"file\":null}")), &["file"]);
    has(&refused("mark", &json!("")), &["file"]);
}

#[test]
fn an_unknown_argument_is_an_observation_and_nothing_runs() {
    has(
        &refused("mark", &json!("{\"file\":\"x\",\"fiel\":\"y\"}")),
        &["fiel"],
    );
}

#[test]
fn a_value_outside_the_enum_is_an_observation_and_nothing_runs() {
    has(
        &refused("mark", &json!("{\"file\":\"x\",\"mode\":\"medium\"}")),
        &["mode", "medium", "fast", "slow"],
    );
}

#[test]
fn arguments_that_are_no_object_are_an_observation_and_nothing_runs() {
    has(&refused("mark", &json!("[\"x\"]")), &["[\"x\"]"]);
    has(&refused("mark", &json!("\"x\"")), &["\"x\""]);
    has(
        &refused("mark", &json!("{\"file\": \"x")),
        &["{\"file\": \"x"],
    );
}

#[test]
fn an_unknown_tool_is_an_observation_that_names_those_there_are() {
    has(
        &refused("marc", &json!("{\"file\":\"x\"}")),
        &["marc", "mark"],
    );
}

#[test]
fn a_nul_byte_in_an_argument_is_an_observation_and_nothing_runs() {
    has(
        &refused("mark", &json!("{\"file\":\"a\\u0000b\"}")),
        &["file", "NUL"],
    );
}

#[test]
fn a_nul_byte_on_stdin_is_data() {
    let world = World::with_tools("- {name: dump, exec: 'od -An -tx1', stdin: content}");
    assert_eq!(
        world.observe("dump", &json!({"content": "a\0b"})).trim(),
        "61 00 62"
    );
}

#[test]
fn arguments_may_be_an_object_or_an_empty_string() {
    let world =
        World::with_tools("- {name: show, exec: 'echo ${a}', parameters: [{name: a, default: x}]}");
    world.model_says([
        with_arguments("show", &json!({"a": "object"})),
        with_arguments("show", &json!("")),
        text("done"),
    ]);
    world.run("go").exits(0);
    let told: Vec<_> = world
        .server
        .last()
        .messages()
        .into_iter()
        .filter(|m| m["role"] == "tool")
        .collect();
    assert_eq!(told[0]["content"].as_str().unwrap().trim_end(), "object");
    assert_eq!(told[1]["content"].as_str().unwrap().trim_end(), "x");
}

#[test]
fn five_megabytes_on_stdin_arrive_whole() {
    let world = World::with_tools("- {name: sum, exec: cksum, stdin: content}");
    let content = "line of text é\n".repeat(5_000_000 / 16);
    let copy = world.write("copy", &content);
    let sum = std::process::Command::new("cksum")
        .stdin(fs::File::open(copy).unwrap())
        .output()
        .unwrap();
    let told = world.observe("sum", &json!({"content": content}));
    assert_eq!(told.trim(), String::from_utf8(sum.stdout).unwrap().trim());
    let kept = fs::read(world.latest().execution(1).join("stdin.txt")).unwrap();
    assert!(kept == content.as_bytes());
}

#[test]
fn an_argument_too_long_for_the_system_is_an_observation_with_the_remedy() {
    let world = World::with_tools("- {name: echo, exec: 'echo ${words}'}");
    let told = world.observe("echo", &json!({"words": "x".repeat(3_000_000)}));
    has(&told, &["words", "stdin"]);
    assert!(
        told.len() < 2000,
        "the value is not repeated: {} bytes",
        told.len()
    );
    assert_eq!(world.latest().result(1)["status"], "ERROR");
}

#[test]
fn a_gigabyte_of_output_does_not_show_in_memory() {
    let world = World::with_tools(
        "- {name: pour, shell: 'yes | head -c 1073741824'}\n\
         - {name: peak, shell: 'grep VmHWM /proc/$PPID/status'}",
    );
    let (pour, peak) = (call("a", "pour", &json!({})), call("b", "peak", &json!({})));
    world.model_says([pour, peak, text("done")]);
    world.run("go").exits(0);
    let told = world.server.last();
    assert!(
        told.observation("a").len() < 40_000,
        "only the ends are shown"
    );
    let peak: u64 = told
        .observation("b")
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    assert!(peak < 64 * 1024, "{peak} KiB at the peak");
    let log = fs::metadata(world.latest().execution(1).join("stdout.log")).unwrap();
    assert_eq!(log.len(), 1 << 30);
}

#[test]
fn output_can_be_followed_while_the_tool_runs() {
    let world = World::with_tools(
        "- {name: slow, shell: 'echo half; echo ready > ../ready; read go < ../go; echo whole'}",
    );
    let (mut ready, mut go) = (world.fifo("ready"), world.fifo("go"));
    world.model_says([call("a", "slow", &json!({})), text("done")]);
    let delta = world.run("go").spawn();
    ready.line();
    let log = world.latest().executions().remove(0).join("stdout.log");
    assert_eq!(fs::read_to_string(&log).unwrap(), "half\n");
    go.tell("on");
    delta.wait().exits(0);
    assert_eq!(fs::read_to_string(&log).unwrap(), "half\nwhole\n");
}

#[test]
fn a_daemon_left_behind_does_not_hold_the_run_up_and_stays() {
    let world = World::with_tools(
        "- {name: serve, shell: 'sleep 600 & echo $!; setsid sleep 600 & echo $!'}",
    );
    let told = world.observe("serve", &json!({}));
    let pids: Vec<u32> = told
        .lines()
        .map(|line| line.parse().expect("a process id"))
        .collect();
    assert_eq!(pids.len(), 2);
    for pid in pids {
        assert!(alive(pid), "{pid} was killed");
    }
}

#[test]
fn a_tool_that_takes_too_long_is_ended_and_the_run_goes_on() {
    let (world, ms, told) = with_time(200, |ms| {
        let hang = format!("- {{name: hang, shell: 'echo begun; sleep 600', timeout_ms: {ms}}}");
        let world = World::with_tools(&hang);
        let told = world.observe("hang", &json!({}));
        told.contains("begun").then_some((world, ms, told))
    });
    has(&told, &["begun\n", &format!("[timed out after {ms} ms]")]);
    let result = world.latest().result(1);
    assert_eq!(result["status"], "FAILED");
    assert_eq!(result["exit_code"], 124);
    let code = fs::read_to_string(world.latest().execution(1).join("exit_code.txt")).unwrap();
    assert_eq!(code.trim(), "124");
    eventually("the tool's processes are gone", || {
        world.processes().is_empty()
    });
}

#[test]
fn a_timeout_ends_the_whole_tree_also_what_ignores_term_and_what_left_its_group() {
    let script = "trap '' TERM\nsetsid sh -c 'trap \"\" TERM; echo $$ >> ../pids; exec sleep 600' &\n\
                  sh -c 'echo $$ >> ../pids; exec sleep 600' &\necho $$ >> ../pids\nwait\nsleep 600\n";
    let world = with_time(400, |ms| {
        let hang = format!("- {{name: hang, exec: '${{AGENT_HOME}}/hang.sh', timeout_ms: {ms}}}");
        let world = World::with_tools(&hang);
        world.script("agent/hang.sh", &format!("#!/bin/sh\n{script}"));
        world.observe("hang", &json!({}));
        (world.lines("pids").len() == 3).then_some(world)
    });
    eventually("the whole tree is gone", || world.processes().is_empty());
}

#[test]
fn the_agents_timeout_holds_for_tools_without_their_own() {
    let world = World::with_tools("- {name: hang, shell: 'sleep 600'}").top("tool_timeout_ms: 150");
    has(
        &world.observe("hang", &json!({})),
        &["[timed out after 150 ms]"],
    );
}

/// Runs a script as a tool; returns what the model was told and the result event.
#[track_caller]
fn ran(script: &str) -> (String, Value) {
    let world = World::with_tools("- {name: tool, exec: 'sh ${AGENT_HOME}/tool.sh'}");
    world.write("agent/tool.sh", script);
    let told = world.observe("tool", &json!({}));
    let result = world.latest().result(1);
    assert_eq!(result["observation_content"], told);
    let code = fs::read_to_string(world.latest().execution(1).join("exit_code.txt")).unwrap();
    assert_eq!(code.trim(), result["exit_code"].to_string());
    (told, result)
}

#[test]
fn a_tool_that_succeeds_is_told_by_its_output_alone() {
    let (told, result) = ran("echo out");
    assert_eq!(told.trim_end(), "out");
    assert_eq!(
        (&result["status"], &result["exit_code"]),
        (&json!("SUCCESS"), &json!(0))
    );
}

#[test]
fn a_tool_without_output_is_told_as_such() {
    assert_eq!(ran("true").0, "(no output)");
}

#[test]
fn stderr_and_the_exit_code_follow_the_output() {
    let (told, result) = ran("echo out; echo err >&2; exit 3");
    assert_eq!(told.trim_end(), "out\n[stderr]\nerr\n[exit code: 3]");
    assert_eq!(
        (&result["status"], &result["exit_code"]),
        (&json!("FAILED"), &json!(3))
    );
    let (told, _) = ran("printf out; printf err >&2; exit 3");
    assert_eq!(told.trim_end(), "out\n[stderr]\nerr\n[exit code: 3]");
}

#[test]
fn stderr_of_a_tool_that_succeeds_is_told_too() {
    assert_eq!(ran("echo err >&2").0.trim_end(), "[stderr]\nerr");
}

#[test]
fn a_signal_is_an_exit_code_of_128_and_more() {
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("SEGV", 139)] {
        let (told, result) = ran(&format!("kill -{signal} $$"));
        has(&told, &[&format!("[exit code: {code}]")]);
        assert_eq!(
            (&result["status"], &result["exit_code"]),
            (&json!("FAILED"), &json!(code))
        );
    }
}

#[test]
fn a_program_that_does_not_exist_is_exit_code_127() {
    let world = World::with_tools("- {name: tool, exec: no-such-program-anywhere}");
    has(
        &world.observe("tool", &json!({})),
        &["no-such-program-anywhere", "[exit code: 127]"],
    );
    let result = world.latest().result(1);
    assert_eq!(
        (&result["status"], &result["exit_code"]),
        (&json!("FAILED"), &json!(127))
    );
}

#[test]
fn a_script_without_its_interpreter_says_so() {
    for (first, why) in [
        (
            "#!/no/such/shell -e",
            "its interpreter /no/such/shell is not there",
        ),
        ("#!/bin/sh\r", "its first line ends in a carriage return"),
    ] {
        for command in [
            "./greet-me",
            "greet-me",
            "delta sandbox --ro . -- ./greet-me",
        ] {
            let world = World::with_tools(&format!("- {{name: tool, exec: {command}}}"));
            let script = world.script("ws/greet-me", &format!("{first}\necho hello\n"));
            let path = format!("{}:{}", script.parent().unwrap().display(), system_path());
            world.model_says([call("c", "tool", &json!({})), text("done")]);
            world.run("go").env("PATH", path).exits(0);
            let result = world.latest().result(1);
            has(result["observation_content"].as_str().unwrap(), &[why]);
            assert_eq!(result["exit_code"], 127, "{command}");
        }
    }
}

#[test]
fn a_program_that_cannot_be_executed_is_exit_code_126() {
    let world = World::with_tools("- {name: tool, exec: ./notes.txt}");
    world.write("ws/notes.txt", "not a program");
    has(
        &world.observe("tool", &json!({})),
        &["notes.txt", "[exit code: 126]"],
    );
    let result = world.latest().result(1);
    assert_eq!(
        (&result["status"], &result["exit_code"]),
        (&json!("FAILED"), &json!(126))
    );
}

#[test]
fn bytes_that_are_no_utf8_become_replacement_characters() {
    assert_eq!(ran("printf 'a\\377b'").0.trim_end(), "a\u{fffd}b");
}

#[test]
fn output_with_nul_bytes_is_told_as_binary() {
    assert_eq!(
        ran("printf 'a\\000b\\000c'").0.trim_end(),
        "[binary output: 5 bytes]"
    );
}

#[test]
fn long_output_is_cut_in_the_middle() {
    let world = World::with_tools("- {name: tool, exec: 'sh ${AGENT_HOME}/tool.sh'}")
        .top("max_output_bytes: 100");
    let out: String = (0..100).map(|n| format!("out {n:05}\n")).collect();
    let err: String = (0..50).map(|n| format!("err {n:05}\n")).collect();
    world.write("agent/out", &out);
    world.write("agent/err", &err);
    world.write(
        "agent/tool.sh",
        "cat \"$AGENT_HOME/out\"; cat \"$AGENT_HOME/err\" >&2",
    );
    let told = world.observe("tool", &json!({}));
    let (first, second) = told.split_once("[stderr]\n").expect("stderr");
    assert!(first.starts_with(&out[..60]), "{told}");
    assert!(first.trim_end().ends_with(out[960..].trim_end()), "{told}");
    has(first, &["[… 900 bytes omitted …]"]);
    assert!(second.starts_with(&err[..60]), "{told}");
    assert!(second.trim_end().ends_with(err[460..].trim_end()), "{told}");
    has(second, &["[… 400 bytes omitted …]"]);
    assert_eq!(
        fs::read_to_string(world.latest().execution(1).join("stdout.log")).unwrap(),
        out
    );
}

#[test]
fn output_of_exactly_the_limit_is_not_cut() {
    let world =
        World::with_tools("- {name: tool, shell: 'printf %0100d 7', max_output_bytes: 100}");
    assert_eq!(
        world.observe("tool", &json!({})).trim_end(),
        format!("{:0100}", 7)
    );
    let world =
        World::with_tools("- {name: tool, shell: 'printf %0101d 7', max_output_bytes: 100}");
    has(
        &world.observe("tool", &json!({})),
        &["[… 1 bytes omitted …]"],
    );
}

#[test]
fn output_is_cut_between_characters() {
    for limit in 97..101 {
        let tool = format!("- {{name: tool, exec: 'cat ../text', max_output_bytes: {limit}}}");
        let world = World::with_tools(&tool);
        world.write("text", "日".repeat(100));
        let told = world.observe("tool", &json!({}));
        assert!(!told.contains('\u{fffd}'), "{told}");
        let kept = told.matches('日').count() * 3;
        has(&told, &[&format!("[… {} bytes omitted …]", 300 - kept)]);
        assert!(
            kept <= limit && kept + 6 > limit,
            "{kept} of {limit} bytes kept"
        );
    }
}

#[test]
fn a_tool_runs_in_the_workspace_with_its_own_process_group_and_empty_input() {
    let script = "pwd; cut -d' ' -f5 /proc/$$/stat; echo $$; cat; echo end";
    let world = World::with_tools("- {name: tool, exec: 'sh ${AGENT_HOME}/tool.sh'}");
    world.write("agent/tool.sh", script);
    world.model_says([call("a", "tool", &json!({})), text("done")]);
    world.run("go").open_stdin().exits(0);
    let told = world.server.last().observation("a");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], world.workspace().to_str().unwrap());
    assert_eq!(lines[1], lines[2], "the leader of its group");
    assert_eq!(lines[3], "end");
}

#[test]
fn a_relative_program_with_a_slash_is_found_in_the_workspace() {
    let world = World::with_tools("- {name: tool, exec: 'bin/hello ${name}'}");
    world.script("ws/bin/hello", "#!/bin/sh\necho \"hello $1\"\n");
    assert_eq!(
        world.observe("tool", &json!({"name": "you"})).trim_end(),
        "hello you"
    );
}

#[test]
fn a_home_with_spaces_stays_one_word() {
    let world =
        World::with_tools("- {name: tool, exec: '${AGENT_HOME}/put.sh ${AGENT_HOME} ${CWD}/x'}");
    world.script("agent/put.sh", "#!/bin/sh\nprintf '%s|' \"$@\"\n");
    fs::rename(world.path("agent"), world.path("my agent")).unwrap();
    world.model_says([call("a", "tool", &json!({})), text("done")]);
    world
        .delta(["run", "-a", "my agent", "-w", "my ws", "-m", "go"])
        .exits(0);
    let home = world.home().display();
    assert_eq!(
        world.server.last().observation("a"),
        format!("{home}/my agent|{home}/my ws/x|")
    );
}

/// The environment of a tool, as `env -0` prints it.
#[track_caller]
fn environment(world: &World, delta: Delta) -> Vec<(String, String)> {
    world.model_says([call("a", "env", &json!({})), text("done")]);
    delta.exits(0);
    let all = fs::read_to_string(world.latest().execution(1).join("stdout.log")).unwrap();
    let pairs = all
        .split_terminator('\0')
        .filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[track_caller]
fn get<'a>(environment: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found: Vec<_> = environment.iter().filter(|(key, _)| key == name).collect();
    assert!(found.len() < 2, "{name} is there twice");
    Some(&found.first()?.1)
}

const ENV: &str =
    "- {name: env, exec: 'env -0', max_output_bytes: 1000000, env: {EXTRA: 'a b $c'}}";

#[test]
fn a_tool_sees_who_runs_it() {
    let world = World::with_tools(ENV);
    let env = environment(&world, world.run("go").env("INHERITED", "yes"));
    let agent = world.path("agent").display().to_string();
    let workspace = world.workspace().display().to_string();
    let run = world.latest();
    assert_eq!(get(&env, "AGENT_HOME"), Some(agent.as_str()));
    assert_eq!(get(&env, "DELTA_AGENT_HOME"), Some(agent.as_str()));
    assert_eq!(get(&env, "CWD"), Some(workspace.as_str()));
    assert_eq!(get(&env, "DELTA_CWD"), Some(workspace.as_str()));
    assert_eq!(get(&env, "DELTA_RUN_ID"), Some(run.id().as_str()));
    assert_eq!(get(&env, "DELTA_RUN_DIR"), run.dir.to_str());
    assert_eq!(get(&env, "DELTA_DEPTH"), Some("1"));
    assert_eq!(get(&env, "INHERITED"), Some("yes"));
    assert_eq!(get(&env, "EXTRA"), Some("a b $c"));
    assert!(get(&env, "DELTA_CALL_ID").is_some_and(|id| !id.is_empty()));
}

#[test]
fn a_tool_does_not_see_the_key() {
    let world = World::with_tools(ENV);
    let run = world
        .run("go")
        .env("DELTA_API_KEY", "sk-delta")
        .env("OPENAI_API_KEY", "sk-openai");
    let env = environment(&world, run);
    assert_eq!(get(&env, "DELTA_API_KEY"), None);
    assert_eq!(get(&env, "OPENAI_API_KEY"), None);
    assert_eq!(
        world.server.last().header("authorization"),
        Some("Bearer sk-delta")
    );
}

#[test]
fn a_tool_sees_the_key_if_the_agent_says_so() {
    let script = "- {name: look, shell: 'test \"$DELTA_API_KEY\" = sk-delta && echo there', pass_api_key: true}";
    let world = World::with_tools(script);
    world.model_says([call("a", "look", &json!({})), text("done")]);
    world.run("go").env("DELTA_API_KEY", "sk-delta").exits(0);
    assert_eq!(world.server.last().observation("a").trim_end(), "there");
}

#[test]
fn every_call_has_an_id_of_its_own_whatever_the_server_says() {
    let world = World::with_tools("- {name: id, shell: ': ${n}; echo $DELTA_CALL_ID >> ../ids'}");
    let same = || {
        calls(&[
            ("same", "id", json!({"n": 1})),
            ("same", "id", json!({"n": 2})),
            ("same", "id", json!({"n": 2})),
            ("", "id", json!({"n": 2})),
        ])
    };
    world.model_says([same(), same(), text("done")]);
    world.run("go").exits(0);
    let mut ids = world.lines("ids");
    assert_eq!(ids.len(), 6);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6, "{ids:?}");
}

#[test]
fn a_wrapper_stands_before_the_tools_own_words() {
    let world = World::with_tools(
        "- {name: plain, shell: 'echo $MARK ${x}'}\n\
         - {name: other, shell: 'echo $MARK', wrapper: [env, MARK=other]}\n\
         - {name: none, shell: 'echo \"<$MARK>\"', wrapper: []}",
    )
    .top("wrapper: [env, MARK=agent]");
    let wanted = [
        ("a", "plain", json!({"x": "y z"})),
        ("b", "other", json!({})),
        ("c", "none", json!({})),
    ];
    world.model_says([calls(&wanted), text("done")]);
    world.run("go").exits(0);
    let told = world.server.last();
    assert_eq!(told.observation("a").trim_end(), "agent y z");
    assert_eq!(told.observation("b").trim_end(), "other");
    assert_eq!(told.observation("c").trim_end(), "<>");
}

#[test]
fn calls_of_one_message_run_one_after_the_other_in_their_order() {
    let world = World::with_tools(
        "- {name: log, shell: 'echo begin ${n} >> log; sleep 0.02; echo end ${n} >> log'}",
    );
    let wanted: Vec<_> = ["a", "b", "c"]
        .map(|id| (id, "log", json!({"n": id})))
        .into();
    world.model_says([calls(&wanted), text("done")]);
    world.run("go").exits(0);
    assert_eq!(
        world.lines("ws/log"),
        ["begin a", "end a", "begin b", "end b", "begin c", "end c"]
    );
}

#[test]
fn a_tool_leaves_its_command_output_code_and_time() {
    let world = World::with_tools("- {name: tee, exec: 'tee ${file}', stdin: content}");
    world.observe("tee", &json!({"file": "a b", "content": "text"}));
    let dir = world.latest().execution(1);
    let name = dir.file_name().unwrap().to_str().unwrap();
    assert_eq!(&name["20260102T030405.678Z".len()..], "_tee", "{name}");
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(read("stdin.txt"), "text");
    assert_eq!(read("stdout.log"), "text");
    assert_eq!(read("stderr.log"), "");
    assert_eq!(read("exit_code.txt").trim(), "0");
    assert!(read("duration_ms.txt").trim().parse::<u64>().is_ok());
    assert_eq!(
        shlex::split(read("command.txt").trim()).unwrap(),
        ["tee", "a b"]
    );
    assert_eq!(
        fs::metadata(dir.join("stdout.log")).unwrap().mode() & 0o777,
        0o600
    );
}

#[test]
fn a_tool_that_reads_no_input_leaves_no_file_of_it() {
    let world = World::with_tools("- {name: tool, exec: 'echo ${x}'}");
    world.observe("tool", &json!({"x": "y"}));
    assert!(!world.latest().execution(1).join("stdin.txt").exists());
}

/// Puts something else into the place of its own output.
const SWAP: &str = "d=$(echo \"$DELTA_RUN_DIR\"/io/tool_executions/*)\nrm \"$d/stdout.log\"\n";

#[test]
fn a_tool_that_makes_its_output_a_pipe_does_not_hang_the_run() {
    let world = World::with_tools("- {name: swap, exec: 'sh ${AGENT_HOME}/swap.sh'}");
    let script = format!("{SWAP}mkfifo \"$d/stdout.log\"\necho said\n");
    world.write("agent/swap.sh", script);
    assert_eq!(world.observe("swap", &json!({})), "said\n");
}

#[test]
fn output_that_became_a_pipe_or_a_link_does_not_hang_the_next_start() {
    for swap in ["mkfifo", "ln -s \"$HOME/private\""] {
        let world = World::with_tools("- {name: swap, exec: 'sh ${AGENT_HOME}/swap.sh'}");
        world.write("private", "not for the model");
        let script = format!("{SWAP}{swap} \"$d/stdout.log\"\necho up > ../ready\nsleep 600\n");
        world.write("agent/swap.sh", script);
        let mut ready = world.fifo("ready");
        world.model_says([call("a", "swap", &json!({}))]);
        let delta = world.run("go").spawn();
        ready.line();
        delta.kill();
        world.model_says([text("done")]);
        world.run("go").exits(0).prints("done\n");
        let told = world.server.last().observation("a");
        assert!(!told.contains("not for the model"), "{told}");
    }
}

#[test]
fn a_link_among_the_records_of_a_call_that_was_cut_brings_the_model_nothing() {
    let tools = "- {name: wait, shell: 'echo said; echo up > ../ready; exec sleep 600'}";
    let cut = || {
        let world = World::with_tools(tools);
        let mut ready = world.fifo("ready");
        world.model_says([call("a", "wait", &json!({}))]);
        let delta = world.run("go").spawn();
        ready.line();
        delta.kill();
        world.model_says([text("done")]);
        for name in ["stdout.log", "stderr.log", "exit_code.txt"] {
            world.write(&format!("private/{name}"), "not for the model\n");
        }
        world
    };
    let execution = |world: &World| {
        let all = world.latest().path("io/tool_executions");
        let mut entries = fs::read_dir(all).unwrap();
        entries.next().unwrap().unwrap().path()
    };
    let told = |world: &World| {
        world.run("go").exits(0).prints("done\n");
        let told = world.server.last().observation("a");
        assert!(!told.contains("not for the model"), "{told}");
        let journal = fs::read_to_string(world.latest().path("journal.jsonl")).unwrap();
        assert!(!journal.contains("not for the model"), "{journal}");
        told
    };
    let unknown = "whether it finished is unknown";

    let world = cut();
    let dir = execution(&world);
    symlink(
        world.path("private/exit_code.txt"),
        dir.join("exit_code.txt"),
    )
    .unwrap();
    let shown = told(&world);
    assert!(
        shown.contains("said\n") && shown.contains(unknown),
        "{shown}"
    );

    // Whatever the file has that is no code.
    let world = cut();
    let code = execution(&world).join("exit_code.txt");
    fs::write(code, "not for the model\n").unwrap();
    assert!(told(&world).contains(unknown));

    let world = cut();
    let dir = execution(&world);
    fs::write(dir.join("exit_code.txt"), "-7\n").unwrap();
    assert!(told(&world).contains("it had ended with exit code -7"));

    // A hook is not given it either.
    let world = cut();
    let hooks = "post_tool_execution: {command: [sh, -c, 'cat > ../given']}\n";
    world.write("agent/hooks.yaml", hooks);
    let dir = execution(&world);
    fs::remove_dir_all(&dir).unwrap();
    symlink(world.path("private"), &dir).unwrap();
    told(&world);
    let given = world.read("given");
    assert!(!given.contains("not for the model"), "{given}");
}

#[test]
fn a_link_in_the_place_of_a_temporary_file_is_not_followed() {
    let world = World::with_tools(
        "- {name: plant, shell: 'ln -s \"$HOME/victim\" \"$DELTA_RUN_DIR/.metadata.json.tmp\"'}",
    );
    world.write("victim", "untouched");
    world.observe("plant", &json!({}));
    assert_eq!(world.read("victim"), "untouched");
    let metadata = world.latest().path("metadata.json");
    assert!(fs::symlink_metadata(metadata).unwrap().is_file());
    assert_eq!(world.latest().ending().0, "COMPLETED");
}

#[test]
fn an_endpoint_from_the_workspace_is_not_in_the_environment_of_what_is_started() {
    let world = World::with_tools("- {name: look, shell: 'env > ../tool.env'}");
    let sources = "sources:\n  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}\n  \
        - type: computed_file\n    id: facts\n    output_path: '${CWD}/facts'\n    \
        generator: {command: [sh, -c, 'env > ../generator.env; echo x > facts']}\n  \
        - {type: journal}\n";
    world.write("agent/context.yaml", sources);
    world.write(
        "agent/hooks.yaml",
        "on_run_end: {command: [sh, -c, 'env > ../hook.env']}\n",
    );
    let names = ["DELTA_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_URL"];
    let lines = names.map(|name| format!("{name}=http://127.0.0.1:9/v1\n"));
    world.write("ws/.env", lines.concat() + "OTHER=seen\n");
    world.observe("look", &json!({}));
    for file in ["tool.env", "hook.env", "generator.env"] {
        let environment = world.lines(file);
        // What a workspace sets besides is for tools alone.
        assert_eq!(
            environment.iter().any(|line| line == "OTHER=seen"),
            file == "tool.env",
            "{file}"
        );
        let names_one = |line: &String| names.iter().any(|name| line.starts_with(name));
        assert!(
            !environment.iter().any(names_one),
            "{file}: {environment:?}"
        );
    }
}

#[test]
fn values_can_be_the_positional_parameters_that_a_script_sets() {
    let world = World::with_tools(
        "- name: count\n  shell: |\n    set -- ${flags:raw} ${file}\n    printf '%s.' $# \"$@\"",
    );
    let arguments = json!({"flags": "-a -b", "file": "x y"});
    assert_eq!(world.observe("count", &arguments), "3.-a.-b.x y.");
}
