//! Columns of `kubectl get`, as users know them.

use super::kinds::{Cell, Column};
use serde_json::{Value, json};

// How long ago, in the words of kubectl.
mod ages;

pub use ages::{age_of, duration_between, since};

/// A column that is always shown.
pub fn column(name: &str, kind: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column { name: name.into(), kind, format: "", priority: 0, cell: Cell::With(cell) }
}

/// A column that `-o wide` adds.
pub fn wide(name: &str, kind: &'static str, cell: fn(&Value) -> Value) -> Column {
    Column { priority: 1, ..column(name, kind, cell) }
}

/// The object's name.
pub fn name() -> Column {
    let cell = |object: &Value| object["metadata"]["name"].clone();
    Column { format: "name", ..column("Name", "string", cell) }
}

/// How long ago the object was created.
pub fn age() -> Column {
    column("Age", "string", |object| json!(age_of(object)))
}
