//! `Object{…}` and `JSONPatch{…}`, which the expressions of mutating admission policies construct: what may be written, the
//! function that constructs them, and what they are as JSON.

use super::error::{CompileError, located};
use super::messages;
use super::types::Type;
use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, SourceInfo, operators};
use cel::common::types::{CelMap, CelString, CelStruct, DYN_TYPE, STRING_TYPE};
use cel::common::value::{CowVal, Val};
use cel::objects::Key;
use cel::{DeclarationError, Env, ExecutionError};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Constructs an object of a type from a map of its fields. No source expression can call it.
pub(super) const CONSTRUCT: &str = "@construct";

/// The type of a whole object; those of its fields are named below it, such as `Object.spec`.
const OBJECT: &str = "Object";
/// The type of one operation of a JSON patch.
const OPERATION: &str = "JSONPatch";
/// Its fields.
const FIELDS: [&str; 4] = ["from", "op", "path", "value"];

/// What the names of functions for patches begin with.
pub(super) const PATCH_FUNCTIONS: &str = "jsonpatch.";

/// What the expression of a mutation evaluates to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchForm {
    /// An `Object` that is merged into the object as server-side apply does.
    ApplyConfiguration,
    /// A list of `JSONPatch`.
    JsonPatch,
}

/// Why a value is no patch.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// The expression evaluated to something else.
    #[error("unsupported return type: {found}, must evaluate to {wanted}")]
    Form {
        /// The type of the value.
        found: String,
        /// The type that it must have.
        wanted: &'static str,
    },
    /// An object is in the place of another.
    #[error(
        "type mismatch: unexpected type name {found:?}, expected {expected:?}, which matches field name path from root Object type"
    )]
    TypeName {
        /// The name of its type.
        found: String,
        /// The name that belongs to its place.
        expected: String,
    },
    /// A map has a key that JSON cannot have.
    #[error("map key {0} is not a string")]
    Key(String),
    /// A value has no JSON form.
    #[error("a value of type {0} cannot be converted to JSON")]
    NotJson(String),
    /// A field of an operation is of another type.
    #[error("unexpected type {found} for JSONPatch '{field}' field")]
    Operation {
        /// The field.
        field: String,
        /// The type of its value.
        found: String,
    },
    /// A value cannot be read.
    #[error(transparent)]
    Evaluation(#[from] ExecutionError),
}

/// Whether expressions of mutations construct this type.
pub(super) fn is_type(name: &str) -> bool {
    name == OPERATION || name == OBJECT || name.strip_prefix(OBJECT).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether a type that is constructed has fields of all names.
pub(super) fn has_any_field(name: &str) -> bool {
    is_type(name) && name != OPERATION
}

/// The type that is constructed under a name.
pub(super) fn constructed(name: &str) -> Type {
    let of = |field: &str| if field == "value" { Type::Dyn } else { Type::String };
    let fields = FIELDS.iter().filter(|_| name == OPERATION).map(|field| ((*field).to_owned(), of(field)));
    Type::object(name, fields)
}

/// The type of a patch.
pub(super) fn type_of(form: PatchForm) -> Type {
    match form {
        PatchForm::ApplyConfiguration => constructed(OBJECT),
        PatchForm::JsonPatch => Type::list(constructed(OPERATION)),
    }
}

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload(CONSTRUCT, "construct", vec![STRING_TYPE, DYN_TYPE], |args| {
        let name = args.first().and_then(|arg| arg.downcast_ref::<CelString>());
        let fields = args.get(1).and_then(|arg| arg.downcast_ref::<CelMap>());
        let (Some(name), Some(fields)) = (name, fields) else {
            return Err(ExecutionError::missing_argument_or_target());
        };
        if messages::find(name.inner()).is_some() {
            let fields = fields.inner().iter();
            let fields: Result<HashMap<Key, cel::Value>, ExecutionError> = fields
                .map(|(key, value)| Ok((Key::from(key.clone()), cel::Value::try_from(value.as_ref())?)))
                .collect();
            return Ok(CowVal::Owned(messages::constructed(name.inner(), &fields?)?.try_into()?));
        }
        let mut made = CelStruct::new(name.inner().to_owned());
        for (key, value) in fields.inner() {
            let key = Key::from(key.clone()).to_string();
            made.add_field_value(key, CowVal::Owned((**value).clone_as_boxed()));
        }
        Ok(CowVal::owned(made))
    })
}

/// Checks which types an expression constructs, and that what it evaluates to, as far as that can be told, is of this form.
pub(super) fn check(expression: &IdedExpr, info: &SourceInfo, form: PatchForm) -> Result<(), CompileError> {
    let wrong = unknown(expression).or_else(|| mismatch(expression, form));
    wrong.map_or(Ok(()), |(id, why)| Err(CompileError::Type(located(info, id, &why))))
}

/// The first type or field that is not there.
fn unknown(node: &IdedExpr) -> Option<(u64, String)> {
    let Expr::Struct(made) = &node.expr else { return children(node).into_iter().find_map(unknown) };
    let name = made.type_name.as_str();
    if !is_type(name) && messages::find(name).is_none() {
        return Some((node.id, format!("undeclared reference to '{name}' (in container '')")));
    }
    for entry in &made.entries {
        let EntryExpr::StructField(field) = &entry.expr else { continue };
        if name == OPERATION && !FIELDS.contains(&field.field.as_str()) {
            return Some((entry.id, format!("undefined field '{}'", field.field)));
        }
        let found = unknown(&field.value);
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The parts of an expression that are expressions.
pub(super) fn children(node: &IdedExpr) -> Vec<&IdedExpr> {
    match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => Vec::new(),
        Expr::Select(select) => vec![&*select.operand],
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|part| parts(&part.expr)).collect(),
        Expr::Struct(made) => made.entries.iter().flat_map(|part| parts(&part.expr)).collect(),
        Expr::Comprehension(inner) => {
            vec![&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result]
        }
    }
}

fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// What an expression evaluates to, if that is known not to be of the form.
fn mismatch(node: &IdedExpr, form: PatchForm) -> Option<(u64, String)> {
    let wrong = || Some((node.id, format!("must evaluate to {}", form.name())));
    match (&node.expr, form) {
        (Expr::Call(call), _) if call.func_name == operators::CONDITIONAL && call.args.len() == 3 => {
            call.args[1..].iter().find_map(|branch| mismatch(branch, form))
        }
        (Expr::Call(call), PatchForm::JsonPatch) if call.func_name == operators::ADD => {
            call.args.iter().find_map(|list| mismatch(list, form))
        }
        (Expr::Struct(made), PatchForm::ApplyConfiguration) if made.type_name == OBJECT => None,
        (Expr::List(list), PatchForm::JsonPatch) => {
            let is_other = |element: &IdedExpr| match &element.expr {
                Expr::Struct(made) => made.type_name != OPERATION,
                other => matches!(other, Expr::Literal(_) | Expr::List(_) | Expr::Map(_)),
            };
            list.elements.iter().any(is_other).then(wrong).flatten()
        }
        (Expr::Literal(_) | Expr::Struct(_) | Expr::Map(_) | Expr::List(_), _) => wrong(),
        _ => None,
    }
}

impl PatchForm {
    fn name(self) -> &'static str {
        match self {
            Self::ApplyConfiguration => OBJECT,
            Self::JsonPatch => "list(JSONPatch)",
        }
    }

    /// The patch that an expression evaluated to: a partial object, or a list of operations.
    pub fn patch(self, value: &cel::Value) -> Result<Value, PatchError> {
        match (self, value) {
            (Self::ApplyConfiguration, cel::Value::Struct(object)) if object.name() == OBJECT => {
                to_json(value, None)
            }
            (Self::JsonPatch, cel::Value::List(operations)) => operations.iter().map(operation).collect(),
            _ => Err(PatchError::Form { found: type_name(value), wanted: self.name() }),
        }
    }
}

fn operation(value: &cel::Value) -> Result<Value, PatchError> {
    let made = match value {
        cel::Value::Struct(made) if made.name() == OPERATION => made,
        other => return Err(PatchError::Form { found: type_name(other), wanted: "list(JSONPatch)" }),
    };
    let mut operation = Map::new();
    for (field, value) in made.field_values() {
        let value = cel::Value::try_from(&*value)?;
        let value = match (field.as_str(), &value) {
            ("value", value) => to_json(value, None)?,
            (_, cel::Value::String(text)) => json!(text.as_str()),
            (_, other) => return Err(PatchError::Operation { field, found: type_name(other) }),
        };
        operation.insert(field, value);
    }
    Ok(Value::Object(operation))
}

fn type_name(value: &cel::Value) -> String {
    match value {
        cel::Value::Struct(made) => made.name().to_owned(),
        other => other.type_of().to_string(),
    }
}

/// A value as JSON. `place` is the name of the type that an object in this place must have; none where no object is around.
fn to_json(value: &cel::Value, place: Option<&str>) -> Result<Value, PatchError> {
    Ok(match value {
        cel::Value::Null => Value::Null,
        cel::Value::Bool(is) => json!(is),
        cel::Value::Int(number) => json!(number),
        cel::Value::UInt(number) => json!(number),
        cel::Value::Float(number) if number.is_finite() => json!(number),
        cel::Value::String(text) => json!(text.as_str()),
        cel::Value::Timestamp(time) => json!(time.to_rfc3339().replace("+00:00", "Z")),
        cel::Value::Duration(span) => json!(format!("{}s", span.as_seconds_f64())),
        cel::Value::List(items) => items.iter().map(|item| to_json(item, place)).collect::<Result<_, _>>()?,
        cel::Value::Map(map) => {
            let entry = |(key, value): (&Key, &cel::Value)| match key {
                Key::String(key) => Ok((key.to_string(), to_json(value, place)?)),
                other => Err(PatchError::Key(other.to_string())),
            };
            Value::Object(map.map.iter().map(entry).collect::<Result<_, _>>()?)
        }
        cel::Value::Struct(made) => {
            let name = made.name();
            if let Some(expected) = place.filter(|expected| *expected != name) {
                return Err(PatchError::TypeName { found: name.to_owned(), expected: expected.to_owned() });
            }
            let field = |(field, value): (String, Arc<dyn Val>)| {
                let inside = format!("{name}.{field}");
                Ok((field, to_json(&cel::Value::try_from(&*value)?, Some(&inside))?))
            };
            Value::Object(made.field_values().into_iter().map(field).collect::<Result<_, PatchError>>()?)
        }
        other => return Err(PatchError::NotJson(type_name(other))),
    })
}

/// The name of a type as a literal.
pub(super) fn literal(text: &str) -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::String(CelString::from(text.to_owned()))) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Budget, compile_patch, context};
    use super::*;
    use PatchForm::{ApplyConfiguration, JsonPatch};

    fn evaluated(form: PatchForm, text: &str) -> Result<Value, String> {
        let program = compile_patch(text, form).map_err(|error| error.to_string())?;
        let mut context = context();
        let object = json!({"metadata": {"labels": {"a/b": "1"}}, "spec": {"replicas": 2}});
        context.add_variable_from_value("object", super::super::to_cel(&object));
        let value = program.evaluate(&context, &mut Budget::of(100_000)).map_err(|why| why.to_string())?;
        form.patch(&value).map_err(|why| why.to_string())
    }

    #[test]
    fn objects_are_constructed() {
        for (text, want) in [
            ("Object{}", json!({})),
            (
                "Object{metadata: Object.metadata{annotations: {'by': 'policy'}}}",
                json!({"metadata": {"annotations": {"by": "policy"}}}),
            ),
            (
                "Object{spec: Object.spec{replicas: object.spec.replicas * 2, paused: true, none: null}}",
                json!({"spec": {"replicas": 4, "paused": true, "none": null}}),
            ),
            ("Object{spec: Object.spec{?replicas: object.?nothing}}", json!({"spec": {}})),
            (
                "Object{spec: Object.spec{containers: ['a', 'b'].map(n, Object.spec.containers{name: n})}}",
                json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            ),
            ("object.spec.replicas > 5 ? Object{} : Object{a: 1.5}", json!({"a": 1.5})),
            ("Object{a: Object.a{b: 1}.b + 1, c: has(Object.x{y: 1}.y)}", json!({"a": 2, "c": true})),
        ] {
            assert_eq!(evaluated(ApplyConfiguration, text), Ok(want), "{text}");
        }
    }

    #[test]
    fn operations_are_constructed() {
        let text = "object.spec.replicas == 2 ? [
            JSONPatch{op: 'test', path: '/spec/replicas', value: 2},
            JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('x/y~z'), value: Object.metadata{a: 'b'}},
        ] + [JSONPatch{op: 'move', from: '/a', path: '/b'}] : []";
        let want = json!([
            {"op": "test", "path": "/spec/replicas", "value": 2},
            {"op": "add", "path": "/metadata/labels/x~1y~0z", "value": {"a": "b"}},
            {"op": "move", "from": "/a", "path": "/b"}]);
        assert_eq!(evaluated(JsonPatch, text), Ok(want));
    }

    #[test]
    fn what_is_no_patch_is_refused() {
        for (form, text, why) in [
            (ApplyConfiguration, "Other{}", "undeclared reference to 'Other'"),
            (ApplyConfiguration, "Objects{}", "undeclared reference to 'Objects'"),
            (ApplyConfiguration, "{'a': Object.b{c: Wrong{}}}", "undeclared reference to 'Wrong'"),
            (ApplyConfiguration, "{'a': 1}", "must evaluate to Object"),
            (ApplyConfiguration, "true ? Object{} : Object.spec{}", "must evaluate to Object"),
            (ApplyConfiguration, "[JSONPatch{}]", "must evaluate to Object"),
            (ApplyConfiguration, "object", "unsupported return type: map, must evaluate to Object"),
            (
                ApplyConfiguration,
                "Object{spec: Object.wrong{}}",
                "unexpected type name \"Object.wrong\", expected \"Object.spec\"",
            ),
            (ApplyConfiguration, "Object{a: {1: 2}}", "map key 1 is not a string"),
            (ApplyConfiguration, "Object{a: quantity('1')}", "cannot be converted to JSON"),
            (JsonPatch, "Object{}", "must evaluate to list(JSONPatch)"),
            (JsonPatch, "[Object{}]", "must evaluate to list(JSONPatch)"),
            (JsonPatch, "[JSONPatch{op: 'add', where: '/a'}]", "undefined field 'where'"),
            (JsonPatch, "[JSONPatch{op: 1}]", "unexpected type int for JSONPatch 'op' field"),
            (JsonPatch, "[object].map(o, o)", "must evaluate to list(JSONPatch)"),
        ] {
            let said = evaluated(form, text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
        // Only mutations construct objects.
        let program = super::super::compile("Object{a: 1}.a == 1").unwrap();
        assert!(program.evaluate(&context(), &mut Budget::of(1_000)).is_err());
    }

    #[test]
    fn what_objects_are_made_of_is_paid_for() {
        let text = "Object{a: lists.range(1000).map(n, Object.a{b: lists.range(1000)})}";
        let program = compile_patch(text, ApplyConfiguration).unwrap();
        let failed = program.evaluate(&context(), &mut Budget::of(100_000)).unwrap_err();
        assert_eq!(failed.to_string(), "running out of cost budget");
    }
}
