//! The proxies that an environment names, and the hosts that are reached without them.
//!
//! Pure. Unaware of doors.

use super::door::Host;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// A proxy to go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Upstream {
    pub host: Host,
    pub port: u16,
    /// What it is given as `Proxy-Authorization`; empty: nothing.
    pub credentials: String,
}

/// What the environment says of proxies.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    http: Option<String>,
    https: Option<String>,
    exceptions: String,
}

impl Upstreams {
    /// Reads the variables as curl and most programs do.
    pub(crate) fn new(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: &[&str]| {
            let values = names.iter().filter_map(|name| variable(name));
            values
                .map(|value| value.trim().to_owned())
                .find(|value| !value.is_empty())
        };
        Self {
            http: first(&["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]),
            https: first(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            exceptions: first(&["no_proxy", "NO_PROXY"]).unwrap_or_default(),
        }
    }

    /// The proxy for a host, if there is one.
    ///
    /// # Errors
    /// Why it cannot be used; the sentence repeats nothing of the URL, which may hold a password.
    pub(super) fn find(
        &self,
        host: &Host,
        port: u16,
        is_tunnel: bool,
    ) -> Result<Option<Upstream>, &'static str> {
        let url = if is_tunnel { &self.https } else { &self.http };
        match url {
            Some(url) if !self.is_excepted(host, port) => {
                let read = read_url(url);
                let unusable =
                    "the proxy that the environment of delta names is not http://HOST:PORT";
                read.map(Some).ok_or(unusable)
            }
            _ => Ok(None),
        }
    }

    fn is_excepted(&self, host: &Host, port: u16) -> bool {
        let name = host.to_string();
        let name = name.trim_matches(['[', ']']);
        let entries = self.exceptions.split([',', ' ']);
        let mut entries = entries.map(|entry| entry.trim().to_ascii_lowercase());
        entries.any(|entry| {
            let entry = match entry.rsplit_once(':') {
                Some((before, number)) if number.parse() == Ok(port) && !before.contains(':') => {
                    before
                }
                _ => &entry,
            };
            let entry = entry.trim_start_matches('*').trim_start_matches('.');
            let below = name.strip_suffix(entry);
            match below {
                _ if self.exceptions.trim() == "*" => true,
                Some(below) => !entry.is_empty() && (below.is_empty() || below.ends_with('.')),
                None => false,
            }
        })
    }
}

/// `http://[USER[:PASSWORD]@]HOST[:PORT]`, with or without the scheme.
fn read_url(url: &str) -> Option<Upstream> {
    let rest = match url.split_once("://") {
        Some((scheme, rest)) => Some(rest).filter(|_| scheme.eq_ignore_ascii_case("http"))?,
        None => url,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, place) = match authority.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, authority),
    };
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (place, 80),
    };
    let credentials = user.map(|user| {
        let user = unescape(user);
        let user = if user.contains(&b':') {
            user
        } else {
            [user, vec![b':']].concat()
        };
        format!("Basic {}", BASE64_STANDARD.encode(user))
    });
    Some(Upstream {
        host: Host::parse(host)?,
        port,
        credentials: credentials.unwrap_or_default(),
    })
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

    fn find(
        set: &[(&str, &str)],
        host: &str,
        is_tunnel: bool,
    ) -> Result<Option<String>, &'static str> {
        let value = |name: &str| {
            set.iter()
                .find(|(known, _)| *known == name)
                .map(|it| it.1.to_owned())
        };
        let host = Host::parse(host).unwrap();
        let found = Upstreams::new(value).find(&host, 443, is_tunnel)?;
        Ok(found.map(|it| format!("{}:{} {}", it.host, it.port, it.credentials)))
    }

    #[test]
    fn each_kind_of_request_has_its_variable() {
        let set = [
            ("http_proxy", "http://a:1"),
            ("HTTPS_PROXY", "b:2/"),
            ("ALL_PROXY", "c:3"),
        ];
        assert_eq!(find(&set, "x.org", false).unwrap().unwrap(), "a:1 ");
        assert_eq!(find(&set, "x.org", true).unwrap().unwrap(), "b:2 ");
        assert_eq!(find(&set[2..], "x.org", true).unwrap().unwrap(), "c:3 ");
        assert_eq!(find(&[("http_proxy", " ")], "x.org", false), Ok(None));
    }

    #[test]
    fn a_user_and_a_password_become_a_header_and_other_schemes_are_refused() {
        let set = [("https_proxy", "http://u%40x:p%3Aw@[::1]:8080")];
        assert_eq!(
            find(&set, "x.org", true).unwrap().unwrap(),
            "[::1]:8080 Basic dUB4OnA6dw=="
        );
        for url in ["socks5://a:1", "https://a:1", "http://", "http://a:b"] {
            assert!(find(&[("all_proxy", url)], "x.org", true).is_err(), "{url}");
        }
    }

    #[test]
    fn excepted_hosts_are_reached_directly() {
        let with = |list: &str, host: &str| {
            find(&[("all_proxy", "p:1"), ("no_proxy", list)], host, true)
                .unwrap()
                .is_none()
        };
        assert!(
            with("x.org", "x.org") && with(".x.org, b", "a.x.org") && with("*.x.org", "a.x.org")
        );
        assert!(with("*", "x.org") && with("a,x.org:443", "x.org") && with("::1", "::1"));
        assert!(!with("x.org", "ax.org") && !with("x.org:80", "x.org") && !with("a,,b", "x.org"));
    }
}
