//! `delta check`: what it says beyond what keeps an agent from running.

use crate::harness::*;
use serde_json::json;
use std::fs;

const SYSTEM: &str = "  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}\n";

impl World {
    /// What `delta check` says about the agent, without the program's name and the agent's directory.
    #[track_caller]
    fn advice(&self) -> Vec<String> {
        let outcome = self.delta(["check", "agent"]).end().exits(0);
        let line = |line: &str| {
            let line = line.strip_prefix("delta: warning: agent/").unwrap_or(line);
            line.to_owned()
        };
        outcome.stderr.lines().map(line).collect()
    }
}

/// What is said about the values of a tool with this command, without what all messages share.
#[track_caller]
fn exposed(command: &str) -> Vec<String> {
    let world = World::with_tools(&format!("- {{name: t, description: d, {command}}}"));
    let known = "would be taken for an option; ";
    let short = |line: String| {
        let line = line.strip_prefix("agent.yaml:6: tool \"t\": a value of ");
        let line = line.unwrap_or_else(|| panic!("{command}"));
        line.replace(&format!(" that begins with - {known}"), ": ")
    };
    let advice = world.advice().into_iter();
    // That depends on the machine.
    let advice = advice.filter(|line| !line.contains("there is no program"));
    advice.map(short).collect()
}

#[test]
fn a_value_that_could_be_an_option_is_warned_of_unless_something_keeps_it_from_being_one() {
    let put = "put -- before it";
    for (command, said) in [
        ("exec: 'cat ${f}'", vec![format!("'f': {put}")]),
        ("exec: 'cat -- ${f}'", vec![]),
        ("exec: 'cat --file=${f}'", vec![]),
        ("exec: 'cat x${f}'", vec![]),
        ("exec: 'cat ${f}.txt'", vec![format!("'f': {put}")]),
        (
            "exec: 'cp ${a} ${b}'",
            vec![format!("'a': {put}"), format!("'b': {put}")],
        ),
        ("exec: 'cp ${a} -- ${b}'", vec![format!("'a': {put}")]),
        (
            "exec: 'ls -l ${d}'",
            vec![format!("'d': {put}, or write -l${{d}} if it belongs to -l")],
        ),
        (
            "exec: 'ls --sort ${d}'",
            vec![format!(
                "'d': {put}, or write --sort=${{d}} if it belongs to --sort"
            )],
        ),
        ("exec: 'ls -la ${d}'", vec![format!("'d': {put}")]),
        (
            "exec: 'echo ${x}'",
            vec!["'x': echo knows no --; write printf '%s\\n' ${x}".to_owned()],
        ),
        ("exec: \"printf '%s' ${x}\"", vec![]),
        ("exec: 'printf ${x}'", vec![format!("'x': {put}")]),
        (r#"shell: 'printf "%s (%s)\n" ${x}'"#, vec![]),
        (
            r#"shell: 'a=$(printf "%s (%s)\n" ${x}); echo "$a"'"#,
            vec![],
        ),
        (r#"shell: 'printf "- %s (%s)\n" ${x}'"#, vec![]),
        (r#"shell: 'printf -v a "%s (%s)\n" ${x}'"#, vec![]),
        (r#"shell: '>&2 printf "%s (%s)\n" ${x}'"#, vec![]),
        (r#"shell: '2>/dev/null > y printf "%s" ${x}'"#, vec![]),
        (r#"shell: 'env A=1 nice -n 5 printf "%s" ${x}'"#, vec![]),
        (r#"shell: 'xargs -I {} printf "%s {}" ${x}'"#, vec![]),
        ("shell: 'echo a ${x}'", vec![]),
        ("shell: 'nice -n 5 cat ${f}'", vec![format!("'f': {put}")]),
        ("shell: 'env ${f}'", vec![format!("'f': {put}")]),
        ("shell: '>&2 cat ${f}'", vec![format!("'f': {put}")]),
        ("exec: 'grep -e ${p} -- ${f}'", vec![]),
        ("exec: 'find . -name ${p}'", vec![]),
        ("exec: 'find ${p}'", vec![format!("'p': {put}")]),
        ("exec: 'python3 -c pass ${x}'", vec![]),
        ("exec: 'python3 -c ${x}'", vec![]),
        ("exec: 'sh -c ${x}'", vec![format!("'x': {put}")]),
        ("exec: 'sh -c -- ${x}'", vec![]),
        (
            "exec: '${program} ${x}', parameters: [{name: program, enum: [cat]}]",
            vec![],
        ),
        (
            "exec: 'ls ${d}', parameters: [{name: d, enum: [a, b]}]",
            vec![],
        ),
        (
            "exec: 'ls ${d}', parameters: [{name: d, enum: [a, -b]}]",
            vec![format!("'d': {put}")],
        ),
        ("exec: 'cat', stdin: x", vec![]),
        (
            "command: [ls], parameters: [{name: d}]",
            vec![format!("'d': {put}")],
        ),
        ("command: [ls, --], parameters: [{name: d}]", vec![]),
        (
            "command: [ls], parameters: [{name: d, inject_as: option, option_name: --sort}]",
            vec![],
        ),
        ("shell: 'cat ${f} | wc'", vec![format!("'f': {put}")]),
        ("shell: 'cat -- ${f} | wc'", vec![]),
        (
            "shell: 'cat -- ${f} | wc ${g}'",
            vec![format!("'g': {put}")],
        ),
        ("shell: 'cat < ${f} > ${g}'", vec![]),
        ("shell: 'X=${f} cat <<E\n\n ${g}\n\n E\n'", vec![]),
        (
            "shell: 'if [ -n ${f} ]; then A=1 cat \"${f}\"; fi'",
            vec![format!("'f': {put}")],
        ),
        ("shell: 'for x in ${f}; do cat -- \"$x\"; done'", vec![]),
        (
            "shell: 'echo a; cat \"x;\" ${f}'",
            vec![format!("'f': {put}")],
        ),
        ("shell: 'cat \"$(ls -- \"${f}\")\"'", vec![]),
        ("shell: 'cat ${f} ${f}'", vec![format!("'f': {put}")]),
    ] {
        assert_eq!(exposed(command), said, "{command}");
    }
}

#[test]
fn a_value_that_would_be_part_of_code_is_warned_of() {
    let behind = "write it behind the code, as an argument of its own";
    for (command, said) in [
        ("shell: 'printf \"%s %s\" sed \"a ${x}\"'", vec![]),
        ("shell: 'echo awk \"a ${x}\"'", vec![]),
        (
            "exec: 'python3 -c \"print(${x})\"'",
            vec![("x", "python3", behind)],
        ),
        (
            "command: [perl, -ne, 'print if /${x}/'], parameters: [{name: x}]",
            vec![("x", "perl", behind)],
        ),
        ("exec: 'python3 -c ${x}'", vec![]),
        ("exec: 'python3 -c pass x${x}'", vec![]),
        (
            "exec: 'python3 -c \"${x}.\"', parameters: [{name: x, enum: [a]}]",
            vec![],
        ),
        (
            "exec: 'awk -F , /${x}/ f'",
            vec![("x", "awk", "write -v x=${x} before the code")],
        ),
        ("exec: 'awk -v x=${x} \"{print x}\" ./${f}'", vec![]),
        (
            "exec: 'sed s/${x}// f'",
            vec![(
                "x",
                "sed",
                "sed takes no value as data; use another program, or list the values in enum:",
            )],
        ),
        ("exec: 'sed -e 1d x${f}'", vec![]),
        (
            "shell: 'cd /; eval \"echo ${x}\"'",
            vec![("x", "eval", "without eval it is one word")],
        ),
        (
            "shell: 'sh -c \"cd a; ls -- ${x} ${x}\" && true'",
            vec![(
                "x",
                "sh",
                "write \"$1\" there, and -- ${x} behind the script",
            )],
        ),
        ("shell: 'sh -c -- \"${x}\"'", vec![]),
        (
            "exec: 'env A=1 python3 -c \"print(${x})\"'",
            vec![("x", "python3", behind)],
        ),
        ("shell: 'echo eval a${x}'", vec![]),
        ("shell: 'sh -c ls -- ./${x}'", vec![]),
        (
            "shell: 'trap \"rm -- ${x}\" EXIT'",
            vec![(
                "x",
                "trap",
                "assign it to a variable, and use that in single quotes",
            )],
        ),
        ("shell: 'python3 -c pass \"a ${x}\"'", vec![]),
        ("shell: 'echo \"$(cat -- ${x})\" a${x}'", vec![]),
    ] {
        let world = World::with_tools(&format!("- {{name: t, description: d, {command}}}"));
        let said = said.into_iter().map(|(name, program, way_out)| {
            format!(
                "agent.yaml:6: tool \"t\": the value of '{name}' would be part of the code that {program} runs; {way_out}"
            )
        });
        assert_eq!(world.advice(), said.collect::<Vec<_>>(), "{command}");
    }
}

#[test]
fn the_agents_own_programs_are_left_to_its_author() {
    let world = World::with_tools(
        "- {name: a, description: d, exec: '${AGENT_HOME}/own.sh ${x}'}\n\
         - {name: b, description: d, exec: 'sh ${AGENT_HOME}/own.sh ${x}'}",
    );
    world.script("agent/own.sh", "#!/bin/sh\n");
    assert_eq!(world.advice(), [""; 0]);
}

#[test]
fn raw_and_a_missing_description_are_warned_of() {
    let world = World::with_tools("- name: t\n  shell: ls ${flags:raw} ${flags:raw} -- ${dir}");
    assert_eq!(
        world.advice(),
        [
            "agent.yaml:6: tool \"t\": has no description; the model is shown its command instead",
            "agent.yaml:7: tool \"t\": ${flags:raw} is split into words and its patterns are \
             expanded, and each word can be an option; write ${flags} unless that is what it is for",
        ]
    );
}

#[test]
fn a_program_that_is_not_there_is_warned_of_wherever_one_is_named() {
    let world = World::with_tools(
        "- {name: a, description: d, exec: nonsuch}\n\
         - {name: b, description: d, exec: '${AGENT_HOME}/gone.sh'}\n\
         - {name: c, description: d, exec: '${AGENT_HOME}/plain.sh'}\n\
         - {name: d, description: d, exec: 'sh ${AGENT_HOME}/gone.sh'}\n\
         - {name: e, description: d, exec: /no/such}\n\
         - {name: f, description: d, exec: ls, wrapper: [nonsuch, --]}\n\
         - {name: g, description: d, exec: './later.sh ${CWD}/x'}\n\
         - {name: h, description: d, exec: '${CWD}/later.sh'}",
    )
    .llm("command: [no-model]")
    .top("wrapper: [no-box]");
    world.write("agent/plain.sh", "");
    world.write(
        "agent/hooks.yaml",
        "on_error: {command: ['${AGENT_HOME}/gone.sh']}\n\
         on_run_end:\n  - {command: [ls]}\n  - {command: [no-hook]}\n",
    );
    world.write(
        "agent/context.yaml",
        format!(
            "sources:\n{SYSTEM}  - type: computed_file\n    generator: {{command: [no-generator]}}\n    \
             output_path: x\n  - {{type: journal}}\n"
        ),
    );
    let install =
        |name: &str| format!("there is no program '{name}' in PATH; install it, or name another");
    assert_eq!(
        world.advice(),
        [
            format!("agent.yaml:2: wrapper: {}", install("no-box")),
            format!("agent.yaml:5: command: {}", install("no-model")),
            format!("agent.yaml:7: tool \"a\": {}", install("nonsuch")),
            "agent.yaml:8: tool \"b\": gone.sh is not there; create it".to_owned(),
            "agent.yaml:9: tool \"c\": plain.sh cannot be executed; chmod +x plain.sh".to_owned(),
            "agent.yaml:10: tool \"d\": gone.sh is not there; create it".to_owned(),
            "agent.yaml:11: tool \"e\": /no/such is not there, or cannot be executed".to_owned(),
            format!("agent.yaml:12: tool \"f\": wrapper: {}", install("nonsuch")),
            format!("context.yaml:4: command: {}", install("no-generator")),
            "hooks.yaml:1: command: gone.sh is not there; create it".to_owned(),
            format!("hooks.yaml:4: command: {}", install("no-hook")),
        ]
    );
}

#[test]
fn programs_are_looked_for_where_the_agents_env_file_says() {
    let world = World::with_tools("- {name: a, description: d, exec: own-program}");
    world.script("bin/own-program", "#!/bin/sh\n");
    assert_eq!(world.advice().len(), 1);
    let path = format!("PATH={}\n", world.path("bin").display());
    world.write("agent/.env", path);
    assert_eq!(world.advice(), [""; 0]);
}

#[test]
fn what_is_wrong_with_the_env_file_is_told() {
    let world = World::new();
    world.write("agent/.env", "A=1\nnot a pair\n");
    let outcome = world.delta(["check", "agent"]).end().exits(0);
    outcome.says("agent/.env:2: not NAME=value, passed over");
}

#[test]
fn a_prompt_that_no_source_shows_is_warned_of() {
    let missing = "context.yaml:1: sources: none of them shows system_prompt.md, so the model is not told \
                   what is in it; add {type: file, path: '${AGENT_HOME}/system_prompt.md'}";
    let computed = "  - {type: computed_file, output_path: x, generator: {command: [cat, ";
    for (sources, said) in [
        (String::new(), Some(missing)),
        (SYSTEM.to_owned(), None),
        (
            "  - {type: file, path: '${AGENT_HOME}/./link.md'}\n".to_owned(),
            None,
        ),
        (
            "  - {type: file, path: '${AGENT_HOME}/other.md'}\n".to_owned(),
            Some(missing),
        ),
        (format!("{computed}x]}}}}\n"), Some(missing)),
        (
            format!("{computed}'${{AGENT_HOME}}/system_prompt.md']}}}}\n"),
            None,
        ),
    ] {
        let world = World::new();
        world.write("agent/other.md", "other");
        std::os::unix::fs::symlink("system_prompt.md", world.path("agent/link.md")).unwrap();
        let context = format!("sources:\n{sources}  - {{type: journal}}\n");
        world.write("agent/context.yaml", &context);
        assert_eq!(world.advice(), Vec::from_iter(said), "{context}");
    }
}

#[test]
fn a_context_without_a_journal_is_warned_of_by_check_and_by_run() {
    let world = World::new();
    world.write("agent/context.yaml", format!("sources:\n{SYSTEM}"));
    let said = "context.yaml:1: sources: no journal among them; the model will not see its task";
    assert_eq!(world.advice(), [said]);
    world.server.accepts_anything().says([text("done")]);
    world.run("go").end().exits(0).says(said);
}

#[test]
fn run_keeps_advice_to_itself() {
    let world = World::with_tools("- {name: t, shell: 'ls ${flags:raw} ${d}'}");
    assert_eq!(world.advice().len(), 3);
    world.server.says([text("done")]);
    world.run("go").end().exits(0).does_not_say("warning");
}

#[test]
fn advice_is_given_also_where_there_are_errors() {
    let world = World::with_tools("- {name: t, exec: 'ls ${d}'}").top("max_iterations: many");
    fs::remove_file(world.path("agent/system_prompt.md")).unwrap();
    world
        .delta(["check", "agent"])
        .end()
        .exits(78)
        .prints("")
        .says("max_iterations")
        .says("system_prompt.md is not there")
        .says("has no description")
        .says("would be taken for an option");
}

#[test]
fn a_main_file_that_cannot_be_read_hides_nothing_else() {
    let world = World::new();
    world.write("agent/agent.yaml", "name: [\n");
    world.write("agent/hooks.yaml", "on_error: 3\n");
    world.write("agent/context.yaml", "sources: 3\n");
    world
        .delta(["check", "agent"])
        .end()
        .exits(78)
        .says("agent/agent.yaml:2:1: not valid YAML")
        .says("agent/hooks.yaml:1: on_error: expected {command: […]}, found the number 3")
        .says("agent/context.yaml:1: sources: expected a list, found the number 3");
}

#[test]
fn json_has_one_object_for_editors() {
    let world = World::with_tools(
        "- {name: t, description: d, exec: 'ls ${d}'}\n- {name: u, exec: 'a | b'}",
    )
    .top("colour: red");
    fs::remove_file(world.path("agent/context.yaml")).unwrap();
    world.write("agent/hooks.yaml", "pre_llm_req: {command: [ls]}\n");
    let outcome = world.delta(["check", "agent"]).json().end().exits(78);
    assert_eq!(outcome.stderr, "");
    let object = outcome.object();
    assert_eq!(object["ok"], false);
    let problems = object["problems"].as_array().unwrap();
    let short = |problem: &serde_json::Value| {
        let text = |key: &str| problem[key].as_str().unwrap().to_owned();
        let message: String = text("message").chars().take(24).collect();
        (
            text("severity"),
            text("file"),
            problem["line"].clone(),
            message,
        )
    };
    let said: Vec<_> = problems.iter().map(short).collect();
    let row = |severity: &str, file: &str, line, message: &str| {
        (
            severity.to_owned(),
            format!("agent/{file}"),
            line,
            message.to_owned(),
        )
    };
    assert_eq!(
        said,
        [
            row("warning", "agent.yaml", json!(2), "unknown key 'colour'"),
            row(
                "warning",
                "agent.yaml",
                json!(7),
                "tool \"t\": a value of 'd'"
            ),
            row(
                "error",
                "agent.yaml",
                json!(8),
                "tool \"u\": Shell metachar"
            ),
            row(
                "error",
                "context.yaml",
                json!(null),
                "it is not there, and the"
            ),
            row(
                "deprecation",
                "hooks.yaml",
                json!(1),
                "pre_llm_req is called pr"
            ),
        ]
    );
    let syntax = World::new();
    syntax.write("agent/agent.yaml", "name: probe\nllm: {\n");
    let object = syntax
        .delta(["check", "agent"])
        .json()
        .end()
        .exits(78)
        .object();
    assert_eq!(object["problems"][0]["line"], 3);
    assert_eq!(object["problems"][0]["column"], 1);
    let good = World::new()
        .delta(["check", "agent"])
        .json()
        .end()
        .exits(0)
        .object();
    assert_eq!(good, json!({"ok": true, "problems": []}));
    let nowhere = World::new()
        .delta(["check", "x"])
        .json()
        .end()
        .exits(78)
        .object();
    assert_eq!(nowhere["problems"][0]["file"], "x");
}
