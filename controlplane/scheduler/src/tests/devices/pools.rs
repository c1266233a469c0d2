use super::*;

#[test]
fn pools_count_when_their_newest_generation_is_complete() {
    let mut placer = cluster_of(vec![gpu("x")], vec![]);
    add_claim(&mut placer, &one("c", json!({})));
    add_claim(&mut placer, &one("all", json!({"allocationMode": "All"})));
    let newer = |name: &str, devices: Vec<Value>| {
        let mut slice = slice("a", devices);
        slice["metadata"]["name"] = json!(name);
        slice["spec"]["pool"] = json!({"name": "a", "generation": 2, "resourceSliceCount": 2});
        slice
    };
    add_slice(&mut placer, "a-1", &newer("a-1", vec![gpu("y")]));
    assert_eq!(allot(&mut placer, &user("p", &["c"])).unwrap_err(), NONE);
    let why = allot(&mut placer, &user("q", &["all"])).unwrap_err();
    let updated = "1 claim default/all, request r: asks for all devices, but resource pool gpu.example.com/a is currently being updated";
    assert!(why.contains(updated), "{why}");
    // Two devices of one name: nobody knows which one is meant.
    add_slice(&mut placer, "a-2", &newer("a-2", vec![gpu("y")]));
    assert_eq!(allot(&mut placer, &user("p", &["c"])).unwrap_err(), NONE);
    add_slice(&mut placer, "a-2", &newer("a-2", vec![gpu("z")]));
    let (_, got) = allot(&mut placer, &user("q", &["all"])).unwrap();
    assert_eq!(devices(&got), ["r=y", "r=z"]);
}

#[test]
fn devices_of_several_nodes() {
    let mut placer = cluster_of(vec![], vec![]);
    let spec = |nodes: Value, devices: Vec<Value>| {
        let mut slice = slice("net", devices);
        slice["spec"].as_object_mut().unwrap().remove("nodeName");
        for (key, value) in nodes.as_object().unwrap() {
            slice["spec"][key] = value.clone();
        }
        slice
    };
    let named = |node: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]});
    let of_b = device("x", |d| d["nodeName"] = json!("b"));
    for (nodes, devices, want) in [
        (json!({"allNodes": true}), vec![gpu("x")], Value::Null),
        (json!({"nodeSelector": named("b")}), vec![gpu("x")], named("b")),
        (
            json!({"perDeviceNodeSelection": true}),
            vec![of_b],
            json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]}),
        ),
    ] {
        let what = nodes.to_string();
        add_slice(&mut placer, "net", &spec(nodes, devices));
        add_claim(&mut placer, &one("c", json!({})));
        let (node, got) = allot(&mut placer, &user("p", &["c"])).unwrap();
        assert!(want.is_null() || node == "b", "{what}: {node}");
        assert_eq!(got[0].allocation.as_ref().unwrap()["nodeSelector"], want, "{what}");
        placer.snapshot.devices.forget(&user("p", &["c"]));
    }
}

#[test]
fn devices_share_counters() {
    let part = |name: &str, memory: &str| {
        device(name, |d| {
            d["consumesCounters"] =
                json!([{"counterSet": "card", "counters": {"memory": {"value": memory}}}]);
        })
    };
    let mut placer = cluster_of(vec![], vec![]);
    let mut whole = slice("a", vec![part("full", "40Gi"), part("half-0", "20Gi"), part("half-1", "20Gi")]);
    whole["spec"]["sharedCounters"] = json!([{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]);
    add_slice(&mut placer, "a", &whole);
    let halves = json!([{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]);
    for name in ["one", "two"] {
        add_claim(&mut placer, &one(name, json!({"selectors": halves})));
    }
    let (_, got) = allot(&mut placer, &user("p", &["one"])).unwrap();
    assert_eq!(devices(&got), ["r=full"]);
    assert_eq!(allot(&mut placer, &user("q", &["two"])).unwrap_err(), NONE);
    placer.snapshot.devices.forget(&user("p", &["one"]));
    add_claim(&mut placer, &one("both", json!({"count": 2})));
    let (_, got) = allot(&mut placer, &user("s", &["both"])).unwrap();
    assert_eq!(devices(&got), ["r=half-0", "r=half-1"]);
}

#[test]
fn a_search_ends() {
    // No more than fifteen devices are alike, and sixteen are wanted: every combination fails.
    let odd = |n: i64| device(&format!("d{n}"), |d| d["attributes"]["serial"] = json!({"int": n / 15}));
    let mut placer = cluster_of((0..40).map(odd).collect(), vec![]);
    let wanted = json!({"requests": [{"name": "r", "exactly": exactly(json!({"count": 16}))}],
        "constraints": [{"matchAttribute": "gpu.example.com/serial"}]});
    add_claim(&mut placer, &claim("c", wanted));
    let why = allot(&mut placer, &user("p", &["c"])).unwrap_err();
    assert!(why.contains("1 claim default/c: too many combinations of devices"), "{why}");
}
