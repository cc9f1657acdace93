//! No value that a model can produce reaches anything but one element of argv or stdin: random
//! strings through every form of tool, compared byte for byte with what the program received.

use crate::harness::*;
use fastrand::Rng;
use serde_json::{Value, json};
use std::fs;

/// How many values go through each form.
const VALUES: usize = 40;

/// What one element of argv may hold at most: `MAX_ARG_STRLEN` of Linux, with the NUL at its end.
const LONGEST: usize = 128 * 1024 - 1;

/// What a shell, a template, a parser or a terminal could take for something else.
const PIECES: [&str; 44] = [
    "a",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\0",
    "'",
    "''",
    "\"",
    "\"\"",
    "\\",
    "\\\\",
    "\\n",
    "\\0",
    "$",
    "$$",
    "$1",
    "$@",
    "$'x'",
    "${",
    "}",
    "${v}",
    "${w}",
    "${v:raw}",
    "${AGENT_HOME}",
    "$HOME",
    "$(touch pwned)",
    "`touch pwned`",
    "';touch pwned;'",
    "\";touch pwned;\"",
    "\nEND\ntouch pwned\n",
    "|touch pwned",
    "&& touch pwned",
    ">pwned",
    "<(touch pwned)",
    "$((x[$(touch pwned)]))",
    "*",
    "~",
    "-",
    "--",
    "#",
    "%s%n",
    "\u{1b}[31m\u{7f}",
    "é日🦀\u{202e}\u{feff}",
];

/// Any string that JSON can carry: pieces, and any character at all.
fn value(random: &mut Rng) -> String {
    let mut value = String::new();
    for _ in 0..random.usize(0..12) {
        if random.u8(0..4) > 0 {
            value += random.choice(PIECES).unwrap_or_default();
        } else {
            value.push(random.char(..));
        }
    }
    value
}

/// The values of a test: mostly short, and one that is longer than an argument and a pipe can be.
fn values(random: &mut Rng) -> Vec<String> {
    let mut values: Vec<String> = (1..VALUES).map(|_| value(random)).collect();
    let mut long = String::new();
    while long.len() < 2 * LONGEST {
        long += &value(random);
        long.push(random.alphanumeric());
    }
    values.push(long);
    values
}

/// Where a value arrives.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// In elements of argv, which [`Form::program`] prints with a NUL behind each.
    Argv,
    /// In the text of a here-document, which is printed.
    Document,
    /// On stdin, which is printed.
    Stdin,
}

/// A way to write a tool, and what its program gets for the values `v` and `w`.
struct Form {
    name: &'static str,
    tool: &'static str,
    place: Place,
    received: fn(&str, &str) -> Vec<String>,
}

fn own(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

const FORMS: [Form; 14] = [
    Form {
        name: "exec_words",
        tool: r"exec: '/usr/bin/printf %s\\0 ${v} ${w}'",
        place: Place::Argv,
        received: |v, w| own(&[v, w]),
    },
    Form {
        name: "exec_inside_a_word",
        tool: r"exec: '/usr/bin/printf %s\\0 --o=${v}.${w}x'",
        place: Place::Argv,
        received: |v, w| vec![format!("--o={v}.{w}x")],
    },
    Form {
        name: "exec_before_words_and_again",
        tool: r#"exec: '/usr/bin/printf %s\\0 ${v} "two words" ${w} ${v}'"#,
        place: Place::Argv,
        received: |v, w| own(&[v, "two words", w, v]),
    },
    Form {
        name: "exec_through_env",
        tool: r"exec: 'env -- /usr/bin/printf %s\\0 x${v} x${w}'",
        place: Place::Argv,
        received: |v, w| vec![format!("x{v}"), format!("x{w}")],
    },
    Form {
        name: "exec_stdin",
        tool: "exec: cat\n  stdin: v",
        place: Place::Stdin,
        received: |v, _| own(&[v]),
    },
    Form {
        name: "shell_bare",
        tool: r#"shell: "/usr/bin/printf '%s\\0' ${v} ${w}""#,
        place: Place::Argv,
        received: |v, w| own(&[v, w]),
    },
    Form {
        name: "shell_inside_a_word",
        tool: r#"shell: "/usr/bin/printf '%s\\0' --o=${v}.${w}x""#,
        place: Place::Argv,
        received: |v, w| vec![format!("--o={v}.{w}x")],
    },
    Form {
        name: "shell_in_quotes",
        tool: r#"shell: "/usr/bin/printf '%s\\0' \"<${v}>\" \"${w} and ${v}\"""#,
        place: Place::Argv,
        received: |v, w| vec![format!("<{v}>"), format!("{w} and {v}")],
    },
    Form {
        name: "shell_in_a_pipe_of_many_lines",
        tool: "shell: |\n    # ${v} in a comment\n    for x in ${v} \"${w}\"; do\n      \
               /usr/bin/printf '%s\\0' \"$x\"\n    done | cat",
        place: Place::Argv,
        received: |v, w| own(&[v, w]),
    },
    Form {
        name: "shell_assignment",
        tool: "shell: |\n    x=${v} y=\"${w}\"\n    /usr/bin/printf '%s\\0' \"$x\" \"$y\"",
        place: Place::Argv,
        received: |v, w| own(&[v, w]),
    },
    Form {
        name: "shell_here_document",
        tool: "shell: |\n    cat <<END\n    ${v}|${w}\n    END",
        place: Place::Document,
        received: |v, w| vec![format!("{v}|{w}\n")],
    },
    Form {
        name: "shell_stdin",
        tool: "shell: 'cat | cat'\n  stdin: v",
        place: Place::Stdin,
        received: |v, _| own(&[v]),
    },
    Form {
        name: "command_arguments",
        tool: "command: [/usr/bin/printf, '%s\\0']\n  parameters:\n  \
               - {name: w, inject_as: argument, position: 1}\n  \
               - {name: v, inject_as: option, option_name: --v}",
        place: Place::Argv,
        received: |v, w| own(&["--v", v, w]),
    },
    Form {
        name: "command_stdin",
        tool: "command: [cat]\n  parameters: [{name: v, inject_as: stdin}]",
        place: Place::Stdin,
        received: |v, _| own(&[v]),
    },
];

impl Form {
    /// Whether the second value is given, too: what reads stdin gets nothing beside it.
    fn arguments(&self, v: &str, w: &str) -> Value {
        match self.place {
            Place::Stdin => json!({"v": v}),
            _ => json!({"v": v, "w": w}),
        }
    }

    /// What the program prints, or what the model is told where nothing can be run.
    fn expected(&self, v: &str, w: &str) -> Result<Vec<u8>, &'static str> {
        let received = (self.received)(v, w);
        if self.place == Place::Stdin {
            return Ok(received.concat().into_bytes());
        }
        if v.contains('\0') || w.contains('\0') {
            return Err("NUL");
        }
        if received.iter().any(|word| word.len() > LONGEST)
            || [v, w].iter().any(|value| value.len() > LONGEST)
        {
            return Err("too long");
        }
        let end: &[u8] = if self.place == Place::Argv {
            b"\0"
        } else {
            b""
        };
        Ok(received
            .iter()
            .flat_map(|word| [word.as_bytes(), end].concat())
            .collect())
    }
}

#[test]
fn what_a_model_says_arrives_as_it_is_in_every_form_of_tool() {
    let tools: Vec<String> = FORMS
        .iter()
        .map(|form| format!("- name: {}\n  {}\n", form.name, form.tool))
        .collect();
    let mut random = Rng::with_seed(4);
    let world = World::with_tools(&tools.concat()).top("sync: false");
    let mut sent = Vec::new();
    for form in &FORMS {
        for v in values(&mut random) {
            sent.push((form, v, value(&mut random)));
        }
    }
    let ids: Vec<String> = (0..sent.len()).map(|n| format!("call_{n}")).collect();
    let wanted: Vec<(&str, &str, Value)> = sent
        .iter()
        .zip(&ids)
        .map(|((form, v, w), id)| (id.as_str(), form.name, form.arguments(v, w)))
        .collect();
    // One message may ask for 512 calls.
    world.model_says(wanted.chunks(500).map(calls));
    world.model_says([text("done")]);
    world.run("go").arg("-q").exits(0);

    let told = world.server.last().messages();
    let told = |id: &str| {
        let result = told.iter().find(|message| message["tool_call_id"] == id);
        result.expect("a result")["content"].as_str().expect("text")
    };
    let executions = world.latest().executions();
    let mut executions = executions.iter();
    for ((form, v, w), id) in sent.iter().zip(&ids) {
        let case = || {
            let short: String = v.chars().take(200).collect();
            format!("{} of {short:?} and {w:?}", form.name)
        };
        match form.expected(v, w) {
            Ok(bytes) => {
                let execution = executions.next().unwrap_or_else(|| panic!("{}", case()));
                let stdout = fs::read(execution.join("stdout.log")).unwrap();
                let got = String::from_utf8_lossy(&stdout[..stdout.len().min(400)]);
                assert!(stdout == bytes, "{}\ngot {got:?}", case());
            }
            Err(reason) => {
                let told = told(id);
                assert!(told.contains(reason), "{}: {told}", case());
                if reason == "too long" {
                    // What the system refuses leaves a record of the attempt.
                    executions.next();
                }
            }
        }
    }
    assert!(executions.next().is_none(), "something ran that should not");
    assert!(!world.exists("ws/pwned"));
}
