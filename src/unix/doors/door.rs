//! The names of hosts, and the doors that open them: which host and which ports a command may reach.
//!
//! Unaware of the addresses of names, and of who asks.

use crate::text::names::last_part;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The ports of a door that names none: those of https and http.
const PORTS: [u16; 2] = [443, 80];

/// The longest name of the domain name system, without its final dot.
const LONGEST_NAME: usize = 253;

/// A host as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// Written as an address, as the RFCs have it: no other spelling of numbers is one.
    Address(IpAddr),
    /// In lower case, without a final dot.
    Name(String),
}

impl Host {
    /// Reads a host; an IPv6 address may be in brackets. None: it is neither a name nor an address.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let inner = text.strip_prefix('[').map(|it| it.strip_suffix(']'));
        if let Some(inner) = inner {
            let address: Ipv6Addr = inner?.parse().ok()?;
            return Some(Self::Address(IpAddr::V6(address).to_canonical()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        is_name(&name).then_some(Self::Name(name))
    }

    /// True for this machine's own loopback interface.
    pub(super) fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => name == "localhost",
        }
    }
}

/// True for labels of letters, digits, hyphens and underscores. The last one is no number: resolvers take such names
/// for addresses.
fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=63).contains(&label.len())
            && label.bytes().all(allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = last_part(name, '.');
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || (last.strip_prefix("0x")).is_some_and(|it| it.bytes().all(|b| b.is_ascii_hexdigit()));
    name.len() <= LONGEST_NAME && name.split('.').all(is_label) && !is_number
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// The hosts that a door opens.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Opened {
    Host(Host),
    /// Every name below this one.
    Below(String),
}

/// `NAME`, `NAME:PORT`, `*.NAME`, an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Door {
    opened: Opened,
    /// None: those of https and http.
    port: Option<u16>,
}

impl Door {
    /// Reads a door.
    ///
    /// # Errors
    /// Why the text is not a door.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.is_ascii() {
            return Err("write a name with other letters as in the domain name system: xn--…");
        }
        if text.contains(['/', '@']) {
            return Err("a host is a name or an address, not a URL");
        }
        let is_address = text.parse::<Ipv6Addr>().is_ok();
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !is_address && !text.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let port = match port {
            None => None,
            Some(port) => {
                let is_plain = !port.starts_with(['0', '+']);
                let number = port.parse().ok().filter(|_| is_plain);
                Some(number.ok_or("a port is a number from 1 to 65535")?)
            }
        };
        let opened = match host.strip_prefix("*.") {
            Some(name) => match Host::parse(name) {
                Some(Host::Name(name)) => Opened::Below(name),
                _ => return Err("the subdomains of a name are *.NAME"),
            },
            None if host.contains('*') => return Err("the subdomains of a name are *.NAME"),
            None => Opened::Host(Host::parse(host).ok_or("it is neither a name nor an address")?),
        };
        Ok(Self { opened, port })
    }

    /// True if a request for this host and port may pass.
    pub(super) fn opens(&self, host: &Host, port: u16) -> bool {
        let is_host = match (&self.opened, host) {
            (Opened::Host(opened), host) => opened == host,
            (Opened::Below(parent), Host::Name(name)) => {
                let below = name.strip_suffix(parent.as_str());
                below.is_some_and(|below| below.ends_with('.'))
            }
            (Opened::Below(_), Host::Address(_)) => false,
        };
        let is_port = match self.port {
            Some(own) => own == port,
            None => PORTS.contains(&port),
        };
        is_host && is_port
    }

    /// The name whose subdomains the door opens, all of them.
    pub(crate) fn parent(&self) -> Option<&str> {
        match &self.opened {
            Opened::Below(name) => Some(name),
            Opened::Host(_) => None,
        }
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.opened {
            Opened::Host(host) => write!(f, "{host}")?,
            Opened::Below(name) => write!(f, "*.{name}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// The door that a request lacked, as an option has it.
pub(super) fn door_for(host: &Host, port: u16) -> String {
    if PORTS.contains(&port) {
        host.to_string()
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opens(door: &str, host: &str, port: u16) -> bool {
        let door = Door::parse(door).unwrap();
        Host::parse(host).is_some_and(|host| door.opens(&host, port))
    }

    #[test]
    fn a_door_opens_its_name_in_every_spelling_and_no_other() {
        for host in ["example.org", "EXAMPLE.org", "example.org."] {
            assert!(opens("Example.ORG.", host, 443), "{host}");
        }
        for host in [
            "example.org.evil.net",
            "evilexample.org",
            "a.example.org",
            "example.org..",
            "example.org\0.evil.net",
            "example.org@evil.net",
            "еxample.org",
            "",
            ".",
        ] {
            assert!(!opens("example.org", host, 443), "{host}");
        }
    }

    #[test]
    fn a_wildcard_opens_subdomains_alone() {
        assert!(opens("*.example.org", "a.example.org", 80));
        assert!(opens("*.example.org", "A.b.example.org.", 443));
        for host in ["example.org", "evilexample.org", ".example.org", "1.2.3.4"] {
            assert!(!opens("*.example.org", host, 443), "{host}");
        }
    }

    #[test]
    fn ports_are_those_that_are_named_or_of_https_and_http() {
        assert!(opens("a.org", "a.org", 443) && opens("a.org", "a.org", 80));
        assert!(!opens("a.org", "a.org", 22) && !opens("a.org:22", "a.org", 443));
        assert!(opens("a.org:22", "a.org", 22) && opens("[::1]:8080", "[::1]", 8080));
        assert!(opens("::1", "[::1]", 443) && opens("127.0.0.1:90", "127.0.0.1", 90));
    }

    #[test]
    fn an_address_is_one_only_in_its_usual_form() {
        for host in [
            "127.1",
            "0x7f.0.0.1",
            "0x7f000001",
            "2130706433",
            "127.0.0.01",
            "0177.0.0.1",
            "[::1%lo]",
            "::1%1",
            "127.0.0.1.",
            "[127.0.0.1]",
        ] {
            assert_eq!(Host::parse(host), None, "{host}");
            assert!(Door::parse(host).is_err(), "{host}");
        }
        assert!(opens("127.0.0.1", "[::ffff:127.0.0.1]", 80));
    }

    #[test]
    fn what_is_no_door_is_refused_and_what_is_one_is_shown_as_it_is_read() {
        for text in [
            "",
            "*",
            "*.",
            "a.*",
            "*.1.2.3.4",
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            "a:01",
            "http://a",
            "a/b",
            "u@a",
            "ä.org",
            "a b",
            "-a",
            "[::1",
            "a..b",
        ] {
            assert!(Door::parse(text).is_err(), "{text}");
        }
        for (text, shown) in [
            ("A.org.", "a.org"),
            ("*.A.org:90", "*.a.org:90"),
            ("::1", "[::1]"),
            ("[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(Door::parse(text).unwrap().to_string(), shown);
        }
    }
}
