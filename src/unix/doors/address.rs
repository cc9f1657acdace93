//! Addresses that a name must not lead to: those of this machine and of networks that are not the internet.

use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Ranges of IPv4 (RFC 6890): "this" network, private, shared, loopback, link-local with most clouds' metadata, special
/// purposes, a cloud's own services, benchmarks, multicast, and what is reserved.
const V4: [(Ipv4Addr, u32); 13] = [
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Ranges of IPv6: a network's own translation (RFC 8215), discard, unique local, link-local, site-local, multicast.
const V6: [(Ipv6Addr, u32); 6] = [
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];

/// True if only a door that names the address itself may lead there.
pub(super) fn is_inside(address: IpAddr) -> bool {
    let inner = match address {
        IpAddr::V6(address) => embedded(address).map(IpAddr::V4),
        IpAddr::V4(_) => None,
    };
    [Some(address), inner]
        .into_iter()
        .flatten()
        .any(|it| is_in_range(it) || is_own(it))
}

fn is_in_range(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => V4.iter().any(|(range, length)| {
            let shift = 32 - length;
            address.to_bits() >> shift == range.to_bits() >> shift
        }),
        IpAddr::V6(address) => V6.iter().any(|(range, length)| {
            let shift = 128 - length;
            address.to_bits() >> shift == range.to_bits() >> shift
        }),
    }
}

/// True unless it is known that no interface of this machine has the address: only such can be bound, but for a sysctl
/// that routers and load balancers set.
fn is_own(address: IpAddr) -> bool {
    let foreign = [Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT].map(Errno::raw_os_error);
    let bound = UdpSocket::bind((address, 0)).map_err(|e| e.raw_os_error());
    let is_foreign = matches!(bound, Err(Some(why)) if foreign.contains(&why));
    !is_foreign && (!binds_foreign(address) || is_own_source(address))
}

/// True if addresses of other machines can be bound (ip-sysctl).
fn binds_foreign(address: IpAddr) -> bool {
    let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let set = std::fs::read_to_string(format!("/proc/sys/net/{family}/ip_nonlocal_bind"));
    set.is_ok_and(|set| set.trim() == "1")
}

/// True if what is sent to the address would come from it. Nothing is sent.
fn is_own_source(address: IpAddr) -> bool {
    let any = match address {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    let unreachable = [Errno::NETUNREACH, Errno::HOSTUNREACH].map(Errno::raw_os_error);
    match source.map_err(|e| e.raw_os_error()) {
        Ok(source) => source.ip() == address,
        Err(why) => why.is_none_or(|why| !unreachable.contains(&why)),
    }
}

/// The IPv4 address that packets for this one end at: a mapped or translated (SIIT) one, NAT64 (RFC 6052), 6to4
/// (RFC 3056), Teredo (RFC 4380), ISATAP (RFC 5214), and the compatible form, which includes `::` and `::1`.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    let last = Ipv4Addr::from_bits(bits as u32);
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..]
        | [_, _, _, _, 0 | 0x200, 0x5efe, ..] => Some(last),
        [0x2002, ..] => Some(Ipv4Addr::from_bits((bits >> 80) as u32)),
        [0x2001, 0, ..] => Some(Ipv4Addr::from_bits(!(bits as u32))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_that_are_not_the_internet_are_inside_in_every_form() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "168.63.129.16",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            let address: Ipv4Addr = text.parse().unwrap();
            let [a, b, c, d] = address.octets();
            let halves = format!("{a:02x}{b:02x}:{c:02x}{d:02x}");
            let teredo = !address.to_bits();
            let teredo = format!("{:x}:{:x}", teredo >> 16, teredo & 0xffff);
            for form in [
                text.to_owned(),
                format!("::ffff:{halves}"),
                format!("::{halves}"),
                format!("::ffff:0:{halves}"),
                format!("64:ff9b::{halves}"),
                format!("64:ff9b:1::{halves}"),
                format!("2002:{halves}::1"),
                format!("2001:0:1:2:3:4:{teredo}"),
                format!("2a00::5efe:{halves}"),
            ] {
                assert!(is_inside(form.parse().unwrap()), "{form}");
            }
        }
        for text in [
            "::",
            "::1",
            "fe80::1",
            "fec0::1",
            "fd00:ec2::254",
            "fc00::1",
            "ff02::1",
            "100::1",
        ] {
            assert!(is_inside(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn the_internet_is_outside() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "198.17.255.255",
            "223.255.255.255",
            "2606:4700::1111",
            "64:ff9b::101:101",
            "2002:101:101::1",
            "::ffff:1.1.1.1",
        ] {
            assert!(!is_inside(text.parse().unwrap()), "{text}");
        }
    }
}
