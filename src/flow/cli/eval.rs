//! `delta eval`: which trials are meant, the run that records them, and the verdict.
//!
//! Unaware of how a trial is run, and of statistics.

mod launch;

use super::args::FlowEvalArgs;
use super::check::CheckedDir;
use super::verdict::{check_baseline, read_baseline};
use super::words::Against;
use crate::error::{At, Error, Exit, Result};
use crate::flow::eval::load::needs_flow;
use crate::flow::eval::naming::AgentDir;
use crate::flow::eval::plan::{ChosenCase, PlannedSuite, plan_suites};
use crate::flow::eval::question::Question;
use crate::flow::eval::revision::{export, split_revision};
use crate::flow::eval::suite::{AgentWord, Evaluations, Setting, Suite, Target};
use crate::flow::eval::target::PlanBasis;
use crate::flow::manifest::Flow;
use crate::record::workspace::Workspace;
use crate::runs::preflight::{check_depth, heed_deadline, install_signals};
use crate::text::json;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::ParsedCommand;
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::own_program::own_program;
use crate::unix::signals::Signals;
use crate::unix::terminal::Screen;
use launch::EvalCommand;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Runs `delta eval`, and `delta flow eval`; `program` is the name in messages.
pub(crate) fn run_evaluation(given: &ParsedCommand, program: &'static str) -> Result<Exit> {
    evaluate(&FlowEvalArgs::read(given, program)?).map_err(Error::of_run)
}

fn evaluate(wanted: &FlowEvalArgs) -> Result<Exit> {
    check_depth()?;
    let signals = install_signals()?;
    heed_deadline(&signals, wanted.deadline)?;
    let Some((mut evaluations, flow)) = load(wanted)? else {
        return Ok(wanted.words.as_ref().map_or(Exit::Config, |_| Exit::Usage));
    };
    let mut selection = wanted.selection.clone();
    let (mut result, mut baseline) = (None, None);
    match &wanted.against {
        Some(Against::Result(path)) => result = Some((path, read_baseline(path)?)),
        Some(Against::Agent { word, .. }) => baseline = Some(word),
        None => {}
    }
    if let (Some(against), Some(word)) = (&wanted.against, baseline) {
        let suites = evaluations.suites.iter_mut();
        for suite in suites.filter(|it| wanted.words.is_none() && selection.has_suite(it)) {
            add_baseline(suite, against, word)?;
        }
        if !selection.settings.is_empty() {
            selection.settings.push(word.clone());
        }
    }
    let workspace = Workspace::at(&wanted.work_dir)?;
    let root = workspace.root.canonicalize();
    let root = root.unwrap_or_else(|_| workspace.root.clone());
    let find_agent = |word: &AgentWord| {
        let is_given = wanted.words.is_some() || baseline == Some(&word.name);
        find_agent(&signals, word).map_err(|error| of_words(error, is_given))
    };
    let basis = PlanBasis {
        evaluations: &evaluations,
        flow: flow.as_ref(),
        root: &root,
        signals: &signals,
        find_agent: &find_agent,
    };
    let planned = plan_suites(&basis, &selection);
    let suites = planned.map_err(|error| of_words(error, wanted.words.is_some()))?;
    if let Some((path, bytes)) = &result {
        for suite in &suites {
            check_baseline(suite, path, bytes)?;
        }
    }
    check_plan(wanted, &suites)?;
    let command = EvalCommand {
        wanted,
        home: &evaluations.home,
        workspace: &workspace,
        signals: &signals,
        basis: &basis,
        suites,
        screen: Screen::new(wanted.quiet, false),
    };
    if wanted.dry_run {
        return command.print_plan();
    }
    workspace.check_layout()?;
    workspace.check_writable()?;
    command.evaluate(result.as_ref().map(|(_, bytes)| &**bytes))
}

/// An error in what the command line says, if it is one of the configuration.
fn of_words(error: Error, is_given: bool) -> Error {
    match error.exit {
        Exit::Config if is_given => Error::usage(error.message),
        _ => error,
    }
}

/// Loads the suites, and the flow if one of them is about it; none if something is wrong with them, which
/// has been printed.
fn load(wanted: &FlowEvalArgs) -> Result<Option<(Evaluations, Option<Flow>)>> {
    let needs_flow = wanted.words.is_none() && needs_flow(&wanted.dir);
    let mut checked = match &wanted.words {
        Some(words) => CheckedDir::of_words(words.clone()),
        None => CheckedDir::read(&wanted.dir, needs_flow, true),
    };
    let format = if wanted.format.is_json() {
        OutputFormat::Json
    } else {
        OutputFormat::Text
    };
    checked.print_problems(wanted.program, format);
    let evaluations = checked.evaluations.take();
    match evaluations.filter(|_| checked.flow.is_some() || !needs_flow) {
        Some(evaluations) => Ok(Some((evaluations, checked.flow))),
        None => {
            if format == OutputFormat::Json {
                checked.print_errors()?;
            }
            Ok(None)
        }
    }
}

/// Refuses suites of a command line with a case of which every answer passes.
fn check_judged(suites: &[PlannedSuite<'_>]) -> Result<()> {
    let mut cases = suites.iter().flat_map(|it| &it.cases);
    // What is implied has no weight.
    let is_judged =
        |case: &&Rc<ChosenCase<'_>>| case.case.assertions.iter().any(|it| it.weight > 0.0);
    let Some(case) = cases.find(|case| !is_judged(case)) else {
        return Ok(());
    };
    Err(Error::usage(format!(
        "nothing judges the answer to case {}, of which nothing is expected; name that column or key `expected`, or give \
         --grade COMMAND",
        case.case.id
    )))
}

/// Refuses a plan that the command line makes senseless.
fn check_plan(wanted: &FlowEvalArgs, suites: &[PlannedSuite<'_>]) -> Result<()> {
    if wanted.words.is_some() {
        check_judged(suites)?;
    }
    let mut alone = suites.iter().filter(|it| it.settings.len() == 1);
    match alone.next() {
        Some(alone) if wanted.require_higher && wanted.against.is_none() => {
            Err(Error::usage(format!(
                "--require higher: suite {:?} has one setting, which is compared with nothing; add --against, or a setting",
                alone.suite.name
            )))
        }
        _ => Ok(()),
    }
}

/// Makes the agent of `--against`, which is called `word` there, the first setting of a suite.
fn add_baseline(suite: &mut Suite, against: &Against, word: &str) -> Result<()> {
    let refused = |why: &str| Err(Error::usage(format!("--against {word}: {why}")));
    let Target::Agent(target) = &suite.target else {
        return refused(
            "there is no such result, and what is measured is no agent of which there is a revision",
        );
    };
    if suite.settings.iter().any(|setting| setting.name == word) {
        return refused("there is a setting of this name; the first one is compared with anyway");
    }
    let first = &suite.settings[0];
    let agent = first.agent.as_ref().unwrap_or(target);
    let baseline = Setting {
        name: word.to_owned(),
        agent: against.agent_beside(&agent.word).map(|found| AgentWord {
            word: found,
            name: word.to_owned(),
        }),
        set: first.set.clone(),
    };
    suite.settings.insert(0, baseline);
    Ok(())
}

/// The directory of an agent: of a name or a file, which `delta` finds, or as it was at a revision.
fn find_agent(signals: &Signals, agent: &AgentWord) -> Result<AgentDir> {
    let word = &agent.word;
    let mut dir = PathBuf::from(word);
    if word.starts_with('@') || dir.is_file() {
        dir = find_named(signals, word)?;
    } else if !dir.exists() {
        let unknown = || {
            let ways = "name a directory, @NAME, or DIR@REVISION";
            Error::config(format!("there is no agent {}; {ways}", agent.name))
        };
        let (path, revision) = split_revision(word).ok_or_else(unknown)?;
        let exported = export(signals, Path::new(path), revision)?;
        if !exported.dir.is_file() {
            return Ok(exported);
        }
        dir = find_named(signals, &exported.dir.display().to_string())?;
    }
    let dir = dir.canonicalize().unwrap_or(dir);
    Ok(AgentDir {
        today: dir.clone(),
        dir,
    })
}

/// The directory of an agent with a name, or of one that is a file.
fn find_named(signals: &Signals, word: &str) -> Result<PathBuf> {
    let program = own_program();
    let here = Path::new(".");
    let question = Question {
        signals,
        name: "delta check",
        argv: &[&*program, "check", "--format", "json", word].map(str::to_owned),
        dir: here,
        env: &[],
        stdin: b"",
        limit: LARGEST_INPUT,
    };
    let reply = question.ask()?;
    let printed = files::read_limited(reply.answer, LARGEST_INPUT).at("read", here)?;
    let found: Value = json::read_or_default(&printed);
    match (
        found["home"].as_str(),
        reply.said.trim_start_matches("delta: "),
    ) {
        (Some(home), _) => Ok(home.into()),
        (None, "") => Err(Error::config(format!("delta check has not found {word}"))),
        (None, why) => Err(Error::config(why)),
    }
}
