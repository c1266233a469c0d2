//! `metav1.Table` for `kubectl get`, and PartialObjectMetadata.

use super::jsonpath::Path;
use coracle_fields::Schema as _;
use coracle_fields::meta::{ListMeta, PartialObjectMetadata};
use coracle_kinds::registry::columns::{Cell, Column, Draw, since};
use coracle_kinds::registry::kinds::Kind;
use serde_json::{Map, Value, json};

/// What stands before the rows of a table that is sent row by row; `]}` stands behind them.
pub fn head(kind: &Kind, metadata: &Value, version: &str) -> String {
    let (version, columns) = (api_version(version), definitions(kind));
    format!(
        "{{\"kind\":\"Table\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"columnDefinitions\":{columns},\"rows\":["
    )
}

/// The same for a list of objects with nothing but their metadata.
pub fn partial_head(metadata: &Value, version: &str) -> String {
    let version = api_version(version);
    format!(
        "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":["
    )
}

/// One object as a table.
pub fn of_object(kind: &Kind, object: &Value, version: &str, include: &str) -> Value {
    let metadata = list_metadata(object);
    table(
        version,
        metadata,
        Some(definitions(kind)),
        rows(kind, std::slice::from_ref(object), version, include),
    )
}

/// A page of objects as a table; `metadata` is the list's.
pub fn of_list(kind: &Kind, items: &[Value], metadata: Value, version: &str, include: &str) -> Value {
    table(version, metadata, Some(definitions(kind)), rows(kind, items, version, include))
}

/// The object of a watch event as a table; only the first of a watch carries the columns.
pub fn of_event(kind: &Kind, object: &Value, version: &str, include: &str, with_columns: bool) -> Value {
    let columns = with_columns.then(|| definitions(kind));
    table(version, list_metadata(object), columns, rows(kind, std::slice::from_ref(object), version, include))
}

/// A bookmark in a watch of tables: a row with nothing but its metadata.
pub fn bookmark(kind: &Kind, version: &str, metadata: Value) -> Value {
    let cells = vec![Value::Null; kind.columns.len()];
    let list = json!({"resourceVersion": ListMeta::of(&metadata).resource_version()});
    let row = json!({"cells": cells, "object": {"kind": "PartialObjectMetadata", "apiVersion": api_version(version), "metadata": metadata}});
    table(version, list, None, json!([row]))
}

/// The object with nothing but its metadata.
pub fn partial(object: &Value, version: &str) -> Value {
    let metadata = PartialObjectMetadata::of(object).metadata();
    json!({"kind": "PartialObjectMetadata", "apiVersion": api_version(version), "metadata": metadata})
}

/// A list of objects with nothing but their metadata.
pub fn partial_list(items: &[Value], metadata: Value, version: &str) -> Value {
    let items: Vec<Value> = items.iter().map(|object| partial(object, version)).collect();
    json!({"kind": "PartialObjectMetadataList", "apiVersion": api_version(version), "metadata": metadata, "items": items})
}

fn api_version(version: &str) -> String {
    format!("meta.k8s.io/{version}")
}

fn table(version: &str, metadata: Value, columns: Option<Value>, rows: Value) -> Value {
    // Clients tell "the columns you know" (null) from "no columns".
    json!({
        "kind": "Table", "apiVersion": api_version(version), "metadata": metadata,
        "columnDefinitions": columns.unwrap_or(Value::Null), "rows": rows,
    })
}

fn list_metadata(object: &Value) -> Value {
    json!({"resourceVersion": PartialObjectMetadata::of(object).metadata().resource_version()})
}

fn definitions(kind: &Kind) -> Value {
    let define = |column: &Column| {
        json!({
            "name": column.name, "type": column.kind, "format": column.format,
            "description": column.description, "priority": column.priority,
        })
    };
    kind.columns.iter().map(define).collect()
}

fn rows(kind: &Kind, items: &[Value], version: &str, include: &str) -> Value {
    let cells = Cells::of(kind);
    items.iter().map(|object| cells.row(object, version, include)).collect()
}

/// The columns of a kind, ready to read cells: a path is parsed once for all rows.
#[derive(Default)]
pub struct Cells {
    readers: Vec<Reader>,
    conditions: Option<fn(&Value) -> Option<Value>>,
}

impl Cells {
    /// All columns.
    pub fn of(kind: &Kind) -> Self {
        let readers = kind.columns.iter().map(Reader::of).collect();
        Self { readers, conditions: Some(kind.row_conditions) }
    }

    /// The row of an object, with as much of it as `include` says.
    pub fn row(&self, object: &Value, version: &str, include: &str) -> Value {
        let mut row = Map::new();
        row.insert("cells".into(), self.readers.iter().map(|cell| cell.read(object)).collect());
        if let Some(conditions) = self.conditions.and_then(|conditions| conditions(object)) {
            row.insert("conditions".into(), conditions);
        }
        match include {
            "Object" => row.insert("object".into(), object.clone()),
            "None" => row.insert("object".into(), Value::Null),
            _ => row.insert("object".into(), partial(object, version)),
        };
        Value::Object(row)
    }
}

/// A column ready to read cells.
enum Reader {
    With(&'static Draw),
    Path(Option<Path>, &'static str),
}

impl Reader {
    fn of(column: &Column) -> Self {
        match &column.cell {
            Cell::With(cell) => Self::With(*cell),
            Cell::Path(path) => Self::Path(Path::parse(path).ok(), column.kind),
        }
    }

    fn read(&self, object: &Value) -> Value {
        match self {
            Self::With(cell) => cell(object.into()),
            Self::Path(path, kind) => {
                let found = path.as_ref().map(|p| p.find(object)).unwrap_or_default();
                found.first().map_or(Value::Null, |value| typed(kind, value))
            }
        }
    }
}

/// The value as the column's type has it; what does not fit is left out.
fn typed(kind: &str, value: &Value) -> Value {
    match (kind, value) {
        ("integer", Value::Number(n)) => {
            n.as_i64().or(n.as_f64().map(|f| f as i64)).map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(time)) => match since(time) {
            age if age == "<unknown>" => json!("<invalid>"),
            age => json!(age),
        },
        ("string", Value::String(_)) => value.clone(),
        ("string", Value::Null) => Value::Null,
        ("string", other) => json!(other.to_string()),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> Kind {
        let mut kind = Kind::new("x.io", "v1", "Foo", "foos");
        let path = |name: &str, kind, path: &str| Column {
            name: name.into(),
            kind,
            format: "",
            description: format!("At {path}").into(),
            priority: 1,
            cell: Cell::Path(path.into()),
        };
        kind.columns.push(path("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"));
        kind.columns.push(path("Size", "integer", ".spec.size"));
        kind.columns.push(path("Rows", "string", ".spec.rows"));
        kind
    }

    fn object() -> Value {
        json!({
            "apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "a", "resourceVersion": "9"},
            "spec": {"size": 3.0, "rows": [1, 2]},
            "status": {"conditions": [{"type": "Odd", "status": "True"}, {"type": "Ready", "status": "False"}]},
        })
    }

    #[test]
    fn rows_have_cells_and_as_much_of_the_object_as_asked_for() {
        let table = of_list(&kind(), &[object()], json!({"resourceVersion": "12"}), "v1", "");
        assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
        assert_eq!(table["metadata"]["resourceVersion"], "12");
        assert_eq!(table["columnDefinitions"][0]["format"], "name");
        assert_eq!(table["columnDefinitions"][3]["description"], "At .spec.size");
        assert_eq!(table["columnDefinitions"].as_array().map(Vec::len), Some(5));
        assert_eq!(table["rows"][0]["cells"], json!(["a", "<unknown>", "False", 3, "[1,2]"]));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(of_object(&kind(), &object(), "v1", "Object")["rows"][0]["object"], object());
        assert_eq!(of_object(&kind(), &object(), "v1beta1", "None")["rows"][0]["object"], Value::Null);
    }

    #[test]
    fn later_events_carry_no_columns_and_bookmarks_only_metadata() {
        assert_eq!(of_event(&kind(), &object(), "v1", "", false)["columnDefinitions"], Value::Null);
        assert_eq!(of_event(&kind(), &object(), "v1", "", true)["metadata"]["resourceVersion"], "9");
        let mark = bookmark(&kind(), "v1", json!({"resourceVersion": "20"}));
        assert_eq!(mark["rows"][0]["object"]["metadata"]["resourceVersion"], "20");
        assert_eq!(mark["metadata"]["resourceVersion"], "20");
    }

    #[test]
    fn partial_lists_keep_the_metadata_of_list_and_items() {
        let list = partial_list(&[object()], json!({"continue": "x"}), "v1");
        assert_eq!(list["kind"], "PartialObjectMetadataList");
        assert_eq!(list["metadata"]["continue"], "x");
        assert_eq!(
            list["items"][0],
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object()["metadata"]})
        );
    }
}
