//! Calls in odd pieces: each form cut at every byte.

use super::super::super::tests::receive;
use crate::config::api::Api;
use serde_json::{Value, json};

/// Index (255: none), id, name and arguments of a piece; an empty text is left out, `_` is an empty one.
type Piece = (u8, &'static str, &'static str, &'static str);

fn stream(pieces: &[Piece]) -> String {
    let mut out = String::new();
    for &(index, id, name, arguments) in pieces {
        let mut call = json!({"function": {}});
        if index != 255 {
            call["index"] = index.into();
        }
        if !id.is_empty() {
            (call["id"], call["type"]) = (id.into(), "function".into());
        }
        for (key, value) in [("name", name), ("arguments", arguments)] {
            if !value.is_empty() {
                call["function"][key] = value.trim_matches('_').into();
            }
        }
        let chunk = json!({"choices": [{"delta": {"tool_calls": [call]}}]});
        out += &format!("data: {chunk}\n\n");
    }
    out + "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n"
}

/// Ids, names and arguments of the calls that pieces add up to; none: the stream is broken.
fn calls(pieces: &[Piece]) -> Option<Vec<[String; 3]>> {
    let text = stream(pieces);
    let bytes = text.as_bytes();
    let all = (0..=bytes.len()).map(|cut| {
        let (response, _) = receive(Api::Chat, &[&bytes[..cut], &bytes[cut..]], true);
        response.ok().map(|response| {
            let calls = response["choices"][0]["message"]["tool_calls"].clone();
            let part = |call: &Value, path| {
                let value = call.pointer(path).and_then(Value::as_str);
                value.unwrap_or_default().to_owned()
            };
            let paths = ["/id", "/function/name", "/function/arguments"];
            let calls = calls.as_array().cloned().unwrap_or_default().into_iter();
            calls
                .map(|call| paths.map(|path| part(&call, path)))
                .collect()
        })
    });
    let mut all: Vec<Option<Vec<[String; 3]>>> = all.collect();
    all.dedup();
    assert_eq!(all.len(), 1, "{text}");
    all.remove(0)
}

const A: &str = "{\"w\":\"A\"}";
const B: &str = "{\"w\":\"B\"}";

#[test]
fn pieces_of_one_call_are_one_call() {
    let forms: &[&[Piece]] = &[
        &[(0, "a", "say", A)],
        &[(0, "a", "say", A), (1, "a", "say", A), (2, "a", "say", A)],
        &[
            (0, "a", "say", "_"),
            (1, "a", "", "{\"w\":"),
            (2, "a", "", "\"A\"}"),
        ],
        &[
            (0, "a", "say", "_"),
            (1, "a", "", "{\"w\":"),
            (1, "", "", "\"A\"}"),
        ],
        &[
            (0, "a", "say", "_"),
            (0, "b", "", "{\"w\":"),
            (0, "b", "", "\"A\"}"),
        ],
        &[
            (0, "a", "say", "_"),
            (0, "b", "", "{\"w\":"),
            (0, "c", "", "\"A\"}"),
        ],
        &[
            (0, "a", "say", "_"),
            (0, "b", "", "{\"w\":"),
            (3, "b", "", "\"A\"}"),
        ],
        &[(0, "a", "say", "{\"w\":"), (0, "b", "say", "\"A\"}")],
        &[(0, "a", "say", "_"), (0, "b", "say", "_"), (0, "", "", A)],
        &[
            (0, "a", "say", ""),
            (0, "b", "say", A),
            (0, "b", "say", "_"),
        ],
        &[
            (0, "a", "say", "{}"),
            (0, "", "", "{\"w\":"),
            (0, "", "", "\"A\"}"),
        ],
        &[(0, "a", "say", "{ }"), (0, "a", "say", A)],
        &[(0, "a", "say", "{"), (0, "", "", "}"), (0, "", "", A)],
        &[
            (0, "a", "say", "{\"w\":"),
            (0, "", "say", "\"A\"}"),
            (0, "", "say", ""),
        ],
        &[(0, "a", "say", A), (0, "", "say", "_"), (0, "", "", "_")],
        &[
            (0, "a", "say", A),
            (1, "a", "say", "{\"w\""),
            (1, "a", "", ":\"A\"}"),
        ],
        &[(0, "a", "", "_"), (0, "", "say", A)],
        &[(255, "a", "say", "{\"w\":"), (255, "", "", "\"A\"}")],
        &[(0, "a", "say", A), (1, "", "", "_")],
    ];
    for form in forms {
        let expected = Some(vec![["a", "say", A].map(str::to_owned)]);
        assert_eq!(calls(form), expected, "{form:?}");
    }
}

#[test]
fn calls_that_differ_stay_apart() {
    let forms: &[&[Piece]] = &[
        &[(0, "a", "say", A), (1, "b", "say", B)],
        &[(0, "a", "say", A), (0, "b", "say", B)],
        &[
            (0, "a", "say", "_"),
            (1, "b", "say", "_"),
            (1, "", "", B),
            (0, "", "", A),
        ],
        &[
            (0, "a", "say", "_"),
            (0, "", "", A),
            (0, "b", "say", "_"),
            (0, "", "", B),
        ],
        &[(255, "a", "say", A), (255, "b", "say", B)],
        &[
            (0, "a", "say", A),
            (0, "b", "say", "_"),
            (7, "a", "", "_"),
            (0, "b", "", B),
        ],
    ];
    for form in forms {
        let expected = [["a", "say", A], ["b", "say", B]].map(|call| call.map(str::to_owned));
        assert_eq!(calls(form), Some(expected.to_vec()), "{form:?}");
    }
    let forms: &[&[Piece]] = &[
        &[(0, "a", "list", "{}"), (0, "b", "list", "{}")],
        &[(0, "a", "list", "_"), (0, "b", "show", "_")],
        &[(0, "", "say", A), (0, "", "say", B)],
        &[(0, "", "say", A), (1, "", "say", A)],
    ];
    for form in forms {
        assert_eq!(calls(form).map(|calls| calls.len()), Some(2), "{form:?}");
    }
}

#[test]
fn pieces_that_contradict_each_other_are_no_call() {
    let forms: &[&[Piece]] = &[
        &[(0, "a", "say", A), (1, "a", "show", A)],
        &[(0, "a", "say", A), (1, "a", "say", B)],
        &[(0, "a", "say", A), (0, "", "", B)],
        &[(0, "a", "say", A), (1, "a", "say", "{\"w\"")],
        &[(0, "a", "say", "_"), (1, "", "", A)],
        &[(0, "a", "say", "_"), (1, "b", "", A)],
    ];
    for form in forms {
        assert_eq!(calls(form), None, "{form:?}");
    }
}
