//! Pods that no node can run, by the scheduler's message and by a check of every node.

use super::condition;
use super::fit::{Judged, judge};
use super::verdict::Verdict;
use crate::events;
use crate::finding::{Evidence, Finding, ObjectRef};
use crate::follow::follow;
use crate::nodes;
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::core::v1::{Node, Pod};
use std::collections::BTreeMap;

/// Seconds within which a scheduler has looked at a new pod.
const PATIENCE: i64 = 20;
/// Nodes of which the verdicts are shown.
const SHOWN: usize = 5;

/// Why no node runs the pod.
pub fn explain(world: &World, pod: View<'_, Pod>, trail: &[ObjectRef]) -> Vec<Finding> {
    let scheduled = condition(pod, "PodScheduled");
    if scheduled.is_some_and(|condition| condition.status() == "True") {
        return Vec::new();
    }
    let nodes = world.list::<Node>(None);
    if nodes.complete && nodes.items.is_empty() {
        let cause = "the cluster has no nodes";
        let finding = begun(pod, Trouble::NoNodes, cause).evidence("nodes of the cluster", "none");
        return vec![finding.remedy("add a node to the cluster")];
    }
    if scheduled.is_none() {
        return absent(world, pod).into_iter().collect();
    }
    let judged = judge(world, pod, &nodes.items);
    if judged.is_empty() || judged.iter().any(|one| one.verdicts.is_empty()) {
        return vec![quoted(world, pod, &judged)];
    }
    let mut findings = of_nodes(world, trail, &judged);
    if findings.is_empty() {
        findings.push(verified(world, pod, &judged));
    }
    findings
}

fn begun(pod: View<'_, Pod>, trouble: Trouble, cause: impl Into<String>) -> Finding {
    // It has never had a node: the condition is younger, and some schedulers touch it when only its message changes.
    let since = pod.metadata().creation_timestamp().text();
    let message = condition(pod, "PodScheduled").map_or("", |condition| condition.message().text());
    Finding::new(ObjectRef::to(pod), trouble, cause).since(since).evidence("scheduler", message)
}

/// A pod that no scheduler has looked at.
fn absent(world: &World, pod: View<'_, Pod>) -> Option<Finding> {
    let scheduler = pod.spec().scheduler_name().or("default-scheduler");
    if !world.older(pod.metadata().creation_timestamp().text(), PATIENCE) {
        return None;
    }
    let cause = format!("no scheduler has looked at the pod: {scheduler} does not run, or has another name");
    let finding = begun(pod, Trouble::SchedulerAbsent, cause)
        .evidence("field spec.schedulerName", scheduler)
        .remedy(format!("start a scheduler named {scheduler}, or correct spec.schedulerName"));
    Some(finding)
}

/// The trouble of nodes, when it is all that speaks against them: taints that follow from their conditions.
fn of_nodes(world: &World, trail: &[ObjectRef], judged: &[Judged<'_>]) -> Vec<Finding> {
    let sick = |one: &&Judged<'_>| {
        let only_taints = one.verdicts.iter().all(|verdict| verdict.trouble == Trouble::UntoleratedTaint);
        only_taints && !nodes::is_well(one.node)
    };
    let all: Vec<&Judged<'_>> = judged.iter().filter(sick).collect();
    if all.len() < judged.len() {
        return Vec::new();
    }
    all.iter().take(SHOWN).flat_map(|one| follow(world, trail, ObjectRef::to(one.node))).collect()
}

/// The scheduler's message, because the check of the nodes found nothing, or was not possible.
fn quoted(world: &World, pod: View<'_, Pod>, judged: &[Judged<'_>]) -> Finding {
    let message = condition(pod, "PodScheduled").map_or("", |condition| condition.message().text());
    let fits = judged.iter().find(|one| one.verdicts.is_empty()).map(|one| one.node.metadata().name().text());
    let checked = match fits {
        Some(node) => format!("nothing that was checked speaks against node {node}"),
        None => "nodes could not be read".to_owned(),
    };
    let cause = format!("the scheduler finds no node: {message}");
    begun(pod, by_message(message), cause)
        .evidence("check of the nodes", checked)
        .with(events::last(&world.events(&ObjectRef::to(pod)), &["FailedScheduling"], |_| true).map(events::evidence))
        .remedy("change what the scheduler's message names: requests, tolerations, nodeSelector or affinity of the pod, or the nodes")
}

/// The trouble that the scheduler's message names, when it names one for all nodes.
fn by_message(message: &str) -> Trouble {
    const KNOWN: [(&str, Trouble); 12] = [
        ("Insufficient cpu", Trouble::InsufficientCpu),
        ("Insufficient memory", Trouble::InsufficientMemory),
        ("Insufficient ephemeral-storage", Trouble::InsufficientStorage),
        ("Too many pods", Trouble::InsufficientPods),
        ("untolerated taint", Trouble::UntoleratedTaint),
        ("node affinity/selector", Trouble::NodeAffinityMismatch),
        ("required features", Trouble::NodeFeatureMissing),
        ("didn't match pod affinity rules", Trouble::PodAffinityUnsatisfied),
        ("anti-affinity rules", Trouble::PodAntiAffinityConflict),
        ("topology spread constraints", Trouble::TopologySpreadUnsatisfied),
        ("free ports", Trouble::HostPortTaken),
        ("volume node affinity conflict", Trouble::VolumeNodeConflict),
    ];
    // What was tried to make room follows as a sentence of its own.
    let reasons = message.split(". ").next().unwrap_or_default();
    let mut named = KNOWN.iter().filter(|(text, _)| reasons.contains(text)).map(|(_, trouble)| *trouble);
    match (named.next(), named.next()) {
        (Some(one), None) if !reasons.contains(',') => one,
        _ => Trouble::Unschedulable,
    }
}

/// What every node lacks, as it was checked here.
fn verified(world: &World, pod: View<'_, Pod>, judged: &[Judged<'_>]) -> Finding {
    let (least, closest) = nearest(judged);
    let node = least.node.metadata().name().text();
    let total = judged.len();
    let mut counts: BTreeMap<Trouble, usize> = BTreeMap::new();
    for one in judged {
        let kinds: std::collections::BTreeSet<Trouble> = one.verdicts.iter().map(|v| v.trouble).collect();
        kinds.into_iter().for_each(|kind| *counts.entry(kind).or_default() += 1);
    }
    let mut counts: Vec<(Trouble, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let counts: Vec<String> =
        counts.iter().map(|(trouble, count)| format!("{count} {}", shortage(*trouble))).collect();
    let nodes = if total == 1 { "the only node".to_owned() } else { format!("none of the {total} nodes") };
    let verb = if total == 1 { "cannot run" } else { "can run" };
    let cause = match total {
        1 => format!("{nodes} {verb} the pod: {node} {}", closest.text),
        _ => format!("{nodes} {verb} the pod ({}); {node} {}", counts.join(", "), closest.text),
    };
    begun(pod, closest.trouble, cause)
        .with(
            events::last(&world.events(&ObjectRef::to(pod)), &["FailedScheduling"], |_| true)
                .map(events::evidence),
        )
        .with(judged.iter().take(SHOWN).map(verdict_line))
        .remedy(remedy(least, closest.trouble))
}

/// The node with the least against it, and what that is. Callers have made sure that there is one.
fn nearest<'a, 'b>(judged: &'a [Judged<'b>]) -> (&'a Judged<'b>, &'a Verdict) {
    let distance = |one: &&Judged<'_>| {
        let farthest = one.verdicts.iter().map(|verdict| remoteness(verdict.trouble)).max();
        (farthest.unwrap_or(0), one.verdicts.len())
    };
    let least = judged.iter().min_by_key(distance).expect("there is a node");
    let verdict = least.verdicts.first().expect("every node has a verdict");
    (least, verdict)
}

/// How far a verdict puts a node away: nodes that the pod does not want are farther than those that do not want the pod, and
/// these are farther than those that lack something.
fn remoteness(trouble: Trouble) -> u8 {
    match trouble {
        Trouble::NodeSelectorMismatch | Trouble::NodeAffinityMismatch => 2,
        Trouble::UntoleratedTaint | Trouble::NodesCordoned => 1,
        _ => 0,
    }
}

/// What nodes have against a pod, after their number.
fn shortage(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::InsufficientCpu => "without enough cpu",
        Trouble::InsufficientMemory => "without enough memory",
        Trouble::InsufficientStorage => "without enough ephemeral storage",
        Trouble::InsufficientResource => "without enough of another resource",
        Trouble::InsufficientPods => "with as many pods as they may run",
        Trouble::UntoleratedTaint => "with a taint that the pod does not tolerate",
        Trouble::NodeSelectorMismatch => "without the labels of spec.nodeSelector",
        Trouble::NodeAffinityMismatch => "outside of the node affinity",
        Trouble::NodeFeatureMissing => "that do not declare a feature the pod needs",
        Trouble::PodAffinityUnsatisfied => "without the pods of the pod affinity",
        Trouble::PodAntiAffinityConflict => "with pods that the anti-affinity excludes",
        Trouble::TopologySpreadUnsatisfied => "beyond the topology spread",
        Trouble::HostPortTaken => "where the host port is taken",
        Trouble::VolumeNodeConflict => "out of reach of the volume",
        Trouble::NodesCordoned => "cordoned",
        _ => "not suitable",
    }
}

fn verdict_line(one: &Judged<'_>) -> Evidence {
    let texts: Vec<&str> = one.verdicts.iter().map(|verdict| verdict.text.as_str()).collect();
    Evidence { what: format!("node {}", one.node.metadata().name().text()), text: texts.join("; ") }
}

/// What would let a node run the pod, by what speaks against it.
fn remedy(one: &Judged<'_>, trouble: Trouble) -> String {
    let node = one.node.metadata().name().text();
    let same = one.verdicts.iter().filter(|verdict| verdict.trouble == trouble);
    let subjects: Vec<&str> = same.map(|verdict| verdict.subject.as_str()).collect();
    let subjects = subjects.join(" ");
    match trouble {
        Trouble::UntoleratedTaint => format!(
            "add a toleration to spec.tolerations, or remove the taint: kubectl taint node {node} {subjects}"
        ),
        // The node's agent sets these, and others rely on them.
        Trouble::NodeSelectorMismatch if subjects.contains("kubernetes.io/") => {
            "correct spec.nodeSelector".to_owned()
        }
        Trouble::NodeSelectorMismatch => {
            format!("correct spec.nodeSelector, or label a node: kubectl label node {node} {subjects}")
        }
        Trouble::NodesCordoned => format!("kubectl uncordon {node}"),
        _ => general_remedy(trouble).to_owned(),
    }
}

fn general_remedy(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::InsufficientCpu
        | Trouble::InsufficientMemory
        | Trouble::InsufficientStorage
        | Trouble::InsufficientResource => {
            "lower resources.requests of the pod's containers, remove other pods, or add a node that has enough"
        }
        Trouble::InsufficientPods => "add a node, or remove pods; the kubelet's maxPods limits their number",
        Trouble::NodeAffinityMismatch => "correct spec.affinity.nodeAffinity, or label a node accordingly",
        Trouble::NodeFeatureMissing => "upgrade the nodes, or do without what needs the feature",
        Trouble::PodAffinityUnsatisfied => {
            "correct spec.affinity.podAffinity, or start the pods that it selects first"
        }
        Trouble::PodAntiAffinityConflict => {
            "add a node, run fewer replicas, or make the anti-affinity preferred"
        }
        Trouble::TopologySpreadUnsatisfied => {
            "raise maxSkew, use whenUnsatisfiable: ScheduleAnyway, or add nodes to the other domains"
        }
        Trouble::HostPortTaken => "use another hostPort, run fewer replicas, or use a Service instead",
        Trouble::VolumeNodeConflict => {
            "let the pod run where its volume is, or use a volume that is available on other nodes"
        }
        _ => "change the pod or the nodes so that one fits",
    }
}
