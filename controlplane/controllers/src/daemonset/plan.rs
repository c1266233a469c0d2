//! The next step of a DaemonSet: one pod on each node it belongs to. No clock, no tasks.

use super::fit::{self, Node, Placement};
use crate::int_or_percent::{IntOrPercent, Round};
use crate::rolling::Strategy;
use coracle_fields::apps::v1;
use coracle_fields::core::v1::PodTemplateSpec;
use coracle_fields::{Schema as _, fields, make};
use coracle_informer::pod::{Phase, Pod};
use coracle_informer::selector::Selector;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

fields! {
    /// A DaemonSet.
    pub struct DaemonSet: v1::DaemonSet {
        /// Wanted state.
        pub spec: Spec,
        /// Observed state.
        pub status: Status,
    }

    /// The wanted state.
    #[derive(Debug, Clone)]
    pub struct Spec: v1::DaemonSetSpec {
        /// Which pods.
        pub selector: Selector,
        /// What a pod looks like.
        pub template: Value,
        /// How to get from one template to the next.
        pub update_strategy: Strategy,
        /// How long a pod must be ready to be available.
        pub min_ready_seconds: i32,
        /// How many old revisions to keep.
        pub revision_history_limit: Option<i64>,
    }

    /// The part of the status that is carried over.
    pub struct Status: v1::DaemonSetStatus {
        /// How often a hash collided.
        pub collision_count: i64,
        /// The generation that the status is of.
        pub observed_generation: i64,
    }
}

impl Spec {
    /// `maxSurge` and `maxUnavailable` for so many nodes; never both zero.
    fn limits(&self, nodes: usize) -> (usize, usize) {
        let nodes = i32::try_from(nodes).unwrap_or(i32::MAX);
        let of = |amount: &Option<IntOrPercent>, unset: i32| {
            let number = amount.as_ref().map_or(Some(unset), |a| a.of(nodes, Round::Up)).unwrap_or(0);
            usize::try_from(number).unwrap_or(0)
        };
        let surge = of(&self.update_strategy.rolling_update.max_surge, 0);
        let unavailable = of(&self.update_strategy.rolling_update.max_unavailable, i32::from(surge == 0));
        (surge, if surge == 0 { unavailable.max(1) } else { unavailable })
    }
}

/// The label on pods that carries the hash of their template.
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// What to do now.
#[derive(Debug, Default)]
pub struct Plan {
    /// Nodes that get a pod.
    pub create: Vec<String>,
    /// Pods that go.
    pub delete: Vec<Arc<Pod>>,
    /// Failed pods; they are deleted, with an Event.
    pub failed: Vec<Arc<Pod>>,
    /// Pods that ended well, likewise.
    pub succeeded: Vec<Arc<Pod>>,
    /// When time alone may change something.
    pub again: Option<Timestamp>,
}

/// Pods by the node they are on or bound for.
pub fn by_node(pods: Vec<Arc<Pod>>) -> BTreeMap<String, Vec<Arc<Pod>>> {
    let mut map: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in pods {
        let node = if pod.node.is_empty() {
            let doc = pod.object.doc();
            let spec = doc.view::<coracle_fields::core::v1::Pod>().spec();
            fit::pinned_node(spec).unwrap_or_default().to_owned()
        } else {
            pod.node.clone()
        };
        map.entry(node).or_default().push(pod);
    }
    map
}

fn updated(pod: &Pod, hash: &str) -> bool {
    pod.labels().get(REVISION_LABEL).is_some_and(|h| h == hash)
}

/// Where the pods of the template may run.
fn placement(spec: &Spec) -> Placement {
    let template = PodTemplateSpec::of(&spec.template);
    serde_json::from_value(fit::with_tolerations(template.spec()).into_value()).unwrap_or_default()
}

/// Plans the next step. `hash` names the wanted template, `hold` tells until when a failed pod has to stay on its node.
pub fn plan(
    spec: &Spec,
    nodes: &[Node],
    pods: &BTreeMap<String, Vec<Arc<Pod>>>,
    hash: &str,
    now: Timestamp,
    hold: &mut dyn FnMut(&str) -> Option<Timestamp>,
) -> Plan {
    let mut plan = Plan::default();
    let placement = placement(spec);
    let rolling = spec.update_strategy.kind != "OnDelete";
    let should: Vec<(&Node, bool, bool)> =
        nodes.iter().map(|n| (n, fit::fits(&placement, n))).map(|(n, (a, b))| (n, a, b)).collect();
    let wanted = should.iter().filter(|(_, run, _)| *run).count();
    let (surge, _) = spec.limits(wanted);
    let none = Vec::new();
    for (node, run, stay) in &should {
        let here = pods.get(&node.name).unwrap_or(&none);
        let mut alive: Vec<&Arc<Pod>> = Vec::new();
        for pod in here {
            match pod.phase {
                _ if pod.terminating() => {}
                Phase::Failed if *stay => match hold(&node.name) {
                    None => plan.failed.push(pod.clone()),
                    Some(until) => plan.again = Some(plan.again.map_or(until, |again| again.min(until))),
                },
                Phase::Succeeded if *stay => plan.succeeded.push(pod.clone()),
                _ => alive.push(pod),
            }
        }
        if !stay {
            plan.delete.extend(alive.into_iter().cloned());
            continue;
        }
        let gone_soon = here.iter().filter(|p| p.terminating()).count();
        if alive.is_empty() {
            if *run && gone_soon == 0 && !here.iter().any(|p| p.ended()) {
                plan.create.push(node.name.clone());
            }
            continue;
        }
        // With surge an old and a new pod may be there at once; else the oldest stays alone.
        alive.sort_by(|a, b| (a.created, a.name()).cmp(&(b.created, b.name())));
        let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
            alive.iter().copied().partition(|p| updated(p, hash));
        if surge > 0 && rolling {
            plan.delete.extend(new.iter().skip(1).map(|p| (*p).clone()));
            plan.delete.extend(old.iter().skip(1).map(|p| (*p).clone()));
        } else {
            plan.delete.extend(alive.iter().skip(1).map(|p| (*p).clone()));
        }
    }
    // Pods for nodes that are no more are taken away by others; those never bound are not.
    for (node, list) in pods {
        if !nodes.iter().any(|n| n.name == *node) {
            plan.delete.extend(list.iter().filter(|p| p.node.is_empty() && !p.terminating()).cloned());
        }
    }
    if rolling {
        roll(spec, &should, pods, hash, now, &mut plan);
    }
    let waiting = pods.values().flatten().filter(|p| p.ready && !p.available(spec.min_ready_seconds, now));
    let available = waiting.filter_map(|p| p.available_at(spec.min_ready_seconds)).min();
    plan.again = plan.again.into_iter().chain(available).min();
    plan
}

/// Replaces old pods within the limits: those that are unavailable anyway first.
fn roll(
    spec: &Spec,
    should: &[(&Node, bool, bool)],
    pods: &BTreeMap<String, Vec<Arc<Pod>>>,
    hash: &str,
    now: Timestamp,
    plan: &mut Plan,
) {
    let wanted = should.iter().filter(|(_, run, _)| *run).count();
    let (surge, unavailable) = spec.limits(wanted);
    let available = |p: &Pod| !p.terminating() && p.available(spec.min_ready_seconds, now);
    let mut missing = 0;
    let mut surging = 0;
    let (mut sick, mut well, mut to_surge) = (Vec::new(), Vec::new(), Vec::new());
    for (node, run, _) in should.iter().filter(|(_, run, _)| *run) {
        let _ = run;
        let here: Vec<&Arc<Pod>> =
            pods.get(&node.name).into_iter().flatten().filter(|p| !p.ended()).collect();
        let new = here.iter().find(|p| updated(p, hash) && !p.terminating()).copied();
        let old = here.iter().find(|p| !updated(p, hash) && !p.terminating()).copied();
        if !here.iter().any(|p| available(p)) {
            missing += 1;
        }
        match (old, new) {
            (Some(old), Some(new)) => {
                surging += 1;
                if available(new) || !available(old) {
                    plan.delete.push(old.clone());
                }
            }
            (Some(old), None) if surge > 0 => {
                if available(old) {
                    to_surge.push(node.name.clone())
                } else {
                    sick.push((node, old))
                }
            }
            (Some(old), None) => {
                if available(old) {
                    well.push((node, old))
                } else {
                    sick.push((node, old))
                }
            }
            _ => {}
        }
    }
    if surge > 0 {
        // One that does not serve is replaced at once, beside it.
        plan.create.extend(sick.iter().map(|(n, _)| n.name.clone()));
        let room = surge.saturating_sub(surging + sick.len());
        plan.create.extend(to_surge.into_iter().take(room));
    } else {
        plan.delete.extend(sick.iter().map(|(_, p)| (*p).clone()));
        let room = unavailable.saturating_sub(missing);
        plan.delete.extend(well.iter().take(room).map(|(_, p)| (*p).clone()));
    }
}

/// The new status.
pub fn status(
    spec: &Spec,
    generation: i64,
    nodes: &[Node],
    pods: &BTreeMap<String, Vec<Arc<Pod>>>,
    (hash, collisions): (&str, i64),
    now: Timestamp,
) -> Value {
    let placement = placement(spec);
    let (mut desired, mut current, mut misplaced, mut ready, mut available, mut new) = (0, 0, 0, 0, 0, 0);
    for node in nodes {
        let (run, _) = fit::fits(&placement, node);
        let mut here: Vec<&Arc<Pod>> = pods.get(&node.name).into_iter().flatten().collect();
        here.sort_by(|a, b| (a.created, a.name()).cmp(&(b.created, b.name())));
        if !run {
            misplaced += usize::from(!here.is_empty());
            continue;
        }
        desired += 1;
        if here.is_empty() {
            continue;
        }
        current += 1;
        let serving = here.iter().find(|p| p.ready && p.available(spec.min_ready_seconds, now));
        ready += usize::from(here.iter().any(|p| p.ready));
        available += usize::from(serving.is_some());
        new += usize::from(here.iter().any(|p| updated(p, hash) && !p.terminating()));
    }
    let filled = |count: usize| (count > 0).then_some(count);
    let status = make!(part v1::DaemonSetStatus {
        observed_generation: generation,
        desired_number_scheduled: desired,
        current_number_scheduled: current,
        number_misscheduled: misplaced,
        number_ready: ready,
        updated_number_scheduled: filled(new),
        number_available: filled(available),
        number_unavailable: filled(desired - available),
        collision_count: (collisions > 0).then_some(collisions),
    });
    status.into_value()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    const NOW: &str = "2026-01-02T00:00:00Z";

    fn pod(name: &str, node: &str, hash: &str, ready: bool, phase: &str) -> Arc<Pod> {
        let ready = if ready { "True" } else { "False" };
        Arc::new(Pod::read(&object(json!({
            "metadata": {"name": name, "uid": name, "labels": {REVISION_LABEL: hash}},
            "spec": {"nodeName": node},
            "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))))
    }

    fn nodes(count: usize) -> Vec<Node> {
        (0..count).map(|n| Node { name: format!("n{n}"), ..Node::default() }).collect()
    }

    fn spec(value: Value) -> Spec {
        serde_json::from_value(value).unwrap()
    }

    fn run(spec: &Spec, nodes: &[Node], pods: Vec<Arc<Pod>>) -> (Vec<String>, Vec<String>) {
        let plan = plan(spec, nodes, &by_node(pods), "new", NOW.parse().unwrap(), &mut |_| None);
        let mut delete: Vec<String> = plan.delete.iter().map(|p| p.name().to_owned()).collect();
        delete.sort();
        (plan.create, delete)
    }

    #[test]
    fn one_pod_on_each_node() {
        let any = spec(json!({}));
        let up = |n: usize| pod(&format!("p{n}"), &format!("n{n}"), "new", true, "Running");
        assert_eq!(run(&any, &nodes(2), vec![]), (vec!["n0".into(), "n1".into()], vec![]));
        assert_eq!(run(&any, &nodes(2), vec![up(0), up(1)]), (vec![], vec![]));
        let double = vec![up(0), pod("q", "n0", "new", true, "Running")];
        assert_eq!(run(&any, &nodes(1), double), (vec![], vec!["q".into()]), "the second one goes");
        let picky = spec(json!({"template": {"spec": {"nodeSelector": {"gpu": "yes"}}}}));
        assert_eq!(run(&picky, &nodes(1), vec![up(0)]), (vec![], vec!["p0".into()]));
        let failed = || by_node(vec![pod("f", "n0", "new", false, "Failed")]);
        let now: Timestamp = NOW.parse().unwrap();
        let gone = plan(&any, &nodes(1), &failed(), "new", now, &mut |_| None);
        assert_eq!((gone.failed.len(), gone.create.len()), (1, 0));
        let until = Some(coracle_informer::time::after(now, 8));
        let held = plan(&any, &nodes(1), &failed(), "new", now, &mut |_| until);
        assert_eq!((held.failed.len(), held.create.len(), held.again), (0, 0, until));
    }

    #[test]
    fn updates_keep_within_limits() {
        let old = |n: usize, ready| pod(&format!("p{n}"), &format!("n{n}"), "old", ready, "Running");
        let one = spec(
            json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}}),
        );
        assert_eq!(run(&one, &nodes(3), vec![old(0, true), old(1, true), old(2, true)]).1.len(), 1);
        let with_sick = vec![old(0, true), old(1, false), old(2, true)];
        assert_eq!(
            run(&one, &nodes(3), with_sick).1,
            ["p1"],
            "the sick one first, and it takes all the room"
        );
        let surge = spec(
            json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}}),
        );
        let pods = || vec![old(0, true), old(1, true), old(2, true)];
        assert_eq!(run(&surge, &nodes(3), pods()), (vec!["n0".into(), "n1".into()], vec![]));
        let mut half = pods();
        half.push(pod("q0", "n0", "new", true, "Running"));
        half.push(pod("q1", "n1", "new", false, "Running"));
        assert_eq!(
            run(&surge, &nodes(3), half),
            (vec![], vec!["p0".into()]),
            "the old goes when the new serves"
        );
        let by_hand = spec(json!({"updateStrategy": {"type": "OnDelete"}}));
        assert_eq!(run(&by_hand, &nodes(3), pods()).1, Vec::<String>::new());
    }
}
