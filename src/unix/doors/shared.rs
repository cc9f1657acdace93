//! Names below which anybody can get one: a door to all of them is a door to everybody.
//!
//! Pure. The list holds well-known ones; it cannot be complete.

use super::door::Door;

/// Hosts of other people's pages, programs and files.
#[rustfmt::skip]
const SHARED: [&str; 44] = [
    "amazonaws.com", "appspot.com", "azureedge.net", "azurewebsites.net", "b-cdn.net", "blob.core.windows.net",
    "blogspot.com", "cloudapp.net", "cloudfront.net", "codeberg.page", "deno.dev", "digitaloceanspaces.com",
    "duckdns.org", "firebaseapp.com", "fly.dev", "github.dev", "github.io", "githubusercontent.com", "gitlab.io",
    "glitch.me", "googleapis.com", "googleusercontent.com", "herokuapp.com", "hf.space", "myshopify.com",
    "netlify.app", "ngrok-free.app", "ngrok.io", "ondigitalocean.app", "onrender.com", "pages.dev", "r2.dev",
    "readthedocs.io", "replit.app", "run.app", "s3.amazonaws.com", "sharepoint.com", "surge.sh", "trycloudflare.com",
    "vercel.app", "web.app", "windows.net", "wordpress.com", "workers.dev",
];

/// The second labels of countries' names below which names are registered.
const REGISTRIES: [&str; 8] = ["ac", "co", "com", "edu", "gov", "ne", "net", "org"];

/// The reason why a door opens more than it seems to.
pub(crate) fn shared_warning(door: &Door) -> Option<String> {
    let parent = door.parent()?;
    let labels: Vec<&str> = parent.split('.').collect();
    let is_registry = match labels[..] {
        [_] => true,
        [second, country] => country.len() == 2 && REGISTRIES.contains(&second),
        _ => false,
    };
    (is_registry || SHARED.contains(&parent)).then(|| {
        format!("'{door}' opens every name below {parent}, and anybody can get one; name the hosts")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_to_names_that_anybody_can_get_is_warned_of() {
        let warns = |text: &str| shared_warning(&Door::parse(text).unwrap()).is_some();
        for text in ["*.github.io", "*.Workers.dev:8443", "*.com", "*.co.uk"] {
            assert!(warns(text), "{text}");
        }
        for text in [
            "me.github.io",
            "*.me.github.io",
            "*.example.org",
            "github.io",
        ] {
            assert!(!warns(text), "{text}");
        }
    }
}
