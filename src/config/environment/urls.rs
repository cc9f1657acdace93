//! Base URLs: which can be used, what may be shown of them, which are on this machine, and which have a proxy.

use crate::config::api::appended_path;
use crate::error::{Error, Result};
use crate::unix::doors::{Host, Upstream, Upstreams};

/// The reason why a base URL cannot be used, if there is one.
pub(crate) fn url_objection(url: &str) -> Option<String> {
    if ["http:", "https:"].contains(&url.trim_end_matches('/')) {
        return Some("it names no host".to_owned());
    }
    if let Some(path) = appended_path(url) {
        return Some(format!(
            "it ends in {path}, which is appended to it; omit that"
        ));
    }
    scheme_objection(url).or_else(|| form_objection(url).map(str::to_owned))
}

/// The reason why a base URL cannot be used that does not begin as one.
pub(crate) fn scheme_objection(url: &str) -> Option<String> {
    const LACKS: &str = "it does not begin with http:// or https://";
    if ["http://", "https://"].iter().any(|it| url.starts_with(it)) {
        return None;
    }
    let is_host = url.contains([':', '/', '.']) && !url.contains(['@', '?', ' ']);
    if !is_host || url.contains("//") || url.starts_with("http") {
        return Some(LACKS.to_owned());
    }
    let scheme = if url.contains(':') || is_loopback(url) {
        "http"
    } else {
        "https"
    };
    Some(format!("{LACKS}; did you mean {scheme}://{url}?"))
}

fn form_objection(url: &str) -> Option<&'static str> {
    let uri: ureq::http::Uri = match url.parse() {
        Ok(uri) => uri,
        Err(_) if url.contains(":///") => return Some("it names no host"),
        Err(_) => return Some("it is not a URL"),
    };
    let authority = uri.authority().map(ureq::http::uri::Authority::as_str);
    if has_port_out_of_range(authority.unwrap_or_default()) {
        return Some("its port is not a number up to 65535");
    }
    match (uri.scheme_str(), authority) {
        (Some("http" | "https"), Some(authority)) if authority.contains('@') => {
            Some("it holds credentials; put the key into DELTA_API_KEY")
        }
        (Some("http" | "https"), Some(_)) if url.contains('#') => {
            Some("it has a fragment, which is never sent; omit what begins with #")
        }
        (Some("https"), Some(_)) if !cfg!(feature = "tls") => {
            Some("this delta was built without TLS; build it with `make`")
        }
        (_, Some(_)) => None,
        (_, None) => Some("it names no host"),
    }
}

/// True if the port is a number out of range.
fn has_port_out_of_range(authority: &str) -> bool {
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    !port.is_empty()
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_err()
}

/// A URL without its credentials, query and fragment, each of which may hold a key.
pub(crate) fn without_secrets(url: &str) -> String {
    let url = url.split_once(['?', '#']).map_or(url, |(before, _)| before);
    let scheme = url.find("://").map_or("", |at| &url[..at + 3]);
    match url.rsplit_once('@') {
        Some((_, rest)) => format!("{scheme}…@{rest}"),
        None => url.to_owned(),
    }
}

/// The proxy that the process's environment names for a URL.
///
/// # Errors
/// Its variable cannot be used. Then nothing may be sent, directly neither.
pub(crate) fn find_proxy(url: &str) -> Result<Option<Upstream>> {
    let Some((host, port, is_tls)) = place_of(url) else {
        return Ok(None);
    };
    let found = upstreams().find(&host, port, is_tls);
    found.map_err(|why| Error::config(format!("{why}; unset it, or put {host} into no_proxy")))
}

/// A warning about the variables that decide on a URL's proxy.
pub(super) fn proxy_warning(url: &str) -> Option<String> {
    let (host, port, is_tls) = place_of(url)?;
    upstreams().warning(&host, port, is_tls)
}

fn upstreams() -> Upstreams {
    Upstreams::of_process(cfg!(feature = "tls"))
}

/// The host of a URL, its port, and whether TLS is spoken there.
fn place_of(url: &str) -> Option<(Host, u16, bool)> {
    let uri: ureq::http::Uri = url.parse().ok()?;
    let host = uri.host()?;
    // Resolvers know more spellings; a proxy may, too.
    let host = Host::parse(host).unwrap_or_else(|| Host::Name(host.to_ascii_lowercase()));
    let is_tls = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    Some((host, port, is_tls))
}

/// True if a URL's host is this machine.
pub(crate) fn is_loopback(url: &str) -> bool {
    let host = host_of(url);
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

/// True if a URL's host is this machine or has a private address.
pub(crate) fn is_local(url: &str) -> bool {
    use std::net::IpAddr;
    let is_private = |ip| match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
    };
    is_loopback(url) || host_of(url).parse().is_ok_and(is_private)
}

pub(super) fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    let host = authority.rsplit('@').next().unwrap_or("");
    match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_base_url_is_said_with_the_way_out() {
        const LACKS: &str = "it does not begin with http:// or https://";
        for (url, why) in [
            (
                "localhost:8080/v1",
                "; did you mean http://localhost:8080/v1?",
            ),
            ("127.0.0.1/v1", "; did you mean http://127.0.0.1/v1?"),
            ("10.1.2.3:80", "; did you mean http://10.1.2.3:80?"),
            (
                "api.example.com/v1",
                "; did you mean https://api.example.com/v1?",
            ),
            ("foo", ""),
            ("ftp://x/v1", ""),
            ("http:/x/v1", ""),
            ("user:secret@example.com/v1", ""),
        ] {
            assert_eq!(url_objection(url), Some(format!("{LACKS}{why}")), "{url}");
        }
        for url in ["http:", "https://", "http:///v1"] {
            assert_eq!(
                url_objection(url).as_deref(),
                Some("it names no host"),
                "{url}"
            );
        }
        assert_eq!(
            url_objection("http://a b").as_deref(),
            Some("it is not a URL")
        );
        assert_eq!(url_objection("http://localhost:8080/v1"), None);
    }
}
