//! Proxies on the way to servers: nothing goes past one that is set.

use crate::harness::*;
use std::net::TcpListener;

/// An agent whose server is reached under an address that is none of loopback, or under this host.
fn world(host: &str) -> World {
    let world = World::unasked();
    let port = world.server.address().port();
    let llm = format!("base_url: http://{host}:{port}/v1\nmax_retries: 0");
    world.llm(&llm)
}

fn run(world: &World, variables: &[(&str, &str)]) -> Delta {
    let delta = world.run("go").env("DELTA_API_KEY", "k-0123456789abcdef");
    let set = |delta: Delta, (name, value): &(&str, &str)| delta.env(name, value);
    variables.iter().fold(delta, set)
}

fn proxy(world: &World, manners: Manners) -> ProxyServer {
    ProxyServer::to(world.server.address(), manners)
}

/// The proxy's URL, with `P` for its place.
fn named(url: &str, proxy: &ProxyServer) -> String {
    url.replace('P', &proxy.place())
}

#[test]
fn each_kind_of_proxy_gets_every_request_and_the_server_none_directly() {
    for (variable, url, expected) in [
        (
            "http_proxy",
            "http://P",
            "POST http://model.test:1/v1/chat/completions HTTP/1.1",
        ),
        (
            "HTTP_PROXY",
            "P/",
            "POST http://model.test:1/v1/chat/completions HTTP/1.1",
        ),
        ("all_proxy", " 'socks5h://P' ", "socks model.test:1"),
        (
            "ALL_PROXY",
            "http://me:x%40y@P",
            "POST http://model.test:1/v1/chat/completions HTTP/1.1 Basic bWU6eEB5",
        ),
        (
            "http_proxy",
            "socks5h://me:pw@P",
            "socks model.test:1 me:pw",
        ),
    ] {
        let world = world("model.test");
        let login = url.contains("pw").then_some("me:pw");
        let proxy = proxy(
            &world,
            Manners {
                login,
                ..Manners::default()
            },
        );
        let tool = "- {name: t, description: d, exec: 'true'}\n";
        let world = world.tools(tool);
        world.model_says([call("1", "t", &serde_json::json!({})), text("done")]);
        let outcome = run(&world, &[(variable, &named(url, &proxy))])
            .exits(0)
            .prints("done\n");
        let has_warning = outcome
            .stderr
            .contains("all_proxy has blanks or quotes around its value");
        assert_eq!(has_warning, url.starts_with(' '), "{}", outcome.stderr);
        let port = world.server.address().port();
        let expected = expected.replace("model.test:1", &format!("model.test:{port}"));
        let asked = proxy.asked();
        assert!(
            !asked.is_empty() && asked.iter().all(|it| *it == expected),
            "{asked:?}"
        );
        assert_eq!(world.server.connections(), asked.len());
    }
}

#[test]
fn socks5_resolves_names_here_and_a_server_outside_is_asked_through_it() {
    let world = world("0.0.0.0");
    let proxy = proxy(&world, Manners::default());
    world.model_says([text("done")]);
    run(&world, &[("all_proxy", &named("socks5://P", &proxy))])
        .exits(0)
        .prints("done\n");
    assert_eq!(
        proxy.asked(),
        [format!("socks 0.0.0.0:{}", world.server.address().port())]
    );
}

#[test]
fn what_is_no_usable_proxy_ends_the_start_and_nothing_is_sent() {
    for value in [
        "socks://P",
        "socks4://P",
        "ftp://P",
        "http://",
        "http://P:x",
        "\u{7f}",
    ] {
        let world = world("0.0.0.0");
        let proxy = proxy(&world, Manners::default());
        let value = named(value, &proxy);
        run(&world, &[("ALL_PROXY", &value)]).refuses(78, "ALL_PROXY");
        assert_eq!(
            (proxy.asked().len(), world.server.connections()),
            (0, 0),
            "{value}"
        );
        assert!(world.runs().is_empty());
    }
}

#[test]
fn a_variable_that_is_not_consulted_does_not_count() {
    for more in [
        ("HTTP_PROXY", "P"),
        ("no_proxy", "a.test, 0.0.0.0/8"),
        ("NO_PROXY", "0.0.0.0"),
    ] {
        let world = world("0.0.0.0");
        let proxy = proxy(&world, Manners::default());
        world.model_says([text("done")]);
        let value = named(more.1, &proxy);
        let set = [
            ("all_proxy", "socks://x"),
            ("https_proxy", "ftp://x"),
            (more.0, value.as_str()),
        ];
        run(&world, &set).exits(0).prints("done\n");
        assert_eq!(proxy.asked().len(), usize::from(more.0 == "HTTP_PROXY"));
    }
    // A server of this machine needs none.
    let world = world("localhost");
    world.model_says([text("done")]);
    run(&world, &[("http_proxy", "socks://x")]).exits(0);
    // One for the other protocol is mentioned.
    let world = world_of_https();
    let outcome = run(&world, &[("http_proxy", "socks://x"), ("https_proxy", "")]).exits(75);
    outcome.says("0.0.0.0 is asked directly: http_proxy names no proxy for https");
}

/// An agent whose server would be asked over TLS, which nothing here speaks.
fn world_of_https() -> World {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    World::unasked().llm(&format!(
        "base_url: https://0.0.0.0:{port}/v1\nmax_retries: 0"
    ))
}

#[test]
fn a_proxy_that_refuses_is_named() {
    for (url, manners, code, words) in [
        (
            "http://P",
            Manners {
                status: Some(403),
                ..Manners::default()
            },
            4,
            "answers 403 to CONNECT 0.0.0.0:",
        ),
        (
            "http://me:secretword@P",
            Manners {
                status: Some(407),
                ..Manners::default()
            },
            4,
            "answers 407",
        ),
        (
            "http://P",
            Manners {
                status: Some(503),
                ..Manners::default()
            },
            75,
            "answers 503",
        ),
        (
            "socks5h://P",
            Manners {
                code: 2,
                ..Manners::default()
            },
            4,
            "does not allow the connection",
        ),
        (
            "socks5h://P",
            Manners {
                code: 5,
                ..Manners::default()
            },
            75,
            "was refused the connection by the host",
        ),
        (
            "socks5://P",
            Manners {
                login: Some("a:b"),
                ..Manners::default()
            },
            4,
            "does not accept the login",
        ),
        (
            "socks5://u:secretword@P",
            Manners {
                login: Some("a:b"),
                ..Manners::default()
            },
            4,
            "does not accept the login",
        ),
        (
            "http://127.0.0.1:9",
            Manners::default(),
            75,
            "the proxy http://127.0.0.1:9 (https_proxy) fails: connection refused",
        ),
    ] {
        let world = world_of_https();
        let proxy = proxy(&world, manners);
        let outcome = run(&world, &[("https_proxy", &named(url, &proxy))]).exits(code);
        let outcome = outcome
            .says(words)
            .says("(https_proxy)")
            .does_not_say("secretword");
        assert_eq!(
            proxy.asked().is_empty(),
            manners.login.is_some() || url.contains(":9"),
            "{}",
            outcome.stderr
        );
        let reason = if code == 4 {
            "model_refused"
        } else {
            "model_unavailable"
        };
        assert_eq!(world.latest().metadata()["stop_reason"], reason);
    }
    // Over plain HTTP it answers in place of the server.
    for (status, words) in [
        (407, "that is the proxy http://"),
        (403, "which may be what refuses"),
    ] {
        let world = world("model.test");
        let proxy = proxy(
            &world,
            Manners {
                status: Some(status),
                ..Manners::default()
            },
        );
        run(&world, &[("http_proxy", &proxy.place())])
            .exits(4)
            .says(words);
    }
}

#[test]
fn lists_of_models_and_servers_of_tools_go_through_the_proxy_too() {
    let world = world("model.test");
    let proxy = proxy(&world, Manners::default());
    world
        .server
        .lists(serde_json::json!({"data": [{"id": "one"}]}));
    let key = ("DELTA_API_KEY", "k-0123456789abcdef");
    let models = world.delta(["models", "-a", "agent"]).env(key.0, key.1);
    models.env("http_proxy", proxy.place()).exits(0).says("");
    assert!(
        proxy.asked()[0].starts_with("GET http://model.test:"),
        "{:?}",
        proxy.asked()
    );
    let refusing = ProxyServer::to(
        world.server.address(),
        Manners {
            code: 2,
            ..Manners::default()
        },
    );
    let mcp = || world.delta(["mcp", "list", "--url", "http://0.0.0.0:1/mcp"]);
    let url = named("socks5h://P", &refusing);
    mcp()
        .env("all_proxy", url)
        .exits(1)
        .says("does not allow the connection");
    let asked = refusing.asked();
    let is_server = |line: &String| line == "socks 0.0.0.0:1";
    assert!(
        !asked.is_empty() && asked.iter().all(is_server),
        "{asked:?}"
    );
    mcp()
        .env("all_proxy", "socks://x")
        .exits(78)
        .says("all_proxy");
}
