//! The `delta` program.
fn main() {}
