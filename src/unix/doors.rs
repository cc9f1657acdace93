//! Doors: the hosts that a command without a network may reach, through a proxy outside of its namespaces.
//!
//! The command's process opens the inner end, a listening socket on its own loopback interface, and hands it to the
//! process that supervises it. That one is the proxy: it resolves names, and connects to what has passed.
//!
//! Unaware of agents and runs.

mod door;
mod shared;
mod body;
mod request;
mod upstream;
mod socks;
mod address;
mod inside;
mod relay;
mod lookup;
mod log;
mod connection;
mod proxy;

pub(crate) use door::{Door, Host};
pub(crate) use inside::open as open_inside;
pub(crate) use proxy::{Proxy, ProxyPlan};
pub(crate) use shared::shared_warning;
pub(crate) use socks::{Socks5, SocksRefusal};
#[cfg(test)]
pub(crate) use upstream::read_url;
pub(crate) use upstream::{Scheme, Upstream, Upstreams, tunnel_status};

/// Variables by which programs find the proxy; each is set in lower case, too.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "GRPC_PROXY"];

/// Reads doors that are separated by blanks.
///
/// # Errors
/// The first word that is not a door, and why.
pub(crate) fn read_doors(text: &str) -> Result<Vec<Door>, String> {
    let read = |word: &str| Door::parse(word).map_err(|why| format!("'{word}': {why}"));
    text.split_whitespace().map(read).collect()
}

/// The variables by which the command finds its proxy on a port of its loopback interface.
pub(crate) fn proxy_variables(port: u16) -> Vec<(String, String)> {
    let url = format!("http://127.0.0.1:{port}");
    let proxies = PROXIES.map(|name| (name, url.as_str()));
    let direct = ("NO_PROXY", "localhost,127.0.0.1,::1");
    let both = proxies
        .into_iter()
        .chain([direct])
        .flat_map(|(name, value)| {
            let names = [name.to_owned(), name.to_ascii_lowercase()];
            names.map(|name| (name, value.to_owned()))
        });
    let node = ("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
    both.chain([node]).collect()
}
