//! One connection of the command, from its request to its end: what it asks for is looked up, connected, passed on.
//!
//! Unaware of other connections. Nothing here waits.

mod approach;

use super::door::{Door, Host};
use super::log::{CloseLine, ConnectionLog};
use super::lookup::NameLookup;
use super::relay::Relay;
use super::request::{Kind, LONGEST_HEAD, Request, head_length};
use super::socks::{Socks5, SocksRefusal};
use super::upstream::{Upstream, Upstreams, tunnel_status};
use crate::error::{ignore, reason};
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The time limit for a name to resolve, and for an address to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time limit of a client's request, and of a proxy's answer.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// The time that a client keeps its place, once there are too many, before it has asked for anything.
const SILENCE: Duration = Duration::from_millis(200);

/// The time limit for closing of a client that has its answer.
const FAREWELL: Duration = Duration::from_secs(2);

/// The time that a tunnel stays open in which the server has ended and nothing moves.
const HALF_OPEN: Duration = Duration::from_secs(60);

/// The state that all connections have in common.
pub(super) struct Desk {
    pub doors: Vec<Door>,
    pub upstreams: Upstreams,
    /// The command that prints the addresses of the name after it.
    pub resolver: Vec<String>,
    pub now: Instant,
    /// The number of lookups that may begin now.
    pub free_lookups: usize,
    pub log: ConnectionLog,
    /// Called with a remark for the person.
    pub say: Box<dyn Fn(&str)>,
    /// The subjects of remarks that have been made.
    pub said: HashSet<String>,
    pub scratch: Vec<u8>,
}

impl Desk {
    fn say_unrecorded(&mut self, e: &io::Error) {
        self.say_once("/", &unrecorded(e));
    }

    /// Makes a remark, unless there has been one about the same.
    fn say_once(&mut self, about: &str, text: &str) {
        const MOST: usize = 100;
        if self.said.len() < MOST && self.said.insert(about.to_owned()) {
            (self.say)(text);
        }
    }
}

fn unrecorded(e: &io::Error) -> String {
    format!("connections cannot be recorded: {}", reason(e))
}

/// The command's side of a connection, and what is recorded of it.
pub(super) struct ClientSide {
    socket: TcpStream,
    /// The host and the port of the request, once it is there; those of one that is no request are empty.
    pub asked: Option<(String, u16)>,
    pub is_allowed: bool,
    /// The name under which it was recorded as allowed.
    recorded: Option<String>,
    pub began: Instant,
    pub up: u64,
    pub down: u64,
    /// The time at which the stage has taken too long.
    deadline: Option<Instant>,
}

pub(super) struct ProxiedConnection {
    pub client: ClientSide,
    stage: Stage,
}

/// A request that may pass, and the proxy on its way.
struct Passed {
    request: Request,
    upstream: Option<Upstream>,
    /// The request's address, resolved here for a proxy that takes no names.
    target: Option<IpAddr>,
}

/// A conversation with a SOCKS5 proxy.
struct Greeting {
    passed: Box<Passed>,
    server: OwnedFd,
    socks: Socks5,
    /// The bytes of the next answer, and how many it has.
    read: Vec<u8>,
    expected: usize,
}

enum Stage {
    /// The head of the request is not whole yet.
    Head(Vec<u8>),
    /// Too many names are being looked up.
    Queued(Box<Passed>),
    Lookup(Box<Passed>, NameLookup),
    /// The addresses to try next, in reverse.
    Connecting(Box<Passed>, OwnedFd, Vec<SocketAddr>),
    /// The other proxy has been asked for a tunnel.
    Answer(Box<Passed>, OwnedFd, Vec<u8>),
    Greeting(Box<Greeting>),
    Relay(Relay),
    /// All has been written; until the client has read it and closes.
    Farewell,
    Ended,
}

/// Events at the two ends of a connection.
#[derive(Clone, Copy)]
pub(super) struct Ready {
    pub client: PollFlags,
    pub other: PollFlags,
}

impl ProxiedConnection {
    pub(super) fn new(socket: TcpStream, now: Instant) -> Self {
        ignore(socket.set_nodelay(true));
        let client = ClientSide {
            socket,
            asked: None,
            is_allowed: false,
            recorded: None,
            began: now,
            up: 0,
            down: 0,
            deadline: Some(now + HEAD_TIME),
        };
        let stage = Stage::Head(Vec::new());
        Self { client, stage }
    }

    /// Records the end of a connection that was allowed.
    pub(super) fn record_end(&mut self, desk: &mut Desk) {
        let client = &mut self.client;
        let Some(id) = client.recorded.take() else {
            return;
        };
        let line = CloseLine {
            event: "close",
            id,
            up: client.up,
            down: client.down,
            ms: client.began.elapsed().as_millis() as u64,
            allowed: (!client.is_allowed).then_some(false),
        };
        if let Err(e) = desk.log.close(&line) {
            desk.say_unrecorded(&e);
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended)
    }

    /// The time at which another may take the place of one that has not said what it is for.
    pub(super) fn replaceable(&self) -> Option<Instant> {
        let is_silent = matches!(self.stage, Stage::Head(_));
        is_silent.then(|| self.client.began + SILENCE)
    }

    pub(super) fn is_lookup(&self) -> bool {
        matches!(self.stage, Stage::Lookup(..))
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.stage, Stage::Queued(_))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.client.deadline
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.client.socket.as_fd()
    }

    /// The events that are waited for: at the client, and at the other end if it is watched.
    pub(super) fn interest(&self) -> (PollFlags, Option<(BorrowedFd<'_>, PollFlags)>) {
        let none = PollFlags::empty();
        match &self.stage {
            Stage::Head(_) | Stage::Farewell => (PollFlags::IN, None),
            Stage::Queued(_) | Stage::Ended => (none, None),
            Stage::Lookup(_, lookup) => {
                let output = lookup.output();
                (none, output.map(|it| (it, PollFlags::IN)))
            }
            Stage::Connecting(_, server, _) => (none, Some((server.as_fd(), PollFlags::OUT))),
            Stage::Answer(_, server, _) => (none, Some((server.as_fd(), PollFlags::IN))),
            Stage::Greeting(it) => (none, Some((it.server.as_fd(), PollFlags::IN))),
            Stage::Relay(relay) => relay.interest(),
        }
    }

    /// Goes as far as is possible without waiting.
    pub(super) fn advance(&mut self, ready: Ready, desk: &mut Desk) {
        let (wanted, _) = self.interest();
        let is_gone = ready.client.intersects(PollFlags::ERR | PollFlags::HUP) && wanted.is_empty();
        let is_late = self.client.deadline.is_some_and(|it| it <= desk.now);
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        self.stage = match stage {
            _ if is_gone => Stage::Ended,
            stage if is_late => self.client.give_up(stage, desk),
            Stage::Head(head) if !ready.client.is_empty() => self.client.read_head(head, desk),
            Stage::Queued(passed) if desk.free_lookups > 0 => self.client.look_up(passed, desk),
            Stage::Lookup(passed, lookup) if !ready.other.is_empty() => {
                self.client.read_addresses(passed, lookup, desk)
            }
            Stage::Connecting(passed, server, rest) if !ready.other.is_empty() => {
                match sockopt::socket_error(&server) {
                    Ok(Ok(())) => self.client.connected(passed, server, desk),
                    Ok(Err(e)) | Err(e) => self.client.connect(passed, rest, e, desk),
                }
            }
            Stage::Answer(passed, server, text) if !ready.other.is_empty() => {
                self.client.read_answer(passed, (server, text), desk)
            }
            Stage::Greeting(it) if !ready.other.is_empty() => self.client.listen(it, desk),
            Stage::Relay(relay) if !(ready.client | ready.other).is_empty() => {
                self.client.pass(relay, desk)
            }
            Stage::Farewell if !ready.client.is_empty() => self.client.part(desk),
            stage => stage,
        };
    }
}

impl ClientSide {
    /// Reads what there is of the head, and nothing that follows it.
    fn read_head(&mut self, mut head: Vec<u8>, desk: &mut Desk) -> Stage {
        match take_head(&self.socket, &mut head, &mut desk.scratch) {
            Ok(true) => {}
            Ok(false) if head.len() < LONGEST_HEAD => return Stage::Head(head),
            // No reader would take it.
            Ok(false) => head.clear(),
            Err(_) => return Stage::Ended,
        }
        match Request::parse(&head) {
            Ok(request) => self.admit(request, desk),
            Err(why) => {
                self.asked = Some((String::new(), 0));
                self.refuse("400 Bad Request", why, desk)
            }
        }
    }

    fn connected(&mut self, passed: Box<Passed>, server: OwnedFd, desk: &mut Desk) -> Stage {
        ignore(sockopt::set_tcp_nodelay(&server, true));
        let is_socks = |it: &&Upstream| it.scheme.is_socks();
        if let Some(proxy) = passed.upstream.as_ref().filter(is_socks) {
            let address = passed.target.map(Host::Address);
            let target = address.as_ref().unwrap_or(&passed.request.host);
            let greeting = Greeting {
                socks: Socks5::new(proxy, target, passed.request.port),
                passed,
                server,
                read: Vec::new(),
                expected: 0,
            };
            return self.greet(Box::new(greeting), desk);
        }
        let login = passed.upstream.as_ref().map(Upstream::credentials);
        self.begin(passed, server, login.as_deref(), desk)
    }

    /// Begins what was asked for, of the server or, with a login that may be empty, of an HTTP proxy.
    fn begin(
        &mut self,
        passed: Box<Passed>,
        server: OwnedFd,
        proxy: Option<&str>,
        desk: &mut Desk,
    ) -> Stage {
        match (&passed.request.kind, proxy) {
            (Kind::Tunnel, None) => self.open_tunnel(server, desk),
            (Kind::Tunnel, Some(_)) => {
                let head = passed.request.head_for(proxy);
                self.deadline = Some(desk.now + HEAD_TIME);
                // It fits: nothing has been sent before.
                match send(&server, &head, SendFlags::NOSIGNAL) {
                    Ok(sent) if sent == head.len() => Stage::Answer(passed, server, Vec::new()),
                    _ => self.fail("the proxy of delta's environment does not listen", desk),
                }
            }
            (Kind::Plain(plain), _) => {
                self.deadline = None;
                let head = passed.request.head_for(proxy);
                let relay = Relay::of_request(server, head, plain.body.clone());
                self.pass(relay, desk)
            }
        }
    }

    /// Reads what the other proxy says of a tunnel. Before it agrees it gets nothing of what the command sends, which
    /// could be another request to it.
    fn read_answer(
        &mut self,
        passed: Box<Passed>,
        (server, mut text): (OwnedFd, Vec<u8>),
        desk: &mut Desk,
    ) -> Stage {
        let read = take_head(&server, &mut text, &mut desk.scratch);
        if let Ok(false) = read
            && text.len() < LONGEST_HEAD
        {
            return Stage::Answer(passed, server, text);
        }
        match tunnel_status(&text) {
            Some(code) if code.starts_with('2') && matches!(read, Ok(true)) => {
                self.open_tunnel(server, desk)
            }
            code => {
                let authority = passed.request.authority();
                let answer = code.map_or_else(String::new, |code| format!(": it answers {code}"));
                let why = format!(
                    "the proxy of delta's environment opens no tunnel to {authority}{answer}"
                );
                self.fail(&why, desk)
            }
        }
    }

    /// Takes the next step with a SOCKS5 proxy.
    fn greet(&mut self, mut it: Box<Greeting>, desk: &mut Desk) -> Stage {
        let step = match it.socks.advance(&it.read) {
            Ok(step) => step,
            Err(SocksRefusal { why, .. }) => {
                return self.fail(&format!("the proxy of delta's environment {why}"), desk);
            }
        };
        if step.expected == 0 {
            let Greeting { passed, server, .. } = *it;
            return self.begin(passed, server, None, desk);
        }
        self.deadline = Some(desk.now + HEAD_TIME);
        it.read.clear();
        it.expected = step.expected;
        match send(&it.server, &step.send, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == step.send.len() => Stage::Greeting(it),
            _ => self.fail("the proxy of delta's environment does not listen", desk),
        }
    }

    /// Reads what a SOCKS5 proxy says, and nothing that follows it.
    fn listen(&mut self, mut it: Box<Greeting>, desk: &mut Desk) -> Stage {
        let room = &mut desk.scratch[..it.expected - it.read.len()];
        match recv(&it.server, &mut room[..], RecvFlags::DONTWAIT) {
            Ok((read @ 1.., _)) => it.read.extend(&room[..read]),
            Err(Errno::AGAIN) => return Stage::Greeting(it),
            _ => return self.fail("the proxy of delta's environment does not answer", desk),
        }
        if it.read.len() == it.expected {
            self.greet(it, desk)
        } else {
            Stage::Greeting(it)
        }
    }

    fn open_tunnel(&mut self, server: OwnedFd, desk: &mut Desk) -> Stage {
        self.deadline = None;
        let answer = b"HTTP/1.1 200 Connection established\r\n\r\n";
        match send(&self.socket, answer, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == answer.len() => self.pass(Relay::tunnel(server), desk),
            _ => Stage::Ended,
        }
    }

    fn pass(&mut self, mut relay: Relay, desk: &mut Desk) -> Stage {
        let before = self.up + self.down;
        let is_open = relay.pass(&self.socket, &mut desk.scratch);
        (self.up, self.down) = relay.bytes();
        if !is_open {
            return Stage::Ended;
        }
        if relay.is_answered() {
            self.deadline = Some(desk.now + FAREWELL);
            return Stage::Farewell;
        }
        if relay.is_half_open() && (self.deadline.is_none() || before < self.up + self.down) {
            self.deadline = Some(desk.now + HALF_OPEN);
        }
        Stage::Relay(relay)
    }

    /// Reads on until the client closes, so that it gets what it was sent.
    fn part(&mut self, desk: &mut Desk) -> Stage {
        match recv(&self.socket, &mut desk.scratch[..], RecvFlags::DONTWAIT) {
            Ok((1.., _)) | Err(Errno::AGAIN) => Stage::Farewell,
            _ => Stage::Ended,
        }
    }

    /// Ends a stage that takes too long.
    fn give_up(&mut self, stage: Stage, desk: &mut Desk) -> Stage {
        match stage {
            Stage::Lookup(passed, _) => {
                let seconds = PATIENCE.as_secs();
                let why = format!("{} does not resolve within {seconds} s", passed.next().0);
                self.fail(&why, desk)
            }
            Stage::Connecting(passed, _, rest) => self.connect(passed, rest, Errno::TIMEDOUT, desk),
            Stage::Answer(..) | Stage::Greeting(_) => {
                let why = "the proxy of delta's environment does not answer";
                self.fail(why, desk)
            }
            _ => Stage::Ended,
        }
    }

    /// Refuses a request that no door is for.
    fn forbid(&mut self, why: &str, desk: &mut Desk) -> Stage {
        self.refuse_aloud("403 Forbidden", why, desk)
    }

    /// Refuses a request that leads nowhere.
    fn fail(&mut self, why: &str, desk: &mut Desk) -> Stage {
        self.refuse_aloud("502 Bad Gateway", why, desk)
    }

    /// Says so to the person, too, once for each host.
    fn refuse_aloud(&mut self, status: &str, why: &str, desk: &mut Desk) -> Stage {
        let host = self.asked.as_ref().map_or("", |(host, _)| host);
        desk.say_once(host, why);
        self.refuse(status, why, desk)
    }

    fn refuse(&mut self, status: &str, why: &str, desk: &mut Desk) -> Stage {
        if let (None, Some((host, port))) = (&self.recorded, &self.asked)
            && let Err(e) = desk.log.open(host, *port, false)
        {
            desk.say_unrecorded(&e);
        }
        let body = format!("delta: sandbox: {why}\n");
        let length = body.len();
        let text = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        );
        // It fits: nothing has been sent before.
        ignore(send(&self.socket, text.as_bytes(), SendFlags::NOSIGNAL));
        ignore(self.socket.shutdown(Shutdown::Write));
        self.deadline = Some(desk.now + FAREWELL);
        Stage::Farewell
    }
}

/// Reads up to the end of a head. Returns whether that is there; what follows it stays in the socket.
fn take_head(socket: impl AsFd, head: &mut Vec<u8>, scratch: &mut [u8]) -> io::Result<bool> {
    let room = (LONGEST_HEAD - head.len()).min(scratch.len());
    let room = &mut scratch[..room];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let read = match recv(&socket, &mut room[..], flags) {
        Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok((read, _)) => read,
        Err(Errno::AGAIN) => return Ok(false),
        Err(e) => return Err(e.into()),
    };
    let known = head.len();
    head.extend(&room[..read]);
    let end = head_length(&head[known.saturating_sub(3)..]).map(|it| it + known.saturating_sub(3));
    head.truncate(end.unwrap_or(head.len()));
    let taken = head.len() - known;
    recv(&socket, &mut room[..taken], RecvFlags::DONTWAIT)?;
    Ok(end.is_some())
}

#[cfg(test)]
mod tests {
    use super::approach::begin_to_connect;
    use super::*;
    use rustix::event::{PollFd, poll};
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    const IDLE: Ready = Ready {
        client: PollFlags::empty(),
        other: PollFlags::empty(),
    };

    fn desk(door: &str, resolver: &[&str]) -> Desk {
        Desk {
            doors: vec![Door::parse(door).unwrap()],
            upstreams: Upstreams::default(),
            resolver: resolver.iter().map(ToString::to_string).collect(),
            now: Instant::now(),
            free_lookups: 1,
            log: ConnectionLog::default(),
            say: Box::new(|_| ()),
            said: HashSet::new(),
            scratch: vec![0; 4096],
        }
    }

    /// A client that has asked for a tunnel, and its connection once the request is read.
    fn asked(authority: &str, desk: &mut Desk) -> (TcpStream, ProxiedConnection) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut connection = ProxiedConnection::new(listener.accept().unwrap().0, desk.now);
        write!(client, "CONNECT {authority} HTTP/1.1\r\n\r\n").unwrap();
        let mut fds = [PollFd::from_borrowed_fd(connection.socket(), PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        let client_has_sent = Ready {
            client: PollFlags::IN,
            ..IDLE
        };
        connection.advance(client_has_sent, desk);
        (client, connection)
    }

    /// Checks that the connection waits for as long as it may, and what it answers then.
    fn gives_up(
        (mut client, mut connection): (TcpStream, ProxiedConnection),
        mut desk: Desk,
        words: &str,
    ) {
        let is_waiting =
            |it: &ProxiedConnection| matches!(it.stage, Stage::Lookup(..) | Stage::Connecting(..));
        desk.now += PATIENCE.saturating_sub(Duration::from_millis(1));
        connection.advance(IDLE, &mut desk);
        assert!(is_waiting(&connection));
        desk.now += Duration::from_millis(1);
        connection.advance(IDLE, &mut desk);
        assert!(!is_waiting(&connection));
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 502 ") && answer.contains(words),
            "{answer}"
        );
    }

    #[test]
    fn a_name_that_does_not_resolve_in_time_is_given_up() {
        let mut desk = desk("a.test", &["sh", "-c", "exec sleep 600"]);
        let asked = asked("a.test:443", &mut desk);
        gives_up(asked, desk, "a.test does not resolve within 10 s");
    }

    #[test]
    fn an_address_that_does_not_answer_in_time_is_given_up() {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // The kernel answers no more once one connection waits.
        rustix::net::listen(&silent, 0).unwrap();
        let address = silent.local_addr().unwrap();
        let _first = TcpStream::connect(address).unwrap();
        let _more = [address; 2].map(|address| begin_to_connect(address).unwrap());
        let mut desk = desk(&address.to_string(), &[]);
        let asked = asked(&address.to_string(), &mut desk);
        gives_up(asked, desk, &format!("{address} does not answer"));
    }
}
