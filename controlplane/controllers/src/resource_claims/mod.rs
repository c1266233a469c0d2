//! ResourceClaims: those that pods get from templates, and claims whose pods have ended, which are released.

// Claims for pods, from templates.
mod create;
// Claims that nobody uses any more.
mod release;

use coracle_fields::core::v1;
use coracle_fields::fields;
use coracle_informer::identity::Identity;
use coracle_informer::informer::{Change, Name};
use coracle_informer::pod::{controller_of, has_ended, node_of};
use coracle_informer::queue::Queue;
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use std::sync::Arc;

use self::create::Create;
use self::release::Release;

const NAME: &str = "resource-claim-controller";
const IDENTITY: Identity = Identity::of(NAME).with_events("resource_claim");

fields! {
    /// What claims of a pod are about.
    struct Pod: v1::Pod {
        spec: Spec,
        status: Option<Status>,
    }

    struct Spec: v1::PodSpec {
        resource_claims: Vec<PodClaim>,
    }

    struct PodClaim: v1::PodResourceClaim {
        name: String,
        resource_claim_name: Option<String>,
        resource_claim_template_name: Option<String>,
    }

    struct Status: v1::PodStatus {
        resource_claim_statuses: Vec<Generated>,
        extended_resource_claim_status: Option<Extended>,
    }

    /// The claim for extended resources, which the scheduler makes.
    struct Extended: v1::PodExtendedResourceClaimStatus {
        resource_claim_name: String,
    }

    struct Generated: v1::PodResourceClaimStatus {
        name: String,
        resource_claim_name: Option<String>,
    }
}

impl Pod {
    /// What the status says of a claim that a template makes.
    fn generated(&self, claim: &PodClaim) -> Option<&Generated> {
        self.status
            .iter()
            .flat_map(|status| &status.resource_claim_statuses)
            .find(|made| made.name == claim.name)
    }

    /// Names of all claims that the pod uses and that are known.
    fn claim_names(&self) -> impl Iterator<Item = &str> {
        let named = self.spec.resource_claims.iter().filter_map(|claim| {
            let made = || self.generated(claim)?.resource_claim_name.as_deref();
            claim.resource_claim_name.as_deref().or_else(made)
        });
        let extended = self.status.iter().filter_map(|status| status.extended_resource_claim_status.as_ref());
        named.chain(extended.map(|extended| extended.resource_claim_name.as_str()))
    }
}

/// Most pods need not be read to know that they have no claims.
fn claims_of(pod: &Object) -> Option<Pod> {
    let text = std::str::from_utf8(&pod.json).ok()?;
    let has = |field: &str| text.contains(field);
    (has("\"resourceClaims\"") || has("\"extendedResourceClaimStatus\""))
        .then(|| pod.typed::<Pod>().ok())
        .flatten()
}

/// Whether a pod will not use its claims any more.
fn is_done(pod: &Object) -> bool {
    has_ended(pod) || (pod.meta.deletion_timestamp.is_some() && node_of(pod).is_empty())
}

/// Starts both controllers.
pub fn start(setup: &mut Setup<'_>) {
    let pods = setup.resource(IDENTITY, "", "pods");
    let claims = setup.resource(IDENTITY, "resource.k8s.io", "resourceclaims");
    let templates = setup.resource(IDENTITY, "resource.k8s.io", "resourceclaimtemplates");
    let (creates, releases) = (Arc::new(Queue::new()), Arc::new(Queue::new()));

    let (create, release) = (creates.clone(), releases.clone());
    let (all, cache) = (creates.clone(), pods.cache.clone());
    setup.informers().on(
        &pods.kind,
        &pods.cache,
        move |change: Change<'_>| {
            let Some(pod) = change.object() else { return };
            let Some(uses) = claims_of(pod) else { return };
            if change.new.is_none() || is_done(pod) {
                uses.claim_names().for_each(|name| release.add(Name::new(&pod.meta.namespace, name)));
            } else {
                create.add(Name::of(pod));
            }
        },
        move || {
            let pods = cache.list(None);
            pods.iter().filter(|pod| claims_of(pod).is_some()).for_each(|pod| all.add(Name::of(pod)));
        },
    );
    let (release, create) = (releases.clone(), creates.clone());
    let (all, cache) = (releases.clone(), claims.cache.clone());
    setup.informers().on(
        &claims.kind,
        &claims.cache,
        move |change: Change<'_>| {
            let Some(claim) = change.object() else { return };
            release.add(Name::of(claim));
            // One that was deleted by mistake is made again.
            if change.new.is_none()
                && let Some(owner) = controller_of(claim).filter(|owner| owner.kind == "Pod")
            {
                create.add(Name::new(&claim.meta.namespace, &owner.name));
            }
        },
        move || cache.list(None).iter().for_each(|claim| all.add(Name::of(claim))),
    );
    let (create, cache) = (creates.clone(), pods.cache.clone());
    setup.informers().on(
        &templates.kind,
        &templates.cache,
        move |change: Change<'_>| {
            let (None, Some(template)) = (change.old, change.new) else { return };
            let of = |pod: &&Arc<Object>| {
                let uses = claims_of(pod).map(|pod| pod.spec.resource_claims).unwrap_or_default();
                uses.iter()
                    .any(|claim| claim.resource_claim_template_name.as_ref() == Some(&template.meta.name))
            };
            let pods = cache.list(Some(&template.meta.namespace));
            pods.iter().filter(of).for_each(|pod| create.add(Name::of(pod)));
        },
        || (),
    );
    setup.set_primary(&creates, &pods);
    setup.set_primary(&releases, &claims);
    setup.run(Create { pods: pods.clone(), claims: claims.clone(), templates }, &creates, 2);
    setup.run(Release { pods, claims }, &releases, 2);
}

#[cfg(test)]
mod tests;
