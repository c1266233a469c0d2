//! PodTolerationRestriction: adds the default tolerations of a namespace and rejects tolerations it does not allow.

use super::config::{Configuration, ConfigurationError, only};
use super::{Attributes, Operation, Plugin};
use async_trait::async_trait;
use coracle_proto::status::ApiError;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    #[serde(deserialize_with = "tolerations")]
    default: Vec<Value>,
    #[serde(deserialize_with = "tolerations")]
    whitelist: Vec<Value>,
}

fn tolerations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    only(deserializer, &["key", "operator", "value", "effect", "tolerationSeconds"])
}

/// The plugin.
pub struct PodTolerationRestriction(Settings);

impl PodTolerationRestriction {
    /// The plugin with what holds where a namespace says nothing.
    pub fn new(configuration: &Configuration) -> Result<Self, ConfigurationError> {
        configuration.of("PodTolerationRestriction").map(Self)
    }
}

#[async_trait]
impl Plugin for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        if !concerns(at) {
            return Ok(());
        }
        let mut more = Vec::new();
        if at.operation == Operation::Create {
            more = namespace_tolerations(at, DEFAULTS).await?.unwrap_or_else(|| self.0.default.clone());
        }
        if !coracle_kinds::registry::usage::in_scope(pod, "BestEffort") {
            more.push(json!({"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}));
        }
        let mut all = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        for toleration in more {
            if !all.iter().any(|own| covers(own, &toleration)) {
                all.push(toleration);
            }
        }
        if !all.is_empty() {
            pod["spec"]["tolerations"] = json!(all);
        }
        Ok(())
    }

    async fn validate(&self, at: &mut Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
        let tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        if !concerns(at) || tolerations.is_empty() {
            return Ok(());
        }
        let (allowed, scope) = match namespace_tolerations(at, ALLOWED).await? {
            Some(own) => (own, "namespace"),
            None => (self.0.whitelist.clone(), "cluster"),
        };
        if allowed.is_empty() || tolerations.iter().all(|t| allowed.iter().any(|a| covers(a, t))) {
            return Ok(());
        }
        Err(at.forbidden(format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        )))
    }
}

fn concerns(at: &Attributes<'_>) -> bool {
    at.is("", "pods") && matches!(at.operation, Operation::Create | Operation::Update)
}

/// What the namespace's annotation says; `None` when it has none.
async fn namespace_tolerations(
    at: &Attributes<'_>,
    annotation: &str,
) -> Result<Option<Vec<Value>>, ApiError> {
    let namespace = at.find("", "namespaces", "", at.namespace).await.map(|namespace| namespace.value());
    let text = namespace.as_ref().and_then(|n| n["metadata"]["annotations"][annotation].as_str());
    match text {
        None => Ok(None),
        Some("") => Ok(Some(Vec::new())),
        Some(text) => serde_json::from_str(text).map(Some).map_err(ApiError::internal),
    }
}

/// Whether `wide` tolerates everything that `narrow` does.
fn covers(wide: &Value, narrow: &Value) -> bool {
    let text = |t: &Value, field: &str| t[field].as_str().unwrap_or_default().to_owned();
    let exists = |t: &Value| t["operator"] == "Exists";
    let (key, effect) = (text(wide, "key"), text(wide, "effect"));
    if !key.is_empty() && key != text(narrow, "key") || !effect.is_empty() && effect != text(narrow, "effect")
    {
        return false;
    }
    let seconds = |t: &Value| t["tolerationSeconds"].as_i64();
    if seconds(wide).is_some_and(|most| seconds(narrow).is_none_or(|own| own > most)) {
        return false;
    }
    exists(wide) || (!exists(narrow) && text(wide, "value") == text(narrow, "value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_tolerations_cover_narrow_ones() {
        let exists = |key: &str| json!({"key": key, "operator": "Exists"});
        let equal = |key: &str, value: &str| json!({"key": key, "operator": "Equal", "value": value});
        for (wide, narrow, expected) in [
            (exists("a"), equal("a", "1"), true),
            (equal("a", "1"), exists("a"), false),
            (equal("a", "1"), equal("a", "2"), false),
            (json!({"operator": "Exists"}), exists("b"), true),
            (exists("a"), exists("b"), false),
            (json!({"key": "a", "operator": "Exists", "tolerationSeconds": 10}), exists("a"), false),
        ] {
            assert_eq!(covers(&wide, &narrow), expected, "{wide} {narrow}");
        }
    }
}
