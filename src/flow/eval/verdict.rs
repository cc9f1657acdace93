//! The meaning of the end of a target's program: that there is a result to judge, that the trial has failed,
//! or that nothing was measured.
//!
//! Pure. The only place that knows which stop reason is which outcome.

use crate::error::Exit;
use crate::record::stop_reason::StopReason;
use crate::unix::process::Ended;

/// The end of the program of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetEnd {
    /// There is a result, and its assertions decide.
    Answered,
    /// A failure of its own: why, in a word.
    Failed(String),
    /// Nothing is known of the target: why, in a word.
    NotMeasured(String),
    /// The same, and every other trial would say the same.
    Misconfigured(String),
    /// This evaluation ended it, and the same command resumes it.
    Open,
}

/// The reason of a trial that took longer than the suite allows.
const TIMEOUT: &str = "timeout";

/// The reason of a trial that asked a person.
const ASKED: &str = "asked";

/// The reason of a trial whose program was ended from outside.
const SIGNAL: &str = "signal";

/// The reason of a trial that asked to be tried later.
const TRY_AGAIN: &str = "later";

/// Limits of the evaluation itself, which end its trials with the words of their own limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EvaluationLimits {
    /// The budget of the evaluation is spent.
    pub budget: bool,
    /// The evaluation has a deadline.
    pub deadline: bool,
}

/// The reasons of trials that a limit of the evaluation kept from their end.
pub(crate) const NO_BUDGET: &str = "evaluation_budget";
pub(crate) const NO_TIME: &str = "evaluation_deadline";
pub(crate) const AGENT_CHANGED: &str = "agent_changed";

fn failed(why: &str) -> TargetEnd {
    TargetEnd::Failed(why.to_owned())
}

pub(super) fn not_measured(why: &str) -> TargetEnd {
    TargetEnd::NotMeasured(why.to_owned())
}

/// The end of a plain command.
pub(crate) fn of_command(how: Ended) -> TargetEnd {
    match how {
        Ended::TimedOut => failed(TIMEOUT),
        Ended::Interrupted(_) => TargetEnd::Open,
        Ended::Exited(code) if is_signal(code) => not_measured(SIGNAL),
        Ended::Exited(code) if code == Exit::TempFail as i32 => not_measured(TRY_AGAIN),
        Ended::Exited(_) => TargetEnd::Answered,
    }
}

/// The end of an agent's run or of a flow's, with the reasons of the agents that stopped it.
pub(crate) fn of_run(how: Ended, reasons: &[&str], limits: EvaluationLimits) -> TargetEnd {
    let Ended::Exited(code) = how else {
        return of_command(how);
    };
    let is = |exit: Exit| code == exit as i32;
    // A reason that says nothing of the target outweighs one that does: without it, it might have passed.
    let ends = reasons.iter().map(|reason| of_reason(reason, limits));
    let worst = ends.min_by_key(|end| match end {
        TargetEnd::Misconfigured(_) => 0,
        TargetEnd::NotMeasured(_) | TargetEnd::Open => 1,
        TargetEnd::Failed(_) | TargetEnd::Answered => 2,
    });
    let given = reasons.iter().find(|reason| !reason.is_empty());
    match worst {
        _ if is(Exit::Waiting) => failed(ASKED),
        _ if is_signal(code) => not_measured(SIGNAL),
        _ if is(Exit::Config) || is(Exit::Usage) => {
            TargetEnd::Misconfigured("configuration".to_owned())
        }
        _ if is(Exit::Software) => not_measured("defect"),
        Some(end) if end != TargetEnd::Answered => end,
        _ if is(Exit::TempFail) => not_measured(match given {
            Some(reason) => reason,
            // It ended before its run began.
            None if limits.deadline => NO_TIME,
            None => TRY_AGAIN,
        }),
        _ if is(Exit::Undecided) => failed(given.unwrap_or(&"error")),
        _ if is(Exit::Success) || is(Exit::Failure) || is(Exit::Partial) => TargetEnd::Answered,
        // Nothing that delta ends with.
        _ => not_measured("error"),
    }
}

/// True for the exit code that a shell gives to a program that a signal ended.
fn is_signal(code: i32) -> bool {
    (129..=192).contains(&code)
}

/// The meaning of a stop reason of a run for its target.
fn of_reason(name: &str, limits: EvaluationLimits) -> TargetEnd {
    let Some(reason) = StopReason::ALL.into_iter().find(|it| it.name() == name) else {
        return TargetEnd::Answered;
    };
    match reason {
        // The exit code says what became of the sub-agent.
        StopReason::FinalAnswer | StopReason::Subagent(_) => TargetEnd::Answered,
        StopReason::Budget if limits.budget => not_measured(NO_BUDGET),
        StopReason::Deadline if limits.deadline => not_measured(NO_TIME),
        StopReason::AskHuman => failed(ASKED),
        StopReason::ModelRefused => TargetEnd::Misconfigured(name.to_owned()),
        StopReason::ModelUnavailable
        | StopReason::DiskFull
        | StopReason::IoError
        | StopReason::AcceptUnable
        | StopReason::AcceptLater
        | StopReason::Deferred
        | StopReason::Background
        | StopReason::Signal(_) => not_measured(name),
        StopReason::Length
        | StopReason::ContentFilter
        | StopReason::ContextFull
        | StopReason::MaxIterations
        | StopReason::NoProgress
        | StopReason::Tokens
        | StopReason::Seconds
        | StopReason::Budget
        | StopReason::Deadline
        | StopReason::CallAsText
        | StopReason::NotAccepted
        | StopReason::Context
        | StopReason::Hook
        | StopReason::JournalChanged => failed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(code: i32, reasons: &[&str]) -> TargetEnd {
        of_run(Ended::Exited(code), reasons, EvaluationLimits::default())
    }

    #[test]
    fn own_limits_are_failures_and_outages_are_not_measured() {
        let failed = |code, reason: &str| {
            assert_eq!(run(code, &[reason]), TargetEnd::Failed(reason.to_owned()));
        };
        for reason in [
            "max_iterations",
            "no_progress",
            "tokens",
            "seconds",
            "budget",
            "context_full",
        ] {
            failed(4, reason);
        }
        for reason in ["length", "content_filter", "call_as_text", "not_accepted"] {
            failed(1, reason);
        }
        for reason in ["model_unavailable", "disk_full", "io_error"] {
            assert_eq!(
                run(75, &[reason]),
                TargetEnd::NotMeasured(reason.to_owned())
            );
        }
        assert_eq!(
            run(4, &["model_refused"]),
            TargetEnd::Misconfigured("model_refused".to_owned())
        );
        assert_eq!(
            run(101, &["ask_human"]),
            TargetEnd::Failed("asked".to_owned())
        );
        assert_eq!(
            run(78, &[]),
            TargetEnd::Misconfigured("configuration".to_owned())
        );
        assert_eq!(
            run(143, &["SIGTERM"]),
            TargetEnd::NotMeasured("signal".to_owned())
        );
        assert_eq!(run(0, &["final_answer"]), TargetEnd::Answered);
        assert_eq!(run(1, &["failure"]), TargetEnd::Answered);
    }

    #[test]
    fn limits_of_the_evaluation_are_not_the_targets_own() {
        let both = EvaluationLimits {
            budget: true,
            deadline: true,
        };
        let end = |reason| of_run(Ended::Exited(4), &[reason], both);
        assert_eq!(end("budget"), TargetEnd::NotMeasured(NO_BUDGET.to_owned()));
        assert_eq!(end("deadline"), TargetEnd::NotMeasured(NO_TIME.to_owned()));
        assert_eq!(
            end("max_iterations"),
            TargetEnd::Failed("max_iterations".to_owned())
        );
    }

    #[test]
    fn an_outage_beside_a_limit_is_not_measured() {
        let end = run(4, &["max_iterations", "model_unavailable"]);
        assert_eq!(end, TargetEnd::NotMeasured("model_unavailable".to_owned()));
    }

    #[test]
    fn a_command_is_measured_by_any_exit_code_but_75_and_signals() {
        assert_eq!(of_command(Ended::Exited(0)), TargetEnd::Answered);
        assert_eq!(of_command(Ended::Exited(3)), TargetEnd::Answered);
        assert_eq!(
            of_command(Ended::Exited(75)),
            TargetEnd::NotMeasured("later".to_owned())
        );
        assert_eq!(
            of_command(Ended::Exited(137)),
            TargetEnd::NotMeasured("signal".to_owned())
        );
        assert_eq!(
            of_command(Ended::TimedOut),
            TargetEnd::Failed("timeout".to_owned())
        );
    }
}
