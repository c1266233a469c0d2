//! Network policies against real packets: pods × policies, each path compared with a model that shares no code with
//! the agent, on one node and between nodes, of both families. One cluster for everything. Needs root.

#![forbid(unsafe_code)]
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

/// Pods of one name are on one node: `x/a` and `z/a` on the first.
pub const NODES: [(&str, &str); 3] = [("node-1", "a"), ("node-2", "b"), ("node-3", "c")];

/// The cluster, its pods, and two places that are no pods.
pub struct Field {
    pub cluster: Cluster,
    pub kubectl: Kubectl,
    pub places: Vec<Place>,
}

impl Field {
    fn start() -> Self {
        let cluster = Cluster::start_with(
            NODES.len(),
            &[
                "--server-flag=--cluster-cidr=10.244.0.0/16,fd00:244::/48",
                "--server-flag=--service-cidr=10.96.0.0/16,fd00:96::/112",
            ],
        );
        let kubectl = cluster.kubectl();
        let mut yaml = String::new();
        for namespace in ["x", "z"] {
            kubectl.run(&format!("create namespace {namespace}"));
            kubectl.run(&format!("label namespace {namespace} ns={namespace}"));
            kubectl.run(&format!("wait -n {namespace} --for=create serviceaccount/default --timeout=120s"));
            for (node, pod) in NODES {
                yaml += &format!(
                    "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {pod}, namespace: {namespace}, labels: {{pod: {pod}}}}}, \
                     spec: {{nodeName: {node}, terminationGracePeriodSeconds: 0, containers: [{{name: c, image: busybox, command: [sleep, '3600'], \
                     ports: [{{name: one, containerPort: 80}}, {{name: two, containerPort: 81}}, {{name: ask, containerPort: 80, protocol: UDP}}]}}]}}}}\n"
                );
            }
        }
        kubectl.run_with("apply --validate=false -f -", &yaml);
        let mut places = Vec::new();
        for namespace in ["x", "z"] {
            for (node, pod) in NODES {
                kubectl.run(&format!("wait -n {namespace} --for=condition=Ready pod/{pod} --timeout=240s"));
                let ips = kubectl
                    .run(&format!("get pod -n {namespace} {pod} -o jsonpath={{.status.podIPs[*].ip}}"));
                let ips: Vec<&str> = ips.split_whitespace().collect();
                let netns = cluster.pod_netns(node, ips[0]);
                places.push(Place::serving(Spot::pod(namespace, pod, node, &ips), netns));
            }
        }
        // Somebody on another machine: the hub, told the way to the pods.
        let hub = PathBuf::from(format!("/proc/{}/ns/net", cluster.hub()));
        for (node, _) in NODES {
            let ranges = kubectl.run(&format!("get node {node} -o jsonpath={{.spec.podCIDRs[*]}}"));
            for range in ranges.split_whitespace() {
                let by = if range.contains(':') { "address6" } else { "address" };
                let by = cluster.node(node)[by].as_str().unwrap().to_owned();
                packets::ip(&hub, &format!("route replace {range} via {by}"));
            }
        }
        places.push(Place::serving(Spot::outside("out", &["10.89.0.1", "fd89::1"]), hub));
        let node = cluster.node("node-1");
        let netns = PathBuf::from(format!("/proc/{}/ns/net", node["holder"]["pid"]));
        let ips = [node["address"].as_str().unwrap(), node["address6"].as_str().unwrap()];
        places.push(Place::silent(Spot::node("node-1", &ips), netns));
        Field { cluster, kubectl, places }
    }

    /// Every path: from, to, protocol, port, whether by IPv4. From a node only to its own pods, which is never stopped.
    pub fn paths(&self) -> Vec<(&Place, &Place, &'static str, u16, bool)> {
        let mut paths = Vec::new();
        for from in &self.places {
            let others = self.places.iter().filter(|to| to.listens && to.spot.name != from.spot.name);
            for to in others.filter(|to| !from.spot.is_node || to.spot.node == from.spot.node) {
                for (protocol, port) in model::TRIED {
                    paths.extend([true, false].map(|v4| (from, to, protocol, port, v4)));
                }
            }
        }
        paths
    }

    pub fn place(&self, name: &str) -> &Place {
        self.places.iter().find(|place| place.spot.name == name).unwrap()
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        if std::thread::panicking() {
            NODES.iter().for_each(|(node, _)| eprintln!("{}", self.cluster.told(node)));
        }
    }
}

#[test]
fn policies() {
    let field = Field::start();
    let begun = std::time::Instant::now();
    for scenario in scenarios::all() {
        scenarios::check(&field, &scenario);
    }
    scenarios::labels_change(&field);
    println!("the matrix: {:.1?}", begun.elapsed());
    faults::nonsense_is_refused(&field);
    faults::names_are_asked_as_policies_say(&field);
    faults::a_connection_goes_on(&field);
    faults::no_first_packet(&field);
    faults::rules_removed_come_back(&field);
    faults::a_killed_agent_changes_nothing(&field);
    faults::nothing_is_left(&field);
}
