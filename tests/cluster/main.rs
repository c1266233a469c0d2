//! kubectl → server → scheduler → agent → containers, for real, in namespaces of their own. Needs root.

#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used)]

mod kinds;

use coracle_tests::cluster::Cluster;
use coracle_tests::eventually;
use serde_json::Value;
use std::time::Duration;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn nginx_answers_and_leaves_nothing() {
    let cluster = Cluster::start(1);
    let k = cluster.kubectl();
    k.run("wait --for=condition=Ready node/node-1 --timeout=30s");
    let before = Leftovers::of(&cluster);

    // A pod.
    k.run("run web --image=nginx");
    k.run("wait --for=condition=Ready pod/web --timeout=60s");
    let ip = k.run("get pod web -o jsonpath={.status.podIP}");
    let page = cluster.inside("node-1", &["curl", "-s", "--max-time", "5", &format!("http://{ip}/")]);
    assert!(page.contains("Welcome to nginx!"), "{page}");
    let events = k.run("get events --field-selector involvedObject.name=web -o jsonpath={.items[*].reason}");
    for reason in ["Scheduled", "Pulled", "Created", "Started"] {
        assert!(events.contains(reason), "{reason} in {events}");
    }

    // A Deployment: rolled out, scaled, changed, undone.
    k.run("create deployment site --image=nginx --replicas=3");
    k.run("rollout status deployment site --timeout=60s");
    k.run("expose deployment site --port=80");
    eventually("three endpoints", Duration::from_secs(10), || {
        let slices = json(&k.run("get endpointslices -l kubernetes.io/service-name=site -o json"));
        slices["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["endpoints"].as_array().map_or(0, Vec::len))
            .sum::<usize>()
            == 3
    });
    k.run("scale deployment site --replicas=1");
    k.run("set env deployment/site COLOUR=blue");
    k.run("rollout status deployment site --timeout=60s");
    k.run("rollout undo deployment site");
    k.run("rollout status deployment site --timeout=60s");

    // A pod that ends tells how.
    k.run("run once --image=busybox --restart=Never --command -- sh -c 'echo hello; exit 3'");
    k.run("wait --for=jsonpath={.status.phase}=Failed pod/once --timeout=60s");
    assert_eq!(
        k.run("get pod once -o jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"),
        "3"
    );

    k.run("delete deployment site --wait");
    k.run("delete service site");
    k.run("delete pod web once --wait");
    eventually("no pods are left", Duration::from_secs(20), || k.run("get pods -o name").trim().is_empty());
    eventually("the node is as it was", Duration::from_secs(10), || Leftovers::of(&cluster) == before);
    cluster.down();
    assert!(!cluster.data_dir().exists());
}

#[test]
fn pods_outlive_their_agent() {
    let cluster = Cluster::start(1);
    let k = cluster.kubectl();
    k.run("run steady --image=busybox --command -- sleep 3600");
    k.run("wait --for=condition=Ready pod/steady --timeout=60s");
    let container = k.run("get pod steady -o jsonpath={.status.containerStatuses[0].containerID}");
    cluster.kill_agent("node-1");
    cluster.up(1);
    k.run("wait --for=condition=Ready node/node-1 --timeout=30s");
    k.run("run after --image=busybox --command -- sleep 3600");
    k.run("wait --for=condition=Ready pod/after --timeout=60s");
    assert_eq!(k.run("get pod steady -o jsonpath={.status.containerStatuses[0].containerID}"), container);
    assert_eq!(k.run("get pod steady -o jsonpath={.status.containerStatuses[0].restartCount}"), "0");
}

#[test]
fn every_kind_on_real_pods() {
    let cluster = Cluster::start(2);
    cluster.kubectl().run("wait --for=condition=Ready node/node-1 node/node-2 --timeout=60s");
    kinds::on_real_pods(&cluster);
    cluster.down();
    assert!(!cluster.data_dir().exists(), "volumes and all");
}

/// What pods leave behind if somebody forgets it: links, namespaces, mounts, addresses, data.
#[derive(Debug, PartialEq, Eq)]
struct Leftovers {
    links: Vec<String>,
    mounts: usize,
    addresses: Vec<String>,
    pods: usize,
}

impl Leftovers {
    fn of(cluster: &Cluster) -> Self {
        let links = cluster.inside("node-1", &["ip", "-br", "link"]);
        let mut links: Vec<String> =
            links.lines().filter_map(|l| l.split_whitespace().next().map(str::to_owned)).collect();
        // The bridge comes with the first pod and stays.
        links.retain(|link| link != "coracle0");
        links.sort();
        let mounts = cluster.inside("node-1", &["cat", "/proc/self/mounts"]).lines().count();
        let node = cluster.data_dir().join("node-1");
        let names = |dir: &str| -> Vec<String> {
            let inside = std::fs::read_dir(node.join(dir)).into_iter().flatten().flatten();
            inside.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
        };
        let mut addresses = names("cni-state/networks/cbr0");
        addresses.retain(|name| name.parse::<std::net::IpAddr>().is_ok());
        Self { links, mounts, addresses, pods: names("pods").len() }
    }
}
