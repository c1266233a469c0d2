//! The `coracle` command.

fn main() {}
