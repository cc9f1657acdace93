//! Calls that have begun something which ends without them: when they are looked at, and until when.

use super::{Call, Run};
use crate::record::event::{EventKind, Line};
use crate::text::shorten::in_short;
use crate::text::timestamp::Timestamp;
use std::time::Duration;

/// The exit code of a look at a call that has not ended.
pub(crate) const NOT_YET: i64 = 75;

/// True if the clock is so far behind a time that was recorded that it has been set back since.
pub(crate) fn is_set_back(now: Timestamp, recorded_at: Timestamp) -> bool {
    now.plus(Duration::from_secs(60)) < recorded_at
}

/// The state of a call that ends later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferred {
    /// The name of what it has begun, for its check.
    pub(crate) handle: String,
    /// When it is looked at next.
    pub(crate) due_at: Timestamp,
    /// When it is looked at for the last time.
    pub(crate) expires_at: Timestamp,
    /// When it began to be waited for.
    pub(crate) since: Timestamp,
    /// The last wait, and the one that it is a double of.
    pub(crate) wait: Duration,
    pub(crate) first_wait: Duration,
    /// A look has failed to find anything out.
    pub(crate) has_failed_look: bool,
    /// When the last of its events was recorded.
    recorded_at: Timestamp,
}

impl Deferred {
    /// The longest wait, as a multiple of the first.
    const LONGEST: u32 = 10;

    /// The state that `ACTION_DEFERRED` says.
    pub(crate) fn of(line: &Line<'_>) -> Self {
        let handle = line.handle.as_deref().unwrap_or_default();
        let recorded_at = line.time().unwrap_or_else(Timestamp::now);
        Self::new(handle.to_owned(), times_of(line), recorded_at)
    }

    /// The state after a deferral. `times`: when it is looked at next, and for the last time.
    pub(crate) fn new(
        handle: String,
        times: (Timestamp, Timestamp),
        recorded_at: Timestamp,
    ) -> Self {
        let mut deferred = Self {
            handle,
            due_at: times.0,
            expires_at: times.1,
            since: recorded_at,
            wait: Duration::ZERO,
            first_wait: Duration::ZERO,
            has_failed_look: false,
            recorded_at,
        };
        deferred.set_times(times, recorded_at);
        deferred.first_wait = deferred.wait;
        deferred
    }

    /// Takes over what `DEFERRED_LOOK` says.
    pub(crate) fn add_look(&mut self, line: &Line<'_>) {
        let recorded_at = line.time().unwrap_or(self.recorded_at);
        self.note_look(line.exit_code, times_of(line), recorded_at);
    }

    /// Takes over a look that has not found an end.
    pub(crate) fn note_look(
        &mut self,
        exit_code: Option<i64>,
        times: (Timestamp, Timestamp),
        recorded_at: Timestamp,
    ) {
        let doubled = self.doubled_wait();
        self.set_times(times, recorded_at);
        if self.wait != doubled {
            // The look has chosen it.
            self.first_wait = self.wait;
        }
        self.has_failed_look |= exit_code != Some(NOT_YET);
    }

    fn set_times(&mut self, times: (Timestamp, Timestamp), recorded_at: Timestamp) {
        (self.due_at, self.expires_at) = times;
        self.recorded_at = recorded_at;
        // The event is written a moment after the time is chosen, which is in whole seconds.
        let millis = self.due_at.since(self.recorded_at).as_millis() as u64;
        self.wait = Duration::from_secs(millis.div_ceil(1000));
    }

    /// The wait after a look that says nothing about it. It is never zero, whatever the record or the clock says: the
    /// engine would look again and again without a pause.
    pub(crate) fn doubled_wait(&self) -> Duration {
        let longest = self.first_wait.saturating_mul(Self::LONGEST);
        let doubled = self.wait.saturating_mul(2).min(longest);
        doubled.max(Duration::from_secs(1))
    }

    /// True if it is time for a look. A clock that has been set back does not put it off.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due_at || is_set_back(now, self.recorded_at)
    }
}

/// A time that is missing, or is none, has come.
fn times_of(line: &Line<'_>) -> (Timestamp, Timestamp) {
    let time = |text: Option<&str>| {
        let time = text.and_then(Timestamp::parse);
        time.unwrap_or_else(|| Timestamp::from_millis(0))
    };
    (
        time(line.due_at.as_deref()),
        time(line.expires_at.as_deref()),
    )
}

/// Calls that a run waits for, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// When the first of them is looked at.
    pub due_at: Timestamp,
    /// For people.
    pub text: String,
}

impl Wait {
    /// The wait for calls; none if there are none.
    pub(crate) fn of<'c>(calls: impl IntoIterator<Item = (&'c str, &'c Deferred)>) -> Option<Self> {
        let calls: Vec<_> = calls.into_iter().collect();
        let due_at = calls.iter().map(|(_, deferred)| deferred.due_at).min()?;
        let of_one = |(name, deferred): &(&str, &Deferred)| {
            format!("{name} ({})", in_short(&deferred.handle, 60))
        };
        let names: Vec<String> = calls.iter().map(of_one).collect();
        let text = format!("waits for {}; next look at {due_at}", names.join(", "));
        Some(Self { due_at, text })
    }
}

impl<'j> Run<'j> {
    /// Only of a call that was started.
    pub(super) fn deferral(&mut self, line: &Line<'j>) {
        let is_look = line.kind == EventKind::DeferredLook;
        let id = line.action_id.as_deref();
        let is_open = |call: &Call<'j>| call.request.is_some() && call.result.is_none();
        match self.call(id, is_open) {
            Some(call) if is_look => {
                if let Some(deferred) = &mut call.deferred {
                    deferred.add_look(line);
                }
            }
            Some(call) => call.deferred = Some(Deferred::of(line)),
            None => {}
        }
    }
}

impl Run<'_> {
    /// The calls of the last answer that end later.
    pub(crate) fn deferred_calls(&self) -> impl Iterator<Item = (&Call<'_>, &Deferred)> {
        let calls = self.last_thought().map_or(&[][..], |it| &it.calls).iter();
        let open = calls.filter(|call| call.result.is_none());
        open.filter_map(|call| Some((call, call.deferred.as_ref()?)))
    }

    /// The wait of a run that can only look at calls, and for which it is too early to do that.
    pub(crate) fn wait(&self, now: Timestamp) -> Option<Wait> {
        self.end.as_ref()?;
        let calls = self.last_thought()?.calls.iter();
        let mut open = calls.filter(|call| call.result.is_none());
        let is_early = |call: &Call<'_>| {
            let deferred = call.deferred.as_ref();
            deferred.is_some_and(|it| !it.is_due(now))
        };
        let is_early = open.all(is_early);
        let deferred = self.deferred_calls();
        Wait::of(deferred.map(|(call, it)| (&*call.name, it))).filter(|_| is_early)
    }
}
