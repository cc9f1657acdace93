mod agent;
mod programs;
