//! Words of the journal that are known, and that others may write, too: types of events, kinds of answers.

use serde::de::{Deserialize, Deserializer, Visitor};
use std::borrow::Cow;
use std::fmt;

/// An enum of names that this engine knows.
macro_rules! closed_enum {
    ($(#[$doc:meta])* $vis:vis enum $Enum:ident { $($variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $Enum {
            $($variant,)*
        }

        impl $Enum {
            /// The name in the journal.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Reads what [`Self::name`] writes.
            fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

/// An enum of names that this engine knows, those of closed enums among them, and of any other that a server
/// or a person may write.
macro_rules! open_enum {
    (
        $(#[$doc:meta])* $vis:vis enum $Enum:ident {
            $($(#[$mark:meta])? $variant:ident = $name:literal,)*
            $(+ $group:ident($names:ty),)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $vis enum $Enum<'a> {
            $($(#[$mark])? $variant,)*
            $($group($names),)*
            /// Any other name.
            Unknown(Cow<'a, str>),
        }

        impl<'a> $Enum<'a> {
            /// The name in the journal.
            pub(crate) fn name(&self) -> &str {
                match self {
                    $(Self::$variant => $name,)*
                    $(Self::$group(one) => one.name(),)*
                    Self::Unknown(name) => name,
                }
            }

            /// The variant of a name that this engine knows.
            pub(super) fn known(name: &str) -> Option<$Enum<'static>> {
                match name {
                    $($name => Some($Enum::$variant),)*
                    _ => None$(.or_else(|| <$names>::parse(name).map($Enum::$group)))*,
                }
            }

            /// The variant of any name.
            pub(crate) fn of(name: impl Into<Cow<'a, str>>) -> Self {
                let name = name.into();
                Self::known(&name).unwrap_or(Self::Unknown(name))
            }

            /// The same, borrowing nothing.
            #[allow(dead_code, reason = "not each of these enums outlives its line")]
            pub(crate) fn into_owned(self) -> $Enum<'static> {
                match self {
                    $(Self::$variant => $Enum::$variant,)*
                    $(Self::$group(one) => $Enum::$group(one),)*
                    Self::Unknown(name) => $Enum::Unknown(Cow::Owned(name.into_owned())),
                }
            }
        }

        $(impl From<$names> for $Enum<'_> {
            fn from(one: $names) -> Self {
                Self::$group(one)
            }
        })*

        impl<'de: 'a, 'a> Deserialize<'de> for $Enum<'a> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_str(Name).map(Self::of)
            }
        }
    };
}

open_enum! {
/// The type of an event. A `match` lists them, or leaves a group out by its name, so that the compiler finds
/// each place that a new type concerns. Unknown and empty if the line has none.
pub(crate) enum EventKind {
    EngineStart = "ENGINE_START",
    UserMessage = "USER_MESSAGE",
    Thought = "THOUGHT",
    ActionRequest = "ACTION_REQUEST",
    ActionCheck = "ACTION_CHECK",
    ActionResult = "ACTION_RESULT",
    Acceptance = "ACCEPTANCE",
    HumanInputRequest = "HUMAN_INPUT_REQUEST",
    HumanInputReceived = "HUMAN_INPUT_RECEIVED",
    SystemMessage = "SYSTEM_MESSAGE",
    HookAudit = "HOOK_EXECUTION_AUDIT",
    Error = "ERROR",
    EngineEnd = "ENGINE_END",
    + Flow(FlowEvent),
    + Evaluation(EvaluationEvent),
}
}

closed_enum! {
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

closed_enum! {
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

open_enum! {
/// The kind of answer that a question wants.
#[derive(Default)]
pub enum InputType {
    #[default]
    Text = "text",
    Password = "password",
    Confirmation = "confirmation",
}
}

open_enum! {
/// Why a model stopped. Those that this engine knows kept it from finishing its answer.
pub enum FinishReason {
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

/// Reads a string, borrowed where it has no escapes.
struct Name;

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }
    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}
