use super::*;
use crate::queue::{Event, Queue};
use coracle_fields::Schema as _;
use coracle_fields::core::v1::{PersistentVolume, PersistentVolumeClaim};
use coracle_fields::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use std::collections::HashMap;

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
            "1 node(s) had untolerated taint(s).",
        ),
        (
            node_with("a", |n| n["status"]["declaredFeatures"] = json!(["Other"])),
            pod_with("p", |p| {
                p["spec"]["containers"][0]["restartPolicyRules"] = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}])
            }),
            "1 node(s) didn't match Pod's required features.",
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
fn claims_decide_where_pods_may_go() {
    let claims = |name: &str| {
        pod_with(name, |p| {
            p["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
        })
    };
    let mut placer = with_nodes(vec![zoned("a", "1"), zoned("b", "2")]);
    let volumes = &mut placer.snapshot.volumes;
    let claim = |phase: &str, volume: &str| json!({"spec": {"storageClassName": "fast", "volumeName": volume, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": phase}});
    volumes.set_claim("default/data", Some(PersistentVolumeClaim::of(&claim("Pending", ""))));
    let immediate = json!({"provisioner": "x", "volumeBindingMode": "Immediate"});
    volumes.set_class("fast", Some(StorageClass::of(&immediate)));
    assert_eq!(
        put(&mut placer, &claims("p")).unwrap_err(),
        "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    );
    let waits = json!({"provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["2"]}]}]});
    placer.snapshot.volumes.set_class("fast", Some(StorageClass::of(&waits)));
    assert_eq!(put(&mut placer, &claims("p")).unwrap(), "b");
    let local = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]}]}}}});
    placer.snapshot.volumes.set_volume("pv", Some(PersistentVolume::of(&local)));
    placer.snapshot.volumes.set_claim("default/data", Some(PersistentVolumeClaim::of(&claim("Bound", "pv"))));
    assert_eq!(put(&mut placer, &claims("q")).unwrap(), "a");
    placer.snapshot.volumes.set_volume("pv", None);
    assert_eq!(
        put(&mut placer, &claims("r")).unwrap_err(),
        "0/2 nodes are available: 2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)."
    );
}

#[test]
fn waiting_claims_are_matched_by_selector_mode_and_state_of_volumes() {
    let pod = pod_with("p", |p| {
        p["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    });
    let claim = |change: Value| {
        let mut claim = json!({"metadata": {"uid": "u"}, "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}, "selector": {"matchLabels": {"disk": "ssd"}}}});
        json_patch(&mut claim, change);
        claim
    };
    let volume = |change: Value| {
        let mut volume = json!({"metadata": {"name": "pv", "labels": {"disk": "ssd"}}, "spec": {"storageClassName": "fast",
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}, "status": {"phase": "Available"}});
        json_patch(&mut volume, change);
        volume
    };
    let reserved = |uid: &str| json!({"claimRef": {"namespace": "default", "name": "data", "uid": uid}});
    let waits =
        json!({"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"});
    let none = "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind.";
    let immediate = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    for (what, claim, volume, want) in [
        ("all is as asked", claim(json!({})), volume(json!({})), Ok("a")),
        ("labels", claim(json!({})), volume(json!({"metadata": {"labels": {"disk": "hdd"}}})), Err(none)),
        ("volume mode", claim(json!({})), volume(json!({"spec": {"volumeMode": "Block"}})), Err(none)),
        (
            "both block",
            claim(json!({"spec": {"volumeMode": "Block"}})),
            volume(json!({"spec": {"volumeMode": "Block"}})),
            Ok("a"),
        ),
        (
            "deleting",
            claim(json!({})),
            volume(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            Err(none),
        ),
        (
            "attributes",
            claim(json!({"spec": {"volumeAttributesClassName": "gold"}})),
            volume(json!({})),
            Err(none),
        ),
        (
            "reserved",
            claim(json!({})),
            volume(json!({"metadata": {"labels": {"disk": "hdd"}}, "spec": reserved("u")})),
            Ok("a"),
        ),
        (
            "reserved, too small",
            claim(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}})),
            volume(json!({"spec": reserved("u")})),
            Err(none),
        ),
        ("reserved for another", claim(json!({})), volume(json!({"spec": reserved("v")})), Err(none)),
        ("named", claim(json!({"spec": {"volumeName": "pv"}})), volume(json!({})), Err(immediate)),
    ] {
        let mut placer = with_nodes(vec![node("a")]);
        let volumes = &mut placer.snapshot.volumes;
        volumes.set_class("fast", Some(StorageClass::of(&waits)));
        volumes.set_claim("default/data", Some(PersistentVolumeClaim::of(&claim)));
        volumes.set_volume("pv", Some(PersistentVolume::of(&volume)));
        let want = want.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(put(&mut placer, &pod), want, "{what}");
    }
}

/// Merges one tree into another.
fn json_patch(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                json_patch(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

#[test]
fn a_node_takes_as_many_volumes_as_its_driver_says() {
    let claims = |name: &str, claim: &str| {
        pod_with(name, |p| {
            p["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])
        })
    };
    let mut placer = with_nodes(vec![node("a")]);
    let volumes = &mut placer.snapshot.volumes;
    for name in ["one", "two", "three"] {
        let volume = json!({"spec": {"csi": {"driver": "d", "volumeHandle": name}}});
        volumes.set_volume(name, Some(PersistentVolume::of(&volume)));
        let claim = json!({"spec": {"volumeName": name}, "status": {"phase": "Bound"}});
        volumes.set_claim(&format!("default/{name}"), Some(PersistentVolumeClaim::of(&claim)));
    }
    let limits = |count: i32| json!({"spec": {"drivers": [{"name": "d", "nodeID": "x", "allocatable": {"count": count}}]}});
    volumes.set_limits("a", Some(CSINode::of(&limits(2))));
    assert_eq!(put(&mut placer, &claims("p", "one")).unwrap(), "a");
    assert_eq!(put(&mut placer, &claims("q", "two")).unwrap(), "a");
    assert_eq!(put(&mut placer, &claims("r", "two")).unwrap(), "a", "it is there already");
    assert_eq!(
        put(&mut placer, &claims("s", "three")).unwrap_err(),
        "0/1 nodes are available: 1 node(s) exceed max volume count."
    );
    placer.snapshot.volumes.set_limits("a", Some(CSINode::of(&limits(3))));
    assert_eq!(put(&mut placer, &claims("s", "three")).unwrap(), "a");
}

#[test]
fn a_claim_for_one_pod_is_not_shared() {
    let claims = |name: &str, claim: &str| {
        pod_with(name, |p| {
            p["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])
        })
    };
    let mut placer = with_nodes(vec![node("a")]);
    for (name, mode) in [("alone", "ReadWriteOncePod"), ("shared", "ReadWriteOnce")] {
        let volume = json!({"spec": {"csi": {"driver": "d", "volumeHandle": name}}});
        placer.snapshot.volumes.set_volume(name, Some(PersistentVolume::of(&volume)));
        let claim =
            json!({"spec": {"volumeName": name, "accessModes": [mode]}, "status": {"phase": "Bound"}});
        let key = format!("default/{name}");
        placer.snapshot.volumes.set_claim(&key, Some(PersistentVolumeClaim::of(&claim)));
        assert_eq!(put(&mut placer, &claims(&format!("{name}-1"), name)).unwrap(), "a");
    }
    assert_eq!(put(&mut placer, &claims("shared-2", "shared")).unwrap(), "a");
    assert_eq!(
        put(&mut placer, &claims("alone-2", "alone")).unwrap_err(),
        "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod."
    );
    placer.snapshot.remove_pod("default/alone-1");
    assert_eq!(put(&mut placer, &claims("alone-2", "alone")).unwrap(), "a");
}

#[test]
fn a_new_volume_goes_where_its_driver_has_room() {
    let class = json!({"provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer"});
    let claim = json!({"metadata": {"uid": "u"}, "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5Gi"}}}});
    let pod = pod_with("p", |p| {
        p["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    });
    let capacity = |class: &str, zone: Value, space: Value| {
        let mut capacity = json!({"storageClassName": class, "nodeTopology": zone});
        json_patch(&mut capacity, space);
        capacity
    };
    let zone = |zone: &str| json!({"matchLabels": {"zone": zone}});
    let (room, small) = (json!({"capacity": "6Gi"}), json!({"capacity": "6Gi", "maximumVolumeSize": "4Gi"}));
    let none = Err("0/2 nodes are available: 2 node(s) did not have enough free storage.");
    for (what, publishes, capacities, want) in [
        ("nothing published", true, vec![], none),
        ("not a publisher", false, vec![], Ok("a")),
        ("on b", true, vec![capacity("fast", zone("b"), room.clone())], Ok("b")),
        ("another class", true, vec![capacity("slow", zone("b"), room.clone())], none),
        ("volumes are too small", true, vec![capacity("fast", zone("b"), small)], none),
        ("not known", true, vec![capacity("fast", zone("b"), json!({}))], none),
        ("no nodes", true, vec![capacity("fast", Value::Null, room)], none),
    ] {
        let labelled = |name: &str| node_with(name, |n| n["metadata"]["labels"] = json!({"zone": name}));
        let mut placer = with_nodes(vec![labelled("a"), labelled("b")]);
        let volumes = &mut placer.snapshot.volumes;
        volumes.set_class("fast", Some(StorageClass::of(&class)));
        volumes.set_claim("default/data", Some(PersistentVolumeClaim::of(&claim)));
        volumes.set_driver("d", Some(CSIDriver::of(&json!({"spec": {"storageCapacity": publishes}}))));
        for (at, capacity) in capacities.iter().enumerate() {
            volumes.set_capacity(&format!("ns/{at}"), Some(CSIStorageCapacity::of(capacity)));
        }
        let got = put(&mut placer, &pod);
        match want {
            // Without a word from the driver either node will do.
            Ok("a") => assert!(got.is_ok(), "{what}: {got:?}"),
            want => assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{what}"),
        }
    }
}

#[test]
fn a_provisioner_that_gives_a_node_up_is_noticed() {
    let mut placer = with_nodes(vec![node("a")]);
    let pod = pod_with("p", |p| {
        p["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    });
    let claim = |node: Value| {
        json!({"metadata": {"uid": "u", "annotations": {"volume.kubernetes.io/selected-node": node}},
        "spec": {"storageClassName": "fast"}})
    };
    let volumes = &mut placer.snapshot.volumes;
    for (node, refused) in [(Value::Null, false), (json!("a"), false), (Value::Null, true)] {
        volumes.set_claim("default/data", Some(PersistentVolumeClaim::of(&claim(node))));
        assert_eq!(volumes.refused(&pod), refused.then_some("data"));
    }
    volumes.forget_refusals(&pod);
    assert_eq!(volumes.refused(&pod), None);
}

#[test]
fn a_pod_goes_to_a_node_that_declares_what_it_needs() {
    let needs = pod_with("p", |p| {
        p["spec"]["initContainers"] =
            json!([{"name": "i", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]);
    });
    let declares = |name: &str, features: serde_json::Value| {
        node_with(name, |n| n["status"]["declaredFeatures"] = features)
    };
    let mut placer =
        with_nodes(vec![node("a"), declares("b", json!(["RestartAllContainersOnContainerExits"]))]);
    assert_eq!(put(&mut placer, &needs).unwrap(), "b");
    // Another rule is no such need.
    let plain = pod_with("q", |p| {
        p["spec"]["containers"][0]["restartPolicyRules"] = json!([{"action": "Restart"}]);
    });
    let mut placer = with_nodes(vec![node("a")]);
    assert_eq!(put(&mut placer, &plain).unwrap(), "a");
    // One that waits is tried again when the node declares it.
    let mut queue = Queue::default();
    queue.add(needs.clone());
    let popped = queue.pop(0).unwrap();
    let why = placer.place(&popped).unwrap_err();
    queue.mark_unschedulable(&popped.key, why.clone(), why.message(""), 0);
    let id =
        placer.snapshot.set_node(declares("a", json!(["RestartAllContainersOnContainerExits"]))).unwrap();
    queue.on_event(Event::Node(id), &placer.snapshot, 10);
    assert_eq!(queue.pop(10).unwrap().name, "p");
}
