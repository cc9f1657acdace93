/// Entry points for the fuzz targets: each feeds bytes to a parser and checks what must hold for any input.
pub mod fuzz {
    use crate::coder::matching::{Matches, search};
    use crate::config::tool::bind::{BaseDirs, bind_arguments};
    use crate::config::tool::load;
    use crate::model::wire::sse::Events;
    use crate::record::messages::{self, Form};
    use crate::record::state::{self, Reading};
    use serde_json::json;
    use std::str;

    /// A journal: read strictly and leniently, whole and with a window. What was read makes valid JSON messages.
    pub fn journal(data: &[u8]) {
        for (lenient, window) in [(false, None), (true, None), (true, Some(2))] {
            let Ok(run) = state::read(data, Reading { lenient, window }) else {
                continue;
            };
            let mut written = b"[".to_vec();
            messages::write(&mut written, &run, &Form::chat(None));
            written.push(b']');
            let valid = serde_json::from_slice::<serde_json::Value>(&written);
            assert!(valid.is_ok(), "{}", String::from_utf8_lossy(&written));
        }
    }

    /// A line for `exec:` and a value, separated by a zero byte: the value changes no other element of the command.
    pub fn tool_template(data: &[u8]) {
        let Some((line, value)) = str::from_utf8(data).ok().and_then(|it| it.split_once('\0')) else {
            return;
        };
        let Ok((tool, _)) = load::load(&json!({"name": "t", "exec": line})) else {
            return;
        };
        let places = BaseDirs { home: "/home", cwd: "/work" };
        let bind = |value: &str| {
            let arguments: serde_json::Map<_, _> = tool
                .parameters
                .iter()
                .map(|parameter| (parameter.name.clone(), json!(value)))
                .collect();
            bind_arguments(&tool, &json!(arguments).to_string(), &places).ok()
        };
        let (Some(bound), Some(neutral)) = (bind(value), bind("neutral")) else {
            return;
        };
        assert_eq!(bound.argv.len(), neutral.argv.len(), "{line:?} {value:?}");
        for (here, there) in bound.argv.iter().zip(&neutral.argv) {
            assert!(here == there || here.contains(value), "{line:?} {value:?}");
        }
    }

    /// A text, what to replace and with what, separated by zero bytes: places are in order, apart, and at characters.
    pub fn edit(data: &[u8]) {
        let Ok(data) = str::from_utf8(data) else {
            return;
        };
        let mut parts = data.splitn(3, '\0');
        let (Some(text), Some(old), Some(new)) = (parts.next(), parts.next(), parts.next()) else {
            return;
        };
        if old.is_empty() {
            return;
        }
        for all in [false, true] {
            let Matches::Found(places, _) = search(text, old, new, all) else {
                continue;
            };
            let mut end = 0;
            for place in places {
                assert!(end <= place.range.start);
                assert!(text.get(place.range.clone()).is_some());
                end = place.range.end;
            }
        }
    }

    /// Server-sent events: the same ones, however the bytes are cut.
    pub fn sse(data: &[u8]) {
        let events = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let (mut events, mut found) = (Events::default(), Vec::new());
            for piece in pieces {
                events.push(piece, &mut |name, data| {
                    found.push((name.to_vec(), data.to_vec()));
                });
            }
            found
        };
        let whole = events(&mut std::iter::once(data));
        assert_eq!(whole, events(&mut data.chunks(1)));
        assert_eq!(whole, events(&mut data.chunks(3)));
    }
}
