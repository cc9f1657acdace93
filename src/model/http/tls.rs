//! Which certificates are trusted: those of the system, and those that are built in.

use crate::unix::doors::{Scheme, Upstream};
use rustls::crypto::ring;
use std::sync::Arc;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// The settings for an endpoint, reached through a proxy if there is one. `SSL_CERT_FILE` and `SSL_CERT_DIR` name other
/// certificates than the system's; what cannot be read of those is passed over.
pub(super) fn config(base_url: &str, proxy: Option<&Upstream>) -> TlsConfig {
    let is_tls_to_proxy = proxy.is_some_and(|proxy| proxy.scheme == Scheme::Https);
    if base_url.starts_with("http:") && !is_tls_to_proxy {
        return TlsConfig::default();
    }
    let system = rustls_native_certs::load_native_certs().certs;
    let built_in = webpki_root_certs::TLS_SERVER_ROOT_CERTS;
    let all = system
        .iter()
        .chain(built_in)
        .map(|der| Certificate::from_der(der).to_owned());
    let roots = RootCerts::Specific(Arc::new(all.collect()));
    TlsConfig::builder()
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unix::doors::read_url;

    #[test]
    fn certificates_are_loaded_wherever_tls_may_be_spoken() {
        let plain = read_url("all_proxy", "http://127.0.0.1:1").unwrap();
        let tls = read_url("all_proxy", "https://127.0.0.1:1").unwrap();
        for (url, proxy, expected) in [
            ("http://h/v1", None, false),
            ("http://h/v1", Some(&plain), false),
            ("http://h/v1", Some(&tls), true),
            ("https://h/v1", None, true),
            ("HTTPS://h/v1", None, true),
        ] {
            let config = config(url, proxy);
            let built_in = webpki_root_certs::TLS_SERVER_ROOT_CERTS.len();
            let has_roots = matches!(config.root_certs(), RootCerts::Specific(certs) if certs.len() >= built_in);
            assert_eq!(has_roots, expected, "{url} {proxy:?}");
        }
    }
}
