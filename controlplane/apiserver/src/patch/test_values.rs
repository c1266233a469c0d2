//! Generators for property tests of patches.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Any small JSON tree.
pub fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..20i64).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-e]", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Any small JSON object.
pub fn document() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-e]", tree(), 0..5).prop_map(|m| Value::Object(m.into_iter().collect()))
}

/// The tree without null fields.
pub fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// A Deployment's spec and labels with keyed lists, atomic lists, maps and scalars.
pub fn deployment() -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[A-C]", "[x-z]", 0..3)
        .prop_map(|m| m.into_iter().map(|(k, v)| json!({"name": k, "value": v})).collect::<Value>());
    let ports = prop::collection::btree_map(1..4u16, "[p-r]", 0..3).prop_map(|m| {
        m.into_iter()
            .map(|(k, v)| json!({"containerPort": k, "protocol": "TCP", "name": v}))
            .collect::<Value>()
    });
    let container = ("[i-k]", env, ports, prop::option::of(prop::collection::vec("[m-o]", 1..3)));
    let containers = prop::collection::btree_map("[a-c]", container, 1..4).prop_map(|m| {
        m.into_iter()
            .map(|(name, (image, env, ports, args))| {
                let mut c = json!({"name": name, "image": image, "env": env, "ports": ports});
                for list in ["env", "ports"] {
                    if c[list].as_array().is_some_and(Vec::is_empty) {
                        c.as_object_mut().map(|c| c.remove(list));
                    }
                }
                if let Some(args) = args {
                    c["args"] = json!(args);
                }
                c
            })
            .collect::<Vec<Value>>()
    });
    let shuffled = containers.prop_shuffle();
    let labels = prop::collection::btree_map("[s-u]", "[0-9]", 0..3);
    let finalizers = prop::collection::btree_set("[f-h]/x", 0..3);
    (shuffled, labels, finalizers, prop::option::of(0..5u8)).prop_map(
        |(containers, labels, finalizers, replicas)| {
            let mut metadata = Map::from_iter([("name".to_owned(), json!("web"))]);
            if !labels.is_empty() {
                metadata.insert("labels".into(), json!(labels));
            }
            if !finalizers.is_empty() {
                metadata.insert("finalizers".into(), json!(finalizers));
            }
            let mut object = json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                "spec": {"template": {"spec": {"containers": containers}}},
            });
            if let Some(replicas) = replicas {
                object["spec"]["replicas"] = json!(replicas);
            }
            object
        },
    )
}
