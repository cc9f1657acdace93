//! What schemas accept, refuse and say.

use super::*;
use serde_json::json;

fn schema(source: Value) -> JsonSchema {
    JsonSchema::compile(source).unwrap()
}

#[test]
fn every_mismatch_is_told_with_its_path() {
    let schema = schema(json!({
        "type": "object",
        "required": ["a"],
        "properties": {"b": {"items": {"type": "integer"}}},
    }));
    assert!(schema.admits(&json!({"a": 1, "b": [1, 2]})));
    assert_eq!(schema.mismatches(&json!({"a": 1})), []);
    let wrong = schema.mismatches(&json!({"b": [1, "x", null]}));
    let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "\"a\" is a required property",
            "/b/1: \"x\" is not of type \"integer\"",
            "/b/2: null is not of type \"integer\"",
        ]
    );
}

#[test]
fn little_is_said_of_a_large_value_and_of_many_mismatches() {
    let numbers = schema(json!({"type": "array", "items": {"type": "integer"}}));
    let text = "ä".repeat(1 << 20);
    let wrong = numbers.mismatches(&json!(text));
    assert_eq!(wrong.len(), 1);
    assert!(wrong[0].message.len() < 600, "{}", wrong[0].message.len());
    let many = json!(vec!["x"; 100_000]);
    assert_eq!(numbers.mismatches(&many).len(), MISMATCHES);
}

#[test]
fn the_draft_is_2020_12_unless_the_schema_says_otherwise() {
    let tuple = json!({"prefixItems": [{"type": "integer"}]});
    assert!(!schema(tuple.clone()).admits(&json!(["x"])));
    let mut old = tuple;
    old["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    assert!(schema(old).admits(&json!(["x"])));
}

#[test]
fn what_refers_elsewhere_is_refused() {
    for uri in [
        "https://example.com/a.json",
        "http://127.0.0.1:1/a",
        "file:///etc/passwd",
        "other.json",
        "../schemas/other.json#/x",
        "urn:isbn:1",
    ] {
        for keyword in ["$ref", "$dynamicRef"] {
            let why = JsonSchema::compile(json!({keyword: uri})).unwrap_err();
            assert!(why.contains("nothing is fetched"), "{keyword} {uri}: {why}");
        }
    }
    let meta = json!({"$schema": "https://example.com/meta"});
    let why = JsonSchema::compile(meta).unwrap_err();
    assert!(why.contains("https://example.com/meta"), "{why}");
    let within = json!({
        "$id": "https://example.com/a.json",
        "$defs": {"b": {"$id": "b.json", "type": "string"}},
        "$ref": "b.json",
    });
    assert!(schema(within).admits(&json!("x")));
}

#[test]
fn a_schema_that_leads_to_itself_comes_to_an_end() {
    for endless in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"anyOf": [{"$ref": "#"}, {"type": "string"}]}),
        json!({"not": {"$ref": "#"}}),
    ] {
        let endless = schema(endless);
        let value = json!({"a": 1});
        assert_eq!(
            endless.admits(&value),
            endless.mismatches(&value).is_empty()
        );
    }
}

#[test]
fn format_is_checked_in_every_draft() {
    for draft in [
        "draft-04",
        "draft-06",
        "draft-07",
        "draft/2019-09",
        "draft/2020-12",
    ] {
        let host = if draft.contains('/') { "https" } else { "http" };
        let uri = format!("{host}://json-schema.org/{draft}/schema");
        let dated = schema(json!({"$schema": uri, "format": "date"}));
        assert!(dated.admits(&json!("2026-02-28")), "{draft}");
        assert!(!dated.admits(&json!("tomorrow")), "{draft}");
    }
    let unnamed = schema(json!({"format": "date"}));
    assert!(!unnamed.admits(&json!("tomorrow")));
    assert!(schema(json!({"format": "of our own"})).admits(&json!("x")));
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_schema() {
    assert!(JsonSchema::parse("\u{feff}{\"type\": \"string\"}".as_bytes()).is_ok());
}

/// Definitions of which each applies these keywords to the next one.
fn ladder(rungs: usize, rung: impl Fn(&str) -> Value) -> Value {
    let name = |at: usize| format!("#/$defs/d{at}");
    let mut defs = serde_json::Map::new();
    for at in 0..rungs {
        defs.insert(format!("d{at}"), rung(&name(at + 1)));
    }
    defs.insert(
        format!("d{rungs}"),
        json!({"type": ["integer", "object", "array"]}),
    );
    json!({"$defs": defs, "$ref": "#/$defs/d0"})
}

#[test]
fn references_that_multiply_are_refused() {
    type Rung = fn(&str) -> Value;
    let rungs: [Rung; 7] = [
        |next| json!({"allOf": [{"$ref": next}, {"$ref": next}]}),
        |next| json!({"anyOf": [{"not": {"$ref": next}}, {"$ref": next}]}),
        |next| json!({"$ref": next, "if": {"$ref": next}}),
        |next| json!({"dependentSchemas": {"a": {"$ref": next}}, "oneOf": [{"$ref": next}]}),
        |next| json!({"allOf": [{"properties": {"a": {"$ref": next}}}, {"properties": {"a": {"$ref": next}}}]}),
        |next| json!({"properties": {"a": {"$ref": next}}, "patternProperties": {"a": {"$ref": next}}}),
        |next| json!({"prefixItems": [{"$ref": next}], "contains": {"$ref": next}}),
    ];
    for rung in rungs {
        let why = JsonSchema::compile(ladder(40, rung)).unwrap_err();
        assert!(why.contains("its references multiply"), "{why}");
        // A few are nothing.
        let few = schema(ladder(5, rung));
        let value = json!({"a": {"a": 1}});
        assert_eq!(few.admits(&value), few.mismatches(&value).is_empty());
    }
}

#[test]
fn references_lead_from_one_to_the_next_64_times_and_no_more() {
    for rung in [
        |next: &str| json!({"allOf": [{"$ref": next}]}),
        |next: &str| json!({"properties": {"a": {"$ref": next}}}),
    ] {
        // The first reference leads to the ladder.
        assert!(schema(ladder(63, rung)).admits(&json!({"a": {"a": 1}})));
        for rungs in [64, 20_000] {
            let why = JsonSchema::compile(ladder(rungs, rung)).unwrap_err();
            assert!(why.contains("more than 64 times"), "{why}");
        }
    }
}

#[test]
fn a_schema_of_more_than_a_mebibyte_is_refused() {
    let document = |bytes: usize| {
        let empty = json!({"title": ""}).to_string().len();
        json!({"title": "x".repeat(bytes - empty)}).to_string()
    };
    assert!(JsonSchema::parse(document(1 << 20).as_bytes()).is_ok());
    let why = JsonSchema::parse(document((1 << 20) + 1).as_bytes()).unwrap_err();
    assert_eq!(why, "1048577 bytes are too many; the limit is 1048576");
}

#[test]
fn many_references_that_do_not_multiply_are_nothing() {
    let wide = ladder(
        8,
        |next| json!({"properties": {"a": {"$ref": next}, "b": {"$ref": next}, "c": {"items": {"$ref": next}}}}),
    );
    assert!(schema(wide).admits(&json!({"a": {"b": {"c": [{"a": 1}]}}})));
    let many: Vec<Value> = (0..2000)
        .map(|n| json!({"$ref": "#/$defs/one", "minimum": n}))
        .collect();
    let many = schema(json!({"anyOf": many, "$defs": {"one": {"type": "integer"}}}));
    assert!(many.admits(&json!(7)));
}

#[test]
fn a_schema_may_refer_to_itself_and_any_value_is_told_to_fit_or_not() {
    let tree = schema(json!({
        "$defs": {"node": {
            "required": ["name"],
            "properties": {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}},
        }},
        "$ref": "#/$defs/node",
    }));
    let nested = |levels: usize, last: Value| {
        (0..levels).fold(last, |below, _| json!({"name": 1, "left": below}))
    };
    assert!(tree.admits(&nested(100, json!({"name": 1}))));
    let wrong = tree.mismatches(&nested(11, json!({})));
    assert!(wrong[0].path.ends_with("/left/left"), "{wrong:?}");
    let deep = tree.mismatches(&nested(100, json!({})));
    assert!(deep[0].message.contains("nested too deep"), "{deep:?}");

    // An expression: one of several, each of which holds others in the same place.
    let kind = |kind: &str| {
        json!({"type": "object", "required": ["kind", "of"], "properties": {
            "of": {"items": {"$ref": "#/$defs/e"}}, "kind": {"const": kind}}})
    };
    let expression = schema(json!({
        "$defs": {"e": {"oneOf": [{"type": "integer"}, kind("and"), kind("or"), kind("not")]}},
        "$ref": "#/$defs/e",
    }));
    let nested = |levels: usize, last: Value| {
        (0..levels).fold(last, |below, _| json!({"kind": "or", "of": [below, 1]}))
    };
    for levels in [3, 60] {
        assert!(expression.admits(&nested(levels, json!(1))));
        assert!(!expression.admits(&nested(levels, json!("x"))));
    }
    let small = expression.mismatches(&nested(3, json!("x")));
    assert!(
        small[0].message.contains("not valid under any"),
        "{small:?}"
    );
    let deep = expression.mismatches(&nested(60, json!("x")));
    assert!(deep[0].message.contains("nested too deep"), "{deep:?}");
    assert_eq!(expression.mismatches(&nested(60, json!(1))), []);
}

#[test]
fn a_deep_value_and_a_schema_that_refers_to_itself_twice_come_to_an_end() {
    let twice = |keyword: &str, to: &str| {
        json!({"type": ["object", "boolean"], "allOf": [
            {"properties": {"a": {keyword: to}}},
            {"properties": {"a": {keyword: to}}},
        ]})
    };
    let mut dynamic = twice("$dynamicRef", "#node");
    dynamic["$dynamicAnchor"] = "node".into();
    let mut recursive = twice("$recursiveRef", "#");
    recursive["$schema"] = "https://json-schema.org/draft/2019-09/schema".into();
    recursive["$recursiveAnchor"] = true.into();
    let mut evaluated = twice("$ref", "#");
    evaluated["unevaluatedProperties"] = false.into();
    for source in [twice("$ref", "#"), dynamic, recursive, evaluated] {
        let schema = schema(source.clone());
        let nested = |last: Value| (0..100).fold(last, |below, _| json!({"a": below}));
        for (last, fits) in [(json!(true), true), (json!(3), false)] {
            let value = nested(last);
            assert_eq!(schema.admits(&value), fits, "{source}");
            assert_eq!(schema.mismatches(&value).is_empty(), fits, "{source}");
        }
    }
}

#[test]
fn what_leads_around_a_circle_in_two_ways_at_each_step_is_refused() {
    let mut circle = ladder(
        40,
        |next| json!({"allOf": [{"items": {"$ref": next}}, {"items": {"$ref": next}}]}),
    );
    circle["$defs"]["d40"] = json!({"items": {"$ref": "#/$defs/d0"}});
    assert!(JsonSchema::compile(circle).is_err());
}

#[test]
fn a_pattern_that_goes_back_for_ever_is_given_up() {
    let slow = schema(json!({"pattern": "^(?=(a+)+$)(a|a)*\\1b$"}));
    assert!(!slow.admits(&json!("a".repeat(2000))));
}

#[test]
fn huge_patterns_are_refused() {
    for pattern in ["(a{1000}){1000}".to_owned(), "a".repeat(1 << 20)] {
        for schema in [
            json!({"pattern": pattern}),
            json!({"patternProperties": {pattern: {}}}),
        ] {
            assert!(JsonSchema::parse(schema.to_string().as_bytes()).is_err());
        }
    }
}

#[test]
fn a_long_value_leaves_room_for_what_is_wrong_with_it() {
    let number = schema(json!({"type": "number"}));
    let found = number.mismatches(&json!("long ".repeat(200)));
    let [mismatch] = &found[..] else {
        panic!("{found:?}");
    };
    let message = &mismatch.message;
    assert!(message.starts_with("\"long long"), "{message}");
    assert!(
        message.ends_with("… is not of type \"number\""),
        "{message}"
    );
}
