//! Nodes that are lost, failed pods of DaemonSets, pods that name several nodes.

use crate::both::{PATIENCE, alone, on_both};
use coracle_tests::eventually;
use serde_json::json;
use std::time::Duration;

/// When all nodes are silent, the network of the control plane is suspected, not the nodes: none is tainted `NoExecute`.
#[test]
fn pods_stay_when_every_zone_is_lost() {
    let _turn = alone();
    on_both("zones", |place| {
        let names = ["a", "b"].map(|suffix| format!("{}-{suffix}", place.name));
        for (name, zone) in names.iter().zip(["z1", "z2"]) {
            place.node(
                name,
                &json!({"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "r"}),
            );
        }
        let taints = |name: &str| {
            let list = place.get(&format!("node/{name}"))["spec"]["taints"].clone();
            let mut found: Vec<String> = list
                .as_array()
                .into_iter()
                .flatten()
                .map(|taint| {
                    format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap())
                })
                .collect();
            found.sort();
            found.join(",")
        };
        for name in &names {
            let path = "{.status.conditions[?(@.type==\"Ready\")].status}/{.status.conditions[?(@.type==\"Ready\")].reason}";
            place.saw(
                "silent",
                place.until(&format!("node/{name}"), path, |said| said.starts_with("Unknown")),
            );
            eventually("it is tainted", PATIENCE, || taints(name).contains("unreachable"));
        }
        // Longer than it takes to taint two nodes of a healthy zone one after the other.
        std::thread::sleep(Duration::from_secs(25));
        for name in &names {
            place.saw("taints", taints(name));
        }
    });
}

#[test]
fn a_failed_pod_of_a_daemon_set_is_replaced() {
    let _turn = alone();
    on_both("daemons", |place| {
        let node = format!("{}-n", place.name);
        place.node(&node, &json!({"only": place.name}));
        place.create(&json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {
            "selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}}, "spec": {
                "nodeSelector": {"only": place.name}, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}}}}));
        let path = "{.items[0].metadata.name}";
        for turn in 1..=2 {
            let pod = place.until("pods -l app=d", path, |name| !name.is_empty());
            place.until(&format!("pod/{pod}"), "{.spec.nodeName}", |name| !name.is_empty());
            place.set_status(&format!("pod/{pod}"), &json!({"phase": "Failed"}));
            // Nobody confirms the end of a pod on this node.
            eventually("the failed pod is deleted", PATIENCE, || {
                let time = place.value(&format!("pod/{pod}"), "{.metadata.deletionTimestamp}");
                if !time.is_empty() {
                    place.try_run(&format!("delete pod {pod} --force --grace-period=0"), "");
                }
                !place.try_run(&format!("get pod {pod}"), "").ok
            });
            place.until("pods -l app=d", path, |name| !name.is_empty() && name != pod);
            let events = place.events("DaemonSet", "d");
            let failed =
                events.iter().find(|event| event.contains("FailedDaemonPod") && event.contains(&pod));
            place.saw(
                &format!("failure {turn}"),
                failed.map(|event| event.replace(&pod, "POD")).unwrap_or_default(),
            );
        }
    });
}

#[test]
fn of_several_nodes_that_a_pod_names_the_best_is_chosen() {
    let _turn = alone();
    on_both("several", |place| {
        let names = ["a", "b", "c"].map(|suffix| format!("{}-{suffix}", place.name));
        for (name, disk) in names.iter().zip(["slow", "fast", "fast"]) {
            place.node(name, &json!({"disk": disk}));
        }
        let term = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        let terms = json!([term(&names[0]), term(&names[1])]);
        for turn in 0..3 {
            place.create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{turn}")}, "spec": {
                "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference":
                        {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}}]}}}}));
            let pod = format!("pod/p{turn}");
            place.saw("chosen", place.until(&pod, "{.spec.nodeName}", |name| !name.is_empty()));
        }
    });
}
