//! An agent, as its files define it.

use crate::config::acceptance::{Acceptance, REPAIRS};
use crate::config::api::{
    API_WORDS, Api, ApiChoice, CacheTime, Header, RecordedApi, TakenAttachments,
};
use crate::config::compact::{COMPACT_KEY, CompactShares};
use crate::config::keys::Kind::{Count, Flag, FlagOr, Keys, Label, Own, Text, Texts, Words};
use crate::config::keys::{Key, KeyValue, count, key, keys, names};
use crate::config::pricing::{BUDGET, Budget, PriceList};
use crate::config::section::Section;
use crate::config::tool::definition::{Tool, Word};
use crate::text::json;
use crate::text::names::named_enum;
use crate::text::options::table::words;
use crate::text::order;
use crate::unix::terminal::stderr_is_terminal;
use serde_json::Value;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Duration;

keys! {
    /// An agent, as its files say.
    #[derive(Clone, Debug, Default)]
    struct Agent, AGENT
    fields {
        /// Absolute, with symbolic links resolved. UTF-8.
        home: PathBuf,
        /// The value of `AGENT_HOME`: `home`, unless the agent is one Markdown file.
        visible_home: PathBuf,
        name: String,
        /// Settings of its model.
        llm: Llm,
        /// Without `ask_human`.
        tools: Vec<Tool>,
        prices: PriceList,
        budget: Budget,
        acceptance: Acceptance,
        context: Context,
        hooks: Vec<Hook>,
    }
    keys {
        version: Option<String> = key("version", Label, "For people.").harmless(),
        description: Option<String> = key("description", Text, "For people: what the agent does.").harmless(),
        max_iterations: u64 = count("max_iterations", 1, 30, "The maximum number of iterations in one start of the engine."),
        max_output_bytes: u64 = count("max_output_bytes", 1, 30_000,
            "The most bytes of each output stream of a tool that the model sees. The files always hold everything.").harmless(),
        keep_requests: u64 = count("keep_requests", 0, 50, "The number of newest requests that are kept whole. 0 keeps all.").harmless(),
        same_call: u64 = count("same_call", 0, 0,
            "The number of calls in a row of one tool with the same arguments and the same result that ends the run. 0 is no limit."),
        limits: StartLimits = LIMITS_KEY,
        compact: Option<CompactShares> = COMPACT_KEY,
        tool_timeout: Option<Duration> = count("tool_timeout_ms", 0, 600_000, "The time limit of a tool. 0 is no limit."),
        wrapper: Vec<Word> = key("wrapper", Texts,
            "The words before every tool's command, such as a sandbox. ${AGENT_HOME} and ${CWD} are replaced in its words."),
        ask_human: bool = key("ask_human", Flag(Some(true)), "True if the model can ask a person."),
        files: FilesKept = key("files", Words(&["git", "off"], Some("off")),
            "git: keep what the files of the workspace are after each iteration, in .delta/files.git.").harmless(),
        sync: bool = key("sync", Flag(Some(true)), "True if the journal must reach the disk before an action starts."),
        workspace_env: Option<Vec<String>> = key("workspace_env", Texts,
            "The variables that a workspace's .env may set: names, and prefixes such as APP_*. Without it, all but those that \
             decide which program runs."),
    }
    read by hand {
        key("name", Text, "The agent's name.").required().harmless(),
        key("llm", Keys(LLM), "The model. All other keys are sent with the request unchanged, such as temperature, max_tokens and seed.")
            .required(),
        key("system_prompt", Text,
            "The file of the system prompt, inside the agent's directory. The model sees it only if context.yaml lists it."),
        key("imports", Texts, "Files with tools, from this file's directory. A later tool replaces an earlier one of the same name."),
        key("tools", Own, "The commands that the model can call."),
        key("confirm", Own,
            "The tools whose calls a person must confirm, whatever the tools themselves say: all, none, or a list of names."),
        key("pricing", Own, "Prices per million tokens, in any currency: of llm.model of this file, or by the names of models."),
        key("budget", Keys(BUDGET), "Limits for all starts of a run together."),
        key("output_schema", Text, "A file below the agent's directory with the JSON Schema that the final answer must fit."),
        key("accept", Own, "Commands that must accept the final answer, run in this order."),
        count("repairs", 0, REPAIRS, "How often a refused answer is sent back to the model, counted since a person's last message."),
    }
}

#[rustfmt::skip]
pub(super) const LIMITS_KEY: Key = key("limits", Keys(LIMITS), "Limits of one start of the engine; 0 is no limit.");

keys! {
    /// Limits of one start of the engine; 0: no limit.
    #[derive(Clone, Copy, Debug, Default)]
    struct StartLimits, LIMITS
    fields {}
    keys {
        tokens: u64 = count("tokens", 0, 0, "Tokens, as the server counts them."),
        seconds: u64 = count("seconds", 0, 0, "Seconds."),
    }
    read by hand {}
}

impl KeyValue for StartLimits {
    fn read(section: &Section, key: &Key) -> Self {
        let mut limits = Self::default();
        if let Some(section) = section.read_section(key.name) {
            section.warn_of_unknown_keys(&names(LIMITS));
            limits.read_keys(&section);
        }
        limits
    }

    fn record(&self) -> Value {
        self.record_keys().into()
    }
}

impl Agent {
    /// True if some tools run in a wrapper, which may keep them from files that the engine can read.
    pub(crate) fn has_wrapper(&self) -> bool {
        let of_tools = self.tools.iter().filter_map(|tool| tool.wrapper.as_ref());
        of_tools
            .chain([&self.wrapper])
            .any(|wrapper| !wrapper.is_empty())
    }

    /// Has answers streamed, where nothing else is said, if something shows their text as it arrives.
    pub(crate) fn show_text(&mut self, is_shown: bool) {
        self.llm.is_shown |= is_shown;
        for other in &mut self.llm.fallback {
            other.llm.is_shown |= is_shown;
        }
    }

    /// The time limit of one start of the engine.
    pub(crate) fn longest_start(&self) -> Option<Duration> {
        let seconds = self.limits.seconds.min(1 << 32);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }
}

keys! {
    /// Settings of a model.
    #[derive(Clone, Debug, Default)]
    struct Llm, LLM
    fields {
        /// The agent names no model: it is the environment's.
        is_from_environment: bool,
        /// Keys that are not the engine's own, in the order written; they go into the request.
        parameters: Vec<(String, Value)>,
        /// The form of requests and answers.
        api: Api,
        api_choice: ApiChoice,
        /// Headers that are sent beside the usual ones.
        headers: Vec<Header>,
        /// Answers come as they are made. Then `timeout` is the longest silence.
        stream: Streaming,
        /// api: messages only. How long the service caches prompt prefixes.
        cache: CacheTime,
        /// A program that is the model.
        command: Option<Vec<Word>>,
        /// The time limit of one attempt whose answer is streamed.
        total_timeout: Duration,
        /// The models that are asked in its place, in order.
        fallback: Vec<Fallback>,
        chain: ChainSource,
        /// Something shows answers as they are made.
        is_shown: bool,
    }
    keys {
        model: Option<String> = key("model", Text, "The model's name. Without it and without command: the model of -M, or of DELTA_MODEL.")
            .harmless(),
        base_url: Option<String> = key("base_url", Text,
            "The server's address, without /chat/completions at the end. Overrides the environment."),
        window: Option<u64> = key("window", Count(0, None),
            "The model's window in tokens, for request and answer together. 0: unknown, and the server is not asked.").harmless(),
        attachments: Option<TakenAttachments> = key("attachments", FlagOr("images", false),
            "Which attachments the model accepts: all, only pictures, none. The others become lines of text.").harmless(),
        timeout: Duration = count("timeout_ms", 1, 600_000, "The time limit of one attempt.").harmless(),
        max_retries: u64 = count("max_retries", 0, 8, "The number of retries, 1000 at most.").harmless(),
    }
    read by hand {
        key("api", Words(&API_WORDS, Some("auto")),
            "The API by which the model is asked: chat completions, OpenAI's Responses, Anthropic's Messages. auto: that of the \
             host; chat unless it is OpenAI's or Anthropic's."),
        key("headers", Own, "Headers sent with each request. {env: NAME} is the value of a variable, a secret."),
        key("stream", FlagOr("auto", true),
            "Receive answers as they are generated. auto: yes, but for chat completions only if stderr is a terminal or --deltas is given, and not from a \
             service that refuses it.").harmless(),
        key("cache", Words(&words(&CacheTime::ALL), Some("5m")),
            "api: messages only. How long the service caches the beginnings of requests."),
        key("command", Texts,
            "A program that acts as the model: it reads a request on its standard input and prints a chat completion on its \
             standard output. ${AGENT_HOME} and ${CWD} are replaced in its words."),
        TOTAL_TIMEOUT,
        key("fallback", Own,
            "Models that are asked, in this order, when the previous one fails: each is an llm of its own. They are left out of \
             runs whose model, api, command or endpoint agent.yaml does not choose."),
    }
}

/// A model that is asked when the one before it has failed.
#[derive(Clone, Debug)]
pub(crate) struct Fallback {
    pub llm: Llm,
    /// The variable with the key for its endpoint.
    pub key: Option<String>,
    /// The failures after which it is asked.
    pub after: Vec<ModelFailure>,
}

named_enum! {
    /// Failures of a model to answer.
    pub(crate) enum ModelFailure {
        /// The model cannot be reached, and all retries are used up.
        Unavailable = "unavailable",
        /// The account has nothing more to spend.
        Quota = "quota",
        /// The service refuses the request as such.
        Refused = "refused",
    }
}

/// The source of the models that are asked in place of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChainSource {
    #[default]
    AgentFile,
    /// The command line, which chooses them for this run.
    CommandLine,
    /// Left out, because the first model does not come from the agent's file.
    LeftOut,
}

/// Recorded only if answers are streamed.
#[rustfmt::skip]
pub(super) const TOTAL_TIMEOUT: Key = count("total_timeout_ms", 1, 3_600_000,
    "The time limit of one attempt whose answer is streamed; timeout_ms then is the longest silence.");

/// Conditions of streaming answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Streaming {
    Always,
    Never,
    /// Streams where it shows, and as long as the service does it.
    #[default]
    Auto,
}

impl Llm {
    /// True if answers are asked for as streams.
    pub(crate) fn streams(&self) -> bool {
        match self.stream {
            _ if self.is_background() => false,
            Streaming::Always => true,
            Streaming::Never => false,
            Streaming::Auto => self.is_shown || self.api != Api::Chat || stderr_is_terminal(),
        }
    }

    /// Uses the API of the run's record, wherever requests would go.
    pub(crate) fn keep_recorded_api(&mut self) {
        let recorded = match self.api_choice.recorded {
            RecordedApi::Word(api, _) => api,
            RecordedApi::NoWord | RecordedApi::NoRun => Api::Chat,
        };
        self.api = *self.api_choice.given.get_or_insert(recorded);
    }

    /// True if the service makes answers in the background, to be polled.
    pub(crate) fn is_background(&self) -> bool {
        self.api == Api::Responses && self.parameter("background") == Some(&Value::Bool(true))
    }

    /// A parameter of the requests, by its dotted key.
    pub(crate) fn parameter(&self, dotted: &str) -> Option<&Value> {
        let (first, rest) = dotted.split_once('.').unwrap_or((dotted, ""));
        let mut found = self.parameters.iter();
        let (_, value) = found.find(|(key, _)| key == first)?;
        let mut below = rest.split('.').filter(|key| !key.is_empty());
        below.try_fold(value, |value, key| value.get(key))
    }

    pub(crate) fn has_parameter(&self, dotted: &str) -> bool {
        self.parameter(dotted).is_some()
    }

    /// True if a model is named, or a program serves as one.
    pub(crate) fn has_model(&self) -> bool {
        self.model.is_some() || self.command.is_some()
    }

    /// Leaves out the models of the agent's file that are asked in place of the first, which something else
    /// chooses: what is said to that one was never meant for them.
    pub(crate) fn leave_out_fallback(&mut self) {
        if self.chain != ChainSource::CommandLine {
            self.chain = ChainSource::LeftOut;
            self.fallback.clear();
        }
    }

    /// The model's name as JSON.
    pub(crate) fn model_json(&self) -> Option<String> {
        self.model.as_ref().map(json::text)
    }
}

/// The parts of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    /// In order; all there is.
    pub sources: Vec<Source>,
    /// Every block before the journal is a system message of its own.
    pub separate: bool,
}

impl Context {
    /// The number of newest iterations that requests have, if not all.
    pub(crate) fn window(&self) -> Option<usize> {
        self.sources.iter().find_map(|source| match source {
            Source::Journal { max_iterations } => *max_iterations,
            _ => None,
        })
    }
}

/// One part of what the model sees.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// A file.
    File {
        /// The block's name.
        id: String,
        /// The path.
        path: Word,
        optional: bool,
    },
    /// A file of one name, in the workspace and the directories above it in its repository.
    Upward(UpwardSource),
    /// A file that a program writes.
    Computed(ComputedSource),
    /// The conversation.
    Journal {
        /// The number of newest iterations; none: all.
        max_iterations: Option<usize>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UpwardSource {
    /// The block's name.
    pub id: String,
    /// The path from each of these directories.
    pub name: String,
    /// The most bytes of them all.
    pub max_bytes: u64,
    pub optional: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ComputedSource {
    /// The block's name.
    pub id: String,
    /// The program.
    pub command: Vec<Word>,
    /// How long it may take.
    pub timeout: Duration,
    /// The file it writes.
    pub output: Word,
    /// The file may be missing, and the program may fail.
    pub optional: bool,
    /// Run once for each start of the engine instead of before every request.
    pub once: bool,
}

impl Source {
    /// The block's name; the conversation has none.
    pub(crate) fn id(&self) -> Option<&str> {
        match self {
            Self::File { id, .. } => Some(id),
            Self::Upward(source) => Some(&source.id),
            Self::Computed(source) => Some(&source.id),
            Self::Journal { .. } => None,
        }
    }
}

named_enum! {
    /// Place of the files of each step.
    #[derive(Default)]
    pub(crate) enum FilesKept {
        Git = "git",
        #[default]
        Off = "off",
    }
}

/// A program that is run at a certain moment.
#[derive(Clone, Debug)]
pub(crate) struct Hook {
    /// The moment.
    pub event: HookEvent,
    /// The program.
    pub command: Vec<Word>,
    /// Its time limit.
    pub timeout: Duration,
    /// True if it also runs for requests for summaries.
    pub sees_compactions: bool,
}

named_enum! {
    /// The moments at which hooks run.
    pub enum HookEvent {
        PreLlmRequest = "pre_llm_request",
        PostLlmResponse = "post_llm_response",
        PreToolExecution = "pre_tool_execution",
        PostToolExecution = "post_tool_execution",
        OnError = "on_error",
        OnRunEnd = "on_run_end",
        OnIterationStart = "on_iteration_start",
        OnIterationEnd = "on_iteration_end",
        OnQuestion = "on_question",
    }
}

/// Something wrong, or doubtful, in an agent's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Its severity.
    pub severity: Severity,
    /// The file, relative to the current directory where that is shorter.
    pub file: String,
    /// Line, from 1, if it is known.
    pub line: Option<usize>,
    /// Column, from 1, if it is known.
    pub column: Option<usize>,
    /// The fault and the way out.
    pub message: String,
    /// The system lacked something for the moment that has nothing to do with the file.
    pub is_passing: bool,
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The agent cannot run.
    Error,
    /// Something was probably not meant.
    Warning,
    /// Written in a form that will go away.
    Deprecation,
    /// A note for a person who checks the agent.
    Advice,
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.severity {
            Severity::Error => {}
            Severity::Warning | Severity::Advice => f.write_str("warning: ")?,
            Severity::Deprecation => f.write_str("[DEPRECATION WARNING] ")?,
        }
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(column) = self.column {
            write!(f, ":{column}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Puts problems in the order in which a person works through them: by file and line.
pub(crate) fn sort_problems(problems: &mut Vec<Problem>) {
    order::sort_by(problems, |a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
}
