//! Which certificates are trusted: those of the system, and those that are built in.

use std::sync::Arc;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// The settings for an endpoint. `SSL_CERT_FILE` and `SSL_CERT_DIR` name other certificates than the system's;
/// what cannot be read of those is passed over.
pub(super) fn config(base_url: &str) -> TlsConfig {
    if !base_url.starts_with("https:") {
        return TlsConfig::default();
    }
    let system = rustls_native_certs::load_native_certs().certs;
    let system = system
        .iter()
        .map(|der| Certificate::from_der(der).to_owned());
    let built_in = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
    let built_in = built_in.map(|der| Certificate::from_der(der).to_owned());
    let roots = RootCerts::Specific(Arc::new(system.chain(built_in).collect()));
    TlsConfig::builder().root_certs(roots).build()
}
