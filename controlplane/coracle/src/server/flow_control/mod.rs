//! Reconciles the default FlowSchemas and PriorityLevelConfigurations when a server starts, as kube-apiserver does: a missing
//! object is created, an existing one gets the spec of this version if its annotation `apf.kubernetes.io/autoupdate-spec`
//! allows it, and objects with the annotation that this version does not have are removed. The objects `exempt` and `catch-all`
//! always get their spec.

// What has to change in an existing object.
mod plan;
#[cfg(test)]
mod tests;

use super::bootstrap_roles::may_pass;
use coracle_client::Client;
use coracle_client::options::{DeleteOptions, Preconditions};
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::collections::HashSet;
use std::time::Duration;

/// The API group of the objects.
pub(super) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// Schemas name levels: they are removed first.
const PLURALS: [&str; 2] = ["flowschemas", "prioritylevelconfigurations"];

/// How often an object is tried while others, such as a server that starts at the same time, change it.
const ATTEMPTS: u32 = 6;
/// The pause after the first attempt; each further pause is longer by as much.
const PAUSE: Duration = Duration::from_millis(10);

/// Creates an object, or brings an existing one up to date; tried again when others changed it meanwhile, or the store did not
/// answer.
pub(super) async fn reconcile(client: &Client, kind: &Kind, wanted: &Value) -> Result<(), ApiError> {
    for attempt in 1..ATTEMPTS {
        match reconcile_once(client, kind, wanted).await {
            Err(error) if may_pass(&error) => tokio::time::sleep(PAUSE * attempt).await,
            done => return done,
        }
    }
    reconcile_once(client, kind, wanted).await
}

async fn reconcile_once(client: &Client, kind: &Kind, wanted: &Value) -> Result<(), ApiError> {
    let name = PartialObjectMetadata::of(wanted).metadata().name().text();
    let existing = match client.get_whole(kind, "", name).await {
        Ok(existing) => existing,
        Err(error) if error.is_not_found() => {
            client.create(kind, "", wanted.clone()).await?;
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let mut filled = wanted.clone();
    kind.fill(&mut filled);
    let Some(revised) = plan::revise(&existing.value(), &filled) else { return Ok(()) };
    // It has the resource version that was read: a change by others is a conflict.
    client.update(kind, "", name, "", revised).await?;
    tracing::info!(resource = %kind.plural, name, "default of priority and fairness updated");
    Ok(())
}

/// Kinds and names of objects.
pub(super) fn names(objects: &[Value]) -> HashSet<(String, String)> {
    let of = |object: &Value| {
        let object = PartialObjectMetadata::of(object);
        (object.kind().text().to_owned(), object.metadata().name().text().to_owned())
    };
    objects.iter().map(of).collect()
}

/// Removes objects that a server made and that are not among these kinds and names. One that is changed meanwhile stays.
pub(super) async fn remove_obsolete(
    client: &Client,
    wanted: &HashSet<(String, String)>,
) -> Result<(), ApiError> {
    for plural in PLURALS {
        let kind = client.kind(GROUP, plural);
        for object in client.cache(&kind).list(None) {
            let name = &object.meta.name;
            let is_wanted = wanted.contains(&(kind.kind.clone(), name.clone()));
            if is_wanted || plan::autoupdate(&object.value()) != Some(true) {
                continue;
            }
            let only = Preconditions {
                uid: Some(object.meta.uid.clone()),
                resource_version: Some(object.revision.to_string()),
            };
            let options = DeleteOptions { preconditions: Some(only), ..DeleteOptions::default() };
            match client.delete(&kind, "", name, options).await {
                Ok(_) => {
                    tracing::info!(
                        resource = plural,
                        name,
                        "obsolete default of priority and fairness removed"
                    );
                }
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
