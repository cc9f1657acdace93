//! Numbers of things and spans of time as people read them.

use std::time::Duration;

/// A number with a comma between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(String::from_utf8_lossy)
        .collect();
    groups.join(",")
}

/// A number of things: `1 tool`, `2 tools`, `0 processes`.
pub(crate) fn counted(number: usize, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ if one.ends_with('s') => format!("{number} {one}es"),
        _ => format!("{number} {one}s"),
    }
}

/// A span of time: `12 ms`, `3.4 s`, `2 min 5 s`.
pub(crate) fn format_duration(time: Duration) -> String {
    let ms = time.as_millis();
    match ms {
        0..=999 => format!("{ms} ms"),
        1000..=99_999 => format!("{:.1} s", time.as_secs_f64()),
        _ => format!("{} min {} s", ms / 60_000, ms / 1000 % 60),
    }
}

/// The same, from milliseconds.
pub(crate) fn format_millis(ms: u64) -> String {
    format_duration(Duration::from_millis(ms))
}

/// A span of time that is shown while it passes, in whole seconds: `0 s`, `99 s`, `2 min 5 s`.
pub(crate) fn whole_seconds(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds => format_duration(Duration::from_secs(seconds)),
    }
}

/// A span of time in its largest unit: `59 s`, `1 min`, `3 d`.
pub(crate) fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} min", seconds / 60),
        3600..=86_399 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A time since a beginning: `0:03.4`, `12:03.4`, `1:12:03.4`.
pub(crate) fn clock(time: Duration) -> String {
    let tenths = time.as_millis() / 100;
    let (hours, minutes) = (tenths / 36_000, tenths / 600 % 60);
    let (seconds, tenth) = (tenths / 10 % 60, tenths % 10);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}.{tenth}")
    } else {
        format!("{minutes}:{seconds:02}.{tenth}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time_have_fitting_units() {
        assert_eq!(
            [7, 3400, 125_000].map(format_millis),
            ["7 ms", "3.4 s", "2 min 5 s"]
        );
        let seconds = |count: u64| whole_seconds(Duration::from_millis(count * 1000 + 900));
        assert_eq!([0, 99, 125].map(seconds), ["0 s", "99 s", "2 min 5 s"]);
    }

    #[test]
    fn an_age_has_its_largest_unit() {
        assert_eq!(
            [0, 59, 60, 7199, 86_400 * 3].map(|seconds| age(Duration::from_secs(seconds))),
            ["0 s", "59 s", "1 min", "1 h", "3 d"]
        );
    }

    #[test]
    fn a_clock_counts_from_the_beginning() {
        assert_eq!(
            [0, 3_450, 723_400, 4_323_400].map(|ms| clock(Duration::from_millis(ms))),
            ["0:00.0", "0:03.4", "12:03.4", "1:12:03.4"]
        );
    }
}
