//! What the tests share: a world of its own for each test, a scripted model, the real binary.

mod browser;
mod check;
mod delta;
mod examples;
#[cfg(feature = "flow")]
mod flow;
#[cfg(feature = "flow")]
mod picture;
mod proxy;
mod recording;
mod run;
mod schema;
mod server;
pub mod services;
pub mod sessions;
mod shown;
pub mod steps;
mod system;
mod terminal;
mod world;

pub use browser::{Opened, open};
pub use check::assert_valid_for_api;
pub use delta::{Delta, Outcome, Running, system_path};
pub use examples::{
    ASKS_SERVER, agents, answer_to, as_shown, examples, given_again, installed, play, shell, source,
};
#[cfg(feature = "flow")]
pub use flow::{around, errors_in, errors_of, exit, flow, has, has_only, node, start};
#[cfg(feature = "flow")]
pub use picture::Picture;
pub use proxy::{Manners, ProxyServer};
pub use recording::{Recorded, copy, recordings, snapshot};
pub use run::Run;
pub use schema::violations;
pub use server::{
    Moment, PING, Received, Reply, Server, answer, call, calls, completion, message, raw, roles,
    text,
};
pub use shown::{Shown, in_markdown, path, run_shown};
pub use system::{
    Fifo, alive, copy_program, eventually, files_below, given_or, kills, replaces, seed, with_time,
};
pub use terminal::Terminal;
pub use world::{World, shell_word};
