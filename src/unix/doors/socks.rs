//! The client's side of SOCKS5 (RFC 1928, with the login of RFC 1929): which bytes answer which.
//!
//! Pure. Unaware of sockets.

use super::door::Host;
use super::upstream::Upstream;
use std::net::IpAddr;

/// The meanings of a reply, from 1 on.
const REPLIES: [&str; 8] = [
    "failed",
    "does not allow the connection",
    "cannot reach the network",
    "cannot reach the host",
    "was refused the connection by the host",
    "got no answer from the host in time",
    "knows no such command",
    "does not know this kind of address",
];

/// A conversation with a proxy until the connection that it makes can be used.
pub(crate) struct Socks5 {
    login: Option<[Vec<u8>; 2]>,
    request: Vec<u8>,
    step: Step,
}

#[derive(Clone, Copy)]
enum Step {
    Begin,
    Method,
    Login,
    Reply,
    Bound,
}

/// Bytes to send, and how many to read then; 0: the connection is there.
pub(crate) struct SocksStep {
    pub send: Vec<u8>,
    pub expected: usize,
}

/// The reason why there is no connection; for some reasons no other attempt would have one.
pub(crate) struct SocksRefusal {
    pub why: &'static str,
    pub is_final: bool,
}

impl Socks5 {
    pub(crate) fn new(proxy: &Upstream, host: &Host, port: u16) -> Self {
        let target = match host {
            Host::Address(IpAddr::V4(address)) => [&[1][..], &address.octets()].concat(),
            Host::Address(IpAddr::V6(address)) => [&[4][..], &address.octets()].concat(),
            Host::Name(name) => {
                let name = &name.as_bytes()[..name.len().min(u8::MAX.into())];
                [&[3, name.len() as u8][..], name].concat()
            }
        };
        Self {
            login: proxy.login.clone(),
            request: [&[5, 1, 0][..], &target, &port.to_be_bytes()].concat(),
            step: Step::Begin,
        }
    }

    /// The next step after these bytes, as many as were expected.
    pub(crate) fn advance(&mut self, read: &[u8]) -> Result<SocksStep, SocksRefusal> {
        let foreign = SocksRefusal {
            why: "does not speak SOCKS5",
            is_final: true,
        };
        let (step, send, expected) = match (self.step, read, &self.login) {
            (Step::Begin, [], None) => (Step::Method, vec![5, 1, 0], 2),
            (Step::Begin, [], Some(_)) => (Step::Method, vec![5, 2, 0, 2], 2),
            (Step::Method, [5, 0], _) | (Step::Login, [_, 0], _) => {
                (Step::Reply, self.request.clone(), 5)
            }
            (Step::Method, [5, 2], Some([user, password])) => {
                let lengths = [user.len() as u8, password.len() as u8];
                let login = [&[1, lengths[0]][..], user, &[lengths[1]], password].concat();
                (Step::Login, login, 2)
            }
            (Step::Method, [5, _], _) | (Step::Login, [..], _) => {
                let why = "does not accept the login";
                return Err(SocksRefusal {
                    why,
                    is_final: true,
                });
            }
            (Step::Reply, [5, 0, _, kind, first], _) => {
                // The rest of the address that the proxy uses, and a port.
                let rest = match kind {
                    1 => 5,
                    3 => usize::from(*first) + 2,
                    4 => 17,
                    _ => return Err(foreign),
                };
                (Step::Bound, Vec::new(), rest)
            }
            (Step::Reply, [5, code, ..], _) => {
                let meaning = REPLIES.get(usize::from(*code) - 1);
                let why = meaning.unwrap_or(&REPLIES[0]);
                return Err(SocksRefusal {
                    why,
                    is_final: *code == 2,
                });
            }
            (Step::Bound, ..) => (Step::Bound, Vec::new(), 0),
            _ => return Err(foreign),
        };
        self.step = step;
        Ok(SocksStep { send, expected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unix::doors::upstream::read_url;

    /// What is sent to a proxy that answers with these bytes, or why there is no connection.
    fn talk(login: Option<[&str; 2]>, host: &str, answers: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut proxy = read_url("all_proxy", "socks5h://p").unwrap();
        proxy.login = login.map(|login| login.map(|part| part.as_bytes().to_vec()));
        let host = Host::parse(host).unwrap();
        let mut socks = Socks5::new(&proxy, &host, 443);
        let (mut sent, mut rest, mut read) = (Vec::new(), answers, &[][..]);
        loop {
            let step = socks.advance(read).map_err(|it| it.why)?;
            sent.extend(step.send);
            if step.expected == 0 {
                assert_eq!(rest, b"data");
                return Ok(sent);
            }
            (read, rest) = rest.split_at(step.expected);
        }
    }

    #[test]
    fn names_and_addresses_are_asked_for_with_and_without_a_login() {
        let v4 = [&[5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"data"].concat();
        let named = [&[5, 0, 5, 0, 0, 3, 2][..], b"ab\0\0data"].concat();
        let v6 = [&[5, 2, 1, 0, 5, 0, 0, 4][..], &[0; 18], b"data"].concat();
        let asked = talk(None, "a.org", &v4).unwrap();
        assert_eq!(asked, b"\x05\x01\0\x05\x01\0\x03\x05a.org\x01\xbb");
        let asked = talk(None, "1.2.3.4", &named).unwrap();
        assert_eq!(asked, b"\x05\x01\0\x05\x01\0\x01\x01\x02\x03\x04\x01\xbb");
        let asked = talk(Some(["me", ""]), "a.org", &v6).unwrap();
        assert_eq!(
            asked,
            b"\x05\x02\0\x02\x01\x02me\0\x05\x01\0\x03\x05a.org\x01\xbb"
        );
    }

    #[test]
    fn a_refusal_has_its_reason() {
        for (answers, why) in [
            (&[5, 0xff][..], "does not accept the login"),
            (&[5, 2], "does not accept the login"),
            (b"HT", "does not speak SOCKS5"),
            (&[5, 0, 5, 5, 0, 1, 0], REPLIES[4]),
            (&[5, 0, 5, 99, 0, 1, 0], REPLIES[0]),
            (&[5, 0, 5, 0, 0, 7, 0], "does not speak SOCKS5"),
        ] {
            assert_eq!(talk(None, "a.org", answers).unwrap_err(), why);
        }
        assert!(talk(Some(["u", "p"]), "a.org", &[5, 2, 1, 1]).is_err());
    }
}
