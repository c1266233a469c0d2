//! Eviction of pods whose devices have `NoExecute` taints that their claims do not tolerate, or no longer. The taints are those
//! of ResourceSlices; DeviceTaintRules are off by default in Kubernetes and are not served.

// When pods leave.
mod leave;

use crate::nodes::disruption;
use async_trait::async_trait;
use coracle_fields::core::v1;
use coracle_fields::resource::v1 as resource;
use coracle_fields::{fields, meta};
use coracle_informer::conditions::Condition;
use coracle_informer::index::Index;
use coracle_informer::informer::Name;
use coracle_informer::pod::{controller_of, has_ended, node_of};
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_informer::time;
use coracle_kinds::object::Object;
use jiff::Timestamp;
use leave::{Allocated, Slice};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

const NAME: &str = "device-taint-eviction-controller";
const EVICTION: &str = "DeviceTaintManagerEviction";

fields! {
    struct Pod: v1::Pod {
        metadata: Meta,
        spec: Spec,
        status: Option<Status>,
    }

    struct Meta: meta::ObjectMeta {
        creation_timestamp: Option<String>,
    }

    struct Spec: v1::PodSpec {
        resource_claims: Vec<PodClaim>,
    }

    struct PodClaim: v1::PodResourceClaim {
        name: String,
        resource_claim_name: Option<String>,
    }

    struct Status: v1::PodStatus {
        resource_claim_statuses: Vec<Generated>,
    }

    struct Generated: v1::PodResourceClaimStatus {
        name: String,
        resource_claim_name: Option<String>,
    }

    struct Claim: resource::ResourceClaim {
        status: Option<ClaimStatus>,
    }

    struct ClaimStatus: resource::ResourceClaimStatus {
        allocation: Option<Allocation>,
        reserved_for: Vec<Consumer>,
    }

    struct Allocation: resource::AllocationResult {
        devices: Results,
    }

    struct Results: resource::DeviceAllocationResult {
        results: Vec<Allocated>,
    }

    struct Consumer: resource::ResourceClaimConsumerReference {
        api_group: String,
        resource: String,
        name: String,
        uid: String,
    }
}

impl Pod {
    /// Names of its claims that exist, and whether they were made for it.
    fn claims(&self) -> impl Iterator<Item = (&str, bool)> {
        self.spec.resource_claims.iter().filter_map(|claim| {
            let made = self.status.iter().flat_map(|status| &status.resource_claim_statuses);
            let mut made = made.filter(|made| made.name == claim.name);
            let made = made.find_map(|made| made.resource_claim_name.as_deref());
            let named = claim.resource_claim_name.as_deref().map(|name| (name, false));
            named.or(made.map(|name| (name, true)))
        })
    }
}

impl Claim {
    fn results(&self) -> &[Allocated] {
        let allocation = self.status.as_ref().and_then(|status| status.allocation.as_ref());
        allocation.map_or(&[], |allocation| &allocation.devices.results)
    }

    fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        let all = self.status.iter().flat_map(|status| &status.reserved_for);
        all.filter(|consumer| consumer.api_group.is_empty() && consumer.resource == "pods")
    }
}

fn pool_key(driver: &str, pool: &str) -> String {
    format!("{driver}/{pool}")
}

fn read_slice(slice: &Arc<Object>) -> Slice {
    slice.typed().unwrap_or_default()
}

fn slice_keys(slice: &Slice) -> Vec<String> {
    vec![pool_key(&slice.spec.driver, &slice.spec.pool.name)]
}

fn read_claim(claim: &Arc<Object>) -> (String, Claim) {
    (claim.meta.namespace.clone(), claim.typed().unwrap_or_default())
}

fn claim_keys((_, claim): &(String, Claim)) -> Vec<String> {
    let pools: HashSet<String> =
        claim.results().iter().map(|result| pool_key(&result.driver, &result.pool)).collect();
    pools.into_iter().collect()
}

/// Whether a slice may have a taint that makes pods leave. Most have none, and need not be read to know that.
fn may_evict(slice: &Object) -> bool {
    std::str::from_utf8(&slice.json).is_ok_and(|text| text.contains("\"NoExecute\""))
}

/// Whether a pod may have to leave: it has a node and claims.
fn may_leave(pod: &Object) -> bool {
    let has_claims = || std::str::from_utf8(&pod.json).is_ok_and(|text| text.contains("\"resourceClaims\""));
    !node_of(pod).is_empty() && pod.meta.deletion_timestamp.is_none() && has_claims()
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let pods = setup.resource(NAME, "", "pods");
    let claims = setup.resource(NAME, "resource.k8s.io", "resourceclaims");
    let slices = setup.resource(NAME, "resource.k8s.io", "resourceslices");
    let by_pool = Arc::new(Index::new(claims.cache.clone(), read_claim, claim_keys));
    let pools = Arc::new(Index::new(slices.cache.clone(), read_slice, slice_keys));
    let (claim_index, slice_index) = (by_pool.clone(), pools.clone());
    setup.spawn("claims-by-pool", move || claim_index.clone().keep_up());
    setup.spawn("slices-by-pool", move || slice_index.clone().keep_up());
    let mut handlers = setup.enqueue_matching(&pods, may_leave);
    handlers.on_change(&claims.kind, &claims.cache, move |change, add| {
        for claim in [change.old, change.new].into_iter().flatten() {
            let (namespace, claim) = read_claim(claim);
            claim.consumers().for_each(|consumer| add(Name::new(&namespace, &consumer.name)));
        }
    });
    handlers.on_change(&slices.kind, &slices.cache, move |change, add| {
        let slices = [change.old, change.new].into_iter().flatten().filter(|slice| may_evict(slice));
        let keys: HashSet<String> = slices.flat_map(|slice| slice_keys(&read_slice(slice))).collect();
        for found in keys.iter().flat_map(|key| by_pool.find(key)) {
            found.1.consumers().for_each(|consumer| add(Name::new(&found.0, &consumer.name)));
        }
    });
    let queue = handlers.queue.clone();
    setup.run(Eviction { pods, claims, pools, waiting: Mutex::default() }, &queue, 2);
}

struct Eviction {
    pods: Resource,
    claims: Resource,
    pools: Arc<Index<Slice>>,
    /// Uids of pods that will be evicted, unless something changes.
    waiting: Mutex<HashSet<String>>,
}

#[async_trait]
impl Controller for Eviction {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(pod) = self.pods.get(name) else { return Ok(Requeue::No) };
        let uid = &pod.meta.uid;
        if !may_leave(&pod) || has_ended(&pod) {
            self.waiting.lock().remove(uid);
            return Ok(Requeue::No);
        }
        match self.leave_at(&pod, now)? {
            None => {
                if self.waiting.lock().remove(uid) {
                    self.pods.normal(&pod, EVICTION, "Cancelling deletion");
                }
                Ok(Requeue::No)
            }
            Some(at) if at > now => {
                self.waiting.lock().insert(uid.clone());
                Ok(Requeue::At(at))
            }
            Some(_) => {
                self.pods.normal(&pod, EVICTION, "Marking for deletion");
                let message = "Device Taint manager: deleting due to NoExecute taint";
                let reason = "DeletionByDeviceTaintManager";
                let target = Condition::new("DisruptionTarget", true, reason, message, now);
                self.pods.merge_lists(name, "status", disruption(&pod, target)).await?;
                self.pods.delete(&pod).await?;
                self.waiting.lock().remove(uid);
                Ok(Requeue::No)
            }
        }
    }
}

impl Eviction {
    /// When a pod must leave because of any device of its claims. Claims that are not reserved for it, or were made for another
    /// pod, do not count.
    fn leave_at(&self, pod: &Arc<Object>, now: Timestamp) -> Result<Option<Timestamp>, Failure> {
        let read: Pod = pod.typed()?;
        let since = time::parse(read.metadata.creation_timestamp.as_deref()).unwrap_or(now);
        let mut earliest = None;
        for (name, is_made) in read.claims() {
            let Some(object) = self.claims.get(&Name::new(&pod.meta.namespace, name)) else { continue };
            let is_own = controller_of(&object).is_some_and(|owner| owner.uid == pod.meta.uid);
            let claim: Claim = object.typed()?;
            if (is_made && !is_own) || !claim.consumers().any(|consumer| consumer.uid == pod.meta.uid) {
                continue;
            }
            for result in claim.results() {
                let pool = self.pools.find(&pool_key(&result.driver, &result.pool));
                let pool: Vec<&Slice> = pool.iter().map(|slice| &**slice).collect();
                let at = leave::leave_at(result, &pool, since);
                earliest = [earliest, at].into_iter().flatten().min();
            }
        }
        Ok(earliest)
    }
}

#[cfg(test)]
mod tests;
