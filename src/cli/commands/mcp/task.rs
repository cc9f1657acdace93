//! Calls that servers answer with a task: the handle that `mcp call` prints, and `mcp task`, which looks at it.

use super::{McpCommand, find_server, not_imported, print_text};
use crate::engine::later::{ENDED_BADLY, HANDLE, LAST, NOT_YET, TIMES};
use crate::error::{At, Error, Exit, Result, ignore};
use crate::mcp::client::{Client, TaskAnswer};
use crate::mcp::content::{input_wanted, read_result};
use crate::mcp::module::read_module;
use crate::mcp::task::{TaskState, age, state, task_name, times};
use crate::text::disguise::printable;
use crate::text::json::Members;
use crate::text::timestamp::Timestamp;
use crate::unix::terminal::print;
use std::path::PathBuf;
use std::time::Duration;

impl McpCommand {
    /// Prints what a call that was answered with a task prints. Returns the exit code.
    pub(super) fn begin_task(
        &self,
        client: &mut Client<'_>,
        task: &Members,
        json: bool,
    ) -> Result<u8> {
        let name = task_name(task).map_err(Error::failure)?;
        match state(task).map_err(Error::failure)? {
            TaskState::Working => {
                write_times(task, Duration::ZERO)?;
                print(format!("{name}\n"))?;
                Ok(NOT_YET as u8)
            }
            TaskState::Completed(Some(result)) => {
                let output = read_result(&result, json, client.secrets())?;
                print_text(&output.text)?;
                Ok(u8::from(output.is_error))
            }
            // It is asked for with the first look.
            TaskState::Completed(None) => {
                print(format!("{name}\n"))?;
                Ok(NOT_YET as u8)
            }
            TaskState::Failed(why) => Err(Error::failure(why)),
            TaskState::InputRequired => {
                ignore(client.cancel_task(&name));
                Err(Error::failure(input_wanted(task)))
            }
        }
    }

    /// `mcp task`: looks at the task in `DELTA_HANDLE`, as the check of a tool.
    pub(super) fn look_at_task(&self, words: &[String]) -> Result<u8> {
        let [name] = words else {
            return Err(Error::usage("mcp task needs NAME, the server's name"));
        };
        let Ok(handle) = std::env::var(HANDLE) else {
            return Err(Error::usage(
                "mcp task: this is the check of an imported tool, and looks at DELTA_HANDLE",
            ));
        };
        let known = crate::mcp::servers::read_servers(&self.home)?;
        let server = find_server(&known, name)?;
        let module = read_module(&self.home, name)?.ok_or_else(|| not_imported(name))?;
        let connected = self.connect(server, ".", Some(module.revision));
        let mut client = match connected {
            Ok(client) => client,
            Err(error) => return Ok(self.later(&error.message)),
        };
        client.declares_tasks = true;
        let answer = client.task(&handle);
        let code = match answer {
            Err(error) => Ok(self.later(&error.message)),
            Ok(TaskAnswer::Unknown(why)) => Ok(self.ended(&why)),
            Ok(TaskAnswer::Refused(why)) => Err(Error::failure(why)),
            Ok(TaskAnswer::Task(task)) => self.task_code(&mut client, &handle, &task),
        };
        client.close();
        code
    }

    fn task_code(&self, client: &mut Client<'_>, handle: &str, task: &Members) -> Result<u8> {
        match state(task).map_err(Error::failure)? {
            TaskState::Working if std::env::var_os(LAST).is_some() => {
                ignore(client.cancel_task(handle));
                Ok(NOT_YET as u8)
            }
            TaskState::Working => {
                write_times(task, age(task, Timestamp::now()))?;
                Ok(NOT_YET as u8)
            }
            TaskState::Completed(Some(result)) => {
                match read_result(&result, false, client.secrets()) {
                    Ok(output) => {
                        print_text(&output.text)?;
                        Ok(if output.is_error {
                            ENDED_BADLY as u8
                        } else {
                            0
                        })
                    }
                    Err(error) => Ok(self.ended(&error.message)),
                }
            }
            TaskState::Completed(None) => Ok(self.ended("the task has ended without a result")),
            TaskState::Failed(why) => Ok(self.ended(&why)),
            TaskState::InputRequired => {
                ignore(client.cancel_task(handle));
                Ok(self.ended(&input_wanted(task)))
            }
        }
    }

    /// Nothing is known for now.
    fn later(&self, why: &str) -> u8 {
        self.screen.warn(&printable(why));
        Exit::TempFail.code()
    }

    /// Reports a task that has ended badly.
    fn ended(&self, why: &str) -> u8 {
        self.screen.warn(&printable(why));
        ENDED_BADLY as u8
    }
}

fn write_times(task: &Members, age: Duration) -> Result<()> {
    let Some(path) = std::env::var_os(TIMES).map(PathBuf::from) else {
        return Ok(());
    };
    std::fs::write(&path, times(task, age).to_string()).at("write", &path)
}
