#![allow(clippy::unwrap_used)]
use super::node::NodeInfo;
use super::place::Placer;
use super::pod::PodInfo;
use super::preempt::{self, Budget};
use super::queue::{Event, Queue};
use super::why::Diagnosis;
use coracle_proto::selector::LabelSelector;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

fn node_with(name: &str, change: impl FnOnce(&mut Value)) -> NodeInfo {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "x.io/gpu": "2"}},
    });
    change(&mut node);
    NodeInfo::new(serde_json::from_value(node).unwrap())
}

fn node(name: &str) -> NodeInfo {
    node_with(name, |_| {})
}

fn zoned(name: &str, zone: &str) -> NodeInfo {
    node_with(name, |n| n["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zone))
}

fn pod_with(name: &str, change: impl FnOnce(&mut Value)) -> Arc<PodInfo> {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]},
    });
    change(&mut pod);
    Arc::new(PodInfo::new(serde_json::from_value(pod).unwrap()))
}

fn pod(name: &str) -> Arc<PodInfo> {
    pod_with(name, |_| {})
}

fn cpu(name: &str, amount: &str) -> Arc<PodInfo> {
    pod_with(name, |p| p["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(amount))
}

fn with_nodes(nodes: Vec<NodeInfo>) -> Placer {
    let mut placer = Placer::default();
    for node in nodes {
        placer.snapshot.set_node(node);
    }
    placer
}

/// Places a pod and counts it there; the node's name or the sentence why not.
fn put(placer: &mut Placer, pod: &Arc<PodInfo>) -> Result<String, String> {
    match placer.place(pod) {
        Ok(id) => {
            placer.snapshot.assume(pod, id);
            Ok(placer.snapshot.node(id).unwrap().name.clone())
        }
        Err(why) => Err(why.message("")),
    }
}

fn term(app: &str, topology: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology})
}

fn anti(pod: &mut Value, app: &str, topology: &str) {
    pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!([term(app, topology)]);
}

#[test]
fn reasons_are_per_node_and_in_upstreams_words() {
    let table: Vec<(NodeInfo, Arc<PodInfo>, &str)> = vec![
        (node("a"), cpu("p", "5"), "1 Insufficient cpu."),
        (
            node("a"),
            pod_with("p", |p| {
                p["spec"]["containers"][0]["resources"]["requests"] =
                    json!({"cpu": "9", "memory": "1Ti", "x.io/gpu": 3})
            }),
            "1 Insufficient cpu, 1 Insufficient memory, 1 Insufficient x.io/gpu.",
        ),
        (
            node_with("a", |n| n["spec"]["unschedulable"] = json!(true)),
            pod("p"),
            "1 node(s) were unschedulable.",
        ),
        (
            node_with("a", |n| {
                n["spec"]["taints"] = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}])
            }),
            pod("p"),
            "1 node(s) had untolerated taint {k: v}.",
        ),
        (
            node("a"),
            pod_with("p", |p| p["spec"]["nodeSelector"] = json!({"disk": "ssd"})),
            "1 node(s) didn't match Pod's node affinity/selector.",
        ),
        (node_with("a", |n| n["status"]["allocatable"]["pods"] = json!("0")), pod("p"), "1 Too many pods."),
        (
            node("a"),
            pod_with(
                "p",
                |p| p["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]),
            ),
            "1 node(s) didn't match pod topology spread constraints (missing required label).",
        ),
        (
            node("a"),
            pod_with("p", |p| {
                p["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                    json!([term("db", "kubernetes.io/hostname")])
            }),
            "1 node(s) didn't match pod affinity rules.",
        ),
        (
            node("a"),
            pod_with("p", |p| {
                p["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
            }),
            "persistentvolumeclaim \"data\" not found.",
        ),
        (
            node("a"),
            pod_with(
                "p",
                |p| p["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]}),
            ),
            "1 node(s) didn't satisfy plugin(s) [NodeAffinity].",
        ),
    ];
    for (node, pod, expected) in table {
        let mut placer = with_nodes(vec![node]);
        assert_eq!(put(&mut placer, &pod), Err(format!("0/1 nodes are available: {expected}")));
    }
    assert_eq!(put(&mut Placer::default(), &pod("p")), Err("no nodes available to schedule pods".into()));
}

#[test]
fn host_ports_are_used_once_per_node_and_address() {
    let with_port = |name: &str, ip: &str| {
        pod_with(name, |p| {
            p["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80, "hostIP": ip}])
        })
    };
    let mut placer = with_nodes(vec![node("a")]);
    put(&mut placer, &with_port("p", "127.0.0.1")).unwrap();
    put(&mut placer, &with_port("q", "127.0.0.2")).unwrap();
    let why = put(&mut placer, &with_port("r", "")).unwrap_err();
    assert_eq!(why, "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.");
}

#[test]
fn scores_prefer_empty_nodes_liked_labels_and_few_taints() {
    let mut placer = with_nodes(vec![node("a"), node("b")]);
    assert_ne!(put(&mut placer, &cpu("p", "1")), put(&mut placer, &cpu("q", "1")), "the emptier node");

    let liked = node_with("b", |n| n["metadata"]["labels"]["disk"] = json!("ssd"));
    let mut placer = with_nodes(vec![node("a"), liked, node("c")]);
    let picky = pod_with("p", |p| {
        p["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([{"weight": 10, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}]);
    });
    assert_eq!(put(&mut placer, &picky).unwrap(), "b");

    let soft = |name: &str| {
        node_with(name, |n| n["spec"]["taints"] = json!([{"key": "k", "effect": "PreferNoSchedule"}]))
    };
    let mut placer = with_nodes(vec![soft("a"), soft("b"), node("c")]);
    assert_eq!(put(&mut placer, &pod("p")).unwrap(), "c");
}

#[test]
fn affinity_brings_pods_together_and_starts_somewhere() {
    let mut placer = with_nodes(vec![zoned("a", "1"), zoned("b", "1"), zoned("c", "2")]);
    let together = |name: &str| {
        pod_with(name, |p| {
            p["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!([term("web", "topology.kubernetes.io/zone")])
        })
    };
    let first = put(&mut placer, &together("p0")).unwrap();
    let zone = |name: &str| if name == "c" { "2" } else { "1" };
    for i in 1..6 {
        let next = put(&mut placer, &together(&format!("p{i}"))).unwrap();
        assert_eq!(zone(&next), zone(&first));
    }
}

#[test]
fn anti_affinity_works_in_both_directions() {
    let mut placer = with_nodes(vec![node("a"), node("b")]);
    let lonely = |name: &str| pod_with(name, |p| anti(p, "web", "kubernetes.io/hostname"));
    put(&mut placer, &lonely("p")).unwrap();
    put(&mut placer, &lonely("q")).unwrap();
    assert_eq!(
        put(&mut placer, &lonely("r")).unwrap_err(),
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
    );
    // A pod without rules of its own is refused by those who are there.
    assert_eq!(
        put(&mut placer, &pod("s")).unwrap_err(),
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."
    );
    placer.snapshot.remove_pod("default/p");
    put(&mut placer, &pod("s")).unwrap();
}

#[test]
fn hard_spread_keeps_the_skew_and_soft_spread_tries() {
    let spread = |name: &str, when: &str, topology: &str| {
        pod_with(name, |p| {
            p["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"app": "web"}}}]);
        })
    };
    for (when, topology) in [
        ("DoNotSchedule", "topology.kubernetes.io/zone"),
        ("ScheduleAnyway", "topology.kubernetes.io/zone"),
        ("DoNotSchedule", "kubernetes.io/hostname"),
    ] {
        let mut placer = with_nodes(vec![zoned("a", "1"), zoned("b", "1"), zoned("c", "2"), zoned("d", "3")]);
        let mut count: HashMap<String, i32> = HashMap::new();
        for i in 0..12 {
            let at = put(&mut placer, &spread(&format!("p{i}"), when, topology)).unwrap();
            let domain = match (topology, at.as_str()) {
                ("kubernetes.io/hostname", name) => name.to_owned(),
                (_, "a" | "b") => "1".into(),
                (_, "c") => "2".into(),
                _ => "3".into(),
            };
            *count.entry(domain).or_default() += 1;
            if when == "DoNotSchedule" {
                let (most, least) = (
                    count.values().max().unwrap(),
                    if count.len() < 3 { &0 } else { count.values().min().unwrap() },
                );
                assert!(most - least <= 1, "{count:?}");
            }
        }
        assert!(count.values().max().unwrap() - count.values().min().unwrap() <= 1, "{when} {count:?}");
    }
}

#[test]
fn replicas_of_a_controller_spread_over_nodes() {
    let mut placer = with_nodes((0..10).map(|i| node(&format!("n{i}"))).collect());
    let mut seen = std::collections::HashSet::new();
    for i in 0..10 {
        let replica = pod_with(&format!("p{i}"), |p| {
            p["metadata"]["ownerReferences"] = json!([{"uid": "rs", "controller": true}])
        });
        seen.insert(put(&mut placer, &replica).unwrap());
    }
    assert_eq!(seen.len(), 10);
}

#[test]
fn claims_decide_where_pods_may_go() {
    let claims = |name: &str| {
        pod_with(name, |p| {
            p["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
        })
    };
    let mut placer = with_nodes(vec![zoned("a", "1"), zoned("b", "2")]);
    let volumes = &mut placer.snapshot.volumes;
    let claim = |phase: &str, volume: &str| json!({"spec": {"storageClassName": "fast", "volumeName": volume, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": phase}});
    volumes.set_claim("default/data", Some(&claim("Pending", "")));
    volumes.set_class("fast", Some(&json!({"provisioner": "x", "volumeBindingMode": "Immediate"})));
    assert_eq!(
        put(&mut placer, &claims("p")).unwrap_err(),
        "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    );
    placer.snapshot.volumes.set_class("fast", Some(&json!({"provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["2"]}]}]})));
    assert_eq!(put(&mut placer, &claims("p")).unwrap(), "b");
    let local = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]}]}}}});
    placer.snapshot.volumes.set_volume("pv", Some(&local));
    placer.snapshot.volumes.set_claim("default/data", Some(&claim("Bound", "pv")));
    assert_eq!(put(&mut placer, &claims("q")).unwrap(), "a");
    placer.snapshot.volumes.set_volume("pv", None);
    assert_eq!(
        put(&mut placer, &claims("r")).unwrap_err(),
        "0/2 nodes are available: 2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)."
    );
}

fn ranked(name: &str, amount: &str, priority: i32) -> Arc<PodInfo> {
    pod_with(name, |p| {
        p["spec"]["priority"] = json!(priority);
        p["metadata"]["labels"]["app"] = json!(name);
        p["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(amount);
    })
}

#[test]
fn preemption_takes_the_least_important_and_spares_what_it_can() {
    let mut placer = with_nodes(vec![node("a"), node("b")]);
    for (name, amount, priority, at) in [("low", "2", 1, "a"), ("lower", "2", 0, "a"), ("mid", "4", 5, "b")] {
        let id = placer.snapshot.node_named(at).unwrap();
        placer.snapshot.assume(&ranked(name, amount, priority), id);
    }
    let high = ranked("high", "2", 10);
    let why = placer.place(&high).unwrap_err();
    let plan = placer.make_room(&high, &why, &[]).unwrap();
    assert_eq!(plan.victims.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["lower"]);
    assert_eq!(placer.snapshot.node(plan.node).unwrap().pods.len(), 2, "trying changed nothing");
    // A budget on the cheapest victim makes the next best one go.
    let budget = Budget {
        namespace: "default".into(),
        selector: LabelSelector::from_map(&json!({"app": "lower"})),
        allowed: 0,
        disrupted: Vec::new(),
    };
    let plan = preempt::plan(&mut placer.snapshot, &high, &why, &[budget]).unwrap();
    assert_eq!((plan.victims[0].name.as_str(), plan.violations), ("low", 0));
    // Nobody is less important than this one.
    let equal = ranked("equal", "2", 0);
    let why = placer.place(&equal).unwrap_err();
    assert_eq!(
        placer.make_room(&equal, &why, &[]).unwrap_err(),
        "0/2 nodes are available: 2 No preemption victims found for incoming pod."
    );
    let huge = ranked("huge", "64", 10);
    let why = placer.place(&huge).unwrap_err();
    assert_eq!(
        placer.make_room(&huge, &why, &[]).unwrap_err(),
        "0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
}

#[test]
fn room_that_was_made_is_kept_for_the_one_it_was_made_for() {
    let mut placer = with_nodes(vec![node("a")]);
    let high = ranked("high", "3", 10);
    placer.snapshot.nominate(&high, "a");
    assert!(put(&mut placer, &ranked("low", "2", 0)).is_err());
    assert_eq!(put(&mut placer, &ranked("higher", "2", 20)).unwrap(), "a");
    placer.snapshot.remove_pod("default/higher");
    assert_eq!(put(&mut placer, &high).unwrap(), "a");
}

#[test]
fn the_queue_orders_by_priority_then_age_and_holds_gated_pods() {
    let mut queue = Queue::default();
    for (name, priority) in [("a", 0), ("b", 5), ("c", 0)] {
        queue.add(ranked(name, "1", priority));
    }
    queue.add(pod_with("gated", |p| p["spec"]["schedulingGates"] = json!([{"name": "wait"}])));
    let order: Vec<String> = std::iter::from_fn(|| queue.pop(0).map(|p| p.name.clone())).collect();
    assert_eq!(order, ["b", "a", "c"]);
    queue.add(pod("gated"));
    assert_eq!(queue.pop(0).unwrap().name, "gated");
}

#[test]
fn a_stuck_pod_is_tried_again_only_when_something_may_help() {
    let mut placer = with_nodes(vec![node("a")]);
    let mut queue = Queue::default();
    let big = cpu("big", "6");
    queue.add(big.clone());
    let popped = queue.pop(0).unwrap();
    let why = placer.place(&popped).unwrap_err();
    assert!(queue.stuck(&popped.key, why.clone(), why.message(""), 0));
    let id = placer.snapshot.set_node(node("b")).unwrap();
    queue.wake(Event::Node(id), &placer.snapshot, 10);
    queue.wake(Event::Storage, &placer.snapshot, 10);
    assert!(queue.pop(10).is_none(), "a node that is too small does not help");
    let id =
        placer.snapshot.set_node(node_with("c", |n| n["status"]["allocatable"]["cpu"] = json!("8"))).unwrap();
    queue.wake(Event::Node(id), &placer.snapshot, 10);
    let popped = queue.pop(10).unwrap();
    assert_eq!(put(&mut placer, &popped).unwrap(), "c");
    // The next one waits for the room that it takes.
    let next = cpu("next", "6");
    queue.remove(&popped.key);
    queue.add(next.clone());
    let waiting = queue.pop(20).unwrap();
    let why = placer.place(&waiting).unwrap_err();
    queue.stuck(&waiting.key, why.clone(), why.message(""), 20);
    let (gone, at) = placer.snapshot.remove_pod("default/big").unwrap();
    queue.wake(Event::Gone(&gone, at), &placer.snapshot, 30);
    assert_eq!(queue.pop(30).unwrap().name, "next");
}

#[test]
fn the_same_refusal_is_no_news() {
    let mut queue = Queue::default();
    queue.add(pod("p"));
    let key = queue.pop(0).unwrap().key.clone();
    let why = Arc::new(Diagnosis::default());
    assert!(queue.stuck(&key, why.clone(), why.message(""), 0));
    queue.flush(300_001);
    assert_eq!(queue.pop(300_001).unwrap().name, "p");
    assert!(!queue.stuck(&key, why.clone(), why.message(""), 300_001));
}

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
                a.anti_affinity.iter().any(|t| same(node, here, &t.topology) && t.matches(b, &s.namespaces))
            };
            if against(pod, other) || against(other, pod) {
                return Err(format!("{} and {} must not meet", pod.name, other.name));
            }
        }
    }
    for spread in pod.spread.iter().filter(|s| s.hard) {
        let mut zones: HashMap<&String, i64> = HashMap::new();
        for (_, node) in s.nodes() {
            let n = node.pods.iter().filter(|p| spread.term.matches(p, &s.namespaces)).count() as i64;
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

    #[test]
    fn preemption_leaves_room_and_touches_only_the_less_important(pods in prop::collection::vec((1..20u8, 0..5i32), 1..40), asked in 1..30u8) {
        let mut placer = with_nodes((0..4).map(|i| node(&format!("n{i}"))).collect());
        for (i, (amount, priority)) in pods.iter().enumerate() {
            let _ = put(&mut placer, &ranked(&format!("p{i}"), &format!("{amount}00m"), *priority));
        }
        let high = ranked("high", &format!("{asked}00m"), 3);
        if let Err(why) = placer.place(&high)
            && let Ok(plan) = placer.make_room(&high, &why, &[])
        {
            prop_assert!(!plan.victims.is_empty());
            prop_assert!(plan.victims.iter().all(|v| v.priority < 3));
            for victim in &plan.victims {
                placer.snapshot.remove_pod(&victim.key);
            }
            prop_assert!(placer.place(&high).is_ok());
        }
    }
}

/// Prints how fast pods are placed; run with `--ignored --nocapture` and optimisation.
#[test]
#[ignore = "a measurement, not a check"]
fn figures() {
    type Kind = (&'static str, fn(&mut Value));
    let kinds: [Kind; 5] = [
        ("plain", |_| {}),
        ("replicas of one controller", |p| {
            p["metadata"]["ownerReferences"] = json!([{"uid": "rs", "controller": true}])
        }),
        ("anti-affinity per node", |p| anti(p, "web", "kubernetes.io/hostname")),
        (
            "spread over zones",
            |p| p["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]),
        ),
        ("affinity in a zone", |p| {
            p["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!([term("web", "topology.kubernetes.io/zone")])
        }),
    ];
    for (what, change) in kinds {
        let mut placer =
            with_nodes((0..5000).map(|i| zoned(&format!("n{i}"), &format!("z{}", i % 10))).collect());
        let count = if what.starts_with("anti") { 5_000 } else { 10_000 };
        let pods: Vec<_> = (0..count).map(|i| pod_with(&format!("p{i}"), change)).collect();
        let start = Instant::now();
        let ok = pods.iter().filter(|p| put(&mut placer, p).is_ok()).count();
        let took = start.elapsed();
        println!(
            "{what}: {ok} of {count} pods on 5000 nodes in {took:?}, {:.0}/s",
            ok as f64 / took.as_secs_f64()
        );
    }
}
