use super::*;

const RESOURCE: &str = "example.com/gpu";

/// A class that is behind a resource, beside the one without.
fn add_class(placer: &mut Placer, name: &str, resource: &str, created: &str) {
    let class = json!({"metadata": {"name": name, "creationTimestamp": created},
        "spec": {"extendedResourceName": resource}});
    set(placer, DeviceKind::Classes, name, &class);
}

/// A pod whose containers ask for these amounts of resources; the first are init containers.
fn asks(name: &str, init: &[(&str, i64)], containers: &[&[(&str, i64)]]) -> Arc<PodInfo> {
    let container = |name: String, amounts: &[(&str, i64)]| {
        let requests: serde_json::Map<String, Value> = amounts
            .iter()
            .map(|(resource, amount)| ((*resource).to_owned(), json!(amount.to_string())))
            .collect();
        json!({"name": name, "image": "i", "resources": {"requests": requests}})
    };
    let all: Vec<Value> =
        containers.iter().enumerate().map(|(at, amounts)| container(format!("c{at}"), amounts)).collect();
    let init: Vec<Value> =
        init.iter().enumerate().map(|(at, amount)| container(format!("i{at}"), &[*amount])).collect();
    pod_with(name, |p| {
        p["spec"]["containers"] = json!(all);
        p["spec"]["initContainers"] = json!(init);
    })
}

fn extended(got: &[ClaimDecision]) -> (Vec<String>, Vec<String>) {
    let made = got.iter().find_map(|one| one.extended.clone()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let requests = made.requests.as_array().unwrap().iter().map(|one| {
        format!(
            "{}={}x{}",
            text(&one["name"]),
            one["exactly"]["count"],
            text(&one["exactly"]["deviceClassName"])
        )
    });
    let mappings = made.mappings.as_array().unwrap().iter();
    let mappings =
        mappings.map(|one| format!("{}={}", text(&one["containerName"]), text(&one["requestName"])));
    (requests.collect(), mappings.collect())
}

#[test]
fn devices_of_a_class_are_behind_a_resource() {
    let mut placer = cluster_of(vec![gpu("x"), gpu("y")], vec![]);
    let pod = asks("p", &[], &[&[("cpu", 1), (RESOURCE, 2)]]);
    let why = allot(&mut placer, &pod).unwrap_err();
    assert!(why.contains("2 Insufficient example.com/gpu"), "{why}");
    add_class(&mut placer, "cards", RESOURCE, "2026-01-01T00:00:00Z");
    let (node, got) = allot(&mut placer, &pod).unwrap();
    assert_eq!(node, "a");
    assert_eq!(devices(&got), ["container-0-request-1=x", "container-0-request-1=y"]);
    let (requests, mappings) = extended(&got);
    assert_eq!(requests, ["container-0-request-1=2xcards"]);
    assert_eq!(mappings, ["c0=container-0-request-1"]);
    assert!(got[0].uid.is_empty(), "it has to be created");
    assert_eq!(allot(&mut placer, &asks("q", &[], &[&[(RESOURCE, 1)]])).unwrap_err(), NONE);
    // The claim was created, and the API shows it later.
    placer.snapshot.devices.created(&pod, &got[0].claim, "p-extended-resources-1");
    placer.snapshot.devices.written(&pod, "p-extended-resources-1", 7);
    placer.snapshot.devices.forget(&pod);
    assert_eq!(allot(&mut placer, &asks("q", &[], &[&[(RESOURCE, 1)]])).unwrap_err(), NONE);
}

#[test]
fn every_class_has_a_resource_of_its_own_name() {
    let mut placer = cluster_of(vec![], vec![gpu("x")]);
    let pod = asks("p", &[], &[&[("deviceclass.resource.kubernetes.io/gpu", 1)]]);
    assert_eq!(allot(&mut placer, &pod).unwrap().0, "b");
}

#[test]
fn of_classes_with_the_same_resource_the_newest_counts() {
    let mut placer = cluster_of(vec![gpu("x")], vec![]);
    add_class(&mut placer, "new", RESOURCE, "2026-01-02T00:00:00Z");
    add_class(&mut placer, "old", RESOURCE, "2026-01-01T00:00:00Z");
    add_class(&mut placer, "newer", RESOURCE, "2026-01-02T00:00:00Z");
    let (_, got) = allot(&mut placer, &asks("p", &[], &[&[(RESOURCE, 1)]])).unwrap();
    assert_eq!(extended(&got).0, ["container-0-request-0=1xnew"]);
}

#[test]
fn a_device_plugin_of_the_node_comes_first() {
    let mut placer = cluster_of(vec![], vec![gpu("x")]);
    add_class(&mut placer, "cards", RESOURCE, "2026-01-01T00:00:00Z");
    placer.snapshot.set_node(node_with("a", |n| n["status"]["allocatable"][RESOURCE] = json!("1")));
    for pod in ["p", "q"] {
        let asked = asks(pod, &[], &[&[(RESOURCE, 1)]]);
        let (node, got) = allot(&mut placer, &asked).unwrap();
        assert_eq!(got.is_empty(), node == "a", "{pod}");
    }
    assert!(allot(&mut placer, &asks("s", &[], &[&[(RESOURCE, 1)]])).is_err());
}

#[test]
fn init_containers_use_the_devices_of_later_containers() {
    let mut placer = cluster_of((0..8).map(|n| gpu(&format!("d{n}"))).collect(), vec![]);
    add_class(&mut placer, "cards", RESOURCE, "2026-01-01T00:00:00Z");
    let pod =
        asks("p", &[(RESOURCE, 2), (RESOURCE, 4), (RESOURCE, 5)], &[&[(RESOURCE, 1)], &[(RESOURCE, 2)]]);
    let (_, got) = allot(&mut placer, &pod).unwrap();
    let (requests, mappings) = extended(&got);
    assert_eq!(
        requests,
        ["container-2-request-0=2xcards", "container-3-request-0=1xcards", "container-4-request-0=2xcards"]
    );
    assert_eq!(
        mappings,
        [
            "c0=container-3-request-0",
            "c1=container-4-request-0",
            "i0=container-3-request-0",
            "i0=container-4-request-0",
            "i1=container-3-request-0",
            "i1=container-4-request-0",
            "i1=container-2-request-0",
            "i2=container-3-request-0",
            "i2=container-4-request-0",
            "i2=container-2-request-0",
        ]
    );
}

#[test]
fn a_claim_of_an_earlier_attempt_is_used() {
    let mut placer = cluster_of(vec![gpu("x")], vec![gpu("y")]);
    add_class(&mut placer, "cards", RESOURCE, "2026-01-01T00:00:00Z");
    let pod = asks("p", &[], &[&[(RESOURCE, 1)]]);
    let wanted = json!({"requests": [{"name": "container-0-request-0", "exactly": exactly(json!({"deviceClassName": "cards"}))}]});
    let mut earlier = claim("p-extended-resources-1", wanted);
    earlier["metadata"]["annotations"] = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    earlier["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true}]);
    let name = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]});
    earlier["status"] = json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}], "allocation": {
        "devices": {"results": [{"request": "container-0-request-0", "driver": DRIVER, "pool": "b", "device": "y"}]},
        "nodeSelector": {"nodeSelectorTerms": [name]}}});
    add_claim(&mut placer, &earlier);
    let (node, got) = allot(&mut placer, &pod).unwrap();
    assert_eq!((node.as_str(), got.len()), ("b", 1));
    assert_eq!((got[0].claim.as_str(), got[0].allocation.is_none()), ("p-extended-resources-1", true));
    assert_eq!(extended(&got).1, ["c0=container-0-request-0"], "the pod's status gets the mappings");
}
