//! RFC 6902 JSON patch on an object tree.

use super::rejected;
use coracle_proto::limits::{MAX_BODY_DEPTH, height};
use coracle_proto::status::ApiError;
use serde_json::Value;

/// The most operations one patch may hold.
pub const MAX_OPERATIONS: usize = 10_000;

/// How many bytes all `copy` operations of one patch may add.
const MAX_COPIED: usize = 3 << 20;

/// How many values all operations of one patch may put in place. A `move` costs nothing of its own, but the depth of what it
/// moves must be found out.
const MAX_PLACED: usize = 4_000_000;

/// What the operations of one patch have used up.
struct PatchBudget {
    copied: usize,
    /// Values that may still be put in place.
    left: usize,
}

/// One parsed operation.
#[derive(Debug, Clone, PartialEq)]
enum Operation {
    Add(String, Value),
    Remove(String),
    Replace(String, Value),
    Move {
        from: String,
        to: String,
    },
    Copy {
        from: String,
        to: String,
    },
    Test(String, Value),
    /// Named like no operation; what came before it is applied before anybody notices.
    Unknown(String),
    /// Without a path.
    NoPathField(&'static str),
}

/// Why an operation does not fit the document.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
enum ApplyError {
    #[error("{op} operation does not apply: doc is missing path: {path}: missing value")]
    NoPath { op: &'static str, path: String },
    #[error("{op} operation does not apply: doc is missing key: {path}: missing value")]
    NoKey { op: &'static str, path: String },
    #[error("error in {op} for path: '{path}': Unable to remove nonexistent key: {key}: missing value")]
    NothingToRemove { op: &'static str, path: String, key: String },
    #[error(
        "error in {op} for path: '{path}': Unable to access invalid index: {index}: invalid index referenced"
    )]
    BadIndex { op: &'static str, path: String, index: String },
    #[error("testing value {0} failed: test failed")]
    TestFailed(String),
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {0}, exceeding the limit {MAX_COPIED}"
    )]
    CopiedTooMuch(usize),
    #[error(
        "{op} operation does not apply: path {path} would be nested more than {MAX_BODY_DEPTH} levels deep"
    )]
    TooDeep { op: &'static str, path: String },
    #[error("Unable to complete the patch, its operations add or move more than {MAX_PLACED} values")]
    PlacedTooMuch,
    #[error("Unexpected kind: {0}")]
    Unknown(String),
    #[error("{0} operation failed to decode path: missing value")]
    NoPathField(&'static str),
}

/// Applies a patch to a document.
///
/// A patch that is not one gives 400, one that does not fit the document 422, one with too many operations 413.
/// Nothing of a failed patch is kept.
pub fn apply(document: &Value, patch: &Value) -> Result<Value, ApiError> {
    run(document, parse(patch)?).map_err(rejected)
}

/// The same; `None` if a test of the patch fails.
pub fn apply_if_tested(document: &Value, patch: &Value) -> Result<Option<Value>, ApiError> {
    match run(document, parse(patch)?) {
        Ok(changed) => Ok(Some(changed)),
        Err(ApplyError::TestFailed(_)) => Ok(None),
        Err(other) => Err(rejected(other)),
    }
}

fn run(document: &Value, operations: Vec<Operation>) -> Result<Value, ApplyError> {
    let mut document = document.clone();
    let mut budget = PatchBudget { copied: 0, left: MAX_PLACED };
    for operation in operations {
        step(&mut document, operation, &mut budget)?;
    }
    Ok(document)
}

fn parse(patch: &Value) -> Result<Vec<Operation>, ApiError> {
    let Value::Array(items) = patch else {
        return Err(undecodable(patch, "value", "[]handlers.jsonPatchOp"));
    };
    if items.len() > MAX_OPERATIONS {
        return Err(ApiError::too_large(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            items.len()
        )));
    }
    items.iter().map(parse_one).collect()
}

/// A value of a type that nobody can make a patch of.
fn undecodable(found: &Value, place: &str, wanted: &str) -> ApiError {
    let kind = match found {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Null => "null",
    };
    ApiError::bad_request(format!(
        "error decoding patch: json: cannot unmarshal {kind} into Go {place} of type {wanted}"
    ))
}

fn parse_one(item: &Value) -> Result<Operation, ApiError> {
    if !item.is_object() && !item.is_null() {
        return Err(undecodable(item, "value", "handlers.jsonPatchOp"));
    }
    let text = |field: &str| match item.get(field) {
        Some(Value::String(s)) => Ok(Some(s.clone())),
        Some(Value::Null) | None => Ok(None),
        Some(other) => Err(undecodable(other, &format!("struct field jsonPatchOp.{field}"), "string")),
    };
    let value = item.get("value").cloned().unwrap_or(Value::Null);
    let (op, path, from) = (text("op")?, text("path")?, text("from")?);
    Ok(match (op.as_deref().unwrap_or("unknown"), path, from) {
        ("add", Some(path), _) => Operation::Add(path, value),
        ("remove", Some(path), _) => Operation::Remove(path),
        ("replace", Some(path), _) => Operation::Replace(path, value),
        ("move", Some(to), Some(from)) => Operation::Move { from, to },
        ("copy", Some(to), Some(from)) => Operation::Copy { from, to },
        ("test", Some(path), _) => Operation::Test(path, value),
        ("add", ..) => Operation::NoPathField("add"),
        ("remove", ..) => Operation::NoPathField("remove"),
        ("replace", ..) => Operation::NoPathField("replace"),
        ("move", ..) => Operation::NoPathField("move"),
        ("copy", ..) => Operation::NoPathField("copy"),
        ("test", ..) => Operation::NoPathField("test"),
        (other, ..) => Operation::Unknown(other.to_owned()),
    })
}

fn step(document: &mut Value, operation: Operation, budget: &mut PatchBudget) -> Result<(), ApplyError> {
    match operation {
        Operation::Unknown(op) => Err(ApplyError::Unknown(op)),
        Operation::NoPathField(op) => Err(ApplyError::NoPathField(op)),
        Operation::Add(path, value) => add(document, "add", &path, value, budget),
        Operation::Remove(path) => remove(document, "remove", &path).map(drop),
        Operation::Replace(path, value) => {
            check_depth("replace", &path, &value, budget)?;
            if let Some(place) = find_mut(document, &path) {
                *place = value;
                return Ok(());
            }
            let parent = split(&path).is_some_and(|(parent, _)| find(document, parent).is_some());
            Err(if parent {
                ApplyError::NoKey { op: "replace", path }
            } else {
                ApplyError::NoPath { op: "replace", path }
            })
        }
        Operation::Move { from, to } => {
            let value = remove(document, "move", &from)?;
            add(document, "move", &to, value, budget)
        }
        Operation::Copy { from, to } => {
            let value = find(document, &from)
                .cloned()
                .ok_or(ApplyError::NoPath { op: "copy", path: from.clone() })?;
            budget.copied += value.to_string().len();
            if budget.copied > MAX_COPIED {
                return Err(ApplyError::CopiedTooMuch(budget.copied));
            }
            add(document, "copy", &to, value, budget)
        }
        Operation::Test(path, expected) => {
            // A missing value passes a test for null, as clients that guard a first write rely on.
            let found = find(document, &path).unwrap_or(&Value::Null);
            if same(found, &expected) { Ok(()) } else { Err(ApplyError::TestFailed(path)) }
        }
    }
}

/// Equality by value: 1 and 1.0 are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(k, x)| y.get(k).is_some_and(|y| same(x, y)))
        }
        _ => a == b,
    }
}

/// Refuses what would make the document deeper than any that can be read: it is walked by functions that call themselves.
fn check_depth(
    op: &'static str,
    path: &str,
    value: &Value,
    budget: &mut PatchBudget,
) -> Result<(), ApplyError> {
    let levels = height(value, &mut budget.left).ok_or(ApplyError::PlacedTooMuch)?;
    if path.matches('/').count() + levels > MAX_BODY_DEPTH {
        let path = path.chars().take(64).collect::<String>() + "...";
        return Err(ApplyError::TooDeep { op, path });
    }
    Ok(())
}

fn add(
    document: &mut Value,
    op: &'static str,
    path: &str,
    value: Value,
    budget: &mut PatchBudget,
) -> Result<(), ApplyError> {
    check_depth(op, path, &value, budget)?;
    let Some((parent, key)) = split(path) else {
        *document = value;
        return Ok(());
    };
    let quoted = || ApplyError::NoPath { op, path: format!("\"{path}\"") };
    match find_mut(document, parent).ok_or_else(quoted)? {
        Value::Object(map) => {
            map.insert(unescape(key), value);
            Ok(())
        }
        Value::Array(list) => {
            let at = if key == "-" { Some(list.len()) } else { index(key).filter(|i| *i <= list.len()) };
            let at = at.ok_or_else(|| ApplyError::BadIndex { op, path: path.into(), index: key.into() })?;
            list.insert(at, value);
            Ok(())
        }
        _ => Err(quoted()),
    }
}

fn remove(document: &mut Value, op: &'static str, path: &str) -> Result<Value, ApplyError> {
    let Some((parent, key)) = split(path) else {
        return Ok(std::mem::take(document));
    };
    match find_mut(document, parent) {
        Some(Value::Object(map)) => {
            let key = unescape(key);
            map.remove(&key).ok_or(ApplyError::NothingToRemove { op, path: path.into(), key })
        }
        Some(Value::Array(list)) => match index(key).filter(|i| *i < list.len()) {
            Some(i) => Ok(list.remove(i)),
            None => Err(ApplyError::BadIndex { op, path: path.into(), index: key.into() }),
        },
        _ => Err(ApplyError::NoPath { op, path: path.into() }),
    }
}

/// The pointer of the container and the last token; `None` for the whole document.
fn split(path: &str) -> Option<(&str, &str)> {
    path.rsplit_once('/')
}

fn find<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    document.pointer(path)
}

fn find_mut<'a>(document: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    document.pointer_mut(path)
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// An array index: digits without leading zeros.
fn index(token: &str) -> Option<usize> {
    let plain = token == "0" || (!token.starts_with('0') && token.bytes().all(|b| b.is_ascii_digit()));
    if plain { token.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn operations_do_what_the_rfc_says() {
        let table = [
            (
                json!({"foo": "bar"}),
                json!([{"op": "add", "path": "/baz", "value": "qux"}]),
                json!({"baz": "qux", "foo": "bar"}),
            ),
            (
                json!({"foo": ["bar", "baz"]}),
                json!([{"op": "add", "path": "/foo/1", "value": "qux"}]),
                json!({"foo": ["bar", "qux", "baz"]}),
            ),
            (
                json!({"foo": ["bar"]}),
                json!([{"op": "add", "path": "/foo/-", "value": ["abc"]}]),
                json!({"foo": ["bar", ["abc"]]}),
            ),
            (json!({"baz": 1, "foo": 2}), json!([{"op": "remove", "path": "/baz"}]), json!({"foo": 2})),
            (json!({"foo": [1, 2, 3]}), json!([{"op": "remove", "path": "/foo/1"}]), json!({"foo": [1, 3]})),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/a", "value": null}]), json!({"a": null})),
            (
                json!({"a": {"x": 1}, "b": {}}),
                json!([{"op": "move", "from": "/a/x", "path": "/b/y"}]),
                json!({"a": {}, "b": {"y": 1}}),
            ),
            (
                json!({"a": [1, 2, 3, 4]}),
                json!([{"op": "move", "from": "/a/1", "path": "/a/3"}]),
                json!({"a": [1, 3, 4, 2]}),
            ),
            (
                json!({"a": {"x": 1}}),
                json!([{"op": "copy", "from": "/a", "path": "/b"}]),
                json!({"a": {"x": 1}, "b": {"x": 1}}),
            ),
            (
                json!({"a/b": 1, "m~n": 2}),
                json!([{"op": "test", "path": "/a~1b", "value": 1.0}, {"op": "remove", "path": "/m~0n"}]),
                json!({"a/b": 1}),
            ),
            (json!({"a": 1}), json!([{"op": "test", "path": "/none", "value": null}]), json!({"a": 1})),
            (json!({"a": 1}), json!([{"op": "add", "path": "/b"}]), json!({"a": 1, "b": null})),
            (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"b": 2}}]), json!({"b": 2})),
        ];
        for (document, patch, expected) in table {
            assert_eq!(apply(&document, &patch).unwrap(), expected, "{patch}");
        }
    }

    #[test]
    fn misfits_say_where() {
        let document = json!({"a": {"b": [1]}, "s": "text"});
        let table = [
            (
                json!([{"op": "test", "path": "/a/b/0", "value": 2}]),
                422,
                "testing value /a/b/0 failed: test failed",
            ),
            (
                json!([{"op": "remove", "path": "/a/x"}]),
                422,
                "error in remove for path: '/a/x': Unable to remove nonexistent key: x: missing value",
            ),
            (
                json!([{"op": "remove", "path": "/x/y"}]),
                422,
                "remove operation does not apply: doc is missing path: /x/y: missing value",
            ),
            (
                json!([{"op": "add", "path": "/x/y", "value": 1}]),
                422,
                "add operation does not apply: doc is missing path: \"/x/y\": missing value",
            ),
            (json!([{"op": "add", "path": "/s/y", "value": 1}]), 422, "add operation does not apply"),
            (json!([{"op": "add", "path": "/a/b/5", "value": 1}]), 422, "Unable to access invalid index: 5"),
            (
                json!([{"op": "add", "path": "/a/b/01", "value": 1}]),
                422,
                "Unable to access invalid index: 01",
            ),
            (
                json!([{"op": "replace", "path": "/a/x", "value": 1}]),
                422,
                "replace operation does not apply: doc is missing key: /a/x: missing value",
            ),
            (
                json!([{"op": "replace", "path": "/x/y", "value": 1}]),
                422,
                "replace operation does not apply: doc is missing path: /x/y",
            ),
            (json!([{"op": "leap", "path": "/a"}]), 422, "Unexpected kind: leap"),
            (json!([{"path": "/a"}]), 422, "Unexpected kind: unknown"),
            (json!([{"op": "add", "value": 1}]), 422, "add operation failed to decode path: missing value"),
            (
                json!([{"op": "add", "path": 1}]),
                400,
                "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.path of type string",
            ),
            (
                json!({"op": "add"}),
                400,
                "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
        ];
        for (patch, code, text) in table {
            let error = apply(&document, &patch).unwrap_err();
            assert_eq!(error.code, code, "{patch}");
            assert!(error.message.contains(text), "{patch}: {}", error.message);
        }
    }

    #[test]
    fn limits_hold() {
        let many: Vec<Value> =
            (0..=MAX_OPERATIONS).map(|_| json!({"op": "test", "path": "/a", "value": 1})).collect();
        let error = apply(&json!({"a": 1}), &Value::Array(many)).unwrap_err();
        assert_eq!(error.code, 413);
        assert_eq!(error.message, "The allowed maximum operations in a JSON patch is 10000, got 10001");
        let big = json!({"a": "x".repeat(1 << 20)});
        let copies: Vec<Value> =
            (0..4).map(|i| json!({"op": "copy", "from": "/a", "path": format!("/b{i}")})).collect();
        assert!(apply(&big, &Value::Array(copies)).unwrap_err().message.contains("exceeding the limit"));
    }

    /// Each operation puts the whole document further down into itself.
    #[test]
    fn no_operation_makes_a_document_deeper_than_can_be_read() {
        let down = |depth: usize| "/a".repeat(depth);
        let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({"a": inner}));
        let repeated = |op: &str| -> Value {
            let one = json!({"op": op, "from": "/a", "path": "/b/a", "value": nested(100)});
            let back = json!({"op": "move", "from": "/b", "path": "/a"});
            let fresh = json!({"op": "add", "path": "/b", "value": {}});
            (0..2000).flat_map(|_| [fresh.clone(), one.clone(), back.clone()]).collect()
        };
        for (patch, op) in [
            (repeated("move"), "move"),
            (repeated("copy"), "copy"),
            (json!([{"op": "add", "path": down(60), "value": nested(100)}]), "add"),
            (json!([{"op": "replace", "path": down(60), "value": nested(100)}]), "replace"),
        ] {
            let error = apply(&nested(80), &patch).unwrap_err();
            assert!(error.message.contains(&format!("{op} operation does not apply")), "{}", error.message);
            assert!(error.message.contains("more than 127 levels deep"), "{}", error.message);
        }
        let fits = json!([{"op": "add", "path": down(27), "value": nested(100)}]);
        assert!(apply(&nested(80), &fits).is_ok());
    }

    #[test]
    fn moves_of_large_values_are_limited_together() {
        let many: Vec<Value> = vec![json!({}); 1000];
        let moves: Vec<Value> = (0..5000)
            .map(
                |i| json!({"op": "move", "from": format!("/{}", i % 2), "path": format!("/{}", (i + 1) % 2)}),
            )
            .collect();
        let error = apply(&json!({"0": many}), &Value::Array(moves)).unwrap_err();
        assert!(error.message.contains("more than 4000000 values"), "{}", error.message);
    }

    proptest! {
        #[test]
        fn adding_then_removing_gives_the_document_back(document in super::super::test_values::document(), value in super::super::test_values::tree()) {
            let patch = json!([
                {"op": "add", "path": "/~0fresh", "value": value},
                {"op": "test", "path": "/~0fresh", "value": value},
                {"op": "move", "from": "/~0fresh", "path": "/other~1"},
                {"op": "remove", "path": "/other~1"},
            ]);
            prop_assert_eq!(apply(&document, &patch).unwrap(), document);
        }

        #[test]
        fn no_patch_panics(document in super::super::test_values::document(), op in "add|remove|replace|move|copy|test", path in "(/[a-c0-2~-]{0,2}){0,4}", from in "(/[a-c0-2]{0,2}){0,3}", value in super::super::test_values::tree()) {
            let _ = apply(&document, &json!([{"op": op, "path": path, "from": from, "value": value}]));
        }
    }
}
