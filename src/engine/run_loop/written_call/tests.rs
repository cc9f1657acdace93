//! Calls in every form of text, a row each.

use super::called_in;
use crate::config::tool::definition::Tool;
use crate::config::tool::load::load;
use crate::text::yaml;

fn tools() -> Vec<Tool> {
    let tools = [
        "{name: say, exec: 'echo ${what}'}",
        "{name: list, exec: ls}",
        "{name: mcp, exec: p, input: json, input_schema: {type: object, properties: {q: {type: string}}, required: [q]}}",
    ];
    let load = |text: &&str| load(&yaml::parse(text).unwrap()).unwrap().0;
    tools.iter().map(load).collect()
}

/// Forms of a call of say, without and with words before it.
const FORMS: [&str; 43] = [
    r#"{"name": "say", "arguments": {"what": "A"}}"#,
    r#"{"name": "say", "parameters": {"what": "A"}}"#,
    r#"{"input": {"what": "A"}, "id": "x", "name": "say"}"#,
    r#"{"name": "say", "arguments": "{\"what\": \"A\"}"}"#,
    r#"{"name": "functions.say", "arguments": {"what": "}\n```"}}"#,
    r#"[{"name": "list", "arguments": {}}, {"name": "say", "arguments": {"what": "A"}}]"#,
    r#"{"type": "function", "function": {"name": "say", "arguments": "{\"what\": \"A\"}"}}"#,
    r#"{"tool_calls": [{"function": {"name": "say", "arguments": {"what": "A"}}}]}"#,
    "{\n  \"name\": \"say\",\n  \"arguments\": {\n    \"what\": \"A\"\n  }\n}",
    "```json\n{\"name\": \"say\", \"arguments\": {\"what\": \"A\"}}\n```",
    "```json {\"name\": \"say\", \"arguments\": {\"what\": \"A\"}} ```",
    "~~~\n{\"name\": \"say\", \"arguments\": {\"what\": \"A\"}}\n~~~\n\n```\n",
    "<tool_call>\n{\"name\": \"say\", \"arguments\": {\"what\": \"A\"}}\n</tool_call>\n<|im_end|>\n",
    "<tool_call>{\"name\": \"say\", \"arguments\": {\"what\": \"A\"}}",
    "<tool_call>\n{\"name\": \"list\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"say\", \"arguments\": {\"what\": \"A\"}}\n</tool_call>",
    "<function_call>{\"name\": \"say\", \"arguments\": {\"what\": \"A\"}}</function_call>",
    "<tool_call>\n<function=say>\n<parameter=what>\nA\n</parameter>\n</function>\n</tool_call>",
    "<function=say>{\"what\": \"A\"}</function>",
    "<tool_call>say\n<arg_key>what</arg_key>\n<arg_value>A</arg_value>\n</tool_call>",
    "say\n<arg_key>what</arg_key>\n<arg_value>A</arg_value>\n</tool_call>",
    "<tool_call>say\n{\"what\": \"A\"}\n</tool_call>",
    "<function_calls>\n<invoke name=\"say\">\n<parameter name=\"what\">A</parameter>\n</invoke>\n</function_calls>",
    "<minimax:tool_call>\n<invoke name='say'>\n<parameter name='what'>A</parameter>\n</invoke>\n</minimax:tool_call>",
    "<｜DSML｜invoke name=\"say\">\n<｜DSML｜parameter name=\"what\" string=\"true\">A</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "[TOOL_CALLS]say[ARGS]{\"what\": \"A\"}",
    "[TOOL_CALLS]say[CALL_ID]x12[ARGS]{\"what\": \"A\"}</s>",
    "[TOOL_CALLS][{\"name\": \"say\", \"arguments\": {\"what\": \"A\"}}]",
    "[TOOL_CALLS] [{\"name\": \"say\", \"arguments\": {\"what\": \"A\"}}][/TOOL_CALLS]",
    "<|python_tag|>{\"name\": \"say\", \"parameters\": {\"what\": \"A\"}}<|eom_id|>",
    "<|python_tag|>{\"name\": \"list\", \"parameters\": {}}; {\"name\": \"say\", \"parameters\": {\"what\": \"A\"}}",
    "<|python_tag|>say.call(what=\"A\")",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>say\n```json\n{\"what\": \"A\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>say<｜tool▁sep｜>{\"what\": \"A\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.say:0<|tool_call_argument_begin|>{\"what\": \"A\"}<|tool_call_end|><|tool_calls_section_end|>",
    "<|channel|>commentary to=functions.say <|constrain|>json<|message|>{\"what\":\"A\"}<|call|>",
    "<|start|>assistant to=functions.say<|channel|>commentary json<|message|>{\"what\":\"A\"}<|call|>",
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.say code<|message|>{\"what\":\"A\"}",
    "[say(what=\"A\")]",
    "[list(), say(what='it\\'s (A)', )]",
    "say(what=\"A\")",
    "```python\nsay(what = \"\"\"A \"quoted\" B\"\"\")\n```",
    "```tool_code\nprint(default_api.say(what=7))\n```",
    "<tool_code>\nsay(what=True)\n</tool_code>",
];

#[test]
fn a_text_that_ends_with_a_call_is_one() {
    let tools = tools();
    for form in FORMS {
        for text in [form.to_owned(), format!("I do it.\n\n{form}\n \n")] {
            assert_eq!(called_in(&text, tools.iter()), Some("say"), "{text}");
            let other = text.replace("say", "other");
            assert_eq!(called_in(&other, tools.iter()), None, "{other}");
            let explained = format!("{text}\nThat is how it is called.");
            assert_eq!(called_in(&explained, tools.iter()), None, "{explained}");
            let unfit = text.replace("what", "whom");
            assert_eq!(called_in(&unfit, tools.iter()), None, "{unfit}");
        }
    }
    for (text, name) in [
        ("<function=list>\n</function>", "list"),
        ("<tool_call>list\n</tool_call>", "list"),
        (r#"{"name": "list", "arguments": {}}"#, "list"),
        (r#"{"name": "mcp", "arguments": {"q": "x"}}"#, "mcp"),
    ] {
        assert_eq!(called_in(text, tools.iter()), Some(name), "{text}");
    }
}

#[test]
fn other_answers_are_no_calls() {
    let tools = tools();
    for text in [
        "",
        "I say(what) it.",
        "It would be {\"name\": \"say\", \"arguments\": {\"what\": \"A\"}}",
        "{\"name\": \"say\"}",
        "{\"name\": \"say\", \"arguments\": 7}",
        "{\"name\": \"say\", \"arguments\": {}}",
        "{\"name\": \"say\", \"arguments\": {\"what\": [\"A\"]}}",
        "{\"name\": \"mcp\", \"arguments\": {}}",
        "{\"name\": \"mcp\", \"arguments\": {\"q\": \"x\", \"r\": 1}}",
        "{\"tools\": [\n{\"name\": \"say\", \"arguments\": {\"what\": \"A\"}}\n]}",
        "```json\n{\"name\": \"say\", \"age\": 7}\n```",
        "```json\n[1, 2]\n```",
        "```python\nsay(what=words)\n```",
        "```python\ndef say(what=\"A\"):\n    pass\n```",
        "as above (see there), say(what=\"A\")",
        "x = say(what=\"A\")",
        "say(\"A\")",
        "list()",
        "so list",
        "set to=list",
        "essay(what=\"A\")",
        "[say](what=A)",
        "<b>say</b>",
        "<invoke name=\"say\">\n<parameter name=\"what\">A</parameter>\n</invoke> is the form",
    ] {
        assert_eq!(called_in(text, tools.iter()), None, "{text}");
    }
}
