//! `delta-flow answer`: leaves a person's answer where the run that asked looks for it.
//!
//! Starts nothing: the command that began the flow goes on with it. Which question is meant follows from the journals
//! of flows that have not ended, and from the runs that their open steps have started.

use super::check::warn;
use crate::engine::question::{Question, is_left, leave_answer};
use crate::error::{Error, Exit, Result};
use crate::flow::record::each_line;
use crate::record::event::InputType;
use crate::record::metadata::Status;
use crate::record::run_dir::RunDir;
use crate::record::subruns::{OpenActions, RunTree};
use crate::record::workspace::Workspace;
use crate::runs::find;
use crate::runs::inspect::{inspect_run, read_summary};
use crate::runs::origin::{require_own, require_own_run};
use crate::runs::preflight::install_signals;
use crate::runs::suspended::{awaited_run, is_suspended};
use crate::runs::task::read_stdin;
use crate::text::disguise::printable_line;
use crate::text::options::parse::ParsedCommand;
use crate::text::shorten::in_short;
use crate::unix::terminal::print;

/// Flows within flows are not followed further down.
const DEEPEST: usize = 16;

const NOTHING_OPEN: &str = "no question of a flow is open here";

/// A question that a person can answer now.
struct OpenQuestion {
    /// The run of the flow.
    flow: RunDir,
    /// The task, and those of flows within it: `T1/T1.s0`.
    task: String,
    node: String,
    /// The run that asks.
    run: RunDir,
    question: Question,
    is_answered: bool,
}

/// Runs the command. Without a text, it lists the questions.
pub(crate) fn answer_question(given: &ParsedCommand) -> Result<Exit> {
    let mut words = given.operand_texts();
    let (text, task) = (words.pop(), words.pop());
    let workspace = find::open_workspace(&given.work_dir())?;
    require_own(&workspace, false)?;
    let mut search = QuestionSearch {
        tree: RunTree::below(&workspace.root),
        found: Vec::new(),
    };
    for flow in flows_under_way(&workspace, given.text("--run-id").as_deref())? {
        search.look_below(&flow, &flow, "", 0)?;
    }
    let Some(text) = text else {
        return list_questions(&search.found);
    };
    let meant = choose_question(search.found, task.as_ref())?;
    require_own_run(&meant.run, false)?;
    let text = if text == "-" { stdin_text()? } else { text };
    let (task, node, flow) = (&meant.task, &meant.node, &meant.flow.id);
    // While stdin was read, the question may have been answered, and the flow may have gone on to another one. In the
    // instant between this look and the answer it still may.
    if !is_left(&meant.run, &meant.question.request_id) {
        let message = format!("{node} of {task} no longer asks this; nothing has been answered");
        return Err(Error::failure(message));
    }
    if !leave_answer(&meant.run, &text)? {
        return Err(already_answered(&meant));
    }
    let text = format!(
        "answered {node} of {task} in run {flow}; the command that began the flow resumes it"
    );
    warn(&printable_line(&text));
    Ok(Exit::Success)
}

/// Prints the questions that have no answer.
///
/// # Errors
/// No question is open.
fn list_questions(all: &[OpenQuestion]) -> Result<Exit> {
    let list = list_of(all.iter().filter(|it| !it.is_answered));
    if list.is_empty() {
        return Err(match all.first() {
            Some(answered) => already_answered(answered),
            None => Error::failure(NOTHING_OPEN),
        });
    }
    print(list.as_bytes())?;
    Ok(Exit::Success)
}

fn stdin_text() -> Result<String> {
    let bytes = read_stdin("answer", &*install_signals()?)?;
    let mut text =
        String::from_utf8(bytes).map_err(|_| Error::usage("the answer on stdin is not UTF-8"))?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

/// The runs of flows that have not ended, the newest last; or the one that is named.
fn flows_under_way(workspace: &Workspace, named: Option<&str>) -> Result<Vec<RunDir>> {
    if let Some(name) = named {
        let id = find::find_named(workspace, name)?;
        return Ok(vec![RunDir::of(workspace, &id)]);
    }
    let is_open = |run: &RunDir| {
        let (metadata, _) = read_summary(run);
        let has_ended = matches!(metadata.status, Status::Completed | Status::Failed);
        // What a flow has started is found through it.
        metadata.flow.is_some() && !has_ended && metadata.parent_run_id.is_none()
    };
    let ids = workspace.runs()?.into_iter();
    let runs = ids.map(|id| RunDir::of(workspace, &id));
    Ok(runs.filter(is_open).collect())
}

/// The questions that have been found in a workspace.
struct QuestionSearch {
    tree: RunTree,
    found: Vec<OpenQuestion>,
}

impl QuestionSearch {
    /// Adds the questions of the runs that the open steps of a flow's run have started. `flow` is the outermost of the
    /// flows, `around` the task of it that the run is.
    fn look_below(
        &mut self,
        flow: &RunDir,
        run: &RunDir,
        around: &str,
        depth: usize,
    ) -> Result<()> {
        if depth == DEEPEST {
            return Ok(());
        }
        let mut open = OpenActions::default();
        each_line(&run.journal(), true, |line| {
            open.follow(run, line);
            Ok(true)
        })?;
        for started in self.tree.of_open(&mut open, run) {
            let (Some(node), Some(task)) = (started.node, started.task) else {
                continue;
            };
            let task = match around {
                "" => task,
                around => format!("{around}/{task}"),
            };
            let Ok(mut asking) = inspect_run(&started.run) else {
                continue;
            };
            if is_suspended(asking.metadata.stop_reason.as_deref())
                && let Some(below) = awaited_run(&asking.run)
            {
                asking = below;
            }
            if asking.is_flow {
                self.look_below(flow, &asking.run, &task, depth + 1)?;
                continue;
            }
            let is_waiting = !asking.has_ended() && asking.metadata.status != Status::Running;
            if let Some(question) = asking.question.filter(|_| is_waiting)
                && is_left(&asking.run, &question.request_id)
            {
                self.found.push(OpenQuestion {
                    flow: flow.clone(),
                    task,
                    node,
                    run: asking.run,
                    question,
                    is_answered: asking.is_answered,
                });
            }
        }
        Ok(())
    }
}

/// The one question that a command line means.
fn choose_question(all: Vec<OpenQuestion>, task: Option<&String>) -> Result<OpenQuestion> {
    let (answered, open): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.is_answered);
    let listed = list_of(open.iter());
    let is_named = |it: &OpenQuestion| task.is_none_or(|task| *task == it.task);
    let mut named: Vec<OpenQuestion> = open.into_iter().filter(is_named).collect();
    if named.len() > 1 {
        let count = named.len();
        let how = match task {
            Some(_) => "--run-id ID",
            None => "a task before the answer, and --run-id ID",
        };
        return Err(Error::usage(format!(
            "{count} questions are open; say which with {how}:\n{}",
            list_of(named.iter()).trim_end()
        )));
    }
    if let Some(one) = named.pop() {
        return Ok(one);
    }
    if let Some(one) = answered.iter().find(|it| is_named(it)) {
        return Err(already_answered(one));
    }
    Err(Error::failure(match (task, listed.trim_end()) {
        (Some(task), list) if !list.is_empty() => {
            format!("{task} asks nothing; these questions are open:\n{list}")
        }
        _ => NOTHING_OPEN.to_owned(),
    }))
}

fn already_answered(it: &OpenQuestion) -> Error {
    let path = it.run.interaction().join("response.txt");
    let (task, node) = (&it.task, &it.node);
    Error::failure(format!(
        "{node} of {task} has an answer that has not been read, in {}; the command that began the flow resumes it",
        path.display()
    ))
}

/// A line for each question.
fn list_of<'q>(all: impl Iterator<Item = &'q OpenQuestion>) -> String {
    let line = |it: &OpenQuestion| {
        let kind = match it.question.input_type {
            InputType::Confirmation => "  [yes, or what to do instead]",
            _ => "",
        };
        let prompt = in_short(&it.question.prompt, 200);
        let text = format!("{}  {}  {}  {prompt}{kind}", it.flow.id, it.task, it.node);
        printable_line(&text) + "\n"
    };
    all.map(line).collect()
}
