//! Resolves the parameters of a policy binding: one object, all objects that a selector matches, or none.

use crate::admission::Attributes;
use coracle_fields::admissionregistration::v1::{ParamKind, ParamRef};
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Schema as _, View};
use coracle_proto::selector::{LabelSelector, SelectorError};
use coracle_proto::status::ApiError;
use serde_json::Value;

/// Why a binding cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ParamsError {
    /// The kind of the parameters is not served.
    #[error("paramKind kind `{group}/{version}, Kind={kind}` not known")]
    Kind {
        /// Its group.
        group: String,
        /// Its version.
        version: String,
        /// Its name.
        kind: String,
    },
    /// A namespace for parameters that are in none.
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    Namespace,
    /// Parameters in the namespace of an object that is in none.
    #[error("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")]
    ClusterScoped,
    /// The selector cannot be used.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// The parameters cannot be converted to the version that the policy names.
    #[error(transparent)]
    Convert(#[from] ApiError),
    /// The object cannot be converted to the version that the policy is about.
    #[error("failed to convert object version: {0}")]
    Object(ApiError),
    /// There are none, and there must be.
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    NotFound,
}

/// Every object that the policy is to be evaluated with; null stands for none.
pub async fn collect(
    kind: View<'_, ParamKind>,
    reference: View<'_, ParamRef>,
    at: &Attributes<'_>,
) -> Result<Vec<Value>, ParamsError> {
    if !kind.is_object() || !reference.is_object() {
        return Ok(vec![Value::Null]);
    }
    let (version, name) = (kind.api_version().text(), kind.kind().text());
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let known = at.api.objects().registry.kind(group, version, name);
    let known = known.ok_or_else(|| ParamsError::Kind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: name.to_owned(),
    })?;
    let asked = reference.namespace().text();
    let namespace = match (known.namespaced(), asked.is_empty()) {
        (false, true) => "",
        (false, false) => return Err(ParamsError::Namespace),
        (true, false) => asked,
        (true, true) if at.namespace.is_empty() => return Err(ParamsError::ClusterScoped),
        (true, true) => at.namespace,
    };
    let named = reference.name().text();
    let found = if named.is_empty() {
        let selector = LabelSelector::from_object(&reference.selector().as_value())?;
        let all = at.cached(&known.group, &known.plural, Some(namespace).filter(|n| !n.is_empty()));
        let chosen =
            all.into_iter().filter(|o| selector.matches(|key| o.meta.labels.get(key).map(String::as_str)));
        chosen.collect::<Vec<_>>()
    } else {
        at.find(&known.group, &known.plural, namespace, named).await.into_iter().collect()
    };
    let found = at.api.converter().to_version_all(&known, found).await?;
    let mut found: Vec<Value> = found.iter().map(|object| object.value()).collect();
    for object in &mut found {
        let mut object = PartialObjectMetadata::edit(object);
        object.api_version().set(kind.api_version());
        object.kind().set(kind.kind());
    }
    if found.is_empty() && reference.parameter_not_found_action() == "Deny" {
        return Err(ParamsError::NotFound);
    }
    Ok(found)
}
