//! Limits of a pod's traffic, from its annotations to the kernel.

use crate::cluster::{Cluster, IMAGE, run};
use coracle_tests::{eventually, program};
use std::time::Duration;

fn pod(cluster: &Cluster, name: &str, annotations: &str) {
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, annotations: {{{annotations}}}}}, \
         spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: c, image: '{IMAGE}', command: [sleep, '1000']}}]}}}}"
    ));
}

#[test]
#[ignore = "run by in_namespaces"]
fn annotations_limit_the_traffic_of_a_pod() {
    let plugins = program("bandwidth").parent().unwrap().display().to_string();
    let cluster = Cluster::start_with(&format!("--cni-bin-dir {plugins}"));
    let limits = "kubernetes.io/ingress-bandwidth: 10M, kubernetes.io/egress-bandwidth: 2M";
    pod(&cluster, "limited", limits);
    cluster.wait_ready("limited");
    let here = run("tc qdisc show");
    assert!(here.contains("tbf") && here.contains("rate 10Mbit"), "{here}");
    let pid = run("pgrep -f '^sleep 1000' | head -1");
    let inside = run(&format!("nsenter -t {} -n tc qdisc show dev eth0", pid.trim()));
    assert!(inside.contains("tbf") && inside.contains("rate 2Mbit"), "{inside}");
    cluster.delete("limited");
    eventually("limits go with the pod", Duration::from_secs(30), || !run("tc qdisc show").contains("tbf"));

    pod(&cluster, "free", "");
    cluster.wait_ready("free");
    assert!(!run("tc qdisc show").contains("tbf"));
    pod(&cluster, "wrong", "kubernetes.io/ingress-bandwidth: fast");
    eventually("the annotation is named in an event", Duration::from_secs(60), || {
        let events = cluster.kubectl.run("get events");
        events.contains("FailedCreatePodSandBox") && events.contains("kubernetes.io/ingress-bandwidth")
    });
    cluster.kubectl.run("delete pod --all --grace-period=1");
}
