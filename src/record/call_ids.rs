//! The ids of the calls that a run has started: by them its processes are found.
//!
//! Pure: from the journal's bytes.

use super::event::EventKind;
use super::reader::{read_event, split_lines};
use std::borrow::Cow;

/// `DELTA_CALL_ID` of everything that a run has started, or its common beginning. What the journal took over from
/// the run that this one was forked from is left out; `only_newest` leaves out what other starts of the engine
/// began.
pub(crate) fn started_calls(journal: &[u8], run_id: &str, only_newest: bool) -> Vec<String> {
    let mut ids = Vec::new();
    let mut is_own = true;
    for (_, line) in split_lines(journal) {
        // Of a damaged line nothing is known.
        let Ok(line) = read_event(line, 0) else {
            continue;
        };
        let is_start = line.kind == EventKind::EngineStart;
        if is_start {
            let was_own = std::mem::replace(&mut is_own, line.run_id.as_deref() == Some(run_id));
            if !was_own || !is_own || only_newest {
                ids.clear();
            }
        }
        let is_call = is_start || line.kind == EventKind::ActionRequest;
        let id = line
            .call_id
            .filter(|id| is_call && is_own && !id.is_empty());
        ids.extend(id.map(Cow::into_owned));
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::started_calls;

    #[test]
    fn calls_of_the_run_that_a_fork_was_made_from_are_not_its_own() {
        let journal = br#"{"type":"ENGINE_START","run_id":"old","call_id":"a"}
{"type":"ACTION_REQUEST","action_id":"1","call_id":"b"}
{"type":"ENGINE_START","run_id":"own","call_id":"c"}
{"type":"ACTION_REQUEST","action_id":"2","call_id":"d"}
{"type":"USER_MESSAGE","content":"x","call_id":"z"}
{"type":"ENGINE_START","run_id":"own","call_id":"e"}
{"type":"ACTION_REQUEST","action_id":"3","call_id":""}
"#;
        assert_eq!(started_calls(journal, "own", false), ["c", "d", "e"]);
        assert_eq!(started_calls(journal, "own", true), ["e"]);
    }
}
