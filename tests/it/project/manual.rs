//! The manual, the help texts and the program say the same.

use crate::harness::*;
use delta_engine::cli::args::COMMANDS;
use delta_engine::config::agent::HookEvent;
use delta_engine::record::metadata::Metadata;
use delta_engine::record::stop_reason::StopReason;
use delta_engine::text::manual::{PAGES, Page};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn source(name: &str) -> String {
    let path = root().join("src").join(name);
    let text = std::fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.to_owned()
}

/// What `delta ARGS` prints.
fn printed(args: &[&str]) -> String {
    let world = World::new();
    let outcome = world.delta(args.iter().copied()).exits(0);
    assert_eq!(outcome.stderr, "");
    String::from_utf8(outcome.stdout).unwrap()
}

fn page(name: &str) -> &'static str {
    let page = PAGES.iter().find(|page| page.name == name);
    page.unwrap_or_else(|| panic!("no page {name}")).text()
}

/// Long options as `--name` and short ones as `-n`, of the lines that begin with an option.
fn options(text: &str) -> BTreeSet<String> {
    let headers = text
        .lines()
        .filter(|line| line.trim_start().starts_with('-'));
    let words = headers.flat_map(|line| line.trim_start().split("  ").take(1));
    let words = words.flat_map(|header| header.split([',', ' ', '|', '=']));
    words
        .filter(|word| word.starts_with('-') && word.len() > 1)
        .map(str::to_owned)
        .collect()
}

/// The options of `-h`. A short option stands before its long one there.
fn options_in_help(command: &str) -> BTreeSet<String> {
    match command {
        "" => options(&printed(&["-h"])),
        command => options(&printed(&[command, "-h"])),
    }
}

/// The part of a page under a heading.
fn section<'p>(text: &'p str, heading: &str) -> &'p str {
    let start = text.find(&format!("\n{heading}\n"));
    let start = start.unwrap_or_else(|| panic!("no section {heading}")) + heading.len() + 2;
    let is_heading = |line: &str| line.starts_with(|c: char| c.is_ascii_uppercase());
    let mut end = start;
    for line in text[start..].split_inclusive('\n') {
        if is_heading(line) {
            break;
        }
        end += line.len();
    }
    &text[start..end]
}

/// What is between double quotes, in order.
fn strings(code: &str) -> Vec<String> {
    let lines = code.lines().map(|line| match line.find("//") {
        Some(at) if !line[..at].contains('"') => &line[..at],
        _ => line,
    });
    let code = lines.collect::<Vec<_>>().join("\n");
    code.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// A list of words in the source: what `const NAME` or the like is followed by in brackets.
fn list_after(code: &str, beginning: &str) -> Vec<String> {
    let at = code.find(beginning);
    let at = at.unwrap_or_else(|| panic!("no {beginning} in the source"));
    let value = code[at..].split_once('=').unwrap().1;
    strings(value.split_once(';').unwrap().0)
}

fn is_variable(word: &str) -> bool {
    word.len() > 2
        && word.starts_with(|c: char| c.is_ascii_uppercase())
        && word
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// The page in section 5.
fn page_of_files(name: &str) -> &'static str {
    let page = PAGES
        .iter()
        .find(|page| (page.name, page.section) == (name, 5));
    page.unwrap().text()
}

#[track_caller]
fn has_words(name: &str, words: impl IntoIterator<Item = String>) {
    has_words_in(page(name), words);
}

#[track_caller]
fn has_words_in(text: &str, words: impl IntoIterator<Item = String>) {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let known: BTreeSet<&str> = text
        .split(|c: char| !is_part(c))
        .map(|word| word.trim_end_matches('-'))
        .collect();
    let missing: Vec<String> = words
        .into_iter()
        .filter(|word| !known.contains(word.as_str()))
        .collect();
    assert!(missing.is_empty(), "{text} lacks {missing:?}");
}

#[test]
fn every_command_has_a_page_and_every_page_of_a_command_a_command() {
    for command in COMMANDS {
        assert_eq!(printed(&[command, "--help"]), page(command));
        assert_eq!(printed(&["help", command]), page(command));
        let line = format!("delta-{command}(1)");
        assert!(section(page("delta"), "COMMANDS").contains(&line), "{line}");
        let overview = printed(&["-h"]);
        let is_about = |line: &str| line.starts_with(&format!("  {command} "));
        assert!(overview.lines().any(is_about), "{command}: {overview}");
    }
    let commands = PAGES.iter().filter(|page| page.section == 1);
    for page in commands.filter(|page| page.name != "delta") {
        assert!(COMMANDS.contains(&page.name), "{}", page.name);
    }
}

#[test]
fn every_page_can_be_printed_and_is_listed() {
    let list = printed(&["help", "-a"]);
    for page in PAGES {
        let full = page.full_name();
        let with_section = format!("{full}.{}", page.section);
        let mut topics = vec![with_section.as_str()];
        // Of two pages with one name, the name alone means the first.
        let first = PAGES.iter().find(|other| other.name == page.name);
        if first.is_some_and(|first| first.section == page.section) {
            topics.extend([page.name, &full]);
        }
        for topic in topics {
            assert_eq!(printed(&["help", topic]), page.text(), "{topic}");
        }
        let line = format!("{full}({})", page.section);
        assert!(list.contains(&line), "{list}");
    }
    assert!(list.lines().all(|line| line.chars().count() < 80), "{list}");
    assert!(PAGES.is_sorted_by_key(|page| page.section), "{list}");
}

#[test]
fn who_gives_no_command_sees_the_everyday_ones_in_groups() {
    let groups = printed(&["help"]);
    let alone = World::unasked().delta([]).exits(2).prints("");
    assert_eq!(alone.stderr, groups);
    for group in ["work", "look", "set up", "measure", "connect"] {
        assert!(groups.contains(&format!("\n\n{group}\n  ")), "{groups}");
    }
    assert!(
        groups.contains("  chat       talk to an agent, line by line\n"),
        "{groups}"
    );
    assert!(groups.contains("delta help -a lists all"), "{groups}");
    let known: Vec<&str> = groups
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .collect();
    for line in known {
        let name = line.split(' ').next().unwrap();
        assert!(COMMANDS.contains(&name), "{line}");
    }
}

#[test]
fn at_a_terminal_a_page_goes_through_the_pager_unless_it_is_short() {
    if !is_installed("script") {
        eprintln!("skipped: script(1) is not installed");
        return;
    }
    let world = World::unasked();
    let at_terminal = |args: &str| {
        let delta = env!("CARGO_BIN_EXE_delta");
        let line = format!("stty rows 24 cols 80; PAGER='sed s/^/PAGED:/' exec '{delta}' {args}");
        let line = shlex::try_quote(&line).unwrap().into_owned();
        let script = format!("exec script -qefc {line} typescript");
        let outcome = world.delta([]).under(&["sh", "-c", &script]);
        outcome.exits(0);
        // Its first line tells the command.
        let typescript = world.read("typescript");
        let (_, shown) = typescript.split_once('\n').unwrap();
        shown.contains("PAGED:DELTA-") || shown.contains("PAGED:delta(1)")
    };
    for args in ["help run", "run --help", "help -a"] {
        assert!(at_terminal(args), "{args}");
    }
    for args in ["check -h", "help help | cat"] {
        assert!(!at_terminal(args), "{args}");
    }
}

#[test]
fn the_pages_of_commands_fit_into_80_columns() {
    for page in PAGES.iter().filter(|page| page.section == 1) {
        for line in page.text().lines() {
            assert!(line.chars().count() <= 80, "{}: {line}", page.name);
        }
    }
}

#[test]
fn every_page_that_is_referred_to_is_there_and_another_refers_to_each() {
    let mut named: BTreeSet<String> = BTreeSet::new();
    for page in PAGES {
        let own = format!("{}({})", page.full_name(), page.section);
        let words = page
            .text()
            .split(|c: char| c.is_whitespace() || ",;:.".contains(c));
        let words = words.filter(|word| word.starts_with("delta") && word.ends_with(')'));
        let words = words.filter(|word| word.contains('(') && **word != own);
        named.extend(words.map(|word| word.replace("))", ")")));
    }
    let there = PAGES
        .iter()
        .map(|page| format!("{}({})", page.full_name(), page.section));
    assert_eq!(named, there.collect());
}

#[test]
fn an_unknown_page_is_refused_with_the_nearest() {
    let world = World::new();
    let outcome = world.delta(["help", "agnet"]).end();
    outcome.refuses(2, "agnet").says("'agent'");
}

#[test]
fn words_that_are_no_page_are_searched_for() {
    let found = printed(&["help", "keep_requests"]);
    assert!(
        found.starts_with("delta-agent(5) keep_requests: How many"),
        "{found}"
    );
    assert!(
        found.contains("\ndelta-run(1) --set key=value: "),
        "{found}"
    );
    // In any case; several words are one question.
    assert_eq!(printed(&["help", "KEEP_REQUESTS"]), found);
    let found = printed(&["help", "stop", "a", "run"]);
    assert!(found.starts_with("delta-run(1) SIGNALS: "), "{found}");
    assert_eq!(printed(&["help", "stop a run"]), found);
    assert!(
        found.ends_with("`delta help run` prints the first page)\n"),
        "{found}"
    );
    // The name of a page only with -k.
    assert_eq!(printed(&["help", "sandbox"]), page("sandbox"));
    assert_eq!(printed(&["help", "list", "runs"]), page("list-runs"));
    let lines = printed(&["help", "-k", "sandbox"]);
    assert!(lines.starts_with("delta-sandbox(1): "), "{lines}");
    let world = World::new();
    world.delta(["help", "-k"]).refuses(2, "needs a word");
    world.delta(["help", "-k", "xyzzy"]).refuses(2, "xyzzy");
    world
        .delta(["help", "timeuot"])
        .refuses(2, "did you mean 'timeout'?");
}

#[test]
fn a_word_that_is_no_command_leads_to_the_manual() {
    let world = World::new();
    let hint = |word: &str, hint: &str| {
        let message = format!("delta: unknown command '{word}'; {hint}\n");
        assert_eq!(world.delta([word]).exits(2).stderr, message);
    };
    for word in ["stop", "kill", "terminate", "cancel"] {
        let task = "a task is given to `delta run`";
        hint(word, &format!("see `delta help {word}`; {task}"));
    }
    hint(
        "resume",
        "did you mean `delta continue`? See also `delta help resume`; a task is given to `delta run`",
    );
    // A misspelt command comes first.
    hint("modle", "did you mean 'model'?");
}

#[test]
fn no_page_is_wider_than_80_columns_and_long_ones_begin_with_their_sections() {
    for page in PAGES {
        let name = page.full_name();
        let wide: Vec<&str> = page
            .text()
            .lines()
            .filter(|it| it.chars().count() > 80)
            .collect();
        assert!(wide.is_empty(), "{name}: {wide:#?}");
        let headings = page.text().lines().filter(|line| {
            line.starts_with(|c: char| c.is_ascii_uppercase()) && !line.contains("  ")
        });
        let headings: Vec<&str> = headings.collect();
        let is_long = page.text().lines().count() > 200;
        assert_eq!(headings[0] == "SECTIONS", is_long, "{name}");
        if is_long {
            let listed = section(page.text(), "SECTIONS").replace('\n', " ");
            let listed: Vec<&str> = listed.split(", ").map(str::trim).collect();
            let listed: Vec<String> = listed
                .iter()
                .map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect();
            assert_eq!(listed, headings[1..], "{name}");
        }
    }
}

#[test]
fn every_file_of_the_manual_is_a_page() {
    let mut files: Vec<String> = Vec::new();
    for file in std::fs::read_dir(root().join("man")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        if name.ends_with(|c: char| c.is_ascii_digit()) {
            files.push(name);
        }
    }
    files.sort();
    let mut pages: Vec<String> = PAGES
        .iter()
        .map(|page| format!("{}.{}", page.full_name(), page.section))
        .collect();
    pages.sort();
    assert_eq!(files, pages);
}

#[test]
fn short_help_and_the_page_name_the_same_options() {
    for command in COMMANDS.into_iter().chain([""]) {
        let name = if command.is_empty() { "delta" } else { command };
        // Its page has the options of each of its commands there.
        if name == "sessions" {
            continue;
        }
        let in_page = options(section(page(name), "OPTIONS"));
        assert_eq!(options_in_help(command), in_page, "delta {command}");
    }
}

#[test]
fn the_age_that_the_short_help_of_list_runs_shows_is_accepted() {
    let help = printed(&["list-runs", "-h"]);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = help.split("or an age such as ").nth(1).unwrap();
    let age = words.split_whitespace().next().unwrap();
    let world = World::new();
    world
        .delta(["list-runs", "-r", ".", "--since", age])
        .exits(0);
}

#[test]
fn short_help_is_imperative_lines_under_80_columns() {
    for command in COMMANDS.into_iter().chain([""]) {
        let help = match command {
            "" => printed(&["-h"]),
            command => printed(&[command, "-h"]),
        };
        assert!(help.starts_with("usage: delta"), "{help}");
        for line in help.lines() {
            assert!(line.chars().count() < 80 && !line.ends_with(' '), "{line}");
        }
    }
}

#[test]
fn every_environment_variable_is_in_the_manual() {
    let of_hooks = ["engine/hooks.rs", "engine/run_loop/hook_points.rs"];
    let of_all = [
        "config/environment.rs",
        "config/environment/files.rs",
        "config/environment/programs.rs",
        "engine/run_context.rs",
        "unix/terminal.rs",
        "unix/pager.rs",
        "unix/procfs.rs",
    ];
    let variables = |files: &[&str]| -> BTreeSet<String> {
        let words = files.iter().flat_map(|file| strings(&source(file)));
        words.filter(|word| is_variable(word)).collect()
    };
    let named = variables(&of_all);
    for word in [
        "DELTA_API_KEY",
        "PATH",
        "DELTA_CALL_ID",
        "NO_COLOR",
        "RUN_DIR",
    ] {
        assert!(named.contains(word), "{word} not found in {named:?}");
    }
    let is_signal =
        |word: &String| word.starts_with("SIG") || word == "FAILED" || word == "SUCCESS";
    has_words("delta", named.into_iter().filter(|word| !is_signal(word)));
    let known = |word: &String| is_signal(word) || word == "WARN";
    has_words(
        "hooks",
        variables(&of_hooks).into_iter().filter(|word| !known(word)),
    );
    let mut everywhere: BTreeSet<String> = BTreeSet::new();
    for file in files_below(&root().join("src")) {
        let name = file
            .strip_prefix(root().join("src"))
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let words = strings(&source(&name)).into_iter();
        everywhere.extend(words.filter(|word| is_variable(word) && word.starts_with("DELTA_")));
    }
    let all: String = PAGES.iter().map(Page::text).collect();
    // Between delta-sessions and the script that it starts; taken out before the user's text runs.
    everywhere.remove("DELTA_SESSION_BOOT");
    for word in everywhere {
        assert!(all.contains(&word), "{word} is in no page");
    }
}

#[test]
fn every_exit_code_is_in_the_manual() {
    let code = source("error.rs");
    let body = code.split("enum Exit {").nth(1).unwrap();
    let body = body.split("\n}\n").next().unwrap();
    let numbers: Vec<&str> = body
        .lines()
        .filter_map(|line| line.strip_suffix(',')?.split_once(" = "))
        .map(|(_, number)| number)
        .collect();
    assert!(
        numbers.contains(&"0") && numbers.contains(&"143"),
        "{numbers:?}"
    );
    let table = section(page("delta"), "EXIT STATUS");
    let listed: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("     ")?.split("  ").next())
        .filter(|word| !word.is_empty())
        .collect();
    assert_eq!(listed, numbers);
}

/// The types of events in the journal of an agent's run, and those that only flows have.
fn event_kinds() -> [Vec<String>; 2] {
    let code = source("record/event.rs");
    let list = code.split("\nevent_types! {\n").nth(1).unwrap();
    let (of_all, of_flows) = list.split_once("\n    +\n").unwrap();
    [of_all, of_flows.split('}').next().unwrap()].map(strings)
}

/// The members that are written of the events that are declared in a file.
fn event_fields(file: &str) -> BTreeSet<String> {
    let code = source(file);
    let (_, tables) = code.split_once("\nevents! {\n").unwrap();
    let tables = tables.split("\n}\n").next().unwrap();
    let events = tables
        .split("\n    }\n")
        .map(|event| event.split("} + {").next().unwrap());
    events.flat_map(str::lines).filter_map(field).collect()
}

fn field(line: &str) -> Option<String> {
    let (name, _) = line.trim().trim_start_matches("pub ").split_once(": ")?;
    let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    // Members of these stand in the event itself.
    let is_group = ["reasoning_members", "tokens", "terms"].contains(&name);
    (is_name && !is_group).then(|| name.to_owned())
}

#[test]
fn every_event_and_every_field_is_in_the_manual() {
    let [kinds, _] = event_kinds();
    assert!(kinds.contains(&"THOUGHT".to_owned()), "{kinds:?}");
    for kind in &kinds {
        let heading = format!("\n   {kind}\n");
        assert!(page("journal").contains(&heading), "no section {kind}");
    }
    let code = source("record/event.rs");
    let usage = code.split("struct RecordedUsage<'a> {").nth(1).unwrap();
    let usage = usage.split('}').next().unwrap().lines();
    let mut fields: BTreeSet<String> = usage.filter_map(field).collect();
    for name in ["agent", "attachments", "compaction", "deferral", "files"] {
        fields.extend(event_fields(&format!("record/event/{name}.rs")));
    }
    for name in [
        "observation_content",
        "final_iteration",
        "wire",
        "of_last",
        "tokens_after",
        "handle",
    ] {
        assert!(fields.contains(name), "{name} not found in {fields:?}");
    }
    has_words("journal", fields);
    has_words("journal", list_after(&code, "const REASONING"));
}

#[test]
fn every_field_of_the_metadata_is_in_the_manual() {
    let metadata = serde_json::to_value(Metadata::default()).unwrap();
    let fields = metadata.as_object().unwrap();
    has_words("journal", fields.keys().cloned());
    let usage = fields["usage"].as_object().unwrap();
    has_words("journal", usage.keys().cloned());
}

#[test]
fn every_status_and_stop_reason_is_in_the_manual() {
    let mut words: Vec<String> = StopReason::ALL
        .map(|reason| reason.name().to_owned())
        .to_vec();
    let signals = source("unix/signals.rs");
    let signals = signals.split("enum Stop {").nth(1).unwrap();
    words.extend(strings(signals.split("\n    }\n").next().unwrap()));
    for word in ["final_answer", "seconds", "disk_full", "io_error", "SIGHUP"] {
        assert!(words.iter().any(|known| known == word), "{word}: {words:?}");
    }
    words.extend(["length", "content_filter"].map(str::to_owned));
    has_words("journal", words);
    let code = source("record/metadata.rs");
    let names = code.split("enum Status {").nth(1).unwrap();
    has_words("journal", strings(names.split("\n    }\n").next().unwrap()));
}

#[test]
fn every_key_of_an_agents_files_is_in_the_manual() {
    // The schema is made from the rows of the keys.
    let schema = World::new().delta(["schema", "agent"]).exits(0).object();
    let mappings = [
        "",
        "/properties/llm",
        "/properties/limits",
        "/properties/budget",
        "/$defs/pricing",
        "/$defs/tool",
        "/$defs/parameter",
    ];
    for at in mappings {
        let keys = schema.pointer(at).expect(at)["properties"].as_object();
        let keys = keys.expect(at).iter().filter(|(_, key)| {
            let is_sent_on = key["description"] == "Sent with the request.";
            key.is_object() && !is_sent_on
        });
        has_words("agent", keys.map(|(name, _)| name.clone()));
    }
    let keys = |code: &str| -> Vec<String> {
        let lists = code.split("unknown_keys(").skip(1);
        lists
            .flat_map(|list| strings(list.split(')').next().unwrap()))
            .collect()
    };
    let context = source("config/context.rs");
    assert!(keys(&context).contains(&"max_iterations".to_owned()));
    has_words("context", keys(&context));
    has_words("context", list_after(&context, "const KEYS"));
    has_words("hooks", keys(&source("config/hooks.rs")));
    has_words("hooks", HookEvent::ALL.map(|(name, _)| name.to_owned()));
}

#[test]
fn the_lists_of_a_page_name_nothing_that_is_not_so() {
    let tag = |line: &str| line.strip_prefix("     ").map(str::to_owned);
    let moments: Vec<String> = section(page("hooks"), "EVENTS")
        .lines()
        .filter_map(tag)
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    let mut events = HookEvent::ALL.map(|(name, _)| name.to_owned()).to_vec();
    events.sort();
    let mut sorted = moments.clone();
    sorted.sort();
    assert_eq!(sorted, events);

    let journal = section(page("journal"), "THE JOURNAL");
    let headings = journal.lines().filter_map(|line| line.strip_prefix("   "));
    let headings = headings.filter(|line| is_variable(line));
    let [kinds, _] = event_kinds();
    for heading in headings {
        assert!(kinds.contains(&heading.to_owned()), "{heading}");
    }
}

/// Whether a program is there.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

#[test]
fn the_pages_have_no_warnings_and_their_text_is_not_stale() {
    if !is_installed("mandoc") || !is_installed("col") {
        eprintln!("skipped: mandoc and col are not both installed");
        return;
    }
    let done = Command::new(root().join("man/check.sh")).output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn the_tools_shown_in_the_manual_load() {
    let world = World::new();
    let text = section(page("agent"), "EXAMPLES");
    let yaml: String = text
        .lines()
        .map(|line| format!("{}\n", line.strip_prefix("     ").unwrap_or(line)))
        .collect();
    std::fs::write(world.path("shown.yaml"), yaml).unwrap();
    let outcome = world
        .delta(["tool", "expand"])
        .arg(world.path("shown.yaml"));
    outcome.exits(0).does_not_say("warning");

    let shown = page("tool").split("$ cat t.yaml\n").nth(1).unwrap();
    let unindented = |text: &str| -> String {
        text.lines()
            .map(|line| format!("{}\n", line.strip_prefix("     ").unwrap_or(line)))
            .collect()
    };
    let (given, rest) = shown
        .split_once("     $ delta tool expand t.yaml\n")
        .unwrap();
    let expected = unindented(rest.split("\n\nSEE ALSO").next().unwrap());
    std::fs::write(world.path("t.yaml"), unindented(given)).unwrap();
    let outcome = world
        .delta(["tool", "expand"])
        .arg(world.path("t.yaml"))
        .end();
    outcome.exits(0).prints(&expected);

    let check = world
        .delta(["check"])
        .arg(Path::new(&root()).join("examples/hello-world"));
    let said = page("check")
        .split("$ delta check examples/hello-world\n")
        .nth(1)
        .unwrap();
    check
        .exits(0)
        .prints(&format!("{}\n", said.lines().next().unwrap().trim()));
}

#[cfg(feature = "flow")]
#[test]
fn short_help_of_a_flow_command_and_its_part_of_the_page_name_the_same_options() {
    use delta_engine::flow::cli::tables::COMMANDS;
    let world = World::new();
    let printed = |args: &[&str]| {
        let outcome = Delta::flow(world.home()).args(args).exits(0);
        String::from_utf8(outcome.stdout).unwrap()
    };
    let overview = printed(&["-h"]);
    let everywhere: BTreeSet<String> = ["-h", "--help"].map(str::to_owned).into();
    let all = section(page("flow"), "OPTIONS OF COMMANDS");
    // `eval` is a command of delta, too, and has its page there.
    for command in COMMANDS.into_iter().filter(|it| *it != "eval") {
        let help = printed(&[command, "-h"]);
        assert!(help.starts_with(&format!("usage: delta flow {command}")));
        for line in help.lines() {
            assert!(line.chars().count() < 80 && !line.ends_with(' '), "{line}");
        }
        let is_about = |line: &str| line.starts_with(&format!("  {command} "));
        assert!(overview.lines().any(is_about), "{command}: {overview}");
        let heading = format!("   Options of {command}\n");
        let own = all.split_once(&heading).map_or("", |(_, own)| own);
        let own = own.split("\n   Options of").next().unwrap();
        let mut in_page = options(own);
        in_page.extend(everywhere.clone());
        assert_eq!(options(&help), in_page, "delta flow {command}");
        let listed = section(page("flow"), "COMMANDS");
        assert!(listed.contains(&format!("     {command} ")), "{command}");
    }
}

#[cfg(feature = "flow")]
#[test]
fn every_key_and_every_code_of_a_flow_is_in_the_manual() {
    use delta_engine::flow::graph::topology::Role;
    use delta_engine::flow::manifest::{Code, KEYS};
    let has = |number: u8, words: &mut dyn Iterator<Item = &str>| {
        let page = PAGES
            .iter()
            .find(|page| (page.name, page.section) == ("flow", number));
        let text = page.unwrap().text();
        for word in words {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            let found = text.split(|c: char| !is_part(c)).any(|known| known == word);
            assert!(found, "delta help flow.{number} lacks {word}");
        }
    };
    has(1, &mut Code::ALL.iter().map(|(name, _)| *name));
    // Keys that are gone are errors.
    let is_gone = |key: &&str| ["embedder", "tokenizer"].contains(key);
    let keys = KEYS.into_iter().flatten().copied();
    has(5, &mut keys.filter(|key| !is_gone(key)));
    has(5, &mut Role::ALL.into_iter().map(|(word, _)| word));
}

#[cfg(feature = "flow")]
#[test]
fn every_event_of_a_flow_and_every_field_is_in_the_manual() {
    let text = section(page("journal"), "THE JOURNAL OF A FLOW");
    let record = source("flow/record/events.rs");
    let writes = record.split("fn keep_text(").next().unwrap();
    let start = source("flow/cli/basis.rs");
    let basis = start.split("fn describe_basis").nth(1).unwrap();
    let basis = basis.split("fn record_basis").next().unwrap();
    let words: Vec<String> = [strings(writes), strings(basis)].concat();
    let [_, kinds] = event_kinds();
    assert!(kinds.contains(&"FLOW_START".to_owned()), "{kinds:?}");
    for kind in kinds {
        assert!(
            text.contains(&format!("\n   {kind}\n")),
            "no section {kind}"
        );
    }
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let words_of = |text: &'static str| text.split(move |c: char| !is_part(c));
    let mut known: BTreeSet<&str> = words_of(text).collect();
    // What a call of a tool leaves is told where tools are.
    let (_, of_tool) = page("flow").split_once("writes a TOOL event").unwrap();
    known.extend(words_of(of_tool.split("\n\n").next().unwrap()));
    let of_all = ["level", "content", "error_message", "error_details"];
    for field in words {
        let is_name = field.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        if is_name && !of_all.contains(&field.as_str()) {
            assert!(
                known.contains(field.as_str()),
                "delta help journal lacks {field}"
            );
        }
    }
}

#[cfg(feature = "flow")]
#[test]
fn every_event_of_an_evaluation_and_every_field_is_in_the_manual() {
    let text = section(page("journal"), "THE JOURNAL OF AN EVALUATION");
    let kinds = source("record/event.rs");
    let kinds = kinds.split("enum EvaluationEvent {").nth(1).unwrap();
    let kinds = strings(kinds.split('}').next().unwrap());
    assert!(kinds.contains(&"LOOK".to_owned()), "{kinds:?}");
    for kind in kinds {
        let heading = format!("\n   {kind}\n");
        assert!(text.contains(&heading), "no section {kind}");
    }
    let writes = source("flow/eval/runner.rs");
    let writes = writes
        .split("EvaluationEvent::TrialStart, ")
        .nth(1)
        .unwrap();
    let writes = writes.split("});").next().unwrap();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let known: BTreeSet<&str> = text.split(|c: char| !is_part(c)).collect();
    for field in strings(writes).iter().filter(|it| it.chars().all(is_part)) {
        assert!(
            known.contains(field.as_str()),
            "delta help journal lacks {field}"
        );
    }
}

#[cfg(feature = "flow")]
#[test]
fn every_key_of_evaluations_is_in_the_manual() {
    use delta_engine::flow::eval::KEYS;
    let words = KEYS.into_iter().flatten().map(|key| (*key).to_owned());
    let code = source("flow/eval/load/assertions.rs");
    let keys = list_after(&code, "const KEYS");
    let types = list_after(&code, "const TYPES");
    has_words_in(page_of_files("eval"), words.chain(keys).chain(types));
}

#[cfg(feature = "flow")]
#[test]
fn the_evaluations_shown_in_the_manual_load() {
    let world = World::new();
    let text = section(page_of_files("eval"), "EXAMPLES");
    let yaml = text
        .lines()
        .skip_while(|line| line.trim() != "suites:")
        .map(|line| line.strip_prefix("     ").unwrap_or(line));
    let yaml: Vec<&str> = yaml.collect();
    world.write(
        "e/evaluations.yaml",
        yaml.join("\n").replace("./triage", "../agent"),
    );
    let check = world.delta(["flow", "check", "e"]).exits(0);
    check.says("cannot be reached").prints("e: ok, 1 suite\n");
}

#[cfg(feature = "flow")]
#[test]
fn the_evaluation_shown_in_the_manual_compares_a_model_and_a_prompt() {
    let world = World::new();
    let text = section(page_of_files("eval"), "EXAMPLES");
    let yaml = text
        .lines()
        .skip_while(|line| line.trim() != "suites:")
        .map(|line| line.strip_prefix("     ").unwrap_or(line));
    world.write("e/evaluations.yaml", yaml.collect::<Vec<_>>().join("\n"));
    world.script("e/judge.sh", "#!/bin/sh\n");
    world.write(
        "e/triage/agent.yaml",
        "name: triage\nllm: {model: usual, command: ['${AGENT_HOME}/model.sh']}\n",
    );
    world.write("e/triage/system_prompt.md", "You sort letters.\n");
    world.write("e/triage/terse.md", "Be terse.\n");
    world.write(
        "e/triage/context.yaml",
        "sources:\n- {type: file, path: '${SYSTEM_PROMPT}'}\n- {type: journal}\n",
    );
    let model = "#!/bin/sh\nrequest=$(cat)\ncase $request in\n*'Be terse.'*) answer=terse ;;\n\
                 *small-model*) answer=small ;;\n*) answer=billing ;;\nesac\n\
                 printf '{\"choices\":[{\"message\":{\"content\":\"%s\"}}]}' $answer\n";
    world.script("e/triage/model.sh", model);
    let lines = world.delta(["eval", "e", "--format", "jsonl"]).end();
    let trials: Vec<Value> = String::from_utf8_lossy(&lines.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["case"] == "refund")
        .collect();
    assert_eq!(trials.len(), 12, "{}", lines.describe());
    for trial in trials {
        let is_base = trial["setting"] == "base";
        assert_eq!(trial["status"] == "passed", is_base, "{trial}");
    }
}

#[cfg(feature = "flow")]
#[test]
fn the_flow_shown_in_the_manual_loads() {
    let world = World::new();
    let page = PAGES
        .iter()
        .find(|page| (page.name, page.section) == ("flow", 5));
    let text = section(page.unwrap().text(), "EXAMPLES");
    let yaml = text.split_once("\n\n").unwrap().1;
    let yaml: String = yaml
        .lines()
        .map(|line| format!("{}\n", line.strip_prefix("     ").unwrap_or(line)))
        .collect();
    world.write("f/workflow.yaml", yaml);
    let check = Delta::flow(world.home()).args(["check", "f"]).end();
    let check = check.exits(0).does_not_say("warning");
    check.prints("f: ok, 4 nodes, 3 edges, 0 agents, 0 tools, 0 schemas\n");
}

#[test]
fn the_page_on_hooks_names_every_member_of_a_tools_payload_and_of_the_context() {
    let page = page("hooks");
    let events = section(page, "EVENTS");
    for member in [
        "tool_name",
        "exit_code",
        "observation",
        "stdout",
        "stderr",
        "stdout_path",
        "stderr_path",
    ] {
        let is_there = events
            .split([' ', ',', '.', '\n'])
            .any(|word| word == member);
        assert!(is_there, "{member}");
    }
    assert!(section(page, "EXECUTION").contains("step_index"));
}
