// Which devices there are, and how they are searched.
mod pools;
// Devices that claims share.
mod shares;
// Devices that must be made ready.
mod conditions;
// Extended resources of classes.
mod extended;

use super::*;
use crate::devices::{ClaimDecision, DeviceKind};
use coracle_kinds::object::{Object, decode};
use coracle_kinds::registry::fields;

const DRIVER: &str = "gpu.example.com";

fn object(revision: u64, value: &Value) -> Object {
    decode::object(&fields::resource_slice(), value.to_string().as_bytes(), revision).unwrap()
}

fn set(placer: &mut Placer, kind: DeviceKind, key: &str, value: &Value) {
    set_at(placer, kind, key, value, 1);
}

fn set_at(placer: &mut Placer, kind: DeviceKind, key: &str, value: &Value, revision: u64) {
    placer.snapshot.devices.set(kind, key, &object(revision, value)).unwrap();
}

fn device(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut device = json!({"name": name, "attributes": {"model": {"string": "small"}}});
    change(&mut device);
    device
}

fn gpu(name: &str) -> Value {
    device(name, |_| {})
}

/// A slice that is a whole pool, on a node of the same name.
fn slice(pool: &str, devices: Vec<Value>) -> Value {
    json!({"metadata": {"name": pool}, "spec": {"driver": DRIVER, "nodeName": pool, "devices": devices,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}}})
}

fn add_slice(placer: &mut Placer, name: &str, slice: &Value) {
    set(placer, DeviceKind::Slices, name, slice);
}

fn exactly(more: Value) -> Value {
    let mut wanted = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    for (key, value) in more.as_object().unwrap() {
        wanted[key] = value.clone();
    }
    if wanted["allocationMode"] == "All" {
        wanted.as_object_mut().unwrap().remove("count");
    }
    wanted
}

fn claim(name: &str, devices: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")}, "spec": {"devices": devices}})
}

fn one(name: &str, more: Value) -> Value {
    claim(name, json!({"requests": [{"name": "r", "exactly": exactly(more)}]}))
}

fn add_claim(placer: &mut Placer, claim: &Value) {
    let key = format!("default/{}", claim["metadata"]["name"].as_str().unwrap());
    set(placer, DeviceKind::Claims, &key, claim);
}

/// A pod with claims that it names.
fn user(name: &str, claims: &[&str]) -> Arc<PodInfo> {
    let claims: Vec<Value> =
        claims.iter().map(|claim| json!({"name": claim, "resourceClaimName": claim})).collect();
    pod_with(name, |p| p["spec"]["resourceClaims"] = json!(claims))
}

/// Nodes `a` and `b` with these devices, and a class for all of them.
fn cluster_of(a: Vec<Value>, b: Vec<Value>) -> Placer {
    let mut placer = with_nodes(vec![node("a"), node("b")]);
    let class = json!({"metadata": {"name": "gpu"}, "spec": {
        "selectors": [{"cel": {"expression": format!("device.driver == '{DRIVER}'")}}],
        "config": [{"opaque": {"driver": DRIVER, "parameters": {"from": "class"}}}]}});
    set(&mut placer, DeviceKind::Classes, "gpu", &class);
    add_slice(&mut placer, "a", &slice("a", a));
    add_slice(&mut placer, "b", &slice("b", b));
    placer
}

/// Places a pod and counts its devices; where it is and what its claims got, or why not.
fn allot(placer: &mut Placer, pod: &Arc<PodInfo>) -> Result<(String, Vec<ClaimDecision>), String> {
    let id = placer.place(pod).map_err(|why| why.message(""))?;
    let node = placer.snapshot.node(id).unwrap();
    let (name, decisions) = (node.name.clone(), placer.snapshot.devices.decide(pod, node).unwrap());
    placer.snapshot.devices.assume(pod, &decisions);
    placer.snapshot.assume(pod, id);
    Ok((name, decisions))
}

/// `request=device` of every device.
fn devices(decisions: &[ClaimDecision]) -> Vec<String> {
    let results = decisions.iter().flat_map(|decision| {
        let allocation = decision.allocation.as_ref().unwrap();
        allocation["devices"]["results"].as_array().unwrap()
    });
    let text = |result: &Value, field: &str| result[field].as_str().unwrap().to_owned();
    results.map(|result| format!("{}={}", text(result, "request"), text(result, "device"))).collect()
}

const NONE: &str = "0/2 nodes are available: 2 cannot allocate all claims.";

#[test]
fn a_claim_gets_a_device_that_no_other_has() {
    let mut placer = cluster_of(vec![gpu("x")], vec![gpu("y")]);
    for name in ["one", "two", "three"] {
        add_claim(&mut placer, &one(name, json!({})));
    }
    let (first, got) = allot(&mut placer, &user("p", &["one"])).unwrap();
    let (second, _) = allot(&mut placer, &user("q", &["two"])).unwrap();
    assert_ne!(first, second);
    assert_eq!(devices(&got), [if first == "a" { "r=x" } else { "r=y" }]);
    let allocation = got[0].allocation.as_ref().unwrap();
    let name = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [first]}]});
    assert_eq!(allocation["nodeSelector"], json!({"nodeSelectorTerms": [name]}));
    let config = json!([{"source": "FromClass", "requests": ["r"], "opaque": {"driver": DRIVER, "parameters": {"from": "class"}}}]);
    assert_eq!(allocation["devices"]["config"], config);
    assert_eq!(allot(&mut placer, &user("s", &["three"])).unwrap_err(), NONE);
    // The first decision could not be written: its device is free again.
    placer.snapshot.devices.forget(&user("p", &["one"]));
    assert_eq!(allot(&mut placer, &user("s", &["three"])).unwrap().0, first);
}

#[test]
fn a_decision_counts_until_the_api_shows_it() {
    let mut placer = cluster_of(vec![gpu("x")], vec![]);
    add_claim(&mut placer, &one("one", json!({})));
    add_claim(&mut placer, &one("two", json!({})));
    let pod = user("p", &["one"]);
    let (_, got) = allot(&mut placer, &pod).unwrap();
    let why = allot(&mut placer, &user("q", &["one"])).unwrap_err();
    assert_eq!(
        why,
        "0/2 nodes are available: resource claim default/one is in the process of being allocated."
    );
    placer.snapshot.devices.written(&pod, "one", 7);
    placer.snapshot.devices.forget(&pod);
    assert_eq!(allot(&mut placer, &user("q", &["two"])).unwrap_err(), NONE);
    let mut written = one("one", json!({}));
    written["status"] = json!({"allocation": got[0].allocation, "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}]});
    set_at(&mut placer, DeviceKind::Claims, "default/one", &written, 7);
    assert_eq!(allot(&mut placer, &user("q", &["two"])).unwrap_err(), NONE);
    // A second pod shares the claim, on the node that has the device.
    let (node, shared) = allot(&mut placer, &user("s", &["one"])).unwrap();
    assert_eq!((node.as_str(), shared.len(), shared[0].allocation.is_none()), ("a", 1, true));
    // Released: the device is free.
    set_at(&mut placer, DeviceKind::Claims, "default/one", &one("one", json!({})), 8);
    assert!(allot(&mut placer, &user("q", &["two"])).is_ok());
}

/// On a machine whose threads have to wait, a claim may have been given up before its allocation is known to be written.
#[test]
fn a_device_that_was_given_up_before_its_allocation_was_confirmed_is_free() {
    let mut placer = cluster_of(vec![gpu("gpu-0")], vec![]);
    add_claim(&mut placer, &one("one", json!({})));
    add_claim(&mut placer, &one("two", json!({})));
    let (pod, next) = (user("p", &["one"]), user("next", &["two"]));
    let (_, got) = allot(&mut placer, &pod).unwrap();
    let mut written = one("one", json!({}));
    written["status"] = json!({"allocation": got[0].allocation});
    set_at(&mut placer, DeviceKind::Claims, "default/one", &written, 7);
    set_at(&mut placer, DeviceKind::Claims, "default/one", &one("one", json!({})), 8);
    assert!(placer.place(&next).is_err(), "what was decided counts until its write is confirmed");
    placer.snapshot.devices.written(&pod, "one", 7);
    assert!(placer.place(&next).is_ok());
}

#[test]
fn selectors_choose_devices() {
    let large = |name: &str| {
        device(name, |d| {
            d["attributes"]["model"] = json!({"string": "large"});
            d["capacity"] = json!({"memory": {"value": "40Gi"}});
        })
    };
    let select = |text: &str| json!({"selectors": [{"cel": {"expression": text}}]});
    for (text, want) in [
        ("device.attributes['gpu.example.com'].model == 'large'", Ok("b")),
        ("'memory' in device.capacity['gpu.example.com']", Ok("b")),
        ("device.capacity['gpu.example.com'].?memory.hasValue()", Ok("b")),
        ("device.attributes['other.example.com'].?model.hasValue()", Err(NONE)),
        (
            "device.attributes['gpu.example.com'].colour == 'red'",
            Err("claim default/c: selector #0: CEL runtime error: no such key: colour"),
        ),
        ("device.driver", Err("claim default/c: selector #0: CEL runtime error: must evaluate to bool")),
    ] {
        let mut placer = cluster_of(vec![gpu("x")], vec![gpu("y"), large("z")]);
        add_claim(&mut placer, &one("c", select(text)));
        match (allot(&mut placer, &user("p", &["c"])), want) {
            (Ok((node, got)), Ok(want)) => {
                assert_eq!((node.as_str(), devices(&got)), (want, vec!["r=z".to_owned()]), "{text}")
            }
            (Err(why), Err(want)) => assert!(why.contains(want), "{text}: {why}"),
            (got, _) => panic!("{text}: {got:?}"),
        }
    }
}

#[test]
fn counts_and_all_devices() {
    for (a, b, more, want) in [
        (1, 2, json!({"count": 2}), Ok(("b", 2))),
        (1, 2, json!({"count": 3}), Err(NONE)),
        (0, 3, json!({"allocationMode": "All"}), Ok(("b", 3))),
        (0, 0, json!({"allocationMode": "All"}), Err(NONE)),
        (0, 33, json!({"allocationMode": "All"}), Err(NONE)),
    ] {
        let some = |count: usize| (0..count).map(|n| gpu(&format!("d{n}"))).collect();
        let mut placer = cluster_of(some(a), some(b));
        add_claim(&mut placer, &one("c", more.clone()));
        let got = allot(&mut placer, &user("p", &["c"])).map(|(node, got)| (node, devices(&got).len()));
        let want = want.map(|(node, count)| (node.to_owned(), count)).map_err(str::to_owned);
        assert_eq!(got, want, "{a} {b} {more}");
    }
}

#[test]
fn the_first_alternative_that_can_be_had_is_chosen() {
    let mut placer = cluster_of(vec![gpu("x"), gpu("y")], vec![]);
    let large = json!([{"cel": {"expression": "device.attributes['gpu.example.com'].model == 'large'"}}]);
    let mut first = exactly(json!({"selectors": large}));
    first["name"] = json!("large");
    let mut second = exactly(json!({"count": 2}));
    second["name"] = json!("two");
    let config = |requests: Value| json!({"requests": requests, "opaque": {"driver": DRIVER, "parameters": {"for": requests}}});
    let wanted = claim(
        "c",
        json!({"requests": [{"name": "r", "firstAvailable": [first, second]}],
            "config": [config(json!(["r/large"])), config(json!(["r/two"]))]}),
    );
    add_claim(&mut placer, &wanted);
    let (_, got) = allot(&mut placer, &user("p", &["c"])).unwrap();
    assert_eq!(devices(&got), ["r/two=x", "r/two=y"]);
    let config = got[0].allocation.as_ref().unwrap()["devices"]["config"].clone();
    let from: Vec<(&Value, &Value)> =
        config.as_array().unwrap().iter().map(|one| (&one["source"], &one["requests"])).collect();
    assert_eq!(from, [(&json!("FromClass"), &json!(["r/two"])), (&json!("FromClaim"), &json!(["r/two"]))]);
}

#[test]
fn constraints_compare_devices_of_a_claim() {
    let on = |name: &str, numa: i64| device(name, |d| d["attributes"]["numa"] = json!({"int": numa}));
    let two = |constraint: Value| {
        let request = |name: &str| json!({"name": name, "exactly": exactly(json!({}))});
        claim("c", json!({"requests": [request("r"), request("s")], "constraints": [constraint]}))
    };
    let numa = "gpu.example.com/numa";
    for (constraint, want) in [
        (json!({"matchAttribute": numa}), Ok(vec!["r=y", "s=z"])),
        (json!({"distinctAttribute": numa}), Ok(vec!["r=x", "s=y"])),
        (json!({"matchAttribute": "gpu.example.com/rack"}), Err(NONE)),
        (json!({"matchAttribute": "gpu.example.com/rack", "requests": ["t"]}), Ok(vec!["r=w", "s=x"])),
    ] {
        let mut placer = cluster_of(vec![gpu("w"), on("x", 0), on("y", 1), on("z", 1)], vec![]);
        add_claim(&mut placer, &two(constraint.clone()));
        let got = allot(&mut placer, &user("p", &["c"])).map(|(_, got)| devices(&got));
        let want = want.map(|all| all.into_iter().map(str::to_owned).collect()).map_err(str::to_owned);
        assert_eq!(got, want, "{constraint}");
    }
}

#[test]
fn tainted_devices_need_a_toleration() {
    let tainted = |effect: &str| {
        device("x", |d| d["taints"] = json!([{"key": "broken", "value": "fan", "effect": effect}]))
    };
    let exists = json!([{"key": "broken", "operator": "Exists", "effect": "NoSchedule"}]);
    let other = json!([{"key": "broken", "operator": "Equal", "value": "disk"}]);
    for (effect, tolerations, fits) in [
        ("NoSchedule", json!([]), false),
        ("NoExecute", json!([]), false),
        ("None", json!([]), true),
        ("NoSchedule", exists.clone(), true),
        ("NoExecute", exists, false),
        ("NoSchedule", other, false),
    ] {
        let mut placer = cluster_of(vec![tainted(effect)], vec![]);
        add_claim(&mut placer, &one("c", json!({"tolerations": tolerations})));
        let got = allot(&mut placer, &user("p", &["c"]));
        assert_eq!(got.is_ok(), fits, "{effect} {tolerations}");
        if let Ok((_, got)) = got.as_ref()
            && tolerations != json!([])
        {
            let result = &got[0].allocation.as_ref().unwrap()["devices"]["results"][0];
            assert_eq!(result["tolerations"], tolerations);
        }
    }
}

#[test]
fn administrators_share_devices_where_they_may() {
    let mut placer = cluster_of(vec![gpu("x")], vec![]);
    add_claim(&mut placer, &one("one", json!({})));
    add_claim(&mut placer, &one("admin", json!({"adminAccess": true})));
    allot(&mut placer, &user("p", &["one"])).unwrap();
    assert_eq!(
        allot(&mut placer, &user("q", &["admin"])).unwrap_err(),
        "0/2 nodes are available: resource claim default/admin, request r: admin access to devices requires the \
         `resource.kubernetes.io/admin-access: true` label on the containing namespace."
    );
    let label = ("resource.kubernetes.io/admin-access".to_owned(), "true".to_owned());
    placer.snapshot.set_namespace("default", Some([label].into()));
    let (node, got) = allot(&mut placer, &user("q", &["admin"])).unwrap();
    let result = &got[0].allocation.as_ref().unwrap()["devices"]["results"][0];
    assert_eq!((node.as_str(), &result["adminAccess"]), ("a", &json!(true)));
    placer.snapshot.devices.forget(&user("p", &["one"]));
    assert!(allot(&mut placer, &user("s", &["one"])).is_ok(), "it is not held by the administrator");
}

#[test]
fn claims_that_are_not_there_are_named() {
    let mut placer = cluster_of(vec![gpu("x")], vec![]);
    let mut deleted = one("deleted", json!({}));
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    add_claim(&mut placer, &deleted);
    add_claim(&mut placer, &one("classless", json!({"deviceClassName": "tpu"})));
    add_claim(&mut placer, &one("made", json!({})));
    for (claim, want) in [
        ("gone", "resourceclaim.resource.k8s.io \"gone\" not found"),
        ("deleted", "resourceclaim \"deleted\" is being deleted"),
        ("classless", "request r: device class tpu does not exist"),
    ] {
        let why = allot(&mut placer, &user("p", &[claim])).unwrap_err();
        assert_eq!(why, format!("0/2 nodes are available: {want}."));
    }
    let generated = |status: Value| {
        pod_with("p", |p| {
            p["spec"]["resourceClaims"] = json!([{"name": "g", "resourceClaimTemplateName": "t"}]);
            p["status"] = json!({"resourceClaimStatuses": status});
        })
    };
    let why = allot(&mut placer, &generated(json!([]))).unwrap_err();
    assert_eq!(why, "0/2 nodes are available: pod \"default/p\": ResourceClaim not created yet.");
    let made = generated(json!([{"name": "g", "resourceClaimName": "made"}]));
    let why = allot(&mut placer, &made).unwrap_err();
    assert_eq!(
        why,
        "0/2 nodes are available: ResourceClaim default/made was not created for pod default/p (pod is not owner)."
    );
    let mut owned = one("made", json!({}));
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true}]);
    add_claim(&mut placer, &owned);
    assert_eq!(allot(&mut placer, &made).unwrap().0, "a");
    assert!(allot(&mut placer, &generated(json!([{"name": "g"}]))).is_ok(), "it needs no claim");
}
