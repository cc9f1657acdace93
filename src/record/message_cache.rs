//! The conversation as JSON messages of a request, kept from one request to the next, so that only what
//! the journal has gained is read.
//!
//! Pure; unaware of files. A cache: it is always what reading the whole journal would give, and it is
//! built from the whole journal wherever that is not certain.

use crate::record::attachments::Attachment;
use crate::record::messages::attached::ShownAttachments;
use crate::record::messages::{self, Form};
use crate::record::state::{self, Before, Reading, Run, Turn, Unreadable};
use std::collections::HashSet;

/// The messages of a journal's beginning.
#[derive(Debug)]
pub(crate) struct MessageCache {
    form: Form,
    reading: Reading,
    /// `[`, and the messages with commas between them; one may precede the first.
    messages: Vec<u8>,
    /// With a window: what each turn takes of `messages`, in order.
    parts: Vec<CachedTurn>,
    /// The ids of all calls, as JSON.
    ids: HashSet<Vec<u8>>,
    /// The attachments that the messages may have.
    attached: Vec<AttachedTo>,
    /// How far the journal has been read, in bytes, and what the rest builds on.
    read: u64,
    before: Before,
}

/// An attachment, and the event that it is of.
#[derive(Clone, Debug)]
pub(crate) struct AttachedTo {
    pub seq: u64,
    /// How many of the event come before it.
    pub before: usize,
    pub attachment: Attachment,
}

impl AttachedTo {
    /// The ones of a turn that requests may have.
    pub(crate) fn of(turn: &Turn<'_>) -> Vec<Self> {
        let attached = turn.attached().into_iter();
        attached
            .flat_map(|attached| {
                attached.sent().map(|(before, attachment)| Self {
                    seq: attached.seq,
                    before,
                    attachment: attachment.clone(),
                })
            })
            .collect()
    }
}

#[derive(Debug)]
struct CachedTurn {
    len: usize,
    /// A refusal is neither: it is left behind with the thought before it.
    is_user: bool,
    is_thought: bool,
    attached: usize,
}

impl MessageCache {
    /// One of nothing.
    pub(crate) fn new(form: Form, reading: Reading) -> Self {
        Self {
            form,
            reading,
            messages: b"[".to_vec(),
            parts: Vec::new(),
            ids: HashSet::new(),
            attached: Vec::new(),
            read: 0,
            before: Before::default(),
        }
    }

    pub(crate) fn form(&self) -> &Form {
        &self.form
    }

    /// From where on the journal has yet to be read, in bytes.
    pub(crate) fn read_to(&self) -> u64 {
        self.read
    }

    /// The messages of another journal, in the same form.
    pub(crate) fn of_journal(&self, journal: &[u8]) -> Result<Self, Unreadable> {
        let mut other = Self::new(self.form.clone(), self.reading);
        other.add(journal)?;
        Ok(other)
    }

    /// Forgets everything: the journal must be read from its beginning.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(self.form.clone(), self.reading);
    }

    /// Forgets everything, and gives messages another form from now on.
    pub(crate) fn change_form(&mut self, form: Form) {
        *self = Self::new(form, self.reading);
    }

    /// Forgets everything, and gives messages these attachments from now on.
    pub(crate) fn change_shown(&mut self, shown: ShownAttachments) {
        let mut form = self.form.clone();
        form.shown = shown;
        self.change_form(form);
    }

    /// Adds what the journal holds behind what has been read. All calls in it must have their results. False, and
    /// everything is forgotten, if the journal must be read from its beginning: something in it
    /// changes what is before it.
    ///
    /// # Errors
    /// The first place that cannot be read.
    pub(crate) fn add(&mut self, lines: &[u8]) -> Result<bool, Unreadable> {
        let run = state::read_after(lines, self.reading, &self.before)?;
        if self.read > 0 && !(run.compaction.is_none() && run.left_out.is_empty()) {
            self.forget();
            return Ok(false);
        }
        self.take(&run, lines);
        Ok(true)
    }

    /// Begins with the state that was read from all of a journal without a window, where that is what reading it
    /// here would give.
    pub(crate) fn start(&mut self, run: &Run<'_>, journal: &[u8]) {
        let thought = run.last_thought();
        let has_open_call =
            thought.is_some_and(|it| it.calls.iter().any(|call| call.result.is_none()));
        if self.reading.window.is_none() && !has_open_call {
            self.forget();
            self.take(run, journal);
        }
    }

    fn take(&mut self, run: &Run<'_>, lines: &[u8]) {
        match self.reading.window {
            Some(_) => run.turns.iter().for_each(|turn| self.turn(turn)),
            None => {
                messages::write(&mut self.messages, run, &self.form);
                run.turns[run.first_with_attachments()..]
                    .iter()
                    .for_each(|turn| self.note_attached(turn));
            }
        }
        self.ids.extend(ids(lines));
        let is_whole = self.read == 0;
        // A window counts thoughts that are damaged, too.
        let is_certain = run.damaged.is_empty() || self.reading.window.is_none();
        let before = run.before(lines, &self.before);
        if let Some(before) = before.filter(|_| is_certain) {
            self.before = before;
            self.read += lines.len() as u64;
        } else {
            // What follows may still change what has been said.
            self.read = 0;
        }
        if !is_whole {
            self.narrow();
        }
    }

    /// The messages, separated by commas.
    pub(crate) fn messages(&self) -> &[u8] {
        let messages = &self.messages[1..];
        messages.strip_prefix(b",").unwrap_or(messages)
    }

    /// The attachments that the messages have, but for those that their form leaves out, in order.
    pub(crate) fn attached(&self) -> &[AttachedTo] {
        &self.attached
    }

    /// True if a call in the journal has this id.
    pub(crate) fn has_id(&self, id: &str) -> bool {
        self.ids.contains(crate::text::json::text(id).as_bytes())
    }

    fn turn(&mut self, turn: &Turn<'_>) {
        let start = self.messages.len();
        messages::turn(&mut self.messages, turn, &self.form, None);
        let before = self.attached.len();
        self.note_attached(turn);
        self.parts.push(CachedTurn {
            len: self.messages.len() - start,
            is_user: matches!(turn, Turn::User(_)),
            is_thought: matches!(turn, Turn::Thought(_)),
            attached: self.attached.len() - before,
        });
    }

    fn note_attached(&mut self, turn: &Turn<'_>) {
        self.attached.extend(AttachedTo::of(turn));
    }

    /// Takes out the thoughts that the window has left behind.
    fn narrow(&mut self) {
        let Some(window) = self.reading.window else {
            return;
        };
        let mut left = self
            .parts
            .iter()
            .filter(|part| part.is_thought)
            .count()
            .saturating_sub(window);
        let (mut kept, mut at) = (Vec::with_capacity(self.parts.len()), 1);
        let mut attached_at = 0;
        let mut is_left_behind = false;
        for part in self.parts.drain(..) {
            if part.is_thought {
                is_left_behind = left > 0;
                left = left.saturating_sub(1);
            }
            if is_left_behind && !part.is_user {
                self.messages.drain(at..at + part.len);
                self.attached
                    .drain(attached_at..attached_at + part.attached);
            } else {
                at += part.len;
                attached_at += part.attached;
                kept.push(part);
            }
        }
        self.parts = kept;
    }
}

/// Everything in a journal that may be the id of a call, as JSON.
fn ids(lines: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    const KEY: &[u8] = br#""id":"#;
    memchr::memmem::find_iter(lines, KEY).filter_map(|at| {
        // Other programs write a space there.
        let value = lines[at + KEY.len()..]
            .trim_ascii_start()
            .strip_prefix(b"\"")?;
        let end = memchr::memchr_iter(b'"', value).find(|end| {
            value[..*end]
                .iter()
                .rev()
                .take_while(|byte| **byte == b'\\')
                .count()
                % 2
                == 0
        })?;
        Some([b"\"", &value[..=end]].concat())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    /// Events between two requests: a person's message, or an answer with calls and their results.
    fn step(random: &mut Rng, seq: &mut u64, out: &mut String) {
        let is_thought = |line: &&str| line.contains("\"THOUGHT\"");
        let answer = out.lines().rfind(is_thought).and_then(|line| {
            let (seq, _) = line.strip_prefix("{\"seq\":")?.split_once(',')?;
            seq.parse::<u64>().ok()
        });
        let answer = answer.unwrap_or(1);
        let ends = *seq + 3;
        let mut line = |kind: &str, rest: &str| {
            *seq += 1;
            let at = "2025-10-13T14:35:22.123Z";
            *out += &format!(
                "{{\"seq\":{seq},\"timestamp\":\"{at}\",\"type\":\"{kind}\",\"iteration\":1,{rest}}}\n"
            );
        };
        let n = random.u32(..);
        match random.u8(0..12) {
            10 => {
                let through = u64::from(n) % ends;
                let by = ["clear", "summary", "other"][n as usize / 7 % 3];
                line(
                    "COMPACTION",
                    &format!(
                        "\"by\":\"{by}\",\"through_seq\":{through},\"summary\":\"s{n}\",\"message_bytes\":{}",
                        n % 50
                    ),
                );
            }
            11 => line("MODEL_CHANGED", &format!("\"to\":\"m{}\"", n % 2)),
            0 => line("USER_MESSAGE", &format!("\"content\":\"say {n}\"")),
            1 => line("SYSTEM_MESSAGE", "\"level\":\"INFO\",\"content\":\"x\""),
            2 => line(
                "ENGINE_START",
                &format!("\"config\":{{\"llm\":{{\"model\":\"m{}\"}}}}", n % 2),
            ),
            3 => line("THOUGHT", "\"content\":\"\""),
            4 => line("THOUGHT", &format!("\"content\":\"a{n}\"")),
            5 => {
                // Now and then of no answer.
                let of = answer - u64::from(n.is_multiple_of(7));
                let verdict = [
                    format!("\"content\":\"no {n}\""),
                    "\"what\":\"w\"".to_owned(),
                ];
                let verdict = &verdict[n as usize / 7 % 2];
                line(
                    "ACCEPTANCE",
                    &format!("\"thought_seq\":{of},\"exit_code\":0,{verdict}"),
                );
            }
            _ => {
                let calls: Vec<String> = (0..random.u8(1..4))
                    .map(|c| format!("{n}\\\\{c}\\\""))
                    .collect();
                let wire: Vec<String> = calls
                    .iter()
                    .map(|id| {
                        format!(
                            "{{\"id\":\"{id}\",\"type\":\"function\",\"function\":{{\"name\":\"f\",\"arguments\":\"{{}}\"}}}}"
                        )
                    })
                    .collect();
                let wire = wire.join(",");
                line(
                    "THOUGHT",
                    &format!(
                        "\"content\":\"t{n}\",\"reasoning\":\"r\",\"wire\":{{\"items\":[{n}]}},\"tool_calls\":[{wire}]"
                    ),
                );
                for id in &calls {
                    line(
                        "ACTION_RESULT",
                        &format!(
                            "\"action_id\":\"{id}\",\"execution_ref\":\"io/x\",\"observation_content\":\"{}\"",
                            "o".repeat(n as usize % 3000)
                        ),
                    );
                }
            }
        }
    }

    #[test]
    fn it_is_what_reading_the_whole_journal_gives() {
        for seed in 0..100 {
            let mut random = Rng::with_seed(seed);
            let window = random.bool().then(|| random.usize(0..5));
            let reading = Reading {
                lenient: false,
                window,
            };
            let form = if random.bool() {
                Form::chat(Some(["\"m1\"", "[\"m1\"]"][random.usize(..2)].to_owned()))
            } else {
                Form::neutral()
            };
            let mut kept = MessageCache::new(form.clone(), reading);
            let (mut journal, mut seq, mut read) = (String::new(), 0, 0);
            for _ in 0..30 {
                for _ in 0..random.u8(0..4) {
                    step(&mut random, &mut seq, &mut journal);
                }
                if !kept.add(&journal.as_bytes()[read..]).unwrap() {
                    assert_eq!(kept.read_to(), 0);
                    assert!(kept.add(journal.as_bytes()).unwrap());
                }
                read = journal.len();
                assert_eq!(kept.read_to(), read as u64);
                let mut whole = Vec::new();
                let run = state::read(journal.as_bytes(), reading).unwrap();
                messages::write(&mut whole, &run, &form);
                let mut begun = MessageCache::new(form.clone(), reading);
                begun.start(&run, journal.as_bytes());
                assert!(window.is_some() || begun.messages() == whole, "seed {seed}");
                let (kept, whole) = (kept.messages(), &whole[..]);
                assert_eq!(
                    String::from_utf8_lossy(kept),
                    String::from_utf8_lossy(whole),
                    "seed {seed}, window {window:?}"
                );
            }
        }
    }

    #[test]
    fn ids_are_known_as_the_journal_writes_them() {
        let mut transcript = MessageCache::new(Form::chat(None), Reading::default());
        let line = r#"{"seq":1,"type":"THOUGHT","content":"\"id\":\"no\"","tool_calls":[{"id":"a\\\"b","function":{"name":"f","arguments":"{\"id\":\"no\"}"}}]}"#;
        transcript.add(format!("{line}\n").as_bytes()).unwrap();
        assert!(transcript.has_id("a\\\"b"));
        for other in ["no", "a\\", "a", "b"] {
            assert!(!transcript.has_id(other), "{other}");
        }
    }

    #[test]
    fn ids_are_known_as_other_programs_write_them() {
        let mut transcript = MessageCache::new(Form::chat(None), Reading::default());
        let line = r#"{"seq": 1, "type": "THOUGHT", "content": "", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}"#;
        transcript.add(format!("{line}\n").as_bytes()).unwrap();
        assert!(transcript.has_id("a"));
    }

    #[test]
    fn a_window_over_thoughts_that_are_damaged_or_old_is_that_of_the_whole_journal() {
        let thought = |seq: u64, text: &str| {
            format!(
                "{{\"seq\":{seq},\"timestamp\":\"2025-10-13T14:35:22.123Z\",\"type\":\"THOUGHT\",\"iteration\":1,\"content\":{text}}}\n"
            )
        };
        let said =
            |seq: u64| format!("{{\"seq\":{seq},\"type\":\"USER_MESSAGE\",\"content\":\"u\"}}\n");
        let old = "{\"type\":\"ACTION_REQUEST\",\"payload\":{\"action_id\":\"x\",\"tool_name\":\"f\",\"tool_args\":{}}}\n";
        let damaged = [thought(1, "\"a\""), thought(2, "\"b\""), thought(3, "torn")].concat();
        let adopted = [&thought(1, "\"a\""), &thought(2, "\"b\""), &said(3), old].concat();
        for mut journal in [damaged, adopted] {
            let reading = Reading {
                lenient: true,
                window: Some(2),
            };
            let mut kept = MessageCache::new(Form::chat(None), reading);
            for seq in 5..9 {
                let start = kept.read_to() as usize;
                if start == 0 {
                    kept.forget();
                }
                kept.add(&journal.as_bytes()[start..]).unwrap();
                let mut whole = Vec::new();
                let run = state::read(journal.as_bytes(), reading).unwrap();
                messages::write(&mut whole, &run, &Form::chat(None));
                let kept = String::from_utf8_lossy(kept.messages()).into_owned();
                assert_eq!(kept, String::from_utf8_lossy(&whole), "before {seq}");
                journal += &thought(seq, "\"new\"");
            }
        }
    }

    #[test]
    fn what_an_old_engine_wrote_is_read_from_the_beginning_each_time() {
        let mut transcript = MessageCache::new(Form::chat(None), Reading::default());
        let line = "{\"type\":\"RUN_START\",\"payload\":{\"task\":\"go\"}}\n";
        transcript.add(line.as_bytes()).unwrap();
        assert_eq!(transcript.read_to(), 0);
    }
}
