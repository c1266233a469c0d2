//! Nodes that are lost, hints of zones, failed pods of DaemonSets, pods that name several nodes.

use crate::both::{PATIENCE, Place, alone, on_both};
use coracle_tests::eventually;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

fn taints(place: &Place, node: &str) -> String {
    let list = place.get(&format!("node/{node}"))["spec"]["taints"].clone();
    let text = |taint: &Value, key: &str| taint[key].as_str().unwrap().to_owned();
    let all = list.as_array().into_iter().flatten();
    let mut found: Vec<String> =
        all.map(|taint| format!("{}:{}", text(taint, "key"), text(taint, "effect"))).collect();
    found.sort();
    found.join(",")
}

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
        for name in &names {
            let path = "{.status.conditions[?(@.type==\"Ready\")].status}/{.status.conditions[?(@.type==\"Ready\")].reason}";
            place.saw(
                "silent",
                place.until(&format!("node/{name}"), path, |said| said.starts_with("Unknown")),
            );
            eventually("it is tainted", PATIENCE, || taints(place, name).contains("unreachable"));
        }
        // Longer than it takes to taint two nodes of a healthy zone one after the other.
        std::thread::sleep(Duration::from_secs(25));
        for name in &names {
            place.saw("taints", taints(place, name));
        }
    });
}

/// A zone that is lost while another one is well is evicted, a node every ten seconds.
#[test]
fn nodes_of_a_lost_zone_are_tainted_one_after_the_other() {
    let _turn = alone();
    on_both("rates", |place| {
        let names = ["a", "b", "well"].map(|suffix| format!("{}-{suffix}", place.name));
        for (name, zone) in names.iter().zip(["lost", "lost", "well"]) {
            place.node(
                name,
                &json!({"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "r"}),
            );
        }
        let mut evicted: BTreeMap<&String, Instant> = BTreeMap::new();
        eventually("both nodes of the zone are evicted", PATIENCE, || {
            place.heartbeat(&names[2]);
            for name in &names[..2] {
                if !evicted.contains_key(name) && taints(place, name).contains("unreachable:NoExecute") {
                    evicted.insert(name, Instant::now());
                }
            }
            evicted.len() == 2
        });
        let times: Vec<Instant> = evicted.into_values().collect();
        let apart = times[0].max(times[1]) - times[0].min(times[1]);
        // They are lost at the same time; looking at them takes a second or two.
        place.saw("one after the other", apart > Duration::from_secs(6));
        for name in &names {
            place.saw("taints", taints(place, name));
        }
    });
}

#[test]
fn topology_mode_auto_distributes_endpoints_by_the_cpus_of_zones() {
    let _turn = alone();
    on_both("topology", |place| {
        let nodes = ["a", "b"].map(|suffix| format!("{}-{suffix}", place.name));
        for (name, zone) in nodes.iter().zip(["z1", "z2"]) {
            place.node(
                name,
                &json!({"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": "r"}),
            );
        }
        place.create(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s",
            "annotations": {"service.kubernetes.io/topology-mode": "Auto"}},
            "spec": {"selector": {"app": "s"}, "ports": [{"port": 80}]}}));
        let ready = |name: &str, node: &str, address: &str| {
            place.create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "s"}}, "spec": {
                "automountServiceAccountToken": false, "nodeName": node, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "i"}]}}));
            place.set_status(
                &format!("pod/{name}"),
                &json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
                "conditions": [{"type": "Ready", "status": "True"}]}),
            );
        };
        // Zones of endpoints, and those that they are meant for.
        let hints = || -> Vec<String> {
            for node in &nodes {
                place.heartbeat(node);
            }
            let slices = place.get("endpointslices -l kubernetes.io/service-name=s");
            let endpoints = slices["items"].as_array().into_iter().flatten();
            let endpoints = endpoints.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
            let mut all: Vec<String> = endpoints
                .filter(|endpoint| endpoint["conditions"]["ready"] == true)
                .map(|endpoint| format!("{} for {}", endpoint["zone"], endpoint["hints"]["forZones"]))
                .collect();
            all.sort();
            all
        };
        let until = |what: &str, wanted: &dyn Fn(&[String]) -> bool| {
            let mut found = Vec::new();
            eventually(what, PATIENCE, || {
                found = hints();
                wanted(&found)
            });
            place.saw(what, found.join(", "));
        };
        ready("p1", &nodes[0], "192.0.2.1");
        until("too few endpoints", &|all| all.len() == 1);
        ready("p2", &nodes[0], "192.0.2.2");
        ready("p3", &nodes[0], "192.0.2.3");
        ready("p4", &nodes[1], "192.0.2.4");
        until("one of three goes to the other zone", &|all| {
            all.iter().filter(|line| line.contains("for [{\"name\":\"z2\"}]")).count() == 2
        });
        place.run("annotate service s service.kubernetes.io/topology-mode-");
        until("without the annotation", &|all| {
            all.len() == 4 && all.iter().all(|line| line.ends_with("null"))
        });
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
