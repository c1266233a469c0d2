//! Decodes a tree by its type, like Go's decoder: the value, the errors of strict decoding, and the first type
//! mismatch.

use base64::Engine;
use serde_json::{Map, Value};

use super::{DecodeError, Tree, add_zero_values, keeps};
use crate::quantity::Quantity;
use crate::schema::{Field, Scalar, Shape, Type, type_of};
use crate::time;

/// Strict readers stop collecting here.
const MAX_STRICT: usize = 100;

/// What was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// The object.
    pub value: Value,
    /// `unknown field "spec.foo"`, `duplicate field "spec.replicas"`, in the order of the text.
    pub strict: Vec<String>,
}

/// Reads a tree as an object of a type. Fails on the first value of a wrong type; custom resources are not checked here,
/// their schema validation says it better.
pub fn read(kind: &Type, tree: Tree) -> Result<Read, DecodeError> {
    let mut reader = Reader { merges: kind.package.is_some(), ..Reader::default() };
    let value = match tree {
        Tree::Null => Value::Object(reader.object(kind, Vec::new())),
        Tree::Object(fields) => Value::Object(reader.object(kind, fields)),
        other => {
            let found = other.found().to_owned();
            return Err(DecodeError::Type { found, place: "value".into(), expected: kind.go_name() });
        }
    };
    match reader.error {
        Some(error) => Err(error),
        None => Ok(Read { value, strict: reader.strict }),
    }
}

/// Reads a tree without a type; only repeated fields are reported.
pub fn read_any(tree: Tree) -> Read {
    let mut reader = Reader::default();
    let value = reader.any(tree);
    Read { value, strict: reader.strict }
}

#[derive(Default)]
pub(super) struct Reader<'t> {
    /// Whether a field that stands twice is read over its first value; in custom resources the last value counts alone.
    merges: bool,
    strict: Vec<String>,
    /// Where we are, with list indices: `spec.containers[0].name`.
    path: String,
    /// Where we are as Go's type errors say it: field names only.
    fields: Vec<&'t str>,
    /// The innermost struct.
    within: &'t str,
    error: Option<DecodeError>,
}

impl<'t> Reader<'t> {
    fn report(&mut self, what: &str) {
        let text = format!("{what} field \"{}\"", self.path);
        if self.strict.len() < MAX_STRICT && !self.strict.contains(&text) {
            self.strict.push(text);
        }
    }

    fn fail(&mut self, error: DecodeError) {
        self.error.get_or_insert(error);
    }

    fn mismatch(&mut self, found: String, expected: String) {
        let place = if self.fields.is_empty() {
            "value".to_owned()
        } else {
            format!("struct field {}.{}", self.within, self.fields.join("."))
        };
        self.fail(DecodeError::Type { found, place, expected });
    }

    /// Runs `inner` one key further down.
    fn at<T>(&mut self, key: &str, inner: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.path.len();
        if before > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        let result = inner(self);
        self.path.truncate(before);
        result
    }

    pub(super) fn at_index<T>(&mut self, index: usize, inner: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.path.len();
        self.path.push_str(&format!("[{index}]"));
        let result = inner(self);
        self.path.truncate(before);
        result
    }

    fn object(&mut self, kind: &'t Type, fields: Vec<(String, Tree)>) -> Map<String, Value> {
        self.object_over(kind, Map::new(), fields)
    }

    /// An object whose fields `object` may have already, from an earlier value of the same field.
    pub(super) fn object_over(
        &mut self,
        kind: &'t Type,
        mut object: Map<String, Value>,
        fields: Vec<(String, Tree)>,
    ) -> Map<String, Value> {
        let is_again = !object.is_empty();
        let mut seen = vec![false; kind.fields.len()];
        for (name, tree) in fields {
            let Some(at) = kind.position(&name) else {
                if kind.open {
                    let value = self.at(&name, |r| r.any(tree));
                    object.insert(name, value);
                } else {
                    self.at(&name, |r| r.report("unknown"));
                }
                continue;
            };
            let field = &kind.fields[at];
            let is_repeated = std::mem::replace(&mut seen[at], true);
            if is_repeated {
                self.at(&name, |r| r.report("duplicate"));
            }
            let is_over = self.merges && (is_repeated || is_again);
            let before = if is_over { object.get_mut(&name).map(Value::take) } else { None };
            let outer = std::mem::replace(&mut self.within, &kind.name);
            self.fields.push(&field.name);
            let value = self.at(&name, |r| r.field(kind, field, before, tree));
            self.fields.pop();
            self.within = outer;
            match value {
                Some(value) => object.insert(name, value),
                None => object.remove(&name),
            };
        }
        add_zero_values(kind, &mut object);
        object
    }

    /// The value of a field, or nothing where Go would write nothing.
    fn field(
        &mut self,
        kind: &'t Type,
        field: &'t Field,
        before: Option<Value>,
        tree: Tree,
    ) -> Option<Value> {
        if kind.package.is_none() {
            return match (&field.shape, tree) {
                (_, Tree::Null) => Some(Value::Null),
                (shape, tree) => Some(self.loose(shape, tree)),
            };
        }
        let value = match before {
            Some(before) => self.value_over(&field.shape, field.pointer, before, tree)?,
            None => self.value(&field.shape, tree)?,
        };
        let zero_port = matches!(field.shape, Shape::Scalar { of: Scalar::IntOrString, .. });
        let kept =
            keeps(field, &value) && !(zero_port && field.omitempty && !field.pointer && is_zero(&value));
        kept.then_some(value)
    }

    pub(super) fn value(&mut self, shape: &'t Shape, tree: Tree) -> Option<Value> {
        match (shape, tree) {
            (_, Tree::Null) => None,
            (Shape::Scalar { of, .. }, tree) => self.scalar(shape, *of, tree),
            (Shape::Object(object), Tree::Object(fields)) => {
                Some(Value::Object(self.object(object.get(), fields)))
            }
            (Shape::List(list), Tree::Array(items)) => {
                let made = items.into_iter().enumerate().map(|(i, item)| {
                    self.at_index(i, |r| r.value(&list.item, item)).unwrap_or_else(|| zero(&list.item))
                });
                Some(made.collect())
            }
            (Shape::Map(of), Tree::Object(fields)) => Some(Value::Object(self.map(of, fields))),
            (shape, tree) => {
                self.mismatch(tree.found().to_owned(), shape.go_name());
                None
            }
        }
    }

    pub(super) fn map(&mut self, of: &'t Shape, fields: Vec<(String, Tree)>) -> Map<String, Value> {
        let mut map = Map::new();
        for (key, tree) in fields {
            if map.contains_key(&key) {
                self.at(&key, |r| r.report("duplicate"));
            }
            let value = self.at(&key, |r| r.value(of, tree)).unwrap_or_else(|| zero(of));
            map.insert(key, value);
        }
        map
    }

    /// A value of a custom resource: kept even when the type is wrong.
    fn loose(&mut self, shape: &'t Shape, tree: Tree) -> Value {
        match (shape, tree) {
            (Shape::Object(object), Tree::Object(fields)) => Value::Object(self.object(object.get(), fields)),
            (Shape::List(list), Tree::Array(items)) => {
                let made = items.into_iter().enumerate();
                made.map(|(i, item)| self.at_index(i, |r| r.loose(&list.item, item))).collect()
            }
            (Shape::Map(of), Tree::Object(fields)) => {
                let mut map = Map::new();
                for (key, tree) in fields {
                    if map.contains_key(&key) {
                        self.at(&key, |r| r.report("duplicate"));
                    }
                    let value = self.at(&key, |r| r.loose(of, tree));
                    map.insert(key, value);
                }
                Value::Object(map)
            }
            (_, tree) => self.any(tree),
        }
    }

    fn any(&mut self, tree: Tree) -> Value {
        match tree {
            Tree::Null => Value::Null,
            Tree::Bool(value) => Value::Bool(value),
            Tree::Number(number) => Value::Number(number),
            Tree::String(text) => Value::String(text),
            Tree::Array(items) => {
                let made = items.into_iter().enumerate();
                made.map(|(i, item)| self.at_index(i, |r| r.any(item))).collect()
            }
            Tree::Object(fields) => {
                let mut map = Map::new();
                for (key, tree) in fields {
                    if map.contains_key(&key) {
                        self.at(&key, |r| r.report("duplicate"));
                    }
                    let value = self.at(&key, |r| r.any(tree));
                    map.insert(key, value);
                }
                Value::Object(map)
            }
        }
    }

    fn scalar(&mut self, shape: &Shape, of: Scalar, tree: Tree) -> Option<Value> {
        let result = match (of, tree) {
            (Scalar::String, Tree::String(text)) => Ok(Value::String(text)),
            (Scalar::Bool, Tree::Bool(value)) => Ok(Value::Bool(value)),
            (Scalar::Int32 | Scalar::Int64, Tree::Number(number)) => {
                let fits = match of {
                    Scalar::Int32 => number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
                    _ => number.as_i64().is_some(),
                };
                if fits { Ok(Value::Number(number)) } else { Err(format!("number {number}")) }
            }
            (Scalar::Float | Scalar::Double, Tree::Number(number)) => Ok(Value::Number(number)),
            (Scalar::Bytes, Tree::String(text)) => return self.bytes(text),
            (Scalar::Quantity, Tree::String(text)) => return self.quantity(&text),
            (Scalar::Quantity, Tree::Number(number)) => return self.quantity(&number.to_string()),
            (Scalar::IntOrString, Tree::String(text)) => Ok(Value::String(text)),
            (Scalar::IntOrString, Tree::Number(number)) => {
                let fits = number.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
                if fits {
                    return Some(Value::Number(number));
                }
                self.untyped(format!("number {number}"), "int32");
                return None;
            }
            (Scalar::IntOrString, tree) => {
                self.untyped(tree.found().to_owned(), "int32");
                return None;
            }
            (Scalar::Time | Scalar::MicroTime, Tree::String(text)) => return self.time(of, &text),
            (Scalar::Duration, Tree::String(text)) => return self.duration(&text),
            (Scalar::Time | Scalar::MicroTime | Scalar::Duration, tree) => {
                self.untyped(tree.found().to_owned(), "string");
                return None;
            }
            (Scalar::Raw | Scalar::Fields | Scalar::Json, tree) => return Some(quiet(tree)),
            (Scalar::SchemaOrArray, Tree::Array(items)) => return Some(self.schemas(items)),
            (Scalar::SchemaOrBool, Tree::Bool(value)) => Ok(Value::Bool(value)),
            (Scalar::SchemaOrStrings, Tree::Array(items)) => return Some(quiet(Tree::Array(items))),
            (
                Scalar::SchemaOrArray | Scalar::SchemaOrBool | Scalar::SchemaOrStrings,
                Tree::Object(fields),
            ) => {
                return Some(self.schema(fields));
            }
            (_, tree) => Err(tree.found().to_owned()),
        };
        match result {
            Ok(value) => Some(value),
            Err(found) => {
                self.mismatch(found, shape.go_name());
                None
            }
        }
    }

    /// A wrong type inside a value that reads itself: Go has forgotten the field there.
    fn untyped(&mut self, found: String, expected: &str) {
        self.fail(DecodeError::Type { found, place: "value".into(), expected: expected.to_owned() });
    }

    fn schema(&mut self, fields: Vec<(String, Tree)>) -> Value {
        let kind = type_of("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
        let kind = kind.expect("the table has the schema type");
        Value::Object(self.object(kind, fields))
    }

    fn schemas(&mut self, items: Vec<Tree>) -> Value {
        let each = items.into_iter().map(|item| match item {
            Tree::Object(fields) => self.schema(fields),
            other => quiet(other),
        });
        each.collect()
    }

    fn bytes(&mut self, text: String) -> Option<Value> {
        let clean = if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], "") } else { text };
        match base64::engine::general_purpose::STANDARD.decode(&clean) {
            Ok(_) => Some(Value::String(clean)),
            Err(error) => {
                let at = match error {
                    base64::DecodeError::InvalidByte(at, _)
                    | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                    _ => clean.len() / 4 * 4,
                };
                self.fail(DecodeError::Base64(at));
                None
            }
        }
    }

    fn quantity(&mut self, text: &str) -> Option<Value> {
        match text.trim().parse::<Quantity>() {
            Ok(quantity) => Some(Value::String(quantity.to_string())),
            Err(error) => {
                self.fail(error.into());
                None
            }
        }
    }

    fn time(&mut self, of: Scalar, text: &str) -> Option<Value> {
        let (layout, parsed) = match of {
            Scalar::Time => ("2006-01-02T15:04:05Z07:00", time::parse_time(text).map(time::format_time)),
            _ => (
                "2006-01-02T15:04:05.000000Z07:00",
                time::parse_micro_time(text).map(time::format_micro_time),
            ),
        };
        match parsed {
            Some(printed) => Some(Value::String(printed)),
            None => {
                self.fail(DecodeError::Time { text: text.to_owned(), layout });
                None
            }
        }
    }

    fn duration(&mut self, text: &str) -> Option<Value> {
        match time::parse_duration(text) {
            Ok(nanos) => Some(Value::String(time::format_duration(nanos))),
            Err(error) => {
                self.fail(error.into());
                None
            }
        }
    }
}

fn is_zero(value: &Value) -> bool {
    value.as_i64() == Some(0) || value.as_str() == Some("")
}

/// JSON that strict readers do not look into.
fn quiet(tree: Tree) -> Value {
    read_any(tree).value
}

/// What Go puts in a list or map for `null`.
pub(super) fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::Object(object) => {
            let mut fields = Map::new();
            add_zero_values(object.get(), &mut fields);
            Value::Object(fields)
        }
        Shape::Scalar { of: Scalar::String, .. } => Value::from(""),
        Shape::Scalar { of: Scalar::Int32 | Scalar::Int64 | Scalar::IntOrString, .. } => Value::from(0),
        Shape::Scalar { of: Scalar::Bool, .. } => Value::from(false),
        Shape::Scalar { of: Scalar::Quantity, .. } => Value::from("0"),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::decode::from_json;
    use crate::schema::Unstructured;
    use serde_json::json;

    fn read_as(name: &str, body: &str) -> Result<Read, DecodeError> {
        read(type_of(name).unwrap(), from_json(body.as_bytes()).unwrap())
    }

    const DEPLOYMENT: &str = "io.k8s.api.apps.v1.Deployment";
    const POD: &str = "io.k8s.api.core.v1.Pod";

    #[test]
    fn unknown_and_repeated_fields_are_reported_in_order() {
        let body = r#"{"metadata":{"name":"a","unknownMeta":1,"labels":{"x":"1","x":"2"}},"spec":{"unknownField":"foo",
            "replicas":2,"replicas":3,"selector":{},"template":{"spec":{"containers":[{"name":"c","nope":{"a":1,"a":2}}]}}}}"#;
        let read = read_as(DEPLOYMENT, body).unwrap();
        assert_eq!(
            read.strict,
            [
                "unknown field \"metadata.unknownMeta\"",
                "duplicate field \"metadata.labels.x\"",
                "unknown field \"spec.unknownField\"",
                "duplicate field \"spec.replicas\"",
                "unknown field \"spec.template.spec.containers[0].nope\"",
            ]
        );
        assert_eq!(read.value["spec"]["replicas"], json!(3));
        assert_eq!(read.value["metadata"], json!({"name": "a", "labels": {"x": "2"}}));
    }

    #[test]
    fn wrong_types_are_named_as_go_names_them() {
        for (kind, body, why) in [
            (
                DEPLOYMENT,
                r#"{"spec":{"replicas":"two"}}"#,
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                POD,
                r#"{"spec":{"containers":[{"env":[{"name":"A","value":1}]}]}}"#,
                "json: cannot unmarshal number into Go struct field EnvVar.spec.containers.env.value of type string",
            ),
            (
                POD,
                r#"{"spec":{"containers":{}}}"#,
                "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
            (
                POD,
                r#"{"metadata":{"labels":{"a":true}}}"#,
                "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                POD,
                r#"{"spec":{"restartPolicy":1}}"#,
                "json: cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
            ),
            (
                POD,
                r#"{"spec":{"activeDeadlineSeconds":1.5}}"#,
                "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.activeDeadlineSeconds of type int64",
            ),
            (
                POD,
                r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"x"}}}]}}"#,
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            ("io.k8s.api.core.v1.Secret", r#"{"data":{"a":"b!"}}"#, "illegal base64 data at input byte 1"),
            (POD, "[]", "json: cannot unmarshal array into Go value of type v1.Pod"),
        ] {
            assert_eq!(read_as(kind, body).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn values_become_canonical() {
        let body = r#"{"metadata":{"creationTimestamp":null,"deletionTimestamp":"2026-01-02T03:04:05.5+01:00"},
            "spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":0.5,"memory":"1024Mi"}},
            "ports":[{"containerPort":80,"hostPort":0}],"livenessProbe":{"httpGet":{"port":"web"}}}],"hostNetwork":false}}"#;
        let value = read_as(POD, body).unwrap().value;
        assert_eq!(value["metadata"], json!({"deletionTimestamp": "2026-01-02T02:04:05Z"}));
        let container = &value["spec"]["containers"][0];
        assert_eq!(container["resources"]["limits"], json!({"cpu": "500m", "memory": "1Gi"}));
        assert_eq!(container["ports"], json!([{"containerPort": 80}]));
        assert_eq!(container["livenessProbe"]["httpGet"]["port"], json!("web"));
        assert_eq!(value["spec"].get("hostNetwork"), None);
        assert_eq!(value["status"], json!({}));
    }

    #[test]
    fn custom_resources_keep_wrong_types_and_lose_unknown_fields() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "size": {"type": "integer"}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}});
        let kind = Type::from_structural("Foo", &schema, Unstructured::Prune);
        let body = r#"{"metadata":{"name":"a","nope":1},"spec":{"size":"big","extra":1,"free":{"x":{"y":1,"y":2}}}}"#;
        let read = read(&kind, from_json(body.as_bytes()).unwrap()).unwrap();
        assert_eq!(read.value["spec"], json!({"size": "big", "free": {"x": {"y": 2}}}));
        assert_eq!(
            read.strict,
            [
                "unknown field \"metadata.nope\"",
                "unknown field \"spec.extra\"",
                "duplicate field \"spec.free.x.y\""
            ]
        );
    }

    #[test]
    fn schemas_in_definitions_are_read() {
        let kind = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceValidation";
        let body = r#"{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"}},
            "b":{"additionalProperties":true,"default":{"x":null}},"c":{"nope":1}}}}"#;
        let read = read_as(kind, body).unwrap();
        assert_eq!(read.value["openAPIV3Schema"]["properties"]["a"]["items"], json!({"type": "string"}));
        assert_eq!(read.value["openAPIV3Schema"]["properties"]["b"]["default"], json!({"x": null}));
        assert_eq!(read.strict, ["unknown field \"openAPIV3Schema.properties.c.nope\""]);
    }
}
