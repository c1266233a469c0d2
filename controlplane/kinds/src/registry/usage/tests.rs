use super::*;
use serde_json::json;

fn used(kind: (&str, &str), object: &Value, resource: &str) -> String {
    usage(kind, object).get(resource).map_or_else(|| "-".to_owned(), ToString::to_string)
}

#[test]
fn pods_count_by_what_they_ask_for() {
    let pod = json!({"spec": {"containers": [
            {"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m"}}},
            {"resources": {"requests": {"cpu": "1", "example.com/gpu": "2"}, "limits": {"cpu": "1"}}}],
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
            {"resources": {"requests": {"cpu": "2"}}}],
        "overhead": {"cpu": "10m"}}});
    let of = |resource: &str| used(("", "pods"), &pod, resource);
    assert_eq!(of("requests.cpu"), "2060m", "the init container beside the sidecar is the peak");
    assert_eq!(of("limits.cpu"), "1210m");
    assert_eq!(of("memory"), "64Mi");
    assert_eq!(of("requests.example.com/gpu"), "2");
    assert_eq!(of("pods"), "1");
    assert_eq!(of("services"), "-");
    let done = json!({"status": {"phase": "Succeeded"}});
    assert_eq!(used(("", "pods"), &done, "pods"), "-");
    assert_eq!(used(("", "pods"), &done, "count/pods"), "1");
    let best_effort = json!({"spec": {"scopes": ["BestEffort"]}});
    assert!(!covered(&best_effort, ("", "pods"), &pod));
    assert!(covered(&best_effort, ("", "pods"), &json!({})));
    assert!(!covered(&best_effort, ("", "services"), &json!({})), "scopes are about pods");
}

#[test]
fn pods_that_are_resized_count_by_the_most_of_spec_given_and_actual() {
    let cpu =
        |requests: &str, limits: &str| json!({"requests": {"cpu": requests}, "limits": {"cpu": limits}});
    let pod = |reason: &str, seen: i64| {
        json!({
            "metadata": {"generation": 2},
            "spec": {"containers": [{"name": "c", "resources": cpu("3", "3")}], "initContainers": [
                {"name": "s", "restartPolicy": "Always", "resources": cpu("1", "1")},
                {"name": "i", "resources": cpu("1", "1")}]},
            "status": {
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason, "observedGeneration": seen}],
                "containerStatuses": [{"name": "c", "resources": cpu("1", "2"), "allocatedResources": {"cpu": "2"}}],
                "initContainerStatuses": [
                    {"name": "s", "resources": cpu("1", "2")},
                    {"name": "i", "resources": cpu("9", "9"), "allocatedResources": {"cpu": "9"}}]}})
    };
    for (reason, seen, requests, limits) in [
        ("Deferred", 2, "4", "5"),
        ("Infeasible", 2, "3", "4"),
        ("Infeasible", 0, "3", "4"),
        ("Infeasible", 1, "4", "5"),
    ] {
        let of = |resource: &str| used(("", "pods"), &pod(reason, seen), resource);
        let both = (of("requests.cpu"), of("limits.cpu"));
        assert_eq!(both, (requests.into(), limits.into()), "{reason} of generation {seen}");
    }
}

#[test]
fn scope_selectors_look_at_the_class() {
    let quota = |operator: &str, values: Value| {
        json!({"spec": {"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": values}]}}})
    };
    let pod = |class: &str| json!({"spec": {"priorityClassName": class}});
    for (quota, class, expected) in [
        (quota("In", json!(["high"])), "high", true),
        (quota("In", json!(["high"])), "low", false),
        (quota("NotIn", json!(["high"])), "low", true),
        (quota("Exists", json!([])), "", false),
        (quota("DoesNotExist", json!([])), "", true),
    ] {
        assert_eq!(covered(&quota, ("", "pods"), &pod(class)), expected, "{quota} {class}");
    }
}

#[test]
fn quota_scopes_of_volume_attributes_classes_count_claims() {
    let quota = |operator: &str, values: Value| {
        json!({"spec": {"scopeSelector": {"matchExpressions": [
            {"scopeName": "VolumeAttributesClass", "operator": operator, "values": values}]}}})
    };
    let claim = |class: &str| json!({"spec": {"volumeAttributesClassName": class}});
    let changing = json!({"spec": {"volumeAttributesClassName": "gold"},
        "status": {"currentVolumeAttributesClassName": "silver"}});
    let target = json!({"status": {"modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold"}}});
    for (quota, claim, expected) in [
        (quota("In", json!(["gold"])), claim("gold"), true),
        (quota("In", json!(["gold"])), claim("silver"), false),
        (quota("In", json!(["silver"])), changing.clone(), true),
        (quota("In", json!(["gold"])), target, true),
        (quota("NotIn", json!(["gold"])), changing, true),
        (quota("NotIn", json!(["gold"])), claim(""), true),
        (quota("NotIn", json!(["gold"])), claim("gold"), false),
        (quota("Exists", json!([])), claim("gold"), true),
        (quota("Exists", json!([])), claim(""), false),
        (quota("DoesNotExist", json!([])), claim(""), true),
        (json!({"spec": {"scopes": ["VolumeAttributesClass"]}}), claim("gold"), true),
        (json!({"spec": {"scopes": ["BestEffort"]}}), claim("gold"), false),
    ] {
        assert_eq!(covered(&quota, ("", "persistentvolumeclaims"), &claim), expected, "{quota} {claim}");
    }
    assert!(!covered(&quota("Exists", json!([])), ("", "pods"), &json!({})));
}

#[test]
fn other_kinds() {
    let mut balancer = json!({"spec": {"type": "LoadBalancer", "ports": [{"nodePort": 30000}, {}]}});
    let service = ("", "services");
    assert_eq!(used(service, &balancer, "services.nodeports"), "2");
    assert_eq!(used(service, &balancer, "services.loadbalancers"), "1");
    balancer["spec"]["allocateLoadBalancerNodePorts"] = json!(false);
    assert_eq!(used(service, &balancer, "services.nodeports"), "1");
    let claim = json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "3Gi"}}}});
    let kind = ("", "persistentvolumeclaims");
    assert_eq!(used(kind, &claim, "fast.storageclass.storage.k8s.io/requests.storage"), "3Gi");
    assert_eq!(used(kind, &claim, "slow.storageclass.storage.k8s.io/requests.storage"), "-");
    assert_eq!(used(("apps", "deployments"), &json!({}), "count/deployments.apps"), "1");
    assert_eq!(used(("", "configmaps"), &json!({}), "configmaps"), "1");
}

#[test]
fn resources_belong_to_kinds() {
    let claims = ("", "persistentvolumeclaims");
    for (kind, resource, expected) in [
        (("", "pods"), "requests.storage", false),
        (("", "pods"), "requests.cpu", true),
        (("", "pods"), "limits.memory", true),
        (("", "pods"), "count/pods", true),
        (claims, "requests.storage", true),
        (claims, "fast.storageclass.storage.k8s.io/persistentvolumeclaims", true),
        (("", "services"), "services.nodeports", true),
        (("", "services"), "pods", false),
        (("apps", "deployments"), "count/deployments.apps", true),
        (("", "secrets"), "secrets", true),
        (("", "endpoints"), "endpoints", false),
    ] {
        assert_eq!(concerns(kind, resource), expected, "{kind:?} {resource}");
    }
}
