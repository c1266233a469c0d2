//! OwnerReferencesPermissionEnforcement: setting an owner reference requires permission to delete the object, and
//! `blockOwnerDeletion` requires permission to update the owner's finalizers.

use super::{Attributes, Operation, Plugin};
use crate::authz::{Authorizer, Decision};
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use async_trait::async_trait;
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

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        let status = at.kind.plural == "pods" && at.subresource == "status";
        if status || !matches!(at.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        let owners =
            |object: &Value| object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let (new, old) = (owners(object), at.old.map(owners).unwrap_or_default());
        if new == old {
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
        let blocks = |owner: &&Value| owner["blockOwnerDeletion"] == true;
        let had =
            |owner: &Value| old.iter().any(|o| o["uid"] == owner["uid"] && o["blockOwnerDeletion"] == true);
        for owner in new.iter().filter(blocks).filter(|owner| !had(owner)) {
            self.check_blocking(at, owner).await?;
        }
        Ok(())
    }
}

impl OwnerReferencesPermissionEnforcement {
    /// Why the user may not; `None` when it may.
    async fn refused(&self, at: &Attributes<'_>, request: &RequestInfo) -> Option<String> {
        match self.0.authorize(at.user, request).await {
            Decision::Allow => None,
            Decision::Deny(why) | Decision::NoOpinion(why) => Some(why),
        }
    }

    async fn check_blocking(&self, at: &Attributes<'_>, owner: &Value) -> Result<(), ApiError> {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let Some(kind) = at.api.objects().registry.kind(group, version, text("kind")) else {
            return Err(at.forbidden(format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {} Kind {}: no matches for kind \"{}\" in version \"{}\"",
                text("apiVersion"), text("kind"), text("kind"), text("apiVersion")
            )));
        };
        let update = RequestInfo {
            verb: Verb::Update,
            group: kind.group.clone(),
            version: kind.version.clone(),
            resource: kind.plural.clone(),
            subresource: "finalizers".into(),
            namespace: if kind.namespaced() { at.namespace.into() } else { String::new() },
            name: text("name").into(),
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
