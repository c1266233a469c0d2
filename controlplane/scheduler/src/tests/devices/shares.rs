use super::*;

/// A device of which claims take parts.
fn shared(name: &str, memory: Value) -> Value {
    device(name, |d| {
        d["allowMultipleAllocations"] = json!(true);
        d["capacity"] = json!({"memory": memory});
    })
}

fn wants(name: &str, memory: &str) -> Value {
    one(name, json!({"capacity": {"requests": {"memory": memory}}}))
}

fn result(got: &[ClaimDecision], at: usize) -> Value {
    got[0].allocation.as_ref().unwrap()["devices"]["results"][at].clone()
}

#[test]
fn claims_share_a_device_while_its_capacity_suffices() {
    let policy = json!({"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}});
    let mut placer = cluster_of(vec![shared("x", json!({"value": "10Gi", "requestPolicy": policy}))], vec![]);
    for (name, memory) in [("one", "5500Mi"), ("two", "3Gi"), ("three", "2Gi"), ("four", "1Gi")] {
        add_claim(&mut placer, &wants(name, memory));
    }
    add_claim(&mut placer, &one("default", json!({})));
    let (_, first) = allot(&mut placer, &user("p1", &["one"])).unwrap();
    assert_eq!(result(&first, 0)["consumedCapacity"], json!({"memory": "6Gi"}), "rounded up to a step");
    let (_, second) = allot(&mut placer, &user("p2", &["two"])).unwrap();
    let shares = [&first, &second].map(|got| result(got, 0)["shareID"].as_str().unwrap().to_owned());
    assert_ne!(shares[0], shares[1]);
    assert_eq!(allot(&mut placer, &user("p3", &["three"])).unwrap_err(), NONE);
    let (_, rest) = allot(&mut placer, &user("p4", &["default"])).unwrap();
    assert_eq!(result(&rest, 0)["consumedCapacity"], json!({"memory": "1Gi"}));
    assert_eq!(allot(&mut placer, &user("p5", &["four"])).unwrap_err(), NONE);
    // A share that could not be written is free again.
    placer.snapshot.devices.forget(&user("p2", &["two"]));
    assert!(allot(&mut placer, &user("p3", &["three"])).is_ok());
}

#[test]
fn written_shares_count() {
    let mut placer = cluster_of(vec![shared("x", json!({"value": "10Gi"}))], vec![]);
    let mut held = wants("held", "8Gi");
    held["status"] = json!({"allocation": {"devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "a",
        "device": "x", "shareID": "1-2-3", "consumedCapacity": {"memory": "8Gi"}}]}}});
    add_claim(&mut placer, &held);
    add_claim(&mut placer, &wants("large", "3Gi"));
    add_claim(&mut placer, &wants("small", "2Gi"));
    assert_eq!(allot(&mut placer, &user("p", &["large"])).unwrap_err(), NONE);
    assert!(allot(&mut placer, &user("p", &["small"])).is_ok());
}

#[test]
fn amounts_also_select_devices_that_are_not_shared() {
    let whole =
        |name: &str, memory: &str| device(name, |d| d["capacity"] = json!({"memory": {"value": memory}}));
    let mut placer = cluster_of(vec![gpu("none"), whole("small", "4Gi"), whole("large", "8Gi")], vec![]);
    add_claim(&mut placer, &wants("one", "6Gi"));
    add_claim(&mut placer, &wants("two", "1Gi"));
    add_claim(&mut placer, &wants("three", "1Gi"));
    let (_, got) = allot(&mut placer, &user("p", &["one"])).unwrap();
    assert_eq!(devices(&got), ["r=large"]);
    assert!(result(&got, 0).get("shareID").is_none() && result(&got, 0).get("consumedCapacity").is_none());
    let (_, got) = allot(&mut placer, &user("q", &["two"])).unwrap();
    assert_eq!(devices(&got), ["r=small"]);
    assert_eq!(allot(&mut placer, &user("s", &["three"])).unwrap_err(), NONE, "it belongs to one claim");
}

#[test]
fn requests_of_a_claim_share_a_device_and_a_request_gets_it_once() {
    let request = |name: &str, count: i64| json!({"name": name, "exactly": exactly(json!({"count": count, "capacity": {"requests": {"memory": "4Gi"}}}))});
    let mut placer = cluster_of(vec![shared("x", json!({"value": "10Gi"}))], vec![]);
    add_claim(&mut placer, &claim("both", json!({"requests": [request("a", 1), request("b", 1)]})));
    add_claim(&mut placer, &claim("twice", json!({"requests": [request("a", 2)]})));
    let apart = json!({"requests": [request("a", 1), request("b", 1)],
        "constraints": [{"distinctAttribute": "gpu.example.com/model"}]});
    add_claim(&mut placer, &claim("apart", apart));
    assert_eq!(allot(&mut placer, &user("p", &["twice"])).unwrap_err(), NONE);
    assert_eq!(allot(&mut placer, &user("p", &["apart"])).unwrap_err(), NONE);
    let (_, got) = allot(&mut placer, &user("p", &["both"])).unwrap();
    assert_eq!(devices(&got), ["a=x", "b=x"]);
}

#[test]
fn all_devices_are_those_with_room() {
    let mut placer =
        cluster_of(vec![shared("x", json!({"value": "10Gi"})), shared("y", json!({"value": "2Gi"}))], vec![]);
    let wanted = json!({"allocationMode": "All", "capacity": {"requests": {"memory": "4Gi"}}});
    for name in ["one", "two", "three"] {
        add_claim(&mut placer, &one(name, wanted.clone()));
    }
    for pod in ["one", "two"] {
        let (_, got) = allot(&mut placer, &user(pod, &[pod])).unwrap();
        assert_eq!(devices(&got), ["r=x"]);
    }
    assert_eq!(allot(&mut placer, &user("s", &["three"])).unwrap_err(), NONE);
}

#[test]
fn a_shared_device_takes_its_counters_once() {
    let consumes = json!([{"counterSet": "card", "counters": {"slices": {"value": "1"}}}]);
    let mut part = shared("part", json!({"value": "10Gi"}));
    part["consumesCounters"] = consumes.clone();
    let other = device("other", |d| d["consumesCounters"] = consumes);
    let mut placer = cluster_of(vec![], vec![]);
    let mut card = slice("a", vec![part, other]);
    card["spec"]["sharedCounters"] = json!([{"name": "card", "counters": {"slices": {"value": "1"}}}]);
    add_slice(&mut placer, "a", &card);
    for name in ["one", "two"] {
        add_claim(&mut placer, &wants(name, "4Gi"));
    }
    add_claim(&mut placer, &one("whole", json!({})));
    for pod in ["one", "two"] {
        let (_, got) = allot(&mut placer, &user(pod, &[pod])).unwrap();
        assert_eq!(devices(&got), ["r=part"]);
    }
    assert_eq!(allot(&mut placer, &user("s", &["whole"])).unwrap_err(), NONE, "the counter is used up");
}
