//! Base URLs: which can be used, what may be shown of them, and which are on this machine.

use crate::config::api::appended_path;

/// Why a base URL cannot be used, if it cannot.
pub(crate) fn url_objection(url: &str) -> Option<String> {
    if let Some(path) = appended_path(url) {
        return Some(format!(
            "it ends in {path}, which is appended to it; omit that"
        ));
    }
    form_objection(url).map(str::to_owned)
}

fn form_objection(url: &str) -> Option<&'static str> {
    let uri: ureq::http::Uri = match url.parse() {
        Ok(uri) => uri,
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
        (Some("http" | "https"), Some(_)) if uri.query().is_some() => Some("it has a query"),
        (Some("https"), Some(_)) if !cfg!(feature = "tls") => {
            Some("this delta was built without TLS; build it with `make`")
        }
        (Some("http" | "https"), Some(_)) => None,
        _ => Some("it does not begin with http:// or https://"),
    }
}

/// True if a number stands where the port does that is none.
fn has_port_out_of_range(authority: &str) -> bool {
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    !port.is_empty()
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_err()
}

/// A URL without its credentials and its query, either of which may hold a key.
pub(crate) fn without_secrets(url: &str) -> String {
    let url = url.split_once('?').map_or(url, |(before, _)| before);
    let scheme = url.find("://").map_or("", |at| &url[..at + 3]);
    match url.rsplit_once('@') {
        Some((_, rest)) => format!("{scheme}…@{rest}"),
        None => url.to_owned(),
    }
}

/// True if a URL's host is this machine.
pub(crate) fn is_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    let host = authority.rsplit('@').next().unwrap_or("");
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}
