//! The events that all runs have. Those of flows are in `flow`, those of evaluations in `evaluation`.

use super::members::is_success;
use super::{
    Event, EventKind, ForkedFrom, Present, REASONING, Raw, RawJson, ReadUsage, RecordedUsage,
    Reference, Text, decoded,
};
use crate::record::attachments::Attachment;
use crate::record::engine_log::Level;
use crate::text::json::Fields;
use crate::text::names::named_enum;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;

named_enum! {
    /// The way an action ended.
    pub(crate) enum ActionStatus {
        /// Exit code 0.
        Success = "SUCCESS",
        /// Another exit code, a signal, a timeout, a program that cannot be run.
        Failed = "FAILED",
        /// No exit code is known: nothing was run, or the engine died meanwhile.
        Error = "ERROR",
    }
}

impl ActionStatus {
    /// That of an action whose exit code is known.
    pub(crate) fn of(is_good: bool) -> Self {
        if is_good { Self::Success } else { Self::Failed }
    }
}

named_enum! {
    /// The way a hook ended.
    pub(crate) enum HookStatus {
        Success = "SUCCESS",
        Failed = "FAILED",
        /// The engine is ending, or a hook before it decided.
        Skipped = "SKIPPED",
    }
}

/// The way the result of a call begins that a guard or a person has refused.
pub(crate) const DENIED: &str = "denied: ";

named_enum! {
    /// The answer of a tool's check.
    pub(crate) enum CheckFinding {
        /// The call has happened.
        Happened = "HAPPENED",
        /// It has not, and may be made.
        Absent = "ABSENT",
        /// The check cannot say.
        Unknown = "UNKNOWN",
    }
}

named_enum! {
    /// The kind of answer that a question wants.
    #[derive(Default)]
    pub enum InputType<'a> {
        #[default]
        Text = "text",
        Password = "password",
        Confirmation = "confirmation",
    }
}

named_enum! {
    /// Reason why a model stopped. Those that this engine knows kept it from finishing its answer.
    pub enum FinishReason<'a> {
        Length = "length",
        ContentFilter = "content_filter",
    }
}

impl FinishReason<'_> {
    /// True if the answer is not whole.
    pub(crate) fn is_cut_off(&self) -> bool {
        match self {
            Self::Length | Self::ContentFilter => true,
            Self::Unknown(_) => false,
        }
    }
}

events! {
    /// An engine begins to work on the run.
    EngineStart, StartEvent {
        run_id: text,
        agent_home: text,
        work_dir: text,
        /// The run's first message.
        task: string,
        /// The configuration as it was understood.
        config: json,
        pid: (u32 => Option<u64>),
        /// The host that `pid` is on.
        hostname: text,
        /// The beginning of `DELTA_CALL_ID` for its hooks, generators and model programs.
        call_id: text,
        delta_version: text,
        /// True if the run had been started before.
        resumed: flag,
        /// The texts and the names of the files that the message was made from, if there are files.
        message_parts: [Option<&'a Value> => Option<Value>],
        /// The run whose tool this run is, if it is one.
        parent_run_id: opt_text,
        /// `DELTA_CALL_ID` of what started it there.
        parent_call_id: opt_text,
        /// The run that this one began as a part of.
        forked_from: [Option<&'a ForkedFrom> => Option<ForkedFrom>],
        /// Keys of agent.yaml that this run overrides, with their values.
        set: [&'a Map<String, Value> => Option<Map<String, Value>>],
        /// The hosts that tools may reach without a network.
        allow_hosts: [&'a [String] => Option<Vec<String>>],
        /// Variables of the batch system that started the engine.
        launcher: [&'a Map<String, Value> => Option<Map<String, Value>>],
        /// The span of another program that the run is a part of: `TRACEPARENT`.
        traceparent: opt_text,
    }

    /// A message of a person.
    #[derive(Default)]
    UserMessage, MessageEvent {
        content: string,
        attachments: [&'a [Attachment] => Raw<'a>],
        /// Of a message from the inbox, `inbox`, and the name of its file.
        source: [Option<&'a str> => Raw<'a>],
        id: [Option<&'a str> => Raw<'a>],
    }

    /// The model answered.
    Thought, ThoughtEvent {
        /// The text: a JSON string, also where the server sent null, so that readers always find a text.
        content: json,
        /// The server sent null.
        content_null: opt_flag,
        /// The calls as they are sent back to the model: a JSON array, if there are any.
        tool_calls: opt_json,
        /// The text in place of a JSON object, by the call's id.
        invalid_arguments: [&'a Map<String, Value> => Raw<'a>],
        reasoning_members: reasoning,
        finish_reason: (Option<&'a FinishReason<'a>> => Option<FinishReason<'a>>),
        /// Which model says that it answered.
        model: null_place,
        usage: [Option<RecordedUsage<'a>> => Option<ReadUsage>],
        /// The invocation's directory, from the run's directory.
        llm_invocation_ref: (&'a str => Reference<'a>),
        /// The answer as it came over another API than chat completions: a JSON object.
        wire: opt_json,
    } + {
        reasoning_content: Raw<'a>,
        reasoning: Raw<'a>,
        reasoning_details: Raw<'a>,
        thinking: Raw<'a>,
        thinking_blocks: Raw<'a>,
    }

    /// A tool is about to run.
    ActionRequest, ActionRequestEvent {
        action_id: place,
        tool_name: text,
        /// An object.
        tool_args: json,
        /// One line that can be pasted into a shell.
        resolved_command: text,
        /// `DELTA_CALL_ID` of the tool's processes.
        call_id: text,
        /// The execution's directory, from the run's directory; None if nothing runs.
        execution_ref: null_place,
    }

    /// A tool's check has been asked whether a call has happened.
    ActionCheck, ActionCheckEvent {
        action_id: place,
        tool_name: text,
        status: (CheckFinding => Text<'a>),
        exit_code: null_code,
        /// From start to end.
        duration_ms: number,
        /// The directory of its execution, from the run's directory.
        execution_ref: place,
    }

    /// A call has its result.
    ActionResult, ActionResultEvent {
        action_id: place,
        tool_name: text,
        status: (ActionStatus => Text<'a>),
        /// The exit code, if one is known.
        exit_code: null_code,
        /// The text that the model receives.
        observation_content: string,
        /// From start to end.
        duration_ms: count,
        /// The execution's directory, from the run's directory.
        execution_ref: null_place,
        /// A hook wrote the text.
        by_hook: opt_flag,
        /// In a replay: the recorded execution's directory, from the recorded run's directory.
        output_ref: opt_text,
        attachments: [&'a [Attachment] => Raw<'a>],
    }

    /// A check of a final answer has ended.
    Acceptance, AcceptanceEvent {
        /// The number of the answer's THOUGHT.
        thought_seq: count,
        /// The check: its command on one line, or `output_schema`.
        what: text,
        exit_code: (i32 => Option<i64>),
        /// From start to end.
        duration_ms: count,
        /// The execution's directory, from the run's directory; none if nothing was run.
        execution_ref: null_place,
        /// How many answers had been refused before since a person spoke.
        repair: number,
        /// The message to the model, if the check refuses the answer.
        content: [Option<&'a str> => Raw<'a>],
        /// The JSON value that a schema has accepted, if it is not the whole text.
        value: [Option<RawJson<'a>> => Present<'a>],
    }

    /// A person is asked.
    HumanInputRequest, QuestionEvent {
        action_id: place,
        request_id: text,
        prompt: text,
        input_type: (&'a InputType<'a> => Option<InputType<'a>>),
        /// True if the answer must not be shown.
        sensitive: flag,
        /// The call that would run, if it is one that a person must confirm.
        fingerprint: opt_text,
    } + {
        tool_name: Text<'a>,
    }

    /// A person answered.
    HumanInputReceived, ReplyEvent {
        action_id: place,
        request_id: text,
        response: text,
        /// That of the question.
        fingerprint: opt_text,
        /// The same call needs no question for the rest of the run.
        always: opt_flag,
    }

    /// The engine notes something about the run. All but the first two members are for later starts.
    #[derive(Default)]
    SystemMessage, NoteEvent {
        level: (Level => Text<'a>),
        content: string,
        /// How requests are changed because the service refused one: an object.
        remedy: opt_json,
        /// A part of an answer, after which the service has paused: an object.
        pause: opt_json,
        /// The tokens that the model takes, as a refusal has shown.
        window: opt_count,
        /// The estimate of a request that could not be shortened.
        tokens_before: opt_count,
        /// The server counts fewer tokens than it should.
        is_truncated: opt_flag,
        /// The server ends streams without saying why the model stopped.
        no_finish_reason: opt_flag,
        /// It names what the states of the files lack.
        files_left_out: opt_flag,
        /// Of answers that were not used.
        usage: [Option<RecordedUsage<'a>> => Option<ReadUsage>],
    } + {
        /// Of a flow that stops before a step.
        paused: Option<bool>,
    }

    /// Another model is asked from now on, in this start.
    ModelChanged, ModelChangedEvent {
        /// The models' names, with their endpoints unless these are the vendors' own.
        from: text,
        to: text,
        why: text,
        /// Time when `from` can be asked again, if its service named a time.
        until: opt_text,
    }

    /// A hook has been run.
    HookAudit, HookAuditEvent {
        hook_name: text,
        status: (HookStatus => Text<'a>),
        /// The execution's directory, from the run's directory.
        io_path_ref: (&'a str => Reference<'a>),
        /// The question that it was run for.
        request_id: opt_text,
    }

    /// Something failed.
    Error, ErrorEvent {
        error_message: text,
        error_details: json,
    } + {
        /// Of an attempt at a flow's node that another one follows.
        code: Text<'a>,
        message: Text<'a>,
        retry_at: Text<'a>,
        cpu_ms: Option<u64>,
    }

    /// The engine stops working on the run.
    EngineEnd, EndEvent {
        run_id: text,
        /// The run's state from now on.
        status: text,
        stop_reason: text,
        /// With which the engine ends.
        exit_code: (u8 => Option<i64>),
        /// How many iterations the run has had.
        final_iteration: number,
        /// The working time of all starts, if that is limited.
        engine_ms: opt_count,
        /// Of a completed run; of any other, `error`.
        result: opt_text,
        error: opt_text,
    }
}

impl<'a> NoteEvent<'a> {
    pub(crate) fn new(level: Level, content: &'a str) -> Self {
        Self {
            level,
            content,
            ..Self::default()
        }
    }
}

/// The members of a start's configuration, or of a part of it.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct StartConfig<'a>(#[serde(borrow)] Fields<'a>);

impl<'a> StartConfig<'a> {
    pub(crate) fn get(&self, key: &str) -> Raw<'a> {
        Raw(self.0.raw(key))
    }

    /// The part about the model.
    pub(crate) fn llm(&self) -> Self {
        self.get("llm").read().unwrap_or_default()
    }

    /// The model's name, or the program that is asked in its place.
    pub(crate) fn model(&self) -> Option<String> {
        let llm = self.llm();
        let program = || llm.get("command").read::<Vec<String>>()?.into_iter().next();
        llm.get("model").read().or_else(program)
    }
}

/// A call of a tool in an answer.
#[derive(Deserialize)]
pub(crate) struct RecordedCall<'a> {
    #[serde(borrow, default)]
    pub id: Cow<'a, str>,
    #[serde(borrow)]
    pub function: RecordedFunction<'a>,
}

#[derive(Deserialize)]
pub(crate) struct RecordedFunction<'a> {
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// A string that holds JSON, or any other value.
    #[serde(borrow)]
    pub arguments: Raw<'a>,
}

impl<'a> RecordedFunction<'a> {
    /// The arguments as the model sent them.
    pub(crate) fn sent(&self) -> Cow<'a, str> {
        self.arguments.get().map_or("null".into(), decoded)
    }
}

impl<'a> EngineStart<'a> {
    /// The configuration; an empty one if it is missing or of another form.
    pub(crate) fn config(&self) -> StartConfig<'a> {
        self.config.read().unwrap_or_default()
    }

    /// The values of `--set`.
    pub(crate) fn set(&self) -> Map<String, Value> {
        self.set.clone().unwrap_or_default()
    }

    /// The hosts that the command line opened.
    pub(crate) fn allow_hosts(&self) -> Vec<String> {
        self.allow_hosts.clone().unwrap_or_default()
    }

    /// The engine's parent process, as its environment describes it.
    pub(crate) fn launcher(&self) -> Map<String, Value> {
        self.launcher.clone().unwrap_or_default()
    }
}

impl<'a> Thought<'a> {
    /// The calls, in order; none if they cannot be read.
    pub(crate) fn calls(&self) -> Vec<RecordedCall<'a>> {
        self.tool_calls.read().unwrap_or_default()
    }

    /// The members in which the server sent reasoning, in a fixed order.
    pub(crate) fn reasoning_fields(&self) -> Vec<(&'static str, &'a RawValue)> {
        let values = [
            self.reasoning_content,
            self.reasoning,
            self.reasoning_details,
            self.thinking,
            self.thinking_blocks,
        ];
        REASONING
            .into_iter()
            .zip(values)
            .filter_map(|(name, Raw(value))| Some((name, value?)))
            .collect()
    }
}

impl UserMessage<'_> {
    /// The name of the file of a message that lay in the inbox.
    pub(crate) fn inbox_id(&self) -> Option<String> {
        let is_of_inbox = self.source.get() == Some("\"inbox\"");
        self.id.read().filter(|_| is_of_inbox)
    }
}

impl ActionResult<'_> {
    /// True if the action succeeded.
    pub(crate) fn is_success(&self) -> bool {
        is_success(&self.status, self.exit_code)
    }
}
