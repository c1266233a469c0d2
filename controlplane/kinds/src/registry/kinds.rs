//! The shape of a row in the table of kinds. Everything the server does differently for a kind hangs here, so that
//! `apiserver/` names no kind.

use crate::object::field::Field;
use crate::registry::columns::{self, Column};
use crate::registry::custom::Custom;
use coracle_fields::Schema;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_proto::status::FieldError;
use coracle_validation::names::{self, Rule};
use serde_json::Value;
use std::sync::Arc;

/// Whether objects live in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In a namespace.
    Namespaced,
    /// Directly in the cluster.
    Cluster,
}

/// What a kind does to its objects on the way to the store. Each function is pure; the clock and the uid are set
/// by the pipeline before.
#[derive(Clone, Copy)]
pub struct Strategy {
    /// Fills in what the client left out.
    pub defaults: fn(&mut Value),
    /// Before a create: drops what clients may not set, sets what the kind starts with.
    pub prepare_create: fn(&mut Value),
    /// Before a create: notes who makes the object; the user as reviews show it.
    pub sign: Option<fn(&mut Value, &Value)>,
    /// Before an update of the main resource: takes over from `old` what this endpoint may not change (status …).
    pub prepare_update: fn(&mut Value, &Value),
    /// Before a create or an update of the main resource: drops fields of features that are off, unless the old object has them.
    pub drop_disabled: fn(&mut Value, Option<&Value>),
    /// After `drop_disabled`: drops fields of features that this server does not have, unless the old object has them.
    pub drop_unsupported: fn(&mut Value, Option<&Value>),
    /// Before an update of `/status`: takes over from `old` everything but the status.
    pub prepare_status: fn(&mut Value, &Value),
    /// Seconds an object may take to end when it is deleted, given what the client asked for.
    pub grace: fn(&Value, Option<i64>) -> i64,
    /// Changes the object when its deletion begins.
    pub begin_delete: fn(&mut Value),
    /// Whether it may be removed once it is being deleted and has no finalizers.
    pub removable: fn(&Value) -> bool,
    /// Field rules of the object, on create and on update of the main resource; not on updates of subresources.
    pub validate: fn(&Value, &mut Vec<FieldError>),
    /// Field rules that only a new object has to follow; called after `validate`.
    pub validate_create: fn(&Value, &mut Vec<FieldError>),
    /// Field rules of an update of the main resource, `new` then `old`; called after `validate`.
    pub validate_update: fn(&Value, &Value, &mut Vec<FieldError>),
    /// Field rules of an update of `/status`, `new` then `old`; `validate` is not called then.
    pub validate_status: fn(&Value, &Value, &mut Vec<FieldError>),
    /// Sentences for the `Warning` header.
    pub warnings: fn(&Value, Option<&Value>) -> Vec<String>,
}

impl Strategy {
    /// Changes nothing and allows everything.
    pub const PLAIN: Strategy = Strategy {
        defaults: |_| (),
        prepare_create: |_| (),
        sign: None,
        prepare_update: |_, _| (),
        drop_disabled: |_, _| (),
        drop_unsupported: |_, _| (),
        prepare_status: keep_all_but_status,
        grace: |_, _| 0,
        begin_delete: |_| (),
        removable: |_| true,
        validate: |_, _| (),
        validate_create: |_, _| (),
        validate_update: |_, _, _| (),
        validate_status: |_, _, _| (),
        warnings: |_, _| Vec::new(),
    };
}

/// What an update subresource other than `/status` does, such as `/approval`.
#[derive(Clone, Copy)]
pub struct Change {
    /// Takes over from `old` what this endpoint may not change.
    pub prepare: fn(&mut Value, &Value),
    /// Field rules, `new` then `old`.
    pub validate: fn(&Value, &Value, &mut Vec<FieldError>),
}

/// For creates: a client cannot bring a status along.
pub fn drop_status(new: &mut Value) {
    if let Some(object) = new.as_object_mut() {
        object.remove("status");
    }
}

/// For updates of the main resource: the status stays what it was.
pub fn keep_status(new: &mut Value, old: &Value) {
    keep(new, old, "status");
}

/// For updates of `/status`: everything but status and metadata stays what it was.
pub fn keep_all_but_status(new: &mut Value, old: &Value) {
    let Some(old) = old.as_object() else { return };
    let Some(new) = new.as_object_mut() else { return };
    let kept = |key: &str| matches!(key, "apiVersion" | "kind" | "metadata" | "status");
    new.retain(|key, _| kept(key));
    new.extend(old.iter().filter(|(key, _)| !kept(key)).map(|(key, value)| (key.clone(), value.clone())));
}

/// For updates of `/status` of kinds whose metadata stays what it was, too, such as custom resources: whoever may only write
/// the status cannot touch labels, finalizers or owners. `managedFields` are the exception, they tell who wrote the status.
pub fn keep_all_but_status_and_managers(new: &mut Value, old: &Value) {
    keep_all_but_status(new, old);
    let managers = PartialObjectMetadata::of(new).metadata().managed_fields().to_value();
    keep(new, old, "metadata");
    if let Some(mut meta) = PartialObjectMetadata::edit(new).metadata().existing() {
        meta.managed_fields().put(managers);
    }
}

/// Takes the top-level field `key` over from `old`, present or absent.
pub fn keep(new: &mut Value, old: &Value, key: &str) {
    let Some(object) = new.as_object_mut() else { return };
    match old.get(key) {
        Some(value) => object.insert(key.into(), value.clone()),
        None => object.remove(key),
    };
}

/// Subresources a kind may have. `status` and `scale` behave alike for all kinds; the rest are special.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// `/status`.
    Status,
    /// `/scale`.
    Scale,
    /// Any other, by name, served by a handler that registers for it.
    Other(&'static str),
}

/// What an object may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS-1123 subdomain: most kinds.
    Subdomain,
    /// A DNS-1123 label.
    Label,
    /// Anything that fits into a path: RBAC.
    PathSegment,
    /// A canonical IP address.
    Ip,
}

impl NameRule {
    /// The check that belongs to the rule.
    pub fn rule(self) -> Rule {
        match self {
            NameRule::Subdomain => names::subdomain,
            NameRule::Label => names::label,
            NameRule::PathSegment => names::path_segment,
            NameRule::Ip => names::ip,
        }
    }
}

/// Where a kind keeps its objects when it is a view on another kind. Defaults and preparation see the view's form;
/// field rules, selectable fields and columns see the stored form.
#[derive(Clone, Copy)]
pub struct StoredAs {
    /// Group of the kind that is stored.
    pub group: &'static str,
    /// Version of the kind that is stored.
    pub version: &'static str,
    /// Turns an object of this kind into the stored one.
    pub encode: fn(&mut Value),
    /// Turns a stored object into one of this kind.
    pub decode: fn(&mut Value),
}

/// Every verb of a stored kind, in the order of discovery.
pub const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// A row: one resource of one group and version.
#[derive(Clone)]
pub struct Kind {
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind, such as `Pod`.
    pub kind: String,
    /// Resource, such as `pods`.
    pub plural: String,
    /// Singular resource, such as `pod`.
    pub singular: String,
    /// Short names, such as `po`.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
    /// Namespaced or not.
    pub scope: Scope,
    /// Verbs, as discovery lists them.
    pub verbs: &'static [&'static str],
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// The type in the schema table, such as `io.k8s.api.core.v1.Pod`.
    pub schema: String,
    /// Whether `metadata.generation` counts changes of anything but metadata and status.
    pub generation: bool,
    /// Whether a write may be flushed lazily (Leases, Events).
    pub lazy: bool,
    /// Whether an update of what does not exist creates it.
    pub create_on_update: bool,
    /// Whether an update must name the resource version it is based on.
    pub conditional: bool,
    /// Whether a delete answers with the object instead of a Status.
    pub returns_deleted: bool,
    /// What every request on the kind is warned of, empty for nothing.
    pub deprecation: &'static str,
    /// Selectable fields.
    pub fields: Vec<Field>,
    /// What objects may be called.
    pub names: NameRule,
    /// Whether objects are kept; reviews and the like are answered and forgotten.
    pub stored: bool,
    /// Set when the objects are kept as another kind's (`events.k8s.io` Events are core Events).
    pub stored_as: Option<StoredAs>,
    /// Columns. Those of a view read the stored form.
    pub columns: Vec<Column>,
    /// Conditions of an object's row in a table; most have none.
    pub row_conditions: fn(&Value) -> Option<Value>,
    /// What happens on the way to the store.
    pub strategy: Strategy,
    /// What subresources do that update the object, besides `/status`.
    pub changes: Vec<(&'static str, Change)>,
    /// Set when the row was made by a CustomResourceDefinition.
    pub custom: Option<Arc<Custom>>,
}

impl Kind {
    /// A namespaced, stored kind with all verbs, no subresources, and the columns Name and Age.
    pub fn new(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            scope: Scope::Namespaced,
            verbs: ALL_VERBS,
            subresources: Vec::new(),
            schema: String::new(),
            generation: false,
            lazy: false,
            create_on_update: false,
            conditional: false,
            returns_deleted: false,
            deprecation: "",
            fields: Vec::new(),
            names: NameRule::Subdomain,
            stored: true,
            stored_as: None,
            columns: columns::described("", vec![columns::name(), columns::age()]),
            row_conditions: |_| None,
            strategy: Strategy::PLAIN,
            changes: Vec::new(),
            custom: None,
        }
    }

    /// Fills in what the client left out. An object of a custom resource also loses what its schema does not know.
    pub fn fill(&self, object: &mut Value) {
        (self.strategy.defaults)(object);
        if let Some(custom) = &self.custom {
            custom.shape(object);
        }
    }

    /// Whether objects are shown in another form than they may be stored in.
    pub fn is_view(&self) -> bool {
        self.stored_as.is_some() || self.custom.as_ref().is_some_and(|custom| custom.several || custom.fills)
    }

    /// Directly in the cluster instead of in a namespace.
    pub fn cluster(mut self) -> Self {
        self.scope = Scope::Cluster;
        self
    }

    /// With these short names.
    pub fn short(mut self, names: &[&str]) -> Self {
        self.short_names.extend(names.iter().map(|name| (*name).to_owned()));
        self
    }

    /// In this category.
    pub fn category(mut self, name: &str) -> Self {
        self.categories.push(name.into());
        self
    }

    /// With only these verbs.
    pub fn verbs(mut self, verbs: &'static [&'static str]) -> Self {
        self.verbs = verbs;
        self
    }

    /// With `/status`: only it may change the status.
    pub fn status(mut self) -> Self {
        self.subresources.push(Subresource::Status);
        self.strategy.prepare_create = drop_status;
        self.strategy.prepare_update = keep_status;
        self
    }

    /// With `/scale`.
    pub fn scale(mut self) -> Self {
        self.subresources.push(Subresource::Scale);
        self
    }

    /// With other subresources.
    pub fn with_subresources(mut self, names: &[&'static str]) -> Self {
        self.subresources.extend(names.iter().map(|name| Subresource::Other(name)));
        self
    }

    /// With a subresource that updates the object in its own way.
    pub fn change(
        mut self,
        name: &'static str,
        prepare: fn(&mut Value, &Value),
        validate: fn(&Value, &Value, &mut Vec<FieldError>),
    ) -> Self {
        self.changes.push((name, Change { prepare, validate }));
        self
    }

    /// `metadata.generation` counts changes.
    pub fn generation(mut self) -> Self {
        self.generation = true;
        self
    }

    /// Writes may be flushed late.
    pub fn lazy(mut self) -> Self {
        self.lazy = true;
        self
    }

    /// Answered and forgotten: only creates.
    pub fn virtual_only(mut self) -> Self {
        self.stored = false;
        self.verbs = &["create"];
        self
    }

    /// Not kept, with these verbs.
    pub fn unstored(mut self, verbs: &'static [&'static str]) -> Self {
        self.stored = false;
        self.verbs = verbs;
        self
    }

    /// With selectable fields.
    pub fn fields(mut self, fields: Vec<Field>) -> Self {
        self.fields = fields;
        self
    }

    /// With another rule for names.
    pub fn names(mut self, rule: NameRule) -> Self {
        self.names = rule;
        self
    }

    /// Kept as another kind's objects.
    pub fn stored_as(mut self, stored: StoredAs) -> Self {
        self.stored_as = Some(stored);
        self
    }

    /// With these columns of `kubectl get`.
    pub fn columns(mut self, columns: Vec<Column>) -> Self {
        self.columns = columns::described(&self.kind, columns);
        self
    }

    /// With conditions of rows.
    pub fn row_conditions(mut self, conditions: fn(&Value) -> Option<Value>) -> Self {
        self.row_conditions = conditions;
        self
    }

    /// With defaults.
    pub fn defaults(mut self, defaults: fn(&mut Value)) -> Self {
        self.strategy.defaults = defaults;
        self
    }

    /// With its own preparation of creates and updates.
    pub fn prepare(mut self, create: fn(&mut Value), update: fn(&mut Value, &Value)) -> Self {
        self.strategy.prepare_create = create;
        self.strategy.prepare_update = update;
        self
    }

    /// Notes who makes the object.
    pub fn sign(mut self, sign: fn(&mut Value, &Value)) -> Self {
        self.strategy.sign = Some(sign);
        self
    }

    /// With `/status`, which changes nothing but the status, not even labels.
    pub fn status_only(self) -> Self {
        self.status().prepare_status(keep_all_but_status_and_managers)
    }

    /// With its own preparation of changes of `/status`.
    pub fn prepare_status(mut self, status: fn(&mut Value, &Value)) -> Self {
        self.strategy.prepare_status = status;
        self
    }

    /// With field rules: `object` on create and update, `change` (new object, then old) on update only.
    pub fn validate(
        mut self,
        object: fn(&Value, &mut Vec<FieldError>),
        change: fn(&Value, &Value, &mut Vec<FieldError>),
    ) -> Self {
        self.strategy.validate = object;
        self.strategy.validate_update = change;
        self
    }

    /// With field rules for new objects only.
    pub fn validate_create(mut self, object: fn(&Value, &mut Vec<FieldError>)) -> Self {
        self.strategy.validate_create = object;
        self
    }

    /// With field rules for changes of `/status`.
    pub fn validate_status(mut self, change: fn(&Value, &Value, &mut Vec<FieldError>)) -> Self {
        self.strategy.validate_status = change;
        self
    }

    /// Gets time to end when it is deleted.
    pub fn grace(mut self, grace: fn(&Value, Option<i64>) -> i64) -> Self {
        self.strategy.grace = grace;
        self
    }

    /// Changes when its deletion begins, and goes only when `removable` says so.
    pub fn ending(mut self, begin: fn(&mut Value), removable: fn(&Value) -> bool) -> Self {
        self.strategy.begin_delete = begin;
        self.strategy.removable = removable;
        self
    }

    /// An update of what does not exist creates it.
    pub fn create_on_update(mut self) -> Self {
        self.create_on_update = true;
        self
    }

    /// An update must name the resource version it is based on.
    pub fn conditional(mut self) -> Self {
        self.conditional = true;
        self
    }

    /// A delete answers with the object.
    pub fn returns_deleted(mut self) -> Self {
        self.returns_deleted = true;
        self
    }

    /// Deprecated: requests of any verb are warned of it.
    pub fn deprecated(mut self, warning: &'static str) -> Self {
        self.deprecation = warning;
        self
    }

    /// With warnings.
    pub fn warnings(mut self, warnings: fn(&Value, Option<&Value>) -> Vec<String>) -> Self {
        self.strategy.warnings = warnings;
        self
    }

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether objects live in namespaces.
    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// The group that objects are stored in: that of a view is another one.
    pub fn stored_group(&self) -> &str {
        self.stored_as.map_or(self.group.as_str(), |stored| stored.group)
    }

    /// The key prefix of all objects of the kind: `/registry/<group>/<resource>/`, core without the group.
    pub fn prefix(&self) -> String {
        let group = self.stored_group();
        if group.is_empty() {
            format!("/registry/{}/", self.plural)
        } else {
            format!("/registry/{group}/{}/", self.plural)
        }
    }

    /// The key of one object.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced() {
            format!("{}{namespace}/{name}", self.prefix())
        } else {
            format!("{}{name}", self.prefix())
        }
    }
}
