use super::super::testing::{changes, errors};
use super::*;
use serde_json::json;

// Changes of pods.
mod updates;
// Changes of the sizes of containers and of pods.
mod resize;

/// A defaulted pod with one container, changed by `patch` (merged into the spec).
fn pod_with(patch: Value) -> Value {
    let mut object = json!({"metadata": {"name": "p", "namespace": "n"},
        "spec": {"serviceAccountName": "default", "containers": [{"name": "c", "image": "i"}]}});
    for (key, value) in patch.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    crate::defaults::pods::pod(&mut object);
    object
}

/// A pod whose container is changed by `patch`.
fn container_with(patch: Value) -> Value {
    let mut container = json!({"name": "c", "image": "i"});
    for (key, value) in patch.as_object().into_iter().flatten() {
        container[key] = value.clone();
    }
    pod_with(json!({"containers": [container], "volumes": [{"name": "v", "emptyDir": {}}]}))
}

#[test]
fn good_pods() {
    let good = [
        json!({}),
        json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}),
        json!({"initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always", "startupProbe": {"exec": {"command": ["a"]}}}]}),
        json!({"tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}]}),
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}]}}}}),
        json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"], "searches": ["a_b.c."]}}),
        json!({"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": "c"}},
            {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.labels['a']"}}]}}]}}]}),
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]}),
    ];
    for spec in good {
        assert_eq!(errors(pod, &pod_with(spec.clone())), [""; 0], "{spec}");
    }
}

#[test]
fn bad_specs() {
    let cases = [
        (
            json!({"hostUsers": false, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}],
                "containers": [{"name": "c", "image": "i", "volumeDevices": [{"name": "v", "devicePath": "/d"}]}]}),
            "spec.containers[0].volumeDevices: Forbidden: when `hostUsers` is false",
        ),
        (json!({"containers": []}), "spec.containers: Required value"),
        (
            json!({"restartPolicy": "Often"}),
            "spec.restartPolicy: Unsupported value: \"Often\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
        (json!({"containers": [{"name": "c"}]}), "spec.containers[0].image: Required value"),
        (
            json!({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]}),
            "spec.containers[1].name: Duplicate value: \"c\"",
        ),
        (
            json!({"activeDeadlineSeconds": 0}),
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ),
        (
            json!({"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]}),
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (
            json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}, "cephfs": {}}]}),
            "spec.volumes[0].cephFS: Forbidden: may not specify more than 1 volume type",
        ),
        (
            json!({"volumes": [{"name": "v", "hostPath": {"type": "x"}}]}),
            "spec.volumes[0].hostPath.path: Required value",
        ),
        (json!({"volumes": [{"name": "v", "csi": {}}]}), "spec.volumes[0].csi.driver: Required value"),
        (
            json!({"volumes": [{"name": "v", "flocker": {}}]}),
            "spec.volumes[0].flocker: Required value: one of datasetName and datasetUUID is required",
        ),
        (
            json!({"volumes": [{"name": "v", "azureDisk": {"diskName": "d", "diskURI": "x", "kind": "Managed"}}]}),
            "spec.volumes[0].azureDisk.diskURI: Unsupported value: \"x\": supported values: \"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}\"",
        ),
        (
            json!({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"metadata": {"name": "x"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}]}),
            "spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set",
        ),
        (
            json!({"volumes": [{"name": "v", "secret": {}}]}),
            "spec.volumes[0].secret.secretName: Required value",
        ),
        (
            json!({"volumes": [{"name": "v", "configMap": {"name": "c", "defaultMode": 512}}]}),
            "spec.volumes[0].configMap.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
        ),
        (
            json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}),
            "spec.tolerations[0].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'",
        ),
        (
            json!({"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]}),
            "spec.tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
        ),
        (
            json!({"dnsPolicy": "None"}),
            "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
        ),
        (
            json!({"initContainers": [{"name": "i", "image": "i", "livenessProbe": {"exec": {"command": ["a"]}}}]}),
            "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
        ),
        (
            json!({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]}),
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than 0",
        ),
        (
            json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 200, "podAffinityTerm": {"topologyKey": "z"}}]}}}),
            "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 200: must be in the range 1-100",
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "A"}]}}),
            "spec.securityContext.sysctls[0].name: Invalid value: \"A\": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
        ),
        (
            json!({"securityContext": {"runAsUser": -1}}),
            "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ),
        (
            json!({"hostAliases": [{"ip": "x"}]}),
            "spec.hostAliases[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            json!({"os": {"name": "plan9"}}),
            "spec.os: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\"",
        ),
        (
            json!({"os": {"name": "linux"}, "securityContext": {"windowsOptions": {}}}),
            "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(errors(pod, &pod_with(spec.clone())), [expected], "{spec}");
    }
    let container =
        json!({"name": "c", "image": "i", "securityContext": {"privileged": true, "runAsUserName": "x"}});
    let windows = json!({"os": {"name": "windows"}, "hostPID": true, "hostIPC": false, "containers": [container],
        "securityContext": {"fsGroup": 1, "windowsOptions": {}}});
    let not = |field: &str| format!("spec.{field}: Forbidden: cannot be set for a windows pod");
    assert_eq!(
        errors(pod, &pod_with(windows)),
        [not("hostPID"), not("securityContext.fsGroup"), not("containers[0].securityContext.privileged")]
    );
}

#[test]
fn bad_containers() {
    let cases = [
        (
            json!({"ports": [{"containerPort": 0}]}),
            "spec.containers[0].ports[0].containerPort: Required value",
        ),
        (
            json!({"ports": [{"containerPort": 70000}]}),
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            json!({"ports": [{"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 80}]}),
            "spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//80\"",
        ),
        (
            json!({"env": [{"name": "A=B"}]}),
            "spec.containers[0].env[0].name: Invalid value: \"A=B\": a valid environment variable name must consist only of printable ASCII characters other than '='",
        ),
        (
            json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nope"}}}]}),
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.nope\": error converting fieldPath: field label not supported: spec.nope",
        ),
        (
            json!({"env": [{"name": "A", "value": "x", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]}),
            "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
        ),
        (
            json!({"volumeMounts": [{"name": "w", "mountPath": "/w"}]}),
            "spec.containers[0].volumeMounts[0].name: Not found: \"w\"",
        ),
        (
            json!({"volumeMounts": [{"name": "v", "mountPath": "/w"}, {"name": "v", "mountPath": "/w"}]}),
            "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/w\": must be unique",
        ),
        (
            json!({"volumeMounts": [{"name": "v", "mountPath": "/w", "subPath": "../x"}]}),
            "spec.containers[0].volumeMounts.subPath: Invalid value: \"../x\": must not contain '..'",
        ),
        (
            json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}),
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            json!({"resources": {"requests": {"memory": "-1"}}}),
            "spec.containers[0].resources.requests[memory]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            json!({"livenessProbe": {}}),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
        (
            json!({"livenessProbe": {"tcpSocket": {"port": 80}, "successThreshold": 2}}),
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            json!({"lifecycle": {"preStop": {"sleep": {"seconds": 60}}}}),
            "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 60: must be non-negative and less than terminationGracePeriodSeconds (30)",
        ),
        (
            json!({"imagePullPolicy": "Sometimes"}),
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "Localhost"}}}),
            "spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
        ),
    ];
    for (container, expected) in cases {
        assert_eq!(errors(pod, &container_with(container.clone())), [expected], "{container}");
    }
}

#[test]
fn a_pod_has_what_its_containers_have() {
    let container =
        |name: &str, resources: Value| json!({"name": name, "image": "i", "resources": resources});
    let at_least = |place: &str, is: &str, what: &str, sum: &str| {
        let why = format!("must be greater than or equal to aggregate container {what} of {sum}");
        format!("spec.resources.{place}: Invalid value: \"{is}\": {why}")
    };
    let part = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let huge = json!({"requests": {"cpu": "1m"}, "limits": {"hugepages-2Mi": "2Mi"}});
    let mut sidecar = container("s", part("300m"));
    sidecar["restartPolicy"] = json!("Always");
    let limited = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}});
    let cases = [
        (json!({"requests": {"cpu": "1"}}), vec![], vec![part("400m"), part("600m")], vec![]),
        (json!({"limits": {"cpu": "1"}}), vec![], vec![part("400m"), part("600m")], vec![]),
        (
            json!({"requests": {"cpu": "1"}}),
            vec![],
            vec![part("600m"), part("600m")],
            vec![at_least("requests[cpu]", "1", "requests", "1200m")],
        ),
        (
            json!({"requests": {"cpu": "500m"}}),
            vec![sidecar.clone(), container("i", part("400m"))],
            vec![part("100m")],
            vec![at_least("requests[cpu]", "500m", "requests", "700m")],
        ),
        (
            json!({"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}}),
            vec![],
            vec![huge.clone(), huge],
            vec![
                at_least("requests[hugepages-2Mi]", "2Mi", "requests", "4Mi"),
                at_least("limits[hugepages-2Mi]", "2Mi", "limits", "4Mi"),
            ],
        ),
        (
            json!({"limits": {"cpu": "1"}}),
            vec![],
            vec![limited],
            vec!["spec.resources.containers[0][cpu].limits: Invalid value: \"2\": must be less than or equal to pod limits of 1".to_owned()],
        ),
    ];
    for (whole, init, containers, expected) in cases {
        let containers: Vec<Value> = containers
            .into_iter()
            .zip(["a", "b"])
            .map(|(resources, name)| container(name, resources))
            .collect();
        let object = pod_with(json!({"resources": whole, "initContainers": init, "containers": containers}));
        assert_eq!(errors(pod, &object), expected, "{whole}");
    }
}

#[test]
fn files_of_variables_are_in_volumes_of_the_pod() {
    let with = |volume: &str, path: &str| {
        let file = json!({"volumeName": volume, "path": path, "key": "A"});
        let env = json!([{"name": "A", "valueFrom": {"fileKeyRef": file}}]);
        pod_with(json!({"containers": [{"name": "c", "image": "i", "env": env}],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/"}}]}))
    };
    let at = "spec.containers[0].env[0].valueFrom.fileKeyRef";
    for (volume, path, wrong) in [
        ("v", "a/b", String::new()),
        ("v", "../a", format!("{at}.path: Invalid value: \"../a\": must not contain '..'")),
        ("w", "a", format!("{at}.volumeName: Not found: \"w\"")),
        (
            "h",
            "a",
            format!("{at}.volumeName: Invalid value: \"h\": referenced volume must be of type emptyDir"),
        ),
    ] {
        assert_eq!(errors(pod, &with(volume, path)).join("|"), wrong, "{volume} {path}");
    }
}

#[test]
fn a_container_names_a_claim_once() {
    let claims = |claims: Value| {
        pod_with(json!({"resourceClaims": [{"name": "a", "resourceClaimName": "c"}],
            "containers": [{"name": "c", "image": "i", "resources": {"claims": claims}}]}))
    };
    let twice = |at: usize, what: &str| {
        format!("spec.containers[0].resources.claims[{at}]: Duplicate value: \"{what}\"")
    };
    let (all, x, y) =
        (json!({"name": "a"}), json!({"name": "a", "request": "x"}), json!({"name": "a", "request": "y"}));
    for (list, wrong) in [
        (json!([all]), vec![]),
        (json!([x, y]), vec![]),
        (json!([x, x]), vec![twice(1, "a/x")]),
        (json!([all, all]), vec![twice(1, "a")]),
        (json!([all, x]), vec![twice(1, "a")]),
        (json!([x, all]), vec![twice(1, "a")]),
    ] {
        assert_eq!(errors(pod, &claims(list.clone())), wrong, "{list}");
    }
}

#[test]
fn labels_by_mount_are_not_new() {
    let with = |policy: Value| json!({"securityContext": {"seLinuxChangePolicy": policy}});
    let (mount, recursive) = (pod_with(with(json!("MountOption"))), pod_with(with(json!("Recursive"))));
    let refused = |at: &str| {
        format!(
            "{at}.securityContext.seLinuxChangePolicy: Unsupported value: \"MountOption\": supported values: \"Recursive\""
        )
    };
    assert_eq!(errors(pod, &mount), [""; 0]);
    assert_eq!(errors(create, &recursive), [""; 0]);
    assert_eq!(errors(create, &mount), [refused("spec")]);
    let of = |policy: Value| json!({"template": {"spec": with(policy)}});
    let at = refused("template.spec");
    assert_eq!(errors(new_pod_template, &of(json!("MountOption"))), std::slice::from_ref(&at));
    for (before, wrong) in [(json!(null), at), (json!("Recursive"), String::new())] {
        let said = changes(pod_template_update, &of(json!("MountOption")), &of(before)).join("|");
        assert_eq!(said, wrong);
    }
}

#[test]
fn restart_rules_are_few() {
    let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}});
    let object = container_with(json!({"restartPolicy": "Never", "restartPolicyRules": vec![rule; 25]}));
    assert_eq!(
        errors(pod, &object),
        ["spec.containers[0].restartPolicyRules: Too many: 25: must have at most 20 items"]
    );
}

#[test]
fn new_pods_have_no_ephemeral_containers() {
    let object = pod_with(json!({"ephemeralContainers": [{"name": "d", "image": "i"}]}));
    assert_eq!(errors(create, &object), ["spec.ephemeralContainers: Forbidden: cannot be set on create"]);
}
