//! Reconciles the default roles and bindings of RBAC when a server starts, as the hook `rbac/bootstrap-roles` of Kubernetes
//! does: a missing object is created, and an existing one gets the rules, subjects, labels and annotations that it lacks, so
//! that an upgraded cluster has the rules of its version. Nothing else of an object changes, and without a difference nothing
//! is written. Objects with the annotation `rbac.authorization.kubernetes.io/autoupdate: "false"` are left alone.

// What an existing object lacks.
mod merge;
#[cfg(test)]
mod tests;

use coracle_client::Client;
use coracle_client::options::{DeleteOptions, Preconditions};
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use merge::Step;
use serde_json::Value;
use std::time::Duration;

/// The API group of roles and bindings.
pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

/// How often an object is tried while others, such as a server that starts at the same time, change it.
const ATTEMPTS: u32 = 6;
/// The pause after the first attempt; each further pause is longer by as much.
const PAUSE: Duration = Duration::from_millis(10);

/// Creates a role or binding, or adds what an existing one lacks; tried again when others changed it meanwhile.
pub(super) async fn reconcile(client: &Client, kind: &Kind, wanted: &Value) -> Result<(), ApiError> {
    for attempt in 1..ATTEMPTS {
        match reconcile_once(client, kind, wanted).await {
            Err(error) if may_pass(&error) => tokio::time::sleep(PAUSE * attempt).await,
            done => return done,
        }
    }
    reconcile_once(client, kind, wanted).await
}

/// Whether another attempt may succeed: the object was changed, created or deleted meanwhile, or the store did not answer.
pub(super) fn may_pass(error: &ApiError) -> bool {
    error.is_conflict()
        || error.is_already_exists()
        || error.is_not_found()
        || error.reason == "ServiceUnavailable"
}

async fn reconcile_once(client: &Client, kind: &Kind, wanted: &Value) -> Result<(), ApiError> {
    let meta = PartialObjectMetadata::of(wanted).metadata();
    let (namespace, name) = (meta.namespace().text(), meta.name().text());
    let existing = match client.get_whole(kind, namespace, name).await {
        Ok(existing) => existing,
        Err(error) if error.is_not_found() => {
            client.create(kind, namespace, wanted.clone()).await?;
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let object = existing.value();
    let resource = &kind.plural;
    match merge::plan(&object, wanted) {
        Step::Nothing => {}
        _ if merge::is_protected(&object) => tracing::warn!(
            %resource,
            namespace,
            name,
            "default role or binding not updated: its annotation autoupdate is false"
        ),
        Step::Update(merged) => {
            // It has the resource version that was read: a change by others is a conflict.
            client.update(kind, namespace, name, "", merged).await?;
            tracing::info!(%resource, namespace, name, "default role or binding updated");
        }
        Step::Recreate => {
            let only = Preconditions {
                uid: Some(existing.meta.uid.clone()),
                resource_version: Some(existing.revision.to_string()),
            };
            let options = DeleteOptions { preconditions: Some(only), ..DeleteOptions::default() };
            match client.delete(kind, namespace, name, options).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
            client.create(kind, namespace, wanted.clone()).await?;
            tracing::info!(%resource, namespace, name, "default binding replaced: it was bound to another role");
        }
    }
    Ok(())
}
