//! Fields that stand twice in a body: as Go does, the second value is read over the first. Structs and maps have the fields of
//! both, lists have the length of the second with each item read over that in its place, and other values are replaced.

use serde_json::Value;

use super::Tree;
use super::typed::{Reader, zero};
use crate::schema::{Scalar, Shape};

impl<'t> Reader<'t> {
    /// The value of a field that has the value `before` already. `null` removes what can be missing, and leaves other values as
    /// they are.
    pub(super) fn value_over(
        &mut self,
        shape: &'t Shape,
        pointer: bool,
        before: Value,
        tree: Tree,
    ) -> Option<Value> {
        match (shape, before, tree) {
            (shape, before, Tree::Null) => (!pointer && stays(shape)).then_some(before),
            (Shape::Object(object), Value::Object(fields), Tree::Object(more)) => {
                Some(Value::Object(self.object_over(object.get(), fields, more)))
            }
            (Shape::Map(of), Value::Object(mut map), Tree::Object(more)) => {
                map.extend(self.map(of, more));
                Some(Value::Object(map))
            }
            (Shape::List(list), Value::Array(items), Tree::Array(more)) => {
                let mut items = items.into_iter();
                let over = more.into_iter().enumerate().map(|(i, tree)| {
                    let value = self.at_index(i, |r| match items.next() {
                        Some(before) => r.value_over(&list.item, false, before, tree),
                        None => r.value(&list.item, tree),
                    });
                    value.unwrap_or_else(|| zero(&list.item))
                });
                Some(over.collect())
            }
            (shape, _, tree) => self.value(shape, tree),
        }
    }
}

/// Whether `null` leaves a value as it is that is no pointer.
fn stays(shape: &Shape) -> bool {
    match shape {
        Shape::Object(_) => true,
        Shape::Scalar { of, .. } => matches!(
            of,
            Scalar::String | Scalar::Bool | Scalar::Int32 | Scalar::Int64 | Scalar::Float | Scalar::Double
        ),
        Shape::List(_) | Shape::Map(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::decode::{Read, from_json, read};
    use crate::schema::kind_type;
    use serde_json::json;

    fn pod(body: &str) -> Read {
        read(kind_type("", "v1", "Pod").unwrap(), from_json(body.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn structs_maps_and_lists_are_read_over_the_first_value() {
        for (body, path, wanted) in [
            (
                r#"{"metadata":{"name":"a","labels":{"a":"1","b":"1"}},"metadata":{"namespace":"n","labels":{"b":"2"}}}"#,
                "/metadata",
                json!({"name": "a", "namespace": "n", "labels": {"a": "1", "b": "2"}}),
            ),
            (
                r#"{"metadata":{"labels":{"a":"1"},"labels":{"b":"2"},"labels":{"a":"3"}}}"#,
                "/metadata/labels",
                json!({"a": "3", "b": "2"}),
            ),
            (r#"{"metadata":{"labels":{"a":"1"},"labels":null}}"#, "/metadata", json!({})),
            (
                r#"{"spec":{"containers":[],"securityContext":{"runAsUser":1},"securityContext":{"runAsGroup":2}}}"#,
                "/spec/securityContext",
                json!({"runAsUser": 1, "runAsGroup": 2}),
            ),
            // A pointer can be missing, a string cannot.
            (
                r#"{"spec":{"containers":[],"securityContext":{},"securityContext":null}}"#,
                "/spec",
                json!({"containers": []}),
            ),
            (r#"{"spec":{"containers":[],"nodeName":"a","nodeName":null}}"#, "/spec/nodeName", json!("a")),
            (
                r#"{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b"}],"containers":[{"name":"c"}]}}"#,
                "/spec/containers",
                json!([{"name": "c", "image": "x", "resources": {}}]),
            ),
            (
                r#"{"spec":{"containers":[{"name":"a","command":["x","y"]}],"containers":[{"command":["z"]},{"name":"b"}]}}"#,
                "/spec/containers",
                json!([{"name": "a", "command": ["z"], "resources": {}}, {"name": "b", "resources": {}}]),
            ),
            (r#"{"spec":{"containers":[{"name":"a"}],"containers":null}}"#, "/spec", json!({})),
        ] {
            let read = pod(body);
            assert_eq!(read.value.pointer(path), Some(&wanted), "{body}");
            assert!(!read.strict.is_empty(), "{body}");
        }
    }

    #[test]
    fn only_what_one_text_repeats_is_a_duplicate() {
        let read = pod(
            r#"{"metadata":{"name":"a","labels":{"x":"1"}},"metadata":{"name":"b","labels":{"x":"2","x":"3"}}}"#,
        );
        assert_eq!(read.strict, ["duplicate field \"metadata\"", "duplicate field \"metadata.labels.x\""]);
        assert_eq!(read.value["metadata"], json!({"name": "b", "labels": {"x": "3"}}));
        // Fields stay in their place.
        let read = pod(r#"{"metadata":{"name":"a","namespace":"n"},"metadata":{"name":"b"}}"#);
        assert!(read.value["metadata"].to_string().starts_with(r#"{"name":"b","namespace":"n""#));
    }
}
