//! Asking the model: one request, as many attempts as it takes, one answer.
//!
//! Unaware of runs, journals and tools. An attempt goes over HTTP, to a program or to a recording; what
//! is retried and how long is waited is decided here for all.

mod record;
mod follow;

use crate::error::{Error, Result, ignore};
use crate::model::asked::LONGEST_RETRY_AFTER;
pub(crate) use crate::model::asked::{Asked, Patience};
use crate::model::attempt::{Attempt, Failure, FailureKind};
use crate::model::http::{Http, HttpRequest};
use crate::model::program::Program;
use crate::model::rate::SharedRate;
use crate::model::reasons::their_words;
use crate::model::refused_attachments::is_of_attachments;
pub(crate) use crate::model::refused_attachments::wants_answer_between;
use crate::model::replay::Playback;
use crate::model::response::{Answer, NoAnswer};
use crate::model::too_long::TooLong;
use crate::model::usage::{AnswerUsage, ReportedUsage, Uncounted, read_usage};
use crate::model::wire::{Heard, Listener, Neutral, Sent, Wire};
use crate::record::invocations::GivenFile;
use crate::record::request_body::Body;
use crate::record::spending::Denial;
use crate::text::amounts::counted;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::signals::Signals;
use follow::Followed;
use record::InvocationRecord;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A way to reach a model.
pub(crate) enum Model<'a> {
    /// Over HTTP.
    Http(Http),
    /// By a program.
    Command(Program<'a>),
    /// Not at all: its answers have been recorded.
    Recorded(Rc<RefCell<Playback>>),
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
pub(crate) type BookExpense<'p> = dyn FnMut(u64, Expense) -> std::result::Result<(), Denial> + 'p;

/// An invocation's directory and what is known of it beforehand.
pub(crate) struct Invocation<'a> {
    /// The invocation's directory, with `request.json` in it.
    pub dir: &'a Path,
    /// The request. Its text is that of `request.json`.
    pub request: &'a Body<'a>,
    /// The request with a mark in place of the bytes of each attachment.
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
    book: &mut BookExpense<'_>,
    mut notify: impl FnMut(&str),
    listener: &mut Listener<'_>,
) -> Result<Asked> {
    let started = Instant::now();
    let mut record = if invocation.is_open {
        InvocationRecord::read(invocation.dir)
    } else {
        InvocationRecord::default()
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
            let pass = |rate: &SharedRate| rate.pass(signals, patience, &mut notify);
            let probe = match model.rate().map(pass) {
                Some(Err(asked)) => break asked,
                probe => probe,
            };
            if let Err(denial) = book(number, Expense::Reserve) {
                break Asked::Denied(denial);
            }
            let attempt = model.attempt(invocation, signals, patience.left(), listener)?;
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
        ignore(book(number, expense(&attempt, reported.as_ref())));
        let (mut step, outcome) = judge_attempt(attempt, reported, invocation, &mut record);
        match &mut step {
            // A start that finds no such answer in the journal gets it once more from the service.
            NextStep::End(Asked::Answered(answer)) => model.finish(answer),
            _ => record.open = None,
        }
        record.add_attempt(clock, began.elapsed(), outcome);
        let (why, after) = match step {
            NextStep::End(asked) => break asked,
            NextStep::Again(why, after) => (why, after),
        };
        if let Err(asked) = wait_to_retry(&why, after, retries, patience, signals, &mut notify) {
            break asked;
        }
        retries += 1;
    };
    record.write(invocation, &asked, started.elapsed())?;
    Ok(asked)
}

/// Waits before another attempt, after one that failed for a reason and perhaps says how long to wait.
fn wait_to_retry(
    why: &str,
    after: Option<Duration>,
    retries: u32,
    patience: Patience,
    signals: &Signals,
    notify: &mut dyn FnMut(&str),
) -> std::result::Result<(), Asked> {
    if patience.ends_within(Duration::ZERO) {
        return Err(Asked::OutOfTime);
    }
    if let Some(stop) = signals.stop_within(after.unwrap_or_default()) {
        return Err(Asked::Stopped(stop));
    }
    if let Some(after) = after.filter(|after| *after > LONGEST_RETRY_AFTER) {
        return Err(Asked::to_wait(why, Timestamp::now().plus(after)));
    }
    let tries = retries + 1;
    if retries == patience.max_retries {
        let why = format!("{why} (after {})", counted(tries as usize, "attempt"));
        let until = after.map(|after| Timestamp::now().plus(after));
        return Err(Asked::Unavailable(why, until));
    }
    let wait = after.unwrap_or_else(|| backoff_time(retries));
    if patience.ends_within(wait) {
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

enum NextStep {
    End(Asked),
    Again(String, Option<Duration>),
}

/// Reads a response's statement of its own tokens; `None` if there is no response.
fn reported_usage(wire: &Wire, attempt: &Attempt) -> Option<ReportedUsage> {
    match attempt {
        Attempt::Body { body, .. } => Some(read_usage(wire.api(), body)),
        _ => None,
    }
}

/// The cost of an attempt. An error of the server costs nothing.
fn expense(attempt: &Attempt, reported: Option<&ReportedUsage>) -> Expense {
    match reported.map(|reported| reported.counted) {
        Some(Ok(counted)) => Expense::Counted(counted),
        Some(Err(why)) => Expense::Unknown(Some(why)),
        None if attempt.may_count() => Expense::Unknown(None),
        None => Expense::Nothing,
    }
}

/// The step that follows an attempt, and the attempt's outcome for the record.
fn judge_attempt(
    attempt: Attempt,
    reported: Option<ReportedUsage>,
    invocation: &Invocation<'_>,
    record: &mut InvocationRecord,
) -> (NextStep, String) {
    let failure = match attempt {
        Attempt::Body { body, http_status } => {
            record.timed_out = false;
            record.http_status = http_status;
            return judge_body(&body, reported, invocation, record);
        }
        Attempt::Failed(failure) => failure,
        Attempt::Lost => {
            let why = "the service does not know the answer that it had begun".to_owned();
            return (record.again_or_refused(&why, true), why);
        }
        Attempt::Stopped { stop, .. } => {
            return (NextStep::End(Asked::Stopped(stop)), stop.name().to_owned());
        }
    };
    record.http_status = failure.http_status;
    if invocation.request.has_blobs() && is_of_attachments(&failure) {
        let asked = Asked::AttachmentsRefused(failure.why.clone());
        return (NextStep::End(asked), failure.why);
    }
    if failure.kind.is_passing() {
        record.timed_out = failure.timed_out;
    }
    let why = failure.why;
    let until = failure.after.map(|after| Timestamp::now().plus(after));
    let asked = match (failure.kind, failure.too_long) {
        (FailureKind::Passing, _) => return (NextStep::Again(why.clone(), failure.after), why),
        (FailureKind::NotNow, _) => {
            Asked::Unavailable(format!("{why}; the server asks for no retry now"), until)
        }
        (FailureKind::Quota, _) => Asked::Quota(why.clone(), until),
        (FailureKind::Refusal, Some(too_long)) => Asked::TooLong(why.clone(), too_long),
        (FailureKind::Refusal, None) => Asked::Refused(why.clone(), failure.remedy),
    };
    (NextStep::End(asked), why)
}

/// The step that follows a response that may be an answer, and its outcome for the record.
fn judge_body(
    body: &[u8],
    reported: Option<ReportedUsage>,
    invocation: &Invocation<'_>,
    record: &mut InvocationRecord,
) -> (NextStep, String) {
    let (mut answer, outcome) = match invocation.wire.parse(body) {
        Ok(answer) => (answer, "answered"),
        Err(none) if none.is_silent && invocation.may_be_silent => {
            (Answer::default(), "answered with nothing")
        }
        Err(NoAnswer {
            why, is_lasting, ..
        }) => {
            if let Some(too_long) = TooLong::in_place_of_answer(body) {
                let asked = Asked::TooLong(their_words(body), too_long);
                return (NextStep::End(asked), why);
            }
            let kept = invocation.dir.join("response.json");
            let why = format!("{why}; the response is kept in {}", kept.display());
            return (record.again_or_refused(&why, is_lasting), why);
        }
    };
    answer.take_usage(reported);
    record.note_answer(&answer);
    let asked = Asked::Answered(Box::new(answer));
    (NextStep::End(asked), outcome.to_owned())
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
        let attempt = match self {
            Self::Http(http) => {
                let ask = HttpRequest::Ask {
                    request: invocation.request,
                    streams: invocation.wire.streams(),
                };
                let received = http.attempt(ask, left, listener);
                if let Some(stream) = received.stream {
                    files::write(&invocation.dir.join("response.sse"), &stream)?;
                }
                received.attempt
            }
            Self::Command(program) => {
                return program.attempt(invocation.dir, invocation.request, signals, left);
            }
            Self::Recorded(playback) => match playback.borrow_mut().answer(invocation.marked)? {
                Ok(body) => Attempt::Body {
                    body,
                    http_status: None,
                },
                Err(why) => Attempt::Failed(Failure::refusal(why)),
            },
        };
        if let Some(body) = attempt.body() {
            files::write(&invocation.dir.join("response.json"), body)?;
        }
        Ok(attempt)
    }

    /// A request as the service reads it.
    pub(crate) fn render(&self, wire: &mut Wire, request: &Neutral) -> Result<Sent> {
        let sent = match self {
            Self::Recorded(playback) => playback.borrow_mut().render(wire, request)?,
            Self::Http(_) | Self::Command(_) => wire.render(request),
        };
        sent.map_err(|why| Error::failure(format!("the request cannot be sent: {why}")))
    }

    /// Takes the key out of a text that came in pieces; whole, it is in no response. Calls of a recorded answer get the
    /// ids that they had.
    pub(crate) fn finish(&self, answer: &mut Answer) {
        let secrets = match self {
            Self::Http(http) => http.secrets(),
            Self::Command(program) => &program.secrets,
            Self::Recorded(playback) => return playback.borrow().name_calls(answer),
        };
        for secret in secrets {
            secret.redact(&mut answer.content_json);
            if secret.redact_text(&mut answer.text) {
                // They hold the pieces.
                answer.items = None;
            }
        }
    }

    fn http(&self) -> Option<&Http> {
        match self {
            Self::Http(http) => Some(http),
            Self::Command(_) | Self::Recorded(_) => None,
        }
    }

    fn rate(&self) -> Option<&SharedRate> {
        self.http()?.rate()
    }

    /// True if the server is on this machine or has a private address.
    pub(crate) fn is_local(&self) -> bool {
        self.http().is_some_and(Http::is_local)
    }

    /// Asks the server how many tokens a model takes.
    pub(crate) fn look_up_window(&self, model: &str) -> Option<u64> {
        self.http()?.look_up_window(model)
    }
}
