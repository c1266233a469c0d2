//! Taints, labels and affinity of nodes.

use super::verdict::Verdict;
use crate::node_selector::{selects, text_of};
use crate::trouble::Trouble;
use coracle_cli::closest::closest;
use coracle_fields::View;
use coracle_fields::core::v1::{Node, Pod, PodSpec, Taint};

/// A taint as `key=value:effect`.
pub fn taint_text(taint: View<'_, Taint>) -> String {
    let (key, value, effect) = (taint.key().text(), taint.value().text(), taint.effect().text());
    if value.is_empty() { format!("{key}:{effect}") } else { format!("{key}={value}:{effect}") }
}

/// Whether a node is closed, and its taints that a pod does not tolerate.
pub fn taints(pod: View<'_, Pod>, node: View<'_, Node>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    if node.spec().unschedulable().flag() && !tolerates_cordon(pod) {
        verdicts.push(Verdict::new(Trouble::NodesCordoned, "is cordoned"));
    }
    for taint in node.spec().taints().items() {
        let hard = matches!(taint.effect().text(), "NoSchedule" | "NoExecute");
        if hard && taint.key() != "node.kubernetes.io/unschedulable" && !tolerates(pod.spec(), taint) {
            let text = format!("has the taint {}", taint_text(taint));
            let subject = format!("{}:{}-", taint.key().text(), taint.effect().text());
            verdicts.push(Verdict::new(Trouble::UntoleratedTaint, text).about(subject));
        }
    }
    verdicts
}

/// Whether one of the pod's tolerations tolerates a taint.
pub fn tolerates(spec: View<'_, PodSpec>, taint: View<'_, Taint>) -> bool {
    spec.tolerations().items().any(|toleration| {
        let (key, effect) = (toleration.key().text(), toleration.effect().text());
        let same_effect = effect.is_empty() || taint.effect() == effect;
        let same_key = taint.key() == key || key.is_empty();
        let same_value = match toleration.operator().or("Equal") {
            "Exists" => true,
            "Equal" | "" => taint.key() == key && taint.value() == toleration.value().text(),
            // Comparisons of numbers, which few clusters have.
            _ => false,
        };
        same_effect && same_key && same_value
    })
}

fn tolerates_cordon(pod: View<'_, Pod>) -> bool {
    pod.spec().tolerations().items().any(|toleration| {
        let key = toleration.key().text();
        let exists = toleration.operator() == "Exists";
        exists && (key.is_empty() || key == "node.kubernetes.io/unschedulable")
    })
}

/// Labels of the pod's `nodeSelector` that a node lacks, and its required node affinity.
pub fn labels(pod: View<'_, Pod>, node: View<'_, Node>) -> Vec<Verdict> {
    let labels = node.metadata().labels();
    let mut verdicts = Vec::new();
    for (key, value) in pod.spec().node_selector().entries() {
        let wanted = value.text();
        let mut subject = format!("{key}={wanted}");
        let text = match labels.key(key).get() {
            Some(label) if label == wanted => continue,
            Some(label) => {
                subject.insert_str(0, "--overwrite ");
                format!("has {key}={label}, not {key}={wanted}")
            }
            None => {
                let similar = closest(key, labels.entries().map(|(label, _)| label));
                let similar = similar.map_or_else(String::new, |label| format!(", but a label {label}"));
                format!("has no label {key}={wanted}{similar}")
            }
        };
        verdicts.push(Verdict::new(Trouble::NodeSelectorMismatch, text).about(subject));
    }
    let required =
        pod.spec().affinity().node_affinity().required_during_scheduling_ignored_during_execution();
    if required.is_set() && !selects(required, node) {
        let text = format!("does not match {}", text_of(required));
        verdicts.push(Verdict::new(Trouble::NodeAffinityMismatch, text));
    }
    verdicts
}

/// Features that the pod needs and the node does not declare.
pub fn features(pod: View<'_, Pod>, node: View<'_, Node>) -> Vec<Verdict> {
    let spec = pod.spec();
    let mut containers = spec.containers().items().chain(spec.init_containers());
    let restarts_all = containers.any(|container| {
        container.restart_policy_rules().items().any(|rule| rule.action() == "RestartAllContainers")
    });
    let users = spec.host_network().flag() && spec.host_users().get() == Some(false);
    let needed =
        [(restarts_all, "RestartAllContainersOnContainerExits"), (users, "UserNamespacesHostNetworkSupport")];
    let declared = node.status().declared_features();
    let missing = needed.into_iter().filter(|(needs, name)| *needs && !declared.has(name));
    missing
        .map(|(_, name)| Verdict::new(Trouble::NodeFeatureMissing, format!("does not declare {name}")))
        .collect()
}
