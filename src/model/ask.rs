//! Asking the model: one request, as many attempts as it takes, one answer.
//!
//! Unaware of runs, journals and tools. An attempt goes over HTTP, to a program or to a recording; what
//! is retried and how long is waited is decided here for all.

mod record;
mod follow;

use crate::error::{Result, may_fail};
use crate::model::attempt::{Attempt, Remedy};
use crate::model::http::{Http, HttpRequest};
use crate::model::program::Program;
use crate::model::rate::{Pass, SharedRate};
use crate::model::reasons::their_words;
use crate::model::refused_attachments::refusal_of_attachments;
pub(crate) use crate::model::refused_attachments::wants_answer_between;
use crate::model::replay::{Playback, PlayedAnswer};
use crate::model::response::{Answer, NoAnswer};
use crate::model::too_long::TooLong;
use crate::model::usage::{AnswerUsage, ReportedUsage, Uncounted, read_usage};
use crate::model::wire::{Heard, Listener, Wire};
use crate::record::attachments::body::Body;
use crate::record::invocations::GivenFile;
use crate::record::spending::Denial;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::signals::{Signals, Stop};
use follow::Followed;
use record::InvocationRecord;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest wait that a server may ask for. A longer one ends this start of the engine.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(300);

/// How a model is reached.
pub(crate) enum Model<'a> {
    /// Over HTTP.
    Http(Http),
    /// By a program.
    Command(Program<'a>),
    /// Not at all: its answers have been recorded.
    Recorded(&'a mut Playback),
}

/// How often, and until when, attempts are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Attempts after the first.
    pub max_retries: u32,
    /// Nothing is waited for beyond this.
    pub deadline: Option<Instant>,
}

/// The cost of an attempt, to reserve or to settle.
#[derive(Debug)]
pub(crate) enum Expense {
    /// The attempt is next.
    Reserve,
    /// The attempt is known to have cost nothing.
    Nothing,
    /// The server has counted.
    Counted(AnswerUsage),
    /// The cost is unknown; after an answer, with the reason.
    Unknown(Option<Uncounted>),
}

/// Pays for attempts, which are numbered from 1. Only reservations can be denied.
pub(crate) type Purse<'p> = dyn FnMut(u64, Expense) -> std::result::Result<(), Denial> + 'p;

/// The outcome of asking, over all attempts.
#[derive(Debug)]
pub(crate) enum Asked {
    /// An answer.
    Answered(Box<Answer>),
    /// The model cannot be reached now; perhaps at a time that its server named.
    Unavailable(String, Option<Timestamp>),
    /// The account has nothing more to spend; perhaps at a time that the server named.
    Quota(String, Option<Timestamp>),
    /// The model's server said no; perhaps it would not to a request that is a little different.
    Refused(String, Option<Remedy>),
    /// The conversation is longer than the model takes.
    TooLong(String, TooLong),
    /// The service refuses the request because of its attachments, in these words.
    AttachmentsRefused(String),
    /// The service is still making the answer, and the time for this start is over.
    Open(String),
    /// The deadline lies before the next attempt.
    OutOfTime,
    /// A signal asks the engine to end.
    Stopped(Stop),
    /// The attempt must not be made.
    Denied(Denial),
}

/// An invocation's directory and what is known of it beforehand.
pub(crate) struct Invocation<'a> {
    /// The invocation's directory, with `request.json` in it.
    pub dir: &'a Path,
    /// The request. Its text is that of `request.json`.
    pub request: &'a Body<'a>,
    /// The same with a mark in place of the bytes of each attachment.
    pub marked: &'a [u8],
    /// The form of the request and its answer.
    pub wire: &'a Wire,
    /// The invocation before it, and how many leading bytes the two requests share.
    pub extends: Option<(&'a str, usize)>,
    /// Files in the request, where they differ from those of the request before.
    pub context: Option<&'a [GivenFile]>,
    /// The conversation in the request.
    pub conversation: &'a [u8],
    /// An earlier start has sent the request, and its answer is open.
    pub is_open: bool,
    /// An answer with neither text nor calls is one.
    pub may_be_silent: bool,
}

/// Asks until there is an answer or no hope of one. Calls `notify` before each wait, and `listener` with each piece
/// of a stream. Writes `response.json`, `metadata.json` and, of a stream, `response.sse` beside the request.
///
/// # Errors
/// Disk errors.
pub(crate) fn ask_model(
    model: &mut Model<'_>,
    invocation: &Invocation<'_>,
    patience: Patience,
    signals: &Signals,
    purse: &mut Purse<'_>,
    mut notify: impl FnMut(&str),
    listener: &mut Listener<'_>,
) -> Result<Asked> {
    let started = Instant::now();
    let mut record = match invocation.is_open {
        true => InvocationRecord::read(invocation.dir),
        false => InvocationRecord::default(),
    };
    let mut retries = 0;
    let asked = loop {
        if !record.attempts.is_empty() && record.open.is_none() {
            // The one before may have left it.
            files::remove(&invocation.dir.join("response.json"))?;
            files::remove(&invocation.dir.join("response.sse"))?;
            listener(Heard::Anew);
        }
        let number = record.attempts.len() as u64 + 1;
        let (began, clock) = (Instant::now(), Timestamp::now());
        let mut sent = None;
        if record.open.is_none() {
            let probe = match pass(model.rate(), signals, patience, &mut notify) {
                Ok(probe) => probe,
                Err(asked) => break asked,
            };
            if let Err(denial) = purse(number, Expense::Reserve) {
                break Asked::Denied(denial);
            }
            let left = patience
                .deadline
                .map(|it| it.saturating_duration_since(Instant::now()));
            let attempt = model.attempt(invocation, signals, left, listener)?;
            if let Some(rate) = model.rate() {
                rate.learn(&attempt);
            }
            drop(probe);
            sent = Some(attempt);
        }
        let attempt = match model.follow(sent, invocation, &mut record, patience, signals)? {
            Followed::Ended(attempt) => attempt,
            // The answer goes on at the service, and what is reserved for it stays so.
            Followed::Open(asked) => break asked,
        };
        let reported = reported_usage(invocation.wire, &attempt);
        // Only a reservation is denied.
        may_fail(purse(number, expense(&attempt, reported.as_ref())));
        let (mut step, outcome) = judge_attempt(attempt, reported, invocation, &mut record);
        match &mut step {
            // A start that finds no such answer in the journal gets it once more from the service.
            NextStep::End(Asked::Answered(answer)) => model.redact_joined(answer),
            _ => record.open = None,
        }
        record.add_attempt(clock, began.elapsed(), outcome);
        let (why, after) = match step {
            NextStep::End(asked) => break asked,
            NextStep::Again(why, after) => (why, after),
        };
        if let Err(asked) = wait_to_retry((&why, after), retries, patience, signals, &mut notify) {
            break asked;
        }
        retries += 1;
    };
    record.write(invocation, &asked, started.elapsed())?;
    Ok(asked)
}

/// Waits before another attempt, after one that failed for a reason and perhaps says how long to wait.
fn wait_to_retry(
    (why, after): (&str, Option<Duration>),
    retries: u32,
    patience: Patience,
    signals: &Signals,
    notify: &mut dyn FnMut(&str),
) -> std::result::Result<(), Asked> {
    let is_over = |wait| {
        patience
            .deadline
            .is_some_and(|until| Instant::now() + wait >= until)
    };
    if is_over(Duration::ZERO) {
        return Err(Asked::OutOfTime);
    }
    if let Some(stop) = signals.stop_within(after.unwrap_or_default()) {
        return Err(Asked::Stopped(stop));
    }
    if let Some(after) = after.filter(|after| *after > LONGEST_RETRY_AFTER) {
        let until = Timestamp::now().plus(after);
        let why = format!("{why}; the server asks to wait until {until}");
        return Err(Asked::Unavailable(why, Some(until)));
    }
    let tries = retries + 1;
    if retries == patience.max_retries {
        let times = if tries == 1 { "attempt" } else { "attempts" };
        let why = format!("{why} (after {tries} {times})");
        return Err(Asked::Unavailable(
            why,
            after.map(|after| Timestamp::now().plus(after)),
        ));
    }
    let wait = after.unwrap_or_else(|| backoff_time(retries));
    if is_over(wait) {
        return Err(Asked::OutOfTime);
    }
    if let Some(stop) = signals.stop_within(wait) {
        return Err(Asked::Stopped(stop));
    }
    notify(&format!(
        "{why}; waiting {:.1} s before trying again ({tries} of {})",
        wait.as_secs_f64(),
        patience.max_retries
    ));
    signals.sleep(wait).map_err(Asked::Stopped)
}

/// Waits as long as the server asked other processes to wait. Returns the lock if this process asks first.
fn pass(
    rate: Option<&SharedRate>,
    signals: &Signals,
    patience: Patience,
    notify: &mut dyn FnMut(&str),
) -> std::result::Result<Option<File>, Asked> {
    let Some(rate) = rate else { return Ok(None) };
    Err(
        match rate.pass(signals, patience.deadline, LONGEST_RETRY_AFTER, notify) {
            Pass::Open(probe) => return Ok(probe),
            Pass::Later(why, until) => {
                let why = format!("{why}; the server asks to wait until {until}");
                Asked::Unavailable(why, Some(until))
            }
            Pass::Quota(why) => Asked::Quota(why, None),
            Pass::OutOfTime => Asked::OutOfTime,
            Pass::Stopped(stop) => Asked::Stopped(stop),
        },
    )
}

enum NextStep {
    End(Asked),
    Again(String, Option<Duration>),
}

/// What a response says of its own tokens; None if there is no response.
fn reported_usage(wire: &Wire, attempt: &Attempt) -> Option<ReportedUsage> {
    match attempt {
        Attempt::Body { body, .. } => Some(read_usage(wire.api(), body)),
        _ => None,
    }
}

/// The cost of an attempt. An error of the server costs nothing.
fn expense(attempt: &Attempt, reported: Option<&ReportedUsage>) -> Expense {
    match reported.map(|reported| reported.counted) {
        Some(Ok(counted)) => return Expense::Counted(counted),
        Some(Err(why)) => return Expense::Unknown(Some(why)),
        None => {}
    }
    match attempt {
        Attempt::Again { may_count, .. } | Attempt::Stopped { may_count, .. } if *may_count => {
            Expense::Unknown(None)
        }
        Attempt::Body { .. } | Attempt::Lost => Expense::Unknown(None),
        Attempt::Again { .. }
        | Attempt::Stopped { .. }
        | Attempt::Refused { .. }
        | Attempt::Quota { .. } => Expense::Nothing,
    }
}

/// The step that follows an attempt, and the attempt's outcome for the record.
fn judge_attempt(
    attempt: Attempt,
    reported: Option<ReportedUsage>,
    invocation: &Invocation<'_>,
    record: &mut InvocationRecord,
) -> (NextStep, String) {
    if invocation.request.has_blobs()
        && let Some((why, http_status)) = refusal_of_attachments(&attempt)
    {
        record.http_status = http_status;
        let asked = Asked::AttachmentsRefused(why.clone());
        return (NextStep::End(asked), why);
    }
    match attempt {
        Attempt::Stopped { stop, .. } => {
            (NextStep::End(Asked::Stopped(stop)), stop.name().to_owned())
        }
        Attempt::Lost => {
            let why = "the service does not know the answer that it had begun".to_owned();
            (record.again_or_refused(&why, true), why)
        }
        Attempt::Refused {
            why,
            too_long,
            remedy,
            http_status,
        } => {
            record.http_status = http_status;
            let asked = match too_long {
                Some(too_long) => Asked::TooLong(why.clone(), too_long),
                None => Asked::Refused(why.clone(), remedy),
            };
            (NextStep::End(asked), why)
        }
        Attempt::Quota {
            why,
            after,
            http_status,
        } => {
            record.http_status = Some(http_status);
            let until = after.map(|after| Timestamp::now().plus(after));
            (NextStep::End(Asked::Quota(why.clone(), until)), why)
        }
        Attempt::Again {
            why,
            after,
            timed_out,
            is_last,
            may_count: _,
            http_status,
        } => {
            record.http_status = http_status;
            record.timed_out = timed_out;
            if !is_last {
                return (NextStep::Again(why.clone(), after), why);
            }
            let ended = format!("{why}; the server asks for no retry now");
            let until = after.map(|after| Timestamp::now().plus(after));
            (NextStep::End(Asked::Unavailable(ended, until)), why)
        }
        Attempt::Body { body, http_status } => {
            record.timed_out = false;
            record.http_status = http_status;
            match invocation.wire.parse(&body) {
                Ok(mut answer) => {
                    answer.take_usage(reported);
                    record.note_answer(&answer);
                    let step = NextStep::End(Asked::Answered(Box::new(answer)));
                    (step, "answered".to_owned())
                }
                Err(NoAnswer {
                    is_silent: true, ..
                }) if invocation.may_be_silent => {
                    let mut answer = Answer::default();
                    answer.take_usage(reported);
                    record.note_answer(&answer);
                    let step = NextStep::End(Asked::Answered(Box::new(answer)));
                    (step, "answered with nothing".to_owned())
                }
                Err(NoAnswer {
                    why, is_lasting, ..
                }) => {
                    if let Some(too_long) = TooLong::in_place_of_answer(&body) {
                        let said = their_words(&body);
                        return (NextStep::End(Asked::TooLong(said, too_long)), why);
                    }
                    let kept = invocation.dir.join("response.json");
                    let why = format!("{why}; the response is kept in {}", kept.display());
                    (record.again_or_refused(&why, is_lasting), why)
                }
            }
        }
    }
}

/// Half a second, doubled each time up to thirty, give or take a fifth.
fn backoff_time(retries: u32) -> Duration {
    let seconds = (0.5 * f64::from(1u32 << retries.min(6))).min(30.0);
    Duration::from_secs_f64(seconds * (0.8 + 0.4 * fastrand::f64()))
}

impl Model<'_> {
    fn attempt(
        &mut self,
        invocation: &Invocation<'_>,
        signals: &Signals,
        left: Option<Duration>,
        listener: &mut Listener<'_>,
    ) -> Result<Attempt> {
        let response = invocation.dir.join("response.json");
        match self {
            Self::Http(http) => {
                let ask = HttpRequest::Ask {
                    request: invocation.request,
                    streams: invocation.wire.streams(),
                };
                let mut received = http.attempt(ask, left, listener);
                if let Some(stream) = received.stream {
                    files::write(&invocation.dir.join("response.sse"), &stream)?;
                }
                if let Some(came_back) = received.response {
                    files::write(&response, &came_back)?;
                    if let Attempt::Body { body, .. } = &mut received.attempt {
                        *body = came_back;
                    }
                }
                Ok(received.attempt)
            }
            Self::Command(program) => {
                let request = invocation.request;
                program.attempt((invocation.dir, request), &response, signals, left)
            }
            Self::Recorded(playback) => Ok(match playback.answer(invocation.marked)? {
                PlayedAnswer::Recorded(body) => {
                    files::write(&response, &body)?;
                    Attempt::Body {
                        body,
                        http_status: None,
                    }
                }
                PlayedAnswer::Missing(why) => Attempt::Refused {
                    why,
                    too_long: None,
                    remedy: None,
                    http_status: None,
                },
            }),
        }
    }

    /// Takes the key out of a text that came in pieces; whole, it is in no response.
    pub(crate) fn redact_joined(&self, answer: &mut Answer) {
        let secrets = match self {
            Self::Http(http) => http.secrets(),
            Self::Command(program) => &program.secrets,
            Self::Recorded(_) => return,
        };
        for secret in secrets {
            secret.redact(&mut answer.content_json);
            if secret.redact_text(&mut answer.text) {
                // They hold the pieces.
                answer.items = None;
            }
        }
    }

    fn rate(&self) -> Option<&SharedRate> {
        match self {
            Self::Http(http) => http.rate(),
            Self::Command(_) | Self::Recorded(_) => None,
        }
    }

    /// True if the server is on this machine or has a private address.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Http(http) => http.is_local(),
            Self::Command(_) | Self::Recorded(_) => false,
        }
    }

    /// Asks the server how many tokens a model takes.
    pub(crate) fn look_up_window(&self, model: &str) -> Option<u64> {
        match self {
            Self::Http(http) => http.look_up_window(model),
            Self::Command(_) | Self::Recorded(_) => None,
        }
    }

    /// The recording that is asked instead of a model.
    pub(crate) fn playback(&mut self) -> Option<&mut Playback> {
        match self {
            Self::Recorded(playback) => Some(playback),
            Self::Http(_) | Self::Command(_) => None,
        }
    }
}
