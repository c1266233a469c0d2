//! PodDisruptionBudgets: how many pods may go now.

use super::int_or_percent::{IntOrPercent, Round};
use async_trait::async_trait;
use coracle_client::Client;
use coracle_fields::apps::v1::Deployment;
use coracle_fields::autoscaling_v1::Scale;
use coracle_fields::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use coracle_fields::{Made, Schema as _, fields, make};
use coracle_informer::conditions::{self, Condition};
use coracle_informer::identity::Identity;
use coracle_informer::index::Pods;
use coracle_informer::informer::Name;
use coracle_informer::pod::{Pod, controller_of};
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::selector::Selector;
use coracle_informer::setup::Setup;
use coracle_informer::time;
use coracle_kinds::object::Owner;
use coracle_kinds::registry::kinds::Subresource;
use coracle_kinds::registry::scale;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const NAME: &str = "disruption-controller";
const IDENTITY: Identity = Identity::of(NAME).with_events("controllermanager");
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

/// The status of a budget that cannot be computed: no disruption is allowed, and the condition says why.
fn failed_status(old: &Value, generation: i64, why: &str, now: Timestamp) -> Value {
    let mut told = Made::<PodDisruptionBudgetStatus>::new(old.clone());
    let mut list: Vec<Condition> = told.view().conditions().read().unwrap_or_default();
    let mut condition = Condition::new("DisruptionAllowed", false, "SyncFailed", why, now);
    condition.observed_generation = Some(generation);
    conditions::put(&mut list, condition);
    told.edit().disruptions_allowed().set(0);
    told.edit().conditions().set(list);
    told.into_value()
}

/// Why it is not known how many pods there should be.
#[derive(Debug, thiserror::Error)]
enum ScaleError {
    #[error("no matches for kind {kind:?} in version {version:?}")]
    NoKind { kind: String, version: String },
    #[error("{0} does not implement the scale subresource")]
    NoScale(String),
    #[error("found no controllers for pod {0:?}")]
    NoController(String),
    #[error(transparent)]
    Api(#[from] ApiError),
}

struct Budgets {
    client: Client,
    budgets: Resource,
    pods: Resource,
    index: Arc<Pods>,
    /// The built-in kinds, by group and kind.
    scalable: HashMap<(&'static str, &'static str), Resource>,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let budgets = setup.resource(IDENTITY, "policy", "poddisruptionbudgets");
    let pods = setup.resource(IDENTITY, "", "pods");
    let index = setup.pods();
    let scalable: HashMap<(&'static str, &'static str), Resource> = [
        ("ReplicaSet", "apps", "replicasets"),
        ("Deployment", "apps", "deployments"),
        ("StatefulSet", "apps", "statefulsets"),
        ("ReplicationController", "", "replicationcontrollers"),
    ]
    .into_iter()
    .map(|(kind, group, plural)| ((group, kind), setup.resource(IDENTITY, group, plural)))
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
    let client = setup.client(IDENTITY);
    setup.run(Budgets { client, budgets, pods, index, scalable }, &queue, 2);
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
        let by_scale = spec.max_unavailable.is_some()
            || spec.min_available.as_ref().is_some_and(IntOrPercent::is_percent);
        let found =
            if by_scale { self.scales(&name.namespace, &pods).await } else { Ok((Vec::new(), false)) };
        let (scales, unmanaged) = match found {
            Ok(found) => found,
            Err(error) => {
                let message = format!("Failed to calculate the number of expected pods: {error}");
                self.budgets.warn(&budget, "CalculateExpectedPodCountFailed", message);
                let told = failed_status(&old, budget.meta.generation, &error.to_string(), now);
                self.budgets.set_status(&budget, told).await?;
                return Err(Failure::of(error));
            }
        };
        if unmanaged {
            let message = format!(
                "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the \
                 status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account \
                 for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
                spec.selector.clone().unwrap_or_default()
            );
            self.budgets.warn(&budget, "UnmanagedPods", message);
        }
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
    /// The sizes of the controllers of pods, and whether a pod has no controller.
    async fn scales(&self, namespace: &str, pods: &[Arc<Pod>]) -> Result<(Vec<i32>, bool), ScaleError> {
        let mut known: HashMap<&str, (String, i32)> = HashMap::new();
        let mut unmanaged = false;
        for pod in pods {
            let Some(owner) = pod.controller() else {
                unmanaged = true;
                continue;
            };
            if known.contains_key(owner.uid.as_str()) {
                continue;
            }
            let found = match self.built_in(namespace, owner) {
                Some(found) => Some(found),
                None => self.by_scale(namespace, owner).await?,
            };
            let found = found.ok_or_else(|| ScaleError::NoController(pod.name().to_owned()))?;
            known.insert(&owner.uid, found);
        }
        // ReplicaSets of one Deployment count once.
        let each: HashMap<String, i32> = known.into_values().collect();
        Ok((each.into_values().collect(), unmanaged))
    }

    /// The controller of a built-in kind at the top of a pod, and its size.
    fn built_in(&self, namespace: &str, owner: &Owner) -> Option<(String, i32)> {
        let (group, _) = split_version(&owner.api_version);
        let group = if group == "extensions" { "apps" } else { group };
        let row = self.scalable.get(&(group, owner.kind.as_str()))?;
        let object = row.get(&Name::new(namespace, &owner.name)).filter(|o| o.meta.uid == owner.uid)?;
        if let Some(above) = controller_of(&object).filter(|o| o.kind == "Deployment")
            && let Some(found) = self.built_in(namespace, above)
        {
            return Some(found);
        }
        let replicas = object.doc().view::<Deployment>().spec().replicas().or(1);
        Some((object.meta.uid.clone(), i32::try_from(replicas).unwrap_or(i32::MAX)))
    }

    /// A controller of any kind that has `/scale`, and its size; none if it is gone.
    async fn by_scale(&self, namespace: &str, owner: &Owner) -> Result<Option<(String, i32)>, ScaleError> {
        let (group, version) = split_version(&owner.api_version);
        let kind = self.client.registry().kind(group, version, &owner.kind).ok_or_else(|| {
            ScaleError::NoKind { kind: owner.kind.clone(), version: owner.api_version.clone() }
        })?;
        if !kind.subresources.contains(&Subresource::Scale) {
            let group = if group.is_empty() { String::new() } else { format!(".{group}") };
            return Err(ScaleError::NoScale(format!("{}{group}", kind.plural)));
        }
        let object = match self.client.get(&kind, namespace, &owner.name).await {
            Ok(object) => object,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if object.meta.uid != owner.uid {
            return Ok(None);
        }
        let scale = scale::of_value(&kind, &self.client.view(&kind, &object).await?);
        let replicas = Scale::of(&scale).spec().replicas().or(0);
        Ok(Some((owner.uid.clone(), i32::try_from(replicas).unwrap_or(i32::MAX))))
    }
}

/// Group and version of an `apiVersion`.
fn split_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
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
