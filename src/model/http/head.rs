//! The head of a response: the parts of it that decide what follows.

use crate::text::timestamp::Timestamp;
use std::time::Duration;

/// The parts of a response's head that decide what follows.
#[derive(Clone)]
pub(super) struct ResponseHead {
    pub status: u16,
    /// The wait that the server asks for.
    pub after: Option<Duration>,
    /// The server's own word on whether another attempt is of use.
    pub should_retry: Option<bool>,
    pub location: Option<String>,
    /// The body comes as one, not as a stream: JSON, or the page of something that is no API.
    pub is_whole: bool,
}

impl ResponseHead {
    pub(super) fn read<B>(response: &ureq::http::Response<B>) -> Self {
        let header = |name: &str| {
            Some(
                response
                    .headers()
                    .get(name)?
                    .to_str()
                    .ok()?
                    .trim()
                    .to_owned(),
            )
        };
        let in_ms = header("retry-after-ms").and_then(|text| text.parse::<f64>().ok());
        Self {
            status: response.status().as_u16(),
            after: in_ms
                .and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok())
                .or_else(|| retry_after(&header("retry-after")?, Timestamp::now())),
            should_retry: header("x-should-retry").and_then(|word| word.parse().ok()),
            location: header("location"),
            is_whole: header("content-type").is_some_and(|kind| {
                let lower = kind.to_ascii_lowercase();
                let kind = lower.split(';').next().unwrap_or("").trim();
                kind.ends_with("json") || kind == "text/html"
            }),
        }
    }

    pub(super) fn is_success(&self) -> bool {
        matches!(self.status, 200..=299)
    }
}

/// `Retry-After`: seconds, or a date as RFC 9110 section 5.6.7 prefers it.
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let value = text.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let mut parts = value.split_once(", ")?.1.strip_suffix(" GMT")?.split(' ');
    let (day, month, year, time) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    Some(Timestamp::parse(&format!("{year}-{month:02}-{day}T{time}Z"))?.since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = Timestamp::parse("2015-10-21T07:27:00Z").unwrap();
        assert_eq!(retry_after("7", now), Some(Duration::from_secs(7)));
        let date = retry_after("Wed, 21 Oct 2015 07:28:00 GMT", now);
        assert_eq!(date, Some(Duration::from_secs(60)));
        assert_eq!(
            retry_after("Wed, 21 Oct 2015 07:26:00 GMT", now),
            Some(Duration::ZERO)
        );
        assert_eq!(retry_after("soon", now), None);
        assert_eq!(retry_after("-1", now), None);
    }
}
