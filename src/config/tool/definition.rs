//! A tool, once loaded: a command with placeholders for the model's values.
//!
//! Data only. Unaware of how a tool is written in YAML and of how it is executed.

use crate::config::keys::Kind::{Count, Flag, Own, Text, Texts, Words};
use crate::config::keys::{KeyValue, key, keys};
use crate::text::json::{is_same_number, without_nulls};
use crate::text::names::named_enum;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The engine's variable for the agent's directory. No parameter has this name.
pub(crate) const AGENT_HOME: &str = "AGENT_HOME";
/// The engine's variable for the workspace. No parameter has this name.
pub(crate) const CWD: &str = "CWD";

/// The kinds of tools that editors distinguish: those of the Agent Client Protocol.
pub(crate) const KINDS: [&str; 8] = [
    "read", "edit", "delete", "move", "search", "execute", "fetch", "other",
];

keys! {
    /// A tool, however it was written.
    ///
    /// The argv is `command` followed by the parameters in `appended`. Every parameter is used exactly
    /// one way: it is in `command`, or once in `appended`, or it is the one that goes to stdin.
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Tool, TOOL
    fields {
        /// Matches `[A-Za-z0-9_-]{1,64}`.
        name: String,
        /// The command as it was written, which describes a tool that has no description.
        template: String,
        /// The program and its first arguments. Not empty; the first word is never dropped.
        command: Vec<Word>,
        /// Indices of the parameters whose values follow `command`, in this order.
        appended: Vec<usize>,
        /// In the order in which the model sees them; no two have the same name.
        parameters: Vec<Parameter>,
        /// The form in which the arguments reach the command.
        input: InputForm,
        on_resume: OnResume,
        /// False if repeating a call is harmless.
        has_effect: bool,
        /// The command checks an answer, so that it gets nothing that only a tool may see.
        is_check: bool,
        /// The command is a `delta run` whose run is named after the call; its name is an option before the word
        /// of this index.
        subagent: Option<usize>,
        /// Rule for looking at a call that has begun something which ends without it.
        later: Option<LaterRule>,
    }
    keys {
        /// See also [`schema`].
        description: Option<String> = key("description", Text, "The description that the model sees. Default: the command."),
        timeout_ms: Option<u64> = key("timeout_ms", Count(0, None), "The tool's time limit, instead of the agent's tool_timeout_ms. 0 is no limit."),
        max_output_bytes: Option<u64> = key("max_output_bytes", Count(0, None),
            "The maximum bytes of each output stream that the model sees, instead of the agent's."),
        wrapper: Option<Vec<Word>> = key("wrapper", Texts, "The words before the command, instead of the agent's wrapper. An empty list is no wrapper."),
        /// Names without `=` and NUL.
        env: Vec<(String, String)> = key("env", Own, "Additional variables. The journal records only their names."),
        confirm: Confirm = key("confirm", Own, "Whether a person is asked before a call runs: true, or the question."),
        pass_api_key: bool = key("pass_api_key", Flag(Some(false)),
            "True if the command receives the variables with the API key, as a command that runs an agent must."),
        parallel: Option<u64> = key("parallel", Count(0, None),
            "The maximum number of calls that run at once, of consecutive calls in one message to tools with this key. Default: 0, one after another."),
        kind: Option<String> = key("kind", Words(&KINDS, None), "The kind of the tool, for programs that show its calls. The model does not see it."),
        path: Option<String> = key("path", Text, "The parameter that names the file of a call, for programs that show it."),
    }
    read by hand {
        key("name", Text, "The name by which the model calls the tool.").required(),
        key("exec", Text, "A command line that no shell reads. ${name} is one argument, whatever the value is; put -- before values \
            that must not be read as options."),
        key("shell", Text, "A script for sh. ${name} is quoted; ${name:raw} is split into words and its patterns are expanded."),
        key("command", Texts, "The program and its first arguments. ${name} is replaced by a declared parameter; the others follow the words."),
        key("parameters", Own, "Details of the parameters. In exec and shell, ${name} alone is a required string."),
        key("stdin", Text, "The parameter whose value goes to the standard input."),
        key("input", Words(&["json"], None),
            "json: all arguments go to the standard input as one JSON object, and the command has no placeholders."),
        key("input_schema", Own, "With input: json, in place of parameters: a JSON Schema of an object, which the model sees as it is. \
            The command checks the arguments."),
        key("on_resume", Own, "The treatment of a call that was running when the engine died: report informs the model, retry runs the \
            call again, check asks a command whether the call has happened. Default: report, or retry with effect: none."),
        key("effect", Words(&["none"], None), "none: repeating a call is harmless."),
        key("subagent", Flag(Some(false)), "True for a command that is a delta run or a delta flow run: its run is named after the call, \
            and a question or a limit in it suspends this run."),
        key("later", Own, "The command may end with 75 and a handle on its last line: it has started work that outlasts it. check is \
            run every_s seconds later, and again, until it has ended; after expires_s seconds it has failed."),
    }
}

impl Tool {
    /// A command without parameters; all that can be set otherwise is the agent's.
    pub(crate) fn fixed(name: &str, command: Vec<Word>) -> Self {
        Self {
            name: name.to_owned(),
            template: name.to_owned(),
            command,
            has_effect: true,
            ..Self::default()
        }
    }
}

/// One argv element. No pieces make the empty string; no two texts are neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word(pub Vec<Piece>);

/// A part of an argv element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Not empty, without NUL.
    Text(String),
    /// The value of the parameter with this index. If it has none, the whole word is dropped.
    Param(usize),
    /// The agent's directory.
    Home,
    /// The workspace.
    Cwd,
}

/// A value that the model can, or must, give.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameter {
    /// Matches `[A-Za-z0-9_.-]{1,64}`.
    pub name: String,
    /// The type that the model is asked for. The value is not converted.
    pub kind: ParameterType,
    pub description: Option<String>,
    /// The values it can have; empty if it can have any.
    pub choices: Vec<Value>,
    /// A call without it is refused.
    pub required: bool,
    /// The value if it is absent and not required. Not null.
    pub default: Option<Value>,
    /// The way its value reaches the command.
    pub inject: Inject,
    /// Keys the engine does not know, for the JSON schema.
    pub extra: Map<String, Value>,
}

named_enum! {
    /// The type of a parameter, as the model sees it.
    pub(crate) enum ParameterType {
        /// Text.
        String = "string",
        /// A whole number.
        Integer = "integer",
        /// Any number.
        Number = "number",
        /// True or false.
        Boolean = "boolean",
    }
}

/// The way a value reaches the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Inject {
    /// In the argv.
    Argument,
    /// In the argv, after this word, which is dropped with it.
    Option(String),
    /// On the standard input. At most one parameter of a tool.
    Stdin,
}

/// The form in which a call's arguments reach the command.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum InputForm {
    /// Each parameter in its own way.
    #[default]
    Parameters,
    /// All of them as one JSON object on the standard input; the argv is always the same.
    Json,
    /// Like `Json`, with any object that the model gives: this JSON Schema of one is only shown to it.
    Schema(Map<String, Value>),
}

/// The fate of a call that was running when the engine died.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnResume {
    /// The model gets a report, and decides.
    #[default]
    Report,
    Retry,
    /// A command finds out whether the call has happened.
    Check(TimedCommand),
}

/// A command that checks something, with a time limit of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimedCommand {
    /// Not empty; without parameters.
    pub command: Vec<Word>,
    /// 0 is no limit; none is the one that the agent or the tool has.
    pub timeout_ms: Option<u64>,
}

impl TimedCommand {
    /// The mapping in which it is written, with the command under this key.
    pub(crate) fn record(&self, key: &str) -> Value {
        let command = self.command.record();
        without_nulls(json!({key: command, "timeout_ms": self.timeout_ms})).into()
    }
}

/// The longest time, in seconds, that a call may be waited for: a hundred years.
pub(crate) const LONGEST_WAIT: u64 = 3_155_760_000;

/// The most bytes of the handle of such a call.
pub(crate) const HANDLE_BYTES: usize = 1024;

/// Rule for looking at a call that has begun something which ends without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaterRule {
    /// Not empty; without parameters.
    pub check: Vec<Word>,
    /// The time before the first look.
    pub every: Duration,
    /// After this time the call has failed.
    pub expires: Duration,
}

/// Confirmation by a person before a call runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Confirm {
    #[default]
    No,
    Yes,
    /// Yes, and with these words.
    Sentence(String),
}

impl Inject {
    /// The word for it in YAML.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Argument => "argument",
            Self::Option(_) => "option",
            Self::Stdin => "stdin",
        }
    }
}

impl Parameter {
    /// A required string without a description.
    pub(crate) fn new(name: &str, inject: Inject) -> Self {
        Self {
            name: name.to_owned(),
            kind: ParameterType::String,
            description: None,
            choices: Vec::new(),
            required: true,
            default: None,
            inject,
            extra: Map::new(),
        }
    }

    /// The choices; none if every value is one.
    pub(crate) fn given_choices(&self) -> Option<&[Value]> {
        Some(&*self.choices).filter(|choices| !choices.is_empty())
    }

    /// True if a value, as the command would get it, is one of the choices.
    ///
    /// Types make no difference, only text, and for a number that is not written as an integer, its
    /// value: `enum: [1, 2]` of a string means "1" and "2".
    pub(crate) fn admits(&self, text: &str) -> bool {
        let is_same = |choice: &Value| {
            let choice_text = text_of(choice);
            let both = [choice_text.as_str(), text];
            let fraction = both.iter().any(|t| t.contains(['.', 'e', 'E']));
            choice_text == text
                || choice.is_number() && fraction && is_same_number(&choice_text, text)
        };
        self.choices.is_empty() || self.choices.iter().any(is_same)
    }
}

/// A value as a command gets it: a string as it is, anything else as compact JSON.
pub(crate) fn text_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

impl Word {
    /// A word that is always the same.
    pub(crate) fn fixed(text: &str) -> Self {
        if text.is_empty() {
            Self::default()
        } else {
            Self(vec![Piece::Text(text.to_owned())])
        }
    }

    /// The word if it is always the same.
    pub(crate) fn as_fixed(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The parameters in it.
    pub(crate) fn params(&self) -> impl Iterator<Item = usize> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Param(index) => Some(*index),
            _ => None,
        })
    }

    /// The word as it is written, `name` giving the names of the parameters.
    pub(crate) fn written<'n>(&self, name: impl Fn(usize) -> &'n str) -> String {
        let show = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Param(index) => format!("${{{}}}", name(*index)),
            Piece::Home => format!("${{{AGENT_HOME}}}"),
            Piece::Cwd => format!("${{{CWD}}}"),
        };
        self.0.iter().map(show).collect()
    }
}

/// Words without parameters, as they are written.
pub(crate) fn written_words(words: &[Word]) -> Vec<String> {
    words.iter().map(|word| word.written(|_| "")).collect()
}

/// True for the form that `shell:` expands to, `sh -c SCRIPT --`, also if it was written so.
///
/// The script finds the appended parameters by their positions, so that one that is absent is an
/// empty string and moves no other.
pub(crate) fn is_script(command: &[Word]) -> bool {
    let fixed: Vec<Option<&str>> = command.iter().map(Word::as_fixed).collect();
    matches!(
        fixed.as_slice(),
        [Some("sh"), Some("-c"), Some(_), Some("--")]
    )
}

/// A command with its appended parameters on one line, for a person or a model to read.
pub(crate) fn one_line(command: &[Word], appended: &[usize], parameters: &[Parameter]) -> String {
    let name = |index: usize| parameters[index].name.as_str();
    let word = |word: &Word| {
        let written = word.written(name);
        let spaced = written.is_empty() || written.contains([' ', '\t', '\n', '\'', '"', '\\']);
        let quoted = shlex::try_quote(&written).ok().filter(|_| spaced);
        quoted.map_or_else(|| written.clone(), Into::into)
    };
    let mut words: Vec<String> = command.iter().map(word).collect();
    for &index in appended {
        if let Inject::Option(option) = &parameters[index].inject {
            words.push(option.clone());
        }
        words.push(format!("${{{}}}", name(index)));
    }
    words.join(" ")
}

/// The tool as an entry of `tools` in a chat completions request.
///
/// The order of keys is always the same, so that a request's leading bytes stay the same.
pub(crate) fn schema(tool: &Tool) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description.as_ref().unwrap_or(&tool.template),
            "parameters": arguments_schema(tool),
        }
    })
}

fn arguments_schema(tool: &Tool) -> Value {
    if let InputForm::Schema(schema) = &tool.input {
        return schema.clone().into();
    }
    let all = tool.parameters.iter();
    let required: Vec<&str> = all
        .clone()
        .filter(|it| it.required)
        .map(|it| &*it.name)
        .collect();
    let properties: Map<String, Value> = all.map(|it| (it.name.clone(), property(it))).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

fn property(parameter: &Parameter) -> Value {
    let mut property = without_nulls(json!({
        "type": parameter.kind.name(),
        "description": parameter.description,
        "enum": parameter.given_choices(),
        "default": parameter.default,
    }));
    property.extend(parameter.extra.clone());
    property.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool() -> Tool {
        Tool {
            template: "t ${a}".to_owned(),
            parameters: vec![Parameter::new("a", Inject::Argument)],
            ..Tool::fixed("t", vec![Word::fixed("t"), Word(vec![Piece::Param(0)])])
        }
    }

    #[test]
    fn a_tool_is_described_by_its_template_if_it_has_no_description() {
        let mut tool = tool();
        assert_eq!(schema(&tool)["function"]["description"], "t ${a}");
        tool.description = Some("T".to_owned());
        assert_eq!(schema(&tool)["function"]["description"], "T");
    }

    #[test]
    fn the_keys_of_a_schema_have_one_order() {
        let mut tool = tool();
        tool.parameters.push(Parameter {
            kind: ParameterType::Integer,
            description: Some("B".to_owned()),
            choices: vec![1.into(), 2.into()],
            required: false,
            default: Some(1.into()),
            extra: Map::from_iter([("minimum".to_owned(), 1.into())]),
            ..Parameter::new("b", Inject::Stdin)
        });
        assert_eq!(
            schema(&tool).to_string(),
            concat!(
                r#"{"type":"function","function":{"name":"t","description":"t ${a}","#,
                r#""parameters":{"type":"object","properties":{"a":{"type":"string"},"#,
                r#""b":{"type":"integer","description":"B","enum":[1,2],"default":1,"minimum":1}},"#,
                r#""required":["a"]}}}"#
            )
        );
    }

    #[test]
    fn choices_are_compared_as_text_and_fractions_as_numbers() {
        let admits = |choice: Value, text: &str| {
            let mut parameter = Parameter::new("a", Inject::Argument);
            parameter.choices = vec![choice];
            parameter.admits(text)
        };
        for (choice, text, same) in [
            (json!("a"), "a", true),
            (json!("a"), "A", false),
            (json!(1), "1", true),
            (json!("1"), "1", true),
            (json!(1), "1.0", true),
            (json!(1), "1e0", true),
            (json!("1"), "1.0", false),
            (json!(true), "true", true),
            (json!(1.5), "1.50", true),
            (json!(9_007_199_254_740_993_u64), "9007199254740992", false),
            (json!(1), "x.y", false),
        ] {
            assert_eq!(admits(choice.clone(), text), same, "{choice} {text}");
        }
    }
}
