//! The decision of a command about a run, as a pure function of the request and of the run's state.
//!
//! Unaware of files: `run`, its `--dry-run`, `continue` and flows all decide here.

use crate::record::metadata::Status;

/// The way in which a command names the run that it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// `run`: the newest run of this agent that began with this text.
    ByText,
    /// `run --run-id`.
    ById,
    /// `continue`.
    Continue,
}

/// The run that a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub naming: Naming,
    /// There is a message: the task, the answer or the next thing to do.
    pub has_text: bool,
    /// `--new`.
    pub new: bool,
    /// `--retry-failed`.
    pub retry_failed: bool,
    /// A person at the terminal answers questions.
    pub interactive: bool,
    /// `--wait` and `--give-up`: the command has something to do for calls that end later, too early for a look.
    pub attends_calls: bool,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunState {
    pub status: Status,
    /// True if it is a run of the same agent that began with the same text, if the command gives one.
    pub is_same: bool,
    /// A question is open and unanswered.
    pub is_unanswered: bool,
    /// True for a run that only waits for a time that has not come.
    pub is_early: bool,
    /// True for a flow's run, which `continue` cannot resume.
    pub is_flow: bool,
}

/// The decision on a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Begin,
    /// Begin a new run under the name of a failed one, which is renamed.
    BeginInPlace,
    Resume,
    /// Print once more how it ended, or what it waits for.
    Reprint,
    /// Another process works on it.
    Busy,
    Refuse(Refusal),
}

/// The reason why a command does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such run, and no text to begin one with.
    NoRun,
    /// The run has ended, and there is no text to begin another one with.
    Ended,
    /// The name belongs to a run of another agent or text.
    OtherRun,
    /// The run of this name has failed.
    Failed,
    /// The run has ended and needs a message to go on.
    NeedsMessage,
    /// The run is a flow's.
    OfFlow,
}

/// Decides what a command does with the run that it means, if there is one.
pub(crate) fn decide(wanted: Wanted, found: Option<RunState>) -> Decision {
    let begin_or = |refusal| {
        if wanted.has_text {
            Decision::Begin
        } else {
            Decision::Refuse(refusal)
        }
    };
    let found = match (wanted.naming, found) {
        (Naming::ByText, _) if wanted.new => return begin_or(Refusal::NoRun),
        (Naming::Continue, None) => return Decision::Refuse(Refusal::NoRun),
        (_, None) => return begin_or(Refusal::NoRun),
        (Naming::ByText, Some(found)) if !found.is_same => return begin_or(Refusal::NoRun),
        (Naming::ById, Some(found)) if !found.is_same => {
            return Decision::Refuse(Refusal::OtherRun);
        }
        (_, Some(found)) => found,
    };
    let is_continue = wanted.naming == Naming::Continue;
    let answered = wanted.interactive || (is_continue && wanted.has_text);
    let attends = wanted.attends_calls || (is_continue && wanted.has_text);
    match (found.status, wanted.naming) {
        (Status::Running, _) => Decision::Busy,
        (_, Naming::Continue) if found.is_flow => Decision::Refuse(Refusal::OfFlow),
        (Status::WaitingForInput, _) if found.is_unanswered && !answered => Decision::Reprint,
        (Status::Interrupted, _) if found.is_early && !attends => Decision::Reprint,
        (Status::Interrupted | Status::WaitingForInput, _) => Decision::Resume,
        (Status::Completed | Status::Failed, Naming::ByText) => begin_or(Refusal::Ended),
        (Status::Completed | Status::Failed, Naming::Continue) if wanted.has_text => {
            Decision::Resume
        }
        (Status::Completed | Status::Failed, Naming::Continue) => {
            Decision::Refuse(Refusal::NeedsMessage)
        }
        (Status::Completed, Naming::ById) => Decision::Reprint,
        (Status::Failed, Naming::ById) if wanted.retry_failed => Decision::BeginInPlace,
        (Status::Failed, Naming::ById) => Decision::Refuse(Refusal::Failed),
    }
}

#[cfg(test)]
mod tests {
    use super::Decision::{Begin, BeginInPlace, Busy, Refuse, Reprint, Resume};
    use super::Refusal::{Ended, Failed, NeedsMessage, NoRun, OfFlow, OtherRun};
    use super::*;

    /// The states of a run: none, of another text, then each status of the one that is meant, then a flow's.
    const STANDINGS: [&str; 9] = [
        "none",
        "other",
        "running",
        "interrupted",
        "waiting",
        "answered",
        "completed",
        "failed",
        "flow",
    ];

    fn state(name: &str) -> Option<RunState> {
        let status = match name {
            "none" => return None,
            "running" => Status::Running,
            "waiting" | "answered" => Status::WaitingForInput,
            "completed" => Status::Completed,
            "failed" => Status::Failed,
            _ => Status::Interrupted,
        };
        Some(RunState {
            status,
            is_same: name != "other",
            is_unanswered: name == "waiting",
            is_early: name == "early",
            is_flow: name == "flow",
        })
    }

    /// `run`, `run --run-id` or `continue`, with letters for what else is given: (m)essage, --(n)ew,
    /// --(r)etry-failed, (i)nteractive, --(w)ait.
    fn wanted(naming: Naming, given: &str) -> Wanted {
        Wanted {
            naming,
            has_text: given.contains('m'),
            new: given.contains('n'),
            retry_failed: given.contains('r'),
            interactive: given.contains('i'),
            attends_calls: given.contains('w'),
        }
    }

    #[test]
    fn a_run_that_waits_for_a_time_is_resumed_only_to_attend_to_its_calls() {
        use Naming::{ById, ByText, Continue};
        for (naming, given, decision) in [
            (ByText, "m", Reprint),
            (ByText, "mi", Reprint),
            (ByText, "mw", Resume),
            (ByText, "mn", Begin),
            (ByText, "", Reprint),
            (ById, "m", Reprint),
            (ById, "w", Resume),
            (Continue, "", Reprint),
            (Continue, "i", Reprint),
            (Continue, "m", Resume),
            (Continue, "w", Resume),
        ] {
            let decided = decide(wanted(naming, given), state("early"));
            assert_eq!(decided, decision, "{naming:?} with {given:?}");
        }
    }

    #[test]
    fn every_standing_and_every_way_to_ask_have_one_decision() {
        use Naming::{ById, ByText, Continue};
        #[rustfmt::skip]
        let table: [(Naming, &[&str], [Decision; 9]); 12] = [
            //                        none           other             running  interrupted waiting answered completed              failed                 flow
            (ByText, &["m"],         [Begin,         Begin,            Busy,    Resume,     Reprint, Resume,  Begin,                 Begin,                 Resume]),
            (ByText, &["mi"],        [Begin,         Begin,            Busy,    Resume,     Resume, Resume,  Begin,                 Begin,                 Resume]),
            (ByText, &["mn", "mni"], [Begin,         Begin,            Begin,   Begin,      Begin,  Begin,   Begin,                 Begin,                 Begin]),
            (ByText, &[""],          [Refuse(NoRun), Refuse(NoRun),    Busy,    Resume,     Reprint, Resume,  Refuse(Ended),         Refuse(Ended),         Resume]),
            (ByText, &["i"],         [Refuse(NoRun), Refuse(NoRun),    Busy,    Resume,     Resume, Resume,  Refuse(Ended),         Refuse(Ended),         Resume]),
            (ByText, &["n"],         [Refuse(NoRun); 9]),
            (ById, &["m"],           [Begin,         Refuse(OtherRun), Busy,    Resume,     Reprint, Resume,  Reprint,                Refuse(Failed),        Resume]),
            (ById, &["mr"],          [Begin,         Refuse(OtherRun), Busy,    Resume,     Reprint, Resume,  Reprint,                BeginInPlace,          Resume]),
            (ById, &["r"],           [Refuse(NoRun), Refuse(OtherRun), Busy,    Resume,     Reprint, Resume,  Reprint,                BeginInPlace,          Resume]),
            (ById, &["i"],           [Refuse(NoRun), Refuse(OtherRun), Busy,    Resume,     Resume, Resume,  Reprint,                Refuse(Failed),        Resume]),
            (Continue, &[""],        [Refuse(NoRun), Resume,           Busy,    Resume,     Reprint, Resume,  Refuse(NeedsMessage),  Refuse(NeedsMessage),  Refuse(OfFlow)]),
            (Continue, &["m", "mi"], [Refuse(NoRun), Resume,           Busy,    Resume,     Resume, Resume,  Resume,                Resume,                Refuse(OfFlow)]),
        ];
        for (naming, ways, decisions) in table {
            for given in ways {
                for (name, decision) in STANDINGS.into_iter().zip(decisions) {
                    let decided = decide(wanted(naming, given), state(name));
                    assert_eq!(decided, decision, "{naming:?} with {given:?}, {name}");
                }
            }
        }
    }
}
