//! What `delta check` advises about the commands of tools.

use crate::harness::*;

/// What is said about a tool with this command, without file and name.
#[track_caller]
fn advice(command: &str) -> Vec<String> {
    let world = World::with_tools(&format!("- {{name: t, description: d, {command}}}"));
    let outcome = world.delta(["check", "agent"]).exits(0);
    let short = |line: &str| {
        let known = "delta: warning: agent/agent.yaml:6: tool \"t\": ";
        let line = line.strip_prefix(known);
        line.unwrap_or_else(|| panic!("{command}: {}", outcome.describe()))
            .to_owned()
    };
    // Which programs there are depends on the machine.
    let lines = outcome.stderr.lines().map(short);
    lines
        .filter(|line| !line.contains("there is no program") && !line.contains("does not exist or"))
        .collect()
}

#[test]
fn a_tool_that_runs_an_agent_without_the_key_is_warned_of() {
    for (command, is_warned) in [
        ("exec: 'delta run -q -a ${AGENT_HOME}/x -m ${t}'", true),
        ("command: [/usr/bin/delta, flow, run, x]", true),
        ("command: [delta, run, -m], parameters: [{name: t}]", true),
        ("shell: 'cd x && A=1 delta run -m ${t} | tail -n 1'", true),
        ("shell: 'x=$(delta flow run y); echo \"$x\"'", true),
        ("exec: 'delta run -m ${t}', pass_api_key: true", false),
        ("exec: 'delta run -m ${t}', pass_api_key: false", false),
        ("exec: 'delta run --dry-run -m ${t}'", false),
        ("exec: 'delta list-runs'", false),
        ("shell: 'echo delta run'", false),
        ("shell: '# delta run\nls'", false),
        ("exec: 'run delta ${t}'", false),
    ] {
        let mut said = advice(command);
        said.retain(|it| it.contains("API key"));
        assert_eq!(said.len(), usize::from(is_warned), "{command}: {said:?}");
        if is_warned {
            assert_eq!(
                said[0],
                "runs delta, which gets no API key; say pass_api_key: true, or false if it needs none"
            );
        }
    }
}

#[test]
fn a_recursive_search_that_would_read_its_own_output_is_warned_of() {
    for (command, is_warned) in [
        ("exec: 'grep -rn -e ${p} .'", true),
        ("exec: 'grep -nR -- ${p} ${path}'", true),
        ("exec: 'grep --recursive -e ${p}'", true),
        ("exec: 'rgrep -e ${p}'", true),
        ("command: [grep, -r], parameters: [{name: p}]", true),
        ("shell: 'cd src; LC_ALL=C egrep -r ${p} . | head'", true),
        ("exec: 'grep -r ${p} ${CWD}'", true),
        ("exec: 'grep -rn --exclude-dir=.delta -e ${p} .'", false),
        ("exec: 'grep -rn -e ${p} -- library'", false),
        ("exec: 'grep -rn -e ${p} ../../library'", false),
        ("exec: 'grep -n -e r ${f}'", false),
        ("exec: 'grep -er ${f}'", false),
        ("exec: 'git grep -r ${p}'", false),
        ("shell: 'ls -r | grep ${p}'", false),
        ("shell: 'grep -e ${p} f; ls -r .'", false),
    ] {
        let said = advice(command);
        assert_eq!(said.len(), usize::from(is_warned), "{command}: {said:?}");
        if is_warned {
            assert!(
                said[0].ends_with(
                    "also reads .delta, where its own output is captured, and fails; add --exclude-dir=.delta"
                ),
                "{said:?}"
            );
        }
    }
}

#[test]
fn a_script_that_is_only_a_placeholder_is_warned_of() {
    let said = "the script is only ${s}, so its value would be the name of a program and not a script; \
                write exec: 'sh -c -- ${s}'";
    for (command, warned) in [
        ("shell: '${s}'", vec![said]),
        ("shell: ' \"${s}\" '", vec![said]),
        ("shell: '${s} x'", vec![]),
        ("exec: 'sh -c -- ${s}'", vec![]),
        ("exec: '${s}'", vec![]),
    ] {
        assert_eq!(advice(command), warned, "{command}");
    }
}

#[test]
fn where_a_value_goes_is_not_guessed() {
    for command in [
        r#"shell: 'printf "%s (%s)\n" ${a} ${b}'"#,
        "exec: 'cat ${f}'",
        "exec: 'sed s/${x}// f'",
        "shell: 'my_function ${a}'",
    ] {
        assert_eq!(advice(command), [""; 0], "{command}");
    }
}

#[test]
fn the_old_name_of_the_message_is_warned_of_in_a_tool_that_runs_delta() {
    for (command, is_warned) in [
        ("exec: 'delta run -a x --task ${t}', subagent: true", true),
        ("shell: 'cd x; delta run -q --task=\"$y\" | head'", true),
        (
            "command: [/usr/bin/delta, run, --task], parameters: [{name: t}]",
            true,
        ),
        (
            "command: [delta, run, -a, x], parameters: [{name: t, inject_as: option, option_name: --task}]",
            true,
        ),
        (
            "command: [delta, run, -a, x], parameters: [{name: t, inject_as: option, option_name: -m}]",
            false,
        ),
        ("exec: 'delta run -a x -m ${t}'", false),
        ("exec: 'delta run -- --task'", false),
        ("exec: 'other run --task ${t}'", false),
    ] {
        let mut said = advice(command);
        said.retain(|it| it.contains("--task"));
        assert_eq!(said.len(), usize::from(is_warned), "{command}: {said:?}");
        if is_warned {
            assert_eq!(
                said[0],
                "runs delta with --task, which is called -m (--message) now"
            );
        }
    }
}

#[test]
fn a_directory_without_braces_is_warned_of_where_no_shell_replaces_it() {
    let bare = |word: &str, name: &str| {
        format!("{word}: no shell replaces ${name} here; write ${{{name}}}")
    };
    for (command, said) in [
        (
            "exec: 'cat $AGENT_HOME/words'",
            Some(bare("$AGENT_HOME/words", "AGENT_HOME")),
        ),
        ("exec: 'cat --from=$CWD'", Some(bare("--from=$CWD", "CWD"))),
        ("command: [cat, $CWD/x]", Some(bare("$CWD/x", "CWD"))),
        ("exec: 'cat ${AGENT_HOME}/words ${CWD}'", None),
        ("exec: 'cat $CWDS $AGENT_HOME_2'", None),
        ("shell: 'cat $AGENT_HOME/words'", None),
        ("exec: 'bash -ec $CWD/x'", None),
        ("command: [awk, '{print $CWD}']", None),
    ] {
        let mut found = advice(command);
        found.retain(|it| it.contains("no shell"));
        assert_eq!(found, Vec::from_iter(said), "{command}");
    }
}
