//! PodTolerationRestriction: adds the default tolerations of a namespace and rejects tolerations it does not allow.

use super::config::{Configuration, ConfigurationError, only};
use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::core::v1::{Pod, Toleration};
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Made, Schema as _, View, make};
use coracle_proto::status::ApiError;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

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

    fn handles(&self, at: &Attributes<'_>, _: Phase) -> bool {
        concerns(at)
    }

    async fn mutate(&self, at: &mut Attributes<'_>, pod: &mut Value) -> Result<(), ApiError> {
        if !concerns(at) {
            return Ok(());
        }
        let mut more = Vec::new();
        if at.is_new() {
            more = namespace_tolerations(at, DEFAULTS).await?.unwrap_or_else(|| self.0.default.clone());
        }
        if !coracle_kinds::registry::usage::in_scope(pod, "BestEffort") {
            let pressure = make!(part Toleration {
                key: "node.kubernetes.io/memory-pressure",
                operator: "Exists",
                effect: "NoSchedule",
            });
            more.push(pressure.into_value());
        }
        for toleration in more {
            let toleration = Made::<Toleration>::new(toleration);
            let mut tolerations = Pod::of(pod).spec().tolerations().items();
            if !tolerations.any(|own| covers(own, toleration.view())) {
                Pod::edit(pod).spec().tolerations().push(toleration);
            }
        }
        Ok(())
    }

    async fn validate(&self, at: &mut Attributes<'_>, pod: &Value) -> Result<(), ApiError> {
        let tolerations = Pod::of(pod).spec().tolerations();
        if !concerns(at) || tolerations.is_empty() {
            return Ok(());
        }
        let (allowed, scope) = match namespace_tolerations(at, ALLOWED).await? {
            Some(own) => (own, "namespace"),
            None => (self.0.whitelist.clone(), "cluster"),
        };
        let is_allowed =
            |own: View<'_, Toleration>| allowed.iter().any(|wide| covers(Toleration::of(wide), own));
        if allowed.is_empty() || tolerations.items().all(is_allowed) {
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
    let Some(namespace) = at.find("", "namespaces", "", at.namespace).await else { return Ok(None) };
    let doc = namespace.doc();
    match doc.view::<PartialObjectMetadata>().metadata().annotations().key(annotation).get() {
        None => Ok(None),
        Some("") => Ok(Some(Vec::new())),
        Some(text) => serde_json::from_str(text).map(Some).map_err(ApiError::internal),
    }
}

/// Whether `wide` tolerates everything that `narrow` does.
fn covers(wide: View<'_, Toleration>, narrow: View<'_, Toleration>) -> bool {
    let (key, effect) = (wide.key().text(), wide.effect().text());
    if !key.is_empty() && narrow.key() != key || !effect.is_empty() && narrow.effect() != effect {
        return false;
    }
    let own = narrow.toleration_seconds().int();
    if wide.toleration_seconds().int().is_some_and(|most| own.is_none_or(|own| own > most)) {
        return false;
    }
    let exists = |toleration: View<'_, Toleration>| toleration.operator() == "Exists";
    exists(wide) || (!exists(narrow) && wide.value().text() == narrow.value().text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
            let covered = covers(Toleration::of(&wide), Toleration::of(&narrow));
            assert_eq!(covered, expected, "{wide} {narrow}");
        }
    }
}
