//! The `paritas` command.
fn main() {}
