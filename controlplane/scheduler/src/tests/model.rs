use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// What may happen in a cluster.
#[derive(Debug, Clone)]
enum Step {
    Node(u8, u8),
    NoNode(u8),
    Pod { kind: u8, cpu: u8 },
    Delete(u8),
    Cordon(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0..6u8, 1..4u8).prop_map(|(n, size)| Step::Node(n, size)),
        1 => (0..6u8).prop_map(Step::NoNode),
        8 => (0..6u8, 1..12u8).prop_map(|(kind, cpu)| Step::Pod { kind, cpu }),
        2 => any::<u8>().prop_map(Step::Delete),
        1 => (0..6u8).prop_map(Step::Cordon),
    ];
    prop::collection::vec(step, 1..60)
}

fn model_pod(n: usize, kind: u8, amount: u8) -> Arc<PodInfo> {
    pod_with(&format!("p{n}"), |p| {
        p["metadata"]["labels"]["app"] = json!(format!("app{}", kind % 2));
        p["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(format!("{}00m", amount));
        let app = format!("app{}", kind % 2);
        match kind {
            0 => anti(p, &app, "kubernetes.io/hostname"),
            1 => anti(p, &app, "topology.kubernetes.io/zone"),
            2 => {
                p["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": app}}}])
            }
            3 => p["spec"]["containers"][0]["ports"] = json!([{"containerPort": 1, "hostPort": 8080}]),
            _ => {}
        }
    })
}

fn model_node(n: u8, size: u8, cordoned: bool) -> NodeInfo {
    node_with(&format!("n{n}"), |v| {
        v["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(format!("z{}", n % 3));
        v["status"]["allocatable"] = json!({"cpu": size.to_string(), "memory": "8Gi", "pods": "5"});
        v["spec"]["unschedulable"] = json!(cordoned);
    })
}

/// What must hold for a pod at the moment it is placed, computed from scratch.
fn sound(placer: &Placer, pod: &PodInfo, at: &str) -> Result<(), String> {
    let s = &placer.snapshot;
    let here = s.node(s.node_named(at).unwrap()).unwrap();
    let used: i64 = here.pods.iter().map(|p| p.requests.cpu).sum();
    if used > here.allocatable.cpu || here.pods.len() as i64 > here.max_pods || here.unschedulable {
        return Err(format!("{at} is over: {used} of {}", here.allocatable.cpu));
    }
    let ports: Vec<_> = here.pods.iter().flat_map(|p| &p.ports).collect();
    if ports.len() > 1 {
        return Err("a host port twice".into());
    }
    let same = |a: &NodeInfo, b: &NodeInfo, key: &str| a.labels.get(key) == b.labels.get(key);
    for (_, node) in s.nodes() {
        for other in node.pods.iter().filter(|p| p.key != pod.key) {
            let against = |a: &PodInfo, b: &PodInfo| {
                a.anti_affinity.iter().any(|t| same(node, here, &t.topology) && b.matches(t, &s.namespaces))
            };
            if against(pod, other) || against(other, pod) {
                return Err(format!("{} and {} must not meet", pod.name, other.name));
            }
        }
    }
    for spread in pod.spread.iter().filter(|s| s.hard) {
        let mut zones: HashMap<&String, i64> = HashMap::new();
        for (_, node) in s.nodes() {
            let n = node.pods.iter().filter(|p| p.matches(&spread.term, &s.namespaces)).count() as i64;
            *zones.entry(&node.labels[spread.term.topology.as_ref()]).or_default() += n;
        }
        let mine = zones[&here.labels[spread.term.topology.as_ref()]];
        let least = zones.values().min().unwrap();
        if mine - least > spread.max_skew {
            return Err(format!("skew {mine} over {least}"));
        }
    }
    Ok(())
}

/// Whether a node would do, computed from scratch: what a placer without memory finds.
fn possible(placer: &Placer, pod: &Arc<PodInfo>) -> bool {
    let mut fresh = Placer::default();
    for (_, node) in placer.snapshot.nodes() {
        let mut copy = NodeInfo { name: node.name.clone(), ..NodeInfo::default() };
        copy.reshape(NodeInfo {
            labels: node.labels.clone(),
            taints: node.taints.clone(),
            allocatable: node.allocatable.clone(),
            max_pods: node.max_pods,
            unschedulable: node.unschedulable,
            ..NodeInfo::default()
        });
        fresh.snapshot.set_node(copy);
        let id = fresh.snapshot.node_named(&node.name).unwrap();
        for pod in &node.pods {
            fresh.snapshot.assume(pod, id);
        }
    }
    fresh.place(pod).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_sequence_of_events_breaks_a_rule(steps in steps()) {
        let mut placer = Placer::default();
        let mut placed: Vec<Arc<PodInfo>> = Vec::new();
        let mut sizes: HashMap<u8, u8> = HashMap::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Node(node, size) => {
                    // Shrinking a node under its pods is the operator's doing, not the scheduler's.
                    let size = size.max(sizes.get(&node).copied().unwrap_or(0));
                    sizes.insert(node, size);
                    placer.snapshot.set_node(model_node(node, size, false));
                }
                Step::Cordon(node) => {
                    if let Some(size) = sizes.get(&node) {
                        placer.snapshot.set_node(model_node(node, *size, true));
                    }
                }
                Step::NoNode(node) => {
                    placer.snapshot.remove_node(&format!("n{node}"));
                    let here = |p: &Arc<PodInfo>| placer.snapshot.pod(&p.key).is_some();
                    placed.retain(here);
                    sizes.remove(&node);
                    for pod in placed.clone() {
                        let stray = !placer.snapshot.nodes().any(|(_, n)| n.pods.iter().any(|p| p.key == pod.key));
                        if stray {
                            placer.snapshot.remove_pod(&pod.key);
                            placed.retain(|p| p.key != pod.key);
                        }
                    }
                }
                Step::Delete(which) => {
                    if !placed.is_empty() {
                        let gone = placed.remove(which as usize % placed.len());
                        placer.snapshot.remove_pod(&gone.key);
                    }
                }
                Step::Pod { kind, cpu } => {
                    let pod = model_pod(n, kind, cpu);
                    match put(&mut placer, &pod) {
                        Ok(at) => {
                            prop_assert_eq!(sound(&placer, &pod, &at), Ok(()));
                            placed.push(pod);
                        }
                        Err(why) => prop_assert!(!possible(&placer, &pod), "{}", why),
                    }
                }
            }
        }
    }
}
