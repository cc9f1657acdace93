//! Words of the journal that are known, and that others may write, too: types of events, kinds of answers.

use crate::text::names::named_enum;
use std::borrow::Cow;

named_enum! {
    /// The type of an event. A `match` lists them, or leaves a group out by its name, so that the compiler finds
    /// each place that a new type concerns. Unknown and empty if the line has none.
    pub(crate) enum EventKind<'a> {
        EngineStart = "ENGINE_START",
        UserMessage = "USER_MESSAGE",
        Thought = "THOUGHT",
        ActionRequest = "ACTION_REQUEST",
        ActionCheck = "ACTION_CHECK",
        ActionDeferred = "ACTION_DEFERRED",
        DeferredLook = "DEFERRED_LOOK",
        ActionResult = "ACTION_RESULT",
        Acceptance = "ACCEPTANCE",
        HumanInputRequest = "HUMAN_INPUT_REQUEST",
        HumanInputReceived = "HUMAN_INPUT_RECEIVED",
        Compaction = "COMPACTION",
        AttachmentsLeftOut = "ATTACHMENTS_LEFT_OUT",
        SystemMessage = "SYSTEM_MESSAGE",
        ModelChanged = "MODEL_CHANGED",
        HookAudit = "HOOK_EXECUTION_AUDIT",
        Error = "ERROR",
        EngineEnd = "ENGINE_END",
        + Flow(FlowEvent),
        + Evaluation(EvaluationEvent),
    }
}

impl EventKind<'_> {
    /// True if engines of the first layout misread a run with such an event.
    pub(crate) fn is_of_later_layout(&self) -> bool {
        matches!(
            self,
            Self::ActionDeferred
                | Self::DeferredLook
                | Self::Compaction
                | Self::AttachmentsLeftOut
                | Self::ModelChanged
        )
    }
}

named_enum! {
    /// How a conversation is shortened in requests.
    pub(crate) enum CompactionKind {
        /// Observations are given in a short form.
        Clear = "clear",
        /// A summary replaces its beginning.
        Summary = "summary",
    }
}

named_enum! {
    /// Why requests have lines in place of attachments.
    pub(crate) enum LeftOutReason {
        /// There are too many.
        Limit = "limit",
        /// The service refused them.
        Refused = "refused",
    }
}

named_enum! {
    /// Why a conversation is shortened.
    pub(crate) enum CompactionReason {
        /// By the estimate, the request was too long.
        Size = "size",
        /// The service refused the request, or cut off its answer.
        Refused = "refused",
        /// A person asked for it.
        Asked = "asked",
    }
}

named_enum! {
    /// The types of events that only runs of flows have.
    pub(crate) enum FlowEvent {
        FlowStart = "FLOW_START",
        TaskCreated = "TASK_CREATED",
        NodeStart = "NODE_START",
        NodeEnd = "NODE_END",
        Route = "ROUTE",
        Merge = "MERGE",
        Winner = "WINNER",
        Retry = "RETRY",
        TaskEnd = "TASK_END",
        Tool = "TOOL",
        Policy = "POLICY",
        Memory = "MEMORY",
    }
}

named_enum! {
    /// The types of events that only runs of evaluations have.
    pub(crate) enum EvaluationEvent {
        TrialStart = "TRIAL_START",
        TrialEnd = "TRIAL_END",
        Grade = "GRADE",
        Look = "LOOK",
    }
}

impl Default for EventKind<'_> {
    fn default() -> Self {
        Self::Unknown(Cow::Borrowed(""))
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
    /// Why a model stopped. Those that this engine knows kept it from finishing its answer.
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
