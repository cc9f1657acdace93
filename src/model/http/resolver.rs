//! Names of hosts.

use super::proxied::Way;
use super::socket::Link;
use crate::unix::own_program::own_program;
use crate::unix::process::{self, Command, Ended};
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Finds addresses. The system's resolver blocks and cannot be interrupted, so that for real names
/// it is asked in a child process.
#[derive(Debug)]
pub(super) struct Lookup {
    pub(super) link: Arc<Link>,
    pub(super) way: Option<Way>,
}

impl Resolver for Lookup {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        if self.way.as_ref().is_some_and(|way| way.resolves(uri)) {
            return Ok(self.empty());
        }
        let host = uri.host().unwrap_or("").trim_matches(['[', ']']);
        let default = if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        let port = uri.port_u16().unwrap_or(default);
        let mut found = self.empty();
        let mut addresses: Vec<IpAddr> = match host.parse() {
            Ok(address) => vec![address],
            // No name server is asked for this name (RFC 6761 section 6.3).
            Err(_) if host.eq_ignore_ascii_case("localhost") => {
                vec![[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()]
            }
            Err(_) => self.look_up(host, timeout)?,
        };
        addresses.truncate(16);
        for address in addresses {
            found.push(SocketAddr::new(address, port));
        }
        if found.is_empty() {
            return Err(ureq::Error::Io(io::Error::other(format!(
                "no address for {host}"
            ))));
        }
        Ok(found)
    }
}

impl Lookup {
    fn look_up(&self, host: &str, timeout: NextTimeout) -> Result<Vec<IpAddr>, ureq::Error> {
        let argv = [own_program(), RESOLVE_COMMAND.to_owned(), host.to_owned()];
        let (mut reader, writer) = io::pipe()?;
        let null = || File::options().write(true).open("/dev/null");
        let command = Command {
            argv: &argv,
            dir: std::path::Path::new("/"),
            env: &[],
            call_id: &crate::text::ids::hex(12),
            stdin: None,
            // Its few lines fit into the pipe, so that it never waits for us.
            stdout: File::from(OwnedFd::from(writer)),
            stderr: null()?,
            timeout: timeout.not_zero().map(|time| *time),
        };
        let outcome = process::run(&self.link.signals, command, Duration::ZERO)
            .map_err(|_| ureq::Error::HostNotFound)?;
        if outcome.how == Ended::TimedOut {
            return Err(ureq::Error::Timeout(timeout.reason));
        }
        let mut text = String::new();
        reader.read_to_string(&mut text)?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }
}

/// The command of `delta` that asks the system's resolver and prints the addresses it finds.
pub(crate) const RESOLVE_COMMAND: &str = "resolve-host";

/// The addresses of a host, one a line.
pub(crate) fn resolve_host(host: &str) -> String {
    use std::net::ToSocketAddrs;
    let found = (host, 0).to_socket_addrs().into_iter().flatten();
    let lines: Vec<String> = found.map(|address| format!("{}\n", address.ip())).collect();
    lines.concat()
}
