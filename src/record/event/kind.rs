//! The types of events, and their names in the journal.

use serde::de::{Deserialize, Deserializer, Visitor};
use std::borrow::Cow;
use std::fmt;

macro_rules! event_kinds {
    ($($kind:ident = $name:literal,)*) => {
        /// The type of an event. It has no default and every `match` lists all of them, so that the
        /// compiler finds each place that a new type concerns.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) enum EventKind<'a> {
            $($kind,)*
            /// A type that this engine does not write; empty if the line has none.
            Unknown(Cow<'a, str>),
        }

        impl EventKind<'_> {
            /// The name in the journal.
            pub(crate) fn name(&self) -> &str {
                match self {
                    $(Self::$kind => $name,)*
                    Self::Unknown(name) => name,
                }
            }

            /// The type of a name that this engine writes.
            pub(super) fn known(name: &str) -> Option<EventKind<'static>> {
                match name {
                    $($name => Some(EventKind::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

event_kinds! {
    EngineStart = "ENGINE_START",
    UserMessage = "USER_MESSAGE",
    Thought = "THOUGHT",
    ActionRequest = "ACTION_REQUEST",
    ActionResult = "ACTION_RESULT",
    HumanInputRequest = "HUMAN_INPUT_REQUEST",
    HumanInputReceived = "HUMAN_INPUT_RECEIVED",
    SystemMessage = "SYSTEM_MESSAGE",
    HookAudit = "HOOK_EXECUTION_AUDIT",
    Error = "ERROR",
    EngineEnd = "ENGINE_END",
    // Of workflows alone.
    FlowStart = "FLOW_START",
    TaskCreated = "TASK_CREATED",
    NodeStart = "NODE_START",
    NodeEnd = "NODE_END",
    Route = "ROUTE",
    Merge = "MERGE",
    TaskEnd = "TASK_END",
    Tool = "TOOL",
    Policy = "POLICY",
    Memory = "MEMORY",
}

impl Default for EventKind<'_> {
    fn default() -> Self {
        Self::Unknown(Cow::Borrowed(""))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for EventKind<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct KindNames;
        impl<'de> Visitor<'de> for KindNames {
            type Value = EventKind<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                let unknown = || EventKind::Unknown(Cow::Borrowed(name));
                Ok(EventKind::known(name).unwrap_or_else(unknown))
            }
            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                let unknown = || EventKind::Unknown(Cow::Owned(name.to_owned()));
                Ok(EventKind::known(name).unwrap_or_else(unknown))
            }
        }
        from.deserialize_str(KindNames)
    }
}
