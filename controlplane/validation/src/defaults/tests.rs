//! What a client sends and what is stored.

use super::*;
use serde_json::{Value, json};

/// Checks that `fill` turns one object into the other.
#[track_caller]
fn fills(fill: fn(&mut Value), before: Value, after: Value) {
    let mut object = before;
    fill(&mut object);
    assert_eq!(object, after, "\n{object:#}\n{after:#}");
    fill(&mut object);
    assert_eq!(object, after, "a second time changes nothing");
}

fn container(more: Value) -> Value {
    let mut container = json!({"name": "a", "image": "nginx:1", "imagePullPolicy": "IfNotPresent", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"});
    for (key, value) in more.as_object().into_iter().flatten() {
        container[key] = value.clone();
    }
    container
}

fn pod_spec(more: Value) -> Value {
    let mut spec = json!({"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30, "securityContext": {}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}

#[test]
fn images_that_move_are_always_pulled() {
    let cases = [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:2", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
        ("nginx:latest@sha256:abc", "Always"),
    ];
    for (image, policy) in cases {
        assert_eq!(pull_policy(image), policy, "{image}");
    }
}

#[test]
fn a_small_pod() {
    fills(
        pods::pod,
        json!({"spec": {"containers": [{"name": "a", "image": "nginx:1"}]}}),
        json!({"spec": pod_spec(json!({"containers": [container(json!({}))], "enableServiceLinks": true}))}),
    );
}

#[test]
fn a_pod_with_everything() {
    fills(
        pods::pod,
        json!({"spec": {"hostNetwork": true, "serviceAccount": "old",
            "containers": [{"name": "a", "image": "nginx:1", "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi"}, "requests": {"cpu": "100m"}},
                "env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "livenessProbe": {"httpGet": {"port": 80}}}],
            "volumes": [{"name": "e"}, {"name": "s", "secret": {"secretName": "x"}}, {"name": "h", "hostPath": {"path": "/x"}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}}),
        json!({"spec": pod_spec(json!({"hostNetwork": true, "serviceAccount": "old", "serviceAccountName": "old",
            "enableServiceLinks": true,
            "containers": [container(json!({"ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "1Gi"}},
                "env": [{"name": "X", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
                "livenessProbe": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
                    "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}}))],
            "volumes": [{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}},
                {"name": "h", "hostPath": {"path": "/x", "type": ""}},
                {"name": "p", "projected": {"defaultMode": 420,
                    "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}]}))}),
    );
}

#[test]
fn requests_of_extended_resources_are_kept() {
    let resources =
        json!({"limits": {"example.com/gpu": "2", "cpu": "1"}, "requests": {"example.com/gpu": "1"}});
    let mut pod = json!({"spec": {"containers": [{"name": "a", "image": "x:1", "resources": resources}]}});
    pods::pod(&mut pod);
    let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
    assert_eq!(*requests, json!({"example.com/gpu": "1", "cpu": "1"}));
}

#[test]
fn pod_level_requests_follow_containers_then_limits() {
    let mut pod = json!({"spec": {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
        "containers": [{"name": "a", "image": "x:1", "resources": {"requests": {"cpu": "250m"}}},
            {"name": "b", "image": "x:1", "resources": {"requests": {"cpu": "250m"}}}]}});
    pods::pod(&mut pod);
    assert_eq!(pod["spec"]["resources"]["requests"], json!({"cpu": "500m", "memory": "1Gi"}));
}

#[test]
fn a_deployment() {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "nginx:1"}]}});
    fills(
        workloads::deployment,
        json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}),
        json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "replicas": 1, "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": {"a": "b"}},
                "spec": pod_spec(json!({"containers": [container(json!({}))]}))}}}),
    );
    let mut recreate = json!({"spec": {"replicas": 0, "strategy": {"type": "Recreate"}, "template": {}}});
    workloads::deployment(&mut recreate);
    assert_eq!(recreate["spec"]["strategy"], json!({"type": "Recreate"}));
    assert_eq!(recreate["spec"]["replicas"], 0);
}

#[test]
fn a_job_and_its_labels() {
    let mut job = json!({"metadata": {"name": "j"}, "spec": {"backoffLimitPerIndex": 1,
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": []}}}});
    jobs::job(&mut job);
    assert_eq!(job["metadata"]["labels"], json!({"a": "b"}));
    let spec = &job["spec"];
    assert_eq!((&spec["completions"], &spec["parallelism"]), (&json!(1), &json!(1)));
    assert_eq!(spec["backoffLimit"], i32::MAX);
    assert_eq!((&spec["completionMode"], &spec["suspend"]), (&json!("NonIndexed"), &json!(false)));
    let mut queue = json!({"spec": {"parallelism": 2, "template": {}}});
    jobs::job(&mut queue);
    assert!(queue["spec"].get("completions").is_none());
}

#[test]
fn services() {
    fills(
        network::service,
        json!({"spec": {"ports": [{"port": 80}, {"port": 53, "protocol": "UDP", "targetPort": "dns"}]}}),
        json!({"spec": {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80},
                {"port": 53, "protocol": "UDP", "targetPort": "dns"}]},
            "status": {"loadBalancer": {}}}),
    );
    let mut balanced = json!({"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP"}});
    network::service(&mut balanced);
    assert_eq!(balanced["spec"]["sessionAffinityConfig"], json!({"clientIP": {"timeoutSeconds": 10800}}));
    assert_eq!(balanced["spec"]["allocateLoadBalancerNodePorts"], true);
    assert_eq!(balanced["spec"]["externalTrafficPolicy"], "Cluster");
}

#[test]
fn secrets_take_plain_text() {
    fills(
        cluster::secret,
        json!({"data": {"a": "eA=="}, "stringData": {"a": "hello", "b": ""}}),
        json!({"type": "Opaque", "data": {"a": "aGVsbG8=", "b": ""}}),
    );
}

#[test]
fn limit_ranges_derive_defaults() {
    fills(
        cluster::limit_range,
        json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]}}),
        json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"},
            "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1Mi"}}]}}),
    );
}

#[test]
fn others() {
    fills(
        network::network_policy,
        json!({"spec": {"egress": [{"ports": [{"port": 53}]}]}}),
        json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"],
            "egress": [{"ports": [{"port": 53, "protocol": "TCP"}]}]}}),
    );
    fills(
        cluster::role_binding,
        json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]}),
        json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}, {"kind": "ServiceAccount", "name": "s"}]}),
    );
    fills(
        extensions::definition,
        json!({"spec": {"names": {"kind": "Boat", "plural": "boats"}, "versions": [{"name": "v1", "storage": true}]}}),
        json!({"spec": {"names": {"kind": "Boat", "plural": "boats", "singular": "boat", "listKind": "BoatList"},
            "versions": [{"name": "v1", "storage": true}], "conversion": {"strategy": "None"}},
            "status": {"storedVersions": ["v1"]}}),
    );
    let mut hpa = json!({"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}});
    autoscalers::v2(&mut hpa);
    assert_eq!(hpa["spec"]["behavior"]["scaleUp"]["policies"][0]["value"], 4);
    assert_eq!(hpa["spec"]["behavior"]["scaleDown"]["selectPolicy"], "Max");
    assert_eq!(hpa["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
}

#[test]
fn a_node_has_one_range_in_two_fields() {
    for (spec, want) in [
        (json!({"podCIDR": "10.0.0.0/24"}), json!({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]})),
        (
            json!({"podCIDRs": ["10.0.0.0/24"]}),
            json!({"podCIDRs": ["10.0.0.0/24"], "podCIDR": "10.0.0.0/24"}),
        ),
        (
            json!({"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.0.0/24"]}),
            json!({"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}),
        ),
        (json!({}), json!({})),
    ] {
        let mut node = json!({"spec": spec});
        super::cluster::node(&mut node);
        assert_eq!(node["spec"], want);
    }
}
