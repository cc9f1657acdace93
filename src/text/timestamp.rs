//! Wall-clock time in UTC and the three ways in which delta writes it.
//!
//! Unaware of time zones other than UTC. The calendar arithmetic is Howard Hinnant's
//! `civil_from_days` (<https://howardhinnant.github.io/date_algorithms.html>).

use std::fmt::{self, Display};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads a span of time such as `90m`: seconds, minutes, hours or days.
pub(crate) fn parse_span(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let count = Some(digits).filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()))?;
    let time = count.parse::<u64>().ok()?.checked_mul(seconds)?;
    (time < 1 << 40).then(|| Duration::from_secs(time))
}

/// A time in RFC 3339 for people, to the second: `2025-10-13 14:35:22`.
pub(crate) fn date_and_time(text: &str) -> String {
    text.get(..19).unwrap_or(text).replace('T', " ")
}

/// Milliseconds since the Unix epoch. Displayed as RFC 3339: `2025-10-13T14:35:22.123Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(u64);

struct Fields {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    millis: u64,
}

impl Timestamp {
    /// The time now; the epoch, if the clock is before it.
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self::from_millis(since.unwrap_or_default().as_millis() as u64)
    }

    /// A time given in milliseconds since the epoch.
    pub(crate) fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    pub(crate) fn millis(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The time some time later.
    pub(crate) fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time.as_millis() as u64))
    }

    /// The time some time earlier; the epoch, if that is before it.
    pub(crate) fn minus(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time.as_millis() as u64))
    }

    /// `YYYYMMDDTHHMMSS.mmmZ`, the basic format of ISO 8601: for names of directories.
    pub(crate) fn basic(self) -> String {
        self.in_form("YYYYMMDDThhmmss.fffZ")
    }

    /// Reads what [`Self::basic`] writes.
    pub(crate) fn parse_basic(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let part = |range| number(bytes.get(range)?);
        let date = [part(0..4)?, part(4..6)?, part(6..8)?];
        let time = [part(9..11)?, part(11..13)?, part(13..15)?];
        let fraction = match text.get(15..)?.strip_suffix('Z')? {
            "" => "",
            fraction => fraction.strip_prefix('.')?,
        };
        (bytes[8] == b'T').then(|| Self::of(date, time, fraction))?
    }

    /// `YYYYMMDD_HHMMSS`, the beginning of a run's id.
    pub(crate) fn id_prefix(self) -> String {
        self.in_form("YYYYMMDD_hhmmss")
    }

    /// Reads RFC 3339 in UTC, with or without a fraction.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix(['Z', 'z'])?;
        let at = memchr::memchr2(b'T', b' ', text.as_bytes())?;
        let (date, time) = (&text[..at], &text[at + 1..]);
        let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
        Self::of(
            three_numbers(date, b'-')?,
            three_numbers(time, b':')?,
            fraction,
        )
    }

    /// The time of a date, a time of day and a fraction of a second.
    fn of(
        [year, month, day]: [u64; 3],
        [hour, minute, second]: [u64; 3],
        fraction: &str,
    ) -> Option<Self> {
        if !(1970..=9999).contains(&year)
            || !(1..=12).contains(&month)
            || !(1..=days_in(year, month)).contains(&day)
            || hour > 23
            || minute > 59
            || second > 60
        {
            return None;
        }
        let millis = match fraction.get(..fraction.len().min(3)) {
            None | Some("") => 0,
            Some(digits) => digits.parse::<u64>().ok()? * 10u64.pow(3 - digits.len() as u32),
        };
        let days = days_from_civil(year, month, day);
        Some(Self(
            (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + millis,
        ))
    }

    /// Reads RFC 3339 with any offset from UTC.
    pub(crate) fn parse_with_offset(text: &str) -> Option<Self> {
        if let Some(time) = Self::parse(text) {
            return Some(time);
        }
        let at = text.len().checked_sub(6)?;
        let (local, offset) = (text.get(..at)?, text.get(at..)?);
        let (hours, minutes) = offset.get(1..)?.split_once(':')?;
        let (hours, minutes) = (hours.parse::<u64>().ok()?, minutes.parse::<u64>().ok()?);
        let local = Self::parse(&format!("{local}Z"))?;
        let offset = (hours < 24 && minutes < 60).then_some((hours * 60 + minutes) * 60_000)?;
        match text.get(at..=at)? {
            "+" => local.0.checked_sub(offset).map(Self),
            "-" => local.0.checked_add(offset).map(Self),
            _ => None,
        }
    }

    /// A form with letters of [`Fields`] in place of their digits. Formatting each number by itself costs
    /// four times as much, and every event has a time.
    fn in_form(self, form: &str) -> String {
        let mut left = self.fields();
        let mut text = form.as_bytes().to_vec();
        for byte in text.iter_mut().rev() {
            let field = match byte {
                b'Y' => &mut left.year,
                b'M' => &mut left.month,
                b'D' => &mut left.day,
                b'h' => &mut left.hour,
                b'm' => &mut left.minute,
                b's' => &mut left.second,
                b'f' => &mut left.millis,
                _ => continue,
            };
            *byte = b'0' + (*field % 10) as u8;
            *field /= 10;
        }
        String::from_utf8(text).unwrap_or_default()
    }

    fn fields(self) -> Fields {
        let (seconds, millis) = (self.0 / 1000, self.0 % 1000);
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        let shifted = days + 719_468;
        let era = shifted / 146_097;
        let day_of_era = shifted % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_index = (5 * day_of_year + 2) / 153;
        let month = if month_index < 10 {
            month_index + 3
        } else {
            month_index - 9
        };
        Fields {
            // What lies beyond has no room in a name.
            year: (year_of_era + era * 400 + u64::from(month <= 2)).min(9999),
            month,
            day: day_of_year - (153 * month_index + 2) / 5 + 1,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            millis,
        }
    }
}

/// Three numbers with this byte between them.
fn three_numbers(text: &str, between: u8) -> Option<[u64; 3]> {
    let mut parts = text.as_bytes().split(|byte| *byte == between);
    let mut numbers = [0; 3];
    for place in &mut numbers {
        *place = number(parts.next()?)?;
    }
    parts.next().is_none().then_some(numbers)
}

/// A number of one to nine digits.
fn number(digits: &[u8]) -> Option<u64> {
    let digits = Some(digits).filter(|digits| (1..10).contains(&digits.len()))?;
    digits.iter().try_fold(0, |sum, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        Some(sum * 10 + u64::from(digit))
    })
}

fn days_in(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let month_index = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_index + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

impl Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.in_form("YYYY-MM-DDThh:mm:ss.fffZ"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times_are_written_as_the_calendar_has_them() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_868_799_001, "2000-02-29T23:59:59.001Z"),
            (1_760_366_122_123, "2025-10-13T14:35:22.123Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp(millis).to_string(), text);
            assert_eq!(Timestamp::parse(text), Some(Timestamp(millis)));
        }
    }

    #[test]
    fn names_carry_the_same_time() {
        let at = Timestamp(1_760_366_122_023);
        assert_eq!(at.basic(), "20251013T143522.023Z");
        assert_eq!(at.id_prefix(), "20251013_143522");
        assert_eq!(Timestamp::parse_basic(&at.basic()), Some(at));
        for text in [
            "",
            "2025",
            "20251013_143522",
            "20251013T1435é2.023Z",
            "é0251013T143522.023Z",
        ] {
            assert_eq!(Timestamp::parse_basic(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2025-10-13",
            "2025-13-01T00:00:00Z",
            "x-1-1T0:0:0Z",
            "2025-10-13T14:35:22",
            "2025-10-13T14:35:99999999999999999999999Z",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }
}
