//! The next step of a StatefulSet: pods with ordinals, in order or all at once. No clock, no tasks.

use crate::int_or_percent::{IntOrPercent, Round};
use coracle_fields::apps::v1;
use coracle_fields::{fields, make};
use coracle_informer::pod::{Phase, Pod};
use coracle_informer::selector::Selector;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

fields! {
    /// A StatefulSet.
    pub struct StatefulSet: v1::StatefulSet {
        /// Wanted state.
        pub spec: Spec,
        /// Observed state.
        pub status: Status,
    }

    /// The wanted state.
    #[derive(Debug, Clone)]
    pub struct Spec: v1::StatefulSetSpec {
        /// How many pods.
        pub replicas: i32 = 1,
        /// Which pods.
        pub selector: Selector,
        /// What a pod looks like.
        pub template: Value,
        /// Claims that each pod gets.
        pub volume_claim_templates: Vec<Value>,
        /// The service that gives pods their names.
        pub service_name: String,
        /// `OrderedReady` or `Parallel`.
        pub pod_management_policy: String,
        /// How to get from one template to the next.
        pub update_strategy: Strategy,
        /// How many old revisions to keep.
        pub revision_history_limit: Option<i64>,
        /// How long a pod must be ready to be available.
        pub min_ready_seconds: i32,
        /// What becomes of claims.
        pub persistent_volume_claim_retention_policy: Retention,
        /// Where ordinals start.
        pub ordinals: Ordinals,
    }

    /// The part of the status that is carried over.
    pub struct Status: v1::StatefulSetStatus {
        /// The revision that is being left.
        pub current_revision: String,
        /// How often a hash collided.
        pub collision_count: i64,
    }

    /// Where ordinals start.
    #[derive(Debug, Clone)]
    pub struct Ordinals: v1::StatefulSetOrdinals {
        /// The first.
        pub start: i32,
    }

    /// How to get from one template to the next.
    #[derive(Debug, Clone)]
    pub struct Strategy: v1::StatefulSetUpdateStrategy {
        /// `RollingUpdate` or `OnDelete`.
        pub type_: String,
        /// Details of a rolling update.
        pub rolling_update: Rolling,
    }

    /// Details of a rolling update.
    #[derive(Debug, Clone)]
    pub struct Rolling: v1::RollingUpdateStatefulSetStrategy {
        /// Ordinals below keep the old template.
        pub partition: i32,
        /// How many pods may be unavailable.
        pub max_unavailable: Option<IntOrPercent>,
    }

    /// What becomes of claims when the set is deleted or scaled.
    #[derive(Debug, Clone)]
    pub struct Retention: v1::StatefulSetPersistentVolumeClaimRetentionPolicy {
        /// `Retain` or `Delete`.
        pub when_deleted: String,
        /// `Retain` or `Delete`.
        pub when_scaled: String,
    }
}

impl Spec {
    /// The ordinals the set should have.
    pub fn range(&self) -> std::ops::Range<i32> {
        self.ordinals.start..self.ordinals.start.saturating_add(self.replicas)
    }

    fn parallel(&self) -> bool {
        self.pod_management_policy == "Parallel"
    }

    fn rolling(&self) -> bool {
        self.update_strategy.type_ != "OnDelete"
    }

    fn max_unavailable(&self) -> Option<usize> {
        let amount = self.update_strategy.rolling_update.max_unavailable.as_ref()?;
        usize::try_from(amount.of(self.replicas, Round::Down)?.max(1)).ok()
    }
}

/// The ordinal in a pod's name, if it is one of the set's.
pub fn ordinal(set: &str, pod: &str) -> Option<i32> {
    let digits = pod.strip_prefix(set)?.strip_prefix('-')?;
    let plain = digits == "0" || (!digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit()));
    plain.then(|| digits.parse().ok()).flatten()
}

/// The names of the two templates in play.
#[derive(Debug, Clone, Copy)]
pub struct Revisions<'a> {
    /// The one that is being left.
    pub current: &'a str,
    /// The one that is wanted.
    pub update: &'a str,
}

/// What to do now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Pods to create: ordinal and name of the revision.
    pub create: Vec<(i32, String)>,
    /// Pods to delete, by ordinal.
    pub delete: Vec<i32>,
    /// When time alone may change something.
    pub again: Option<Timestamp>,
}

/// The label on pods that names their revision.
pub const REVISION_LABEL: &str = "controller-revision-hash";

fn revision_of(pod: &Pod) -> &str {
    pod.labels().get(REVISION_LABEL).map_or("", String::as_str)
}

fn healthy(pod: &Pod) -> bool {
    pod.phase == Phase::Running && pod.ready && !pod.terminating()
}

/// Plans the next step. `pods` are the set's own, by ordinal.
pub fn plan(spec: &Spec, pods: &BTreeMap<i32, &Pod>, revisions: Revisions<'_>, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let ordered = !spec.parallel();
    let available = |pod: &Pod| healthy(pod) && pod.available(spec.min_ready_seconds, now);
    plan.again = pods
        .values()
        .filter(|p| healthy(p) && !available(p))
        .filter_map(|p| p.available_at(spec.min_ready_seconds))
        .min();
    for ordinal in spec.range() {
        let stop = match pods.get(&ordinal) {
            None => {
                plan.create.push((ordinal, revision_for(spec, ordinal, revisions).to_owned()));
                true
            }
            Some(pod) if pod.ended() => {
                if !pod.terminating() {
                    plan.delete.push(ordinal);
                }
                true
            }
            Some(pod) => !available(pod),
        };
        if stop && ordered {
            return plan;
        }
    }
    let condemned: Vec<(i32, &Pod)> =
        pods.iter().filter(|(o, _)| !spec.range().contains(o)).map(|(o, p)| (*o, *p)).rev().collect();
    let first_sick = condemned.iter().rev().find(|(_, p)| !available(p)).map(|(o, _)| *o);
    for (ordinal, pod) in &condemned {
        // A pod that has ended will never be well again: nothing is gained by waiting for it.
        let sick = !available(pod) && !pod.ended();
        let blocked = pod.terminating() || (sick && first_sick != Some(*ordinal));
        if blocked && ordered {
            return plan;
        }
        if !pod.terminating() {
            plan.delete.push(*ordinal);
            if ordered {
                return plan;
            }
        }
    }
    if spec.rolling() && plan.create.is_empty() && plan.delete.is_empty() {
        roll(spec, pods, revisions, &available, &mut plan);
    }
    plan
}

/// Takes away pods of the old template, highest ordinal first: one, and the next when it is back; or as many as may be
/// missing, if the set says how many.
fn roll(
    spec: &Spec,
    pods: &BTreeMap<i32, &Pod>,
    revisions: Revisions<'_>,
    available: &dyn Fn(&Pod) -> bool,
    plan: &mut Plan,
) {
    let lowest = spec.ordinals.start.saturating_add(spec.update_strategy.rolling_update.partition);
    let eligible = spec.range().rev().take_while(|o| *o >= lowest).filter_map(|o| Some((o, *pods.get(&o)?)));
    let outdated = |p: &Pod| revision_of(p) != revisions.update && !p.terminating();
    let Some(most) = spec.max_unavailable() else {
        let next = eligible.map(|(o, p)| (o, outdated(p), available(p))).find(|(_, old, up)| *old || !up);
        plan.delete.extend(next.filter(|(_, old, _)| *old).map(|(o, ..)| o));
        return;
    };
    let missing = spec.range().filter(|o| !pods.get(o).is_some_and(|p| available(p))).count();
    let room = most.saturating_sub(missing);
    plan.delete.extend(eligible.filter(|(_, p)| outdated(p)).map(|(o, _)| o).take(room));
}

/// Which template a pod with this ordinal gets.
fn revision_for<'a>(spec: &Spec, ordinal: i32, revisions: Revisions<'a>) -> &'a str {
    let lowest = spec.ordinals.start.saturating_add(spec.update_strategy.rolling_update.partition);
    if spec.rolling() && ordinal < lowest { revisions.current } else { revisions.update }
}

/// The new status.
pub fn status(
    spec: &Spec,
    generation: i64,
    pods: &BTreeMap<i32, &Pod>,
    revisions: Revisions<'_>,
    collisions: i64,
    now: Timestamp,
) -> Value {
    let count = |holds: &dyn Fn(&Pod) -> bool| pods.values().filter(|p| holds(p)).count();
    let running_ready = |p: &Pod| p.phase == Phase::Running && p.ready;
    let of = |revision: &str| count(&|p: &Pod| !p.terminating() && revision_of(p) == revision);
    let ready = count(&running_ready);
    let updated = of(revisions.update);
    let (mut current, mut current_revision) = (of(revisions.current), revisions.current);
    if spec.rolling() && updated == pods.len() && ready == pods.len() {
        (current, current_revision) = (updated, revisions.update);
    }
    let filled = |count: usize| (count > 0).then_some(count);
    let status = make!(part v1::StatefulSetStatus {
        observed_generation: generation,
        replicas: pods.len(),
        available_replicas: count(&|p: &Pod| running_ready(p) && p.available(spec.min_ready_seconds, now)),
        current_revision,
        update_revision: revisions.update,
        collision_count: collisions,
        ready_replicas: filled(ready),
        current_replicas: filled(current),
        updated_replicas: filled(updated),
    });
    status.into_value()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use proptest::prelude::*;
    use serde_json::json;

    const NOW: &str = "2026-01-02T00:00:00Z";
    const OLD: Revisions<'_> = Revisions { current: "a", update: "a" };
    const NEW: Revisions<'_> = Revisions { current: "a", update: "b" };

    fn pod(ordinal: i32, revision: &str, phase: &str, ready: bool, terminating: bool) -> Pod {
        let ready = if ready { "True" } else { "False" };
        Pod::read(&object(json!({
            "metadata": {"name": format!("db-{ordinal}"), "uid": format!("u{ordinal}"),
                "labels": {REVISION_LABEL: revision}, "deletionTimestamp": terminating.then_some(NOW)},
            "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        })))
    }

    fn spec(value: Value) -> Spec {
        serde_json::from_value(value).unwrap()
    }

    fn run(spec: &Spec, pods: &[Pod], revisions: Revisions<'_>) -> (Vec<(i32, String)>, Vec<i32>) {
        let map = pods.iter().map(|p| (ordinal("db", p.name()).unwrap(), p)).collect();
        let plan = plan(spec, &map, revisions, NOW.parse().unwrap());
        (plan.create, plan.delete)
    }

    #[test]
    fn names_have_ordinals() {
        assert_eq!(ordinal("db", "db-3"), Some(3));
        for no in ["db-03", "db-", "db-x", "web-1", "db-1-2"] {
            assert_eq!(ordinal("db", no), None, "{no}");
        }
    }

    #[test]
    fn one_after_the_other() {
        let three = spec(json!({"replicas": 3}));
        let up = |n| pod(n, "a", "Running", true, false);
        assert_eq!(run(&three, &[], OLD), (vec![(0, "a".into())], vec![]));
        assert_eq!(run(&three, &[up(0)], OLD), (vec![(1, "a".into())], vec![]));
        let starting = pod(1, "a", "Running", false, false);
        assert_eq!(run(&three, &[up(0), starting], OLD), (vec![], vec![]));
        let failed = pod(1, "a", "Failed", false, false);
        assert_eq!(run(&three, &[up(0), failed, up(2)], OLD), (vec![], vec![1]));
        let one = spec(json!({"replicas": 1}));
        assert_eq!(run(&one, &[up(0), up(1), up(2)], OLD), (vec![], vec![2]), "from above");
        let leaving = pod(2, "a", "Running", true, true);
        assert_eq!(run(&one, &[up(0), up(1), leaving], OLD), (vec![], vec![]));
        let parallel = spec(json!({"replicas": 3, "podManagementPolicy": "Parallel"}));
        assert_eq!(run(&parallel, &[], OLD).0.len(), 3);
        assert_eq!(
            run(&spec(json!({"replicas": 2, "ordinals": {"start": 5}})), &[], OLD).0,
            [(5, "a".into())]
        );
    }

    #[test]
    fn updates_go_down_from_the_top_to_the_partition() {
        let up = |n, revision| pod(n, revision, "Running", true, false);
        let three = spec(
            json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}),
        );
        assert_eq!(run(&three, &[up(0, "a"), up(1, "a"), up(2, "a")], NEW).1, [2]);
        assert_eq!(run(&three, &[up(0, "a"), up(1, "a")], NEW).0, [(2, "b".into())]);
        assert_eq!(run(&three, &[up(0, "a"), up(1, "a"), up(2, "b")], NEW).1, [1]);
        assert_eq!(run(&three, &[up(0, "a"), up(1, "b"), up(2, "b")], NEW).1, Vec::<i32>::new());
        assert_eq!(
            run(&three, &[up(1, "b"), up(2, "b")], NEW).0,
            [(0, "a".into())],
            "below it the old one comes back"
        );
        let by_hand = spec(json!({"replicas": 1, "updateStrategy": {"type": "OnDelete"}}));
        assert_eq!(run(&by_hand, &[up(0, "a")], NEW).1, Vec::<i32>::new());
        assert_eq!(run(&by_hand, &[], NEW).0, [(0, "b".into())]);
        let two_at_a_time =
            spec(json!({"replicas": 4, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}));
        let four = [up(0, "a"), up(1, "a"), up(2, "a"), up(3, "a")];
        assert_eq!(run(&two_at_a_time, &four, NEW).1, [3, 2]);
        let rounded =
            spec(json!({"replicas": 4, "updateStrategy": {"rollingUpdate": {"maxUnavailable": "45%"}}}));
        assert_eq!(run(&rounded, &four, NEW).1, [3], "rounded down");
    }

    #[test]
    fn a_finished_update_becomes_the_current_revision() {
        let two = spec(json!({"replicas": 2}));
        let pods = [pod(0, "b", "Running", true, false), pod(1, "b", "Running", true, false)];
        let map: BTreeMap<i32, &Pod> = (0..).zip(&pods).collect();
        let told = status(&two, 4, &map, NEW, 0, NOW.parse().unwrap());
        assert_eq!(told["currentRevision"], "b");
        assert_eq!((&told["currentReplicas"], &told["updatedReplicas"]), (&json!(2), &json!(2)));
    }

    proptest! {
        /// Whatever happens to pods, an ordered set has at most one step under way, no ordinal twice, and converges.
        #[test]
        fn ordered_sets_converge(replicas in 0..6i32, scale in 0..6i32, events in prop::collection::vec((0..6i32, 0..4u8), 0..30)) {
            let mut wanted = spec(json!({"replicas": replicas}));
            let mut pods: BTreeMap<i32, Pod> = BTreeMap::new();
            let step = |wanted: &Spec, pods: &mut BTreeMap<i32, Pod>, revisions| -> Result<usize, TestCaseError> {
                let map = pods.iter().map(|(o, p)| (*o, p)).collect();
                let plan = plan(wanted, &map, revisions, NOW.parse().unwrap());
                let writes = plan.create.len() + plan.delete.len();
                prop_assert!(writes <= 1, "ordered means one at a time: {:?}", plan);
                for (o, revision) in plan.create {
                    prop_assert!(pods.insert(o, pod(o, &revision, "Pending", false, false)).is_none(), "twice");
                }
                for o in plan.delete {
                    let old = pods.get(&o).unwrap();
                    let revision = revision_of(old).to_owned();
                    pods.insert(o, pod(o, &revision, "Running", false, true));
                }
                Ok(writes)
            };
            for (n, (o, what)) in events.into_iter().enumerate() {
                if n == 10 { wanted.replicas = scale; }
                step(&wanted, &mut pods, OLD)?;
                if let Some(old) = pods.get(&o) {
                    let (revision, terminating) = (revision_of(old).to_owned(), old.terminating());
                    match what {
                        0 if terminating => { pods.remove(&o); }
                        1 => { pods.insert(o, pod(o, &revision, "Failed", false, terminating)); }
                        _ => { pods.insert(o, pod(o, &revision, "Running", true, terminating)); }
                    }
                }
            }
            for _ in 0..200 {
                step(&wanted, &mut pods, NEW)?;
                pods.retain(|_, p| !p.terminating());
                let all: Vec<i32> = pods.keys().copied().collect();
                for o in all {
                    let p = &pods[&o];
                    if !p.ended() {
                        let revision = revision_of(p).to_owned();
                        pods.insert(o, pod(o, &revision, "Running", true, false));
                    }
                }
            }
            let ordinals: Vec<i32> = pods.keys().copied().collect();
            prop_assert_eq!(ordinals, wanted.range().collect::<Vec<_>>());
            prop_assert!(pods.values().all(|p| revision_of(p) == "b"));
        }
    }
}
