//! Calls that have begun something which ends without them: when they are looked at, and until when.

use super::{Call, Run};
use crate::record::event::recorded::{ActionDeferred, DeferredLook};
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
    /// Time when it is looked at next.
    pub(crate) due_at: Timestamp,
    /// Time when it is looked at for the last time.
    pub(crate) expires_at: Timestamp,
    /// Time when it began to be waited for.
    pub(crate) since: Timestamp,
    /// The last wait, and the one that it is a double of.
    pub(crate) wait: Duration,
    pub(crate) first_wait: Duration,
    /// A look has failed to find anything out.
    pub(crate) has_failed_look: bool,
    /// Time when the last of its events was recorded.
    recorded_at: Timestamp,
}

impl Deferred {
    /// The longest wait, as a multiple of the first.
    const LONGEST: u32 = 10;

    /// The state that `ACTION_DEFERRED` says.
    pub(crate) fn of(event: &ActionDeferred<'_>, at: Option<Timestamp>) -> Self {
        let times = (time_of(&event.due_at), time_of(&event.expires_at));
        let recorded_at = at.unwrap_or_else(Timestamp::now);
        Self::new(event.handle.to_string(), times, recorded_at)
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
    pub(crate) fn add_look(&mut self, event: &DeferredLook<'_>, at: Option<Timestamp>) {
        let times = (time_of(&event.due_at), time_of(&event.expires_at));
        self.note_look(event.exit_code, times, at.unwrap_or(self.recorded_at));
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
        self.wait
            .saturating_mul(2)
            .min(longest)
            .max(Duration::from_secs(1))
    }

    /// True if it is time for a look. A clock that has been set back does not put it off.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due_at || is_set_back(now, self.recorded_at)
    }
}

/// A time that is missing or damaged has come.
fn time_of(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap_or_else(|| Timestamp::from_millis(0))
}

/// Calls that a run waits for, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Time when the first of them is looked at.
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

impl Run<'_> {
    /// The calls of the last answer that end later.
    pub(crate) fn deferred_calls(&self) -> impl Iterator<Item = (&Call<'_>, &Deferred)> {
        self.last_thought()
            .map_or(&[][..], |it| &it.calls)
            .iter()
            .filter(|call| call.result.is_none())
            .filter_map(|call| Some((call, call.deferred.as_ref()?)))
    }

    /// The wait for the calls that end later, whether there is anything else to do or not.
    pub(crate) fn open_wait(&self) -> Option<Wait> {
        Wait::of(self.deferred_calls().map(|(call, it)| (&*call.name, it)))
    }

    /// The wait of a run that can only look at calls, and for which it is too early to do that.
    pub(crate) fn wait(&self, now: Timestamp) -> Option<Wait> {
        self.end.as_ref()?;
        let mut open = self
            .last_thought()?
            .calls
            .iter()
            .filter(|call| call.result.is_none());
        let is_early = |call: &Call<'_>| call.deferred.as_ref().is_some_and(|it| !it.is_due(now));
        let is_early = open.all(is_early);
        self.open_wait().filter(|_| is_early)
    }
}
