//! DaemonSets: a pod on every node that fits.

use super::{creation, of_pods};
use crate::finding::{Finding, ObjectRef};
use crate::pod::{label_verdicts, tolerates};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::apps::v1::DaemonSet;
use coracle_fields::core::v1::{Node, Pod};

/// Why a DaemonSet does not run where it should.
pub fn explain(world: &World, set: View<'_, DaemonSet>, trail: &[ObjectRef]) -> Vec<Finding> {
    let status = set.status();
    let wanted = status.desired_number_scheduled().or(0);
    let observed = status.observed_generation().or(0) >= set.metadata().generation().or(0);
    if wanted == 0 {
        return if observed { no_nodes(world, set).into_iter().collect() } else { Vec::new() };
    }
    if status.number_ready().or(0) >= wanted {
        return Vec::new();
    }
    let mut findings = of_pods(world, set.metadata(), trail);
    if findings.is_empty() {
        findings.extend(creation::explain(world, &ObjectRef::to(set), None));
    }
    findings
}

/// A DaemonSet that fits no node, with what speaks against each.
fn no_nodes(world: &World, set: View<'_, DaemonSet>) -> Option<Finding> {
    let nodes = world.list::<Node>(None);
    if !nodes.complete || nodes.items.is_empty() {
        return None;
    }
    // A template has the spec of a pod in the same place.
    let template = set.spec().template().erased().as_type::<Pod>();
    let cause = format!(
        "none of the {} nodes matches the DaemonSet's nodeSelector, affinity and tolerations",
        nodes.items.len()
    );
    let mut finding = Finding::new(ObjectRef::to(set), Trouble::DaemonSetNoNodes, cause)
        .since(set.metadata().creation_timestamp().text())
        .remedy(
            "correct nodeSelector, affinity or tolerations of the pod template, or label a node accordingly",
        );
    for node in nodes.items.iter().take(5) {
        let mut texts: Vec<String> =
            label_verdicts(template, *node).into_iter().map(|verdict| verdict.text).collect();
        let taints = node.spec().taints().items();
        let hard = taints
            .filter(|taint| taint.effect() != "PreferNoSchedule" && !tolerates(template.spec(), *taint));
        texts.extend(hard.map(|taint| format!("has the taint {}", taint.key().text())));
        finding = finding.evidence(format!("node {}", node.metadata().name().text()), texts.join("; "));
    }
    Some(finding)
}
