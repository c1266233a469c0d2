//! Applies the patch of a mutation to an object: an apply configuration by the merge rules of server-side apply, without
//! ownership of fields, or a JSON patch.

use crate::admission::Attributes;
use crate::patch::apply::{check, overlay};
use crate::patch::json as json_patch;
use crate::patch::types::{Shape, Type};
use coracle_expressions::PatchForm;
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::registry::equivalent::Named;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::decode::{self, Tree};
use coracle_proto::limits::{MAX_BODY_DEPTH, height};
use coracle_proto::schema::{self, ListKind};
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::sync::Arc;

/// How many values a patch may have.
const MAX_VALUES: usize = 1_000_000;

/// Why a patch does not fit an object.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("error applying patch: failed to convert patch object to typed object: {0}")]
    Misfit(String),
    #[error(
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {0}"
    )]
    Atomic(String),
    #[error("error applying patch: the patch has more than {MAX_VALUES} values or {MAX_BODY_DEPTH} levels")]
    TooLarge,
    #[error("error applying patch: failed to convert typed object to object: {0}")]
    NotTyped(String),
    #[error("JSON Patch: {0}")]
    Json(String),
    /// The result of a JSON patch is no object of the kind. As in Kubernetes, this is an internal error whatever the failure
    /// policy says.
    #[error("{}", .0.message)]
    Unfit(ApiError),
}

/// The kind of the object in the version that the policy knows.
pub struct Target<'a> {
    name: &'a Named,
    /// The row of the resource, unless the object is of another kind, such as a Scale.
    row: Option<Arc<Kind>>,
    of: Option<&'static schema::Type>,
}

impl<'a> Target<'a> {
    /// The object of a request that is known as `known`, and is of kind `name`.
    pub fn new(at: &Attributes<'_>, known: &Named, name: &'a Named) -> Self {
        let registry = &at.api.objects().registry;
        let whole = at.kind.taken_by(at.subresource).is_none();
        let row = registry.resource(&known.group, &known.version, &known.plural).filter(|_| whole);
        Self { name, row, of: schema::kind_type(&name.group, &name.version, &name.kind) }
    }

    /// The object with the patch.
    pub fn apply(&self, form: PatchForm, patch: Value, object: &Value) -> Result<Value, ApplyError> {
        let mut changed = match form {
            PatchForm::ApplyConfiguration => self.merge(patch, object)?,
            PatchForm::JsonPatch => match json_patch::apply_if_tested(object, &patch) {
                Ok(Some(changed)) => self.strict(changed)?,
                // A test that fails says that the patch is not meant for this object.
                Ok(None) => return Ok(object.clone()),
                Err(error) => return Err(ApplyError::Json(error.message)),
            },
        };
        if let Some(row) = &self.row {
            row.fill(&mut changed);
        }
        Ok(changed)
    }

    fn merge(&self, mut config: Value, object: &Value) -> Result<Value, ApplyError> {
        let mut left = MAX_VALUES;
        if height(&config, &mut left).is_none_or(|levels| levels > MAX_BODY_DEPTH) {
            return Err(ApplyError::TooLarge);
        }
        let ty = self.of.map_or(Type::Deduced, |of| Type::Struct(of, false));
        let mut root = PartialObjectMetadata::edit(&mut config);
        root.kind().set(&self.name.kind);
        root.api_version().set(self.name.api_version());
        let mut misfits = check::misfits(&config, ty);
        let custom = self.row.as_ref().and_then(|row| row.custom.as_ref());
        misfits.extend(custom.map(|custom| custom.undeclared(&config)).unwrap_or_default());
        if !misfits.is_empty() {
            return Err(ApplyError::Misfit(misfits.join(", ")));
        }
        let mut atomic = Vec::new();
        atomics(&config, ty, "", &mut atomic);
        if !atomic.is_empty() {
            return Err(ApplyError::Atomic(atomic.join(", ")));
        }
        let merged = overlay::overlay(object, &config, ty);
        match self.of {
            Some(of) => match decode::read(of, Tree::from(merged)) {
                Ok(read) => Ok(self.with_kind(read.value)),
                Err(why) => Err(ApplyError::NotTyped(why.to_string())),
            },
            None => Ok(merged),
        }
    }

    /// What a JSON patch made, read by its type; fields that the type does not have are errors.
    fn strict(&self, object: Value) -> Result<Value, ApplyError> {
        let unfit = |why: String| ApplyError::Unfit(ApiError::internal(why));
        let meta = PartialObjectMetadata::of(&object);
        if meta.kind() != self.name.kind.as_str() || meta.api_version() != self.name.api_version().as_str() {
            let why = format!("a JSON patch changed the kind or version of a {}", self.name.kind);
            return Err(unfit(why));
        }
        let Some(of) = self.of else { return Ok(object) };
        let read = decode::read(of, Tree::from(object)).map_err(|why| unfit(why.to_string()))?;
        if !read.strict.is_empty() {
            return Err(unfit(format!("strict decoding error: {}", read.strict.join(", "))));
        }
        Ok(self.with_kind(read.value))
    }

    fn with_kind(&self, mut object: Value) -> Value {
        let mut root = PartialObjectMetadata::edit(&mut object);
        root.kind().set(&self.name.kind);
        root.api_version().set(self.name.api_version());
        object
    }
}

/// Paths of atomic values: merging one would remove what the object has in it.
fn atomics(value: &Value, ty: Type, path: &str, found: &mut Vec<String>) {
    match (ty.shape(), value) {
        (Shape::Struct { atomic, .. } | Shape::Map { atomic, .. }, Value::Object(fields)) => {
            if atomic {
                found.push(path.to_owned());
            }
            fields
                .iter()
                .for_each(|(key, value)| atomics(value, ty.child(key), &format!("{path}.{key}"), found));
        }
        (Shape::Deduced, Value::Object(fields)) => {
            fields.iter().for_each(|(key, value)| atomics(value, ty, &format!("{path}.{key}"), found));
        }
        (Shape::List { of, rule }, Value::Array(items)) => {
            if matches!(rule, ListKind::Atomic) {
                found.push(path.to_owned());
            }
            let place = |index| format!("{path}[{index}]");
            items.iter().enumerate().for_each(|(index, item)| atomics(item, of, &place(index), found));
        }
        (Shape::Deduced, Value::Array(_)) => found.push(path.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn apply(form: PatchForm, patch: Value) -> Result<Value, ApplyError> {
        let name = Named {
            group: "apps".into(),
            version: "v1".into(),
            kind: "Deployment".into(),
            plural: "deployments".into(),
        };
        let target = Target { name: &name, row: None, of: schema::kind_type("apps", "v1", "Deployment") };
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"a": "1"}},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "1"}}, "template": {"metadata": {}, "spec": {
                "containers": [{"name": "one", "image": "i", "args": ["x"]}, {"name": "two", "image": "j"}]}}}});
        target.apply(form, patch, &object)
    }

    fn said(form: PatchForm, patch: Value) -> String {
        apply(form, patch).unwrap_err().to_string()
    }

    #[test]
    fn configurations_are_merged_as_server_side_apply_does() {
        let merge = |patch| apply(PatchForm::ApplyConfiguration, patch).unwrap();
        let changed =
            merge(json!({"metadata": {"labels": {"b": "2"}}, "spec": {"replicas": 3, "template": {"spec": {
            "containers": [{"name": "two", "image": "k"}, {"name": "three", "image": "l"}]}}}}));
        assert_eq!(changed["metadata"]["labels"], json!({"a": "1", "b": "2"}));
        assert_eq!(changed["spec"]["replicas"], 3);
        let containers: Vec<_> = changed["spec"]["template"]["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["name"].as_str().unwrap(), one["image"].as_str().unwrap()))
            .collect();
        assert_eq!(containers, [("one", "i"), ("two", "k"), ("three", "l")]);
        assert_eq!(changed["spec"]["template"]["spec"]["containers"][0]["args"], json!(["x"]));
    }

    #[test]
    fn configurations_that_do_not_fit_are_refused() {
        let said = |patch| said(PatchForm::ApplyConfiguration, patch);
        assert!(
            said(json!({"spec": {"replica": 1}})).ends_with(".spec.replica: field not declared in schema")
        );
        assert!(said(json!({"spec": {"replicas": "many"}})).contains(".spec.replicas: expected numeric"));
        let args =
            said(json!({"spec": {"template": {"spec": {"containers": [{"name": "one", "args": ["y"]}]}}}}));
        assert!(
            args.contains(
                "may not mutate atomic arrays, maps or structs: .spec.template.spec.containers[0].args"
            ),
            "{args}"
        );
        let selector = said(json!({"spec": {"selector": {"matchLabels": {"c": "3"}}}}));
        assert!(selector.contains("structs: .spec.selector"), "{selector}");
    }

    #[test]
    fn json_patches_are_applied_if_their_tests_hold() {
        let patch = |patch| apply(PatchForm::JsonPatch, patch);
        let more = json!([{"op": "replace", "path": "/spec/replicas", "value": 4}]);
        assert_eq!(patch(more).unwrap()["spec"]["replicas"], 4);
        let tested = json!([{"op": "replace", "path": "/spec/replicas", "value": 4}, {"op": "test", "path": "/spec/replicas", "value": 5}]);
        assert_eq!(patch(tested).unwrap()["spec"]["replicas"], 1);
        let missing = said(PatchForm::JsonPatch, json!([{"op": "remove", "path": "/spec/none"}]));
        assert!(missing.starts_with("JSON Patch: "), "{missing}");
        for (unfit, why) in [
            (json!([{"op": "add", "path": "/spec/none", "value": 1}]), "unknown field \"spec.none\""),
            (json!([{"op": "add", "path": "/spec/replicas", "value": "x"}]), "spec.replicas"),
            (json!([{"op": "add", "path": "/kind", "value": "Pod"}]), "changed the kind"),
        ] {
            match patch(unfit) {
                Err(ApplyError::Unfit(error)) => {
                    assert!(error.code == 500 && error.message.contains(why), "{}", error.message);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
