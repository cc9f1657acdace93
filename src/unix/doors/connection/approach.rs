//! The way of a request to its server: whether it may pass, the addresses of the next host, the connection to one of them.

use super::{ClientSide, Desk, PATIENCE, Passed, Stage, unrecorded};
use crate::error::reason;
use crate::unix::doors::address::is_inside;
use crate::unix::doors::door::{Host, door_for};
use crate::unix::doors::lookup::NameLookup;
use crate::unix::doors::request::{Kind, Request};
use crate::unix::doors::upstream::{Scheme, Upstream};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use std::net::SocketAddr;

/// The most addresses of one name that are tried.
const TRIED_ADDRESSES: usize = 4;

impl ClientSide {
    /// Decides whether a request may pass, and on which way.
    pub(super) fn admit(&mut self, request: Request, desk: &mut Desk) -> Stage {
        let (host, port) = (&request.host, request.port);
        self.asked = Some((host.to_string(), port));
        if !desk.doors.iter().any(|door| door.opens(host, port)) {
            let door = door_for(host, port);
            let why = format!("{host}:{port} is closed; --allow-host {door} would open it");
            return self.forbid(&why, desk);
        }
        let is_tunnel = matches!(request.kind, Kind::Tunnel);
        let upstream = match desk.upstreams.find(host, port, is_tunnel) {
            Ok(upstream) => upstream,
            Err(why) => return self.fail(&why, desk),
        };
        // The name itself passes when it is looked up.
        match desk.log.open(&request.host.to_string(), port, true) {
            Ok(id) => self.recorded = Some(id),
            Err(e) => return self.fail(&unrecorded(&e), desk),
        }
        self.is_allowed = true;
        if let Some(upstream) = &upstream {
            let chooses = match upstream.scheme {
                Scheme::Socks5 => "",
                _ => ", which chooses the addresses",
            };
            let text = format!(
                "what is open is reached through the proxy of delta's environment{chooses}"
            );
            desk.say_once("", &text);
            if let Some(warning) = desk.upstreams.warning(host, port, is_tunnel) {
                desk.say_once("warning", &warning);
            }
        }
        let target = match host {
            Host::Address(address) => Some(*address),
            Host::Name(_) => None,
        };
        let passed = Passed {
            request,
            upstream,
            target,
        };
        self.approach(Box::new(passed), desk)
    }

    /// Goes to the next host on the way.
    fn approach(&mut self, passed: Box<Passed>, desk: &mut Desk) -> Stage {
        match passed.next() {
            // The door names it, or delta's environment.
            (Host::Address(address), port) => {
                let addresses = vec![SocketAddr::new(address, port)];
                self.connect(passed, addresses, Errno::HOSTUNREACH, desk)
            }
            (Host::Name(_), _) => {
                self.deadline = None;
                match desk.free_lookups {
                    0 => Stage::Queued(passed),
                    _ => self.look_up(passed, desk),
                }
            }
        }
    }

    /// Starts a process that asks the system's resolver, which blocks.
    pub(super) fn look_up(&mut self, passed: Box<Passed>, desk: &mut Desk) -> Stage {
        let (host, _) = passed.next();
        desk.free_lookups = desk.free_lookups.saturating_sub(1);
        self.deadline = Some(desk.now + PATIENCE);
        match NameLookup::start(&desk.resolver, &host) {
            Ok(lookup) => Stage::Lookup(passed, lookup),
            Err(e) => self.fail(&format!("{host} cannot be looked up: {}", reason(&e)), desk),
        }
    }

    pub(super) fn read_addresses(
        &mut self,
        mut passed: Box<Passed>,
        mut lookup: NameLookup,
        desk: &mut Desk,
    ) -> Stage {
        let Some(mut all) = lookup.read(&mut desk.scratch) else {
            return Stage::Lookup(passed, lookup);
        };
        let (host, port) = passed.next();
        let first = all.first().copied();
        let is_target = passed.is_target_next();
        if is_target {
            all.retain(|address| !is_inside(*address));
        }
        match (first, all.is_empty()) {
            (None, _) => self.fail(&format!("{host} does not resolve"), desk),
            (Some(inside), true) => {
                self.is_allowed = false;
                let inside = Host::Address(inside);
                let door = door_for(&inside, port);
                let why = format!(
                    "{host} leads to {inside}, which is of this machine or its network; only --allow-host {door} \
                     opens that, under its address"
                );
                self.forbid(&why, desk)
            }
            (Some(_), false) if is_target && passed.upstream.is_some() => {
                passed.target = all.first().copied();
                self.approach(passed, desk)
            }
            (Some(_), false) => {
                let all: Vec<SocketAddr> = all
                    .into_iter()
                    .take(TRIED_ADDRESSES)
                    .map(|address| SocketAddr::new(address, port))
                    .rev()
                    .collect();
                self.connect(passed, all, Errno::HOSTUNREACH, desk)
            }
        }
    }

    /// Begins to connect to the last of these addresses. `failure` is that of the one before.
    pub(super) fn connect(
        &mut self,
        passed: Box<Passed>,
        mut addresses: Vec<SocketAddr>,
        mut failure: Errno,
        desk: &mut Desk,
    ) -> Stage {
        while let Some(address) = addresses.pop() {
            match begin_to_connect(address) {
                Ok(server) => {
                    self.deadline = Some(desk.now + PATIENCE);
                    return Stage::Connecting(passed, server, addresses);
                }
                Err(e) => failure = e,
            }
        }
        let (host, port) = passed.next();
        let why = reason(&failure.into());
        let why = format!("{host}:{port} does not answer: {why}");
        self.fail(&why, desk)
    }
}

impl Passed {
    /// The host to connect to.
    pub(super) fn next(&self) -> (Host, u16) {
        match self.upstream.as_ref().filter(|_| !self.is_target_next()) {
            Some(upstream) => (upstream.host.clone(), upstream.port),
            None => (self.request.host.clone(), self.request.port),
        }
    }

    /// True if the host of the request is to be resolved, or connected to, here.
    fn is_target_next(&self) -> bool {
        let resolves = |it: &Upstream| it.scheme == Scheme::Socks5 && self.target.is_none();
        self.upstream.as_ref().is_none_or(resolves)
    }
}

pub(super) fn begin_to_connect(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(e) => Err(e),
    }
}
