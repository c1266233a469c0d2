//! PodDisruptionBudgets: how many pods may go now.

use super::int_or_percent::{IntOrPercent, Round};
use async_trait::async_trait;
use coracle_fields::apps::v1::Deployment;
use coracle_fields::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use coracle_fields::{Schema as _, fields, make};
use coracle_informer::conditions::{self, Condition};
use coracle_informer::index::Pods;
use coracle_informer::informer::Name;
use coracle_informer::pod::{Pod, controller_of};
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::selector::Selector;
use coracle_informer::setup::Setup;
use coracle_informer::time;
use coracle_kinds::object::Owner;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const NAME: &str = "disruption-controller";
/// How long an eviction that was granted counts although the pod is still there, in seconds.
const GRANTED_SECONDS: i64 = 120;

fields! {
    struct Budget: PodDisruptionBudget {
        spec: Spec,
        status: Value,
    }

    #[derive(Debug, Clone)]
    struct Spec: PodDisruptionBudgetSpec {
        selector: Option<Selector>,
        min_available: Option<IntOrPercent>,
        max_unavailable: Option<IntOrPercent>,
    }
}

/// A pod, as far as budgets are concerned.
struct Counted<'a> {
    name: &'a str,
    ready: bool,
    terminating: bool,
}

/// How many pods there should be, and how many of them healthy. `scales` are the sizes of the pods' controllers.
fn wanted(spec: &Spec, pods: usize, scales: &[i32]) -> (i32, i32) {
    let pods = i32::try_from(pods).unwrap_or(i32::MAX);
    let total = scales.iter().copied().fold(0, i32::saturating_add);
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => (total, total.saturating_sub(most.of(total, Round::Up).unwrap_or(0)).max(0)),
        (None, Some(least)) if least.is_percent() => (total, least.of(total, Round::Up).unwrap_or(0)),
        (None, Some(least)) => (pods, least.of(pods, Round::Up).unwrap_or(0)),
        (None, None) => (pods, 1),
    }
}

/// The new status, and when an eviction that was granted lapses.
fn status(
    old: &Value,
    generation: i64,
    (expected, desired): (i32, i32),
    pods: &[Counted<'_>],
    now: Timestamp,
) -> (Value, Option<Timestamp>) {
    let old = PodDisruptionBudgetStatus::of(old);
    let granted: BTreeMap<String, String> = old.disrupted_pods().read().unwrap_or_default();
    let mut kept = BTreeMap::new();
    let mut lapses: Option<Timestamp> = None;
    for (name, at) in granted {
        let Some(due) = time::parse(Some(&at)).map(|t| time::after(t, GRANTED_SECONDS)) else { continue };
        if due > now && pods.iter().any(|p| p.name == name && !p.terminating) {
            lapses = Some(lapses.map_or(due, |l| l.min(due)));
            kept.insert(name, at);
        }
    }
    let healthy = pods.iter().filter(|p| p.ready && !p.terminating && !kept.contains_key(p.name)).count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    let allowed = if expected > 0 { healthy.saturating_sub(desired).max(0) } else { 0 };
    let mut list: Vec<Condition> = old.conditions().read().unwrap_or_default();
    let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
    let mut condition = Condition::new("DisruptionAllowed", allowed > 0, reason, "", now);
    condition.observed_generation = Some(generation);
    conditions::put(&mut list, condition);
    let mut told = make!(part PodDisruptionBudgetStatus {
        current_healthy: healthy,
        desired_healthy: desired,
        expected_pods: expected,
        disruptions_allowed: allowed,
        observed_generation: generation,
        conditions: list,
    });
    told.edit().conditions().each(|mut condition| condition.message().default(""));
    if !kept.is_empty() {
        told.edit().disrupted_pods().set(kept);
    }
    (told.into_value(), lapses)
}

struct Budgets {
    budgets: Resource,
    pods: Resource,
    index: Arc<Pods>,
    scalable: HashMap<&'static str, Resource>,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let budgets = setup.resource(NAME, "policy", "poddisruptionbudgets");
    let pods = setup.resource(NAME, "", "pods");
    let index = setup.pods();
    let scalable: HashMap<&'static str, Resource> = [
        ("ReplicaSet", "apps", "replicasets"),
        ("Deployment", "apps", "deployments"),
        ("StatefulSet", "apps", "statefulsets"),
        ("ReplicationController", "", "replicationcontrollers"),
    ]
    .into_iter()
    .map(|(kind, group, plural)| (kind, setup.resource(NAME, group, plural)))
    .collect();
    let all = budgets.cache.clone();
    let mut handlers = setup.enqueue_on_change(&budgets);
    handlers.on_change(&pods.kind, &pods.cache, move |change, add| {
        let Some(pod) = change.object() else { return };
        for budget in all.list(Some(&pod.meta.namespace)) {
            let selector = budget.typed::<Budget>().ok().and_then(|b| b.spec.selector);
            if selector.is_some_and(|s| change.both().any(|p| s.matches(&p.meta.labels))) {
                add(Name::of(&budget));
            }
        }
    });
    for resource in scalable.values() {
        let all = feed_budgets(&budgets);
        handlers.on_change(&resource.kind, &resource.cache, move |change, add| {
            // All of these kinds have `spec.replicas`.
            let size =
                |o: &Arc<coracle_kinds::object::Object>| o.doc().view::<Deployment>().spec().replicas().int();
            if let (Some(old), Some(new)) = (change.old, change.new)
                && size(old) != size(new)
            {
                all.list(Some(&new.meta.namespace)).iter().for_each(|b| add(Name::of(b)));
            }
        });
    }
    let queue = handlers.queue.clone();
    setup.run(Budgets { budgets, pods, index, scalable }, &queue, 2);
}

fn feed_budgets(budgets: &Resource) -> Arc<coracle_kinds::watch::cache::Cache> {
    budgets.cache.clone()
}

#[async_trait]
impl Controller for Budgets {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(budget) = self.budgets.get(name) else { return Ok(Requeue::No) };
        let Budget { spec, status: old } = budget.typed()?;
        let objects = self.pods.list(&name.namespace);
        let matching =
            objects.iter().filter(|p| spec.selector.as_ref().is_some_and(|s| s.matches(&p.meta.labels)));
        let pods: Vec<Arc<Pod>> =
            matching.filter_map(|p| self.index.get(&Name::of(p))).filter(|p| !p.ended()).collect();
        if pods.is_empty() {
            self.budgets.normal(&budget, "NoPods", "No matching pods found");
        }
        let mut scales: HashMap<String, i32> = HashMap::new();
        let mut strays = Vec::new();
        for pod in &pods {
            match pod.controller().and_then(|owner| self.scale(&name.namespace, owner)) {
                Some((uid, replicas)) => drop(scales.insert(uid, replicas)),
                None => strays.push(pod.name().to_owned()),
            }
        }
        let by_scale = spec.max_unavailable.is_some()
            || spec.min_available.as_ref().is_some_and(IntOrPercent::is_percent);
        if by_scale && !strays.is_empty() {
            let message = format!(
                "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the \
                 status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account \
                 for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
                spec.selector.clone().unwrap_or_default()
            );
            self.budgets.warn(&budget, "UnmanagedPods", message);
        }
        let scales: Vec<i32> = scales.into_values().collect();
        let counted: Vec<Counted<'_>> = pods
            .iter()
            .map(|p| Counted { name: p.name(), ready: p.ready, terminating: p.terminating() })
            .collect();
        let (told, again) =
            status(&old, budget.meta.generation, wanted(&spec, pods.len(), &scales), &counted, now);
        self.budgets.set_status(&budget, told).await?;
        Ok(again.into())
    }
}

impl Budgets {
    /// The controller at the top of a pod, and its size.
    fn scale(&self, namespace: &str, owner: &Owner) -> Option<(String, i32)> {
        let object = self.scalable.get(owner.kind.as_str())?.get(&Name::new(namespace, &owner.name))?;
        if object.meta.uid != owner.uid {
            return None;
        }
        if let Some(above) = controller_of(&object).filter(|o| o.kind == "Deployment")
            && let Some(found) = self.scale(namespace, above)
        {
            return Some(found);
        }
        let replicas = object.doc().view::<Deployment>().spec().replicas().or(1);
        Some((object.meta.uid.clone(), i32::try_from(replicas).unwrap_or(i32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn budgets_allow_what_is_left_over() {
        let ready = |n: usize| -> Vec<Counted<'static>> {
            let names = ["a", "b", "c", "d", "e"];
            names.iter().take(n).map(|name| Counted { name, ready: true, terminating: false }).collect()
        };
        let now = Timestamp::UNIX_EPOCH;
        for (spec, pods, scales, expected, desired, allowed) in [
            (json!({"minAvailable": 2}), 3, vec![3], 3, 2, 1),
            (json!({"minAvailable": "50%"}), 5, vec![5], 5, 3, 2),
            (json!({"maxUnavailable": 1}), 4, vec![5], 5, 4, 0),
            (json!({"maxUnavailable": "40%"}), 5, vec![5], 5, 3, 2),
            (json!({}), 2, vec![2], 2, 1, 1),
            (json!({"maxUnavailable": 1}), 0, vec![], 0, 0, 0),
        ] {
            let spec: Spec = serde_json::from_value(spec).unwrap();
            assert_eq!(wanted(&spec, pods, &scales), (expected, desired), "{spec:?}");
            let (told, _) = status(&json!({}), 1, (expected, desired), &ready(pods), now);
            assert_eq!(told["disruptionsAllowed"], allowed, "{spec:?}");
        }
    }

    #[test]
    fn a_granted_eviction_counts_until_the_pod_is_gone() {
        let pods = [("a", true, false), ("b", true, false)].map(|(name, ready, terminating)| Counted {
            name,
            ready,
            terminating,
        });
        let old = json!({"disruptedPods": {"a": "1970-01-01T00:00:00Z", "gone": "1970-01-01T00:00:00Z"}});
        let (told, again) = status(&old, 1, (2, 1), &pods, time::after(Timestamp::UNIX_EPOCH, 60));
        assert_eq!((&told["currentHealthy"], &told["disruptionsAllowed"]), (&json!(1), &json!(0)));
        assert_eq!(told["disruptedPods"], json!({"a": "1970-01-01T00:00:00Z"}));
        assert_eq!(again, Some(time::after(Timestamp::UNIX_EPOCH, 120)));
        let (told, _) = status(&old, 1, (2, 1), &pods, time::after(Timestamp::UNIX_EPOCH, 121));
        assert_eq!(told["disruptionsAllowed"], 1, "it did not go: it counts again");
    }
}
