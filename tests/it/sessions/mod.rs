mod commands;
mod safety;
mod traps;
