//! House keeping commands.
fn main() {}
