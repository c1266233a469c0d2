//! Initializers: new objects get the names of the initializers that InitializerConfigurations have for them, and nobody sees the
//! objects until each one has removed its name. Whoever changes an object in this time, or chooses initializers on its own,
//! needs the verb `initialize` on the resource.

use super::config::PluginError;
use super::{Attributes, Operation, Phase, Plugin};
use crate::authz::{Authorizer, Decision};
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_fields::initializers::{InitializerConfiguration, Rule};
use coracle_fields::meta::{Initializer, Initializers as ObjectInitializers, PartialObjectMetadata};
use coracle_fields::{List, Schema as _, Text, View, make};
use coracle_kinds::registry::equivalent::Named;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::{ApiError, FieldError};
use coracle_validation::initializers as rules;
use serde_json::Value;
use std::sync::Arc;

/// Name of the plugin, and of the feature gate that it needs.
pub const NAME: &str = "Initializers";
const GROUP: &str = "admissionregistration.k8s.io";
const CONFIGURATIONS: &str = "initializerconfigurations";
/// Pods with it are copies of what a node runs already.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The plugin.
pub struct Initializers {
    /// Decides who may initialize.
    pub authz: Arc<dyn Authorizer>,
    /// Whether the feature gate is on.
    pub is_served: bool,
}

#[async_trait]
impl Plugin for Initializers {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ready(&self) -> Result<(), PluginError> {
        if self.is_served { Ok(()) } else { Err(PluginError::NoGate(NAME)) }
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        let is_object = at.subresource.is_empty() || at.kind.taken_by(at.subresource).is_none();
        phase == Phase::Mutate && at.writes() && is_object && at.kind.stored
    }

    async fn mutate(&self, at: &mut Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        if is_never_initialized(at.kind) {
            // With the field the object would be hidden, and nobody would finish it.
            PartialObjectMetadata::edit(object).metadata().initializers().clear();
            return Ok(());
        }
        match at.operation {
            Operation::Create => self.create(at, object).await,
            _ => self.update(at, object).await,
        }
    }
}

impl Initializers {
    async fn create(&self, at: &Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        let (meta, configured) = (PartialObjectMetadata::of(object).metadata(), configured(at));
        let given = meta.initializers();
        if given.is_set() {
            // The second time: webhooks or policies have changed the object since the first.
            if !configured.is_empty() && names(given.pending()) == configured && !given.result().is_set() {
                return Ok(());
            }
            self.may_initialize(at, "create with initializers denied").await?;
            let mut errors = Vec::new();
            rules::of_object(object, &mut errors);
            clear_empty(object);
            return valid(at, errors);
        }
        let is_mirror = at.is("", "pods") && meta.annotations().key(MIRROR).is_set();
        if !configured.is_empty() && !is_mirror {
            let pending: Vec<Value> =
                configured.iter().map(|name| make!(part Initializer { name }).into_value()).collect();
            PartialObjectMetadata::edit(object).metadata().initializers().pending().put(pending.into());
        }
        Ok(())
    }

    async fn update(&self, at: &Attributes<'_>, object: &mut Value) -> Result<(), ApiError> {
        let nothing = Value::Null;
        let old = at.old.unwrap_or(&nothing);
        let was_initialized = !initializers(old).is_set();
        if !at.subresource.is_empty() {
            // They are reached on initialized objects only, which stay so.
            PartialObjectMetadata::edit(object).metadata().initializers().clear();
            return Ok(());
        }
        clear_empty(object);
        if was_initialized && !initializers(object).is_set() {
            return Ok(());
        }
        let mut errors = Vec::new();
        rules::of_change(object, old, &mut errors);
        valid(at, errors)?;
        self.may_initialize(at, "update to uninitialized resource denied").await
    }

    async fn may_initialize(&self, at: &Attributes<'_>, refused: &str) -> Result<(), ApiError> {
        let request = RequestInfo {
            verb: Verb::from("initialize"),
            group: at.kind.group.clone(),
            version: at.kind.version.clone(),
            resource: at.kind.plural.clone(),
            namespace: at.namespace.into(),
            name: at.name.into(),
            is_resource: true,
            ..RequestInfo::default()
        };
        match self.authz.authorize(at.user, &request).await {
            Decision::Allow => Ok(()),
            Decision::Deny(why)
            | Decision::NoOpinion(why)
            | Decision::Failed(why)
            | Decision::Contradiction(why) => Err(at.forbidden(format!("{refused}: {why}"))),
        }
    }
}

/// Configurations of admission must not block each other, and nobody waits for Events and Leases.
fn is_never_initialized(kind: &Kind) -> bool {
    kind.lazy || kind.group == GROUP
}

fn initializers(object: &Value) -> View<'_, ObjectInitializers> {
    PartialObjectMetadata::of(object).metadata().initializers()
}

fn names(pending: View<'_, List<Initializer>>) -> Vec<String> {
    pending.items().map(|one| one.name().text().to_owned()).collect()
}

/// Without a name and without a result, initialization is complete.
fn clear_empty(object: &mut Value) {
    let given = initializers(object);
    if given.pending().is_empty() && !given.result().is_set() {
        PartialObjectMetadata::edit(object).metadata().initializers().clear();
    }
}

fn valid(at: &Attributes<'_>, errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(&at.kind.group, &at.kind.kind, at.name, errors))
}

/// The initializers of a new object, in the order of the configurations' names. Rules match any name of its resource: nobody gets
/// around an initializer through another version.
fn configured(at: &Attributes<'_>) -> Vec<String> {
    let configurations = at.cached(GROUP, CONFIGURATIONS, None);
    if configurations.is_empty() {
        return Vec::new();
    }
    let mut resources = at.api.objects().registry.equivalents(at.kind, "");
    resources.push(Named::of(at.kind));
    let mut found: Vec<String> = Vec::new();
    for configuration in configurations {
        let doc = configuration.doc();
        for one in doc.view::<InitializerConfiguration>().initializers().items() {
            let name = one.name().text();
            let matched = one.rules().items().any(|rule| resources.iter().any(|named| matches(rule, named)));
            if matched && found.len() < rules::MOST && !found.iter().any(|other| other == name) {
                found.push(name.to_owned());
            }
        }
    }
    found
}

fn matches(rule: View<'_, Rule>, resource: &Named) -> bool {
    let has = |list: View<'_, List<Text>>, text: &str| list.has("*") || list.has(text);
    has(rule.api_groups(), &resource.group)
        && has(rule.api_versions(), &resource.version)
        && has(rule.resources(), &resource.plural)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_match_groups_versions_and_resources() {
        let deployments = Named {
            group: "apps".into(),
            version: "v1".into(),
            plural: "deployments".into(),
            kind: "Deployment".into(),
        };
        for (groups, versions, resources, expected) in [
            (json!(["apps"]), json!(["v1"]), json!(["deployments"]), true),
            (json!(["*"]), json!(["*"]), json!(["*"]), true),
            (json!(["", "apps"]), json!(["v1"]), json!(["pods", "deployments"]), true),
            (json!([""]), json!(["v1"]), json!(["deployments"]), false),
            (json!(["apps"]), json!(["v1beta1"]), json!(["deployments"]), false),
            (json!(["apps"]), json!(["v1"]), json!([]), false),
        ] {
            let rule = json!({"apiGroups": groups, "apiVersions": versions, "resources": resources});
            assert_eq!(matches(Rule::of(&rule), &deployments), expected, "{rule}");
        }
    }

    #[test]
    fn initialization_is_complete_without_names_and_result() {
        for (given, kept) in [
            (json!({}), false),
            (json!({"pending": []}), false),
            (json!({"pending": [{"name": "a.example.com"}]}), true),
            (json!({"pending": [], "result": {"status": "Failure"}}), true),
        ] {
            let mut object = json!({"metadata": {"name": "a", "initializers": given}});
            clear_empty(&mut object);
            assert_eq!(object["metadata"].get("initializers").is_some(), kept, "{object}");
        }
    }
}
