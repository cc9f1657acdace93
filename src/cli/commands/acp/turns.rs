//! The turns of a session: from a prompt, through questions, to its answer.

use super::ends::{CANCELLED, END_TURN, TurnEnd, end_of};
use super::lines::Outbox;
use super::prompt::Prompt;
use super::questions::{self, ClientDecision, can_ask};
use super::rpc::{self, INTERNAL_ERROR, Rejection};
use super::session::{Busy, EditorSession, SessionState};
use super::turn::{RunLine, RunProcess};
use super::updates::{LineOrigin, Shows, chunk};
use crate::cli::message::GivenAgent;
use crate::engine::question::Question;
use crate::error::Result;
use serde_json::{Value, json};

/// The client, and what it wants.
pub(super) struct ClientLink {
    pub agent: GivenAgent,
    pub shows: Shows,
    /// The client can ask for text.
    pub has_forms: bool,
    /// Requests to the client so far.
    pub requests: u64,
    pub out: Outbox,
}

impl ClientLink {
    pub(super) fn update(&mut self, session: &EditorSession, update: &Value) {
        self.out.add(&rpc::update(session.name(), update));
    }

    /// A message of delta's own.
    fn say(&mut self, session: &EditorSession, text: &str, id: &str) {
        self.update(session, &chunk("agent_message_chunk", text, id));
    }
}

/// Starts what a prompt asks for, or first asks the question that is open.
pub(super) fn begin(
    session: &mut EditorSession,
    link: &mut ClientLink,
    id: &Value,
    prompt: Prompt,
) -> std::result::Result<(), Rejection> {
    if session.busy.is_some() {
        let message = format!("session {} is already running", session.name());
        return Err(Rejection::new(INTERNAL_ERROR, message));
    }
    let state = session.state()?;
    if let Some(notice) = session.notice.take() {
        link.say(session, &notice, "notice");
    }
    let busy = |process, next| Busy {
        prompt_id: id.clone(),
        is_cancelled: false,
        process,
        asked: None,
        next,
    };
    match state {
        SessionState::Open(question, _) if can_ask(&question, link.has_forms) => {
            session.busy = Some(busy(None, Some(prompt)));
            ask(session, link, *question);
        }
        SessionState::Open(question, command) if questions::is_secret(&question) => {
            session.busy = Some(busy(None, None));
            let text = format!("{}\n\nanswer with: {command}", question.prompt);
            finish(session, link, &TurnEnd::Stop(END_TURN, Some(text)));
        }
        state => {
            let words = session.words(&state, &link.agent)?;
            let process = RunProcess::start(&words, prompt)?;
            session.busy = Some(busy(Some(process), None));
        }
    }
    Ok(())
}

/// Asks the client a question of the run.
fn ask(session: &mut EditorSession, link: &mut ClientLink, question: Question) {
    let (method, params) = questions::request(session.name(), &question, &session.updates);
    if let Some(busy) = &mut session.busy {
        link.requests += 1;
        link.out.add(&rpc::request(link.requests, method, &params));
        busy.asked = Some((link.requests, question));
    }
}

/// Takes the client's answer to the question that it was asked.
pub(super) fn decide(session: &mut EditorSession, link: &mut ClientLink, result: Option<&Value>) {
    let asked = session.busy.as_mut().and_then(|busy| busy.asked.take());
    let Some((_, question)) = asked else {
        return;
    };
    match questions::decision(&question, result) {
        ClientDecision::Open => finish(session, link, &TurnEnd::Stop(CANCELLED, None)),
        ClientDecision::Answer(text) => {
            let asked = SessionState::Open(Box::new(question), String::new());
            go_on(session, link, &asked, Prompt::answer(&text));
        }
    }
}

/// Starts delta once more within a turn.
fn go_on(session: &mut EditorSession, link: &mut ClientLink, state: &SessionState, prompt: Prompt) {
    let words = session.words(state, &link.agent);
    match words.and_then(|words| RunProcess::start(&words, prompt)) {
        Ok(process) => {
            if let Some(busy) = &mut session.busy {
                busy.process = Some(process);
            }
        }
        Err(error) => finish(session, link, &TurnEnd::Failed(error.message)),
    }
}

/// Reads what a run prints, and shows it.
pub(super) fn follow(session: &mut EditorSession, link: &mut ClientLink) -> Result<()> {
    if let Some(process) = session.process() {
        process.read()?;
    }
    while let Some(line) = session.process().and_then(RunProcess::next_line) {
        let all = match line {
            RunLine::Delta(delta) => session.updates.of_delta(&delta),
            RunLine::Event(line) => session.updates.of_line(&line, LineOrigin::Live, link.shows),
        };
        for update in all {
            link.update(session, &update);
        }
    }
    Ok(())
}

/// Goes on after the process of a turn has ended: with a question, with the next message, or with the turn's end.
pub(super) fn look_for_end(session: &mut EditorSession, link: &mut ClientLink) {
    let Some(busy) = &mut session.busy else {
        return;
    };
    let Some(code) = busy.process.as_mut().and_then(RunProcess::end) else {
        return;
    };
    let result = busy.process.take().and_then(|process| process.result);
    if busy.is_cancelled {
        return finish(session, link, &TurnEnd::Stop(CANCELLED, None));
    }
    let next = busy.next.take();
    let Some(result) = result else {
        let text = format!(
            "delta ended with exit code {code} before its last line; session/load shows the run"
        );
        return finish(session, link, &TurnEnd::Failed(text));
    };
    let mut end = end_of(&result);
    match (session.state().ok(), next) {
        (Some(SessionState::Open(question, _)), next) if can_ask(&question, link.has_forms) => {
            if let Some(busy) = &mut session.busy {
                busy.next = next;
            }
            return ask(session, link, *question);
        }
        (Some(there @ SessionState::There), Some(next)) if end == TurnEnd::Stop(END_TURN, None) => {
            return go_on(session, link, &there, next);
        }
        (state, next) => {
            if let TurnEnd::Stop(_, Some(text)) | TurnEnd::Failed(text) = &mut end {
                if let Some(SessionState::Open(question, command)) = state
                    && questions::is_secret(&question)
                {
                    text.push_str(&format!("\n\nanswer with: {command}"));
                }
                if next.is_some() {
                    text.push_str("\n\nthe message has not been sent");
                }
            }
        }
    }
    finish(session, link, &end);
}

/// Asks a turn to end.
pub(super) fn cancel(session: &mut EditorSession, link: &mut ClientLink) {
    let Some(busy) = &mut session.busy else {
        return;
    };
    busy.is_cancelled = true;
    match &mut busy.process {
        Some(process) => process.interrupt(),
        None => finish(session, link, &TurnEnd::Stop(CANCELLED, None)),
    }
}

/// Answers the prompt of a session, and the requests to close it.
fn finish(session: &mut EditorSession, link: &mut ClientLink, end: &TurnEnd) {
    let Some(busy) = session.busy.take() else {
        return;
    };
    let id = &busy.prompt_id;
    match end {
        TurnEnd::Stop(reason, said) => {
            if let Some(said) = said {
                link.say(session, said, &format!("end-{id}"));
            }
            let result = json!({"stopReason": reason});
            link.out.add(&rpc::success(id, &result));
        }
        TurnEnd::Failed(why) => {
            let error = Rejection::new(INTERNAL_ERROR, why);
            link.out.add(&rpc::failure(id, &error));
        }
    }
    for id in std::mem::take(&mut session.closing) {
        link.out.add(&rpc::success(&id, &json!({})));
        session.is_closed = true;
    }
}
