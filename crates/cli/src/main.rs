//! The floodwall command.
fn main() {}
