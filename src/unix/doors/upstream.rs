//! The proxies that an environment names, and the hosts that are reached without them.
//!
//! Pure. Unaware of doors and models, which both ask here.

use super::door::Host;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::fmt;
use std::net::IpAddr;

/// The protocols of proxies, with the ports of URLs that name none.
const SCHEMES: [(&str, Scheme, u16); 4] = [
    ("http", Scheme::Http, 80),
    ("https", Scheme::Https, 443),
    ("socks5", Scheme::Socks5, 1080),
    ("socks5h", Scheme::Socks5h, 1080),
];

/// A protocol that a proxy speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
    /// SOCKS5 with addresses: names are resolved here.
    Socks5,
    /// SOCKS5 with names.
    Socks5h,
}

impl Scheme {
    pub(crate) fn is_socks(self) -> bool {
        matches!(self, Self::Socks5 | Self::Socks5h)
    }
}

/// A proxy to go through.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    pub scheme: Scheme,
    pub host: Host,
    pub port: u16,
    /// The user and the password, decoded.
    pub login: Option<[Vec<u8>; 2]>,
    /// The variable that names it.
    variable: &'static str,
}

impl Upstream {
    /// The value of `Proxy-Authorization`; empty without a login.
    pub(crate) fn credentials(&self) -> String {
        let encoded = |[user, password]: &[Vec<u8>; 2]| {
            let login = [user, &b":"[..], password].concat();
            format!("Basic {}", BASE64_STANDARD.encode(login))
        };
        self.login.as_ref().map(encoded).unwrap_or_default()
    }

    /// The URL without the login.
    pub(crate) fn url(&self) -> String {
        let row = SCHEMES.iter().find(|(_, scheme, _)| *scheme == self.scheme);
        let name = row.map_or("http", |(name, ..)| name);
        format!("{name}://{}:{}", self.host, self.port)
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy {} ({})", self.url(), self.variable)
    }
}

/// The variables of an environment that are about proxies.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    http: Option<(&'static str, String)>,
    https: Option<(&'static str, String)>,
    exceptions: String,
    speaks_https: bool,
}

impl Upstreams {
    /// Reads the process's environment. A value that is not UTF-8 counts as set. `speaks_https`: whether proxies may be
    /// reached over TLS.
    pub(crate) fn of_process(speaks_https: bool) -> Self {
        let value = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
        Self::new(value, speaks_https)
    }

    fn new(variable: impl Fn(&str) -> Option<String>, speaks_https: bool) -> Self {
        let first = |names: &[&'static str]| {
            let mut values = names
                .iter()
                .filter_map(|name| Some((*name, variable(name)?)));
            values.find(|(_, value)| !stripped(value).is_empty())
        };
        let exceptions = first(&["no_proxy", "NO_PROXY"]);
        Self {
            http: first(&["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]),
            https: first(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            exceptions: exceptions
                .map_or_else(String::new, |(_, value)| value.to_ascii_lowercase()),
            speaks_https,
        }
    }

    /// The proxy for a host; none for this machine's own loopback interface.
    ///
    /// # Errors
    /// The variable that counts names no proxy that can be used. The sentence repeats nothing of the URL, which may
    /// hold a password.
    pub(crate) fn find(
        &self,
        host: &Host,
        port: u16,
        is_tls: bool,
    ) -> Result<Option<Upstream>, String> {
        let set = if is_tls { &self.https } else { &self.http };
        let Some((variable, value)) = set else {
            return Ok(None);
        };
        if host.is_loopback() || self.is_excepted(host, port) {
            return Ok(None);
        }
        let usable = |proxy: &Upstream| self.speaks_https || proxy.scheme != Scheme::Https;
        let found = read_url(variable, stripped(value)).filter(usable);
        found.map(Some).ok_or_else(|| {
            let schemes = if self.speaks_https {
                "http, https, socks5 or socks5h"
            } else {
                "http, socks5 or socks5h"
            };
            format!(
                "the variable {variable} is not SCHEME://HOST:PORT of a proxy that speaks {schemes}"
            )
        })
    }

    /// A warning about the variables that decide for a host, if there is one.
    pub(crate) fn warning(&self, host: &Host, port: u16, is_tls: bool) -> Option<String> {
        let (set, other, protocol) = if is_tls {
            (&self.https, &self.http, "https")
        } else {
            (&self.http, &self.https, "plain http")
        };
        if host.is_loopback() || self.is_excepted(host, port) {
            return None;
        }
        match (set, other) {
            (Some((name, value)), _) if value != stripped(value) => Some(format!(
                "{name} has blanks or quotes around its value; they are ignored"
            )),
            (None, Some((name, _))) => Some(format!(
                "{host} is asked directly: {name} names no proxy for {protocol}"
            )),
            _ => None,
        }
    }

    fn is_excepted(&self, host: &Host, port: u16) -> bool {
        let is_end = |c: char| c == ',' || c.is_whitespace();
        let mut entries = self.exceptions.split(is_end).map(stripped);
        entries.any(|entry| covers(entry, host, port) == Some(true))
    }
}

/// A value without the blanks and quotes around it.
fn stripped(value: &str) -> &str {
    value.trim_matches(|c: char| c.is_whitespace() || "\"'“”‘’".contains(c))
}

/// True if an entry of `no_proxy` is about a host: `*`, `NET/BITS`, an address, or a name, which covers those below it, too;
/// each of the last two with a port or without. `None` for an entry of no such form.
fn covers(entry: &str, host: &Host, port: u16) -> Option<bool> {
    if entry == "*" {
        return Some(true);
    }
    if let Some((network, length)) = entry.split_once('/') {
        let (network, length) = (network.parse().ok()?, length.parse().ok()?);
        return Some(matches!(host, Host::Address(it) if is_in(*it, network, length)?));
    }
    let (place, only) = match entry.rsplit_once(':') {
        Some((place, only)) if !place.contains(':') || place.ends_with(']') => {
            (place, Some(only.parse::<u16>().ok()?))
        }
        _ => (entry, None),
    };
    let is_host = match host {
        Host::Address(_) => Host::parse(place).as_ref() == Some(host),
        Host::Name(name) => {
            let parent = place.trim_start_matches('*').trim_matches('.');
            let above = name.strip_suffix(parent).filter(|_| !parent.is_empty());
            above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
        }
    };
    Some(is_host && only.is_none_or(|only| only == port))
}

/// True for an address of a network whose first bits these are.
fn is_in(address: IpAddr, network: IpAddr, length: u32) -> Option<bool> {
    let (width, differing) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (32, u128::from(a.to_bits() ^ b.to_bits())),
        (IpAddr::V6(a), IpAddr::V6(b)) => (128, a.to_bits() ^ b.to_bits()),
        _ => return Some(false),
    };
    let rest = u32::checked_sub(width, length)?;
    Some(differing.checked_shr(rest).unwrap_or(0) == 0)
}

/// `[SCHEME://][USER[:PASSWORD]@]HOST[:PORT]`; without a scheme it is http.
pub(crate) fn read_url(variable: &'static str, url: &str) -> Option<Upstream> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let mut known = SCHEMES.iter();
    let (_, scheme, default) = known.find(|(name, ..)| scheme.eq_ignore_ascii_case(name))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (encoded, place) = match authority.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, authority),
    };
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (place, *default),
    };
    let login = encoded.map(|login| {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        [unescape(user), unescape(password)]
    });
    // RFC 1929 has one byte for the length of each.
    let is_short = |part: &Vec<u8>| !scheme.is_socks() || u8::try_from(part.len()).is_ok();
    if !login.iter().flatten().all(is_short) {
        return None;
    }
    Some(Upstream {
        scheme: *scheme,
        host: Host::parse(host)?,
        port,
        login,
        variable,
    })
}

/// The status of a proxy's answer to CONNECT, of three digits.
pub(crate) fn tunnel_status(head: &[u8]) -> Option<&str> {
    let code = head.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    let code = std::str::from_utf8(code).ok();
    code.filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The bytes of a text with `%XX` in it.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|it| std::str::from_utf8(it).ok());
        let escaped = digits.and_then(|it| u8::from_str_radix(it, 16).ok());
        match escaped.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(set: &[(&str, &str)], host: &str, is_tls: bool) -> Result<Option<Upstream>, String> {
        let value = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|it| it.1.to_owned())
        };
        let host = Host::parse(host).unwrap();
        Upstreams::new(value, true).find(&host, 443, is_tls)
    }

    fn warning(name: &str, value: &str, is_tls: bool) -> Option<String> {
        let value = |it: &str| (it == name).then(|| value.to_owned());
        let host = Host::parse("x.org").unwrap();
        Upstreams::new(value, true).warning(&host, 443, is_tls)
    }

    fn found(set: &[(&str, &str)], is_tls: bool) -> String {
        let proxy = find(set, "x.org", is_tls).unwrap();
        proxy.map_or_else(String::new, |it| {
            format!("{} {}", it.url(), it.credentials())
        })
    }

    #[test]
    fn each_kind_of_request_has_its_variable() {
        let set = [
            ("http_proxy", "http://a:1"),
            ("HTTPS_PROXY", "b:2/"),
            ("ALL_PROXY", "c:3"),
        ];
        assert_eq!(found(&set, false), "http://a:1 ");
        assert_eq!(found(&set, true), "http://b:2 ");
        assert_eq!(found(&set[2..], true), "http://c:3 ");
        for empty in ["", " ", "\"\""] {
            assert_eq!(found(&[("http_proxy", empty)], false), "", "{empty:?}");
            let next = [("http_proxy", empty), ("HTTP_PROXY", "a")];
            assert_eq!(found(&next, false), "http://a:80 ");
        }
    }

    #[test]
    fn schemes_logins_and_what_is_around_a_value_are_read() {
        for (url, read) in [
            (
                "http://u%40x:p%3Aw@[::1]:8080",
                "http://[::1]:8080 Basic dUB4OnA6dw==",
            ),
            ("HTTPS://p", "https://p:443 "),
            ("socks5://u@p", "socks5://p:1080 Basic dTo="),
            (" \"socks5h://p:9\" ", "socks5h://p:9 "),
        ] {
            assert_eq!(found(&[("https_proxy", url)], true), read);
            let warning = warning("https_proxy", url, true);
            assert_eq!(warning.is_some(), url.starts_with(' '), "{url}");
        }
        let long = format!("socks5://{}@p", "u".repeat(256));
        for url in [
            "socks://a:1",
            "socks4://a",
            "ftp://a:1",
            "http://",
            "http://a:b",
            "a b",
            &long,
            "\u{fffd}",
        ] {
            let why = find(&[("all_proxy", url)], "x.org", true).unwrap_err();
            assert!(why.contains("all_proxy") && !why.contains(url), "{why}");
            // Others come first, or it is not asked about this host.
            assert!(find(&[("all_proxy", url), ("https_proxy", "a")], "x.org", true).is_ok());
            assert!(find(&[("all_proxy", url), ("no_proxy", "org")], "x.org", true).is_ok());
            assert!(find(&[("all_proxy", url)], "127.0.0.1", true).is_ok());
        }
    }

    #[test]
    fn a_variable_for_the_other_protocol_is_mentioned() {
        let text = warning("HTTPS_PROXY", "socks5://p", false).unwrap();
        assert_eq!(
            text,
            "x.org is asked directly: HTTPS_PROXY names no proxy for plain http"
        );
        assert!(warning("http_proxy", "p", true).is_some());
        assert_eq!(warning("all_proxy", "p", true), None);
    }

    #[test]
    fn excepted_hosts_are_reached_directly() {
        let is_direct = |list: &str, host: &str| {
            let set = [("all_proxy", "p:1"), ("no_proxy", list)];
            find(&set, host, true).unwrap().is_none()
        };
        for (list, host) in [
            ("x.org", "x.org"),
            (".x.org, b", "a.x.org"),
            ("*.X.org", "a.x.org"),
            ("b a.org", "x.a.org"),
            ("a,*", "x.org"),
            ("a,x.org:443", "x.org"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("10.1.2.3", "10.1.2.3"),
            ("10.1.2.3:443", "10.1.2.3"),
            ("10.0.0.0/8", "10.1.2.3"),
            ("0.0.0.0/0", "10.1.2.3"),
            ("fd00::/8", "fd12::1"),
            ("", "127.1.2.3"),
            ("", "::1"),
            ("", "localhost"),
        ] {
            assert!(is_direct(list, host), "{list} {host}");
        }
        for (list, host) in [
            ("x.org", "ax.org"),
            ("x.org:80", "x.org"),
            ("a,,b", "x.org"),
            (".", "x.org"),
            ("10.0.0.0/8", "11.1.2.3"),
            ("10.0.0.0/33", "10.1.2.3"),
            ("10.0.0.0/8", "10.1.2.3.x.org"),
            ("0.0.0.0/0", "2001:db8::1"),
            ("1.2.3", "10.1.2.3"),
        ] {
            assert!(!is_direct(list, host), "{list} {host}");
        }
    }
}
