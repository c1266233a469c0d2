use super::*;
use crate::devices::{BindingError, Readiness};

fn fabric(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    device(name, |d| {
        d["bindingConditions"] = json!(["attached", "powered"]);
        d["bindingFailureConditions"] = json!(["broken"]);
        change(d);
    })
}

/// The claim as the API shows it after a decision, with conditions of its device.
fn written(name: &str, got: &[ClaimDecision], pod: &str, conditions: &[(&str, &str)]) -> Value {
    let mut claim = one(name, json!({}));
    let allocation = got[0].allocation.clone().unwrap();
    let result = &allocation["devices"]["results"][0];
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status)| json!({"type": kind, "status": status, "reason": "Cable", "message": "is loose"}))
        .collect();
    let device = json!({"driver": result["driver"], "pool": result["pool"], "device": result["device"],
        "conditions": conditions});
    claim["status"] = json!({"allocation": allocation, "devices": [device],
        "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}]});
    claim
}

#[test]
fn a_pod_waits_until_all_conditions_of_its_devices_are_true() {
    let mut placer = cluster_of(vec![fabric("x", |_| {})], vec![]);
    add_claim(&mut placer, &one("c", json!({})));
    let pod = user("p", &["c"]);
    let (_, got) = allot(&mut placer, &pod).unwrap();
    let result = &got[0].allocation.as_ref().unwrap()["devices"]["results"][0];
    assert_eq!(result["bindingConditions"], json!(["attached", "powered"]));
    assert_eq!(result["bindingFailureConditions"], json!(["broken"]));
    assert!(placer.snapshot.devices.must_wait(&pod, &got));
    assert_eq!(placer.snapshot.devices.readiness(&pod), Readiness::Waiting, "the API does not show it yet");
    placer.snapshot.devices.written(&pod, "c", 1);
    for (conditions, want) in [
        (&[("attached", "True")][..], Readiness::Waiting),
        (&[("attached", "True"), ("powered", "False")], Readiness::Waiting),
        (&[("attached", "True"), ("powered", "True"), ("broken", "False")], Readiness::Ready),
        (
            &[("attached", "True"), ("powered", "True"), ("broken", "True")],
            Readiness::Failed(BindingError::Failed {
                claim: "c".into(),
                reason: "Cable".into(),
                message: "is loose".into(),
            }),
        ),
    ] {
        add_claim(&mut placer, &written("c", &got, "p", conditions));
        assert_eq!(placer.snapshot.devices.readiness(&pod), want, "{conditions:?}");
        // Another attempt, such as after a restart, waits as well.
        assert_eq!(placer.snapshot.devices.must_wait(&pod, &[]), want != Readiness::Ready);
    }
}

#[test]
fn devices_without_conditions_are_not_waited_for() {
    let mut placer = cluster_of(vec![gpu("x")], vec![]);
    add_claim(&mut placer, &one("c", json!({})));
    let pod = user("p", &["c"]);
    let (_, got) = allot(&mut placer, &pod).unwrap();
    assert!(!placer.snapshot.devices.must_wait(&pod, &got));
    assert!(got[0].allocation.as_ref().unwrap()["devices"]["results"][0].get("bindingConditions").is_none());
}

#[test]
fn devices_that_fail_or_take_too_long_are_given_back() {
    for is_late in [false, true] {
        let mut placer = cluster_of(vec![fabric("x", |_| {})], vec![]);
        add_claim(&mut placer, &one("c", json!({})));
        let pod = user("p", &["c"]);
        let (_, got) = allot(&mut placer, &pod).unwrap();
        placer.snapshot.forget(&pod.key);
        let conditions: &[(&str, &str)] = if is_late { &[] } else { &[("broken", "True")] };
        add_claim(&mut placer, &written("c", &got, "p", conditions));
        if is_late {
            assert!(placer.place(&pod).is_ok());
            placer.snapshot.devices.time_out(&pod);
        }
        let why = placer.place(&pod).unwrap_err().message("");
        assert!(why.contains("resourceclaim not available on the node"), "{why}");
        assert_eq!(placer.snapshot.devices.releasable(&pod), Some(("c".into(), "uid-c".into())));
        // Without its devices it is a claim like any other.
        placer.snapshot.devices.written(&pod, "c", 1);
        add_claim(&mut placer, &one("c", json!({})));
        assert!(placer.place(&pod).is_ok());
    }
}

#[test]
fn a_device_that_binds_to_a_node_pins_its_claim() {
    let mut placer = cluster_of(vec![], vec![]);
    for (binds, want) in [(false, Value::Null), (true, json!("metadata.name"))] {
        let mut net = slice("net", vec![fabric("x", |d| d["bindsToNode"] = json!(binds))]);
        net["spec"].as_object_mut().unwrap().remove("nodeName");
        net["spec"]["allNodes"] = json!(true);
        add_slice(&mut placer, "net", &net);
        add_claim(&mut placer, &one("c", json!({})));
        let pod = user("p", &["c"]);
        let (_, got) = allot(&mut placer, &pod).unwrap();
        let selector = &got[0].allocation.as_ref().unwrap()["nodeSelector"];
        assert_eq!(selector["nodeSelectorTerms"][0]["matchFields"][0]["key"], want, "{binds}");
        placer.snapshot.devices.forget(&pod);
        placer.snapshot.forget(&pod.key);
    }
}
