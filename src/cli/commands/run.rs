//! `delta run`: begins a run, or resumes the one that the same command began before.

use crate::cli::agent_names::{FoundAgent, find_agent};
use crate::cli::args::{Common, RunArgs, run_args};
use crate::cli::message::GivenAgent;
use crate::cli::result;
use crate::config::agent::{Agent, ChainSource, Fallback, HookEvent, Llm};
use crate::config::environment::{ALLOW_HOSTS, Environment, MODEL, run_no_key_command};
use crate::config::lint::is_sandbox;
use crate::config::person;
use crate::config::tool::definition::{Tool, written_words};
use crate::engine::account::SpendingRules;
use crate::engine::run_context::depth;
use crate::engine::start_options::StartOptions;
use crate::error::{Error, Exit, Result, ignore};
use crate::record::own_workspaces::{self, workspaces_dir};
use crate::record::workspace::Workspace;
use crate::runs::decide::Decision;
use crate::runs::launch::{leaves_out_fallback, service_name};
use crate::runs::overrides::load_with_overrides;
use crate::runs::preflight::{
    check_budget, check_depth, heed_deadline, install_signals, read_environment,
};
use crate::runs::preview;
use crate::runs::run_request::{RunRequest, Site};
use crate::runs::task::{GivenMessage, GivenPart, Task};
use crate::text::ids::RunId;
use crate::text::json;
use crate::text::options::parse::ParsedCommand;
use crate::text::shell::shell_quoted;
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, Tone, has_person, print_json};
use crate::unix::typed::{Reply, discard_typed, read_line};
use crate::unix::unread_stdin::{self, Remedy, is_stdin};
use serde_json::Map;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

pub(crate) fn run_agent(given: &ParsedCommand) -> Result<Exit> {
    let wanted = &run_args(given)?;
    let common = &wanted.common;
    if wanted.dry {
        return with_request(wanted, |request, found| print_preview(&request, found));
    }
    let done = with_request(wanted, |request, _| {
        unread_stdin::check()?;
        request.execute(&|| choose_site(request.agent, &request.signals))
    });
    unread_stdin::warn();
    result::print_outcome(done, common, true)
}

/// Watches the standard input, if this command does not read it; `command` is how it would.
pub(super) fn watch_stdin(common: &Common, command: &'static str) -> Result<()> {
    let is_stdin = |part: &GivenPart| match part {
        GivenPart::Stdin => true,
        GivenPart::File(path) => is_stdin(path),
        GivenPart::Text(_) => false,
    };
    let is_read = common.options.interactive || common.message.iter().any(is_stdin);
    let option = "-m -";
    unread_stdin::watch(is_read, Remedy { command, option })
}

/// Reads what the request needs, before anything is created.
fn with_request<T>(
    wanted: &RunArgs,
    act: impl FnOnce(RunRequest<'_>, &FoundAgent) -> Result<T>,
) -> Result<T> {
    let common = &wanted.common;
    watch_stdin(common, "delta run -")?;
    check_depth()?;
    let signals = install_signals()?;
    heed_deadline(&signals, common.deadline)?;
    let options = &common.options;
    if wanted.agent == GivenAgent::Here && !has_agent_here() {
        return Err(Error::config(match common.message.is_empty() {
            true => {
                "nothing to do: there is no agent here whose run could be resumed; a task for @coder follows run, as in `delta run 'fix the failing test'`"
            }
            false => {
                "there is no agent in the current directory (no agent.yaml), and -m and -f alone are for that one; \
                 name an agent: `delta run @coder …`"
            }
        }));
    }
    let found = find_agent(&wanted.agent)?;
    let is_named = found.works_here;
    let task = Task::read(&common.message, &signals)?;
    let (mut agent, set) =
        load_with_overrides(&found.home, Map::new(), &options.set, options.screen)?;
    agent.show_text(options.has_deltas());
    let options = &asking_options(common, &agent, is_named);
    // What is missing is reported before anything is created; without a model, that is the model.
    if agent.llm.has_model() {
        check_budget(&agent, options.budget)?;
    }
    let run_id = common.run_id.as_deref().map(RunId::parse);
    let here = found.works_here.then_some(Path::new("."));
    let request = RunRequest {
        agent: &agent,
        set: &set,
        task: task.as_ref(),
        work_dir: common.work_dir.as_deref().or(here),
        run_id: run_id.transpose().map_err(Error::usage)?,
        new: wanted.new,
        retry_failed: wanted.retry_failed,
        adopt: common.adopt,
        yes: wanted.yes,
        options,
        signals,
    };
    warn_of_own_files(&agent, request.work_dir, options.screen);
    act(request, &found)
}

/// True if a named agent asks the person at the terminal, unless its hook reports questions.
pub(super) fn may_ask(common: &Common, is_named: bool) -> bool {
    common.asks_if_named && is_named && depth().0 == 0 && has_person()
}

/// The options of a start. A named agent asks the person at the terminal, unless its hook reports questions.
pub(super) fn asking_options(common: &Common, agent: &Agent, is_named: bool) -> StartOptions {
    let is_reported = || {
        agent
            .hooks
            .iter()
            .any(|hook| hook.event == HookEvent::OnQuestion)
    };
    let asks = || may_ask(common, is_named) && !is_reported();
    StartOptions {
        interactive: common.options.interactive || asks(),
        ..common.options.clone()
    }
}

/// True if the current directory has the files of an agent, or of an old one.
fn has_agent_here() -> bool {
    ["agent.yaml", "config.yaml"]
        .iter()
        .any(|name| Path::new(name).exists())
}

/// Warns of a workspace in which the person's own settings lie, if the agent's tools could change them: `delta sandbox`
/// keeps them from it.
pub(crate) fn warn_of_own_files(agent: &Agent, work_dir: Option<&Path>, screen: Screen) {
    let is_confined = |tool: &Tool| {
        let wrapper = tool.wrapper.as_ref().unwrap_or(&agent.wrapper);
        is_sandbox(&written_words(wrapper))
    };
    let can_write = !agent.tools.iter().all(is_confined);
    if let (Some(dir), Some(own)) = (work_dir, person::config_dir())
        && can_write
        && person::lies_in(dir)
    {
        screen.warn(&format!(
            "warning: {} is inside the workspace: what tools write there decides over later runs",
            own.display()
        ));
    }
}

/// Prints the request that the command would send first, and where its settings come from.
fn print_preview(request: &RunRequest<'_>, found_agent: &FoundAgent) -> Result<Exit> {
    run_no_key_command();
    let (workspace, found, decision) = request.decide_only()?;
    let screen = request.options.screen;
    let about = (Arc::clone(&request.signals), screen);
    let resumed = match (decision, &found) {
        (Decision::Resume, Some(found)) => Some(request.agent_of(found)?.0),
        _ => None,
    };
    let is_resumed = resumed.is_some();
    let mut agent = resumed.unwrap_or_else(|| request.agent.clone());
    let environment = read_environment(&mut agent, Some(&workspace), screen);
    let agent = &agent;
    let choice = &agent.llm.api_choice;
    let has_api = choice.given.is_some() || !choice.reason.is_empty();
    if let Err(error) = &environment {
        if !has_api {
            return environment.map(|_| Exit::Success);
        }
        screen.warn(&format!("warning: {error}"));
    }
    let environment = environment.ok().map(|mut environment| {
        environment.allow_hosts(&request.options.doors);
        environment
    });
    let resumed_run = found.as_ref().filter(|_| is_resumed);
    let window = preview::window_in_words(agent, environment.as_ref(), resumed_run);
    let source = &found_agent.source;
    let all = settings(request, agent, source, &workspace, environment.as_ref());
    for (name, value) in all.into_iter().chain(window.map(|it| ("window", it))) {
        screen.progress(&[(Tone::Dim, &format!("{name:<10} ")), (Tone::Said, &value)]);
    }
    let bytes = match (decision, found) {
        (Decision::Resume, Some(found)) => {
            if !screen.quiet {
                screen.warn(&format!("run {} would be resumed", found.run.id));
            }
            say_what_binds(agent, request)?;
            preview::next_request(agent, &workspace, &found, found.source(), None, about)?
        }
        (Decision::Busy, Some(found)) => return Err(found.busy()),
        (Decision::Reprint, Some(found)) => {
            return Err(Error::failure(format!(
                "run {} is {}: nothing would be sent",
                found.run.id,
                found.metadata.status.name()
            )));
        }
        (_, found) => {
            let recorded = found.and_then(|found| found.metadata.initial_message);
            let said = request.task.map(Task::message).transpose()?;
            let message = said.or(recorded.map(|text| GivenMessage::of_text(&text)));
            say_what_binds(agent, request)?;
            preview::first_request(agent, &workspace, &message.unwrap_or_default(), about)?
        }
    };
    print_json(&bytes)?;
    Ok(Exit::Success)
}

/// Says on stderr which limits the run would have and what its answer would have to pass.
fn say_what_binds(agent: &Agent, request: &RunRequest<'_>) -> Result<()> {
    let acceptance = &agent.acceptance;
    let mut lines = Vec::new();
    if let Some(schema) = &acceptance.schema {
        lines.push(format!("output_schema: {}", schema.name));
    }
    for accept in &acceptance.commands {
        let words = shell_quoted(&written_words(&accept.command));
        lines.push(format!("accept: {words}"));
    }
    if acceptance.has_checks() {
        lines.push(format!("repairs: {}", acceptance.repairs));
    }
    let budget = SpendingRules::of(agent, request.options.budget)?.budget;
    if budget.has_limit() {
        lines.push(format!("budget: {}", json::text(&budget.record_keys())));
    }
    if let Some(deadline) = request.signals.deadline() {
        lines.push(format!("deadline: {deadline}"));
    }
    let screen = request.options.screen;
    for line in lines.iter().filter(|_| !screen.quiet) {
        screen.warn(line);
    }
    Ok(())
}

/// The settings of a run, each with its source.
fn settings(
    request: &RunRequest<'_>,
    agent: &Agent,
    agent_source: &str,
    workspace: &Workspace,
    environment: Option<&Environment>,
) -> Vec<(&'static str, String)> {
    let llm = &agent.llm;
    let is_set = |key: &str| request.set.contains_key(key);
    let file = |key| {
        if is_set(key) {
            "the command line"
        } else {
            "agent.yaml"
        }
    };
    let home = agent.home.display();
    let mut all = vec![
        ("agent", format!("{}, {home} ({agent_source})", agent.name)),
        ("workspace", workspace.root.display().to_string()),
    ];
    let known = request.agent.llm.model.as_ref();
    all.push(("model", model_setting(llm, known, file)));
    if llm.command.is_none() {
        let source = match llm.api_choice.given {
            Some(_) => file("llm.api"),
            None => &llm.api_choice.reason,
        };
        all.push(("api", format!("{} ({source})", llm.api.name())));
    }
    if llm.command.is_none()
        && let Some(environment) = environment
        && let Ok(endpoint) = environment.endpoint(llm.api, llm.base_url.as_deref(), &llm.headers)
    {
        let source = match &llm.base_url {
            Some(_) => file("llm.base_url").to_owned(),
            None => environment
                .endpoint_source(llm.api)
                .unwrap_or_else(|| "the default".to_owned()),
        };
        all.push(("endpoint", format!("{} ({source})", endpoint.shown())));
        all.push((
            "key",
            endpoint.key_source.unwrap_or_else(|| "none".to_owned()),
        ));
    }
    if let Some(environment) = environment {
        all.extend(fallbacks(agent, environment));
        let source = if environment.has_given_hosts() {
            "the command line"
        } else {
            ALLOW_HOSTS
        };
        let open = Some(environment.allowed_hosts()).filter(|hosts| !hosts.is_empty());
        all.extend(open.map(|hosts| ("open", format!("{} ({source})", shell_quoted(&hosts)))));
    }
    all
}

/// The model and its source; `known` is what the agent has without the run's record.
fn model_setting(
    llm: &Llm,
    known: Option<&String>,
    file: impl Fn(&'static str) -> &'static str,
) -> String {
    match (&llm.command, &llm.model) {
        (Some(command), _) => {
            let words = shell_quoted(&written_words(command));
            format!("{words} ({})", file("llm.command"))
        }
        (None, None) => "none".to_owned(),
        (None, Some(model)) if llm.is_from_environment => {
            let place = person::variable(MODEL).ok().flatten();
            format!("{model} ({})", place.unwrap_or_default().1)
        }
        (None, model) if known != model.as_ref() => {
            format!(
                "{} (the run's record)",
                model.as_deref().unwrap_or_default()
            )
        }
        (None, Some(model)) => format!("{model} ({})", file("llm.model")),
    }
}

/// The models that would be asked in place of the first, with what is against it.
fn fallbacks(agent: &Agent, environment: &Environment) -> Vec<(&'static str, String)> {
    let is_given = agent.llm.chain == ChainSource::CommandLine;
    let is_left_out = !is_given && leaves_out_fallback(agent, environment);
    let each = agent.llm.fallback.iter();
    let described = each.map(|entry| {
        let Fallback { llm, after, .. } = entry;
        let name = match &llm.command {
            Some(command) => command
                .first()
                .map_or_else(String::new, |word| word.written(|_| "")),
            None => service_name(llm, llm.base_url.as_deref()),
        };
        let after: Vec<&str> = after.iter().map(|how| how.name()).collect();
        let key = match environment.fallback_endpoint(entry, &agent.llm) {
            _ if llm.command.is_some() => String::new(),
            Ok(endpoint) => endpoint
                .key_source
                .map_or_else(String::new, |key| format!(", {key}")),
            Err(error) => format!(", skipped: {error}"),
        };
        let left_out = if is_left_out {
            ", left out: the environment chooses the model"
        } else {
            ""
        };
        let text = format!("{name} (after {}{key}{left_out})", after.join(", "));
        ("fallback", text)
    });
    described.collect()
}

/// Lets a person at the terminal choose one of the agent's workspaces; without one, the next is taken.
pub(crate) fn choose_site(agent: &Agent, signals: &Signals) -> Result<Site> {
    let names = own_workspaces::numbered(&agent.home)?;
    let has_person = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if names.is_empty() || !has_person {
        return Ok(Site::Next);
    }
    let last = own_workspaces::last_used(&agent.home);
    let default = last.clone().unwrap_or_else(|| "new".to_owned());
    let mut text = String::from("workspaces:\n");
    for name in &names {
        let mark = if last.as_ref() == Some(name) {
            " (used last)"
        } else {
            ""
        };
        text.push_str(&format!("  {name}{mark}\n"));
    }
    text.push_str("  new\n");
    let mut stderr = std::io::stderr();
    discard_typed(signals);
    loop {
        ignore(stderr.write_all(format!("{text}which one? [{default}] ").as_bytes()));
        let line = match read_line(signals) {
            Ok(Reply::Answer(line)) => line,
            Ok(Reply::Stopped(stop)) => {
                ignore(stderr.write_all(b"\n"));
                let message = format!("no workspace chosen: ended by {}", stop.name());
                return Err(Error::new(stop.into(), message));
            }
            Ok(Reply::NobodyThere) | Err(_) => {
                ignore(stderr.write_all(b"\n"));
                return Err(Error::usage(
                    "no workspace chosen; give one with -w DIR, or -y for a new one",
                ));
            }
        };
        let choice = match line.trim() {
            "" => default.as_str(),
            other => other,
        };
        let number = choice.parse::<usize>().ok().map(|n| format!("W{n:03}"));
        if choice.eq_ignore_ascii_case("new") {
            return Ok(Site::Next);
        }
        let wanted = number.as_deref().unwrap_or(choice);
        if let Some(name) = names.iter().find(|name| name.eq_ignore_ascii_case(wanted)) {
            return Workspace::at(&workspaces_dir(&agent.home).join(name)).map(Site::At);
        }
        text = format!("there is no {choice}; ");
    }
}
