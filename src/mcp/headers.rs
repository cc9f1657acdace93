//! Headers of requests to a server, whose values may be secrets from variables and programs.
//!
//! Unaware of requests.

use super::servers::{Given, Secrets, Server, variable};
use crate::config::environment::Environment;
use crate::error::{Error, Result, reason};
use crate::text::disguise::indented;
use crate::text::ids::hex;
use crate::text::json::LONGEST_EXCERPT;
use crate::unix::files;
use crate::unix::process::{Command, Ended, GRACE, end_leftovers, run};
use crate::unix::procfs::CALL_ID;
use crate::unix::signals::Signals;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use ureq::http::HeaderValue;

/// The longest run of a program that prints a header.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The headers of a server.
pub(super) struct Headers {
    server: Server,
    /// Where a program that is a path is found from, and where it runs.
    home: PathBuf,
    signals: Arc<Signals>,
    /// Names and values.
    pub values: Vec<(String, String)>,
    /// What is taken out of the server's messages.
    pub secrets: Secrets,
    /// A server that refuses what programs have printed is asked with new values once.
    may_renew: bool,
}

impl Headers {
    pub(super) fn of(server: &Server, home: &Path, signals: &Arc<Signals>) -> Result<Self> {
        let is_command = |(_, given): &(String, Given)| matches!(given, Given::Command(_));
        let mut headers = Self {
            server: server.clone(),
            home: home.to_owned(),
            signals: Arc::clone(signals),
            values: Vec::new(),
            secrets: server.secrets(),
            may_renew: server.headers.iter().any(is_command),
        };
        headers.read()?;
        Ok(headers)
    }

    /// Runs the programs once more. False if that has been done, or there are none.
    pub(super) fn renew(&mut self) -> Result<bool> {
        let may_renew = std::mem::take(&mut self.may_renew);
        if may_renew {
            self.read()?;
        }
        Ok(may_renew)
    }

    fn read(&mut self) -> Result<()> {
        let server = &self.server;
        let mut values = Vec::new();
        if let Some(name) = &server.bearer_env {
            let token = variable(&server.name, name)?;
            values.push((
                "Authorization".to_owned(),
                format!("Bearer {}", token.trim()),
            ));
        }
        for (name, given) in &server.headers {
            let value = match given {
                Given::Text(text) => text.clone(),
                Given::Variable(variable_name) => variable(&server.name, variable_name)?,
                Given::Command(argv) => {
                    let printed = self.ask(argv).map_err(|why| {
                        Error::failure(format!("{}: header {name}: {why}", server.name))
                    })?;
                    self.secrets.add(&printed);
                    printed
                }
            };
            values.push((name.clone(), value.trim().to_owned()));
        }
        if let Some((name, _)) = values
            .iter()
            .find(|(_, it)| HeaderValue::from_str(it).is_err())
        {
            let message = format!(
                "{}: header {name}: no header can hold its value",
                server.name
            );
            return Err(Error::config(message));
        }
        self.values = values;
        Ok(())
    }

    /// The first line that a program prints.
    fn ask(&self, argv: &[String]) -> std::result::Result<String, String> {
        let mut words = argv.to_vec();
        if words[0].contains('/') {
            words[0] = self.home.join(&words[0]).display().to_string();
        }
        let system = |e: std::io::Error| format!("cannot run {}: {}", argv[0], reason(&e));
        // Files without a name, so that no secret stays.
        let stdout = files::unnamed(b"").map_err(system)?;
        let stderr = files::unnamed(b"").map_err(system)?;
        let outer = std::env::var(CALL_ID).unwrap_or_default();
        let call_id = format!("{outer}.{}", hex(12));
        let env = Environment::default().for_child(false);
        let ran = run(
            &self.signals,
            Command {
                argv: &words,
                dir: &self.home,
                env: &env,
                call_id: call_id.trim_start_matches('.'),
                stdin: None,
                stdout: stdout.try_clone().map_err(system)?,
                stderr: stderr.try_clone().map_err(system)?,
                timeout: Some(TIMEOUT),
            },
            GRACE,
        );
        end_leftovers(call_id.trim_start_matches('.'));
        let text = |file: &File| {
            let read = files::read_part(file, 0, LONGEST_EXCERPT);
            read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .map_err(system)
        };
        let why = match ran.map(|outcome| outcome.how) {
            Ok(Ended::Exited(0)) => {
                let printed = text(&stdout)?;
                let line = printed.lines().next().unwrap_or_default().trim();
                if !line.is_empty() {
                    return Ok(line.to_owned());
                }
                "its first line is empty".to_owned()
            }
            Ok(Ended::Exited(code)) => format!("exit code {code}"),
            Ok(Ended::TimedOut) => format!("it took longer than {} s", TIMEOUT.as_secs()),
            Ok(Ended::Interrupted(_)) => "it was ended".to_owned(),
            Err(error) => return Err(error.message(&argv[0])),
        };
        let said = text(&stderr)?;
        Err(match said.trim() {
            "" => format!("{}: {why}", argv[0]),
            said => format!("{}: {why}; it printed:\n  {}", argv[0], indented(said)),
        })
    }
}
