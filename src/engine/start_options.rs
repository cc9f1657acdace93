//! The behaviour of a start of an engine: the options of the command line that makes it.
//!
//! Unaware of the agent and of the run.

use crate::config::pricing::GivenBudget;
use crate::record::feed::Feed;
use crate::unix::doors::Door;
use crate::unix::terminal::Screen;
use std::path::Path;
use std::rc::Rc;

/// Options of a start, from the command line to the engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartOptions {
    /// The place of progress.
    pub screen: Screen,
    /// Overrides of agent.yaml as they are given: dotted keys, and YAML.
    pub set: Vec<(String, String)>,
    /// Hosts that tools may reach, in place of those that the environment lists.
    pub doors: Vec<Door>,
    /// The limit of iterations of this start; none: the agent's.
    pub max_iterations: Option<u64>,
    /// Replaces the agent's for this start.
    pub budget: Option<GivenBudget>,
    pub patience: WaitMode,
    /// Ask people at the terminal.
    pub interactive: bool,
    /// One message of a conversation, which has said where it takes place. A person reads each answer, and none is
    /// checked.
    pub is_chat: bool,
    /// Pass over damaged lines of the journal, and over a lock that another host may hold.
    pub force: bool,
    /// Shorten the conversation before the next request, however long it is.
    pub compacts: bool,
    /// Print the text of answers on the terminal as it arrives, where it is streamed and no hook may change it.
    pub shows_text: bool,
    /// Finds the diff that a call would make.
    pub preview: Option<Preview>,
    /// A program that follows the run.
    pub feed: Option<Rc<Feed>>,
}

/// The diff that a call would make, of its command line and its standard input, in a directory.
pub(crate) type Preview = fn(&[String], &[u8], &Path) -> Option<String>;

impl StartOptions {
    /// The text of answers is printed as it arrives, for a program.
    pub(crate) fn has_deltas(&self) -> bool {
        self.feed.as_ref().is_some_and(|feed| feed.has_deltas)
    }
}

/// The patience of a start with calls that end later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WaitMode {
    /// The start ends, and another one looks at them.
    #[default]
    End,
    /// The start waits for them.
    Wait,
    /// All of them have failed.
    GiveUp,
}
