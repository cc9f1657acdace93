//! `delta setup` and `delta models`: the person's endpoint, key and model.

use crate::harness::services::{self, APIS};
use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const KEY: &str = "sk-typed-0123456789";

/// The list of an endpoint with models of these names.
fn list(names: &[&str]) -> Reply {
    let models: Vec<Value> = names.iter().map(|name| json!({"id": name})).collect();
    completion(&json!({"object": "list", "data": models}))
}

fn asked() -> World {
    let world = tried();
    world.server.scripts_lists();
    world
}

/// With an endpoint that has no list.
fn tried() -> World {
    let world = World::unasked();
    world.server.accepts_anything();
    world
}

/// `delta setup` without a terminal.
fn setup(world: &World, args: &[&str]) -> Delta {
    let url = world.server.url();
    let begin = ["setup", "--base-url", &url].map(str::to_owned);
    world.delta(begin.iter().map(String::as_str)).args(args)
}

fn at_terminal(world: &World, terminal: &Terminal) -> Running {
    world.delta(["setup"]).at(terminal).spawn()
}

fn env_file(world: &World) -> Option<String> {
    fs::read_to_string(world.path(".config/delta/env")).ok()
}

fn write_env(world: &World, text: &str) {
    let path = world.write(".config/delta/env", text);
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn setup_writes_what_has_been_answered_and_keeps_the_other_lines() {
    let world = tried();
    let old = "# mine\nDELTA_MODEL=old\nOTHER='x y'\n";
    write_env(&world, old);
    world.model_says([text("OK")]);
    let done = setup(&world, &["--model", "m/1", "--key-stdin"])
        .stdin(format!("{KEY}\n"))
        .exits(0);
    let url = world.server.url();
    let expected = format!(
        "# mine\nDELTA_BASE_URL={url}\nDELTA_MODEL=m/1\nDELTA_API_KEY={KEY}\nOTHER='x y'\n"
    );
    assert_eq!(env_file(&world).unwrap(), expected);
    assert_eq!(world.read(".config/delta/env.old"), old);
    for file in ["env", "env.old"] {
        assert_eq!(
            mode(&world.path(".config/delta").join(file)),
            0o600,
            "{file}"
        );
    }
    done.says("wrote").says("env.old").does_not_say(KEY);
    let asked = world.server.last();
    assert_eq!(asked.json()["model"], "m/1");
    assert_eq!(
        asked.header("authorization"),
        Some(&*format!("Bearer {KEY}"))
    );
    // With the file, a run needs nothing else.
    let yaml = "name: open\nllm: {}\n";
    world.write("agent/agent.yaml", yaml);
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.server.last().json()["model"], "m/1");
    // Another model of the same endpoint needs no key again.
    world.model_says([text("OK")]);
    setup(&world, &["--model", "m/2"]).exits(0);
    let expected = expected.replace("m/1", "m/2");
    assert_eq!(env_file(&world).unwrap(), expected);
}

#[test]
fn setup_asks_in_the_api_of_the_usual_agent() {
    for api in APIS {
        let world = asked();
        let yaml = format!("name: probe\nllm: {{api: {}}}\n", api.name());
        let agent = world.write("agent/agent.yaml", yaml);
        let answer = services::answer_of(
            api,
            &json!({"messages": [], "input": []}),
            &services::Said {
                text: "OK".to_owned(),
                ..Default::default()
            },
        );
        world.model_says([list(&["only"]), completion(&answer)]);
        setup(&world, &["-y", "--key-stdin"])
            .stdin(KEY)
            .env("DELTA_AGENT", agent.parent().unwrap())
            .exits(0);
        let requests = world.server.requests();
        assert!(requests[0].line.starts_with("GET /v1/models"), "{api:?}");
        assert_eq!(requests[1].json()["model"], "only", "{api:?}");
        let path = requests[1].line.split(' ').nth(1).unwrap().to_owned();
        let paths = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];
        assert_eq!(path, paths[APIS.iter().position(|it| *it == api).unwrap()]);
    }
}

#[test]
fn without_an_answer_nothing_is_written() {
    for (words, reply) in [
        (
            "401",
            Reply::error(401, "bad key\nDELTA_MODEL=evil\u{1b}[2J"),
        ),
        ("500", Reply::error(500, "broken")),
        ("not", raw("{\"choices\": [")),
        ("HTML", raw("<!doctype html><title>x</title>").status(404)),
        ("", Reply::drops(Moment::MidBody)),
    ] {
        let world = tried();
        write_env(&world, "DELTA_MODEL=old\n");
        world.model_says([reply]);
        let outcome = setup(&world, &["--model", "m"]).exits(1);
        outcome
            .says(words)
            .says("nothing was written")
            .does_not_say("\u{1b}")
            .does_not_say("\nDELTA_MODEL");
        assert_eq!(env_file(&world).unwrap(), "DELTA_MODEL=old\n");
        assert!(!world.exists(".config/delta/env.old"));
    }
}

#[test]
fn a_server_that_hangs_ends_setup_by_its_time_limit_or_a_signal() {
    let world = tried();
    let yaml = "name: probe\nllm: {timeout_ms: 300}\n";
    let agent = world.write("agent/agent.yaml", yaml);
    world.model_says([text("never").held()]);
    setup(&world, &["--model", "m"])
        .env("DELTA_AGENT", agent.parent().unwrap())
        .exits(1)
        .says("gave no answer in time");
    world.model_says([text("never").held()]);
    let before = world.server.requests().len();
    let running = setup(&world, &["--model", "m"]).spawn();
    world.server.wait_for(before + 1);
    running.signal(Signal::TERM);
    running.wait().exits(143).says("nothing was written");
    assert_eq!(env_file(&world), None);
}

#[test]
fn what_setup_cannot_use_is_wrong_usage() {
    let world = tried();
    world
        .delta(["setup"])
        .refuses(2, "delta setup --base-url URL --model NAME");
    world
        .delta(["setup", "--base-url", "ftp://x", "--model", "m"])
        .refuses(2, "cannot be used");
    setup(&world, &["--model", "a\nDELTA_BASE_URL=http://evil"]).refuses(2, "no name of a model");
    setup(&world, &["--model", "m", "--key-stdin"]).refuses(2, "is empty");
    setup(&world, &["--model", "m", "--key-stdin"])
        .stdin("a\nDELTA_MODEL=b\n")
        .refuses(2, "character 2 is '\\u{a}'");
    world
        .delta(["setup", "--base-url", "openai", "--model", "m"])
        .refuses(2, "no key for https://api.openai.com/v1");
    world
        .server
        .lists(json!({"data": [{"id": "a"}, {"id": "b"}]}));
    setup(&world, &[]).refuses(2, "--model NAME");
    fs::create_dir_all(world.path(".config/delta")).unwrap();
    std::os::unix::fs::symlink("elsewhere", world.path(".config/delta/env")).unwrap();
    world.model_says([text("OK")]);
    setup(&world, &["--model", "m"]).refuses(1, "is a symbolic link");
}

#[test]
fn at_a_terminal_setup_asks_for_endpoint_key_and_model() {
    let world = asked();
    let names: Vec<String> = (0..300).map(|n| format!("model-{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let hostile = ["evil\nDELTA_BASE_URL=http://evil", "\u{1b}]0;x\u{7}"];
    world.model_says([list(&[&names[..], &hostile].concat()), text("OK")]);
    let mut terminal = Terminal::new();
    let running = at_terminal(&world, &terminal);
    terminal.shows("openai");
    terminal.shows("which endpoint: number, name or URL?");
    terminal.types("ftp://nowhere\n");
    terminal.shows("cannot be used");
    terminal.shows("which endpoint");
    terminal.types(&format!("{}/\n", world.server.url()));
    terminal.shows("key (not shown; empty: none)?");
    assert!(!terminal.has_echo());
    terminal.types(&format!("{KEY}\n"));
    let shown = terminal.shows("which model: number or name?");
    assert!(!shown.contains(KEY) && !shown.contains('\u{7}'), "{shown}");
    assert!(shown.contains("2 names left out"), "{shown}");
    assert!(shown.contains("and 280 more"), "{shown}");
    assert!(terminal.has_echo());
    terminal.types("L-29\n");
    let shown = terminal.shows("which model");
    assert!(
        shown.contains("model-299") && !shown.contains("model-000"),
        "{shown}"
    );
    terminal.types("2\n");
    running.wait().exits(0);
    let url = world.server.url();
    let expected = format!("DELTA_BASE_URL={url}\nDELTA_MODEL=model-291\nDELTA_API_KEY={KEY}\n");
    assert_eq!(env_file(&world).unwrap(), expected);
}

#[test]
fn a_model_that_is_not_listed_is_tried_and_said() {
    let world = tried();
    let models = json!({"data": [{"id": "qwen3-coder"}, {"id": "gpt-oss"}]});
    world.server.lists(models);
    let warning =
        |model: &str, near: &str| format!("warning: the endpoint lists no model '{model}'{near}");
    let near = "; did you mean 'qwen3-coder'?";
    for (model, said) in [
        ("qwen3-codr", &*warning("qwen3-codr", near)),
        ("zeta", &warning("zeta", "\n")),
    ] {
        world.model_says([text("OK")]);
        setup(&world, &["--model", model]).exits(0).says(said);
        assert_eq!(world.server.last().json()["model"], model);
    }
    world.model_says([text("OK"), text("OK")]);
    let listed = setup(&world, &["--model", "gpt-oss"]).exits(0);
    listed.does_not_say("warning");
    let mut terminal = Terminal::new();
    let running = at_terminal(&world, &terminal);
    terminal.shows("which endpoint");
    terminal.types(&format!("{}\n", world.server.url()));
    terminal.shows("key (not shown");
    terminal.types("\n");
    terminal.shows("which model");
    terminal.types("qwen3-codr\n");
    terminal.shows(&warning("qwen3-codr", near));
    running.wait().exits(0);
}

#[test]
fn ctrl_c_at_each_question_writes_nothing() {
    for questions in 1..=3 {
        let world = asked();
        let old = "DELTA_MODEL=old\n";
        write_env(&world, old);
        world.model_says([list(&["a", "b"])]);
        let mut terminal = Terminal::new();
        let running = at_terminal(&world, &terminal);
        let url = format!("{}\n", world.server.url());
        let steps = [
            ("which endpoint", &*url),
            ("key", "k\n"),
            ("which model", "a\n"),
        ];
        for (at, (words, answer)) in steps.iter().take(questions).enumerate() {
            terminal.shows(words);
            terminal.shows("?");
            if at + 1 < questions {
                terminal.types(answer);
            }
        }
        running.signal(Signal::INT);
        terminal.shows("nothing was written");
        running.wait().exits(130);
        assert!(terminal.has_echo(), "after question {questions}");
        assert_eq!(env_file(&world).unwrap(), old);
    }
}

#[test]
fn a_server_on_this_machine_is_offered() {
    let ports = [8080, 11434, 8000, 1234];
    let bind = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).ok();
    let Some(listener) = ports.iter().find_map(bind) else {
        eprintln!("skipped: no usual port is free");
        return;
    };
    let address = listener.local_addr().unwrap();
    // Other tests' setups look there, too: each is answered, until one asks for the end.
    let server = std::thread::spawn(move || {
        use std::io::{BufRead, BufReader, Write};
        let mut heads = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            stream
                .set_read_timeout(Some(std::time::Duration::from_secs(60)))
                .unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines
                .map_while(Result::ok)
                .take_while(|it| !it.is_empty())
                .collect();
            let head = head.join("\n").to_lowercase();
            if head == "end" {
                return heads;
            }
            let body = "{\"data\":[{\"id\":\"a\"},{\"id\":\"b\"}]}";
            let length = body.len();
            // Who asked may have gone.
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .ok();
            heads.push(head);
        }
    });
    let world = asked();
    write_env(&world, "DELTA_API_KEY=k-0123456789\n");
    let mut terminal = Terminal::new();
    let running = at_terminal(&world, &terminal);
    let shown = terminal.shows("which endpoint");
    let offer = format!("on this machine, 2 models  http://{address}/v1");
    assert!(shown.contains(&offer), "{shown}");
    running.signal(Signal::INT);
    running.wait().exits(130);
    // Whatever listens there gets no key before it is chosen.
    let mut end = std::net::TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut end, b"end\r\n\r\n").unwrap();
    let heads = server.join().unwrap();
    let is_right = |head: &String| {
        head.is_empty() || head.starts_with("get /v1/models") && !head.contains("authorization")
    };
    assert!(!heads.is_empty() && heads.iter().all(is_right), "{heads:?}");
}

#[test]
fn a_killed_setup_leaves_the_old_file_whole() {
    let world = tried();
    let old = "DELTA_MODEL=old\nDELTA_API_KEY=sk-old-0123456789\n";
    write_env(&world, old);
    world.model_says([text("OK").held()]);
    let running = setup(&world, &["--model", "m"]).spawn();
    world.server.wait_for(1);
    running.kill();
    assert_eq!(env_file(&world).unwrap(), old);
    // What is half written lies beside it, and goes with the next one.
    world.write(".config/delta/.env.tmp", "DELTA_MO");
    world.model_says([text("OK")]);
    setup(&world, &["--model", "m"]).exits(0);
    assert!(env_file(&world).unwrap().contains("DELTA_MODEL=m\n"));
    assert!(!world.exists(".config/delta/.env.tmp"));
}

#[test]
fn two_setups_at_once_write_one_after_the_other() {
    let world = tried();
    write_env(&world, "A=1\n");
    let other = fs::File::open(world.path(".config/delta")).unwrap();
    other.lock().unwrap();
    world.model_says([text("OK")]);
    let running = setup(&world, &["--model", "m"]).spawn();
    eventually("it waits", || {
        running.stderr().contains("waiting: another process")
    });
    write_env(&world, "A=2\n");
    other.unlock().unwrap();
    running.wait().exits(0);
    let (url, written) = (world.server.url(), env_file(&world).unwrap());
    assert_eq!(
        written,
        format!("A=2\nDELTA_BASE_URL={url}\nDELTA_MODEL=m\n")
    );
    assert_eq!(world.read(".config/delta/env.old"), "A=2\n");
}

#[test]
fn the_sandbox_hides_every_file_with_a_key_that_setup_writes() {
    let world = World::on_disk();
    world.server.scripts_lists();
    world.server.may_stay_unasked();
    let names = ["env", "env.old", ".env.tmp", ".env.old.tmp"];
    for name in names {
        let path = world.write(
            &format!(".config/delta/{name}"),
            "DELTA_API_KEY=sk-hidden-1\n",
        );
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }
    world.write(".config/delta/agents/a/agent.yaml", "name: a\n");
    let home = world.home().to_str().unwrap().to_owned();
    fs::create_dir_all(world.path("work")).unwrap();
    let script = "cd; cat .config/delta/env .config/delta/env.old .config/delta/.env.tmp \
                  .config/delta/.env.old.tmp .config/delta/agents/a/agent.yaml";
    let args = [
        "sandbox", "--rw", "work", "--ro", &home, "--", "sh", "-c", script,
    ];
    let outcome = world.delta(args).end();
    let printed = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(printed.contains("name: a"), "{printed} {}", outcome.stderr);
    assert!(!printed.contains("sk-hidden"), "{printed}");
}

#[test]
fn models_are_listed_one_a_line_with_what_the_endpoint_says() {
    let world = asked();
    let list = json!({"data": [
        {"id": "small", "context_length": 8192},
        {"id": "large/1", "context_length": 200_000, "pricing": {"prompt": "0.000003", "completion": "0.000015"}},
        {"id": "x\nEVIL=1"}
    ]});
    world.model_says([completion(&list)]);
    let models = |args: &[&str]| world.delta(["models"]).args(args);
    models(&["-a", "agent"])
        .exits(0)
        .prints("large/1  window 200000, input 3, output 15\nsmall    window 8192\n")
        .says("1 name left out");
    world.model_says([Reply::error(401, "no such key\u{1b}[2J")]);
    models(&["-a", "agent"])
        .refuses(1, "401")
        .does_not_say("\u{1b}");
    world.model_says([raw("{\"data\": 7}")]);
    models(&["-a", "agent"]).refuses(1, "no list of models");
    models(&["agent"]).refuses(2, "does not name an agent");
    // The endpoint in force is that of the usual agent.
    models(&[])
        .exits(78)
        .says("no key for https://api.openai.com/v1")
        .says("\ndelta setup\n");
    world.model_says([completion(
        &json!({"models": [{"name": "b"}, {"name": "a"}]}),
    )]);
    models(&[])
        .env("DELTA_BASE_URL", world.server.url())
        .exits(0)
        .prints("a\nb\n");
}

#[test]
fn setup_offers_a_tool_and_never_runs_it() {
    for api in APIS {
        let world = tried();
        let answer = services::answer_of(
            api,
            &json!({"messages": [], "input": []}),
            &services::Said {
                text: "OK".to_owned(),
                ..Default::default()
            },
        );
        world.model_says([completion(&answer)]);
        setup(&world, &["--model", "m"])
            .env("DELTA_API", api.name())
            .exits(0);
        let request = world.server.last();
        assert_eq!(
            request.json()["tools"].as_array().unwrap().len(),
            1,
            "{api:?}"
        );
        assert_eq!(services::api_of(&request.line), api);
        // Runs use the API that was tried.
        let line = format!("DELTA_API={}\n", api.name());
        assert!(env_file(&world).unwrap().contains(&line), "{api:?}");
    }
    let world = tried();
    let words = "Function tools are not supported for m in /v1/chat/completions. Use /v1/responses";
    world.model_says([Reply::error(400, words)]);
    setup(&world, &["--model", "m"])
        .refuses(1, words)
        .says("DELTA_API=responses");
}

#[test]
fn no_number_of_setups_loses_a_key() {
    let world = tried();
    let (one, two) = (world.server.url(), Server::start());
    two.accepts_anything();
    let other = two.url();
    let ok = || [text("OK")];
    let to = |url: &str, key: &str| {
        let args = ["setup", "--base-url", url, "--model", "m"];
        let delta = world.delta(args);
        let delta = match key {
            "" => delta,
            key => delta.arg("--key-stdin").stdin(key),
        };
        delta.exits(0)
    };
    world.model_says(ok());
    to(&one, "k-one-0123456789");
    two.says(ok());
    to(&other, "");
    let commented = format!("# for {one}: DELTA_API_KEY=k-one-0123456789\n");
    let file = env_file(&world).unwrap();
    assert!(
        file.contains(&commented) && !file.contains("\nDELTA_API_KEY="),
        "{file}"
    );
    two.says(ok());
    to(&other, "k-two-0123456789");
    world.model_says(ok());
    to(&one, "k-one-0123456789").says("env.old.3");
    let file = env_file(&world).unwrap();
    assert!(file.contains(&commented), "{file}");
    assert!(
        file.contains(&format!("# for {other}: DELTA_API_KEY=k-two-0123456789\n")),
        "{file}"
    );
    assert!(
        file.contains("\nDELTA_API_KEY=k-one-0123456789\n"),
        "{file}"
    );
    for copy in ["env.old", "env.old.2", "env.old.3"] {
        assert_eq!(
            mode(&world.path(".config/delta").join(copy)),
            0o600,
            "{copy}"
        );
    }
}

#[test]
fn a_key_in_the_environment_is_used_and_said() {
    for name in ["DELTA_API_KEY", "OPENAI_API_KEY"] {
        let world = tried();
        world.model_says([text("OK")]);
        setup(&world, &["--model", "m"])
            .env(name, KEY)
            .exits(0)
            .says(&format!("the key is {name} in the environment"))
            .does_not_say(KEY);
        let bearer = format!("Bearer {KEY}");
        assert_eq!(world.server.last().header("authorization"), Some(&*bearer));
        assert!(!env_file(&world).unwrap().contains(KEY), "{name}");
    }
}
