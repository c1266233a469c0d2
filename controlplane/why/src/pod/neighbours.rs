//! Rules about other pods: host ports, pod affinity and anti-affinity, topology spread.

use super::verdict::Verdict;
use super::{has_ended, placement};
use crate::select::{selector, selects};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::core::v1::{Namespace, Node, Pod, PodAffinityTerm, TopologySpreadConstraint};
use std::collections::BTreeMap;

/// The other pods, as seen by one that looks for a node.
pub struct Others<'a> {
    world: &'a World,
    pod: View<'a, Pod>,
    placed: Vec<(View<'a, Pod>, View<'a, Node>)>,
    nodes: Vec<View<'a, Node>>,
}

impl<'a> Others<'a> {
    /// The pods that have a node.
    pub fn new(
        world: &'a World,
        pod: View<'a, Pod>,
        nodes: &[View<'a, Node>],
        pods: &[View<'a, Pod>],
    ) -> Self {
        let by_name: BTreeMap<&str, View<'a, Node>> =
            nodes.iter().map(|node| (node.metadata().name().text(), *node)).collect();
        let running = pods.iter().filter(|pod| !has_ended(**pod));
        let placed = running.filter_map(|pod| Some((*pod, *by_name.get(pod.spec().node_name().text())?)));
        Self { world, pod, placed: placed.collect(), nodes: nodes.to_vec() }
    }

    /// What speaks against a node.
    pub fn verdicts(&self, node: View<'_, Node>) -> Vec<Verdict> {
        let affinity = self.pod.spec().affinity();
        let near = affinity.pod_affinity().required_during_scheduling_ignored_during_execution();
        let apart = affinity.pod_anti_affinity().required_during_scheduling_ignored_during_execution();
        let mut verdicts: Vec<Verdict> = self.ports(node).into_iter().collect();
        verdicts.extend(near.items().filter_map(|term| self.near(term, node)));
        verdicts.extend(apart.items().filter_map(|term| self.apart(term, node)));
        let spread = self.pod.spec().topology_spread_constraints();
        let hard = spread
            .items()
            .filter(|constraint| constraint.when_unsatisfiable().or("DoNotSchedule") == "DoNotSchedule");
        verdicts.extend(hard.filter_map(|constraint| self.spread(constraint, node)));
        verdicts
    }

    fn ports(&self, node: View<'_, Node>) -> Option<Verdict> {
        let wanted = host_ports(self.pod);
        if wanted.is_empty() {
            return None;
        }
        let name = node.metadata().name().text();
        let here = self.placed.iter().filter(|(_, place)| place.metadata().name() == name);
        here.flat_map(|(pod, _)| host_ports(*pod).into_iter().map(move |port| (*pod, port)))
            .find(|(_, port)| wanted.contains(port))
            .map(|(pod, (port, protocol))| {
                let meta = pod.metadata();
                let (namespace, owner) = (meta.namespace().text(), meta.name().text());
                let text = format!("has host port {port}/{protocol} taken by pod {namespace}/{owner}");
                Verdict::new(Trouble::HostPortTaken, text)
            })
    }

    /// Pods that a term selects, and their nodes.
    fn selected(&self, term: View<'a, PodAffinityTerm>) -> Vec<(View<'a, Pod>, View<'a, Node>)> {
        let labels = selector(term.label_selector());
        let wanted = |pod: View<'_, Pod>| self.in_scope(term, pod) && selects(&labels, pod.metadata());
        self.placed.iter().filter(|(pod, _)| wanted(*pod)).copied().collect()
    }

    fn in_scope(&self, term: View<'_, PodAffinityTerm>, other: View<'_, Pod>) -> bool {
        let namespace = other.metadata().namespace().text();
        let own = self.pod.metadata().namespace().text();
        if term.namespaces().is_empty() && !term.namespace_selector().is_set() {
            return namespace == own;
        }
        let by_label = term.namespace_selector().is_set()
            && match self.world.get::<Namespace>("", namespace).view() {
                Some(found) => selects(&selector(term.namespace_selector()), found.metadata()),
                None => false,
            };
        term.namespaces().has(namespace) || by_label
    }

    fn near(&self, term: View<'a, PodAffinityTerm>, node: View<'_, Node>) -> Option<Verdict> {
        let (key, labels) = (term.topology_key().text(), selector(term.label_selector()));
        let selected = self.selected(term);
        // The first pod of a group that wants to be near itself may go anywhere.
        let first =
            selected.is_empty() && selects(&labels, self.pod.metadata()) && self.in_scope(term, self.pod);
        let here = domain(node, key);
        if here.is_some() && (first || selected.iter().any(|(_, place)| domain(*place, key) == here)) {
            return None;
        }
        let text = match here {
            Some(here) => format!("has no pod with {labels} in {key}={here}, which pod affinity requires"),
            None => format!("has no label {key}, which pod affinity requires"),
        };
        Some(Verdict::new(Trouble::PodAffinityUnsatisfied, text))
    }

    fn apart(&self, term: View<'a, PodAffinityTerm>, node: View<'_, Node>) -> Option<Verdict> {
        let key = term.topology_key().text();
        let here = domain(node, key)?;
        let (pod, _) =
            self.selected(term).into_iter().find(|(_, place)| domain(*place, key) == Some(here))?;
        let name = pod.metadata().name().text();
        let labels = selector(term.label_selector());
        let text = format!("has pod {name} with {labels} in {key}={here}, which anti-affinity excludes");
        Some(Verdict::new(Trouble::PodAntiAffinityConflict, text))
    }

    fn spread(
        &self,
        constraint: View<'_, TopologySpreadConstraint>,
        node: View<'_, Node>,
    ) -> Option<Verdict> {
        let key = constraint.topology_key().text();
        let Some(here) = domain(node, key) else {
            let text = format!("has no label {key}, which topology spread requires");
            return Some(Verdict::new(Trouble::TopologySpreadUnsatisfied, text));
        };
        let labels = selector(constraint.label_selector());
        let namespace = self.pod.metadata().namespace().text();
        let eligible = self.nodes.iter().filter(|node| placement::labels(self.pod, **node).is_empty());
        let mut counts: BTreeMap<&str, i64> =
            eligible.filter_map(|node| Some((domain(*node, key)?, 0))).collect();
        for (pod, place) in &self.placed {
            let counted = pod.metadata().namespace() == namespace && selects(&labels, pod.metadata());
            let going = pod.metadata().deletion_timestamp().is_set();
            if counted
                && !going
                && let Some(name) = domain(*place, key)
                && let Some(count) = counts.get_mut(name)
            {
                *count += 1;
            }
        }
        let least = counts.values().copied().min().unwrap_or(0);
        let own = i64::from(selects(&labels, self.pod.metadata()));
        let (now, skew) = (counts.get(here).copied().unwrap_or(0), constraint.max_skew().or(1));
        (now + own - least > skew).then(|| {
            let text = format!(
                "has {now} matching pods in {key}={here}, the least have {least}: more than maxSkew {skew} apart"
            );
            Verdict::new(Trouble::TopologySpreadUnsatisfied, text)
        })
    }
}

fn domain<'a>(node: View<'a, Node>, key: &str) -> Option<&'a str> {
    node.metadata().labels().key(key).get()
}

/// Host ports of a pod, with their protocols.
fn host_ports(pod: View<'_, Pod>) -> Vec<(i64, &str)> {
    let all = pod.spec().containers().items().flat_map(|container| container.ports().items());
    all.filter_map(|port| Some((port.host_port().int().filter(|port| *port > 0)?, port.protocol().or("TCP"))))
        .collect()
}
