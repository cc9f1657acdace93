//! `delta mcp`: the tools of MCP servers as commands.

mod from;
mod task;

use crate::cli::args::McpArgs;
use crate::error::{Error, Exit, Result};
use crate::mcp::client::Client;
use crate::mcp::content::read_result;
use crate::mcp::module::{
    ImportedTool, argument_headers, changes, import_tools, let_end_later, read_module,
    usable_tools, write_module,
};
use crate::mcp::protocol::Revision;
use crate::mcp::servers::{
    FILE, Given, Launch, Reach, Server, is_name, read_servers, write_server,
};
use crate::mcp::task::is_task;
use crate::runs::preflight::install_signals;
use crate::runs::task::read_stdin;
use crate::text::amounts::counted;
use crate::text::disguise::printable;
use crate::text::json;
use crate::text::shorten::in_short;
use crate::text::suggestion::nearest;
use crate::unix::files;
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, Tone, print};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The limit of time for a call, in seconds.
const CALL_TIME: u64 = 600;

pub(crate) fn run_command(wanted: McpArgs) -> Result<u8> {
    let session = McpCommand {
        home: find_home(wanted.agent.clone())?,
        signals: install_signals()?,
        screen: Screen::new(false, false),
    };
    match wanted.action.as_str() {
        "list" => session.list(wanted).map(Exit::code),
        "import" => session.import(wanted).map(Exit::code),
        "check" => session.check(&wanted.words).map(Exit::code),
        "task" => session.look_at_task(&wanted.words),
        _ => session.call(&wanted),
    }
}

/// The agent whose servers are meant: the given one, that of the run whose tool this is, or the one here.
fn find_home(given: Option<PathBuf>) -> Result<PathBuf> {
    let calling = || std::env::var_os("DELTA_AGENT_HOME").filter(|home| !home.is_empty());
    let home = given.or_else(|| calling().map(PathBuf::from));
    files::absolute(&home.unwrap_or_else(|| PathBuf::from(".")))
}

/// The tools of a server that can be used, the revision that it speaks, what else it offers, and whether its calls may
/// become tasks.
type ListedTools = (Vec<Map<String, Value>>, Revision, Vec<String>, bool);

struct McpCommand {
    home: PathBuf,
    signals: Arc<Signals>,
    screen: Screen,
}

impl McpCommand {
    fn connect(
        &self,
        server: &Server,
        dir: impl Into<PathBuf>,
        pinned: Option<Revision>,
    ) -> Result<Client<'_>> {
        let launch = Launch {
            server: server.clone(),
            home: self.home.clone(),
            dir: dir.into(),
            signals: &self.signals,
        };
        Client::connect(launch, pinned)
    }

    fn note(&self, text: &str) {
        self.screen.progress(&[(Tone::Dim, text)]);
    }

    fn list(&self, wanted: McpArgs) -> Result<Exit> {
        let server = given_server("server", wanted)?.ok_or_else(|| {
            Error::usage("mcp list needs the server's command after --, or --url URL")
        })?;
        let (listed, revision, ..) = self.list_tools(&server, Path::new("."))?;
        for tool in &listed {
            let text = |key: &str| tool.get(key).and_then(Value::as_str).unwrap_or_default();
            print(line_of(text("name"), text("description")))?;
        }
        let count = counted(listed.len(), "tool");
        self.note(&format!("{count}, revision {}", revision.name()));
        Ok(Exit::Success)
    }

    /// A warning names each tool that cannot be used.
    fn list_tools(&self, server: &Server, home: &Path) -> Result<ListedTools> {
        let mut client = self.connect(server, home, None)?;
        let listed = client.list_tools();
        let (revision, offers) = (client.revision, std::mem::take(&mut client.other_offers));
        let has_tasks = client.offers_tasks && server.keeps_tasks();
        client.close();
        let (listed, cut) = listed?;
        let (listed, left_out) = usable_tools(&listed);
        for warning in cut.iter().chain(&left_out) {
            self.screen.warn(&printable(warning));
        }
        Ok((
            listed,
            revision,
            offers,
            has_tasks && revision == Revision::Modern,
        ))
    }

    fn import(&self, mut wanted: McpArgs) -> Result<Exit> {
        if let Some(file) = wanted.from.take() {
            return self.import_from(&file, &wanted);
        }
        if wanted.words.is_empty() {
            return Err(Error::usage(
                "mcp import needs NAME, and for a new server its command after --, or --url URL",
            ));
        }
        let name = wanted.words.remove(0);
        if !is_name(&name) {
            let message = "1 to 40 letters, digits, '_' and '-' make a server's name";
            return Err(Error::usage(format!("mcp import: {name:?}: {message}")));
        }
        self.check_home()?;
        // Read also where it is not needed: what cannot be read is not to be written to.
        let known = read_servers(&self.home)?;
        let only = std::mem::take(&mut wanted.only);
        let given = given_server(&name, wanted)?;
        let server = match &given {
            Some(server) => server,
            None => find_server(&known, &name)?,
        };
        // What was chosen stays chosen.
        let only = match read_module(&self.home, &name) {
            Ok(Some(module)) if only.is_empty() && given.is_none() => module.only,
            _ => only,
        };
        self.pin(server, given.is_some(), &only)?;
        Ok(Exit::Success)
    }

    /// Writes the tools of a server, and the server if it is new.
    fn pin(&self, server: &Server, is_new: bool, only: &[String]) -> Result<()> {
        let name = &server.name;
        let (listed, revision, offers, has_tasks) = self.list_tools(server, &self.home)?;
        let own =
            |tool: &Map<String, Value>| tool.get("name").and_then(Value::as_str).map(str::to_owned);
        let names: Vec<String> = listed.iter().filter_map(own).collect();
        if let Some(missing) = only.iter().find(|tool| !names.contains(tool)) {
            let meant = nearest(missing, names.iter().map(String::as_str));
            let hint = meant.map_or(String::new(), |meant| format!("; did you mean {meant:?}?"));
            let message = format!("{name} has no usable tool {missing:?}{hint}");
            return Err(Error::failure(message));
        }
        let tools = imported(name, &listed, only, has_tasks);
        if !offers.is_empty() {
            let offers = offers.join(", ");
            self.note(&format!(
                "the server offers more than tools ({offers}); what it keeps in its process between \
                 calls is lost, because each call is a process of its own"
            ));
        }
        if is_new {
            write_server(&self.home, server)?;
        }
        let path = write_module(&self.home, server, revision, only, &tools)?;
        print(review_of(&tools))?;
        self.note(&format!(
            "{} of revision {} in {}; review it, and add ./tools/mcp-{name}.yaml to imports: in agent.yaml",
            counted(tools.len(), "tool"),
            revision.name(),
            path.display()
        ));
        Ok(())
    }

    /// Fails where no agent is.
    fn check_home(&self) -> Result<()> {
        if self.home.join("agent.yaml").is_file() {
            return Ok(());
        }
        let home = self.home.display();
        Err(Error::config(format!(
            "{home} has no agent.yaml; name the agent with -a"
        )))
    }

    fn check(&self, names: &[String]) -> Result<Exit> {
        self.check_home()?;
        let known = read_servers(&self.home)?;
        if known.is_empty() && names.is_empty() {
            self.note("the agent has no servers: there is no mcp.yaml, or nothing in it");
        }
        let chosen: Vec<&Server> = match names {
            [] => known.iter().collect(),
            names => names
                .iter()
                .map(|name| find_server(&known, name))
                .collect::<Result<_>>()?,
        };
        let mut exit = Exit::Success;
        for server in chosen {
            let Some(module) = read_module(&self.home, &server.name)? else {
                return Err(not_imported(&server.name));
            };
            let (listed, revision, _, has_tasks) = self.list_tools(server, &self.home)?;
            let tools = imported(&server.name, &listed, &module.only, has_tasks);
            let mut lines = changes(&module.tools, &tools);
            if revision != module.revision {
                let (before, now) = (module.revision.name(), revision.name());
                lines.push(format!("revision: {before} was imported, {now} is spoken"));
            }
            if !lines.is_empty() {
                exit = Exit::Failure;
                print(format!("{}\n", lines.join("\n")))?;
                let name = &server.name;
                self.note(&format!(
                    "{name}: delta mcp import {name} pins the server as it is now"
                ));
            }
        }
        Ok(exit)
    }

    fn call(&self, wanted: &McpArgs) -> Result<u8> {
        let [name, tool] = wanted.words.as_slice() else {
            return Err(Error::usage(
                "mcp call needs NAME and TOOL, and the arguments as a JSON object on stdin",
            ));
        };
        let known = read_servers(&self.home)?;
        let server = find_server(&known, name)?;
        let module = read_module(&self.home, name)?.ok_or_else(|| not_imported(name))?;
        let is_called = |entry: &&Value| {
            let words = entry.get("command").and_then(Value::as_array);
            words.and_then(|words| words.last()).and_then(Value::as_str) == Some(tool)
        };
        let entry = module.tools.values().find(is_called).ok_or_else(|| {
            Error::config(format!("{name} has no tool {tool:?} in its module; import it again: delta mcp import {name}"))
        })?;
        let text = read_stdin("arguments", &self.signals)?;
        let arguments = arguments_of(&text)?;
        let headers = match &server.reach {
            Reach::Command(_) => Vec::new(),
            Reach::Url(_) => argument_headers(entry, &arguments)?,
        };
        let mut client = self.connect(server, ".", Some(module.revision))?;
        client.call_headers = headers;
        client.declares_tasks = module.tasks && server.keeps_tasks();
        let seconds = wanted.timeout.unwrap_or(CALL_TIME);
        let limit = (seconds > 0).then(|| Duration::from_secs(seconds));
        let result = client.call_tool(tool, &arguments, limit);
        let begun = match &result {
            Ok(task) if client.declares_tasks && is_task(task) => {
                Some(self.begin_task(&mut client, task, wanted.json))
            }
            _ => None,
        };
        let (spoken, secrets) = (client.revision, client.secrets());
        client.close();
        let pinned = server.revision.unwrap_or(module.revision);
        if spoken != pinned {
            self.screen.warn(&format!(
                "the server no longer speaks revision {}; see delta mcp check {name}",
                pinned.name()
            ));
        }
        if let Some(begun) = begun {
            return begun;
        }
        let output = read_result(&result?, wanted.json, secrets)?;
        print_text(&output.text)?;
        Ok(u8::from(output.is_error))
    }
}

/// The arguments of a call, on one line; an empty text is no arguments.
fn arguments_of(text: &[u8]) -> Result<String> {
    let wrong = |why: &str| Error::usage(format!("mcp call: the arguments on stdin are not {why}"));
    let text = std::str::from_utf8(json::without_mark(text))
        .map_err(|_| wrong("UTF-8"))?
        .trim();
    if text.is_empty() {
        return Ok("{}".to_owned());
    }
    json::check(text).map_err(|e| wrong(&format!("JSON: {}", json::parser_message(&e))))?;
    if !text.starts_with('{') {
        return Err(wrong("a JSON object"));
    }
    Ok(json::one_line(text))
}

/// The chosen tools of a server's list, or all, as entries of a module.
fn imported(
    server: &str,
    listed: &[Map<String, Value>],
    only: &[String],
    has_tasks: bool,
) -> Vec<ImportedTool> {
    let is_chosen = |tool: &ImportedTool| {
        let own = tool.entry["command"]
            .as_array()
            .and_then(|words| words.last());
        only.is_empty() || own.is_some_and(|own| only.iter().any(|it| own == it))
    };
    let mut tools = import_tools(server, listed);
    tools.retain(is_chosen);
    if has_tasks {
        let_end_later(server, &mut tools);
    }
    tools
}

/// Prints the text of a result, which ends with a newline.
fn print_text(text: &str) -> Result<()> {
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    print(format!("{text}{end}"))
}

/// The server that the command line describes, if it does.
fn given_server(name: &str, wanted: McpArgs) -> Result<Option<Server>> {
    let reach = match (wanted.url, wanted.words) {
        (Some(_), words) if !words.is_empty() => {
            return Err(Error::usage("mcp: give a command or --url, not both"));
        }
        (Some(url), _) => Reach::Url(url),
        (None, words) if words.is_empty() => {
            if !wanted.env.is_empty() || wanted.bearer_env.is_some() {
                return Err(Error::usage(
                    "mcp: --env and --bearer-env need the server's command or --url",
                ));
            }
            return Ok(None);
        }
        (None, words) => Reach::Command(words),
    };
    if wanted.bearer_env.is_some() && matches!(reach, Reach::Command(_)) {
        return Err(Error::usage(
            "mcp: --bearer-env needs --url; use --env with a command",
        ));
    }
    Ok(Some(Server {
        env: (wanted.env.into_iter())
            .map(|name| (name.clone(), Given::Variable(name)))
            .collect(),
        bearer_env: wanted.bearer_env,
        ..Server::new(name, reach)
    }))
}

fn find_server<'k>(known: &'k [Server], name: &str) -> Result<&'k Server> {
    known
        .iter()
        .find(|server| server.name == name)
        .ok_or_else(|| {
            let meant = nearest(name, known.iter().map(|server| server.name.as_str()));
            let hint = match meant {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => format!("add it: delta mcp import {name} -- COMMAND…, or --url URL"),
            };
            Error::config(format!("{FILE} has no server {name:?}; {hint}"))
        })
}

fn not_imported(name: &str) -> Error {
    Error::config(format!(
        "{name} has not been imported: delta mcp import {name}"
    ))
}

/// The text that a person reviews: each tool with its description, its parameters and the server's hints.
fn review_of(tools: &[ImportedTool]) -> String {
    let mut text = String::new();
    for ImportedTool { entry, hints } in tools {
        let string = |key: &str| json::member_text(entry, key);
        text += &line_of(string("name"), string("description"));
        let properties = entry["input_schema"]
            .get("properties")
            .and_then(Value::as_object);
        let names: Vec<&str> = properties
            .into_iter()
            .flat_map(serde_json::Map::keys)
            .map(String::as_str)
            .collect();
        if !names.is_empty() {
            text += &format!("    parameters: {}\n", printable(&names.join(", ")));
        }
        if !hints.is_empty() {
            text += &format!(
                "    claimed by the server: {}\n",
                printable(&hints.join(", "))
            );
        }
    }
    text
}

fn line_of(name: &str, description: &str) -> String {
    let line = description
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty());
    match line {
        Some(line) => format!("{}  {}\n", printable(name), printable(&in_short(line, 100))),
        None => format!("{}\n", printable(name)),
    }
}
