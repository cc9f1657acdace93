//! Workspaces of engines up to 1.2, converted to today's layout.
//!
//! The old layout has runs in `.delta/runs/ID/`, the journal in `execution/`, the records in `runtime_io/`,
//! and the layout's number in `schema_version.txt`. Nothing else in the crate knows that, beside
//! [`Workspace::check_layout`], which sends people here.
//!
//! Architecture invariant: everything is decided before anything is changed, and every step is one
//! call of the system that happens or does not. Wherever the steps end, deciding again finds those
//! that are left. The marks of the old layout go last, so that until then no other command takes the
//! workspace to be finished. A directory that is a link is refused: steps change the workspace alone.

use crate::error::{At, Error, Exit, Result};
use crate::record::journal::Journal;
use crate::record::metadata::{self, Metadata};
use crate::record::reader::read_whole;
use crate::record::state::{self, Reading};
use crate::record::workspace::{LAYOUT, Workspace, is_known_layout, read_layout};
use crate::text::ids::RunId;
use crate::text::yaml;
use crate::unix::files;
use crate::unix::locks::describe_holder;
use crate::unix::origin::stamp_dir;
use crate::unix::procfs;
use serde_json::{Map, Value};
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The numbers of the layouts that are known.
const KNOWN: [&str; 3] = ["1.0", "1.1", "1.2"];

/// Entries of a run's directory in the old layout, beside files of its own.
const PARTS: [&str; 6] = [
    "execution",
    "runtime_io",
    "configuration",
    "interaction",
    "journal.jsonl",
    "metadata.json",
];

/// No configuration has more bytes.
const LARGEST_CONFIG: u64 = 16 << 20;

/// Names in a run's directory that no file of `execution` can have: a migration uses them itself.
const RESERVED: [&str; 3] = ["runtime_io", "io", "metadata.json.damaged"];

/// One change that happens at once or not at all.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MigrationStep {
    /// Makes a directory that only its owner may read.
    Make(PathBuf),
    /// Declares a run's directory to be one's own.
    Stamp(PathBuf),
    /// Renames a file or directory; nothing is at the new place.
    Move(PathBuf, PathBuf),
    /// Puts this content in a file's place.
    Write(PathBuf, Vec<u8>),
    /// Removes a file whose content is elsewhere.
    Remove(PathBuf),
    /// Removes a directory that is empty by then.
    RemoveDir(PathBuf),
    /// Makes a directory private to its owner.
    Hide(PathBuf),
}

/// The steps that bring a workspace into today's layout.
#[derive(Debug, Default)]
pub(crate) struct MigrationPlan {
    /// In this order.
    pub steps: Vec<MigrationStep>,
    /// The runs that are brought into today's layout.
    pub runs: Vec<RunId>,
}

/// Finds the steps of a migration; none for a workspace in today's layout.
///
/// # Errors
/// The layout is unknown, or an engine works on a run: nothing has been changed.
pub(crate) fn plan(workspace: &Workspace) -> Result<MigrationPlan> {
    let control = &workspace.control;
    let (runs_dir, schema) = (control.join("runs"), control.join("schema_version.txt"));
    check_dir(control)?;
    check_numbers(control, &schema)?;
    let mut plan = MigrationPlan::default();
    let has_schema = is_there(&schema);
    if !is_there(&runs_dir) && !has_schema {
        return Ok(plan);
    }
    check_dir(&runs_dir)?;
    if let Some((pid, file)) = procfs::writer_below(&runs_dir) {
        return Err(busy(format!("process {pid} writes {}", file.display())));
    }
    plan.steps.push(MigrationStep::Hide(control.clone()));
    for name in all_names(&runs_dir)? {
        if name == "LATEST" {
            continue;
        }
        let run = run_id(&runs_dir, &name)?;
        let (old, new) = (runs_dir.join(&name), workspace.run_path(&run));
        if is_there(&new) {
            return Err(both_exist_error(&old, &new));
        }
        flatten(&mut plan.steps, workspace, &run, &old)?;
        plan.steps.push(MigrationStep::Stamp(old.clone()));
        plan.steps.push(MigrationStep::Move(old, new));
        plan.runs.push(run);
    }
    latest(&mut plan, workspace, &runs_dir)?;
    if is_there(&runs_dir) {
        plan.steps.push(MigrationStep::RemoveDir(runs_dir));
    }
    let ignore = control.join(".gitignore");
    if !ignore.exists() {
        plan.steps
            .push(MigrationStep::Write(ignore, b"*\n".to_vec()));
    }
    let version = control.join("VERSION");
    if !read_layout(&version).is_ok_and(|version| is_known_layout(&version)) {
        let layout = LAYOUT.as_bytes().to_vec();
        plan.steps.push(MigrationStep::Write(version, layout));
    }
    if has_schema {
        plan.steps.push(MigrationStep::Remove(schema));
    }
    Ok(plan)
}

/// Takes one step.
pub(crate) fn perform(step: &MigrationStep) -> Result<()> {
    match step {
        MigrationStep::Make(dir) => files::make_dir(dir),
        MigrationStep::Stamp(dir) => stamp_dir(dir),
        MigrationStep::Move(from, to) => {
            if is_dir(from) {
                // What is done inside is on the disk before it is seen in its new place.
                files::sync_dir(from)?;
            }
            fs::rename(from, to).at("move", from)
        }
        MigrationStep::Write(path, bytes) => files::replace(path, bytes),
        MigrationStep::Remove(path) => {
            if let Some(parent) = path.parent() {
                files::sync_dir(parent)?;
            }
            files::remove(path)
        }
        MigrationStep::RemoveDir(dir) => fs::remove_dir(dir).at("remove", dir),
        MigrationStep::Hide(dir) => {
            fs::set_permissions(dir, Permissions::from_mode(0o700)).at("hide", dir)
        }
    }
}

fn check_numbers(control: &Path, schema: &Path) -> Result<()> {
    let version = control.join("VERSION");
    for path in [schema, &version] {
        let number = match read_layout(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            number => number.at("read", path)?,
        };
        let is_known = match path == version {
            true => is_known_layout(&number),
            false => KNOWN.contains(&&*number),
        };
        if !is_known {
            return Err(Error::failure(format!(
                "{} names layout '{number}', which this delta does not know; nothing has been changed",
                path.display()
            )));
        }
    }
    Ok(())
}

/// The run whose directory has this name.
fn run_id(runs_dir: &Path, name: &str) -> Result<RunId> {
    let path = runs_dir.join(name);
    let is_part = |name: &String| PARTS.contains(&name.as_str()) || name == "io";
    let objection = match RunId::parse(name) {
        Err(why) => why,
        Ok(_) if path.is_symlink() => "it is a link".to_owned(),
        Ok(_) if !path.is_dir() => "it is not a directory".to_owned(),
        Ok(id) => {
            let names = files::names(&path)?;
            if names.is_empty() || names.iter().any(is_part) {
                return Ok(id);
            }
            "it contains no part of a run".to_owned()
        }
    };
    Err(Error::failure(format!(
        "{} is not a run of any known engine: {objection}; nothing has been changed, move it away \
         and try again",
        path.display()
    )))
}

/// The steps that bring a run's directory into today's form, in place.
fn flatten(
    steps: &mut Vec<MigrationStep>,
    workspace: &Workspace,
    id: &RunId,
    dir: &Path,
) -> Result<()> {
    for part in ["execution", "runtime_io", "io", "configuration"] {
        check_dir(&dir.join(part))?;
    }
    let execution = dir.join("execution");
    // Before or after a move that was interrupted.
    let place = |name: &str| {
        let old = execution.join(name);
        if is_there(&old) { old } else { dir.join(name) }
    };
    let (journal, old_metadata) = (place("journal.jsonl"), place("metadata.json"));
    let journal_file = open_if_there(&journal)?;
    let (known, is_damaged) = read_metadata(&old_metadata)?;
    check_idle(id, &journal, &known)?;
    if is_there(&execution) {
        for name in all_names(&execution)? {
            let (from, to) = (execution.join(&name), dir.join(&name));
            if is_there(&to) {
                return Err(both_exist_error(&from, &to));
            }
            if RESERVED.contains(&&*name) {
                return Err(Error::failure(format!(
                    "{} belongs to no run of any known engine; nothing has been changed, move it away and try again",
                    from.display()
                )));
            }
            steps.push(MigrationStep::Move(from, to));
        }
        steps.push(MigrationStep::RemoveDir(execution.clone()));
    }
    let (old_io, io) = (dir.join("runtime_io"), dir.join("io"));
    match (is_there(&old_io), is_there(&io)) {
        (true, true) => return Err(both_exist_error(&old_io, &io)),
        (true, false) => steps.push(MigrationStep::Move(old_io.clone(), io.clone())),
        (false, false) => steps.push(MigrationStep::Make(io.clone())),
        (false, true) => {}
    }
    for kind in ["invocations", "tool_executions", "hooks"] {
        if !is_there(&old_io.join(kind)) && !is_there(&io.join(kind)) {
            steps.push(MigrationStep::Make(io.join(kind)));
        }
    }
    let events = match journal_file {
        Some(file) => Some(read_whole(file).at("read", &journal)?),
        None => None,
    };
    let complete = complete(workspace, id, dir, events.as_deref(), &known);
    let metadata = dir.join("metadata.json");
    if is_damaged {
        let aside = dir.join("metadata.json.damaged");
        if is_there(&aside) {
            return Err(both_exist_error(&old_metadata, &aside));
        }
        steps.push(MigrationStep::Move(metadata.clone(), aside));
    }
    if complete != known {
        let mut bytes = serde_json::to_vec_pretty(&complete).unwrap_or_default();
        bytes.push(b'\n');
        steps.push(MigrationStep::Write(metadata, bytes));
    }
    Ok(())
}

/// The metadata of a run, none if they are not there, and whether they are damaged.
fn read_metadata(path: &Path) -> Result<(Map<String, Value>, bool)> {
    let Some(file) = open_if_there(path)? else {
        return Ok((Map::new(), false));
    };
    let bytes = files::read_limited(file, metadata::LARGEST).at("read", path)?;
    Ok(match serde_json::from_slice(&bytes) {
        Ok(Value::Object(known)) => (known, false),
        _ => (Map::new(), true),
    })
}

/// Refuses a run that an engine works on. Engines of that time hold no lock.
fn check_idle(id: &RunId, journal: &Path, metadata: &Map<String, Value>) -> Result<()> {
    let pid = || {
        let host = metadata.get("hostname").and_then(Value::as_str);
        let is_here = host.is_none_or(|host| host == procfs::hostname());
        let is_running = metadata.get("status").and_then(Value::as_str) == Some("RUNNING");
        let pid = metadata
            .get("pid")?
            .as_i64()
            .filter(|_| is_here && is_running)?;
        let pid = i32::try_from(pid).ok()?;
        procfs::is_alive(pid).then_some(pid)
    };
    match pid() {
        Some(pid) => Err(busy(format!("run {id} is already running, pid {pid}"))),
        None if Journal::is_locked(journal) => Err(busy(format!(
            "run {id} is already running, or {}",
            describe_holder(journal)
        ))),
        None => Ok(()),
    }
}

fn busy(what: String) -> Error {
    let message = format!("{what}; nothing has been changed, try again when it has ended");
    Error::new(Exit::TempFail, message)
}

/// Metadata, completed from the journal and the snapshot of the configuration.
fn complete(
    workspace: &Workspace,
    id: &RunId,
    dir: &Path,
    events: Option<&[u8]>,
    known: &Map<String, Value>,
) -> Map<String, Value> {
    let mut rebuilt = Metadata {
        run_id: id.to_string(),
        workspace_id: workspace.id(),
        agent_name: snapshot_name(dir).unwrap_or_default(),
        work_dir: workspace.root.to_string_lossy().into_owned(),
        ..Metadata::default()
    };
    if let Some(events) = events {
        let reading = Reading {
            lenient: true,
            window: None,
        };
        if let Ok(run) = state::read(events, reading) {
            rebuilt.correct(&run);
        }
    } else if known.is_empty() {
        // A run that died before it began. Nothing is known of it.
        return Map::new();
    }
    let Ok(Value::Object(mut complete)) = serde_json::to_value(&rebuilt) else {
        return known.clone();
    };
    for (key, value) in known {
        if !value.is_null() {
            complete.insert(key.clone(), value.clone());
        }
    }
    // Old keys may hold other types, which would make the whole file unreadable.
    let is_readable = serde_json::from_value::<Metadata>(complete.clone().into()).is_ok();
    if is_readable { complete } else { known.clone() }
}

/// The agent's name in the configuration that was kept with a run.
fn snapshot_name(dir: &Path) -> Option<String> {
    let path = Path::new("configuration/resolved_config.yaml");
    let text = files::read_below(dir, path, LARGEST_CONFIG).ok()?;
    let config = yaml::parse(str::from_utf8(&text).ok()?).ok()?;
    config.get("name")?.as_str().map(str::to_owned)
}

/// The steps that let LATEST name the newest run at its present place.
fn latest(plan: &mut MigrationPlan, workspace: &Workspace, runs_dir: &Path) -> Result<()> {
    let old = runs_dir.join("LATEST");
    if !is_there(&old) {
        return Ok(());
    }
    if is_dir(&old) {
        return Err(files::not_regular()).at("use", &old);
    }
    let target = fs::read_link(&old).ok();
    let named = match &target {
        Some(link) => link
            .file_name()
            .map(|name| name.to_string_lossy().into_owned()),
        None => files::read_line(&old),
    };
    let id = named.and_then(|name| RunId::parse(&name).ok());
    if let Some(id) = id
        && (plan.runs.contains(&id) || workspace.run_path(&id).is_dir())
    {
        let path = workspace.control.join("LATEST");
        plan.steps
            .push(MigrationStep::Write(path, format!("{id}\n").into_bytes()));
    }
    plan.steps.push(MigrationStep::Remove(old));
    Ok(())
}

/// The file of a path; none if nothing is there. A link, a pipe and a device are refused.
fn open_if_there(path: &Path) -> Result<Option<File>> {
    match files::open_unlinked(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        opened => opened.at("read", path).map(Some),
    }
}

/// The names in a directory that is removed when all of them have been moved; none if it is not there.
fn all_names(dir: &Path) -> Result<Vec<String>> {
    let names = files::names(dir)?;
    let count = fs::read_dir(dir).map_or(0, Iterator::count);
    match count == names.len() {
        true => Ok(names),
        false => Err(Error::failure(format!(
            "{} has an entry whose name is not UTF-8; nothing has been changed, move it away and try again",
            dir.display()
        ))),
    }
}

/// True if something has this path, a link that leads nowhere included.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// True for a directory, and not for a link to one.
fn is_dir(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|it| it.is_dir())
}

/// Refuses what is there and no directory: what a step does in it would be done where a link leads.
fn check_dir(path: &Path) -> Result<()> {
    match is_there(path) && !is_dir(path) {
        true => Err(files::no_directory()).at("use", path),
        false => Ok(()),
    }
}

fn both_exist_error(one: &Path, other: &Path) -> Error {
    Error::failure(format!(
        "both {} and {} exist; nothing has been changed, move one away and try again",
        one.display(),
        other.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const JOURNAL: &str = r#"{"seq":1,"timestamp":"2025-09-26T10:35:35.123Z","type":"RUN_START","payload":{"run_id":"r","task":"go","agent_ref":"/a"}}
{"seq":2,"timestamp":"2025-09-26T10:35:36.123Z","type":"THOUGHT","payload":{"content":"done","llm_invocation_ref":"u"}}
{"seq":3,"timestamp":"2025-09-26T10:35:37.123Z","type":"RUN_END","payload":{"status":"COMPLETED"}}
"#;

    /// A workspace as old engines leave it: a whole run, one without metadata, one whose metadata is
    /// torn, one that died at once.
    fn old(name: &str) -> Workspace {
        let root =
            std::env::temp_dir().join(format!("delta-migrate-{}-{name}", std::process::id()));
        let put = |path: &str, text: &str| {
            let path = root.join(".delta").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("schema_version.txt", "1.1\n");
        put("manifest.json", "{}\n");
        put("runs/LATEST", "20250926_120006_a1b2c3");
        let whole = "runs/20250926_120006_a1b2c3";
        put(&format!("{whole}/execution/journal.jsonl"), JOURNAL);
        put(
            &format!("{whole}/execution/metadata.json"),
            r#"{"run_id":"x","status":"COMPLETED","iterations_completed":1}"#,
        );
        put(&format!("{whole}/execution/engine.log"), "log");
        put(
            &format!("{whole}/configuration/resolved_config.yaml"),
            "name: Orchestrator\n",
        );
        put(
            &format!("{whole}/configuration/system_prompt.txt"),
            "prompt",
        );
        put(
            &format!("{whole}/runtime_io/invocations/u/request.json"),
            "{}",
        );
        put(
            &format!("{whole}/runtime_io/tool_executions/t/stdout.log"),
            "out",
        );
        put("runs/bare/execution/journal.jsonl", JOURNAL);
        put("runs/torn/execution/journal.jsonl", JOURNAL);
        put("runs/torn/execution/metadata.json", "{\"run_id\":");
        put("runs/torn/interaction/request.json", "{}");
        fs::create_dir_all(root.join(".delta/runs/dead")).unwrap();
        Workspace::at(&root).unwrap()
    }

    fn tree(dir: &Path) -> BTreeMap<PathBuf, Option<String>> {
        let mut found = BTreeMap::new();
        let mut pending = vec![dir.to_owned()];
        while let Some(at) = pending.pop() {
            for entry in fs::read_dir(&at).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(dir).unwrap().to_owned();
                let text = path.is_file().then(|| fs::read_to_string(&path).unwrap());
                if text.is_none() {
                    pending.push(path);
                }
                // The workspace is named after the test.
                let text = text.map(|text| text.replace(&*dir.to_string_lossy(), "ROOT"));
                let text = text.map(|text| text.replace(&*name_of(dir), "NAME"));
                // A stamp says which directory it is.
                let is_stamp = name.ends_with("origin");
                found.insert(name, text.filter(|_| !is_stamp));
            }
        }
        found
    }

    fn name_of(dir: &Path) -> String {
        dir.file_name().unwrap().to_string_lossy().into_owned()
    }

    /// The steps that are left. What another test starts has the files of this one, too, until it is executed.
    fn steps_left(workspace: &Workspace) -> Vec<MigrationStep> {
        let planned = (0..10_000).find_map(|_| match plan(workspace) {
            Err(error) if error.exit == Exit::TempFail => {
                std::thread::sleep(std::time::Duration::from_millis(1));
                None
            }
            planned => Some(planned.unwrap().steps),
        });
        planned.expect("nobody writes any more")
    }

    fn migrate(workspace: &Workspace) {
        for step in steps_left(workspace) {
            perform(&step).unwrap();
        }
    }

    #[test]
    fn wherever_it_stops_the_next_start_comes_to_the_same_end() {
        let whole = old("whole");
        let steps = steps_left(&whole).len();
        migrate(&whole);
        let expected = tree(&whole.root);
        assert!(steps > 20, "{steps}");
        for stop in 0..=steps {
            let workspace = old(&format!("stop{stop}"));
            for step in &steps_left(&workspace)[..stop] {
                perform(step).unwrap();
            }
            // No other command takes it for a workspace in today's layout before it is one.
            assert_eq!(workspace.check_layout().is_ok(), stop == steps);
            migrate(&workspace);
            assert_eq!(tree(&workspace.root), expected, "after step {stop}");
            assert!(steps_left(&workspace).is_empty());
            fs::remove_dir_all(&workspace.root).unwrap();
        }
        fs::remove_dir_all(&whole.root).unwrap();
    }

    #[test]
    fn nothing_is_lost_and_everything_is_where_it_belongs() {
        let workspace = old("kept");
        migrate(&workspace);
        let control = &workspace.control;
        let read = |name: &str| fs::read_to_string(control.join(name)).unwrap();
        let run = "20250926_120006_a1b2c3";
        assert_eq!(read("VERSION"), "1.2\n");
        assert_eq!(read("LATEST"), format!("{run}\n"));
        assert_eq!(read("manifest.json"), "{}\n");
        assert_eq!(read(&format!("{run}/journal.jsonl")), JOURNAL);
        assert_eq!(read(&format!("{run}/engine.log")), "log");
        assert_eq!(
            read(&format!("{run}/configuration/system_prompt.txt")),
            "prompt"
        );
        assert_eq!(read(&format!("{run}/io/invocations/u/request.json")), "{}");
        assert_eq!(
            read(&format!("{run}/io/tool_executions/t/stdout.log")),
            "out"
        );
        assert_eq!(read("torn/metadata.json.damaged"), "{\"run_id\":");
        assert_eq!(read("torn/interaction/request.json"), "{}");
        for kind in ["invocations", "tool_executions", "hooks"] {
            assert!(control.join(run).join("io").join(kind).is_dir());
        }
        let metadata: Value = serde_json::from_str(&read(&format!("{run}/metadata.json"))).unwrap();
        for (key, value) in [
            ("run_id", "x"),
            ("status", "COMPLETED"),
            ("agent_name", "Orchestrator"),
            ("agent_home", "/a"),
            ("initial_message", "go"),
            ("created_at", "2025-09-26T10:35:35.123Z"),
        ] {
            assert_eq!(metadata[key], value, "{key}");
        }
        assert_eq!(metadata["iterations_completed"], 1);
        for run in ["bare", "torn"] {
            let metadata = crate::record::metadata::read(&control.join(run)).unwrap();
            assert_eq!(metadata.run_id, run);
            assert_eq!(metadata.status, crate::record::metadata::Status::Completed);
            assert_eq!(
                metadata.end_time.as_deref(),
                Some("2025-09-26T10:35:37.123Z")
            );
        }
        let mode = control.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::remove_dir_all(&workspace.root).unwrap();
    }
}
