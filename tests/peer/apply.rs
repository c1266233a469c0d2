//! Server-side apply and managed fields, in their corners.

use crate::both::{Place, on_both};
use coracle_tests::kubectl::Output;
use serde_json::{Value, json};

fn apply(place: &Place, manager: &str, flags: &str, object: &Value) -> Output {
    place.try_run(&format!("apply --server-side --field-manager={manager} {flags} -f -"), &object.to_string())
}

fn told(output: &Output) -> String {
    let text =
        if output.ok { format!("{}{}", output.err, output.out) } else { format!("failed: {}", output.err) };
    text.trim().replace('\n', " | ")
}

/// Managers with their operation, subresource and fields; times are left out.
fn managers(place: &Place, object: &str) -> String {
    let entries = place.get(&format!("{object} --show-managed-fields"))["metadata"]["managedFields"].clone();
    let mut lines: Vec<String> = entries
        .as_array()
        .into_iter()
        .flatten()
        // Those of the control plane have other names.
        .filter(|entry| !entry["manager"].as_str().unwrap_or_default().contains("controller"))
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap_or("-").to_owned();
            format!(
                "{} {} {} {} {}",
                text("manager"),
                text("operation"),
                text("subresource"),
                text("apiVersion"),
                entry["fieldsV1"]
            )
        })
        .collect();
    lines.sort();
    lines.join("\n    ")
}

fn deployment(change: impl Fn(&mut Value)) -> Value {
    let mut made = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "replicas": 0, "selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}}, "spec": {
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}]}]}}}});
    change(&mut made);
    made
}

#[test]
fn conflicts_force_and_shared_ownership() {
    on_both("ssaconflict", |place| {
        let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
        place.saw("create", told(&apply(place, "one", "", &map(json!({"a": "1", "b": "1"})))));
        place.saw("same value", told(&apply(place, "two", "", &map(json!({"a": "1"})))));
        place.saw("shared", managers(place, "cm/m"));
        place.saw("conflict", told(&apply(place, "two", "", &map(json!({"a": "2", "b": "2"})))));
        place.saw("forced", told(&apply(place, "two", "--force-conflicts", &map(json!({"a": "2"})))));
        place.saw("after force", managers(place, "cm/m"));
        place.saw("given up", told(&apply(place, "one", "", &map(json!({"b": "1"})))));
        place.saw("removed by one of two", told(&apply(place, "two", "", &map(json!({})))));
        place.saw("data", place.value("cm/m", "{.data}"));
        place.saw("managers", managers(place, "cm/m"));
        place.patch("cm/m", &json!({"data": {"b": "3"}}));
        place.saw("conflict with an update", told(&apply(place, "one", "", &map(json!({"b": "1"})))));
        place.saw(
            "nothing set",
            told(&apply(
                place,
                "one",
                "",
                &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}),
            )),
        );
        place.saw("data", place.value("cm/m", "{.data}"));
        place.saw("managers", managers(place, "cm/m"));
        place.saw("dry run", told(&apply(place, "three", "--dry-run=server", &map(json!({"z": "1"})))));
        place.saw("dry run changed nothing", place.value("cm/m", "{.data}"));
        let output = place.try_run("apply --server-side --field-manager= -f -", &map(json!({})).to_string());
        place.saw("no manager", told(&output));
    });
}

#[test]
fn lists_by_key_sets_atomic_lists_and_nulls() {
    on_both("ssalists", |place| {
        place.saw("create", told(&apply(place, "one", "", &deployment(|_| ()))));
        let more = deployment(|d| {
            d["spec"] = json!({"template": {"spec": {"containers": [{"name": "c", "env": [{"name": "B", "value": "2"}],
                "ports": [{"containerPort": 81, "protocol": "UDP"}]}, {"name": "side", "image": "s"}]}}});
        });
        place.saw("another manager's items", told(&apply(place, "two", "", &more)));
        place.saw(
            "containers",
            place.value("deploy/d", "{range .spec.template.spec.containers[*]}{.name}:{.env}{.ports} {end}"),
        );
        place.saw("managers", managers(place, "deploy/d"));
        let twice = deployment(|d| {
            d["spec"]["template"]["spec"]["containers"][0]["env"] =
                json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
        });
        place.saw("duplicate keys", told(&apply(place, "one", "", &twice)));
        let ports = deployment(|d| {
            d["spec"]["template"]["spec"]["containers"][0]["ports"] =
                json!([{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]);
        });
        place.saw("duplicate keys by default", told(&apply(place, "one", "", &ports)));
        let arguments = |list: Value| {
            deployment(move |d| d["spec"]["template"]["spec"]["containers"][0]["args"] = list.clone())
        };
        place.saw("atomic list", told(&apply(place, "one", "", &arguments(json!(["a", "b"])))));
        place.saw("atomic list of another", told(&apply(place, "two", "", &arguments(json!(["a"])))));
        let null = deployment(|d| d["spec"]["replicas"] = Value::Null);
        place.saw("null gives up a field", told(&apply(place, "one", "", &null)));
        place.saw("replicas", place.value("deploy/d", "{.spec.replicas}"));
        let unknown = deployment(|d| d["spec"]["unknown"] = json!(1));
        place.saw("unknown field", told(&apply(place, "one", "", &unknown)));
        place.saw("unknown field, unchecked", told(&apply(place, "one", "--validate=ignore", &unknown)));
        let wrong = deployment(|d| d["spec"]["replicas"] = json!("two"));
        place.saw("wrong type", told(&apply(place, "one", "", &wrong)));
        let managed = deployment(|d| d["metadata"]["managedFields"] = json!([{"manager": "x"}]));
        place.saw("managed fields in the object", told(&apply(place, "one", "", &managed)));
        let finalizers = |manager: &str, list: Value| {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "set", "finalizers": list}});
            told(&apply(place, manager, "", &object))
        };
        place.saw("set", finalizers("one", json!(["example.com/a"])));
        place.saw("set of another", finalizers("two", json!(["example.com/b"])));
        place.saw("duplicate in a set", finalizers("two", json!(["example.com/b", "example.com/b"])));
        place.saw("union", place.value("cm/set", "{.metadata.finalizers}"));
        place.saw("one leaves", finalizers("one", json!([])));
        place.saw("rest", place.value("cm/set", "{.metadata.finalizers}"));
        place.patch("cm/set", &json!({"metadata": {"finalizers": null}}));
    });
}

/// Who owns the number of replicas, by which write.
fn owners(place: &Place, object: &str) -> String {
    let entries = place.get(&format!("{object} --show-managed-fields"))["metadata"]["managedFields"].clone();
    let owns = |entry: &&Value| !entry["fieldsV1"]["f:spec"]["f:replicas"].is_null();
    let mut lines: Vec<String> = entries
        .as_array()
        .into_iter()
        .flatten()
        .filter(owns)
        .map(|entry| {
            format!(
                "{} {} {} {}",
                entry["manager"], entry["operation"], entry["subresource"], entry["apiVersion"]
            )
        })
        .collect();
    lines.sort();
    lines.join(", ")
}

#[test]
fn the_number_of_replicas_belongs_to_who_changed_it_through_scale() {
    on_both("scaleowners", |place| {
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "boats.scaleowners.example.com"},
            "spec": {"group": "scaleowners.example.com", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}, "colour": {"type": "string"}}}}}}}]}});
        place.create_cluster("crd", &definition);
        let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let labels = json!({"app": "d"});
        let selector = json!({"matchLabels": labels});
        let spec = |selector: &Value| json!({"replicas": 0, "selector": selector, "template": template});
        for (version, kind, resource, spec) in [
            ("apps/v1", "Deployment", "deployments.apps", spec(&selector)),
            ("apps/v1", "ReplicaSet", "replicasets.apps", spec(&selector)),
            ("apps/v1", "StatefulSet", "statefulsets.apps", spec(&selector)),
            ("v1", "ReplicationController", "replicationcontrollers", spec(&labels)),
            (
                "scaleowners.example.com/v1",
                "Boat",
                "boats.scaleowners.example.com",
                json!({"replicas": 0, "colour": "red"}),
            ),
        ] {
            let object = format!("{resource}/o");
            let made = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "o"}, "spec": spec});
            let create = "create -f - --field-manager=creator";
            coracle_tests::eventually("the kind is served", crate::both::PATIENCE, || {
                place.try_run(create, &made.to_string()).ok
            });
            let scale = |manager: &str, replicas: u8| {
                let patch = json!({"spec": {"replicas": replicas}}).to_string();
                let field_manager = format!("--field-manager={manager}");
                let args = [
                    "-n",
                    &place.name,
                    "patch",
                    &object,
                    "--subresource=scale",
                    "--type=merge",
                    "-p",
                    &patch,
                    &field_manager,
                ];
                let output = place.kubectl.with_input(&args, "");
                assert!(output.ok, "{object}: {}", output.err);
            };
            place.saw(&format!("{kind} created"), owners(place, &object));
            scale("one", 1);
            place.saw(&format!("{kind} scaled"), owners(place, &object));
            scale("one", 2);
            place.saw(&format!("{kind} scaled again"), owners(place, &object));
            scale("two", 1);
            place.saw(&format!("{kind} scaled by another"), owners(place, &object));
            // Its owner has nothing else, so that nothing is lost.
            scale("three", 1);
            place.saw(&format!("{kind} scaled to what it has"), owners(place, &object));
            let applied = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "o"}, "spec": {"replicas": 3}});
            let why = apply(place, "applier", "", &applied);
            place.saw(&format!("{kind} applied"), why.err.contains("conflict with \"two\""));
            place.run(&format!("delete {object} --cascade=orphan --wait=false"));
        }
    });
}

#[test]
fn managed_fields_of_updates_status_and_subresources() {
    on_both("managed", |place| {
        place.run("create deployment d --image=i --replicas=0");
        place.until("deploy/d", "{.status.observedGeneration}", |generation| !generation.is_empty());
        place.run("label deployment d x=y");
        place.run("annotate deployment d a=b --field-manager=other");
        let known = |text: String| -> String {
            // Controllers have other names here; what they own is theirs.
            text.lines().filter(|line| !line.contains("controller")).collect::<Vec<_>>().join("\n")
        };
        place.saw("updates", known(managers(place, "deploy/d")));
        let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "status": {"replicas": 7}});
        place.saw(
            "apply to status",
            told(&apply(place, "st", "--subresource=status --force-conflicts", &status)),
        );
        let spec = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": {"no": "no"}}, "spec": {"replicas": 3}});
        place.saw("spec through status", told(&apply(place, "st2", "--subresource=status", &spec)));
        place.saw("replicas", place.value("deploy/d", "{.spec.replicas} {.metadata.labels}"));
        // Not what `st` owns: the controller takes it back, sooner or later.
        let all = managers(place, "deploy/d");
        assert!(!all.is_empty(), "others have changed it");
        let owned: Vec<_> = all.lines().map(str::trim).filter(|line| line.starts_with("st2 ")).collect();
        place.saw("managed through status", owned.join("\n"));
        // No more than ten managers of updates are remembered: older ones become one.
        place.run("create configmap many --from-literal=first=1");
        for number in 0..13 {
            place.run(&format!(
                "annotate configmap many --overwrite a{number}=x --field-manager=m{number:02}"
            ));
        }
        place.saw("many", managers(place, "cm/many"));
        place.saw("emptied", told(&place.patch("cm/many", &json!({"metadata": {"managedFields": [{}]}}))));
        place.saw("after", managers(place, "cm/many"));
        place.run("annotate configmap many z=z --field-manager=late");
        place.saw("begun again", managers(place, "cm/many"));
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "many", "annotations": {"z": "q"}}});
        place.saw("apply to what was updated", told(&apply(place, "one", "", &map)));
        // The same update by the same manager is no new entry, and a change of nothing is no write.
        place.run("annotate configmap many --overwrite z=z --field-manager=late");
        let version = place.value("cm/many", "{.metadata.resourceVersion}");
        place.run("annotate configmap many --overwrite z=z --field-manager=late");
        place.saw("unchanged", version == place.value("cm/many", "{.metadata.resourceVersion}"));
        let before = place.get("cm/many --show-managed-fields")["metadata"]["managedFields"].clone();
        std::thread::sleep(std::time::Duration::from_millis(1100));
        let same = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "many"}, "data": {"k": "v"}});
        apply(place, "timed", "", &same);
        let first = place.get("cm/many --show-managed-fields")["metadata"]["managedFields"].clone();
        std::thread::sleep(std::time::Duration::from_millis(1100));
        apply(place, "timed", "", &same);
        let second = place.get("cm/many --show-managed-fields")["metadata"]["managedFields"].clone();
        place.saw(
            "times of others stay",
            before
                .as_array()
                .into_iter()
                .flatten()
                .all(|entry| first.as_array().is_some_and(|all| all.contains(entry))),
        );
        place.saw("the time of what did not change stays", first == second);
    });
}
