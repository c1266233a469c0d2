//! Claims that wait for their pods, claims that name their volume, default classes, larger claims.

use crate::both::{Place, alone, on_both};
use serde_json::{Value, json};

const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

fn class(name: &str, mode: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": NO_PROVISIONER, "volumeBindingMode": mode})
}

fn volume(name: &str, class: &str, node: &str, change: Value) -> Value {
    let mut volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": {}},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/mnt"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}}}});
    for (key, value) in change.as_object().into_iter().flatten() {
        match key.as_str() {
            "labels" | "finalizers" => volume["metadata"][key] = value.clone(),
            "storage" => volume["spec"]["capacity"]["storage"] = value.clone(),
            _ => volume["spec"][key] = value.clone(),
        }
    }
    volume
}

fn claim(name: &str, class: Option<&str>, change: Value) -> Value {
    let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    if let Some(class) = class {
        claim["spec"]["storageClassName"] = json!(class);
    }
    for (key, value) in change.as_object().into_iter().flatten() {
        claim["spec"][key] = value.clone();
    }
    claim
}

fn pod(name: &str, claim: &str, block: bool) -> Value {
    let mut container = json!({"name": "c", "image": "i"});
    match block {
        true => container["volumeDevices"] = json!([{"name": "v", "devicePath": "/dev/x"}]),
        false => container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]),
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 0, "containers": [container],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}})
}

fn scheduled(place: &Place, pod: &str) -> String {
    let path = "{.status.conditions[?(@.type==\"PodScheduled\")].message}{.spec.nodeName}";
    place.until(&format!("pod/{pod}"), path, |said| !said.is_empty())
}

#[test]
fn waiting_claims_get_volumes_that_match_selector_mode_and_are_not_being_deleted() {
    let _turn = alone();
    on_both("wffc", |place| {
        let (node, late) = (format!("{}-n", place.name), format!("{}-late", place.name));
        place.node(&node, &json!({"kubernetes.io/hostname": node}));
        place.create_cluster("storageclass", &class(&late, "WaitForFirstConsumer"));
        let name = |suffix: &str| format!("{}-{suffix}", place.name);
        let held = json!({"finalizers": ["example.com/hold"], "labels": {"tier": "gold"}});
        for (suffix, change) in
            [("plain", json!({})), ("block", json!({"volumeMode": "Block"})), ("deleted", held)]
        {
            place.create_cluster("pv", &volume(&name(suffix), &late, &node, change));
        }
        place.run(&format!("delete pv {} --wait=false", name("deleted")));
        place.create(&claim("gold", Some(&late), json!({"selector": {"matchLabels": {"tier": "gold"}}})));
        place.create(&pod("gold", "gold", false));
        let why = scheduled(place, "gold");
        // What follows is about preemption.
        place.saw("only a deleted volume has the label", why.split(". ").next().unwrap_or_default());
        place.create_cluster("pv", &volume(&name("gold"), &late, &node, json!({"labels": {"tier": "gold"}})));
        place.until("pvc/gold", "{.status.phase}", |phase| phase == "Bound");
        place.saw("gold", place.value("pvc/gold", "{.spec.volumeName}"));
        place.create(&claim("raw", Some(&late), json!({"volumeMode": "Block"})));
        place.create(&pod("raw", "raw", true));
        place.until("pvc/raw", "{.status.phase}", |phase| phase == "Bound");
        place.saw("raw", place.value("pvc/raw", "{.spec.volumeName}"));
        place.patch(&format!("pv/{}", name("deleted")), &json!({"metadata": {"finalizers": null}}));
    });
}

#[test]
fn a_claim_that_names_its_volume_is_checked_before_it_is_bound() {
    on_both("prebound", |place| {
        let now = format!("{}-now", place.name);
        place.create_cluster("storageclass", &class(&now, "Immediate"));
        for (suffix, change, wanted) in [
            ("small", json!({"storage": "500Mi"}), json!({})),
            ("mode", json!({"volumeMode": "Block"}), json!({})),
            ("access", json!({"accessModes": ["ReadOnlyMany"]}), json!({})),
            ("class", json!({"storageClassName": "other"}), json!({})),
        ] {
            let name = format!("{}-{suffix}", place.name);
            place.create_cluster("pv", &volume(&name, &now, "none", change));
            let mut spec = wanted;
            spec["volumeName"] = json!(name);
            place.create(&claim(suffix, Some(&now), spec));
            let mut events = Vec::new();
            coracle_tests::eventually("the mismatch is an Event", crate::both::PATIENCE, || {
                events = place.events("PersistentVolumeClaim", suffix);
                !events.is_empty()
            });
            place.saw(
                suffix,
                format!(
                    "{} {}",
                    place.value(&format!("pvc/{suffix}"), "{.status.phase}"),
                    events.join(" | ")
                ),
            );
        }
        let name = format!("{}-fits", place.name);
        place.create_cluster("pv", &volume(&name, &now, "none", json!({})));
        place.create(&claim("fits", Some(&now), json!({"volumeName": name})));
        place.saw("fits", place.until("pvc/fits", "{.status.phase}", |phase| phase == "Bound"));
    });
}

#[test]
fn the_newest_default_class_is_given_to_claims_without_one() {
    let _turn = alone();
    on_both("defaultclass", |place| {
        // Ours begins with a default class.
        place.try_run("delete storageclass local-path --ignore-not-found", "");
        place.create(&claim("early", None, json!({})));
        let mut classes = Vec::new();
        // Names in an order that is not that of their age; ages are whole seconds.
        for suffix in ["b", "c", "a"] {
            let mut class = class(&format!("{}-{suffix}", place.name), "WaitForFirstConsumer");
            class["metadata"]["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
            classes.push(class);
        }
        place.create_cluster("storageclass", &classes[0]);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        place.saw("first", place.until("pvc/early", "{.spec.storageClassName}", |name| !name.is_empty()));
        for class in &classes[1..] {
            place.create_cluster("storageclass", class);
            std::thread::sleep(std::time::Duration::from_millis(1100));
        }
        place.create(&claim("late", None, json!({})));
        place.saw("newest", place.value("pvc/late", "{.spec.storageClassName}"));
        let mut none = claim("none", Some(""), json!({}));
        none["spec"]["storageClassName"] = json!("");
        place.create(&none);
        place.saw("none is a choice", place.value("pvc/none", "{.spec.storageClassName}"));
    });
}

#[test]
fn claims_grow_where_their_class_allows_it_and_never_shrink_below_what_they_have() {
    on_both("expansion", |place| {
        let (fixed, grows) = (format!("{}-fixed", place.name), format!("{}-grows", place.name));
        place.create_cluster("storageclass", &class(&fixed, "Immediate"));
        let mut growing = class(&grows, "Immediate");
        growing["allowVolumeExpansion"] = json!(true);
        place.create_cluster("storageclass", &growing);
        let size = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
        for (name, class) in [("fixed", Some(&fixed)), ("grows", Some(&grows)), ("pending", Some(&grows))] {
            let volume_name = format!("{}-{name}", place.name);
            let bound = name != "pending";
            if bound {
                place.create_cluster("pv", &volume(&volume_name, class.unwrap(), "none", json!({})));
            }
            let named = if bound { json!({"volumeName": volume_name}) } else { json!({}) };
            place.create(&claim(name, class.map(String::as_str), named));
            if bound {
                place.until(&format!("pvc/{name}"), "{.status.phase}", |phase| phase == "Bound");
            }
        }
        let tries = [
            ("fixed", "2Gi"),
            ("grows", "500Mi"),
            ("grows", "2Gi"),
            ("grows", "1536Mi"),
            ("grows", "512Mi"),
            ("pending", "2Gi"),
        ];
        for (name, to) in tries {
            let output = place.patch(&format!("pvc/{name}"), &size(to));
            let said = if output.ok { output.out } else { output.err };
            place.saw(&format!("{name} to {to}"), said.lines().next().unwrap_or_default());
        }
        place.saw("asked for", place.value("pvc/grows", "{.spec.resources.requests.storage}"));
        for change in [
            json!({"spec": {"accessModes": ["ReadOnlyMany"]}}),
            json!({"spec": {"storageClassName": fixed}}),
            json!({"spec": {"volumeName": "another"}}),
        ] {
            let output = place.patch("pvc/grows", &change);
            place.saw("other changes", output.err.lines().next().unwrap_or_default());
        }
    });
}

#[test]
fn a_volume_that_nobody_can_delete_or_recycle_has_failed() {
    on_both("reclaim", |place| {
        let class = format!("{}-now", place.name);
        place.create_cluster("storageclass", &self::class(&class, "Immediate"));
        let csi = json!({"local": null, "csi": {"driver": "example.com", "volumeHandle": "h"}});
        for (suffix, policy, phase, change) in [
            ("local", "Delete", "Failed", json!({})),
            ("driver", "Delete", "Released", csi),
            ("kept", "Retain", "Released", json!({})),
            ("recycled", "Recycle", "Failed", json!({})),
        ] {
            let name = format!("{}-{suffix}", place.name);
            let mut volume = volume(&name, &class, "none", change);
            volume["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
            place.create_cluster("pv", &volume);
            place.create(&claim(suffix, Some(&class), json!({"volumeName": name})));
            place.until(&format!("pvc/{suffix}"), "{.status.phase}", |phase| phase == "Bound");
            place.run(&format!("delete pvc {suffix}"));
            place.until(&format!("pv/{name}"), "{.status.phase}", |now| now == phase);
            let told =
                place.value(&format!("pv/{name}"), "{.status.phase} {.status.message}{.status.reason}");
            place.saw(suffix, told.trim());
        }
    });
}
