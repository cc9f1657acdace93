//! The head of a request to a proxy, and the head that goes on to the server (RFC 9110, RFC 9112).
//!
//! Pure. Unaware of which hosts are open. What two readers could understand differently is refused.

use super::body::Body;
use super::door::Host;
use std::str::from_utf8;

/// The longest head that is read.
pub(super) const LONGEST_HEAD: usize = 16 << 10;

/// A request to a proxy.
#[derive(Debug)]
pub(super) struct Request {
    pub host: Host,
    pub port: u16,
    pub kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// CONNECT: what follows is for the server alone.
    Tunnel,
    /// One request, in the clear.
    Plain(Plain),
}

/// A request without the lines that are for the proxy.
#[derive(Debug)]
pub(super) struct Plain {
    method: String,
    /// From the slash on.
    path: String,
    version: &'static str,
    /// Lines with their ends.
    headers: Vec<u8>,
    pub body: Body,
}

/// The length of the head at the beginning of these bytes, with the empty line at its end.
pub(super) fn head_length(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

impl Request {
    /// Reads a whole head.
    ///
    /// # Errors
    /// Why it is no request that this proxy passes on.
    pub(super) fn parse(head: &[u8]) -> Result<Self, &'static str> {
        let mut lines = lines(head)?.into_iter();
        let first = lines.next().unwrap_or_default();
        let first = from_utf8(first).map_err(|_| "the request line is not ASCII")?;
        let words: Vec<&str> = first.split(' ').collect();
        let [method, target, version] = words[..] else {
            return Err("the request line is not METHOD TARGET VERSION");
        };
        let version = match version {
            "HTTP/1.1" => "HTTP/1.1",
            "HTTP/1.0" => "HTTP/1.0",
            _ => return Err("the version is not HTTP/1.1"),
        };
        if !is_token(method.as_bytes()) || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the request line has an invalid character");
        }
        if method == "CONNECT" {
            let (host, port) = read_authority(target, None)?;
            let kind = Kind::Tunnel;
            return Ok(Self { host, port, kind });
        }
        let scheme = target.get(..7).map(str::to_ascii_lowercase);
        if scheme.as_deref() != Some("http://") {
            return Err(
                "this is a proxy: it takes CONNECT for https, and http:// with the whole URL",
            );
        }
        if method == "TRACE" {
            return Err("TRACE would show what another proxy is given");
        }
        let rest = &target[7..];
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if rest.contains(['#', '\\']) {
            return Err("the URL has an invalid character");
        }
        let (host, port) = read_authority(authority, Some(80))?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        let (headers, body) = read_headers(lines, version)?;
        let plain = Plain {
            method: method.to_owned(),
            path: format!("{slash}{path}"),
            version,
            headers,
            body,
        };
        let kind = Kind::Plain(plain);
        Ok(Self { host, port, kind })
    }

    /// The host as the server is to see it.
    pub(super) fn authority(&self) -> String {
        match (&self.kind, self.port) {
            (Kind::Plain(_), 80) => self.host.to_string(),
            _ => format!("{}:{}", self.host, self.port),
        }
    }

    /// The head for the next proxy, which may want to know who asks, or, for a plain request, for the server itself.
    pub(super) fn head_for(&self, proxy: Option<&str>) -> Vec<u8> {
        let authority = self.authority();
        let credentials = match proxy {
            Some(text) if !text.is_empty() => format!("Proxy-Authorization: {text}\r\n"),
            _ => String::new(),
        };
        let Kind::Plain(plain) = &self.kind else {
            let head =
                format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{credentials}\r\n");
            return head.into_bytes();
        };
        let origin = match proxy {
            Some(_) => format!("http://{authority}"),
            None => String::new(),
        };
        let Plain {
            method,
            path,
            version,
            ..
        } = plain;
        let first =
            format!("{method} {origin}{path} {version}\r\nHost: {authority}\r\n{credentials}");
        [
            first.as_bytes(),
            &plain.headers,
            b"Connection: close\r\n\r\n",
        ]
        .concat()
    }
}

/// The lines of a head, without their ends and the empty one.
fn lines(head: &[u8]) -> Result<Vec<&[u8]>, &'static str> {
    let mut rest = head.strip_suffix(b"\r\n\r\n").unwrap_or(head);
    let mut lines = Vec::new();
    while let Some(at) = memchr::memmem::find(rest, b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    let is_clean = |line: &&[u8]| !line.iter().any(|byte| b"\r\n\0".contains(byte));
    if lines.iter().all(is_clean) {
        Ok(lines)
    } else {
        Err("a line does not end as one of HTTP does")
    }
}

/// A host and its port. User names are refused: they disguise the host after them.
fn read_authority(text: &str, default: Option<u16>) -> Result<(Host, u16), &'static str> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|port| *port > 0 && is_number);
            (host, port)
        }
        _ => (text, default),
    };
    let port = port.ok_or("the port is not a number from 1 to 65535")?;
    // An IPv6 address is in brackets here.
    let is_clear = host.contains(':') == host.starts_with('[');
    let host = Host::parse(host).filter(|_| is_clear);
    Ok((
        host.ok_or("the host is neither a name nor an address")?,
        port,
    ))
}

/// The lines that go on to the server, and the length of what follows them.
fn read_headers<'h>(
    lines: impl Iterator<Item = &'h [u8]> + Clone,
    version: &str,
) -> Result<(Vec<u8>, Body), &'static str> {
    let pairs: Vec<(Vec<u8>, &[u8], &[u8])> = lines
        .map(|line| {
            let at = line.iter().position(|byte| *byte == b':');
            let (name, value) = line.split_at(at.unwrap_or(0));
            let is_value = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
            if is_token(name) && value.iter().all(is_value) {
                Ok((name.to_ascii_lowercase(), value[1..].trim_ascii(), line))
            } else {
                Err("a line of the head is not NAME: VALUE")
            }
        })
        .collect::<Result<_, _>>()?;
    let values = |wanted: &'static [u8]| {
        let found = pairs.iter().filter(move |(name, ..)| name == wanted);
        found.map(|(_, value, _)| *value)
    };
    let listed: Vec<Vec<u8>> = values(b"connection")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|name| name.trim_ascii().to_ascii_lowercase())
        .collect();
    let body = read_length(
        values(b"content-length"),
        values(b"transfer-encoding"),
        version,
    )?;
    let framing: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];
    if listed.iter().any(|name| framing.contains(&&**name)) {
        return Err("Connection names a line that says how long the request is");
    }
    let dropped: [&[u8]; 6] = [
        b"connection",
        b"host",
        b"keep-alive",
        b"te",
        b"upgrade",
        b"http2-settings",
    ];
    let is_dropped = |name: &Vec<u8>| {
        dropped.contains(&&**name) || name.starts_with(b"proxy-") || listed.contains(name)
    };
    let mut headers = Vec::new();
    for (_, _, line) in pairs.iter().filter(|(name, ..)| !is_dropped(name)) {
        headers.extend([line, &b"\r\n"[..]].concat());
    }
    Ok((headers, body))
}

fn read_length<'h>(
    mut lengths: impl Iterator<Item = &'h [u8]>,
    mut encodings: impl Iterator<Item = &'h [u8]>,
    version: &str,
) -> Result<Body, &'static str> {
    const UNCLEAR: &str = "how long the request is can be understood in two ways";
    let (length, encoding) = (lengths.next(), encodings.next());
    if lengths.next().is_some() || encodings.next().is_some() {
        return Err(UNCLEAR);
    }
    match (length, encoding) {
        (None, None) => Ok(Body::of_length(0)),
        (Some(length), None) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
            let length = from_utf8(length).ok().and_then(|text| text.parse().ok());
            length.map(Body::of_length).ok_or(UNCLEAR)
        }
        (None, Some(encoding))
            if encoding.eq_ignore_ascii_case(b"chunked") && version == "HTTP/1.1" =>
        {
            Ok(Body::in_chunks())
        }
        _ => Err(UNCLEAR),
    }
}

/// True for a name of HTTP: a method or that of a header.
fn is_token(bytes: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Request, &'static str> {
        Request::parse(text.as_bytes())
    }

    fn passed(text: &str, proxy: Option<&str>) -> String {
        let head = parse(text).unwrap().head_for(proxy);
        String::from_utf8(head).unwrap()
    }

    #[test]
    fn a_plain_request_goes_on_with_the_host_of_its_url_and_without_what_is_the_proxys() {
        let text = "GET HTTP://Example.org:8080?q=1 HTTP/1.1\r\nHost: evil.net\r\nProxy-Authorization: Basic x\r\n\
            Accept: */*\r\nConnection: keep-alive, X-Own\r\nX-Own: 1\r\nTE: trailers\r\nhost: evil.net\r\n\r\n";
        assert_eq!(
            passed(text, None),
            "GET /?q=1 HTTP/1.1\r\nHost: example.org:8080\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(
            passed("GET http://a.org/x HTTP/1.0\r\n\r\n", Some("Basic eA==")),
            "GET http://a.org/x HTTP/1.0\r\nHost: a.org\r\nProxy-Authorization: Basic eA==\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn a_tunnel_names_a_host_and_a_port() {
        let request = parse("CONNECT Example.ORG.:443 HTTP/1.1\r\nHost: evil.net\r\n\r\n").unwrap();
        assert_eq!(
            (request.authority().as_str(), request.port),
            ("example.org:443", 443)
        );
        assert_eq!(
            passed("CONNECT [::1]:443 HTTP/1.1\r\n\r\n", Some("")),
            "CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n\r\n"
        );
    }

    #[test]
    fn what_could_be_understood_in_two_ways_is_refused() {
        for first in [
            "GET / HTTP/1.1",
            "GET https://a.org/ HTTP/1.1",
            "GET //a.org/ HTTP/1.1",
            "GET http:/a.org/ HTTP/1.1",
            "GET http://user@a.org/ HTTP/1.1",
            "GET http://a.org:80@evil.net/ HTTP/1.1",
            "GET http://a.org\\@evil.net/ HTTP/1.1",
            "GET http://a.org#@evil.net/ HTTP/1.1",
            "GET http://a.org /x HTTP/1.1",
            "GET http://a.org/\tx HTTP/1.1",
            "GET http:// HTTP/1.1",
            "GET http://:80/ HTTP/1.1",
            "GET http://a.org:/ HTTP/1.1",
            "GET http://a.org:0/ HTTP/1.1",
            "GET http://a.org:65616/ HTTP/1.1",
            "GET http://a.org:+80/ HTTP/1.1",
            "GET http://ä.org/ HTTP/1.1",
            "GET http://a%2eorg/ HTTP/1.1",
            "GET http://a.org/ HTTP/2",
            "TRACE http://a.org/ HTTP/1.1",
            "GET http://a.org/",
            "G(T http://a.org/ HTTP/1.1",
            "GET http://::1/ HTTP/1.1",
            "GET http://2130706433/ HTTP/1.1",
            "GET http://[::1%25lo]/ HTTP/1.1",
            "CONNECT a.org HTTP/1.1",
            "CONNECT http://a.org:443 HTTP/1.1",
            "CONNECT a.org:443/ HTTP/1.1",
            "CONNECT user@a.org:443 HTTP/1.1",
            "CONNECT ::1:443 HTTP/1.1",
            "CONNECT 0x7f.1:443 HTTP/1.1",
            "connect a.org:443 HTTP/1.1",
            "",
            " GET http://a.org/ HTTP/1.1",
        ] {
            assert!(parse(&format!("{first}\r\n\r\n")).is_err(), "{first}");
        }
        for header in [
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 1, 1",
            "Content-Length: +1",
            "Content-Length: 0x1",
            "Content-Length:",
            "Content-Length: 99999999999999999999",
            "Transfer-Encoding: chunked\r\nContent-Length: 1",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding : chunked",
            "Transfer-Encoding\t: chunked",
            " folded: 1",
            "A: 1\r\n folded",
            "A: 1\nB: 2",
            "A: 1\rB: 2",
            "A: \0",
            "no colon",
            ": empty",
            "Connection: content-length",
            "A: 1\r\r\nB: 2",
            "A: \x7f",
        ] {
            let text = format!("POST http://a.org/ HTTP/1.1\r\n{header}\r\n\r\n");
            assert!(parse(&text).is_err(), "{header:?}");
        }
        assert!(
            parse("POST http://a.org/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").is_err()
        );
    }

    #[test]
    fn no_head_of_any_bytes_makes_the_reader_panic() {
        let mut random = fastrand::Rng::with_seed(7);
        let pieces = [
            "GET ",
            "CONNECT ",
            "http://",
            "a.org",
            ":",
            "443",
            "[",
            "]",
            "::1",
            " HTTP/1.1",
            "\r\n",
            "\n",
            "\0",
            "é",
            "@",
            "Content-Length",
            "1",
        ];
        for _ in 0..20_000 {
            let many = random.usize(..14);
            let text: String = (0..many)
                .map(|_| pieces[random.usize(..pieces.len())])
                .collect();
            if let Ok(request) = parse(&format!("{text}\r\n\r\n")) {
                assert!(head_length(&request.head_for(None)).is_some());
            }
        }
    }
}
