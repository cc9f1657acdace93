//! Which key goes where, and what is taken out.

use super::*;
use crate::config::api::Api;

fn with(pairs: &[(&str, &str, Trust)]) -> Environment {
    let mut environment = Environment::default();
    for (name, value, origin) in pairs {
        let pair = ((*name).to_owned(), (*value).to_owned(), *origin);
        environment.set.push(pair);
    }
    environment
}

#[test]
fn a_key_goes_only_to_an_endpoint_trusted_as_much() {
    use Trust::{Project, Tools, Trusted, Workspace};
    const REMOTE: &str = "https://evil.example/v1";
    for (key, url, allowed) in [
        (Trusted, Trusted, true),
        (Trusted, Project, false),
        (Trusted, Workspace, false),
        (Project, Trusted, true),
        (Project, Project, true),
        (Project, Workspace, false),
        (Workspace, Workspace, true),
        (Workspace, Trusted, true),
        (Tools, Workspace, false),
        (Tools, Project, true),
        (Tools, Trusted, true),
    ] {
        let environment = with(&[
            ("DELTA_API_KEY", "sk-12345", key),
            ("DELTA_BASE_URL", REMOTE, url),
        ]);
        assert_eq!(
            environment.endpoint(Api::Chat, None, &[]).is_ok(),
            allowed,
            "{key:?} to {url:?}"
        );
    }
    let environment = with(&[("DELTA_BASE_URL", "http://127.0.0.1:1", Workspace)]);
    assert!(environment.endpoint(Api::Chat, None, &[]).is_err());
}

#[test]
fn this_machine_is_told_from_others() {
    for url in [
        "http://localhost:1/v1",
        "http://127.0.0.1",
        "http://127.1.2.3/",
        "http://[::1]:8080/v1",
    ] {
        assert!(is_loopback(url), "{url}");
    }
    for url in [
        "http://localhost.evil.example/",
        "http://10.0.0.1",
        "https://127.0.0.1@evil.example/",
        "http://[::2]/",
    ] {
        assert!(!is_loopback(url), "{url}");
    }
}

#[test]
fn a_key_is_redacted_wherever_it_stands() {
    let mut bytes = b"sk-12345 x sk-12345sk-12345".to_vec();
    Secret::of("sk-12345".to_owned()).redact(&mut bytes);
    assert_eq!(bytes, b"[redacted] x [redacted][redacted]");
    let mut bytes = b"I run on ollama".to_vec();
    Secret::of("ollama".to_owned()).redact(&mut bytes);
    assert_eq!(bytes, b"I run on ollama");
    let shown = format!("{:?}", Secret::of("sk-1".to_owned()));
    assert!(!shown.contains("sk-1"));
}
