//! Generic ephemeral volumes: a claim of a pod's own, made from the template in its volume. The claim belongs to the pod
//! and goes with it.

use crate::adoption;
use async_trait::async_trait;
use coracle_fields::core::v1;
use coracle_fields::{Made, Schema as _, fields, make};
use coracle_informer::identity::Identity;
use coracle_informer::informer::{Change, Name};
use coracle_informer::pod::controller_of;
use coracle_informer::queue::Queue;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

const NAME: &str = "ephemeral-volume-controller";
const IDENTITY: Identity = Identity::of(NAME).with_events("ephemeral_volume");

/// Why a pod has no claim for one of its volumes.
#[derive(Debug, thiserror::Error)]
enum ClaimError {
    #[error("ephemeral volume {volume}: PVC {claim} was not created for pod {pod} (pod is not owner)")]
    NotOwner { volume: String, claim: Name, pod: Name },
    #[error("ephemeral volume {volume}: create PVC {claim}: {error}")]
    Create { volume: String, claim: String, error: ApiError },
}

fields! {
    struct Pod: v1::Pod {
        spec: Spec,
    }

    struct Spec: v1::PodSpec {
        volumes: Vec<Volume>,
    }

    struct Volume: v1::Volume {
        name: String,
        ephemeral: Option<Ephemeral>,
    }

    struct Ephemeral: v1::EphemeralVolumeSource {
        volume_claim_template: Value,
    }
}

struct Volumes {
    pods: Resource,
    claims: Resource,
}

/// Starts the controller. A pod's volumes never change: only new pods and lost claims are of interest.
pub fn start(setup: &mut Setup<'_>) {
    let pods = setup.resource(IDENTITY, "", "pods");
    let claims = setup.resource(IDENTITY, "", "persistentvolumeclaims");
    let queue = Arc::new(Queue::new());
    let (new, all, cache) = (queue.clone(), queue.clone(), pods.cache.clone());
    setup.informers().on(
        &pods.kind,
        &pods.cache,
        move |change: Change<'_>| {
            if let (None, Some(pod)) = (change.old, change.new)
                && needs_claims(pod)
            {
                new.add(Name::of(pod));
            }
        },
        move || {
            cache.list(None).iter().filter(|pod| needs_claims(pod)).for_each(|pod| all.add(Name::of(pod)))
        },
    );
    let lost = queue.clone();
    setup.informers().on(
        &claims.kind,
        &claims.cache,
        move |change: Change<'_>| {
            if let (Some(claim), None) = (change.old, change.new)
                && let Some(owner) = controller_of(claim).filter(|owner| owner.kind == "Pod")
            {
                lost.add(Name::new(&claim.meta.namespace, &owner.name));
            }
        },
        || (),
    );
    setup.set_primary(&queue, &pods);
    setup.run(Volumes { pods, claims }, &queue, 1);
}

fn volumes(pod: &Object) -> Vec<Volume> {
    let volumes = pod.typed::<Pod>().map(|pod| pod.spec.volumes).unwrap_or_default();
    volumes.into_iter().filter(|volume| volume.ephemeral.is_some()).collect()
}

/// Most pods need not be read to know that they need none.
fn needs_claims(pod: &Object) -> bool {
    std::str::from_utf8(&pod.json).is_ok_and(|text| text.contains("\"ephemeral\""))
        && !volumes(pod).is_empty()
}

/// The claim of a pod's volume, by its template.
fn plan_claim(pod: &Object, volume: &str, template: &Value) -> Made<v1::PersistentVolumeClaim> {
    let template = v1::PersistentVolumeClaimTemplate::of(template);
    make!(v1::PersistentVolumeClaim {
        metadata: {
            name: format!("{}-{volume}", pod.meta.name),
            namespace: &pod.meta.namespace,
            labels: template.metadata().labels(),
            annotations: template.metadata().annotations(),
            owner_references: [adoption::reference("v1", "Pod", &pod.meta)],
        },
        spec: template.spec(),
    })
}

#[async_trait]
impl Controller for Volumes {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let pod = self.pods.get(name).filter(|pod| pod.meta.deletion_timestamp.is_none());
        let Some(pod) = pod else { return Ok(Requeue::No) };
        for volume in volumes(&pod) {
            let Some(ephemeral) = &volume.ephemeral else { continue };
            let body = plan_claim(&pod, &volume.name, &ephemeral.volume_claim_template);
            let claim = Name::new(&name.namespace, body.view().metadata().name().text());
            let volume = volume.name;
            let error = match self.claims.get(&claim) {
                Some(there) if controller_of(&there).is_some_and(|owner| owner.uid == pod.meta.uid) => {
                    continue;
                }
                Some(_) => ClaimError::NotOwner { volume, claim, pod: name.clone() },
                None => match self.claims.create(&name.namespace, body).await {
                    Ok(_) => continue,
                    Err(error) if error.is_namespace_terminating() => return Ok(Requeue::No),
                    Err(error) => ClaimError::Create { volume, claim: claim.name, error },
                },
            };
            self.pods.warn(&pod, "FailedBinding", error.to_string());
            return Err(Failure::of(error));
        }
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    #[test]
    fn a_claim_is_the_templates_and_the_pods() {
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}});
        let pod = object(json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u"},
            "spec": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}, {"name": "e", "emptyDir": {}}]},
        }));
        assert_eq!(volumes(&pod).len(), 1);
        let claim = plan_claim(&pod, "v", &template).into_value();
        assert_eq!(
            (&claim["metadata"]["name"], &claim["metadata"]["labels"]),
            (&json!("p-v"), &json!({"a": "b"}))
        );
        assert_eq!(claim["spec"], template["spec"]);
        assert_eq!(controller_of(&object(claim)).map(|owner| owner.uid.clone()), Some("u".to_owned()));
    }
}
