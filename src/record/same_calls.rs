//! Calls that a model repeats: the same tool with the same arguments and the same result, one after another.
//!
//! Pure; unaware of what follows from a long row.

use crate::record::attachments::Attachment;
use crate::record::event::decoded;
use crate::record::state::{Run, Turn};
use serde_json::Value;

/// From this call of a row on, the model reads that it repeats itself.
const NOTED_FROM: u64 = 3;

/// The row with which the conversation ends, and the calls of the newest answer. A cache: the journal has it all.
#[derive(Debug, Default)]
pub(crate) struct SameCalls {
    /// The row before the newest answer.
    before: Streak,
    /// The calls of the newest answer, in order.
    answer: Vec<OneCall>,
    /// Tools whose calls are passed over.
    uncounted: Vec<String>,
    /// The row has ended a start that had another limit, so that it ends none before the next answer.
    is_excused: bool,
}

/// The last call of a row, and how many calls the row has.
#[derive(Clone, Debug, Default)]
struct Streak {
    last: Option<OneCall>,
    length: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct OneCall {
    id: String,
    name: String,
    arguments: String,
    /// The observation without a note; none: the call has no result yet.
    result: Option<String>,
    /// The digests of its attachments.
    attached: Vec<String>,
}

/// A row that has reached its limit.
pub(crate) struct LongRow<'r> {
    pub length: u64,
    pub name: &'r str,
    pub arguments: &'r str,
}

impl SameCalls {
    /// The calls of a run, as its journal has them, in a start with this limit. Those of `uncounted` tools are passed
    /// over.
    pub(crate) fn of(run: &Run<'_>, limit: u64, uncounted: Vec<String>) -> Self {
        let mut calls = Self {
            uncounted,
            ..Self::default()
        };
        for turn in &run.turns {
            match turn {
                Turn::User(_) if turn.begins_anew() => {
                    calls.before = Streak::default();
                    calls.answer.clear();
                }
                Turn::User(_) | Turn::Refusal(_) => {}
                Turn::Thought(thought) => {
                    let each = thought.calls.iter();
                    calls.begin_answer(each.clone().map(|call| {
                        let invalid = call.invalid_arguments.as_deref();
                        (&*call.id, &*call.name, invalid.unwrap_or(&call.arguments))
                    }));
                    for call in each {
                        if let Some(result) = call.result {
                            let attached = call.attached.all();
                            calls.add_result(&call.id, &decoded(result), attached);
                        }
                    }
                }
            }
        }
        calls.is_excused = run.no_progress_at.is_some_and(|at| at != limit);
        calls
    }

    /// The model has answered with these calls: id, name, and arguments as it wrote them.
    pub(crate) fn begin_answer<'c>(
        &mut self,
        calls: impl Iterator<Item = (&'c str, &'c str, &'c str)>,
    ) {
        for call in std::mem::take(&mut self.answer) {
            self.before.add(&call);
        }
        self.is_excused = false;
        self.answer = calls
            .filter(|(_, name, _)| !self.uncounted.iter().any(|it| it == name))
            .map(|(id, name, arguments)| OneCall {
                id: id.to_owned(),
                name: name.to_owned(),
                arguments: arguments.to_owned(),
                result: None,
                attached: Vec::new(),
            })
            .collect();
    }

    /// A call of the newest answer has its result. Returns the note that the model reads below it, unless the
    /// observation ends with it.
    pub(crate) fn add_result(
        &mut self,
        id: &str,
        observation: &str,
        attached: &[Attachment],
    ) -> Option<String> {
        let call = self
            .answer
            .iter_mut()
            .find(|call: &&mut OneCall| call.id == id && call.result.is_none())?;
        call.result = Some(observation.to_owned());
        call.attached = attached.iter().map(|it| it.sha256.clone()).collect();
        let at = self.answer.iter().position(|call| call.id == id)?;
        let mut row = self.before.clone();
        for call in &self.answer[..at] {
            row.add(call);
        }
        let call = &mut self.answer[at];
        if let Some(bare) = without_note(observation)
            && row.last.as_ref().is_some_and(|last| {
                last.result.as_deref() == Some(bare) && last.attached == call.attached
            })
        {
            call.result = Some(bare.to_owned());
            return None;
        }
        let length = row.add(call);
        (length >= NOTED_FROM).then(|| note(length))
    }

    /// The longest row that a call of the newest answer belongs to, if it has at least `limit` calls.
    pub(crate) fn long_row(&self, limit: u64) -> Option<LongRow<'_>> {
        let mut row = self.before.clone();
        let (length, call) = self
            .answer
            .iter()
            .map(|call| (row.add(call), call))
            .max_by_key(|(length, _)| *length)?;
        (length >= limit && !self.is_excused).then(|| LongRow {
            length,
            name: &call.name,
            arguments: &call.arguments,
        })
    }
}

impl Streak {
    /// Adds a call. Returns the length of the row that it is in; 0 without a result.
    fn add(&mut self, call: &OneCall) -> u64 {
        let is_same = self.last.as_ref().is_some_and(|last| {
            last.name == call.name
                && last.result == call.result
                && last.attached == call.attached
                && are_equal(&last.arguments, &call.arguments)
        });
        self.length = match (is_same, &call.result) {
            (_, None) => 0,
            (true, _) => self.length + 1,
            (false, _) => 1,
        };
        if !is_same {
            self.last = Some(call.clone());
        }
        self.length
    }
}

/// True for arguments that are written the same, or are the same JSON.
fn are_equal(one: &str, other: &str) -> bool {
    let parsed = |text| serde_json::from_str::<Value>(text).ok();
    one == other || parsed(one).is_some_and(|one| parsed(other) == Some(one))
}

/// The end of the observation of the n-th call of a row.
fn note(n: u64) -> String {
    format!("\n[call {n} in a row with the same arguments and the same result; do something else]")
}

/// The observation before its note, of a row of any length: a message may have been put before it since.
fn without_note(observation: &str) -> Option<&str> {
    let (bare, end) = observation.rsplit_once("\n[call ")?;
    let n = end.split(' ').next()?.parse().ok()?;
    observation[bare.len()..].eq(&note(n)).then_some(bare)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::state::{self, Reading};
    use serde_json::json;

    fn thought(calls: &[(&str, &str, &str)]) -> String {
        let calls: Vec<Value> = calls
            .iter()
            .map(|(id, name, arguments)| {
                json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
            })
            .collect();
        json!({"type": "THOUGHT", "content": "", "tool_calls": calls}).to_string() + "\n"
    }

    fn result(id: &str, observation: &str) -> String {
        json!({"type": "ACTION_RESULT", "action_id": id, "observation_content": observation})
            .to_string()
            + "\n"
    }

    fn row_of(journal: &str) -> u64 {
        let run = state::read(journal.as_bytes(), Reading::default()).unwrap();
        SameCalls::of(&run, 1, Vec::new())
            .long_row(1)
            .map_or(0, |row| row.length)
    }

    #[test]
    fn a_row_is_counted_over_answers_and_within_one() {
        let one = thought(&[("a", "x", "{\"b\":1,\"c\":2}")]) + &result("a", "out");
        let two = thought(&[
            ("b", "x", "{ \"c\": 2, \"b\": 1 }"),
            ("c", "x", "{\"b\":1,\"c\":2}"),
        ]) + &result("c", &format!("out{}", note(3)))
            + &result("b", "out");
        assert_eq!(row_of(&one), 1);
        assert_eq!(row_of(&[one.clone(), two.clone()].concat()), 3);
        let said = "{\"type\":\"USER_MESSAGE\",\"content\":\"go\"}\n";
        assert_eq!(row_of(&[&one, said, &two].concat()), 2);
        assert_eq!(row_of(&[&one, &*two, said].concat()), 0);
    }

    #[test]
    fn another_tool_other_arguments_another_result_or_none_end_a_row() {
        let one = thought(&[("a", "x", "{}")]) + &result("a", "out");
        for (name, arguments, observation) in [
            ("y", "{}", Some("out")),
            ("x", "{\"b\":1}", Some("out")),
            ("x", "{}", Some("other")),
            ("x", "{}", None),
        ] {
            let other = thought(&[("o", name, arguments)])
                + &observation.map_or_else(String::new, |text| result("o", text));
            let journal = [&*one, &one, &other, &one].concat();
            assert_eq!(row_of(&journal), 1, "{other}");
        }
    }

    #[test]
    fn an_answer_counts_with_its_longest_row() {
        let first = thought(&[("a", "x", "{}"), ("b", "x", "{}"), ("c", "y", "{}")]);
        let results = ["a", "b", "c"].map(|id| result(id, "out")).concat();
        assert_eq!(row_of(&(first + &results)), 2);
    }

    #[test]
    fn a_note_is_of_its_place_and_made_once() {
        let mut calls = SameCalls::default();
        let ids = ["a", "b", "c", "d"];
        calls.begin_answer(ids.iter().map(|id| (*id, "x", "{}")));
        assert_eq!(calls.add_result("a", "out", &[]), None);
        assert_eq!(calls.add_result("b", "out", &[]), None);
        assert_eq!(calls.add_result("c", "out", &[]), Some(note(3)));
        assert_eq!(calls.add_result("d", &format!("out{}", note(4)), &[]), None);
        assert_eq!(calls.long_row(4).unwrap().length, 4);
    }
}
