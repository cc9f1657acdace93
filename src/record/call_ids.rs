//! The ids of the calls that a run has started: by them its processes are found.
//!
//! Pure: from the journal's bytes.

use super::event::Recorded;
use super::reader::readable_lines;

/// `DELTA_CALL_ID` of everything that a run has started, or its common beginning. What the journal took over from
/// the run that this one was forked from is left out; `only_newest` leaves out what other starts of the engine
/// began.
pub(crate) fn started_calls(journal: &[u8], run_id: &str, only_newest: bool) -> Vec<String> {
    let mut ids = Vec::new();
    let mut is_own = true;
    for (_, line) in readable_lines(journal) {
        let call_id = match line.event {
            Recorded::EngineStart(start) => {
                let was_own = std::mem::replace(&mut is_own, start.run_id.get() == Some(run_id));
                if !was_own || !is_own || only_newest {
                    ids.clear();
                }
                start.call_id
            }
            Recorded::ActionRequest(request) => request.call_id,
            _ => continue,
        };
        ids.extend(call_id.owned().filter(|id| is_own && !id.is_empty()));
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
