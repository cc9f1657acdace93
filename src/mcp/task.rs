//! Tasks: calls of tools whose servers answer with the name of something that goes on without the call.
//!
//! Pure. Source: the extension `io.modelcontextprotocol/tasks` of the revision 2026-07-28.

use super::protocol::{TASKS, member};
use crate::config::tool::definition::HANDLE_BYTES;
use crate::text::json::Members;
use crate::text::timestamp::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

/// The seconds to the next look where the server names no interval.
const INTERVAL: u64 = 5;

/// The seconds for which a task without an end is kept: a year.
const YEAR: u64 = 31_536_000;

/// The state of a task.
#[derive(Debug)]
pub(crate) enum TaskState {
    /// A task that goes on; the times are those of [`times`].
    Working,
    /// The result of the call; none if it must be asked for.
    Completed(Option<Members>),
    /// The reason why there is no result.
    Failed(String),
    /// The server wants an answer of a person: its requests.
    InputRequired,
}

/// True for an answer to a call that is a task.
pub(crate) fn is_task(result: &Members) -> bool {
    member(result, "resultType") == "task"
}

/// The name of a task.
///
/// # Errors
/// It cannot be a handle.
pub(crate) fn task_name(task: &Members) -> Result<String, String> {
    let is_good = |name: &&str| {
        (1..=HANDLE_BYTES).contains(&name.len())
            && !name.chars().any(char::is_control)
            && name.trim() == *name
    };
    member(task, "taskId")
        .as_str()
        .filter(is_good)
        .map(str::to_owned)
        .ok_or_else(|| "the server's task has no name that can be printed on a line".to_owned())
}

/// The state that an answer says.
pub(crate) fn state(task: &Members) -> Result<TaskState, String> {
    let status_message = member(task, "statusMessage");
    let message = status_message.as_str();
    match member(task, "status").as_str().unwrap_or_default() {
        "working" => Ok(TaskState::Working),
        "completed" => Ok(TaskState::Completed(
            task.get("result")
                .and_then(|json| serde_json::from_str(json).ok()),
        )),
        "failed" => {
            let error = member(task, "error");
            let error = error["message"].as_str().or(message);
            Ok(TaskState::Failed(
                error.unwrap_or("the task has failed").to_owned(),
            ))
        }
        "cancelled" => {
            let why = message.map_or_else(String::new, |message| format!(": {message}"));
            Ok(TaskState::Failed(format!("the task was cancelled{why}")))
        }
        "input_required" => Ok(TaskState::InputRequired),
        other => Err(format!(
            "the server's task has the unknown status {other:?}"
        )),
    }
}

/// The age of a task by the clock of its server, which is taken to be right; zero if that says nothing.
pub(crate) fn age(task: &Members, now: Timestamp) -> Duration {
    let created = member(task, "createdAt")
        .as_str()
        .and_then(Timestamp::parse_with_offset);
    created.map_or(Duration::ZERO, |created| now.since(created))
}

/// The times of a task of an age for `DELTA_LATER`.
pub(crate) fn times(task: &Members, age: Duration) -> Value {
    let seconds = |ms: u64| ms.div_ceil(1000).clamp(1, YEAR);
    let number = |key: &str| member(task, key).as_u64();
    let every = number("pollIntervalMs").map_or(INTERVAL, seconds);
    // It is kept for so long from its creation, however often it is looked at.
    let left = |ms: u64| seconds(ms.saturating_sub(age.as_millis() as u64));
    let expires = number("ttlMs").map_or(YEAR, left);
    json!({"every_s": every, "expires_s": expires})
}

/// True if what a server says of itself includes tasks.
pub(crate) fn offers_tasks(discovered: &Members) -> bool {
    member(discovered, "capabilities")["extensions"][TASKS].is_object()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(value: Value) -> Members {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    #[test]
    fn a_task_says_its_state_and_its_times() {
        let state = |value| state(&task(value));
        assert!(matches!(
            state(json!({"status": "working"})),
            Ok(TaskState::Working)
        ));
        let completed = state(json!({"status": "completed", "result": {"content": [1.0]}}));
        let Ok(TaskState::Completed(Some(result))) = completed else {
            panic!("{completed:?}");
        };
        assert_eq!(result.get("content"), Some("[1.0]"));
        for (value, why) in [
            (
                json!({"status": "failed", "error": {"message": "no room"}}),
                "no room",
            ),
            (json!({"status": "failed"}), "the task has failed"),
            (
                json!({"status": "cancelled", "statusMessage": "by me"}),
                "the task was cancelled: by me",
            ),
        ] {
            assert!(matches!(state(value), Ok(TaskState::Failed(said)) if said == why));
        }
        assert!(state(json!({"status": "odd"})).is_err() && state(json!({})).is_err());
        for (value, every, expires) in [
            (json!({"ttlMs": null}), 5, YEAR),
            (json!({"ttlMs": 1500, "pollIntervalMs": 1}), 1, 2),
            (json!({"ttlMs": 0, "pollIntervalMs": 0}), 1, 1),
            (json!({"ttlMs": u64::MAX, "pollIntervalMs": -1}), 5, YEAR),
        ] {
            assert_eq!(
                times(&task(value), Duration::ZERO),
                json!({"every_s": every, "expires_s": expires})
            );
        }
        let now = Timestamp::parse("2026-01-02T03:04:05.000Z").unwrap();
        for (created, left) in [
            ("2026-01-02T03:04:05Z", 60),
            ("2026-01-02T05:03:25+02:00", 20),
            ("2026-01-02T03:00:00Z", 1),
            ("2026-01-02T03:05:00Z", 60),
            ("x", 60),
        ] {
            let task = task(json!({"ttlMs": 60_000, "createdAt": created}));
            assert_eq!(times(&task, age(&task, now))["expires_s"], left);
        }
    }

    #[test]
    fn a_name_is_one_line_that_can_be_a_handle() {
        for good in ["t", "a b", &"x".repeat(1024)] {
            let name = task_name(&task(json!({"taskId": good})));
            assert_eq!(name.as_deref(), Ok(good));
        }
        for bad in ["", " t", "a\nb", "a\0b", &"x".repeat(1025)] {
            assert!(task_name(&task(json!({"taskId": bad}))).is_err(), "{bad:?}");
        }
        assert!(task_name(&task(json!({"taskId": 7}))).is_err());
    }
}
