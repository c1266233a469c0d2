#![allow(clippy::unwrap_used)]
use super::super::test_values::deployment;
use super::super::types::named;
use super::*;
use proptest::prelude::*;
use serde_json::json;

fn pod() -> Type<'static> {
    named("io.k8s.api.core.v1.Pod")
}

fn deploy() -> Type<'static> {
    named("io.k8s.api.apps.v1.Deployment")
}

#[test]
fn lists_merge_by_key_and_directives_do_what_they_say() {
    let table = [
        // What kubectl set image sends.
        (
            json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}),
            json!({"spec": {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "b", "image": "2"}]}}),
            json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}}),
        ),
        // A new item comes first without an order.
        (
            json!({"spec": {"containers": [{"name": "a"}]}}),
            json!({"spec": {"containers": [{"name": "z", "image": "x", "env": null}]}}),
            json!({"spec": {"containers": [{"name": "z", "image": "x"}, {"name": "a"}]}}),
        ),
        (
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"containers": [{"$patch": "delete", "name": "a"}]}}),
            json!({"spec": {"containers": [{"name": "b"}]}}),
        ),
        (
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}}),
            json!({"spec": {"containers": [{"name": "c"}]}}),
        ),
        // Lists without a merge key are replaced.
        (
            json!({"spec": {"tolerations": [{"key": "a"}], "containers": []}}),
            json!({"spec": {"tolerations": [{"key": "b"}]}}),
            json!({"spec": {"tolerations": [{"key": "b"}], "containers": []}}),
        ),
        (
            json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"], "$setElementOrder/finalizers": ["c", "d", "a"], "finalizers": ["d"]}}),
            json!({"metadata": {"finalizers": ["c", "d", "a"]}}),
        ),
        (
            json!({"metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"x": "y"}}}),
            json!({"metadata": {"labels": {"a": null, "c": "3"}, "annotations": {"$patch": "replace", "n": "m"}}}),
            json!({"metadata": {"labels": {"b": "2", "c": "3"}, "annotations": {"n": "m"}}}),
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}),
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
        ),
        (
            json!({"spec": {"securityContext": {"runAsUser": 1}}}),
            json!({"spec": {"securityContext": {"$patch": "delete"}}}),
            json!({"spec": {"securityContext": {}}}),
        ),
    ];
    for (object, patch, expected) in table {
        assert_eq!(apply(&object, &patch, pod()).unwrap(), expected, "{patch}");
    }
}

#[test]
fn ports_merge_by_container_port() {
    let object =
        json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "web"}]}]}});
    let patch =
        json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "hostPort": 8080}]}]}});
    let merged = apply(&object, &patch, pod()).unwrap();
    assert_eq!(
        merged["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 80, "name": "web", "hostPort": 8080}])
    );
}

#[test]
fn bad_patches_are_refused() {
    let object = json!({"spec": {"containers": [{"name": "a"}], "volumes": [{"name": "v"}]}, "metadata": {"finalizers": ["a"]}});
    let table = [
        (json!({"spec": {"containers": [{"image": "x"}]}}), 422, "does not contain declared merge key: name"),
        (
            json!({"spec": {"$setElementOrder/containers": {}}}),
            400,
            "invalid patch format of setElementOrder list",
        ),
        (json!({"spec": {"$retainKeys": 1}}), 400, "invalid patch format of retainKeys"),
        (json!({"spec": {"$retainKeys": ["a"], "volumes": []}}), 400, "invalid patch format of retainKeys"),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": 1}}),
            400,
            "invalid patch format of primitive list",
        ),
        (json!({"spec": {"$patch": "shuffle"}}), 500, "unknown patch type: shuffle"),
        (
            json!({"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "z"}]}}),
            422,
            "doesn't match $setElementOrder",
        ),
        (json!([]), 400, "must be an object"),
    ];
    for (patch, code, text) in table {
        let error = apply(&object, &patch, pod()).unwrap_err();
        assert_eq!((error.code, error.message.contains(text)), (code, true), "{patch}: {}", error.message);
    }
    assert_eq!(apply(&object, &json!({}), Type::Deduced).unwrap_err().code, 415);
}

/// The patch a client computes from two objects, as kubectl does.
fn diff(from: &Value, to: &Value, ty: Type) -> Value {
    let (Value::Object(old), Value::Object(new)) = (from, to) else { return to.clone() };
    let mut patch = Map::new();
    for key in old.keys().filter(|k| !new.contains_key(*k)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        let before = old.get(key);
        if before == Some(value) {
            continue;
        }
        let change = match (before, value) {
            (Some(Value::Array(a)), Value::Array(b)) if list_strategy(ty, key).is_some() => {
                let merge_key = list_strategy(ty, key).unwrap();
                let order: Vec<Value> = if merge_key.is_empty() {
                    b.clone()
                } else {
                    b.iter().map(|i| json!({merge_key: i[merge_key]})).collect()
                };
                patch.insert(format!("{SET_ORDER}{key}"), Value::Array(order));
                let same = |x: &Value, y: &Value| id(x, merge_key).unwrap() == id(y, merge_key).unwrap();
                let gone = a.iter().filter(|x| !b.iter().any(|y| same(x, y)));
                if merge_key.is_empty() {
                    let gone: Vec<Value> = gone.cloned().collect();
                    if !gone.is_empty() {
                        patch.insert(format!("{DELETE_FROM}{key}"), Value::Array(gone));
                    }
                    let added: Vec<Value> = b.iter().filter(|y| !a.contains(y)).cloned().collect();
                    Value::Array(added)
                } else {
                    let gone = gone.map(|x| json!({DIRECTIVE: "delete", merge_key: x[merge_key]}));
                    let changed = b.iter().filter_map(|y| match a.iter().find(|x| same(x, y)) {
                        None => Some(y.clone()),
                        Some(x) if x == y => None,
                        Some(x) => {
                            let mut item = diff(x, y, ty.child(key).item());
                            item[merge_key] = y[merge_key].clone();
                            Some(item)
                        }
                    });
                    changed.collect::<Vec<_>>().into_iter().chain(gone).collect()
                }
            }
            (Some(a @ Value::Object(_)), b @ Value::Object(_)) => diff(a, b, ty.child(key)),
            _ => value.clone(),
        };
        patch.insert(key.clone(), change);
    }
    Value::Object(patch)
}

proptest! {
    #[test]
    fn a_diff_round_trips(from in deployment(), to in deployment()) {
        let patch = diff(&from, &to, deploy());
        let got = apply(&from, &patch, deploy()).unwrap();
        prop_assert_eq!(got, to, "patch {}", patch);
    }

    #[test]
    fn applying_twice_is_applying_once(from in deployment(), to in deployment()) {
        let patch = diff(&from, &to, deploy());
        let once = apply(&from, &patch, deploy()).unwrap();
        prop_assert_eq!(apply(&once, &patch, deploy()).unwrap(), once);
    }

    #[test]
    fn no_patch_panics(object in deployment(), patch in super::super::test_values::document()) {
        let _ = apply(&object, &patch, deploy());
    }
}
