//! What a binding hands to its policy: one object, all that a selector finds, or nothing.

use crate::admission::Attributes;
use coracle_proto::selector::LabelSelector;
use serde_json::Value;

/// Every object that the policy is to be evaluated with; null stands for none. Why the binding cannot be used.
pub async fn collect(kind: &Value, reference: &Value, at: &Attributes<'_>) -> Result<Vec<Value>, String> {
    if !kind.is_object() || !reference.is_object() {
        return Ok(vec![Value::Null]);
    }
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (version, name) = (text(kind, "apiVersion"), text(kind, "kind"));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let known = at.api.registry.kind(group, version, &name);
    let known = known.ok_or_else(|| format!("paramKind kind `{group}/{version}, Kind={name}` not known"))?;
    let asked = text(reference, "namespace");
    let namespace = match (known.namespaced(), asked.is_empty()) {
        (false, true) => String::new(),
        (false, false) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
        }
        (true, false) => asked,
        (true, true) if at.namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .into(),
            );
        }
        (true, true) => at.namespace.to_owned(),
    };
    let named = text(reference, "name");
    let found = if named.is_empty() {
        let selector =
            LabelSelector::from_object(&reference["selector"]).map_err(|error| error.to_string())?;
        let all =
            at.cached(&known.group, &known.plural, Some(&namespace).filter(|n| !n.is_empty()).map(|n| &**n));
        let chosen =
            all.into_iter().filter(|o| selector.matches(|key| o.meta.labels.get(key).map(String::as_str)));
        chosen.collect::<Vec<_>>()
    } else {
        at.find(&known.group, &known.plural, &namespace, &named).await.into_iter().collect()
    };
    let found = at.api.converter.views(&known, found).await.map_err(|error| error.message)?;
    let mut found: Vec<Value> = found.iter().map(|object| object.value()).collect();
    for object in &mut found {
        object["apiVersion"] = kind["apiVersion"].clone();
        object["kind"] = kind["kind"].clone();
    }
    if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    Ok(found)
}
