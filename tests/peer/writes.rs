//! Field validation, dry runs, isolation of status, warnings.

use crate::both::{Place, alone, on_both};
use coracle_tests::kubectl::Output;
use serde_json::{Value, json};

fn told(output: &Output) -> String {
    let text =
        if output.ok { format!("{}{}", output.err, output.out) } else { format!("failed: {}", output.err) };
    text.trim().replace('\n', " | ")
}

fn pod(change: impl Fn(&mut Value)) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "automountServiceAccountToken": false, "schedulingGates": [{"name": "example.com/wait"}], "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i"}]}});
    change(&mut pod);
    pod
}

#[test]
fn unknown_and_duplicate_fields_are_refused_warned_about_or_ignored() {
    on_both("fieldvalidation", |place| {
        let unknown = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":"NS","lables":{}},"data":{"a":"1"},"extra":{"b":1}}"#;
        let twice = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":"NS","name":"m"},"data":{"a":"1","a":"2"}}"#;
        let case = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":"NS"},"Data":{"a":"1"}}"#;
        let wrong = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":"NS"},"data":{"a":1}}"#;
        let kind = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"m","namespace":"NS"}}"#;
        let nothing = r#"{"metadata":{"name":"m","namespace":"NS"}}"#;
        for (name, body) in [
            ("unknown", unknown),
            ("twice", twice),
            ("case", case),
            ("wrong", wrong),
            ("kind", kind),
            ("nothing", nothing),
        ] {
            for mode in ["Strict", "Warn", "Ignore", "Other"] {
                let path =
                    format!("/api/v1/namespaces/{}/configmaps?fieldValidation={mode}&dryRun=All", place.name);
                let body = body.replace("NS", &place.name);
                let output = place.try_run(&format!("create --raw {path} -f -"), &body);
                let said = if output.ok {
                    let made: Value = serde_json::from_str(&output.out).unwrap_or_default();
                    format!("{} {}", made["data"], output.err.trim().replace('\n', " | "))
                } else {
                    format!("failed: {}", output.err.trim())
                };
                place.saw(&format!("{name} {mode}"), said);
            }
        }
        // In YAML, and in patches.
        let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\n  name: yaml\ndata:\n  a: b\n  a: c\nmore: 1\n";
        for mode in ["strict", "warn", "ignore"] {
            place.saw(
                &format!("yaml {mode}"),
                told(
                    &place.try_run(
                        &format!("apply --server-side --dry-run=server --validate={mode} -f -"),
                        yaml,
                    ),
                ),
            );
        }
        place.create(&pod(|_| ()));
        for kind in ["merge", "strategic", "json"] {
            let patch = match kind {
                "json" => json!([{"op": "add", "path": "/spec/unknown", "value": 1}]).to_string(),
                _ => {
                    json!({"spec": {"unknown": 1, "containers": [{"name": "c", "image": "i", "imag": "x"}]}})
                        .to_string()
                }
            };
            let args =
                ["-n", &place.name, "patch", "pod/p", "--type", kind, "-p", &patch, "--dry-run=server"];
            place.saw(&format!("patch {kind}"), told(&place.kubectl.with_input(&args, "")));
        }
    });
}

#[test]
fn what_stands_twice_is_read_over_the_first_value() {
    on_both("repeated", |place| {
        let body = |fields: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"m","namespace":"{}","labels":{{"a":"1","b":"1"}}}},{fields}}}"#,
                place.name
            )
        };
        for (what, fields) in [
            (
                "metadata",
                r#""metadata":{"labels":{"b":"2"}},"spec":{"containers":[{"name":"a","image":"x"}]}"#,
            ),
            (
                "lists",
                r#""spec":{"containers":[{"name":"a","image":"x","env":[{"name":"A","value":"1"}]},{"name":"b","image":"y"}],
                "containers":[{"name":"c","env":[{"name":"B"}]}]}"#,
            ),
            (
                "structs",
                r#""spec":{"containers":[{"name":"a","image":"x"}],"securityContext":{"runAsUser":1},"securityContext":{"runAsGroup":2}}"#,
            ),
            ("null", r#""spec":{"containers":[{"name":"a","image":"x"}],"nodeName":"n","nodeName":null}"#),
        ] {
            for mode in ["Strict", "Warn", "Ignore"] {
                let path =
                    format!("/api/v1/namespaces/{}/pods?fieldValidation={mode}&dryRun=All", place.name);
                let output = place.try_run(&format!("create --raw {path} -f -"), &body(fields));
                let made: Value = serde_json::from_str(&output.out).unwrap_or_default();
                let spec = &made["spec"];
                let containers = spec["containers"].as_array().cloned().unwrap_or_default();
                let shown: Vec<String> =
                    containers.iter().map(|c| format!("{} {} {}", c["name"], c["image"], c["env"])).collect();
                let kept = [&made["metadata"]["labels"], &spec["nodeName"], &spec["securityContext"]];
                let said = output.err.trim().replace('\n', " | ");
                place.saw(&format!("{what} {mode}"), format!("{shown:?} {kept:?} {said}"));
            }
        }
    });
}

#[test]
fn a_dry_run_is_admitted_and_checked_and_stores_nothing() {
    on_both("dryrun", |place| {
        place.saw(
            "create",
            told(&place.try_run(
                "create -f - --dry-run=server -o jsonpath={.status.qosClass}{.spec.serviceAccountName}",
                &pod(|_| ()).to_string(),
            )),
        );
        place.saw(
            "invalid",
            told(&place.try_run(
                "create -f - --dry-run=server",
                &pod(|p| p["spec"]["containers"] = json!([])).to_string(),
            )),
        );
        place.see("get pods -o name", "");
        place.run("create configmap m --from-literal=a=1");
        let version = place.value("cm/m", "{.metadata.resourceVersion}");
        place.see("delete configmap m --dry-run=server", "");
        place.see("label configmap m x=y --dry-run=server", "");
        place.see(
            "replace -f - --dry-run=server",
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "2"}})
                .to_string(),
        );
        place.saw("unchanged", version == place.value("cm/m", "{.metadata.resourceVersion}"));
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        let made = place.try_run("create -f - --dry-run=server -o json", &service.to_string());
        let made: Value = serde_json::from_str(&made.out).unwrap_or_default();
        place.saw(
            "a service has an address and a port",
            made["spec"]["clusterIP"].is_string() && made["spec"]["ports"][0]["nodePort"].is_number(),
        );
        place.see(
            "create --raw /api/v1/namespaces/default/configmaps?dryRun=Some -f -",
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}"#,
        );
        let policy = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["All"]}});
        place.create(&pod(|_| ()));
        let path = format!("/api/v1/namespaces/{}/pods/p/eviction", place.name);
        place
            .saw("eviction", told(&place.try_run(&format!("create --raw {path} -f -"), &policy.to_string())));
        place.see("get pods -o name", "");
    });
}

#[test]
fn status_and_spec_are_written_apart() {
    let _turn = alone();
    on_both("isolation", |place| {
        let objects = [
            ("pod/p", pod(|_| ())),
            (
                "deploy/d",
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 0, "paused": true,
                "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
                "status": {"replicas": 9, "readyReplicas": 9}}),
            ),
            (
                "pvc/c",
                json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Bound"}}),
            ),
            (
                "ingress/i",
                json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}, "spec": {"defaultBackend":
                {"service": {"name": "s", "port": {"number": 80}}}}, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}),
            ),
            (
                "pdb/b",
                json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {"maxUnavailable": 1,
                "selector": {"matchLabels": {"no": "thing"}}}, "status": {"currentHealthy": 7}}),
            ),
            (
                "cronjob/c",
                json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {"schedule": "0 0 1 1 *", "suspend": true,
                "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}},
                "status": {"lastScheduleTime": "2020-01-01T00:00:00Z"}}),
            ),
        ];
        for (name, object) in objects {
            place.create(&object);
            let status = |place: &Place| {
                let status = place.get(name)["status"].clone();
                ["phase", "replicas", "readyReplicas", "loadBalancer", "currentHealthy", "lastScheduleTime"]
                    .map(|key| status[key].to_string())
                    .join(" ")
            };
            place.saw(&format!("{name}: status of a new object"), status(place));
            let generation = place.value(name, "{.metadata.generation}");
            let change = json!({"metadata": {"labels": {"by": "status"}, "annotations": {"by": "status"}, "finalizers": ["example.com/x"]}, "spec": {"paused": false, "suspend": false,
                "maxUnavailable": 5, "activeDeadlineSeconds": 77, "ingressClassName": "other", "volumeName": "other"}}).to_string();
            let args = [
                "-n",
                &place.name,
                "patch",
                name,
                "--subresource=status",
                "--type=merge",
                "--validate=false",
                "-p",
                &change,
            ];
            let output = place.kubectl.with_input(&args, "");
            place.saw(
                &format!("{name}: spec and metadata through status"),
                if output.ok { "accepted".to_owned() } else { told(&output) },
            );
            let after = place.get(name);
            place.saw(
                &format!("{name}: metadata"),
                format!(
                    "{} {} {}",
                    after["metadata"]["labels"],
                    after["metadata"]["annotations"]["by"],
                    after["metadata"]["finalizers"]
                ),
            );
            place.saw(
                &format!("{name}: spec"),
                [
                    "paused",
                    "suspend",
                    "maxUnavailable",
                    "activeDeadlineSeconds",
                    "ingressClassName",
                    "volumeName",
                ]
                .map(|key| after["spec"][key].to_string())
                .join(" "),
            );
            place.saw(
                &format!("{name}: generation unchanged"),
                generation == place.value(name, "{.metadata.generation}"),
            );
            let output = place.patch(name, &json!({"status": {"phase": "Failed", "replicas": 5, "currentHealthy": 5, "lastScheduleTime": "2021-01-01T00:00:00Z"}}));
            place.saw(&format!("{name}: status through the object"), output.err.trim().replace('\n', " | "));
            if !name.starts_with("deploy") {
                place.saw(&format!("{name}: status"), status(place));
            }
            place.patch(name, &json!({"metadata": {"finalizers": null}}));
        }
    });
}

#[test]
fn warnings_of_deprecated_kinds_fields_and_values() {
    let _turn = alone();
    on_both("warnings", |place| {
        let pods: Vec<(&str, Value)> = vec![
            ("beta label", pod(|p| p["spec"]["nodeSelector"] = json!({"beta.kubernetes.io/os": "linux"}))),
            (
                "beta label of a zone",
                pod(|p| p["spec"]["nodeSelector"] = json!({"failure-domain.beta.kubernetes.io/zone": "a"})),
            ),
            (
                "seccomp annotation",
                pod(|p| {
                    p["metadata"]["annotations"] = json!({"seccomp.security.alpha.kubernetes.io/pod": "unconfined",
                "container.seccomp.security.alpha.kubernetes.io/c": "unconfined"})
                }),
            ),
            (
                "apparmor annotation",
                pod(|p| {
                    p["metadata"]["annotations"] =
                        json!({"container.apparmor.security.beta.kubernetes.io/c": "unconfined"})
                }),
            ),
            (
                "duplicate variables",
                pod(|p| {
                    p["spec"]["containers"][0]["env"] =
                        json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])
                }),
            ),
            (
                "host path type",
                pod(|p| p["spec"]["volumes"] = json!([{"name": "v", "gitRepo": {"repository": "x"}}])),
            ),
            (
                "fractional bytes",
                pod(|p| p["spec"]["containers"][0]["resources"] = json!({"requests": {"memory": "1500m"}})),
            ),
            ("grace", pod(|p| p["spec"]["terminationGracePeriodSeconds"] = json!(-1))),
            (
                "host alias",
                pod(|p| {
                    p["spec"]["hostAliases"] =
                        json!([{"ip": "1.2.3.4", "hostnames": ["a"]}, {"ip": "1.2.3.4", "hostnames": ["b"]}])
                }),
            ),
            (
                "pull secrets",
                pod(|p| p["spec"]["imagePullSecrets"] = json!([{}, {"name": "a"}, {"name": "a"}])),
            ),
            ("name with dots", pod(|p| p["metadata"]["name"] = json!("a.b"))),
            (
                "spread keys",
                pod(
                    |p| p["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "failure-domain.beta.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]),
                ),
            ),
            (
                "ports",
                pod(|p| {
                    p["spec"]["containers"][0]["ports"] =
                        json!([{"containerPort": 80}, {"containerPort": 80, "name": "b"}])
                }),
            ),
            (
                "priority annotation",
                pod(|p| {
                    p["metadata"]["annotations"] = json!({"scheduler.alpha.kubernetes.io/critical-pod": ""})
                }),
            ),
            (
                "overlapping paths",
                pod(
                    |p| p["spec"]["volumes"] = json!([{"name": "v", "projected": {"sources": [{"configMap": {"name": "a", "items": [{"key": "x", "path": "x"}]}}, {"secret": {"name": "b", "items": [{"key": "x", "path": "x"}]}}]}}]),
                ),
            ),
        ];
        for (name, object) in pods {
            let output = place.try_run("create -f - --dry-run=server -o name", &object.to_string());
            place.saw(name, told(&output));
        }
        let others = [
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "annotations": {"service.alpha.kubernetes.io/tolerate-unready-endpoints": "true"}},
                "spec": {"ports": [{"port": 80}], "externalIPs": ["10.0.0.1"], "loadBalancerIP": "1.2.3.4", "sessionAffinity": "ClientIP", "clusterIP": "None"}}),
            json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "1.2.3.4"}}),
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i", "annotations": {"kubernetes.io/ingress.class": "x"}},
                "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "w", "annotations": {"volume.beta.kubernetes.io/storage-class": "x"}}, "spec": {
                "capacity": {"storage": "1500m"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Recycle", "hostPath": {"path": "/x"}}}),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "w", "annotations": {"volume.beta.kubernetes.io/storage-class": "x"}}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1500m"}}}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d.e"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"beta.kubernetes.io/arch": "x"}, "containers": [{"name": "c", "image": "i"}]}}}}),
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {"schedule": "TZ=UTC 0 0 * * *",
                "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}),
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j.k"}, "spec": {"completions": 200_000, "parallelism": 20_000, "completionMode": "Indexed",
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {"maxUnavailable": 1, "selector": {}}}),
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w", "labels": {"beta.kubernetes.io/os": "linux"}}, "spec": {"podCIDR": "10.0.0.0/24", "externalID": "x",
                "configSource": {"configMap": {"name": "a", "namespace": "b", "kubeletConfigKey": "c"}}}}),
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "w"}, "provisioner": "x", "allowedTopologies": [
                {"matchLabelExpressions": [{"key": "failure-domain.beta.kubernetes.io/zone", "values": ["a"]}]}]}),
            json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "w"}, "handler": "x", "scheduling": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}]}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": "kubernetes.io/service-account-token"}),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a-b", "labels": {"pod-security.kubernetes.io/enforce": "strict"}}}),
        ];
        for object in others {
            let kind = object["kind"].as_str().unwrap().to_owned();
            let output = place.try_run("create -f - --dry-run=server -o name", &object.to_string());
            place.saw(&kind, told(&output));
        }
        place.see("get componentstatuses etcd-0 -o name", "");
    });
}
