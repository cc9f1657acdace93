mod odd_servers;
pub mod servers;
mod tasks;
