//! Network policies against real packets: pods × policies, each path compared with a model that shares no code with
//! the agent. One cluster for everything. Needs root.

#![allow(missing_docs, clippy::unwrap_used)]

mod model;
mod packets;
mod scenarios;
mod faults;

use coracle_tests::cluster::Cluster;
use coracle_tests::kubectl::Kubectl;
use model::Spot;
use packets::Place;
use std::path::PathBuf;

/// The cluster, its pods, and two places that are no pods.
pub struct Field {
    pub cluster: Cluster,
    pub kubectl: Kubectl,
    pub places: Vec<Place>,
}

impl Field {
    fn start() -> Self {
        let cluster = Cluster::start(1);
        let kubectl = cluster.kubectl();
        let mut yaml = String::new();
        for namespace in ["x", "z"] {
            kubectl.run(&format!("create namespace {namespace}"));
            kubectl.run(&format!("label namespace {namespace} ns={namespace}"));
            kubectl.run(&format!("wait -n {namespace} --for=create serviceaccount/default --timeout=30s"));
            for pod in ["a", "b", "c"] {
                yaml += &format!(
                    "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {pod}, namespace: {namespace}, labels: {{pod: {pod}}}}}, \
                     spec: {{terminationGracePeriodSeconds: 0, containers: [{{name: c, image: busybox, command: [sleep, '3600'], \
                     ports: [{{name: one, containerPort: 80}}, {{name: two, containerPort: 81}}, {{name: ask, containerPort: 80, protocol: UDP}}]}}]}}}}\n"
                );
            }
        }
        kubectl.run_with("apply --validate=false -f -", &yaml);
        let mut places = Vec::new();
        for namespace in ["x", "z"] {
            for pod in ["a", "b", "c"] {
                kubectl.run(&format!("wait -n {namespace} --for=condition=Ready pod/{pod} --timeout=120s"));
                let ip = kubectl.run(&format!("get pod -n {namespace} {pod} -o jsonpath={{.status.podIP}}"));
                let netns = cluster.pod_netns("node-1", &ip);
                let spot = Spot::pod(namespace, pod, &ip);
                places.push(Place::serving(spot, netns));
            }
        }
        // Somebody on another machine: the hub, told the way to the pods.
        let hub = std::fs::read(cluster.data_dir().join("up.json")).unwrap();
        let hub: serde_json::Value = serde_json::from_slice(&hub).unwrap();
        let hub = PathBuf::from(format!("/proc/{}/ns/net", hub["hub"]["pid"]));
        let range = kubectl.run("get node node-1 -o jsonpath={.spec.podCIDR}");
        packets::ip(&hub, &format!("route replace {range} via 10.89.0.11"));
        places.push(Place::serving(Spot::outside("out", "10.89.0.1"), hub));
        let node = PathBuf::from(format!("/proc/{}/ns/net", cluster.node("node-1")["holder"]["pid"]));
        places.push(Place::silent(Spot::node("node", "10.89.0.11"), node));
        Field { cluster, kubectl, places }
    }

    pub fn place(&self, name: &str) -> &Place {
        self.places.iter().find(|place| place.spot.name == name).unwrap()
    }
}

#[test]
fn policies() {
    let field = Field::start();
    for scenario in scenarios::all() {
        scenarios::check(&field, &scenario);
    }
    scenarios::labels_change(&field);
    faults::nonsense_is_refused(&field);
    faults::a_connection_goes_on(&field);
    faults::no_first_packet(&field);
    faults::rules_removed_come_back(&field);
    faults::a_killed_agent_changes_nothing(&field);
    faults::nothing_is_left(&field);
}
