#![allow(clippy::unwrap_used)]
use super::super::test_values::deployment;
use super::super::types::named;
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn writer<'a>(manager: &'a str, now: &'a str) -> Writer<'a> {
    Writer {
        custom: None,
        ty: named("io.k8s.api.apps.v1.Deployment"),
        api_version: "apps/v1",
        manager,
        subresource: "",
        reset: &["status"],
        now,
    }
}

const T0: &str = "2026-01-01T00:00:00Z";
const T1: &str = "2026-01-01T00:00:05Z";

fn base() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{
                    "name": "web", "image": "nginx",
                    "ports": [{"containerPort": 80}], "resources": {},
                }], "securityContext": {}},
            },
        },
    })
}

/// As the store would hold it.
fn stored(mut object: Value) -> Value {
    object["metadata"]["uid"] = json!("u-1");
    object["metadata"]["resourceVersion"] = json!("7");
    object
}

fn fields(object: &Value, manager: &str) -> Value {
    let list = object["metadata"]["managedFields"].as_array().unwrap();
    list.iter().find(|e| e["manager"] == manager).map(|e| e["fieldsV1"].clone()).unwrap_or(Value::Null)
}

#[test]
fn a_create_owns_what_it_sets_in_the_form_clients_know() {
    let mut object = base();
    update(None, &mut object, &writer("kubectl-create", T0));
    let entry = &object["metadata"]["managedFields"][0];
    assert_eq!(
        (&entry["manager"], &entry["operation"], &entry["apiVersion"], &entry["time"], &entry["fieldsType"]),
        (&json!("kubectl-create"), &json!("Update"), &json!("apps/v1"), &json!(T0), &json!("FieldsV1"))
    );
    assert_eq!(
        entry["fieldsV1"],
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:replicas": {},
                "f:selector": {},
                "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
                "f:template": {
                    "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                    "f:spec": {
                        "f:containers": {"k:{\"name\":\"web\"}": {
                            ".": {}, "f:image": {}, "f:name": {},
                            "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                            "f:resources": {},
                        }},
                        "f:securityContext": {},
                    },
                },
            },
        })
    );
}

#[test]
fn an_update_takes_over_what_it_changes_and_only_that() {
    let mut first = base();
    update(None, &mut first, &writer("a", T0));
    let first = stored(first);
    let mut second = first.clone();
    second["spec"]["replicas"] = json!(3);
    second["metadata"]["labels"].as_object_mut().unwrap().remove("app");
    second["metadata"]["labels"]["tier"] = json!("x");
    update(Some(&first), &mut second, &writer("b", T1));
    assert_eq!(
        fields(&second, "b"),
        json!({"f:metadata": {"f:labels": {"f:tier": {}}}, "f:spec": {"f:replicas": {}}})
    );
    assert_eq!(fields(&second, "a")["f:metadata"], json!({"f:labels": {}}));
    assert_eq!(fields(&second, "a")["f:spec"].get("f:replicas"), None);
    // Nothing changed: nothing changes hands, not even the time.
    let mut third = second.clone();
    update(Some(&second), &mut third, &writer("c", "2026-01-02T00:00:00Z"));
    assert_eq!(third, second);
}

#[test]
fn status_and_spec_writers_do_not_own_each_others_half() {
    let mut object = base();
    object["status"] = json!({"replicas": 9});
    update(None, &mut object, &writer("kubectl", T0));
    assert_eq!(fields(&object, "kubectl").get("f:status"), None);
    let live = stored(object);
    let mut new = live.clone();
    new["status"] = json!({"replicas": 1, "conditions": [{"type": "Available", "status": "True"}]});
    let status = Writer { subresource: "status", reset: &["spec"], ..writer("controller", T1) };
    update(Some(&live), &mut new, &status);
    let entry = new["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["manager"] == "controller")
        .unwrap();
    assert_eq!(entry["subresource"], "status");
    assert_eq!(
        entry["fieldsV1"],
        json!({"f:status": {"f:conditions": {".": {}, "k:{\"type\":\"Available\"}": {".": {}, "f:status": {}, "f:type": {}}}, "f:replicas": {}}})
    );
}

#[test]
fn a_client_may_forget_or_replace_owners() {
    let mut object = base();
    update(None, &mut object, &writer("a", T0));
    let live = stored(object);
    for reset in [json!([]), json!([{}])] {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = reset;
        update(Some(&live), &mut new, &writer("a", T1));
        assert_eq!(new["metadata"].get("managedFields"), None);
        let bare = new.clone();
        new["spec"]["replicas"] = json!(5);
        update(Some(&bare), &mut new, &writer("a", T1));
        assert_eq!(new["metadata"].get("managedFields"), None, "untracked objects stay so");
    }
    let mut renamed = live.clone();
    renamed["metadata"]["managedFields"][0]["manager"] = json!("z");
    update(Some(&live), &mut renamed, &writer("a", T1));
    assert_eq!(fields(&renamed, "a"), Value::Null);
    assert_ne!(fields(&renamed, "z"), Value::Null);
}

#[test]
fn the_eleventh_updater_pushes_the_oldest_into_ancient_changes() {
    let mut live = base();
    update(None, &mut live, &writer("m00", "2026-01-01T00:00:00Z"));
    let mut live = stored(live);
    for i in 1..=10 {
        let mut new = live.clone();
        new["metadata"]["labels"][format!("l{i}")] = json!("x");
        update(Some(&live), &mut new, &writer(&format!("m{i:02}"), &format!("2026-01-01T00:00:{i:02}Z")));
        live = new;
    }
    let managers: Vec<&str> = live["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["manager"].as_str().unwrap())
        .collect();
    assert_eq!(managers.len(), 10);
    assert!(
        managers.contains(&"ancient-changes") && !managers.contains(&"m00") && !managers.contains(&"m01")
    );
    assert_eq!(fields(&live, "ancient-changes")["f:metadata"]["f:labels"]["f:l1"], json!({}));
}

#[test]
fn conflicts_name_the_owner_and_the_field() {
    let mut live = base();
    update(None, &mut live, &writer("kubectl", T0));
    let live = stored(live);
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2}});
    let error = apply(Some(&live), &config, &writer("ci", T1), false).unwrap_err();
    assert_eq!(error.code, 409);
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"kubectl\" using apps/v1: .spec.replicas"
    );
    let cause = &error.details.causes[0];
    assert_eq!(
        (cause.reason, cause.field.as_str(), cause.message.as_str()),
        ("FieldManagerConflict", ".spec.replicas", "conflict with \"kubectl\" using apps/v1")
    );

    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2,
        "template": {"spec": {"containers": [{"name": "web", "image": "other"}]}}}});
    let error = apply(Some(&live), &config, &writer("ci", T1), false).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 2 conflicts: conflicts with \"kubectl\" using apps/v1:\n- .spec.replicas\n- .spec.template.spec.containers[name=\"web\"].image"
    );

    let forced = apply(Some(&live), &config, &writer("ci", T1), true).unwrap();
    assert_eq!(forced["spec"]["replicas"], 2);
    assert_eq!(fields(&forced, "kubectl")["f:spec"].get("f:replicas"), None);
    assert_eq!(fields(&forced, "ci")["f:spec"]["f:replicas"], json!({}));
    // Another applier is named without its version.
    let error = apply(
        Some(&stored(forced)),
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 4}}),
        &writer("x", T1),
        false,
    )
    .unwrap_err();
    assert_eq!(error.message, "Apply failed with 1 conflict: conflict with \"ci\": .spec.replicas");
}

#[test]
fn the_same_value_is_shared_not_contested() {
    let mut live = base();
    update(None, &mut live, &writer("kubectl", T0));
    let live = stored(live);
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 1}});
    let shared = apply(Some(&live), &config, &writer("ci", T1), false).unwrap();
    assert_eq!(fields(&shared, "ci"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(fields(&shared, "kubectl")["f:spec"]["f:replicas"], json!({}));
}

#[test]
fn list_items_come_and_go_with_their_appliers() {
    let config = |ports: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"template": {"spec": {"containers": [{"name": "web", "image": "nginx", "ports": ports}]}}}})
    };
    let a = config(json!([{"containerPort": 80}, {"containerPort": 90, "protocol": "UDP"}]));
    let one = stored(apply(None, &a, &writer("a", T0), false).unwrap());
    // An omitted protocol is TCP: the same item, not a second one.
    let b = config(json!([{"containerPort": 80, "protocol": "TCP", "name": "http"}]));
    let two = apply(Some(&one), &b, &writer("b", T1), false).unwrap();
    let ports = &two["spec"]["template"]["spec"]["containers"][0]["ports"];
    assert_eq!(ports.as_array().unwrap().len(), 2);
    assert_eq!(ports[0]["name"], "http");
    let three = apply(Some(&two), &config(json!([{"containerPort": 80}])), &writer("a", T1), false).unwrap();
    assert_eq!(
        three["spec"]["template"]["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 80, "protocol": "TCP", "name": "http"}])
    );
    let mut gone = a.clone();
    gone["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap().remove("ports");
    let four = apply(Some(&three), &gone, &writer("a", T1), false).unwrap();
    assert_eq!(
        four["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().unwrap().len(),
        1,
        "b owns it"
    );
    let mut gone_b = gone.clone();
    gone_b["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx");
    let five = apply(Some(&four), &gone_b, &writer("b", T1), false).unwrap();
    assert_eq!(five["spec"]["template"]["spec"]["containers"][0].get("ports"), None);
}

#[test]
fn configs_that_do_not_fit_are_refused_in_upstreams_words() {
    let table = [
        (
            json!({"apiVersion": "v1", "kind": "Deployment"}),
            400,
            "Incorrect version specified in apply patch. Specified patch version: v1, expected: apps/v1",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"managedFields": []}}),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w", "namespace": "d"}, "spec": {"foo": 1}}),
            500,
            "failed to create typed patch object (d/w; apps/v1, Kind=Deployment): .spec.foo: field not declared in schema",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": "x"}}),
            500,
            ".spec.replicas: expected numeric (int or float), got string",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}}}),
            500,
            ".spec.template.spec.containers: duplicate entries for key [name=\"a\"]",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": {"containers": [{"image": "a"}, {"image": "b"}]}}}}),
            500,
            ".spec.template.spec.containers: duplicate entries for key [name=\"\"]",
        ),
    ];
    for (config, code, text) in table {
        let error = apply(None, &config, &writer("a", T0), false).unwrap_err();
        assert_eq!((error.code, error.message.contains(text)), (code, true), "{}", error.message);
    }
}

/// Validation refuses the empty key.
#[test]
fn an_omitted_key_is_empty() {
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"},
        "spec": {"template": {"spec": {"containers": [{"image": "a"}]}}}});
    let applied = apply(None, &config, &writer("a", T0), false).unwrap();
    let owned = fields(&applied, "a");
    let containers = &owned["f:spec"]["f:template"]["f:spec"]["f:containers"];
    assert_eq!(containers[r#"k:{"name":""}"#]["f:image"], json!({}), "{owned}");
}

/// What fits the schema of apply may still be no value of the type.
#[test]
fn results_that_are_no_objects_of_the_type_are_refused() {
    let container = |more: Value| {
        let mut container = json!({"name": "web", "image": "nginx"});
        container.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        json!({"template": {"spec": {"containers": [container]}}})
    };
    let why = "failed to convert new object (d/w; apps/v1, Kind=Deployment) to proper version: unable to convert unstructured object to apps/v1, Kind=Deployment: ";
    let live = stored(base());
    for (spec, text) in [
        (
            json!({"replicas": 1.5}),
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            json!({"replicas": 5_000_000_000_i64}),
            "json: cannot unmarshal number 5000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            container(json!({"resources": {"limits": {"cpu": "x"}}})),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            container(json!({"livenessProbe": {"httpGet": {"port": true}}})),
            "json: cannot unmarshal bool into Go value of type int32",
        ),
    ] {
        let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w", "namespace": "d"}, "spec": spec});
        for live in [None, Some(&live)] {
            let error = apply(live, &config, &writer("a", T0), true).unwrap_err();
            assert_eq!((error.code, error.message), (500, format!("{why}{text}")));
        }
    }
}

#[test]
fn results_have_the_form_that_is_stored() {
    let limits = json!({"cpu": 0.5, "memory": "1024Mi"});
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w", "labels": null}, "spec": {
        "template": {"spec": {"containers": [{"name": "web", "image": "nginx", "resources": {"limits": limits}}]}}}});
    let made = apply(None, &config, &writer("a", T0), false).unwrap();
    let container = &made["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"], json!({"limits": {"cpu": "500m", "memory": "1Gi"}}));
    assert_eq!(made["metadata"].get("labels"), None);
    // To apply the same again is no change, not even of the time.
    let live = stored(made);
    assert_eq!(apply(Some(&live), &config, &writer("a", T1), false).unwrap(), live);
}

#[test]
fn moving_from_client_side_apply_is_no_conflict() {
    let mut live = base();
    let applied = base().to_string();
    live["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
    update(None, &mut live, &writer("kubectl-client-side-apply", T0));
    let live = stored(live);
    let mut config = base();
    config["spec"]["replicas"] = json!(4);
    let done = apply(Some(&live), &config, &writer("kubectl", T1), false).unwrap();
    assert_eq!(done["spec"]["replicas"], 4);
    let note =
        done["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(note).unwrap()["spec"]["replicas"], 4);
    assert_eq!(apply(Some(&live), &config, &writer("other", T1), false).unwrap_err().code, 409);
}

#[test]
fn a_custom_resource_is_held_to_its_schema() {
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {}}}}});
    let custom = Custom { schema: schema.into(), ..Custom::default() };
    let who = Writer { ty: Type::Deduced, custom: Some(&custom), api_version: "x.io/v1", ..writer("a", T0) };
    let config = |more: &str| json!({"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": {"a": 1}, more: "x"});
    assert!(apply(None, &config("kind"), &who, false).is_ok());
    let said = apply(None, &config("unknownField"), &who, false).unwrap_err().message;
    assert!(said.ends_with(": .unknownField: field not declared in schema"), "{said}");
}

#[test]
fn objects_without_a_schema_have_granular_maps_and_atomic_lists() {
    let who = |manager| Writer { ty: Type::Deduced, api_version: "x.io/v1", ..writer(manager, T0) };
    let config = json!({"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": {"a": {"b": 1}, "list": [{"name": "x"}]}});
    let one = stored(apply(None, &config, &who("a"), false).unwrap());
    assert_eq!(fields(&one, "a"), json!({"f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:list": {}}}));
    let error = apply(
        Some(&one),
        &json!({"apiVersion": "x.io/v1", "kind": "Foo", "spec": {"list": []}}),
        &who("b"),
        false,
    )
    .unwrap_err();
    assert!(error.message.ends_with("conflict with \"a\": .spec.list"));
}

#[test]
fn an_object_nobody_owns_gets_a_first_owner_before_it_is_applied_to() {
    let live = stored(base());
    let config = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2}});
    let error = apply(Some(&live), &config, &writer("ci", T1), false).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using apps/v1: .spec.replicas"
    );
}

/// Whether every field of the config is in the object with its value; the order of list items does not matter.
fn carries(object: &Value, config: &Value) -> bool {
    let ty = writer("", "").ty;
    compare::compare(object, &overlay::overlay(object, config, ty), ty) == compare::Comparison::default()
}

#[test]
fn entries_that_admission_broke_are_what_they_were() {
    let owned =
        json!([{"manager": "a", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}]);
    let broken =
        json!([{"manager": "a", "operation": "Guess", "apiVersion": "v1", "fieldsType": "FieldsV1"}]);
    let mut object = json!({"metadata": {"managedFields": broken}});
    assert!(entry::keep_readable(&mut object, owned.clone()).is_err());
    assert_eq!(object["metadata"]["managedFields"], owned);
    let mut object = json!({"metadata": {"managedFields": broken}});
    assert!(entry::keep_readable(&mut object, Value::Null).is_err());
    assert_eq!(object, json!({"metadata": {}}));
    // Entries that can be read may be others, or none.
    assert_eq!(entry::keep_readable(&mut object, owned), Ok(()));
    assert_eq!(object, json!({"metadata": {}}));
}

proptest! {
    #[test]
    fn applying_twice_changes_nothing(config in deployment(), other in deployment()) {
        let first = stored(apply(None, &config, &writer("a", T0), false).unwrap());
        let again = apply(Some(&first), &config, &writer("a", T1), false).unwrap();
        prop_assert_eq!(&again, &first);
        let both = apply(Some(&first), &other, &writer("b", T1), true).unwrap();
        prop_assert!(carries(&both, &other));
        let twice = apply(Some(&both), &other, &writer("b", "2026-01-03T00:00:00Z"), false).unwrap();
        prop_assert_eq!(twice, both);
    }

    #[test]
    fn what_a_sole_owner_stops_applying_goes(before in deployment(), after in deployment()) {
        let first = stored(apply(None, &before, &writer("a", T0), false).unwrap());
        let second = apply(Some(&first), &after, &writer("a", T1), false).unwrap();
        let fresh = stored(apply(None, &after, &writer("a", T1), false).unwrap());
        let strip = |mut v: Value| { v["metadata"].as_object_mut().unwrap().remove("managedFields"); v };
        prop_assert_eq!(strip(second), strip(fresh));
    }

    #[test]
    fn two_managers_do_not_clobber_each_other(a in deployment(), b in deployment(), a2 in deployment()) {
        let one = stored(apply(None, &a, &writer("a", T0), false).unwrap());
        let Ok(two) = apply(Some(&one), &b, &writer("b", T1), false) else { return Ok(()) };
        prop_assert!(carries(&two, &a) && carries(&two, &b));
        if let Ok(three) = apply(Some(&two), &a2, &writer("a", T1), false) {
            prop_assert!(carries(&three, &b), "b lost fields");
            prop_assert!(carries(&three, &a2));
        }
    }

    #[test]
    fn updates_keep_every_leaf_owned_by_someone(a in deployment(), b in deployment()) {
        let mut first = a;
        update(None, &mut first, &writer("a", T0));
        let first = stored(first);
        let mut second = stored(b);
        update(Some(&first), &mut second, &writer("b", T1));
        let entries = entry::decode(&second).unwrap();
        let owned = entries.iter().fold(set::Set::default(), |sum, e| sum.union(&e.fields));
        let mut bare = second.clone();
        entry::strip(&mut bare);
        let leaves = track::ownable(super::fields::of(&bare, writer("", "").ty));
        prop_assert_eq!(leaves.difference(&owned), set::Set::default());
    }

    #[test]
    fn field_sets_round_trip(a in deployment()) {
        let set = super::fields::of(&a, writer("", "").ty);
        prop_assert_eq!(set::Set::decode(&set.encode()).unwrap(), set);
    }
}
