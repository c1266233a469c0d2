//! The `coracle-agent` command.

fn main() {}
