//! Types of the variables of expressions that do not depend on a schema.

use super::Type;
use std::collections::BTreeMap;

/// Those of questions to the authorizers.
pub fn authorizer() -> [(&'static str, Type); 2] {
    let of = |name: &str| Type::Opaque(format!("kubernetes.authorization.{name}").into());
    [("authorizer", of("Authorizer")), ("authorizer.requestResource", of("ResourceCheck"))]
}

/// `variables`, by their names.
pub fn composed(variables: &BTreeMap<String, Type>) -> Type {
    Type::object("kubernetes.variables", variables.clone())
}

/// `device`, in selectors.
pub fn device() -> Type {
    let quantity = Type::Opaque("kubernetes.Quantity".into());
    object(
        "kubernetes.DRADevice",
        &[
            ("driver", Type::String),
            ("allowMultipleAllocations", Type::Bool),
            ("attributes", Type::map(Type::map(Type::Any))),
            ("capacity", Type::map(Type::map(quantity))),
        ],
    )
}

fn object(name: &str, fields: &[(&str, Type)]) -> Type {
    Type::object(name, fields.iter().map(|(field, of)| ((*field).to_owned(), of.clone())))
}

fn texts(name: &str, fields: &[&str]) -> Type {
    Type::object(name, fields.iter().map(|field| ((*field).to_owned(), Type::String)))
}

/// `claims`, of a token: any JSON.
pub fn claims() -> Type {
    Type::map(Type::Dyn)
}

/// `user`, whom a token names.
pub fn user() -> Type {
    let strings = Type::list(Type::String);
    object(
        "kubernetes.UserInfo",
        &[
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", strings.clone()),
            ("extra", Type::map(strings)),
        ],
    )
}

/// `request`.
pub fn request() -> Type {
    let kind = texts("kubernetes.GroupVersionKind", &["group", "version", "kind"]);
    let resource = texts("kubernetes.GroupVersionResource", &["group", "version", "resource"]);
    object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", Type::String),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", Type::String),
            ("name", Type::String),
            ("namespace", Type::String),
            ("operation", Type::String),
            ("userInfo", user()),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    )
}

/// `namespaceObject`.
pub fn namespace() -> Type {
    let texts_of = || Type::map(Type::String);
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", Type::String),
            ("generateName", Type::String),
            ("namespace", Type::String),
            ("labels", texts_of()),
            ("annotations", texts_of()),
            ("UID", Type::String),
            ("creationTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Timestamp),
            ("generation", Type::Int),
            ("resourceVersion", Type::String),
            ("finalizers", Type::list(Type::String)),
        ],
    );
    let condition = object(
        "kubernetes.NamespaceCondition",
        &[
            ("status", Type::String),
            ("type", Type::String),
            ("lastTransitionTime", Type::Timestamp),
            ("message", Type::String),
            ("reason", Type::String),
        ],
    );
    let status = object(
        "kubernetes.NamespaceStatus",
        &[("conditions", Type::list(condition)), ("phase", Type::String)],
    );
    let spec = object("kubernetes.NamespaceSpec", &[("finalizers", Type::list(Type::String))]);
    object("kubernetes.Namespace", &[("metadata", metadata), ("spec", spec), ("status", status)])
}
