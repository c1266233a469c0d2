use super::{container_with, pod_with};
use crate::pods::{create, resize};
use crate::testing::{changes, errors};
use serde_json::{Value, json};

#[test]
fn only_sizes_are_resized() {
    let sized = |cpu: &str| container_with(json!({"resources": {"requests": {"cpu": cpu}}}));
    assert_eq!(changes(resize, &sized("2"), &sized("1")), [""; 0]);
    let mut old = sized("1");
    old["status"] = json!({"qosClass": "Burstable"});
    let none = container_with(json!({}));
    let wrong = changes(resize, &none, &old);
    assert_eq!(
        wrong,
        [
            "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ]
    );
}

#[test]
fn only_cpu_and_memory_of_the_same_containers_are_resized() {
    let of = |patch: Value| {
        let mut container = json!({"name": "i", "image": "i", "resources": {"requests": {"cpu": "1"}}});
        for (key, value) in patch.as_object().into_iter().flatten() {
            container[key] = value.clone();
        }
        pod_with(json!({"initContainers": [container]}))
    };
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    let sidecar = |amount: &str| of(json!({"restartPolicy": "Always", "resources": cpu(amount)}));
    let restarts = json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
    let old = of(json!({"resizePolicy": restarts}));
    let only = "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable";
    for (new, old, wrong) in [
        (of(json!({"resources": cpu("2")})), of(json!({})), ""),
        (sidecar("2"), sidecar("1"), ""),
        (
            of(json!({"resources": {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}})),
            of(json!({})),
            only,
        ),
        (
            of(json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]})),
            of(json!({})),
            only,
        ),
        (
            of(json!({"resources": {"requests": {"memory": "1Gi"}}})),
            of(json!({})),
            "spec.initContainers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ),
        (
            of(json!({"resizePolicy": restarts, "resources": cpu("2")})),
            old.clone(),
            "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of RestartContainer cannot be resized",
        ),
        (old.clone(), old, ""),
        (
            of(json!({"name": "other"})),
            of(json!({})),
            "spec.initContainers[0].name: Forbidden: initContainers may not be renamed or reordered on resize",
        ),
        (
            pod_with(json!({})),
            of(json!({})),
            "spec.initContainers: Forbidden: initContainers may not be added or removed on resize",
        ),
    ] {
        assert_eq!(changes(resize, &new, &old).join("|"), wrong, "{}", new["spec"]["initContainers"]);
    }
    let policy = |name: &str| {
        container_with(json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": name}]}))
    };
    assert_eq!(
        changes(resize, &policy("RestartContainer"), &policy("NotRequired")),
        ["spec: Forbidden: only cpu and memory resources are mutable"]
    );
}

#[test]
fn cpu_and_memory_of_the_pod_as_a_whole_are_resized() {
    let with = |whole: Value| {
        let mut pod = container_with(json!({"resources": {"requests": {"cpu": "100m"}}}));
        pod["spec"]["resources"] = whole;
        pod
    };
    let cpu = |amount: &str| with(json!({"requests": {"cpu": amount}, "limits": {"cpu": "4"}}));
    for (new, old, wrong) in [
        (cpu("3"), cpu("2"), ""),
        (cpu("2"), with(Value::Null), ""),
        (
            cpu("50m"),
            cpu("2"),
            "spec.resources.requests[cpu]: Invalid value: \"50m\": must be greater than or equal to aggregate container requests of 100m",
        ),
        (with(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "4", "memory": "1Gi"}})), cpu("1"), ""),
        (with(Value::Null), cpu("2"), "spec.resources: Forbidden: pod-level resources cannot be removed"),
        (
            with(json!({"requests": {"cpu": "2"}})),
            cpu("2"),
            "spec.resources.limits: Forbidden: pod-level resource limits cannot be removed",
        ),
        (
            with(
                json!({"requests": {"cpu": "2", "hugepages-2Mi": "2Mi"}, "limits": {"cpu": "4", "hugepages-2Mi": "2Mi"}}),
            ),
            cpu("2"),
            "spec: Forbidden: only cpu and memory resources are mutable at pod-level",
        ),
    ] {
        assert_eq!(changes(resize, &new, &old).join("|"), wrong, "{}", new["spec"]["resources"]);
    }
    let mut guaranteed =
        with(json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}));
    guaranteed["status"] = json!({"qosClass": "Guaranteed"});
    let less =
        with(json!({"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}));
    assert_eq!(
        changes(resize, &less, &guaranteed),
        ["spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing"]
    );
}

#[test]
fn init_containers_that_run_once_are_not_restarted_for_their_size() {
    let with = |restart: Value| {
        pod_with(json!({"initContainers": [{"name": "i", "image": "i", "restartPolicy": restart,
            "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}]}))
    };
    assert_eq!(errors(create, &with(json!("Always"))), [""; 0]);
    let wrong = errors(create, &with(Value::Null)).join("|");
    assert!(wrong.contains("spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value"), "{wrong}");
}
