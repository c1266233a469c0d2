//! Mutating admission policies: expressions change what is stored.

use coracle_tests::kubectl::{Kubectl, newest};
use coracle_tests::server::Server;
use serde_json::{Value, json};

fn rule(group: &str, resource: &str) -> Value {
    json!({"resourceRules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}]})
}

/// A policy and its binding.
fn policy(name: &str, constraints: &Value, spec: Value, binding: Value) -> String {
    let mut policy = json!({"matchConstraints": constraints, "reinvocationPolicy": "Never"});
    let mut bound = json!({"policyName": name});
    for (into, more) in [(&mut policy, spec), (&mut bound, binding)] {
        into.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": policy},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": bound}]})
    .to_string()
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

fn remove(kubectl: &Kubectl, names: &str) {
    kubectl.run(&format!("delete mutatingadmissionpolicy,mutatingadmissionpolicybinding {names}"));
}

#[test]
fn policies_change_objects() {
    let server = Server::with(&["--api-only"]);
    let kubectl = newest(&server.kubeconfig());

    // An apply configuration is merged into the object.
    let mutations = json!({"mutations": [
        apply("Object{metadata: Object.metadata{annotations: {'by': 'policy'}}, spec: Object.spec{replicas: object.spec.replicas + 1}}"),
        apply("Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers:
            object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{name: c.name, imagePullPolicy: 'Never'})}}}}")]});
    let selected = json!({"matchResources": {"objectSelector": {"matchExpressions": [{"key": "plain", "operator": "DoesNotExist"}]}}});
    kubectl.run_with("apply -f -", &policy("deployments", &rule("apps", "deployments"), mutations, selected));
    let shown = kubectl.run("get mutatingadmissionpolicies,mutatingadmissionpolicybindings");
    assert!(
        shown.contains("MUTATIONS") && shown.contains("PARAMKIND") && shown.contains("POLICYNAME"),
        "{shown}"
    );
    let deployment = |name: &str, labels: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels}, "spec": {"replicas": 2,
            "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "one", "image": "i", "args": ["x"]}, {"name": "two", "image": "j"}]}}}})
        .to_string()
    };
    let seen = "-o jsonpath={.metadata.annotations.by}:{.spec.replicas}:{.spec.template.spec.containers[*].imagePullPolicy}:{.spec.template.spec.containers[0].args}";
    kubectl.run_with("create -f -", &deployment("changed", json!({})));
    assert_eq!(kubectl.run(&format!("get deployment changed {seen}")), "policy:3:Never Never:[\"x\"]");
    kubectl.run_with("create -f -", &deployment("plain", json!({"plain": "yes"})));
    assert_eq!(kubectl.run(&format!("get deployment plain {seen}")), ":2:Always Always:[\"x\"]");
    remove(&kubectl, "deployments");
    kubectl.run_with("create -f -", &deployment("later", json!({})));
    assert_eq!(kubectl.run("get deployment later -o jsonpath={.spec.replicas}"), "2");

    // A JSON patch, with parameters, variables and conditions.
    kubectl.run("create configmap settings --from-literal=team=blue");
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "asks", "expression": "object.?data.?ask.orValue('') == 'yes'"}],
        "variables": [{"name": "key", "expression": "'example.com/' + params.data.team"}],
        "mutations": [
            patch("[JSONPatch{op: 'test', path: '/data/ask', value: 'no'}, JSONPatch{op: 'remove', path: '/data/ask'}]"),
            patch("(has(object.metadata.labels) ? [] : [JSONPatch{op: 'add', path: '/metadata/labels', value: {}}]) + [JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey(variables.key), value: namespaceObject.metadata.name}]")]});
    let param =
        json!({"paramRef": {"name": "settings", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    kubectl.run_with("apply -f -", &policy("labels", &rule("", "configmaps"), spec, param));
    kubectl.run("create configmap asks --from-literal=ask=yes");
    assert_eq!(
        kubectl.run("get configmap asks -o jsonpath={.metadata.labels}:{.data.ask}"),
        r#"{"example.com/blue":"default"}:yes"#
    );
    kubectl.run("create configmap silent --from-literal=ask=no");
    assert_eq!(kubectl.run("get configmap silent -o jsonpath={.metadata.labels}"), "");
    remove(&kubectl, "labels");

    // What is changed in one version is changed in the one that was asked for.
    let scaled = json!({"mutations": [apply("Object{spec: Object.spec{maxReplicas: 7, targetCPUUtilizationPercentage: 60}}")]});
    let v1 = json!({"matchPolicy": "Equivalent", "resourceRules": rule("autoscaling", "horizontalpodautoscalers")["resourceRules"]});
    kubectl.run_with("apply -f -", &policy("scaled", &v1, scaled, json!({})));
    kubectl.run_with("create -f -", &json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "later"}}}).to_string());
    let seen = "get hpa h -o jsonpath={.apiVersion}:{.spec.maxReplicas}:{.spec.metrics[0].resource.target.averageUtilization}";
    assert_eq!(kubectl.run(seen), "autoscaling/v2:7:60");
    remove(&kubectl, "scaled");
}

#[test]
fn policies_that_fail_follow_their_failure_policy() {
    let server = Server::with(&["--api-only"]);
    let kubectl = newest(&server.kubeconfig());
    // What cannot be compiled is not stored.
    let broken =
        policy("broken", &rule("", "configmaps"), json!({"mutations": [apply("{'data': 1}")]}), json!({}));
    let refused = kubectl.try_with("create -f -", &broken);
    assert!(
        !refused.ok && refused.err.contains("spec.mutations[0].applyConfiguration.expression: Invalid value"),
        "{refused:?}"
    );
    assert!(refused.err.contains("must evaluate to Object"), "{refused:?}");
    kubectl.run("delete mutatingadmissionpolicybinding broken");

    let create = |name: &str| kubectl.try_with(&format!("create configmap {name} --from-literal=a=1"), "");
    for (name, mutation, why) in [
        ("missing", apply("Object{data: {'b': object.data.none}}"), "no such key: none"),
        ("misfit", apply("Object{dota: {'b': 'c'}}"), ".dota: field not declared in schema"),
        ("path", patch("[JSONPatch{op: 'remove', path: '/data/none'}]"), "JSON Patch: "),
        (
            "much",
            apply("Object{data: {'b': string((lists.range(600000) + lists.range(600000)).size())}}"),
            "cost limit exceeded",
        ),
    ] {
        let fails = json!({"mutations": [mutation]});
        kubectl.run_with("apply -f -", &policy(name, &rule("", "configmaps"), fails, json!({})));
        let refused = create(name);
        let head = format!("policy '{name}' with binding '{name}' denied request: ");
        assert!(
            !refused.ok && refused.err.contains(&head) && refused.err.contains(why),
            "{name}: {refused:?}"
        );
        // What comes after a mutation whose failure is ignored is applied.
        let ignored =
            json!({"failurePolicy": "Ignore", "mutations": [mutation, apply("Object{data: {'b': '2'}}")]});
        kubectl.run_with("apply -f -", &policy(name, &rule("", "configmaps"), ignored, json!({})));
        assert!(create(name).ok);
        assert_eq!(
            kubectl.run(&format!("get configmap {name} -o jsonpath={{.data}}")),
            r#"{"a":"1","b":"2"}"#
        );
        remove(&kubectl, name);
    }
    // Parameters that are not there.
    let takes = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "mutations": [apply("Object{data: params.data}")]});
    let param =
        json!({"paramRef": {"name": "none", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    kubectl.run_with("apply -f -", &policy("params", &rule("", "configmaps"), takes, param));
    let refused = create("params");
    assert!(
        !refused.ok && refused.err.contains("failed to configure binding: no params found"),
        "{refused:?}"
    );
    // A policy cannot keep itself from being removed.
    remove(&kubectl, "params");
    assert!(create("params").ok);
}

#[test]
fn what_policies_change_is_seen_by_the_plugins_before_them() {
    let server = Server::with(&["--api-only"]);
    let kubectl = newest(&server.kubeconfig());
    kubectl.try_with("create serviceaccount default", "");
    kubectl.run_with(
        "create -f -",
        &json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "100m"}}]}})
        .to_string(),
    );
    // The first sees only in a second run what the last adds.
    let adds = |name: &str| {
        format!(
            "[JSONPatch{{op: 'add', path: '/spec/containers/-', value: Object.spec.containers{{name: '{name}', image: 'i'}}}}]"
        )
    };
    let copies = "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'containers': string(object.spec.containers.size())}}]";
    let if_needed = json!({"reinvocationPolicy": "IfNeeded", "mutations": [patch(copies)]});
    kubectl.run_with("apply -f -", &policy("a-counts", &rule("", "pods"), if_needed, json!({})));
    kubectl.run_with(
        "apply -f -",
        &policy("b-never", &rule("", "pods"), json!({"mutations": [patch(&adds("never"))]}), json!({})),
    );
    kubectl.run_with("create -f -", &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "own", "image": "i"}]}}).to_string());
    let seen = kubectl.run("get pod p -o jsonpath={.metadata.labels.containers}:{.spec.containers[*].name}:{.spec.containers[*].resources.limits.cpu}:{.spec.containers[*].volumeMounts[*].mountPath}");
    let mount = "/var/run/secrets/kubernetes.io/serviceaccount";
    assert_eq!(seen, format!("2:own never:100m 100m:{mount} {mount}"));
}

/// The example that the documentation gives to those who look for initializers.
#[test]
fn the_documented_sidecar_is_injected() {
    let server = Server::with(&["--api-only"]);
    let kubectl = newest(&server.kubeconfig());
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/older-documents.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```yaml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    kubectl.run_with("apply -f -", example);
    _ = kubectl.try_with("create serviceaccount default", "");
    let pod = |name: &str, wanted: &str| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {"example.com/proxy": wanted}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        kubectl.run_with("create -f -", &pod.to_string());
        let containers = kubectl.run(&format!("get pod {name} -o jsonpath={{.spec.containers[*].name}}"));
        kubectl.run(&format!("delete pod {name} --grace-period=0 --force"));
        containers
    };
    coracle_tests::eventually("the policy is at work", std::time::Duration::from_secs(20), || {
        pod("with", "yes").split(' ').any(|name| name == "proxy")
    });
    assert_eq!(pod("without", "no"), "c");
}
