//! Custom resources: rows that a CustomResourceDefinition makes, and the structural schema that their objects are held to.

// From a definition to rows.
pub mod rows;
// Fields that the schema does not know go.
pub mod prune;
// Fields that the schema fills in.
pub mod defaults;
// Items of lists: their keys, and what they were.
mod list_items;
// Values that the schema does not allow.
pub mod check;
// Defaults that the schema does not allow.
pub mod default_rules;
// Rules in CEL.
pub mod rules;
// Versions that a webhook converts.
pub mod conversion;

use crate::object::Object;
use conversion::{Memo, Webhook};
use coracle_fields::Schema;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Mutex;

/// What a version of a custom resource does to its objects.
#[derive(Debug, Default)]
pub struct Custom {
    /// The structural schema.
    pub schema: Arc<Value>,
    /// The schemas of all versions, this one's among them.
    pub schemas: Arc<HashMap<String, Arc<Value>>>,
    /// All versions in the order of the definition, served or not.
    pub versions: Arc<Vec<Version>>,
    /// The version that objects are stored in.
    pub storage_version: String,
    /// Whether objects may have been written in other versions.
    pub several: bool,
    /// How the bytes of objects in this version begin, and of those in the version that is stored.
    pub heads: (String, String),
    /// Who turns other versions into this one; without, they differ in name only.
    pub webhook: Option<Webhook>,
    /// What watchers of this version have seen converted.
    pub memo: Mutex<Memo>,
    /// Whether the schema fills in what objects may have been stored without.
    pub fills: bool,
    /// Whether `/status` alone changes the status.
    pub status: bool,
    /// Where `/scale` finds replicas wanted, replicas there, and the selector.
    pub scale: Option<Scale>,
    /// Rules in CEL, compiled, by where they stand.
    pub rules: Vec<rules::Place>,
}

/// A version of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its name.
    pub name: String,
    /// The subresources it has.
    pub subresources: Vec<&'static str>,
}

/// Paths of the scale subresource, such as `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// Replicas wanted.
    pub spec: String,
    /// Replicas there.
    pub status: String,
    /// The selector as text, when there is one.
    pub selector: String,
}

impl Custom {
    /// Drops what the schema does not know and fills in what it knows better. What was dropped, by path.
    pub fn shape(&self, object: &mut Value) -> Vec<String> {
        let dropped = prune::root(&self.schema, object);
        defaults::root(&self.schema, object);
        dropped
    }

    /// Whether an object is in this version already.
    pub fn is_own(&self, object: &Object) -> bool {
        object.json.starts_with(self.heads.0.as_bytes())
    }

    /// Whether an object is in the version that is stored now.
    pub fn is_current(&self, object: &Object) -> bool {
        object.json.starts_with(self.heads.1.as_bytes())
    }

    /// The version that an object says it is in, when the definition has none such.
    pub fn unknown_version<'v>(&self, object: &'v Value) -> Option<&'v str> {
        let is = PartialObjectMetadata::of(object).api_version().text();
        Some(is).filter(|_| self.schema_of(object).is_none())
    }

    fn schema_of(&self, object: &Value) -> Option<Arc<Value>> {
        let version = PartialObjectMetadata::of(object).api_version().get()?.rsplit('/').next()?;
        self.schemas.get(version).cloned()
    }

    /// Fills in a stored object by the schema of the version it is stored in.
    pub fn fill_stored(&self, object: &mut Value) {
        if let Some(schema) = self.schema_of(object) {
            defaults::root(&schema, object);
        }
    }

    /// Drops what another version does not know.
    pub fn prune_as(&self, version: &str, object: &mut Value) {
        if let Some(schema) = self.schemas.get(version) {
            prune::root(schema, object);
        }
    }

    /// What an applied configuration has that the schema does not know.
    pub fn undeclared(&self, config: &Value) -> Vec<String> {
        let dropped = prune::root(&self.schema, &mut config.clone()).into_iter();
        dropped.map(|path| format!(".{path}: field not declared in schema")).collect()
    }

    /// The rules that an object breaks; `old` is what it was.
    pub fn validate(&self, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        check::root(&self.schema, object, old, errors);
        if errors.is_empty() {
            rules::check(&self.rules, object, old, errors);
        }
    }
}

/// The value at a simple path such as `.spec.replicas`.
pub fn at<'v>(object: &'v Value, path: &str) -> &'v Value {
    static NULL: Value = Value::Null;
    path.split('.')
        .filter(|part| !part.is_empty())
        .try_fold(object, |value, part| value.get(part))
        .unwrap_or(&NULL)
}

/// Sets the value at a simple path.
pub fn put(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        if !place.is_object() {
            *place = Value::Object(Default::default());
        }
        place = &mut place[part];
    }
    *place = value;
}
