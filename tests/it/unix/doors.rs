//! Doors of `delta sandbox`: hosts that are open pass, and everything else stays in.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DELTA: &str = env!("CARGO_BIN_EXE_delta");

/// A server on the loopback interface outside, which answers each connection with the same and keeps what it was sent.
struct Origin {
    port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    fn answers(answer: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || serve(stream, answer, &kept));
            }
        });
        Self { port, heard }
    }

    fn new() -> Self {
        Self::answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// What it was sent on its only connection.
    fn heard_once(&self) -> String {
        eventually("the server has heard something", || {
            !self.heard().is_empty()
        });
        let heard = self.heard();
        assert_eq!(heard.len(), 1, "{heard:?}");
        heard[0].clone()
    }
}

/// Reads until nothing more comes for a moment, answers, and closes.
fn serve(mut stream: TcpStream, answer: &str, kept: &Mutex<Vec<String>>) {
    let (mut heard, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        heard.extend(&buffer[..read]);
        let quiet = Some(Duration::from_millis(300));
        stream.set_read_timeout(quiet).unwrap();
    }
    let heard = String::from_utf8_lossy(&heard).into_owned();
    kept.lock().unwrap().push(heard);
    if stream.write_all(answer.as_bytes()).is_ok() {
        drop(stream);
    }
}

/// `ask TEXT` sends a text with escapes to the proxy, and prints what comes back.
const ASK: &str = "ask() { exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:}; printf \"$1\" >&3; cat <&3; exec 3>&-; }\n";

fn sandbox(world: &World, options: &[&str], script: &str) -> Delta {
    let delta = world.delta(["sandbox"]).args(options);
    let script = format!("{ASK}{script}");
    let delta = delta.args(["--", "bash", "-c", &script]);
    ["http", "https", "all", "no"]
        .iter()
        .fold(delta, |delta, name| {
            let upper = format!("{}_PROXY", name.to_uppercase());
            delta.env(&format!("{name}_proxy"), "").env(&upper, "")
        })
}

/// Whether this kernel gives namespaces to everybody.
fn has_namespaces() -> bool {
    let world = World::new();
    let outcome = sandbox(&world, &["--allow-host", "a.test"], ":").end();
    if outcome.code() != Some(0) {
        eprintln!("skipped: {}", outcome.stderr.trim_end());
    }
    outcome.code() == Some(0)
}

fn printed(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stdout).into_owned()
}

fn records(world: &World, name: &str) -> Vec<Value> {
    let lines = world.lines(name).into_iter();
    lines
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect()
}

#[test]
fn an_open_host_is_reached_and_every_connection_is_recorded() {
    if !has_namespaces() {
        return;
    }
    let (world, origin) = (World::new(), Origin::new());
    let port = origin.port;
    let door = format!("127.0.0.1:{port}");
    let script = format!(
        "rm -f log 2>&-; ask 'GET http://{door}/x HTTP/1.1\\r\\n\\r\\n'; echo; ask 'CONNECT {door} HTTP/1.1\\r\\n\\r\\nbytes'; echo; \
         ask 'GET http://Other.test./ HTTP/1.1\\r\\n\\r\\n'; ask 'CONNECT other.TEST:443 HTTP/1.1\\r\\n\\r\\n'; exit 7"
    );
    let options = ["--rw", ".", "--allow-host", &door, "--log", "log"];
    let outcome = sandbox(&world, &options, &script).end();
    let text = printed(&outcome);
    let outcome = outcome.exits(7);
    assert_eq!(text.matches("hello").count(), 2, "{text}");
    assert!(
        text.contains("HTTP/1.1 200 Connection established\r\n\r\n"),
        "{text}"
    );
    assert_eq!(text.matches("HTTP/1.1 403 Forbidden").count(), 2, "{text}");
    assert!(
        text.contains("--allow-host other.test would open it\n"),
        "{text}"
    );
    // Once for a name, whatever its spelling.
    outcome
        .says("other.test:80 is closed; --allow-host other.test")
        .says_one_line();
    let fields = |it: &Value| {
        (
            it["host"].clone(),
            it["port"].clone(),
            it["allowed"].clone(),
        )
    };
    let lines = records(&world, "log");
    let (records, ends): (Vec<Value>, Vec<Value>) =
        lines.into_iter().partition(|line| line["event"] == "open");
    let expected = [
        (json!("127.0.0.1"), json!(port), json!(true)),
        (json!("127.0.0.1"), json!(port), json!(true)),
        (json!("other.test"), json!(80), json!(false)),
        (json!("other.test"), json!(443), json!(false)),
    ];
    assert_eq!(records.iter().map(fields).collect::<Vec<_>>(), expected);
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".len();
    assert_eq!(ends.len(), 2);
    let end = ends
        .iter()
        .find(|end| end["id"] == records[1]["id"])
        .unwrap();
    assert_eq!(
        (&end["event"], &end["up"], &end["down"]),
        (&json!("close"), &json!(5), &json!(answer))
    );
    assert!(end["ms"].is_u64() && records[0]["id"] != records[1]["id"]);
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    if !has_namespaces() {
        return;
    }
    let (world, origin) = (World::new(), Origin::new());
    let door = format!("127.0.0.1:{}", origin.port);
    let script = format!("ask 'GET http://{door}/secret HTTP/1.1\\r\\n\\r\\n'");
    // The proxy may write no more than the file has already.
    world.write("log", "{}\n".repeat(700));
    let outcome = sandbox(&world, &["--allow-host", &door, "--log", "log"], &script)
        .after("ulimit -f 2; trap '' XFSZ")
        .end();
    let text = printed(&outcome);
    assert!(text.contains("502 Bad Gateway"), "{text}");
    outcome.says("connections cannot be recorded");
    assert!(origin.heard().is_empty(), "{:?}", origin.heard());
}

#[test]
fn a_plain_request_is_one_request_for_the_host_of_its_url() {
    if !has_namespaces() {
        return;
    }
    for (sent, rest, passed) in [
        (
            "GET http://HOST/a HTTP/1.1\\r\\nHost: evil.test\\r\\nProxy-Connection: keep-alive\\r\\n\\r\\n",
            "GET http://evil.test/ HTTP/1.1\\r\\n\\r\\n",
            "GET /a HTTP/1.1\r\nHost: HOST\r\n",
        ),
        (
            "POST http://HOST/ HTTP/1.1\\r\\nContent-Length: 3\\r\\n\\r\\nabc",
            "GET / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n",
            "abc",
        ),
        (
            "POST http://HOST/ HTTP/1.1\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n3\\r\\nabc\\r\\n0\\r\\n\\r\\n",
            "GET / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n",
            "0\r\n\r\n",
        ),
    ] {
        let (world, origin) = (World::new(), Origin::new());
        let host = format!("127.0.0.1:{}", origin.port);
        let script = format!("ask '{sent}{rest}'").replace("HOST", &host);
        let outcome = sandbox(&world, &["--allow-host", &host], &script).exits(0);
        assert!(
            printed(&outcome).ends_with("hello"),
            "{}",
            outcome.describe()
        );
        let heard = origin.heard_once();
        assert!(heard.contains(&passed.replace("HOST", &host)), "{heard}");
        assert!(heard.contains("Connection: close\r\n\r\n"), "{heard}");
        assert!(
            !heard.contains("evil.test") && !heard.contains("Proxy"),
            "{heard}"
        );
    }
}

#[test]
fn no_request_leads_to_a_host_that_is_not_open() {
    if !has_namespaces() {
        return;
    }
    let (world, origin) = (World::new(), Origin::new());
    let port = origin.port;
    // The server listens on every address that these could mean.
    let hosts = [
        "127.0.0.1",
        "127.1",
        "127.0.0.2",
        "0.0.0.0",
        "0",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "127.0.0.1.",
        "localhost",
        "LOCALHOST.",
        "ip6-localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "open.test@127.0.0.1",
        "127.0.0.1#open.test",
        "127.0.0.1%%00.open.test",
        "open.test.127.0.0.1",
        "evilopen.test",
        "open.test.evil.test",
        "xn--pen-4na.test",
        "open.test%%2e",
        "[::1%%25lo]",
        "%%31%%32%%37.0.0.1",
    ];
    let mut requests: Vec<String> = Vec::new();
    for host in hosts {
        requests.push(format!(
            "GET http://{host}:{port}/ HTTP/1.1\\r\\nHost: open.test\\r\\n\\r\\n"
        ));
        requests.push(format!(
            "CONNECT {host}:{port} HTTP/1.1\\r\\nHost: open.test:443\\r\\n\\r\\nhello"
        ));
    }
    let there = format!("127.0.0.1:{port}");
    requests.extend([
        format!("GET / HTTP/1.1\\r\\nHost: {there}\\r\\n\\r\\n"),
        format!("GET //{there}/ HTTP/1.1\\r\\nHost: open.test\\r\\n\\r\\n"),
        format!("GET http://open.test:80@{there}/ HTTP/1.1\\r\\n\\r\\n"),
        format!("GET http://open.test\\\\@{there}/ HTTP/1.1\\r\\n\\r\\n"),
        format!("GET http://open.test/ http://{there}/ HTTP/1.1\\r\\n\\r\\n"),
        format!("GET ftp://{there}/ HTTP/1.1\\r\\n\\r\\n"),
        format!("GET https://{there}/ HTTP/1.1\\r\\n\\r\\n"),
        format!("connect {there} HTTP/1.1\\r\\n\\r\\n"),
        format!("CONNECT http://{there} HTTP/1.1\\r\\n\\r\\n"),
        format!("CONNECT {there}/ HTTP/1.1\\r\\n\\r\\n"),
        format!("CONNECT {there} HTTP/1.0 \\r\\n\\r\\n"),
        format!("CONNECT\\t{there}\\tHTTP/1.1\\r\\n\\r\\n"),
        format!("\\r\\n\\r\\nCONNECT {there} HTTP/1.1\\r\\n\\r\\n"),
        format!("CONNECT {there} HTTP/1.1\\n\\n\\r\\n\\r\\n"),
        format!("GET http://{there}/ HTTP/0.9\\r\\n\\r\\n"),
        format!("GET http://{there}/\\r\\n\\r\\n"),
        format!("\\005\\001\\000\\r\\n\\r\\nCONNECT {there}"),
        format!("GET http://open.test/ HTTP/1.1\\r\\nHost: open.test\\nX: http://{there}/\\r\\n\\r\\n"),
        format!("POST http://{there}/ HTTP/1.1\\r\\nContent-Length: 3\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\nabc"),
    ]);
    let script: String = requests
        .iter()
        .map(|it| format!("ask '{it}' | head -n 1\n"))
        .collect();
    let options = [
        "--allow-host",
        "open.test",
        "--allow-host",
        "*.open.test",
        "--allow-host",
        "203.0.113.1",
        "--log",
        "log",
    ];
    let outcome = sandbox(&world, &options, &script).exits(0);
    let answers = printed(&outcome);
    let refused = answers
        .lines()
        .filter(|line| line.starts_with("HTTP/1.1 4"));
    assert_eq!(refused.count(), requests.len(), "{}", outcome.describe());
    assert!(origin.heard().is_empty(), "{:?}", origin.heard());
    let records = records(&world, "log");
    assert_eq!(records.len(), requests.len());
    assert!(records.iter().all(|record| record["allowed"] == false));
}

#[test]
fn nothing_but_the_proxy_leads_out() {
    if !has_namespaces() || !installed(&["perl"]) {
        return;
    }
    let (world, origin) = (World::new(), Origin::new());
    let port = origin.port;
    let abstract_name = format!("door-{port}");
    let udp = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    udp.set_nonblocking(true).unwrap();
    let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
    let _abstract = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let _file = std::os::unix::net::UnixListener::bind(world.path("s")).unwrap();
    let udp_port = udp.local_addr().unwrap().port();
    let pid = std::process::id();
    for way in [
        format!("socket(S, AF_INET, SOCK_STREAM, 0) && connect(S, sockaddr_in({port}, inet_aton(\"127.0.0.1\")))"),
        "socket(S, AF_INET, SOCK_STREAM, 0) && connect(S, sockaddr_in(80, inet_aton(\"203.0.113.1\")))".to_owned(),
        "socket(S, AF_INET, SOCK_DGRAM, 0) && send(S, \"x\", 0, sockaddr_in(53, inet_aton(\"203.0.113.1\")))".to_owned(),
        "socket(S, AF_INET6, SOCK_STREAM, 0) && connect(S, sockaddr_in6(80, Socket::inet_pton(AF_INET6, \"2001:db8::1\")))".to_owned(),
        "socket(S, AF_INET, SOCK_RAW, 1)".to_owned(),
        "socket(S, 17, SOCK_RAW, 0)".to_owned(),
        "socket(S, 40, SOCK_STREAM, 0)".to_owned(),
        "socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un(\"s\"))".to_owned(),
        format!("socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, pack(\"Sx a*\", 1, \"{abstract_name}\"))"),
        "defined(gethostbyname(\"example.org\"))".to_owned(),
        format!("open(F, \"<\", \"/proc/{pid}/environ\") && <F>"),
        format!("open(F, \"<\", \"/proc/{pid}/fd/0\")"),
        // setns with a namespace of the host.
        format!("open(F, \"<\", \"/proc/{pid}/ns/net\") && syscall(308, fileno(F), 0) == 0"),
        "open(F, \"<\", \"/proc/\" . getppid() . \"/ns/net\")".to_owned(),
    ] {
        let script = format!("perl -MSocket -e 'print(({way}) ? 1 : 0)'");
        let outcome = sandbox(&world, &["--rw", ".", "--allow-host", "open.test"], &script).end();
        assert_eq!(printed(&outcome), "0", "{way}\n{}", outcome.describe());
    }
    // A datagram to this address stays in the namespace.
    let send = format!("send(S, \"x\", 0, sockaddr_in({udp_port}, inet_aton(\"127.0.0.1\")))");
    let script = format!("perl -MSocket -e 'socket(S, AF_INET, SOCK_DGRAM, 0) && {send}'");
    sandbox(&world, &["--allow-host", "open.test"], &script).exits(0);
    assert!(udp.recv(&mut [0; 8]).is_err() && origin.heard().is_empty());
}

#[test]
fn a_command_talks_to_its_own_servers() {
    if !has_namespaces() || !installed(&["perl"]) {
        return;
    }
    let script = "perl -MIO::Socket::INET -e '
        $l = IO::Socket::INET->new(Listen => 1, LocalAddr => \"127.0.0.1\") or die;
        if (!fork) { $c = IO::Socket::INET->new(PeerAddr => \"127.0.0.1\", PeerPort => $l->sockport) or die; print $c \"own\\n\"; exit }
        print $l->accept->getline'; env | grep -i -e '^no_proxy' -e NODE_ | sort";
    let world = World::new();
    let outcome = sandbox(&world, &["--allow-host", "a.test"], script);
    outcome.exits(0).prints(
        "own\nNODE_USE_ENV_PROXY=1\nNO_PROXY=localhost,127.0.0.1,::1\nno_proxy=localhost,127.0.0.1,::1\n",
    );
}

#[test]
fn the_variables_of_programs_name_the_proxy_in_place_of_another() {
    if !has_namespaces() {
        return;
    }
    let script = "for n in HTTP HTTPS ALL GRPC; do v=${n}_PROXY; echo ${!v%%:[0-9]*}; v=${v,,}; echo ${!v%%:[0-9]*}; done";
    let world = World::new();
    let outcome = sandbox(&world, &["--allow-host", "a.test"], script);
    let outcome = outcome.env("https_proxy", "http://10.0.0.1:3128").end();
    outcome.exits(0).prints(&"http://127.0.0.1\n".repeat(8));
}

#[test]
fn an_inherited_socket_is_refused() {
    if !has_namespaces() {
        return;
    }
    let (world, origin) = (World::new(), Origin::new());
    let open = format!(
        "exec 5<>/dev/tcp/127.0.0.1/{}; exec \"$0\" \"$@\"",
        origin.port
    );
    let outcome =
        sandbox(&world, &["--allow-host", "a.test"], "echo ran").under(&["bash", "-c", &open]);
    outcome.refuses(125, "descriptor 5 is a socket that was opened outside");
}

#[test]
fn a_standard_stream_that_can_be_connected_elsewhere_is_refused() {
    if !has_namespaces() || !installed(&["perl"]) {
        return;
    }
    let (world, origin) = (World::new(), Origin::new());
    let port = origin.port;
    let end = |prepare: &[&str]| {
        let delta = sandbox(&world, &["--allow-host", "a.test"], "echo ran");
        delta.under(prepare).end()
    };
    for (streams, name) in [("0<&5", "input"), ("1>&5", "output")] {
        let open = format!("exec 5<>/dev/tcp/127.0.0.1/{port}; exec \"$0\" \"$@\" {streams} 5>&-");
        let outcome = end(&["bash", "-c", &open]);
        outcome.refuses(125, &format!("standard {name} is a socket"));
    }
    let pair = |kind: &str| {
        let open =
            format!("socketpair(A, B, AF_UNIX, {kind}, 0); open(STDIN, \"<&\", \\*A); exec @ARGV");
        end(&["perl", "-MSocket", "-e", &open, "--"])
    };
    pair("SOCK_DGRAM").refuses(125, "standard input is a socket");
    pair("SOCK_STREAM").exits(0).prints("ran\n");
}

#[test]
fn a_program_in_place_of_delta_looks_no_name_up() {
    if !has_namespaces() {
        return;
    }
    let world = World::new();
    let script = "printf '#!/bin/sh\\n: > escaped; echo 192.0.2.1' > other; chmod +x other; mv other delta; \
        ask 'CONNECT a.test:443 HTTP/1.1\\r\\n\\r\\n'";
    let outcome = sandbox(&world, &["--rw", ".", "--allow-host", "a.test"], script);
    let copy = "cp \"$0\" delta && exec unshare -Urn ./delta \"$@\"";
    let outcome = outcome.under(&["sh", "-c", copy]).exits(0);
    let text = printed(&outcome);
    assert!(text.contains("a.test does not resolve"), "{text}");
    assert!(!world.exists("escaped"));
}

/// Runs with names of its own and without a network, in which this test's servers are not reached either.
fn with_names(delta: Delta, world: &World, names: &str) -> Delta {
    let hosts = world.write("hosts", names);
    let script = format!(
        "mount --bind {} /etc/hosts && {{ echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind; exec \"$0\" \"$@\"; }}",
        hosts.display()
    );
    delta.under(&["unshare", "-Urmn", "sh", "-c", &script])
}

#[test]
fn a_name_leads_neither_to_this_machine_nor_to_its_network() {
    let world = World::new();
    let names = "127.0.0.1 loop.test\n10.0.0.1 private.test\n169.254.169.254 meta.test\n::ffff:192.168.0.1 mapped.test\n\
        64:ff9b::a00:1 nat.test\nfd00::1 local.test\n203.0.113.1 far.test\n";
    let probe = with_names(
        sandbox(&world, &["--allow-host", "a.test"], ":"),
        &world,
        names,
    )
    .end();
    if probe.code() != Some(0) {
        eprintln!("skipped: {}", probe.stderr.trim_end());
        return;
    }
    let ask = |host: &str| format!("ask 'CONNECT {host}:443 HTTP/1.1\\r\\n\\r\\n'");
    for (name, address) in [
        ("loop", "127.0.0.1"),
        ("private", "10.0.0.1"),
        ("meta", "169.254.169.254"),
        ("mapped", "192.168.0.1"),
        ("nat", "[64:ff9b::a00:1]"),
        ("local", "[fd00::1]"),
    ] {
        // A door of the address is none of the name.
        let options = ["--allow-host", "*.test", "--allow-host", "127.0.0.1"];
        let delta = sandbox(&world, &options, &ask(&format!("{name}.test")));
        let outcome = with_names(delta, &world, names).exits(0);
        let text = printed(&outcome);
        assert!(text.starts_with("HTTP/1.1 403 "), "{}", outcome.describe());
        assert!(
            text.contains(&format!("{name}.test leads to {address}, ")),
            "{text}"
        );
        assert!(
            text.contains(&format!("--allow-host {address} opens")),
            "{text}"
        );
    }
    let outcome = with_names(
        sandbox(&world, &["--allow-host", "*.test"], &ask("none.test")),
        &world,
        names,
    )
    .exits(0);
    let text = printed(&outcome);
    assert!(
        text.starts_with("HTTP/1.1 502 ") && text.contains("none.test does not resolve"),
        "{text}"
    );
    let options = ["--allow-host", "*.test"];
    let outcome = with_names(sandbox(&world, &options, &ask("far.test")), &world, names).exits(0);
    let text = printed(&outcome);
    assert!(text.contains("far.test:443 does not answer"), "{text}");
    // It is no door, and does not even resolve.
    let outcome = sandbox(
        &world,
        &["--allow-host", "127.0.0.1:9"],
        "ask 'CONNECT 127.0.0.1:9 HTTP/1.1\\r\\n\\r\\n'",
    )
    .exits(0);
    let text = printed(&outcome);
    assert!(
        text.starts_with("HTTP/1.1 502 ") && text.contains("127.0.0.1:9 does not answer"),
        "{text}"
    );
}

#[test]
fn the_proxy_of_the_environment_gets_what_is_open_and_one_request_a_connection() {
    if !has_namespaces() {
        return;
    }
    let world = World::new();
    let proxy = Origin::new();
    let url = format!("http://user:pw@127.0.0.1:{}", proxy.port);
    let script = "ask 'GET http://a.test/x HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\nGET http://evil.test/ HTTP/1.1\\r\\n\\r\\n'; \
        ask 'GET http://evil.test/ HTTP/1.1\\r\\n\\r\\n'; ask 'GET http://a.test/y HTTP/1.1\\r\\n\\r\\n'";
    let outcome = sandbox(&world, &["--allow-host", "a.test"], script)
        .env("http_proxy", &url)
        .exits(0);
    assert_eq!(
        printed(&outcome).matches("hello").count(),
        2,
        "{}",
        outcome.describe()
    );
    assert_eq!(
        outcome
            .stderr
            .matches("which chooses the addresses")
            .count(),
        1,
        "{}",
        outcome.stderr
    );
    let heard = proxy.heard();
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert_eq!(
        heard[0],
        "GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\nProxy-Authorization: Basic dXNlcjpwdw==\r\nConnection: close\r\n\r\n"
    );
    // Refused: what follows would be another request to it.
    let closed =
        Origin::answers("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
    let url = format!("http://127.0.0.1:{}", closed.port);
    let script =
        "ask 'CONNECT a.test:443 HTTP/1.1\\r\\n\\r\\nCONNECT evil.test:443 HTTP/1.1\\r\\n\\r\\n'";
    let outcome = sandbox(&world, &["--allow-host", "a.test"], script)
        .env("https_proxy", &url)
        .exits(0);
    let text = printed(&outcome);
    assert!(
        text.starts_with("HTTP/1.1 502 ") && text.contains("it answers 407"),
        "{text}"
    );
    assert_eq!(
        closed.heard_once(),
        "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"
    );
    let open = Origin::answers("HTTP/1.1 200 OK\r\n\r\nthrough");
    let url = format!("http://127.0.0.1:{}", open.port);
    let script = "ask 'CONNECT a.test:443 HTTP/1.1\\r\\n\\r\\n'";
    let outcome = sandbox(&world, &["--allow-host", "a.test"], script)
        .env("https_proxy", &url)
        .exits(0);
    assert_eq!(
        printed(&outcome),
        "HTTP/1.1 200 Connection established\r\n\r\nthrough"
    );
    for url in ["https://127.0.0.1:1", "socks://127.0.0.1:1"] {
        let outcome = sandbox(&world, &["--allow-host", "a.test"], script)
            .env("https_proxy", url)
            .exits(0);
        let text = printed(&outcome);
        let names = "the variable https_proxy is not SCHEME://HOST:PORT";
        assert!(
            text.starts_with("HTTP/1.1 502 ") && text.contains(names),
            "{text}"
        );
    }
}

#[test]
fn a_socks_proxy_of_the_environment_connects_what_is_open() {
    if !has_namespaces() {
        return;
    }
    let (world, origin) = (
        World::new(),
        Origin::answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
    );
    let server = (Ipv4Addr::LOCALHOST, origin.port).into();
    let login = Manners {
        login: Some("me:pw"),
        ..Manners::default()
    };
    for (url, manners, asked, answer) in [
        (
            "socks5h://P",
            Manners::default(),
            "socks a.test:80",
            "hello",
        ),
        ("socks5h://me:pw@P", login, "socks a.test:80 me:pw", "hello"),
        (
            "socks5://P",
            Manners {
                code: 5,
                ..Manners::default()
            },
            "socks 9.9.9.9:80",
            "was refused the connection",
        ),
        (
            "socks5h://P",
            Manners {
                code: 2,
                ..Manners::default()
            },
            "socks a.test:80",
            "does not allow",
        ),
    ] {
        let proxy = ProxyServer::to(server, manners);
        let url = url.replace('P', &proxy.place());
        let host = if asked.contains("9.9.9.9") {
            "9.9.9.9"
        } else {
            "a.test"
        };
        let script = format!(
            "ask 'GET http://{host}/x HTTP/1.1\\r\\n\\r\\n'; echo; ask 'CONNECT {host}:80 HTTP/1.1\\r\\n\\r\\nbytes'; \
             ask 'CONNECT closed.test:80 HTTP/1.1\\r\\n\\r\\n'"
        );
        let outcome = sandbox(&world, &["--allow-host", host], &script)
            .env("all_proxy", &url)
            .exits(0);
        assert_eq!(
            printed(&outcome).matches(answer).count(),
            2,
            "{}",
            outcome.describe()
        );
        assert_eq!(proxy.asked(), [asked, asked]);
    }
    let heard = origin.heard();
    assert_eq!(
        heard.iter().filter(|it| *it == "bytes").count(),
        2,
        "{heard:?}"
    );
    assert!(
        heard[0].starts_with("GET /x HTTP/1.1\r\nHost: a.test\r\n"),
        "{heard:?}"
    );
}

#[test]
fn a_thousand_connections_are_served_in_little_memory() {
    if !has_namespaces() || !installed(&["perl"]) {
        return;
    }
    let (world, origin) = (World::new(), Origin::new());
    let door = format!("127.0.0.1:{}", origin.port);
    let script = format!(
        "perl -MIO::Socket::INET -e '
        ($port) = $ENV{{http_proxy}} =~ /(\\d+)$/;
        sub to {{ IO::Socket::INET->new(PeerAddr => \"127.0.0.1\", PeerPort => $port) or die }}
        for (1 .. 5) {{ @all = map {{ $s = to(); print $s \"GET http://evil.test/\" . \"x\" x 9000; $s->flush; $s }} 1 .. 200; }}
        $s = to(); print $s \"GET http://{door}/ HTTP/1.1\\r\\n\\r\\n\"; $s->flush; print join \"\", <$s>;
        print \"\\n\"'; echo $PPID; read"
    );
    let mut running = sandbox(&world, &["--allow-host", &door], &script)
        .open_stdin()
        .spawn();
    eventually("it has been served", || {
        running.stdout().lines().count() > 4
    });
    let text = running.stdout();
    assert!(text.contains("hello"), "{text}");
    let keeper = text.lines().last().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{keeper}/status")).unwrap();
    let memory = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap();
    let memory: u64 = memory.trim().trim_end_matches(" kB").parse().unwrap();
    running.type_in("\n");
    running.wait().exits(0);
    assert!(memory < 10_000, "{memory} kB");
}

#[test]
fn of_a_burst_of_requests_none_is_lost() {
    if !has_namespaces() || !installed(&["perl"]) {
        return;
    }
    let (world, origin) = (World::new(), Origin::new());
    let door = format!("127.0.0.1:{}", origin.port);
    let script = format!(
        "perl -MIO::Socket::INET -e '
        ($port) = $ENV{{http_proxy}} =~ /(\\d+)$/;
        sub ask {{ $s = IO::Socket::INET->new(PeerAddr => \"127.0.0.1\", PeerPort => $port) or die;
            print $s \"GET http://{door}/ HTTP/1.1\\r\\n\\r\\n\"; $s->flush; $s }}
        @all = map {{ ask() }} 1 .. 600;
        print scalar grep {{ join(\"\", <$_>) =~ /hello$/ }} @all'"
    );
    let outcome = sandbox(&world, &["--allow-host", &door], &script).exits(0);
    assert_eq!(printed(&outcome), "600", "{}", outcome.describe());
}

#[test]
fn neither_a_kill_nor_an_end_leaves_a_door_open() {
    if !has_namespaces() {
        return;
    }
    let (world, origin) = (World::new(), Origin::new());
    let door = format!("127.0.0.1:{}", origin.port);
    let _go = world.fifo("go");
    let ask = format!("ask 'GET http://{door}/ HTTP/1.1\\r\\n\\r\\n'");
    // What is left running.
    let left = format!(
        "(read < go; {ask} > answer 2>&1; echo end >> answer) > /dev/null 2>&1 & echo started"
    );
    sandbox(&world, &["--rw", ".", "--allow-host", &door], &left)
        .exits(0)
        .prints("started\n");
    std::fs::write(world.path("go"), "go\n").unwrap();
    eventually("what was left has ended", || {
        world.exists("answer") && world.read("answer").ends_with("end\n")
    });
    assert!(!world.read("answer").contains("hello") && origin.heard().is_empty());
    for victim in ["the front", "the keeper"] {
        let running = sandbox(
            &world,
            &["--rw", ".", "--allow-host", &door],
            "echo $$ $PPID; read < go",
        )
        .spawn();
        eventually("it has started", || running.stdout().ends_with('\n'));
        let text = running.stdout();
        let pids: Vec<u32> = text
            .split_whitespace()
            .map(|it| it.parse().unwrap())
            .collect();
        match victim {
            "the front" => drop(running.kill()),
            _ => {
                let keeper = rustix::process::Pid::from_raw(pids[1].cast_signed()).unwrap();
                rustix::process::kill_process(keeper, Signal::KILL).unwrap();
                drop(running.wait());
            }
        }
        eventually(victim, || pids.iter().all(|pid| !alive(*pid)));
    }
}

#[test]
fn what_is_no_door_is_wrong_usage() {
    let world = World::new();
    for (options, words) in [
        (&["--allow-host", "*"][..], "'*'"),
        (&["--allow-host", "http://a.test"], "not a URL"),
        (&["--allow-host", "a.test:0"], "from 1 to 65535"),
        (&["--allow-host", "0x7f.1"], "neither a name nor an address"),
        (&["--log", "x", "--no-network"], "--log needs --allow-host"),
    ] {
        sandbox(&world, options, "echo ran").refuses(2, words);
    }
    let listed = sandbox(&world, &["--allow-hosts-from-env"], "echo ran");
    listed
        .env("DELTA_ALLOW_HOSTS", "a.test b/c")
        .refuses(2, "DELTA_ALLOW_HOSTS: 'b/c'");
    assert!(!world.exists("x"));
}

#[test]
fn a_record_that_cannot_be_written_keeps_the_command_from_running() {
    if !has_namespaces() {
        return;
    }
    let world = World::new();
    world.write("real", "");
    std::os::unix::fs::symlink("real", world.path("link")).unwrap();
    for log in ["link", "missing/log", "/dev/null"] {
        sandbox(
            &world,
            &["--allow-host", "a.test", "--log", log],
            "echo ran",
        )
        .refuses(125, log);
    }
    let in_run = sandbox(
        &world,
        &["--allow-host", "a.test"],
        "ask 'GET http://b.test/ HTTP/1.1\\r\\n\\r\\n'",
    );
    in_run.env("DELTA_EXECUTION_DIR", world.home()).exits(0);
    assert_eq!(records(&world, "network.jsonl")[0]["host"], "b.test");
}

#[test]
fn the_variable_counts_only_with_its_option() {
    if !has_namespaces() {
        return;
    }
    let world = World::new();
    let end = |options: &[&str], hosts: &str| {
        let delta = sandbox(&world, options, "echo ${http_proxy:-none}");
        let outcome = delta.env("DELTA_ALLOW_HOSTS", hosts).exits(0);
        printed(&outcome) == "none\n"
    };
    assert!(end(&["--no-network"], "a.test"));
    assert!(end(&["--no-network", "--allow-hosts-from-env"], ""));
    assert!(end(&["--allow-hosts-from-env"], ""));
    assert!(!end(
        &["--no-network", "--allow-hosts-from-env"],
        " a.test\tb.test "
    ));
    // An empty variable does not open the network.
    let origin = Origin::new();
    let script = format!("(: < /dev/tcp/127.0.0.1/{}) || echo closed", origin.port);
    let outcome = sandbox(&world, &["--allow-hosts-from-env"], &script);
    outcome.exits(0).prints("closed\n");
}

#[test]
fn without_namespaces_nothing_is_opened() {
    let none = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let none = ["unshare", "-Ur", "sh", "-c", none];
    let world = World::new();
    if !has_namespaces() || world.delta(["-V"]).under(&none).end().code() != Some(0) {
        eprintln!("skipped: there is nothing to take namespaces away from");
        return;
    }
    for options in [
        &["--allow-host", "a.test"][..],
        &["--strict", "--allow-host", "a.test"],
    ] {
        for sysctl in ["max_user_namespaces", "max_net_namespaces"] {
            let none = none.map(|word| word.replace("max_user_namespaces", sysctl));
            let none = none.each_ref().map(String::as_str);
            let delta = sandbox(&world, options, "echo ran").under(&none);
            delta.refuses(125, &format!("user.{sysctl} is 0"));
        }
    }
    // A nested sandbox has no doors of its own.
    let inner = format!("{DELTA} sandbox --allow-host b.test -- echo ran");
    let outcome = sandbox(&world, &["--ro", DELTA, "--allow-host", "a.test"], &inner).end();
    outcome.refuses(125, "an outer sandbox");
}
