//! The Scale of an object that has replicas.

use super::custom;
use super::kinds::Kind;
use coracle_proto::selector::LabelSelector;
use serde_json::{Value, json};

/// The Scale of an object that has replicas.
pub fn of_value(kind: &Kind, object: &Value) -> Value {
    let meta = &object["metadata"];
    if let Some(paths) = custom_paths(kind) {
        let number = |path: &str| custom::at(object, path).as_i64().unwrap_or(0);
        let mut status = json!({"replicas": number(&paths.status)});
        if let Some(selector) =
            custom::at(object, &paths.selector).as_str().filter(|_| !paths.selector.is_empty())
        {
            status["selector"] = json!(selector);
        }
        return scale(meta, number(&paths.spec), status);
    }
    let raw = &object["spec"]["selector"];
    // ReplicationControllers have a plain map, the others a LabelSelector.
    let selector = if raw.get("matchLabels").is_some() || raw.get("matchExpressions").is_some() {
        LabelSelector::from_object(raw).unwrap_or(LabelSelector::Nothing)
    } else {
        LabelSelector::from_map(raw)
    };
    let text = selector.to_string();
    let mut status = json!({"replicas": object["status"]["replicas"].as_i64().unwrap_or(0)});
    if !text.is_empty() {
        status["selector"] = json!(text);
    }
    scale(meta, object["spec"]["replicas"].as_i64().unwrap_or(0), status)
}

fn scale(meta: &Value, replicas: i64, status: Value) -> Value {
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"], "creationTimestamp": meta["creationTimestamp"],
        },
        "spec": {"replicas": replicas},
        "status": status,
    })
}

/// Where a custom resource keeps its replicas, if it scales.
pub fn custom_paths(kind: &Kind) -> Option<&custom::Scale> {
    kind.custom.as_ref().and_then(|custom| custom.scale.as_ref())
}
