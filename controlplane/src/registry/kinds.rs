//! The shape of a row in the table of kinds. Everything the server does differently for a kind hangs here, so that
//! `apiserver/` names no kind.

use coracle_proto::status::FieldError;
use serde_json::Value;

/// Whether objects live in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In a namespace.
    Namespaced,
    /// Directly in the cluster.
    Cluster,
}

/// A column of `kubectl get`.
#[derive(Clone)]
pub struct Column {
    /// Header, such as `Ready`.
    pub name: String,
    /// OpenAPI type: string, integer, date …
    pub kind: &'static str,
    /// OpenAPI format, `name` for the first column.
    pub format: &'static str,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
    /// Renders the cell from the object.
    pub cell: Cell,
}

/// How a cell is made from an object.
#[derive(Clone)]
pub enum Cell {
    /// By a function of the object.
    With(fn(&Value) -> Value),
    /// By a JSONPath, for custom resources.
    Path(String),
}

/// What a kind does to its objects on the way to the store. Each function is pure; the clock and the uid are set
/// by the pipeline before.
#[derive(Clone, Copy)]
pub struct Strategy {
    /// Fills in what the client left out.
    pub defaults: fn(&mut Value),
    /// Before a create: drops what clients may not set, sets what the kind starts with.
    pub prepare_create: fn(&mut Value),
    /// Before an update of the main resource: takes over from `old` what this endpoint may not change (status …).
    pub prepare_update: fn(&mut Value, &Value),
    /// Before an update of `/status`: takes over from `old` everything but the status.
    pub prepare_status: fn(&mut Value, &Value),
    /// Field rules of a new object.
    pub validate: fn(&Value, &mut Vec<FieldError>),
    /// Field rules of a change, `new` then `old`; called besides `validate`.
    pub validate_update: fn(&Value, &Value, &mut Vec<FieldError>),
    /// Field rules of a change of `/status`, `new` then `old`.
    pub validate_status: fn(&Value, &Value, &mut Vec<FieldError>),
    /// Sentences for the `Warning` header.
    pub warnings: fn(&Value, Option<&Value>) -> Vec<String>,
}

/// A field that field selectors may name, besides `metadata.name` and `metadata.namespace`.
#[derive(Clone, Copy)]
pub struct Field {
    /// Such as `spec.nodeName`.
    pub name: &'static str,
    /// Its value, empty when unset.
    pub get: fn(&Value) -> String,
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
    /// Selectable fields.
    pub fields: &'static [Field],
    /// Columns.
    pub columns: Vec<Column>,
    /// What happens on the way to the store.
    pub strategy: Strategy,
}

impl Kind {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether objects live in namespaces.
    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// The key prefix of all objects of the kind: `/registry/<group>/<resource>/`, core without the group.
    pub fn prefix(&self) -> String {
        if self.group.is_empty() {
            format!("/registry/{}/", self.plural)
        } else {
            format!("/registry/{}/{}/", self.group, self.plural)
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
