//! Nodes.

use crate::finding::{Finding, ObjectRef};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::certificates::v1::CertificateSigningRequest;
use coracle_fields::coordination::v1::Lease;
use coracle_fields::core::v1::{Node, NodeCondition};

/// The namespace of the nodes' Leases.
const LEASES: &str = "kube-node-lease";
/// Seconds that the clock of a node may be ahead.
const AHEAD: i64 = 10;

/// Conditions that are trouble when they are `True`: name, trouble, how the cause goes on after "the node". Remedies are in `remedy`.
const PRESSURES: [(&str, Trouble, &str); 4] = [
    ("MemoryPressure", Trouble::NodeMemoryPressure, "is short of memory"),
    ("DiskPressure", Trouble::NodeDiskPressure, "is short of disk space or inodes"),
    ("PIDPressure", Trouble::NodePidPressure, "is short of process ids"),
    ("NetworkUnavailable", Trouble::NodeNetwork, "has no pod network"),
];

fn condition<'a>(node: View<'a, Node>, name: &str) -> Option<View<'a, NodeCondition>> {
    node.status().conditions().items().find(|condition| condition.type_() == name)
}

/// Whether a node reports that it is ready.
pub fn is_ready(node: View<'_, Node>) -> bool {
    condition(node, "Ready").is_some_and(|condition| condition.status() == "True")
}

/// Whether a node is ready and reports no pressure.
pub fn is_well(node: View<'_, Node>) -> bool {
    is_ready(node) && pressures(node).is_empty()
}

/// Whether a node's agent is Coracle's, which answers DNS at the address of the cluster's DNS.
pub fn answers_dns(node: View<'_, Node>) -> bool {
    node.status().node_info().kubelet_version().text().contains("+coracle")
}

/// The pressures that a node reports.
pub fn pressures(node: View<'_, Node>) -> Vec<&'static str> {
    let reports = |name: &str| condition(node, name).is_some_and(|condition| condition.status() == "True");
    PRESSURES.iter().filter(|(name, _, _)| reports(name)).map(|(name, _, _)| *name).collect()
}

/// What is wrong with a node.
pub fn explain(world: &World, node: View<'_, Node>, _trail: &[ObjectRef]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = ready(world, node).into_iter().collect();
    for (name, trouble, text) in PRESSURES {
        if let Some(condition) = condition(node, name).filter(|condition| condition.status() == "True") {
            findings.push(
                of_condition(node, trouble, &format!("the node {text}"), condition).remedy(remedy(trouble)),
            );
        }
    }
    if node.spec().unschedulable().flag() {
        let object = ObjectRef::to(node);
        let taint =
            node.spec().taints().items().find(|taint| taint.key() == "node.kubernetes.io/unschedulable");
        let command = format!("kubectl uncordon {}", object.name);
        let finding =
            Finding::new(object, Trouble::NodeCordoned, "the node is cordoned: it gets no new pods")
                .since(taint.map_or("", |taint| taint.time_added().text()))
                .evidence("field spec.unschedulable", "true");
        findings.push(finding.remedy(command));
    }
    findings.extend(clock(world, node));
    findings
}

fn of_condition(
    node: View<'_, Node>,
    trouble: Trouble,
    cause: &str,
    condition: View<'_, NodeCondition>,
) -> Finding {
    let (name, reason) = (condition.type_().text(), condition.reason().text());
    Finding::new(ObjectRef::to(node), trouble, cause)
        .since(condition.last_transition_time().text())
        .evidence(format!("condition {name}: {reason}"), condition.message().text())
}

fn ready(world: &World, node: View<'_, Node>) -> Option<Finding> {
    let name = node.metadata().name().text();
    let Some(found) = condition(node, "Ready") else {
        let cause = "the node has registered and not reported its state yet";
        let old = world.older(node.metadata().creation_timestamp().text(), 60);
        return old.then(|| {
            Finding::new(ObjectRef::to(node), Trouble::NodeUnreachable, cause)
                .remedy(remedy(Trouble::NodeUnreachable))
        });
    };
    match found.status().text() {
        "True" => None,
        "Unknown" => {
            let cause =
                "the node does not report: its kubelet or agent does not run, or cannot reach the API server";
            let renewed = lease(world, name).map_or("", |lease| lease.spec().renew_time().text());
            let finding = of_condition(node, Trouble::NodeUnreachable, cause, found)
                .evidence("lease renewed last", renewed);
            Some(finding.with(certificate(world, name)).remedy(remedy(Trouble::NodeUnreachable)))
        }
        _ => {
            let message = found.message().text();
            let cause = format!(
                "the node reports that it is not ready: {}",
                message.lines().next().unwrap_or_default()
            );
            Some(
                of_condition(node, Trouble::NodeNotReady, &cause, found)
                    .remedy(remedy(Trouble::NodeNotReady)),
            )
        }
    }
}

/// A request of the node for a certificate that nobody has signed: without one it cannot report.
fn certificate(world: &World, node: &str) -> Option<crate::finding::Evidence> {
    let requests = world.list::<CertificateSigningRequest>(None).items;
    let user = format!("system:node:{node}");
    let open = requests.iter().find(|request| {
        request.spec().username() == user && request.status().certificate().text().is_empty()
    })?;
    Some(crate::finding::Evidence {
        what: "certificate signing request that is not signed".to_owned(),
        text: open.metadata().name().text().to_owned(),
    })
}

/// The Lease of a node; one list for all nodes when the whole cluster is looked at.
fn lease<'a>(world: &'a World, node: &str) -> Option<View<'a, Lease>> {
    if world.is_wide() && !world.list::<Lease>(Some(LEASES)).complete {
        return None;
    }
    world.get::<Lease>(LEASES, node).view()
}

/// A node whose Lease was renewed in the future has a clock that is ahead.
fn clock(world: &World, node: View<'_, Node>) -> Option<Finding> {
    let name = node.metadata().name().text();
    let renewed = lease(world, name)?.spec().renew_time().text();
    let ahead = -world.age(renewed)? - world.server_ahead().unwrap_or(0);
    (ahead > AHEAD).then(|| {
        let cause = format!("the clock of the node is {ahead} s ahead of the API server's");
        Finding::new(ObjectRef::to(node), Trouble::ClockSkew, cause)
            .evidence("lease renewed at", renewed)
            .evidence("time of this analysis", world.now().to_string())
            .remedy("synchronize the clock of the node, for example with chrony or systemd-timesyncd")
    })
}

fn remedy(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::NodeUnreachable => {
            "start the kubelet or agent on the node, and check its log and its network: systemctl status coracle-agent kubelet"
        }
        Trouble::NodeNotReady => {
            "correct what the condition names on the node; the log of its kubelet or agent says more"
        }
        Trouble::NodeMemoryPressure => {
            "remove pods from the node, or give them limits: kubectl top pods -A --sort-by=memory"
        }
        Trouble::NodeDiskPressure => "free disk space on the node: unused images, logs, emptyDir volumes",
        Trouble::NodePidPressure => "end processes on the node, or limit the pods' process ids",
        _ => "start the network plugin on the node, which clears the condition",
    }
}
