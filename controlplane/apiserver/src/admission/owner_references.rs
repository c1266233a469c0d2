//! OwnerReferencesPermissionEnforcement: setting an owner reference requires permission to delete the object, and
//! `blockOwnerDeletion` requires permission to update the owner's finalizers.

use super::{Attributes, Operation, Phase, Plugin};
use crate::authz::{Authorizer, Decision};
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_fields::meta::{OwnerReference, PartialObjectMetadata};
use coracle_fields::{List, Schema as _, View};
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::sync::Arc;

/// The plugin.
pub struct OwnerReferencesPermissionEnforcement(pub Arc<dyn Authorizer>);

#[async_trait]
impl Plugin for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && at.writes()
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        let status = at.kind.plural == "pods" && at.subresource == "status";
        if status || !matches!(at.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        let nothing = Value::Null;
        let (new, old) = (owners(object), owners(at.old.unwrap_or(&nothing)));
        if new.len() == old.len() && new.items().zip(old.items()).all(|(new, old)| new.same_as(old)) {
            return Ok(());
        }
        if at.operation == Operation::Update {
            let delete = RequestInfo {
                verb: Verb::Delete,
                group: at.kind.group.clone(),
                version: at.kind.version.clone(),
                resource: at.kind.plural.clone(),
                subresource: at.subresource.into(),
                namespace: at.namespace.into(),
                name: at.name.into(),
                is_resource: true,
                ..RequestInfo::default()
            };
            if let Some(why) = self.refused(at, &delete).await {
                return Err(at.forbidden(format!(
                    "cannot set an ownerRef on a resource you can't delete: {why}, <nil>"
                )));
            }
        }
        for owner in new.items().filter(blocks) {
            let had = old.items().filter(blocks).any(|old| old.uid().same_as(owner.uid()));
            if !had {
                self.check_blocking(at, owner).await?;
            }
        }
        Ok(())
    }
}

fn owners(object: &Value) -> View<'_, List<OwnerReference>> {
    PartialObjectMetadata::of(object).metadata().owner_references()
}

fn blocks(owner: &View<'_, OwnerReference>) -> bool {
    owner.block_owner_deletion().flag()
}

impl OwnerReferencesPermissionEnforcement {
    /// Why the user may not; `None` when it may.
    async fn refused(&self, at: &Attributes<'_>, request: &RequestInfo) -> Option<String> {
        match self.0.authorize(at.user, request).await {
            Decision::Allow => None,
            Decision::Deny(why)
            | Decision::NoOpinion(why)
            | Decision::Failed(why)
            | Decision::Contradiction(why) => Some(why),
        }
    }

    async fn check_blocking(
        &self,
        at: &Attributes<'_>,
        owner: View<'_, OwnerReference>,
    ) -> Result<(), ApiError> {
        let (api_version, name) = (owner.api_version().text(), owner.kind().text());
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let Some(kind) = at.api.objects().registry.kind(group, version, name) else {
            return Err(at.forbidden(format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind {name}: no matches for kind \"{name}\" in version \"{api_version}\""
            )));
        };
        let update = RequestInfo {
            verb: Verb::Update,
            group: kind.group.clone(),
            version: kind.version.clone(),
            resource: kind.plural.clone(),
            subresource: "finalizers".into(),
            namespace: if kind.namespaced() { at.namespace.into() } else { String::new() },
            name: owner.name().text().into(),
            is_resource: true,
            ..RequestInfo::default()
        };
        match self.refused(at, &update).await {
            None => Ok(()),
            Some(why) => Err(at.forbidden(format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {why}, <nil>"
            ))),
        }
    }
}
