#![allow(clippy::unwrap_used)]
use super::*;
use crate::registry::convert::autoscalers::STORED_AS;
use coracle_fields::meta::LabelSelector;

/// Renders the cells of a kind, without those that depend on the clock.
fn row(columns: Vec<Column>, object: &Value) -> Vec<Value> {
    let timeless =
        columns.into_iter().filter(|column| !matches!(&*column.name, "Age" | "Last Seen" | "First Seen"));
    timeless
        .map(|column| match column.cell {
            Cell::With(draw) => draw(object.into()),
            Cell::Path(path) => json!(path),
        })
        .collect()
}

#[test]
fn mutating_policies_say_how_much_they_change() {
    let policy = json!({"metadata": {"name": "p"}, "spec": {"mutations": [{}, {}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}});
    assert_eq!(row(mutating_policy(), &policy), [json!("p"), json!(2), json!("v1/ConfigMap")]);
    assert_eq!(
        row(mutating_policy(), &json!({"metadata": {"name": "q"}}))[1..],
        [json!(0), json!("<unset>")]
    );
}

#[test]
fn pods_say_what_their_containers_do() {
    let state = |state: Value| json!([{"name": "a", "state": state, "ready": false, "restartCount": 0}]);
    let running = json!([{"name": "a", "ready": true, "restartCount": 2, "state": {"running": {}}}]);
    let cases = [
        (json!({"phase": "Pending"}), "0/1", "Pending"),
        (json!({"phase": "Running", "containerStatuses": running}), "1/1", "Running"),
        (
            json!({"phase": "Pending", "containerStatuses": state(json!({"waiting": {"reason": "ErrImagePull"}}))}),
            "0/1",
            "ErrImagePull",
        ),
        (
            json!({"phase": "Failed", "containerStatuses": state(json!({"terminated": {"exitCode": 3}}))}),
            "0/1",
            "ExitCode:3",
        ),
        (
            json!({"phase": "Succeeded", "containerStatuses": state(json!({"terminated": {"exitCode": 0, "reason": "Completed"}}))}),
            "0/1",
            "Completed",
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": state(json!({"waiting": {"reason": "PodInitializing"}}))}),
            "0/1",
            "Init:0/2",
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": state(json!({"terminated": {"exitCode": 1, "reason": "Error"}}))}),
            "0/1",
            "Init:Error",
        ),
    ];
    for (status, ready, word) in cases {
        let pod = json!({"metadata": {"name": "p"}, "status": status,
            "spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "j"}]}});
        let cells = row(pod_columns(), &pod);
        assert_eq!((&cells[1], &cells[2]), (&json!(ready), &json!(word)), "{pod}");
    }
    let leaving = json!({"metadata": {"name": "p", "deletionTimestamp": "2024-01-01T00:00:00Z"}, "spec": {},
        "status": {"phase": "Running"}});
    assert_eq!(row(pod_columns(), &leaving)[2], "Terminating");
}

fn pod_columns() -> Vec<Column> {
    pod()
}

#[test]
fn services_show_addresses_and_ports() {
    let mut svc = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "clusterIPs": ["10.0.0.1"],
        "selector": {"b": "2", "a": "1"},
        "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}});
    assert_eq!(
        row(service(), &svc),
        ["s", "NodePort", "10.0.0.1", "<none>", "80:30080/TCP,53/UDP", "a=1,b=2"]
    );
    svc["spec"]["type"] = json!("LoadBalancer");
    assert_eq!(row(service(), &svc)[3], "<pending>");
    svc["status"] = json!({"loadBalancer": {"ingress": [{"hostname": "z"}, {"ip": "1.2.3.4"}]}});
    assert_eq!(row(service(), &svc)[3], "1.2.3.4,z");
}

#[test]
fn nodes_show_roles_and_cordons() {
    let node = json!({"metadata": {"name": "n", "labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "x"}},
        "spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.1.1.1"}], "nodeInfo": {"kubeletVersion": "v1.35.0"}}});
    let cells = row(super::node(), &node);
    assert_eq!(cells[..5], ["n", "Ready,SchedulingDisabled", "control-plane,x", "v1.35.0", "10.1.1.1"]);
    assert_eq!(cells[6], "<unknown>");
}

#[test]
fn lists_are_cut_after_three() {
    let addresses: Vec<Value> = (1..=5).map(|n| json!({"ip": format!("10.0.0.{n}")})).collect();
    let object =
        json!({"metadata": {"name": "e"}, "subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]});
    assert_eq!(row(endpoints(), &object)[1], "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 2 more...");
    assert_eq!(row(endpoints(), &json!({"metadata": {"name": "e"}}))[1], "<none>");
}

#[test]
fn autoscalers_show_what_they_aim_at() {
    let hpa = json!({"metadata": {"name": "h"}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"},
        "minReplicas": 1, "maxReplicas": 4, "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
            {"type": "Pods", "pods": {"target": {"averageValue": "5"}}},
            {"type": "Resource", "resource": {"name": "memory", "target": {"averageValue": "1Gi"}}}]},
        "status": {"currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 12}}}]}});
    assert_eq!(
        row(autoscaler(), &hpa),
        [
            json!("h"),
            json!("Deployment/d"),
            json!("cpu: 12%/80%, <unknown>/5 + 1 more..."),
            json!("1"),
            json!(4),
            json!(0)
        ]
    );
    let mut v1 = hpa.clone();
    (STORED_AS.decode)(&mut v1);
    assert_eq!(row(autoscaler(), &v1)[2], "cpu: 12%/80%, <unknown>/5 + 1 more...");
}

#[test]
fn selectors_read_as_typed() {
    let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": [
        {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "DoesNotExist"}]});
    assert_eq!(format::selector(LabelSelector::of(&selector)), "a in (x,y),b=1,!c");
    assert_eq!(format::selector(LabelSelector::of(&Value::Null)), "<none>");
}

#[test]
fn nodes_ingresses_and_their_classes_as_in_kubernetes() {
    let info = json!({"kernelVersion": "6.12", "architecture": "arm64", "osImage": "x", "containerRuntimeVersion": "y"});
    let cells = row(node(), &json!({"metadata": {"name": "n"}, "status": {"nodeInfo": info}}));
    assert_eq!(cells[7], "6.12 (arm64)");
    assert_eq!(row(node(), &json!({"metadata": {"name": "n"}}))[7], "<unknown>");
    let hosts = |hosts: &[&str]| {
        let rules: Vec<Value> = hosts.iter().map(|host| json!({"host": host})).collect();
        row(ingress(), &json!({"metadata": {"name": "i"}, "spec": {"rules": rules}}))[2].clone()
    };
    assert_eq!((hosts(&[]), hosts(&[""])), (json!("*"), json!("*")));
    assert_eq!(hosts(&["a", "", "b", "c"]), "a,b,c");
    assert_eq!(hosts(&["a", "b", "c", ""]), "a,b,c + 1 more...");
    let mut class = json!({"metadata": {"name": "c"}, "spec": {"controller": "x"}});
    assert_eq!(row(ingress_class(), &class)[0], "c");
    class["metadata"]["annotations"] = json!({"ingressclass.kubernetes.io/is-default-class": "true"});
    assert_eq!(row(ingress_class(), &class)[0], "c (default)");
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "paramRef": {"selector": {"matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}]}}}});
    assert_eq!(
        row(policy_binding(), &binding)[2],
        "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:c,Operator:In,Values:[d e],},},}"
    );
    let ended = |phase: &str| pod_conditions(&json!({"status": {"phase": phase}}));
    assert_eq!(ended("Succeeded").unwrap()[0]["reason"], "Succeeded");
    assert_eq!(ended("Failed").unwrap()[0]["message"], "The pod failed.");
    assert_eq!(ended("Running"), None);
}
